"""The nodes of a Ray cluster that is already there, and what its session logged about a job.

    with RayCluster("10.0.0.4:6379") as cluster:
        cluster.run(["nvidia-smi", "-L"], [n.name for n in cluster.nodes()], timeout=30.0)

The cluster is joined by a child process (`ray_driver`), never started. Programs take no processor of the cluster's
count, so that they run beside the jobs. Nodes need nothing of ours.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import queue
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import Pipe
from typing import Any

from ...core.errors import UsageError
from ...reading.run.workspace import Workspace
from ...safety.fences import one_line
from .engine import STDOUT_LIMIT, Answer, Ended, Node, abreast

CONNECT = 20.0  # seconds
TABLE = 15.0  # seconds for the cluster's own tables
GRACE = 45.0  # seconds beyond a program's own: a worker starts, the answer travels
AT_ONCE = 512  # nodes: a request waits on a thread that does nothing
_DRIVER = f"{__package__}.ray_driver"
_FORM = re.compile(r"^(?:ray://)?(?:\[[0-9a-fA-F:]+\]|[\w.\-]+):\d{1,5}$")
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class RayCluster:
    """A connection to a running cluster. What a lost connection costs is the answers still due.

    Raises:
        UsageError: Ray is not installed here, nothing answers at the address, or versions do not match.
    """

    name = "ray"

    def __init__(self, address: str, connect: float = CONNECT) -> None:
        self.address = address
        _check(address)
        self._waiting: dict[int, Future[Any]] = {0: Future()}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}
        ours, theirs = Pipe()
        env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | _QUIET
        self._child = subprocess.Popen(
            [sys.executable, "-m", _DRIVER, str(theirs.fileno()), address], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=env,
            start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._line = ours
        joined = self._waiting[0]
        threading.Thread(target=self._listen, daemon=True).start()
        there = False
        try:
            joined.result(connect)
            there = True
        except FutureTimeout:
            raise UsageError(f"the Ray cluster at {address} did not answer within {connect:g} s", _ALIVE) from None
        except LostConnection as e:
            raise UsageError(*_refused(address, str(e))) from None
        finally:
            if not there:  # the child must not outlive its asker
                self.close()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; nothing of ours is left there."""
        with contextlib.suppress(OSError, ValueError):  # closed before; a descriptor that is read elsewhere stays open
            with socket.socket(fileno=os.dup(self._line.fileno())) as other_end_hears:
                other_end_hears.shutdown(socket.SHUT_RDWR)
            self._line.close()
        try:
            self._child.wait(3.0)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def nodes(self) -> list[Node]:
        """By the name each was given, else its host name; a dead one whose place was taken by another is left out."""
        table = self.ask("nodes", (), TABLE)
        names = _names(table)
        alive = {names[row["NodeID"]] for row in table if row["Alive"]}
        found = []
        for row in table:
            name = names[row["NodeID"]]
            if not row["Alive"] and name in alive:
                continue
            if row["Alive"]:
                self._ids[name] = row["NodeID"]
            has = row.get("Resources") or {}
            gpus = int(has.get("GPU", 0)) if row["Alive"] else None
            state = "alive" if row["Alive"] else one_line(f"dead: {row.get('DeathReasonMessage') or 'no reason known'}")
            address = row.get("NodeManagerAddress") or ""
            found.append(Node(name, state, bool(row["Alive"]), gpus, address, int(has.get("CPU", 0))))
        return sorted(found, key=lambda n: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", n.name)])

    def run(
        self, argv: Sequence[str], nodes: Sequence[str], timeout: float, stdin: bytes = b"", limit: int = STDOUT_LIMIT
    ) -> list[Answer]:
        def one(node: str) -> Answer:
            try:
                done: Ended = self.task(node, "run", (list(argv), timeout, stdin, limit), timeout)
            except LostConnection as e:
                return Answer(node, None, why=str(e))
            return Answer(node, *done)

        return abreast(one, nodes, AT_ONCE)

    def task(self, node: str, name: str, arguments: tuple[Any, ...], timeout: float) -> Any:
        """A function of `ray_tasks` on a node.

        Raises:
            LostConnection: it gave no answer; the words say why.
        """
        if node not in self._ids:
            known = next((n for n in self.nodes() if n.name == node), None)
            if known is None or not known.reachable:
                raise LostConnection(f"is {known.state}" if known else "is no node of this cluster")
        return self.ask("task", (self._ids[node], name, arguments, timeout), timeout + GRACE)

    def jobs(self) -> list[dict[str, Any]]:
        """The cluster's table of jobs, as Ray has it: JobID, Entrypoint, DriverPid, IsDead ..."""
        return self.ask("jobs", (), TABLE)

    def ask(self, kind: str, arguments: tuple[Any, ...], timeout: float) -> Any:
        """One request to the driver.

        Raises:
            LostConnection: no answer in time, a bad one, or the connection is gone.
        """
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answer
            try:
                if self._line.closed:
                    raise OSError
                self._line.send((number, kind, arguments))
            except (OSError, ValueError):
                self._waiting.pop(number, None)
                raise LostConnection(_LOST) from None
        try:
            return answer.result(timeout)
        except FutureTimeout:
            self._waiting.pop(number, None)
            raise LostConnection(f"did not answer within {timeout:g} s") from None

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError, TypeError):  # TypeError: closed by another thread
            while True:
                number, good, value = self._line.recv()
                answer = self._waiting.pop(number, None)
                if answer is None:
                    continue
                if good:
                    answer.set_result(value)
                else:
                    answer.set_exception(LostConnection(value))
        for number in list(self._waiting):
            if (answer := self._waiting.pop(number, None)) is not None:
                answer.set_exception(LostConnection(_LOST))


