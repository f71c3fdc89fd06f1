"""Fit the ranking's weights and measure them: `make weights`, `python -m traindoctor.evals.weighing.fit --measure`.

The model is a softmax over the causes in question and "nothing can be told". It is fitted on each incident without the
rules that hold for fewer than one, and fewer than three, other sources, as it is, and on transplants. Incidents of one
source share a weight that grows with the root of their number. What is printed is cross-validated: a source is never on
both sides.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from ...agent.core.own_files import KNOWLEDGE
from ...agent.core.playbook import Playbook, playbooks
from ...agent.verdict import ranking
from ..case import Case, find
from ..confidence_fit import sources
from ..variants.transplant import pairs, planted, swapped
from .gathered import Gathered, Todo, gather_all
from .left_out import sources_of_rules, without

EVALS = Path(__file__).resolve().parents[1]
KEPT = EVALS.parent / "build" / "weighing"
TABLES = ("incidents", "threads", "recorded", "healthy")
FITTED = {0: 0.5, 1: 1.0, 3: 1.0}  # other sources that a rule must hold for, and the weight of an incident judged so
TRANSPLANTS, TRANSPLANT = 600, 0.25  # how many, and the weight of one
FOLDS, PULL, FAIR, UNTOLD = 5, 2.0, 0.3, 0.7  # pull towards zero; a fair second answer, none for a swapped checkout
NAMES = {
    "cause": ("line", "broke_there", "refuted", "proven", "shown", "measured", "support", "asked",
              "against", "against_asked", "general",
              "away", "consequence", "sounds", "sounds_told", "sounds_question", "sounds_failure"),
    "sound": ("base", "ended", "sounds"),
    "nothing": ("base", "evidence"),
}  # fmt: skip
COLUMNS = [(of, name) for of, names in NAMES.items() for name in names]


@dataclass(slots=True)
class Row:
    """One incident to be judged: (causes + 1, columns) traits, the last row of "nothing", and how right each is."""

    of: Todo
    fewest: int
    causes: list[str]
    traits: np.ndarray
    right: np.ndarray
    weight: float


def todo(scratch: Path) -> Iterator[Todo]:
    """Every question of the repository's sets, and the transplants, laid out in `scratch`."""
    known = sources(EVALS)

    def source(case: Case) -> str:
        base = case.id.partition(":")[0]
        named = known.get(base, base)
        return base if named.startswith("recorders/") else named  # each fault of a table is one of its own

    for table in TABLES:
        yield from (Todo(c, table, source(c)) for c in find([EVALS / table]))
    single = [c for c in find([EVALS / t for t in TABLES]) if ":" not in c.id]
    for n, (one, other) in enumerate(pairs(single, TRANSPLANTS)):
        kind = "planted" if n % 4 < 2 else "swapped"
        made = (planted if kind == "planted" else swapped)(one, other, scratch / str(n))
        case = Case(**{**_fields(made.case), "id": f"{n:04}"})
        yield Todo(case, kind, source(one), made.planted)


def _fields(case: Case) -> dict[str, object]:
    return {name: getattr(case, name) for name in case.__dataclass_fields__}


def rows(gathered: Sequence[Gathered], books: Sequence[Playbook]) -> list[Row]:
    """Each incident as often as it is measured, with its traits under the playbooks that are left."""
    known = sources_of_rules(gathered, books)
    often = Counter(g.of.source for g in gathered if not g.of.planted)
    return [
        _row(g, fewest, without(books, known, g.of.source, fewest), often[g.of.source])
        for g in gathered
        for fewest in (FITTED if not g.of.planted else (1,))
    ]


def _row(g: Gathered, fewest: int, books: Sequence[Playbook], often: int) -> Row:
    found = [t for t, _ in ranking.candidates(books, g.facts, g.sounds)]
    causes = [t.playbook.cause for t in found]
    traits = np.zeros((len(found) + 1, len(COLUMNS)))
    sound = ranking.sound_traits(g.facts, g.sounds)
    for n, t in enumerate(found):
        said = {("cause", name): much for name, much in t.counts.items()}
        if t.playbook.cause == ranking.SOUND:
            said |= {("sound", name): much for name, much in sound.items()}
        traits[n] = [said.get(column, 0.0) for column in COLUMNS]
    nothing = {("nothing", name): much for name, much in ranking.nothing_traits(g.facts).items()}
    traits[-1] = [nothing.get(column, 0.0) for column in COLUMNS]
    weight = TRANSPLANT if g.of.planted else FITTED[fewest] * often**-0.5
    return Row(g.of, fewest, causes, traits, _right(g.of, causes), weight)


