"""Settings of a JSON file: an own scanner, since lines are needed and configs in the wild carry comments and NaN."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from ...run.lines import Positions
from ..settings_map import DEPTH, LEAVES, LIST_CAP, VALUE_CAP, Leaf, Sheet, parse

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
    lines, stack = Positions(text), list[_Frame]()
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


def _close(stack: list[_Frame], sheet: Sheet, style: str, lines: Positions, end: int, shift: int) -> None:
    frame = stack.pop()
    if not frame.object and frame.items and len(frame.items) == frame.index and frame.path:
        line = (stack[-1].named if stack and stack[-1].object else 0) or frame.line
        column, width = lines.column(frame.start), end - frame.start
        if lines.at(frame.start) != line - shift:
            column = width = 0
        sheet.add(Leaf(".".join(frame.path), frame.items[:LIST_CAP], line, style, column=column, width=width))


def _value(
    m: re.Match[str], kind: str, line: int, lines: Positions, stack: list[_Frame], sheet: Sheet, style: str
) -> None:
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


# ----------
# Settings of a YAML file, by parser events: lines are exact, nesting and aliases are bounded, nothing is built.

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
EVENTS = 400_000
_PAIR = re.compile(r"^[ \t]*(?:- )?([A-Za-z_][\w.\-/]{0,80}):[ \t]+([^\s#{\[][^#\n]{0,400})")


@dataclass(slots=True)
class _YamlFrame:
    """An open mapping or sequence."""

    mapping: bool
    path: tuple[str, ...]
    line: int
    key: str | None = None
    index: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    anchor: str | None = None
    first_leaf: int = 0
    start: int = -1  # of a sequence in brackets


class _Walk:
    """The state of one pass over the events of a document."""

    def __init__(self, text: str, sheet: Sheet) -> None:
        self.sheet, self.lines = sheet, Positions(text)
        self.stack: list[_YamlFrame] = []
        self.merged: list[tuple[int, tuple[str, ...]]] = []  # a leaf, and the key that hides it
        self.given: set[tuple[str, ...]] = set()
        self.anchors: dict[str, tuple[tuple[str, ...], list[Leaf]] | Any] = {}

    def event(self, e: Any) -> None:
        if isinstance(e, yaml.ScalarEvent):
            self._scalar(e)
        elif isinstance(e, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(e)
        elif isinstance(e, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close(e)
        elif isinstance(e, yaml.AliasEvent):
            self._alias(e)

    def _here(self) -> tuple[str, ...]:
        """Path of the value that comes now; moves the parent on."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        if top.mapping:
            path = (*top.path, top.key or "")
            top.key = None
            return path
        top.index += 1
        return (*top.path, str(top.index - 1))

    def _open(self, e: Any) -> None:
        if len(self.stack) >= DEPTH:
            raise yaml.YAMLError(f"nested deeper than {DEPTH}")
        line = self.lines.at(e.start_mark.index)
        if self.stack and self.stack[-1].mapping and self.stack[-1].key is None:
            self.stack[-1].key = "?"  # a collection as a key: its value follows, nameless
            path = ("?",)
            self.stack.append(_YamlFrame(isinstance(e, yaml.MappingStartEvent), path, line, key=None))
            return
        parent_line = line
        if self.stack and self.stack[-1].mapping and self.stack[-1].key is not None:
            parent_line = self.stack[-1].seen.get(self.stack[-1].key, line)
        path = self._here()
        self.stack.append(
            _YamlFrame(
                isinstance(e, yaml.MappingStartEvent),
                path,
                parent_line,
                anchor=e.anchor,
                first_leaf=len(self.sheet.leaves),
                start=e.start_mark.index if e.flow_style else -1,
            )
        )

    def _close(self, e: Any) -> None:
        frame = self.stack.pop()
        if not frame.mapping and frame.items and len(frame.items) == frame.index:
            column, width = (0, 0) if frame.start < 0 else self.lines.place(frame.start, e.end_mark.index, frame.line)
            self.sheet.add(
                Leaf(".".join(frame.path), frame.items[:LIST_CAP], frame.line, "yaml", column=column, width=width)
            )
        if frame.anchor:
            self.anchors[frame.anchor] = (frame.path, self.sheet.leaves[frame.first_leaf : frame.first_leaf + LEAVES])

    def _scalar(self, e: Any) -> None:
        line = self.lines.at(e.start_mark.index)
        top = self.stack[-1] if self.stack else None
        if top and top.mapping and top.key is None:
            if e.value in top.seen and e.value != "<<":
                self.sheet.duplicates.append((".".join((*top.path, e.value[:80])), top.seen[e.value], line))
            key = str(e.value)[:120]
            top.key, top.seen[key] = key, line
            self.given.add((*top.path, key))
            return
        value = parse(e.value, quoted=e.style in ("'", '"', "|", ">"))
        if e.anchor:
            self.anchors[e.anchor] = value
        if top and not top.mapping:
            top.items.append(value)
            top.index += 1
            return
        start, end = e.start_mark.index, e.end_mark.index
        column, width = self.lines.column(start), end - start
        if self.lines.at(end) != line:  # over several lines: no place of its own
            column = width = 0
        self._emit(self._here(), value, line, column, width, "quoted" if e.style in ("'", '"') else "")

    def _alias(self, e: Any) -> None:
        line = self.lines.at(e.start_mark.index)
        merge = bool(self.stack and self.stack[-1].mapping and self.stack[-1].key == "<<")
        path = self._here()
        target = self.anchors.get(e.anchor)
        if not isinstance(target, tuple):
            start, end = e.start_mark.index, e.end_mark.index
            self._emit(path, target, line, self.lines.column(start), end - start, "alias")
            return
        base, leaves = target
        prefix = path[:-1] if merge else path
        for leaf in leaves:
            if self.sheet.full:
                return
            tail = leaf.key.split(".")[len(base) :]
            if merge and tail:
                self.merged.append((len(self.sheet.leaves), (*prefix, tail[0])))
            self._emit((*prefix, *tail), leaf.value, leaf.line, leaf.column, leaf.width, "alias")

    def hide(self) -> None:
        """Take out what a mapping gets by `<<` and says itself: its own word holds."""
        hidden = {index for index, key in self.merged if key in self.given}
        if hidden:
            self.sheet.leaves[:] = [leaf for i, leaf in enumerate(self.sheet.leaves) if i not in hidden]

    def _emit(self, path: tuple[str, ...], value: Any, line: int, column: int, width: int, note: str) -> None:
        if path:
            self.sheet.add(Leaf(".".join(path), value, line, "yaml", column=column, width=width, note=note))


def read_yaml(text: str) -> Sheet:
    """Leaves of all documents of a YAML text; after a syntax error, of the plain `key: value` lines below it."""
    sheet = Sheet()
    if max(text.count("["), text.count("{")) > 20_000:
        sheet.problems.append("more than 20000 opening brackets, not read")
        return sheet
    walk = _Walk(text, sheet)
    try:
        for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            if number > EVENTS or sheet.full:
                sheet.problems.append("too large, read in part")
                break
            if isinstance(event, yaml.DocumentStartEvent):
                walk.stack.clear()
            walk.event(event)
        walk.hide()
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        mark = getattr(e, "problem_mark", None)
        line = walk.lines.at(mark.index) if mark else 1
        sheet.problems.append(f"line {line}: {getattr(e, 'problem', None) or e}"[:200])
        _rest(text, line, sheet)
    return sheet


def _rest(text: str, start: int, sheet: Sheet) -> None:
    """Plain pairs from the line of a syntax error on; what was read above it stays."""
    for number, line in enumerate(text.split("\n")[:20_000], 1):
        if number >= start and (m := _PAIR.match(line)):
            sheet.add(Leaf(m[1], parse(m[2].strip().strip("'\"")), number, "yaml"))
