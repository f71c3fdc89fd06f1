"""Which command of a script trains, and where the arguments stand that it is given."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache

from ...reading.run.program.shell_launches import Launch, ShellReading, base_name, open_shell, references
from ...reading.settings.settings_map import Leaf
from .document import Document, Found
from .spelling import Splice, Unplaced, is_literal, lineage, same

_TRAINS = re.compile(
    r"train|finetun|fine_tun|sft|grpo|ppo|dpo|rlhf|rloo|reinforce|distill|kto|orpo|lora|qlora|dapo|gspo|main"
)
_ASIDE = re.compile(
    r"(?:^|[_.\-])(?:prep|convert|download|tokeni[sz]|merge|export|eval|infer|generate|check|test|bench|setup|build"
    r"|data|pip|install|huggingface|upload|split|plot|visuali|http|venv|json|warmup|cleanup|kill|sanity|status|stop"
    r"|config|env|estimate|chat|api|webui|deploy|sample|login|collect|probe|print|show|list|copy|sync|log|monitor|sleep"
    r"|hf_to|to_hf|hf2|consolidat|zero_to|mcore2|notify)"
)
_CLIS = {
    "llamafactory-cli", "swift", "megatron", "trl", "axolotl", "tune", "vllm", "sglang", "composer", "xtuner", "nemo",
    "automodel", "litgpt", "lightning", "fabric", "openrlhf",
}  # fmt: skip
_STARTS = {"torchrun", "accelerate", "deepspeed", "srun", "mpirun", "ray", "horovodrun", "mpiexec"}


@dataclass(frozen=True, slots=True)
class Carrier:
    """A place that holds arguments of the training command: its own words, an array, a quoted variable."""

    name: str
    shared: bool = False  # another command takes it too


@lru_cache(maxsize=8)
def shell_of(text: str) -> ShellReading:
    """A script opened up, once for each text."""
    return open_shell(text)


def training_commands(doc: Document, framework: str) -> list[Launch]:
    """The commands that train: one, or several that nothing tells apart.

    Raises:
        Unplaced: no command of the script does.
    """
    reading = shell_of(doc.clean)
    if (known := reading.trains.get(framework)) is not None:
        return known
    held = {each.group for each in reading.launched if not each.group[:1].isdigit() and ":" not in each.group}
    around = {id(each.outer) for each in reading.launched if each.outer is not None}
    kept = [e for e in reading.launched if id(e) not in around and not _carries_on(held, e) and not is_aside(e)]
    scopes = set(lineage(framework))
    own = {f.leaf.group for f in doc.found if f.own and f.scope in scopes and f.leaf.style in ("flag", "override")}
    told = [each for each in kept if own & groups_of(reading, each)]
    kept = told or [each for each in kept if _program_trains(each)]
    for prefer in (lambda each: bool(_TRAINS.search(_title(each))), lambda each: bool(each.names & _STARTS)):
        kept = [each for each in kept if prefer(each)] or kept
    if not kept:
        raise Unplaced("no command of the script takes it")
    reading.trains[framework] = kept
    return kept


def carriers(doc: Document, commands: list[Launch]) -> list[Carrier]:
    """Where arguments for the training commands may be put: what all of them have in common and surely runs.

    Raises:
        Unplaced: each of several commands has arguments of its own, or all that there is runs only in a branch, a loop
            or a function.
    """
    reading = shell_of(doc.clean)
    named = [groups_of(reading, each) - {each.group} for each in commands]
    others = {name for each in reading.launched if each not in commands for name in references(each.words)}
    own_names = {each.group.partition("#")[0] for each in commands}
    shared = sorted(set.intersection(*named)) if named else []
    found = [
        Carrier(name)
        for name in shared
        if name.partition("#")[0] not in others - own_names and not _part_blocks(reading, name)
    ]
    if len(commands) > 1 and not found:
        raise Unplaced("several commands of the script take it")
    if len(commands) == 1 and not commands[0].blocks:
        found.insert(0, Carrier(commands[0].group))
    if not found:
        raise Unplaced(f"its command (line {commands[0].words[0].line}) stands in a branch, a loop or a function")
    return found


def _part_blocks(reading: ShellReading, name: str) -> tuple[str, ...]:
    """The blocks in which an array or a variable with arguments is filled; none where that is at the top level."""
    if name in reading.script.arrays:
        words = reading.script.arrays[name]
        return reading.script.blocks.at(words[0].start) if words else ("empty",)
    made = [
        (w, each) for each in reading.launched for w in each.assigned if w.text.startswith((f"{name}=", f"{name}+="))
    ]
    if len(made) != 1 or made[0][1].quote:
        return ("several",)
    return made[0][1].blocks


def groups_of(reading: ShellReading, launch: Launch) -> set[str]:
    """The groups of leaves that a command is given: its own, arrays and variables among its arguments."""
    if (kept := reading.groups.get(id(launch))) is not None:
        return kept
    named = references(launch.arguments)
    for _ in range(3):  # an array or a text may be made of others
        named = named | {inner for name in named for inner in reading.made_of.get(name, ())}
    parts = {key for key in reading.script.arrays if key.partition("#")[0] in named}
    texts = {name for name in named if "--" in reading.known.get(name, "") and name not in parts}
    reading.groups[id(launch)] = {launch.group, *parts, *texts}
    return reading.groups[id(launch)]


def _carries_on(held: set[str], launch: Launch) -> bool:
    """Whether a command only starts another that a variable holds."""
    return not launch.words or bool(references(launch.words[:6]) & held and launch.group not in held)


def _title(launch: Launch) -> str:
    """The name of what runs: a script's stem, the last part of a module, the word behind a command-line program."""
    if launch.program is None:
        return ""
    name = base_name(launch.program)
    if name.endswith((".py", ".sh")):
        return name.rpartition(".")[0].lower()
    if name in _CLIS | _STARTS and launch.arguments and not launch.arguments[0].text.startswith("-"):
        return launch.arguments[0].text.lower()
    return name.rpartition(".")[2].lower() if "." in name else name.lower()


