"""The commands that started programs: told by logs and records of a run, offered by its launch scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from .shell_launches import Launch, ShellReading, open_shell
from .shell_words import expand

_STARTS = re.compile(
    r"(?:^\s*|[>$+`'\"(=:]\s*|(?i:run(?:ning)?|command|executing|launch(?:ing)?|exec)\s+)"
    r"(?P<command>(?:[A-Z][A-Z0-9_]{1,40}=\S+ +)*"
    r"(?:\S*/)?(?:python[\d.]*|torchrun|accelerate +launch|deepspeed|mpirun|mpiexec|srun"
    r"|uv +run|poetry +run|colossalai +run)"
    r" +(?=\S).*)$"
)
_RUN_BY = (
    re.compile(r"^(?P<program>[\w./\-]+\.py) FAILED$"),  # torchrun's summary
    re.compile(r"^usage: (?P<program>[\w./\-]+\.py)\b"),
    re.compile(r'^\s*File "(?P<program>[^"]+\.py)", line \d+, in <module>'),
    re.compile(r"^(?P<program>[\w./\-]+\.py): error: "),
    re.compile(r"can't open file '(?P<program>[^']+\.py)'"),
)
_REDIRECT = re.compile(
    r"(?:&?\d?>>?&?|\|&?\s*tee(?:\s+-\w+)*|--(?:output|error|log[-_]?file)[= ]"
    r"|#SBATCH\s+(?:-[oe]|--output|--error)[= ])\s*['\"]?([^\s'\"|;&]+)"
)
_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Command:
    """A command that starts a program.

    `program` is the script or module as it is written, `arguments` what it is given, `variables` what is set for it;
    `writes` are the files that its output is sent to; `line` counts from 1.
    """

    program: str
    arguments: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    text: str
    file: str
    line: int
    writes: tuple[str, ...] = ()
    module: bool = False


def sends(command: Command, log: str) -> bool:
    """Whether the output of a command went to a log; `%x-%j.out` and unknown variables stand for any text."""
    for written in command.writes:
        parts = [p for p in written.split("/") if p not in ("", ".", "..")]
        while parts and parts[0].startswith("$"):
            parts.pop(0)
        any_text = re.sub(r"%\w|\\\$\\?\{?\w+\\?\}?", r"[^/]*", re.escape("/".join(parts)))
        if parts and re.search(rf"(?:^|/){any_text}$", log):
            return True
    return False


def of_script(text: str, file: str) -> list[Command]:
    """What a launch script starts: Python programs alone, variables filled in where the script says what they are."""
    reading = open_shell(text[: 1 << 18])
    whole = tuple(m[1] for m in _REDIRECT.finditer(text) if not m[1].isdigit())
    rows = text.split("\n")
    found = []
    for launch in reading.launched:
        if (made := _command(launch, reading, file)) is not None:
            writes = tuple(expand(w, reading.known) for w in whole)
            row = rows[made.line - 1].strip() if made.line <= len(rows) else ""
            found.append(
                Command(made.program, made.arguments, made.variables, row, file, made.line, writes, made.module)
            )
    return found


def _command(launch: Launch, reading: ShellReading, file: str) -> Command | None:
    if launch.program is None:
        return None
    program = expand(launch.program.text, reading.known)
    names = [w.text for s in launch.stages for w in (s.word, *s.flags)]
    module = "-m" in names[-3:] or (bool(names) and names[-1] == "-m")
    if not (program.endswith(".py") or module):
        return None
    arguments: list[str] = []
    for word in launch.arguments:
        text = expand(word.text, reading.known)
        arguments += text.split() if word.raw.startswith("$") and " " in text else [text]
        if (m := re.match(r"\$\{?(\w+)\[[@*]\]\}?", word.text)) and m[1] in reading.script.arrays:
            arguments[-1:] = [expand(w.text, reading.known) for w in reading.script.arrays[m[1]]]
    variables = tuple(
        (w.text.partition("=")[0], expand(w.text.partition("=")[2], reading.known)) for w in launch.assigned
    )
    return Command(program, tuple(arguments), variables, "", file, launch.program.line, (), module)


def of_log(lines: list[tuple[int, str]], file: str) -> Iterator[Command]:
    """Commands that a log shows: echoed by a shell or a launcher, or named where a program failed or was misused.

    Args:
        lines: `(number, text)` of some lines, prefixes of loggers taken off.
    """
    for number, text in lines:
        if len(text) > _LONGEST:
            continue
        if ".py" in text or " -m " in text:
            if (m := _STARTS.search(text)) and not re.search(r"[.!?] |\bError\b", text[: m.start("command")]):
                for made in of_script(m["command"].rstrip("`'\")"), file):
                    yield Command(
                        made.program,
                        made.arguments,
                        made.variables,
                        text.strip(),
                        file,
                        number,
                        made.writes,
                        made.module,
                    )
                continue
            for pattern in _RUN_BY:
                if m := pattern.search(text):
                    yield Command(m["program"], (), (), text.strip(), file, number)
                    break


def of_record(text: str, name: str) -> Iterator[Command]:
    """The command in a record that a tracker or a configuration system keeps of a run.

    Read are wandb-metadata.json (`program`, `args`), hydra's own hydra.yaml (job name and overrides) and saved `argv`.
    """
    base = name.rsplit("/", 1)[-1]
    if base == "hydra.yaml" and "/.hydra/" in f"/{name}":
        yield from _of_hydra(text, name)
        return
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(said, dict):
        return
    program = said.get("codePath") or said.get("program") or said.get("script")
    arguments = said.get("args") if isinstance(said.get("args"), list) else []
    argv = said.get("argv") or said.get("command")
    if isinstance(argv, list) and argv and all(isinstance(a, str) for a in argv):
        yield from (Command(c.program, c.arguments, c.variables, " ".join(argv), name, 1, module=c.module)
                    for c in of_script(" ".join(_quoted(a) for a in argv), name))  # fmt: skip
    elif isinstance(program, str) and program.endswith(".py"):
        given = tuple(str(a) for a in arguments or ())
        yield Command(program, given, (), f"{program} {' '.join(given)}".strip(), name, 1)


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w./=:,@%+\-]+", word) else "'" + word.replace("'", "'\\''") + "'"


def _of_hydra(text: str, name: str) -> Iterator[Command]:
    try:
        said = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["hydra"]
        given = tuple(str(o) for o in said["overrides"]["task"])
        job = str(said["job"]["name"])
        chosen = str(said["job"].get("config_name") or "config")
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, RecursionError, ValueError):
        return
    arguments = ("--config-name", chosen, *given)
    yield Command(f"{job}.py", arguments, (), f"{job}.py {' '.join(given)}".strip(), name, 1)
