"""Two checkpoints of real runs: what moved, what never did."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from traindoctor.agent.core.deadline import Deadline
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.checkpoint_compare import compare_checkpoints

from tests.reading.checkpoints.makers import made as made_checkpoints
from tests.tools.captured import Seen
from tests.tools.training_runs import made


@pytest.fixture(scope="module")
def runs(request) -> Path:
    return made(request.config.rootpath)


def compared(folder: Path, good: Path | None = None, **arguments: str) -> Seen:
    result = compare_checkpoints(Workspace([folder], good=[good] if good else None), **arguments)
    for e in result.evidence:
        assert compare_checkpoints.allows(e.key), e.key
    return Seen(result, folder)


@pytest.mark.parametrize("name", ["healthy", "hf", "adapter", "moe", "mixtral"])
def test_runs_that_train_come_out_clean(runs, name):
    seen = compared(runs / name)
    assert seen.result.outcome == "clean", seen.result.summary
    assert seen.one("ckpt_diff.unchanged_fraction") == 0
    assert 1e-3 < seen.one("ckpt_diff.median_change") < 2


def test_a_frozen_layer(runs):
    seen = compared(runs / "frozen")
    names = seen.values("ckpt_diff.never_trained")
    assert len(names) == 6 and all(n.startswith("layers.1.") for n in names)
    assert not seen.values("ckpt_diff.should_have_moved")  # it may have been frozen on purpose
    assert "holds no state" in seen.of("ckpt_diff.never_trained")[0].text
    assert seen.one("ckpt_diff.unchanged_fraction") == pytest.approx(6 / 28, abs=1e-3)


def test_a_layer_cut_off_from_the_loss_is_in_the_optimizer_all_the_same(runs):
    seen = compared(runs / "detached")
    assert {n.split(".")[1] for n in seen.values("ckpt_diff.never_trained")} == {"2"}
    assert len(seen.values("ckpt_diff.should_have_moved")) == 6
    assert "no gradient ever reached it: cut off" in seen.of("ckpt_diff.never_trained")[0].text


def test_adapters_outside_the_optimizer(runs):
    seen = compared(runs / "adapter_untrained")
    assert seen.one("ckpt_diff.all_identical") is True
    assert len(seen.values("ckpt_diff.adapter_untrained")) == 2
    alone = compared(runs / "adapter_untrained" / "checkpoint-20")
    assert alone.result.outcome == "finding" and len(alone.values("ckpt_diff.adapter_untrained")) == 2
    assert compared(runs / "adapter" / "checkpoint-20").result.outcome == "clean"


def test_steps_that_bfloat16_rounds_away(runs):
    seen = compared(runs / "rounded")
    assert seen.values("ckpt_diff.update_lost") and not seen.values("ckpt_diff.never_trained")


def test_weights_that_turned_nan(runs):
    assert "embed_tokens.weight" in compared(runs / "nan").values("ckpt_diff.became_nonfinite")


def test_the_same_checkpoint_saved_twice(runs, tmp_path):
    for step in (3, 6):
        shutil.copytree(runs / "hf" / "checkpoint-3", tmp_path / f"checkpoint-{step}")
    assert compared(tmp_path).one("ckpt_diff.all_identical") is True


def altered(runs: Path, tmp_path: Path, change) -> Path:
    for step in (3, 6):
        (tmp_path / f"checkpoint-{step}").mkdir()
        tensors = load_file(runs / "hf" / f"checkpoint-{step}" / "model.safetensors")
        save_file(change(tensors) if step == 6 else tensors, tmp_path / f"checkpoint-{step}" / "model.safetensors")
    return tmp_path


def test_keys_shapes_types_and_wrappers(runs, tmp_path):
    def change(tensors):
        tensors["score.weight"] = np.ones((2, 2), np.float32)
        tensors["transformer.wpe.weight"] = np.ones((4, 32), np.float32)
        tensors["transformer.ln_f.weight"] = tensors["transformer.ln_f.weight"].astype(np.float16)
        del tensors["transformer.ln_f.bias"]
        return tensors

    seen = compared(altered(runs, tmp_path, change))
    assert set(seen.values("ckpt_diff.key_only_in")) == {"score.weight", "transformer.ln_f.bias"}
    assert seen.one("ckpt_diff.shape_differs") == "transformer.wpe.weight"
    assert seen.one("ckpt_diff.dtype_differs") == "float32 -> float16"


def test_names_that_differ_in_a_wrapper_still_pair(runs, tmp_path):
    seen = compared(altered(runs, tmp_path, lambda t: {f"module._orig_mod.{n}": v for n, v in t.items()}))
    assert "module._orig_mod." in seen.one("ckpt_diff.prefix_differs")
    assert seen.one("ckpt_diff.unchanged_fraction") == 0
    assert not seen.values("ckpt_diff.key_only_in")


def test_against_a_good_run_and_by_name(runs):
    seen = compared(runs / "frozen", good=runs / "healthy")
    assert "ckpt_step_30.pt" in seen.result.summary and seen.one("ckpt_diff.unchanged_fraction") < 0.3
    named = compared(runs / "healthy", before="ckpt_step_30.pt", after="ckpt_step_10.pt")
    assert named.result.summary.startswith("ckpt_step_30.pt -> ckpt_step_10.pt")
    with pytest.raises(ToolError, match="no checkpoint called 'nowhere'"):
        compared(runs / "healthy", before="nowhere")


def test_a_truncated_side_is_never_called_clean(runs, tmp_path):
    for step in (10, 30):
        shutil.copy(runs / "healthy" / f"ckpt_step_{step}.pt", tmp_path)
    whole = (tmp_path / "ckpt_step_30.pt").read_bytes()
    (tmp_path / "ckpt_step_30.pt").write_bytes(whole[: len(whole) // 2])
    assert compared(tmp_path).result.outcome == "failed"


def test_nothing_to_compare(tmp_path):
    (tmp_path / "train.log").write_text("step 1 loss 2\n")
    assert compared(tmp_path).result.outcome == "not_applicable"


@pytest.mark.parametrize("kind", ["zero1", "zero2", "zero3"])
def test_deepspeed_whose_rate_was_zero_at_its_first_steps(kind):
    """The warm-up starts at zero, so the second save equals the first, in the flat fp32 buffers too."""
    assert compared(made_checkpoints(kind)).one("ckpt_diff.all_identical") is True


@pytest.mark.parametrize("kind", ["dcp", "lightning", "peft", "torch"])
def test_other_frameworks_that_train(kind):
    seen = compared(made_checkpoints(kind))
    assert seen.result.outcome == "clean", seen.result.summary
    assert seen.one("ckpt_diff.unchanged_fraction") == 0


def test_what_time_did_not_allow_is_not_called_identical(runs):
    ws = Workspace([runs / "adapter_untrained"])
    compare_checkpoints(ws)  # headers are known now; the values are what takes time
    with Deadline(-1):
        result = compare_checkpoints(ws)
    assert result.outcome == "failed" and "4 were not read" in result.summary
    assert not [e for e in result.evidence if e.key == "ckpt_diff.all_identical"]
