"""`doctor ask --record DIR`: the diagnosis kept as an incident that somebody can label."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..report import Report
    from ..shell import Recording
    from ..workspace import Workspace


def shell_for(folder: Path | None, run: list[str] | None, session: str | None, show_prompt: bool) -> Recording | None:
    """A shell that keeps what commands answer, where an incident is asked for.

    Raises:
        UsageError: the folder cannot be written, or there will be no whole diagnosis to keep.
    """
    from ..collect.incident import refuse_place
    from ..shell import Live, Recording

    if folder is None:
        return None
    if session or show_prompt:
        other = "--session" if session else "--show-prompt"
        raise UsageError(f"--record keeps a diagnosis from its beginning to its end, not with {other}", "leave one out")
    refuse_place(folder, [Path(name).expanduser() for name in run or ["."]])
    return Recording(Live())


def keep(ws: Workspace, shell: Recording, folder: Path, report: Report, quiet: bool) -> None:
    """Write the incident, and say in a line what it holds and what is to be done with it."""
    from ..collect.incident import record
    from ..sanitize import one_line

    kept = record(ws, shell, folder, report)
    if not quiet:
        what = f"{kept.files} of {kept.of} files, {kept.commands} commands, {kept.redacted} secrets taken out"
        place = one_line(str(folder))
        sys.stderr.write(
            f"recorded {place}: {what}; read it, fill in {place}/incident.yaml, then run: doctor eval {place}\n"
        )