def is_aside(launch: Launch) -> bool:
    """Whether a command prepares, converts, evaluates or serves, or is no program that takes settings."""
    if launch.declares or (launch.program is None and not launch.arguments):
        return True
    title = _title(launch)
    if launch.program is not None and base_name(launch.program).endswith(".sh"):
        return True  # what it does with its arguments stands elsewhere
    if any(s.name in ("sbatch", "salloc") for s in launch.stages):
        return True
    if title in ("start", "stop", "up", "down"):
        return True
    first = _ASIDE.search(title)
    trains = _TRAINS.search(title)
    return first is not None and (trains is None or first.start() < trains.start())


def _program_trains(launch: Launch) -> bool:
    """Whether a command without a known setting could be the training: a Python program, a trainer's own command."""
    if launch.program is None:
        return bool(launch.arguments) and not launch.stages
    name = base_name(launch.program)
    words = [w.text for w in launch.words]
    module = "-m" in words and launch.program.text in words[words.index("-m") + 1 :]
    return name.endswith(".py") or name in _CLIS or module or bool(launch.names & (_STARTS - {"srun", "ray", "mpirun"}))


# ----------
# Of the places of a script that hold a setting, those that the training command goes by.

_GIVEN = ("flag", "override", "environment")


def parts(doc: Document, found: list[Found]) -> list[list[Found]]:
    """The places that hold a setting, apart by kind: what the command line gives, then what a here-document says.

    What another command is given is left out; so is a here-document that the command line overrides, unless both say
    the same and have to go on doing so.

    Raises:
        Unplaced: it is given in a branch that may not run.
    """
    if doc.form != "shell" or not found:
        return [found]
    reading = shell_of(doc.clean)
    try:
        commands = training_commands(doc, doc.framework)
    except Unplaced:
        return [found]
    found = [f for f in found if not _for_another(f, reading, commands)]
    written = [f for f in found if f.leaf.style not in _GIVEN]
    given = [f for f in found if f.leaf.style in _GIVEN]
    for f in given:
        _surely_runs(f, reading, commands)
    inside = [f for f in written if f.leaf.style in ("json", "yaml")]
    reached = {name for each in commands for name in groups_of(reading, each)}
    if not inside or not any(f.leaf.group in reached for f in given):
        return [found]
    others = [f for f in found if f not in inside]
    agree = all(same(f.value, g.value) for f in inside for g in given)
    return [others, inside] if agree else [others]


def _for_another(f: Found, reading: ShellReading, commands: list[Launch]) -> bool:
    """Whether a place belongs to a command that prepares, converts or evaluates, and not to the training."""
    group = f.leaf.group
    if f.leaf.style not in _GIVEN or any(group in groups_of(reading, each) for each in commands):
        return False
    takers = [each for each in reading.launched if group in groups_of(reading, each)]
    if f.leaf.style == "environment":
        takers = [each for each in takers if each.stages or each.arguments]
        outer = [o for each in commands if (o := each.outer)]
        return bool(takers) and all(t not in outer and is_aside(t) for t in takers)
    return bool(takers) and all(is_aside(each) for each in takers) and f.leaf.scope != "launcher"


