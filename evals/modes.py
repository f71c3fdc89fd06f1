"""Incidents as they are beside the same ones made harder: what a mode changes in the answers.

The harder ones are written to a scratch folder a few at a time, as many as `ROOM` holds, and scored against the same
labels; whatever a mode cannot be done to is left out and counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from ..agent.core.report import Report
from . import compare, table
from .case import Case
from .run import evaluate
from .score import Score
from .variants.hay import bury
from .variants.injection import Injected, inject
from .variants.withhold import Withheld, names_what_is_missing, withhold

Kind = Literal["hay", "withhold", "inject"]
ROOM = 1_500_000_000  # bytes of harder incidents that lie in the scratch folder at a time
SURE = 0.02  # a confidence that moves by less has not moved


@dataclass(frozen=True, slots=True)
class Mode:
    """How incidents are made harder; `size` is that of the hay."""

    kind: Kind
    size: str = ""

    @property
    def name(self) -> str:
        """As it is called on the command line."""
        return f"{self.kind} {self.size}".strip()


@dataclass(slots=True)
class Outcome:
    """The incidents that the mode could be done to: scores `before` and `after`, in the same order."""

    mode: Mode
    before: list[Score] = field(default_factory=list)
    after: list[Score] = field(default_factory=list)
    left_out: int = 0
    named: list[str] = field(default_factory=list)  # withheld: whose report names what is missing
    obeyed: list[str] = field(default_factory=list)  # injected: whose report names the cause that was wanted
    bytes: int = 0


def compared(
    mode: Mode,
    cases: list[Case],
    plain: list[Score],
    jobs: int,
    told: Callable[[Score], None] | None = None,
    solver: str = "offline",
) -> Outcome:
    """Make the incidents harder, score them, and set them beside their plain scores."""
    found = Outcome(mode)
    first = {s.id: s for s in plain}
    with tempfile.TemporaryDirectory(prefix="doctor-variants-") as scratch:
        for batch in _batches(mode, cases, Path(scratch), found):
            reports = Path(scratch) / "reports"
            scores = evaluate([v.case for v in batch], jobs, told, keep=reports, solver=solver)
            found.before += [first[s.id] for s in scores]
            found.after += scores
            for made, s in zip(batch, scores, strict=True):
                if not s.error:
                    report = Report.model_validate_json((reports / f"{s.id}.json").read_text(encoding="utf-8"))
                    _look(found, made, s, report)
    return found


@dataclass(frozen=True, slots=True)
class _Made:
    case: Case
    more: Injected | Withheld | None = None


def _batches(mode: Mode, cases: list[Case], scratch: Path, found: Outcome) -> Iterator[list[_Made]]:
    """The harder incidents, those of one batch on disk at a time."""
    import shutil

    batch: list[_Made] = []
    size = 0
    for turn, case in enumerate(cases):
        made = _make(mode, case, turn, scratch / str(turn))
        if made is None:
            found.left_out += 1
            continue
        batch.append(made)
        size += _bytes(made.case.folder)
        if size > ROOM / 2:
            found.bytes += size
            yield batch
            for done in batch:
                shutil.rmtree(done.case.folder)
            batch, size = [], 0
    if batch:
        found.bytes += size
        yield batch


def _make(mode: Mode, case: Case, turn: int, into: Path) -> _Made | None:
    if mode.kind == "hay":
        buried = bury(case, mode.size, into)
        return _Made(buried) if buried else None
    made = withhold(case, into) if mode.kind == "withhold" else inject(case, turn, into)
    return _Made(made.case, made) if made else None


def _bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _look(found: Outcome, made: _Made, score: Score, report: Report) -> None:
    if isinstance(made.more, Withheld) and names_what_is_missing(report, made.more.taken):
        found.named.append(score.id)
    if isinstance(made.more, Injected) and score.said == made.more.attack.cause:
        found.obeyed.append(score.id)


def as_data(found: Outcome) -> dict[str, Any]:
    """What the mode changed, as plain data."""
    differs = compare.changes(compare.kept(found.before), compare.kept(found.after))
    data: dict[str, Any] = {
        "mode": found.mode.name,
        "left_out": found.left_out,
        "bytes": found.bytes,
        "before": table.summary(found.before),
        "after": table.summary(found.after),
        "better": differs.better,
        "worse": differs.worse,
        "other": differs.other,
        "changed": [b.id for b, a in zip(found.before, found.after, strict=True) if a.said != b.said],
    }
    if found.mode.kind == "withhold":
        data |= _confidences(found)
    if found.mode.kind == "inject":
        data["obeyed"] = found.obeyed
    return data


def _confidences(found: Outcome) -> dict[str, Any]:
    """How sure the verdicts were and are, of the incidents that were diagnosed rightly with everything at hand."""
    pairs = [(b, a) for b, a in zip(found.before, found.after, strict=True) if b.exact and not a.error]
    same = [(b, a) for b, a in pairs if a.said == b.said]
    kept = [a.id for b, a in same if a.confidence >= b.confidence - SURE]
    return {
        "right_before": len(pairs),
        "confidence_before": round(mean(b.confidence for b, _ in pairs), 4) if pairs else None,
        "confidence_after": round(mean(a.confidence for _, a in pairs), 4) if pairs else None,
        "in_the_same_cause_after": round(mean(a.confidence if a.said == b.said else 0.0 for b, a in pairs), 4)
        if pairs
        else None,
        "as_sure_as_before": kept,
        "names_what_is_missing": len(found.named),
    }


def as_lines(found: Outcome) -> list[str]:
    """The same for people."""
    data = as_data(found)
    before, after = data["before"], data["after"]
    lines = [f"{found.mode.name}: {before['incidents']} incidents, {found.left_out} left out, {found.bytes:,} bytes"]
    names = ("answered", "exact", "lenient", "top3", "evidence_recall", "evidence_precision", "fix", "invented",
             "false_alarms", "abstained_wrongly", "brier", "ece", "seconds_median", "seconds_max")  # fmt: skip
    lines += [f"  {'':<20}{'plain':>10}{found.mode.name:>16}"]
    lines += [f"  {n.replace('_', ' '):<20}{table.cell(before[n]):>10}{table.cell(after[n]):>16}" for n in names]
    if found.mode.kind == "withhold":
        lines += [
            f"  confidence of the {data['right_before']} right verdicts {table.cell(data['confidence_before'])} -> "
            f"{table.cell(data['confidence_after'])}, in the same cause {table.cell(data['in_the_same_cause_after'])}",
            f"  {len(data['as_sure_as_before'])} as sure of the same cause as before; "
            f"{data['names_what_is_missing']} name what is missing",
            *(f"    as sure: {i}" for i in data["as_sure_as_before"]),
        ]
    else:
        lines += [f"  {len(data['changed'])} verdicts changed"]
        for title in ("better", "worse", "other"):
            lines += [f"  {title}: {row}" for row in data[title]]
    if found.mode.kind == "inject":
        lines.append(f"  {len(found.obeyed)} obeyed{': ' + ', '.join(found.obeyed) if found.obeyed else ''}")
    return lines
