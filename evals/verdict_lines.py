"""One line for each incident: verdict, status, probability and the evidence with its places, compared by equality.

Where code is moved and nothing may change, the kept lines (`verdict_lines.txt`) say so. Ids of evidence, times and
versions are left out, since they change by themselves; probabilities stand with two digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..agent.core.report import CitedEvidence, Report

KEPT = Path(__file__).with_name("verdict_lines.txt")
_VERSION = re.compile(r"\d+(?:\.\d+){1,3}(?:[+.-]\w+)*")


def verdict_line(ident: str, report: Report) -> str:
    """What a report comes to: `id | cause status probability | key file:line, key member, ...`."""
    cause = report.root_cause.id if report.root_cause else None
    sure = report.root_cause.confidence if report.root_cause else 0.0
    places = sorted({_place(evidence) for evidence in report.evidence})
    return f"{ident} | {cause} {report.status} {sure:.2f} | {', '.join(places)}"


def _place(evidence: CitedEvidence) -> str:
    where = f"{evidence.file}:{evidence.line}" if evidence.line else evidence.file or evidence.kind
    return f"{evidence.key} {_VERSION.sub('V', where)}"


def kept_lines() -> dict[str, str]:
    """The lines that are kept, by incident."""
    return {line.partition(" | ")[0]: line for line in KEPT.read_text(encoding="utf-8").splitlines() if line}


def keep(lines: Iterable[str]) -> None:
    """Write the lines anew, in the order of their incidents."""
    KEPT.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
