"""What a fact is about: whose connection, whose bar, which data, a step or a record, a variant or the run before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.reading.datasets.dataset_files import is_written, of_the_run
from traindoctor.agent.reading.memory.oom import step_of
from traindoctor.agent.tools.collectives.nccl_tools import nccl_log
from traindoctor.agent.tools.curves.metrics_tools import compare_rows, find_anomalies, read_metrics
from traindoctor.agent.tools.logs.log_tools import scan_logs, telling_lines
from traindoctor.agent.tools.tool import Tool

from tests.tools.captured import Seen
from tests.tools.folders import workspace


def look(tool: Tool, folder: Path, **files: str) -> Seen:
    return Seen(tool(workspace(folder, **files)), folder / "run")


STEPS = "".join(f"step {i} loss {3 - i / 50:.4f}\n" for i in range(0, 100, 5))
OF_A_SERVER = (
    "tracking server failed: <urlopen error [Errno 111] Connection refused>; kept for later",
    "mlflow: HTTPConnectionPool(host='10.0.0.9', port=5000): Max retries exceeded: [Errno 111] Connection refused",
    'Traceback (most recent call last):\n  File "/usr/lib/python3.11/http/client.py", line 941, in connect\n'
    "    self.sock = self._create_connection(\nConnectionRefusedError: [Errno 111] Connection refused",
)
OF_A_PEER = (
    "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node2]:29500 (errno: 111 - Connection refused).",
    "node1:71:90 [0] NCCL WARN socketPollConnect: connect to 10.0.0.2<41231> returned Connection refused",
    "torch.distributed.DistNetworkError: connect to node1:29500 failed: Connection refused",
)


@pytest.mark.parametrize("line", OF_A_SERVER)
def test_a_server_beside_the_run_is_no_peer(tmp_path: Path, line: str) -> None:
    log = STEPS + line + "\n" + STEPS
    assert not look(nccl_log, tmp_path / "a", train_log=log).values("nccl.connection")
    seen = look(scan_logs, tmp_path / "b", train_log=log)
    assert not seen.values("sig.dist.connection_refused") and "collective" not in seen.values("error.phase")


@pytest.mark.parametrize("line", OF_A_PEER)
def test_a_peer_is_one(tmp_path: Path, line: str) -> None:
    assert look(scan_logs, tmp_path, train_log=line + "\n").values("sig.dist.connection_refused")


def bar(at: int, of: int, rate: float) -> str:
    return f"{100 * at // of:3d}%|###   | {at}/{of} [00:01<00:09, {rate:.2f}it/s]\n"


@pytest.mark.parametrize("before", ["", "".join(bar(i, 77, 40.0) for i in range(10, 78, 10))])
def test_the_pace_is_that_of_the_training_bar(tmp_path: Path, before: str) -> None:
    rows = [before]
    for i in range(10, 200, 10):
        rows.append(bar(i, 200, 10.0) + f"{{'loss': '{3 - i / 100:.3f}', 'epoch': '0.1'}}\n")
        rows += [bar(j, 50, 90.0) for j in range(0, 50, 4)] if i % 50 == 0 else []
    seen = look(find_anomalies, tmp_path, train_log="".join(rows))
    assert seen.values("step_time.median") == [pytest.approx(0.1)]


PROGRAM = """
import argparse
import json

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_file", default="data/notes.jsonl")
    parser.add_argument("--eval_file", default="data/notes_eval.jsonl")
    args = parser.parse_args()
    rows = [json.loads(x) for x in open(args.train_file)]
    for step in range(100):
        print(f"step {step} loss {loss:.4f}")
        with open("samples.jsonl", "a") as f:
            f.write(json.dumps({"completion": text}))

