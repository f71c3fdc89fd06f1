"""The terminal of a job: where ours is one, the job gets one of its own that looks and behaves the same.

Keys go through as they are, and the inner terminal echoes and edits them as the job asks. Only the keys that make
signals stay with the outer terminal for as long as the job wants signals of them: so a Ctrl-C reaches the shell script
around us and the `tee` beside us too, and we pass the key on to the job.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import termios
from typing import Any

_KEYS = {signal.SIGINT: termios.VINTR, signal.SIGQUIT: termios.VQUIT, signal.SIGTSTP: termios.VSUSP}
_IN, _OUT, _LOCAL, _CC = 0, 1, 3, 6


class Terminal:
    """The outer terminal and an inner one. `master` is ours, `inner` the path of what the job opens.

    Attributes:
        keyboard: the descriptor that keys are read from, or -1 where standard input is no terminal.
        calm: the outer settings as they were found.
    """

    def __init__(self, places: list[int]) -> None:
        """Make an inner terminal like the outer one. `places`: which of 0, 1, 2 are terminals."""
        self._outer = places[0]
        self.places = places
        self.keyboard = 0 if 0 in places else -1
        self.master, self.slave = os.openpty()
        # In the background the settings are those of a shell that edits its line: a new terminal's own are better.
        self.calm: list[Any] = termios.tcgetattr(self._outer if self.in_front() else self.slave)
        self.inner = os.ttyname(self.slave)
        os.set_inheritable(self.master, False)
        os.set_inheritable(self.slave, False)
        like = list(self.calm)
        if self.keyboard < 0:
            like[_OUT] &= ~termios.OPOST  # the outer one, left as it is, does it
        termios.tcsetattr(self.slave, termios.TCSANOW, like)
        self.resize()
        self.raw = False

    def resize(self) -> None:
        """Make the inner window as large as the outer one; its programs are told by the kernel."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self._outer, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def in_front(self) -> bool:
        """Whether the outer terminal listens to us, not to a shell or another job."""
        try:
            return os.tcgetpgrp(self._outer) == os.getpgrp()
        except OSError:
            return False

    def settle(self) -> bool:
        """Pass keys on if we are in front, and follow what the job wants of its keys. Whether keys are to be read."""
        if self.keyboard < 0 or not self.in_front():
            self.raw = False  # whoever is in front has it as they want it
            return False
        with contextlib.suppress(termios.error, OSError):
            if not self.raw:
                self.calm = termios.tcgetattr(self._outer)
        wanted = list(self.calm)
        wanted[_IN] &= ~(termios.BRKINT | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.INPCK
                         | termios.ISTRIP | termios.IXON)  # fmt: skip
        wanted[_OUT] &= ~termios.OPOST
        wanted[_LOCAL] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.IEXTEN)
        wanted[_CC] = list(wanted[_CC])
        wanted[_CC][termios.VMIN], wanted[_CC][termios.VTIME] = 1, 0
        with contextlib.suppress(termios.error, OSError):
            inner = termios.tcgetattr(self.master)
            if not inner[_LOCAL] & termios.ISIG:
                wanted[_LOCAL] &= ~termios.ISIG
            for place in _KEYS.values():
                wanted[_CC][place] = inner[_CC][place]
        with contextlib.suppress(termios.error, OSError):
            if wanted != termios.tcgetattr(self._outer):
                termios.tcsetattr(self._outer, termios.TCSADRAIN, wanted)
            self.raw = True
        return self.raw

    def restore(self) -> None:
        """Put the outer terminal back to how it was found."""
        if self.raw:
            self.raw = False
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self._outer, termios.TCSADRAIN, self.calm)

    def press(self, number: int) -> bool:
        """Press the key of a signal on the inner terminal. Whether there is one."""
        try:
            key = termios.tcgetattr(self.master)[_CC][_KEYS[signal.Signals(number)]]
            os.write(self.master, key)
            return True
        except (KeyError, ValueError, termios.error, OSError):
            return False

    def listens_to(self, group: int) -> bool:
        """Whether a process group is in the foreground of the inner terminal."""
        try:
            return os.tcgetpgrp(self.master) == group
        except OSError:
            return False

    def close_inner(self) -> None:
        """Let go of the job's side, once the job has it."""
        os.close(self.slave)

    def close(self) -> None:
        """Put everything back and let go."""
        self.restore()
        with contextlib.suppress(OSError):
            os.close(self.master)
