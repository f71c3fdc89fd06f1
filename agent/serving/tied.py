"""A child that does not outlive its server, however that ends: the kernel sees to it."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

_PR_SET_PDEATHSIG = 1


def tie(server: int) -> None:
    """Called first in a child: from here on it is killed when the process `server`, which started it, ends."""
    with suppress(OSError, AttributeError):  # elsewhere than on Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:  # it ended before
        os._exit(1)
