"""Ranking: what supports, what contradicts, what explains, and what the null option keeps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.core.playbook import parse, playbooks
from traindoctor.agent.core.types import Evidence, Hypothesis
from traindoctor.agent.verdict.planner import INSUFFICIENT, is_settled, verdict
from traindoctor.agent.verdict.predicates import Facts
from traindoctor.agent.verdict.ranking import rank, with_vote
from traindoctor.agent.verdict.steer import Sounds

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
    ranked = rank(BOOKS, facts(OOM, ASKED, RESERVED), Sounds({"memory.fragmentation": 7.0}))
    assert ranked[0].cause == "memory.fragmentation"
    assert ranked[0].parts == ("effect", "mechanism", "link") and is_settled(ranked)
    assert set(ranked[0].supported_by) == {"E1", "E2", "E3"}


def test_contradicting_evidence_takes_the_verdict_away():
    growth = line("memory.growth_per_step", 50 << 20)
    ranked = rank(BOOKS, facts(OOM, ASKED, RESERVED, growth))
    assert ranked[0].contradicted_by == ["E4"]
    assert not is_settled(ranked)
    assert ranked[0].probability < 0.5


def test_a_required_comparison_that_fails_is_not_confirmed():
    ranked = rank(BOOKS, facts(OOM, ASKED, line("memory.reserved_unallocated_bytes", 1 << 20)))
    assert not ranked[0].parts and verdict(ranked) == INSUFFICIENT


def test_the_consequence_steps_back_behind_its_origin():
    ranked = rank(BOOKS, facts(FAILED, OOM, ASKED, RESERVED), Sounds({"memory.fragmentation": 7.0}))
    assert [h.cause for h in ranked] == ["memory.fragmentation", "dist.rank_died"]
    assert ranked[1].explained_by == "memory.fragmentation"
    assert is_settled(ranked)


def test_the_share_of_what_follows_is_that_of_an_origin_whose_proof_is_whole():
    both = {h.cause: h for h in rank(BOOKS, facts(FAILED, OOM, ASKED, RESERVED))}
    alone = rank([BOOKS[0]], facts(FAILED, OOM, ASKED, RESERVED))[0]
    origin, follows = both["memory.fragmentation"], both["dist.rank_died"]
    assert origin.probability == pytest.approx(alone.probability, abs=0.02) and follows.probability < 0.05
    open_proof = {h.cause: h for h in rank(BOOKS, facts(FAILED, OOM))}
    assert len(open_proof["memory.fragmentation"].parts) < 3
    assert open_proof["dist.rank_died"].probability > follows.probability


def test_a_model_that_votes_for_an_origin_takes_nothing_from_it_for_what_follows():
    ranked = rank(BOOKS, facts(FAILED, OOM, ASKED, RESERVED))
    voted = with_vote(ranked, "dist.rank_died", 0.0, BOOKS[1])
    assert {h.cause: h.probability for h in voted} == pytest.approx({h.cause: h.probability for h in ranked})


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
    assert ranked == sorted(ranked, key=lambda h: -h.probability)


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
    unseen, nothing, both = (
        rank(book, facts(said, looked=made))[0].score for made in ((), ["find_anomalies"], ["inspect_batch"])
    )
    assert unseen == nothing == both
    seen = rank(book, facts(said, line("batch.all_masked"), looked=["find_anomalies", "inspect_batch"]))[0]
    assert seen.score > unseen and "mechanism" in seen.parts


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
    assert not rank(book, facts(asked))[0].parts
    assert rank(book, facts(asked, seen))[0].parts == ("effect",), "and nothing that brought it about"


RATE = """---
cause: loss.lr_too_high
title: The rate is too high
any_of:
  - {key: settings.asked.learning_rate, op: gt, value: 0.002}
supports:
  - {key: settings.asked.learning_rate, op: gt, value: 0.002, weight: strong}
  - {key: loss.spike_count, op: gt, value: 2, weight: strong}
  - {key: loss.first_nan_step, op: exists, weight: strong}
