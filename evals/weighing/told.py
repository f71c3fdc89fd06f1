"""What the planner would tell of incidents as if it had never seen their source: weights and rules are without it.

python -m traindoctor.evals.weighing.told      # a table; evidence that was gathered before is not read again
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np

from ...agent.core.playbook import Playbook, playbooks
from ...agent.core.types import Hypothesis
from ...agent.verdict import ranking
from ...agent.verdict.planner import EVEN, HEALTHY, INSUFFICIENT, is_settled, leader
from .fit import COLUMNS, KEPT, NAMES, fitted, folds, rows, todo
from .gathered import Gathered, gather_all
from .left_out import sources_of_rules, without

FEWEST = 1  # other sources that a rule must hold for
SETS = {"planted": "transplants", "swapped": "transplants"}


def as_told(gathered: Sequence[Gathered], books: Sequence[Playbook]) -> Iterator[tuple[Gathered, list[Hypothesis]]]:
    """The ranking of each incident, with weights and playbooks that know nothing of its source."""
    known = sources_of_rules(gathered, books)
    by_source: dict[str, list[Gathered]] = defaultdict(list)
    for g in gathered:
        by_source[g.of.source].append(g)
    for train, test in folds(rows(gathered, books)):
        w = fitted(train)
        table = {of: dict.fromkeys(names, 0.0) for of, names in NAMES.items()}
        for (of, name), value in zip(COLUMNS, w, strict=True):
            table[of][name] = float(value)
        with patch.object(ranking, "weights", lambda table=table: table):
            for source in sorted({r.of.source for r in test}):
                left = without(books, known, source, FEWEST)
                for g in by_source[source]:
                    yield g, ranking.rank(left, g.facts, g.sounds)


def counted(said: Iterable[tuple[Gathered, list[Hypothesis]]]) -> dict[str, Counter[str]]:
    """By set: how many, how many told right or fairly, and by what is claimed how many and how many of them right."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for g, ranked in said:
        row = found[SETS.get(g.of.table, g.of.table)]
        first = leader(ranked)
        cause = first.cause if first else INSUFFICIENT
        claim = (
            "nothing" if not first else "sound" if cause == HEALTHY else "confirmed" if is_settled(ranked) else "likely"
        )
        right = cause in g.of.case.expected
        fair = right or cause in g.of.case.acceptable
        row.update(count=1, exact=right, lenient=fair, planted=cause in g.of.planted)
        row.update({claim: 1, f"{claim} right": right, f"{claim} fair": fair})
        sound = HEALTHY in g.of.case.expected
        row["blamed"] += bool(sound and first and cause != HEALTHY and first.probability >= EVEN)
        row["bits"] += float(np.log2(max(_share(ranked, g), 1e-6)))  # pyright: ignore[reportArgumentType]
    return found


def _share(ranked: Sequence[Hypothesis], g: Gathered) -> float:
    if INSUFFICIENT in g.of.case.expected:
        return 1 - sum(h.probability for h in ranked)
    return sum(h.probability for h in ranked if h.cause in g.of.case.expected)


def lines(found: dict[str, Counter[str]]) -> Iterator[str]:
    """The table."""
    claims = ("confirmed", "likely", "sound", "nothing")
    yield f"{'set':12} count exact lenient bits " + " ".join(f"{c:>18}" for c in claims) + " blamed planted"
    for name, row in sorted(found.items()):
        n = row["count"]
        told = " ".join(f"{row[f'{c} right']:>5},{row[f'{c} fair']:>5} of {row[c]:>3}" for c in claims)
        share = f"{n:5} {row['exact'] / n:.3f} {row['lenient'] / n:7.3f} {row['bits'] / n:.2f}"
        yield f"{name:12} {share} {told} {row['blamed']:6} {row['planted']:7}"


def main() -> None:
    """Gather, and print the table."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--keep", type=Path, default=KEPT)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="doctor-transplants-") as scratch:
        gathered = gather_all(todo(Path(scratch)), given.keep, given.jobs)
    for line in lines(counted(as_told(gathered, playbooks()))):
        print(line)  # noqa: T201


if __name__ == "__main__":
    main()
