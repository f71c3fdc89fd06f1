"""Taking a setting out: the member, line, flag or keyword that holds it, with its comma or continued line."""

from __future__ import annotations

import re
from dataclasses import replace

from ..reading.shell_environment import passed_on
from .document import Document, Found
from .environment_shell import Assigned, taken_out
from .model import Splice, Unplaced
from .training_command import shell_of

_COMMA = re.compile(r"[ \t]*,")
_JOIN = re.compile(r"[ \t]*\\\r?\n\Z")
_BEFORE = re.compile(r"(?:--?[A-Za-z][\w.\-/]*(?:=|[ \t]+)|[+~]{0,2}[A-Za-z_][\w./@+\-]*=)\Z")


def removal(doc: Document, found: Found) -> Splice:
    """The stretch to take out for one place of a setting.

    Raises:
        Unplaced: taking it out would break what stands around it.
    """
    leaf = found.leaf
    if leaf.note == "alias":
        raise Unplaced("an anchor shares its value with other places")
    start, end = doc.span(leaf)
    if leaf.style in ("flag", "override") and leaf.note not in ("json", "escaped"):
        cut = _flag(doc, start, end)
    elif leaf.style in ("environment", "variable") and doc.form == "shell" and leaf.note not in ("json", "escaped"):
        return replace(_assignment(doc, leaf.key, start), key=leaf.key)
    elif leaf.style in ("header", "env", "ini"):
        cut = _line(doc, start)
    elif leaf.style in ("keyword", "dict"):
        cut = _member(
            doc, start, end, r"\w+\s*=\s*" if leaf.style == "keyword" else r"(?:'[^'\n]*'|\"[^\"\n]*\")\s*:\s*"
        )
    elif leaf.note == "escaped":
        cut = _member(doc, start, end, r"\\\"[\w.]+\\\"\s*:\s*")
    elif leaf.style == "json" or leaf.note == "json":
        cut = _member(doc, start, end, r"\"(?:[^\"\\\n]|\\.)*\"\s*:\s*")
    elif leaf.style == "toml":
        cut = _toml(doc, start, end)
    elif leaf.style == "yaml":
        cut = _yaml(doc, start, end)
    else:
        raise Unplaced("code may use the name: set it, or take it out by hand")
    return Splice(*cut, "", leaf.key)


def _line(doc: Document, position: int) -> tuple[int, int]:
    """The whole line around a position, with its end; the last line of a text takes the end before it."""
    start = doc.text.rfind("\n", 0, position) + 1
    end = doc.text.find("\n", position)
    return (start, end + 1) if end >= 0 else (max(start - len(doc.newline), 0) if start else 0, len(doc.text))


def _named(doc: Document, start: int, name: str) -> int:
    """Where the key of a value begins that ends right before it."""
    line = doc.text.rfind("\n", 0, start) + 1
    found = None
    for found in re.finditer(name, doc.text[line:start]):
        if line + found.end() == start:
            return line + found.start()
    raise Unplaced("its key does not stand on the same line")


def _member(doc: Document, start: int, end: int, name: str) -> tuple[int, int]:
    """A member of a list in brackets, with the comma behind it or the one before it."""
    text, begin = doc.text, _named(doc, start, name)
    after = _COMMA.match(text, end)
    line = text.rfind("\n", 0, begin) + 1
    if after:
        rest = re.compile(r"[ \t]*(?:(?:\#|//)[^\n]*)?(\r?\n)").match(text, after.end())
        if not text[line:begin].strip() and rest and line:
            return line, rest.end()
        space = re.compile(r"[ \t]+").match(text, after.end())
        return begin, space.end() if space and text[space.end() : space.end() + 1] not in "\r\n" else after.end()
    before = re.search(r",(?:\s|//[^\n]*\n|\#[^\n]*\n)*\Z", text[max(0, begin - 4000) : begin])
    if not before and not re.search(r"[\[({]\s*\Z", text[:begin]):
        raise Unplaced("what stands before it is not clear")
    return (begin - len(before[0]) if before else begin), end


