"""What a question asks for: a diagnosis unless its words clearly ask for something else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from traindoctor.agent.verdict.intent import hardware, intent_of

ROOT = Path(__file__).resolve().parents[2]
ASKED = sorted(ROOT.glob("evals/*/*/incident.yaml"))

KNOWLEDGE = [
    "what does Xid 79 mean", "what is GSS", "What is the difference between ZeRO-2 and ZeRO-3?", "explain MFU",
    "how do I read a flight recorder dump", "how do I find the slow node?", "does NCCL_TIMEOUT do anything?",
    "which settings do nothing in slime?", "Xid 63 meaning: what does it stand for?", "tell me about row remapping",
    "what are exit codes 137 and 139", "How should I set the warmup for a 7B model?", "define gradient noise scale",
]  # fmt: skip
DIAGNOSIS = [
    "is my run ok", "why is it slow", "what happened?", "what is wrong with my run", "what does this error mean",
    "What is going on at step 4000?", "What's the problem?", "what is the root cause", "which rank is the culprit",
    "how do I fix the crash?", "How can I resume this run?", "what does our loss curve mean", "is this normal",
    "Does the new node work with the others? It hung twice.", "What stopped the job?", "loss went NaN at step 4k",
    "It does not fit any more since we upgraded", "why does a batch of 2 not fit on 80 GB", "we get overfitting",
    "can you see why the fit crashed", "",
]  # fmt: skip
FIT = ["will this config fit on 8 x 80 GB", "does it fit on 4 H100s?", "How much memory does Llama-3-8B need?"]
PREFLIGHT = ["what should I check before launching", "Is it safe to start?", "what could go wrong with this config?"]


@pytest.mark.parametrize(
    ("question", "intent"),
    [(q, name) for name, asked in (("knowledge", KNOWLEDGE), (None, DIAGNOSIS), ("fit", FIT), ("preflight", PREFLIGHT))
     for q in asked],
)  # fmt: skip
def test_intent(question: str, intent: str | None) -> None:
    found = intent_of(question)
    assert (found.name if found else None) == intent


@pytest.mark.parametrize("path", ASKED, ids=lambda p: p.parent.name)
def test_a_question_about_a_run_is_a_diagnosis(path: Path) -> None:
    assert intent_of(yaml.safe_load(path.read_text(encoding="utf-8"))["question"]) is None


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("will this config fit on 8 x 80 GB", {"ranks": 8, "gpu": "80"}),
        ("fits on 2 nodes of 8 H100s?", {"ranks": 16, "gpu": "H100"}),
        ("does Qwen2.5-7B fit on 4 A100 40GB cards", {"ranks": 4, "gpu": "40", "config": "Qwen2.5-7B"}),
        ("does it fit", {}),
        ("What will go wrong on 192 GB?", {"gpu": "192"}),
        ("2x8 H100", {"ranks": 16, "gpu": "H100"}),
        ("8x80GB", {"ranks": 8, "gpu": "80"}),
        ("8xH100", {"ranks": 8, "gpu": "H100"}),
    ],
)
def test_hardware(question: str, found: dict[str, object]) -> None:
    assert hardware(question) == found


ABOUT_THE_RUN = [
    "Explain why loss is NaN", "Where does the NaN come from?", "What is limiting throughput?", "What's the bottleneck?",
    "What does Xid 79 mean and why did it crash?", "NCCL watchdog timeout, what does it mean?", "Which GPU is slow?",
    "Which GPU has ECC errors?", "Which setting caused OOM?", "Which version of torch is installed?",
    "How do I fix CUDA out of memory?", "Loss is NaN at 4000, what does that mean?", "What was the peak memory?",
    "What is the learning rate?", "What is leaking memory", "When does loss diverge?", "how are experts balanced",
    "should be 40k tok/s, it is 20k before we start compile", "what should I check before launching",
]  # fmt: skip


@pytest.mark.parametrize("question", ABOUT_THE_RUN)
def test_beside_a_run_a_question_in_doubt_is_about_it(question: str) -> None:
    assert intent_of(question, beside_run=True) is None


@pytest.mark.parametrize("question", ["what does Xid 79 mean", "what is GSS", "what is an SXid"])
def test_beside_a_run_the_meaning_of_a_word_is_still_told(question: str) -> None:
    found = intent_of(question, beside_run=True)
    assert found is not None and found.name == "knowledge"


def test_reward_hacking_is_no_launch() -> None:
    found = intent_of("what can go wrong with reward hacking")
    assert found is None or found.name != "preflight"
    rate = intent_of("Is the learning rate good to train?")
    assert rate is None or rate.name != "preflight"
