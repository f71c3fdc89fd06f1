"""A real program in a real terminal: spawned on a pty, its bytes drawn by pyte, keys sent as a terminal sends them.

with Terminal([*DOCTOR, "chat", str(run)], size=(80, 24)) as t:
    t.until("Ask what is wrong")
    t.type("why did it fail?")
    t.press("enter")
    assert "out of memory" in t.until("confirmed", seconds=30)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

DOCTOR = [sys.executable, "-c", "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"]
KEYS = {
    "enter": "\r", "esc": "\x1b", "tab": "\t", "shift+tab": "\x1b[Z", "space": " ", "backspace": "\x7f",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "pageup": "\x1b[5~", "pagedown": "\x1b[6~", "delete": "\x1b[3~",
    "f1": "\x1bOP", "f2": "\x1bOQ", "f3": "\x1bOR", "f4": "\x1bOS", "f5": "\x1b[15~", "f6": "\x1b[17~",
}  # fmt: skip

# All that a screen of Textual is drawn with: colours, cursor, clearing, and modes by their numbers.
_OURS = re.compile(
    rb"\x1b\[(?:[0-9;:]*m|[0-9;]*[HABCDGJKd]|\?(?:25|47|1000|1002|1003|1004|1006|1015|1016|1049|2004|2026|2048|7)[hl]"
    rb"|\?20(?:26|48)\$p|[<>=?]?[0-9]*u|[0-9]*n)|\x1b(?:\(B|7|8)"
    rb"|\x1b\]22;[a-z-]*(?:\x07|\x1b\\)"  # the shape of the mouse's pointer
)
_CONTROL = re.compile(rb"\x1b[^\x07\r]{0,24}\x07?|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f]", re.DOTALL)


class Terminal:
    """A program in a terminal of its own; it and all that it started are killed at the end.

    Attributes:
        raw: every byte that it wrote to the terminal.
    """

    def __init__(
        self, argv: Sequence[str], size: tuple[int, int] = (80, 24), env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:  # fmt: skip
        self.raw = b""
        self._drawn = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._drawn)
        self._master, terminal = pty.openpty()
        _set_size(terminal, size)
        dropped = ("NO_COLOR", "TMUX", "STY", "COLUMNS", "LINES", "TEXTUAL_DRIVER")
        ours = {k: v for k, v in os.environ.items() if k not in dropped}
        ours |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_ANIMATIONS": "none", "LANG": "C.UTF-8"}
        self.child = subprocess.Popen(
            argv, stdin=terminal, stdout=terminal, stderr=terminal, env={**ours, **(env or {})}, cwd=cwd,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(terminal)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def screen(self) -> list[str]:
        """The rows as they stand, without the blanks at their ends."""
        self._read(0)
        return [row.rstrip() for row in self._drawn.display]

    @property
    def text(self) -> str:
        """The rows in one text."""
        return "\n".join(self.screen)

    def press(self, *keys: str) -> None:
        """Press keys by their names: `f2`, `ctrl+j`, `enter`, or a character."""
        for key in keys:
            plain = key.removeprefix("ctrl+")
            self._send(chr(ord(plain.upper()) & 0x1F) if plain != key else KEYS.get(key, key))

    def type(self, text: str) -> None:
        """Write as a user does."""
        self._send(text)

    def until(self, words: str | Callable[[str], bool], seconds: float = 90.0) -> str:
        """Wait until the screen shows something; its text then.

        Raises:
            AssertionError: it never did; with the screen as it is.
        """
        shows = words if callable(words) else lambda text: words in text
        end = time.monotonic() + seconds
        while not shows(text := self.text):
            left = end - time.monotonic()
            assert left > 0, f"not on the screen after {seconds} s: {words!r}\n{text}"
            if not self._read(min(left, 0.2)) and self.child.poll() is not None and not shows(text := self.text):
                raise AssertionError(f"ended with {self.child.returncode} and never showed {words!r}\n{text}")
        return text

    def look(self, seconds: float) -> None:
        """Touch no key for so long, as somebody who reads what is asked."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._read(left)

    def resize(self, columns: int, rows: int) -> None:
        """Make the window another size."""
        self._drawn.resize(rows, columns)
        _set_size(self._master, (columns, rows))

    def ends(self, code: int | None = 0, seconds: float = 90.0) -> None:
        """Wait until the program is over, with this exit code, or with any (None).

        Raises:
            AssertionError: it still runs, or ended with another; with what it wrote last.
        """
        end = time.monotonic() + seconds
        while self.child.poll() is None:
            assert time.monotonic() < end, f"still runs after {seconds} s\n{self.text}"
            self._read(0.05)
        self._read(0)
        last = self.raw[-3000:].decode(errors="replace")
        assert code in (None, self.child.returncode), f"ended with {self.child.returncode}\n{self.text}\n{last!r}"

    def close(self) -> None:
        """End it, however it stands."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        with contextlib.suppress(OSError):
            os.close(self._master)

    def _send(self, text: str) -> None:
        self._read(0)
        os.write(self._master, text.encode())

    def _read(self, seconds: float) -> bool:
        """Draw what was written, waiting for the first of it; whether there was any."""
        any_read = False
        while select.select([self._master], [], [], 0 if any_read else seconds)[0]:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                return any_read
            if not piece:
                return any_read
            any_read = True
            self.raw += piece
            self._stream.feed(piece)
        return any_read


def foreign(raw: bytes) -> list[bytes]:
    """Control sequences among the bytes that no screen of ours is drawn with."""
    return _CONTROL.findall(_OURS.sub(b"", raw))


def _set_size(handle: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
