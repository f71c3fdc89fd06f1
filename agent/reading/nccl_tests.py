"""Tables of nccl-tests: whether the check found wrong values, and the bandwidths."""

from __future__ import annotations

import re
from dataclasses import dataclass

OUT_OF_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)\s*(OK|FAILED)?", re.IGNORECASE)
AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*([\d.]+)", re.IGNORECASE)
FAILURE = re.compile(r"Test (?:NCCL|CUDA) failure \S+ '([^']{1,120})", re.IGNORECASE)


@dataclass(slots=True)
class TestFacts:
    """What one line of an nccl-tests report states."""

    wrong: int | None = None
    average: float | None = None  # GB/s
    failure: str | None = None


def facts_of(text: str) -> TestFacts:
    """Footer or error line of nccl-tests as facts; all None for other lines."""
    wrong = OUT_OF_BOUNDS.search(text)
    average = AVERAGE.search(text)
    failure = FAILURE.search(text)
    return TestFacts(
        int(wrong[1]) if wrong else None,
        float(average[1]) if average else None,
        failure[1].strip(" /") if failure else None,
    )
