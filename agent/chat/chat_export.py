"""A conversation as a file to pass on: all of its reports, without the secrets that a run may have printed."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import UsageError
from ..core.own_files import OddFile, small_file
from ..safety.fences import inert, one_line

if TYPE_CHECKING:
    from ..core.report import Report
    from ..reading.run.workspace import Workspace


def exported(reports: list[Report], suffix: str, workspace: Workspace | None = None) -> bytes:
    """The reports as markdown, JSON or one web page, in UTF-8.

    Secrets are taken out first: markdown's escapes would hide them. The page is that of the last diagnosis, with
    every other question of the conversation and its answer below it, in their order.

    Args:
        suffix: of the file's name, with its dot, in capitals or not.
        workspace: the run's files, for a page's plots and the lines around its evidence; other forms need none.

    Raises:
        UsageError: it names no form, or there is nothing to pass on.
    """
    form = _FORMS.get(suffix.lower())
    if form is None:
        raise _no_form(suffix)
    if not reports:
        raise UsageError("there is nothing to export yet", "ask first")
    return form(reports, workspace).encode("utf-8", "replace")


def export_path(name: str) -> Path:
    """A file to write to, as the user named it.

    Raises:
        UsageError: it can be none, or its suffix names no form.
    """
    if "\0" in name or not name.strip():
        named = one_line(name).strip() or "an empty name"
        raise UsageError(f"{named} names no file", f"name a file in {' or '.join(_FORMS)}")
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        raise UsageError(f"{one_line(name)}: whose home is meant is not known", "write the folder out") from None
    if path.suffix.lower() not in _FORMS:
        raise _no_form(path.suffix)
    return path


def write_export(data: bytes, path: Path) -> None:
    """Write what `exported` made to a file that did not exist before; a try that fails leaves none.

    Raises:
        UsageError: it exists, or cannot be written.
    """
    named = one_line(str(path))
    try:
        file = path.open("xb")
    except FileExistsError:
        raise UsageError(f"{named} exists already", "name another file: nothing is overwritten") from None
    except (OSError, ValueError) as e:
        raise UsageError(f"{named} cannot be written: {getattr(e, 'strerror', None) or e}") from None
    try:
        with file:
            file.write(data)
    except OSError as e:
        with contextlib.suppress(OSError):
            path.unlink()
        raise UsageError(f"{named} cannot be written: {e.strerror or e}") from None


def _clean(reports: list[Report], workspace: Workspace | None) -> list[Report]:
    """The reports without secrets. The lines around the evidence, where there are any, tell more of them."""
    from ..reading.scan.windows import nearby
    from ..telling.collect.cleaning import without_secrets

    around = nearby(workspace, [e for r in reports for e in r.evidence]) if workspace else ()
    return without_secrets(reports, around)[0]


def _as_json(reports: list[Report], workspace: Workspace | None) -> str:
    return "[" + ",\n".join(r.to_json() for r in _clean(reports, workspace)) + "]\n"


def _as_markdown(reports: list[Report], workspace: Workspace | None) -> str:
    from ..telling.render import as_markdown

    return "\n\n".join(as_markdown(r) for r in _clean(reports, workspace)) + "\n"


def _as_html(reports: list[Report], workspace: Workspace | None) -> str:
    from ..telling.page.page_document import as_html

    last = max((n for n, r in enumerate(reports) if r.status != "answer"), default=len(reports) - 1)
    return as_html(reports[last], workspace, [r for n, r in enumerate(reports) if n != last])


def _no_form(suffix: str) -> UsageError:
    named = one_line(suffix) or "without a suffix"
    return UsageError(f"there is no form {named}", f"name a file in {' or '.join(_FORMS)}")


_FORMS = {".md": _as_markdown, ".json": _as_json, ".html": _as_html}


# ----------
# What was asked before, for the arrow keys of the prompt: one JSON text a line, without secrets.

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
        from ..safety.redact import Redactor

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
