"""`doctor run` in a real terminal, under a real shell: isatty, keys that make signals, job control, settings put back."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tui.terminal import Terminal

PROGRAM = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
SECONDS = 60.0

JOB = """
import os, signal, sys, time
print("tty", *[os.isatty(n) for n in (0, 1, 2)], os.get_terminal_size(), flush=True)
signal.signal(signal.SIGWINCH, lambda *_: print("size", os.get_terminal_size(), flush=True))
count = 0
def pressed(*_):
    global count
    count += 1
    print("pressed", count, flush=True)
signal.signal(signal.SIGINT, pressed)
for line in sys.stdin:
    print("line", line.strip()[::-1], flush=True)
print("end of " + "input", flush=True)
sys.exit(6)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    """An interactive bash in which `run` is `doctor run`."""
    doctor = shlex.join([sys.executable, "-c", PROGRAM, "run", "--quiet", "--no-triage", "--run", "kept"])
    (tmp_path / "rc").write_text(
        f'PS1=\'ready> \'\nrun() {{ {doctor} "$@"; }}\npy() {{ {sys.executable} "$@"; }}\nexport py={sys.executable}\n',
        encoding="utf-8",
    )
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    with Terminal(["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"], (100, 40), cwd=tmp_path) as terminal:
        terminal.until("ready>")
        yield terminal


def asks_again(terminal: Terminal) -> str:
    """Wait until the shell shows its prompt with nothing after it; what is on the screen."""
    return terminal.until(lambda text: text.rstrip().endswith("ready>"), SECONDS)


def settings(terminal: Terminal) -> str:
    """The settings of the terminal, as a sum."""
    terminal.type("clear; stty -g | cksum\r")
    text = terminal.until(lambda text: re.search(r"^\d+ \d+$", text, re.MULTILINE) is not None, SECONDS)
    terminal.type("clear\r")
    terminal.until(lambda text: text.strip() == "ready>", SECONDS)
    return next(line for line in text.splitlines() if re.fullmatch(r"\d+ \d+", line))


def test_keys_reach_the_job_and_the_shell_gets_its_terminal_back(shell: Terminal) -> None:
    before = settings(shell)
    shell.type("run $py job.py\r")
    shell.until("tty True True True os.terminal_size(columns=100, lines=40)", SECONDS)
    shell.type("abc\r")
    shell.until("line cba", SECONDS)
    shell.press("ctrl+c")
    shell.until("pressed 1", SECONDS)
    shell.resize(90, 38)
    shell.until("size os.terminal_size(columns=90, lines=38)", SECONDS)
    shell.press("ctrl+z")
    shell.until("Stopped", SECONDS)
    asks_again(shell)
    assert settings(shell) == before
    shell.type("fg\r")
    shell.type("def\r")
    shell.until("line fed", SECONDS)
    shell.press("ctrl+d")
    shell.until("end of input", SECONDS)
    assert "pressed 2" not in asks_again(shell)
    shell.type("echo code $?\r")
    shell.until("code 6", SECONDS)
    assert settings(shell) == before


def test_ctrl_c_ends_the_script_around_it(shell: Terminal) -> None:
    doctor = shlex.join([sys.executable, "-c", PROGRAM, "run", "--quiet", "--no-triage", "--run", "kept"])
    job = shlex.quote("import time; print('be' + 'gun', flush=True); time.sleep(60)")
    shell.type(f"cat > around.sh <<'X'\n{doctor} $py -c {job} 2>/dev/null\necho went on\nX\n")
    asks_again(shell)
    shell.type("clear; bash around.sh\r")
    shell.until("begun", SECONDS)
    shell.press("ctrl+c")
    assert "went on" not in asks_again(shell)
    shell.type("echo code $?\r")
    shell.until("code 130", SECONDS)


def test_doctor_killed_gives_the_terminal_back_and_the_job_goes_on(shell: Terminal, tmp_path: Path) -> None:
    wait = "import os, time; print(f'its parent is {os.getppid()}.', flush=True)\nwhile not os.path.exists('go'): time.sleep(.05)"
    (tmp_path / "wait.py").write_text(f"{wait}\nprint('went ' + 'on')\n", encoding="utf-8")
    before = settings(shell)
    shell.type("run $py wait.py\r")
    whole = re.compile(r"its parent is (\d+)\.")
    begun = whole.search(shell.until(lambda text: whole.search(text) is not None, SECONDS))
    assert begun is not None
    os.kill(int(begun[1]), signal.SIGKILL)
    shell.until("Killed", SECONDS)
    asks_again(shell)
    assert settings(shell) == before
    (tmp_path / "go").touch()
    shell.until("went on", SECONDS)


def test_a_pipe_behind_it(shell: Terminal) -> None:
    shell.type("run $py -c 'import os; print([os.isatty(n) for n in (0, 1, 2)])' | tr a-z A-Z\r")
    shell.until("[TRUE, FALSE, TRUE]", SECONDS)
