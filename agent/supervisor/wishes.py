"""What was asked for on the command line of `doctor run`."""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import dataclass, field

from ..sanitize import one_line


@dataclass
class Wishes:
    """Options of a supervised run; `say` is how it speaks."""

    run: str = ""
    restart: int = 0
    resume: str = ""
    hang_after: float = 600.0
    kill_on_hang: bool = False
    triage: bool = True
    leave: list[str] = field(default_factory=list)
    quiet: bool = False
    notify: list[str] = field(default_factory=list)
    seconds: float = 60.0
    also: list[str] = field(default_factory=list)


class Voice:
    """Words of doctor: on standard error alone, a line each, never waited for longer than a second."""

    def __init__(self, quiet: bool = False, silent: bool = False) -> None:
        self.quiet, self._silent = quiet, silent
        self.raw = False  # the terminal needs carriage returns

    def __call__(self, line: str) -> None:
        """Tell a line that matters."""
        text = f"doctor: {one_line(line)}" + ("\r\n" if self.raw else "\n")
        self._write(text.encode("utf-8", "replace"))

    def aside(self, line: str) -> None:
        """Tell a line that --quiet leaves out."""
        if not self.quiet:
            self(line)

    def _write(self, data: bytes) -> None:
        if self._silent:
            return
        with contextlib.suppress(OSError, ValueError):
            ready = select.select([], [2], [], 1.0)[1]
            if ready:
                os.write(2, data)
