"""Several nodes that are all this machine: for `--local N`, and wherever there is one machine and no scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from .engine import STDOUT_LIMIT, Answer, Node, abreast
from .program import ended


class Local:
    """`count` nodes by the names `local-1`, `local-2` ...; each program is a process of its own here."""

    name = "local"

    def __init__(self, count: int = 1) -> None:
        self._names = [f"local-{number}" for number in range(1, count + 1)]

    def nodes(self) -> list[Node]:
        return [Node(name, "this machine", address="127.0.0.1") for name in self._names]

    def run(
        self, argv: Sequence[str], nodes: Sequence[str], timeout: float, stdin: bytes = b"", limit: int = STDOUT_LIMIT
    ) -> list[Answer]:
        return abreast(lambda node: answered(node, argv, timeout, stdin, limit), nodes)


def answered(node: str, argv: Sequence[str], timeout: float, stdin: bytes = b"", limit: int = STDOUT_LIMIT) -> Answer:
    """Run one program here for a node of that name; whatever happens is its answer."""
    return Answer(node, *ended(list(argv), timeout, stdin, limit))
