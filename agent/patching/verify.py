"""After every change the text is read again: the setting is as asked, and nothing else has moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..errors import ChangeRefused
from ..reading.settings_leaf import Leaf
from ..reading.shell_words import read_script
from .document import Document, Found
from .model import REMOVE, Unplaced, same
from .sites import standing
from .whole import moved

Identity = tuple[str, str, str, str]


def _identity(leaf: Leaf) -> Identity:
    return leaf.key, repr(leaf.value), leaf.style, leaf.scope


def verify(
    before: Document, after: Document, name: str, values: list[Any], touched: Iterable[Leaf], at: int = 0
) -> None:
    """Compare a text with what it was before a change of one setting.

    Args:
        values: what the setting may be now, canonically; `[REMOVE]` when it was taken out or switched off.
        touched: leaves of the old text that may differ.
        at: the one line that was meant, or 0.

    Raises:
        ChangeRefused: something else changed, the file does not parse, or the setting is not what was asked for.
    """
    if after.parses() < before.parses():
        raise ChangeRefused(f"{before.name}: would not parse after the change of {name}")
    old, new = (Counter(map(_identity, d.sheet.leaves)) for d in (before, after))
    may = {_identity(leaf) for leaf in touched}
    keys = {identity[0] for identity in may}
    for gone in old - new:
        if gone not in may:
            raise ChangeRefused(f"{before.name}: the change of {name} would also change `{gone[0]}`")
    ours = {f.leaf.key for f in after.found if f.name == name}
    for come in new - old:
        if come[0] not in keys | ours:
            raise ChangeRefused(f"{before.name}: the change of {name} would also set `{come[0]}`")
    if path := moved(before, after, keys | ours):
        raise ChangeRefused(f"{before.name}: the change of {name} would also move `{path}`")
    _shape(before, after, name)
    _value(after, name, values, at)


def _shape(before: Document, after: Document, name: str) -> None:
    """A script keeps its arrays and here-documents, and has at most one command more or less."""
    if len(after.sheet.duplicates) > len(before.sheet.duplicates):
        raise ChangeRefused(f"{before.name}: {name} would stand twice after the change")
    if before.form != "shell":
        return
    old, new = read_script(before.clean), read_script(after.clean)
    if old.arrays.keys() != new.arrays.keys() or len(old.heredocs) != len(new.heredocs):
        raise ChangeRefused(f"{before.name}: the change of {name} would break the script's quoting")
    if abs(len(old.commands) - len(new.commands)) > 1:
        raise ChangeRefused(f"{before.name}: the change of {name} would cut a command in two")


def _value(after: Document, name: str, values: list[Any], at: int) -> None:
    try:
        found = standing(after, name, at)
    except Unplaced as e:
        raise ChangeRefused(f"{after.name}: {name} is not one value after the change: {e}") from None
    now = [f.value for f in found]
    if REMOVE in values and all(loose(f) for f in found):
        return
    if not now or not all(any(same(v, w) for w in values) for v in now):
        shown = ", ".join(map(str, now)) or "not set"
        raise ChangeRefused(f"{after.name}: {name} is {shown} after the change, not {values[0]}")


def loose(found: Found) -> bool:
    """A shell variable that only bears the name of a setting: it sets nothing by itself, and others may use it."""
    return not found.own and found.leaf.style in ("variable", "environment")
