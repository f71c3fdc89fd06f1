"""`doctor salvage rollback`: a folder that training resumes from at an older checkpoint; the old one stays as it was."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.repair.salvage import rollback as salvage

from tests.reading.checkpoints.makers import copy
from tests.repair.salvage.test_salvage import digest, in_torch

# What each framework's own trackers say at the earlier of the two saves.
FIRST = {
    "hf": ("checkpoint-2", 4, {}), "peft": ("checkpoint-2", 4, {}), "accelerate": ("step_2", 4, {}),
    "zero2": ("global_step1", 2, {"latest": "global_step1"}), "zero3": ("global_step1", 2, {"latest": "global_step1"}),
    "dcp": ("step-2", 4, {}), "lightning": ("epoch=0-step=2.ckpt", 4, {}), "torch": ("step_2.pt", 4, {}),
    "megatron": ("iter_0000002", 4, {"latest_checkpointed_iteration.txt": "2"}),
    "megatron_dist": ("iter_0000002", 4, {"latest_checkpointed_iteration.txt": "2"}),
}  # fmt: skip


def lay(path: Path) -> dict[str, str]:
    """The same as `digest`, through links."""
    return {
        str((Path(folder) / name).relative_to(path)): digest(Path(folder) / name)["."]
        for folder, _, names in os.walk(path, followlinks=True)
        for name in names
    }


@pytest.mark.parametrize("options", [(), ("--copy",)], ids=["links", "copies"])
@pytest.mark.parametrize("kind", FIRST)
def test_every_framework(tmp_path, doctor, kind, options):
    run, new = copy(kind, tmp_path / "run dir"), tmp_path / "new"
    name, before, trackers = FIRST[kind]
    old = digest(run)
    done = doctor("salvage", "rollback", run, "-o", new, "--before", before, "--json", *options)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["trackers"] == trackers and told["resume"] and len(told["passed_over"]) == 1
    assert digest(run) == old
    held = lay(new)
    assert {k: (new / k).read_text() for k in trackers} == trackers
    own = {k: v for k, v in held.items() if k not in trackers}
    inside = "checkpoints/" if kind == "lightning" else ""
    assert own == {k.removeprefix(inside): v for k, v in old.items() if k.removeprefix(inside).startswith(name)}
    assert (new / name).is_symlink() is not bool(options)
    assert {p.name for p in tmp_path.iterdir()} == {"run dir", "new"}


def test_a_damaged_one_is_passed_over_and_told(tmp_path, doctor):
    run, new = copy("megatron", tmp_path), tmp_path / "new"
    weights = run / "iter_0000004" / "mp_rank_01" / "model_optim_rng.pt"
    os.truncate(weights, weights.stat().st_size // 2)
    done = doctor("salvage", "rollback", run, "-o", new)
    assert done.returncode == 0, done.stderr
    assert "not taken: iter_0000004: damaged" in done.stdout and f"--load {new} --ckpt-step 2" in done.stdout
    assert (new / "latest_checkpointed_iteration.txt").read_text() == "2"


def test_nothing_sound_is_left(tmp_path, doctor):
    run, new = copy("dcp", tmp_path), tmp_path / "new"
    for step in (2, 4):
        os.truncate(run / f"step-{step}" / "__0_0.distcp", 100)
    done = doctor("salvage", "rollback", run, "-o", new)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "no checkpoint to go back to" in done.stderr and not new.exists()


def test_the_step_of_trouble_is_found_without_being_named(tmp_path, doctor):
    run, new = copy("megatron", tmp_path), tmp_path / "new"
    rows = [{"step": s, "loss": 2.0 - s / 10 if s < 3 else float("nan")} for s in range(1, 6)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = doctor("salvage", "rollback", run, "-o", new)
    assert done.returncode == 0, done.stderr
    assert "iter_0000004: saved at step 4, not before loss.first_nan_step at step 3" in done.stdout


def test_by_its_step(tmp_path, doctor):
    run = copy("hf", tmp_path)
    done = doctor("salvage", "rollback", run, "-o", tmp_path / "new", "--step", 2, "--quick")
    assert done.returncode == 0, done.stderr
    assert f"--resume_from_checkpoint {tmp_path / 'new' / 'checkpoint-2'}" in done.stdout
    none = doctor("salvage", "rollback", run, "-o", tmp_path / "other", "--step", 3)
    assert none.returncode == 2 and "steps 2, 4" in none.stderr
    os.truncate(run / "checkpoint-4" / "model.safetensors", 1000)
    bad = doctor("salvage", "rollback", run, "-o", tmp_path / "other", "--step", 4)
    assert bad.returncode == 2 and "damaged" in bad.stderr and not (tmp_path / "other").exists()


def test_quick_reads_no_tensor_and_sees_a_cut_file(tmp_path, doctor):
    run, new = copy("hf", tmp_path), tmp_path / "new"
    os.truncate(run / "checkpoint-4" / "model.safetensors", 1000)
    done = doctor("salvage", "rollback", run, "-o", new, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["checkpoint"] == "checkpoint-2" and told["why"].startswith("whole by names, sizes and structure")


def test_deepspeed_reads_the_tracker(tmp_path, doctor):
    """Its own code, pointed at the new folder, takes the older save through `latest` and the link."""
    run, new = copy("zero2", tmp_path), tmp_path / "new"
    assert doctor("salvage", "rollback", run, "-o", new, "--before", 2).returncode == 0
    code = """
