"""What is in a bundle: windows around what matters, traces, settings, curves, dumps, within its size, the same each time."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from traindoctor.agent.doors.cli import main
from traindoctor.agent.reading.logs.failures import failures
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.collect.bundle_parts import POINTS, by_file, table
from traindoctor.agent.telling.collect.cleaning import Cleaning
from traindoctor.agent.telling.collect.pieces import Context, traces_text

from tests.telling.collect.runs import bundled, manifest_of, unpacked

DEMO = Path(__file__).parent.parent.parent.parent / "evals" / "demo" / "files"
TRACE = """Traceback (most recent call last):
  File "/w/train.py", line 88, in <module>
    main()
  File "/opt/lib/python3.11/site-packages/deepspeed/runtime/engine.py", line 2145, in step
    self._take_model_step(lr_kwargs)
  File "/opt/lib/python3.11/site-packages/torch/optim/adamw.py", line 220, in step
    raise RuntimeError("bad")
RuntimeError: the state does not fit the parameters
"""


def steps(first: int, count: int) -> str:
    return "".join(f"2026-03-04 02:{i // 3600 % 60:02}:{i // 60 % 60:02} step {i} loss {2 + i % 7 / 100:.4f}\n" for i in range(first, first + count))


@pytest.fixture
def long_run(tmp_path: Path) -> Path:
    """A log of 8 MB whose failure stands in its middle, with an event file and a checkpoint beside it."""
    job = tmp_path / "exp7"
    (job / "checkpoints" / "step-100").mkdir(parents=True)
    (job / "train.log").write_text(steps(0, 90_000) + TRACE + steps(90_000, 90_000))
    (job / "checkpoints" / "step-100" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    (job / "launch.sh").write_text("torchrun --nproc_per_node 8 train.py \\\n  --learning_rate 1e-4\n")
    return job


def test_the_failure_in_the_middle_of_a_long_log_is_in_and_every_member_is_listed_with_its_sum(
    long_run: Path, tmp_path: Path
) -> None:
    bundled(long_run, tmp_path / "b.tar.gz", "why did it fail?")
    folder = unpacked(tmp_path / "b.tar.gz", tmp_path / "x")
    log = (folder / "files" / "train.log").read_text()
    assert TRACE in log and log.startswith("2026-03-04 02:00:00 step 0 ") and "step 179999 " in log
    assert log.count(" bytes left out]\n") == 2 and len(log) < 3 << 20
    assert "RuntimeError: the state does not fit the parameters, train.log:90001" in (folder / "traces.txt").read_text()
    row = next(r for r in manifest_of(folder)["files"] if r["name"] == "train.log")
    left = sum(int(n) for n in re.findall(r"\[(\d+) bytes left out\]", log))
    assert row["kept"] == "part" and row["why"] == f"{row['bytes'] - left} of {row['bytes']} bytes"
    named = {s["name"]: s for s in json.loads((folder / "settings.json").read_text())["settings"]}
    assert named["learning_rate"]["value"] == 1e-4 and (named["learning_rate"]["file"], named["learning_rate"]["line"]) == ("launch.sh", 2)
    assert [c["step"] for c in json.loads((folder / "checkpoints.json").read_text())] == [100]
    assert not list((folder / "files").rglob("*.safetensors"))
    report = json.loads((folder / "report" / "report.json").read_text())
    assert report["runs"][0]["root"] == "exp7" and report["meta"]["seconds"] == 0 and str(long_run) not in json.dumps(report)
    told = {m["name"]: (m["bytes"], m["sha256"]) for m in manifest_of(folder)["members"]}
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    found.pop("manifest.json")
    assert told == {n: (len(d), hashlib.sha256(d).hexdigest()) for n, d in found.items()}
    assert f"doctor eval {folder.name}" in (folder / "README.md").read_text()


def test_two_of_an_unchanged_run_are_the_same_bytes(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(DEMO, job)
    for name, options in (("one", []), ("two", ["--quiet"])):
        assert main(["collect", str(job), "-o", str(tmp_path / f"{name}.tgz"), "--no-machine", *options]) == 0
    one, two = ((tmp_path / f"{n}.tgz").read_bytes() for n in ("one", "two"))
    assert one == two
    with tarfile.open(tmp_path / "one.tgz") as tar:
        members = tar.getmembers()
    newest = max(int(p.stat().st_mtime) for p in job.rglob("*") if p.is_file())
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(newest, 0, 0, "")}
    assert [m.name for m in members] == sorted(m.name for m in members)


def test_the_time_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    bundled(DEMO, tmp_path / "b.tar.gz", diagnose=False)
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        assert {m.mtime for m in tar.getmembers()} == {1_700_000_000}


def test_a_bundle_inside_the_run_does_not_go_into_the_next(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(DEMO, job)
    first = job / "doctor-bundle-1.tar.gz"
    bundled(job, first, diagnose=False)
    bundled(job, job / "other-name.tgz", diagnose=False)
    bundled(job, tmp_path / "b.tar.gz", diagnose=False)
    rows = [r["name"] for r in manifest_of(unpacked(tmp_path / "b.tar.gz", tmp_path / "x"))["files"]]
    assert rows and not [r for r in rows if "bundle" in r or "other-name" in r]


@pytest.mark.parametrize("limit", [1 << 18, 1 << 20])
def test_it_keeps_to_its_size(tmp_path: Path, limit: int) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "config.yaml").write_text("learning_rate: 1e-4\n")
    for i in range(120):
        (job / f"rank{i}.log").write_text(steps(0, 200) + ("ValueError: wrong shape\n" if i == 50 else ""))
    bundled(job, tmp_path / "b.tar.gz", limit=limit)
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        assert sum(m.size for m in tar.getmembers()) <= limit
    folder = unpacked(tmp_path / "b.tar.gz", tmp_path / "x")
    rows = {r["name"]: r for r in manifest_of(folder)["files"]}
    assert len(rows) == 121 and rows["config.yaml"]["kept"] == "whole"
    assert "ValueError: wrong shape" in (folder / "files" / "rank50.log").read_text()  # what failed goes first
    kept = sum(r["kept"] != "no" for r in rows.values())
    assert (kept > 115) == (limit == 1 << 20)
    assert all(r["why"] == "the bundle is full" for r in rows.values() if r["kept"] == "no")


def test_traces_are_told_once_with_their_ranks(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(f"step 1 loss 2\n{TRACE}")
    ws = Workspace([tmp_path])
    text = traces_text(failures(ws), Context(ws, Cleaning()))
    assert text.count("Traceback (most recent call last):") == 1 and "rank 0-3, 4 times" in text
    assert "raised in /opt/lib/python3.11/site-packages/torch/optim/adamw.py:220" in text and TRACE in text


def test_event_files_go_in_as_tables_that_replay(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    rows = [json.dumps({"step": i, "loss": 2.0 if i != 700 else float("nan"), "lr": 1e-4}) for i in range(1000)]
    (job / "trainer_state.json").write_text('{"log_history": [' + ",".join(r.replace("NaN", "NaN") for r in rows) + "]}")
    ws = Workspace([job])
    (series,) = by_file(ws).values()
    text = table(series, [500])
    (job / "again").mkdir()
    (job / "again" / "series-1.csv").write_text(text)
    again = by_file(Workspace([job / "again"]))["series-1.csv"]
    assert {s.metric: (len(s), s.nans) for s in again} == {s.metric: (len(s), s.nans) for s in series}


def test_a_thinned_curve_keeps_its_extremes_and_its_event(tmp_path: Path) -> None:
    values = {i: 2.0 + i % 97 / 1e4 for i in range(40_000)}
    values |= {12_345: 99.0, 23_456: -5.0, 30_000: float("nan")}
    (tmp_path / "metrics.csv").write_text("step,loss\n" + "".join(f"{i},{v}\n" for i, v in values.items()))
    (series,) = by_file(Workspace([tmp_path])).values()
    kept = dict(line.split(",") for line in table(series, [35_000]).splitlines()[1:])
    assert len(kept) < 5 * POINTS and float(kept["12345"]) == 99 and float(kept["23456"]) == -5
    assert kept["30000"] == "nan" and "29999" in kept and "30001" in kept
    assert all(str(i) in kept for i in range(34_850, 35_150))


def test_dumps_of_the_flight_recorder_go_in_as_json(tmp_path: Path) -> None:
    from traindoctor.agent.reading.stacks.flight_recordings import recordings

    job = tmp_path / "job"
    job.mkdir()
    for rank in range(2):
        entries = [{"record_id": i, "process_group": ("0", "default_pg"), "collective_seq_id": i, "p2p_seq_id": 0, "op_id": i,
                    "profiling_name": "nccl:all_reduce", "time_created_ns": i, "input_sizes": [[8]], "output_sizes": [[8]],
                    "input_dtypes": ["Float"], "output_dtypes": ["Float"], "state": "completed" if i < 90 + rank else "started",
                    "retired": i < 90 + rank, "is_p2p": False, "frames": [{"name": "f", "filename": "a.py", "line": i}]}
                   for i in range(1, 100)]  # fmt: skip
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        (job / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps({"version": "2.4", "pg_config": config, "entries": entries}))
    bundled(job, tmp_path / "b.tar.gz")
    folder = unpacked(tmp_path / "b.tar.gz", tmp_path / "x")
    told = {r["name"]: (r["kept"], r["why"]) for r in manifest_of(folder)["files"]}
    assert told == {f"nccl_trace_rank_{r}": ("converted", "written as JSON") for r in range(2)}
    (before,), (after,) = recordings(Workspace([job])), recordings(Workspace([folder / "files"]))
    for rank in range(2):
        (one,), (other,) = before.dumps[rank].work.values(), after.dumps[rank].work.values()
        assert (one.rows, one.states, one.records) == (other.rows, other.states, other.records)


def test_names_that_collide_or_lead_elsewhere(tmp_path: Path) -> None:
    job = tmp_path / "job"
    (job / "logs").mkdir(parents=True)
    for name in ("a\x07b.log", "a\x08b.log", "A.log", "a.log", "x" * 240 + ".log", "ü\u202eé.log"):
        (job / "logs" / name).write_text(f"step 1 loss 2 {name.encode()!r}\n")
    (job / "logs" / "out.log").symlink_to("/etc/passwd")
    bundled(job, tmp_path / "b.tar.gz", diagnose=False)
    folder = unpacked(tmp_path / "b.tar.gz", tmp_path / "x")
    files = sorted(p.name for p in (folder / "files" / "logs").iterdir())
    assert len(files) == 6 and all(f.isprintable() and len(f.encode()) <= 220 for f in files)
    assert len({p.read_text() for p in (folder / "files" / "logs").iterdir()}) == 6
    told = manifest_of(folder)
    assert {"file": "logs/out.log", "why": "a link that leads out of the run (name its folder with --also to follow it)"} in told["not_read"]
    assert "root:" not in json.dumps(told)
