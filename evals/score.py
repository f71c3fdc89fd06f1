"""What a report is worth, measured against an incident's labels. Pure: no diagnosis is run here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ..agent.errors import ParseError
from ..agent.reading.files import lines
from ..agent.report import CitedEvidence, Report
from ..agent.types import LINE_CAP
from .case import Case
from .treatment import repairs

HEALTHY = "none.healthy"
INSUFFICIENT = "none.insufficient_evidence"


@dataclass(slots=True)
class Score:
    """One incident's result. `error` says why there is no report."""

    id: str
    family: str
    difficulty: str
    expected: tuple[str, ...]
    said: str | None = None
    status: str = ""
    confidence: float = 0.0
    top: tuple[str, ...] = ()
    exact: bool = False
    lenient: bool = False
    top3: bool = False
    marks: int = 0
    marks_cited: int = 0
    missed_marks: list[str] = field(default_factory=list)
    cited: int = 0
    invented: list[str] = field(default_factory=list)
    false_alarm: bool = False
    wrongly_silent: bool = False
    fix: bool = False
    repairs: dict[str, int] = field(default_factory=dict)  # by what they came out as
    in_file: bool = False
    seconds: float = 0.0
    degraded: list[str] = field(default_factory=list)
    planner: str = "offline"
    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0  # in and out
    error: str = ""


def unanswered(case: Case, error: str, seconds: float = 0.0) -> Score:
    """The score of an incident for which no report was made."""
    return Score(
        case.id,
        case.family,
        case.difficulty,
        case.expected,
        marks=len(case.marks),
        missed_marks=[f"{m.file}: {m.text}" for m in case.marks],
        seconds=seconds,
        error=error,
    )


def score(case: Case, report: Report, seconds: float = 0.0, in_file: bool = False) -> Score:
    """Compare a report with the labels of its incident; see the fields of `Score`.

    Args:
        in_file: whether a repair of the verdict sets something and the run has files that do.
    """
    said = report.root_cause.id
    top = tuple(d.id for d in report.differential[:3]) or tuple(filter(None, [said]))
    seen = list(_cited_lines(case.files, report.evidence))
    missed = [m for m in case.marks if not any(name == m.file and m.text in text for name, text in seen)]
    return Score(
        id=case.id,
        family=case.family,
        difficulty=case.difficulty,
        expected=case.expected,
        said=said,
        status=report.status,
        confidence=report.root_cause.confidence,
        top=top,
        exact=said in case.expected,
        lenient=said in (*case.expected, *case.acceptable),
        top3=any(cause in case.expected for cause in (said, *top)),
        marks=len(case.marks),
        marks_cited=len(case.marks) - len(missed),
        missed_marks=[f"{m.file}: {m.text}" for m in missed],
        cited=sum(e.kind == "line" for e in report.evidence),
        invented=list(invented(case.files, case.shell, report.evidence)),
        false_alarm=HEALTHY in case.expected and not (said or "none.").startswith("none."),
        wrongly_silent=said == INSUFFICIENT and INSUFFICIENT not in case.expected,
        fix=meets(case.fix_terms, report),
        repairs=dict(repairs(report, case.files)),
        in_file=in_file,
        seconds=seconds,
        degraded=report.meta.degraded,
        planner=report.meta.planner,
        model_calls=report.meta.model_calls,
        tool_calls=report.meta.tool_calls,
        tokens=report.meta.tokens.in_ + report.meta.tokens.out,
    )


def meets(terms: tuple[tuple[str, ...], ...], report: Report) -> bool:
    """Whether fixes, patches and next steps name at least one word of every list."""
    said = "\n".join(
        [
            *("\n".join([f.title, f.why, f.verify, *f.commands, *(h.text for h in f.by_hand)]) for f in report.fixes),
            *(p.diff for p in report.patches),
            *report.next_steps,
        ]
    ).casefold()
    return all(any(word.casefold() in said for word in words) for words in terms)


def invented(files: Path, shell: Path, evidence: list[CitedEvidence]) -> Iterator[str]:
    """Citations that do not stand: no such file, no such line, another text, a command that never ran."""
    recorded = {tuple(e["argv"]) for e in json.loads(shell.read_text())} if shell.is_file() else set()
    for e in evidence:
        where = f"{e.id} {e.file}:{e.line}"
        if e.kind == "line" and (e.file is None or e.line is None):
            yield f"{e.id} cites a line without saying which"
        elif e.kind in ("line", "binary") and not _inside(files, e.file):
            yield f"{where}: no such file"
        elif e.kind == "line":
            found = _line(files / str(e.file), e.line or 0)
            if found is None:
                yield f"{where}: no such line"
            elif not _same(found, e):
                yield f"{where}: the line reads {found[:80]!r}, not {e.text[:80]!r}"
        elif e.kind == "command" and tuple(e.argv or ()) not in recorded:
            yield f"{e.id} {' '.join(e.argv or ())}: that command was not recorded"


def _same(found: str, e: CitedEvidence) -> bool:
    shown = e.text.rstrip("\r\n")
    if e.cut or len(found.encode()) > LINE_CAP:
        return found.startswith(shown.rstrip("\ufffd"))
    return found.rstrip("\r\n") == shown


def _inside(files: Path, name: str | None) -> bool:
    path = files / (name or "")
    return bool(name) and path.is_file() and path.resolve().is_relative_to(files.resolve())


def _line(path: Path, number: int) -> str | None:
    """Line `number` (from 1, counting newlines) of a file, decoded with replacement."""
    try:
        found = next(islice(lines(path), number - 1, number), None) if number > 0 else None
    except ParseError:
        return None
    return found.text if found else None


def _cited_lines(files: Path, evidence: list[CitedEvidence]) -> Iterator[tuple[str, str]]:
    """File and whole text of every line the evidence cites; what does not exist cites nothing."""
    for e in evidence:
        if e.kind == "line" and e.file and e.line and _inside(files, e.file):
            text = _line(files / e.file, e.line)
            if text is not None:
                yield e.file, text
