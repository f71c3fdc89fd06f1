"""Gradients by layer: recorded by real runs, saved, logged, or from moments."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from traindoctor.agent.reading.checkpoints.weights import forward_order, layer_of, module_of
from traindoctor.agent.reading.profiles.gradients import gradient_name
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.gradients_tools import inspect_gradients

from tests.tools.captured import Seen, look
from tests.tools.training_runs import made


@pytest.fixture(scope="module")
def runs(request) -> Path:
    return made(request.config.rootpath)


def seen_in(folder: Path, **arguments: str) -> Seen:
    result = inspect_gradients(Workspace([folder]), **arguments)
    for e in result.evidence:
        assert inspect_gradients.allows(e.key), e.key
    return Seen(result, folder)


@pytest.mark.parametrize("name", ["healthy", "hf", "adapter", "moe", "mixtral", "lightning"])
def test_ordinary_gradients_are_clean(runs, name):
    seen = seen_in(runs / name)
    assert seen.result.outcome == "clean", seen.result.summary


def test_sources_of_a_healthy_run_agree(runs):
    seen = seen_in(runs / "healthy")
    saved, recorded = seen.values("grad_layer.total_norm")
    assert saved == pytest.approx(recorded, rel=1e-3)
    assert 0.1 < seen.one("grad_layer.ratio") < 10
    assert 1e-4 < seen.one("grad_layer.update_ratio") < 0.1


def test_vanishing(runs):
    seen = seen_in(runs / "vanishing")
    assert max(seen.values("grad_layer.vanishing")) < 1e-6
    assert seen.one("grad_layer.slope") > 1


def test_exploding(runs):
    seen = seen_in(runs / "exploding")
    assert min(seen.values("grad_layer.exploding")) > 1e6
    moments = seen_in(runs / "exploding", path="ckpt_step_4.pt")
    assert moments.values("grad_layer.exploding")


@pytest.mark.parametrize(("name", "layer"), [("frozen", "layers.1."), ("detached", "layers.2.")])
def test_no_gradient(runs, name, layer):
    seen = seen_in(runs / name)
    assert len(names := seen.values("grad_layer.zero")) == 6
    assert all(n.startswith(layer) for n in names)


def test_where_nan_came_in(runs):
    seen = seen_in(runs / "nan")
    assert seen.one("grad_layer.first_nonfinite") == "embed_tokens.weight"
    assert seen.one("grad_layer.backward_origin") == "layers.2.up.bias"  # what follows in the block was still finite
    assert seen.of("grad_layer.backward_origin")[0].step == 8
    assert not seen.values("grad_layer.all_nonfinite")


def test_all_gradients_nan_or_zero(tmp_path):
    rows = [{"step": 1, "name": f"layers.{i}.w", "norm": math.nan} for i in range(4)]
    nan = look(inspect_gradients, tmp_path, gradients_jsonl="".join(json.dumps(r) + "\n" for r in rows))
    assert nan.one("grad_layer.all_nonfinite") is True
    rows = [{"step": s, "name": f"layers.{i}.w", "norm": 0.0} for s in (1, 2) for i in range(4)]
    zero = look(inspect_gradients, tmp_path, gradients_jsonl="".join(json.dumps(r) + "\n" for r in rows))
    assert zero.one("grad_layer.all_zero") is True


def test_a_tracker_s_curves(tmp_path):
    header = ["step", "loss", *(f"grad_norm/model.layers.{i}.mlp.weight" for i in range(8))]
    rows = [",".join(map(str, [s, 2.0, *(10.0 ** (i - 8) for i in range(8))])) for s in range(1, 6)]
    seen = look(inspect_gradients, tmp_path, metrics_csv="\n".join([",".join(header), *rows]) + "\n")
    assert seen.one("grad_layer.vanishing") < 1e-4
    assert seen.one("grad_layer.slope") == pytest.approx(1, abs=0.01)


def test_tensorboard(tmp_path):
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(str(tmp_path))
    for step in range(5):
        for i in range(6):
            writer.add_scalar(f"gradients/layers.{i}.weight", 10.0**-i, step)
    writer.close()
    seen = seen_in(tmp_path)
    assert seen.one("grad_layer.exploding") > 1e3
    assert seen.of("grad_layer.exploding")[0].kind == "binary"


def test_moments_alone_stand_in_for_gradients(runs, tmp_path):
    shutil.copy(runs / "vanishing" / "ckpt_step_30.pt", tmp_path)
    assert seen_in(tmp_path).one("grad_layer.vanishing") < 1e-6


def test_a_damaged_recording_is_not_called_clean(tmp_path):
    good = [{"step": 1, "name": f"layers.{i}.w", "norm": 1.0} for i in range(4)]
    text = "".join(json.dumps(r) + "\n" for r in good) + '{"step": 2, "name": "layers.0.w", "no'
    assert look(inspect_gradients, tmp_path, gradients_jsonl=text).result.outcome == "failed"


def test_nothing_there(tmp_path):
    assert (
        look(inspect_gradients, tmp_path, train_log="step 1 loss 2 grad_norm 1.0\n").result.outcome == "not_applicable"
    )


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("grad_norm/layers.0.attn", "layers.0.attn"), ("gradients/model.layers.3.mlp.weight/norm", "model.layers.3.mlp.weight"),
        ("layers.0.weight.grad_norm", "layers.0.weight"), ("grad_2.0_norm/model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("grad_norm", None), ("train/grad_norm", None), ("actor/grad_norm", None), ("gradient_accumulation/steps", None),
    ],
)  # fmt: skip
def test_names_of_curves(raw, name):
    assert gradient_name(raw) == name


def test_forward_order():
    names = ["lm_head.weight", "norm.weight", "layers.10.w", "layers.2.w", "embed_tokens.weight"]
    assert forward_order(names) == ["embed_tokens.weight", "layers.2.w", "layers.10.w", "norm.weight", "lm_head.weight"]
    assert layer_of("module.model.layers.7.mlp.w") == 7 and layer_of("transformer.h.3.ln_1.bias") == 3
    assert module_of("model.layers.7.mlp.w") == "layers.7"


def test_json_lines_with_a_key_for_each_parameter(tmp_path):
    rows = [{"step": s, "loss": 2.0, "grad_norm": {f"layers.{i}.w": 10.0 ** (i - 8) for i in range(8)}} for s in (1, 2)]
    seen = look(inspect_gradients, tmp_path, metrics_jsonl="".join(json.dumps(r) + "\n" for r in rows))
    assert seen.one("grad_layer.vanishing") < 1e-4
    assert seen.of("grad_layer.vanishing")[0].line == 2


def recorded(tmp_path: Path, rows: list[dict]) -> Seen:
    return look(inspect_gradients, tmp_path, gradients_jsonl="".join(json.dumps(r) + "\n" for r in rows))


def adapter_rows(adapters: float | None, **more: object) -> list[dict]:
    """Two steps of four layers with a frozen weight and the two halves of its adapter."""
    names = {"base_layer.weight": None, "lora_A.default.weight": adapters, "lora_B.default.weight": adapters}
    return [
        {"step": s, "name": f"model.layers.{i}.q_proj.{n}", "norm": norm} | (more if norm is None else {})
        for s in (1, 2)
        for i in range(4)
        for n, norm in names.items()
    ]


@pytest.mark.parametrize("more", [{}, {"requires_grad": False}])
def test_weights_frozen_beside_adapters_need_no_gradient(tmp_path, more):
    assert recorded(tmp_path, adapter_rows(0.5, **more)).result.outcome == "clean"


def test_adapters_without_gradient_are_found_beside_frozen_weights(tmp_path):
    assert recorded(tmp_path, adapter_rows(0.0)).one("grad_layer.all_zero") is True


def test_a_weight_frozen_in_full_training_is_named_so(tmp_path):
    rows = [{"step": s, "name": f"layers.{i}.w", "norm": 1.0, "requires_grad": True} for s in (1, 2) for i in range(4)]
    rows += [{"step": s, "name": "layers.4.w", "norm": None, "requires_grad": False} for s in (1, 2)]
    seen = recorded(tmp_path, rows)
    assert seen.one("grad_layer.zero") == "layers.4.w"
    assert seen.of("grad_layer.zero")[0].line


def test_a_recording_that_is_too_large_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("traindoctor.agent.reading.profiles.gradients._FILE_LIMIT", 100)
    (tmp_path / "gradients.jsonl").write_text("".join(json.dumps(r) + "\n" for r in adapter_rows(0.5)))
    ws = Workspace([tmp_path])
    inspect_gradients(ws)
    assert [name for name, why in ws.skipped if "over" in why] == ["gradients.jsonl"]
