"""A real Ray cluster of three nodes: programs on each, logs of a job, log passes, and what happens when a node dies."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.jobs.nodes.ray_nodes import RayCluster, ray_job_logs, spread_over
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan.logpass import logpass

from tests.jobs.nodes.conftest import Ray

INCIDENTS = Path(__file__).resolve().parents[3] / "evals" / "incidents"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"


def rank_files(folder: Path, count: int, lines: int = 40) -> Path:
    folder.mkdir()
    for rank in range(count):
        said = [f"[rank{rank}]: 2026-11-22 10:00:{i:02},000 INFO step {i} loss {3 - i / 100:.2f}" for i in range(lines)]
        said.append(f"[rank{rank}]: {OOM}" if rank == count // 2 else f"[rank{rank}]: RuntimeError: NCCL error")
        (folder / f"rank_{rank}.log").write_text("\n".join(said) + "\n")
    return folder


def test_a_cluster_from_its_nodes_to_the_death_of_one(ray_cluster: Ray, tmp_path: Path) -> None:
    """One test, so that one worker alone starts a cluster: it takes half a minute of processor time."""
    with RayCluster(ray_cluster.address) as cluster:
        driver = cluster._child  # pyright: ignore[reportPrivateUsage]
        names = [node.name for node in cluster.nodes()]
        assert names == ["n1", "n2", "n3"]
        answers = cluster.run(["sh", "-c", "cat; exit 4"], [*names, "n9"], 60.0, b"hello")
        assert [(a.node, a.code, a.stdout) for a in answers[:3]] == [(name, 4, b"hello") for name in names]
        assert answers[3].why == "is no node of this cluster"
        (answer,) = cluster.run(["sleep", "300"], ["n2"], 1.0)
        assert (answer.code, answer.why) == (None, "did not answer within 1 s")
        ray_cluster.kill("n3")
        answers = cluster.run(["true"], ["n1", "n3"], 60.0)
        assert answers[0].ok and answers[1].code is None and answers[1].why and "\n" not in answers[1].why
        gone = next(node for node in cluster.nodes() if node.name == "n3")
        assert (gone.reachable, gone.state.startswith("dead")) == (False, True)
    assert driver.returncode in (0, 1), "it was to leave the cluster by itself"
    there = Workspace([rank_files(tmp_path / "run", 8)])
    spread_over(there, ray_cluster.address)
    assert logpass(there) == logpass(Workspace([tmp_path / "run"])) and len(logpass(there).files) == 8


def test_a_driver_whose_asker_was_killed_ends_too() -> None:
    """Also while it waits for a cluster that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        asks = (
            "import sys, os, signal, threading, traindoctor.agent.jobs.nodes.ray_nodes as r\n"
            "real = r.subprocess.Popen\n"
            "def noted(*a, **k):\n    p = real(*a, **k); print(p.pid, flush=True); return p\n"
            "r.subprocess.Popen = noted\n"
            "r.RayCluster(sys.argv[1], connect=300)"
        )
        asker = subprocess.Popen(
            [sys.executable, "-c", asks, f"127.0.0.1:{other.getsockname()[1]}"], stdout=subprocess.PIPE, text=True
        )
        assert asker.stdout
        driver = Path("/proc") / asker.stdout.readline().strip()
        other.settimeout(90)
        other.accept()[0].close()  # it is joining now
        asker.kill()
        asker.wait()
        ends = time.monotonic() + 90
        while _lives(driver):
            assert time.monotonic() < ends, "the driver was left behind"
            time.sleep(0.1)


def _lives(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("address", ["local", "", "127.0.0.1", "x:y", "127.0.0.1:99999999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="no address of a Ray cluster"):
        RayCluster(address)


def test_where_nothing_answers_is_told_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UsageError, match="nothing answers at") as refused:
            RayCluster(f"127.0.0.1:{taken.getsockname()[1]}")
    assert "\n" not in str(refused.value)


@pytest.mark.soak
def test_something_else_at_the_address_is_given_up_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(UsageError, match=r"did not answer within|joined"),
    ):
        RayCluster(f"127.0.0.1:{other.getsockname()[1]}", connect=3.0)


@pytest.mark.soak
def test_the_logs_of_a_job_are_brought(ray_cluster: Ray) -> None:
    job = (
        "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)\n"
        "@ray.remote\ndef say():\n    print('words of a worker', flush=True)\n"
        "ray.get(say.remote()); print(ray.get_runtime_context().get_job_id())"
    )
    done = subprocess.run(
        [sys.executable, "-c", job, ray_cluster.address], capture_output=True, text=True, timeout=120, check=True
    )
    with RayCluster(ray_cluster.address) as cluster:
        files = ray_job_logs(cluster, done.stdout.split()[-1])
        assert any(b"words of a worker" in f.data for f in files if f.name.endswith(".out"))
        with pytest.raises(UsageError, match="knows no job"):
            ray_job_logs(cluster, "ffff0000")


@pytest.mark.soak
@pytest.mark.parametrize("count", [64, 1024])
def test_a_log_pass_over_workers_has_the_same_result(ray_cluster: Ray, tmp_path: Path, count: int) -> None:
    folder = rank_files(tmp_path / "run", count)
    here, there = Workspace([folder]), Workspace([folder])
    spread_over(there, ray_cluster.address)
    assert logpass(there) == logpass(here) and there.limits == [] and len(logpass(there).files) == count


@pytest.mark.soak
def test_incidents_read_by_workers_read_the_same(ray_cluster: Ray) -> None:
    roots = [folder / "files" for folder in sorted(INCIDENTS.iterdir()) if (folder / "files").is_dir()]
    here, there = Workspace(roots), Workspace(roots)
    spread_over(there, ray_cluster.address)
    assert logpass(there) == logpass(here) and there.skipped == here.skipped and there.limits == []


def test_a_cluster_that_is_away_costs_a_line_in_the_report(tmp_path: Path) -> None:
    from traindoctor.agent.session.session import diagnose

    folder = rank_files(tmp_path / "run", 4)
    here, there = Workspace([folder]), Workspace([folder])
    spread_over(there, "127.0.0.1:1")
    assert logpass(there) == logpass(here)
    (line,) = there.limits
    assert line.startswith("log pass made on this machine alone: nothing answers at 127.0.0.1:1")
    *_, ready = diagnose(there, "", state=tmp_path / "state", history=False)
    assert any(line in text for text in ready.report.meta.degraded)  # pyright: ignore[reportAttributeAccessIssue]
