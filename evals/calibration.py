"""Whether stated confidences need a correction: `python -m traindoctor.evals.calibration EVALUATION.json ...`.

Fitted on the incidents of one half of the sources and checked on the other, then the other way round. It is worth
having only where it lowers the Brier score on both unseen halves together by more than chance.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..agent.core.errors import UsageError
from .confidence_fit import (
    RECORDED,
    Correction,
    Stated,
    brier,
    difference,
    ece,
    fit,
    halves,
    kind,
    read,
    reliability,
    sources,
)
from .peers.results import put_into

BEGIN, END = "<!-- calibration -->", "<!-- /calibration -->"


def judged(stated: Sequence[Stated]) -> dict[str, Any]:
    """Both directions of the split, the two unseen halves pooled, and the reliability of what is stated now.

    `gain` is what the correction takes off the measure (positive: better), with its 95 % interval.
    """
    first, second = halves(stated)
    ways = []
    for fitted_on, checked_on in ((first, second), (second, first)):
        correction = fit(fitted_on)
        ways.append(
            {
                "fitted_on": _size(fitted_on),
                "checked_on": _size(checked_on),
                "slope": round(correction.slope, 3),
                "bias": round(correction.bias, 3),
                "brier": _compared(checked_on, correction, brier),
                "ece": _compared(checked_on, correction, ece),
            }
        )
    pooled = _unseen_gain(stated)
    recorded = [s for s in stated if kind(s) == RECORDED]
    alone = _unseen_gain(recorded) if len({s.source for s in recorded}) > 1 else None
    return {
        "schema": "traindoctor.calibration/1",
        "date": datetime.now(UTC).date().isoformat(),
        "verdicts": len(stated),
        "sources": len({s.source for s in stated}),
        "ways": ways,
        "pooled_gain": [round(g, 4) for g in pooled],
        "recorded_gain": [round(g, 4) for g in alone] if alone else None,
        "better": pooled[1] > 0,
        "by_kind": {
            name: [
                len(rows),
                round(sum(s.confidence for s in rows) / len(rows), 3),
                round(sum(s.right for s in rows) / len(rows), 3),
                round(brier(rows, Correction()), 4),
                round(ece(rows, Correction()), 4),
            ]
            for name in sorted({kind(s) for s in stated})
            if (rows := [s for s in stated if kind(s) == name])
        },
        "reliability": {
            f"{b / 10:.1f}-{(b + 1) / 10:.1f}": [n, round(said, 3), round(right, 3)]
            for b, (n, said, right) in reliability(stated, Correction()).items()
        },
    }


def _unseen_gain(stated: Sequence[Stated]) -> tuple[float, float, float]:
    """What corrections fitted on either half take off the Brier score of the other, with the interval."""
    first, second = halves(stated)
    ways = ((fit(first), second), (fit(second), first))
    return difference([(s, corrected(s.confidence)) for corrected, unseen in ways for s in unseen])


def _size(stated: Sequence[Stated]) -> list[int]:
    return [len(stated), len({s.source for s in stated})]


def _compared(stated: Sequence[Stated], correction: Correction, measure: Any) -> dict[str, float]:
    return {
        "as_stated": round(measure(stated, Correction()), 4),
        "corrected": round(measure(stated, correction), 4),
    }


def markdown(data: dict[str, Any]) -> str:
    """The figures as tables, with the decision they lead to."""
    lines = [
        f"Fitted on {data['date']}: {data['verdicts']} verdicts from {data['sources']} sources.",
        "",
        "| fitted on | checked on | slope | bias | Brier: stated, corrected | ECE: stated, corrected |",
        "|---|---|---|---|---|---|",
    ]
    for way in data["ways"]:
        lines.append(
            f"| {way['fitted_on'][0]} of {way['fitted_on'][1]} sources | {way['checked_on'][0]} of "
            f"{way['checked_on'][1]} | {way['slope']} | {way['bias']} "
            f"| {way['brier']['as_stated']}, {way['brier']['corrected']} "
            f"| {way['ece']['as_stated']}, {way['ece']['corrected']} |"
        )
    middle, low, high = data["pooled_gain"]
    decision = "a correction would help" if data["better"] else "no gain beyond chance, so the identity is kept"
    lines += [
        "",
        f"On both unseen halves together the correction lowers the Brier score by {middle} "
        f"(95 % interval {low} to {high}): {decision}.",
        *_of_recorded(data["recorded_gain"]),
        "",
        "| incidents | verdicts | mean stated | share right | Brier | ECE |",
        "|---|---|---|---|---|---|",
        *(
            f"| {k} | {n} | {said:.2f} | {right:.2f} | {b} | {e} |"
            for k, (n, said, right, b, e) in data["by_kind"].items()
        ),
        "",
        "| stated | verdicts | mean stated | share right |",
        "|---|---|---|---|",
        *(f"| {b} | {n} | {said:.2f} | {right:.2f} |" for b, (n, said, right) in data["reliability"].items()),
    ]
    return "\n".join(lines) + "\n"


def _of_recorded(gain: list[float] | None) -> list[str]:
    if gain is None:
        return []
    told = "Fitted and checked in the same way on the recorded failures alone, it lowers it by"
    return [f"{told} {gain[0]} ({gain[1]} to {gain[2]})."]


def main(argv: list[str] | None = None) -> int:
    """Read evaluations, print the figures; with `--into`, put them between the marks of a page."""
    parser = argparse.ArgumentParser(prog="python -m traindoctor.evals.calibration", description=__doc__)
    parser.add_argument("evaluations", nargs="+", type=Path, help="outputs of `doctor eval --json`")
    parser.add_argument("--markdown", action="store_true", help="print tables, not JSON")
    parser.add_argument("--into", type=Path, help="a page whose figures are replaced, between its two marks")
    given = parser.parse_args(argv)
    try:
        data = judged(read(given.evaluations, sources()))
        if given.into:
            page = given.into.read_text(encoding="utf-8")
            given.into.write_text(put_into(page, markdown(data), BEGIN, END), encoding="utf-8")
    except (UsageError, OSError) as e:
        sys.stderr.write(f"{e}\n")
        return 2
    sys.stdout.write(markdown(data) if given.markdown else json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
