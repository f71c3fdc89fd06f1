"""MinHash against the true overlap: what is alike is found, what is not is left alone."""

from __future__ import annotations

import random

import pytest
from traindoctor.agent.reading.datasets.overlap import WORDS, Signatures, grams, words


def text(seed: int, size: int = 120) -> list[str]:
    rng = random.Random(seed)
    return [f"w{rng.randrange(5000)}" for _ in range(size)]


def jaccard(a: str, b: str) -> float:
    left, right = set(grams(words(a), WORDS).tolist()), set(grams(words(b), WORDS).tolist())
    return len(left & right) / len(left | right)


@pytest.mark.parametrize(("changes", "found"), [(0, True), (1, True), (2, True), (30, False), (120, False)])
def test_pairs_by_true_overlap(changes, found) -> None:
    pairs, hits = 60, 0
    for seed in range(pairs):
        rng = random.Random(seed + 10_000)
        one = text(seed)
        two = list(one)
        for at in rng.sample(range(len(two)), changes):
            two[at] = f"x{rng.randrange(10**6)}"
        a, b = " ".join(one), " ".join(two)
        known = Signatures()
        known.add(0, a)
        known.add(1, b)
        told = list(known.pairs())
        hits += bool(told)
        if told:
            assert told[0][:2] == (0, 1)
            assert abs(told[0][2] - jaccard(a, b)) < 0.3
    assert hits >= 0.9 * pairs if found else hits <= 0.02 * pairs


def test_many_unlike_texts_give_no_pairs() -> None:
    known = Signatures()
    for seed in range(400):
        known.add(seed, " ".join(text(seed, 60)))
    assert not list(known.pairs())


def test_scripts_without_spaces_and_short_texts() -> None:
    chinese = "训练大型语言模型需要大量的数据和计算资源并且需要仔细检查数据的质量"
    known = Signatures()
    known.add(0, chinese * 3)
    known.add(1, chinese * 3 + "吧")
    known.add(2, "too short")
    assert [(a, b) for a, b, _ in known.pairs()] == [(0, 1)]
    assert len(grams(words("a b"), WORDS)) == 0


def test_a_crowd_of_the_same_costs_little() -> None:
    known = Signatures()
    same = " ".join(text(1))
    for n in range(2000):
        known.add(n, same)
    assert len(list(known.pairs())) == 1999