---
Body.
"""
RATE_BOOKS = [parse(RATE, "loss/lr_too_high", "c.md")]
ASKED_RATE = line("settings.asked.learning_rate", 0.1)
RAISED = (line("error.first", "KeyError: 'lr'", 8), line("error.exception", "KeyError", 8))


SPIKES = line("loss.spike_count", 4)
HEARD = Sounds({"loss.lr_too_high": 4.0})


def told(*evidence):
    return verdict(rank(RATE_BOOKS, facts(*evidence), HEARD))


def test_a_setting_is_no_reason_for_an_exception():
    assert told(ASKED_RATE, SPIKES) == "loss.lr_too_high"
    assert told(ASKED_RATE, *RAISED) == INSUFFICIENT
    assert told(ASKED_RATE, SPIKES, *RAISED) == INSUFFICIENT


def test_what_a_run_merely_asked_for_carries_no_verdict_however_much_it_sounds_like_it():
    assert told(ASKED_RATE) == INSUFFICIENT


def test_an_exception_that_did_not_end_the_run_or_was_not_asked_for_changes_nothing():
    for more in (
        line("run.finished"),
        Evidence(key="question.symptom", value="not_learning", kind="asked"),
    ):
        assert told(ASKED_RATE, SPIKES, *RAISED, more) == "loss.lr_too_high"
    stopped = (RAISED[0], line("error.exception", "KeyboardInterrupt", 8))
    assert told(ASKED_RATE, SPIKES, *stopped) == "loss.lr_too_high"


HALF = """---
cause: loss.fp16_overflow
title: FP16 overflows
any_of:
  - {key: lint.fp16_enabled, op: exists}
supports:
  - {key: lint.fp16_enabled, op: exists, weight: strong}
  - {key: loss_scale.falling, op: exists, weight: normal}
---
Body.
"""


def test_a_lint_that_restates_a_setting_carries_no_verdict_on_a_loss():
    """The record of an evaluation in fp16 has no loss that could overflow."""
    book, half = [parse(HALF, "loss/fp16_overflow", "c.md")], line("lint.fp16_enabled", "fp16")
    heard = Sounds({"loss.fp16_overflow": 5.0})
    restated = rank(book, facts(half, line("settings.asked.precision", "fp16", 2)), heard)
    assert not restated[0].parts and verdict([replace(restated[0], probability=0.8)]) == INSUFFICIENT
    assert verdict(rank(book, facts(half, line("loss_scale.falling", 32, 3)), heard)) == "loss.fp16_overflow"


UNDIVIDED = """---
cause: loss.grad_accumulation_bug
title: Micro-batches add up
any_of:
  - {key: code.unscaled_accumulation, op: exists}
supports:
  - {key: code.unscaled_accumulation, op: exists, weight: strong}
  - {key: loss.high_start, op: exists, weight: normal}
  - {key: question.symptom, op: eq, value: not_learning, weight: weak}
