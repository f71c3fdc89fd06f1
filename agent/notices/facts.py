"""What a notice is made of, as it stands in the report: quick to take, and not yet fit to leave this machine.

`wording.py` makes the notice of it in the process that sends, since loading the patterns of secrets takes longer than a
caller has.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from ..report import Report

LONGEST = 20_000  # characters of one text
_KEYS = ("kind", "cause", "key", "title", "text", "message", "rank", "host", "step", "time", "file", "line")


def of_report(report: Report, run: Path) -> dict[str, Any]:
    """A verdict."""
    from ..outline import outline, place

    said, root, again = outline(report), report.root_cause, report.restart
    first, folder = root.first_failure, run.absolute()
    by_id = {e.id: e for e in report.evidence}
    # The two lines that bear the verdict out: what the summary cites comes first.
    order = [i for s in report.summary for i in s.cites] + list(by_id)
    lines = [by_id[i] for i in dict.fromkeys(order) if i in by_id and by_id[i].file and by_id[i].text][:2]
    written = any((folder / f"doctor-report.{form}").exists() for form in ("html", "md"))
    return {
        "verdict": _text(said.verdict), "certainty": _text(said.certainty), "title": _text(said.title or root.title),
        "status": report.status, "cause": root.id, "confidence": round(root.confidence, 3),
        "first": _text(said.first_failure),
        "first_failure": {
            "rank": first.rank, "host": _text(first.host or ""), "step": first.step, "time": _text(first.time or "")
        },
        "evidence": [[_text(place(e)), _text(e.text or "")] for e in lines],
        "fix": _text(report.fixes[0].named) if report.fixes else "",
        "restart": {
            "advice": again.advice, "exclude": [_text(n) for n in again.exclude[:8]],
            "from": _text(again.from_checkpoint or ""),
        } if again else None,
        "run": str(folder), "written": written, "session": report.session, "link": link(folder),
    }  # fmt: skip


def of_alarm(alarm: dict[str, Any], run: str) -> dict[str, Any]:
    """An alarm of a live run.

    Args:
        alarm: what is raised. Told are `kind` or `cause` or `key`, `title` or `text` or `message`, rank, step, file
            and line, where it has them.
    """
    told = {
        k: alarm[k] if isinstance(alarm[k], int) else _text(str(alarm[k])) for k in _KEYS if alarm.get(k) is not None
    }
    return {"alarm": told, "run": run}


def link(run: Path) -> str:
    """Where people read the report: `DOCTOR_REPORT_URL` (config: `report_url`) and the absolute path of its page."""
    prefix = os.environ.get("DOCTOR_REPORT_URL", "").rstrip("/")
    if not re.fullmatch(r"https?://\S{1,300}", prefix):
        return ""
    return f"{prefix}{quote(os.fsencode(run))}/doctor-report.html"


def _text(text: str) -> str:
    """A text that is no longer than can be gone through; what is cut off ends in a space of its own."""
    return text if len(text) <= LONGEST else text[: LONGEST + 1]