class LostConnection(Exception):
    """No answer; the words can follow a node's name."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log of Ray's session on a node: its end, where it is longer than was asked for (`size` is the whole)."""

    node: str
    name: str
    data: bytes
    size: int


def ray_job_logs(
    cluster: RayCluster, job: str, limit: int = STDOUT_LIMIT, tell: Callable[[str], None] = lambda _: None
) -> list[LogFile]:
    """What the session's folders hold about one job: its driver's log, and stdout and stderr of its workers.

    Args:
        job: a submission id (`raysubmit_...`), or the id of the cluster's table (`01000000`).
        limit: bytes of each node; the newest files come first.
        tell: hears a line for each node that did not answer.

    Raises:
        UsageError: the cluster knows no such job.
    """
    numbers, submission = _job_ids(cluster, job)
    shapes = [rf"^worker-[0-9a-f]+-{number}-\d+\.(?:out|err)$" for number in numbers]
    shapes += [rf"^python-core-driver-{number}_\d+\.log$" for number in numbers]
    if submission:
        shapes.append(rf"^job-driver-{re.escape(submission)}\.log$")
    nodes = cluster.nodes()
    for node in nodes:
        if not node.reachable:
            tell(f"{node.name} is {node.state}")

    def bring(node: Node) -> list[LogFile]:
        try:
            found = cluster.task(node.name, "job_logs", ("|".join(shapes), limit), 60.0)
        except LostConnection as e:
            tell(f"{node.name} {e}")
            return []
        return [LogFile(node.name, name, data, size) for name, data, size in found]

    every = [file for files in abreast(bring, [n for n in nodes if n.reachable]) for file in files]
    once: dict[str, LogFile] = {}
    for file in every:  # nodes of one machine see one folder
        once.setdefault(file.name, file)
    return list(once.values())


def _job_ids(cluster: RayCluster, job: str) -> tuple[list[str], str]:
    """Ids of the cluster's table, and the submission id."""
    numbers, submission = [], ""
    for row in cluster.jobs():
        settings = row.get("Config") or {}
        submitted = (settings.get("metadata") or {}).get("job_submission_id", "") if isinstance(settings, dict) else ""
        if job in (row.get("JobID"), submitted):
            numbers.append(str(row["JobID"]))
            submission = submission or submitted
    if not numbers and job.startswith("raysubmit_"):
        submission = job  # it may have failed before it joined the cluster: its driver's log is there all the same
    if not numbers and not submission:
        raise UsageError(f"the Ray cluster knows no job {one_line(job)}", "ray list jobs shows those that it knows")
    return numbers, submission


_LOST = "gave no answer: the connection to the Ray cluster was lost"
_ALIVE = "is it running? `ray status --address ADDRESS` on one of its nodes tells"
_SAME = re.compile(r"cluster was started with.*?Ray: (\S+).*?Python: (\S+).*?This process.*?Ray: (\S+).*?Python: (\S+)")


def _check(address: str) -> None:
    """Refuse what would start a cluster."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("Ray is not installed here", "pip install 'traindoctor[ray]', in the version of the cluster")
    if address == "auto":
        return
    if not _FORM.match(address):
        raise UsageError(
            f"{one_line(address)!r} is no address of a Ray cluster", "give HOST:6379, ray://HOST:10001, or auto"
        )


def _refused(address: str, why: str) -> tuple[str, str]:
    if why.startswith("NoAnswer: "):
        return f"nothing answers at {address}: {one_line(why[10:])}", _ALIVE
    if m := _SAME.search(why):
        ours, theirs = f"Ray {m[3]}, Python {m[4]}", f"Ray {m[1]}, Python {m[2]}"
        return f"the Ray cluster at {address} has {theirs}; here it is {ours}", "use the same versions on both sides"
    if why == _LOST:
        return f"what answers at {address} is no Ray cluster that could be joined", _ALIVE
    return f"the Ray cluster at {address} could not be joined: {one_line(why)}", _ALIVE


def _names(table: list[dict[str, Any]]) -> dict[str, str]:
    """A name for each node: as it was started, else its host, with a piece of its id where alive ones share it."""
    named = {}
    for row in table:
        given, address = row.get("NodeName") or "", row.get("NodeManagerAddress") or ""
        named[row["NodeID"]] = given if given and given != address else row.get("NodeManagerHostname") or address
    alive = [named[row["NodeID"]] for row in table if row["Alive"]]
    return {
        key: f"{name}-{key[:6]}" if alive.count(name) > 1 else re.sub(r"[^\w.\-]", "_", name) or key[:12]
        for key, name in named.items()
    }


# ----------
# The log pass over the workers of a Ray cluster: `ws.spread = RaySpread("10.0.0.4:6379")`.
#
# The cluster is joined when the pass begins. Each node needs the same version of doctor and sees the run's files, as on
# a shared file system; a node that does not is left out, and the report says so.

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
