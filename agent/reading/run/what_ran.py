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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal

from .files import RunFile
from .lines import segments, strip, without_escapes
from .program.commands import Command, of_log, of_record, of_script
from .program.configs import loaded
from .program.modules import Modules
from .program.statements import Match, Printed, statements

Part = Literal["program", "config", "output", "data", "bystander", "unknown"]
Read = Callable[[RunFile, int], bytes]

ENTRIES, LOGS, RECORDS = 32, 64, 64  # programs, logs and records that are looked at
HEAD, SOURCE = 1 << 17, 400_000  # bytes of a log and of a source
LINES = 500  # lines of different wording of one log
_ACTS = re.compile(rb"(?m)^(?:if __name__\b|for |while |with |@hydra|[A-Za-z_][\w.]*\()")
_RECORD = re.compile(
    r"(?:^|/)(?:wandb-metadata\.json|\.hydra/hydra\.yaml|(?:doctor-run/try_\d+/)?(?:run|record|args|argv|cmd|command)\.json)$"
)
_NEVER = re.compile(r"(?:^|/)\.(?:git\w+|dockerignore|editorconfig|flake8|coveragerc|pylintrc|[\w\-]+\.ya?ml)$")
_ASIDE = re.compile(
    r"(?:^|/)(?:readme|licen[sc]e|copying|notice|changelog|changes|contributing|code_of_conduct|authors|citation|security"
    r"|contributors|history|todo|faq)(?:[._-][^/]*)?$"
    r"|(?:^|/)(?:setup\.py|setup\.cfg|manifest\.in|tox\.ini|pytest\.ini|noxfile\.py|mkdocs\.yml|conftest\.py|mypy\.ini"
    r"|ruff\.toml|pyproject\.toml|makefile|justfile|codecov\.yml|test_[^/]*\.py|[^/]*_test\.py)$"
    r"|(?:^|/)(?:\.github|\.gitlab|\.circleci|\.vscode|\.idea|docs?|tests?|testing|third[-_]party|3rdparty|vendor(?:ed)?"
    r"|site-packages|dist-packages|node_modules|[^/]+\.egg-info)/",
    re.IGNORECASE,
)
_KEPT_ASIDE = ("log", "metrics", "checkpoint", "trace", "capture", "record")  # outputs, wherever they were put
_DATA_FOLDER = re.compile(r"(?:^|/)(?:data|datasets?|corpus|corpora|texts?|raw_data)/", re.IGNORECASE)
_PROSE = (".txt", ".text", ".raw", ".md", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".html", "")
_MENTION = re.compile(r"((?:[\w.\-]+/)*[\w.\-]+\.py)(?:[:\"](?:, line )?\d+)")


