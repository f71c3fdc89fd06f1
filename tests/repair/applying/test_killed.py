"""A kill at any moment of an apply or an undo: every file is the old or the new one, and the set is made whole again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from traindoctor.agent.core.report import Patch
from traindoctor.agent.repair.applying import carry_out as module
from traindoctor.agent.repair.applying.carry_out import carry_out, interrupted, undo
from traindoctor.agent.repair.applying.journal import INTERRUPTED, Journal
from traindoctor.agent.repair.applying.patch_plan import plan
from traindoctor.agent.repair.applying.patch_targets import Root

from tests.repair.applying.makers import kept, patch, report, tree

pytestmark = pytest.mark.real  # forks and kills
SIZES = {"a.yaml": 10, "sub/b.txt": 5_000, "c.txt": 60_000}  # lines
OLD = {name: "".join(f"k{i}: 1\n" for i in range(n)) for name, n in SIZES.items()}
NEW = {name: text.replace("k7: 1", "k7: 2 # more") for name, text in OLD.items()}


def filled(folder: Path) -> Path:
    """A run with its three files."""
    (folder / "run/sub").mkdir(parents=True)
    for name, text in OLD.items():
        (folder / "run" / name).write_text(text)
    return folder / "run"


def changes(folder: Path) -> tuple[list, Journal]:
    """What is to be written, and the journal."""
    journal = Journal(folder / "state")
    patches = [Patch(**patch(f"P{n}", name, OLD[name], NEW[name])) for n, name in enumerate(OLD)]
    return plan(patches, [Root("r1", folder / "run")], journal).changes, journal


def contents(run: Path) -> dict[str, str]:
    return {str(p.relative_to(run)): p.read_text() for p in run.rglob("*") if p.is_file()}


def killed(folder: Path, seconds: float) -> None:
    """Let a process apply and undo again and again, and kill it."""
    made, journal = changes(folder)
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(theirs, b"!")
            while True:
                undo(carry_out(made, journal, "s", "c"), journal)
        finally:
            os._exit(1)
    assert os.read(ours, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])  # it was at work until then
    os.close(ours)
    os.close(theirs)


def kill_and_look(folder: Path, seconds: float) -> int:
    """Kill once and check what is there; whether the set was left half done."""
    run = folder / "run"
    killed(folder, seconds)
    for name in OLD:
        assert (run / name).read_text() in (OLD[name], NEW[name]), f"{name} is broken"
    journal = Journal(folder / "state")
    left = interrupted(journal)
    for entry in left:
        assert not undo(entry, journal)
    assert contents(run) in (OLD, NEW)
    assert not [e for e in journal.entries() if journal.status(e) in INTERRUPTED]
    if contents(run) == NEW:
        undo(journal.entries()[0], journal)
    assert contents(run) == OLD
    with journal.locked():
        assert not [*journal.folder.glob(".new-*")]
    shutil.rmtree(journal.folder)
    return len(left)


def kill_often(folder: Path, times: int) -> int:
    """How many of the kills left a set half done."""
    filled(folder)
    moments = random.Random(6)
    return sum(kill_and_look(folder, moments.uniform(0, 0.08)) for _ in range(times))


def test_killed_at_eight_moments(tmp_path: Path) -> None:
    kill_often(tmp_path, 8)


@pytest.mark.soak
def test_killed_at_two_hundred_moments(tmp_path: Path) -> None:
    half = kill_often(tmp_path, 200)
    sys.stdout.write(f"\n200 kills, {half} of them left a set half done, no file was broken, all were put back\n")
    assert half


def die_between(folder: Path, during: str) -> None:
    """In a fork: die between the first file and the second, while applying or while undoing."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    try:
        made, journal = changes(folder)
        real = module.put

        def last(*arguments: object) -> None:
            real(*arguments)  # pyright: ignore
            os.kill(os.getpid(), signal.SIGKILL)

        entry = carry_out(made, journal, "s", "c") if during == "undo" else None
        module.put = last
        if entry:
            undo(entry, journal)
        carry_out(made, journal, "s", "c")
    finally:
        os._exit(1)


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A run with an apply that died between two files, and a report for it."""
    run = filled(tmp_path)
    monkeypatch.setenv("DOCTOR_STATE", str(tmp_path / "state"))
    die_between(tmp_path, "apply")
    assert contents(run) not in (OLD, NEW)
    named = kept(tmp_path / "r.json", report([run], [patch(f"P{n}", f, OLD[f], NEW[f]) for n, f in enumerate(OLD)]))
    return run, named


def test_the_next_apply_says_so_and_asks(half: tuple[Path, Path], doctor) -> None:
    run, named = half
    before = tree(run)
    done = doctor("apply", named)
    assert done.returncode == 2 and "an apply was interrupted" in done.stderr and "doctor undo" in done.stderr
    assert tree(run) == before
    assert "interrupted" in doctor("apply", named, "--dry-run").stderr and tree(run) == before


def test_undo_ends_it(half: tuple[Path, Path], doctor) -> None:
    run, _ = half
    assert "begun" in doctor("undo", "--list").stdout
    done = doctor("undo", "--yes")
    assert done.returncode == 0 and "was interrupted" in done.stderr and contents(run) == OLD


def test_the_next_apply_ends_it_and_goes_on(half: tuple[Path, Path], doctor) -> None:
    run, named = half
    done = doctor("apply", named, "--yes")
    assert done.returncode == 0 and "was put back" in done.stderr, done.stderr
    assert contents(run) == NEW and doctor("undo", "--yes").returncode == 0 and contents(run) == OLD


def test_what_somebody_wrote_in_between_is_left(half: tuple[Path, Path], doctor) -> None:
    run, _ = half
    (run / "c.txt").write_text("mine\n")
    done = doctor("undo", "--yes")
    assert done.returncode == 0 and "c.txt was changed since and is left" in done.stdout
    assert contents(run) == {**OLD, "c.txt": "mine\n"}


def test_an_undo_that_died_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor) -> None:
    run = filled(tmp_path)
    monkeypatch.setenv("DOCTOR_STATE", str(tmp_path / "state"))
    die_between(tmp_path, "undo")
    assert contents(run) not in (OLD, NEW) and "undoing" in doctor("undo", "--list").stdout
    assert doctor("undo", "--yes").returncode == 0 and contents(run) == OLD
