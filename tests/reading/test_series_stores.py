"""Stores that trackers and engines leave: real offline runs of W&B, MLflow and Lightning, status lines of engines."""

from __future__ import annotations

import math
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import ParseError
from traindoctor.agent.reading.curves.curves import curves
from traindoctor.agent.reading.curves.stores import read_database, read_wandb
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies

MAKERS = {
    "wandb": """
import sys, wandb
run = wandb.init(mode="offline", project="p", dir=sys.argv[1], config={"learning_rate": 3e-4})
for i in range(60):
    loss = 2 / (1 + i * 0.1) if i < 40 else float("nan")
    run.log({"train/loss": loss, "train/grad_norm": 1 + i / 100, "opt": {"lr": 1e-4}}, step=i * 10)
run.finish()
""",
    "mlflow": """
import os, sys
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
import mlflow
mlflow.set_tracking_uri("file://" + sys.argv[1] + "/mlruns")
mlflow.set_experiment("e")
with mlflow.start_run():
    for i in range(50):
        mlflow.log_metric("train_loss", 2 / (1 + i * 0.1) if i < 40 else float("nan"), step=i * 10)
        mlflow.log_metric("grad_norm", 1 + i / 100, step=i * 10)
""",
    "lightning": """
import sys, torch, lightning as L
from lightning.pytorch.loggers import CSVLogger
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, i):
        loss = ((self.layer(batch[0]) - batch[1]) ** 2).mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss
    def validation_step(self, batch, i):
        self.log("val_loss", ((self.layer(batch[0]) - batch[1]) ** 2).mean(), prog_bar=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
x = torch.randn(64, 4)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
L.Trainer(max_epochs=3, logger=CSVLogger(sys.argv[1]), log_every_n_steps=2, accelerator="cpu",
          enable_checkpointing=False, enable_model_summary=False).fit(Model(), data, data)
""",
}


