"""Jobs on a real Slurm: what `doctor triage --slurm` says of each end, and what the epilog does meanwhile."""

from __future__ import annotations

import json
import pwd
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.slurm.cluster import Cluster, until
from tests.jobs.slurm.conftest import USER, launcher

Doctor = Callable[..., subprocess.CompletedProcess[str]]

FAILING = """#!/bin/bash
#SBATCH --output=logs/%x-%j.out
#SBATCH --job-name=exp42
python3 train.py
"""
TRAIN = """for step in range(5):
    print(f"step {step} loss {2.3 - step / 10}", flush=True)
import flash_attention_kernels
"""
EATER = """import time
held = []
for step in range(400):
    held.append(bytearray(2 << 20))
    print(f"step {step} loss {2.0 / (step + 1):.4f}", flush=True)
    time.sleep(0.03)
"""
SAVING = """import signal, sys, time
def save(number, frame):
    print("saved at step", step, flush=True)
    sys.exit(7)
signal.signal(signal.SIGUSR1, save)
for step in range(3000):
    print(f"step {step} loss {2.0 / (step + 1):.4f}", flush=True)
    time.sleep(0.1)
"""
STEPS = 'for i in $(seq {n}); do echo "step $i loss 0.$((200 - i))"; sleep {pause}; done'


@pytest.fixture
def place(cluster: Cluster, request: pytest.FixtureRequest) -> Path:
    """A folder for one job, where every user may look."""
    folder = cluster.folder / "jobs of ünï" / request.node.name
    (folder / "logs").mkdir(parents=True)
    folder.chmod(0o777)
    (folder / "logs").chmod(0o777)
    return folder


def triaged(here: Doctor, job: str, *more: str) -> dict[str, Any]:
    done = here("triage", "--slurm", job, "--json", "--quiet", *more)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return {**report, "cause": report["root_cause"]["id"]}


