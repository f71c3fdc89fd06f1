"""The one door to a client, which is usually a model: no secret, no steering character, no endless text gets out."""

from __future__ import annotations

import copy
import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from ...core.errors import UsageError
from ...reading.run.discover import walk
from ...reading.run.workspace import Workspace
from ...safety.fences import fenced, harmless
from ...safety.redact import Redactor

CAP = 20_000  # bytes of one text


class Outgoing:
    """What leaves through here has its secrets replaced; the same secret has the same name in all answers."""

    def __init__(self) -> None:
        self._redactor = Redactor()
        self._lock = Lock()

    @property
    def redacted(self) -> int:
        """How many secrets were taken out so far."""
        return self._redactor.count

    def learn(self, text: str) -> None:
        """Read a text that does not leave: a secret it tells is taken out of all that does."""
        self._redact(text)

    def line(self, text: str) -> str:
        """One line in our own words that may name things of the run."""
        return " ".join(harmless(self._redact(text)).split())[:2000]

    def text(self, text: str, source: str, more: str = "") -> str:
        """Text of a run, labelled as data. What is over the cap is counted.

        Args:
            more: how to read on, where that is known; it may name files of the run.
        """
        shown, told = cut(self._redact(text), self.line(more))
        return fenced(shown, self.line(source)) + (f"\n{told}" if told else "")

    def data(self, value: Any) -> Any:
        """Plain data with every string in it redacted and inert. A string is looked at beside its key."""
        if isinstance(value, str):
            return harmless(self._redact(value))
        if isinstance(value, list):
            return [self.data(v) for v in value]
        if isinstance(value, dict):
            clean = {self.data(k): self._beside(k, v) for k, v in value.items()}
            if isinstance(value.get("key"), str) and isinstance(value.get("value"), str):  # a piece of evidence
                clean["value"] = self._beside(value["key"], value["value"])
            return clean
        return value

    def _beside(self, key: str, value: Any) -> Any:
        """The value, also where only its name tells that it is a secret (`api_key`)."""
        if not isinstance(value, str):
            return self.data(value)
        label = f"{key}="
        together = self._redact(label + value)
        return harmless(together.removeprefix(label)) if together.startswith(label) else self.data(value)

    def _redact(self, text: str) -> str:
        with self._lock:  # calls run side by side
            return self._redactor.redact(text)


def cut(text: str, more: str = "") -> tuple[str, str]:
    """The part of a text that is shown, and a sentence with exact counts where that is not all of it."""
    data = text.encode(errors="replace")
    if len(data) <= CAP:
        return text, ""
    end = data.rfind(b"\n", CAP - CAP // 4, CAP) + 1 or CAP  # at a line, unless that is a very long one
    shown = data[:end].decode(errors="ignore")
    how = more or "narrow the arguments, or read files in parts with read_lines"
    size = len(shown.encode())
    return shown, f"[cut: {size} of {len(data)} bytes, {_lines(shown)} of {_lines(text)} lines are shown; {how}]"


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


# ----------
# Which folders a client may look at, and the workspaces kept of them between calls.

KEPT = 4  # workspaces that stay in memory


@dataclass(slots=True)
class _Kept:
    """A workspace with the state of the files that it was made of."""

    workspace: Workspace
    good: tuple[Path, ...]
    fingerprint: str


class Runs:
    """The runs that one client looks at.

    Args:
        named: paths that the user named. With any, nothing outside them is read, and they are the run where a call
            names none. Without, the client names the paths: it acts for the user who started it.

    Raises:
        UsageError: one of them is not there, or is standard input, which carries the protocol.
    """

    def __init__(self, named: list[str]) -> None:
        if "-" in named:
            raise UsageError("standard input carries the protocol", "name a folder or a file with --run")
        self.roots: tuple[Path, ...] = ()
        self.roots = tuple(self._path(name) for name in named)
        self._kept: OrderedDict[tuple[Path, ...], _Kept] = OrderedDict()
        self._building: dict[tuple[Path, ...], Lock] = {}
        self._lock = Lock()

    def workspace(
        self, run: str, good: str | None = None, *, question: str = "", live: bool = False, fresh: bool = False
    ) -> Workspace:
        """A view of a run. Its readings are shared by all calls until one of its files changes.

        Args:
            run: path of it; empty: the paths the user named, or no files at all where they named none.
            good: path of a sound run to compare with, empty for none; None: as in the last call that said.
            live: without files, this machine is what is asked about.
            fresh: use no kept reading, as the machine is asked what it says now.

        Raises:
            UsageError: a path is not there, is no file or folder, or lies outside what the user named.
            NothingReadable: no file in any role.
        """
        roots = (self._path(run),) if run else self.roots
        beside = None if good is None else (self._path(good),) if good else ()
        if not roots:
            return Workspace([], live=live, question=question, may_be_empty=True)
        view = copy.copy(self._held(roots, beside, fresh))  # its readings and its lock are shared
        view.question = question
        return view

    def may_show(self, roots: Iterable[Path]) -> bool:
        """Whether a report on these runs is of what the client may look at."""
        return not self.roots or all(root.is_absolute() and self._inside(root.resolve()) for root in roots)

    def leads_out(self, path: str) -> bool:
        """Whether a path names something outside what the user named."""
        try:
            return bool(self.roots) and not self._inside(Path(path).expanduser().resolve())
        except (OSError, RuntimeError, ValueError):
            return True

    def _held(self, roots: tuple[Path, ...], good: tuple[Path, ...] | None, fresh: bool) -> Workspace:
        with self._lock:
            building = self._building.setdefault(roots, Lock())
        with building:  # one folder is looked through once at a time; calls on others do not wait for it
            kept = self._kept.get(roots)
            beside = good if good is not None else kept.good if kept else ()
            if fresh:
                return Workspace(list(roots), good=list(beside))
            now = _fingerprint((*roots, *beside))
            if kept is None or kept.fingerprint != now or kept.good != beside:
                kept = _Kept(Workspace(list(roots), good=list(beside)), beside, now)
            self._keep(roots, kept)
            return kept.workspace

    def _keep(self, roots: tuple[Path, ...], kept: _Kept) -> None:
        with self._lock:
            self._kept[roots] = kept
            self._kept.move_to_end(roots)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _path(self, name: str) -> Path:
        """The resolved path of a name, also of one inside what the user named; links count as where they lead."""
        for base in (Path(), *self.roots):
            try:
                path = (base / Path(name).expanduser()).resolve(strict=True)
                mode = path.stat().st_mode
            except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL, no such user
                continue
            if self.roots and not self._inside(path):
                continue
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                raise UsageError(f"{name} is neither a folder nor a regular file")
            return path
        where = f" in {', '.join(map(str, self.roots))}" if self.roots else ""
        hint = "nothing outside the folders this server was started for is read" if self.roots else "name a folder"
        raise UsageError(f"no such path{where}: {name}", hint)

    def _inside(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self.roots)


def _fingerprint(roots: tuple[Path, ...]) -> str:
    """Of names, sizes and times of all files: reading them would cost what keeping the readings saves."""
    digest = hashlib.sha256()
    for root in roots:
        for name, info in _entries(root):
            digest.update(f"{name}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ino}\0".encode(errors="replace"))
    return digest.hexdigest()


def _entries(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    if root.is_dir():
        yield from ((name, info) for name, _, info in walk(root, [root], lambda *_: None))
    elif root.is_file():
        yield "", root.stat()
