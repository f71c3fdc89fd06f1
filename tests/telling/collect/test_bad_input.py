"""Files that vanish, grow, lead nowhere or are too many; a full disk; a run that cannot be read at all."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from traindoctor.agent.core.shell import Live, Recording
from traindoctor.agent.doors.cli import main
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.collect.bundle import collect

from tests.telling.collect.runs import bundled, manifest_of, unpacked


def test_a_huge_sparse_log_is_collected_in_seconds(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    with (job / "train.log").open("wb") as f:
        f.write(b"step 1 loss 2.0\n" * 200_000)
        f.truncate(10 << 30)
        f.seek(0, os.SEEK_END)
        f.write(b"\nRuntimeError: the end\n" + b"bye\n" * 400_000)
    began = time.perf_counter()
    assert main(["collect", str(job), "-o", str(tmp_path / "b.tgz"), "--no-report", "--no-machine", "--quiet"]) == 0
    assert time.perf_counter() - began < 20
    folder = unpacked(tmp_path / "b.tgz", tmp_path / "x")
    assert (folder / "files" / "train.log").stat().st_size < 3 << 20 and not (folder / "report").exists()


def test_files_that_go_and_grow_meanwhile(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name in ("gone.log", "grows.log", "closed.log"):
        (job / name).write_text("step 1 loss 2.0\n" * 1000)
    ws = Workspace([job], live=False)
    (job / "gone.log").unlink()
    stop = threading.Event()

    def write() -> None:
        with (job / "grows.log").open("a") as f:
            while not stop.is_set():
                f.write("step 2 loss 1.9\n" * 100)
                f.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        shell = Recording(Live())
        collect(ws, shell, tmp_path / "b.tgz", diagnose=False)
    finally:
        stop.set()
        writer.join()
    folder = unpacked(tmp_path / "b.tgz", tmp_path / "x")
    rows = {r["name"]: r for r in manifest_of(folder)["files"]}
    assert rows["gone.log"]["kept"] == "no" and "cannot open" in rows["gone.log"]["why"]
    assert (folder / "files" / "grows.log").read_text().startswith("step 1 loss 2.0\n")


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "a.log").write_text("step 1 loss 2\n")
    (tmp_path / "job" / "b.log").write_text("step 1 loss 2\n")
    (tmp_path / "job" / "b.log").chmod(0)
    bundled(tmp_path / "job", tmp_path / "b.tgz", diagnose=False)
    assert {"file": "b.log", "why": "no permission to read it"} in manifest_of(unpacked(tmp_path / "b.tgz", tmp_path / "x"))["not_read"]


def test_more_files_than_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traindoctor.agent.telling.collect.bundle_work.FILES", 1000)
    job = tmp_path / "job"
    job.mkdir()
    for i in range(1_500):
        (job / f"rank{i}.log").write_text(f"step 1 loss {i}\n")
    bundled(job, tmp_path / "b.tgz", diagnose=False, limit=16 << 20)
    manifest = manifest_of(unpacked(tmp_path / "b.tgz", tmp_path / "x"))
    assert len(manifest["files"]) + manifest["more_files"] == 1_500


def test_nothing_to_read_and_no_such_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["collect", str(tmp_path / "empty"), "-o", str(tmp_path / "b.tgz"), "--no-machine"]) == 3
    assert main(["collect", str(tmp_path / "none"), "-o", str(tmp_path / "b.tgz")]) == 2
    assert not (tmp_path / "b.tgz").exists() and capsys.readouterr().err.count("\n") == 2
