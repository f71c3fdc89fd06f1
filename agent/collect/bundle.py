"""A bundle from beginning to end: diagnosed, filled, cleaned, listed, written."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .archive import refuse_existing, write_archive
from .contents import Contents, safe_name
from .manifest import incident, manifest, readme
from .plan import is_own
from .report_copy import QUESTION, diagnosed
from .work import Tell, Work

if TYPE_CHECKING:
    from ..reading.files import RunFile
    from ..report import Report
    from ..shell import Recording
    from ..workspace import Workspace

LIMIT = 64 << 20  # bytes of all members together
READ_ALL = 1 << 30  # bytes of a run that the readers go through where no diagnosis was asked for


@dataclass(slots=True)
class Bundle:
    """What was put together. `files` and `tools` are rows of the manifest; `more` files are not in it."""

    path: Path
    files: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    more: int = 0
    redacted: int = 0
    report: Report | None = None

    @property
    def kept(self) -> int:
        """How many files of the run are in it, whole, in part or as text that stands for them."""
        return sum(row["kept"] != "no" for row in self.files)


def collect(
    ws: Workspace,
    shell: Recording,
    out: Path,
    question: str = "",
    tell: Tell = lambda _: None,
    *,
    report: Report | None = None,
    diagnose: bool = True,
    machine: Workspace | None = None,
    limit: int = LIMIT,
) -> Bundle:
    """Write a bundle.

    Args:
        ws: the run; its machine is asked only where `ws.live` holds. Its shell is `shell`.
        tell: hears what is being done.
        report: the diagnosis to put in, in place of a new one.
        diagnose: make one where none is given; without, only the ends of large runs are looked at.
        machine: a view of this machine to put in beside the run, where it is not known to be the run's own.
        limit: bytes of everything together, before packing.

    Raises:
        UsageError: `out` exists, or cannot be written.
    """
    refuse_existing(out, "-o")
    files = [f for f in ws.files if not is_own(f.name, ws.head(f))]
    if report is None and diagnose:
        tell("the diagnosis")
        report = diagnosed(ws, question)
    question = question or (report.question if report else "") or QUESTION
    work = Work(ws, Contents(limit - _reserve(files)), tell, files, report)
    work.readable = report is not None or sum(f.size for f in files) <= READ_ALL
    bundle = Bundle(out, report=report)
    work.report()
    asked = ws if ws.live else machine
    if asked is not None:
        bundle.tools = work.machine(asked)
    if ws.live:
        work.contents.add_data("shell.json", shell.answers)
    work.facts()
    bundle.more = work.run()
    name = safe_name(work.contents.cleaning.text(f"{_called(ws)}-bundle"))
    work.contents.texts["incident.yaml"] = incident(name, question, report)
    members = work.contents.settled()
    if (page := work.markdown()) is not None:
        members["report/report.md"] = page
    bundle.files, bundle.redacted = work.contents.files, work.contents.cleaning.count
    made = _made(files)
    members["README.md"] = readme(name, bundle).encode()
    told = manifest(ws, work.contents, bundle, question, made)
    told["members"] = [
        {"name": n, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for n, data in sorted(members.items())
    ]
    members["manifest.json"] = (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")
    write_archive(out, ((f"{name}/{n}", data) for n, data in members.items()), made)
    return bundle


def _reserve(files: list[RunFile]) -> int:
    """Bytes for the manifest and the README."""
    return 16_384 + sum(400 + 3 * len(f.name) for f in files[:10_000])


def _called(ws: Workspace) -> str:
    """The run by its own name, so that the bundle is the same wherever it is written."""
    return next((r.resolve().name for r in ws.roots if r.resolve().name not in ("", "-")), "run")


def _made(files: list[RunFile]) -> int:
    """The time that stands on everything: of the newest file, or what SOURCE_DATE_EPOCH says."""
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    if told.isdecimal():
        return min(int(told), 1 << 33)
    newest = 0
    for file in files:
        try:
            newest = max(newest, int(file.path.stat().st_mtime))
        except OSError:
            continue
    return max(0, min(newest, 1 << 33))
