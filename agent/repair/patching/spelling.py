"""What a change is made of: what was asked, what was done, and what has to be done by hand."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeGuard

import yaml

from ...core.own_files import KNOWLEDGE, read_table
from ...reading.settings.settings_map import UNSET, Canonical, Leaf, Spelling, settings_map


class _Remove(Enum):
    TOKEN = 0

    def __repr__(self) -> str:
        return "REMOVE"


REMOVE: Final = _Remove.TOKEN


@dataclass(frozen=True, slots=True)
class Edit:
    """One value that was changed, put in or taken out. `old` and `new` are what stands in the file ("" for nothing)."""

    name: str
    key: str
    line: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Snippet:
    """What could not be written safely: the text to put in by hand ("" where none is known), and why."""

    name: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A text after its changes. `text` is the old one where nothing was to be done."""

    text: str
    edits: tuple[Edit, ...] = ()
    snippets: tuple[Snippet, ...] = ()


@dataclass(frozen=True, slots=True)
class Splice:
    """Characters of a text that are replaced. `key` is the leaf they belong to."""

    start: int
    end: int
    text: str
    key: str = ""


class Unplaced(Exception):
    """A change that cannot be written safely; the reason is one line. It becomes a snippet."""


def spliced(text: str, splices: list[Splice]) -> str:
    """The text with its splices made; they must not overlap."""
    for s in sorted(splices, key=lambda s: (s.start, s.end), reverse=True):
        text = text[: s.start] + s.text + text[s.end :]
    return text