main()
"""
ROWS = "".join(f'{{"text": "a note on matter {i}", "label": {i % 3}}}\n' for i in range(30))


def data(folder: Path, command: str = "python train.py > train.log"):
    return workspace(
        folder, train_py=PROGRAM, train_log=STEPS, run_sh=f"{command}\n", data__notes_jsonl=ROWS, samples_jsonl=ROWS,
        data__notes_eval_jsonl=ROWS, data__notes_long_jsonl=ROWS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "aside"),
    [
        ("python train.py > train.log", {"data/notes_long.jsonl"}),
        ("python train.py --eval_file data/notes_long.jsonl > train.log", {"data/notes_eval.jsonl"}),
        ("python train.py --train_file /mnt/data/notes_long.jsonl > train.log", {"data/notes.jsonl"}),
    ],
)
def test_data_that_nothing_names_beside_data_that_are_named(tmp_path: Path, command: str, aside: set[str]) -> None:
    ws = data(tmp_path, command)
    own = {f.name for f in of_the_run(ws, ws.files)}
    assert {f.name for f in ws.files} - own == aside
    assert [f.name for f in ws.files if is_written(ws, f)] == ["samples.jsonl"]


def test_where_no_program_is_known_all_data_count(tmp_path: Path) -> None:
    ws = workspace(tmp_path, config_yaml="train_file: data/a.jsonl\n", data__a_jsonl=ROWS, data__b_jsonl=ROWS)
    assert {f.name for f in of_the_run(ws, ws.files)} == {f.name for f in ws.files}


@pytest.mark.parametrize(
    ("form", "value"), [("step {i} loss {v:.3f}\n", 20), ("loss: {v:.3f}, lr: 0.1\n", "record 21")]
)
def test_a_record_is_no_step(tmp_path: Path, form: str, value: int | str) -> None:
    rows = [form.format(i=i, v=2 + i % 3 / 100 if i < 20 else 9) for i in range(40)]
    assert look(find_anomalies, tmp_path, train_log="".join(rows)).one("loss.diverged") == value


def test_an_epoch_is_no_step(tmp_path: Path) -> None:
    rows = [f"{i},{3 - i / 20:.4f},{max(1.5 - i / 8, i / 8 - 0.5):.4f}" for i in range(1, 60)]
    seen = look(find_anomalies, tmp_path, out__history_csv="epoch,loss,val_loss\n" + "\n".join(rows) + "\n")
    assert seen.values("eval.best_step") == ["epoch 8"] and not seen.values("loss.few_steps")
    assert all(e.step is None for e in seen.evidence)


def curve(first: int, last: int, start: float) -> str:
    return "".join(f"step {i} loss {start - i / 200:.4f}\n" for i in range(first, last))


@pytest.mark.parametrize(
    ("second", "variants"),
    [
        ("weights from runs/base_a/model.pt\n" + curve(0, 100, 4), False),
        (curve(100, 200, 4), False),
        (curve(0, 100, 4), True),
    ],
    ids=["weights", "goes_on", "beside"],
)
def test_a_run_and_what_began_from_it_are_no_variants(tmp_path: Path, second: str, variants: bool) -> None:
    seen = look(find_anomalies, tmp_path, runs__base_a__train_log=curve(0, 100, 3), runs__base_b__train_log=second)
    assert bool(seen.values("variant.outcome")) is variants
    assert seen.values("resume.weights_from") == (["runs/base_a/model.pt"] if "weights" in second else [])


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("loaded models/base/model.pt: <All keys matched successfully>", "models/base/model.pt"),
        ("=> loading weights from runs/a/latest.pth.tar", "runs/a/latest.pth.tar"),
        ("saved the best weights to runs/a/best.pt", None),
        ("removed runs/a/old.pt, weights are loaded later", None),
    ],
)
def test_where_weights_come_from(tmp_path: Path, line: str, path: str | None) -> None:
    seen = look(find_anomalies, tmp_path, train_log=f"{line}\n" + STEPS)
    assert seen.values("resume.weights_from") == ([path] if path else [])


def with_validation(train: str, held: str, values: list[tuple[float, float]]) -> str:
    row = "epoch {i} " + train + " val_loss {v:" + held + "}\n"
    return "".join(row.format(i=i, t=t, v=v) for i, (t, v) in enumerate(values, 1))


GOOD = [(2.0037 - i / 10, 2.1013 - i / 12) for i in range(10)]


@pytest.mark.parametrize(
    ("train", "held", "values", "told"),
    [
        ("loss {t:.4f}", ".4f", GOOD, True),
        ("loss {t:.2f}", ".2f", [(t / 30, v / 30) for t, v in GOOD], False),  # 0.04 to 0.03
        ("mse_loss {t:.4f}", ".4f", GOOD, False),  # an MSE and what is called a loss
        ("loss {t:.4f}", ".4f", [(t, 195 * v) for t, v in GOOD], False),  # a mean and a sum
    ],
)
def test_a_ratio_is_of_one_measure_and_of_digits_enough(
    tmp_path: Path, train: str, held: str, values: list[tuple[float, float]], told: bool
) -> None:
    seen = look(find_anomalies, tmp_path, train_log=with_validation(train, held, values))
    assert bool(seen.values("eval.gap_ratio")) is told
    assert seen.values("eval.final_value") == [pytest.approx(values[-1][1], abs=0.01)]


@pytest.mark.parametrize(
    ("rows", "metrics"),
    [
        (["step {i} loss {v:.4f}", "step {i} val {v:.4f}"], {"loss", "eval_loss"}),
        (
            ["epoch {i}/40  train {v:.4f} acc 0.2  val {v:.4f} acc 0.1"],
            {"loss", "eval_loss", "accuracy", "eval_accuracy"},
        ),
        (["epoch {i}/40  train {a:.4f}  val {a:.4f}"], set()),  # accuracies
    ],
)
def test_a_name_of_the_mode_alone_is_a_loss_where_its_curve_is_like_one(
    tmp_path: Path, rows: list[str], metrics: set[str]
) -> None:
    log = "".join(f"{row.format(i=i, v=3 - i / 20, a=0.2 + i / 50)}\n" for i in range(1, 30) for row in rows)
    seen = look(read_metrics, tmp_path, train_log=log)
    assert set(seen.values("metrics.series")) == metrics


def test_a_flag_is_no_resume_and_what_came_back_is_told(tmp_path: Path) -> None:
    log = "args lr=0.1 resume=True seed=5\n" + curve(0, 50, 3)
    assert not look(find_anomalies, tmp_path / "a", train_log=log).values("resume.from_step")
    log = curve(0, 50, 3) + "Restoring states from the checkpoint path at logs/last.ckpt\n"
    log += "Restored all states from the checkpoint at logs/last.ckpt\n" + curve(50, 99, 3)
    seen = look(find_anomalies, tmp_path / "b", train_log=log)
    assert len(seen.of("resume.from_step")) == 1 and seen.values("resume.restored") == ["all states"]
    assert (seen.one("resume.loss_before"), seen.one("resume.loss_after")) == (2.755, 2.75)


def test_weights_that_are_put_back_to_evaluate_are_no_resume(tmp_path: Path) -> None:
    log = curve(0, 50, 3) + "Restoring states from the checkpoint path at logs/best.ckpt\n"
    log += "Loaded model weights from the checkpoint at logs/best.ckpt\n"
    assert not look(find_anomalies, tmp_path, train_log=log).of("resume.from_step")


def test_batches_of_evaluations_are_left_out_of_what_was_taken_again(tmp_path: Path) -> None:
    train = [f"{7 * i},{7 * i + 3},{7 * i + 5},{7 * i + 6},{i + 900}" for i in range(20)]
    held = [f"{i},{i + 1},{i + 2},{i + 3},{i + 4}" for i in range(2000, 2040, 5)]
    rows = [f"{job},{b}" for job in (31, 32) for b in [*train[:10], *held, *train[10:], *held]]
    log = "resuming from step 20\n" + curve(20, 60, 3)
    seen = look(compare_rows, tmp_path, batches_csv="\n".join(rows) + "\n", train_log=log)
    assert set(seen.values("resume.samples_repeated")) == {"20 batches"}


def test_the_state_of_a_trainer_tells_that_all_steps_were_made(tmp_path: Path) -> None:
    state = '{\n  "epoch": 3.0,\n  "global_step": %d,\n  "log_history": [],\n  "max_steps": 300\n}\n'
    seen = look(scan_logs, tmp_path / "a", train_log=STEPS, out__trainer_state_json=state % 300)
    assert "300 of 300 steps" in seen.values("run.finished")
    seen = look(scan_logs, tmp_path / "b", train_log=STEPS, out__trainer_state_json=state % 120)
    assert not seen.values("run.finished")


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("Training arguments: lr 0.004, steps 60, template qa", None),
        ("steps: 60/100 loss 2.1", 60),
        ("step 60 loss", 60),
    ],
)
def test_steps_asked_for_are_no_step_reached(line: str, step: int | None) -> None:
    assert step_of(line) == step


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[transformers] `loss_type=None` was set but is unrecognized, the default 3 is used", False),
        ("  loss_type ................... unrecognized3", False),
        ("loss_type 3 of the shelf differs from what was trained", True),
    ],
)
def test_notices_of_libraries_and_lists_of_settings_tell_nothing(tmp_path: Path, line: str, told: bool) -> None:
    ws = workspace(tmp_path, notes_log=f"{line}\nanother line\n")
    ws.question = "Why is the loss_type of shelf 3 unrecognized?"
    assert bool(telling_lines(ws).evidence) is told


def test_each_log_is_held_against_the_steps_that_it_prints(tmp_path: Path) -> None:
    def log(steps: int) -> str:
        return f"Overriding: max_iters = {steps}\n" + "".join(
            f"iter {i}: loss {3 - i / 500:.4f}\n" for i in range(0, steps + 1, 10)
        )

    seen = look(scan_logs, tmp_path, train_log=log(300), train_more_log=log(600))
    assert {(e.file, e.value) for e in seen.of("run.last_line")} == {
        ("train.log", "finished"),
        ("train_more.log", "finished"),
    }


@pytest.mark.parametrize(("factor", "told"), [(8.0, True), (7.3, False), (1.0, False)])
def test_two_losses_of_one_log_and_the_setting_between_them(tmp_path: Path, factor: float, told: bool) -> None:
    """As a script prints it that multiplies the loss of a micro-batch, and estimates the loss of both splits apart."""
    rows = []
    for i in range(60):
        loss = 4 - i / 40
        if i % 10 == 0:
            rows.append(f"step {i}: train loss {loss:.4f}, val loss {loss + 0.1:.4f}")
        rows.append(f"iter {i}: loss {factor * loss:.4f}, time 20.1ms")
    config = "gradient_accumulation_steps: 8\n"
    seen = look(find_anomalies, tmp_path, train_log="\n".join(rows) + "\n", config_yaml=config)
    assert seen.values("loss.proportional_to") == ["gradient_accumulation_steps"] * (2 * told)
    assert seen.one("eval.gap_ratio") == pytest.approx(2.85 / 2.75, abs=0.001)  # to the loss in its own line


SAYS = """
import logging

