"""What a notice says: a verdict in a few plain lines, without secrets, and inert in every channel it may reach.

Quoted lines come from logs, and channels make more of a text than a terminal does: they page people who are
mentioned, and fetch what is linked. Both are broken up in whatever a run wrote.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from ...safety.fences import one_line
from ...safety.redact import Redactor

if TYPE_CHECKING:
    from ...core.report import Report


# ----------
# What a notice is made of, as it stands in the report: quick to take, and not yet fit to leave this machine.
#
# The notice is made of it in the process that sends, since loading the patterns of secrets takes longer than a
# caller has.

LONGEST = 20_000  # characters of one text
_KEYS = ("kind", "cause", "key", "title", "text", "message", "rank", "host", "step", "time", "file", "line")


def of_report(report: Report, run: Path) -> dict[str, Any]:
    """A verdict."""
    from ...telling.outline import outline, place

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


# ----------

SUBJECT, BODY = 80, 1_160  # characters; a line on how often it came still fits into 1,200
QUOTE = 160
PATH = 200
_LINK = 400
_EDGE = 2_000  # characters before a cut: what stands there may be half a secret
_MENTION = re.compile(r"@(?=\w)|<(?=[!@#])|\]\((?=\S)")
_ORDINAL = {2: "nd"}
_ADVICE = {
    "restart": "Starting again helps",
    "restart_excluding": "Start again without",
    "fix_first": "Repair it before starting again",
    "stop": "Do not start again",
}


def worded(facts: dict[str, Any], again: str = "") -> dict[str, Any]:
    """Facts (`facts.py`) as a notice: `subject`, `text`, and `report`, the short form that webhooks get.

    Args:
        again: how often it came, in words of `counted`.
    """
    notice = _of_alarm(facts) if "alarm" in facts else _of_report(facts)
    if again:
        notice["subject"] = _cut(f"{again}: {notice['subject']}", SUBJECT)
        notice["text"] = f"({again})\n{notice['text']}"
    return notice


def counted(count: int, since: str) -> str:
    """How often an event came, where it is not the first time."""
    return f"again, {count}{_ORDINAL.get(count, 'th')} time since {since}" if count > 1 else ""


def _of_report(facts: dict[str, Any]) -> dict[str, Any]:
    clean, run = _Clean(), Path(facts["run"])
    verdict, certainty, title = clean(facts["verdict"], 50), clean(facts["certainty"], 60), clean(facts["title"], 120)
    text = [_cut(f"{verdict}: {title} ({certainty})", 200)]
    if facts["first"]:
        text.append(f"First failure: {clean(facts['first'], 160)}")
    evidence = [(clean(place, 100), clean(line, QUOTE)) for place, line in facts["evidence"]]
    text += [f"{place}: {line}" for place, line in evidence]
    fix = clean(facts["fix"], 200)
    text += [f"To do: {fix}"] if fix else []
    text += _restart(facts["restart"], clean)
    where = str(run / "doctor-report.md") if facts["written"] else str(run)
    text.append(f"{'Report' if facts['written'] else 'Run'}: {clean(where, PATH)}")
    link = facts["link"] if clean.is_clean(unquote(facts["link"])) and len(facts["link"]) <= _LINK else ""
    first = facts["first_failure"]
    short = {
        "status": facts["status"],
        "cause": facts["cause"],
        "title": title,
        "confidence": facts["confidence"],
        "first_failure": {
            "rank": first["rank"], "host": clean(first["host"], 100) or None, "step": first["step"],
            "time": clean(first["time"], 60) or None,
        },
        "evidence": [{"place": place, "text": line} for place, line in evidence],
        "fix": fix or None,
        "restart": facts["restart"]["advice"] if facts["restart"] else None,
        "run": clean(str(run), PATH),
        "session": facts["session"],
        "link": link or None,
    }  # fmt: skip
    subject = _cut(f"doctor: {verdict} ({certainty}) in {clean(run.name or '/', 40)}", SUBJECT)
    return {"subject": subject, "text": _whole(text, link), "report": short}


def _of_alarm(facts: dict[str, Any]) -> dict[str, Any]:
    alarm, run, clean = facts["alarm"], facts["run"], _Clean()
    kind = next((clean(str(alarm[k]), 50) for k in ("kind", "cause", "key") if alarm.get(k)), "alarm")
    what = next((clean(str(alarm[k]), 400) for k in ("title", "text", "message") if alarm.get(k)), kind)
    at = ", ".join(
        f"{k} {clean(str(alarm[k]), 60)}" for k in ("rank", "host", "step", "time") if alarm.get(k) is not None
    )
    place = f"{alarm['file']}:{alarm['line']}" if alarm.get("file") and alarm.get("line") else alarm.get("file") or ""
    text = [what, at, clean(str(place), PATH), f"Run: {clean(run, PATH)}"]
    short = {
        "alarm": kind,
        "title": what,
        "at": at or None,
        "place": clean(str(place), PATH) or None,
        "run": clean(run, PATH),
    }
    subject = _cut(f"doctor: {kind} in {clean(Path(run).name or run, 40)}", SUBJECT)
    return {"subject": subject, "text": _whole([t for t in text if t], ""), "report": short}


class _Clean:
    """Text of a run as it may leave: secrets out (the same one keeps its number), on one line, inert, cut."""

    def __init__(self) -> None:
        self._redactor = Redactor()

    def __call__(self, text: str, longest: int) -> str:
        plain = self._redactor.redact(text)
        if len(text) > LONGEST:  # it was cut somewhere, perhaps within a secret
            plain = plain[:-_EDGE]
        safe = one_line(plain.encode("utf-8", "backslashreplace").decode())
        safe = _MENTION.sub(lambda m: f"{m[0]} ", safe.replace("://", ": //"))
        return _cut(" ".join(safe.split()), longest)

    def is_clean(self, text: str) -> bool:
        """Whether a text holds no secret: one that cannot be said in part."""
        return self._redactor.redact(text) == text


def _restart(again: dict[str, Any] | None, clean: _Clean) -> list[str]:
    if again is None:
        return []
    line = _ADVICE[again["advice"]]
    if again["advice"] == "restart_excluding":
        line += f" {clean(', '.join(again['exclude']), 100)}"
    if again["from"] and again["advice"] != "stop":
        line += f", from {clean(again['from'], 120)}"
    return [f"{line}."]


def _whole(lines: list[str], link: str) -> str:
    """The lines and our own link, which is never cut."""
    text = _cut("\n".join(lines), BODY - len(link) - 1 if link else BODY)
    return f"{text}\n{link}" if link else text


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
