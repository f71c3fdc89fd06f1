"""The relay: a small process between a job and where its output goes, which also keeps a copy of it.

It lives in the supervisor's process group with every signal blocked. So it survives whatever the group is told, goes
on when the supervisor alone is killed (a job whose pipe lost its reader would die of SIGPIPE), and shows by what is
pending on it which signals went to more processes than the supervisor.

Orders (one byte): E the job ended, P leave the keyboard alone, R read the keyboard, C forget pending signals.
Answers (lines): `drained`, `paused`, `note TEXT`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import termios
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# ----------
# The copy of what a job writes: bounded on disk, and never in the way of the output itself.
#
# The beginning stays in NAME.0.log, the newest in NAME.log and, before it, NAME.1.log; what stood between is left out
# and the first line of NAME.log says how much.


PART = 512 << 20  # bytes of each of at most three parts


class CopyOfOutput:
    """Appends to one file until it cannot; then says once why and stops."""

    def __init__(self, path: Path, part: int = 0) -> None:
        self._path = path
        self._part = part or int(os.environ.get("DOCTOR_RUN_LOG_PART", "0") or 0) or PART
        self._lock = threading.Lock()
        self._fd = -1
        self._size = self._left_out = 0
        self._head_full = False
        with contextlib.suppress(OSError):
            self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size

    def add(self, data: bytes) -> str:
        """Append; "" or, once, why there will be no more."""
        with self._lock:
            if self._fd < 0:
                return ""
            try:
                view = memoryview(data)
                while view:
                    written = os.write(self._fd, view)
                    self._size += written
                    view = view[written:]
                if self._size >= self._part:
                    self._next_part()
            except OSError as e:
                self._close()
                return f"{self._path.name} stopped at {self._size} bytes: {e.strerror}"
        return ""

    def stop(self) -> None:
        """Write no more."""
        with self._lock:
            self._close()

    def _next_part(self) -> None:
        stem = self._path.stem
        older = self._path.with_name(f"{stem}.1.log")
        if self._head_full:
            with contextlib.suppress(FileNotFoundError):
                self._left_out += older.stat().st_size
        self._path.rename(older if self._head_full else self._path.with_name(f"{stem}.0.log"))
        self._head_full = True
        self._close()
        self._open()
        if self._left_out:
            line = f"[doctor: {self._left_out} bytes of the output before {older.name} were left out]\n"
            self._size += os.write(self._fd, os.fsencode(line))

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# ----------

CHUNK = 1 << 20
GLANCE_MS = 200  # how often a stream that says nothing looks whether the job ended


@dataclass
class Stream:
    """One way of output: where the job's bytes come from, and where they would have gone without us."""

    source: int
    sink: int
    terminal: bool = False


class Relay:
    """The supervisor's end of a started relay."""

    def __init__(self, pid: int, orders: int, answers: int) -> None:
        self.pid, self._orders, self._answers = pid, orders, answers
        self._rest = b""
        self.drained = self.paused = self.over = False
        self.notes: list[str] = []

    def order(self, what: str) -> None:
        """Tell it one thing; a relay that is gone hears nothing."""
        if what == "P":
            self.paused = False
        with contextlib.suppress(OSError):
            os.write(self._orders, what.encode())

    def hear(self) -> None:
        """Take in what it answered; waits for nothing."""
        while not self.over:
            try:
                said = os.read(self._answers, 4096)
            except BlockingIOError:
                return
            if not said:
                self.over = True
            *lines, self._rest = (self._rest + said).split(b"\n")
            for line in lines:
                self.drained = self.drained or line == b"drained"
                self.paused = self.paused or line == b"paused"
                if line.startswith(b"note "):
                    self.notes.append(line[5:].decode("utf-8", "replace"))

    def close(self) -> None:
        """Let go of it. It ends by itself when the last writer of the job's output does."""
        for fd in (self._orders, self._answers):
            with contextlib.suppress(OSError):
                os.close(fd)


def start(streams: Sequence[Stream], console: Path, keyboard: int, master: int, calm: list | None) -> Relay:
    """Fork a relay. All signals must be blocked already, and no thread may run.

    Args:
        streams: what to pass on; their sources are closed here afterwards, except `master`.
        console: the file of the copy.
        keyboard: descriptor to read keys from for `master`, or -1.
        master: the inner terminal, or -1.
        calm: settings of the outer terminal, put back should the supervisor be killed.
    """
    hears, orders = os.pipe()
    answers, says = os.pipe()
    os.set_blocking(answers, False)
    os.set_blocking(says, False)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _close_all_but({0, 1, 2, hears, says, keyboard, master, *(f for s in streams for f in (s.source, s.sink))})
            signal.set_wakeup_fd(-1)
            _Passing(streams, CopyOfOutput(console), hears, says).serve(keyboard, master, calm)
            code = 0
        finally:
            os._exit(code)
    os.close(hears)
    os.close(says)
    for stream in streams:
        if stream.source != master:
            os.close(stream.source)
    return Relay(pid, orders, answers)


