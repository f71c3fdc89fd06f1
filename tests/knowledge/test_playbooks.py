"""Every playbook proves itself: its format, its examples, its keys, its prose."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

import pytest
from traindoctor.agent.core.playbook import KNOWLEDGE, Playbook, causes, read_folder
from traindoctor.agent.reading.scan.patterns import Database
from traindoctor.agent.session.playbook_proofs import PARTS, faults, gaps

WORDS = (100, 420)
RUN = 10  # a run of this many words in two bodies is a copy
FOLKLORE = ("NCCL_COMM_ID_TIMEOUT", "NCCL_TREE_THRESHOLD", "NCCL_TIMEOUT", "--sglang-router-strategy")
LONG_GAP = re.compile(r"(?<!\\)\.(\*|\+|\{0,(\d+)\})")


@cache
def known() -> list[Playbook]:
    return read_folder(KNOWLEDGE)


@pytest.mark.parametrize("page", known(), ids=lambda p: p.slug)
def test_proofs_hold_nothing_is_lacking_and_the_body_has_its_five_parts(page: Playbook) -> None:
    assert list(faults(page, known())) == []
    assert list(gaps(page)) == []
    assert tuple(re.findall(r"^## (.+)$", page.body, re.M)) == PARTS
    assert WORDS[0] <= len(page.body.split()) <= WORDS[1]


def test_every_cause_has_a_page() -> None:
    assert set(causes()) - {p.cause for p in known()} == set()


def test_a_page_lives_in_the_folder_of_its_family() -> None:
    assert [p.slug for p in known() if p.cause.split(".")[0] != p.slug.split("/")[0]] == []


def test_no_ten_words_in_a_row_are_shared_between_pages() -> None:
    seen: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for p in known():
        words = re.findall(r"[a-z0-9]+", p.body.lower())
        for i in range(len(words) - RUN + 1):
            seen[tuple(words[i : i + RUN])].add(p.slug)
    assert {" ".join(k): v for k, v in seen.items() if len(v) > 1} == {}


def test_questions_only_steer() -> None:
    """What the user says may tip the balance, but it is no evidence: it cannot be required, nor weigh heavily."""
    heavy = [
        (p.slug, q.key)
        for p in known()
        for q in p.predicates
        if q.key.startswith("question.") and (q in [*p.requires, *p.any_of] or q.weight == "strong")
    ]
    assert heavy == []


@pytest.mark.real
def test_patterns_are_cheap_enough_for_one_database() -> None:
    """Compiled as the scan compiles its own, and kept as those are: a pattern that is refused is named."""
    hyperscan = pytest.importorskip("hyperscan")
    patterns = [(p.slug, s.pattern) for p in known() for s in p.signatures]
    for slug, pattern in patterns:
        assert not pattern.startswith((".*", ".+")), slug
        assert not any(m[1] in "*+" or int(m[2] or 0) > 300 for m in LONG_GAP.finditer(pattern)), (slug, pattern)
    found = Database([(pattern.encode(), hyperscan.HS_FLAG_SINGLEMATCH) for _, pattern in patterns])
    assert [patterns[n] for n in found.refused] == []


def test_no_playbook_recommends_folklore() -> None:
    for p in known():
        advice = [*(e for f in p.fixes for e in f.env), *(c for f in p.fixes for c in f.commands)]
        assert not [a for a in advice for name in FOLKLORE if re.search(rf"(^|\W){re.escape(name)}(=|$)", a)], p.slug
