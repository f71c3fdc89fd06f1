"""What every way to an answer is given of an incident, and what it gives back: doctor's planners and their rivals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..agent.llm.model_settings import ModelSettings
from .exchanges import Exchange


@dataclass(frozen=True, slots=True)
class Task:
    """All that a diagnosis gets to know of an incident."""

    files: Path
    question: str
    shell: Path
    model: ModelSettings | None = None
    exchange: Exchange | None = None  # a recorded conversation that stands in for the model
    solver: str = "offline"  # one of `solvers.NAMES`; where a model is named, doctor asks it


@dataclass(frozen=True, slots=True)
class Answer:
    """The report as JSON (plain text crosses processes) and the seconds the diagnosis took."""

    report: str
    seconds: float
    in_file: bool = False  # whether the verdict's repair is one for a file that the run has
