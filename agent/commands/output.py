"""Where an answer goes: standard output in the form the user chose, and files of the run where asked."""

from __future__ import annotations

import sys
import tempfile
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..sanitize import one_line
from .streams import print_line

if TYPE_CHECKING:
    from ..report import Report


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
        from .export import exported

        print_line(exported([report], ".md").decode().rstrip("\n"))
    elif form is Form.PLAIN:
        from ..render import as_plain

        print_line(as_plain(report))
    else:
        from ..render import as_page

        print_line(as_page(report))


def write(report: Report, roots: list[str], quiet: bool) -> None:
    """Put `doctor-report.json` and `.md` beside the run, each whole or not at all."""
    from ..markdown import as_markdown

    root = Path(roots[0]).expanduser()
    folder = root if root.is_dir() else root.parent
    for name, text in (("doctor-report.json", report.to_json()), ("doctor-report.md", as_markdown(report))):
        try:
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as f:
                f.write(text + "\n")
            Path(f.name).replace(folder / name)
        except OSError as e:
            sys.stderr.write(f"doctor: cannot write {one_line(str(folder / name))}: {e.strerror}\n")
            continue
        if not quiet:
            sys.stderr.write(f"wrote {one_line(str(folder / name))}\n")
