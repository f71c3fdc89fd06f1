"""What patches would change, worked out whole before anything is written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DiffRefused, UsageError
from ..report import Patch
from ..unified import applied, reversed_, together, unified
from .journal import Journal
from .targets import Root, Target, read, sha256

_MARK = codecs.BOM_UTF8.decode()
_TAKEN_OUT = re.compile(r"<SECRET(?::[a-z_]+:\d+)?>")  # as the redactor and bundles write it


@dataclass(frozen=True, slots=True)
class Change:
    """One file with its new content. `name` is the file's name in the report."""

    name: str
    target: Target
    new: bytes
    patches: tuple[Patch, ...]

    @property
    def diff(self) -> str:
        """What will truly be written, whatever the patches say."""
        return unified(self.target.text, self.new.decode(), self.name)


@dataclass(slots=True)
class Plan:
    """Changes of all files, patches that are in their files already, and what to tell before asking."""

    changes: list[Change] = field(default_factory=list)
    already: list[Patch] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


def plan(patches: Sequence[Patch], roots: list[Root], journal: Journal) -> Plan:
    """Work out what patches change. Nothing is written.

    Raises:
        UsageError: a file cannot be changed, was changed since the report, or a diff is not one plain change of it.
    """
    of: dict[Path, tuple[Target, list[Patch]]] = {}
    for patch in patches:
        target = read(patch.file, roots)
        _, own = of.setdefault(target.path, (target, []))
        if own and own[0].file != patch.file:
            raise UsageError(
                f"{patch.file} and {own[0].file} are the same file", "apply their patches one after the other"
            )
        own.append(patch)
    made = Plan()
    for target, own in of.values():
        made.told += target.told
        new, already = _new_text(target, own, journal)
        made.already += already
        left = tuple(p for p in own if p not in already)
        if left and new != target.text:
            _still_parses(target, new, left[0].file)
            made.changes.append(Change(left[0].file, target, new.encode(), left))
    return made


def _new_text(target: Target, patches: list[Patch], journal: Journal) -> tuple[str, list[Patch]]:
    """The text after patches of one file, and those that are in it already."""
    name = patches[0].file
    made_for = patches[0].sha256.lower()
    if any(p.sha256.lower() != made_for for p in patches):
        raise UsageError(f"the patches of {name} were made for different contents", "apply them one after the other")
    diffs = [p.diff for p in patches]
    if any(m[0] not in target.text for d in diffs for m in _TAKEN_OUT.finditer(d)):
        raise UsageError(
            f"the report's diff of {name} had secrets taken out and fits the file no more", "apply the report itself"
        )
    if target.sha256 == made_for:
        return _together(diffs, target.text, name), []
    since: list[str] = []
    for before, own, kept in journal.steps_to(target.path, target.sha256):
        since = [*own, *since]
        if before == made_for:
            already = [p for p in patches if p.diff in since]
            new = [d for d in diffs if d not in since]
            return (_after_ours(new, since, kept, target, name) if new else target.text), already
    if _taken_back(diffs, target.text, name, made_for):
        return target.text, list(patches)
    raise UsageError(f"{name} was changed since the report was made", "diagnose again; nothing was changed")


def _after_ours(new: list[str], since: list[str], kept: Path, target: Target, name: str) -> str:
    """The text after further patches of a report, some of whose others have been applied since."""
    try:
        base = kept.read_bytes().decode()
        if _together(since, base, name) == target.text:
            return _together([*since, *new], base, name)
    except (OSError, UnicodeDecodeError, DiffRefused):
        pass  # a step between was of another report: each hunk must be found by its lines
    text = target.text
    for diff in new:
        text = applied(diff, text, name, drift=True)
    return text


def _taken_back(diffs: list[str], text: str, name: str, made_for: str) -> bool:
    """Whether the diffs lead to this text: someone applied them with another tool."""
    for mark in ("", _MARK) if text.startswith(_MARK) else ("",):
        try:
            before = text.removeprefix(mark)
            for diff in reversed(diffs):
                before = applied(reversed_(diff, name), before, name, drift=True)
        except DiffRefused:
            continue
        if sha256((mark + before).encode()) == made_for:
            return True
    return False


def _together(diffs: list[str], text: str, name: str) -> str:
    """The text after diffs; they may have been made without a byte order mark, which stays."""
    try:
        return together(diffs, text, name)
    except DiffRefused:
        if not text.startswith(_MARK):
            raise
        return _MARK + together(diffs, text.removeprefix(_MARK), name)


def _still_parses(target: Target, new: str, name: str) -> None:
    """Refuse to break a file that its format's own parser takes now.

    Raises:
        UsageError: it would no longer be taken.
    """
    if _parses(new, name) < _parses(target.text, name):
        raise UsageError(f"{name} could not be read any more after the patch", "nothing was changed")


def _parses(text: str, name: str) -> int:
    """How far the format's own parser takes a text: 0 where it does not, or the kind of file is not known."""
    from ..patching.document import Document
    from ..patching.model import Unplaced

    try:
        return Document.read(text, name).parses()
    except Unplaced:
        return 0
