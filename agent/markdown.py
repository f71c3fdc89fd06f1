"""A report as markdown, for an issue, a chat or a page. Quoted lines stand in code, where no markup works."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .outline import Item, Section, outline
from .report import Report

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
