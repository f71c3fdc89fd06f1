"""One cause held against the evidence: what it means, what speaks for and against it, what would settle it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.playbook import Playbook, Predicate, Signature, causes, playbooks
from traindoctor.agent.core.types import Evidence, Risk
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.tool import all_tools
from traindoctor.agent.verdict.gate import faults
from traindoctor.agent.verdict.meaning import meaning
from traindoctor.agent.verdict.predicates import Facts
from traindoctor.agent.verdict.ranking import rank
from traindoctor.agent.verdict.weighing import weigh

INCIDENTS = Path(__file__).resolve().parents[2] / "evals" / "incidents"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("loss.lr_too_high", "loss.lr_too_high"), ("memory/fragmentation", "memory.fragmentation"),
        ("why not a straggler?", "speed.straggler"), ("could it be fragmentation?", "memory.fragmentation"),
        ("isn't it the learning rate?", "loss.lr_too_high"), ("a flapping InfiniBand link", "dist.ib_link"),
        ("shared memory too small", "memory.shm_too_small"), ("overfitting", "loss.overfitting"),
        ("a bad batch", "loss.bad_batch"), ("the batch is too big", "memory.batch_too_large"),
        ("NCCL version", "dist.nccl_version"), ("uneven data", "dist.uneven_data"), ("ECC", "hw.ecc_uncorrectable"),
        ("a memory leak", "memory.graph_retained"), ("no warmup", "loss.insufficient_warmup"),
    ],
)  # fmt: skip
def test_words_mean_a_cause(words: str, cause: str) -> None:
    assert meaning(words, playbooks()).causes[:1] == (cause,)


def test_every_cause_and_playbook_is_meant_by_its_own_name() -> None:
    for p in playbooks():
        assert meaning(p.cause, playbooks()).causes == (p.cause,)
        assert meaning(f"is it {p.slug}?", playbooks()).playbook == p.slug
        assert p.cause in meaning(p.title, playbooks()).causes, p.title


@pytest.mark.parametrize("words", ["my cat", "zorblax quux", "", "???", "the"])
def test_words_that_mean_none(words: str) -> None:
    assert not meaning(words, playbooks()).causes
    weighed = weigh(words, Facts(), playbooks())
    assert weighed.cause is None and "no cause that is known" in weighed.text


def line(number: int, key: str, value: object, text: str = "x") -> Evidence:
    return Evidence(key=key, value=value, file="a.log", line=number, text=text, id=f"E{number}")  # type: ignore[arg-type]


FIRST = Playbook(
    slug="loss/first", cause="loss.lr_too_high", title="The first one", next_steps=["Look at the first thing"],
    signatures=[Signature(pattern="boom", matches=["boom"])], checks=["find_anomalies", "gpu_status"],
    requires=[Predicate(key="loss.first_nan_step", op="lt", value=100)],
    supports=[Predicate(key="grad_norm.max", op="gt", value=10, why="it explodes")],
    contradicts=[Predicate(key="loss.spike_step", op="exists", weight="strong", why="a spike is another thing")],
)  # fmt: skip
SECOND = Playbook(
    slug="loss/second", cause="loss.bad_batch", title="The second one",
    requires=[Predicate(key="loss.spike_step", op="exists")], any_of=[Predicate(key="data.bad", op="exists")],
)  # fmt: skip


def test_what_holds_is_told_with_its_evidence() -> None:
    facts = Facts.of(
        [line(1, "loss.first_nan_step", 12), line(2, "grad_norm.max", 40.5), line(3, "sig.loss.first", "boom", "boom")]
    )
    w = weigh("loss.lr_too_high", facts, [FIRST, SECOND])
    assert w.is_leader and w.seen == ["E3"] and w.playbook == "loss/first"
    said = {s.text: s.cites for s in w.sentences}
    assert said["For it: loss.first_nan_step is 12."] == ["E1"]
    assert said["For it: grad_norm.max is 40.5 (it explodes)."] == ["E2"]
    assert any("boom" in text and cites == ["E3"] for text, cites in said.items())
    assert w.checks[:2] == ["find_anomalies", "gpu_status"]
    assert any(row.startswith("requires (+") and row.endswith("< 100: true [E1]") for row in w.text.splitlines())


def test_what_speaks_against_it_and_what_leads() -> None:
    facts = Facts.of(
        [line(1, "loss.first_nan_step", 400), line(2, "loss.spike_step", 7), line(3, "data.bad", True)],
        ["find_anomalies"],
    )
    w = weigh("why not loss.lr_too_high?", facts, [FIRST, SECOND])
    assert not w.is_leader and w.leader is not None and w.leader.cause == "loss.bad_batch"
    against = {s.text: s.cites for s in w.sentences if s.text.startswith(("Against", "Required"))}
    assert against["Against it: loss.spike_step seen (a spike is another thing)."] == ["E2"]
    assert any("as loss.first_nan_step is 400" in text and cites == ["E1"] for text, cites in against.items())
    assert any("What leads instead is loss.bad_batch" in s.text and s.cites for s in w.sentences)
    assert "find_anomalies" not in w.checks, "what was looked at is not proposed again"
    assert "Look at the first thing" in w.text


def test_nothing_known_is_said_as_that() -> None:
    w = weigh("loss.lr_too_high", Facts(), [FIRST, SECOND])
    assert (
        w.own is None and "no predicate of its playbook holds" in w.text and "speaks for it" not in w.sentences[0].text
    )
    assert "Not known, required: loss.first_nan_step < 100" in w.text


def test_many_signs_that_are_not_there_are_one_line() -> None:
    signs = [Predicate(key=f"loss.sign_{n}", op="gt", value=n) for n in range(9)]
    book = Playbook(slug="loss/many", cause="loss.lr_too_high", title="Many", any_of=signs, next_steps=["Look at it"])
    facts = Facts.of([line(n, f"loss.sign_{n}", -1) for n in range(1, 8)])
    rows = [r for r in weigh("loss.lr_too_high", facts, [book, SECOND]).text.splitlines() if r.startswith("any_of")]
    assert rows == [
        "any_of, 7 false: loss.sign_1 > 1; loss.sign_2 > 2; loss.sign_3 > 3; ... and 4 more [E1,E2,E3,E4,E5,E6]",
        "any_of, 2 missing: loss.sign_0 > 0; loss.sign_8 > 8",
    ]
    said = weigh("loss.lr_too_high", facts, [book, SECOND]).sentences
    assert any("loss.sign_3 > 3 and 4 more." in s.text for s in said), "the sentence counts them too"
    assert said[-1].text == "What would tell: Look at it"


def test_what_is_cited_passes_the_claim_gate() -> None:
    known = sorted([*causes(), *(p.title for p in playbooks()), *all_tools()], key=len, reverse=True)
    ws = Workspace([INCIDENTS / "loss-pegasus-pretrain-inf" / "files"], live=False)
    results = {name: t(ws) for name, t in all_tools().items() if t.recall and t.risk is Risk.READ}
    found = [e.with_(id=f"E{n}") for n, e in enumerate((e for r in results.values() for e in r.evidence), 1)]
    facts = Facts.of(found, [n for n, r in results.items() if r.outcome in ("finding", "clean")])
    by_id = {e.id: e for e in found}
    cited = [s for h in rank(playbooks(), facts) for s in weigh(h.cause, facts, playbooks()).sentences if s.cites]
    assert len(cited) > 10
    refused = [(s.text, faults(s, by_id, known)) for s in cited if faults(s, by_id, known)]
    assert len(refused) <= len(cited) // 10, refused


def test_weighing_agrees_with_the_ranking_and_changes_nothing() -> None:
    facts = Facts.of([line(1, "loss.first_nan_step", 12), line(2, "memory.oom", True), line(3, "gpu.xid", 79)])
    before = rank(playbooks(), facts)
    for h in before[:8]:
        w = weigh(h.cause, facts, playbooks())
        assert w.own == h and w.playbook == h.playbook
    assert rank(playbooks(), facts) == before


KEYS = st.sampled_from(sorted({q.key for p in playbooks()[:40] for q in p.predicates}))
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.integers(), max_size=3)
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.text(max_size=200),
    st.lists(st.tuples(KEYS, VALUES), max_size=6),
    st.sampled_from([p.cause for p in playbooks()]),
)
def test_any_words_and_any_evidence_are_weighed(words: str, found: list[tuple[str, object]], cause: str) -> None:
    facts = Facts.of([line(n, key, value) for n, (key, value) in enumerate(found, 1)])
    ids = {f"E{n}" for n in range(1, len(found) + 1)}
    for asked in (words, f"{cause} {words}"):
        w = weigh(asked, facts, playbooks())
        assert w.text and all(set(s.cites) <= ids for s in w.sentences)
