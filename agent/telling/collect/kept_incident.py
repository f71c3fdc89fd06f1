"""An incident made of a diagnosis as it was: the run's texts, what commands answered, the question, and blank labels.

What it really was is never taken from the diagnosis: whoever knows it fills it in, and until then nothing is scored.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import UsageError
from .bundle_parts import Contents
from .bundle_work import Work, is_own
from .cleaning import Cleaning
from .report_copy import QUESTION

if TYPE_CHECKING:
    from ...core.report import Report
    from ...core.shell import Recording
    from ...reading.run.workspace import Workspace

LIMIT = 16 << 20  # bytes of an incident's files and commands together
SHELL = "shell.json"
_LABELS = """\
# What it really was, filled in from how it came out, never from what doctor said; docs/incidents.md says how.
# Until the first three are filled in, `doctor eval` of this folder says so and scores nothing.
family:                  # TO FILL IN: the part of the cause before the dot
difficulty:              # TO FILL IN: easy (the loudest line is it), medium, or hard (the loudest line misleads)
expected: []             # TO FILL IN: ids of causes, best first (`doctor playbook list`); any of them is right
acceptable: []           # a fair second answer, if there is one
evidence: []             # lines that decide, as in: {file: train.log, text: words of that line}
fix_terms: []            # lists of words; a repair must have one of each list
why: ""                  # how it came out
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """What was written: files of the run out of how many, commands, and how often a secret was taken out."""

    folder: Path
    files: int
    of: int
    commands: int
    redacted: int


def refuse_place(folder: Path, ws_roots: list[Path]) -> None:
    """Raise UsageError before any work where the incident could not be written, or would be read as part of the run."""
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} exists", "name a new folder with --record")
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"there is no folder {parent}", "name another place with --record")
    place = parent.resolve()
    for root in ws_roots:
        if root.is_dir() and place.is_relative_to(root.resolve()):
            raise UsageError(
                f"{folder} would lie inside the run and be read as part of it", "name a folder outside with --record"
            )


def texts(ws: Workspace, report: Report, cleaning: Cleaning, commands: object = None) -> tuple[dict[str, bytes], Work]:
    """The run's texts below `files/`, bounded, with secrets taken out; beside them what commands answered, if any."""
    own = [f for f in ws.everything if not f.good and not is_own(f.name, ws.head(f))]
    work = Work(ws, Contents(LIMIT, cleaning), lambda _: None, own, report)
    if commands is not None:
        work.contents.add_data(SHELL, commands)
    work.run()
    settled = work.contents.settled()
    return {name: data for name, data in settled.items() if name.startswith("files/") or name == SHELL}, work


def record(ws: Workspace, shell: Recording, folder: Path, report: Report) -> Kept:
    """Write the incident of a diagnosis, whole or not at all, never over anything.

    Args:
        ws: the run as it was diagnosed, by `shell`; its commands replay where its machine was asked.

    Raises:
        UsageError: the folder exists by now, or cannot be written.
    """
    cleaning = Cleaning()
    answers = shell.answers if ws.live else None
    members, work = texts(ws, report, cleaning, answers)
    question = " ".join(cleaning.text(report.question).split()) or QUESTION
    name = cleaning.text(folder.absolute().name)
    labels = (
        f"id: {json.dumps(name, ensure_ascii=False)}\nsource: recorded with doctor ask\n"
        f"question: {json.dumps(question, ensure_ascii=False)}\n{_LABELS}"
    )
    kept = sum(member.startswith("files/") for member in members)
    refuse_place(folder, [])
    try:
        _write(folder, {**members, "incident.yaml": labels.encode("utf-8", "replace")})
    except OSError as e:
        raise UsageError(f"cannot write {folder}: {e.strerror or e}", "is the disk full?") from None
    commands = len(answers) if answers is not None and SHELL in members else 0
    return Kept(folder, kept, len(work.files), commands, cleaning.count)


def _write(folder: Path, members: dict[str, bytes]) -> None:
    """All files beside the place first, which then gets its name in one step."""
    with tempfile.TemporaryDirectory(prefix=".doctor-record-", dir=folder.absolute().parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir(mode=0o700)  # its owner decides who may read it
        (made / "files").mkdir()
        for name, data in members.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        made.rename(folder)
