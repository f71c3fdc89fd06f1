"""Wordings of one session: which ask about what was found, and which state a problem that has to be diagnosed."""

from __future__ import annotations

import pytest
from traindoctor.agent.verdict.intent import FOLLOW_UPS, intent_of

FOUND = {
    "status": "confirmed",
    "root_cause": {"id": "loss.lr_too_high"},
    "evidence": [{"kind": "line", "file": "logs/train.log"}],
}
FOLLOWING = {
    "because": [
        "why?", "why do you say that?", "how do you know?", "explain that", "show me the evidence",
    ],
    "sure": [
        "are you sure?", "how confident are you?", "what else could it be?", "any other causes?",
    ],
    "verify": [
        "how do I verify that?", "what would confirm it?",
    ],
    "act": [
        "what should I do now?", "how do I fix it?", "can I restart from the last checkpoint?", "what's the fix?",
    ],
    "checked": [
        "what did you check?", "what was ruled out?",
    ],
    "show_evidence": [
        "what is E3?", "E12",
    ],
    "show_lines": [
        "show line 40 of train.log", "what does line 40 of train.log say?", "lines 0-5 of train.log",
        "train.log:40-60", "last 20 lines of train.log",
    ],
    "check_rank": [
        "check rank 3", "look at rank 0 and rank 1", "check ranks 0-3", "check rank 99999999999",
        "what about rank 3?", "did rank 3 fail?", "is rank 5 ok?", "check rank 0, 5 to 7 and 9", "did rank 3 crash?",
    ],
    "what_if": [
        "what if I use bf16?", "what if micro_batch_size=4", "what happens if I set NCCL_P2P_DISABLE=1?",
        "what if NCCL_TIMEOUT=3600", "and with batch size 4?", "would zero 3 avoid the OOM?",
        "would bf16 fix the NaN?", "will it still crash if I use bf16?", "would a smaller batch help?",
        "does halving the learning rate help?", "could this be fixed by a larger batch?",
        "can this be avoided with gradient checkpointing?", "should I lower the learning rate to 1e-5?",
        "what about bf16?", "suppose I double the batch size", "what if I use bf16, would it still hang?",
        "what if I set the learning rate to 1e-5?", "does the loader work with dataloader_workers=0?",
        "could this work with a larger batch?",
    ],
    "why_not": [
        "why not a straggler?", "why not the learning rate?", "why did you rule out fragmentation?",
        "could it be a bad batch?", "isn't it the network?", "is it the data loader?", "I think it's overheating",
        "what about fragmentation?", "did you consider a memory leak?", "what speaks against a straggler?",
        "couldn't it be overfitting?", "why isn't it overfitting?", "can it be caused by a broken GPU?",
    ],
}  # fmt: skip
PROBLEMS = [
    "the loss went to NaN at step 3200 and never came back", "it hangs after the first all reduce",
    "why does the loss spike every 1000 steps?", "why did rank 3 crash at step 40?",
    "what about the other job, it died as well", "what about the validation loss, why does it rise?",
    "how about the data, could it be corrupted after the copy?", "with 2 nodes it works, with 4 nodes it hangs",
    "with zero stage 3 I get CUDA out of memory", "without gradient checkpointing it crashes with OOM",
    "if I use bf16 it runs, with fp16 the loss is nan", "can we train with fp8? it fails with an assertion",
    "does flash attention work here? we see a segfault", "should I use bf16? the loss explodes with fp16",
    "would zero 3 help? we run out of memory at step 2",
    "what happens when dataloader_workers=8? the job freezes", "what if one rank dies during a save?",
    "what happens when a node fails?", "what happens if the disk is full?",
    "what happens when the loss is nan? the scaler keeps skipping", "why isn't the loss going down?",
    "why isn't it converging", "why can't rank 3 connect to the master?", "why can't I load the optimizer state?",
    "why is it not saving checkpoints?", "why is this not resuming from the last checkpoint?",
    "why was it not faster on 16 GPUs?", "why isn't the gpu utilization higher",
    "why not a single checkpoint was written?", "is it normal that memory grows every step?",
    "is it still running?", "could it be made faster?", "can it be resumed from step 4000?",
    "would it be faster on H100?", "we think it started after the upgrade to torch 2.6",
    "I think the last checkpoint is bad, resume gives a shape mismatch",
    "check why rank 3 is slower than the others", "check whether the data is shuffled",
    "check the learning rate schedule, the loss is flat",
    "can you look at the crash of rank 5 and rank 6 at step 40?", "my run crashed with exit code 137",
    "line 40 of train.log says CUDA error, what is wrong?", "rank 3 is stuck in all_reduce",
    "compare rank 0 and rank 7", "what if it is a bug? the loss jumps after every resume",
    "suppose the node is bad, how would I see it?", "throughput dropped by half since yesterday",
    "what if the learning rate is too high? loss goes up", "can I increase the batch size to 16? it dies at 8",
    "does gradient checkpointing work with FSDP? mine crashes", "suppose loss is nan in bf16, what then",
    "is it because of the new driver that the loss goes nan?", "was it running out of memory at step 200?",
    "how about resuming from step 4000, which checkpoint is good?", "would this have been caught by the validation?",
    "what happens when world_size=16? the run hangs at init",
    "what happens when step=3200 is reached: loss goes NaN", "what if LOCAL_RANK=3 never joins? it hangs",
    "what about the second run, why did it fail too?", "with batch size 4 it runs, with batch size 8 it crashes",
    "does bf16 work on this node? it crashed right at start",
    "does zero 3 work with pipeline parallel? We get an assertion", "why isn't it learning anything",
    "why can't it find the checkpoint?", "why isn't this using all the GPUs?",
    "why is it not using flash attention?", "why not all ranks reach the barrier?",
    "would it help to look at the validation loss?", "can you check why rank 3 hangs",
]  # fmt: skip
ALONE = ("show_lines", "check_rank", "what_if")  # what may be asked of a run at once


