"""The read-only view of what is being diagnosed: files by role, the memoised readings of them, and a shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from .errors import NothingReadable, UsageError
from .reading import files as _files
from .reading.files import Line, RunFile
from .shell import Completed, Live, Shell
from .types import LINE_CAP, Evidence

T = TypeVar("T")


class Workspace:
    """Files of one or more runs. Never writes, never executes anything of the run.

    Attributes:
        files: every readable file, in a stable order.
        skipped: `(name, why)` of what was found and could not be read.
        question: the user's question, for tools that look for what it names; never evidence.
    """

    def __init__(
        self,
        roots: list[Path],
        *,
        good: list[Path] | None = None,
        also: list[Path] | None = None,
        pids: list[int] | None = None,
        shell: Shell | None = None,
        question: str = "",
    ) -> None:
        self.roots = roots
        self.good = good or []
        self.also = also or []
        self.pids = pids or []
        self.question = question
        self._shell = shell or Live()
        self._memo: dict[Any, Any] = {}
        self._lock = RLock()
        self.files: list[RunFile] = []
        self.skipped: list[tuple[str, str]] = []
        for root in [*roots, *self.good]:
            if not root.exists():
                raise UsageError(f"no such path: {root}", "name a folder, a file, or - for standard input")
        self._discover()
        if not self.files:
            looked = ", ".join(str(r) for r in roots)
            raise NothingReadable(f"nothing readable in {looked}", "looked for logs, configs, metrics and checkpoints")

    def by_role(self, *roles: str) -> list[RunFile]:
        """Files of any of these roles."""
        return [f for f in self.files if f.role in roles]

    def lines(self, file: RunFile) -> Iterator[Line]:
        """Lines of a file, decompressed; see `reading.files.lines`."""
        return _files.lines(file.path)

    def read(self, file: RunFile, limit: int = 4 << 20) -> bytes:
        """The first `limit` decompressed bytes of a file."""
        data = b""
        for block in _files.blocks(file.path):
            data += block
            if len(data) >= limit:
                break
        return data[:limit]

    def text(self, file: RunFile, limit: int = 4 << 20) -> str:
        """The same, decoded with replacement."""
        return self.read(file, limit).decode(errors="replace")

    def shell(self, argv: list[str], timeout: float = 10.0) -> Completed:
        """Run a command on the machine (or answer from the recording)."""
        return self._shell.run(argv, timeout)

    def memo(self, key: Any, make: Callable[[], T]) -> T:
        """A reading, made once."""
        with self._lock:
            if key not in self._memo:
                self._memo[key] = make()
            return self._memo[key]

    def cite(self, file: RunFile, line: Line, key: str, value: Any = True, **more: Any) -> Evidence:
        """Evidence that quotes a line of a file."""
        fields = {"rank": file.rank, "attempt": file.attempt, "variant": file.variant, **more}
        return Evidence(
            key=key, value=value, kind="line", file=file.name, line=line.number, offset=line.offset,
            text=line.data[:LINE_CAP].decode(errors="replace"), cut=line.cut or len(line.data) > LINE_CAP,
            run=file.run, **fields,
        )

    def _discover(self) -> None:
        many = len(self.roots) + len(self.good) > 1
        for number, root in enumerate([*self.roots, *self.good], 1):
            run = f"r{number}"
            base = root if root.is_dir() else root.parent
            paths = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
            for path in paths:
                name = (f"{run}/" if many else "") + str(path.relative_to(base))
                role = _role(path)
                self.files.append(RunFile(name, path, role, path.stat().st_size, run, good=number > len(self.roots)))


def _role(path: Path) -> str:
    by_suffix = {
        ".log": "log", ".out": "log", ".err": "log", ".txt": "log", ".yaml": "config", ".yml": "config",
        ".json": "config", ".toml": "config", ".sh": "config", ".csv": "metrics", ".jsonl": "data", ".py": "code",
    }
    return by_suffix.get(path.suffix, "other")
