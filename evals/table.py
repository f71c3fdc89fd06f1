"""Scores gathered into totals, printed as a table for people or as plain data for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from statistics import median
from typing import Any

from . import reliability
from .score import HEALTHY, INSUFFICIENT, NEAR, Score


def summary(scores: list[Score]) -> dict[str, Any]:
    """Totals over a list of incidents; shares are in 0..1 and None where nothing was to be measured."""
    return {
        "incidents": len(scores),
        "answered": sum(not s.error for s in scores),
        "exact": _share(s.exact for s in scores),
        "lenient": _share(s.lenient for s in scores),
        "top3": _share(s.top3 for s in scores),
        "evidence_recall": _ratio(sum(s.marks_cited for s in scores), sum(s.marks for s in scores)),
        "evidence_precision": _ratio(sum(s.support_near for s in scores), sum(s.support for s in scores)),
        "first_rank": _share(s.rank_right for s in scores if s.rank_right is not None),
        "first_step": _share(s.step_right for s in scores if s.step_right is not None),
        "fix": _share(s.fix for s in scores if s.fix is not None),
        "repairs": dict(sum((Counter(s.repairs) for s in scores), Counter())),
        "in_file": sum(s.in_file for s in scores),
        "in_file_patched": sum(s.in_file and bool(s.repairs.get("patch")) for s in scores),
        "lines_cited": round(sum(s.cited for s in scores) / len(scores), 1) if scores else None,
        "invented": sum(len(s.invented) for s in scores),
        "healthy": sum(HEALTHY in s.expected for s in scores),
        "false_alarms": sum(s.false_alarm for s in scores),
        "abstained_rightly": sum(s.said == INSUFFICIENT and INSUFFICIENT in s.expected for s in scores),
        "abstained_wrongly": sum(s.wrongly_silent for s in scores),
        "brier": reliability.brier(scores),
        "ece": reliability.ece(reliability.bins(scores)),
        "model_calls": sum(s.model_calls for s in scores),
        "tokens": sum(s.tokens for s in scores),
        "cost": round(sum(costs), 6) if (costs := [s.cost for s in scores if s.cost is not None]) else None,
        "seconds_median": round(median(s.seconds for s in scores), 3) if scores else None,
        "seconds_max": round(max(s.seconds for s in scores), 3) if scores else None,
    }


def grouped(scores: list[Score], by: Callable[[Score], str]) -> dict[str, list[Score]]:
    """Scores by a property, in the order of its values."""
    groups: dict[str, list[Score]] = {}
    for s in scores:
        groups.setdefault(by(s), []).append(s)
    return dict(sorted(groups.items()))


def as_data(scores: list[Score]) -> dict[str, Any]:
    """What `doctor eval --json` prints."""
    return {
        "schema": "traindoctor.eval/1",
        "total": summary(scores),
        "by_family": {k: summary(v) for k, v in grouped(scores, lambda s: s.family).items()},
        "by_difficulty": {k: summary(v) for k, v in grouped(scores, lambda s: s.difficulty).items()},
        "reliability": reliability.as_data(scores)["bins"],
        "incidents": [asdict(s) for s in scores],
    }


def as_lines(scores: list[Score], misses: bool = True) -> list[str]:
    """The table for people, at most 80 columns but for long names, followed by what went wrong."""
    head = f"{'':<14}{'n':>4}{'exact':>8}{'lenient':>9}{'top-3':>8}{'evidence':>10}{'fix':>7}{'median s':>10}"
    order = {"easy": 0, "medium": 1, "hard": 2}
    lines = [head]
    for name, group in grouped(scores, lambda s: s.family).items():
        lines.append(_row(name, group))
    lines.append("")
    for name, group in sorted(grouped(scores, lambda s: s.difficulty).items(), key=lambda kv: order.get(kv[0], 9)):
        lines.append(_row(name, group))
    lines += ["", _row("all", scores), "", *_counts(summary(scores))]
    if misses:
        lines += list(_misses(scores))
    return lines


def beside(offline: list[Score], model: list[Score]) -> list[str]:
    """Two ways over the same incidents, side by side, followed by where they part."""
    one, other = summary(offline), summary(model)
    names = ("exact", "lenient", "top3", "evidence_recall", "fix", "brier", "invented", "false_alarms",
             "abstained_wrongly", "model_calls", "tokens", "seconds_median", "seconds_max")  # fmt: skip
    lines = [f"{f'{len(offline)} incidents':<20}{'offline':>12}{'model':>12}"]
    lines += [f"{name.replace('_', ' '):<20}{cell(one[name]):>12}{cell(other[name]):>12}" for name in names]
    by_model = sum(s.planner == "llm" for s in model)
    lines += ["", f"the model gave {by_model} of {len(model)} verdicts, the evidence alone the others", ""]
    for a, b in zip(offline, model, strict=True):
        if a.said != b.said or a.exact != b.exact:
            right = " or ".join(a.expected)
            lines.append(f"  {b.id}: offline {a.said} ({a.status}), model {b.said} ({b.status}); expected {right}")
    return lines


def cell(value: Any) -> str:
    """A figure of a table."""
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _row(name: str, scores: list[Score]) -> str:
    t = summary(scores)
    shares = (t["exact"], t["lenient"], t["top3"], t["evidence_recall"], t["fix"])
    cells = [f"{'-' if v is None else f'{v:.2f}':>{w}}" for v, w in zip(shares, (8, 9, 8, 10, 7), strict=True)]
    return f"{name:<14}{t['incidents']:>4}{''.join(cells)}{t['seconds_median']:>10.2f}"


def _counts(t: dict[str, Any]) -> list[str]:
    return [
        f"answered {t['answered']} of {t['incidents']}; lines cited per report {t['lines_cited']}; "
        f"invented citations {t['invented']}",
        f"false alarms {t['false_alarms']} of {t['healthy']} healthy; "
        f"abstained rightly {t['abstained_rightly']}, wrongly {t['abstained_wrongly']}",
        f"repairs: {', '.join(f'{n} {kind}' for kind, n in t['repairs'].items()) or 'none'}; a patch for "
        f"{t['in_file_patched']} of {t['in_file']} causes that live in a file of the run",
        f"lines the verdict stands on within {NEAR} of a deciding one {cell(t['evidence_precision'])}; "
        f"first failure, where labelled: rank {cell(t['first_rank'])}, step {cell(t['first_step'])}",
        f"confidences: Brier score {t['brier']}, calibration error {t['ece']}; slowest {t['seconds_max']} s"
        + (f"; cost {t['cost']}" if t["cost"] is not None else ""),
    ]


def _misses(scores: list[Score]) -> Iterable[str]:
    wrong = [s for s in scores if not s.exact]
    if wrong:
        yield ""
        yield f"Not exact ({len(wrong)}):"
    for s in wrong:
        said = s.error or f"{s.said} ({s.status}, {s.confidence:.2f})"
        mark = "~" if s.lenient else "^" if s.top3 else "x"
        yield f"  {mark} {s.id}: said {said}; expected {' or '.join(s.expected)}"
        if len(s.top) > 1:
            yield f"      then {', '.join(s.top[1:])}"
    if wrong:
        yield "  (~ acceptable, ^ right one among the first three, x neither)"
    for s in scores:
        yield from (f"  ! {s.id}: invented: {text}" for text in s.invented)


def _share(flags: Iterable[bool]) -> float | None:
    flags = list(flags)
    return _ratio(sum(flags), len(flags))


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
