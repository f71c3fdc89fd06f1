"""Putting a flag, an override, an environment variable or a scheduler header into a launch script."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..reading.settings_leaf import Leaf
from ..reading.settings_map import settings_map
from ..reading.shell_launches import programs
from ..reading.shell_words import Script, Word, read_script
from .document import Document
from .literals import as_json
from .model import Splice, Unplaced
from .spelling import lineage

_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
# Launchers that give what they launch another environment than their own.
_ELSEWHERE = {
    "docker",
    "podman",
    "singularity",
    "apptainer",
    "enroot",
    "kubectl",
    "mpirun",
    "mpiexec",
    "horovodrun",
    "ssh",
}
_COMMENT = re.compile(r"[ \t]*(?:#[^\n]*?)?(?=\r?\n|\Z)")


@dataclass(frozen=True, slots=True)
class Group:
    """Arguments that belong together: those of a command, of an array, or within the quotes of a variable."""

    end: int
    source: str
    indent: str
    kind: str  # command, array, quoted
    equals: bool
    dashed: bool


def arguments(doc: Document, name: str, framework: str) -> Group:
    """The group of arguments that a setting is put into: the one with the settings next to it in the map.

    Raises:
        Unplaced: no command of the script takes settings of the framework.
    """
    order = {n: i for i, n in enumerate(settings_map().canonical)}
    scopes = set(lineage(framework))
    near = sorted(
        (not f.own, abs(order[f.name] - order[name]), f.leaf.line, f.leaf.group)
        for f in doc.found
        if f.leaf.style in ("flag", "override")
        and f.scope in scopes
        and f.leaf.note not in ("json", "escaped")
        and f.leaf.group
    )
    script = read_script(doc.clean)
    if len({group for other, _, _, group in near if not other and group.isdigit()}) > 1:
        raise Unplaced("several commands of the script take it")
    if near:
        return _group(doc, script, near[0][-1])
    launches = [i for i, c in enumerate(script.commands) if _launches(c)]
    if not launches:
        raise Unplaced("no command of the script takes it")
    return _group(doc, script, str(launches[-1]))


def _group(doc: Document, script: Script, name: str) -> Group:
    leaves = [
        f
        for f in doc.sheet.leaves
        if f.group == name and f.style in ("flag", "override") and f.note not in ("json", "escaped")
    ]
    quoted = any(leaf.note == "inside" for leaf in leaves) or (name not in script.arrays and not name.isdigit())
    if quoted:
        ends = [doc.span(leaf)[1] for leaf in leaves if leaf.width]
        if not ends:
            raise Unplaced("the arguments stand within quotes that hold quotes")
        words, end, kind = [], max(ends), "quoted"
        begin = min(doc.span(leaf)[0] for leaf in leaves if leaf.width)
    else:
        words = script.arrays[name] if name in script.arrays else script.commands[int(name)]
        begin, end, kind = words[0].start, words[-1].end, "array" if name in script.arrays else "command"
    flags = [leaf.key for leaf in leaves if leaf.style == "flag" and leaf.scope != "launcher"]
    valued = [leaf for leaf in leaves if leaf.style == "flag" and leaf.width and leaf.note != "switch"]
    equals = sum(doc.text[doc.span(leaf)[0] - 1] == "=" for leaf in valued) * 2 > len(valued)
    dashed = any("-" in k for k in flags) and not any("_" in k for k in flags)
    return Group(end, doc.text[begin:end], _indent(doc, leaves, end), kind, bool(valued) and equals, dashed)


def _indent(doc: Document, leaves: list[Leaf], end: int) -> str:
    rows = [doc.row(leaf.line) for leaf in leaves] + [doc.row(doc.lines.at(end))]
    starts = [re.match(r"[ \t]*", row)[0] for row in rows if re.match(r"[ \t]+[-+\w]", row)]  # type: ignore[index]
    return starts[-1] if starts else "    "


def put_argument(doc: Document, group: Group, argument: str) -> list[Splice]:
    """An argument at the end of its group, on a line of its own where the group has lines."""
    rest = _COMMENT.match(doc.text, group.end)
    if group.kind == "array" and "\n" in group.source:
        at = rest.end() if rest else group.end
        return [Splice(at, at, f"{doc.newline}{group.indent}{argument}")]
    if "\\\n" in group.source or "\\\r\n" in group.source:
        return [Splice(group.end, group.end, f" \\{doc.newline}{group.indent}{argument}")]
    if group.kind == "quoted" and "\n" in group.source:
        return [Splice(group.end, group.end, f"{doc.newline}{group.indent}{argument}")]
    return [Splice(group.end, group.end, f" {argument}")]


def _program(command: list[Word]) -> int:
    """Index of the program's word behind assignments and wrappers; -1 when there is none."""
    for i, word in enumerate(command):
        if not _ASSIGNED.match(word.text) and word.text not in programs().wrappers:
            return i
    return -1


