"""Patches that lead out of a run, are no plain change or fit nothing: refused in one line, with nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.repair.applying.hostile_diffs import GOOD, HOSTILE, OLD
from tests.repair.applying.makers import journal_of, kept, patch, report, tree

pytestmark = pytest.mark.real  # asks git


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything that a path can stumble over, and files outside that must stay as they are."""
    top = tmp_path_factory.mktemp("place")
    (top / "outside.yaml").write_text(OLD)
    for run in ("run", "good"):
        (top / run / "sub/.git/hooks").mkdir(parents=True)
        (top / run / ".git").mkdir()
        for name in (
            "config.yaml",
            "sub/inner.yaml",
            ".git/config",
            "sub/.git/hooks/post-checkout",
            "twin.yaml",
            "kept.yaml",
        ):
            (top / run / name).write_text(OLD)
    run = top / "run"
    (run / "out.yaml").symlink_to("../outside.yaml")
    (run / "outer").symlink_to("..")
    (run / "loop.yaml").symlink_to("loop.yaml")
    (run / "into.yaml").symlink_to(".git/config")
    os.mkfifo(run / "pipe.yaml")
    os.link(run / "twin.yaml", run / "twin2.yaml")
    (run / "weights.yaml").write_bytes(OLD.encode() + b"\x80\x00")
    (run / "kept.yaml").chmod(0o444)
    return top


@pytest.mark.parametrize("name", HOSTILE)
def test_refused(name: str, place: Path, tmp_path: Path, doctor) -> None:
    wrong = patch("P1", "config.yaml", OLD, OLD.replace("2", "9")) | HOSTILE[name]
    runs = [
        place / "run",
        *([{"id": "r2", "root": str(place / "good"), "good": True}] if "r2/" in wrong["file"] else []),
    ]
    named = kept(tmp_path / "report.json", report(runs, [wrong]))
    before = tree(place)
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and not done.stdout, (done.stdout, done.stderr)
    rows = [row for row in done.stderr.splitlines() if row.startswith("doctor: ")]
    assert len(rows) == 1 and len(rows[0]) < 500 and "Traceback" not in done.stderr and tree(place) == before
    assert not [*journal_of().glob("2*")]


@pytest.mark.parametrize("name", ["second header outside", "context of another text", "file through a folder out"])
def test_one_of_a_set_stops_the_set(name: str, place: Path, tmp_path: Path, doctor) -> None:
    good = patch("P1", "sub/inner.yaml", OLD, OLD.replace("2", "9"))
    wrong = patch("P2", "config.yaml", OLD, OLD.replace("2", "9")) | HOSTILE[name]
    before = tree(place)
    done = doctor("apply", kept(tmp_path / "report.json", report([place / "run"], [good, wrong])), "--yes")
    assert done.returncode == 2 and tree(place) == before


def test_the_good_one_is_applied(place: Path, tmp_path: Path, doctor) -> None:
    right = patch("P1", "config.yaml", OLD, OLD.replace("2", "9"))
    assert right["diff"] == GOOD
    named = kept(tmp_path / "report.json", report([place / "run"], [right]))
    assert doctor("apply", named, "--yes").returncode == 0
    assert (place / "run/config.yaml").read_text() == OLD.replace("2", "9")
    assert doctor("undo", "--yes").returncode == 0
