"""One supervised attempt at a job: what the loop, its observers and the triage know about it in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Job:
    """A started command. Times: `began` is `time.time()`, for people; durations are measured by `time.monotonic()`."""

    argv: list[str]
    run: Path  # where the reports go
    place: Path  # the folder of this attempt: RUN/doctor-run/try_N
    pid: int  # the command's main process
    began: float
    console: Path  # what the job writes: console.log, or rank_N.log where every rank has a supervisor of its own
    rank: int | None = None
    hang_after: float = 600.0  # seconds; 0: never
    environ: dict[str, str] = field(default_factory=dict)  # the variables that were set for the job
