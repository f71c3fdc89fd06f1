"""Mixtures of experts: real checkpoints and what logs print of the load."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from traindoctor.agent.reading.checkpoints.experts import mixtures
from traindoctor.agent.reading.checkpoints.parts import Tensor
from traindoctor.agent.reading.checkpoints.weights import Weights
from traindoctor.agent.reading.profiles.expert_loads import balances, printed_loads
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.experts_tools import expert_usage

from tests.tools.captured import Seen, look
from tests.tools.training_runs import made


@pytest.fixture(scope="module")
def runs(request) -> Path:
    return made(request.config.rootpath)


def seen_in(folder: Path) -> Seen:
    result = expert_usage(Workspace([folder]))
    for e in result.evidence:
        assert expert_usage.allows(e.key), e.key
    return Seen(result, folder)


def test_a_balanced_mixture_is_clean(runs):
    seen = seen_in(runs / "moe")
    assert seen.result.outcome == "clean", seen.result.summary
    assert seen.one("expert.imbalance_cv") < 0.5


def test_experts_saved_apart_by_transformers(runs):
    assert seen_in(runs / "mixtral").result.outcome == "clean"


def test_a_collapsed_router(runs):
    seen = seen_in(runs / "moe_collapsed")
    assert set(seen.values("expert.dead")) == {6}
    assert {e.kind for e in seen.of("expert.dead")} == {"line", "binary"}  # printed, and in the optimizer
    assert seen.one("expert.never_changed") == 6
    assert seen.one("expert.bias_dominates") == 10
    assert seen.one("expert.imbalance_cv") > 1.5 and seen.one("expert.max_over_mean") == 4


def mixture(**changes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    tensors = {"model.layers.0.mlp.gate.weight": rng.normal(size=(4, 8)).astype(np.float32)}
    for e in range(4):
        tensors[f"model.layers.0.mlp.experts.{e}.up_proj.weight"] = rng.normal(size=(8, 8)).astype(np.float32)
    return tensors | {f"model.layers.0.mlp.{k}": v for k, v in changes.items()}


def saved(folder: Path, *states: dict[str, np.ndarray]) -> Path:
    for step, tensors in enumerate(states, 1):
        (folder / f"checkpoint-{step}").mkdir()
        save_file(tensors, folder / f"checkpoint-{step}" / "model.safetensors")
    return folder


def test_experts_copied_from_one_another(tmp_path):
    copies = {f"experts.{e}.up_proj.weight": np.ones((8, 8), np.float32) for e in range(4)}
    assert seen_in(saved(tmp_path, mixture(**copies))).one("expert.identical") == 4


def test_experts_fused_in_one_tensor(tmp_path):
    rng = np.random.default_rng(1)
    fused = rng.normal(size=(4, 16, 8)).astype(np.float32)
    fused[2] = fused[1]
    moved = fused.copy()
    moved[0] += 0.5
    gate = {"model.layers.0.mlp.gate.weight": rng.normal(size=(4, 8)).astype(np.float32)}
    name = "model.layers.0.mlp.experts.gate_up_proj"
    seen = seen_in(saved(tmp_path, gate | {name: fused}, {k: v * 1.1 for k, v in gate.items()} | {name: moved}))
    assert seen.one("expert.identical") == 2
    assert seen.one("expert.never_changed") == 3


def test_routers(tmp_path):
    gate = np.random.default_rng(2).normal(size=(4, 8)).astype(np.float32)
    for i, (change, key) in enumerate(
        [
            (gate, "expert.router_unchanged"), (gate * 40, "expert.router_growth"), (gate * 0, "expert.router_zero"),
            (gate * np.nan, "expert.router_nonfinite"), (np.tile(gate[:1], (4, 1)), "expert.router_collapsed"),
        ]
    ):  # fmt: skip
        folder = tmp_path / str(i)
        folder.mkdir()
        first, second = mixture(**{"gate.weight": gate}), mixture(**{"gate.weight": np.ascontiguousarray(change)})
        second = {k: v if "gate" in k else v + 1 for k, v in second.items()}
        assert seen_in(saved(folder, first, second)).values(key), key


def test_a_gated_unit_is_no_router(tmp_path):
    dense = {
        "layers.0.mlp.gate.weight": np.ones((4, 8), np.float32),
        "layers.0.mlp.up.weight": np.ones((4, 8), np.float32),
    }
    assert seen_in(saved(tmp_path, dense)).result.outcome == "not_applicable"


LOGS = {
    "megatron": "iteration 10 | layer 3 tokens per expert: tensor([4096, 12, 0, 0], device='cuda:0')",
    "json": json.dumps({"step": 10, "layer": 3, "moe/tokens_per_expert": [4096, 12, 0, 0]}),
    "words": "step 10 layer 3 expert_usage: [0.99, 0.01, 0.0, 0.0]",
}


@pytest.mark.parametrize("wording", LOGS)
def test_lists_in_logs(tmp_path, wording):
    seen = look(expert_usage, tmp_path, train_log=f"starting\n{LOGS[wording]}\n")
    assert seen.one("expert.dead") == 2
    assert seen.one("expert.max_over_mean") > 3.5


def test_a_curve_for_each_expert(tmp_path):
    rows = [
        {"step": s, **{f"moe/layer_0/expert_{e}_load": load for e, load in enumerate((0.9, 0.1, 0.0, 0.0))}}
        for s in (1, 2, 3)
    ]
    seen = look(expert_usage, tmp_path, metrics_jsonl="\n".join(map(json.dumps, rows)) + "\n")
    assert seen.one("expert.dead") == 2


def test_a_step_without_tokens_for_one_expert_is_no_death(tmp_path):
    lines = [f"step {s} layer 0 tokens_per_expert: [{10 + s % 3}, {9 if s % 4 else 0}, 11, 12]" for s in range(40)]
    seen = look(expert_usage, tmp_path, train_log="\n".join(lines) + "\n")
    assert not seen.values("expert.dead") and seen.result.outcome == "clean"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["tokens_per_expert: [", "1, 2", "nan", "-3", "]", "expert load = [1e400, 1]"])
        | st.text(max_size=30),
        max_size=12,
    )
)
def test_no_text_breaks_the_reader(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.log").write_text("expert " + " ".join(parts), errors="replace")
    balances(printed_loads(Workspace([folder])))


def shaped(*shapes: tuple[str, tuple[int, ...]]) -> Weights:
    file = RunFile("model.safetensors", Path("model.safetensors"), "checkpoint", 0)
    return Weights("c", "hf", 1, {n: Tensor(n, "float32", s, file, 0, 4) for n, s in shapes})


@pytest.mark.parametrize(
    ("expert", "router", "bias"),
    [
        ("model.layers.3.mlp.experts.{}.gate_proj.weight", "model.layers.3.mlp.gate.weight", "model.layers.3.mlp.gate.e_score_correction_bias"),
        ("model.layers.3.block_sparse_moe.experts.{}.w1.weight", "model.layers.3.block_sparse_moe.gate.weight", ""),
        ("decoder.layers.3.mlp.experts.local_experts.{}.linear_fc1.weight", "decoder.layers.3.mlp.router.weight", "decoder.layers.3.mlp.router.expert_bias"),
        ("decoder.layers.3.mlp.experts.linear_fc1.weight{}", "decoder.layers.3.mlp.router.weight", "decoder.layers.3.mlp.router.expert_bias"),
        ("h.3.deepspeed_moe.experts.deepspeed_experts.{}.fc.weight", "h.3.deepspeed_moe.gate.wg.weight", ""),
    ],
)  # fmt: skip
def test_names_of_each_framework(expert, router, bias):
    named = [(expert.format(e), (8, 8)) for e in range(4)] + [(router, (4, 8))]
    (found,) = mixtures(shaped(*named, *([(bias, (4,))] if bias else [])))
    assert set(found.experts) == {0, 1, 2, 3} and found.router is not None
    assert (found.bias is not None) == bool(bias)


def test_shared_experts_are_not_routed():
    assert not mixtures(
        shaped(
            ("layers.0.mlp.shared_experts.gate_proj.weight", (8, 8)), ("layers.0.mlp.shared_expert.up.weight", (8, 8))
        )
    )


def test_router_scores_that_rise_all_along(tmp_path) -> None:
    from traindoctor.agent.tools.curves.metrics_tools import find_anomalies

    rows = "".join(f'{{"step": {n}, "train/loss": {3 - n / 100}, "router_z_loss": {8 + n / 10}}}\n' for n in range(60))
    (tmp_path / "metrics.jsonl").write_text(rows)
    keys = {e.key for e in find_anomalies(Workspace([tmp_path])).evidence}
    assert "router.z_loss_rising" in keys
