"""What the start screen asks of the application."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual.message import Message


@dataclass
class Opened(Message):
    """Something was chosen. The screen stays until the application leaves it; what cannot be opened is told there.

    Attributes:
        path: a run: a folder or a file, absolute.
        session: an earlier session, by its id.
        report: a doctor-report.json that a job left in a folder. Whoever may write there may have made it.
        question: to ask at once; alone: without a run.
    """

    path: Path | None = None
    session: str | None = None
    report: Path | None = None
    question: str = ""
