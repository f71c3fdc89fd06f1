"""One tab of a browser: a `doctor chat` of its own, spoken to in the packets of Textual's web driver.

A packet is one byte of kind (D screen or keys, M a JSON object, P a piece of a file), four of length, and the payload.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ...agent.safety.fences import one_line

READY = b"__GANGLION__\n"
LARGEST = 64 << 20  # a packet that claims more is no packet
GOODBYE, PATIENCE = 3.0, 1.0  # seconds to leave when asked, and when told
GLANCE = 0.05
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None

Send = Callable[[bytes], Awaitable[None]]


def environment(width: int, height: int) -> dict[str, str]:
    """What the child gets: ours (it needs the same keys, state and config), with a browser for its terminal."""
    ours = {
        k: v for k, v in os.environ.items() if not k.startswith("TEXTUAL") and k not in ("LINES", "TMUX", "STY")
    }  # fmt: skip
    return ours | {
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
        "TEXTUAL_FPS": "60",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "TERM_PROGRAM": "textual",
        "COLUMNS": str(width),
        "ROWS": str(height),
    }


class Tab:
    """A child whose screen goes to one browser."""

    def __init__(self, command: Sequence[str], send: Send) -> None:
        self._command, self._send = list(command), send
        self._process: Process | None = None
        self._words: deque[bytes] = deque(maxlen=16)  # the end of what it said on standard error

    async def run(self, width: int, height: int) -> str:
        """Start the child and pass its screen on until it ends.

        Returns:
            What went wrong in one line; empty where it ended as it should.
        """
        try:
            self._process = child = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment(width, height),
                start_new_session=True, preexec_fn=_end_with_server,
            )  # fmt: skip
        except OSError as e:
            return f"doctor could not be started: {e.strerror}"
        assert child.stdout and child.stderr
        listening = asyncio.create_task(self._listen(child.stderr))
        drawing = asyncio.create_task(self._pass_on(child.stdout))
        over = asyncio.create_task(_ends(child))
        await asyncio.wait((drawing, over), return_when=asyncio.FIRST_COMPLETED)
        ended = False
        with contextlib.suppress(asyncio.TimeoutError, asyncio.IncompleteReadError, ConnectionError, ValueError):
            ended = await asyncio.wait_for(drawing, PATIENCE)  # what it started may hold its pipes open
        await self.close()
        over.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(listening, PATIENCE)
        if ended:
            return ""
        last = one_line(b"".join(self._words).decode("utf-8", "replace").strip().rpartition("\n")[2])
        return f"doctor ended (exit {child.returncode}){f': {last[:300]}' if last else ''}"

    async def type(self, data: str) -> None:
        """Keys and mouse of the browser."""
        await self._put(b"D", data.encode("utf-8", "replace"))

    async def tell(self, **what: object) -> None:
        """Size, focus, or that it shall quit."""
        await self._put(b"M", json.dumps(what).encode())

    async def close(self) -> None:
        """Ask the child to end, then make it and all that it started."""
        child = self._process
        if child is None:
            return
        await self.tell(type="quit")
        await _ends_within(child, GOODBYE)
        for how in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, how)  # its group may outlive it
            await _ends_within(child, PATIENCE)

    async def _put(self, kind: bytes, payload: bytes) -> None:
        stdin = self._process.stdin if self._process else None
        if stdin is None or stdin.is_closing():
            return
        with contextlib.suppress(ConnectionError, RuntimeError, asyncio.TimeoutError):
            stdin.write(kind + len(payload).to_bytes(4, "big") + payload)
            await asyncio.wait_for(stdin.drain(), GOODBYE)

    async def _pass_on(self, out: asyncio.StreamReader) -> bool:
        """Send on what is drawn; True once the child says goodbye. What else it asks of a browser is left undone."""
        while (line := await out.readline()) != READY:
            if not line:
                return False
        while True:
            kind = await out.readexactly(1)
            size = int.from_bytes(await out.readexactly(4), "big")
            if size > LARGEST:
                return False
            payload = await out.readexactly(size)
            if kind == b"D":
                await self._send(payload)
            elif kind == b"M" and json.loads(payload).get("type") == "exit":
                return True  # opening addresses and delivering files are not for a page that shows a run

    async def _listen(self, words: asyncio.StreamReader) -> None:
        while piece := await words.read(4096):
            self._words.append(piece)


async def _ends(child: Process) -> None:
    """Wait for the child alone: `Process.wait` also waits until nobody holds its pipes."""
    while child.returncode is None:
        await asyncio.sleep(GLANCE)


async def _ends_within(child: Process, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_ends(child), seconds)


def _end_with_server() -> None:
    """In the child, before its program: end also where the server is killed and can tell nobody."""
    if _LIBC is not None:
        _LIBC.prctl(_DIES_WITH_PARENT, signal.SIGTERM)
