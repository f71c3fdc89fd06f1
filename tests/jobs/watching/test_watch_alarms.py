"""Each alarm, raised by a file that a child process really writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.jobs.watching.followed_run import Run

from tests.jobs.watching.live import DEADLINE, job, until, watching, written_here

_STEADY = "for n in range(1, 121): step(n)\nwait()\n"

CASES = {
    "loss_nan": ("step(121, float('nan'))", {"step": 121.0, "file": "train.log", "line": 121, "value": "nan"}),
    "grad_nan": ("line('step 121 loss 2.0 grad_norm nan')", {"step": 121.0, "line": 121}),
    "loss_spike": ("step(121, 9.0)", {"step": 121.0, "line": 121, "value": 9.0}),
    "divergence": ("for n in range(121, 201): step(n, 2.0 + (n - 120) * 0.05)", {"file": "train.log"}),
    "plateau": ("for n in range(121, 400): step(n)", {"severity": "notice"}),
    "memory_growth": (
        "for n in range(121, 280): step(n, more=f' memory_allocated_gb {10 + (n - 120) * 0.05:.3f}')",
        {"file": "train.log"},
    ),
    "xid": ("line('NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.')", {"line": 121, "step": 120.0}),
    "checkpoint_failed": (
        "line('ERROR: failed to save checkpoint /ckpt/step-120: No space left on device')",
        {"line": 121},
    ),
    "scale_floor": ("for n in range(121, 131): step(n, more=f' loss_scale {64.0 / 2 ** (n - 120)}')", {"value": 0.25}),
    "steps_skipped": ("for n in range(30): line('OVERFLOW! Rank 0 Skipping step.')", {"step": 120.0}),
    "traceback": (
        "line('Traceback (most recent call last):\\n  File \"x.py\", line 3, in f\\nRuntimeError: no luck')",
        {"line": 121, "text": "RuntimeError: no luck"},
    ),
    "fatal": ("line('slurmstepd: error: Detected 1 oom_kill event in StepId=7.0')", {"line": 121}),
}


@pytest.mark.parametrize("kind", CASES)
def test_an_alarm_comes_once_with_its_evidence(kind: str, tmp_path: Path) -> None:
    """Looked at by the reader itself; that the command tells of it by its exit code is in test_watch_command."""
    script, wanted = CASES[kind]
    write = written_here(tmp_path)
    write("for n in range(1, 121): step(n)")
    run = Run(tmp_path, frozenset((kind,)))
    assert run.look() == []
    write(script)
    said = [a.plain() for a in [*run.look(), *run.look(last=True)]]
    run.close()
    assert [a["kind"] for a in said] == [kind]
    assert {k: said[0][k] for k in wanted} == wanted
    assert said[0]["severity"] == wanted.get("severity", "alarm") and said[0]["run"] == str(tmp_path)


def test_a_nan_that_went_away_is_told_again_when_it_comes_back(tmp_path: Path) -> None:
    script = "step(121, float('nan'))\nfor n in range(122, 160): step(n)\nstep(160, float('nan'))\nstay()"
    with job(_STEADY + script, tmp_path), watching(tmp_path, "--only", "loss_nan") as watch:
        (tmp_path / "go").touch()
        until(lambda: len(watch.said) >= 2, "told once")
    assert [(a["step"], a["again"]) for a in watch.said] == [(121.0, False), (160.0, True)]


def test_stall_and_that_it_is_told_once(tmp_path: Path) -> None:
    script = (
        "n = 0\nwhile not (folder / 'halt').exists():\n  n += 1; step(n); time.sleep(0.05)\n"
        "(folder / 'last').write_text(str(n))\nstay()"
    )
    only = ("--only", "stall", "--prometheus", "0")
    with job(script, tmp_path), watching(tmp_path, "--stall", "2", *only) as watch:
        steps = watch.metrics("doctor_watch_step")
        seen: set[float] = set()
        until(lambda: seen.add(steps()) or len(seen) >= 8, "no steps seen")  # looks that each saw new ones
        (tmp_path / "halt").touch()
        until(lambda: "stall" in watch.kinds(), "no stall")
        (alarm,) = (a for a in watch.said if a["kind"] == "stall" and a["severity"] == "alarm")
        assert alarm["step"] == float((tmp_path / "last").read_text())
        assert "each" in alarm["usual"]
        assert watch.end() == 1
    assert watch.kinds().count("stall") == 1


def test_a_rank_that_falls_back_is_named(tmp_path: Path) -> None:
    script = (
        "to = [open(folder / f'rank_{r}.log', 'a', buffering=1) for r in range(4)]\nwait()\n"
        "for n in range(1, 400):\n"
        "  for r in range(4):\n"
        "    if r != 2 or n % 4 == 0: step(n if r != 2 else n // 4, to=to[r])\n"
        "  time.sleep(0.04)\nstay()"
    )
    with job(script, tmp_path), watching(tmp_path, "--only", "straggler") as watch:
        (tmp_path / "go").touch()
        alarm = watch.first("straggler")
        assert (alarm["rank"], alarm["file"]) == (2, "rank_2.log")
    assert len(watch.said) == 1


def test_a_slow_rank_is_named_by_what_it_prints(tmp_path: Path) -> None:
    script = (
        "wait()\nfor n in range(1, 60):\n"
        "  for r in range(4): step(n, rank=r, more=f' compute_time: {0.9 if r == 3 else 0.3:.2f}')\n  time.sleep(0.02)\n"
        "stay()"
    )
    with job(script, tmp_path), watching(tmp_path, "--only", "straggler") as watch:
        until(lambda: (tmp_path / "train.log").exists(), "nothing written")
        (tmp_path / "go").touch()
        alarm = watch.first("straggler")
    assert alarm["rank"] == 3
    assert "300 ms" in alarm["usual"]


def test_one_event_on_many_ranks_is_one_alarm(tmp_path: Path) -> None:
    script = (
        "to = [open(folder / f'rank_{r}.log', 'a', buffering=1) for r in range(16)]\n"
        "for n in range(1, 30):\n  for r in range(16): step(n, to=to[r])\nwait()\n"
        "for r in range(16): step(30, float('nan'), to=to[r])\nwait('end')"
    )
    with job(script, tmp_path) as child, watching(tmp_path, "--only", "loss_nan") as watch:
        until(lambda: (tmp_path / "rank_15.log").exists(), "nothing written")
        (tmp_path / "go").touch()
        watch.first("loss_nan")
        (tmp_path / "end").touch()
        child.wait()
        assert watch.end() == 1
    assert [a["step"] for a in watch.said] == [30.0]


def test_a_traceback_that_the_run_got_over_is_a_notice(tmp_path: Path) -> None:
    script = (
        "line('Traceback (most recent call last):\\n  File \"x.py\", line 3, in f\\nOSError: upload failed')\n"
        "for n in range(121, 130): step(n)\nwait('end')"
    )
    with job(_STEADY + script, tmp_path), watching(tmp_path, "--only", "traceback") as watch:
        (tmp_path / "go").touch()
        assert watch.first("traceback")["severity"] == "notice"
        assert watch.end() == 0


def test_the_end_of_a_run_ends_the_watch_of_it(tmp_path: Path) -> None:
    record = tmp_path / "doctor-run" / "try_1" / "record.json"
    record.parent.mkdir(parents=True)
    with job(f"{_STEADY}stay()", tmp_path), watching(tmp_path, "--until-end") as watch:
        until(lambda: (tmp_path / "train.log").exists(), "nothing written")
        record.write_text('{"state": "ended", "exit": {"code": 3, "signal": null}}')
        alarm = watch.first("run_ended")
        assert (alarm["severity"], alarm["text"]) == ("alarm", "the job ended with exit code 3")
        assert watch.process.wait(DEADLINE) == 1


def test_checkpoints_that_shrink_or_lack_shards(tmp_path: Path) -> None:
    import os
    import time

    now = time.time()
    for n, size in ((100, 5000), (200, 5000), (300, 5000), (400, 900)):
        folder = tmp_path / f"checkpoint-{n}"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(bytes(size))
        os.utime(folder / "model.safetensors", (now - 500 + n, now - 500 + n))
    (tmp_path / "train.log").write_text("step 400 loss 1.0\n")
    with watching(tmp_path, "--once", "--only", "checkpoint_small") as watch:
        alarm = watch.first("checkpoint_small")
        assert watch.process.wait(DEADLINE) == 1
    assert alarm["file"] == "checkpoint-400"
    assert alarm["value"] == 900.0
