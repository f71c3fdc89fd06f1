"""Logs on the nodes' own disks, brought together from a real Slurm of several nodes."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.jobs.slurm.cluster import NODES, Cluster, until

Doctor = Callable[..., subprocess.CompletedProcess[str]]

# Each node writes below a folder of its own name, as on a disk that no other node sees.
RANKS = """#!/bin/bash
#SBATCH --nodes=3 --ntasks=3 --output=main.log
srun bash -c 'mkdir -p local/$SLURMD_NODENAME && python3 rank.py >local/$SLURMD_NODENAME/rank_$SLURM_PROCID.log 2>&1'
"""
RANK = """import os, time
token = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3g"
print("[rank%s] host %s token %s" % (os.environ["SLURM_PROCID"], os.environ["SLURMD_NODENAME"], token))
for step in range(4):
    print("step %d loss %.3f" % (step, 2.0 - step / 10), flush=True)
if os.environ["SLURMD_NODENAME"] == "n2":
    import flash_attention_kernels
"""


def ran(cluster: Cluster, name: str) -> tuple[str, Path]:
    folder = cluster.folder / "jobs of ünï" / name
    folder.mkdir(parents=True)
    (folder / "rank.py").write_text(RANK)
    return cluster.submit(RANKS, folder), folder


def test_what_lies_on_the_nodes_comes_into_one_folder_where_they_are_hosts(cluster, here, tmp_path):
    job, _ = ran(cluster, "collected")
    assert cluster.ended(job) == "FAILED"
    into = tmp_path / "all nodes"
    bundle = tmp_path / "bundle.tar.gz"
    done = here("collect", "--slurm", job, "--path", "local/$SLURMD_NODENAME/*", "--into", str(into), "-o", str(bundle))
    assert done.returncode == 0, done.stderr
    assert "3 of 3 nodes answered" in done.stderr
    again = here("collect", "--slurm", job, "--into", str(into))  # a folder that is there is not written into
    assert again.returncode == 2 and "is there" in again.stderr

    said = json.loads((into / "manifest.json").read_text())
    assert [n["node"] for n in said["nodes"]] == list(NODES) and all(n["answered"] for n in said["nodes"])
    logs = sorted(p.relative_to(into).parts[0] + "/" + p.name for p in into.rglob("rank_*.log"))
    assert logs == ["n1/rank_0.log", "n2/rank_1.log", "n3/rank_2.log"]
    assert "hf_aB3d" not in "".join(p.read_text() for p in into.rglob("*.log"))
    with tarfile.open(bundle) as packed:
        assert any(name.endswith("rank_1.log") for name in packed.getnames())

    report = json.loads(here("triage", str(into), "--json", "--quiet").stdout)
    assert report["root_cause"]["id"] == "env.missing_module"
    broke = [e for e in report["evidence"] if e.get("file", "").endswith("rank_1.log")]
    assert broke and {e["host"] for e in broke} == {"n2"}
    assert report["root_cause"]["first_failure"]["host"] == "n2"


@pytest.mark.soak
def test_a_node_that_is_away_is_named_and_costs_the_others_nothing(cluster, here, tmp_path):
    job, _ = ran(cluster, "one-away")
    cluster.ended(job)
    cluster.run("scontrol", "update", "nodename=n3", "state=down", "reason=fan broken")
    try:
        done = here("collect", "--slurm", job, "--into", str(tmp_path / "some"))
    finally:
        cluster.run("scontrol", "update", "nodename=n3", "state=resume")
    assert done.returncode == 0, done.stderr
    assert "2 of 3 nodes answered" in done.stderr and "n3 is DOWN" in done.stderr
    assert "fan broken" in done.stderr
    until(lambda: cluster.states().get("n3") == "idle", 60, "n3 did not come back")


@pytest.mark.soak
def test_a_job_that_runs_is_asked_in_its_own_allocation_for_its_stacks(cluster, here, tmp_path):
    folder = cluster.folder / "jobs of ünï" / "alive"
    folder.mkdir(parents=True)
    (folder / "wait.py").write_text("import time\nprint('step 1 loss 2.0', flush=True)\ntime.sleep(600)\n")
    job = cluster.submit("#!/bin/bash\n#SBATCH --nodes=3 --exclusive --output=o.log\nsrun python3 wait.py\n", folder)
    try:
        until(lambda: (folder / "o.log").is_file() and (folder / "o.log").read_text().count("step") == 3, 60, "no job")
        into = tmp_path / "alive"
        done = here("collect", "--slurm", job, "--into", str(into))
        assert done.returncode == 0, done.stderr
        assert "3 of 3 nodes answered" in done.stderr
        assert len(list(into.glob("n*/stacks/rank_*_pid_*.txt"))) >= 3 and cluster.state(job) == "RUNNING"
    finally:
        cluster.run("scancel", job)
    cluster.ended(job)
