"""What the supervisor of a job saw: how it ended, who told it to, what it used, who vanished first, whether it hung."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated

from pydantic import Field

from ...core.errors import ToolError
from ...core.shell import Completed
from ...core.types import Evidence, ToolResult, Value
from ...reading.logs.job_record import JobRecord, Told, job_records, last_records
from ...reading.machine.job_processes import processes
from ...reading.machine.slurm_accounts import FAULTS as SLURM_FAULTS
from ...reading.machine.slurm_accounts import Row, Verdict, json_rows, rows, verdicts
from ...reading.run.files import RunFile
from ...reading.run.lines import output_lines
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import anchored, excerpt
from ..tool import clean, failed, few, finding, not_applicable, tool

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
        "job.exit_code", "job.exit_ok", "job.failed", "job.broke_off", "job.signal", "job.ended_by", "job.time_limit",
        "job.memory_killed", "job.kill_at_memory_limit", "job.kill_not_for_memory", "job.kill_not_counted",
        "job.nothing_killed", "job.died_first", "job.died_signal", "job.hang_seconds", "job.disk_full",
        "job.one_machine",
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
    evidence = [e for r in last[:RANKS] for e in _told(ws, r)]
    if last and all(r.over and r.code == 0 for r in last):
        evidence.append(_said(ws, last[0], "exit_ok", True, "exit.code", _ending(last[0])))
    rows = [f"{r.file.name} attempt {r.attempt}: {_ending(r)}" for r in records if r not in last and r.failed]
    rows += [f"{e.file} {e.text}" for e in evidence]
    rows += [f"{r.file.name} {said}" for r in last[:RANKS] for said in _beside(r)]
    if not any(e.key in FAULTS for e in evidence):
        return clean(f"the job's record tells of no fault: {_ending(last[0])}", evidence, "\n".join(rows))
    return finding(f"{_ending(last[0])}{_more(last)}", evidence, "\n".join(rows))


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


def _beside(r: JobRecord) -> Iterator[str]:
    """What a person wants to know of an attempt and nothing is judged by."""
    if r.hang_seconds is not None and r.went_on:
        yield f"{_standstill(r)}; it went on later"
    if not r.over and not r.hung:
        yield _ending(r)
    if r.last_step is not None:
        yield f"last step seen: {r.last_step}"
    for t in r.told[:8] if r.over and not r.failed else r.told[1:8]:
        yield _told_to_end(t)
    if r.oom_kills == 0:
        yield "the kernel killed no process of the job's control group for memory"
    elif r.oom_kills and not r.failed:
        yield _killed(r)
    if r.memory_peak is not None:
        yield f"memory of all processes: at most {r.memory_peak} bytes"
    if r.memory_limit:
        share = "" if r.memory_share is None else f", {r.memory_share:.0%} of it were used"
        yield f"memory limit ({r.memory_limit_of or 'of unknown kind'}): {r.memory_limit} bytes{share}"
    if r.disk_free is not None:
        yield f"{r.disk_free} bytes free under {r.disk_path}"
    if r.inodes_free is not None:
        yield f"{r.inodes_free} inodes free"
    yield from r.notes[:8]


def _standstill(r: JobRecord) -> str:
    limit = f", limit {r.hang_limit:.0f} s" if r.hang_limit else ""
    step = f" after step {r.hang_step}" if r.hang_step is not None else ""
    return f"no progress for {r.hang_seconds:.0f} s{step}{limit}"


def _told_to_end(t: Told) -> str:
    return f"told to end by {t.by or 'somebody unknown'} with {t.signal}" + (f" at {t.at}" if t.at else "")


def _killed(r: JobRecord) -> str:
    return f"{r.oom_kills} process(es) of the job's control group killed for memory"


def _told(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    yield from _exit(ws, r)
    yield from _kill(ws, r)
    yield from _deaths(ws, r)
    yield from _disk(ws, r)
    if r.hang_seconds is not None and not r.went_on:
        yield _said(ws, r, "hang_seconds", r.hang_seconds, "hang", _standstill(r))
    if _one_machine(r.command):
        yield _said(ws, r, "one_machine", True, "command", "all ranks were started on one machine")


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
    if r.over:
        yield _said(ws, r, "exit_code", r.code, "exit.code", f"exit code {r.code}")
    if r.failed:
        yield _said(ws, r, "failed", True, "exit", _ending(r))
        if not (r.told or r.signal in ASKED_TO or r.code == BY_TIMEOUT):
            yield _said(ws, r, "broke_off", True, "exit", f"{_ending(r)}, and nobody was seen to ask for it")
        if r.signal:
            yield _said(ws, r, "signal", r.signal, "exit.signal", f"ended by {r.signal}")
    if r.told and (r.failed or not r.over):
        yield _said(ws, r, "ended_by", _teller(r.told[0].by), "told_to_end[0]", _told_to_end(r.told[0]))
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


def _kill(ws: Workspace, r: JobRecord) -> Iterator[Evidence]:
    """Whether memory is why something of the job was killed outright, or can be where nobody says so."""
    if r.oom_kills and r.failed:
        yield _said(ws, r, "memory_killed", True, "memory.oom_kills", _killed(r))
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
    space = r.disk_free is not None and r.disk_free < FULL_DISK
    inodes = r.inodes_free is not None and r.inodes_free < FEW_INODES and bool(r.disk_free)
    if (r.failed or r.hung) and (space or inodes):
        what = "space" if space else "inodes"
        yield _said(ws, r, "disk_full", what, "disk", f"no {what} left under {r.disk_path}")


# ----------
# The scheduler's side of a job: how it ended, what it used, what is wrong with its nodes.

FIELDS = "JobID,JobName,User,State,ExitCode,DerivedExitCode,Elapsed,Timelimit,MaxRSS,ReqMem,NodeList,Reason,Start,End"
SECONDS, JOBS, EACH = 15.0, 2, 12
JSON_LIMIT = 4 << 20
_NAME = re.compile(r"(?:^|/)slurm-(\d{1,10})(?:_\d+)?\.(?:out|err|log)$")
_ID = re.compile(r"\d{1,10}(?:_\d{1,6}|_\[[\d,%-]{1,80}\]|\+\d{1,6})?")
_LINE = re.compile(r"\*\*\* (?:JOB|STEP) (\d{1,10})|\bStepId=(\d{1,10})\b|\bSLURM_JOB_?ID\W{1,3}(\d{1,10})\b")
_NODES = re.compile(r"[\w.,\[\]-]{1,400}")


@tool(
    emits=(
        "slurm.state", "slurm.failed", "slurm.out_of_memory", "slurm.time_limit", "slurm.node_fail", "slurm.preempted",
        "slurm.cancelled_by", "slurm.time_share", "slurm.requeued", "slurm.node_state", "slurm.node_reason",
    ),
    recall=True,
    live=True,
)  # fmt: skip
def slurm_job(
    ws: Workspace, job: Annotated[str, Field(description="job id; else the one named by the run's files")] = ""
) -> ToolResult:
    """How Slurm says a job ended: state, exit code and signal, memory and time against what was asked, node reasons.

    Use when a job was killed, cancelled, preempted, requeued or ran into its time limit, or when a node is suspected.
    Asks sacct and scontrol where the run is this machine's own; reads their recorded output (text, -P, --json) too.
    """
    if job and not _ID.fullmatch(job):
        raise ToolError(f"{job!r} is no Slurm job id", "name a number, such as 4711, 4711_3 or 4711+1")
    ids = [job.partition("_[")[0]] if job else _ids(ws)  # tasks that still wait have no rows of their own
    seen = [e for file in anchored(ws).files("slurm") for e in _recorded(ws, file, ids)]
    why = ""
    if ws.live:
        here, why = _asked(ws, ids) if ids else ([], "no Slurm job id is known: name one")
        seen += here
    seen = list({(e.key, str(e.value), e.file, e.line, e.text): e for e in seen}.values())
    if not seen:
        if why and "not installed" not in why and "is known" not in why:
            return failed(why)
        return not_applicable(why or "no output of sacct or scontrol among the run's files")
    text = "\n".join(f"{f'{e.file}:{e.line or e.member}' if e.file else 'slurm'} {e.key} = {e.value}" for e in seen)
    faults = [e for e in seen if e.key.split(".")[1] in SLURM_FAULTS]
    if not faults:
        states = sorted({str(e.value) for e in seen if e.key == "slurm.state"})
        return clean(f"Slurm reports no failure ({', '.join(states)})", slurm_job.declared(seen), text)
    kinds = list(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in faults))
    return finding(f"{', '.join(kinds[:5])}: {str(faults[0].value)[:100]}", slurm_job.declared(seen), text)


def _recorded(ws: Workspace, file: RunFile, ids: list[str]) -> Iterator[Evidence]:
    """Of a list that also holds jobs of others only the run's own, where its files name them."""
    if file.path.suffix.lower() == ".json":
        found = json_rows(ws.text(file, JSON_LIMIT))
    else:
        found = list(rows(excerpt(ws, file, "slurm")))
    own = [r for r in found if r.kind == "node" or r.job in ids or r.id.partition(".")[0] in ids]
    if any(r.kind == "job" for r in own):
        found = own
    for v in few(verdicts(found), EACH, lambda v: v.key):
        if v.line is None:
            text = f"{v.row.id}: {', '.join(f'{k}={x}' for k, x in v.row.fields.items() if x)}"
            yield ws.binary(file, v.row.member, f"slurm.{v.key}", v.value, text)
        else:
            yield ws.cite(file, v.line, f"slurm.{v.key}", v.value)