@pytest.fixture
def made(root: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder that the named library wrote; made once and copied."""
    name: str = request.param
    kept = root / ".pytest_cache" / "doctor" / f"store-{name}"
    with FileLock(f"{kept}.lock"):
        if not kept.exists():
            fresh = kept.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            subprocess.run([sys.executable, "-c", MAKERS[name], str(fresh)], check=True, capture_output=True, timeout=120)
            fresh.rename(kept)
    shutil.copytree(kept, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def read(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Points of every known curve by canonical metric."""
    found = curves(Workspace([folder])).series
    return {s.metric: list(zip(s.steps.tolist(), s.values.tolist(), strict=True)) for s in found if s.known}


@pytest.mark.parametrize("made", ["wandb"], indirect=True)
def test_an_offline_run_of_wandb(made: Path) -> None:
    points = read(made)
    assert len(points["loss"]) == 60 and points["loss"][1] == (10.0, pytest.approx(2 / 1.1))
    assert math.isnan(points["loss"][40][1]) and points["grad_norm"][59] == (590.0, pytest.approx(1.59))
    seen = {e.key: e for e in find_anomalies(Workspace([made])).evidence}
    nan = seen["loss.first_nan_step"]
    assert nan.value == 400 and nan.kind == "binary" and nan.member == "train/loss" and (nan.file or "").endswith(".wandb")


@pytest.mark.parametrize("made", ["mlflow"], indirect=True)
def test_a_file_store_of_mlflow(made: Path) -> None:
    points = read(made)
    assert len(points["loss"]) == 50 and points["loss"][1] == (10.0, pytest.approx(2 / 1.1))
    nan = next(e for e in find_anomalies(Workspace([made])).evidence if e.key == "loss.first_nan_step")
    assert nan.value == 400 and nan.kind == "line" and " NaN 400" in nan.text.replace("nan", "NaN")
    assert nan.line == 41 and (made / (nan.file or "")).read_text().splitlines()[40] == nan.text


@pytest.mark.parametrize("made", ["lightning"], indirect=True)
def test_the_table_of_lightning(made: Path) -> None:
    points = read(made)
    assert len(points["loss"]) == 12 and len(points["eval_loss"]) == 3
    assert [step for step, _ in points["eval_loss"]] == [7, 15, 23]


def test_a_database_of_mlflow(tmp_path: Path) -> None:
    """The SQLite store needs the whole of MLflow to write it, so its table is made by its published schema."""
    with sqlite3.connect(tmp_path / "mlflow.db") as base:
        base.execute(
            "CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL, "
            "run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL, "
            "PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan))"
        )
        for run in ("a", "b"):
            base.executemany(
                "INSERT INTO metrics VALUES ('train_loss', ?, ?, ?, ?, ?)",
                [(0.0 if i == 30 else 2.0 - i / 50, 1_700_000_000_000 + i, run, i, i == 30) for i in range(40)],
            )
    before = (tmp_path / "mlflow.db").read_bytes()
    found = curves(Workspace([tmp_path])).series
    assert [(s.metric, s.variant, s.count, s.nans) for s in found] == [("loss", "a", 40, 1), ("loss", "b", 40, 1)]
    assert (tmp_path / "mlflow.db").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("made", ["wandb"], indirect=True)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_runs_of_wandb(made: Path, data: st.DataObject) -> None:
    whole = next(p for p in made.rglob("*.wandb") if p.name != "run-damaged.wandb")  # which an earlier try wrote
    content = bytearray(whole.read_bytes())
    for at in data.draw(st.lists(st.integers(7, len(content) - 1), max_size=20)):
        content[at] = data.draw(st.integers(0, 255))
    damaged = whole.with_name("run-damaged.wandb")
    damaged.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        tracks = read_wandb(damaged)
    except ParseError:
        tracks = []
    assert all(not t.empty for t in tracks)


@given(st.binary(max_size=4096))
@settings(max_examples=60, deadline=None)
def test_databases_that_are_none(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("db") / "mlflow.db"
    path.write_bytes(b"SQLite format 3\0" + content)
    with pytest.raises(ParseError):
        read_database(path)


VLLM = (
    "(APIServer pid=1) INFO 11-20 10:00:{s:02d} [loggers.py:248] Engine {e:03d}: Avg prompt throughput: 512.3 tokens/s, "
    "Avg generation throughput: 1023.4 tokens/s, Running: {r} reqs, Waiting: {w} reqs, GPU KV cache usage: {c}%, "
    "Prefix cache hit rate: 12.5%\n"
)
SGLANG = (
    "[2026-11-20 10:00:{s:02d} TP0] Decode batch. #running-req: 8, #token: 1234, token usage: 0.12, cuda graph: True, "
    "gen throughput (token/s): 456.78, #queue-req: {w}\n"
)


def test_status_lines_of_vllm(tmp_path: Path) -> None:
    log = "".join(VLLM.format(s=i, e=i % 2, r=40 if i % 2 else 1, w=200, c=99.2) for i in range(40))
    (tmp_path / "server.log").write_text(log)
    by_rank = {(s.metric, s.rank): s for s in curves(Workspace([tmp_path])).series}
    assert by_rank["engine_throughput", 0].count == 20 and by_rank["cache_usage", 1].values[0] == pytest.approx(0.992)
    seen = {e.key: e for e in find_anomalies(Workspace([tmp_path])).evidence}
    assert seen["engine.cache_full_fraction"].value == 1 and seen["engine.waiting"].value == 200
    assert seen["rl.router_skew"].value == 40 and "Running: 40 reqs" in seen["rl.router_skew"].text


def test_status_lines_of_sglang(tmp_path: Path) -> None:
    log = "".join(SGLANG.format(s=i, w=0) + SGLANG.replace("TP0", "TP1").format(s=i, w=0) for i in range(20))
    (tmp_path / "server.log").write_text(log)
    by_metric = {s.metric: s for s in curves(Workspace([tmp_path])).series}
    assert by_metric["engine_throughput"].count == 20, "the second tensor-parallel rank says the same again"
    assert np.allclose(by_metric["cache_usage"].values, 0.12)
    assert not [e for e in find_anomalies(Workspace([tmp_path])).evidence if e.key.startswith(("engine.", "rl."))]


def test_json_with_a_step_and_names_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text('[{"step":0,"my_thing":2.0},{"step":5,"my_thing":2.5}]')
    (tmp_path / "result.json").write_text('{"loss": 2.0, "training_iteration": 1}\n{"loss": 1.5, "training_iteration": 2}\n')
    found = {s.metric: s for s in curves(Workspace([tmp_path])).series}
    assert found["my_thing"].steps.tolist() == [0, 5] and found["loss"].steps.tolist() == [1, 2]
    assert found["loss"].lines.tolist() == [1, 2]