def _surely_runs(f: Found, reading: ShellReading, commands: list[Launch]) -> None:
    blocks = [b for b in blocks_of(reading, f.leaf.group) if b.startswith(("if", "case", "and"))]
    if blocks and not all(set(blocks) <= set(each.blocks) for each in commands):
        raise Unplaced(f"it stands in a branch that may not run (line {f.leaf.line})")


def blocks_of(reading: ShellReading, group: str) -> tuple[str, ...]:
    """The blocks in which the words of a group stand."""
    if launch := reading.by_group.get(group):
        return launch.blocks
    if words := reading.script.arrays.get(group):
        return reading.script.blocks.at(words[0].start)
    made = [e for e in reading.launched for w in e.assigned if w.text.partition("=")[0].rstrip("+") == group]
    return made[0].blocks if len(made) == 1 else ()


# ----------
# Values that come from a variable: the place where the variable is set, where that can be told and is not shared.

REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^}]*))?\})")
TEMPLATE = re.compile(r"\$\{|\$\(|\$\w|`|\{\{|\{%|<[A-Za-z_]\w*>")
_SOURCED = re.compile(r"(?m)^\s*(?:source|\.)[ \t]+(?!\S*(?:activate|bashrc|profile|conda|module|lmod))\S")
_DEFAULT = re.compile(r"(['\"]?)\$\{\w+:?[-=]([^${}]*)\}\1\Z")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a value is written: the setting's own place, or that of the variable it is taken from."""

    found: Found
    start: int
    end: int
    variable: str = ""

    def source(self, doc: Document) -> str:
        return doc.text[self.start : self.end]


def shell_site(doc: Document, found: Found, source: str, start: int, end: int) -> Site:
    """The place where the variable of a `$NAME` is set, or the default of a `${NAME:-default}`."""
    bare = source.strip("\"'") if source[:1] == source[-1:] else source
    m = REFERENCE.fullmatch(bare)
    if not m or source[:1] == "'":
        raise Unplaced(f"`{source[:60]}` is filled in from elsewhere")
    variable = m[1] or m[2]
    made = _assignments(doc, variable)
    if _SOURCED.search(doc.clean) and (not made or _DEFAULT.match(doc.source(made[0]))):
        raise Unplaced(f"${variable} may be set in the file that the script sources")
    if not made and (d := _DEFAULT.match(source)):
        return Site(found, start + d.start(2), start + d.end(2))
    if len(made) != 1 or re.search(rf"\bfor\s+{variable}\s+in\b|\bread\b[^\n]*\b{variable}\b", doc.text):
        raise Unplaced(f"${variable} is not set once, to a plain value, in this file")
    leaf = made[0]
    own = doc.source(leaf)
    if leaf.line == found.leaf.line and leaf.column == found.leaf.column:  # X=${X:-1}
        d = _DEFAULT.match(source)
        if not d:
            raise Unplaced(f"`{source[:60]}` is filled in from elsewhere")
        return Site(found, start + d.start(2), start + d.end(2))
    if found.leaf.line < leaf.line and leaf.group != found.leaf.group and found.leaf.group.isdigit():
        raise Unplaced(f"${variable} is set only after it is used")
    if doc.form == "shell" and _in_branch(doc, leaf):
        raise Unplaced(f"${variable} is set in a branch that may not run (line {leaf.line})")
    begin, stop = doc.span(leaf)
    if _used_elsewhere(doc, found, variable, (begin, stop)):
        return Site(found, start, end)  # the value itself in place of the variable, which stays for its other uses
    if d := _DEFAULT.match(own):
        return Site(found, begin + d.start(2), begin + d.end(2), variable)
    if TEMPLATE.search(own) or leaf.note == "inside":
        raise Unplaced(f"${variable} is itself filled in from elsewhere")
    return Site(found, begin, stop, variable)


def _assignments(doc: Document, variable: str) -> list[Leaf]:
    styles = ("variable", "environment", "env")
    return [leaf for leaf in doc.sheet.leaves if leaf.key == variable and leaf.style in styles]


def _in_branch(doc: Document, made: Leaf) -> bool:
    return any(b.startswith(("if", "case", "and")) for b in blocks_of(shell_of(doc.clean), made.group))


