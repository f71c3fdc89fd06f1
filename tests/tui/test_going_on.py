"""The real program is killed, and gone on with from another folder: by the start screen, a command, `doctor ask`."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from traindoctor.agent.session.store import session_roots, usable_state

from tests.tui.terminal import DOCTOR, Terminal
from tests.tui.test_real_terminal import INCIDENT

CHAT = [*DOCTOR, "chat", "--offline"]
QUESTION = "/tool dump-stacks"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of an incident."""
    return Path(shutil.copytree(INCIDENT, tmp_path / "run"))


@pytest.fixture
def process() -> Iterator[int]:
    """A process that can be looked at."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    yield child.pid
    child.kill()
    child.wait()


def test_a_chat_that_was_killed_at_its_question_finds_its_run(run: Path, process: int, tmp_path: Path) -> None:
    with Terminal([*CHAT, "--pid", str(process), str(run)], cwd=tmp_path) as t:
        t.until("ask: why")
        t.type(QUESTION)
        t.until(QUESTION)
        t.press("enter")
        t.until("May this check run?")  # and then: kill -9
    state = usable_state()[0]
    (session,) = [p.name for p in (state / "reports").iterdir()]
    assert session_roots(state, session) == ([run], [])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Terminal(CHAT, cwd=elsewhere) as t:  # by the start screen, where it is the newest
        t.until("unfinished")
        t.press("down")
        t.until("> unfinished")
        t.press("enter")
        assert "dump_stacks" in t.until("May this check run?")
    with Terminal([*CHAT, str(INCIDENT)], cwd=elsewhere) as t:  # by a command, with its id completed
        t.until("ask: why")
        t.type(f"/resume {session[:9]}")
        t.until(f">{session}")
        t.press("enter")
        t.press("enter")
        assert "dump_stacks" in t.until("May this check run?")
    asked = [*DOCTOR, "ask", "--offline", "--session", session, ""]
    done = subprocess.run(asked, cwd=elsewhere, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0 and "dump_stacks: refused" in done.stdout, "where nobody is asked: with a no"
    with closing(sqlite3.connect(state / "sessions.sqlite")) as base:
        assert base.execute("SELECT count(DISTINCT thread_id) FROM checkpoints").fetchone() == (1,)
    assert not list(elsewhere.iterdir()), "nothing is left where it was asked"
