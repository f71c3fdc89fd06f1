"""What a bundle says of itself: the manifest, the page for people, and the incident that replays it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ..sanitize import one_line

if TYPE_CHECKING:
    from ..report import Report
    from ..workspace import Workspace
    from .bundle import Bundle
    from .contents import Contents

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
