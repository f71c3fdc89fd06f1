"""Metrics out of tables, JSON histories and event files."""

from __future__ import annotations

import gzip
import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.curves.curves import curves, line_at
from traindoctor.agent.reading.curves.formats.metric_tables import read_history, read_table
from traindoctor.agent.reading.curves.stores import read_events
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import read_metrics


def series(folder: Path, metric: str):
    return [s for s in curves(Workspace([folder])).series if s.metric == metric]


def test_trainer_state(tmp_path):
    history = [
        {"loss": 3.0 - i / 10, "grad_norm": 1.0, "learning_rate": 1e-4, "epoch": 0.1 * i, "step": 10 * i}
        for i in range(1, 8)
    ]
    history.insert(3, {"eval_loss": float("nan"), "epoch": 0.3, "step": 30})
    state = {"best_metric": None, "epoch": 1.0, "global_step": 70, "log_history": history, "max_steps": 70}
    (tmp_path / "checkpoint-70").mkdir()
    (tmp_path / "checkpoint-70" / "trainer_state.json").write_text(json.dumps(state, indent=2))
    (loss,) = series(tmp_path, "loss")
    assert loss.steps.tolist() == [10, 20, 30, 40, 50, 60, 70]
    assert line_at(loss, 2).text.strip().startswith('"loss": 2.7')
    (held,) = series(tmp_path, "eval_loss")
    assert math.isnan(held.values[0])
    assert held.steps[0] == 30


def test_jsonl(tmp_path):
    lines = [json.dumps({"step": i, "train/loss": 2.0 - i / 100, "lr": 1e-4, "note": "a, b: 5"}) for i in range(30)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (loss,) = series(tmp_path, "loss")
    assert (loss.count, loss.steps[-1], loss.lines[-1]) == (30, 29, 30)
    assert loss.values[10] == pytest.approx(1.9)


def test_lightning_table_with_blanks_and_quotes(tmp_path):
    text = 'epoch,step,train_loss,val_loss,"note, free"\n# comment\n0,49,1.5,,"a ""b"", c"\n0,49,,1.6,\n1,99,1.2,,\n1,99,,nan,\n'
    (tmp_path / "metrics.csv").write_text(text)
    (loss,) = series(tmp_path, "loss")
    (held,) = series(tmp_path, "eval_loss")
    assert loss.values.tolist() == [1.5, 1.2]
    assert (held.lines.tolist(), held.nans) == ([4, 6], 1)
    assert line_at(loss, 1).data == b"1,99,1.2,,"


def test_table_of_runs(tmp_path):
    text = "run,use_peft,use_vllm,step,train/reward\n" + "".join(
        f"{r},{p},1,{i},{i / 10}\n" for r, p in (("a", 0), ("b", 1)) for i in range(5)
    )
    (tmp_path / "m.csv").write_text(text)
    found = series(tmp_path, "reward")
    assert {(s.variant, s.attributes["use_peft"]) for s in found} == {("a", 0.0), ("b", 1.0)}


def test_sweep(tmp_path):
    (tmp_path / "s.csv").write_text("gpus,grad_acc,initial_loss\n4,2,6.4\n4,32,138\n")
    table = read_table(tmp_path / "s.csv")
    assert not table.tracks
    assert [r.cells["initial_loss"] for r in table.sweep] == [6.4, 138.0]
    assert table.sweep[1].line.number == 3


def test_a_table_by_episodes_is_a_curve(tmp_path):
    for name, head in (("a.csv", "episode,timestep,reward"), ("b.csv", "episode,worlds,reward")):
        (tmp_path / name).write_text(f"{head}\n" + "".join(f"{i},{i * 100},{20 + i}\n" for i in range(1, 9)))
        table = read_table(tmp_path / name)
        assert not table.sweep and any(t.metric == "reward" for t in table.tracks)


def test_tables_that_are_none(tmp_path):
    for text in (
        "",
        "\n\n",
        "1,2\n3,4\n",
        "just text\nmore\n",
        "a," * 200_000 + "\n" + "1," * 200_000,
        "step,loss\nx,y\n",
    ):
        (tmp_path / "t.csv").write_text(text)
        assert not read_table(tmp_path / "t.csv").tracks


def record(data: bytes) -> bytes:
    return struct.pack("<QI", len(data), 0) + data + struct.pack("<I", 0)


def varint(n: int) -> bytes:
    out = b""
    while n > 0x7F:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def event(step: int, tag: str, value: float, *, tensor: bool = False) -> bytes:
    body = b"\x0a" + varint(len(tag)) + tag.encode()
    if tensor:
        inner = b"\x08\x01\x2a\x04" + struct.pack("<f", value)
        body += b"\x42" + varint(len(inner)) + inner
    else:
        body += b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + varint(len(body)) + body
    return record(b"\x09" + struct.pack("<d", 1.0) + b"\x10" + varint(step) + b"\x2a" + varint(len(summary)) + summary)


def test_event_files(tmp_path):
    path = tmp_path / "events.out.tfevents.1700000000.host"
    events = [record(b"\x09" + struct.pack("<d", 1.0) + b"\x1a\x0dbrain.Event:2")]
    events += [event(i * 100, "train/loss", 3.0 - i, tensor=i % 2 == 1) for i in range(3)]
    events += [event(300, "lm loss", float("nan")), event(300, "grad-norm", 2.0)]
    whole = b"".join(events)
    path.write_bytes(whole[:-9])  # the last record is cut
    tracks = {t.raw: t for t in read_events(path)}
    assert set(tracks) == {"train/loss", "lm loss"}
    (loss, *_) = [s for s in series(tmp_path, "loss") if s.raw == "train/loss"]
    assert (loss.steps.tolist(), loss.values.tolist()) == ([0, 100, 200], [3, 2, 1])
    result = read_metrics(Workspace([tmp_path]))
    assert result.outcome == "finding"
    assert {e.kind for e in result.evidence} == {"binary"}


def test_written_by_torch(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    for i in range(20):
        writer.add_scalar("Loss/train", 2.0 / (i + 1), i)
    writer.close()
    (loss,) = series(tmp_path, "loss")
    assert loss.count == 20


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_break_the_file_readers(data):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name, read in (("a.csv", read_table), ("a.json", read_history), ("a", read_events)):
            for content in (data, b"[{" + data, b"step,loss\n" + data, record(data) + data):
                (Path(folder) / name).write_bytes(content)
                read(Path(folder) / name)


def test_hostile_json(tmp_path):
    for text in (
        "[" * 100_000,
        '[{"step": 1, "loss": ' + "9" * 6000 + "}]",
        '{"log_history": [{"loss": NaN, "step": 1}, {',
        "[{}]",
    ):
        (tmp_path / "a.json").write_text(text)
        read_history(tmp_path / "a.json")


def test_packed_logs_cite_their_lines(tmp_path):
    text = "".join(f"step {i} loss {3 - i / 100}\n" for i in range(100))
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(text.encode()))
    (loss,) = series(tmp_path, "loss")
    assert line_at(loss, 41).data == b"step 41 loss 2.59"


def test_read_metrics_tells_points(tmp_path):
    (tmp_path / "a.log").write_text("".join(f"step {i} loss {3 - i / 100}\n" for i in range(100)))
    result = read_metrics(Workspace([tmp_path]), metric="loss")
    assert "100 points" in result.text
    assert "a.log:100" in result.text
    assert result.evidence[0].text == "step 99 loss 2.01"
    assert read_metrics(Workspace([tmp_path]), metric="reward").outcome == "not_applicable"
