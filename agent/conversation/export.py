"""A conversation as a file to pass on: all of its reports, without the secrets that a run may have printed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..sanitize import one_line

if TYPE_CHECKING:
    from ..report import Report
    from ..workspace import Workspace


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
    from ..nearby import nearby
    from ..page.secrets import without_secrets

    around = nearby(workspace, [e for r in reports for e in r.evidence]) if workspace else ()
    return without_secrets(reports, around)[0]


def _as_json(reports: list[Report], workspace: Workspace | None) -> str:
    return "[" + ",\n".join(r.to_json() for r in _clean(reports, workspace)) + "]\n"


def _as_markdown(reports: list[Report], workspace: Workspace | None) -> str:
    from ..markdown import as_markdown

    return "\n\n".join(as_markdown(r) for r in _clean(reports, workspace)) + "\n"


def _as_html(reports: list[Report], workspace: Workspace | None) -> str:
    from ..page.document import as_html

    last = max((n for n, r in enumerate(reports) if r.status != "answer"), default=len(reports) - 1)
    return as_html(reports[last], workspace, [r for n, r in enumerate(reports) if n != last])


def _no_form(suffix: str) -> UsageError:
    named = one_line(suffix) or "without a suffix"
    return UsageError(f"there is no form {named}", f"name a file in {' or '.join(_FORMS)}")


_FORMS = {".md": _as_markdown, ".json": _as_json, ".html": _as_html}
