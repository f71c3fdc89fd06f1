"""Settings of line-based files: TOML, INI, .env, and plain `key: value` notes."""

from __future__ import annotations

import re
import tomllib

from .settings_leaf import Leaf, Sheet
from .settings_values import LIST_CAP, VALUE_CAP, parse

_SECTION = re.compile(r"^\s*\[\[?\s*([^\[\]\n]{1,200}?)\s*\]\]?\s*(?:[#;].*)?$")
_TOML = re.compile(r"^\s*([\w.\-\"']{1,120}?)\s*=\s*(\S.*)$")
_INI = re.compile(r"^([A-Za-z_][\w.\-]{0,80})\s*[=:]\s*(.*)$")
_ENV = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w{0,80})=(.*)$")
_NOTE = re.compile(r"^[\s\-*>|]*([A-Za-z_][\w \-./]{0,40}?)\s*[:=](?![=/])\s*(\S.{0,300})$")
# `with nodes: 1 it works`: another try that a note mentions.
_ASIDE = re.compile(r"\b(?:with|using|at|for|on) `?([A-Za-z_][\w\-]{0,30})`?(?: ?[:=] ?| )(\d[\w.\-]{0,20})\b")
JOINED = 400  # lines a TOML value may span


def read_toml(text: str) -> Sheet:
    """Leaves of a TOML text by line; values are read by tomllib, those that span lines are joined first."""
    sheet, section = Sheet(), ""
    rows = text.split("\n")
    number = 0
    while number < len(rows) and not sheet.full:
        row, number = rows[number], number + 1
        if m := _SECTION.match(row):
            section = m[1].replace('"', "").replace("'", "") + "."
            continue
        m = _TOML.match(row)
        if not m:
            continue
        here, raw = number, m[2]
        while raw.count("[") > raw.count("]") and number < min(len(rows), here + JOINED):
            raw, number = raw + "\n" + rows[number], number + 1
        key = m[1].replace('"', "").replace("'", "")
        try:
            value = tomllib.loads(f"x = {raw}")["x"]
        except (tomllib.TOMLDecodeError, ValueError, RecursionError):
            value = parse(raw.split(" #")[0].strip().strip("'\""))
            if "\n" in raw:
                sheet.problems.append(f"line {here}: not TOML")
        _put(sheet, section + key, value, here, m.start(2))
    return sheet


def _put(sheet: Sheet, key: str, value: object, line: int, column: int) -> None:
    if isinstance(value, dict):
        for k, v in list(value.items())[:LIST_CAP]:
            _put(sheet, f"{key}.{k}", v, line, 0)
    elif isinstance(value, list):
        sheet.add(Leaf(key, [v for v in value[:LIST_CAP] if not isinstance(v, dict | list)], line, "toml"))
    elif isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < 10**40):
        sheet.add(Leaf(key, value[:VALUE_CAP] if isinstance(value, str) else value, line, "toml", column=column))


def read_ini(text: str) -> Sheet:
    """Leaves of an INI or cfg text."""
    sheet, section = Sheet(), ""
    for number, row in enumerate(text.split("\n"), 1):
        if m := _SECTION.match(row):
            section = m[1] + "."
        elif not row.lstrip().startswith(("#", ";")) and (m := _INI.match(row)):
            sheet.add(Leaf(section + m[1], parse(m[2].split(" #")[0].split(" ;")[0]), number, "ini", column=m.start(2)))
        if sheet.full:
            break
    return sheet


def read_env(text: str) -> Sheet:
    """Leaves of an .env file."""
    sheet = Sheet()
    for number, row in enumerate(text.split("\n"), 1):
        if (m := _ENV.match(row)) and not sheet.full:
            value = m[2].strip()
            bare = value.strip("'\"") if value[:1] in "'\"" else value.split(" #")[0].strip()
            sheet.add(Leaf(m[1], parse(bare), number, "env", "env", column=m.start(2)))
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
