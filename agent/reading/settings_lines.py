"""Settings of line-based files: TOML, INI, .env, and plain `key: value` notes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .bounded_toml import toml
from .settings_leaf import Leaf, Sheet
from .settings_values import LIST_CAP, VALUE_CAP, parse

_SECTION = re.compile(r"^\s*\[\[?\s*([^\[\]\n]{1,200}?)\s*\]\]?\s*(?:[#;].*)?$")
_TOML = re.compile(r"^\s*([\w.\-\"']{1,120}?)\s*=\s*(\S.*?)\r?$")
# The parts of a value of one line, and the key of a member of an inline table.
_PART = re.compile(
    r"""(?P<open>[\[{])|(?P<close>[\]}])|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|(?P<stop>[,#\s])|[^\[\]{}"'#,\s]+|."""
)
_TOML_PART = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*(?:"{3,5}|\Z)|\'{3}(?:[^\']|\'(?!\'\'))*(?:\'{3,5}|\Z)'''
    r"""|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|\#[^\n]*|[\[\]{}]""",
    re.DOTALL,
)
_MEMBER = re.compile(r"[\s,]*([\w.\-]+|\"[^\"\n]*\"|'[^'\n]*')\s*=\s*(?=\S)")
_INI = re.compile(r"^([A-Za-z_][\w.\-]{0,80})\s*[=:]\s*(.*)$")
_ENV = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w{0,80})=(.*)$")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_NOTE = re.compile(r"^[\s\-*>|]*([A-Za-z_][\w \-./]{0,40}?)\s*[:=](?![=/])\s*(\S.{0,300})$")
# `with nodes: 1 it works`: another try that a note mentions.
_ASIDE = re.compile(r"\b(?:with|using|at|for|on) `?([A-Za-z_][\w\-]{0,30})`?(?: ?[:=] ?| )(\d[\w.\-]{0,20})\b")
JOINED = 400  # lines a TOML value may span


def read_toml(text: str) -> Sheet:
    """Leaves of a TOML text by line; values are read by tomllib, those that span lines are joined first."""
    sheet, section = Sheet(), ""
    for here, m, raw in _toml_rows(text.split("\n")):
        if sheet.full:
            break
        if raw is None:
            section = m[1].replace('"', "").replace("'", "") + "."
            continue
        key = m[1].replace('"', "").replace("'", "")
        try:
            value = toml(f"x = {raw}")["x"]
        except ValueError:
            value = parse(raw.split(" #")[0].strip().strip("'\""))
            if "\n" in raw:
                sheet.problems.append(f"line {here}: not TOML")
        places = toml_places(raw) if "\n" not in raw else {}
        key = section + key
        _put(sheet, key, value, here, {key + tail: (m.start(2) + at, width) for tail, (at, width) in places.items()})
    return sheet


def _toml_rows(rows: list[str]) -> Iterator[tuple[int, re.Match[str], str | None]]:
    """Line, match and whole value of every key; a header of a table has no value."""
    number = 0
    while number < len(rows):
        row, number = rows[number], number + 1
        if m := _SECTION.match(row):
            yield number, m, None
        elif m := _TOML.match(row):
            here, raw, missing = number, m[2], toml_open(m[2])
            while missing and number < len(rows) and (missing != "[" or number < here + JOINED):
                more = [rows[number]]
                while missing != "[" and missing not in more[-1] and number + len(more) < len(rows):
                    more.append(rows[number + len(more)])
                raw, number = "\n".join([raw, *more]), number + len(more)
                missing = toml_open(raw)
            yield here, m, raw.removesuffix("\r")


def toml_open(raw: str) -> str:
    """What a value still lacks at its end: the quotes of its string, `[` for a bracket, or nothing."""
    depth = 0
    for m in _TOML_PART.finditer(raw):
        part = m[0]
        if part[:3] in ('"""', "'''") and (len(part) < 6 or not part.endswith(part[:3])):
            return part[:3]
        depth += (part in "[{") - (part in "]}")
    return "[" if depth > 0 else ""


