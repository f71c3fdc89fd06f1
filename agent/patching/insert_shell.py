"""Putting a flag, an override, an environment variable or a scheduler header into a launch script."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..reading.settings_leaf import Leaf
from ..reading.settings_map import settings_map
from ..reading.settings_shell import ShellReading, references
from ..reading.shell_launches import Launch, Stage
from .document import Document
from .environment_place import put_variable
from .model import Splice, Unplaced
from .spelling import lineage
from .training_command import carriers, shell_of, training_commands

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
    """The group of arguments that a setting is put into: of those of the training command, the one with the settings
    next to it in the map.

    Raises:
        Unplaced: no command of the script takes settings of the framework, or none that surely runs.
    """
    commands = training_commands(doc, framework)
    names = [each.name for each in carriers(doc, commands)]
    order = {n: i for i, n in enumerate(settings_map().canonical)}
    scopes = set(lineage(framework))
    near = sorted(
        (not f.own, abs(order[f.name] - order[name]), f.leaf.line, f.leaf.group)
        for f in doc.found
        if f.leaf.style in ("flag", "override")
        and f.scope in scopes
        and f.leaf.note not in ("json", "escaped")
        and f.leaf.group in names
    )
    if not near and names[0] != commands[0].group:
        raise Unplaced(f"its command (line {commands[0].words[0].line}) stands in a branch, a loop or a function")
    return _group(doc, shell_of(doc.clean), near[0][-1] if near else names[0])


def _group(doc: Document, reading: ShellReading, name: str) -> Group:
    leaves = [
        f
        for f in doc.sheet.leaves
        if f.group == name and f.style in ("flag", "override") and f.note not in ("json", "escaped")
    ]
    launch = reading.by_group.get(name)
    if launch is not None:
        begin, end, kind = launch.words[0].start, launch.end, "quoted" if launch.quote else "command"
        if not launch.end:
            raise Unplaced("its command stands within quotes that hold quotes or variables")
        alone = launch.quote is not None
    elif name in reading.script.arrays:
        words = reading.script.arrays[name]
        begin, end, kind, alone = words[0].start, words[-1].end, "array", False
    else:
        ends = [doc.span(leaf)[1] for leaf in leaves if leaf.width]
        if not ends:
            raise Unplaced("the arguments stand within quotes that hold quotes")
        begin, end, kind = min(doc.span(leaf)[0] for leaf in leaves if leaf.width), max(ends), "quoted"
        alone = _evaluated(reading, name)
    flags = [leaf.key for leaf in leaves if leaf.style == "flag" and leaf.scope != "launcher"]
    valued = [leaf for leaf in leaves if leaf.style == "flag" and leaf.width and leaf.note != "switch"]
    equals = sum(doc.text[doc.span(leaf)[0] - 1] == "=" for leaf in valued) * 2 > len(valued)
    dashed = any("-" in k for k in flags) and not any("_" in k for k in flags)
    source = "" if alone else doc.text[begin:end]
    return Group(end, source, _indent(doc, leaves, end), kind, bool(valued) and equals, dashed)


def _evaluated(reading: ShellReading, name: str) -> bool:
    """Whether a variable with arguments goes into a command line that another shell reads: line ends count there."""
    return any(
        each.quote is not None or any(w.quoted for w in each.words if name in references([w]))
        for each in reading.launched
        if name in references(each.words) and each.group != name
    )


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


def put_launcher(doc: Document, known: dict[str, dict[str, str]], name: str, value: str) -> list[Splice]:
    """A flag right behind the launcher that has it, in the training command.

    Raises:
        Unplaced: no launcher of the command has the setting, or what else it is given cannot be told.
    """
    reading = shell_of(doc.clean)
    commands = training_commands(doc, doc.framework)
    if len(commands) > 1:
        raise Unplaced("several commands of the script take it")
    launch: Launch | None = commands[0]
    if launch.blocks:
        raise Unplaced(f"its command (line {launch.words[0].line}) stands in a branch, a loop or a function")
    while launch is not None:
        for stage in launch.stages:
            if flag := known.get(stage.name, {}).get(name):
                return _behind_launcher(reading, launch, stage, f"--{flag}" + (f"={value}" if value else ""))
        launch = launch.outer
    raise Unplaced("no launcher of the script takes it")


def _behind_launcher(reading: ShellReading, launch: Launch, stage: Stage, text: str) -> list[Splice]:
    arrays = {key.partition("#")[0] for key in reading.script.arrays}
    if unknown := references(stage.flags) - arrays - reading.known.keys() - _PLAIN:
        raise Unplaced(f"the launcher is also given ${sorted(unknown)[0]}, which is not set in this file")
    word = stage.word
    if stage.name == "accelerate":
        word = next((w for w in stage.flags if w.text == "launch"), word)
    if not word.end or (launch.quote and re.search(r"['\"\\$`]", text)):
        raise Unplaced("the launcher stands within quotes that hold quotes")
    return [Splice(word.end, word.end, f" {text}")]


_PLAIN = {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODEID", "SLURM_PROCID", "MASTER_ADDR", "MASTER_PORT", "RANK"}


def put_export(doc: Document, name: str, value: str) -> list[Splice]:
    """An environment variable that the script does not set, given as a shell word.

    Raises:
        Unplaced: the script launches nothing, or the variable would not reach what it launches.
    """
    if re.search(rf"\b{name}=", re.sub(r"(?m)^[ \t]*#[^\n]*", "", doc.text)):
        raise Unplaced(f"{name} is set in a way that is not read")
    return put_variable(doc, name, value)


def put_header(doc: Document, flag: str, value: str) -> list[Splice]:
    """A `#SBATCH` line below the others, or below the first line of the script."""
    body = re.search(r"(?m)^[ \t]*[^#\s]", doc.text)  # below the first command they are not read
    headers = list(re.finditer(r"(?m)^#SBATCH[^\n]*\n?", doc.text[: body.start()] if body else doc.text))
    if not headers:
        raise Unplaced("the script has no #SBATCH lines")
    at = headers[-1].end()
    lead = "" if doc.text[at - 1 : at] == "\n" else doc.newline
    return [Splice(at, at, f"{lead}#SBATCH --{flag}" + (f"={value}" if value else "") + doc.newline)]