---
Body.
"""


def test_a_hazard_brings_about_what_was_seen_or_complained_of_and_nothing_else():
    book, hazard = [parse(UNDIVIDED, "loss/grad_accumulation_bug", "d.md")], line("code.unscaled_accumulation")
    heard = Sounds({"loss.grad_accumulation_bug": 3.0})
    alone = rank(book, facts(hazard), heard)
    assert not alone[0].parts and verdict(alone) == INSUFFICIENT
    for effect in (
        line("loss.high_start", 33.0),
        Evidence(key="question.symptom", value="not_learning", kind="asked", id="E9"),
    ):
        found = rank(book, facts(hazard, effect), heard)
        assert found[0].parts == ("effect", "mechanism") and verdict(found) == "loss.grad_accumulation_bug"
        assert not is_settled(found), "nothing says that it was this one that did"


def test_a_cause_that_only_sounds_like_it_stands_in_the_ranking_and_is_no_verdict():
    ranked = rank(BOOKS, facts(), Sounds({"memory.fragmentation": 9.0, "dist.rank_died": -1.0}))
    assert [h.cause for h in ranked] == ["memory.fragmentation"] and not ranked[0].positive
    assert verdict(ranked) == INSUFFICIENT


def test_the_less_was_seen_of_a_proof_the_more_probable_it_must_be():
    def one(probability: float, *parts: str) -> str:
        return verdict([Hypothesis("loss.bad_batch", "", "", probability, 3.0, positive=True, parts=parts)])

    assert one(0.36, "effect", "mechanism") == one(0.51, "effect") == one(0.86) == "loss.bad_batch"
    assert one(0.34, "effect", "mechanism") == one(0.49, "effect") == one(0.84) == INSUFFICIENT


def test_that_all_is_well_is_told_of_a_good_end_only_where_it_is_sure_or_the_complaint_is_explained():
    def sound(probability: float, *parts: str, rival: float = 0.0) -> str:
        other = Hypothesis("loss.bad_batch", "", "", rival, 1.0, positive=True, parts=("effect", "mechanism"))
        well = Hypothesis("none.healthy", "", "", probability, 3.0, positive=True, parts=parts)
        return verdict(sorted([well, other], key=lambda h: -h.probability))

    assert sound(0.86, "effect") == sound(0.36, "effect", "mechanism") == "none.healthy"
    assert sound(0.84, "effect") == sound(0.34, "effect", "mechanism") == sound(0.97) == INSUFFICIENT
    assert sound(0.6, "effect", "mechanism", rival=0.3) == "none.healthy"
    assert sound(0.6, "effect", "mechanism", rival=0.36) == INSUFFICIENT
    assert sound(0.3, "effect", rival=0.6) == "loss.bad_batch" and sound(0.31, "effect", rival=0.6) == INSUFFICIENT


def test_what_is_asked_and_circumstances_are_not_believed_against_a_run_that_went_well():
    asked = Hypothesis("ckpt.resume_state_incomplete", "", "", 0.6, 2.0, positive=True, seen=False, parts=("effect",))
    well = Hypothesis("none.healthy", "", "", 0.2, 1.0, positive=True, parts=("effect",))
    assert verdict([asked]) == "ckpt.resume_state_incomplete"
    assert verdict([asked, well]) == INSUFFICIENT
    assert verdict([replace(asked, seen=True), well]) == "ckpt.resume_state_incomplete"


def test_that_somebody_cancelled_a_job_is_no_time_limit_and_that_it_resumed_is_no_fault():
    cancelled = facts(line("slurm.cancelled_by", "0"), line("host.slurm_state", "CANCELLED", number=2))
    by_cause = {h.cause: h for h in rank(playbooks(), cancelled)}
    assert "mechanism" not in getattr(by_cause.get("env.watchdog_kill"), "parts", ())
    limited = facts(line("host.slurm_state", "TIMEOUT"), line("slurm.time_limit", 3600, number=2))
    assert verdict(rank(playbooks(), limited)) == "env.watchdog_kill"
    resumed = {h.cause: h for h in rank(playbooks(), facts(line("resume.from_step", 205), line("run.restarted", 2)))}
    assert not any("mechanism" in h.parts for h in resumed.values())


def test_an_origin_goes_before_what_follows_from_it():
    proves = Hypothesis("loss.layer_numerics", "", "", 0.45, 2.9, positive=True, parts=("effect", "mechanism"))
    follows = replace(proves, probability=0.5, explained_by="loss.layer_numerics", cause="ckpt.nan_weights")
    assert verdict([follows, proves]) == "loss.layer_numerics"


def test_nan_equals_nan():
    book = [parse(UNDIVIDED.replace("not_learning", "nan"), "loss/grad_accumulation_bug", "d.md")]
    asked = Evidence(key="question.symptom", value="nan", kind="asked")
    alone, with_it = (rank(book, facts(line("code.unscaled_accumulation"), *more))[0].score for more in ((), (asked,)))
    assert with_it > alone
