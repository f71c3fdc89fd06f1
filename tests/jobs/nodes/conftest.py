"""A real Ray cluster of three nodes on this machine, started once and ended with the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

STARTED = """
import sys
from ray.cluster_utils import Cluster
cluster, nodes = Cluster(shutdown_at_exit=True), {}
for name in ("n1", "n2", "n3"):
    head = {} if nodes else {"include_dashboard": False, "temp_dir": sys.argv[1]}
    nodes[name] = cluster.add_node(
        num_cpus=1, object_store_memory=80 << 20, node_name=name, **head
    )
print("up", cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes[line.strip()], allow_graceful=False)
    print("gone", flush=True)
cluster.shutdown()
"""


@dataclass
class Ray:
    """A running cluster."""

    address: str
    child: subprocess.Popen[str]

    def kill(self, node: str) -> None:
        """Let a node die; it does not come back."""
        assert self.child.stdin and self.child.stdout
        self.child.stdin.write(node + "\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline() == "gone\n"


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    pytest.importorskip("ray")
    folder = Path("/tmp") / f"doctor-ray-{os.getpid()}"  # a socket's path may be no longer than 107 characters
    (folder / "ray").mkdir(parents=True)  # the head notes its address there, and makes no folder for it
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    with (folder / "errors").open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", STARTED, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, env=env | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}, start_new_session=True,
        )  # fmt: skip
    try:
        assert child.stdout and child.stdin
        said = next((line for line in child.stdout if line.startswith("up ")), "")
        assert said, (folder / "errors").read_text(encoding="utf-8", errors="replace")[-2000:]
        yield Ray(said.split()[1], child)
    finally:
        assert child.stdin
        child.stdin.close()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)