def toml_masked(text: str) -> str:
    """A TOML text of the same length in which nothing within a value of several lines looks like a key or a table."""
    rows = text.split("\n")
    for here, _, raw in list(_toml_rows(rows)):
        for i in range(here, here + (raw or "").count("\n")):
            rows[i] = re.sub(r"\S", "x", rows[i])
    return "\n".join(rows)


def toml_places(raw: str, start: int = 0, prefix: str = "") -> dict[str, tuple[int, int]]:
    """Column and width of the value that begins at `start`, and of those within an inline table (`.key` -> place)."""
    end, depth = start, 0
    while m := _PART.match(raw, end):
        if (m["stop"] or m["close"]) and not depth:
            break
        depth += bool(m["open"]) - bool(m["close"])
        end = m.end()
        if not depth and m["close"]:
            break
    places = {prefix: (start, end - start)}
    if raw[start : start + 1] == "{" and prefix.count(".") < 8:
        at = start + 1
        while m := _MEMBER.match(raw, at, end):
            inner = toml_places(raw, m.end(), f"{prefix}." + m[1].strip("\"'"))
            places |= inner
            at = sum(next(iter(inner.values())))
    return places


def _put(sheet: Sheet, key: str, value: object, line: int, places: dict[str, tuple[int, int]]) -> None:
    column, width = places.get(key, (0, 0))
    if isinstance(value, dict):
        for k, v in list(value.items())[:LIST_CAP]:
            _put(sheet, f"{key}.{k}", v, line, places)
    elif isinstance(value, list):
        kept = [v for v in value[:LIST_CAP] if not isinstance(v, dict | list)]
        sheet.add(Leaf(key, kept, line, "toml", column=column, width=width))
    elif isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < 10**40):
        kept = value[:VALUE_CAP] if isinstance(value, str) else value
        sheet.add(Leaf(key, kept, line, "toml", column=column, width=width))


def read_ini(text: str) -> Sheet:
    """Leaves of an INI or cfg text."""
    sheet, section = Sheet(), ""
    for number, row in enumerate(text.split("\n"), 1):
        if m := _SECTION.match(row):
            section = m[1] + "."
        elif not row.lstrip().startswith(("#", ";")) and (m := _INI.match(row)):
            value = m[2].split(" #")[0].split(" ;")[0].rstrip()
            sheet.add(Leaf(section + m[1], parse(value), number, "ini", column=m.start(2), width=len(value)))
        if sheet.full:
            break
    return sheet


def read_env(text: str) -> Sheet:
    """Leaves of an .env file."""
    sheet = Sheet()
    for number, row in enumerate(text.split("\n"), 1):
        if (m := _ENV.match(row)) and not sheet.full:
            value = m[2].strip()
            if quoted := _QUOTED.match(value):
                value = quoted[0]
            elif value[:1] not in ("'", '"'):
                value = value.split(" #")[0].strip()
            bare = value.strip("'\"") if value[:1] in ("'", '"') else value
            column = m.start(2) + len(m[2]) - len(m[2].lstrip())
            sheet.add(Leaf(m[1], parse(bare), number, "env", "env", column=column, width=len(value)))
    return sheet


def read_note(text: str, limit: int = 400) -> Sheet:
    """Leaves of `key: value` lines in a hand-written note; only those the map knows will count."""
    sheet = Sheet()
    for number, row in enumerate(text.split("\n")[:limit], 1):
        if len(row) < 400 and (m := _ASIDE.search(row)):
            sheet.add(Leaf(m[1].strip(), parse(m[2]), number, "note", group="row note"))
        elif len(row) < 400 and (m := _NOTE.match(row)):
            sheet.add(Leaf(m[1].strip(), parse(m[2].strip().rstrip(",").strip("'\"`")), number, "note"))
    return sheet
