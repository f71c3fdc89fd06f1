"""The one process of ours in a Ray cluster: `python -m traindoctor.agent.jobs.nodes.ray_driver FD ADDRESS`.

A child of its own: Ray's threads, its signal handlers and its ways of ending a process (a lost cluster aborts it) stay
out of doctor. It gets requests `(number, kind, arguments)` over the descriptor and answers `(number, good, value)`,
each request on a thread of its own; it ends when the other side does, also where Ray itself never comes back.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from . import engine, ray_tasks

REACHED = 5.0  # seconds to reach the address
LEAVING = 2.0  # seconds for leaving the cluster in order, once nobody asks any more
STARTING = 30.0  # seconds that a worker may take to start on a busy node
_SPACE = re.compile(r"\s+")


class Driver:
    """Requests to a cluster that is connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        for module in (engine, ray_tasks):
            ray.cloudpickle.register_pickle_by_value(module)  # nothing of ours is installed on the workers

    def nodes(self) -> list[dict[str, Any]]:
        """The cluster's own table, dead nodes too."""
        return [
            {key: node.get(key) for key in (
                "NodeID", "Alive", "NodeName", "NodeManagerHostname", "NodeManagerAddress", "Resources",
                "DeathReasonMessage",
            )}
            for node in self._ray.nodes()
        ]  # fmt: skip

    def jobs(self) -> list[dict[str, Any]]:
        """The cluster's table of jobs."""
        from ray._private.state import state  # no public call gives it without the dashboard

        return [{k: v for k, v in job.items() if isinstance(v, str | int | dict)} for job in state.job_table()]

    def task(self, node_id: str, name: str, arguments: tuple[Any, ...], timeout: float) -> Any:
        """Run a function of `ray_tasks` on a node.

        Raises:
            Away: the node or its worker went away, or did not answer.
        """
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(node_id, soft=False)
        remote = self._ray.remote(getattr(ray_tasks, name))
        reference = remote.options(num_cpus=0, max_retries=0, scheduling_strategy=where).remote(*arguments)
        try:
            return self._ray.get(reference, timeout=timeout + STARTING)
        except GetTimeoutError:
            with contextlib.suppress(RayError, ValueError):
                self._ray.cancel(reference, force=True)
            raise Away(f"did not answer within {timeout + STARTING:g} s") from None
        except RayTaskError as e:
            raise Away(f"could not do it: {type(e.cause).__name__}: {_short(e.cause)}") from None
        except RayError as e:
            raise Away(f"went away: {type(e).__name__}") from None


class Away(Exception):
    """A node gave no answer; the words say why."""


class NoAnswer(Exception):
    """Nothing listens at the address."""


def _short(error: object) -> str:
    return _SPACE.sub(" ", str(error))[:300].strip()


def connected(address: str) -> Any:
    """Join the cluster; never start one.

    Raises:
        NoAnswer: nothing listens there; Ray itself would try for long.
        Exception: whatever Ray raises.
    """
    if address != "auto":
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACHED).close()
        except (OSError, OverflowError) as e:
            raise NoAnswer(getattr(e, "strerror", None) or str(e) or "no answer") from None
    import ray

    ray.init(address=address, namespace=f"traindoctor-{os.getpid()}", log_to_driver=False, configure_logging=False)
    return ray


def serve(line: Connection, driver: Driver) -> None:
    """Answer until the other side is gone."""
    speaking = threading.Lock()

    def answer(number: int, kind: str, arguments: tuple[Any, ...]) -> None:
        try:
            good, value = True, getattr(driver, kind)(*arguments)
        except Exception as e:  # noqa: BLE001 - whatever Ray raises is this request's answer
            good, value = (
                False,
                str(e) if isinstance(e, Away) else f"could not be asked: {type(e).__name__}: {_short(e)}",
            )
        with speaking, contextlib.suppress(OSError):
            line.send((number, good, value))

    with contextlib.suppress(EOFError, OSError):
        while True:
            number, kind, arguments = line.recv()
            threading.Thread(target=answer, args=(number, kind, arguments), daemon=True).start()


def end_with(descriptor: int) -> None:
    """End this process soon after the other side of the line is gone: joining or leaving a lost cluster may hang."""
    gone = select.poll()
    gone.register(descriptor, 0)  # no event but the hang-up
    gone.poll()
    time.sleep(LEAVING)
    os._exit(1)


def main(arguments: list[str]) -> int:
    """Exit code 0 once nobody asks any more, 1 where there is no cluster."""
    line = Connection(int(arguments[0]))
    threading.Thread(target=end_with, args=(line.fileno(),), daemon=True).start()
    began = time.monotonic()
    try:
        ray = connected(arguments[1])
    except BaseException as e:  # noqa: BLE001 - every reason not to be connected is told
        line.send((0, False, f"{type(e).__name__}: {_short(e)}"))
        return 1
    line.send((0, True, time.monotonic() - began))
    serve(line, Driver(ray))
    with contextlib.suppress(Exception):  # the cluster may be gone
        ray.shutdown()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads that wait for a lost cluster must not keep us
