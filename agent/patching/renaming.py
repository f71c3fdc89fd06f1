"""A key under another name: the argument that a library renamed, where a file still has the old one."""

from __future__ import annotations

import re
from typing import Any

from ..reading.settings_leaf import Leaf
from .change import BOM
from .document import Document
from .model import Changed, Edit, Snippet, Splice, Unplaced, spliced
from .records import why_not

_WRITTEN = ("yaml", "json", "toml", "keyword", "dict", "flag", "override")
_KEY = r"(?<![\w.\-])(?P<lead>-{{0,2}})(?P<key>{})(?P<end>[\"']?(?:\s*[:=]\s*|\s+))\Z"
_BACK = 200  # characters before a value in which its key stands


def rename(text: str, name: str, old: str, new: str, given: bool = False) -> Changed:
    """Rename a key wherever a file sets it; its values stay as they are.

    Args:
        text: the file, as decoded without translation of line ends.
        name: the file's path inside the run.
        given: a launch hands the file to the training, whatever it is called.

    Returns:
        The new text, or the old one with the reason where a place cannot be written or has both names.
    """
    bom, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    try:
        if reason := why_not(name, body, given):
            raise Unplaced(reason)
        doc = Document.read(body, name)
        held = [leaf for leaf in doc.sheet.leaves if _last(leaf) == old]
        if held and any(_last(leaf) == new for leaf in doc.sheet.leaves):
            raise Unplaced(f"{new} stands there as well: take {old} out")
        splices = [_key_of(doc, leaf, old, new) for leaf in held]
        after = doc.again(spliced(doc.text, splices))
        if _values(after) != [(_renamed(key, old, new), value) for key, value in _values(doc)]:
            raise Unplaced("the file cannot be read back after the change")
    except Unplaced as e:
        return Changed(text, (), (Snippet(old, new, str(e)),))
    edits = [Edit(old, s.key, doc.lines.at(s.start), doc.text[s.start : s.end], s.text) for s in splices]
    return Changed(bom + after.text, tuple(edits))


def _last(leaf: Leaf) -> str:
    return leaf.key.rpartition(".")[2].replace("-", "_")


def _renamed(key: str, old: str, new: str) -> str:
    head, dot, last = key.rpartition(".")
    return f"{head}{dot}{new}" if last == old else f"{head}{dot}{last}"


def _values(doc: Document) -> list[tuple[str, Any]]:
    return [(leaf.key.replace("-", "_"), leaf.value) for leaf in doc.sheet.leaves]


def _key_of(doc: Document, leaf: Leaf, old: str, new: str) -> Splice:
    """The stretch that holds the key of a leaf.

    Raises:
        Unplaced: it does not stand right before its value.
    """
    if leaf.style not in _WRITTEN or not leaf.width:
        raise Unplaced(f"{old} is not written as a key with its value (line {leaf.line})")
    start = doc.span(leaf)[0]
    found = re.search(_KEY.format(old.replace("_", "[-_]")), doc.text[max(0, start - _BACK) : start])
    if found is None:
        raise Unplaced(f"{old} does not stand right before its value (line {leaf.line})")
    at = max(0, start - _BACK) + found.start("key")
    written = new.replace("_", "-") if "-" in found["key"] else new
    return Splice(at, at + len(found["key"]), written, leaf.key)