def _ids(ws: Workspace) -> list[str]:
    """Jobs that the run's file names and Slurm's own lines name, the newest first."""
    found = [m[1] for f in ws.files if not f.good and (m := _NAME.search(f.name))]
    seen = processes(ws) if ws.live and ws.pids else None
    named = [p.variables.get("SLURM_JOB_ID", "") for p in (seen.of(ws.pids) if seen else ())]
    found += [job for job in named if job.isdigit()]
    for hit in anchored(ws).of("host"):
        found += [g for m in _LINE.finditer(hit.text[:2000]) for g in m.groups() if g]
    return sorted(set(found), key=int, reverse=True)[:JOBS]


def _asked(ws: Workspace, ids: list[str]) -> tuple[list[Evidence], str]:
    done = ws.shell(["sacct", "-P", "-D", "-j", ",".join(ids), "-o", FIELDS], SECONDS)
    if done.code != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        return [], f"sacct: {said[-1].removeprefix('sacct: ')}" if said else "sacct gave no answer"
    accounts = [r for r in rows(output_lines(done.stdout)) if r.job in ids or r.id.partition(".")[0] in ids]
    if not accounts:
        return [], f"sacct knows no job {', '.join(ids)}"
    evidence = list(_answered(ws, done, accounts))
    more = ws.shell(["scontrol", "show", "job", ids[0]], SECONDS)  # known for some minutes after the end only
    if more.code == 0:
        shown = [v for v in verdicts(list(rows(output_lines(more.stdout)))) if v.key in {"requeued", "pending"}]
        evidence += [_evidence(ws, more, v) for v in shown]
    for nodes in _nodes(accounts):
        node = ws.shell(["scontrol", "show", "node", nodes], SECONDS)
        if node.code == 0:
            evidence += _answered(ws, node, list(rows(output_lines(node.stdout))))
    return evidence, ""


def _nodes(accounts: list[Row]) -> list[str]:
    """Node lists of the jobs that did not end well."""
    bad = [r for r in accounts if not r.is_step and r.get("state") not in {"COMPLETED", "RUNNING"}]
    return [n for n in dict.fromkeys(r.get("nodelist") for r in bad) if _NODES.fullmatch(n)][:JOBS]


def _answered(ws: Workspace, done: Completed, found: list[Row]) -> Iterator[Evidence]:
    for v in few(verdicts(found), EACH, lambda v: v.key):
        yield _evidence(ws, done, v)


def _evidence(ws: Workspace, done: Completed, v: Verdict) -> Evidence:
    return ws.answered(done, f"slurm.{v.key}", v.value, v.line.text if v.line else "")
