"""The repairs of a report on the run of a conversation: shown, prepared, written and taken back.

As careful as `doctor apply`, and by the same journal: nothing is written that was not shown, and nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..patch_rows import BY_MODEL, FOREIGN, Row, counts, diff, words
from .repairs_offered import Applied, Offer, Standing, offers

if TYPE_CHECKING:
    from ..applying import prepared as told_before
    from ..applying.journal import Entry, Journal
    from ..applying.targets import Root
    from ..report import Report
    from .talk import Conversation

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
    ready: told_before.Prepared
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


class Repairs:
    """All that changes files of a conversation's run. Every method but `of` reads the disk: not for a UI thread."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk

    def of(self, report: Report) -> list[Offer]:
        """The repairs in the order of the report, then the patches that belong to none.

        Raises:
            UsageError: the report contradicts itself.
        """
        return offers(report)

    def standing(self, report: Report) -> Standing:
        """What only the disk tells: applies that touch this run, whether the report is ours, about starting again."""
        from ..outline import outline

        sections = [s for s in outline(report).sections if s.title == "Starting again"]
        return Standing(
            True, tuple(self.applied()), not self._is_ours(report), tuple(i for s in sections for i in s.items)
        )

    def prepare(self, report: Report, ids: Sequence[str] = ()) -> PreparedApply:
        """Work out what patches change; without ids those of the first repair.

        Raises:
            UsageError: a file cannot be changed or was changed since, the run is gone, or an apply was interrupted.
        """
        from ..applying.plan import plan
        from ..applying.prepared import Prepared
        from ..applying.selection import select

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
        from ..applying.carry_out import carry_out
        from ..applying.prepared import written

        plan = prepared.ready.plan
        entry = carry_out(plan.changes, self._journal, prepared.source, prepared.cause)
        return Written((*written(plan), *prepared.ready.verify), entry.id)

    def applied(self) -> list[Applied]:
        """Applies whose changes stand in files of this run, newest first."""
        journal = self._journal
        return [Applied.of(e, journal.status(e)) for e in self._entries()]

    def interrupted(self) -> list[str]:
        """Ids of applies that were cut short and left some files changed and others not, of any run."""
        from ..applying.carry_out import interrupted

        return [e.id for e in interrupted(self._journal)]

    def prepare_undo(self, ident: str = "") -> PreparedUndo:
        """Work out what taking an apply back changes; the newest of this run where none is named.

        Raises:
            UsageError: there is none, or a file was changed since.
        """
        from ..applying.journal import COMMITTED, INTERRUPTED
        from ..applying.prepared import backwards, half_done, named

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
        from ..applying.carry_out import undo

        told = undo(prepared.entry, self._journal)
        return Written((*told, f"undone: {prepared.ident} ({', '.join(prepared.entry.patches)})"), prepared.ident)

    @property
    def _journal(self) -> Journal:
        from ..applying.journal import Journal

        return Journal(self._talk.state)

    def _entries(self) -> list[Entry]:
        """Applies that stand and that changed a file below a root of this conversation."""
        from ..applying.prepared import standing_applies

        roots = [_resolved(Path(r)) for r in self._talk.workspace.roots]
        return [
            e for e in standing_applies(self._journal)
            if any(Path(f.path).is_relative_to(root) for f in e.files for root in roots)
        ]  # fmt: skip

    def _is_ours(self, report: Report) -> bool:
        """Whether it is kept here in every word; as it would be read back, since JSON knows no tuples."""
        from ..reported import is_ours

        return is_ours(type(report).model_validate_json(report.to_json()), self._talk.state)

    def _roots(self, report: Report, foreign: bool) -> list[Root]:
        """Where the runs of a report are: those that this conversation was opened on.

        Raises:
            UsageError: the report is about other runs, or one leads elsewhere now.
        """
        from ..reported import refuse_moved, roots_of

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