def _used_elsewhere(doc: Document, found: Found, variable: str, own: tuple[int, int]) -> bool:
    """Whether anything but this setting takes its value from a variable: another setting, a name, a sum."""
    same = [f for f in doc.found if f.name == found.name and f.leaf.width]
    same = [f for part in parts(doc, same) for f in part]
    spans = [own, *(s for f in same if REFERENCE.fullmatch(doc.text[slice(*(s := doc.span(f.leaf)))].strip('"')))]
    if doc.form == "shell":
        said = [e.words for e in shell_of(doc.clean).launched if e.words and e.words[0].text in ("echo", "printf")]
        spans += [(words[0].start, words[-1].end) for words in said]
    text = re.sub(r"(?m)(?:^|(?<=\s))#[^\n]*", lambda m: " " * len(m[0]), doc.clean)
    uses = rf"\$(?:{variable}\b|\{{[#!]?{variable}\b)|\(\((?:(?!\)\)).)*?(?<![$\w{{]){variable}\b"
    return any(
        not any(start <= m.start() and m.end() <= end for start, end in spans)
        for m in re.finditer(uses, text, re.DOTALL)
    )


def followers(doc: Document, variable: str) -> list[Leaf]:
    """Leaves whose value changes with a variable: the variable itself, and whatever is made with it."""
    uses = re.compile(rf"\$(?:{variable}\b|\{{{variable}\b)" if doc.form != "python" else rf"\b{variable}\b")
    return [leaf for leaf in doc.sheet.leaves if leaf.key == variable or (leaf.width and uses.search(doc.source(leaf)))]


# ----------
# Values that Python code takes from a name: the name's own place where nothing else uses it, else the place of use.

_SEEN_BY_NAME = re.compile(r"\b(?:globals|locals|vars|eval|exec)\s*\(|__dict__|__all__")


def python_site(doc: Document, found: Found, source: str, start: int, end: int) -> Site:
    """The place of a value in Python code, or of the constant that it names.

    Raises:
        Unplaced: it is computed.
    """
    if is_literal(source):
        return Site(found, start, end)
    if not source.isidentifier():
        raise Unplaced(f"`{source[:60]}` is computed")
    line = _bound_once(doc.tree, source)
    made = [
        leaf for leaf in doc.sheet.leaves if leaf.key == source and leaf.line == line and leaf.style == "assignment"
    ]
    if len(made) != 1 or not made[0].width or not is_literal(doc.source(made[0])):
        raise Unplaced(f"`{source}` is not set once, to a plain value, in this file")
    if _uses(doc.tree, source) > 1 or _SEEN_BY_NAME.search(doc.text):
        return Site(found, start, end)
    return Site(found, *doc.span(made[0]), source)


def _uses(tree: ast.AST, name: str) -> int:
    return sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(tree))


def _bound_once(tree: ast.Module, name: str) -> int:
    """The line on which a module binds a name, where it does so once and nothing else in the file does; or 0."""
    bound, line = 0, 0
    for node in ast.walk(tree):
        named = (
            node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)
            else node.arg if isinstance(node, ast.arg)
            else (node.asname or node.name) if isinstance(node, ast.alias)
            else node.name if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)
            else ""
        )  # fmt: skip
        bound += named == name
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name:
            line = node.lineno
    return line if bound == 1 else 0


def in_class(doc: Document, line: int) -> bool:
    """Whether a line assigns a field of a class, such as the default of a dataclass."""
    return any(
        isinstance(node, ast.ClassDef) and any(part.lineno == line for part in node.body) for node in ast.walk(doc.tree)
    )


def timedelta(doc: Document, before: int) -> tuple[str, list[Splice]]:
    """What the code calls `timedelta`, and the import to add where it has no name for it.

    Args:
        before: the line of the call, above which the import has to stand.

    Raises:
        Unplaced: the name means something else here.
    """
    imports = [n for n in doc.tree.body if isinstance(n, ast.Import | ast.ImportFrom) and n.lineno < before]
    for node in imports:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom) and node.module == "datetime" and alias.name == "timedelta":
                if not alias.asname:
                    return "timedelta", []
            elif isinstance(node, ast.Import) and alias.name == "datetime":
                return f"{alias.asname or 'datetime'}.timedelta", []
    if any(isinstance(n, ast.Name) and n.id == "timedelta" for n in ast.walk(doc.tree)):
        raise Unplaced("the code has a `timedelta` that is not imported from datetime")
    last = imports[-1] if imports else _docstring(doc.tree)
    below = (last.end_lineno or 0) + 1 if last else doc.tree.body[0].lineno
    if below > doc.text.count("\n") + 1:
        raise Unplaced("no line stands below the imports")
    at = doc.lines.start(below)
    return "timedelta", [Splice(at, at, "from datetime import timedelta" + doc.newline)]


def _docstring(tree: ast.Module) -> ast.stmt | None:
    first = tree.body[0]
    text = first.value if isinstance(first, ast.Expr) else None
    return first if isinstance(text, ast.Constant) and isinstance(text.value, str) else None
