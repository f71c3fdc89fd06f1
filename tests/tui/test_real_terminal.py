"""The real program in a real terminal: a night with one run from question to undone patch, and bytes that may not pass."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.tui.dialogs.change import DEAF

from tests.tui.terminal import DOCTOR, Terminal, foreign

INCIDENT = Path(__file__).resolve().parents[2] / "evals" / "incidents" / "dist-vlm-bucket-sizes-differ" / "files"
HOSTILE = {
    "colours": "\x1b[38;5;213mPWNED\x1b[0m",
    "clipboard": "\x1b]52;c;UFdORUQ=\x07",
    "title": "\x1b]0;PWNED\x07",
    "link": "\x1b]8;;http://pwned.invalid\x1b\\here\x1b]8;;\x1b\\",
    "device": "\x1bP$qPWNED\x1b\\",
    "program": "\x1b_PWNED\x1b\\",
    "report": "\x1b[6n\x1b[c",
    "eight bits": "\x9b31mPWNED\x9d0;PWNED\x9c",
    "reset": "\x1bc\x1b[?1049l",
    "backspace": "PWNED\x08\x08\x08\x08\x08\x07",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of an incident."""
    return Path(shutil.copytree(INCIDENT, tmp_path / "run"))


def test_the_harness_draws_types_resizes_and_ends() -> None:
    shell = "stty size; printf 'a\\033[1;31mred\\033[0m\\033]52;c;QQ==\\007'; read x; stty size; echo got $x; exit 3"
    with Terminal(["sh", "-c", shell], size=(40, 10)) as t:
        assert t.until("ared").startswith("10 40\nared")
        t.resize(60, 12)
        t.type("word")
        t.press("enter")
        assert "12 60" in t.until("got word")
        t.ends(3)
        assert foreign(t.raw) == [b"\x1b]52;c;QQ==\x07"], "colours are ours, a word to the clipboard is not"


def test_a_night_with_one_run(run: Path) -> None:
    before = _contents(run)
    with Terminal([*DOCTOR, "chat", "--offline", str(run)], size=(100, 30)) as t:
        t.until("ask: why")
        _ask(t, "why does it hang?")
        t.until("dist.unused_parameters  (confirmed")
        t.press("f2")
        t.until("Open the file")
        t.press("enter")
        shown = t.until("cited here")
        assert "rank0.log:4" in shown and ">    4 [rank0]: RuntimeError" in shown, "the file at its line"
        t.press("esc")
        t.until("Open the file")
        _back(t)

        _ask(t, "/apply P1")
        assert "+  --ddp_find_unused_parameters True" in t.until("change ends here")
        assert _contents(run) == before, "nothing is written unasked"
        _yes(t)
        t.until(lambda _: "ddp_find_unused_parameters True" in (run / "run.sh").read_text())
        _back(t)
        _ask(t, "/undo")
        t.until("change ends here")
        _yes(t)
        t.until(lambda _: _contents(run) == before)
        t.resize(80, 24)
        t.until(lambda text: len(text.splitlines()) == 24 and "f1 help" in text)
        t.press("ctrl+q")
        t.ends(0)
        assert b"\x1b[?1049l" in t.raw, "the terminal is given back"
        assert foreign(t.raw) == []
    with Terminal([*DOCTOR, "chat", "--offline", "--resume", str(run)]) as t:
        t.until("going on with session")
        assert "dist.unused_parameters confirmed" in t.until("go on: why?")


def _ask(t: Terminal, line: str) -> None:
    t.type(line)
    t.until(line)
    t.press("enter")


def _back(t: Terminal) -> None:
    """To the prompt, from wherever the keys go."""
    if "enter send" not in t.text:
        t.press("esc")
        t.until("enter send")


def _yes(t: Terminal) -> None:
    """A yes to a change that was looked at: keys in the first moment of a dialog are no answer."""
    t.look(2 * DEAF)
    t.press("y")


def _contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_no_escape_of_a_run_reaches_the_terminal(run: Path) -> None:
    bad = "".join(HOSTILE.values())
    log = run / "rank0.log"
    error = "RuntimeError: Detected mismatch between collectives on ranks."
    text = log.read_text()
    assert error in text
    log.write_text(text.replace(error, f"{error} {bad} [bold]markup[/bold]"), encoding="utf-8")
    (run / "rank2\x1b]52;c;UFdORUQ=\x07\x1b[38;5;213m.log").write_text(f"{error} {bad}\n")
    (run / "config.json").write_text(json.dumps({"learning_rate": 1e-5, "run_name": bad, bad: 1}))
    with Terminal([*DOCTOR, "chat", "--offline", str(run)], size=(160, 50)) as t:
        t.until("ask: why")
        _ask(t, "why does it hang?")
        t.until("/report shows")
        for key, words in (("f2", "pieces of evidence, "), ("f3", "f3"), ("f5", "f5"), ("f6", "f6")):
            t.press(key)
            t.until(words)
        t.press("f2")
        shown = t.until("Open the file")
        t.press("enter")
        shown += t.until("cited here")
        t.press("esc")
        t.until("Open the file")
        t.press("ctrl+q")
        t.ends(None)
        assert "PWNED" in shown, "what is hostile was on the screen"
        for kind, sequence in HOSTILE.items():
            assert sequence.encode() not in t.raw, kind
        assert b"\x1b[38;5;213m" not in t.raw
        assert foreign(t.raw) == []


def test_a_check_above_reading_waits_for_a_yes(run: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        with Terminal([*DOCTOR, "chat", "--offline", "--pid", str(child.pid), str(run)]) as t:
            t.until("ask: why")
            _ask(t, "/tool dump-stacks")
            asked = t.until("[n] no")
            assert f"py-spy dump --nonblocking --subprocesses --pid {child.pid}" in asked and "> [n] no" in asked
            t.look(2 * DEAF)
            t.press("enter")
            t.until("1 refused")
            _ask(t, "/tool dump-stacks")
            t.until("[n] no")
            t.look(2 * DEAF)
            t.press("y")
            t.until(lambda text: "dump-stacks" in text and "[n] no" not in text and "1 found" in text)
    finally:
        child.kill()
        child.wait()
