"""Failures that only a checkpoint or recorded gradients show: a whole diagnosis of real small runs, offline."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.tools.training_runs import made

CASES = [
    ("frozen", "one layer does not seem to learn, why?", "loss.frozen_params", "ckpt_diff.never_trained"),
    ("detached", "the model learns slowly, one layer seems dead", "loss.frozen_params", "ckpt_diff.never_trained"),
    ("adapter_untrained", "the LoRA gives the same output as the base model", "loss.frozen_params", "ckpt_diff.adapter_untrained"),
    ("corrupt", "after resuming the loss spikes, is the optimizer state ok?", "loss.optimizer_state_corrupt", "optimizer.negative_variance"),
    ("vanishing", "the loss stays flat, the deep net does not learn", "loss.bad_init", "grad_layer.vanishing"),
    ("exploding", "the loss is huge from the first step", "loss.bad_init", "grad_layer.exploding"),
    ("nan", "the loss became nan at step 8", "loss.layer_numerics", "grad_layer.backward_origin"),
    ("rounded", "the loss does not fall at all in bf16", "loss.kernel_numerics", "ckpt_diff.update_lost"),
    ("moe_collapsed", "why does my mixture of experts learn badly?", "moe.expert_imbalance", "expert.never_changed"),
]  # fmt: skip


@pytest.mark.parametrize(("run", "question", "cause", "key"), CASES, ids=[c[0] for c in CASES])
def test_the_cause_is_found_in_the_checkpoints(request, doctor, tmp_path, run, question, cause, key):
    kept = made(request.config.rootpath) / run
    if key.startswith("expert."):  # its log tells the loads of the experts, too
        kept = shutil.copytree(kept, tmp_path / run, ignore=shutil.ignore_patterns("*.log"))
    done = doctor("ask", question, "--run", kept, "--offline", "--json", "--quiet")
    report = json.loads(done.stdout)
    assert report["root_cause"]["id"] == cause, [(d["id"], d["confidence"]) for d in report["differential"]]
    assert key in {e["key"] for e in report["evidence"]}


@pytest.mark.parametrize("run", ["healthy", "hf", "moe", "lightning", "adapter"])
def test_a_run_that_trains_is_not_blamed(request, doctor, run):
    done = doctor("ask", "did anything go wrong?", "--run", made(request.config.rootpath) / run, "--offline", "--json")
    report = json.loads(done.stdout)
    assert report["status"] not in ("likely", "confirmed"), report["root_cause"]
