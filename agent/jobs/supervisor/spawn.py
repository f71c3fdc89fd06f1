"""Starting a command exactly as a shell would have: its descriptors, signals, mask, folder and limits are not ours."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import DoctorError
from ...safety.fences import one_line
from .relay import Stream

# ----------
# The terminal of a job: where ours is one, the job gets one of its own that looks and behaves the same.
#
# Keys go through as they are, and the inner terminal echoes and edits them as the job asks. Only the keys that make
# signals stay with the outer terminal for as long as the job wants signals of them: so a Ctrl-C reaches the shell
# script around us and the `tee` beside us too, and we pass the key on to the job.


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


# ----------

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


# ----------
# How programs of our own are started beside a job: what the job's environment holds for its Python is not for ours.

_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)


def python() -> list[str]:
    """Our interpreter, which looks for modules neither in the job's folder nor, unless it has us from there, in its
    PYTHONPATH: a `types.py` or the packages of another version stand there."""
    here = Path(__file__).resolve()
    given = [Path(p).resolve() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    ours = any(p in here.parents for p in given)
    return [sys.executable, "-P"] if ours else [sys.executable, "-P", "-E"]


def environ() -> dict[str, str]:
    """Our variables without what is loaded into every process of the job."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def lift_limits() -> None:
    """Take the limits that a user set for the job (`ulimit -S`) off a process of ours, as far as is allowed."""
    for kind in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))


# ----------
# Programs of our own beside a job that capture something: bounded, in a session of their own, gone when we are.

PACKAGE = __package__ or "traindoctor.agent.supervisor"


class Capture:
    """One running capture. It is killed with all it started once its time is over."""

    def __init__(self, module: str, words: Sequence[str], given: object, seconds: float) -> None:
        """Start `python -m MODULE WORDS` with `given` as JSON on its input.

        Raises:
            OSError: it cannot be started.
        """
        argv = [*python(), "-m", f"{PACKAGE}.{module}", *words]
        self._until = time.monotonic() + seconds
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd="/", env=environ(),
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
