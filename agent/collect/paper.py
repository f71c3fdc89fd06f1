"""A paper in markdown to be passed on: every text is cleaned, moved out of its owner's folders and escaped, here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..markdown import code, escaped
from ..nearby import nearby
from ..sanitize import inert, one_line
from .cleaning import Cleaning
from .context import Context
from .report_copy import moved, places, portable

if TYPE_CHECKING:
    from ..report import Report
    from ..workspace import Workspace

UNKNOWN = "not known"
FENCE = "~~~"
_READ = 256 << 10  # bytes of a config that are looked at for secrets
_CONFIGS = 200


class Paper:
    """Lines of markdown as they are written down."""

    def __init__(self, ws: Workspace, context: Context) -> None:
        self.context, self._folders = context, places(ws)
        self.lines: list[str] = []

    def head(self, text: str, level: int = 2) -> None:
        """A heading of our own words."""
        self.lines += ([""] if self.lines else []) + [f"{'#' * level} {self.plain(text)}", ""]

    def say(self, *texts: str) -> None:
        """Lines of a paragraph."""
        self.lines += [self.plain(t) for t in texts]

    def item(self, text: str, quote: str = "", remark: str = "") -> None:
        """An entry of a list, with a text in code behind it."""
        tail = f": {self.code(quote)}" if quote else ""
        self.lines.append(f"- {self.plain(text)}{tail}" + (f" ({self.plain(remark)})" if remark else ""))

    def own(self, text: str) -> None:
        """An entry of our own words, with code between backticks."""
        parts = text.split("`")
        self.lines.append("- " + "".join(self.code(p) if i % 2 else self.plain(p) for i, p in enumerate(parts)))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table; an empty cell is not known."""
        self.lines += ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        self.lines += ["| " + " | ".join(self.plain(c) or UNKNOWN for c in row) + " |" for row in rows]
        self.lines.append("")

    def block(self, text: str) -> None:
        """A text as it stands, between fences that it does not hold."""
        fence = FENCE
        shown = inert(self._out(text)).rstrip("\n")
        while fence in shown:
            fence += "~"
        self.lines += [f"{fence}text", shown, fence]

    def plain(self, text: str) -> str:
        """A text on one line that markdown shows as it stands."""
        return escaped(one_line(self._out(str(text))))

    def code(self, text: str) -> str:
        """A text on one line as code."""
        return code(one_line(self._out(str(text))))

    def _out(self, text: str) -> str:
        return moved(self.context.cleaning.text(text), self._folders)


def written(ws: Workspace, report: Report, write: Callable[[Paper, Report], None]) -> str:
    """A paper, written twice: what one part tells to be a secret, another may show.

    Texts around what is quoted, and configs, are gone through first, as these tell what a quotation alone does not.
    """
    cleaning = Cleaning()
    for text in nearby(ws, report.evidence):
        cleaning.text(text)
    for file in ws.by_role("config", "environment")[:_CONFIGS]:
        cleaning.text(ws.text(file, _READ))
    context = Context(ws, cleaning)
    paper = Paper(ws, context)
    for _ in range(2):
        paper = Paper(ws, context)
        write(paper, portable(report, ws, context))
    return "\n".join(paper.lines) + "\n"
