"""The diagnosis that goes with a bundle: made for it or taken over, without what would differ the next time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.events import ReportReady
from ...core.report import Report
from ...reading.scan.windows import nearby
from ...safety.fences import inert, one_line
from ..render import code, escaped
from .cleaning import Cleaning
from .pieces import Context

if TYPE_CHECKING:
    from ...reading.run.workspace import Workspace

QUESTION = "What is wrong with this run?"


def diagnosed(ws: Workspace, question: str = "") -> Report:
    """A diagnosis without a model. Nothing of it is kept but the report."""
    from ...session.session import diagnose

    report: Report | None = None
    with tempfile.TemporaryDirectory(prefix="doctor-") as state:
        for event in diagnose(ws, question or QUESTION, state=Path(state), history=False):
            if isinstance(event, ReportReady):
                report = event.report
        assert report is not None  # `diagnose` ends with it or raises
        report.session = ""
        report.meta.degraded = [d for d in report.meta.degraded if state not in d]
    return report


def portable(report: Report, ws: Workspace, context: Context) -> Report:
    """The same report without secrets, without the folders that the run and its owner live in, without seconds."""
    data = report.model_dump(by_alias=True, mode="json")
    for e in data["evidence"]:
        if e["kind"] == "line" and e["file"] and e["offset"] is not None:
            _quoted(e, context)
    data["meta"]["seconds"] = 0.0
    for run in data["runs"]:
        run["root"] = Path(run["root"]).name or "run"
    return Report.model_validate(context.cleaning.data(_moved(data, places(ws))))


def _quoted(e: dict[str, Any], context: Context) -> None:
    """A line of evidence as it stands once its surroundings have told its secrets."""
    size = len(e["text"].encode())
    raw, clean = context.lines(e["file"], e["offset"], e["offset"] + size)
    e["value"] = context.value(e["value"], e["file"], e["offset"], size)
    if raw != clean and raw.startswith(e["text"]):
        e["text"] = clean[: len(e["text"])]


def places(ws: Workspace) -> list[tuple[str, str]]:
    """Folders as they are written out, and what stands for each where it is read elsewhere; the longest first."""
    told: dict[str, str] = {}
    for root in [*ws.roots, *ws.good]:
        if root.name and root.is_dir():
            told |= {str(root.absolute()): root.name, str(root.resolve()): root.name}
    home = str(Path.home())
    if len(home) > 1:
        told.setdefault(home, "~")
    return sorted(told.items(), key=lambda p: -len(p[0]))


def moved(text: str, folders: list[tuple[str, str]]) -> str:
    """A text with folders replaced by what stands for them."""
    for path, name in folders:
        text = text.replace(path, name)
    return text


def _moved(value: Any, folders: list[tuple[str, str]]) -> Any:
    if isinstance(value, str):
        return moved(value, folders)
    if isinstance(value, list):
        return [_moved(v, folders) for v in value]
    if isinstance(value, dict):
        return {k: _moved(v, folders) for k, v in value.items()}
    return value


# ----------
# A paper in markdown to be passed on: every text is cleaned, moved out of its owner's folders and escaped, here.

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