def _right(of: Todo, causes: Sequence[str]) -> np.ndarray:
    """How right each cause is, and last, that nothing can be told."""
    expected, fair = of.case.expected, of.case.acceptable
    right = np.array([1.0 if c in expected else FAIR if c in fair else 0.0 for c in causes] + [0.0])
    if not right.max() or max(right) < 1.0:
        right[-1] = 1.0 - max(right)
    if of.table == "swapped":
        right[-1] = max(right[-1], UNTOLD)
    return right


def fitted(known: Iterable[Row]) -> np.ndarray:
    """The most likely weights (columns,), drawn a little towards zero."""
    import torch

    used = [r for r in known if r.weight]
    x = torch.tensor(np.concatenate([r.traits for r in used]))
    of = torch.tensor(np.repeat(np.arange(len(used)), [len(r.traits) for r in used]))
    right = torch.tensor(np.concatenate([r.right for r in used]))
    weight = torch.tensor([r.weight for r in used], dtype=torch.double)
    spread = x.std(0).clamp(min=1e-3)
    w = torch.zeros(len(COLUMNS), dtype=torch.double, requires_grad=True)
    steps = torch.optim.LBFGS([w], max_iter=150, line_search_fn="strong_wolfe")
    none = torch.zeros(len(used), dtype=torch.double)

    def unlikely() -> torch.Tensor:
        steps.zero_grad()
        odds = torch.exp((x @ w).clamp(max=60))
        share = none.index_add(0, of, odds * right) / none.index_add(0, of, odds)
        loss = -(weight * torch.log(share + 1e-9)).sum() + PULL * ((w * spread) ** 2).sum()
        loss.backward()
        return loss

    steps.step(unlikely)
    return w.detach().numpy()


def folds(known: Sequence[Row]) -> list[tuple[list[Row], list[Row]]]:
    """What to fit on and what to judge, five times; a source is on one side alone."""
    names = sorted({r.of.source for r in known})
    random.Random(1).shuffle(names)
    fold = {name: n % FOLDS for n, name in enumerate(names)}
    return [
        ([r for r in known if fold[r.of.source] != f], [r for r in known if fold[r.of.source] == f])
        for f in range(FOLDS)
    ]  # fmt: skip


def measured(known: Sequence[Row]) -> Iterator[str]:
    """A line for each set and count of other sources: right, lenient, among the first three, planted and named."""
    said: dict[tuple[str, int], list[tuple[bool, bool, bool, bool]]] = defaultdict(list)
    for train, test in folds(known):
        w = fitted(train)
        for r in test:
            said[r.of.table, r.fewest].append(_judged(r, r.traits @ w))
    yield f"{'set':10} {'others':>6} {'count':>6} {'exact':>6} {'lenient':>7} {'top-3':>6} {'planted':>7}"
    for (table, fewest), found in sorted(said.items()):
        share = [sum(column) / len(found) for column in zip(*found, strict=True)]
        planted_named = sum(row[3] for row in found)
        yield f"{table:10} {fewest:6} {len(found):6} {share[0]:6.3f} {share[1]:7.3f} {share[2]:6.3f} {planted_named:7}"


def _judged(r: Row, odds: np.ndarray) -> tuple[bool, bool, bool, bool]:
    order = [r.causes[i] if i < len(r.causes) else "none.insufficient_evidence" for i in np.argsort(-odds)]
    p = np.exp(odds - odds.max())
    sure = bool(p.max() / p.sum() >= 0.5)
    right, fair = set(r.of.case.expected), {*r.of.case.expected, *r.of.case.acceptable}
    first = [order[0], *(c for c in order[1:] if not c.startswith("none.insufficient"))][:3]
    return order[0] in right, order[0] in fair, bool(right & set(first)), sure and order[0] in r.of.planted


def main() -> None:
    """Gather, measure, and write the weights unless they are only to be measured."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--measure", action="store_true", help="measure, and leave the weights as they are")
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument(
        "--keep", type=Path, default=KEPT, help="folder of the evidence; what is in it is not read again"
    )
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="doctor-transplants-") as scratch:
        gathered = gather_all(todo(Path(scratch)), given.keep, given.jobs)
    known = rows(gathered, playbooks())
    for line in measured(known):
        print(line)  # noqa: T201
    if not given.measure:
        write(fitted(known))


def write(w: np.ndarray) -> None:
    """Write `knowledge/weights.yaml`."""
    path = KNOWLEDGE / "weights.yaml"
    head = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.startswith("#")]
    data = {of: {name: round(float(w[COLUMNS.index((of, name))]), 2) for name in names} for of, names in NAMES.items()}
    path.write_text("".join(head) + yaml.safe_dump(data, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()
