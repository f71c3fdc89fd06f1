"""A bundle holds what helps, nothing secret, and replays as an incident."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.shell import Completed, Live, Recorded, Recording
from traindoctor.agent.doors.cli import main
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.collect.bundle import collect
from traindoctor.agent.telling.collect.bundle_work import PART
from traindoctor.agent.tools.machine.host_tools import host_health
from traindoctor.agent.tools.tool import all_tools
from traindoctor.evals import case, run

from tests.telling.collect.runs import SECRET, manifest_of, unpacked


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text(f"learning_rate: 1.0e-4\nhub_token: {SECRET}\n")
    (folder / "logs" / "train.log").write_text(f"step 1 loss 2.0\nlogin with {SECRET}\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    (folder / "long.log").write_bytes(b"step 1 loss 2.0 at the start\n" * (3 * PART // 29) + b"RuntimeError: the end\n")
    (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    (folder / "raw.log").write_bytes(b"a\0b" * 100)
    (folder / "doctor-report.md").write_text("# An older report\n")
    return folder


def test_the_command(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "b.tar.gz"
    assert main(["collect", str(job), "-o", str(out), "--question", f"why? {SECRET}", "--quiet"]) == 0
    assert "secrets taken out" in capsys.readouterr().out
    folder = unpacked(out, tmp_path / "x")
    everything = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    assert SECRET.encode() not in everything and b"<SECRET:hf:1>" in everything
    manifest = manifest_of(folder)
    kept = {row["name"]: row["kept"] for row in manifest["files"]}
    assert kept == {"config.yaml": "whole", "logs/train.log": "whole", "long.log": "part",
                    "model.safetensors": "no", "raw.log": "no"}  # fmt: skip
    assert manifest["redacted"] >= 3 and manifest["secrets"] == {"hf": 1}
    assert manifest["machine_asked"] and not manifest["machine_is_the_runs"] and not (folder / "shell.json").exists()
    cut = (folder / "files" / "long.log").read_text()
    assert cut.endswith("RuntimeError: the end\n") and " bytes left out]\n" in cut and len(cut) < 2 * PART + (1 << 18)
    assert {t["tool"] for t in manifest["tools"]} >= {"gpu_status", "host_health"}
    assert "An older report" in (folder / "report" / "found" / "doctor-report.md").read_text()
    assert "==" in (folder / "machine" / "packages.txt").read_text()
    assert (out.stat().st_mode & 0o077) == 0  # its owner decides who may read it


def test_it_overwrites_nothing(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "b.tar.gz"
    out.write_text("mine")
    assert main(["collect", str(job), "-o", str(out)]) == 2 and out.read_text() == "mine"
    assert main(["collect", str(job), "-o", str(tmp_path / "no" / "such" / "b.tar.gz")]) == 2
    assert "exists" in capsys.readouterr().err and not list(tmp_path.glob(".doctor-bundle-*"))


def test_the_machine_can_be_left_out(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "b.tar.gz"
    assert main(["collect", str(job), "-o", str(out), "--no-machine", "--quiet"]) == 0
    folder = unpacked(out, tmp_path / "x")
    assert not (folder / "tools").exists() and not (folder / "machine").exists() and not (folder / "shell.json").exists()


def test_hostile_names_stay_inside(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "a\nb\x1b[2J.log").write_text("step 1 loss 2\n")
    assert main(["collect", str(job), "-o", str(tmp_path / "b.tar.gz"), "--no-machine", "--quiet"]) == 0
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        assert all(n.startswith("job-bundle/") and n.isprintable() for n in tar.getnames())


def test_many_files_and_a_telling_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traindoctor.agent.telling.collect.bundle_work.FILES", 3)
    job = tmp_path / "job"
    job.mkdir()
    for i in range(5):
        (job / f"rank{i}.log").write_text("step 1 loss 2\n")
    (job / f"config-{SECRET}.yaml").write_text("lr: 1\n")
    assert main(["collect", str(job), "-o", str(tmp_path / "b.tar.gz"), "--no-machine", "--quiet"]) == 0
    folder = unpacked(tmp_path / "b.tar.gz", tmp_path / "x")
    manifest = (folder / "manifest.json").read_text()
    assert json.loads(manifest)["more_files"] == 3 and len(json.loads(manifest)["files"]) == 3
    assert SECRET not in manifest and not [p for p in folder.rglob("*") if SECRET in p.name]


class Sick:
    """This machine with a kernel that has lost a GPU."""

    def run(self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None) -> Completed:
        if argv[0] in ("dmesg", "journalctl"):
            line = "2026-11-20T10:00:02,000000+00:00 NVRM: Xid (PCI:0000:18:00): 79, pid=77, GPU has fallen off the bus.\n"
            return Completed(tuple(argv), 0, line)
        if argv[-1].endswith("train.log"):
            return Completed(tuple(argv), 0, json.dumps({"now": 1795176000, "first": 1795168000, "last": 1795168801}))
        return Live().run(argv, timeout, env, cwd)


def test_a_bundle_replays_as_an_incident(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\nRuntimeError: CUDA error: unspecified launch failure\n")
    shell = Recording(Sick())
    collect(Workspace([job], live=True, shell=shell), shell, tmp_path / "b.tar.gz", "why did it die?")
    folder = unpacked(tmp_path / "b.tar.gz", tmp_path / "x")
    found = case.load(folder)
    assert found.question == "why did it die?"
    scores = run.evaluate([found], 1, keep=tmp_path)
    report = json.loads((tmp_path / f"{found.id}.json").read_text())
    assert report["root_cause"]["id"] == "hw.gpu_fell_off_bus" and not scores[0].invented
    assert any(e["kind"] == "command" and "fallen off the bus" in e["text"] for e in report["evidence"])


def test_a_replay_needs_neither_our_paths_nor_our_interpreter(tmp_path: Path) -> None:
    shell = Recording(Live())
    host_health(Workspace([tmp_path], live=True, may_be_empty=True, shell=shell))
    answers = shell.answers
    for answer in answers:
        argv = [str(a) for a in answer["argv"]]  # type: ignore[attr-defined]
        answer["argv"] = ["/elsewhere/bin/python3.12", *argv[1:]] if "python" in argv[0] else argv
    (tmp_path / "shell.json").write_text(json.dumps(answers))
    other = tmp_path / "other"
    other.mkdir()
    again = host_health(Workspace([other], live=True, may_be_empty=True, shell=Recorded(tmp_path / "shell.json")))
    assert "host.memory_total_bytes = " in again.text and "host.disk_free_bytes = " in again.text
    assert all(e.argv and e.argv[0] != sys.executable for e in again.evidence)


def test_a_full_disk_is_told(job: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4K", "none", small], check=False).returncode:
        pytest.skip("may not mount")
    try:
        shell = Recording(Live())
        (job / "noise.log").write_bytes(os.urandom(60000).hex().encode())
        with pytest.raises(UsageError, match="No space left"):
            collect(Workspace([job], live=False, shell=shell), shell, small / "b.tar.gz", diagnose=False)
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_a_bug_in_a_tool_costs_its_answer_and_not_the_bundle(job, tmp_path, monkeypatch):
    def broken(ws: Workspace) -> None:
        raise ZeroDivisionError("boom")

    tools = {**all_tools(), "host_health": dataclasses.replace(host_health, function=broken)}
    monkeypatch.setattr("traindoctor.agent.telling.collect.bundle_parts.all_tools", lambda: tools)
    shell = Recording(Live())
    bundle = collect(Workspace([job], shell=shell, live=True), shell, tmp_path / "b.tar.gz", diagnose=False)
    assert "ZeroDivisionError: boom" in json.dumps(bundle.tools) and (tmp_path / "b.tar.gz").is_file()
