"""Ctrl-C and /quit in a chat whose model says nothing, as a terminal sends them; nothing waits for the silence."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from traindoctor.evals.endpoint import Fault, ScriptedEndpoint

INCIDENT = Path(__file__).resolve().parents[2] / "evals" / "incidents" / "dist-vlm-bucket-sizes-differ" / "files"
SILENCE = 600  # seconds that the model may be silent: a chat that waits for it fails this test by its time limit
LIMIT = 60


@pytest.fixture
def server() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint([Fault("hang")]) as found:
        yield found


@pytest.fixture
def talk(server: ScriptedEndpoint, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A chat with its ends to write and read."""
    run = shutil.copytree(INCIDENT, tmp_path / "run")
    options = ["--model", "m", "--base-url", server.url, "--max-seconds", str(SILENCE), "--plain"]
    code = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, "chat", str(run), *options]
    pipe = subprocess.PIPE
    variables = {**os.environ, "DOCTOR_TIMEOUT": str(SILENCE)}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=variables) as process:
        yield process
        process.kill()


def ask(talk: subprocess.Popen[str], line: str) -> None:
    assert talk.stdin
    talk.stdin.write(f"{line}\n")
    talk.stdin.flush()


def asked(server: ScriptedEndpoint, times: int) -> None:
    """Wait until the model was asked so often."""
    end = time.monotonic() + LIMIT
    while len(server.requests) < times:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_after_ctrl_c_the_next_question_is_asked_and_quit_ends(server, talk):
    for times in (1, 2):
        ask(talk, "why does it hang?")
        asked(server, times)
        talk.send_signal(signal.SIGINT)
    out, err = talk.communicate("/session\n/quit\n", timeout=LIMIT)
    assert talk.returncode == 0 and err.count("Stopped.") == 2 and "Traceback" not in err
    assert out.count("> why does it hang?") == 2 and "doctor chat --session" in out


SLOW = """
import sys, time
from traindoctor.agent.doors.cli import main
from traindoctor.agent.tools.tool import Tool, all_tools, clean
from traindoctor.agent.core.types import Risk
def slow(ws):
    "Takes long."
    sys.stderr.write("sleeping\\n")
    time.sleep(600)
    return clean("ok")
all_tools()["zz_slow"] = Tool("zz_slow", slow, Risk.READ, ("test.*",), True)
raise SystemExit(main())
"""


def test_quit_waits_for_no_check_that_goes_on(tmp_path: Path) -> None:
    run = shutil.copytree(INCIDENT, tmp_path / "run")
    command = [sys.executable, "-c", SLOW, "chat", str(run), "--offline", "--plain"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as talk:
        ask(talk, "why does it hang?")
        assert talk.stderr
        while (line := talk.stderr.readline()) != "sleeping\n":
            assert line
        talk.send_signal(signal.SIGINT)
        try:
            out, err = talk.communicate("/quit\n", timeout=LIMIT)
        finally:
            talk.kill()
    assert talk.returncode == 0 and "Stopped." in err and out.endswith("> /quit\n")
