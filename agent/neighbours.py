"""Other jobs of the machine: what the kernel says of their ends is not evidence about the job at hand.

The kernel's log is that of the whole machine. Where the record of a supervised job accounts for every process of it,
and none was killed for memory, the lines of such a kill are about a neighbour. Without such a record they are about
one where the run ended by an exception of its own, nothing else of it tells of a kill, and either the program that was
killed trains nothing or the exception is one that no kill of a peer or a worker brings about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .fatal import GOOD_END
from .types import Evidence

ACCOUNTED = frozenset({"job.nothing_killed", "job.kill_not_for_memory"})
_KILL = re.compile(
    r"invoked oom-killer|oom-kill:constraint|out_of_memory\+|oom_kill_process|[Oo]ut of memory: Kill(?:ed)? process|"
    r"oom_reaper: reaped process"
)
_VICTIM = re.compile(r"\btask=(?P<a>[^,\s]+)|\bKill(?:ed)? process \d+,? \((?P<b>[^)]{1,40})\)")
# Programs of a training job: what runs the loop, loads data, launches, serves engines or carries messages.
_OF_A_JOB = re.compile(
    r"(?i)python|^pt_|^ray|raylet|gcs_server|plasma|redis|torch|accelerate|deepspeed|vllm|sglang|trtllm|train|loader|"
    r"worker|^rank|mpi|orted|slurm|srun|^(?:ba|z|da)?sh$|^conda|^uv$|^java$|^node$|container|^docker|jupyter|ipython"
)
# Errors of the program itself; others (of pipes, pools, sockets, collectives) may be the answer to a kill.
_OF_THE_PROGRAM = re.compile(
    r"(?:\w+\.)*(?:ModuleNotFound|Import|Name|Attribute|Type|Key|Index|Value|Assertion|Syntax|Indentation|ZeroDivision"
    r"|UnboundLocal|NotImplemented|UnicodeDecode|FileNotFound)Error\b"
)
_OF_A_KILL = (
    "error.exit_code", "error.signal", "error.bare_kill", "memory.killed", "memory.cgroup", "job.memory_killed",
    "job.kill_at_memory_limit", "slurm.out_of_memory", "host.slurm_exit", "host.kills_counted", "host.group_oom_kills",
)  # fmt: skip
_SIGKILL = re.compile(r"-9|9|137|SIGKILL|(?i:.*(?:out.of.mem|\bkill).*)")


def without_neighbours(evidence: Iterable[Evidence]) -> list[Evidence]:
    """The evidence but for the kernel's lines about kills in other jobs."""
    known = list(evidence)
    accounted = {e.run for e in known if e.key in ACCOUNTED} | _ended_themselves(known)
    return [e for e in known if e.run not in accounted or not _KILL.search(e.text)]


def _ended_themselves(known: list[Evidence]) -> set[str | None]:
    """Runs that an exception ended while the kernel killed what is no part of them."""
    victims: dict[str | None, set[str]] = {}
    raised: dict[str | None, list[str]] = {}
    for e in known:
        if _KILL.search(e.text) and (m := _VICTIM.search(e.text)):
            victims.setdefault(e.run, set()).add(m["a"] or m["b"])
        if e.key == "error.first":
            raised.setdefault(e.run, []).append(str(e.value))
    foreign = {run for run, names in victims.items() if not any(_OF_A_JOB.search(name) for name in names)}
    own = {run for run, errors in raised.items() if all(_OF_THE_PROGRAM.match(error) for error in errors)}
    own -= {e.run for e in known if e.key in GOOD_END}  # it went on after that error
    killed = {e.run for e in known if e.key in _OF_A_KILL and not _KILL.search(e.text) and _deadly(e)}
    return ((foreign & raised.keys()) | own) - killed


def _deadly(e: Evidence) -> bool:
    told = e.key in ("error.exit_code", "error.signal", "host.slurm_exit")
    return not told or _SIGKILL.fullmatch(str(e.value)) is not None
