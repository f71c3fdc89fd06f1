"""The recorder itself: whose a name is, what a machine lacks, what failed before the launch, labels, and names rewritten."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

EVALS = Path(__file__).resolve().parents[2] / "evals"
sys.path.insert(0, str(EVALS / "recorders"))  # its modules import each other by their bare names

import carry  # noqa: E402
import record  # noqa: E402
import repair  # noqa: E402

LABELS = {"family": "none", "difficulty": "easy", "question": "ok?", "expected": ["none.healthy"], "why": "it ran"}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(record, "RECORDED", tmp_path / "recorded")
    return tmp_path / "recorded"


def table(tmp_path: Path, name: str = "small", **rows: dict[str, Any]) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    whole = {n: {"framework": "bash", "loggers": ["stdout"], "labels": LABELS, **row} for n, row in rows.items()}
    (folder / "runs.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    return folder


def test_a_name_of_another_table_is_refused_before_anything_runs(
    tmp_path: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = next(run.name for run in record.entries(EVALS / "recorders" / "misleading"))
    ours = table(tmp_path, pebble={"launch": "echo step 1"}, **{theirs: {"launch": "echo step 1"}})
    assert record.main([str(ours)]) == 2
    assert f"{theirs} (misleading, small)" in capsys.readouterr().err
    assert not recorded.exists()
    assert record.main([str(ours), "--only", theirs]) == 2
    assert record.main([str(ours), "--only", "pebble"]) == 0  # the others' quarrel is not its
    assert (recorded / "pebble" / "incident.yaml").is_file() and not (recorded / theirs).exists()


def test_a_sound_run_owns_its_name_too(tmp_path: Path, recorded: Path) -> None:
    sound = next(run.name for run in record.entries(EVALS / "healthy"))
    assert record.main([str(table(tmp_path, **{sound: {"launch": "echo step 1"}}))]) == 2
    assert not recorded.exists()


@pytest.mark.parametrize(
    ("before", "said"),
    [("sleep 60", "took longer than 0.5 s"), ("echo one >&2; echo two >&2; exit 3", "failed: one two")],
)
def test_what_goes_wrong_before_the_launch_is_a_line(
    tmp_path: Path, recorded: Path, capsys: pytest.CaptureFixture[str], before: str, said: str
) -> None:
    ours = table(tmp_path, pebble={"launch": "echo step 1", "before": before, "limit": 0.5, "repair": {"ends": 0}})
    assert record.main([str(ours)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "! pebble" in lines[0] and said in lines[0]
    assert not recorded.exists()
    assert repair.main([str(ours)]) == 0
    assert said in capsys.readouterr().out.splitlines()[0]


def test_labels_alone_touch_only_what_is_kept(tmp_path: Path, recorded: Path) -> None:
    (recorded / "pebble" / "files").mkdir(parents=True)
    log = recorded / "pebble" / "files" / "train.log"
    log.write_text("as it was\n")
    rows = {name: {"launch": "echo anew > train.log", "needs": ["root"]} for name in ("pebble", "boulder")}
    assert record.main([str(table(tmp_path, **rows)), "--labels"]) == 0
    labels = yaml.safe_load((recorded / "pebble" / "incident.yaml").read_text())
    assert labels == {"id": "pebble", "source": "recorded: bash (stdout)", **LABELS}
    assert log.read_text() == "as it was\n" and not (recorded / "boulder").exists()


def test_what_the_machine_lacks_passes_a_run_over(
    tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(carry.AT_HAND, "slurm", lambda: False)
    monkeypatch.setitem(carry.AT_HAND, "root", lambda: True)
    ours = table(
        tmp_path,
        pebble={"launch": "echo hi > train.log", "needs": ["root", "slurm"], "repair": {"ends": 0}},
        boulder={"launch": "echo hi > train.log", "needs": ["root"]},
    )
    assert record.main([str(ours)]) == 0
    assert "pebble: passed over, it needs slurm\n" in capsys.readouterr().err
    assert [p.name for p in recorded.iterdir()] == ["boulder"]
    assert repair.main([str(ours)]) == 0
    said = capsys.readouterr()
    assert "pebble: passed over" in said.err and '"runs": 0' in said.out


def test_a_need_nobody_knows_is_told(tmp_path: Path, recorded: Path) -> None:
    with pytest.raises(ValueError, match="pebble needs moon: known are root, cgroup1, slurm"):
        record.main([str(table(tmp_path, pebble={"launch": "true", "needs": ["moon"]}))])


def test_every_run_that_sets_up_a_group_or_a_cluster_says_so() -> None:
    for run in (run for folder in record.tables() for run in record.entries(folder)):
        texts = [run.before, run.launch, *run.files.values(), *(p.read_text() for p in run.scripts.values())]
        needs = {
            n for n, mark in (("cgroup1", "/sys/fs/cgroup/"), ("slurm", "slurmctld")) if any(mark in t for t in texts)
        }
        assert needs == set(run.needs) - {"root"}, run.name


def test_paths_in_a_text_with_nul_bytes_are_rewritten_and_those_of_a_binary_are_not(tmp_path: Path) -> None:
    work = tmp_path / "run"
    work.mkdir()
    here = str(work).encode()
    torn = b"step 1 at " + here + b"/out\n" + b"\0" * 64 + b"\x1b[32mstep 2\x1b[0m\n"
    binary = b"\x0a\x10" + here + b"\0\0\x01\x02"
    (work / "train.log").write_bytes(torn)
    (work / "wide.log").write_bytes("Grüße aus ".encode() + here + b"\0\n")
    (work / "scores.dat").write_bytes(binary)
    (work / "hole.dat").write_bytes(b"\0" * 32)
    run = carry.entry("pebble", tmp_path, {"framework": "bash", "loggers": [], "launch": "true"})
    carry.keep(run, work, tmp_path / "files")
    kept = (tmp_path / "files" / "train.log").read_bytes()
    assert here not in kept and b"step 1 at /data/run/out\n" in kept and b"\0" * 64 in kept
    assert (tmp_path / "files" / "wide.log").read_text() == "Grüße aus /data/run\0\n"
    assert (tmp_path / "files" / "scores.dat").read_bytes() == binary
    assert (tmp_path / "files" / "hole.dat").read_bytes() == b"\0" * 32


def test_a_repaired_run_that_is_only_slow_is_told_apart_from_one_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor = tmp_path / "doctor"
    place, ask = f"{tmp_path}/place", """echo '{"root_cause": {"id": "env.api_change"}}'"""
    doctor.write_text(
        f'#!/bin/bash\nif [ $1 = ask ]; then echo "$4" > {place}; {ask}; else cp {tmp_path}/new "$(cat {place})/launch.sh"; fi\n'
    )
    doctor.chmod(0o755)
    ours = table(tmp_path, pebble={"launch": "exit 1", "ends": 1, "limit": 1, "repair": {"ends": 0}})
    found = []
    for launch in ("sleep 300", "exit 3", "exit 0"):
        (tmp_path / "new").write_text(launch)
        slower = "2" if launch.startswith("sleep") else "60"
        assert repair.main([str(ours), "--doctor", str(doctor), "--slower", slower]) == 0
        found.append(json.loads(capsys.readouterr().out.splitlines()[0]))
    assert found[0]["why"].startswith("did not end within 2 s") and found[1]["why"] == "ended with 3"
    assert [f["clean"] for f in found] == [False, False, True]