log = logging.getLogger("train")

def main():
    log.info("%d notes to train on, %d held out", len(rows), len(held))
    print("using CPU, this will be slow")
    for step in range(100):
        print(f"step {step} loss {loss:.4f}")
        if step % 30 == 0:
            print("sample:", text)
    log.info("weights of step %d taken", best)

main()
"""


def test_what_a_program_says_once_is_told_with_its_place(tmp_path: Path) -> None:
    rows = ["80 notes to train on, 20 held out", "using CPU, this will be slow"]
    rows += [f"step {i} loss {3 - i / 50:.4f}" for i in range(40)]
    rows += [
        "sample: the note says that the weights of a step were not taken",
        "a line of a library",
        "weights of step 31 taken",
    ]
    seen = look(telling_lines, tmp_path, train_py=SAYS, train_log="\n".join(rows) + "\n")
    assert [(e.line, e.value) for e in seen.of("log.once")] == [
        (1, "train.py:7"),
        (2, "train.py:8"),
        (45, "train.py:13"),
    ]


def test_histories_in_two_saves_of_one_run_are_one(tmp_path: Path) -> None:
    def state(steps: int) -> str:
        rows = [{"step": i, "loss": round(3 - i / 100, 4)} for i in range(10, steps + 1, 10)]
        return json.dumps({"global_step": steps, "log_history": rows, "max_steps": 300}, indent=2)

    files = {f"out__checkpoint-{n}__trainer_state_json": state(n) for n in (250, 300)}
    seen = look(find_anomalies, tmp_path, **files)
    assert not seen.values("variant.outcome")
    assert [e.file for e in seen.of("loss.final_value")] == ["out/checkpoint-300/trainer_state.json"]
