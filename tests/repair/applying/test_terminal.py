"""The question at a terminal: no by default, nothing typed ahead counts, a model's patches always asked about."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.repair.applying.makers import kept, one_file, patch, report

CODE = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"


def at_terminal(*arguments: object, answers: list[tuple[str, str]], ahead: str = "") -> tuple[int, str]:
    """Run the command at a terminal of its own.

    Args:
        answers: what to type once a text was shown, in order.
        ahead: what is typed before anything is shown.
    """
    ours, theirs = pty.openpty()
    if ahead:
        os.write(ours, ahead.encode())
    child = subprocess.Popen(
        [sys.executable, "-c", CODE, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown, waiting, end = "", list(answers), time.monotonic() + 30
    while time.monotonic() < end:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            shown += os.read(ours, 65536).decode()
        except OSError:  # it ended
            break
        if waiting and waiting[0][0] in shown:
            time.sleep(0.05)
            os.write(ours, f"{waiting.pop(0)[1]}\n".encode())
    os.close(ours)
    return child.wait(10), shown


@pytest.mark.parametrize(("typed", "written"), [("y", True), ("YES", True), ("", False), ("n", False), ("yess", False)])
def test_the_answer(typed: str, written: bool, tmp_path: Path) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    code, shown = at_terminal("apply", named, answers=[("[y/N]", typed)])
    assert "+a: 2" in shown and code == (0 if written else 1), shown
    assert file.read_text() == ("a: 2\n" if written else "a: 1\n")


def test_what_was_typed_ahead_does_not_count(tmp_path: Path) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    code, shown = at_terminal("apply", named, ahead="y\ny\n", answers=[("[y/N]", "")])
    assert code == 1 and file.read_text() == "a: 1\n", shown


def test_a_models_patch_is_marked_and_asked_about_with_yes_too(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n", by="model")
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and "a model proposed this" in done.stderr and file.read_text() == "a: 1\n"
    code, shown = at_terminal("apply", named, "--yes", answers=[("[y/N]", "n")])
    assert code == 1 and "proposed by the model, not by a tested recipe" in shown and file.read_text() == "a: 1\n"
    code, shown = at_terminal("apply", named, "--yes", answers=[("[y/N]", "y")])
    assert code == 0 and file.read_text() == "a: 2\n", shown


def test_one_of_several_repairs_is_chosen_and_undo_asks_too(tmp_path: Path) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "")
    patches = [patch(f"P{n}", "config.yaml", "a: 1\n", f"a: {n}\n") for n in (2, 3)]
    kept(named, report([file.parent], patches, ["P2"], ["P3"]))
    code, shown = at_terminal("apply", named, answers=[("Which repair?", "2"), ("[y/N]", "y")])
    assert code == 0 and file.read_text() == "a: 3\n", shown
    code, shown = at_terminal("undo", answers=[("[y/N]", "")])
    assert code == 1 and file.read_text() == "a: 3\n", shown
    code, shown = at_terminal("undo", answers=[("[y/N]", "y")])
    assert code == 0 and file.read_text() == "a: 1\n", shown
    code, shown = at_terminal("apply", named, answers=[("Which repair?", "9")])
    assert code == 2 and "no repair 9" in shown