@pytest.mark.parametrize(("name", "question"), [(n, q) for n, asked in FOLLOWING.items() for q in asked])
def test_what_was_found_is_asked_about(name: str, question: str) -> None:
    found = intent_of(question, beside_run=True, earlier=FOUND)
    assert found is not None and found.name == name
    first = intent_of(question, beside_run=True)
    assert first is None or first.name in ALONE or first.name not in FOLLOW_UPS


@pytest.mark.parametrize("earlier", [None, FOUND, {"status": "answer"}], ids=["first", "diagnosed", "answered"])
@pytest.mark.parametrize("question", PROBLEMS)
def test_a_problem_is_diagnosed(question: str, earlier: dict[str, object] | None) -> None:
    assert intent_of(question, beside_run=True, earlier=earlier) is None


def test_there_are_enough_of_both() -> None:
    assert sum(map(len, FOLLOWING.values())) >= 40 and len(PROBLEMS) >= 40


@pytest.mark.parametrize(
    ("question", "ranks"),
    [
        ("check rank 0 and rank 1", [0, 1]), ("check ranks 0-3", [0, 1, 2, 3]), ("check rank 3", [3]),
        ("look at ranks 2, 5 to 7", [2, 5, 6, 7]), ("check rank 3 and 3", [3]), ("check ranks 3-1", [3, 1, 2]),
        ("check rank 99999999999", [99999999999]), ("check ranks 0-999999999999", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)  # fmt: skip
def test_every_rank_that_is_named_is_looked_at(question: str, ranks: list[int]) -> None:
    found = intent_of(question, beside_run=True, earlier=None)
    assert found is not None and [c.args["rank"] for c in found.calls] == ranks


@pytest.mark.parametrize(
    ("question", "setting", "value"),
    [
        ("could this be fixed by a larger batch", "micro_batch_size", "double"),
        ("would a smaller learning rate help?", "learning_rate", "half"),
        ("would zero 3 avoid the OOM?", "zero_stage", "3"), ("and with batch size 4?", "micro_batch_size", "4"),
    ],
)  # fmt: skip
def test_a_supposition_in_everyday_words(question: str, setting: str, value: str) -> None:
    found = intent_of(question, beside_run=True, earlier=FOUND)
    assert found is not None and found.calls[0].args == {"setting": setting, "value": value}


@pytest.mark.parametrize("question", ["what if I use bf16", "what if micro_batch_size=4", "what if NCCL_P2P_DISABLE=1"])
def test_a_setting_that_is_known_may_be_supposed_at_once(question: str) -> None:
    found = intent_of(question, beside_run=True)
    assert found is not None and found.name == "what_if"
    for trouble in ("it hangs", "all ranks crash", "loss is NaN", "we run out of memory", "I get an error"):
        assert intent_of(f"{question}? {trouble}", beside_run=True) is None


@pytest.mark.parametrize("question", ["what happens when step=3200 is reached", "what if my_own_thing=3"])
def test_what_is_no_setting_is_not_supposed(question: str) -> None:
    assert intent_of(question, beside_run=True) is None
