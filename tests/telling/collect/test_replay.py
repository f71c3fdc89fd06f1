"""What a bundle holds is enough: diagnosed again elsewhere, it comes to the same verdict."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from traindoctor.agent.core.shell import Recorded, Recording
from traindoctor.agent.doors.cli import main
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.collect.bundle import collect
from traindoctor.evals import case, run

from tests.telling.collect.runs import unpacked

EVALS = Path(__file__).parent.parent.parent.parent / "evals"
SIX = ("dist-second-finetune-fails", "env-vector-add-codegen", "hw-nvls-invalid-argument", "loss-axolotl-eval-loss-nan-cp",
       "memory-gemma2-9b-squad-step10", "rl-agent-gets-worse-with-liger-loss")  # fmt: skip


def verdict(report: dict) -> tuple[str | None, str]:
    return report["root_cause"]["id"], report["status"]


@pytest.mark.parametrize("name", SIX)
def test_an_incident_collected_is_the_same_incident(name: str, tmp_path: Path) -> None:
    known = case.load(EVALS / "incidents" / name)
    shell = Recording(Recorded(known.shell))
    ws = Workspace([known.files], live=known.shell.is_file(), shell=shell, question=known.question)
    bundle = collect(ws, shell, tmp_path / "b.tar.gz", known.question)
    again = case.load(unpacked(tmp_path / "b.tar.gz", tmp_path / "x"))
    answer = run.diagnose(run.Task(again.files, again.question, again.shell))
    assert bundle.report is not None
    assert verdict(json.loads(answer.report)) == (bundle.report.root_cause.id, bundle.report.status)
    assert again.expected == (bundle.report.root_cause.id,) and again.question == known.question


def test_doctor_eval_takes_a_bundle_of_a_long_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demonstration's logs with megabytes of ordinary steps before and between what matters."""
    job = tmp_path / "job"
    shutil.copytree(EVALS / "demo" / "files", job)
    for log in (job / "logs").glob("rank*.log"):
        lines = log.read_text().splitlines(keepends=True)
        at = next((i for i, line in enumerate(lines) if "step 4" in line), 0)
        quiet = "".join(f"[2026-03-03 {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}.000] [INFO] [pretrain] step {i // 21} done\n" for i in range(4_000))
        log.write_text("".join(lines[:at]) + quiet + "".join(lines[at:]))
    assert main(["collect", str(job), "-o", str(tmp_path / "b.tgz"), "--no-machine", "--max-size", "512K", "--quiet"]) == 0
    folder = unpacked(tmp_path / "b.tgz", tmp_path / "x")
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) <= 1 << 19
    found = case.load(folder)
    assert found.expected == ("hw.gpu_fell_off_bus",)
    capsys.readouterr()
    assert main(["eval", str(folder)]) == 0 and re.search(r"unlabelled +1 +1\.00 ", capsys.readouterr().out)
