"""`doctor apply`: the patches of a report, shown, asked about, written with a way back."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...core.errors import UsageError
from ...repair import patch_rows
from ...repair.patch_rows import BY_MODEL, FOREIGN, Row
from ...safety.fences import one_line
from .output import print_line

if TYPE_CHECKING:
    from ...core.report import Report
    from ...repair.applying.carry_out import Prepared
    from ...repair.applying.journal import Journal
    from ...repair.applying.patch_plan import Change, Plan, Repair
    from ...repair.applying.repository import Versioned

DECLINED = 1


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the flags say, and whether the report was made elsewhere."""

    dry_run: bool
    yes: bool
    allow_dirty: bool
    commit: bool
    branch: str | None
    foreign: bool


def apply(
    report: Annotated[
        str, typer.Argument(metavar="REPORT", help="A session, 'last', a report as JSON, or '-' for standard input.")
    ],
    patches: Annotated[
        list[str] | None, typer.Argument(metavar="P1", help="Patches by id.", show_default="the first repair's")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the repairs that have patches.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show and check everything, write nothing.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, except about a model's or foreign patches.")
    ] = False,
    run: Annotated[
        list[str] | None,
        typer.Option("--run", help="Where the run is now; again for more.", metavar="PATH", show_default="as reported"),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="Leave out what belongs to the named patches.")] = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="Make a git branch with a commit, and leave the files as they are.")
    ] = False,
    branch: Annotated[
        str | None, typer.Option("--branch", help="Name of that branch.", metavar="NAME", show_default="doctor/SESSION")
    ] = None,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="With --yes: also where a file has local changes under git.")
    ] = False,
) -> int:
    """Apply patches of a report to the files of its run.

    Shows the change and asks. All files of a repair are changed, or none. `doctor undo` takes it back.
    """
    from ...core.config import settle
    from ...repair.applying.journal import Journal
    from ...repair.applying.patch_plan import plan, select
    from ...safety.fences import one_line
    from ...session.reported import is_ours, report_of, roots_of
    from ...session.store import usable_state

    settle()
    state, word = usable_state()
    if word:
        _tell(word)
    found, path = report_of(report, state)
    foreign = not is_ours(found, state)
    if listed:
        return _list(found, foreign)
    wish = _Wish(dry_run, yes, allow_dirty, commit or branch is not None, branch, foreign)
    journal = Journal(state)
    _end_interrupted(journal, wish)
    chosen = select(found, patches or _choice(found, wish), only=only)
    for line in chosen.told:
        _tell(line)
    made = plan(chosen.patches, roots_of(found, path, state, run), journal)
    if made.already:
        print_line(one_line(f"already applied: {', '.join(p.id for p in made.already)}"))
    if not made.changes:
        return 0
    return _carry_out(made, journal, wish, found, str(path.absolute()) if path else found.session)


def _list(report: Report, foreign: bool) -> int:
    from ...repair.applying.patch_plan import repairs

    pass

    rows = listed(report, repairs(report), foreign) if report.patches else ["The report has no patch."]
    for line in rows:
        print_line(line)
    return 0


def _carry_out(made: Plan, journal: Journal, wish: _Wish, report: Report, source: str) -> int:
    """Show, ask, write."""
    from ...repair.applying.carry_out import Prepared, carry_out, written
    from ...safety.fences import one_line

    pass

    ready = Prepared.of(made, wish.foreign)
    for change in made.changes:
        for line in changed_rows(change, wish.foreign):
            print_line(line)
    for line in [*ready.warnings(wish.commit), *ready.where(wish.commit), ready.hidden]:
        if line:
            _tell(line)
    if wish.dry_run:
        print_line("nothing was written")
        return 0
    if not _consent(ready, wish):
        print_line("nothing was written")
        return DECLINED
    cause = report.root_cause.id or ""
    if wish.commit:
        return _commit(made, ready.files, wish, journal, source, cause)
    entry = carry_out(made.changes, journal, source, cause)
    for line in [*written(made), *ready.verify]:
        print_line(one_line(line))
    print_line(f"take it back with: doctor undo {entry.id}")
    return 0


def _consent(ready: Prepared, wish: _Wish) -> bool:
    """Whether it may be written.

    Raises:
        UsageError: nobody can be asked, or the files have local changes that --yes does not cover.
    """
    from .output import agreed, can_ask

    if wish.yes and ready.dirty and not wish.allow_dirty and not wish.commit:
        raise UsageError(f"{ready.dirty[0]} has local changes under git", "commit them, or add --allow-dirty")
    if wish.yes and not ready.by_model and not wish.foreign:
        return True
    if not can_ask():
        if wish.foreign:
            raise UsageError("this report was not made here, and nobody can be asked", "apply it from a terminal")
        if ready.by_model:
            raise UsageError("a model proposed this, and nobody can be asked", "apply it from a terminal")
        raise UsageError("nobody can be asked", "--yes applies without a question, --dry-run only shows")
    count = len(ready.files)
    what = "a commit of this" if wish.commit else f"these changes to {count} file{'s' * (count > 1)}"
    if not wish.commit and not sys.stdout.isatty():
        _tell("the changes are shown on standard output, which is not this terminal")
    return agreed(f"{'Make' if wish.commit else 'Write'} {what}?")


