"""What patches would change, worked out whole before anything is written."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...core.errors import DiffRefused, UsageError
from ...core.report import Patch, Report
from ...core.unified import applied, reversed_, together, unified
from .journal import Journal
from .patch_targets import Root, Target, read, sha256

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
    from ..patching.spelling import Unplaced

    try:
        return Document.read(text, name).parses()
    except Unplaced:
        return 0


# ----------
# Which patches of a report are meant: those named, with what belongs to them, or those of its first repair.


@dataclass(frozen=True, slots=True)
class Selection:
    """Patches in the order of the report, what to tell about the choice, and titles of repairs left aside."""

    patches: list[Patch]
    told: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Repair:
    """Patches that belong together; `finds` where they only help to find the cause."""

    title: str
    ids: list[str]
    finds: bool = False


def repairs(report: Report) -> list[Repair]:
    """The sets of patches of a report: of each repair that has some, then what belongs to none.

    Raises:
        UsageError: the report contradicts itself.
    """
    known = Counter(p.id for p in report.patches)
    if twice := [i for i, n in known.items() if n > 1]:
        raise UsageError(f"the report has several patches named {twice[0]}", "diagnose the run again")
    found = [Repair(f.named, list(dict.fromkeys(f.patches)), f.finds) for f in report.fixes if f.patches]
    if missing := [i for r in found for i in r.ids if i not in known]:
        raise UsageError(f"the report names a patch {missing[0]} that it does not have", "diagnose the run again")
    within = {i for r in found for i in r.ids}
    return found + [Repair(p.title or p.file, [p.id]) for p in report.patches if p.id not in within]


def select(report: Report, named: Sequence[str] = (), *, only: bool = False) -> Selection:
    """The patches to apply.

    Args:
        named: ids of patches; without any, the first repair that has some, and never what only finds the cause.
        only: leave out what belongs to those named.

    Raises:
        UsageError: the report has no patch, none that repairs, none of that name, or contradicts itself.
    """
    sets = repairs(report)
    if not sets:
        raise UsageError("the report has no patch", "its repairs are in words and commands: `doctor sessions show`")
    if not named:
        repairing = [s for s in sets if not s.finds]
        if not repairing:
            hint = f"take it by name to see more: `doctor apply {report.session or 'last'} {sets[0].ids[0]}`"
            raise UsageError("the report has no patch that repairs, only some that help to find the cause", hint)
        first, several = repairing[0], len(repairing) > 1
        told = [f"of {len(repairing)} repairs with patches the first is taken: {first.title}"] if several else []
        return _ordered(report, set(first.ids), told)
    known = {p.id.lower(): p.id for p in report.patches}
    if unknown := [n for n in named if n.lower() not in known]:
        raise UsageError(f"the report has no patch {unknown[0]}", f"it has {', '.join(known.values())}")
    wanted = {known[n.lower()] for n in named}
    told = []
    for patch in sorted(wanted, key=list(known.values()).index):
        own = [r for r in sets if patch in r.ids]
        if any(wanted.issuperset(r.ids) for r in own):
            continue
        rest = [i for i in own[0].ids if i not in wanted]
        if only:
            told.append(f"{patch} is applied without {', '.join(rest)}, which belongs to it")
        else:
            told.append(f"{', '.join(rest)} belongs to {patch} and is applied with it")
            wanted.update(rest)
    return _ordered(report, wanted, told)


def _ordered(report: Report, ids: set[str], told: list[str]) -> Selection:
    return Selection([p for p in report.patches if p.id in ids], told)
