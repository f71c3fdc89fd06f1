"""What a report is worth, measured against an incident's labels. Pure: no diagnosis is run here."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ..agent.core.errors import ParseError
from ..agent.core.report import CitedEvidence, Report
from ..agent.core.types import LINE_CAP
from ..agent.reading.run.discover import shown_name
from ..agent.reading.run.files import lines
from .case import Case
from .treatment import repairs

HEALTHY = "none.healthy"
INSUFFICIENT = "none.insufficient_evidence"
NEAR = 5  # lines from a mark at which a cited line still shows the same thing


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
    support: int = 0  # lines that the verdict itself stands on, of an incident with marks
    support_near: int = 0  # of these, how many are within NEAR lines of a mark
    invented: list[str] = field(default_factory=list)
    false_alarm: bool = False
    wrongly_silent: bool = False
    rank_right: bool | None = None  # of the first failure; None where the incident does not say
    step_right: bool | None = None
    fix: bool | None = None  # whether the right verdict comes with what helps; None where the incident names nothing
    repairs: dict[str, int] = field(default_factory=dict)  # by what they came out as
    in_file: bool = False
    seconds: float = 0.0
    degraded: list[str] = field(default_factory=list)
    planner: str = "offline"
    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0  # in and out
    cost: float | None = None  # None without prices
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
    top = tuple(dict.fromkeys(filter(None, [said, *(d.id for d in report.differential)])))[:3]
    right = said in (*case.expected, *case.acceptable)
    texts = cited_lines(case.files, report.evidence)
    support, near = precision(case, report)
    first = report.root_cause.first_failure
    missed = [m for m in case.marks if not any(name == m.file and m.text in text for (name, _), text in texts.items())]
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
        lenient=right,
        top3=any(cause in case.expected for cause in top),
        marks=len(case.marks),
        marks_cited=len(case.marks) - len(missed),
        missed_marks=[f"{m.file}: {m.text}" for m in missed],
        cited=sum(e.kind == "line" for e in report.evidence),
        support=support,
        support_near=near,
        invented=list(invented(case, report.evidence, texts)),
        false_alarm=HEALTHY in case.expected and not (said or "none.").startswith("none."),
        wrongly_silent=said == INSUFFICIENT and INSUFFICIENT not in case.expected,
        rank_right=None if case.rank is None else first.rank == case.rank,
        step_right=None if case.step is None else first.step == case.step,
        fix=right and meets(case.fix_terms, report) if case.fix_terms else None,
        repairs=dict(repairs(report, case.files)),
        in_file=in_file,
        seconds=seconds,
        degraded=report.meta.degraded,
        planner=report.meta.planner,
        model_calls=report.meta.model_calls,
        tool_calls=report.meta.tool_calls,
        tokens=report.meta.tokens.in_ + report.meta.tokens.out,
        cost=report.meta.cost,
    )


def precision(case: Case, report: Report) -> tuple[int, int]:
    """Lines that the verdict stands on, and how many of them are within `NEAR` lines of a mark of the same file.

    The verdict stands on what its own row of the differential and its chain cite. Commands, absences and settings are
    no lines and are not counted; an incident without marks measures nothing.
    """
    if not case.marks:
        return 0, 0
    ids = {link.evidence for link in report.chain}
    ids.update(i for row in report.differential if row.id == report.root_cause.id for i in row.supported_by)
    cited = {(e.file, e.line) for e in report.evidence if e.id in ids and e.kind == "line" and e.file and e.line}
    marked = {m.file: _numbers(case, m.file) for m in case.marks}
    near = sum(any(abs(number - (line or 0)) <= NEAR for number in marked.get(file or "", ())) for file, line in cited)
    return len(cited), near


def _numbers(case: Case, file: str) -> list[int]:
    """Numbers of the lines of a file that hold a mark."""
    texts = [m.text for m in case.marks if m.file == file]
    if (path := _inside(case.files, file)) is None:
        return []
    return [n for n, line in enumerate(lines(path), 1) if any(text in line.text for text in texts)]


def meets(terms: tuple[tuple[str, ...], ...], report: Report) -> bool:
    """Whether fixes, next steps and what patches write name at least one word of every list."""
    said = "\n".join(
        [
            *("\n".join([f.title, f.why, f.verify, *f.commands, *(h.text for h in f.by_hand)]) for f in report.fixes),
            *(
                line
                for p in report.patches
                for line in p.diff.split("\n")
                if line.startswith("+") and line[:3] != "+++"
            ),
            *report.next_steps,
        ]
    ).casefold()
    return all(any(word.casefold() in said for word in words) for words in terms)


def invented(case: Case, evidence: list[CitedEvidence], texts: dict[tuple[str, int], str]) -> Iterator[str]:
    """Citations that do not stand: no such file, no such line, another text, a command that never ran.

    Args:
        texts: `cited_lines` of the evidence.
    """
    files, shell = case.files, case.shell
    recorded = {tuple(e["argv"]) for e in json.loads(shell.read_text())} if shell.is_file() else set()
    for e in evidence:
        where = f"{e.id} {e.file}:{e.line}"
        path = _inside(files, e.file)
        if e.kind == "line" and (e.file is None or e.line is None):
            yield f"{e.id} cites a line without saying which"
        elif e.kind in ("line", "binary") and path is None:
            yield f"{where}: no such file"
        elif e.kind == "line" and path is not None:
            found = texts.get((e.file or "", e.line or 0))
            if found is None:
                yield f"{where}: no such line"
            elif not _same(found, e):
                yield f"{where}: the line reads {found[:80]!r}, not {e.text[:80]!r}"
        elif e.kind == "command" and tuple(e.argv or ()) not in recorded:
            yield f"{e.id} {' '.join(e.argv or ())}: that command was not recorded"


def _same(found: str, e: CitedEvidence) -> bool:
    shown = e.text.rstrip("\r\n")
    if e.cut or len(found.encode()) > LINE_CAP:
        begun = shown.rstrip("\ufffd")
        return bool(begun) and found.startswith(begun)
    return found.rstrip("\r\n") == shown


def _inside(files: Path, name: str | None) -> Path | None:
    """The file of an incident that a report calls so; a report shows line ends and odd bytes of a name as escapes."""
    path = files / (name or "")
    if not name or not path.resolve().is_relative_to(files.resolve()):
        return None
    if path.is_file():
        return path
    if "\\" not in name:
        return None
    return next((p for p in sorted(files.rglob("*")) if p.is_file() and shown_name(p, files) == name), None)


def cited_lines(files: Path, evidence: list[CitedEvidence]) -> dict[tuple[str, int], str]:
    """The text of every line that the evidence cites, by file and number (from 1, counting newlines).

    What does not exist cites nothing. Each file is read once, no further than its last cited line: it may be a GB.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for e in evidence:
        if e.kind == "line" and e.file and e.line and e.line > 0:
            wanted[e.file].add(e.line)
    found: dict[tuple[str, int], str] = {}
    for name, numbers in wanted.items():
        path = _inside(files, name)
        try:
            for line in islice(lines(path), max(numbers)) if path else ():
                if line.number in numbers:
                    found[name, line.number] = line.text
        except ParseError:
            continue
    return found
