"""What a person is told before a change is written or taken back, whichever face asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import patch_rows
from ..errors import UsageError
from ..unified import unified
from .carry_out import check_undo
from .journal import COMMITTED, UNDONE, Changed, Entry, Journal
from .plan import Plan
from .repository import Versioned, standing
from .writing import stands


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with how each of its files stands under version control, and where its report is from."""

    plan: Plan
    files: list[Versioned]
    foreign: bool

    @classmethod
    def of(cls, plan: Plan, foreign: bool) -> Prepared:
        """Look at each file that would be changed."""
        return cls(plan, [standing(c.target.path, c.target.data) for c in plan.changes], foreign)

    @property
    def by_model(self) -> bool:
        """Whether a model thought of any of it."""
        return any(p.by == "model" for c in self.plan.changes for p in c.patches)

    @property
    def dirty(self) -> list[str]:
        """Files with local changes under version control."""
        return [f.name for f in self.files if f.standing == "changed"]

    @property
    def verify(self) -> list[str]:
        """How to see afterwards whether it helped."""
        return list(dict.fromkeys(p.verify for c in self.plan.changes for p in c.patches if p.verify))

    @property
    def hidden(self) -> str:
        """How much of it is not shown; empty where all of it is."""
        left = sum(patch_rows.hidden(c.diff) for c in self.plan.changes)
        return f"{left} characters of this are NOT SHOWN above: read the diff in the report first" if left else ""

    def warnings(self, commit: bool = False) -> list[str]:
        """What to know of the files before they are written, or committed."""
        told = list(self.plan.told)
        for change, file in zip(self.plan.changes, self.files, strict=True):
            if file.standing == "changed" and not commit:
                told.append(
                    f"{change.name} has local changes under git, which stay: git alone could not take this back"
                )
            elif file.standing == "unknown":
                told.append(f"whether {change.name} has local changes under git is not known: {file.why}")
        return told

    def where(self, commit: bool = False) -> list[str]:
        """The real path of each file, with how many lines."""
        what = "to be committed" if commit else "to be written"
        return [f"{what}: {c.target.path} ({patch_rows.counts(c.diff)})" for c in self.plan.changes]


def written(plan: Plan) -> list[str]:
    """What was changed, file by file."""
    return [f"changed {c.target.path} ({', '.join(p.id for p in c.patches)})" for c in plan.changes]


def half_done(entry: Entry) -> str:
    """That an apply was cut short, and of which files."""
    return f"an apply was interrupted: {entry.id}; of {', '.join(f.path for f in entry.files)} some are changed"


def named(journal: Journal, name: str | None, entries: list[Entry] | None = None) -> Entry:
    """The apply that is meant.

    Args:
        name: its id or how that begins; None means the newest that is not taken back.
        entries: those it may be; all where they are not given.

    Raises:
        UsageError: there is none.
    """
    entries = journal.entries() if entries is None else entries
    if name is None:
        found = [e for e in entries if journal.status(e) != UNDONE]
        if not found:
            raise UsageError("there is nothing to undo", "`doctor undo --list` shows what was applied")
        return found[0]
    found = [e for e in entries if e.id == name] or [e for e in entries if name and e.id.startswith(name)]
    if len(found) != 1:
        raise UsageError(
            f"no apply {name[:80]!r}" if not found else f"{name} names several", "see `doctor undo --list`"
        )
    if journal.status(found[0]) == UNDONE:
        raise UsageError(f"{found[0].id} is undone already")
    return found[0]


def backwards(entry: Entry, journal: Journal) -> list[tuple[Changed, str]]:
    """The files that would be put back, each with the difference that this makes.

    Raises:
        UsageError: it cannot be put back, or what stood there before cannot be read.
    """
    if journal.status(entry) == COMMITTED:
        return []
    check_undo(entry, journal)
    found = []
    for number, file in enumerate(entry.files):
        now = stands(Path(file.root), Path(file.path))
        if now and now.sha256 == file.new:
            try:
                old = journal.kept(entry, number).read_bytes().decode()
            except (OSError, UnicodeDecodeError):
                raise UsageError(f"the content before of {file.path} cannot be read") from None
            found.append((file, unified(now.text, old, file.name)))
    return found


def standing_applies(journal: Journal) -> list[Entry]:
    """Applies whose changes stand, wholly or in part; newest first."""
    return [e for e in journal.entries() if journal.status(e) not in (UNDONE, COMMITTED)]
