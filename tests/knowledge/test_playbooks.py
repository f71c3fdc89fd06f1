"""Every playbook proves itself: its format, its examples, its keys, its prose."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

import pytest
from traindoctor.agent.playbook import KNOWLEDGE, Playbook, causes, read_folder
from traindoctor.agent.proofs import PARTS, faults, gaps

WORDS = (100, 420)
RUN = 10  # a run of this many words in two bodies is a copy
FOLKLORE = ("NCCL_COMM_ID_TIMEOUT", "NCCL_TREE_THRESHOLD", "NCCL_TIMEOUT", "--sglang-router-strategy")
LONG_GAP = re.compile(r"(?<!\\)\.(\*|\+|\{0,(\d+)\})")


@cache
def known() -> list[Playbook]:
    return read_folder(KNOWLEDGE)


def slugs() -> list[str]:
    return [p.slug for p in known()]


def of(slug: str) -> Playbook:
    return next(p for p in known() if p.slug == slug)


@pytest.mark.parametrize("slug", slugs())
def test_proofs_hold(slug: str) -> None:
    assert list(faults(of(slug), known())) == []


@pytest.mark.parametrize("slug", slugs())
def test_nothing_is_lacking(slug: str) -> None:
    assert list(gaps(of(slug))) == []


def test_every_cause_has_a_page() -> None:
    assert set(causes()) - {p.cause for p in known()} == set()


def test_a_page_lives_in_the_folder_of_its_family() -> None:
    assert [p.slug for p in known() if p.cause.split(".")[0] != p.slug.split("/")[0]] == []


@pytest.mark.parametrize("slug", slugs())
def test_the_body_has_its_five_parts(slug: str) -> None:
    body = of(slug).body
    assert tuple(re.findall(r"^## (.+)$", body, re.M)) == PARTS
    assert WORDS[0] <= len(body.split()) <= WORDS[1]


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
    hyperscan = pytest.importorskip("hyperscan")
    patterns = [(p.slug, s.pattern) for p in known() for s in p.signatures]
    for slug, pattern in patterns:
        assert not pattern.startswith((".*", ".+")), slug
        assert not any(m[1] in "*+" or int(m[2] or 0) > 300 for m in LONG_GAP.finditer(pattern)), (slug, pattern)
        hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK).compile(
            expressions=[pattern.encode()], ids=[1], flags=[hyperscan.HS_FLAG_SINGLEMATCH]
        )


def test_no_playbook_recommends_folklore() -> None:
    for p in known():
        advice = [*(e for f in p.fixes for e in f.env), *(c for f in p.fixes for c in f.commands)]
        assert not [a for a in advice for name in FOLKLORE if re.search(rf"(^|\W){re.escape(name)}(=|$)", a)], p.slug
