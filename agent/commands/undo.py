"""`doctor undo`: what `doctor apply` changed, put back byte for byte."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .streams import print_line

if TYPE_CHECKING:
    from ..applying.journal import Journal


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
    from ..applying.prepared import backwards, named
    from ..config import settle
    from ..sanitize import one_line
    from ..store import usable_state
    from . import patch_view
    from .apply import DECLINED
    from .consent import agreed, can_ask

    settle()
    journal = Journal(usable_state()[0])
    half_done = {e.id for e in carry_out.interrupted(journal)}
    if listed:
        for line in _listed(journal) or ["Nothing was applied yet."]:
            print_line(line)
        return 0
    found = named(journal, entry)
    if journal.status(found) == COMMITTED:
        print_line(one_line(f"{found.id} made the branch {found.branch} in {found.repository} and changed no file"))
        print_line(one_line(f"drop it with: git -C {quote(found.repository)} branch -D {quote(found.branch)}"))
        return 0
    if found.id in half_done:
        sys.stderr.write(f"{found.id} was interrupted: some of its files are changed\n")
    for _, text in backwards(found, journal):
        for line in patch_view.diff(text):
            print_line(line)
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
