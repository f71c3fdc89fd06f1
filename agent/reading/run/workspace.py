"""The read-only view of what is being diagnosed: files by role, the memoised readings of them, and a shell."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Protocol, TypeVar

from ...core.errors import NothingReadable, ParseError, UsageError
from ...core.shell import Completed, Live, Shell
from ...core.types import LINE_CAP, Evidence
from . import files as _files
from .discover import Place, hosts_of, places, spool, walk
from .files import Line, RunFile
from .roles import role_of
from .what_ran import Ran, what_ran

# ----------
# Whether the run was made on this machine, lately: only then what the machine says now is evidence about it.


RECENT = 3 * 24 * 3600.0  # seconds since the run last wrote
_HEAD = 256 << 10  # bytes of a log in which hosts are named: launchers and NCCL do so when they start
_NAMELESS = {"localhost", "ubuntu", "debian", "host", "node", "container"}


def runs_here(ws: Workspace) -> bool:
    """The run's logs or file names carry this machine's name, and it wrote within the last three days."""
    name = socket.gethostname().split(".")[0]
    if len(name) < 4 or name.lower() in _NAMELESS:
        return False
    files = [f for f in ws.files if not f.good and f.role in ("log", "capture", "environment") and _is_recent(f)]
    if any(f.host == name for f in files):
        return True
    word = re.compile(rb"(?<![\w.-])" + re.escape(name.encode()) + rb"(?![\w-])")
    return any(word.search(ws.read(f, _HEAD)) for f in files[:64])


def _is_recent(file: RunFile) -> bool:
    try:
        return time.time() - file.path.stat().st_mtime < RECENT
    except OSError:
        return False


# ----------
# How far a long pass over files has come. One thread reads the files, another may look, or end it.


class Progress:
    """Bytes read of those that a pass has to read; packed files count what they hold, so it may come to more.

    Attributes:
        what: the pass in words; empty where none is under way.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.what = ""
        self.done = self.total = 0

    def begin(self, what: str, total: int) -> None:
        """A pass over so many bytes starts."""
        with self._lock:
            self.what, self.done, self.total = what, 0, total

    def end(self) -> None:
        """It is over."""
        with self._lock:
            self.what, self.done, self.total = "", 0, 0

    def add(self, size: int) -> None:
        """So many bytes were read elsewhere."""
        with self._lock:
            self.done += size

    def counted(self, blocks: Iterable[bytes], stopped: Callable[[], bool]) -> Iterator[bytes]:
        """The same blocks, counted.

        Raises:
            TimeoutError: nobody wants them any more.
        """
        for block in blocks:
            if stopped():
                raise TimeoutError("stopped")
            with self._lock:
                self.done += len(block)
            yield block


# ----------

T = TypeVar("T")
HEAD = 8192  # bytes that tell what a file is
STDIN = Path("-")


class Spread(Protocol):
    """Workers that can read the files of a run."""

    notes: list[str]  # what went wrong, for the report

    def workers(self) -> int:
        """How many read at the same time; 0 where nobody can be reached."""
        ...

    def read(self, orders: Sequence[tuple[bytes, int]]) -> Iterator[tuple[int, bytes | None]]:
        """Give out orders of the log pass and their sizes in bytes; each one's number with its result, as they come.

        None where no worker could; never raises for that.
        """
        ...


