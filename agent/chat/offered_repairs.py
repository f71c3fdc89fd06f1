"""The repairs of a report on the run of a conversation: shown, prepared, written and taken back.

As careful as `doctor apply`, and by the same journal: nothing is written that was not shown, and nothing by itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.errors import UsageError
from ..repair.patch_rows import BY_MODEL, FOREIGN, Row, counts, diff, words

if TYPE_CHECKING:
    from ..core.report import ByHand, Patch, Report
    from ..reading.run.workspace import Workspace
    from ..repair.applying.carry_out import Prepared
    from ..repair.applying.journal import Entry, Journal
    from ..repair.applying.patch_targets import Root
    from ..telling.outline import Item


# ----------
# The repairs of a report as a person chooses among them, and what stands of them already.


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
    from ..repair.applying.patch_plan import repairs

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


# ----------

__all__ = ["Applied", "Offer", "PreparedApply", "PreparedUndo", "Repairs", "Row", "Standing", "Written"]


@dataclass(frozen=True, slots=True)
class PreparedApply:
    """A change of files as it is shown before anyone agrees to it. Nothing was written.

    Attributes:
        ids: patches that will be written; without any there is nothing to ask about.
        question: what is asked, as `Write these changes to 2 files?`.
        marks: who thought of it and where it is from, where that is not a tested recipe and here.
        warnings: what to know first: what belongs together, version control, links, characters that are not shown.
        where: the real path of each file with its counts.
        rows: patches in words, and the true difference of each file.
        already: patches that are in their files.
    """

    ids: tuple[str, ...]
    question: str
    marks: tuple[str, ...]
    warnings: tuple[str, ...]
    where: tuple[str, ...]
    rows: tuple[Row, ...]
    already: tuple[str, ...]
    ready: Prepared
    source: str
    cause: str


@dataclass(frozen=True, slots=True)
class PreparedUndo:
    """An apply as it would be taken back; attributes as those of `PreparedApply`."""

    ident: str
    question: str
    warnings: tuple[str, ...]
    where: tuple[str, ...]
    rows: tuple[Row, ...]
    entry: Entry
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """What was done, in lines, and the id that takes it back."""

    lines: tuple[str, ...]
    ident: str


class RunAndState(Protocol):
    """What repairs need of a conversation: its run, and the folder that has the journal and the reports."""

    workspace: Workspace
    state: Path


class Repairs:
    """All that changes files of a conversation's run. Every method but `of` reads the disk: not for a UI thread."""

    def __init__(self, talk: RunAndState) -> None:
        self._talk = talk

    def of(self, report: Report) -> list[Offer]:
        """The repairs in the order of the report, then the patches that belong to none.

        Raises:
            UsageError: the report contradicts itself.
        """
        return offers(report)

    def standing(self, report: Report) -> Standing:
        """What only the disk tells: applies that touch this run, whether the report is ours, about starting again."""
        from ..telling.outline import outline

        sections = [s for s in outline(report).sections if s.title == "Starting again"]
        return Standing(
            True, tuple(self.applied()), not self._is_ours(report), tuple(i for s in sections for i in s.items)
        )

    def prepare(self, report: Report, ids: Sequence[str] = ()) -> PreparedApply:
        """Work out what patches change; without ids those of the first repair.

        Raises:
            UsageError: a file cannot be changed or was changed since, the run is gone, or an apply was interrupted.
        """
        from ..repair.applying.carry_out import Prepared
        from ..repair.applying.patch_plan import plan, select

        if left := self.interrupted():
            raise UsageError("an apply was interrupted and left files half done", f"put it back first: {left[0]}")
        chosen = select(report, ids)
        foreign = not self._is_ours(report)
        try:
            made = plan(chosen.patches, self._roots(report, foreign), self._journal)
        except UsageError as e:
            raise UsageError(e.message, "open the run where it is now" if "--run" in e.hint else e.hint) from None
        ready = Prepared.of(made, foreign)
        rows: list[Row] = []
        for change in made.changes:
            rows += [row for patch in change.patches for row in words(patch, foreign)]
            rows += diff(change.diff)
        count = len(made.changes)
        return PreparedApply(
            ids=tuple(p.id for c in made.changes for p in c.patches),
            question=f"Write {'these changes' if count > 1 else 'this change'} to {count} file{'s' * (count > 1)}?",
            marks=(FOREIGN,) * foreign + (BY_MODEL,) * ready.by_model,
            warnings=(*chosen.told, *ready.warnings(), *[ready.hidden] * bool(ready.hidden)),
            where=tuple(ready.where()), rows=tuple(rows), already=tuple(p.id for p in made.already),
            ready=ready, source=report.session, cause=report.root_cause.id or "",
        )  # fmt: skip

    def carry_out(self, prepared: PreparedApply) -> Written:
        """Write what was shown, with a way back.

        Raises:
            UsageError: a file changed meanwhile or cannot be written; then all are as they were.
        """
        from ..repair.applying.carry_out import carry_out, written

        plan = prepared.ready.plan
        entry = carry_out(plan.changes, self._journal, prepared.source, prepared.cause)
        return Written((*written(plan), *prepared.ready.verify), entry.id)

    def applied(self) -> list[Applied]:
        """Applies whose changes stand in files of this run, newest first."""
        journal = self._journal
        return [Applied.of(e, journal.status(e)) for e in self._entries()]

    def interrupted(self) -> list[str]:
        """Ids of applies that were cut short and left some files changed and others not, of any run."""
        from ..repair.applying.carry_out import interrupted

        return [e.id for e in interrupted(self._journal)]

    def prepare_undo(self, ident: str = "") -> PreparedUndo:
        """Work out what taking an apply back changes; the newest of this run where none is named.

        Raises:
            UsageError: there is none, or a file was changed since.
        """
        from ..repair.applying.carry_out import backwards, half_done, named
        from ..repair.applying.journal import COMMITTED, INTERRUPTED

        journal = self._journal
        half = self.interrupted()
        entry = named(journal, ident) if ident else named(journal, None, self._entries())
        status = journal.status(entry)
        if status == COMMITTED:
            raise UsageError(f"{entry.id} made a branch and changed no file", f"git branch -D {entry.branch}")
        back = backwards(entry, journal)
        count = len(back)
        warnings = [half_done(entry)] if entry.id in half or status in INTERRUPTED else []
        if not back:
            warnings.append("no file holds what was written: nothing is put back, and the journal says so afterwards")
        return PreparedUndo(
            entry.id,
            f"Put {count} file{'s' * (count != 1)} back?",
            tuple(warnings),
            tuple(f"to be put back: {file.path} ({counts(text)})" for file, text in back),
            tuple(row for _, text in back for row in diff(text)),
            entry,
        )

    def undo(self, prepared: PreparedUndo) -> Written:
        """Put every file of an apply back, byte for byte.

        Raises:
            UsageError: a file changed since; nothing is put back then.
        """
        from ..repair.applying.carry_out import undo

        told = undo(prepared.entry, self._journal)
        return Written((*told, f"undone: {prepared.ident} ({', '.join(prepared.entry.patches)})"), prepared.ident)

    @property
    def _journal(self) -> Journal:
        from ..repair.applying.journal import Journal

        return Journal(self._talk.state)

    def _entries(self) -> list[Entry]:
        """Applies that stand and that changed a file below a root of this conversation."""
        from ..repair.applying.carry_out import standing_applies

        roots = [_resolved(Path(r)) for r in self._talk.workspace.roots]
        return [
            e for e in standing_applies(self._journal)
            if any(Path(f.path).is_relative_to(root) for f in e.files for root in roots)
        ]  # fmt: skip

    def _is_ours(self, report: Report) -> bool:
        """Whether it is kept here in every word; as it would be read back, since JSON knows no tuples."""
        from ..session.reported import is_ours

        return is_ours(type(report).model_validate_json(report.to_json()), self._talk.state)

    def _roots(self, report: Report, foreign: bool) -> list[Root]:
        """Where the runs of a report are: those that this conversation was opened on.

        Raises:
            UsageError: the report is about other runs, or one leads elsewhere now.
        """
        from ..session.reported import refuse_moved, roots_of

        own = self._talk.workspace.roots
        about = [r for r in report.runs if not r.good]
        if about and len(about) != len(own):
            raise UsageError(
                f"the report is about {len(about)} runs, this conversation about {len(own)}", "open those it is about"
            )
        if not foreign:
            refuse_moved(report, self._talk.state)
        return roots_of(report, None, self._talk.state, [str(r) for r in own])


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL
        return path.absolute()