import sys
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as gather
print(len(gather(sys.argv[1])))
"""
    said = in_torch(code, new)
    assert f"Processing zero checkpoint '{new}/global_step1'" in said and said.endswith("\n5")


@pytest.mark.parametrize("name", ["a b", "-rf", "it's $(touch x)", "new\nline", "\x1b[31mred"])
def test_names_of_every_kind_are_one_word(tmp_path, doctor, name):
    run = copy("megatron", tmp_path)
    done = doctor("salvage", "rollback", run, "-o", tmp_path / name, "--before", 4)
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1].strip()
    assert line.isprintable()
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    assert words.decode().split("\0")[:2] == ["--load", str(tmp_path / name)]
    # relative, a dash must not make an option of it
    done = doctor("salvage", "rollback", run, "-o", f"./{name}2", "--before", 4, cwd=tmp_path)
    assert done.returncode == 0 and not shlex.split(done.stdout.splitlines()[-1])[1].startswith("-")


def test_ends_that_do_not_fit(tmp_path, doctor):
    run = copy("megatron", tmp_path)
    (tmp_path / "taken").mkdir()
    for output, said in ((tmp_path / "taken", "exists"), (run / "new", "inside"), (tmp_path / "no" / "new", "no such")):
        done = doctor("salvage", "rollback", run, "-o", output)
        assert done.returncode == 2 and said in done.stderr
    assert not list((tmp_path / "taken").iterdir())
    empty = tmp_path / "empty"
    empty.mkdir()
    done = doctor("salvage", "rollback", empty, "-o", tmp_path / "new")
    assert done.returncode == 2 and "no numbered checkpoints" in done.stderr
    done = doctor("salvage", "rollback", run, "-o", tmp_path / "new", "--step", 2, "--before", 4)
    assert done.returncode == 2 and "exclude" in done.stderr


def test_two_series_are_not_mixed(tmp_path, doctor):
    for name in ("a", "b"):
        copy("megatron", tmp_path / "runs" / name)
    done = doctor("salvage", "rollback", tmp_path / "runs", "-o", tmp_path / "new")
    assert done.returncode == 2 and "2 series" in done.stderr and str(tmp_path / "runs/a/megatron") in done.stderr


def test_links_survive_a_move_of_both(tmp_path, doctor):
    run = copy("megatron", tmp_path / "exp")
    assert doctor("salvage", "rollback", run, "-o", tmp_path / "exp" / "new", "--before", 4).returncode == 0
    (tmp_path / "exp").rename(tmp_path / "moved")
    assert (tmp_path / "moved/new/iter_0000002/mp_rank_00/model_optim_rng.pt").is_file()


def test_no_room_and_a_failure_midway_leave_nothing(tmp_path, monkeypatch):
    run = copy("megatron", tmp_path / "old")
    place = tmp_path / "place"
    place.mkdir()

    def failing(source: Path, target: Path, progress) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(salvage, "copy_bytes", failing)
    with pytest.raises(UsageError, match="No space"):
        salvage.roll_back(run, place / "new", salvage.Wanted(before=4), True, lambda _n: None)
    monkeypatch.undo()
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("traindoctor.agent.repair.salvage.copying.shutil.disk_usage", lambda _p: usage)
    with pytest.raises(UsageError, match="are needed"):
        salvage.roll_back(run, place / "new", salvage.Wanted(before=4), True, lambda _n: None)
    assert not list(place.iterdir())


def test_killed_at_any_moment_there_is_nothing_or_all(tmp_path):
    """The name appears in one step, so that a kill between leaves the temporary folder at most."""
    run = copy("megatron", tmp_path / "old")
    code = """
import sys
from pathlib import Path
from traindoctor.agent.repair.salvage import rollback
keep = rollback.copy_bytes
def slow(source, target, progress):
    keep(source, target, progress); print("copied", flush=True); sys.stdin.readline()
rollback.copy_bytes = slow
rollback.roll_back(Path(sys.argv[1]), Path(sys.argv[2]), rollback.Wanted(before=4), True, lambda n: None)
print("done", flush=True)
"""
    for files in (1, 2):
        place = tmp_path / f"place{files}"
        place.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(run), str(place / "new")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert process.stdin and process.stdout
        for n in range(files):
            assert process.stdout.readline() == "copied\n"
            if n + 1 < files:
                process.stdin.write("\n")
                process.stdin.flush()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (place / "new").exists()
