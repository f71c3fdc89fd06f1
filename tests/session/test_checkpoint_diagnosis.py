"""A run folder with a damaged checkpoint and the log of the resume that failed: the cause is named, the file cited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.telling.outline import outline

from tests.reading.checkpoints.damage import change, cut, overwrite, poison
from tests.reading.checkpoints.makers import copy

HEAD = "[INFO] starting training\nstep 1 loss 4.50\nstep 2 loss 4.21\nstep 3 loss 4.02\nstep 4 loss 3.91\n"
RESUME = "[INFO] resuming from checkpoint-4\n"
LOAD = 'Traceback (most recent call last):\n  File "train.py", line 88, in <module>\n    load_checkpoint(model, path)\n'
CUT = (
    f"{RESUME}{LOAD}safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, "
    "file not fully covered\n"
)
ZIP = f"{RESUME}{LOAD}RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
LOST = f"{RESUME}{LOAD}FileNotFoundError: [Errno 2] No such file or directory: 'global_step2/{{}}'\n"
NAN = f"{RESUME}step 5 loss nan grad_norm nan\nstep 6 loss nan grad_norm nan\nstep 7 loss nan grad_norm nan\n"
SHAPE = (
    f"{RESUME}{LOAD}RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n\tsize mismatch for "
    "model.embed_tokens.weight: copying a param with shape torch.Size([99, 32]) from checkpoint, the shape in current "
    "model is torch.Size([120, 32]).\n"
)
REFUSED = (
    f"{RESUME}{LOAD}_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have "
    "two options\n\tWeightsUnpickler error: Unsupported global: GLOBAL posix.system was not an allowed global by default.\n"
)
RANGE = (
    'Traceback (most recent call last):\n  File "train.py", line 90, in <module>\n    loss = model(ids)\n'
    '  File "torch/nn/functional.py", line 2567, in embedding\n    return torch.embedding(weight, input)\n'
    "RuntimeError: CUDA error: device-side assert triggered\n"
)
PARALLEL = (
    f"{RESUME}{LOAD}AssertionError: tensor model parallel size 2 of the checkpoint does not match the current 4\n"
)
GONE = f"{RESUME}{LOAD}FileNotFoundError: [Errno 2] No such file or directory: '/run/global_step9'\n"
ADAM = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"


def report_on(run: Path, log: str, question: str, tmp_path: Path) -> Report:
    (run / "train.log").write_text(HEAD + log)
    *_, last = diagnose(Workspace([run], question=question), question, state=tmp_path / "state")
    assert isinstance(last, ReportReady)
    return last.report


def _vocabulary(run: Path) -> None:
    config = run / "checkpoint-4" / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 99', '"vocab_size": 120'))


def _token(run: Path) -> None:
    path = run / "checkpoint-4" / "tokenizer.json"
    known = json.loads(path.read_text())
    known["added_tokens"].append({"id": 104, "content": "<tool>", "special": True})
    path.write_text(json.dumps(known))


def _no_moments(run: Path) -> None:
    change(run / "step_4.pt", lambda s: {k: v for k, v in s.items() if k not in ("optimizer", "scheduler")})


CASES: list[tuple[str, str, Callable[[Path], object], str, str, set[str]]] = [
    ("ckpt.truncated", "hf", lambda r: cut(r / "checkpoint-4/model.safetensors"), CUT, "why does it not resume?",
     {"checkpoint.truncated"}),
    ("ckpt.truncated", "torch", lambda r: cut(r / "step_4.pt"), ZIP, "the resume fails", {"checkpoint.truncated"}),
    ("ckpt.missing_shards", "zero2", lambda r: (r / "global_step2" / ADAM).unlink(), LOST.format(ADAM),
     "resume fails", {"checkpoint.missing_shard"}),
    ("ckpt.nan_weights", "hf", lambda r: overwrite(r, "hf", "mlp.up_proj", float("nan")), NAN, "NaN after every resume",
     {"checkpoint.nonfinite_first", "checkpoint.nonfinite"}),
    ("ckpt.shape_mismatch", "hf", _vocabulary, SHAPE, "loading fails", {"checkpoint.vocab_mismatch"}),
    ("ckpt.unsafe_pickle", "torch", lambda r: poison(r / "step_4.pt", r / "canary"), REFUSED, "loading fails",
     set()),  # the line alone decides
    ("data.index_out_of_range", "hf", _token, RANGE, "it crashes since we added a token",
     {"tokenizer.exceeds_embedding"}),
    ("ckpt.parallelism_mismatch", "megatron",
     lambda r: (r / "launch.sh").write_text("python pretrain_gpt.py --tensor-model-parallel-size 4 --load .\n"),
     PARALLEL, "we resume on more GPUs", {"checkpoint.layout_differs"}),
    ("ckpt.path_or_permission", "zero1", lambda r: (r / "latest").write_text("global_step9"), GONE, "resume fails",
     {"checkpoint.tracker_mismatch"}),
    ("ckpt.resume_state_incomplete", "torch", _no_moments, f"{RESUME}step 5 loss 6.90\nstep 6 loss 6.80\nstep 7 loss 6.7\n",
     "the loss jumps after the resume", {"checkpoint.no_optimizer"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "kind", "damage", "log", "question", "cited"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_a_damaged_checkpoint_is_the_cause(
    cause: str, kind: str, damage: Callable[[Path], object], log: str, question: str, cited: set[str], tmp_path: Path
) -> None:
    run = copy(kind, tmp_path)
    damage(run)
    report = report_on(run, log, question, tmp_path)
    assert report.root_cause is not None
    assert report.root_cause.id == cause, [(d.id, d.confidence) for d in report.differential]
    found = [e for e in report.evidence if e.key in cited]
    assert found or not cited, [(c.tool, c.outcome) for c in report.checked]
    assert not (run / "canary").exists()


@pytest.mark.parametrize("kind", ["hf", "zero3", "lightning", "dcp", "megatron"])
def test_whole_checkpoints_are_no_cause(kind: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    lines = "".join(f"step {s} loss {4.5 - s * 0.01:.4f} lr 0.001\n" for s in range(5, 200))
    report = report_on(
        run, f"{lines}[INFO] saved checkpoint\n[INFO] training finished\n", "is this run all right?", tmp_path
    )
    assert report.root_cause is None or not report.root_cause.id.startswith("ckpt."), report.root_cause
    assert not [e for e in report.evidence if e.key.startswith("checkpoint.") and "no_" in e.key]


def test_the_report_says_from_where_to_start_again(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    overwrite(run, "hf", "mlp.up_proj", float("nan"))
    report = report_on(run, NAN, "NaN after every resume", tmp_path)
    assert report.restart is not None and report.restart.from_checkpoint == "checkpoint-2"
    shown = [item.text for s in outline(report).sections if s.title == "Starting again" for item in s.items]
    assert "checkpoint-2 (read whole, clean)" in shown[1]


@pytest.mark.parametrize(
    ("question", "cause"),
    [
        ("resuming from checkpoint-4 gives nan at once", "ckpt.nan_weights"),
        ("why did the loss become nan?", "loss."),
    ],
)
def test_the_question_tells_the_failed_resume_from_the_run_that_failed(
    question: str, cause: str, tmp_path: Path
) -> None:
    """The log is of the run that saved NaN: asked about the resume, the file is the cause; otherwise it is not.

    Three lines of NaN do not tell which fault of the loss it was: that one leads is enough.
    """
    run = copy("hf", tmp_path)
    overwrite(run, "hf", "mlp.up_proj", float("nan"))
    report = report_on(run, "step 5 loss nan\nstep 6 loss nan\nstep 7 loss nan\n", question, tmp_path)
    leads = next(d.id for d in report.differential if d.id != "none.insufficient_evidence")
    assert leads.startswith(cause) and report.root_cause.id in (leads, "none.insufficient_evidence")
    assert report.root_cause.id == cause or cause == "loss."
