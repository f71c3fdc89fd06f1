"""What it takes to run a program on every node of an allocation: the same for Slurm, Ray and this machine.

    answers = engine.run(["nvidia-smi", "-L"], ["n1", "n2"], timeout=30.0)
    answers[1].why          # "" or why n2 gave no answer: "did not answer within 30 s"

A node that is away, hangs or prints without end costs its own answer and its own time, never another node's.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Protocol, TypeVar

STDOUT_LIMIT = 64 << 20  # bytes of a node's answer that are kept
STDERR_LIMIT = 1 << 20
AT_ONCE = 64  # nodes asked at the same time
ENDS_TOO = 3.0  # seconds in which the other ranks may end by themselves once one has failed
_LAUNCH = "DOCTOR_LAUNCH"  # variable that tells the processes of one launch
_END = 'for e in /proc/[0-9]*/environ; do grep -qaF "$1" "$e" && kill "$(basename "${e%/environ}")"; done 2>/dev/null'
_PORTS = (20000, 32000)  # below the range that Linux gives to outgoing connections

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the allocation. `state` is in the engine's words; `gpus` is None where the engine does not know."""

    name: str
    state: str = ""
    reachable: bool = True
    gpus: int | None = None
    address: str = ""  # that the other nodes reach it by; its name where empty
    cpus: int = 0  # 0: the engine does not know


@dataclass(frozen=True, slots=True)
class Answer:
    """What one node answered. `code` is None where the program did not end by itself there; then `why` says why.

    A program that ended has a code and an empty `why`, also when the code is not 0. `why` is a phrase that can follow
    the node's name: "did not answer within 30 s", "is down: Not responding", "has no such program: nvidia-smi".
    """

    node: str
    code: int | None
    stdout: bytes = b""
    stderr: str = ""
    seconds: float = 0.0
    why: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0


class Engine(Protocol):
    """Runs programs on nodes. What the user can cause (no such job, unreachable cluster) is a `UsageError` of the
    engine's constructor or of `nodes`; `run` raises for no single node."""

    @property
    def name(self) -> str:
        """`"slurm"`, `"ray"` or `"local"`."""
        ...

    def nodes(self) -> list[Node]:
        """Every node of the allocation, those that are away too."""
        ...

    def run(
        self, argv: Sequence[str], nodes: Sequence[str], timeout: float, stdin: bytes = b"", limit: int = STDOUT_LIMIT
    ) -> list[Answer]:
        """Run one program once on each node, all at the same time.

        Args:
            timeout: seconds a node may take; what runs there longer is ended with all it started.
            stdin: given to the program on every node.
            limit: bytes of stdout kept of each node; what comes after is read and dropped.

        Returns:
            One answer a node, in the order of `nodes`.
        """
        ...


def abreast(work: Callable[[T], R], items: Iterable[T], at_once: int = AT_ONCE) -> list[R]:
    """`work` of each item, several at the same time, in order. Context variables are those of the caller."""
    every = list(items)
    if len(every) < 2:
        return [work(item) for item in every]
    contexts = [contextvars.copy_context() for _ in every]
    with ThreadPoolExecutor(min(len(every), at_once)) as pool:
        return list(pool.map(lambda pair: pair[0].run(work, pair[1]), zip(contexts, every, strict=True)))


def launch(
    engine: Engine, argv: Sequence[str], nodes: Sequence[Node], timeout: float, stdin: bytes = b""
) -> list[Answer]:
    """Start one program on several nodes together as the ranks of one job, in the order of `nodes`.

    Each finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR (the first node) and MASTER_PORT in its environment, as
    torchrun's children do, and PEER_ADDR, the address of a rank on another node. Any engine can: a rank is a program
    of its own on its node. Where one fails, the others are ended: they would wait for it until their time is up.
    """
    addresses = [node.address or node.name for node in nodes]
    port, mark = random.randrange(*_PORTS), f"{_LAUNCH}={secrets.token_hex(8)}"
    going, lock = set(range(len(nodes))), threading.Lock()
    over = threading.Event()

    def rank(number: int) -> Answer:
        variables = {
            "RANK": number, "LOCAL_RANK": 0, "WORLD_SIZE": len(nodes), "LOCAL_WORLD_SIZE": 1,
            "MASTER_ADDR": addresses[0], "MASTER_PORT": port, "PEER_ADDR": addresses[0 if number else -1],
        }  # fmt: skip
        words = ["env", mark, *(f"{key}={value}" for key, value in variables.items()), *argv]
        answer = engine.run(words, [nodes[number].name], timeout, stdin)[0]
        with lock:
            going.discard(number)
            if not going:
                over.set()
        if answer.code and not over.wait(ENDS_TOO):
            left = [nodes[other].name for other in list(going)]
            engine.run(["sh", "-c", _END, "sh", mark], left, 10.0)
        return answer

    return abreast(rank, range(len(nodes)), len(nodes))


# ----------
# One program on one node, within its time: what it printed, how it ended. Standard library alone.
#
# It is shipped to Ray workers by its source, where nothing of ours is installed: it imports nothing of ours.

BLOCK = 1 << 16
PROGRAM_STDERR_LIMIT = 1 << 20
LATER = 10  # seconds after its time in which `timeout` ends a program whose starter died

Ended = tuple[int | None, bytes, str, float, str]  # code, stdout, stderr, seconds, why there is no code


def ended(argv: list[str], timeout: float, stdin: bytes = b"", limit: int = 64 << 20) -> Ended:
    """Run a program; whatever happens is told, nothing is raised.

    Programs installed beside this interpreter are found too. Out of time, it is killed with its group; should whoever
    waits for it die, coreutils' `timeout` ends it, where that is installed.
    """
    began = time.monotonic()
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])  # noqa: PTH120
    program = shutil.which(argv[0], path=path)
    if program is None:
        return None, b"", "", 0.0, "has no such program: " + argv[0]
    bound = shutil.which("timeout", path=path)
    words = [bound, "-k", "2", str(int(timeout) + LATER)] if bound else []
    try:
        child = subprocess.Popen(
            [*words, program, *argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=dict(os.environ, PATH=path), start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as e:
        return None, b"", "", 0.0, f"could not start {argv[0]}: {type(e).__name__}"
    out, err = bytearray(), bytearray()
    pipes = [
        threading.Thread(target=_feed, args=(child.stdin, stdin), daemon=True),
        threading.Thread(target=_keep, args=(child.stdout, out, limit), daemon=True),
        threading.Thread(target=_keep, args=(child.stderr, err, PROGRAM_STDERR_LIMIT), daemon=True),
    ]
    for pipe in pipes:
        pipe.start()
    code, why = None, ""
    try:
        code = child.wait(timeout)
    except subprocess.TimeoutExpired:
        why = f"did not answer within {timeout:g} s"
    finally:
        _end(child)
    for pipe in pipes[1:]:  # a grandchild that fled its group may hold them open
        pipe.join(2.0)
    return code, bytes(out), bytes(err).decode(errors="replace"), time.monotonic() - began, why


def _feed(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # it does not read
        stream.write(data)
        stream.close()


def _keep(stream: IO[bytes], into: bytearray, limit: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        while block := os.read(stream.fileno(), BLOCK):
            into += block[: max(limit - len(into), 0)]


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill what it left behind too; what is stuck in the kernel is left rather than waited for."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(2.0)


# ----------
# Several nodes that are all this machine: for `--local N`, and wherever there is one machine and no scheduler.


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
