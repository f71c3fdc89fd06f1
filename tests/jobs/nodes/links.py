"""Nodes of their own on one machine: a network namespace each, and a real link between every two of them.

A link is a pair of veth devices; `slow` puts a token bucket on both of its ends, `cut` takes it down. It takes root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from itertools import combinations

from traindoctor.agent.jobs.nodes.engine import STDOUT_LIMIT, Answer, Local, Node, abreast, answered


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


class Linked(Local):
    """`count` namespaces; programs run inside them, and reach each other over these links alone."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._mark = f"dt{os.getpid() % 100000}"
        self._spaces: list[str] = []
        self._count = count

    def __enter__(self) -> Linked:
        try:
            for number in range(1, self._count + 1):
                space = f"{self._mark}-{number}"
                ip("netns", "add", space)
                self._spaces.append(space)
                ip("-n", space, "link", "set", "lo", "up")
                ip("-n", space, "addr", "add", f"10.77.0.{number}/32", "dev", "lo")
            for a, b in combinations(range(1, self._count + 1), 2):
                self._link(a, b)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True, timeout=30)

    def _link(self, a: int, b: int) -> None:
        ends = {a: (f"to{b}", b), b: (f"to{a}", a)}
        ip(
            "link", "add", f"to{b}", "netns", self._spaces[a - 1], "type", "veth",
            "peer", "name", f"to{a}", "netns", self._spaces[b - 1],
        )  # fmt: skip
        for own, (device, _) in ends.items():
            space = self._spaces[own - 1]
            ip("-n", space, "addr", "add", f"10.77.{min(a, b)}{max(a, b)}.{own}/24", "dev", device)
            ip("-n", space, "link", "set", device, "up")
        for own, (device, other) in ends.items():
            via = f"10.77.{min(a, b)}{max(a, b)}.{other}"
            ip("-n", self._spaces[own - 1], "route", "add", f"10.77.0.{other}", "via", via, "dev", device)

    def slow(self, a: int, b: int, rate: str = "80mbit") -> None:
        for own, other in ((a, b), (b, a)):
            words = ["-n", self._spaces[own - 1], "qdisc", "add", "dev", f"to{other}", "root", "tbf"]
            words += ["rate", rate, "burst", "64k", "latency", "50ms"]
            subprocess.run([shutil.which("tc") or "tc", *words], check=True, capture_output=True, timeout=30)

    def cut(self, a: int, b: int) -> None:
        ip("-n", self._spaces[a - 1], "link", "set", f"to{b}", "down")

    def nodes(self) -> list[Node]:
        return [
            Node(node.name, "a namespace", address=f"10.77.0.{number}")
            for number, node in enumerate(super().nodes(), start=1)
        ]

    def run(
        self, argv: Sequence[str], nodes: Sequence[str], timeout: float, stdin: bytes = b"", limit: int = STDOUT_LIMIT
    ) -> list[Answer]:
        def one(name: str) -> Answer:
            space = self._spaces[int(name.rpartition("-")[2]) - 1]
            return answered(name, ["ip", "netns", "exec", space, *argv], timeout, stdin, limit)

        return abreast(one, nodes)
