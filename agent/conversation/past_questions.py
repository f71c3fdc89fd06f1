"""What was asked before, for the arrow keys of the prompt: one JSON text a line, without secrets."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..sanitize import inert
from ..small_file import OddFile, small_file

NAME = "questions.jsonl"
MOST = 1_000  # questions that are kept
SLACK = 200  # further ones before the file is written anew
LONGEST = 8_000  # characters of one question that are kept
LARGEST = 32 << 20  # bytes; what stands there is then not ours
PATIENCE = 1.0  # seconds that one chat waits for another that is writing


@dataclass(frozen=True, slots=True)
class PastQuestions:
    """The questions of this user's chats, the oldest first. Reads and writes files: not for a UI thread.

    Attributes:
        state: the folder of doctor's own state; None keeps nothing.
    """

    state: Path | None

    def all(self) -> list[str]:
        """At most `MOST`, inert. Lines that are damaged, or of a later version, are left out; no file: none."""
        return [] if self.state is None else _read(self.state / NAME)[-MOST:]

    def keep(self, question: str) -> str:
        """Add a question for this and later chats; what is kept of it. The same twice in a row is kept once.

        Two chats may do so at once: each adds a whole line. A question is short of its secrets before it is written.

        Raises:
            OSError: the state folder cannot be written.
        """
        from ..redact import Redactor

        text = inert(Redactor().redact(question))[:LONGEST].strip()
        if not text or self.state is None:
            return text
        path = self.state / NAME
        with _alone(path):
            known = _read(path)
            if not known or known[-1] != text:
                _add(path, text)
            if len(known) >= MOST + SLACK:
                _write_anew(path, [*known, text][-MOST:])
        return text


def _read(path: Path) -> list[str]:
    try:
        data, _ = small_file(path, LARGEST, follow=False)
    except (OSError, OddFile):
        return []
    return [text for line in data.split(b"\n") if (text := _text(line))]


def _text(line: bytes) -> str:
    """The question in a line; empty where it holds none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return inert(value)[:LONGEST] if isinstance(value, str) else ""


def _add(path: Path, text: str) -> None:
    """One write to the end of the file, which no other one can come in between of."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.fchmod(fd, 0o600)
        # Begins with a line end: what a kill left half written stays a line of its own.
        os.write(fd, b"\n" + _line(text))
    finally:
        os.close(fd)


def _write_anew(path: Path, texts: list[str]) -> None:
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{NAME}.", delete=False) as f:  # of mode 0600
        try:
            f.write(b"\n".join(map(_line, texts)))
            f.flush()
            Path(f.name).replace(path)
        except OSError:
            Path(f.name).unlink(missing_ok=True)
            raise


def _line(text: str) -> bytes:
    return json.dumps(text).encode()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other chats from writing meanwhile. One that hangs is not waited for: then the two take turns by luck."""
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_suffix(".lock"), timeout=PATIENCE, mode=0o600)
    try:
        lock.acquire()
    except (Timeout, OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        lock.release()
