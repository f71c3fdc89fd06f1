"""The diagnosis that goes with a bundle: made for it or taken over, without what would differ the next time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..events import ReportReady
from ..report import Report
from .context import Context

if TYPE_CHECKING:
    from ..workspace import Workspace

QUESTION = "What is wrong with this run?"


def diagnosed(ws: Workspace, question: str = "") -> Report:
    """A diagnosis without a model. Nothing of it is kept but the report."""
    from ..session import diagnose

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
