"""Starting a command exactly as a shell would have: its descriptors, signals, mask, folder and limits are not ours."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DoctorError
from ..sanitize import one_line
from .relay import Stream
from .terminal import Terminal

_PIPE_BYTES = 1 << 20  # so that the job is seldom kept waiting by us


class NotStarted(DoctorError):
    """A command could not be started: 127 there is none, 126 it cannot be run, as shells say it."""

    def __init__(self, message: str, hint: str, code: int) -> None:
        super().__init__(message, hint)
        self.exit_code = code


def environment() -> dict[str, str]:
    """The variables we were given: not `os.environ`, to which Python and libraries add (LC_CTYPE, for one)."""
    given: dict[str, str] = {}
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    for entry in entries:
        name, is_one, value = entry.partition(b"=")
        if is_one and name:
            given.setdefault(os.fsdecode(name), os.fsdecode(value))
    return given


def find(command: str, environ: Mapping[str, str]) -> str:
    """The file that a shell would start.

    Raises:
        NotStarted: there is none, or it is not executable.
    """
    shown = one_line(command)
    if "/" in command:
        if not Path(command).exists():
            raise NotStarted(f"{shown}: no such file", "nothing was started", 127)
        if Path(command).is_dir() or not os.access(command, os.X_OK):
            raise NotStarted(f"{shown}: not an executable file", "nothing was started", 126)
        return command
    path = environ.get("PATH", os.defpath)
    if found := shutil.which(command, path=path):
        return found
    for folder in filter(None, path.split(os.pathsep)):
        if (there := Path(folder) / command).is_file():
            raise NotStarted(f"{one_line(str(there))}: not executable", "nothing was started", 126)
    raise NotStarted(f"{shown}: command not found", "nothing was started", 127)


@dataclass
class Outlets:
    """What stands at 0, 1 and 2 of the job, and the ends of it that the relay keeps."""

    terminal: Terminal | None = None
    streams: list[Stream] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)  # of 0, 1, 2: were closed when we were started
    job_side: dict[int, int] = field(default_factory=dict)  # place -> pipe end for the job

    def release(self) -> None:
        """Let go of the job's ends; it has its own now."""
        for fd in set(self.job_side.values()):
            os.close(fd)
        if self.terminal:
            self.terminal.close_inner()


def reserve_places() -> list[int]:
    """Fill those of 0, 1, 2 that are closed, so that nothing of ours gets there; which they were."""
    closed = []
    for place in (0, 1, 2):
        try:
            os.fstat(place)
        except OSError:
            closed.append(place)
            fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            if fd != place:
                os.dup2(fd, place, inheritable=False)
                os.close(fd)
    return closed


def outlets(closed: Sequence[int]) -> Outlets:
    """Make the job's standard streams: a terminal of its own where ours is one, a pipe for other output."""
    made = Outlets(closed=list(closed))
    terminals = [place for place in (0, 1, 2) if place not in closed and os.isatty(place)]
    if terminals:
        with contextlib.suppress(OSError):  # no inner terminal to be had: pipes, and keys as they are
            made.terminal = Terminal(terminals)
            if {1, 2} & set(terminals):
                sink = 1 if 1 in terminals else 2
                made.streams.append(Stream(made.terminal.master, sink, terminal=True))
    seen: dict[tuple[int, int], int] = {}
    for place in (1, 2):
        if place in closed or (made.terminal and place in terminals) or not _is_output(place):
            continue
        known = os.fstat(place)
        if (key := (known.st_dev, known.st_ino)) not in seen:
            source, seen[key] = os.pipe()
            with contextlib.suppress(OSError):
                fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            made.streams.append(Stream(source, place))
        made.job_side[place] = seen[key]
    return made


def _is_output(place: int) -> bool:
    """Whether something can be written there: a descriptor that is open for reading alone stays as it is."""
    return fcntl.fcntl(place, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def spawn(file: str, argv: Sequence[str], environ: Mapping[str, str], out: Outlets, mask: set[int]) -> int:
    """Start the command; its process id.

    Args:
        file: from `find`.
        mask: the signals that were blocked when we were started.

    Raises:
        NotStarted: the system refused.
    """
    actions: list[tuple] = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in out.job_side.items()]
    actions += [(os.POSIX_SPAWN_CLOSE, place) for place in out.closed]
    if out.terminal:
        first, *more = out.terminal.places
        actions.append((os.POSIX_SPAWN_OPEN, first, out.terminal.inner, os.O_RDWR, 0))
        actions += [(os.POSIX_SPAWN_DUP2, first, place) for place in more]
    options: dict = {
        "file_actions": actions, "setsigmask": mask, "setsid": out.terminal is not None,
        "setsigdef": [signal.SIGPIPE, signal.SIGXFSZ],
    }  # fmt: skip  # both are ignored by Python for itself
    try:
        try:
            return os.posix_spawn(file, list(argv), environ, **options)
        except OSError as e:
            if e.errno != errno.ENOEXEC:
                raise
            return os.posix_spawn("/bin/sh", ["/bin/sh", file, *argv[1:]], environ, **options)  # as shells do
    except OSError as e:
        missing = e.errno == errno.ENOENT  # the interpreter that the file names in its first line
        why = "its interpreter is missing" if missing else e.strerror
        raise NotStarted(f"{one_line(argv[0])}: {why}", "nothing was started", 127 if missing else 126) from e