def _toml(doc: Document, start: int, end: int) -> tuple[int, int]:
    line = doc.text.rfind("\n", 0, start) + 1
    if re.fullmatch(r"\s*[\w.\-\"']+\s*=\s*", doc.text[line:start]):
        return _line(doc, start)
    return _member(doc, start, end, r"(?:[\w.\-]+|'[^'\n]*'|\"[^\"\n]*\")\s*=\s*")


def _yaml(doc: Document, start: int, end: int) -> tuple[int, int]:
    line = doc.text.rfind("\n", 0, start) + 1
    head = doc.text[line:start]
    if m := re.fullmatch(r"([ \t]*)(?:[\w./\-]+|'[^'\n]*'|\"[^\"\n]*\")\s*:[ \t]*", head):
        if _only_child(doc, line, len(m[1])):
            raise Unplaced("it is the only key of its mapping")
        return _line(doc, start)
    if "{" not in head:
        raise Unplaced("it begins an item of a list")
    return _member(doc, start, end, r"(?:[\w./\-]+|'[^'\n]*'|\"[^\"\n]*\")\s*:\s*")


def _only_child(doc: Document, line: int, indent: int) -> bool:
    """Whether no other key stands on the same level of the same block."""
    before = [row for row in doc.text[:line].splitlines() if row.strip() and not row.lstrip().startswith("#")]
    after = [row for row in doc.text[line:].splitlines()[1:] if row.strip() and not row.lstrip().startswith("#")]
    for rows in (reversed(before), after):
        for row in rows:
            deep = len(row) - len(row.lstrip())
            if deep == indent:
                return False
            if deep < indent:
                break
    return indent > 0


def _flag(doc: Document, start: int, end: int) -> tuple[int, int]:
    """A flag with its value and the space around it; on a line of its own, the whole continued line."""
    text = doc.text
    begin = flag_start(text, start)
    if begin and text[begin - 1] in "'\"" and text[end : end + 1] == text[begin - 1]:
        begin, end = begin - 1, end + 1
    line, stop = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    head, tail = text[line:begin], text[end:stop].rstrip("\r")
    continued = _JOIN.search(text[max(0, line - 200) : line])
    if not head.strip():
        if tail.strip() == "\\" or (not continued and re.fullmatch(r"\s*(?:#.*)?", tail)):
            return line, min(stop + 1, len(text))
        if continued and not tail.strip():  # the last line of a continued command
            return line - len(continued[0]), end
    space = len(head) - len(head.rstrip(" \t"))
    return (begin - space, end) if space and head.strip() else (begin, end + len(tail) - len(tail.lstrip(" \t")))


def flag_start(text: str, start: int) -> int:
    """Where the flag or override begins whose value stands at a position; the position itself for a switch."""
    if re.match(r"--?[A-Za-z]", text[start : start + 3]):
        return start
    m = _BEFORE.search(text[max(0, start - 300) : start])
    if not m:
        raise Unplaced("its flag does not stand right before it")
    return start - len(m[0])


def _assignment(doc: Document, name: str, start: int) -> Splice:
    """An `export` line, the assignment before a command, or a launcher's flag."""
    for launch in shell_of(doc.clean).launched:
        for word in launch.assigned:
            if word.text.startswith(f"{name}=") and word.start <= start <= word.end:
                kind = "prefix" if launch.stages or launch.arguments else "export"
                return taken_out(doc, Assigned(name, kind, start, start, word.line, launch.blocks, word))
        for stage in launch.stages:
            for each in passed_on(stage)[0]:
                if each.name == name and each.start == start:
                    return taken_out(doc, Assigned(name, "passed", start, each.end, each.word.line, (), each.word))
    raise Unplaced("its assignment is not a word of its own")


def json_variable(doc: Document, name: str, start: int, end: int) -> Splice:
    """A variable out of Ray's runtime environment, with the flag where nothing else is in it."""
    text = doc.text
    head = re.search(rf" --runtime-env-json='\{{\"env_vars\": \{{\"{name}\": \Z", text[:start])
    if head and text.startswith("}}'", end):
        return Splice(head.start(), end + 3, "", name)
    escaped = text[start : start + 1] == "\\"
    key = r"\\\"[\w.]+\\\"\s*:\s*" if escaped else r"\"(?:[^\"\\\n]|\\.)*\"\s*:\s*"
    return Splice(*_member(doc, start, end, key), "", name)
