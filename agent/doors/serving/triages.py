"""Triages in the background: one child at a time, a queue with an end, a limit of time for each."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...jobs.notices.announce import SECRETS
from ...safety.fences import one_line
from .alerts import Heard, Places

if TYPE_CHECKING:
    from ...core.report import Report

SECONDS = 120.0  # for one
WAITING = 50  # runs
_GRACE = 2.0
_LARGEST = 64 << 20  # bytes of a report
_PROGRAM = (
    "import sys; from traindoctor.agent.doors.serving.triages import tie; tie(int(sys.argv.pop(1)));"
    "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
)
Tell = Callable[[dict[str, Any]], None]


class Triages:
    """The queue and its worker. A run that already waits is not queued twice: all alerts on it end with it."""

    def __init__(
        self,
        places: Places,
        heard: Heard,
        tell: Tell,
        urls: Sequence[str],
        program: str = _PROGRAM,
        seconds: float = SECONDS,
    ) -> None:
        """
        Args:
            program: of Python, given our process number and the arguments of doctor; prints the report as JSON.
            seconds: that one triage may take.
        """
        self._places, self._heard, self._tell, self._urls = places, heard, tell, urls
        self._program, self._seconds = program, seconds
        self._queue: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
        self._keys: dict[tuple[str, ...], list[str]] = {}
        self.counts: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Runs that wait."""
        return self._queue.qsize()

    def full(self, run: list[str]) -> bool:
        """Whether another run has no place."""
        return tuple(run) not in self._keys and self.waiting >= WAITING

    def add(self, key: str, run: list[str]) -> None:
        """Queue the run of an alert; once that is saved, a server that is started anew takes it up again."""
        self._heard.keep(key, "waiting", run)
        if tuple(run) in self._keys:
            self._keys[tuple(run)].append(key)
            return
        self._keys[tuple(run)] = [key]
        self._queue.put_nowait(tuple(run))

    async def work(self) -> None:
        """Triage what is queued, until cancelled; a child that is at work then is ended."""
        while True:
            run = await self._queue.get()
            began = time.monotonic()
            try:
                report, why = await self._triage(run)
            except Exception as e:  # noqa: BLE001 - one run may not end the server
                report, why = None, f"{type(e).__name__} (a fault of doctor's)"
            keys = self._keys.pop(run, [])
            for key in keys:
                self._heard.keep(key, "done" if report else "failed")
            self._heard.save()
            self.counts["done" if report else "failed"] += 1
            event = {
                "event": "triaged" if report else "failed",
                "run": run[-1],
                "seconds": round(time.monotonic() - began, 1),
            }
            if report is None:
                self._tell(event | {"why": why})
                continue
            self._tell(event | {"cause": report.root_cause.id, "status": report.status})
            await self._announce(report, run)

    async def _triage(self, run: tuple[str, ...]) -> tuple[Report | None, str]:
        """The report of a run, or why there is none."""
        from ...core.report import Report

        if not self._places.still(run):
            return None, "it may not be looked at any more"
        kept = {k: v for k, v in os.environ.items() if k not in SECRETS}
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-c", self._program, str(os.getpid()),
                "triage", *run, "--write", "--json", "--quiet", "--notify", "none",
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                start_new_session=True, limit=_LARGEST, env=kept,
            )  # fmt: skip
        except OSError as e:  # no memory or processes left: the next may have them
            return None, f"it cannot be started: {e.strerror}"
        try:
            async with asyncio.timeout(self._seconds):
                out, err = await child.communicate()
        except TimeoutError:
            return None, f"no report after {self._seconds:g} s"
        finally:
            await _ended(child)
        if child.returncode:
            last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
            return None, one_line(last[0][:300])
        try:
            return Report.model_validate_json(out), ""
        except ValueError:
            return None, "its report cannot be read"

    async def _announce(self, report: Report, run: tuple[str, ...]) -> None:
        if not self._urls:
            return
        from ...jobs.notices.announce import announce

        place = Path(run[0]) if len(run) == 1 else Path(report.runs[0].root if report.runs else f"job-{run[-1]}")
        why = await asyncio.to_thread(announce, report, place, self._urls)
        if why:
            self._tell({"event": "not told", "run": run[-1], "why": why})


async def _ended(child: asyncio.subprocess.Process) -> None:
    """End a child and what it started, if it is still there."""
    if child.returncode is not None:
        return
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(child.wait()), _GRACE)
            return


# ----------
# A child that does not outlive its server, however that ends: the kernel sees to it.

_PR_SET_PDEATHSIG = 1


def tie(server: int) -> None:
    """Called first in a child: from here on it is killed when the process `server`, which started it, ends."""
    with suppress(OSError, AttributeError):  # elsewhere than on Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:  # it ended before
        os._exit(1)
