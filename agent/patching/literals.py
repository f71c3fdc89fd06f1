"""How a plain value is written in each format, in the style of the one it replaces."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable
from typing import Any, TypeGuard

import yaml

from .model import Unplaced

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