def told(report: dict[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for e in report["evidence"]:
        found.setdefault(e["key"], []).append(e["value"])
    return found


def explained(cluster: Cluster, log: Path) -> None:
    """Wait until the epilog has diagnosed a job; it runs at low priority, and waits a minute where Slurm is slow."""
    try:
        until(lambda: log.is_file() and "done: doctor ended 0" in log.read_text(), 420, str(log))
    except TimeoutError:
        said = [p for p in (log, *cluster.folder.glob("log/slurm*.log")) if p.is_file()]
        pytest.fail("the epilog:\n" + "\n".join(f"{p.name}: {p.read_text()[-3000:]}" for p in said))


@pytest.mark.timeout(900)  # the epilog runs at low priority: beside busy processes its turn comes late
def test_every_end_of_a_job_is_told_apart_and_the_epilog_explains_what_failed(cluster, here, place):
    (place / "train.py").write_text(TRAIN)
    (place / "eat.py").write_text(EATER)
    long = f"#!/bin/bash\n{STEPS.format(n=900, pause=0.2)}\n"
    taken = cluster.submit(long, place, "--partition=cheap", "--mem=500", user=USER)
    going = cluster.submit(long, place, "--nodelist=n2", user=USER)
    eating = cluster.submit("#!/bin/bash\n#SBATCH --mem=80\npython3 eat.py\n", place, "--nodelist=n2")
    fails = cluster.submit(FAILING, place, "--nodelist=n3", user=USER)
    fine = f"#!/bin/bash\n{STEPS.format(n=20, pause=0)}\necho training finished\n"
    well = cluster.submit(fine, place, "--nodelist=n3", user=USER)
    for job in (taken, going):
        output = place / f"slurm-{job}.out"
        until(lambda o=output: o.is_file() and "step 3 " in o.read_text(), 180, "a job did not begin")
    cluster.run("scancel", going)
    cluster.submit("#!/bin/bash\n", place, "--nodelist=n1", "--exclusive")

    assert cluster.ended(fails, 180) == "FAILED"
    report = triaged(here, fails)
    assert report["cause"] == "env.missing_module"
    assert any(e["file"].endswith(f"exp42-{fails}.out") for e in report["evidence"])
    assert cluster.ended(well, 180) == "COMPLETED" and triaged(here, well)["cause"] == "none.healthy"
    assert cluster.ended(going, 90).startswith("CANCELLED")
    report = triaged(here, going)  # ended by somebody: no fault of the run
    assert report["cause"] in ("none.healthy", "none.insufficient_evidence")
    assert "slurm.cancelled_by" in told(report)
    cluster.ended(eating, 90)
    report = triaged(here, eating, "--write")
    assert (report["cause"], report["status"]) == ("memory.host_oom", "confirmed")
    assert (place / f"doctor-slurm-{eating}" / "doctor-report.md").is_file()
    assert cluster.ended(taken, 180) == "PREEMPTED"
    report = triaged(here, taken)
    assert report["cause"] == "dist.node_failure" and "slurm.preempted" in told(report)

    logs = cluster.folder / "hook logs"
    for job, folder, cause in ((fails, "logs", "env.missing_module"), (taken, ".", "dist.node_failure")):
        log = logs / f"job-{job}.log"
        explained(cluster, log)
        written = place / folder / f"doctor-slurm-{job}" / "doctor-report.json"
        assert json.loads(written.read_text())["root_cause"]["id"] == cause
        assert pwd.getpwuid(written.stat().st_uid).pw_name == USER and log.stat().st_mode & 0o077 == 0
    for job in (well, going):
        assert not list(place.glob(f"doctor-slurm-{job}")) and not (logs / f"job-{job}.log").exists()
    assert set(cluster.states().values()) <= {"idle", "mixed", "allocated", "completing"}


@pytest.mark.soak
def test_a_task_of_an_array_is_told_apart_from_its_siblings(cluster: Cluster, here: Doctor, place: Path) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --output=%x_%A-%a.log\n#SBATCH --array=1-3\n"
        "echo step $SLURM_ARRAY_TASK_ID loss 1.0\n[[ $SLURM_ARRAY_TASK_ID == 2 ]] && python3 train.py\ntrue\n"
    )
    (place / "train.py").write_text(TRAIN)
    job = cluster.submit(script.replace("train.py\ntrue", "train.py && exit 0\nexit $?"), place, "-J", "arr")
    until(lambda: cluster.state(f"{job}_2") == "FAILED", 60, "the task did not fail")
    report = triaged(here, f"{job}_2")
    assert report["cause"] == "env.missing_module"
    assert any(e["file"].endswith(f"arr_{job}-2.log") for e in report["evidence"])
    assert not any("arr_" in e["file"] and f"{job}-1.log" in e["file"] for e in report["evidence"])


def test_what_the_accounting_alone_still_knows_is_enough(cluster: Cluster, here: Doctor, place: Path) -> None:
    """The controller forgets a job after some minutes; then the paths come from the command line of its submission."""
    from traindoctor.agent.core.shell import Completed
    from traindoctor.agent.jobs.nodes.slurm_job import job_of

    (place / "train.py").write_text(TRAIN)
    job = cluster.submit(FAILING, place, "-J", "later")
    cluster.ended(job)
    name = ("sacct", "-n", "-X", "-P", "-j", job, "-o", "JobName")  # the record of its start may come after its end
    until(lambda: cluster.run(*name).stdout.strip() == "later", 60, "the accounting")

    class Forgetful:
        """The real programs, for a controller that has forgotten."""

        def run(self, argv: list[str], timeout: float = 10.0, env: Any = None, cwd: Any = None) -> Completed:
            if argv[0] == "scontrol" and "job" in argv[1:3]:
                return Completed(tuple(argv), 1, "", "slurm_load_jobs error: Invalid job id specified")
            done = cluster.run(*argv, timeout=timeout)
            return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    found = job_of(job, Forgetful())
    assert found.outputs[0] == place / "logs" / f"later-{job}.out"
    assert "train.py" in found.script or not found.script


def test_what_slurm_does_not_know_is_one_line(cluster: Cluster, here: Doctor) -> None:
    for number, words in (("999999", "knows no job"), ("x; true", "is no Slurm job id")):
        done = here("triage", "--slurm", number)
        assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_batch_script_of_the_hook_lets_training_save_keeps_the_exit_code_and_explains(cluster, here, place):
    done = here("hook", "slurm", "--part", "sbatch", "--doctor", str(launcher(cluster.folder)))
    (place / "train.py").write_text(SAVING)
    script = done.stdout.replace("python train.py", "python3 train.py")
    home = f"--export=ALL,HOME={place}"
    # a diagnosis inside the job counts as the job's memory
    job = cluster.submit(script, place, "--mem=2500", home, user=USER)
    output = place / f"train-{job}.out"
    until(lambda: output.is_file() and "step 3 " in output.read_text(), 180, "the job did not begin")
    cluster.run("scancel", "--batch", "--signal=USR1", job)  # as Slurm does near the time limit
    assert cluster.ended(job, 240) == "FAILED", output.read_text()
    assert cluster.run("sacct", "-n", "-X", "-P", "-j", job, "-o", "ExitCode").stdout.strip() == "7:0"
    assert output.read_text().count("saved at step") == 1
    assert list(place.rglob("doctor-report.json")), output.read_text()


@pytest.mark.soak
def test_a_job_that_slurm_cannot_finish_on_another_node_is_explained_on_the_first(cluster, here, place):
    """It stays COMPLETING while a node does not say that it is done with it; the accounting knows its end."""
    script = f"#!/bin/bash\n#SBATCH --output=many.log\n{STEPS.format(n=20, pause=0.3)}\npython3 train.py\n"
    (place / "train.py").write_text(TRAIN)
    job = cluster.submit(script, place, "--nodes=2", "--nodelist=n2,n3", user=USER)
    until(lambda: (place / "many.log").is_file(), 120, "the job did not begin")
    with cluster.stopped("n3"):
        explained(cluster, cluster.folder / "hook logs" / f"job-{job}.log")
        assert "COMPLETING" in cluster.run("scontrol", "show", "job", job).stdout
    written = json.loads((place / f"doctor-slurm-{job}" / "doctor-report.json").read_text())
    assert written["root_cause"]["id"] == "env.missing_module"


@pytest.mark.soak
def test_a_job_at_its_time_limit_is_told_as_that(cluster: Cluster, here: Doctor, place: Path) -> None:
    """Slurm counts limits in whole minutes, and looks whether one is over every half minute."""
    job = cluster.submit(f"#!/bin/bash\n#SBATCH --time=1\n{STEPS.format(n=900, pause=0.3)}\n", place)
    assert cluster.ended(job, 240) == "TIMEOUT"
    report = triaged(here, job)
    assert report["cause"] == "env.watchdog_kill" and "slurm.time_limit" in told(report)
