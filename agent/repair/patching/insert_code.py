"""Putting a keyword into a call, a key into a dictionary, or an environment variable into Python code."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ...reading.run.program.shell_launches import Launch, ShellReading, Stage, references
from ...reading.settings.forms.settings_python import dotted
from ...reading.settings.settings_map import Leaf, settings_map
from .document import Document, other_call
from .environment_shell import put_variable
from .named_values import carriers, shell_of, training_commands
from .spelling import Splice, Unplaced, lineage

# How many arguments are given by position before those that settings are put in as.
_POSITIONS = {"init_process_group": 2}


class Source:
    """Characters of a syntax tree, whose columns count bytes."""

    def __init__(self, doc: Document) -> None:
        self.doc, self.tree = doc, doc.tree
        self._rows = doc.clean.split("\n")

    def at(self, line: int, column: int) -> int:
        row = self._rows[line - 1]
        chars = column if row.isascii() else len(row.encode()[:column].decode(errors="replace"))
        return self.doc.lines.start(line) + chars

    def start(self, node: ast.expr | ast.keyword) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.keyword | ast.stmt) -> int:
        return self.at(node.end_lineno or 0, node.end_col_offset or 0)


def _the_call(doc: Document, calls: list[str]) -> ast.Call:
    """The one call that takes the framework's settings, leaving out those for evaluation or for another model.

    Raises:
        Unplaced: there is none, or several, or it gives more by position.
    """
    found = [
        node for node in ast.walk(doc.tree)
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in calls
        and not other_call(doc, node.lineno)
    ]  # fmt: skip
    if len(found) != 1:
        raise Unplaced(f"the code calls {' or '.join(calls[:2])} {len(found)} times, not once")
    call = found[0]
    if len(call.args) > _POSITIONS.get(dotted(call.func).rpartition(".")[2], 1):
        raise Unplaced("the call gives more by position, so that the keyword may be among it")
    return call


def call_line(doc: Document, calls: list[str]) -> int:
    """The line of the one call that takes the framework's settings."""
    return _the_call(doc, calls).lineno


def put_keyword(doc: Document, calls: list[str], keyword: str, value: str) -> list[Splice]:
    """A keyword behind the last argument of the one call that takes the framework's settings.

    Raises:
        Unplaced: no such call, several, or one that unpacks a dictionary.
    """
    source = Source(doc)
    call = _the_call(doc, calls)
    if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        raise Unplaced("the call unpacks arguments that are made elsewhere")
    if any(k.arg == keyword for k in call.keywords):
        raise Unplaced(f"`{keyword}` is computed")
    parts = [*call.args, *call.keywords]
    close = source.end(call) - 1
    opened = doc.text.index("(", source.end(call.func))
    return _member(doc, opened, close, [(source.start(p), source.end(p)) for p in parts], f"{keyword}={value}")


def _member(doc: Document, opened: int, close: int, parts: list[tuple[int, int]], member: str) -> list[Splice]:
    """A member behind the last of a list in brackets, in the layout of the list."""
    text = doc.text
    if not parts:
        return [Splice(opened + 1, opened + 1, member)] if not text[opened + 1 : close].strip() else _refuse()
    start, end = max(parts)
    while text[end:close].lstrip().startswith(")"):  # a value in parentheses
        end = text.index(")", end) + 1
    rest = re.sub(r"#[^\n]*", "", text[end:close])
    comma = rest.lstrip().startswith(",")
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].strip():  # members stand side by side
        return [Splice(end, text.index(",", end) + 1 if comma else end, f", {member}{',' if comma else ''}")]
    at = text.index(",", end) + 1 if comma else end
    behind = re.compile(r"[ \t]*(?:#[^\n]*?)?(?=\r?\n)").match(text, at)
    after = behind.end() if behind else at
    added = f"{doc.newline}{text[line:start]}{member}{',' if comma else ''}"
    if comma or after == end:
        return [Splice(after, after, added if comma else f",{added}")]
    return [Splice(end, end, ","), Splice(after, after, added)]


def _refuse() -> list[Splice]:
    raise Unplaced("the call holds comments alone")


def put_item(doc: Document, path: tuple[str, ...], value: str, anchors: set[str]) -> list[Splice]:
    """A key into the one dictionary literal that holds the framework's other keys.

    Args:
        anchors: first segments of keys that the framework is known by.

    Raises:
        Unplaced: no such dictionary, or several.
    """
    source = Source(doc)
    homes = [n for n in ast.walk(source.tree) if isinstance(n, ast.Dict) and anchors & set(_keys(n))]
    if len(homes) != 1:
        raise Unplaced(f"{len(homes)} dictionaries of the code hold such settings, not one")
    home, depth = homes[0], 0
    while depth < len(path) - 1 and isinstance(inner := _keys(home).get(path[depth]), ast.Dict):
        home, depth = inner, depth + 1
    if path[depth] in _keys(home):
        raise Unplaced(f"`{'.'.join(path[: depth + 1])}` is computed")
    if any(k is None for k in home.keys):
        raise Unplaced("the dictionary unpacks another")
    nested = "".join(f'"{p}": {{' for p in path[depth:-1]) + f'"{path[-1]}": {value}' + "}" * (len(path) - 1 - depth)
    parts = [(source.start(k), source.end(v)) for k, v in zip(home.keys, home.values, strict=True) if k is not None]
    return _member(doc, source.start(home), source.end(home) - 1, parts, nested)


def _keys(node: ast.Dict) -> dict[str, ast.expr]:
    return {
        k.value: v
        for k, v in zip(node.keys, node.values, strict=True)
        if isinstance(k, ast.Constant) and isinstance(k.value, str)
    }


def put_environ(doc: Document, name: str, value: str) -> list[Splice]:
    """`os.environ[...] = ...` below the last such line of the module.

    Raises:
        Unplaced: the module sets no environment variable: it has to be set before the libraries are imported.
    """
    source = Source(doc)
    lines = [
        node for node in source.tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
        and dotted(node.targets[0].value).endswith("environ")
    ]  # fmt: skip
    if not lines:
        raise Unplaced("the code sets no environment variable; it belongs before the launch")
    last = lines[-1]
    target = last.targets[0]
    assert isinstance(target, ast.Subscript)
    end = doc.text.find("\n", source.end(last))
    row = f'{dotted(target.value)}["{name}"] = {value}'
    if end < 0:
        return [Splice(len(doc.text), len(doc.text), doc.newline + row)]
    return [Splice(end + 1, end + 1, row + doc.newline)]


# ----------
# Putting a flag, an override, an environment variable or a scheduler header into a launch script.

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