class Workspace:
    """Files of one or more runs. Never writes, never executes anything of the run.

    Attributes:
        everything: every readable file, in a stable order; bystanders among them are for searching alone.
        skipped: `(name, why)` of what was found and could not be read, or not wholly.
        question: the user's question, for tools that look for what it names; never evidence.
        pids: processes of the run on this machine, as the user named them.
        spread: workers elsewhere that the log pass may use; None: it is made here.
        limits: what limited the readings as a whole, told in the report.
        progress: how far the pass over the logs has come, for whoever watches.
    """

    def __init__(
        self,
        roots: list[Path],
        *,
        good: list[Path] | None = None,
        also: list[Path] | None = None,
        shell: Shell | None = None,
        question: str = "",
        live: bool | None = None,
        pids: tuple[int, ...] = (),
        may_be_empty: bool = False,
    ) -> None:
        self.roots = roots
        self.good = good or []
        self.also = also or []
        self.question = question
        self._live = live if live is not None or not pids else True
        self.pids = pids
        self._shell = shell or Live()
        self.progress = Progress()
        self.spread: Spread | None = None
        self.limits: list[str] = []
        self._memo: dict[Any, Any] = {}
        self._lock = RLock()
        self._told = Lock()  # its own: workers of a reading tell while the reading is being made
        self.everything: list[RunFile] = []
        self.skipped: list[tuple[str, str]] = []
        for root in [*roots, *self.good]:
            if root != STDIN and not _exists(root):
                raise UsageError(f"no such path: {root}", "name a folder, a file, or - for standard input")
        self._discover()
        if not self.everything and not may_be_empty:
            looked = ", ".join(str(r) for r in roots)
            also_seen = f"; {len(self.skipped)} entries were not readable" if self.skipped else ""
            raise NothingReadable(
                f"nothing readable in {looked}{also_seen}",
                "looked for logs, configs, metrics, checkpoints, data, code, environment lists and captures",
            )

    @property
    def ran(self) -> Ran:
        """What ran here, and the part that each file plays in it."""
        return self.memo("ran", lambda: what_ran(self.everything, self.read, self.question))

    @property
    def files(self) -> list[RunFile]:
        """The files that evidence may come from: all but bystanders; what a program was fed with has the role data."""
        return self.memo("files", self._used)

    @property
    def live(self) -> bool:
        """Whether what this machine says now is evidence: the run is its own, or the user asked about it.

        Otherwise a tool looks at files alone: a run copied to a laptop must not be blamed for the laptop's full disk.
        """
        return self._live if self._live is not None else self.memo("here", lambda: runs_here(self))

    def by_role(self, *roles: str) -> list[RunFile]:
        """Files of any of these roles."""
        return [f for f in self.files if f.role in roles]

    def lines(self, file: RunFile) -> Iterator[Line]:
        """Lines of a file, decompressed; see `files.lines`. Nothing where it cannot be opened any more."""
        try:
            yield from _files.lines(file.path, self._teller(file))
        except ParseError as e:
            self.tell(file.name, str(e))

    def blocks(self, file: RunFile) -> Iterator[bytes]:
        """Content of a file in blocks of about 1 MiB, decompressed, cut anywhere."""
        try:
            yield from _files.blocks(file.path, self._teller(file))
        except ParseError as e:
            self.tell(file.name, str(e))

    def head(self, file: RunFile) -> bytes:
        """The first decompressed `HEAD` bytes, read once: enough to tell what a file is. Empty where it is gone."""
        return self.memo(("head", file.name), lambda: self._head(file))

    def read(self, file: RunFile, limit: int = 4 << 20) -> bytes:
        """The first `limit` decompressed bytes of a file."""
        data = bytearray()
        for block in self.blocks(file):
            data += block
            if len(data) >= limit:
                break
        return bytes(data[:limit])

    def text(self, file: RunFile, limit: int = 4 << 20) -> str:
        """The same, decoded with replacement."""
        return self.read(file, limit).decode(errors="replace")

    def shell(
        self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Completed:
        """Run a command on the machine (or answer from the recording).

        Args:
            env: variables set for it beside our own.
            cwd: folder it starts in.
        """
        return self._shell.run(argv, timeout, env, cwd)

    def memo(self, key: Any, make: Callable[[], T]) -> T:
        """A reading, made once."""
        with self._lock:
            if key not in self._memo:
                self._memo[key] = make()
            return self._memo[key]

    def forget(self, key: Any) -> None:
        """Drop a reading that was cut short: who asks next, with time of its own, has it made anew."""
        with self._lock:
            self._memo.pop(key, None)

    def tell(self, name: str, why: str) -> None:
        """Note something that was found and could not be read, or not wholly; the same thing once."""
        with self._told:
            if (name, why) not in self.skipped:
                self.skipped.append((name, why))

    def cite(self, file: RunFile, line: Line, key: str, value: Any = True, **more: Any) -> Evidence:
        """Evidence that quotes a line of a file."""
        fields = {"rank": file.rank, "host": file.host, "attempt": file.attempt, "variant": file.variant, **more}
        return Evidence(
            key=key,
            value=value,
            kind="line",
            file=file.name,
            line=line.number,
            offset=line.offset,
            text=line.data[:LINE_CAP].decode(errors="replace"),
            cut=line.cut or len(line.data) > LINE_CAP,
            run=file.run,
            **fields,
        )

    def binary(self, file: RunFile, member: str, key: str, value: Any = True, text: str = "", **more: Any) -> Evidence:
        """Evidence from a file without lines: `member` names the tensor or record, `text` says it in words."""
        fields = {"rank": file.rank, "host": file.host, "attempt": file.attempt, "variant": file.variant, **more}
        return Evidence(
            key=key, value=value, kind="binary", file=file.name, member=member, text=text, run=file.run, **fields
        )

    def answered(self, done: Completed, key: str, value: Any = True, text: str = "", **more: Any) -> Evidence:
        """Evidence from what a command printed; `text` is the line of its output that says so."""
        return Evidence(key=key, value=value, kind="command", argv=list(done.argv), text=text[:LINE_CAP], **more)

    def _used(self) -> list[RunFile]:
        parts = ((f, self.ran.part(f)) for f in self.everything)
        role = {"data": "data", "config": "other"}  # a vocabulary as JSON is no setting, and no rows of data either
        return [
            replace(f, role=role.get(f.role, "data")) if part == "data" else f
            for f, part in parts
            if part != "bystander"
        ]

    def _head(self, file: RunFile) -> bytes:
        try:
            return _files.head(file.path, HEAD)
        except ParseError as e:
            self.tell(file.name, str(e))
            return b""

    def _teller(self, file: RunFile) -> Callable[[str], None]:
        return lambda why: self.tell(file.name, why)

    def _discover(self) -> None:
        many = len(self.roots) + len(self.good) > 1
        for number, root in enumerate([*self.roots, *self.good], 1):
            run = f"r{number}"
            prefix = f"{run}/" if many else ""
            found = list(self._found(root, prefix))
            names = {f: f.name.removeprefix(prefix) for f in found}
            where = places(((names[f], f.role) for f in found), hosts_of(root))
            good = number > len(self.roots)
            self.everything += [_placed(f, where[names[f]], run, good) for f in found]

    def _found(self, root: Path, prefix: str) -> Iterator[RunFile]:
        for name, path, size in self._entries(root, prefix):
            if not os.access(path, os.R_OK):
                self.tell(prefix + name, "no permission to read it")
                continue
            role = self._role(prefix + name, name, path)
            if role:
                yield RunFile(prefix + name, path, role, size)

    def _entries(self, root: Path, prefix: str) -> Iterable[tuple[str, Path, int]]:
        if root == STDIN:
            path, cut = spool()
            if cut:
                self.tell(prefix + "stdin", "standard input was longer than is kept: only its start was read")
            return [("stdin", path, path.stat().st_size)] if path.stat().st_size else []
        if not root.is_dir():
            return [(root.name, root, root.stat().st_size)]
        allowed = [folder.resolve() for folder in [root, *self.also]]
        return (
            (name, path, info.st_size)
            for name, path, info in walk(root, allowed, lambda n, why: self.tell(prefix + n, why))
        )

    def _role(self, full: str, name: str, path: Path) -> str | None:
        try:
            head = _files.head(path, HEAD)
        except ParseError as e:
            self.tell(full, str(e))
            return None
        return "log" if name == "stdin" else role_of(name, head)


def _exists(root: Path) -> bool:
    try:
        root.stat()
    except (OSError, ValueError):
        return False
    return True


def _placed(file: RunFile, place: Place, run: str, good: bool) -> RunFile:
    return RunFile(
        file.name, file.path, file.role, file.size, run, place.rank, place.attempt, place.variant, good, place.host
    )
