"""Writing a set of changes, wholly or not at all, and taking it back. What a kill leaves is told by the journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import UsageError
from ...core.unified import unified
from .. import patch_rows
from .journal import (
    COMMITTED,
    DONE,
    INTERRUPTED,
    UNDOING,
    UNDONE,
    Changed,
    Entry,
    Journal,
    drop,
    new_id,
    put,
    stage,
    stands,
)
from .patch_plan import Change, Plan
from .patch_targets import Target, sha256
from .repository import Versioned, standing


def carry_out(changes: Sequence[Change], journal: Journal, report: str, cause: str) -> Entry:
    """Write changes that were planned. Each file is its old or its new content at any moment.

    Args:
        report: the session or file that the patches are from.
        cause: id of the cause they are to cure.

    Raises:
        UsageError: a file changed meanwhile or cannot be written; then all of them are as they were.
    """
    entry = _entry(changes, report, cause)
    with journal.locked():
        for file in entry.files:
            if _standing(file)[0] != "old":
                raise UsageError(f"{file.path} changed meanwhile", "nothing was changed")
        journal.begin(entry, [c.target.data for c in changes])
        done, ours = False, set[int]()
        try:
            for change, file in zip(changes, entry.files, strict=True):
                ours.add(stage(change.target, change.new, file.temporary))
            for change, file in zip(changes, entry.files, strict=True):
                put(change.target, file.old, file.new, file.temporary)
            for file in entry.files:
                if _standing(file)[0] != "new":
                    raise UsageError(f"{file.path} does not hold what was written", "it was put back")
            journal.mark(entry, DONE)
            done = True
        finally:
            if not done:  # also where the user interrupts
                _take_back(entry, journal, ours)
    return entry


def _take_back(entry: Entry, journal: Journal, ours: set[int]) -> None:
    try:
        _restore(entry, journal, tolerant=True, ours=ours)
    except UsageError as e:
        raise UsageError(f"some files are changed and others not: {e.message}", f"doctor undo {entry.id}") from None


def _entry(changes: Sequence[Change], report: str, cause: str) -> Entry:
    name = new_id()
    files = [
        Changed(
            root=str(c.target.root), path=str(c.target.path), name=c.name, old=c.target.sha256, new=sha256(c.new),
            mtime_ns=c.target.mtime_ns, temporary=f".doctor-{name}-{number}.tmp", diffs=[p.diff for p in c.patches],
        )
        for number, c in enumerate(changes)
    ]  # fmt: skip
    patches = [p for c in changes for p in c.patches]
    titles = list(dict.fromkeys(p.title for p in patches if p.title))
    return Entry(name, time.time(), report, cause, [p.id for p in patches], titles, files)


def undo(entry: Entry, journal: Journal) -> list[str]:
    """Put every file of an apply back, byte for byte.

    Returns:
        What to tell: files that are left as they are, of an apply that was interrupted.

    Raises:
        UsageError: a file changed since; nothing is put back then.
    """
    with journal.locked():
        status = journal.status(entry)
        if status == UNDONE:
            raise UsageError(f"{entry.id} is undone already")
        later = _later(entry, journal)
        if later and status == DONE:
            raise UsageError(
                f"a later apply changed the same file: {later.id}", f"undo that first: doctor undo {later.id}"
            )
        return _restore(entry, journal, tolerant=status in INTERRUPTED)


def check_undo(entry: Entry, journal: Journal) -> None:
    """Refuse what `undo` would refuse, without writing.

    Raises:
        UsageError: as `undo`.
    """
    if journal.status(entry) == DONE:
        if later := _later(entry, journal):
            raise UsageError(
                f"a later apply changed the same file: {later.id}", f"undo that first: doctor undo {later.id}"
            )
        _refuse_changed(entry, journal)


def interrupted(journal: Journal) -> list[Entry]:
    """Applies and undos that were cut short and left some files changed and others not.

    One that was cut short before its first change or after its last is settled without a word.
    """
    left = []
    for entry in journal.entries():
        if journal.status(entry) not in INTERRUPTED:
            continue
        with journal.locked():
            status = journal.status(entry)
            if status not in INTERRUPTED:  # it was at work, and is done now
                continue
            states = {_standing(f)[0] for f in entry.files}
            if states == {"new"}:
                _settle(entry, journal, DONE)
            elif states == {"old"}:
                _settle(entry, journal, UNDONE)
            else:
                left.append(entry)
    return left


def _settle(entry: Entry, journal: Journal, status: str) -> None:
    for file in entry.files:
        drop(Path(file.root), Path(file.path), file.temporary)
    journal.mark(entry, status)


def _restore(entry: Entry, journal: Journal, *, tolerant: bool, ours: set[int] | None = None) -> list[str]:
    """Put back what holds new content.

    Args:
        tolerant: leave a file that someone else changed as it is, and tell.
        ours: inodes of what we wrote, where known; the same content in another file is somebody else's.
    """
    if not tolerant:
        _refuse_changed(entry, journal)
    back: list[tuple[int, Changed, Target]] = []
    told = []
    for number, file in enumerate(entry.files):
        state, now = _standing(file)
        if state == "new" and now and ours is not None and now.inode not in ours:
            told.append(f"{file.path} was changed meanwhile, to the same, by somebody else and is left")
        elif state == "new" and now:
            back.append((number, file, now))
        elif state == "other":
            kept = journal.kept(entry, number)
            told.append(f"{file.path} was changed since and is left; its content before is {kept}")
    if back:
        journal.mark(entry, UNDOING)
    for number, file, now in back:
        drop(Path(file.root), Path(file.path), file.temporary)
        stage(now, _old_content(entry, journal, number), file.temporary, file.mtime_ns)
    for _, file, now in back:
        put(now, file.new, file.old, file.temporary)
    try:
        _settle(entry, journal, UNDONE)
    except UsageError:  # a full disk: that the files are the old ones is seen next time
        if back:
            raise
    return told


def _old_content(entry: Entry, journal: Journal, number: int) -> bytes:
    try:
        data = journal.kept(entry, number).read_bytes()
    except OSError as e:
        raise UsageError(f"the content before of {entry.files[number].path} cannot be read: {e.strerror}") from None
    if sha256(data) != entry.files[number].old:
        raise UsageError(
            f"the content before of {entry.files[number].path} is damaged", str(journal.kept(entry, number))
        )
    return data


def _refuse_changed(entry: Entry, journal: Journal) -> None:
    for number, file in enumerate(entry.files):
        state, now = _standing(file)
        if state == "other":
            raise UsageError(
                f"{file.path} {'was changed since' if now else 'is gone or no plain file any more'}",
                f"nothing was put back; its content before is {journal.kept(entry, number)}",
            )


def _standing(file: Changed) -> tuple[str, Target | None]:
    """Whether a file holds its old or its new content, or something else; and what stands there."""
    now = stands(Path(file.root), Path(file.path))
    digest = now.sha256 if now else ""
    return ("new" if digest == file.new else "old" if digest == file.old else "other"), now


def _later(entry: Entry, journal: Journal) -> Entry | None:
    """An apply that stands on this one's files."""
    own = {f.path for f in entry.files}
    for other in journal.entries():
        if other.id == entry.id:
            return None
        if journal.status(other) == DONE and own & {f.path for f in other.files}:
            return other
    return None


# ----------
# What a person is told before a change is written or taken back, whichever face asks.


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