def _commit(
    made: Plan, files: list[Versioned], wish: _Wish, journal: Journal, source: str, cause: str
) -> int:  # fmt: skip
    import time
    from shlex import quote

    from ...repair.applying.journal import COMMITTED, Entry, new_id
    from ...repair.applying.repository import commit, free_branch
    from ...safety.fences import one_line

    patches = [p for c in made.changes for p in c.patches]
    titles = list(dict.fromkeys(one_line(p.title) for p in patches if p.title))
    ids = ", ".join(p.id for p in patches)
    message = f"{(titles or [f'Apply {ids}'])[0][:72]}\n\n" + "".join(
        one_line(row) + "\n" for row in (*titles[1:], f"Cause: {cause}", f"Patches: {ids}", f"Report: {source}")
    )
    ident = new_id()
    name = Path(source).stem if "/" in source else source
    name = "".join(c if (c.isalnum() and c.isascii()) or c == "-" else "-" for c in name).strip("-")[:60] or ident
    branch = wish.branch if wish.branch is not None else free_branch(files[0].top, f"doctor/{name}")
    with journal.locked():
        made_commit = commit(list(zip(made.changes, files, strict=True)), branch, message)
        entry = Entry(
            ident,
            time.time(),
            source,
            cause,
            [p.id for p in patches],
            titles,
            repository=str(files[0].top),
            branch=branch,
        )
        journal.begin(entry, [], COMMITTED)
    print_line(
        one_line(f"branch {branch} with commit {made_commit[:12]} in {files[0].top}; the files are as they were")
    )
    print_line(one_line(f"use it with: git switch {quote(branch)}; drop it with: git branch -D {quote(branch)}"))
    return 0


def _choice(report: Report, wish: _Wish) -> list[str]:
    """Ids of the repair that somebody at the terminal chooses; none where the first is meant."""
    from ...repair.applying.patch_plan import repairs

    pass
    from .output import answer, can_ask

    found = repairs(report)
    if len(found) < 2 or wish.yes or wish.dry_run or not can_ask():
        return []
    for line in listed(report, found, wish.foreign):
        print_line(line)
    said = answer("Which repair? [1] ") or "1"
    if not (said.isascii() and said.isdigit() and 1 <= int(said) <= len(found)):
        raise UsageError(f"there is no repair {said[:20]}", "nothing was written")
    return found[int(said) - 1].ids


def _end_interrupted(journal: Journal, wish: _Wish) -> None:
    """Put back what an apply left half done.

    Raises:
        UsageError: somebody must say so first.
    """
    from ...repair.applying.carry_out import half_done, interrupted, undo
    from .output import agreed, can_ask

    for entry in interrupted(journal):
        _tell(half_done(entry))
        if wish.dry_run:
            continue
        if not wish.yes and not (can_ask() and agreed("Put these files back first?")):
            raise UsageError("an apply was interrupted and left files half done", f"doctor undo {entry.id}")
        for line in undo(entry, journal):
            _tell(line)
        _tell(f"{entry.id} was put back")


def _tell(line: str) -> None:
    from ...safety.fences import one_line

    sys.stderr.write(f"{one_line(line)}\n")


# ----------
# `doctor undo`: what `doctor apply` changed, put back byte for byte.


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

    from ...core.config import settle
    from ...repair.applying import carry_out
    from ...repair.applying.carry_out import backwards, named
    from ...repair.applying.journal import COMMITTED, Journal
    from ...safety.fences import one_line
    from ...session.store import usable_state

    pass
    pass
    from .output import agreed, can_ask

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
        for line in diff(text):
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

    from ...safety.fences import one_line

    rows = []
    for entry in journal.entries():
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.time))
        what = ", ".join(entry.titles) or entry.cause
        rows.append(one_line(f"{entry.id}  {when}  {journal.status(entry):<9}  {', '.join(entry.patches)}  {what}"))
        rows += [one_line(f"  {file.path}") for file in entry.files] or [one_line(f"  branch {entry.branch}")]
    return rows


# ----------
# Rows of patches on a terminal that scrolls: indented, folded, coloured where it takes colours.

_COLOURS = {"title": "1", "file": "1", "mark": "33", "in": "32", "out": "31", "hunk": "36"}
_WIDTH = 160  # characters of a row


def changed_rows(change: Change, foreign: bool = False) -> Iterator[str]:
    """What is known of the patches of a file, and the difference that will be written.

    Args:
        foreign: the report that they are from was not made here.
    """
    for patch in change.patches:
        yield from drawn(patch_rows.words(patch, foreign))
    yield from diff(change.diff)


def diff(text: str) -> Iterator[str]:
    """A diff; a long line goes on behind a `>`."""
    return drawn(patch_rows.diff(text))


def drawn(rows: Iterable[Row]) -> Iterator[str]:
    """Rows as lines of the terminal."""
    for row in rows:
        colour = _COLOURS.get(row.kind, "")
        if row.kind in ("title", "mark"):
            yield _coloured(f"{'    ' * (row.kind == 'mark')}{row.text}", colour)
        elif row.kind == "words":
            yield from textwrap.wrap(row.text, 100, initial_indent="    ", subsequent_indent="      ")
        else:
            for at in range(0, len(row.text) or 1, _WIDTH):
                yield _coloured(f"    {'> ' if at else ''}{row.text[at : at + _WIDTH]}", colour)


def listed(report: Report, repairs: list[Repair], foreign: bool = False) -> Iterator[str]:
    """The repairs of a report that have patches, numbered."""
    if foreign:
        yield f"({FOREIGN})"
    patches = {p.id: p for p in report.patches}
    for number, repair in enumerate(repairs, 1):
        yield one_line(f"{number}. {repair.title}")
        for name in repair.ids:
            patch = patches[name]
            by = f"  ({BY_MODEL})" if patch.by == "model" else ""
            yield one_line(f"   {name}  {patch.file}{': ' if patch.title else ''}{patch.title}{by}")


def _coloured(text: str, code: str) -> str:
    if not code or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"
