"""`doctor watch` as a command: what it prints, how it ends, who else may ask."""

from __future__ import annotations

import signal
import urllib.request
from pathlib import Path

from traindoctor.agent.jobs.watching.alarm import KINDS

from tests.conftest import ROOT, Doctor
from tests.jobs.watching.live import DEADLINE, job, until, watching

_NAN = "for n in range(1, 31): step(n)\nstep(31, float('nan'))\nstay()"


def test_lines_for_people(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "rank_3.log").write_text("step 1 loss 2.0\nstep 2 loss nan\n")
    done = doctor("watch", tmp_path, "--once", "--skip", "disk_filling")
    assert done.returncode == 1
    first, advice, *_ = done.stdout.splitlines()
    assert first[8:] == " earlier loss_nan            rank 3  step 2  loss is nan; usual: 2 before (rank_3.log:2)"
    assert advice.strip() == f"-> {KINDS['loss_nan'].next}"
    assert done.stderr == "doctor: 1 alarm (loss_nan), 0 notices\n"


def test_exit_codes(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\nTraining finished\n")
    assert doctor("watch", tmp_path, "--once", "--skip", "disk_filling").returncode == 0
    assert doctor("watch", tmp_path / "none", "--patience", "0").returncode == 3
    wrong = doctor("watch", "--only", "nonsense")
    assert wrong.returncode == 2
    assert "loss_nan" in wrong.stderr


def test_interrupt_and_exit_on(tmp_path: Path) -> None:
    with job(_NAN, tmp_path), watching(tmp_path) as watch:
        watch.first("loss_nan")
        assert watch.end(signal.SIGINT) == 130
    with job("wait()\n" + _NAN, tmp_path), watching(tmp_path, "--exit-on", "loss_nan") as watch:
        watch.first("loss_nan")  # of the first job: it was there before
        assert watch.process.poll() is None
        (tmp_path / "new.log").write_text("step 900 loss 1.0\nstep 901 loss nan\n")
        assert watch.process.wait(DEADLINE) == 1


def test_text_of_a_run_steers_no_terminal(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.log").write_text(
        "Traceback (most recent call last):\nValueError: \x1b]0;x\x07 sk-" + "a" * 48
    )
    done = doctor("watch", tmp_path, "--once")
    assert "\x1b" not in done.stdout
    assert "traceback" in done.stdout


def test_metrics_are_read_by_the_parser_of_prometheus(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    with job(_NAN, tmp_path), watching(tmp_path, "--prometheus", "0") as watch:
        watch.first("loss_nan")
        assert watch.process.stderr
        url = watch.process.stderr.readline().rpartition(" ")[2].strip()

        def values() -> dict[str, float]:
            text = urllib.request.urlopen(url, timeout=20).read().decode()
            return {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}

        until(lambda: values().get("doctor_watch_step") == 31.0, "no step")
        assert values()["doctor_watch_alarms_total"] == 1.0
        assert values()["doctor_watch_up"] == 1.0
        assert values()["doctor_watch_seconds_since_progress"] >= 0


def test_a_diagnosis_of_an_alarm(tmp_path: Path) -> None:
    script = "for n in range(1, 31): step(n)\nwait()\nstep(31, float('nan'))\nwait('end')"
    (tmp_path / "before.log").write_text("step 5000 loss 2.0\nstep 5001 loss nan\n")
    with job(script, tmp_path), watching(tmp_path, "--diagnose", "--only", "loss_nan", "--only", "verdict") as watch:
        until(lambda: (tmp_path / "train.log").exists(), "nothing written")
        assert watch.first("loss_nan")["earlier"]  # which starts no diagnosis
        (tmp_path / "go").touch()
        verdict = watch.first("verdict")
    assert (verdict["severity"], verdict["step"]) == ("notice", 31.0)
    assert "doctor ask --session" in verdict["text"]


def test_the_documents_name_every_kind() -> None:
    text = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    for kind in KINDS.values():
        assert f"| `{kind.name}` | {kind.severity} | {kind.stands_on} |" in text, kind.name
