"""A run that grows: a child process writes files by a script, `doctor watch` follows them in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEADLINE = 90.0
_WATCH = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"


class Watch:
    """`doctor watch --json`: what it said so far."""

    def __init__(self, *arguments: object) -> None:
        self.said: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WATCH, "watch", "--json", "--every", "0.1", "--skip", "disk_filling", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def kinds(self, severity: str = "alarm") -> list[str]:
        return [a["kind"] for a in self.said if a["severity"] == severity]

    def first(self, kind: str) -> dict[str, Any]:
        """The first of a kind, waited for."""
        until(lambda: any(a["kind"] == kind for a in self.said) or self.process.poll() is not None, f"no {kind}")
        found = [a for a in self.said if a["kind"] == kind]
        assert found, (
            f"it ended with {self.process.wait()}: {self.said} {self.process.stderr and self.process.stderr.read()}"
        )
        return found[0]

    def metrics(self, name: str) -> Callable[[], float]:
        """Asks its endpoint for one metric; -1 where it has none yet."""
        assert self.process.stderr
        url = self.process.stderr.readline().rpartition(" ")[2].strip()

        def value() -> float:
            text = urllib.request.urlopen(url, timeout=DEADLINE).read().decode()
            return next((float(x.rpartition(" ")[2]) for x in text.splitlines() if x.startswith(name + "{")), -1.0)

        return value

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return code


def until(holds: Callable[[], object], why: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


@contextmanager
def watching(*arguments: object) -> Iterator[Watch]:
    """A watch that is ended whatever happens."""
    watch = Watch(*arguments)
    try:
        yield watch
    finally:
        if watch.process.poll() is None:
            watch.process.kill()
        watch.process.wait()
        if watch.process.stderr:
            watch.process.stderr.close()
        watch._reader.join(5)
        if watch.process.stdout:
            watch.process.stdout.close()


@contextmanager
def job(script: str, folder: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A child that writes; `script` may use `step(n, loss)` and waits for `folder/go` where it says `wait()`."""
    text = _JOB + script
    with subprocess.Popen(
        [sys.executable, "-c", text, str(folder), *map(str, arguments)], start_new_session=True
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)


_JOB = """
import os, random, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
random.seed(3)
log = open(folder / "train.log", "a", buffering=1)
def line(text, to=None):
    print(text, file=to or log, flush=True)
def step(n, loss=None, rank=None, more="", to=None):
    loss = 2.0 + random.gauss(0, 0.02) if loss is None else loss
    line(f"{f'[rank{rank}]: ' if rank is not None else ''}step {n} loss {loss:.4f}{more}", to)
def wait(name="go"):
    end = time.monotonic() + 200
    while not (folder / name).exists():
        if time.monotonic() > end: raise SystemExit("nobody said go")
        time.sleep(0.01)
def stay():
    time.sleep(300)
"""


def written_here(folder: Path) -> Callable[[str], None]:
    """Runs scripts of such a job in this process, one after the other."""
    scope: dict[str, Any] = {}
    exec(_JOB.replace("sys.argv[1]", repr(str(folder))), scope)
    return lambda script: exec(script, scope)
