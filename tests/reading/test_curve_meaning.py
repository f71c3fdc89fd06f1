"""What a number of a log is: of which mode, of which step, told once; and where a run went on and where it ended."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from traindoctor.agent.reading.curves.anomalies.finding import Curve
from traindoctor.agent.reading.curves.anomalies.optimizer_curves import warm_restarts
from traindoctor.agent.reading.curves.anomalies.restored import resumed_by_code
from traindoctor.agent.reading.curves.anomalies.resumes import all_restarts
from traindoctor.agent.reading.curves.curves import curves
from traindoctor.agent.reading.curves.series import Series, Track
from traindoctor.agent.reading.logs.endings import endings
from traindoctor.agent.reading.logs.failures import failures
from traindoctor.agent.reading.run.discover import places
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan.logpass import logpass
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies


def read(folder: Path, files: dict[str, str]) -> Workspace:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Workspace([folder])


def curve(ws: Workspace, metric: str, file: str = "train.log") -> Series:
    return next(s for s in curves(ws).of(metric) if s.file.name == file)


@pytest.mark.parametrize(
    ("line", "metric"),
    [
        ("Validation Results - Epoch: {n}  Avg accuracy: 0.98 Avg loss: 0.{n}", "eval_loss"),
        ("Test set: Average loss: 0.{n}, Accuracy: 90/100 (90%)", "eval_loss"),
        ("[eval] epoch {n} loss 0.{n}", "eval_loss"),
        ("epoch {n} train loss 0.{n} acc 0.5 | val loss 0.9 acc 0.4", "loss"),
        ("train: epoch {n} loss 0.{n}", "loss"),
        ("step {n}/700 loss 0.{n}", "loss"),
        ("2026-01-01 test_model.py:12 epoch {n} loss 0.{n}", "loss"),
        ("warm start step {n} loss 0.{n}", ""),
    ],
)
def test_numbers_belong_to_the_mode_of_their_line(tmp_path: Path, line: str, metric: str) -> None:
    ws = read(tmp_path, {"train.log": "".join(line.format(n=n) + "\n" for n in range(11, 17))})
    assert [s.metric for s in curves(ws).series if 0.11 in s.values] == ([metric] if metric else [])


def test_batches_of_an_evaluation_are_no_points_and_no_restart(tmp_path: Path) -> None:
    log = ""
    for epoch in range(3):
        log += "".join(f"Epoch: [{epoch}][{n:3}/50]\tTime 0.03\tLoss {2 - epoch / 2:.3f}\n" for n in range(1, 50, 10))
        log += "".join(f"Test: [{n:3}/30]\tTime 0.01\tLoss 0.4\n" for n in range(1, 31, 10))
    ws = read(tmp_path, {"train.log": log})
    loss = curve(ws, "loss")
    assert loss.steps[[0, 5, 10]].tolist() == [1, 51, 101] and 0.4 not in loss.values
    assert not any(e.key.startswith("resume.") for e in find_anomalies(ws).evidence)


def test_a_bar_within_an_epoch_counts_on_and_a_global_counter_beside_it_is_let_alone(tmp_path: Path) -> None:
    log = ""
    for epoch in range(1, 5):
        bars = (f"Epoch [{epoch}/4]: [{n}/50]  {2 * n}%|██, loss=1.{n:02} [00:01<00:01]" for n in range(1, 51))
        log += "\r".join(bars) + "\n"
        log += "".join(f"Epoch[{epoch}] Iteration[{50 * epoch - 50 + n}/200] Loss: 0.{n}\n" for n in (25, 50))
    found = curves(read(tmp_path, {"train.log": log})).of("loss")
    assert [s.steps[-1] for s in found] == [200, 200]


def test_a_time_is_no_step(tmp_path: Path) -> None:
    ws = read(tmp_path, {"train.log": "".join(f" Step: {n}ms | Tot: 1s | Loss: 2.{n}\n" for n in (300, 280, 310, 290))})
    assert not curve(ws, "loss").stepped
    assert curve(ws, "step_time").values.tolist() == [0.3, 0.28, 0.31, 0.29]


STATE = {"log_history": [*({"step": 10 * n, "loss": 2 / n, "epoch": n / 10} for n in range(1, 13)),
                         {"step": 120, "train_loss": 1.1, "train_runtime": 9.5, "epoch": 1.2}]}  # fmt: skip


def test_a_summary_is_no_point_and_what_two_files_tell_is_told_once(tmp_path: Path) -> None:
    log = "".join(f"{{'loss': '{2 / n:.4g}', 'epoch': '{n / 10}'}}\n" for n in range(1, 13))
    log += "{'train_runtime': '9.5', 'train_loss': '1.1', 'epoch': '1.2'}\n***** train metrics *****\n"
    log += "  epoch                    =        1.2\n  train_loss               =        1.1\n"
    ws = read(tmp_path, {"train.log": log, "out/trainer_state.json": json.dumps(STATE, indent=1)})
    losses = curves(ws).of("loss")
    assert [(len(s), s.stepped) for s in losses] == [(12, True), (12, True)]
    assert [s.copy_of is None for s in losses].count(True) == 1
    final = [e for e in find_anomalies(ws).evidence if e.key == "loss.final_value"]
    assert [(e.file, e.step) for e in final] == [("train.log", 120)]


def test_each_attempt_of_a_log_is_found_in_the_history_of_all(tmp_path: Path) -> None:
    def part(first: int, last: int) -> str:
        return "".join(f"{{'loss': '{2 / n:.4g}'}}\n" for n in range(first, last))

    ws = read(tmp_path, {"first.log": part(1, 7), "second.log": part(7, 13), "trainer_state.json": json.dumps(STATE)})
    assert curve(ws, "loss", "second.log").steps.tolist() == [70, 80, 90, 100, 110, 120]


def test_two_runs_with_the_same_numbers_are_two(tmp_path: Path) -> None:
    rows = "step,loss\n" + "".join(f"{n},{2 / n}\n" for n in range(1, 13))
    ws = read(tmp_path, {"mon/metrics.csv": rows, "tue/metrics.csv": rows})
    assert all(s.copy_of is None for s in curves(ws).series)


# ----------

PROGRAM = """
import os
import torch

