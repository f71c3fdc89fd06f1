"""Programs of our own beside a job that capture something: bounded, in a session of their own, gone when we are."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence

from . import children

PACKAGE = __package__ or "traindoctor.agent.supervisor"


class Capture:
    """One running capture. It is killed with all it started once its time is over."""

    def __init__(self, module: str, words: Sequence[str], given: object, seconds: float) -> None:
        """Start `python -m MODULE WORDS` with `given` as JSON on its input.

        Raises:
            OSError: it cannot be started.
        """
        argv = [*children.python(), "-m", f"{PACKAGE}.{module}", *words]
        self._until = time.monotonic() + seconds
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd="/", env=children.environ(),
        )  # fmt: skip
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(given).encode()[: 1 << 16])
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()

    def over(self) -> bool:
        """Whether it has ended; it is killed here if its time is over."""
        if self._process.poll() is not None:
            return True
        if time.monotonic() < self._until:
            return False
        self.kill()
        return True

    def answer(self) -> object:
        """What it printed, as JSON; None where that is none. Only after its end."""
        out = self._process.stdout
        try:
            return json.loads(out.read(1 << 16)) if out else None
        except (OSError, ValueError):
            return None
        finally:
            if out:
                out.close()

    def wait(self, seconds: float) -> None:
        """Wait for its end for so long, then end it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(seconds, 0.0))
            return
        self.kill()

    def kill(self) -> None:
        """End it and all it started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)


def settle() -> None:
    """What such a program does first: it is out of the way of the job, and can be ended as any other."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError):
        os.nice(10)
