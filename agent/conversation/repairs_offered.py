"""The repairs of a report as a person chooses among them, and what stands of them already."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ..patch_rows import BY_MODEL, Row, counts, diff

if TYPE_CHECKING:
    from ..applying.journal import Entry
    from ..outline import Item
    from ..report import ByHand, Patch, Report

_HUNK = re.compile(r"@@ -(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Offer:
    """One repair: in words, in commands, in patches that belong together, and what is left to do by hand."""

    title: str
    why: str = ""
    risk: str = ""
    commands: tuple[str, ...] = ()
    patches: tuple[Patch, ...] = ()
    by_hand: tuple[ByHand, ...] = ()
    verify: str = ""

    @property
    def ids(self) -> list[str]:
        """Of its patches."""
        return [p.id for p in self.patches]

    @property
    def diff(self) -> str:
        """All of its patches as the report has them."""
        return "".join(p.diff if p.diff.endswith("\n") else f"{p.diff}\n" for p in self.patches)

    @property
    def proposed_by(self) -> str:
        """A warning where a model thought of any of it."""
        return BY_MODEL if any(p.by == "model" for p in self.patches) else ""

    @property
    def line(self) -> int:
        """The first line that its first patch changes, counted from 1."""
        rows = iter(self.patches[0].diff.split("\n") if self.patches else ())
        at = next((int(found[1]) for row in rows if (found := _HUNK.match(row))), 1)
        for row in rows:
            if not row.startswith(" "):
                break
            at += 1
        return max(at, 1)

    def rows(self, patch: Patch, most: int) -> list[Row]:
        """The difference that a patch makes, by the report, its first lines without the names of the file.

        What is truly written is shown before it is.
        """
        return list(islice((row for row in diff(patch.diff) if row.kind != "file"), most))

    def counts(self, patch: Patch) -> str:
        """How many lines a patch puts in and takes out."""
        return counts(patch.diff)


@dataclass(frozen=True, slots=True)
class Applied:
    """An apply whose changes stand. `whole` is false where it was interrupted."""

    ident: str
    time: float
    report: str
    patches: tuple[str, ...]
    files: tuple[str, ...]
    diffs: frozenset[str]
    whole: bool

    @classmethod
    def of(cls, entry: Entry, status: str) -> Applied:
        """As the journal has it."""
        diffs = frozenset(d for f in entry.files for d in f.diffs)
        files = tuple(f.path for f in entry.files)
        return cls(entry.id, entry.time, entry.report, tuple(entry.patches), files, diffs, status == "done")

    @property
    def when(self) -> str:
        """The time of day; with the day where that is not today."""
        then = time.localtime(self.time)
        return time.strftime("%H:%M" if then[:3] == time.localtime()[:3] else "%Y-%m-%d %H:%M", then)

    def holds(self, offer: Offer) -> bool:
        """Whether it wrote all patches of a repair."""
        return bool(offer.patches) and all(p.diff in self.diffs for p in offer.patches)


@dataclass(frozen=True, slots=True)
class Standing:
    """What only the disk tells about the repairs of a report; `again`: how it goes if the job is started again.

    Without anything said it is what is known before the disk was asked.
    """

    known: bool = False
    applied: tuple[Applied, ...] = ()
    foreign: bool = False
    again: tuple[Item, ...] = ()


def offers(report: Report) -> list[Offer]:
    """The repairs in the order of the report, then the patches that belong to none.

    Raises:
        UsageError: the report contradicts itself.
    """
    from ..applying.selection import repairs

    patches = {p.id: p for p in report.patches}
    sets = repairs(report)
    found = [
        Offer(
            f.named, f.why, f.risk, tuple(f.commands), tuple(patches[i] for i in dict.fromkeys(f.patches)),
            tuple(f.by_hand), f.verify,
        )
        for f in report.fixes
    ]  # fmt: skip
    lone = [patches[i] for s in sets[sum(1 for f in report.fixes if f.patches) :] for i in s.ids]
    return found + [Offer(p.title or p.file, p.why, p.risk, patches=(p,), verify=p.verify) for p in lone]