def check(model):
    total = 0.0
    for x in range(3):
        total += 1.0
    print(f"checked, result {total / 3:.4f} over all")
    return total

def describe(model):
    print("made of two layers")

def main():
    model, opt = torch.nn.Linear(2, 2), None
    describe(model)
    first = 0
    if os.path.exists("kept.pt"):
        kept = torch.load("kept.pt")
        model.load_state_dict(kept["net"])
        opt.load_state_dict(kept["opt"])
        first = kept["step"]
        print(f"taking it up once more, {first} are behind us")
    for step in range(first, 40):
        loss = model(1)
        print(f"iteration {step} loss {loss.item() * 4:.4f}")
    print("that was that")

main()
"""


def steps(first: int, last: int) -> str:
    return "".join(f"iteration {n} loss {4 - n / 20:.4f}\n" for n in range(first, last))


def state(ws: Workspace) -> str:
    found = logpass(ws)
    return endings(ws, found, failures(ws)).state


def test_the_expression_of_a_number_is_known(tmp_path: Path) -> None:
    ws = read(tmp_path, {"train.py": PROGRAM, "train.log": "made of two layers\n" + steps(0, 30)})
    assert curve(ws, "loss").expression == "loss.item() * 4"


def test_a_result_printed_by_an_evaluation_is_of_the_evaluation(tmp_path: Path) -> None:
    code = PROGRAM.replace("def check", "def evaluate").replace("result", "loss:")
    log = "made of two layers\n" + "".join(f"checked, loss: 1.{n} over all\n" for n in range(5, 9)) + steps(0, 30)
    assert curve(read(tmp_path, {"train.py": code, "train.log": log}), "eval_loss").values[0] == 1.5


@pytest.mark.parametrize(
    ("log", "ended"),
    [
        (steps(0, 40) + "that was that\n", "finished"),
        (steps(0, 23), "unknown"),
        (steps(0, 23) + "checked, result 1.0000 over all\n", "unknown"),
        (steps(0, 23) + "made of two layers\n", "unknown"),
    ],
    ids=["past the loop", "within it", "in an evaluation", "before it"],
)
def test_a_log_ends_where_the_program_got_past_its_loop(tmp_path: Path, log: str, ended: str) -> None:
    assert state(read(tmp_path, {"train.py": PROGRAM, "train.log": "made of two layers\n" + log})) == ended


def test_saving_is_not_finishing_and_words_said_time_and_again_are_progress(tmp_path: Path) -> None:
    (one := tmp_path / "one").mkdir()
    (two := tmp_path / "two").mkdir()
    assert state(read(one, {"train.log": steps(0, 20) + "Model saved to out/model.pt\n"})) != "finished"
    log = "".join(f"step {n} loss 0.5\nfinished {n} steps in 3 s\n" for n in range(100, 600, 100))
    assert state(read(two, {"train.log": log})) != "finished"
    assert state(read(two, {"train.log": steps(0, 20) + "finished 240 steps in 8.3 s\n"})) == "finished"


def test_a_resume_is_known_by_the_code_that_takes_the_state_over(tmp_path: Path) -> None:
    log = steps(0, 20) + "taking it up once more, 20 are behind us\n" + steps(20, 40)
    ws = read(tmp_path, {"train.py": PROGRAM, "train.log": "made of two layers\n" + log})
    assert [(r.step, r.line.number) for r in all_restarts(ws)] == [(20, 22)]
    assert sorted(resumed_by_code(ws)[0].by.parts) == ["model", "optimizer", "step"]
    told = [(e.value, e.text) for e in find_anomalies(ws).evidence if e.key == "resume.restored"]
    assert told == [("model, optimizer, step", '        opt.load_state_dict(kept["opt"])')]


def test_a_function_that_trains_is_no_restoring_and_its_name_is_a_method_of_models_too(tmp_path: Path) -> None:
    code = PROGRAM.replace("def main():", "def train():").replace("\nmain()\n", "\ntrain()\n")
    code = code.replace(
        "        loss = model(1)\n", "        loss = model(1)\n        loss.backward()\n        if step:\n"
    )
    code = code.replace('        print(f"iter', '            model.train()\n            print(f"iter')
    ws = read(tmp_path, {"train.py": code, "train.log": "made of two layers\n" + steps(0, 40)})
    assert ws.ran.programs and not all_restarts(ws)


def test_what_an_evaluator_prints_is_of_the_evaluation(tmp_path: Path) -> None:
    code = PROGRAM.replace("def check(model):", "class Evaluator:\n  def __call__(self, model):")
    code = code.replace('print(f"checked, result {total / 3:.4f} over all")', 'print("Losses: {}".format(dict(total)))')
    log = "made of two layers\n" + steps(0, 30) + "Losses: {'kl': 1.25, 'total_loss': 2.75}\n"
    ws = read(tmp_path, {"train.py": code, "train.log": log})
    assert curve(ws, "eval_loss").values[0] == 2.75 and curve(ws, "loss").count == 30


def test_weights_alone_are_no_resume(tmp_path: Path) -> None:
    code = PROGRAM.replace('        opt.load_state_dict(kept["opt"])\n        first = kept["step"]\n', "")
    code = code.replace("taking it up once more, {first} are behind us", "loaded checkpoint at step {first}")
    log = "loaded checkpoint at step 0\n" + steps(0, 40)
    assert not all_restarts(read(tmp_path, {"train.py": code, "train.log": "made of two layers\n" + log}))


# ----------


def rates(values: list[float]) -> Curve:
    track = Track("learning_rate", "lr")
    at = np.arange(1, len(values) + 1)
    track.extend(at.astype(float), np.array(values), at, at * 10)
    found = track.finish(RunFile("train.log", Path("train.log"), "log", 0))
    assert found is not None
    return Curve(found)


def test_a_schedule_that_begins_anew_is_one() -> None:
    cycle = [0.5, 0.4, 0.3, 0.2, 0.1, 0.05]
    assert warm_restarts(rates(cycle * 3)).tolist() == [6, 12]
    assert warm_restarts(rates(cycle * 2)).tolist() == []  # once may be an accident
    assert warm_restarts(rates(cycle * 2), asked=True).tolist() == [6]
    assert warm_restarts(rates([0.1, 0.1, 0.1, 0.5, 0.1, 0.1, 0.5])).tolist() == []


def test_processes_are_ranks_and_no_variants() -> None:
    found = places([("logs/process_0.log", "log"), ("logs/process_1.log", "log"), ("proc_4711.log", "log")])
    assert [(p.rank, p.variant) for p in found.values()] == [(0, None), (1, None), (None, None)]