def _close_all_but(kept: set[int]) -> None:
    for link in list(Path("/proc/self/fd").iterdir()):
        if (fd := int(link.name)) not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


class _Passing:
    """What runs inside the relay: a thread for each stream, and the keys and orders in the main one."""

    def __init__(self, streams: Sequence[Stream], copy: CopyOfOutput, hears: int, says: int) -> None:
        self._streams, self._copy, self._hears, self._says = streams, copy, hears, says
        self._ended = False
        self._open = len(streams)
        self._busy = {s.source for s in streams}  # may still hold what the job wrote before it ended
        self._lock = threading.Lock()
        self._done_in, self._done_out = os.pipe()

    def serve(self, keyboard: int, master: int, calm: list | None) -> None:
        """Pass everything on until every stream is over."""
        for fd in {0, 1, 2} - {s.sink for s in self._streams} - {keyboard}:
            with contextlib.suppress(OSError):  # a reader at the other end must see its end when the job's does
                os.close(fd)
        for stream in self._streams:
            threading.Thread(target=self._pass, args=(stream,), daemon=True).start()
        poll = select.poll()
        poll.register(self._hears, select.POLLIN)
        poll.register(self._done_in, select.POLLIN)
        reading = False
        while True:
            for fd, _event in poll.poll():
                if fd == self._done_in:
                    return
                if fd == keyboard:
                    reading = self._type(keyboard, master)
                    if not reading:
                        poll.unregister(keyboard)
                    continue
                order = os.read(self._hears, 1)
                if order == b"R" and keyboard >= 0 and not reading:
                    poll.register(keyboard, select.POLLIN)
                    reading = True
                elif order in (b"P", b"") and reading:
                    poll.unregister(keyboard)
                    reading = False
                if not order:  # the supervisor is gone: the shell's terminal goes back to how it was
                    poll.unregister(self._hears)
                    _calm(keyboard, calm)
                self._obey(order)

    def _obey(self, order: bytes) -> None:
        if order == b"P":
            self._say("paused")
        elif order == b"E":
            self._ended = True
        elif order == b"C":
            while signal.sigtimedwait(signal.valid_signals(), 0):
                pass

    def _type(self, keyboard: int, master: int) -> bool:
        """Bring keys to the job. False at the end of the keyboard."""
        try:
            keys = os.read(keyboard, 4096)
            while keys:
                keys = keys[os.write(master, keys) :]
                return True
        except OSError:
            return False
        return False

    def _pass(self, stream: Stream) -> None:
        try:
            self._pass_all(stream)
        except Exception as e:  # noqa: BLE001 - a bug here may end the copy, never the job's output
            self._say(f"note the copy of the output ended: {type(e).__name__}: {e}")
            self._copy.stop()
            with contextlib.suppress(OSError):
                self._pass_all(stream)
        self._nothing_more(stream)
        with self._lock:
            self._open -= 1
            if not self._open:
                os.write(self._done_out, b".")

    def _pass_all(self, stream: Stream) -> None:
        poll = select.poll()
        poll.register(stream.source, select.POLLIN)
        sink_there, since_end, waiting = True, 0, True
        while True:
            if not (there := poll.poll(0 if self._ended and waiting else GLANCE_MS)) or since_end > CHUNK:
                if self._ended and waiting:
                    waiting = False
                    self._nothing_more(stream)
                if not there:
                    continue
            try:
                data = os.read(stream.source, CHUNK)
            except OSError:  # an inner terminal whose last user left
                return
            if not data:
                return
            since_end += len(data) if self._ended else 0
            if sink_there and (error := _write(stream.sink, data)):
                if error == errno.EPIPE:
                    self._reader_left(stream, data)
                    return
                sink_there = not stream.terminal  # a full disk may have room again; a terminal never comes back
                self._say(f"note output was lost, not by the job: {os.strerror(error)}")
            if note := self._copy.add(data):
                self._say(f"note {note}")

    def _reader_left(self, stream: Stream, data: bytes) -> None:
        """What reads the output is gone: the job must notice as it would without us. Its last words are kept."""
        self._copy.add(data)
        os.set_blocking(stream.source, False)
        with contextlib.suppress(OSError):
            while last := os.read(stream.source, CHUNK):
                self._copy.add(last)
                if len(last) < CHUNK:
                    break
        os.close(stream.source)
        self._say("note nobody read the output any more; the job was left to notice")

    def _nothing_more(self, stream: Stream) -> None:
        with self._lock:
            self._busy.discard(stream.source)
            if not self._busy:
                self._say("drained")

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._says, line.encode("utf-8", "replace")[:4000] + b"\n")


def _calm(keyboard: int, calm: list | None) -> None:
    if calm is not None and keyboard >= 0:
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(keyboard, termios.TCSADRAIN, calm)


def _write(sink: int, data: bytes) -> int:
    """Write everything; 0 or the error. Waits as long as the reader does, as the job would have."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(sink, view) :]
        except BlockingIOError:  # somebody set the shared descriptor so
            select.select([], [sink], [])
        except OSError as e:
            return e.errno or errno.EIO
    return 0
