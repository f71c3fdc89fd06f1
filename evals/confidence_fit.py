"""A correction of stated confidences with two numbers, `logit(p') = slope * logit(p) + bias`, and how it is judged.

A source (a thread's project, a table of recorded failures, the sound runs of one framework) is never on both sides of a
split, and intervals are from resampling whole sources: incidents of one source resemble each other.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..agent.core.errors import UsageError

BINS = 10
SMALLEST = 1e-4  # confidences are kept this far from 0 and 1
STEPS = 50  # of Newton's method, which needs about six
RIDGE = 1.0  # pull towards the identity, in pseudo-observations; keeps a separable half from running away
RESAMPLED = 1000
RECORDED = "recorded failures"
EVALS = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Stated:
    """One verdict: what it was said with, whether it was right, and where its incident comes from."""

    confidence: float
    right: bool
    source: str


@dataclass(frozen=True, slots=True)
class Correction:
    """Two numbers on the log odds; the identity by default."""

    slope: float = 1.0
    bias: float = 0.0

    def __call__(self, confidence: float) -> float:
        if self == Correction():
            return confidence
        return _sigmoid(self.slope * _logit(confidence) + self.bias)


def kind(stated: Stated) -> str:
    """Of which sort its incident is; the public ones and the sound runs were there while doctor was developed."""
    if stated.source.startswith("recorders/"):
        return RECORDED
    return "sound runs" if stated.source.startswith("recorded: ") else "public"


def read(paths: Iterable[Path], sources: Mapping[str, str]) -> list[Stated]:
    """The verdicts of evaluations; an incident of an unknown source is one of its own.

    Raises:
        UsageError: a file is not what `doctor eval --json` prints.
    """
    found: dict[str, Stated] = {}
    for path in paths:
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))["incidents"]
            for r in rows:
                if not r["error"]:
                    source = sources.get(r["id"].partition(":")[0], r["id"].partition(":")[0])
                    found[r["id"]] = Stated(float(r["confidence"]), bool(r["exact"]), source)
        except (OSError, ValueError, KeyError, TypeError):
            raise UsageError(f"{path} is no evaluation", "make one with `doctor eval FOLDER --json`") from None
    return list(found.values())


def sources(evals: Path = EVALS) -> dict[str, str]:
    """Where each incident comes from: a thread's project, a sound run's framework, the table of a recorded failure."""
    import yaml

    known: dict[str, str] = {}
    for name in ("incidents", "threads"):
        for path in evals.glob(f"{name}/*/incident.yaml"):
            source = str(yaml.safe_load(path.read_text(encoding="utf-8")).get("source") or path.parent.name)
            known[path.parent.name] = source.partition("#")[0]
    for path in evals.glob("healthy/*/incident.yaml"):
        source = str(yaml.safe_load(path.read_text(encoding="utf-8")).get("source") or path.parent.name)
        known[path.parent.name] = source.partition("(")[0].strip()
    for table in evals.glob("recorders/*/runs.yaml"):
        for i in yaml.safe_load(table.read_text(encoding="utf-8")) or {}:
            known[i] = f"recorders/{table.parent.name}"
    return known


def halves(stated: Sequence[Stated]) -> tuple[list[Stated], list[Stated]]:
    """Two halves of about the same size without a source in common; the same ones each time."""
    by_source: dict[str, list[Stated]] = {}
    for s in stated:
        by_source.setdefault(s.source, []).append(s)
    first: list[Stated] = []
    second: list[Stated] = []
    for source in sorted(by_source, key=lambda name: (-len(by_source[name]), name)):
        (first if len(first) <= len(second) else second).extend(by_source[source])
    return first, second


def fit(stated: Sequence[Stated]) -> Correction:
    """The most likely correction, drawn a little towards the identity; steps of Newton that do not help are halved."""
    found = Correction()
    for _ in range(STEPS):
        g, h = _slopes(stated, found)
        det = h[0] * h[2] - h[1] * h[1]
        change = ((h[2] * g[0] - h[1] * g[1]) / det, (h[0] * g[1] - h[1] * g[0]) / det)
        here, share = _unlikely(stated, found), 1.0
        while share > 1e-9:
            there = Correction(found.slope - share * change[0], found.bias - share * change[1])
            if _unlikely(stated, there) <= here:
                break
            share /= 2
        else:
            return found
        found = there
        if max(map(abs, change)) < 1e-9:
            break
    return found


def _slopes(stated: Sequence[Stated], at: Correction) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """First and second derivatives of `_unlikely` by slope and bias."""
    g0, g1 = RIDGE * (at.slope - 1.0), RIDGE * at.bias
    h0, h1, h2 = RIDGE, 0.0, RIDGE
    for s in stated:
        x = _logit(s.confidence)
        p = _sigmoid(at.slope * x + at.bias)
        w = p * (1.0 - p)
        g0, g1 = g0 + (p - s.right) * x, g1 + p - s.right
        h0, h1, h2 = h0 + w * x * x, h1 + w * x, h2 + w
    return (g0, g1), (h0, h1, h2)


def _unlikely(stated: Sequence[Stated], at: Correction) -> float:
    """What the fit makes small: the negative log likelihood and the pull."""
    total = RIDGE * ((at.slope - 1.0) ** 2 + at.bias**2) / 2
    for s in stated:
        x = at.slope * _logit(s.confidence) + at.bias
        x = -x if s.right else x
        total += x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))
    return total


def brier(stated: Sequence[Stated], corrected: Correction) -> float:
    """Mean squared distance between confidence and being right; lower is better."""
    return sum((corrected(s.confidence) - s.right) ** 2 for s in stated) / len(stated)


def ece(stated: Sequence[Stated], corrected: Correction) -> float:
    """Mean distance of stated confidence and share of right verdicts over ten bins, by their size."""
    return sum(n * abs(said - right) for n, said, right in reliability(stated, corrected).values()) / len(stated)


def reliability(stated: Sequence[Stated], corrected: Correction) -> dict[int, tuple[int, float, float]]:
    """By bin: how many verdicts, what they were said with on average, and the share that was right."""
    held: dict[int, list[tuple[float, bool]]] = {}
    for s in stated:
        said = corrected(s.confidence)
        held.setdefault(min(int(said * BINS), BINS - 1), []).append((said, s.right))
    return {
        b: (len(rows), sum(p for p, _ in rows) / len(rows), sum(r for _, r in rows) / len(rows))
        for b, rows in sorted(held.items())
    }


def difference(corrected: Sequence[tuple[Stated, float]]) -> tuple[float, float, float]:
    """By how much corrected confidences lower the Brier score, with the 95 % interval over resampled sources."""
    by_source: dict[str, list[float]] = {}
    for s, p in corrected:
        by_source.setdefault(s.source, []).append((s.confidence - s.right) ** 2 - (p - s.right) ** 2)
    sums = [(sum(gains), len(gains)) for gains in by_source.values()]
    chance = random.Random(0)
    found = []
    for _ in range(RESAMPLED):
        sample = chance.choices(sums, k=len(sums))
        found.append(sum(gained for gained, _ in sample) / sum(n for _, n in sample))
    found.sort()
    middle = sum(gained for gained, _ in sums) / sum(n for _, n in sums)
    return middle, found[int(0.025 * RESAMPLED)], found[int(0.975 * RESAMPLED)]


def _logit(p: float) -> float:
    kept = min(max(p, SMALLEST), 1.0 - SMALLEST)
    return math.log(kept / (1.0 - kept))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(x, -500.0), 500.0)))