def _launches(command: list[Word]) -> bool:
    at = _program(command)
    name = command[at].text.rsplit("/", 1)[-1] if at >= 0 else ""
    if name in ("", "export", "declare", "local", "readonly") or name in programs().not_settings:
        return False
    known = name in programs().launchers or name.startswith("python") or name in ("bash", "swift", "vllm", "trl")
    return known or any(w.text.startswith("--") for w in command[at:])


def put_launcher(doc: Document, flags: dict[str, dict[str, str]], name: str, value: str) -> list[Splice]:
    """A flag right behind the launcher that has it.

    Raises:
        Unplaced: no launcher of the script has the setting.
    """
    for command in read_script(doc.clean).commands:
        at = _program(command)
        while 0 <= at < len(command):
            program = command[at].text.rsplit("/", 1)[-1]
            if flag := flags.get(program, {}).get(name):
                at += program == "accelerate" and at + 1 < len(command) and command[at + 1].text == "launch"
                end = command[at].end
                return [Splice(end, end, f" --{flag}" + (f"={value}" if value else ""))]
            at += 1
            if at < len(command) and command[at].text.endswith(".py"):
                break
    raise Unplaced("no launcher of the script takes it")


def put_export(doc: Document, name: str, value: str) -> list[Splice]:
    """An `export` line below the others before the launch, or right before the launch.

    Raises:
        Unplaced: the script launches nothing, or its workers get their environment from Ray.
    """
    if re.search(r"runtime[-_]env|RUNTIME_ENV", doc.text):
        return _runtime_env(doc, name, value)
    commands = read_script(doc.clean).commands
    launch = next((c for c in commands if _launches(c)), None)
    if launch is None:
        raise Unplaced("the script launches nothing")
    if _ELSEWHERE & {w.text.rsplit("/", 1)[-1] for w in launch} or re.search(r"--export\b", doc.text):
        raise Unplaced("what is launched gets its environment by flags of the launcher")
    if re.search(rf"\b{name}=", re.sub(r"(?m)^[ \t]*#[^\n]*", "", doc.text)):
        raise Unplaced(f"{name} is set in a way that is not read")
    start = doc.text.rfind("\n", 0, launch[0].start) + 1
    indent = re.match(r"[ \t]*", doc.text[start:])[0]  # type: ignore[index]
    above = [c for c in commands if c[0].text == "export" and c[0].start < start]
    same = [c for c in above if doc.text[doc.text.rfind("\n", 0, c[0].start) + 1 : c[0].start] == indent]
    line = f"{indent}export {name}={value}{doc.newline}"
    if same:
        end = doc.text.find("\n", same[-1][-1].end)
        if not doc.text[same[-1][-1].end : end].strip():
            return [Splice(end + 1, end + 1, line)]
    return [Splice(start, start, line)]


def _runtime_env(doc: Document, name: str, value: str) -> list[Splice]:
    notes = ("json", "escaped")
    given = [leaf for leaf in doc.sheet.leaves if leaf.style == "environment" and leaf.note in notes and leaf.width]
    if not given:
        raise Unplaced("Ray gives its workers their environment from a runtime_env that cannot be written to safely")
    start, end = doc.span(given[-1])
    head = doc.text[doc.text.rfind("\n", 0, start) + 1 : start]
    alone = re.fullmatch(r"([ \t]*)\\?\"[\w.]+\\?\"\s*:\s*", head)
    text = f'"{name}": {as_json(value.strip(chr(39)))}'
    text = text.replace('"', '\\"') if given[-1].note == "escaped" else text
    return [Splice(end, end, f",{doc.newline}{alone[1]}{text}" if alone else f", {text}")]


def put_header(doc: Document, flag: str, value: str) -> list[Splice]:
    """A `#SBATCH` line below the others, or below the first line of the script."""
    headers = list(re.finditer(r"(?m)^#SBATCH[^\n]*\n?", doc.text))
    shebang = re.match(r"#![^\n]*\n", doc.text)
    if not headers:
        raise Unplaced("the script has no #SBATCH lines")
    at = headers[-1].end() if headers else shebang.end() if shebang else 0
    lead = "" if doc.text[at - 1 : at] == "\n" else doc.newline
    return [Splice(at, at, f"{lead}#SBATCH --{flag}" + (f"={value}" if value else "") + doc.newline)]
