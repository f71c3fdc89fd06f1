"""What the supervisor of a job saw: how it ended, who told it to, what it used, who vanished first, whether it hung."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from ..reading.job_record import JobRecord, job_records, last_records
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult, Value
from ..workspace import Workspace

RANKS = 32  # records of one attempt that are told in full; those that failed come first
NEAR_LIMIT, FAR_FROM_LIMIT = 0.95, 0.9  # of memory, as a share of its limit
ASKED_TO = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # signals by which somebody asks a process to end
FULL_DISK, FEW_INODES = 1 << 20, 8
SCHEDULER = re.compile(
    r"^(slurm\w*|kubelet|containerd\S*|dockerd|runc|crun|conmon|pbs_mom|lsbatch|sge_\w+|condor\w*)\b"
)
ONE_NODE = re.compile(r"--(?:num_machines|num_nodes)[= ]1\b|--include[= ]localhost\b")
NODES = re.compile(r"--nnodes[= ](\S+)")
BY_TIMEOUT = 124  # what coreutils' timeout returns for a command that it ended
FAULTS = {"job.failed", "job.ended_by", "job.time_limit", "job.hang_seconds", "job.disk_full", "job.memory_killed"}


@tool(
    emits=(
        "job.exit_code", "job.exit_ok", "job.failed", "job.broke_off", "job.signal", "job.told_to_end",
        "job.ended_by", "job.time_limit", "job.oom_kills", "job.memory_killed", "job.memory_peak_bytes",
        "job.memory_limit_bytes", "job.memory_share", "job.kill_at_memory_limit", "job.kill_not_for_memory",
        "job.kill_not_counted", "job.nothing_killed",
        "job.died_first", "job.died_signal", "job.hang_seconds", "job.hang_went_on", "job.last_step",
        "job.disk_free_bytes", "job.inodes_free", "job.disk_full", "job.seconds", "job.supervisor_lost",
        "job.running", "job.one_machine", "job.earlier_attempt", "job.note",
    ),
    recall=True,
)  # fmt: skip
def job_record(ws: Workspace) -> ToolResult:
    """How a job under `doctor run` ended: exit code, signal, who told it to end, memory, disk, hang, first death.

    Use when a process was killed, ended without a word, hung, or was told to end. Reads the records that
    `doctor run` kept; of several attempts the last one is told in full.
    """
    records = job_records(ws)
    if not records:
        return not_applicable("no record of a job under `doctor run` among the files")
    last = last_records(ws)
    last.sort(key=lambda r: (not (r.failed or r.hung or r.died), r.ended or "~"))
    evidence = [e for r in records if r not in last for e in _earlier(ws, r)]
    evidence += [e for r in last[:RANKS] for e in _told(ws, r)]
    if last and all(r.over and r.code == 0 for r in last):
        evidence.append(_said(ws, last[0], "exit_ok", True, "exit.code", _ending(last[0])))
    text = "\n".join(f"{e.file} {e.text}" for e in evidence)
    faults = [e for e in evidence if e.key in FAULTS]
    if not faults:
        return clean(f"the job's record tells of no fault: {_ending(last[0])}", evidence, text)
    return finding(f"{_ending(last[0])}{_more(last)}", evidence, text)


def _more(last: list[JobRecord]) -> str:
    failed = sum(r.failed for r in last)
    return f"; {failed} of {len(last)} ranks failed" if len(last) > 1 else ""


def _ending(r: JobRecord) -> str:
    """How an attempt ended, in words."""
    if r.hung and not r.over:
        return f"the job stood still for {r.hang_seconds:.0f} s"
    if r.state == "left":
        return "the supervisor was killed while the job ran: how the job ended is not known"
    if not r.over:
        return "the record stops while the job runs"
    after = f" after {r.seconds:.0f} s" if r.seconds is not None else ""
    return f"the job ended{after} with exit code {r.code}" + (f" ({r.signal})" if r.signal else "")


def _said(ws: Workspace, r: JobRecord, key: str, value: Value, member: str, text: str) -> Evidence:
    rank = {"rank": r.rank} if r.rank is not None else {}
    return ws.binary(r.file, member, f"job.{key}", value, text, attempt=r.attempt, host=r.host or None, **rank)


def _earlier(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    if r.failed:
        yield _said(ws, r, "earlier_attempt", r.attempt, "exit", f"attempt {r.attempt}: {_ending(r)}")


def _told(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    yield from _exit(ws, r)
    yield from _memory(ws, r)
    yield from _kill(ws, r)
    yield from _deaths(ws, r)
    yield from _disk(ws, r)
    if r.hang_seconds is not None:
        limit = f", limit {r.hang_limit:.0f} s" if r.hang_limit else ""
        step = f" after step {r.hang_step}" if r.hang_step is not None else ""
        text = f"no progress for {r.hang_seconds:.0f} s{step}{limit}"
        if r.went_on:
            yield _said(ws, r, "hang_went_on", r.hang_seconds, "hang", f"{text}; it went on later")
        else:
            yield _said(ws, r, "hang_seconds", r.hang_seconds, "hang", text)
    if r.last_step is not None:
        yield _said(ws, r, "last_step", r.last_step, "steps.last", f"last step seen: {r.last_step}")
    if r.seconds is not None:
        yield _said(ws, r, "seconds", r.seconds, "seconds", f"it ran for {r.seconds:.1f} s")
    if _one_machine(r.command):
        yield _said(ws, r, "one_machine", True, "command", "all ranks were started on one machine")
    for number, note in enumerate(r.notes[:8]):
        yield _said(ws, r, "note", note, f"notes[{number}]", note)


def _one_machine(command: list[str]) -> bool:
    """Whether a torchrun starts all its ranks on this machine: --standalone, or not more than one node."""
    words = [PurePath(w).name for w in command[:4]]
    if not ({"torchrun", "torch.distributed.run"} & set(words)):
        return False
    joined = " ".join(command[:64])
    nodes = NODES.search(joined)
    return "--standalone" in command or (nodes is None or nodes[1] in ("1", "1:1"))


def _one_place(command: list[str]) -> bool:
    """Whether all processes of the job stand where its record was made."""
    words = {PurePath(w).name for w in command[:4]}
    if words & {"torchrun", "torch.distributed.run"}:
        return _one_machine(command)
    if words & {"accelerate", "deepspeed"} and ONE_NODE.search(" ".join(command[:64])):
        return True
    return not words & {"srun", "mpirun", "mpiexec", "deepspeed", "ray", "accelerate"}


def _exit(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    if r.state == "left":
        yield _said(ws, r, "supervisor_lost", True, "state", _ending(r))
    elif not r.over and r.state == "running":
        yield _said(ws, r, "running", True, "state", _ending(r))
    if r.over:
        yield _said(ws, r, "exit_code", r.code, "exit.code", f"exit code {r.code}")
    if r.failed:
        yield _said(ws, r, "failed", True, "exit", _ending(r))
        if not (r.told or r.signal in ASKED_TO or r.code == BY_TIMEOUT):
            yield _said(ws, r, "broke_off", True, "exit", f"{_ending(r)}, and nobody was seen to ask for it")
        if r.signal:
            yield _said(ws, r, "signal", r.signal, "exit.signal", f"ended by {r.signal}")
    for number, t in enumerate(r.told[:8]):
        at = f" at {t.at}" if t.at else ""
        text = f"told to end by {t.by or 'somebody unknown'} with {t.signal}{at}"
        yield _said(ws, r, "told_to_end", t.by or "unknown", f"told_to_end[{number}]", text)
        if (r.failed or not r.over) and number == 0:
            yield _said(ws, r, "ended_by", _teller(t.by), f"told_to_end[{number}]", text)
    program = PurePath(r.command[0]).name if r.command else ""
    if r.failed and program == "timeout" and r.code in (BY_TIMEOUT, 137):
        text = f"`timeout` ended the command at its limit (exit code {r.code})"
        yield _said(ws, r, "time_limit", True, "command", text)
    elif (r.failed or not r.over) and any(t.by.startswith("timeout") for t in r.told):
        yield _said(ws, r, "time_limit", True, "told_to_end", "`timeout` ended the job at its limit")


def _teller(by: str) -> str:
    """What kind of program told the job to end."""
    if not by:
        return "unknown"
    if by.startswith("timeout"):
        return "timeout"
    return "scheduler" if SCHEDULER.match(by) else "process"


def _memory(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    if r.oom_kills:
        text = f"{r.oom_kills} process(es) of the job's control group killed for memory"
        yield _said(ws, r, "oom_kills", r.oom_kills, "memory.oom_kills", text)
        if r.failed:
            yield _said(ws, r, "memory_killed", True, "memory.oom_kills", text)
    elif r.oom_kills is not None:
        yield Evidence(
            key="job.oom_kills", value=0, kind="absent", searched=[r.file.name], run=r.file.run, rank=r.rank,
            attempt=r.attempt, text="the kernel killed no process of the job's control group for memory",
        )  # fmt: skip
    if r.memory_peak is not None:
        text = f"memory of all processes: at most {r.memory_peak} bytes"
        yield _said(ws, r, "memory_peak_bytes", r.memory_peak, "memory.peak_bytes", text)
    if r.memory_limit:
        text = f"memory limit ({r.memory_limit_of or 'of unknown kind'}): {r.memory_limit} bytes"
        yield _said(ws, r, "memory_limit_bytes", r.memory_limit, "memory.limit_bytes", text)
    if r.memory_share is not None:
        text = f"{r.memory_share:.0%} of the memory limit ({r.memory_limit_of}) was used"
        yield _said(ws, r, "memory_share", r.memory_share, "memory", text)


def _kill(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    """Whether memory can be why something of the job was killed outright, as nobody else says so."""
    killed = r.signal == "SIGKILL" or r.code == 137
    killed = killed or any(d.signal == "SIGKILL" or not (d.signal or d.code) for d in r.died)
    counted = r.oom_kills == 0 if r.over else r.hung and not r.oom_kills and not r.died
    if not killed and counted and _one_place(r.command):
        text = "no process of the job was killed: the kernel's lines of such a kill are about others"
        yield _said(ws, r, "nothing_killed", True, "died", text)
    if not killed or r.oom_kills or r.memory_limit_of == "RLIMIT_AS":
        return
    share = r.memory_share or 0.0
    if share >= NEAR_LIMIT:
        text = f"killed with {share:.0%} of the memory limit in use"
        yield _said(ws, r, "kill_at_memory_limit", share, "memory", text)
        nobody = "no counter of the kernel tells of a kill for memory"
        yield _said(ws, r, "kill_not_counted", True, "memory.oom_kills", nobody)
    elif r.oom_kills == 0 and share < FAR_FROM_LIMIT and _one_place(r.command):
        text = "the kernel counted no kill for memory in the job's control group, and its memory was not near a limit"
        yield _said(ws, r, "kill_not_for_memory", True, "memory.oom_kills", text)


def _deaths(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    """Who was gone first matters where the job failed or hangs: of a job that ended well, workers come and go."""
    if not (r.failed or r.hung) or not r.died:
        return
    ranks = [d for d in r.died if d.rank is not None and not d.worker]
    known = [d for d in ranks if d.signal != "SIGTERM" and d.code != 0] or ranks or r.died  # not the launcher's ending
    first = min(known, key=lambda d: d.at or "~")
    who = f"rank {first.rank}" if first.rank is not None else f"process {first.pid}"
    how = f", {first.signal}" if first.signal else f", exit code {first.code}" if first.code is not None else ""
    text = f"{who} ({first.name}) was gone first, at {first.at}{how}"
    rank = first.rank if first.rank is not None else r.rank
    seen = _said(ws, r, "died_first", who, "died", text)
    yield seen.with_(rank=rank, time=first.at or None, step=r.last_step)
    if first.signal:
        yield _said(ws, r, "died_signal", first.signal, "died", f"{who} was ended by {first.signal}").with_(rank=rank)


def _disk(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    if r.disk_free is not None:
        text = f"{r.disk_free} bytes free under {r.disk_path}"
        yield _said(ws, r, "disk_free_bytes", r.disk_free, "disk.free_bytes", text)
    if r.inodes_free is not None:
        yield _said(ws, r, "inodes_free", r.inodes_free, "disk.inodes_free", f"{r.inodes_free} inodes free")
    space = r.disk_free is not None and r.disk_free < FULL_DISK
    inodes = r.inodes_free is not None and r.inodes_free < FEW_INODES and bool(r.disk_free)
    if (r.failed or r.hung) and (space or inodes):
        what = "space" if space else "inodes"
        yield _said(ws, r, "disk_full", what, "disk", f"no {what} left under {r.disk_path}")