def same(a: Any, b: Any) -> bool:
    """Whether two canonical values are one: `1` and `1.0` are, `1` and `true` are not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    if isinstance(a, list) and isinstance(b, list):
        return [str(x) for x in a] == [str(x) for x in b]
    return type(a) is type(b) and a == b


# ----------
# How a plain value is written in each format, in the style of the one it replaces.

_QUOTE = re.compile(r"[rbuRBU]?('''|\"\"\"|['\"])")
_SAFE = re.compile(r"[\w.+\-/:,%@=]+\Z", re.ASCII)
_PLAIN_YAML = re.compile(r"[A-Za-z_/.][\w./@+\-]*(?::[\w./@+\-]+)*\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_BOOLS = {"true": "false", "yes": "no", "on": "off", "1": "0"}


def number(value: int | float, old: str = "") -> str:
    """A number: whole where the old one was, with an exponent where the old one had one."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        if re.fullmatch(r"[+-]?[\d_]+", old):
            return str(int(value))
        if "e" not in old.lower():
            return f"{value:.1f}"
    text = repr(value)
    if "e" in old.lower() and "e" not in text:
        mantissa, _, exponent = f"{value:.15e}".partition("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
        return text if float(text) == value else repr(value)
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text


def switch(value: bool, old: str, default: str) -> str:
    """A bool in the words of the old one (`True`, `yes`, `1`), or in those of the format."""
    bare = old.strip("'\"")
    for true, false in _BOOLS.items():
        if bare.lower() in (true, false):
            word = true if value else false
            return word.upper() if bare.isupper() else word.capitalize() if bare[:1].isupper() else word
    return default if value else _BOOLS[default.lower()].capitalize() if default[:1].isupper() else _BOOLS[default]


def _numeric(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_json(value: Any, old: str = "") -> str:
    """JSON; a number that stood within quotes stays within them."""
    if _numeric(value):
        quoted = old[:1] == '"' and _NUMBER.match(old.strip('"')) is not None
        return f'"{number(value, old.strip(chr(34)))}"' if quoted else number(value, old)
    if isinstance(value, bool) and old[:1] == '"' and old.strip('"').lower() in ("true", "false"):
        return f'"{switch(value, old, "true")}"'
    if isinstance(value, list) and (m := re.match(r"\[(\r?\n[ \t]*)", old)):
        end = re.search(r"(\r?\n[ \t]*)?\]\Z", old)
        return f"[{m[1]}" + f",{m[1]}".join(as_json(v) for v in value) + f"{(end and end[1]) or ''}]"
    return json.dumps(value, ensure_ascii=False)


def as_yaml(value: Any, old: str = "") -> str:
    """YAML; floats with a point before the exponent, since the old parsers take `1e-5` for a word."""
    quote = old[:1] if old[:1] in ("'", '"') else ""
    if isinstance(value, list):
        return "[" + ", ".join(as_yaml(v) for v in value) + "]"
    if isinstance(value, bool):
        return switch(value, old, "true") if not quote else f"{quote}{switch(value, old, 'true')}{quote}"
    if _numeric(value):
        text = number(value, old.strip("'\""))
        text = re.sub(r"^([+-]?\d+)e", r"\1.0e", text)
        return f"{quote}{text}{quote}" if quote and _NUMBER.match(old.strip("'\"")) else text
    if value is None:
        return "null"
    if not quote and _PLAIN_YAML.match(value) and yaml.safe_load(value) == value:
        return value
    if quote == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False)


def as_toml(value: Any, old: str = "") -> str:
    """TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if _numeric(value):
        return number(value, old)
    if old[:1] == "'" and value.isprintable() and "'" not in value:
        return f"'{value}'"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def as_python(value: Any, old: str = "") -> str:
    """Python; a `torch.` name stays a name, a `timedelta` keeps its unit where that is whole."""
    if m := re.match(r"((?:\w+\.)*timedelta)\((?:\s*(\w+)\s*=)?", old):
        units = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
        unit = m[2] if m[2] in units and value % units[m[2]] == 0 else "seconds"
        count = value / units[unit]
        return f"{m[1]}({unit}={int(count) if float(count).is_integer() else count})"
    if isinstance(value, str) and re.fullmatch(r"(?:torch|jnp|np)\.\w+", old):
        head = old.partition(".")[0]
        return value if value.startswith(head + ".") else f"{head}.{value}"
    quote = m[1][:1] if (m := _QUOTE.match(old)) else '"'
    bare = old.strip("'\"") if _QUOTE.match(old) else ""
    if _numeric(value) and _NUMBER.match(bare):
        return f"{quote}{number(value, bare)}{quote}"
    if isinstance(value, bool) and bare.lower() in {*_BOOLS, *_BOOLS.values()}:
        return f"{quote}{switch(value, bare, '1')}{quote}"
    if isinstance(value, list):
        ends = "()" if old[:1] == "(" and len(value) > 1 else "[]"
        return ends[0] + ", ".join(as_python(v) for v in value) + ends[1]
    if _numeric(value):
        return number(value, old)
    if isinstance(value, str):
        text = repr(value)
        return text if quote == "'" or '"' in value else '"' + text[1:-1].replace("\\'", "'") + '"'
    return repr(value)


def as_word(value: Any, old: str = "", several: bool = False) -> str:
    """A word of a shell script, quoted as the old one was; `several` writes a list as words of their own."""
    quote = old[:1] if old[:1] in ("'", '"') and old[-1:] == old[:1] and len(old) > 1 else ""
    bare = old[1:-1] if quote else old
    if isinstance(value, list) and several:
        return " ".join(as_word(v) for v in value)
    if isinstance(value, list):
        text = ",".join(str(v) for v in value)
        text = f"[{text}]" if bare[:1] == "[" else text
    elif isinstance(value, bool):
        text = switch(value, bare, "True")
    elif value is None:
        text = "null"
    elif _numeric(value):
        text = number(value, bare)
        if m := re.fullmatch(r"((?:gpu:)?(?:[\w.-]+:)?)\d+(\(.*\))?", bare):  # gpu:h100:8
            text = f"{m[1]}{text}"
    else:
        text = str(value)
    if quote == "'" and "'" not in text:
        return f"'{text}'"
    if quote == '"' and not re.search(r'["\\$`]', text):
        return f'"{text}"'
    return text if _SAFE.match(text) else shlex.quote(text)


def as_inside(value: Any, old: str = "", several: bool = False) -> str:
    """A word within quotes that hold more: nothing may stand there that would need quotes."""
    text = as_word(value, old, several)
    if text[:1] in ("'", '"') and text[:1] != old[:1]:
        text = text[1:-1]
    if not re.fullmatch(r"[\w.+\-/:,%@=\[\]]*(?: [\w.+\-/:,%@=\[\]]+)*", text):
        raise Unplaced("it stands within quotes and the new value needs quotes of its own")
    return text


def as_ini(value: Any, old: str = "") -> str:
    """A value of an INI file: the rest of a line."""
    text = as_word(value, "" if old[:1] in ("'", '"') else old)
    text = text[1:-1] if text[:1] == "'" else text
    if "\n" in text or re.search(r"\s[#;]", text):
        raise Unplaced("an INI file cannot hold the value")
    return text


WRITERS: dict[str, Callable[..., str]] = {
    "json": as_json, "yaml": as_yaml, "toml": as_toml, "python": as_python, "shell": as_word, "env": as_word,
    "ini": as_ini,
}  # fmt: skip


def is_literal(source: str) -> bool:
    """Whether a piece of Python says all there is to its value: constants, arithmetic on them, a name of a dtype."""
    try:
        node = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if isinstance(node, ast.Attribute):
        return re.fullmatch(r"(?:torch|jnp|np)\.\w+", source.strip()) is not None
    if isinstance(node, ast.Call):
        parts = [*node.args, *(k.value for k in node.keywords)]
        return re.match(r"(?:\w+\.)*timedelta\(", source) is not None and all(_constant(p) for p in parts)
    return _constant(node)


def _constant(node: ast.AST) -> bool:
    allowed = (
        ast.Constant, ast.UnaryOp, ast.BinOp, ast.List, ast.Tuple, ast.Set, ast.operator, ast.unaryop, ast.expr_context,
    )  # fmt: skip
    return all(isinstance(part, allowed) for part in ast.walk(node))


# ----------
# From a canonical value to the word a framework has for it: unit, switch, fixed meaning, style of the word.

TABLE = KNOWLEDGE / "spelling.yaml"


class _Drop:
    """Says that a value is written by not being there: a switch that is off."""


DROP = _Drop()


@cache
def table() -> dict[str, Any]:
    """`knowledge/spelling.yaml`, read once."""
    return read_table(TABLE)


def lineage(framework: str) -> list[str]:
    """A framework and those whose spellings it inherits."""
    known = settings_map().frameworks.get(framework)
    return [framework, *(known.extends if known else ())]


def among(framework: str, names: list[str]) -> bool:
    """Whether a framework, or one it extends, is in a list of the table."""
    return any(f in names for f in lineage(framework))


def listed(table_name: str, framework: str) -> Any:
    """What the table says about the framework or, where it says nothing, about one it extends."""
    by = table()[table_name]
    return next((by[f] for f in lineage(framework) if f in by), None)


def wanted(name: str, value: Any) -> Any:
    """A value as the map would read it: `true` for the optimizer's offload means `cpu`."""
    if isinstance(value, bool) and settings_map().canonical[name].type == "list":
        return value  # a switch that stands for a list
    return settings_map().convert(Spelling(name, (name,)), value)


def raw_value(spelling: Spelling, scope: str, value: Any, old: Leaf | None = None) -> Any:
    """What to write for a canonical value at one spelling: a plain value, or `DROP`.

    Raises:
        Unplaced: this spelling has no word for the value.
    """
    canonical = settings_map().canonical[spelling.name]
    if spelling.fixed is not UNSET:
        if value is False or same(value, spelling.fixed):
            return value is not False
        raise Unplaced(f"{spelling.segments[-1]} can only say {spelling.fixed}")
    if spelling.invert:
        if not isinstance(value, bool):
            raise Unplaced(f"{spelling.segments[-1]} is a switch")
        return not value
    if spelling.scale != 1.0 and isinstance(value, int | float) and not isinstance(value, bool):
        return _scaled(value / spelling.scale, canonical.type)
    return _word(canonical, spelling, scope, value, old)


def _scaled(value: float, kind: str) -> int | float:
    """A value in another unit; a whole number where the setting is one, never less than was asked for."""
    return math.ceil(value - 1e-9) if kind in ("int", "seconds") else value


def _word(canonical: Canonical, spelling: Spelling, scope: str, value: Any, old: Leaf | None) -> Any:
    told = table()["words"].get(canonical.name, {})
    by = told.get(spelling.segments[-1])
    words = next((told[f] for f in lineage(scope) if f in told), None)
    if by is None and old is None:
        by = words
    if by is not None and not isinstance(value, list) and _fits(old, by):
        if value in by:
            return DROP if by[value] is None else by[value]
        open_ended = canonical.name not in table()["closed"] and not by.keys() <= {"cpu", False}
        if value not in (True, False) and open_ended:
            return value
        raise Unplaced(f"{spelling.segments[-1]} has no word for {value}")
    if old is not None and (word := _of_family(canonical.name, scope, value, old)) is not None:
        return word
    if old is not None and words is not None and isinstance(old.value, str) and value in words:
        return words[value]
    if words is not None and value not in words and canonical.name in table()["closed"]:
        raise Unplaced(f"{spelling.segments[-1]} has no word for {value}")
    switched = any(isinstance(v, bool) for v in canonical.values.values())
    if old is not None and isinstance(old.value, bool) and isinstance(value, str) and not switched:
        raise Unplaced(f"a switch stands there, and what it takes for {value} is not known")
    back = settings_map().convert(spelling, value)
    if same(back, value):
        return value
    for word in canonical.values:
        if same(settings_map().convert(spelling, word), value):
            return word
    raise Unplaced(f"{spelling.segments[-1]} has no word for {value}")


def _of_family(name: str, scope: str, value: Any, old: Leaf) -> Any:
    """The word for a value in the style of the one that stands there, if the framework takes it; or None."""
    if isinstance(old.value, bool) or not isinstance(old.value, str | int):
        return None
    stands = str(old.value).lower()
    by = table()["accepted"].get(name, {})
    accepted = next((by[f] for f in lineage(scope) if f in by), None)
    for family in table()["families"].get(name, ()):
        word = family.get(value)
        if word is None or (accepted is not None and word not in accepted):
            continue
        if stands in (str(w).lower() for w in family.values()):
            return int(word) if isinstance(old.value, int) and word.isdigit() else word
    return None


def _fits(old: Leaf | None, by: dict[Any, Any]) -> bool:
    """Whether the words of the table are of the kind that stands there: a switch stays a switch."""
    if old is None or old.value is None:
        return True
    return any(isinstance(w, bool) for w in by.values()) == isinstance(old.value, bool)


def candidates(framework: str, name: str) -> list[tuple[str, Spelling]]:
    """Spellings that a setting could be put in by, best first, each with the scope it belongs to."""
    spelled = settings_map().canonical[name].spelled
    own = [(f, _clean(s)) for f in lineage(framework) for s in spelled.get(f, ())]
    first = (listed("preferred", framework) or {}).get(name)
    own.sort(key=lambda each: ".".join(each[1].segments) != first)
    if own or not among(framework, table()["shared_for"].get(name, lineage(framework))):
        return own
    shared = [f for f in ("launcher", "slurm") if f in spelled] or ["env"]
    return [(f, _clean(s)) for f in shared if f != framework for s in spelled.get(f, ())]


def _clean(spelling: Spelling) -> Spelling:
    head, *rest = spelling.segments
    return Spelling(spelling.name, (head.lstrip("="), *rest), spelling.scale, spelling.fixed, spelling.invert)


def whole_key(framework: str, spelling: Spelling) -> tuple[str, ...]:
    """A spelling with what stands above it in a whole file of the framework."""
    prefixes = listed("prefixes", framework) or {}
    prefix = prefixes.get(spelling.segments[0])
    if prefix is None and "*" in prefixes and len(spelling.segments) == 1:
        return (*prefixes["*"].split("."), *spelling.segments)
    return (*prefix.split("."), *spelling.segments[1:]) if prefix else spelling.segments
