"""The log pass over the workers of a Ray cluster: `ws.spread = RaySpread("10.0.0.4:6379")`.

The cluster is joined when the pass begins. Each node needs the same version of doctor and sees the run's files, as on
a shared file system; a node that does not is left out, and the report says so.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from ..errors import UsageError
from ..sanitize import one_line
from ..workspace import Workspace
from .engine import Node
from .ray_nodes import LostConnection, RayCluster

ADDRESS = "DOCTOR_RAY"  # variable with the address, where no option gives one
A_NODE = 4  # workers on a node at most: training may be going on there
SLOWEST = 4 << 20  # bytes a second that a worker reads at least, before it counts as lost
STARTING = 90.0  # seconds until a worker has loaded doctor and the patterns


def spread_over(ws: Workspace, address: str | None = None) -> None:
    """Let the log pass of this workspace use a cluster, by its address or that of DOCTOR_RAY; neither: none."""
    chosen = address or os.environ.get(ADDRESS, "")
    if chosen:
        ws.spread = RaySpread(chosen)


class RaySpread:
    """Workers of one cluster, joined at first use and left after the pass."""

    def __init__(self, address: str) -> None:
        self.notes: list[str] = []
        self._address = address
        self._cluster: RayCluster | None = None
        self._places: list[str] = []

    def workers(self) -> int:
        try:
            self._cluster = RayCluster(self._address)
            nodes = [node for node in self._cluster.nodes() if node.reachable]
        except UsageError as e:
            self._give_up(str(e))
            return 0
        except LostConnection as e:
            self._give_up(f"the Ray cluster {e}")
            return 0
        self._places = [node.name for node in nodes for _ in range(_workers_of(node))]
        return len(self._places)

    def read(self, orders: Sequence[tuple[bytes, int]]) -> Iterator[tuple[int, bytes | None]]:
        assert self._cluster is not None
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        for number in range(len(orders)):
            waiting.put(number)
        gone = threading.Event()
        threads = [
            threading.Thread(target=self._work, args=(node, orders, waiting, done, gone), daemon=True)
            for node in self._places
        ]
        left, running = set(range(len(orders))), len(threads)
        for thread in threads:
            thread.start()
        try:
            while left and running:
                answer = done.get()
                if answer is None:
                    running -= 1
                elif answer[0] in left:
                    left.discard(answer[0])
                    yield answer
        finally:
            gone.set()
            self._cluster.close()
        for number in sorted(left):
            yield number, None

    def _work(
        self,
        node: str,
        orders: Sequence[tuple[bytes, int]],
        waiting: queue.SimpleQueue[int],
        done: queue.SimpleQueue[tuple[int, bytes] | None],
        gone: threading.Event,
    ) -> None:
        """One place on a node takes orders until none is left, or it fails: then its order is another's."""
        assert self._cluster is not None
        while not gone.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                break
            order, size = orders[number]
            try:
                answer = self._cluster.task(
                    node, "read_logs", (version("traindoctor"), order), STARTING + size / SLOWEST
                )
            except LostConnection as e:
                waiting.put(number)
                if not gone.is_set():
                    self._note(f"log pass without Ray node {one_line(node)}: it {one_line(str(e))}")
                break
            done.put((number, answer))
        done.put(None)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _give_up(self, why: str) -> None:
        self._note(f"log pass made on this machine alone: {one_line(why)}")
        if self._cluster is not None:
            self._cluster.close()


def _workers_of(node: Node) -> int:
    return max(1, min(node.cpus // 2, A_NODE))
