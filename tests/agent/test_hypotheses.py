"""Ranking: what supports, what contradicts, what explains, and what the null option keeps."""

from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.hypotheses import rank
from traindoctor.agent.planner import INSUFFICIENT, is_settled, verdict
from traindoctor.agent.playbook import parse
from traindoctor.agent.predicates import Facts
from traindoctor.agent.types import Evidence

FRAGMENTED = """---
cause: memory.fragmentation
title: The allocator is fragmented
signatures:
  - {pattern: 'CUDA out of memory', matches: ['CUDA out of memory.']}
requires:
  - {key: memory.reserved_unallocated_bytes, op: gt, than: memory.asked_bytes}
contradicts:
  - {key: memory.growth_per_step, op: gt, value: 10MiB, weight: strong, why: a leak}
explains: [dist.rank_died]
---
Body.
"""
DIED = """---
cause: dist.rank_died
title: A rank died
general: true
signatures:
  - {pattern: 'ChildFailedError', matches: ['torch.ChildFailedError:']}
---
Body.
"""
BOOKS = [parse(FRAGMENTED, "memory/fragmentation", "a.md"), parse(DIED, "dist/rank_died", "b.md")]


def line(key, value=True, number=1, text="", **more):
    return Evidence(key=key, value=value, file="train.log", line=number, text=text, **more)


def facts(*evidence, looked=()):
    return Facts.of([e.with_(id=f"E{n}") for n, e in enumerate(evidence, 1)], looked)


OOM = line("sig.memory.fragmentation", text="CUDA out of memory.")
ASKED = line("memory.asked_bytes", 2 << 30)
RESERVED = line("memory.reserved_unallocated_bytes", 6 << 30)
FAILED = line("sig.dist.rank_died", number=9, text="torch.ChildFailedError:")


def test_a_cause_whose_requirements_hold_is_settled():
    ranked = rank(BOOKS, facts(OOM, ASKED, RESERVED))
    assert ranked[0].cause == "memory.fragmentation"
    assert ranked[0].required and is_settled(ranked)
    assert set(ranked[0].supported_by) == {"E1", "E2", "E3"}


def test_contradicting_evidence_takes_the_verdict_away():
    growth = line("memory.growth_per_step", 50 << 20)
    ranked = rank(BOOKS, facts(OOM, ASKED, RESERVED, growth))
    assert ranked[0].contradicted_by == ["E4"]
    assert not is_settled(ranked)
    assert ranked[0].probability < 0.5


def test_a_required_comparison_that_fails_is_not_confirmed():
    ranked = rank(BOOKS, facts(OOM, ASKED, line("memory.reserved_unallocated_bytes", 1 << 20)))
    assert not ranked or not ranked[0].required
    assert verdict(ranked) == INSUFFICIENT


def test_the_consequence_steps_back_behind_its_origin():
    ranked = rank(BOOKS, facts(FAILED, OOM, ASKED, RESERVED))
    assert [h.cause for h in ranked] == ["memory.fragmentation", "dist.rank_died"]
    assert ranked[1].explained_by == "memory.fragmentation"
    assert is_settled(ranked)


def test_no_evidence_means_no_cause():
    assert rank(BOOKS, facts()) == []
    assert verdict([]) == INSUFFICIENT


def test_what_the_question_asserts_is_never_support():
    supports = "supports: [{key: question.symptom, op: eq, value: hang, weight: strong}]"
    book = parse(
        DIED.replace("signatures:", f"{supports}\nsignatures:"),
        "dist/rank_died", "b.md",
    )  # fmt: skip
    ranked = rank([book], facts(Evidence(key="question.symptom", value="hang", kind="asked")))
    assert ranked == []


@given(st.lists(st.sampled_from([OOM, ASKED, RESERVED, FAILED, line("memory.growth_per_step", 1 << 30)]), max_size=8))
def test_probabilities_never_add_up_to_more_than_one(evidence):
    ranked = rank(BOOKS, facts(*evidence))
    assert sum(h.probability for h in ranked) < 1.0
    assert ranked == sorted(ranked, key=lambda h: -h.score)


OPEN = """---
cause: loss.wrong_masking
title: The mask is wrong
signatures:
  - {pattern: 'fully masked', weight: weak, matches: ['a fully masked row']}
any_of:
  - {key: loss.zero, op: exists}
  - {key: batch.all_masked, op: exists}
---
Body.
"""


def test_a_check_that_was_not_made_does_not_speak_for_a_cause():
    book = [parse(OPEN, "loss/wrong_masking", "c.md")]
    said = line("sig.loss.wrong_masking", text="a fully masked row")
    unseen = rank(book, facts(said))[0].score
    nothing = rank(book, facts(said, looked=["find_anomalies"]))[0].score
    both = rank(book, facts(said, looked=["find_anomalies", "inspect_batch"]))[0].score
    assert unseen > nothing == both, "curves without a zero speak against it, whether or not a batch was looked at"
    seen = rank(book, facts(said, line("batch.all_masked"), looked=["find_anomalies", "inspect_batch"]))[0].score
    assert seen > unseen


ONLY_ASKED = """---
cause: loss.lr_too_high
title: The rate is too high
any_of:
  - {key: settings.asked.learning_rate, op: gt, value: 0.0005}
  - {key: loss.diverged, op: exists}
---
Body.
"""


def test_what_was_merely_asked_for_confirms_nothing():
    book = [parse(ONLY_ASKED, "loss/lr_too_high", "c.md")]
    asked, seen = line("settings.asked.learning_rate", 0.001), line("loss.diverged", number=2)
    assert not rank(book, facts(asked))[0].required
    assert rank(book, facts(asked, seen))[0].required
