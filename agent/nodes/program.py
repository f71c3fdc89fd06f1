"""One program on one node, within its time: what it printed, how it ended. Standard library alone.

It is shipped to Ray workers by its source, where nothing of ours is installed: it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import IO

BLOCK = 1 << 16
STDERR_LIMIT = 1 << 20
LATER = 10  # seconds after its time in which `timeout` ends a program whose starter died

Ended = tuple[int | None, bytes, str, float, str]  # code, stdout, stderr, seconds, why there is no code


def ended(argv: list[str], timeout: float, stdin: bytes = b"", limit: int = 64 << 20) -> Ended:
    """Run a program; whatever happens is told, nothing is raised.

    Programs installed beside this interpreter are found too. Out of time, it is killed with its group; should whoever
    waits for it die, coreutils' `timeout` ends it, where that is installed.
    """
    began = time.monotonic()
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])  # noqa: PTH120
    program = shutil.which(argv[0], path=path)
    if program is None:
        return None, b"", "", 0.0, "has no such program: " + argv[0]
    bound = shutil.which("timeout", path=path)
    words = [bound, "-k", "2", str(int(timeout) + LATER)] if bound else []
    try:
        child = subprocess.Popen(
            [*words, program, *argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=dict(os.environ, PATH=path), start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as e:
        return None, b"", "", 0.0, f"could not start {argv[0]}: {type(e).__name__}"
    out, err = bytearray(), bytearray()
    pipes = [
        threading.Thread(target=_feed, args=(child.stdin, stdin), daemon=True),
        threading.Thread(target=_keep, args=(child.stdout, out, limit), daemon=True),
        threading.Thread(target=_keep, args=(child.stderr, err, STDERR_LIMIT), daemon=True),
    ]
    for pipe in pipes:
        pipe.start()
    code, why = None, ""
    try:
        code = child.wait(timeout)
    except subprocess.TimeoutExpired:
        why = f"did not answer within {timeout:g} s"
    finally:
        _end(child)
    for pipe in pipes[1:]:  # a grandchild that fled its group may hold them open
        pipe.join(2.0)
    return code, bytes(out), bytes(err).decode(errors="replace"), time.monotonic() - began, why


def _feed(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # it does not read
        stream.write(data)
        stream.close()


def _keep(stream: IO[bytes], into: bytearray, limit: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        while block := os.read(stream.fileno(), BLOCK):
            into += block[: max(limit - len(into), 0)]


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill what it left behind too; what is stuck in the kernel is left rather than waited for."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(2.0)
