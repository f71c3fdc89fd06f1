"""`doctor undo`: what `doctor apply` changed, put back byte for byte."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .streams import print_line

if TYPE_CHECKING:
    from ..applying.journal import Entry, Journal


def undo(
    entry: Annotated[
        str | None, typer.Argument(metavar="ID", help="As --list shows it.", show_default="the newest")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List what was applied.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would be put back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Take back what `doctor apply` changed, byte for byte.

    Refuses where a file was changed since, and says where its content before lies.
    """
    from shlex import quote

    from ..applying import carry_out
    from ..applying.journal import COMMITTED, Journal
    from ..config import settle
    from ..sanitize import one_line
    from ..store import usable_state
    from .apply import DECLINED
    from .consent import agreed, can_ask

    settle()
    journal = Journal(usable_state()[0])
    half_done = {e.id for e in carry_out.interrupted(journal)}
    if listed:
        for line in _listed(journal) or ["Nothing was applied yet."]:
            print_line(line)
        return 0
    found = _chosen(journal, entry)
    if journal.status(found) == COMMITTED:
        print_line(one_line(f"{found.id} made the branch {found.branch} in {found.repository} and changed no file"))
        print_line(one_line(f"drop it with: git -C {quote(found.repository)} branch -D {quote(found.branch)}"))
        return 0
    if found.id in half_done:
        sys.stderr.write(f"{found.id} was interrupted: some of its files are changed\n")
    carry_out.check_undo(found, journal)
    _show(found, journal)
    if dry_run:
        print_line("nothing was written")
        return 0
    if not yes:
        if not can_ask():
            raise UsageError("nobody can be asked", "--yes puts it back without a question, --dry-run only shows")
        if not agreed(f"Put {len(found.files)} file{'s' * (len(found.files) > 1)} back?"):
            print_line("nothing was written")
            return DECLINED
    for line in carry_out.undo(found, journal):
        print_line(one_line(line))
    print_line(one_line(f"undone: {found.id} ({', '.join(found.patches)})"))
    return 0


def _chosen(journal: Journal, name: str | None) -> Entry:
    """The apply that is meant.

    Raises:
        UsageError: there is none.
    """
    from ..applying.journal import UNDONE

    entries = journal.entries()
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


def _show(entry: Entry, journal: Journal) -> None:
    """What will change in each file."""
    from pathlib import Path

    from ..applying.writing import stands
    from ..unified import unified
    from . import patch_view

    for number, file in enumerate(entry.files):
        now = stands(Path(file.root), Path(file.path))
        if now and now.sha256 == file.new:
            try:
                old = journal.kept(entry, number).read_bytes().decode()
            except (OSError, UnicodeDecodeError):
                raise UsageError(f"the content before of {file.path} cannot be read") from None
            for line in patch_view.diff(unified(now.text, old, file.name)):
                print_line(line)


def _listed(journal: Journal) -> list[str]:
    import time

    from ..sanitize import one_line

    rows = []
    for entry in journal.entries():
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.time))
        what = ", ".join(entry.titles) or entry.cause
        rows.append(one_line(f"{entry.id}  {when}  {journal.status(entry):<9}  {', '.join(entry.patches)}  {what}"))
        rows += [one_line(f"  {file.path}") for file in entry.files] or [one_line(f"  branch {entry.branch}")]
    return rows
