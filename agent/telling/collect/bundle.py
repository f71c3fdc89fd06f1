"""A bundle from beginning to end: diagnosed, filled, cleaned, listed, written."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...core.errors import UsageError
from ...safety.fences import one_line
from .bundle_parts import Contents, safe_name
from .bundle_work import Tell, Work, is_own
from .report_copy import QUESTION, diagnosed

if TYPE_CHECKING:
    from ...core.report import Report
    from ...core.shell import Recording
    from ...reading.run.files import RunFile
    from ...reading.run.workspace import Workspace


# ----------
# What a bundle says of itself: the manifest, the page for people, and the incident that replays it.


SCHEMA = "traindoctor.bundle/2"
SKIPPED = 1000


def manifest(ws: Workspace, contents: Contents, bundle: Bundle, question: str, made: int) -> dict[str, Any]:
    """Plain data without secrets; `members` is put in by whoever knows their bytes."""
    verdict = bundle.report and {"cause": bundle.report.root_cause.id, "status": bundle.report.status}
    return contents.cleaning.data({
        "schema": SCHEMA, "doctor": version("traindoctor"), "newest_file": _iso(made), "question": question,
        "report": verdict, "machine_asked": bool(bundle.tools), "machine_is_the_runs": ws.live,
        "redacted": bundle.redacted, "secrets": contents.cleaning.kinds, "tools": bundle.tools,
        "files": contents.files, "more_files": bundle.more, "left_out": contents.out,
        "not_read": [{"file": n, "why": w} for n, w in sorted(ws.skipped)[:SKIPPED]],
    })  # fmt: skip


def incident(name: str, question: str, report: Report | None) -> str:
    """`incident.yaml`: the verdict stands as what is expected, so that a replay shows whether it comes out again."""
    cause = report.root_cause.id if report and report.root_cause.id else "none.insufficient_evidence"
    return (
        "# `doctor eval` of this folder compares with `expected`: what doctor found where the run lies.\n"
        "# Write what it really was there, once that is known.\n"
        f"id: {json.dumps(name, ensure_ascii=False)}\nfamily: unlabelled\ndifficulty: unlabelled\n"
        f"question: {json.dumps(question, ensure_ascii=False)}\nexpected: [{cause}]\n"
    )


def readme(name: str, bundle: Bundle) -> str:
    """How to read a bundle and how to replay it, for whoever gets it."""
    count = {kept: sum(r["kept"] == kept for r in bundle.files) for kept in ("whole", "part", "converted", "no")}
    report = bundle.report
    verdict = f"{report.root_cause.title or report.root_cause.id} ({report.status})" if report else "not diagnosed"
    return f"""# {one_line(name)}

A training run, collected by `doctor collect` ({SCHEMA}). Nothing in it is to be executed.

- Asked: see `incident.yaml`. Verdict: {one_line(verdict)}.
- Files of the run: {count["whole"]} whole, {count["part"]} in part, {count["converted"]} as text that stands for them,
  {count["no"] + bundle.more} left out. `manifest.json` says which, why, and the sha256 of every member.
- Secrets were taken out and replaced by placeholders such as `<SECRET:hf:1>`; the same number is the same secret.
  Host names, user names and paths are still in it.

Where to begin:

1. `report/report.md`: the diagnosis, with evidence, what was ruled out, repairs and patches.
2. `traces.txt`: every distinct error trace, the first failure first.
3. `files/`: the run's own files under their own names. `[N bytes left out]` on a line of its own marks a cut.
4. `settings.json`, `environment.json`, `checkpoints.json`: what was set, versions, saves, with their lines.
5. `series/`: curves as tables, thinned; `tools/` and `machine/`: what the machine said when it was collected.

To ask further questions, or to replay the diagnosis:

    tar xzf BUNDLE.tar.gz
    doctor ask "your question" --run {name}/files
    doctor eval {name}
"""


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


# ----------
# Files that are whole or not there, overwrite nothing, and have the same bytes for the same content.


def write_archive(out: Path, members: Iterable[tuple[str, bytes]], made: int) -> None:
    """A gzipped tar of these members, in the order of their names.

    Args:
        made: seconds since the epoch that every member carries.

    Raises:
        UsageError: `out` exists, or cannot be written.
    """

    def fill(stream: IO[bytes]) -> None:
        with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for name, data in sorted(members):
                member = tarfile.TarInfo(name)
                member.size, member.mode, member.mtime = len(data), 0o644, made
                tar.addfile(member, io.BytesIO(data))

    publish(out, fill)


def write_text(out: Path, text: str) -> None:
    """A text file.

    Raises:
        UsageError: `out` exists, or cannot be written.
    """

    def fill(stream: IO[bytes]) -> None:
        stream.write(text.encode("utf-8", "replace"))

    publish(out, fill)


def refuse_existing(out: Path, option: str) -> None:
    """Raise UsageError before any work where the file could not be written at the end."""
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} exists", f"name another file with {option}")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", f"name another place with {option}")


def publish(out: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """Write beside the place and link it there at the end, never over another file."""
    try:
        handle, part = tempfile.mkstemp(prefix=".doctor-bundle-", dir=out.parent)
    except OSError as e:
        raise UsageError(f"cannot write to {out.parent}: {e.strerror}", "name another place") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        _link(Path(part), out)
    except OSError as e:
        raise UsageError(f"cannot write {out}: {e.strerror}", "is the disk full?") from None
    finally:
        Path(part).unlink(missing_ok=True)


def _link(part: Path, out: Path) -> None:
    try:
        os.link(part, out)
    except FileExistsError:
        raise UsageError(f"{out} exists", "name another file") from None
    except OSError:  # a file system without hard links: the name is taken first, then filled at once
        out.open("xb").close()
        part.replace(out)


# ----------

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
    files = [f for f in ws.everything if not is_own(f.name, ws.head(f))]
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
