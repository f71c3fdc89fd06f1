"""What ran, and the part that every file of a folder plays in it. Made once, asked by every reader.

    ran = ws.ran
    ran.part(file)       # program, config, output, data, bystander or unknown
    ran.why(file)        # how that is known, in words
    ran.programs         # entry programs with their commands, modules, configs and logs

What lies in a folder is not what the run did. A file is a bystander where something else is known to have run and
nothing of that leads to the file; where nothing tells, its part is unknown.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from ...core.errors import ParseError
from .files import RunFile, open_regular
from .lines import segments, strip, without_escapes
from .program.commands import Command, of_log, of_record, of_script, sends
from .program.configs import loaded
from .program.file_parts import SET_UP, VENDORED, Part, Parts, is_data, is_script
from .program.modules import Modules
from .program.siblings import left_aside, names_run
from .program.statements import Match, Printed, statements

Read = Callable[[RunFile, int], bytes]

ENTRIES, SOURCES, LOGS, RECORDS = 32, 120, 64, 64  # programs, sources, logs and records that are looked at
HEAD, SOURCE, RIM = 1 << 17, 400_000, 1 << 15  # bytes of a log, of a source, and of a log's first and last lines
LINES = 500  # lines of different wording of one log
MANY = 4  # programs of which one is taken for what ran only where something tells
TELLING = 10  # letters of fixed text in all, by which a program is known
_ACTS = re.compile(rb"(?m)^(?:if __name__\b|for |while |with |@hydra|[A-Za-z_][\w.]*\()")
_RECORD = re.compile(
    r"(?:^|/)(?:wandb-metadata\.json|\.hydra/hydra\.yaml"
    r"|(?:doctor-run/try_\d+/)?(?:run|record|args|argv|cmd|command)\.json)$"
)
_MENTION = re.compile(r"((?:[\w.\-]+/)*[\w.\-]+\.py)(?:[:\"](?:, line )?\d+)")
_TARGET = re.compile(r"""["']?(?:_target_|target|class_path)["']?\s*:\s*["']?([A-Za-z_]\w*(?:\.\w+)+)""")
_GIVEN = re.compile(
    r"(?<!/hparams)(?<!/\.hydra/config)\.(?:ya?ml|toml)$"
)  # what programs write themselves is JSON as a rule
_SUPERSEDED = re.compile(r"(?i)(?:^|_)(?:legacy|old|backup|bak|copy|orig|deprecated)(?:_|\d*$)")
_BATCH = re.compile(r"\.(?:sbatch|slurm)$")
_ORDINARY = re.compile(
    r"^(?:logs?|runs?|outputs?|train\w*|eval\w*|test\w*|models?|results?|stdout|stderr|console|main|saved|config)$",
    re.I,
)


@dataclass(slots=True)
class Program:
    """A program that ran: its file, what it reaches, how it was started, what it loaded and which logs it printed.

    `configs` are the names of the files that it loaded with how that is known, `accounted` the logs of which the
    command or the config is known; `how` says why it is taken to have run.
    """

    file: RunFile
    how: str
    reached: list[str]
    commands: list[Command] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    accounted: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Ran:
    """The model of what ran in all folders of a workspace."""

    programs: list[Program] = field(default_factory=list)
    parts: dict[str, tuple[Part, str]] = field(default_factory=dict)
    trees: dict[str, ast.Module | None] = field(default_factory=dict, repr=False)
    _printed: dict[str, Printed] = field(default_factory=dict, repr=False)

    def part(self, file: RunFile) -> Part:
        return self.parts.get(file.name, ("unknown", ""))[0]

    def why(self, file: RunFile) -> str:
        return self.parts.get(file.name, ("", "nothing tells"))[1]

    def of(self, file: RunFile) -> Program | None:
        """The program that printed a log, or that a source belongs to."""
        owner = next((p for p in self.programs if file.name in p.logs), None)
        return owner or next((p for p in self.programs if file.name in p.reached), None)

    def statement(self, file: RunFile, body: str) -> Match | None:
        """The statement that printed a line of a log, and what its expressions came to.

        Args:
            body: the line without the prefixes of its surroundings (`lines.strip`).
        """
        program = next((p for p in self.programs if file.name in p.logs), None)
        return self.printed(program).of(body) if program is not None else None

    def printed(self, program: Program) -> Printed:
        """The statements of a program that print."""
        name = program.file.name
        if name not in self._printed:
            found = ((n, self.trees.get(n)) for n in program.reached)
            self._printed[name] = Printed(s for n, tree in found if tree is not None for s in statements(tree, n))
        return self._printed[name]


def what_ran(files: Sequence[RunFile], read: Read, question: str = "") -> Ran:
    """The model of all folders; each run of the workspace for itself.

    Args:
        files: every readable file.
        read: the first bytes of a file, unpacked.
        question: what was asked; of several runs in one folder it may name those that are meant.
    """
    ran = Ran()
    by_run: dict[str, list[RunFile]] = defaultdict(list)
    for f in files:
        by_run[f.run].append(f)
    for group in by_run.values():
        _Folder(group, read, ran, question).tell()
    return ran


class _Folder:
    """One folder on the way to its part of the model."""

    def __init__(self, files: list[RunFile], read: Read, ran: Ran, question: str) -> None:
        self.files, self._read, self.ran, self.question = files, read, ran, question
        self.root = f"{files[0].run}/" if files[0].name.startswith(f"{files[0].run}/") else ""
        self.by_name = {f.name: f for f in files}
        self.codes = [f for f in files if f.name.endswith(".py") and f.size <= SOURCE]
        self.modules = Modules((f.name for f in self.codes), self.tree)

    def text(self, name: str, limit: int = SOURCE) -> str:
        return self._read(self.by_name[name], limit).decode(errors="replace")

    def tree(self, name: str) -> ast.Module | None:
        """The tree of a source; of an excerpt that does not parse, None."""
        trees = self.ran.trees
        if name not in trees:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    trees[name] = ast.parse(self.text(name).replace("\0", " "))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                trees[name] = None
        return trees[name]

    def tell(self) -> None:
        """Work out programs and parts of this folder."""
        programs: list[Program] = []
        offered: list[Command] = []
        if self.codes:
            told = [c for log in self.logs for c in of_log(self.wording[log.name], log.name)]
            records = [f.name for f in self.files if _RECORD.search(f.name) and not self.of_another(f.name)][:RECORDS]
            told += [c for name in records for c in of_record(self.text(name), name)]
            offered = [c for f in self.files if is_script(f) for c in of_script(self.text(f.name, 1 << 18), f.name)]
            programs = self._by_logs(told, offered) or self._by_elimination(offered)
            if len(programs) == 1 and not programs[0].logs:  # whatever was printed here is its own
                programs[0].logs = [log.name for log in self.logs]
            self._meant(programs)
            for program in programs:
                self._furnish(program, offered)
        self.ran.programs += programs
        whole = bool(programs) and all(self.tree(p.file.name) is not None for p in programs)
        used = {name for p in programs for name in p.configs}
        unused = [c for c in (offered if programs else []) if c.file not in used]
        foreign = {log.name for log in self.logs if any(sends(c, log.name) for c in unused)}
        said = self._said(programs) if whole else ""
        untold = not programs and bool(self.logs) and len(self.entries) >= MANY
        named = self.mentioned if programs else {}
        parts = Parts(programs, named, whole, self.written, foreign, said, self.root, untold)
        for f in self.files:
            why = self.of_another(f.name)
            looks = parts.of(f, self._read)
            self.ran.parts[f.name] = ("bystander", f"of another run: {why}") if why else looks

    # ----------
    # What there is to go by.

    @cached_property
    def logs(self) -> list[RunFile]:
        found = (f for f in self.files if f.role == "log" and not is_data(f, self.root))
        return [f for f in found if not SET_UP.search(f.name) and not self.of_another(f.name)][:LOGS]

    @cached_property
    def wording(self) -> dict[str, list[tuple[int, str]]]:
        """Lines of different wording of each log's head, numbered, without escapes and prefixes."""
        return {f.name: list(_wordings(self._read(f, HEAD))) for f in self.logs}

    @cached_property
    def entries(self) -> list[str]:
        """Sources that do something when they are run, the shallowest first; tests last."""
        own = [f for f in self.codes if not VENDORED.search(f.name)]
        acting = [f.name for f in own if _ACTS.search(self._read(f, SOURCE))]
        return sorted(acting, key=lambda n: (bool(SET_UP.search(n)), n.count("/"), n))[:ENTRIES]

    @cached_property
    def printed(self) -> Printed:
        """The statements of all sources that print."""
        own = [f.name for f in self.codes if not VENDORED.search(f.name)]
        own = sorted(own, key=lambda n: (n not in self.entries, n.count("/"), n))[:SOURCES]
        return Printed(s for n in own if (tree := self.tree(n)) is not None for s in statements(tree, n))

    @cached_property
    def others(self) -> dict[str, str]:
        """Folders of other runs than the one that is meant."""
        known = [f for f in self.files if not is_data(f, self.root)]
        return left_aside(known, self.question, self._rims, self.root)

    def _rims(self, log: RunFile) -> list[str]:
        """The first and the last lines of a log; of a long one that is compressed the first alone."""
        found = self.text(log.name, RIM).split("\n")
        with suppress(OSError, ParseError), open_regular(log.path) as f:
            if log.size > RIM and f.seek(max(log.size - RIM, RIM)):
                found += f.read(RIM).decode(errors="replace").split("\n")
        return found

    def of_another(self, name: str) -> str:
        """Why a file belongs to another run than the one that is meant; empty where it does not."""
        return next((why for folder, why in self.others.items() if name.startswith(folder)), "")

    @cached_property
    def written(self) -> set[str]:
        """Folders that hold what a run wrote; the top of the folder is none."""
        kinds = ("checkpoint", "metrics", "log")
        outputs = (f for f in self.files if f.role in kinds and not is_data(f, self.root) and not SET_UP.search(f.name))
        return {PurePosixPath(f.name).parent.as_posix() for f in outputs} - {".", self.root.rstrip("/")}

    @cached_property
    def mentioned(self) -> dict[str, set[str]]:
        """Sources that each log names with a line: in a frame of a traceback, in a warning."""
        found: dict[str, set[str]] = {}
        for log, lines in self.wording.items():
            texts = (text for _, text in lines if "site-packages" not in text)
            named = {m[1] for text in texts for m in _MENTION.finditer(text)}
            found[log] = {n for n in map(self.named, sorted(named)[:200]) if n}
        return found

    def named(self, program: str, near: str = "", module: bool = False) -> str | None:
        """The source that a command or a frame names; paths of other machines are matched by their ends."""
        if module:
            beside = f"{self.root}x"
            return self.modules.named(program, beside) or self.modules.named(f"{program}.__main__", beside)
        path = PurePosixPath(program.replace("\\", "/").removeprefix("./"))
        folder = PurePosixPath(near).parent
        for name in dict.fromkeys((self.root + str(path), str(folder / path))):
            if name in self.by_name:
                return name
        for size in range(min(len(path.parts), 6), 0, -1):
            end = "/".join(path.parts[-size:])
            ends = [f.name for f in self.codes if f.name == self.root + end or f.name.endswith(f"/{end}")]
            if len(ends) == 1:
                return ends[0]
            if ends:
                return None
        return None

    # ----------
    # Which programs ran.

    def _by_logs(self, told: list[Command], offered: list[Command]) -> list[Program]:
        """Programs that logs and records name, or whose statements printed a log."""
        found: dict[str, Program] = {}
        for command in told:
            if name := self.named(command.program, command.file, command.module):
                program = found.setdefault(name, self._program(name, f"{command.file}:{command.line} names it"))
                program.commands.append(command)
                if command.file in self.wording and command.file not in program.logs:
                    program.logs.append(command.file)
        for sure in (True, False):  # where several may have printed a log, one that ran anyhow is the likelier
            for log in sorted(self.logs, key=lambda f: f.name.endswith((".err", ".stderr"))):
                if any(log.name in p.logs for p in found.values()):
                    continue
                if best := _beside(log, found) or self._printer(log, offered, set() if sure else set(found)):
                    name, how = best
                    found.setdefault(name, self._program(name, how)).logs.append(log.name)
        return list(found.values())

    def _printer(self, log: RunFile, offered: list[Command], ran: set[str]) -> tuple[str, str] | None:
        """The program whose statements printed most kinds of lines of a log, or whose script sends its output there."""
        sending = [c for c in offered if sends(c, log.name)]
        written = {n for n in (self.named(c.program, c.file, c.module) for c in sending) if n}
        kinds = self._kinds(log)
        warned = self.mentioned.get(log.name, set())
        path = PurePosixPath(log.name)
        scores: dict[str, tuple[int | bool, ...]] = {}
        for name in dict.fromkeys((*self.entries, *(source for source, _ in sorted(kinds)))):
            reached = set(self.modules.reached(name))
            printed = {fixed for (source, _), fixed in kinds.items() if source in reached}  # copies print alike
            if sum(c.isalpha() for fixed in printed for c in fixed) >= TELLING:
                own, source = sum(k[0] == name for k in kinds), PurePosixPath(name)
                near = (name in warned, source.stem == path.stem, source.parent == path.parent)
                kept = not _SUPERSEDED.search(source.stem)
                scores[name] = (len(printed), name in self.entries, *near, name in ran, own, name in written, kept)
        ranked = sorted(scores, key=lambda n: scores[n], reverse=True)
        if ranked and (len(ranked) == 1 or scores[ranked[0]] > scores[ranked[1]]):
            return ranked[0], f"{scores[ranked[0]][0]} of its statements printed {log.name}"
        return (next(iter(written)), f"a launch script sends its output to {log.name}") if len(written) == 1 else None

    def _kinds(self, log: RunFile) -> dict[tuple[str, int], str]:
        """The statements, by file and line, that may have printed lines of a log, with the text that they fix."""
        texts = (text for _, text in self.wording[log.name])
        return {(m.statement.file, m.statement.line): m.statement.fixed for t in texts for m in self.printed.all_of(t)}

    def _by_elimination(self, offered: list[Command]) -> list[Program]:
        """The one program that launch scripts start, or the only one there is."""
        started = {n for c in offered if (n := self.named(c.program, c.file, c.module))}
        if len(started) == 1:
            return [self._program(next(iter(started)), "the only program that a launch script here starts")]
        own = [n for n in self.entries if not SET_UP.search(n)]
        if not started and len(own) == 1 and self.tree(own[0]) is not None:
            return [self._program(own[0], "the only program here")]
        return []

    def _program(self, name: str, how: str) -> Program:
        return Program(self.by_name[name], how, self.modules.reached(name))

    def _meant(self, programs: list[Program]) -> None:
        """Take from programs the logs of other runs than those that the question names."""
        for program in programs:
            named = {log for log in program.logs if names_run(self.question, log.removeprefix(self.root))}
            near = {PurePosixPath(log).parent for log in named}
            other = [log for log in program.logs if PurePosixPath(log).parent not in near] if named else []
            self.others |= dict.fromkeys(
                (log for log in other if "/" in log.removeprefix(self.root)), "not the one asked about"
            )
            program.logs = [log for log in program.logs if log not in self.others]
            program.commands = [c for c in program.commands if c.file not in self.others]

    def _furnish(self, program: Program, offered: list[Command]) -> None:
        """The launch scripts that started a program, and the configs that it loaded."""
        mine = [c for c in offered if self.named(c.program, c.file, c.module) == program.file.name]
        writing = [c for c in mine if any(sends(c, log) for log in program.logs)]
        scripts = {c.file for c in mine}
        if not writing and len({(c.arguments, c.variables) for c in mine}) > max(len(program.logs), 1):
            mine = []  # starts of many runs, of which this is one or none
        mine = [
            c for c in mine if c in writing or not any(a in ("$@", "$*") for a in c.arguments)
        ]  # whatever it is given
        elsewhere = any(c.writes for c in mine) or any(map(_BATCH.search, scripts))  # what it printed is not here
        how = "starts the program, " + ("writes its log" if writing else "and no other script does")
        for command in writing or (mine if len(scripts) == 1 and not elsewhere else []):
            program.configs.setdefault(command.file, how)
            program.commands.append(command)
        rest = {f.name: f for f in self.files if f.name not in scripts and not self._is_written(f)}
        for log in program.logs:
            head = [(log, number, text) for number, text in self.wording.get(log, ())]
            named = loaded((), (), self.tree, head, rest, self.text, self.root) | self._namesakes([log], rest)
            program.accounted |= {log} if named else set()
            program.configs |= {n: how for n, how in named.items() if n not in program.reached}
        if not program.configs.keys() - scripts:
            program.configs |= self._namesakes(sorted(f"{folder}/" for folder in self.written), rest)
        if not program.configs.keys() - scripts:
            program.configs |= self._neighbours(program)
        known = {n: how for n, how in program.configs.items() if n not in scripts}
        given = loaded(program.commands, program.reached, self.tree, (), rest, self.text, self.root, known)
        program.configs |= {n: how for n, how in given.items() if n not in program.configs}
        program.accounted |= self._accounts(program)
        entry = program.file.name
        for name in [n for n in program.configs if n.endswith((".yaml", ".yml", ".json"))]:
            for m in _TARGET.finditer(self.text(name, 1 << 17)):  # classes that a config names are made by the program
                module = self.modules.named(m[1], entry) or self.modules.named(m[1].rpartition(".")[0], entry)
                program.reached += (
                    [n for n in self.modules.reached(module) if n not in program.reached] if module else []
                )

    def _said(self, programs: list[Program]) -> str:
        """What the programs' sources (their texts), commands, configs and logs say."""
        trees = [t for p in programs for n in p.reached if (t := self.tree(n)) is not None]
        found = [
            n.value for t in trees for n in ast.walk(t)
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and len(n.value) < 300
        ]  # fmt: skip
        found += [word for p in programs for c in p.commands for word in (c.text, *c.arguments)]
        found += [self.text(n, 1 << 16) for p in programs for n in p.configs]
        return "\n".join([*found, *(text for lines in self.wording.values() for _, text in lines)])

    def _neighbours(self, program: Program) -> dict[str, str]:
        """The one config of a kind that programs are given, which lies beside a log."""
        found: dict[str, str] = {}
        for log in program.logs:
            folder = PurePosixPath(log).parent
            beside = [f.name for f in self.files if PurePosixPath(f.name).parent == folder and _GIVEN.search(f.name)]
            own = [n for n in beside if not SET_UP.search(n.removeprefix(self.root))]
            same = [n for n in own if PurePosixPath(n).stem == PurePosixPath(log).stem]
            if len(chosen := same or own) == 1 and str(folder) != (self.root.rstrip("/") or "."):
                found[chosen[0]] = f"it lies beside {log}"
        return found

    def _is_written(self, f: RunFile) -> bool:
        return f.role == "config" and PurePosixPath(f.name).parent.as_posix() in self.written

    def _namesakes(self, outputs: list[str], files: dict[str, RunFile]) -> dict[str, str]:
        """The config that is called as a log or the folder of a run is, where only one is."""
        words: dict[str, str] = {}
        for output in outputs:
            path = PurePosixPath(output.removeprefix(self.root))
            words |= {p: output for p in (*path.parts[:-1], path.stem) if not _ORDINARY.match(p)}
        named = [
            n for n, f in files.items()
            if f.role == "config" and not is_script(f) and PurePosixPath(n).stem in words
            and not SET_UP.search(n.removeprefix(self.root)) and not VENDORED.search(n.removeprefix(self.root))
        ]  # fmt: skip
        return {n: f"{words[PurePosixPath(n).stem]} bears its name" for n in named} if len(named) == 1 else {}

    @staticmethod
    def _accounts(program: Program) -> set[str]:
        """The logs that a command is known to have made."""
        shown = {c.file for c in program.commands}
        records = [name.partition(".hydra/")[0] for name in shown if "/.hydra/" in name]
        return {
            log for log in program.logs
            if log in shown
            or any(sends(c, log) for c in program.commands)
            or any(log.startswith(folder) for folder in records)
        }  # fmt: skip


def _beside(log: RunFile, found: dict[str, Program]) -> tuple[str, str] | None:
    """The program that printed the log of the same name with another ending: `train.log` and `train.err`."""
    path = PurePosixPath(log.name)
    for name, program in found.items():
        for other in map(PurePosixPath, program.logs):
            if (other.parent, other.stem) == (path.parent, path.stem):
                return name, f"it printed {other}"
    return None


def _wordings(head: bytes) -> Iterator[tuple[int, str]]:
    """Lines of a log of which no earlier one is the same but for its digits."""
    seen: set[bytes] = set()
    for number, line in enumerate(head.split(b"\n"), 1):
        wording = line[:300].translate(None, b"0123456789.-+")
        if wording in seen or not line.strip():
            continue
        seen.add(wording)
        shown = segments(line)[-1][1]
        yield number, strip(without_escapes(shown[:2000]).decode(errors="replace")).body
        if len(seen) >= LINES:
            return
