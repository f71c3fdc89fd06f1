"""Real jobs under `doctor run`: the exit code is kept, and the report names the right cause."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.battery import Entry, Outcome, entries, play, table

ALL = entries()
OUTCOMES: list[Outcome] = []


@pytest.fixture(scope="module", autouse=True)
def told() -> Iterator[None]:
    """With `-s` the outcomes as a table."""
    yield
    if OUTCOMES:
        sys.stdout.write(f"\n{table(OUTCOMES)}\n")


def _played(entry: Entry, place: Path) -> Outcome:
    if not entry.possible:
        pytest.skip("this machine does not let it be made")
    outcome = play(entry, place)
    OUTCOMES.append(outcome)
    return outcome


def _check(outcome: Outcome) -> None:
    assert outcome.kept, f"exit code {outcome.code}\n{outcome.said[-3000:]}"
    assert outcome.right, f"{outcome.cause} ({outcome.status})\n{outcome.said[-3000:]}"
    if outcome.cause == "none.insufficient_evidence":
        assert outcome.status == "insufficient_evidence"


@pytest.mark.parametrize("entry", [e for e in ALL if e.quick], ids=lambda e: e.id)
def test_a_job_keeps_its_exit_code_and_is_explained(entry: Entry, tmp_path: Path) -> None:
    _check(_played(entry, tmp_path))


@pytest.mark.soak
@pytest.mark.parametrize("entry", [e for e in ALL if not e.quick], ids=lambda e: e.id)
def test_every_job_of_the_battery(entry: Entry, tmp_path: Path) -> None:
    _check(_played(entry, tmp_path))
