"""Starting again: what it does for every cause, who is left out, from which checkpoint and at what cost."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.playbook import causes
from traindoctor.agent.core.report import Report, Restart, RootCause
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.repair.restart import advise, commands, complete, outcomes
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.verdict.predicates import Facts

from tests.reading.checkpoints.damage import cut, overwrite
from tests.reading.checkpoints.makers import copy

ROOT = Path(__file__).resolve().parents[2]


def seen(key: str, value: object = True, **more: object) -> Evidence:
    return Evidence(key=key, value=value, **more)  # pyright: ignore[reportArgumentType]


def advised(cause: str, *proof: Evidence, others: tuple[Evidence, ...] = ()) -> Restart:
    made = advise(cause, list(proof), Facts.of([*proof, *others]), None)
    assert made is not None
    return made


def test_every_cause_stands_in_one_group() -> None:
    groups = yaml.safe_load((ROOT / "knowledge" / "restart.yaml").read_text())
    listed = [cause for group in groups for cause in group["causes"]]
    assert sorted(listed) == sorted(c for c in causes() if not c.startswith("none."))
    for group in groups:
        assert group["again"].endswith(".")
        assert (group["advice"] == "restart_excluding") == ("culprit" in group) == ("find" in group), group["causes"]
    assert len(outcomes()) == len(listed)


def test_the_node_at_fault_is_left_out_and_its_victims_are_not() -> None:
    xid = seen("gpu.xid", 79, host="n12", text="NVRM: Xid (PCI:0000:18:00): 79")
    victim = seen("error.cascade", "watchdog", host="n3", rank=24)
    reporter = seen("sig.dist.rank_died", host="n7", rank=56)
    assert advised("hw.gpu_fell_off_bus", xid, victim, reporter).exclude == ["n12"]
    assert advised("hw.gpu_fell_off_bus", victim, reporter).exclude == []
    assert advised("dist.ib_link", seen("nccl.ib_error", host="n3"), seen("nccl.ib_error", host="n4")).exclude == []
    assert advised("dist.ib_link", seen("ib.errors_rising", host="n3")).exclude == ["n3"]


def test_a_node_that_slurm_names_is_left_out_by_its_name() -> None:
    reason = seen("slurm.node_reason", "gpu-a07: xid 79 on card 3", host=None)
    assert advised("hw.gpu_fell_off_bus", reason).exclude == ["gpu-a07"]
    assert advised("speed.straggler", seen("skew.slow_host", "n5")).exclude == ["n5"]


def test_what_all_nodes_report_is_no_fault_of_one() -> None:
    every = [seen("gpu.throttle", host=f"n{i}") for i in range(4)]
    assert advised("speed.thermal_throttle", *every).exclude == []
    assert advised("speed.thermal_throttle", *every[:2], others=(seen("run.state", host="n9"),)).exclude == ["n0", "n1"]


def test_what_lies_outside_the_job_is_simply_started_again() -> None:
    assert advised("dist.node_failure", seen("host.node_failure", host="n1")).advice == "restart"
    assert advised("env.hub_access").advice == "restart" and advised("team.of_our_own").advice == "fix_first"
    assert (
        advise("none.healthy", [], Facts(), None) is None
        and advise("none.insufficient_evidence", [], Facts(), 3) is None
    )


def completed(ws: Workspace, cause: str, *facts: Evidence, step: int | None = None) -> Report:
    """A report on a verdict, made whole from the files of the run."""
    report = Report(status="likely", root_cause=RootCause(id=cause, confidence=0.6))
    report.root_cause.first_failure.step = step
    found = Facts.of(facts)
    report.restart = advise(cause, list(facts), found, step)
    complete(report, found, ws)
    return report


def log(run: Path, last: int, nan_from: int | None = None) -> None:
    rows = [
        f"step {s} loss {'nan' if nan_from is not None and s >= nan_from else 4.5 - 0.001 * s} lr 0.001\n"
        for s in range(1, last + 1)
    ]
    (run / "train.log").write_text("".join(rows))


def test_the_newest_clean_one_from_before_the_trouble_comes_first(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)  # checkpoint-2 and checkpoint-4
    log(run, last=9, nan_from=4)
    facts = (seen("step_time.median", 36.0), seen("rank.world_size", 100))
    report = completed(Workspace([run]), "loss.gradient_explosion", *facts)
    restart = report.restart
    assert restart is not None and restart.from_checkpoint == "checkpoint-2"
    (best,) = restart.choices
    assert (best.step, best.clean, best.lost_steps, best.lost_gpu_hours) == (2, True, 7, 7.0)
    assert "not checkpoint-4: saved after" in best.why and "step 4" in best.why
    assert best.resume[0] == f"--resume_from_checkpoint {run / 'checkpoint-2'}"
    assert (restart.lost_steps, restart.lost_gpu_hours) == (7, 7.0)


def test_hours_are_told_only_where_time_and_number_are_known(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    log(run, last=9)
    for facts in ((), (seen("step_time.median", 36.0),), (seen("rank.world_size", 8),)):
        restart = completed(Workspace([run]), "memory.host_oom", *facts).restart
        assert restart is not None and restart.lost_steps == 5 and restart.lost_gpu_hours is None


def test_nodes_and_processes_of_the_launch_count_the_gpus(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    log(run, last=9)
    (run / "run.sh").write_text("torchrun --nnodes 4 --nproc_per_node 8 train.py --output_dir out\n")
    restart = completed(Workspace([run]), "memory.host_oom", seen("step_time.median", 90.0)).restart
    assert restart is not None and restart.lost_gpu_hours == round(5 * 90 * 32 / 3600, 2)


def test_a_damaged_one_is_passed_over_and_that_is_said(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    log(run, last=9)
    overwrite(run, "hf", "mlp.up_proj", float("nan"))  # of the newest
    restart = completed(Workspace([run]), "dist.node_failure").restart
    assert restart is not None and restart.from_checkpoint == "checkpoint-2"
    assert "not checkpoint-4: damaged" in restart.choices[0].why


def test_without_a_usable_checkpoint_it_is_the_beginning(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    log(run, last=9, nan_from=2)
    restart = completed(Workspace([run]), "loss.layer_numerics").restart
    assert restart is not None and restart.from_checkpoint is None
    (only,) = restart.choices
    assert (only.checkpoint, only.step, only.lost_steps) == ("the beginning", 0, 9)
    assert "saved after" in only.why


def test_a_fault_that_every_save_carries_sends_back_to_the_beginning(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    log(run, last=9)
    restart = completed(Workspace([run]), "loss.wrong_masking").restart
    assert restart is not None and restart.from_checkpoint is None
    assert [c.checkpoint for c in restart.choices] == ["the beginning", "checkpoint-4", "checkpoint-2"]
    assert "carries the fault" in restart.choices[0].why and restart.lost_steps == 9


def test_one_too_large_to_read_at_once_is_offered_with_the_command_that_reads_it(tmp_path, monkeypatch):
    from traindoctor.agent.repair import restart as choices

    monkeypatch.setattr(choices, "READ_AT_ONCE", 0)
    run = copy("hf", tmp_path)
    log(run, last=9)
    restart = completed(Workspace([run]), "dist.node_failure").restart
    assert restart is not None and restart.from_checkpoint is None and restart.lost_steps is None
    best = restart.choices[0]
    assert best.checkpoint == "checkpoint-4" and best.clean is None and best.lost_steps == 5
    assert f"doctor tool verify-checkpoint {run} --path checkpoint-4" in best.why


def test_a_job_that_never_trained_has_nothing_to_go_back_to(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("ModuleNotFoundError: No module named 'flash_attn'\n")
    restart = completed(Workspace([tmp_path]), "env.missing_module").restart
    assert restart is not None and restart.choices == []


@pytest.mark.parametrize(("kind", "expected"), [
    ("zero2", "model_engine.load_checkpoint("),
    ("megatron", "--ckpt-step"),
    ("lightning", "trainer.fit(model, ckpt_path="),
    ("accelerate", "accelerator.load_state("),
    ("dcp", "dcp.load("),
])  # fmt: skip
def test_each_layout_has_its_own_way_to_go_on(kind: str, expected: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    log(run, last=9)
    restart = completed(Workspace([run]), "dist.node_failure").restart
    assert restart is not None and restart.choices
    assert any(expected in line for line in restart.choices[0].resume), restart.choices


@given(st.text(alphabet="ab '\"$`\\;&|(){}\n-", min_size=1, max_size=20).filter(lambda t: t.strip("/.")))
def test_hostile_names_of_checkpoints_stay_one_word(name: str) -> None:
    path = Path("/runs/x y") / name
    table = yaml.safe_load((ROOT / "knowledge" / "resume.yaml").read_text())
    for framework in table:
        lines = commands(framework, path, 7)
        assert len(lines) == len(table[framework])
        for template, line in zip(table[framework], lines, strict=True):
            if "(" in template:
                strings = [n.value for n in ast.walk(ast.parse(line)) if isinstance(n, ast.Constant)]
                assert {str(path), str(path.parent), path.name} & set(strings)
            elif "{" in template:
                words = shlex.split(line)
                assert len(words) == len(template.split())
                assert "7" in words or any(str(path) in w or str(path.parent) in w or path.name in w for w in words)


def test_a_checkpoint_without_a_step_gets_no_flag_that_needs_one() -> None:
    assert commands("torchtitan", Path("/a/b"), None) == [] and commands("megatron", Path("/a/b"), None) == []
    assert commands("unheard of", Path("/a/b"), 3) == []


@pytest.mark.parametrize("damaged", [False, True])
def test_a_report_ends_with_where_to_go_on(damaged: bool, tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    if damaged:
        cut(run / "checkpoint-4" / "model.safetensors")
    for state in run.glob("checkpoint-*/trainer_state.json"):  # it was to go on
        state.write_text(re.sub(r'"max_steps": \d+', '"max_steps": 100', state.read_text()))
    (run / "train.log").write_text(
        "".join(f"step {s} loss {4.5 - s * 0.01:.3f}\n" for s in range(1, 8))
        + "slurmstepd: error: *** JOB 4711 ON n12 CANCELLED AT 2026-03-04T02:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
    )
    *_, last = diagnose(Workspace([run]), "why did it die?", state=tmp_path / "state")
    assert isinstance(last, ReportReady)
    restart = last.report.restart
    assert last.report.root_cause.id == "dist.node_failure" and restart is not None and restart.advice == "restart"
    assert restart.from_checkpoint == ("checkpoint-2" if damaged else "checkpoint-4") and restart.exclude == []
    assert restart.choices[0].resume and restart.lost_steps == (5 if damaged else 3)


def test_without_the_checkpoints_nothing_is_said_to_be_lost_for_sure(tmp_path: Path) -> None:
    log(tmp_path, last=9)
    broken = completed(Workspace([tmp_path]), "memory.host_oom").restart
    assert broken is not None and broken.choices == [] and broken.lost_steps is None
    gone = completed(Workspace([tmp_path]), "dist.node_failure").restart
    assert gone is not None and gone.lost_steps is None
    (only,) = gone.choices
    assert only.checkpoint == "the beginning" and "name their folder with --run" in only.why
