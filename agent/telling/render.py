"""A report on the terminal: calm, readable at 80 columns, complete without colour.

Texts of a run are never parsed as markup: everything is a `rich.text.Text` or plain characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.report import Report
from .outline import Item, Outline, Section, outline

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100  # columns at most: longer lines are hard to read
_CHANGE = {"+": "green", "-": "red"}
_COLOUR = {"confirmed": "bold red", "likely": "bold yellow", "healthy": "bold green"}


def as_page(report: Report, console: Console | None = None) -> str:
    """The page, with colours where standard output (or the given console) takes them."""
    from rich.console import Console

    console = console or Console(highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        _Page(console).show(outline(report), _COLOUR.get(report.status, "bold"))
    return capture.get().rstrip("\n")


def as_plain(report: Report) -> str:
    """One fact a line without colour, wrapping or drawn marks, for screen readers and `grep`.

    Each line stands on its own, with the name of its section in front. An answer has no cause.
    """
    o = outline(report)
    lines = [f"{'answer' if report.status == 'answer' else 'cause'}: {o.verdict}", f"status: {o.certainty}"]
    if o.title:
        lines.append(f"title: {o.title}")
    if o.first_failure:
        lines.append(f"first failure: {o.first_failure}")
    for section in o.sections:
        name = section.title.lower()
        for item in section.items:
            parts = (item.mark, item.text, item.quote, item.remark)
            lines.append(f"{name}: {' | '.join(filter(None, parts))}")
            lines += [f"{name}, change: {row}" for row in item.changes]
            lines += [f"{name}, command: {command}" for command in item.commands]
    return "\n".join([*lines, *(f"report: {line}" for line in o.footer)])


class _Page:
    """Prints an outline with hanging indents on one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, WIDTH)

    def show(self, o: Outline, style: str) -> None:
        self._line(f"{o.verdict}  ({o.certainty})", style)
        if o.title:
            self._line(o.title)
        if o.first_failure:
            self._line(f"First failure: {o.first_failure}")
        for section in o.sections:
            self._line("")
            self._line(section.title, "bold")
            self._section(section)
        self._line("")
        for text in o.footer:
            self._line(text, "dim")

    def _section(self, section: Section) -> None:
        if section.prose:
            self._line(" ".join(item.text for item in section.items), indent=2)
            return
        column = min(max(len(item.mark) for item in section.items), 15)
        for item in section.items:
            self._item(item, column)

    def _item(self, item: Item, column: int) -> None:
        indent = 2 + (column + 2 if column else 0)
        self._line(item.text, indent=indent, mark=item.mark)
        if item.quote:
            self._line(item.quote, "cyan", indent=indent)
        for row in item.changes:
            self._line(row, _CHANGE.get(row[:1], ""), indent=indent)
        for command in item.commands:
            self._line(f"$ {command}", "green", indent=indent)
        if item.remark:
            self._line(item.remark, "dim", indent=indent)

    def _line(self, text: str, style: str = "", indent: int = 0, mark: str = "") -> None:
        """A paragraph with a hanging indent; long words (paths, commands) break rather than run over."""
        from rich.text import Text

        room = max(20, self._width - indent)
        for number, part in enumerate(Text(text, style=style).wrap(self._console, room) or [Text("")]):
            part.rstrip()
            lead = f"  {mark} ".ljust(indent) if number == 0 and mark else " " * indent
            self._console.print(Text.assemble((lead, "dim" if mark[:1] == "E" else ""), part), soft_wrap=True)


# ----------
# A report as markdown, for an issue, a chat or a page. Quoted lines stand in code, where no markup works.

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!@])")
_TICKS = re.compile(r"`+")


def as_markdown(report: Report) -> str:
    """The same sections as on the terminal."""
    o = outline(report)
    lines = [f"# {escaped(o.title or o.verdict)}", "", f"**{escaped(o.verdict)}**, {escaped(o.certainty)}"]
    if report.question:
        lines += ["", f"Asked: {escaped(' '.join(report.question.split()))}"]
    if o.first_failure:
        lines += ["", f"First failure: {escaped(o.first_failure)}"]
    for section in o.sections:
        lines += ["", f"## {section.title}", "", *_section(section)]
    return "\n".join([*lines, "", "---", "", *(f"{escaped(text)}  " for text in o.footer)])


def escaped(text: str) -> str:
    """Text that markdown shows as it stands: no emphasis, links, images, HTML or mentions."""
    return _MARKUP.sub(r"\\\1", text)


def code(text: str) -> str:
    """Text as inline code, between more backticks than it holds in a row."""
    ticks = "`" * (max((len(m) for m in _TICKS.findall(text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _section(section: Section) -> Iterator[str]:
    if section.prose:
        yield " ".join(escaped(item.text) for item in section.items)
        return
    for item in section.items:
        yield from _item(item)


def _item(item: Item) -> Iterator[str]:
    lead = "- " if item.mark in ("", "-") else f"- **{escaped(item.mark)}** "
    yield lead + escaped(item.text) + (f" ({escaped(item.remark)})" if item.remark else "")
    if item.quote:
        yield f"  {code(item.quote)}"
    if item.changes:
        fence = "`" * max(3, 1 + max((len(m) for row in item.changes for m in _TICKS.findall(row)), default=0))
        yield from (f"  {row}" for row in ("", f"{fence}diff", *item.changes, fence, ""))
    for command in item.commands:
        yield f"  - {code(command)}"
