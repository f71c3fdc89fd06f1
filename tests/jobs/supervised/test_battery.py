"""Real jobs under `doctor run`: the exit code is kept, and the report names the right cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.supervised.battery import Entry, entries, play

ALL = [pytest.param(e, marks=() if e.quick else pytest.mark.soak, id=e.id) for e in entries()]


@pytest.mark.parametrize("entry", ALL)
def test_a_job_keeps_its_exit_code_and_is_explained(entry: Entry, tmp_path: Path) -> None:
    if not entry.possible:
        pytest.skip("this machine does not let it be made")
    outcome = play(entry, tmp_path)
    assert outcome.kept, f"exit code {outcome.code}\n{outcome.said[-3000:]}"
    assert outcome.right, f"{outcome.cause} ({outcome.status})\n{outcome.said[-3000:]}"
    assert outcome.cause != "none.insufficient_evidence" or outcome.status == "insufficient_evidence"
