"""The words of the approval dialog: what a call is, what would run, which answers there are."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text
from textual.content import Content

from ..text import said

if TYPE_CHECKING:
    from ...agent.chat.consent import Asked
    from ...agent.tools.rehearsal import Line

SHOWN = 20_000  # characters of one command; beyond, a word says how long it is
TOUCHED = 200  # characters of a process's own command line
LINES = 64  # commands that are written out; the rest is counted
# Key, decision, words. The first is what enter says.
CHOICES = (
    ("n", "no", "no"),
    ("y", "once", "once"),
    ("s", "session", "for this session"),
    ("v", "never", "never in this session"),
)


def asked_text(asked: Asked, number: int, of: int) -> Table:
    """Everything about a call, from its title to its last command; wraps, and is never cut without a word."""
    rows = Table.grid(padding=(0, 1), expand=True)
    rows.add_column(no_wrap=True, style="dim")
    rows.add_column(ratio=1, overflow="fold")
    count = f"{number} of {of}: " if of > 1 else ""
    rows.add_row("check", _text(f"{count}{asked.call.tool}", "bold"))
    rows.add_row("", _text(asked.title))
    rows.add_row("risk", Text.assemble((str(asked.risk), "bold"), f": {asked.means}"))
    rows.add_row("why", _text(asked.call.why or "the planner gave no reason"))
    given = [f"{k} = {v!r}" for k, v in asked.call.args.items()] or ["none given: its defaults"]
    for n, argument in enumerate(given):
        rows.add_row("" if n else "arguments", _text(argument))
    for n, touched in enumerate(asked.rehearsed.touches):
        rows.add_row("" if n else "touches", _text(touched, limit=TOUCHED))
    rows.add_row()
    _add_commands(rows, asked.rehearsed.lines)
    if asked.rehearsed.note:
        rows.add_row()
        rows.add_row("note", _text(asked.rehearsed.note))
    return rows


def choices_text(chosen: int, lasting: str, opened: bool) -> Content:
    """The answers on a line with their keys, the marked one with `>`, and under it what the lasting ones cover."""
    words = [
        Content.styled(f"{'>' if n == chosen else ' '} [{key}] {word} ", "bold reverse" if n == chosen else "")
        for n, (key, _, word) in enumerate(CHOICES)
    ]
    keys = "enter: the marked one   esc: no   left, right: mark another"
    wait = "No key counts yet: it will once the keyboard was quiet for half a second"
    about = f"this session: {lasting}, until the chat is closed"
    return Content("\n").join(
        [Content(" ").join(words), Content.styled(keys if opened else wait, "$text-muted"),
         Content.styled(about, "$text-muted")]
    )  # fmt: skip


def _add_commands(rows: Table, lines: tuple[Line, ...]) -> None:
    if not lines:
        rows.add_row("would run", Text("no command that is known now", "bold"))
    for number, line in enumerate(lines[:LINES], 1):
        rows.add_row(f"run {number}" if len(lines) > 1 else "would run", _text(shlex.join(line.argv), "bold", SHOWN))
        about = [f"at most {line.seconds:g} s"]
        about += [f"in {line.cwd}"] if line.cwd else []
        about += [f"with {k}={shlex.quote(v)}" for k, v in line.env]
        rows.add_row("", _text("; ".join(about), "dim", SHOWN))
    if len(lines) > LINES:
        rows.add_row("", Text(f"and {len(lines) - LINES} more commands after these, not shown", "bold"))


def _text(text: str, style: str = "", limit: int = SHOWN) -> Text:
    """What comes from outside, inert and without markup, as the table takes it."""
    return Text(said(text, limit=limit).plain, style, overflow="fold")
