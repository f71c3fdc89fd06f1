"""Outputs of one run in the checkout of another: what was brought in is not named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from traindoctor.evals.case import Case, load
from traindoctor.evals.run import evaluate
from traindoctor.evals.variants.transplant import Transplant, pairs, planted, swapped

EVALS = Path(__file__).resolve().parents[2] / "evals"
ALL, SHARE = 2000, 0.01


def known() -> list[Case]:
    folders = (
        p.parent
        for name in ("incidents", "threads", "healthy", "recorded")
        for p in (EVALS / name).glob("*/incident.yaml")
    )
    return [load(folder) for folder in sorted(folders)]


def made(count: int, into: Path) -> list[Transplant]:
    found = []
    for n, (one, other) in enumerate(pairs(known(), count)):
        one_made = (planted if n % 2 else swapped)(one, other, into / str(n))
        found.append(replace(one_made, case=replace(one_made.case, id=str(n))))
    return found


def named(transplants: list[Transplant], jobs: int) -> list[str]:
    """The ids of those of which a cause that was brought in is named at 0.5 or above."""
    scores = {s.id: s for s in evaluate([t.case for t in transplants], jobs)}
    said = ((t, scores[t.case.id]) for t in transplants)
    return [t.case.id for t, s in said if s.said in t.planted and s.confidence >= 0.5]


def test_pairs_differ_in_their_causes_and_are_the_same_each_time(tmp_path: Path) -> None:
    cases = known()
    found = pairs(cases, 40)
    assert len(found) == 40 and found == pairs(cases, 40)
    assert all(not set(one.expected) & set(other.expected) for one, other in found)
    for n, (one, other) in enumerate(found[:4]):
        inside = planted(one, other, tmp_path / f"p{n}").case.files
        assert {p.name for p in one.files.iterdir()} <= {p.name for p in inside.iterdir()} and any(
            (inside / "other").rglob("*")
        )
        assert any(p.is_file() for p in swapped(one, other, tmp_path / f"s{n}").case.files.rglob("*"))


def test_what_was_brought_in_is_not_named(tmp_path: Path) -> None:
    assert named(made(12, tmp_path), 1) == []


@pytest.mark.soak
def test_of_many_transplants_next_to_none_is_named(tmp_path: Path) -> None:
    every = made(ALL, tmp_path)
    found = named(every, 2)
    print(f"{len(found)} of {len(every)} planted causes named")  # noqa: T201
    assert len(found) <= SHARE * len(every)
