"""Where an answer goes: standard output in the form the user chose, and files of the run where asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..sanitize import one_line
from .streams import print_bytes, print_line

if TYPE_CHECKING:
    from ..report import Report
    from ..workspace import Workspace

STDOUT = "-"


class Form(Enum):
    """How an answer is printed."""

    RICH = auto()
    PLAIN = auto()
    JSON = auto()
    MARKDOWN = auto()


def form(*, json: bool = False, markdown: bool = False, plain: bool = False) -> Form:
    """The one form that the flags name.

    Raises:
        UsageError: they name several.
    """
    named = [f for f, wanted in ((Form.JSON, json), (Form.MARKDOWN, markdown), (Form.PLAIN, plain)) if wanted]
    if len(named) > 1:
        raise UsageError("--json, --markdown and --plain exclude each other", "choose one")
    return named[0] if named else Form.RICH


def show(report: Report, form: Form) -> None:
    """Print a report on standard output."""
    if form is Form.JSON:
        print_line(report.to_json())
    elif form is Form.MARKDOWN:
        from ..conversation.export import exported

        print_line(exported([report], ".md").decode().rstrip("\n"))
    elif form is Form.PLAIN:
        from ..render import as_plain

        print_line(as_plain(report))
    else:
        from ..render import as_page

        print_line(as_page(report))


def check_page(named: str | None, form: Form) -> None:
    """Look before a diagnosis whether its page can be put where it is wanted.

    Raises:
        UsageError: the folder is missing, something that is no page of doctor's stands there, or standard output is
            wanted for two things.
    """
    if named is None:
        return
    if named == STDOUT:
        if form is not Form.RICH:
            raise UsageError("--html - and another form both want standard output", "name a file for the page")
        return
    path = Path(named).expanduser()
    if not path.parent.is_dir():
        raise UsageError(f"no such folder: {one_line(str(path.parent))}", "make it first, or name another file")
    if os.path.lexists(path) and not _is_page(path):
        raise UsageError(
            f"{one_line(str(path))} is there and is no page of doctor's", "name another file: it is not overwritten"
        )


def _is_page(path: Path) -> bool:
    from ..errors import ParseError
    from ..reading.files import open_regular
    from ..reading.roles import PAGE

    try:
        with open_regular(path) as stream:
            return stream.read(len(PAGE)) == PAGE
    except (ParseError, OSError):
        return False


def show_page(report: Report, workspace: Workspace | None, named: str, quiet: bool = False) -> None:
    """Write a report as a page, whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    from ..page.document import as_html

    data = as_html(report, workspace).encode()
    if named == STDOUT:
        print_bytes(data)
        return
    check_page(named, Form.RICH)  # again: a diagnosis takes a while
    path = Path(named).expanduser()
    try:
        _replace(path, data, 0o666)
    except OSError as e:
        raise UsageError(f"cannot write {one_line(str(path))}: {e.strerror}", "name another file") from None
    if not quiet:
        sys.stderr.write(f"wrote {one_line(str(path))}\n")


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Put a file in place in one step; `mode` is what the user's mask is taken from."""
    beside = path.with_name(f".{path.name[:80]}.{token_hex(6)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write(report: Report, roots: list[str], quiet: bool, workspace: Workspace | None = None) -> None:
    """Put `doctor-report.json`, `.md` and `.html` beside the run, each whole or not at all."""
    from ..markdown import as_markdown
    from ..page.document import as_html

    root = Path(roots[0]).expanduser()
    folder = root if root.is_dir() else root.parent
    forms: dict[str, Callable[[], str]] = {
        ".json": report.to_json,
        ".md": lambda: as_markdown(report),
        ".html": lambda: as_html(report, workspace),
    }
    for suffix, text in forms.items():
        path = folder / f"doctor-report{suffix}"
        try:
            _replace(path, f"{text().rstrip()}\n".encode("utf-8", "replace"), 0o600)
        except OSError as e:
            sys.stderr.write(f"doctor: cannot write {one_line(str(path))}: {e.strerror}\n")
            continue
        if not quiet:
            sys.stderr.write(f"wrote {one_line(str(path))}\n")
