"""Putting a line into TOML and `.env` texts."""

from __future__ import annotations

import re

from .model import Splice, Unplaced

_HEADER = re.compile(r"(?m)^[ \t]*(\[\[?)[ \t]*([^\[\]\n]+?)[ \t]*\]\]?[ \t]*(?:#[^\n]*)?\r?$")


def put_toml(text: str, path: tuple[str, ...], value: str, newline: str) -> list[Splice]:
    """Splices that set `path` to a value, given as TOML; a missing table is made at the end.

    Raises:
        Unplaced: the table is an array of tables.
    """
    parents = list(path[:-1])
    section, line = ".".join(parents), f"{path[-1]} = {value}"
    headers = [(m.start(), m.end(), m[1], re.sub(r"[\s\"']", "", m[2])) for m in _HEADER.finditer(text)]
    if not section:
        stop = headers[0][0] if headers else len(text)
        return [_after_last(text, 0, stop, line, newline)]
    for i, (_, end, brackets, name) in enumerate(headers):
        if name == section and brackets == "[":
            stop = headers[i + 1][0] if i + 1 < len(headers) else len(text)
            return [_after_last(text, end, stop, line, newline)]
        if name == section:
            raise Unplaced(f"[[{section}]] is an array of tables")
    if inline := _inline(text, parents, line):
        return [inline]
    root = text[: headers[0][0]] if headers else text
    dotted = list(re.finditer(rf"(?m)^[ \t]*{re.escape(section)}\.[\w.\-]+[ \t]*=[^\n]*$", root))
    if dotted:
        return [_below(text, dotted[-1].end(), f"{section}.{line}", newline)]
    lead = "" if not text or text.endswith("\n") else newline
    blank = newline if text.strip() else ""
    return [Splice(len(text), len(text), f"{lead}{blank}[{section}]{newline}{line}{newline}")]


def _inline(text: str, parents: list[str], line: str) -> Splice | None:
    """Into `table = { a = 1 }`, written on one line."""
    m = re.search(rf"(?m)^[ \t]*{re.escape(parents[-1])}[ \t]*=[ \t]*\{{([^{{}}\n]*)\}}", text)
    if not m:
        return None
    if len(parents) > 1:
        raise Unplaced(f"`{parents[-1]}` is written inline")
    filled = m[1].rstrip()
    end = m.start(1) + len(filled)
    return Splice(end, end, f", {line}" if filled else f" {line} ")


def _after_last(text: str, start: int, stop: int, line: str, newline: str) -> Splice:
    """Below the last line between two positions that holds anything but a comment."""
    last = start
    for m in re.finditer(r"[^\n]*\n?", text[start:stop]):
        if m[0].strip() and not m[0].lstrip().startswith("#"):
            last = start + m.end()
    if last == start:
        if start == 0:
            return Splice(0, 0, line + newline)
        return _below(text, start, line, newline)
    return _below(text, last - 1 if text[last - 1] == "\n" else last, line, newline)


def _below(text: str, position: int, line: str, newline: str) -> Splice:
    end = text.find("\n", position)
    if end < 0:
        return Splice(len(text), len(text), newline + line)
    return Splice(end + 1, end + 1, line + newline)


def put_env(text: str, name: str, value: str, newline: str) -> list[Splice]:
    """A line at the end of an `.env` file, with `export` where its lines have it."""
    export = "export " if re.search(r"(?m)^[ \t]*export[ \t]", text) else ""
    lead = newline if text and not text.endswith("\n") else ""
    tail = "" if lead else newline
    return [Splice(len(text), len(text), f"{lead}{export}{name}={value}{tail}")]
