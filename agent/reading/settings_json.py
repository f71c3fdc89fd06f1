"""Settings of a JSON file: an own scanner, since lines are needed and configs in the wild carry comments and NaN."""

from __future__ import annotations

import json
import re
from typing import Any

from .settings_leaf import DEPTH, Leaf, Lines, Sheet
from .settings_values import LIST_CAP, VALUE_CAP, parse

TOKENS = 400_000
TOKEN = re.compile(
    r"""[ \t\r\n]+|//[^\n]*|\#[^\n]*|/\*(?:[^*]|\*(?!/))*\*/"""
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<mark>[{}\[\]:,])|(?P<bare>[^\s{}\[\]:,"/#]+)|(?P<odd>.)""",
    re.DOTALL,
)


class _Frame:
    """An open object or array."""

    __slots__ = ("index", "items", "key", "line", "named", "object", "path", "seen", "start")

    def __init__(self, is_object: bool, path: tuple[str, ...], line: int, start: int) -> None:
        self.object, self.path, self.line, self.start = is_object, path, line, start
        self.key: str | None = None
        self.named = 0  # line of the current key
        self.index = 0
        self.seen: dict[str, int] = {}
        self.items: list[Any] = []


def read_json(text: str, style: str = "json", first_line: int = 1) -> Sheet:
    """Leaves of a JSON text, also of one with comments, trailing commas, NaN, or cut off in the middle."""
    sheet = Sheet()
    _scan(text, sheet, style, first_line - 1)
    return sheet


def _scan(text: str, sheet: Sheet, style: str, shift: int) -> None:
    lines, stack = Lines(text), list[_Frame]()
    too_deep = 0
    for number, m in enumerate(TOKEN.finditer(text)):
        if number > TOKENS or sheet.full:
            sheet.problems.append("too large, read in part")
            return
        kind = m.lastgroup
        if kind is None:
            continue
        line = lines.at(m.start()) + shift
        if kind == "mark":
            if m[0] in "{[":
                too_deep += len(stack) >= DEPTH
                if too_deep:
                    sheet.problems.append(f"line {line}: nested deeper than {DEPTH}, not read on")
                    return
                stack.append(_Frame(m[0] == "{", _path(stack), line, m.start()))
            elif m[0] in "}]":
                if not stack:
                    sheet.problems.append(f"line {line}: a closing bracket too many")
                    return
                _close(stack, sheet, style, lines, m.end(), shift)
            elif m[0] == "," and stack and stack[-1].object:
                stack[-1].key = None
            continue
        _value(m, kind, line, lines, stack, sheet, style)
    if stack:
        sheet.problems.append(f"line {stack[-1].line}: opened here and never closed")


def _path(stack: list[_Frame]) -> tuple[str, ...]:
    if not stack:
        return ()
    top = stack[-1]
    if top.object:
        return (*top.path, top.key or "?")
    top.index += 1
    return (*top.path, str(top.index - 1))


def _close(stack: list[_Frame], sheet: Sheet, style: str, lines: Lines, end: int, shift: int) -> None:
    frame = stack.pop()
    if not frame.object and frame.items and len(frame.items) == frame.index and frame.path:
        line = (stack[-1].named if stack and stack[-1].object else 0) or frame.line
        column, width = lines.column(frame.start), end - frame.start
        if lines.at(frame.start) != line - shift:
            column = width = 0
        sheet.add(Leaf(".".join(frame.path), frame.items[:LIST_CAP], line, style, column=column, width=width))


def _value(m: re.Match[str], kind: str, line: int, lines: Lines, stack: list[_Frame], sheet: Sheet, style: str) -> None:
    if not stack:
        return
    top = stack[-1]
    value = _string(m[0]) if kind == "string" else parse(m[0])
    if top.object and top.key is None:
        key = str(value)[:120]
        if key in top.seen:
            sheet.duplicates.append((".".join((*top.path, key)), top.seen[key], line))
        top.key, top.named = key, line
        top.seen[key] = line
    elif top.object:
        sheet.add(
            Leaf(".".join((*top.path, top.key or "")), value, line, style, column=lines.column(m.start()),
                 width=len(m[0]), note="quoted" if kind == "string" else "")
        )  # fmt: skip
    else:
        top.index += 1
        if len(top.items) < LIST_CAP:
            top.items.append(value)
        else:
            top.index -= 1


def _string(token: str) -> str:
    if len(token) > VALUE_CAP:
        return token[1:VALUE_CAP]
    try:
        return json.loads(token)
    except ValueError:
        return token[1:-1]


def without_comments(text: str) -> str:
    """A JSON text of the same length without comments and trailing commas, as a strict parser takes it."""
    out, comma, at = list[str](), -1, 0
    for m in TOKEN.finditer(text):
        out.append(text[at : m.start()])
        at = m.end()
        blank = m.lastgroup is None
        if m[0] in ("}", "]") and m.lastgroup == "mark" and comma >= 0:
            out[comma] = " "
        out.append("".join(c if c in "\r\n" else " " for c in m[0]) if blank else m[0])
        comma = len(out) - 1 if m[0] == "," and m.lastgroup == "mark" else comma if blank else -1
    return "".join(out) + text[at:]