@dataclass(slots=True)
class Program:
    """A program that ran: its file, what it reaches, how it was started, what it loaded and which logs it printed.

    `configs` are the names of the files that it loaded with how that is known; `how` says why it is taken to have run.
    """

    file: RunFile
    how: str
    reached: list[str]
    commands: list[Command] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Ran:
    """The model of what ran in all folders of a workspace."""

    programs: list[Program] = field(default_factory=list)
    parts: dict[str, tuple[Part, str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
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
            self._printed[name] = _printed(program.reached, self.trees)
        return self._printed[name]


def what_ran(files: Sequence[RunFile], read: Read) -> Ran:
    """The model of all folders; each run of the workspace for itself.

    Args:
        files: every readable file.
        read: the first bytes of a file, unpacked.
    """
    ran = Ran()
    by_run: dict[str, list[RunFile]] = defaultdict(list)
    for f in files:
        by_run[f.run].append(f)
    for group in by_run.values():
        _Folder(group, read, ran).tell()
    return ran


class _Folder:
    """One folder on the way to its part of the model."""

    def __init__(self, files: list[RunFile], read: Read, ran: Ran) -> None:
        self.files, self._read, self.ran = files, read, ran
        self.by_name = {f.name: f for f in files}
        self.codes = [f for f in files if f.name.endswith(".py") and f.size <= SOURCE]
        self.modules = Modules((f.name for f in self.codes), self.tree)
        self.root = files[0].name.split("/", 1)[0] + "/" if self._many() else ""

    def _many(self) -> bool:
        return self.files[0].name.startswith(f"{self.files[0].run}/")

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

    # ----------
    # Which programs ran.

    def tell(self) -> None:
        """Work out programs and parts of this folder."""
        if not self.codes:
            self._parts([])
            return
        told = [c for log in self.logs for c in of_log(self.wording[log.name], log.name)]
        told += [c for f in self.files if _RECORD.search(f.name) for c in of_record(self.text(f.name), f.name)][
            :RECORDS
        ]
        offered = [c for f in self.files if _is_script(f) for c in of_script(self.text(f.name, 1 << 18), f.name)]
        programs = self._by_logs(told, offered) or self._by_elimination(offered)
        for program in programs:
            self._furnish(program, told, offered)
        self.ran.programs += programs
        self._parts(programs)

    @cached_property
    def logs(self) -> list[RunFile]:
        return [f for f in self.files if f.role == "log" and not _ASIDE.search(f.name)][:LOGS]

    @cached_property
    def wording(self) -> dict[str, list[tuple[int, str]]]:
        """Lines of different wording of each log's head, numbered, without escapes and prefixes."""
        return {f.name: list(_wordings(self._read(f, HEAD))) for f in self.logs}

    @cached_property
    def entries(self) -> list[str]:
        """Sources that do something when they are run, the shallowest first."""
        acting = [f.name for f in self.codes if not _ASIDE.search(f.name) and _ACTS.search(self._read(f, SOURCE))]
        return sorted(acting, key=lambda n: (n.count("/"), n))[:ENTRIES]

    def named(self, program: str, near: str = "", module: bool = False) -> str | None:
        """The source that a command or a frame names; paths of other machines are matched by their ends."""
        if module:
            return self.modules.named(program, f"{self.root}x") or self.modules.named(
                f"{program}.__main__", f"{self.root}x"
            )
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
                return min(ends, key=lambda n: n.count("/")) if size == 1 and self.root + end in ends else None
        return None

    def _by_logs(self, told: list[Command], offered: list[Command]) -> list[Program]:
        """Programs that logs and records name, or whose statements printed a log."""
        found: dict[str, Program] = {}
        for command in told:
            if name := self.named(command.program, command.file, command.module):
                program = found.setdefault(name, self._program(name, f"{command.file}:{command.line} names it"))
                program.commands.append(command)
                if command.file in self.wording and command.file not in program.logs:
                    program.logs.append(command.file)
        owned = {log for p in found.values() for log in p.logs}
        for log in self.logs:
            if log.name not in owned and (best := self._printer(log, offered)):
                name, count = best
                how = (
                    f"{count} of its statements printed {log.name}"
                    if count
                    else f"a launch script sends its output to {log.name}"
                )
                found.setdefault(name, self._program(name, how)).logs.append(log.name)
        return list(found.values())

    def _printer(self, log: RunFile, offered: list[Command]) -> tuple[str, int] | None:
        """The program whose statements printed most kinds of lines of a log, or whose script sends its output there."""
        written = {
            name for c in offered if any(PurePosixPath(w).name == PurePosixPath(log.name).name for w in c.writes)
            if (name := self.named(c.program, c.file, c.module))
        }  # fmt: skip
        mentioned = {m[1] for _, text in self.wording[log.name] for m in _MENTION.finditer(text)}
        named = {n for n in (self.named(m) for m in sorted(mentioned)[:40]) if n}
        scores: dict[str, tuple[int, int, int]] = {}
        for name in self._near(log):
            reached = self.modules.reached(name)
            printed = self._kinds(reached, log)
            own = len({s for s in printed if s[0] == name})
            scores[name] = (len(printed) + 2 * (name in named), own, name in written)
        if not scores:
            return (next(iter(written)), 0) if len(written) == 1 else None
        ranked = sorted(scores, key=lambda n: scores[n], reverse=True)
        best, score = ranked[0], scores[ranked[0]]
        if score[0] and (len(ranked) == 1 or score[:2] > scores[ranked[1]][:2] or score > scores[ranked[1]]):
            return best, score[0]
        return (next(iter(written)), 0) if len(written) == 1 else None

    def _near(self, log: RunFile) -> list[str]:
        """Entries that may have printed a log: those of its own folder's top, where there are any."""
        top = log.name.removeprefix(self.root).split("/", 1)[0]
        own = [n for n in self.entries if "/" in log.name and n.startswith(f"{self.root}{top}/")]
        others = [n for n in self.entries if n not in own]
        return own if own and any(self._kinds([n], log) for n in own) else [*own, *others]

    def _kinds(self, reached: list[str], log: RunFile) -> set[tuple[str, int]]:
        printed = _printed(reached, self.ran.trees, self._statements, self.tree)
        found = set()
        for _, text in self.wording[log.name]:
            if match := printed.of(text):
                found.add((match.statement.file, match.statement.line))
        return found

    @cached_property
    def _statements(self) -> dict[tuple[str, ...], Printed]:
        return {}

    def _by_elimination(self, offered: list[Command]) -> list[Program]:
        """The one program that launch scripts start, or the only one there is."""
        started = {n for c in offered if (n := self.named(c.program, c.file, c.module))}
        if len(started) == 1:
            name = next(iter(started))
            return [self._program(name, "the only program that a launch script here starts")]
        if not started and len(self.entries) == 1 and self.tree(self.entries[0]) is not None:
            return [self._program(self.entries[0], "the only program here")]
        return []

    def _program(self, name: str, how: str) -> Program:
        return Program(self.by_name[name], how, self.modules.reached(name))

    def _furnish(self, program: Program, told: list[Command], offered: list[Command]) -> None:
        """The launch scripts that started a program, and the configs that it loaded."""
        mine = [c for c in offered if self.named(c.program, c.file, c.module) == program.file.name]
        logs = {PurePosixPath(n).name for n in program.logs}
        writing = [c for c in mine if any(PurePosixPath(w).name in logs for w in c.writes)]
        scripts = {c.file for c in mine}
        used = writing or (mine if len(scripts) == 1 else [])
        for command in used:
            program.configs.setdefault(
                command.file, "starts the program" + (", writes its log" if writing else ", and no other script does")
            )
            program.commands.append(command)
        head = [(log, number, text) for log in program.logs for number, text in self.wording.get(log, ())]
        rest = {f.name: f for f in self.files if f.name not in scripts}
        program.configs |= loaded(program.commands, program.reached, self.tree, head, rest, self.text, self.root)

    # ----------
    # The part of each file.

    def _parts(self, programs: list[Program]) -> None:
        reached = {n: p for p in programs for n in p.reached}
        configs = {n: (p, how) for p in programs for n, how in p.configs.items()}
        mentioned = self._mentioned() if programs else set()
        whole = bool(programs) and all(self.tree(p.file.name) is not None for p in programs)
        for f in self.files:
            self.ran.parts[f.name] = self._part(f, reached, configs, mentioned, whole)

    def _part(
        self,
        f: RunFile,
        reached: dict[str, Program],
        configs: dict[str, tuple[Program, str]],
        mentioned: set[str],
        whole: bool,
    ) -> tuple[Part, str]:
        name = f.name
        if name in configs:
            return "config", f"{configs[name][0].file.name}: {configs[name][1]}"
        if name in reached:
            program = reached[name]
            return "program", program.how if name == program.file.name else f"{program.file.name} imports it"
        if name in mentioned:
            return "program", "a log names it with a line of it"
        if _NEVER.search(name) or (_ASIDE.search(name.removeprefix(self.root)) and f.role not in _KEPT_ASIDE):
            return "bystander", "no part of a run by its name"
        if f.role in ("metrics", "checkpoint", "trace", "record", "capture", "environment"):
            return "output", f"a file of {f.role}"
        if f.role == "data" or self._is_data(f):
            return "data", "data by its form or place"
        if f.role == "log":
            return "output", "a log"
        if f.role in ("code", "config") and whole:
            return self._left(f, configs, bool(reached))
        return "unknown", "nothing tells"

    def _left(self, f: RunFile, configs: dict[str, tuple[Program, str]], known: bool) -> tuple[Part, str]:
        """A source or a config that nothing of what ran leads to."""
        if f.name.endswith((".py", ".ipynb")):
            return "bystander", "no program that ran reaches it"
        if f.role == "code":
            return "unknown", "nothing tells"
        if _is_script(f):
            return "bystander", "it starts none of the programs that ran"
        same = [n for n in configs if PurePosixPath(n).suffix == PurePosixPath(f.name).suffix or n.endswith(".py")]
        if same:
            return "bystander", f"the program loaded {same[0]}"
        return "unknown", "nothing tells whether the program loaded it"

    def _mentioned(self) -> set[str]:
        """Sources that logs name with a line: in a frame of a traceback, in a warning."""
        texts = (text for lines in self.wording.values() for _, text in lines)
        named = {m[1] for text in texts for m in _MENTION.finditer(text) if "site-packages" not in text}
        return {n for n in map(self.named, sorted(named)[:200]) if n}

    def _is_data(self, f: RunFile) -> bool:
        """Text that programs are fed with: below a folder of data, and no log of any program."""
        if (
            not _DATA_FOLDER.search(f.name.removeprefix(self.root))
            or PurePosixPath(f.name).suffix.lower() not in _PROSE
        ):
            return False
        if f.role not in ("log", "other", "note", "metrics", "config"):
            return False
        return not any(f.name in p.logs for p in self.ran.programs)


def _printed(
    reached: Iterable[str],
    trees: dict[str, ast.Module | None],
    held: dict[tuple[str, ...], Printed] | None = None,
    tree: Callable[[str], ast.Module | None] | None = None,
) -> Printed:
    key = tuple(reached)
    if held is not None and key in held:
        return held[key]
    read = tree or trees.get
    made = Printed(s for n in key if (t := read(n)) is not None for s in statements(t, n))
    if held is not None:
        held[key] = made
    return made


def _is_script(f: RunFile) -> bool:
    if f.role != "config":
        return False
    path = PurePosixPath(f.name)
    return path.suffix in (".sh", ".bash", ".zsh", ".sbatch", ".slurm", "") or bool(
        path.suffix == ".txt" and re.search(r"launch|command|cmd|cli\b|script", path.name, re.IGNORECASE)
    )


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
