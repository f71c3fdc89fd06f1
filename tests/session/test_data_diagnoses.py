"""Whole diagnoses of runs whose fault is in the data: the dataset beside a config and a log, and a question."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.tools.data.batch_tools import find_bad_samples

from tests.tools.test_dataset import jsonl, pairs, prose
from tests.tools.test_eval_results import harness, right

LOG = "".join(
    f"step: {n} loss: {2.6 - n / 100:.4f} grad_norm: {0.9 + n % 3 / 10:.2f} lr: 2e-05\n" for n in range(1, 60)
)
CONFIG = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000}, indent=1)


def report(folder: Path, question: str) -> Report:
    events = list(diagnose(Workspace([folder]), question, state=folder.parent / "state"))
    last = events[-1]
    assert isinstance(last, ReportReady)
    return last.report


def cause(folder: Path, question: str) -> str | None:
    return report(folder, question).root_cause.id


@pytest.fixture
def run(tmp_path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(LOG)
    (folder / "config.json").write_text(CONFIG)
    return folder


def test_a_token_beyond_the_vocabulary(run) -> None:
    ids = np.random.default_rng(0).integers(0, 32000, 200_000)
    ids[150_000] = 32001
    ids.astype("<u2").tofile(run / "train.bin")
    (run / "train.log").write_text(LOG + "RuntimeError: CUDA error: device-side assert triggered\n")
    found = report(run, "training dies with a CUDA error after a while")
    assert found.root_cause.id == "data.index_out_of_range"
    assert "data.token_out_of_range" in {e.key for e in found.evidence}


def test_a_corpus_of_copies(run) -> None:
    rows = pairs(300)
    near = [dict(r, response=r["response"].replace("river", "brook") + " Yes.") for r in rows for _ in range(2)]
    (run / "train.jsonl").write_text(jsonl(rows + near))
    assert cause(run, "the model repeats training text word for word, is the data the problem?") == "data.duplicates"


def test_the_test_set_in_the_training_data(run) -> None:
    train, test = pairs(300), pairs(60, first=700)
    for n in range(40):
        train[n]["prompt"] = f"{prose(9000 + n, 12)} {test[n]['prompt']} {prose(8000 + n, 12)}"
    (run / "train.jsonl").write_text(jsonl(train))
    (run / "eval.jsonl").write_text(jsonl(test))
    assert cause(run, "the benchmark score is suspiciously high, too good to be true") == "data.contamination"


def test_text_decoded_twice(run) -> None:
    rows = pairs(300)
    for r in rows[::3]:
        r["response"] = "L\u00c3\u00a9on a mang\u00c3\u00a9 le g\u00c3\u00a2teau. " + r["response"]
    (run / "train.jsonl").write_text(jsonl(rows))
    assert cause(run, "why does the model write garbled characters?") == "data.encoding"


def test_empty_answers(run) -> None:
    rows = pairs(300)
    for r in rows[::4]:
        r["response"] = ""
    (run / "train.jsonl").write_text(jsonl(rows))
    (run / "train.log").write_text(LOG + "IndexError: index -1 is out of bounds for dimension 1 with size 0\n")
    assert cause(run, "why did training stop?") == "data.empty_samples"


def test_answers_that_the_harness_does_not_find(run) -> None:
    wrong = [
        harness(n, f"We have {n} and {n}, which gives {2 * n}. The answer is {2 * n}.", str(2 * n), "[invalid]", 0.0)
        for n in range(11, 60)
    ]
    rows = [right(n) for n in range(9)] + wrong
    (run / "samples_gsm8k_2026-01-01.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = report(run, "gsm8k is far lower than the paper reports")
    assert found.root_cause.id == "eval.harness_mismatch"
    assert "eval_result.not_extracted" in {e.key for e in found.evidence}


def test_a_batch_whose_padding_counts(run) -> None:
    torch = pytest.importorskip("torch")
    (run / "config.json").write_text(CONFIG.replace("}", ', "pad_token_id": 0, "eos_token_id": 2}'))
    ids = torch.randint(3, 32000, (4, 64))
    ids[:, 39], ids[:, 40:] = 2, 0
    labels = torch.where(torch.arange(64) < 20, -100, ids)
    torch.save({"input_ids": ids, "labels": labels, "attention_mask": (ids != 0).long()}, run / "batch_0.pt")
    found = report(run, "the loss falls fast but the answers of the model are bad")
    assert found.root_cause.id == "loss.wrong_masking"
    assert "batch.padding_counted" in {e.key for e in found.evidence}


def test_the_record_that_spoils_a_step(run) -> None:
    lines = [
        f"step: {n} loss: {'nan' if n >= 13 else f'{2.6 - n / 100:.4f}'} grad_norm: 0.91 lr: 2e-05"
        for n in range(1, 30)
    ]
    (run / "train.log").write_text("\n".join(lines) + "\n")
    (run / "config.yaml").write_text(
        "per_device_train_batch_size: 8\ngradient_accumulation_steps: 1\nworld_size: 1\nshuffle: false\n"
    )
    rows = [dict(r, score=0.5) for r in pairs(300)]
    rows[99]["score"] = float("nan")
    (run / "train.jsonl").write_text(jsonl(rows))
    found = report(run, "loss became NaN at step 13 all of a sudden, always the same step")
    assert found.root_cause.id == "loss.bad_batch"
    seen = find_bad_samples(Workspace([run])).evidence
    assert [e.line for e in seen if e.key == "sample.bad_in_step"] == [100]


def test_sound_data_blame_nothing(run) -> None:
    (run / "train.jsonl").write_text(jsonl(pairs(300)))
    found = report(run, "is anything wrong with my run?")
    assert found.root_cause.id in ("none.healthy", "none.insufficient_evidence")
