"""Repairs whose amount the evidence gives: what a file becomes, and that nothing is guessed where it tells none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.repair.treatment.runs import made, repairs, run_of, seen

GROUPS = "ValueError: generation_batch_size ({}) must be divisible by num_generations ({})."
PARALLEL = "lint.parallel_sizes"


def after(folder: Path, slug: str, files: dict[str, str], *evidence: tuple[str, object]) -> dict[str, str]:
    """The files after the first repair that has patches; empty where none has."""
    ws = run_of(folder, files)
    found = [seen(key, value, step=value if key == "eval.best_step" else 400) for key, value in evidence]
    report = repairs(ws, slug, evidence=found)
    first = next((n for n, f in enumerate(report.fixes) if f.patches and not f.finds), None)
    return {} if first is None else made(ws, report, first)


CASES = [
    ("speed/checkpoint_slow", "save_steps: 2\n", ("breakdown.checkpoint", 0.654), "save_steps: 35\n"),
    ("speed/checkpoint_slow", "save_steps: 10\n", ("profile.checkpoint_fraction", 0.5), "save_steps: 90\n"),
    ("speed/checkpoint_slow", "save_steps: 10\n", ("step_time.periodic", True), "save_steps: 40\n"),
    ("memory/sequence_too_long", "max_seq_length: 16384\n", ("memory.longest_passed", 300), "max_seq_length: 512\n"),
    ("memory/sequence_too_long", "max_seq_length: 16384\n", ("memory.oom", "cuda"), "max_seq_length: 8192\n"),
    (
        "data/index_out_of_range", "num_labels: 5\n",
        ("error.first", "IndexError: Target 5 is out of bounds."), "num_labels: 6\n",
    ),
    ("data/index_out_of_range", "n_classes: 10\n", ("data.label_out_of_range", 11), "n_classes: 12\n"),
    ("data/index_out_of_range", "vocab_size: 100\n", ("tokenizer.exceeds_config", 101), "vocab_size: 102\n"),
    ("data/encoding", "encoding: latin-1\n", ("data.encoding_misread", "latin-1, a.txt is utf-8"), "encoding: utf-8\n"),
    (
        "data/encoding", "text_encoding: cp1252\n",
        ("data.encoding_misread", "cp1252, my data.csv is utf-8"), "text_encoding: utf-8\n",
    ),
    (
        "dist/topology_config", "tp_size: 4\ndp_size: 2\n",
        (PARALLEL, "model-parallel 4 x data-parallel 2 is not 4 processes"), "tp_size: 4\ndp_size: 1\n",
    ),
    (
        "dist/topology_config", "tensor_parallel_size: 6\n",
        (PARALLEL, "8 processes are not a multiple of the model-parallel size 6"), "tensor_parallel_size: 4\n",
    ),
    (
        "ckpt/shape_mismatch", "vocab_size: 32064\n",
        (
            "error.message",
            "size mismatch for model.embed_tokens.weight: copying a param with shape torch.Size([32000, 4096]) from "
            "checkpoint, the shape in current model is torch.Size([32064, 4096]).",
        ),
        "vocab_size: 32000\n",
    ),
    (
        "ckpt/parallelism_mismatch", "tensor_model_parallel_size: 1\n",
        ("checkpoint.split_otherwise", "2 parts on disk, 1 now"), "tensor_model_parallel_size: 2\n",
    ),
    ("loss/overfitting", "num_epochs: 40\n", ("eval.best_step", 140), None),
    ("env/setting_ignored", "max_grad_norm: 1.0\n", ("lint.ignored_setting", "clipping is ignored"), None),
]  # fmt: skip


@pytest.mark.parametrize(("slug", "text", "evidence", "becomes"), CASES)
def test_a_value_is_what_the_evidence_asks_for(tmp_path, slug, text, evidence, becomes):
    texts = after(tmp_path, slug, {"train.yaml": text}, evidence)
    assert texts.get("train.yaml", text) == (becomes or text)


NEAR = [
    # 255 marks what is to be ignored, and a head of 256 classes would hide it.
    ("data/index_out_of_range", "num_classes: 19\n", ("error.first", "IndexError: Target 255 is out of bounds.")),
    ("data/index_out_of_range", "num_classes: 9\n", ("error.first", "IndexError: Target 5 is out of bounds.")),
    # A head of the classes is no vocabulary, and a vocabulary of another size is not the one that was refused.
    (
        "ckpt/shape_mismatch", "vocab_size: 5\n",
        ("error.message", "size mismatch for classifier.weight: torch.Size([3, 8]) from checkpoint, torch.Size([5, 8])"),
    ),
    (
        "ckpt/shape_mismatch", "vocab_size: 50\n",
        ("error.message", "size mismatch for wte.weight: torch.Size([30, 8]) from checkpoint, torch.Size([48, 8])."),
    ),
    (
        "ckpt/parallelism_mismatch", "tensor_model_parallel_size: 4\n",
        ("checkpoint.split_otherwise", "2 parts on disk, 1 now"),
    ),
    # An encoding of positions is no encoding of text.
    ("data/encoding", "encoding: sinusoidal\n", ("data.encoding_misread", "latin-1, a.txt is utf-8")),
    (
        "dist/topology_config", "tp_size: 3\ndp_size: 2\n",
        (PARALLEL, "model-parallel 3 x data-parallel 2 is not 4 processes"),
    ),
    (
        "dist/topology_config", "tensor_parallel_size: 3\n",
        (PARALLEL, "7 processes are not a multiple of the model-parallel size 3"),
    ),
    ("loss/lr_too_low", "total_steps: 60\n", ("learning_rate.zero_share", 0.9)),  # nothing says that it ended
]  # fmt: skip


@pytest.mark.parametrize(("slug", "text", "evidence"), NEAR)
def test_what_the_evidence_does_not_tell_is_left(tmp_path, slug, text, evidence):
    texts = after(tmp_path, slug, {"train.yaml": text}, evidence)
    assert texts.get("train.yaml", text) == text


def test_training_ends_where_validation_was_best(tmp_path: Path) -> None:
    found = (("eval.best_step", 140), ("eval.worsened", 1.4))
    text = "num_train_epochs: 40\nmax_steps: 400\n"
    texts = after(tmp_path, "loss/overfitting", {"train.yaml": text}, *found)
    assert texts["train.yaml"] == "num_train_epochs: 14\nmax_steps: 140\n"


def test_the_limit_of_steps_goes_only_where_epochs_were_asked_for(tmp_path: Path) -> None:
    said = ("lint.ignored_setting", "max_steps = 30 overrides the number of epochs")
    text = "per_device_train_batch_size: 4\nmax_steps: 30\nnum_train_epochs: 5\n"
    assert not after(tmp_path / "a", "env/setting_ignored", {"train.yaml": text}, said)
    complained = ("compare.asked_not_done", {"name": "epochs", "asked": 5, "done": 0.5})
    texts = after(tmp_path / "b", "env/setting_ignored", {"train.yaml": text}, said, complained)
    assert texts["train.yaml"] == "per_device_train_batch_size: 4\nnum_train_epochs: 5\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(micro=st.integers(1, 64), steps=st.integers(1, 8), group=st.integers(2, 16))
def test_a_group_divides_the_new_product(tmp_path_factory, micro, steps, group):
    text = f"per_device_train_batch_size: {micro}\ngradient_accumulation_steps: {steps}\nnum_generations: {group}\n"
    said = ("error.first", GROUPS.format(micro * steps, group))
    texts = after(tmp_path_factory.mktemp("run"), "rl/batch_constraint", {"grpo.yaml": text}, said)
    rows = dict(row.split(": ") for row in texts.get("grpo.yaml", text).splitlines())
    assert int(rows["per_device_train_batch_size"]) * steps % group == 0
    if texts:
        assert micro * steps % group


@pytest.mark.parametrize(("folders", "becomes"), [
    (["out/intents/checkpoint-40"], "out/intents/checkpoint-40"),
    (["out/intents/checkpoint-80"], "out/intent/checkpoint-40"),
    (["out/entirely-other/checkpoint-40"], "out/intent/checkpoint-40"),
    (["out/intents/checkpoint-40", "out/intend/checkpoint-40"], "out/intent/checkpoint-40"),
])  # fmt: skip
def test_a_path_is_mended_where_one_folder_is_called_nearly_so(tmp_path, folders, becomes):
    files = {f"{folder}/trainer_state.json": "{}" for folder in folders}
    files["train.yaml"] = "per_device_train_batch_size: 4\nresume_from_checkpoint: out/intent/checkpoint-40\n"
    said = "ValueError: Can't find a valid checkpoint at out/intent/checkpoint-40"
    found = (("error.first", said), ("error.message", said))
    texts = after(tmp_path, "ckpt/path_or_permission", files, *found)
    assert f"resume_from_checkpoint: {becomes}\n" in texts.get("train.yaml", files["train.yaml"])


SCRIPT = "#!/bin/bash\nexport OMP_NUM_THREADS=4\nexport GLOO_SOCKET_IFNAME=bond0\ntorchrun train.py\n"


@pytest.mark.parametrize(
    ("error", "stays"),
    [("[enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: bond0", False), ("timed out", True)],
)
def test_a_variable_is_taken_out_where_it_names_what_is_not_there(tmp_path: Path, error: str, stays: bool) -> None:
    texts = after(tmp_path, "dist/network_interface", {"launch.sh": SCRIPT}, ("error.first", error))
    assert ("GLOO_SOCKET_IFNAME" in texts.get("launch.sh", SCRIPT)) is stays
    assert "OMP_NUM_THREADS=4" in texts.get("launch.sh", SCRIPT)


@pytest.mark.parametrize(
    ("row", "rows"),
    [
        ("tokenizer: 101 entries, of them 7 special", 101), ("loaded tokenizer (50258 tokens)", 50258),
        ("len(tokenizer) = 32001", 32001), ("Tokenizer vocab size: 151670", 151670),
        ("tokenizer: 90 entries", None), ("tokenizer read 2400000 tokens of text", None), ("vocabulary of 300", None),
    ],
)  # fmt: skip
def test_rows_for_what_the_log_says_the_tokenizer_has(tmp_path: Path, row: str, rows: int | None) -> None:
    text = "vocab_size: 100\n"
    said = ("error.first", "IndexError: index out of range in self")
    texts = after(tmp_path, "data/index_out_of_range", {"model.yaml": text, "train.log": f"{row}\n"}, said)
    assert texts.get("model.yaml", text) == (f"vocab_size: {rows}\n" if rows else text)


TALK = "text: ### Question: where are the nails ? ### {}: in hall 1 . </s>\n"


@pytest.mark.parametrize(
    ("template", "log", "becomes"),
    [
        ("### Answer:", TALK.format("Response"), "### Response:"),
        ("[BOT]", "[USER] hello [/USER]: [ASSISTANT]: hi\n" * 2, "[ASSISTANT]"),
        ("[BOT]", "[USER] hello\n[ASSISTANT] hi\n", None),  # no line has both
        ("### Response:", TALK.format("Response"), None),
        ("### Answer:", TALK.format("Response") + TALK.format("Reply"), None),
        ("### Answer:", TALK.format("Response") + TALK.format("Answer"), None),
        ("### Answer:", "response_template: ### Answer:\n" + TALK.format("Response"), "### Response:"),
        ("Answer", TALK.format("Response"), None),
    ],
)
def test_the_mask_looks_for_the_header_that_all_samples_have(tmp_path, template, log, becomes):
    text = f'response_template: "{template}"\n'
    texts = after(tmp_path, "loss/wrong_masking", {"sft.yaml": text, "train.log": log}, ("loss.zero", 1))
    assert texts.get("sft.yaml", text) == (f'response_template: "{becomes}"\n' if becomes else text)
