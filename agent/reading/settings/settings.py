"""All settings of a run: what was asked for in files and commands, what the run printed that it used.

reading = read_settings(workspace)
reading.asked("learning_rate")     -> [Setting, ...] in file order, what somebody set
reading.used("gradient_clip_norm") -> [Setting, ...] what the log says
reading.value("zero_stage")        -> the one value, used before asked; None when unset or ambiguous
setting.place                      -> where a patch would write
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ...core.errors import ParseError
from ...core.types import Value
from ..run.files import Line, RunFile
from ..run.metric_names import setting
from ..run.what_ran import Program, Ran
from .forms.effective import Effective
from .forms.given import Known
from .forms.settings_files import CONFIG_CAP, head, share, sheet_of
from .forms.settings_log import TAKEN
from .settings_map import LIST_CAP, UNSET, VALUE_CAP, Leaf, Spelling, normal, settings_map

if TYPE_CHECKING:
    from ..run.workspace import Workspace

FILES = 400  # files that are read for settings
LOG_BUDGET = 1 << 20  # bytes of one log that are looked at
SOURCE = 1 << 18  # bytes of a source, a script or a config whose expressions are followed
TOTAL_BUDGET = 32 << 20  # bytes of all files together
_TRAINS = re.compile(r"\.backward\(|optimizer\.step\(|[Tt]rainer\(|def training_step")
_ONLY_KNOWN = {"note", "table", "assignment", "variable", "dict", "default"}
_PLACEHOLDER = re.compile(r"<[^<>]*>\Z|[\w.]*\(\.\.\.\)\Z")
_TEMPLATE = re.compile(r"\$[({A-Za-z_@*]|\{\{")  # of a shell, OmegaConf, Jinja: what stands there later is not known
_OPTIMIZER = re.compile(r"^(?:Adam\w*|SGD|Lion|Adafactor|Muon)\Z")
_FORMS = {".py": ("python", ""), ".sh": ("shell", "flag"), ".bash": ("shell", "flag"), ".sbatch": ("shell", "flag"),
          ".yaml": ("yaml", "yaml"), ".yml": ("yaml", "yaml"), ".json": ("json", "json"), ".toml": ("toml", "toml"),
          ".log": ("text", "flag")}  # fmt: skip
_GROUP = re.compile(r"^defaults\.\d+\.(?:override[ _])?/?")  # an entry of hydra's list of defaults
_OWN_KEYS = {"tokenizer"}  # whose keys mean nothing but what it calls so itself
# What a run measured: no setting, wherever it stands.
RESULT = re.compile(
    r"(?i)(?:^|[._])(?:(?:train|eval|test|val(?:id(?:ation)?)?)_(?:loss|accuracy|acc|ppl|perplexity|runtime|samples?)"
    r"|\w*per_second|\w*runtime|total_flos|elapsed\w*|eta|best_\w*(?:loss|metric|acc\w*)|(?:global_)?step|epoch)$"
)
_OFTEN_UNKNOWN = ("Config", "Arguments", "Args", "Trainer", "LLM", "Params", "Loader", "Dataset")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a setting is written, for patches: format, style, dotted key, line, column and width of the value.

    Column and width count characters of the line and are 0 where the value has no place of its own.
    """

    format: str
    style: str
    key: str
    line: int
    column: int = 0
    width: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it stands in one line of one file.

    `name` is canonical, or `other.<key>` for a key the map does not know. `used` tells what the run printed
    from what was asked for; `default` marks a default in code that nothing overrides.
    """

    name: str
    value: Any
    key: str
    framework: str
    file: RunFile
    line: Line
    place: Place
    used: bool = False
    own: bool = True
    group: str = ""
    note: str = ""

    @property
    def known(self) -> bool:
        return not self.name.startswith("other.")

    @property
    def default(self) -> bool:
        return self.place.style == "default"


@dataclass(frozen=True, slots=True)
class Source:
    """A file that settings were read from.

    `asks` where it sets any, rather than only printing some; `trains` where its text has a training loop or trainer.
    """

    file: RunFile
    format: str
    framework: str
    asks: bool = True
    trains: bool = False


@dataclass(slots=True)
class Settings:
    """The reading. `problems` are one line each: `file: line N: what is wrong`.

    `open` are those that are set to what nobody can tell from the files: no values, but not absent either.
    `unread` are those of configs in use that nothing which ran reads, `instead` the ones of them for which the program
    reads another key, with the default of that.
    `elsewhere` are those whose place is not found yet, `code` is what the expressions of the programs come to.
    """

    all: list[Setting] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    duplicates: list[tuple[RunFile, str, Line, Line]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    open: list[Setting] = field(default_factory=list)
    unread: list[Setting] = field(default_factory=list)
    instead: list[tuple[Setting, Setting]] = field(default_factory=list)
    elsewhere: list[tuple[Setting, Known]] = field(default_factory=list)
    code: Effective | None = None

    def asked(self, name: str, run: str = "") -> list[Setting]:
        return [s for s in self.all if s.name == name and not s.used and (not run or s.file.run == run)]

    def used(self, name: str, run: str = "") -> list[Setting]:
        return [s for s in self.all if s.name == name and s.used and (not run or s.file.run == run)]

    def value(self, name: str) -> Any:
        """What holds for the run: the one value printed, or else the one value asked for."""
        for found in (self.used(name), self.asked(name)):
            distinct = {repr(s.value): s.value for s in found if not s.file.good}
            if distinct:
                return next(iter(distinct.values())) if len(distinct) == 1 else None
        return None

    def own_framework(self, source: Source) -> str:
        """The framework of a file as its program uses it, as far as that can be told: empty where it uses none of it.

        A program that only takes a tokenizer of transformers trains by itself.
        """
        if self.code is None or not source.framework:
            return source.framework
        imported, calls, known = self.code.imports(), self.code.calls(), settings_map()
        wanted = known.imports(source.framework)
        if imported is not None and wanted and not wanted & imported:
            return ""
        idle = source.format == "python" and not known.acted_on("", source.framework, calls)
        return "pytorch" if idle else source.framework

    @property
    def frameworks(self) -> set[str]:
        return {s.framework for s in self.sources if s.framework}


def read_settings(ws: Workspace) -> Settings:
    """Read every file of the run that can hold settings, once."""
    return ws.memo("settings", lambda: _read(ws))


def _read(ws: Workspace) -> Settings:
    out, budget = Settings(), TOTAL_BUDGET
    candidates = sorted(ws.files, key=lambda f: (f.role in ("log", "metrics", "other"), f.name))
    if len(candidates) > FILES:
        out.problems.append(f"{len(candidates) - FILES} of {len(candidates)} files were not read for settings")
    log_limit = share(candidates[:FILES], LOG_BUDGET, TOTAL_BUDGET // 2)
    by_name = {f.name: f for f in ws.everything}
    text = cache(lambda name: ws.text(by_name[name], SOURCE) if name in by_name else "")
    out.code = code = Effective(ws.ran, text)
    for file in candidates[:FILES]:
        limit = log_limit if file.role in ("log", "metrics", "other", "capture") else CONFIG_CAP
        try:
            lines = head(ws.lines(file), min(limit, budget))
        except (ParseError, OSError, EOFError, ValueError) as e:
            out.problems.append(f"{file.name}: {e}"[:300])
            continue
        budget -= sum(len(line.data) for line in lines)
        if file.role == "config" and file.size > CONFIG_CAP:
            out.problems.append(f"{file.name}: over {CONFIG_CAP >> 20} MiB, read in part")
        read_lines(file, lines, out, code)
    rows = cache(lambda name: {n.number: n for n in head(ws.lines(by_name[name]), SOURCE)} if name in by_name else {})
    put_where_decided(out, lambda name, number: (by_name[name], at) if (at := rows(name).get(number)) else None)
    out.all = _settled(_read_by_something(out, code), ws.ran)
    return out


def _read_by_something(out: Settings, code: Effective) -> list[Setting]:
    """Without keys of the programs' own configs, and own options of commands, that nothing which ran reads.

    A file few of whose keys the programs read is one that a library reads.
    """
    library = {s.file.name for s in out.sources if s.framework not in ("", "pytorch", "nanogpt")}
    library |= {s.file.name for s in out.all if s.key.rpartition(".")[2] in ("_target_", "class_path")}
    by_file: dict[tuple[str, bool], list[tuple[Setting, bool | None]]] = defaultdict(list)
    for s in out.all:
        last = s.key.rpartition(".")[2].replace("-", "_")
        if s.place.style in ("yaml", "json", "toml") and s.file.name not in library and last.isidentifier():
            read = None if s.key.startswith("hydra.") else code.reads(s.file.name, last)
            by_file[s.file.name, False].append((s, read))
        elif s.place.style == "flag" and s.place.format == "shell" and code.declares(last):
            by_file[s.file.name, True].append((s, code.reads(s.file.name, last)))
    unread: set[int] = set()
    for found in by_file.values():
        if len({s.key for s, read in found if read}) * 4 >= len({s.key for s, _ in found}):
            unread |= {id(s) for s, read in found if read is False}
    out.unread = [s for s in out.all if id(s) in unread]
    kept = [s for s in out.all if id(s) not in unread]
    out.instead = [(s, t) for s in out.unread if s.known for t in kept if t.name == s.name and t.default]
    return kept


def read_lines(file: RunFile, lines: list[Line], out: Settings, code: Effective | None = None) -> None:
    """Add the settings in the lines of one file to a reading.

    Args:
        code: what the programs' expressions come to; without it a source is taken for itself.
    """
    answer = sheet_of(file, lines, code.tree(file.name) if code is not None else None)
    if answer is None:
        return
    form, sheet = answer
    by_number = {line.number: line for line in lines}
    framework = ""
    if sheet.leaves:
        text = "\n".join(line.text[:400] for line in lines[:4000])
        framework = settings_map().detect((leaf.key for leaf in sheet.leaves), text)
        asks = any(not leaf.used and leaf.scope != "env" for leaf in sheet.leaves)
        out.sources.append(Source(file, form, framework, asks, bool(_TRAINS.search(text))))
    out.problems += [f"{file.name}: {p}" for p in sheet.problems]
    for key, first, second in sheet.duplicates[:50]:
        if first in by_number and second in by_number:
            out.duplicates.append((file, key, by_number[first], by_number[second]))
    if sheet.tree is not None and (code is None or code.tree(file.name) is not sheet.tree):
        code = Effective(Ran(trees={file.name: sheet.tree}), lambda _name: "")
    for leaf in sheet.leaves:
        if leaf.line not in by_number:
            continue
        line = by_number[leaf.line]
        if leaf.node is not None and code is not None:
            for effective, known in _held(leaf, leaf.node, file.name, code):
                if known is None:
                    out.open += _opened(leaf, file, form, framework, line)
                    continue
                found = list(_settings(effective, file, form, framework, line))
                if (known.file, known.line) == (file.name, leaf.line):
                    out.all += found
                else:
                    out.elsewhere += ((s, known) for s in found)
        elif is_open(leaf.value):
            out.open += _opened(leaf, file, form, framework, line)
        else:
            out.all += _settings(leaf, file, form, framework, line)


def _held(leaf: Leaf, node: ast.expr, name: str, code: Effective) -> Iterator[tuple[Leaf, Known | None]]:
    """A leaf of Python as it holds: not where it does not run or is set anew, with its value where that is known."""
    if not code.runs(name, node) or not code.kept(name, node, leaf.key, leaf.style):
        return
    if _OPTIMIZER.search(leaf.note) and code.beside_trainer(name, node):
        return
    if leaf.style == "assignment":
        if code.counted(name, node):
            return
        if leaf.key.isupper() and _is_table(leaf.key, leaf.value):
            return
        empty = isinstance(node, ast.List | ast.Tuple) and not node.elts
        if code.of_class(name, node):
            leaf = replace(leaf, style="default")
        elif empty or (isinstance(node, ast.Constant) and node.value is None):  # it is there to be filled
            return
    if leaf.style == "default" and code.unread_default(name, node, leaf.key):
        return
    if leaf.note == "add_argument" and code.left_open(name):
        yield leaf, None
        return
    if leaf.note == "add_argument" and not leaf.width and isinstance(leaf.value, bool):
        yield leaf, Known(leaf.value, name, leaf.line)
        return
    values = code.values(name, node)
    for known in values:
        yield replace(leaf, value=_bounded(known.value)), known
    if not values:
        yield leaf, None


def _is_table(key: str, value: Any) -> bool:
    """Whether a constant lists choices, or names a thing by its own name: `OPTIMIZER_NAME = "optimizer.pt"`."""
    if isinstance(value, list):
        return len(value) > 1 and all(isinstance(v, str) for v in value)
    return isinstance(value, str) and value.lower().partition(".")[0] in key.lower().split("_")


def is_open(value: Any, template: bool = True) -> bool:
    """Whether a value is only what stands in its place: `<words>`, `len(...)`, `${name}`, `$(hostname):29400`."""
    if isinstance(value, list):
        return template and any(isinstance(v, str) and _TEMPLATE.search(v) for v in value)
    if not isinstance(value, str):
        return False
    return _PLACEHOLDER.match(value) is not None or (template and _TEMPLATE.search(value) is not None)


def _bounded(value: Any) -> Any:
    if isinstance(value, bool | int | float | None):
        return value if not isinstance(value, int) or value.bit_length() <= 128 else "a very long integer"
    if isinstance(value, list):
        return [_bounded(v) for v in value[:LIST_CAP]]
    return str(value)[:VALUE_CAP]


def put_where_decided(out: Settings, line_of: Callable[[str, int], tuple[RunFile, Line] | None]) -> None:
    """Settings whose value stands in another line than the call that acts on it are told at that line, once."""
    there: dict[tuple[str, int], list[Setting]] = defaultdict(list)
    for s in out.all:
        there[s.file.name, s.line.number].append(s)
    for s, known in out.elsewhere:
        same = [t for t in there[known.file, known.line] if t.value == s.value or repr(t.value) == repr(s.value)]
        if any(t.name == s.name for t in same) or (found := line_of(known.file, known.line)) is None:
            continue
        twin = next((t for t in same if not t.known), None)  # the key that stands there means this setting
        if twin is not None:
            out.all.remove(twin)
            made = replace(twin, name=s.name, framework=s.framework, own=s.own)
        else:
            form, style = _FORMS.get(PurePath(known.file).suffix, ("text", "note"))
            place = Place(form, style or s.place.style, s.key, known.line)
            group = next((t.group for t in there[known.file, known.line]), "")
            made = replace(s, file=found[0], line=found[1], place=place, group=group)
        out.all.append(made)
        there[known.file, known.line].append(made)
    out.elsewhere.clear()


def _settings(leaf: Leaf, file: RunFile, form: str, framework: str, line: Line) -> Iterator[Setting]:
    scope = leaf.scope or framework
    known = settings_map()
    value = leaf.value
    if isinstance(value, float) and not math.isfinite(value):
        value = str(value)
    place = Place(form, leaf.style, leaf.key, leaf.line, leaf.column, leaf.width)
    found = resolved(leaf, scope)
    if found and (made := canonical_value(found, value, framework)) is not None:
        name, converted = made
        base = Setting(name, converted, leaf.key, scope, file, line, place, leaf.used, found[1], leaf.group, leaf.note)
        yield base
        for other, implied in known.implies.get(name, {}).get(str(converted).lower(), {}).items():
            yield Setting(
                other, implied, leaf.key, scope, file, line, place, leaf.used, found[1], leaf.group, "implied"
            )
    elif leaf.style not in _ONLY_KNOWN and _worth_keeping(leaf) and not _GROUP.match(leaf.key):
        key = ".".join(normal(p) for p in leaf.key.split("."))[:160]
        yield Setting(
            f"other.{key}", value, leaf.key, scope, file, line, place, leaf.used, False, leaf.group, leaf.note
        )


def _opened(leaf: Leaf, file: RunFile, form: str, framework: str, line: Line) -> Iterator[Setting]:
    """What is set to something that nobody can tell."""
    if found := resolved(leaf, leaf.scope or framework):
        place = Place(form, leaf.style, leaf.key, leaf.line, leaf.column, leaf.width)
        yield Setting(found[0].name, leaf.value, leaf.key, framework, file, line, place, leaf.used, found[1])
    else:
        yield from _settings(leaf, file, form, framework, line)


def resolved(leaf: Leaf, scope: str) -> tuple[Spelling, bool] | None:
    """The spelling of a leaf; a keyword is spelled with its call where the map knows that: `Trainer(devices=8)`.

    A switch `--no-x` that the map does not know says no to `x`.
    """
    known = settings_map()
    found = known.resolve(scope, leaf.key, leaf.value)
    in_call = leaf.style == "keyword" and bool(leaf.note)
    called = known.resolve(scope, f"{leaf.note}.{leaf.key}", leaf.value) if in_call else None
    if called is not None and called[0].segments[:-1] == (normal(leaf.note),):
        return called
    if found is None and leaf.note == "switch" and leaf.key[:3] in ("no-", "no_"):
        found = known.resolve(scope, leaf.key[3:])
        plain = found is not None and found[0].fixed is UNSET and isinstance(known.convert(found[0], False), bool)
        return (replace(found[0], invert=not found[0].invert), found[1]) if found and plain else None
    return found


def canonical_value(found: tuple[Spelling, bool], value: Any, framework: str = "") -> tuple[str, Any] | None:
    """Name and converted value; None where a key that is only accepted anywhere carries something else."""
    spelling, own = found
    kind = settings_map().canonical[spelling.name].type
    if not own and framework in _OWN_KEYS:
        return None
    converted = settings_map().convert(spelling, value)
    if own or converted is None:
        return spelling.name, converted
    numeric = isinstance(converted, int | float) and not isinstance(converted, bool)
    counts = numeric and float(converted) == int(converted) if numeric and abs(converted) < 1e15 else numeric
    fits = {
        "int": counts, "float": numeric, "seconds": numeric, "bool": isinstance(converted, bool),
        "str": not numeric or spelling.name in ("precision", "quantization"), "list": isinstance(converted, list),
    }[kind]  # fmt: skip
    placeholder = isinstance(converted, str) and (converted == "auto" or converted.startswith(("$", "${", "{{")))
    return (spelling.name, converted) if fits or placeholder else None


def _worth_keeping(leaf: Leaf) -> bool:
    if leaf.used and RESULT.search(leaf.key):
        return False
    if leaf.style == "keyword":
        return leaf.value is not None and leaf.note.endswith(_OFTEN_UNKNOWN) and leaf.note[:1].isupper()
    return leaf.style != "log" or leaf.used


def _settled(found: list[Setting], ran: Ran) -> list[Setting]:
    """Without what is printed twice the same in one file, and without what something else of its program overrides.

    Defaults give way to whatever is given or printed, keys of configs to words of all commands that load them.
    """
    owners = owners_of(ran)
    given: dict[tuple[str, str], list[set[int]]] = defaultdict(list)
    for s in found:
        if s.known and not s.default:
            given[s.name, s.file.run].append(owners(s))
    taken: dict[str, set[str]] = defaultdict(set)  # logs that say that the command set it
    for s in found:
        if s.note == TAKEN:
            taken[s.name].add(s.file.name)
    seen: set[tuple[str, str, str, bool, int]] = set()
    out = []
    off = _switched_off(found)
    for s in found:
        own = owners(s)
        if (s.file.name, s.used, s.key.rpartition(".")[2].lower()) in off:
            continue
        if s.default and any(not own or not other or own & other for other in given.get((s.name, s.file.run), ())):
            continue
        mine = [ran.programs[n] for n in own]
        if s.place.style in ("yaml", "json", "toml") and _replaced(s, mine):
            continue
        logs = {log for p in mine for log in p.logs}
        if s.place.style == "assignment" and logs and logs <= taken.get(s.name, set()):
            continue
        identity = (s.name, repr(s.value), s.file.name, s.used, 0 if s.used else s.line.number)
        if identity not in seen:
            seen.add(identity)
            out.append(s)
    return out


def _switched_off(found: list[Setting]) -> set[tuple[str, bool, str]]:
    """Keys that have no effect, with their files: what switches them on is off beside them."""
    said: dict[tuple[str, bool, str], set[bool]] = defaultdict(set)
    for s in found:
        if isinstance(s.value, bool):
            said[s.file.name, s.used, s.key.rpartition(".")[2].lower()].add(s.value)
    off = set[tuple[str, bool, str]]()
    for group in settings_map().switched:
        for file, used in {(f, u) for f, u, _ in said}:
            values = set[bool]().union(*(said.get((file, used, by), set()) for by in group["by"]))
            if values == {False}:
                off |= {(file, used, key) for key in group["keys"]}
    return off


def owners_of(ran: Ran) -> Callable[[Setting | Source], set[int]]:
    """Tells the numbers of the programs that a setting belongs to: of a script those that its command starts."""
    files: dict[str, set[int]] = defaultdict(set)
    started: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, program in enumerate(ran.programs):
        for name in (*program.reached, *program.configs, *program.logs, *(c.file for c in program.commands)):
            files[name].add(number)
        for command in program.commands:
            started[command.file].append((command.line, number))

    def of(s: Setting | Source) -> set[int]:
        line = s.line.number if isinstance(s, Setting) and s.place.style == "flag" else 0
        lines = [(at, n) for at, n in started.get(s.file.name, ()) if at <= line]
        if lines:
            nearest = max(lines)[0]
            return {n for at, n in lines if at == nearest}
        return files.get(s.file.name, set())

    return of


def _replaced(s: Setting, programs: list[Program]) -> bool:
    """Whether every command of the programs that load a config gives the key anew: `train.py x.yaml optim.lr=1e-4`."""
    key = normal(_GROUP.sub("", s.key))
    last = key.rpartition(".")[2]
    full = (key, f"{PurePath(s.file.name).parent.name}.{key}")  # of hydra's groups the folder's name comes first
    commands = [c for p in programs for c in p.commands if c.arguments]
    return bool(commands) and all(
        any(
            normal(word.partition("=")[0]) in ((*full, last) if word.startswith("-") else full)
            for word in c.arguments
            if word.startswith("-") or "=" in word
        )
        for c in commands
    )


def plain_value(value: object) -> Value:
    """A value that evidence can carry."""
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, list):
        return [v if isinstance(v, bool | int | float | str) else str(v) for v in value]
    return str(value)


# ----------
# Settings that are numbers, under the names that curves have for them.


@dataclass(frozen=True)
class PlainSetting:
    """A number under the name that metrics have for it, for arithmetic on curves: a plateau at ln(batch size)."""

    name: str
    value: float
    file: RunFile
    line: Line


def plain_settings(ws: Workspace) -> list[PlainSetting]:
    """All settings of the reading that are numbers and have such a name, in its order."""
    found: list[PlainSetting] = []
    for s in read_settings(ws).all:
        name = s.name if setting(s.name) == s.name else setting(s.key.rpartition(".")[2])
        if name and isinstance(s.value, int | float) and not isinstance(s.value, bool):
            found.append(PlainSetting(name, float(s.value), s.file, s.line))
    return found
