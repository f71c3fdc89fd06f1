"""What Slurm says about jobs and nodes: `sacct` (parsable, plain or JSON) and `scontrol show job|node`.

Every reader yields `Row`s: a job, a step or a node as fields by their lower-case name, with the line they start on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..run.files import Line
from ..settings.settings import Setting, Settings, read_settings

if TYPE_CHECKING:
    from ..run.workspace import Workspace

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_PAIR = re.compile(r"(?:^|\s)(?P<name>[A-Z][\w/:]*)=(?P<value>.*?)(?=\s+[A-Z][\w/:.]*=|$)")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGTP]?)(?P<of>[nc]?)")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)(?:\.\d+)?")
_ID = re.compile(r"\d+(?:_\d+|_\[[\d,%-]+\]|\+\d+)?(?:\.(?:\w+))?")
_DASHES = re.compile(r"^-{3,}(?:\s+-{3,})+\s*$")


@dataclass(slots=True)
class Row:
    """A job (`77`), a step (`77.0`, `77.batch`) or a node. `line` is None where the source has no lines (JSON)."""

    kind: str
    id: str
    fields: dict[str, str]
    line: Line | None = None
    more: list[Line] = field(default_factory=list)  # further lines of the same block
    member: str = ""

    @property
    def job(self) -> str:
        """The job a step belongs to, without its array index."""
        return re.split(r"[._+]", self.id)[0]

    @property
    def is_step(self) -> bool:
        return self.kind == "job" and "." in self.id

    def get(self, *names: str) -> str:
        """The first of these fields that says something."""
        return next((v for n in names if (v := self.fields.get(n, "").strip()) not in {"", "None", "(null)"}), "")

    def line_with(self, word: str) -> Line | None:
        """The line of the block that holds a word, else its first."""
        return next((x for x in [self.line, *self.more] if x and word in x.text), self.line)


def rows(lines: Iterable[Line]) -> Iterator[Row]:
    """Rows of text, whichever forms it mixes."""
    header: list[str] = []
    columns: list[tuple[int, int]] = []
    block: Row | None = None
    before = ""
    for line in lines:
        text = line.text.rstrip()
        if started := _block(text, line):
            if block:
                yield block
            block, header, columns = started, [], []
        elif block and text.startswith(" ") and _PAIR.search(text):
            block.fields |= _pairs(text)
            block.more.append(line)
        elif block and text:
            yield block
            block = None
        if block is None and text.startswith("JobID|"):
            header, columns = text.lower().split("|"), []
        elif block is None and _DASHES.match(text) and before.lstrip().lower().startswith("jobid"):
            columns = [m.span() for m in re.finditer(r"-+", text)]
            header = [before[a:b].strip().lower() for a, b in columns]
        elif header and (cells := _cells(text, len(header), columns)) and _ID.fullmatch(cells[0]):
            yield Row("job", cells[0], dict(zip(header, cells, strict=False)), line)
        before = text
    if block:
        yield block


def _cells(text: str, width: int, columns: list[tuple[int, int]]) -> list[str]:
    cells = [text[a:b].strip() for a, b in columns] if columns else text.split("|")
    return cells if len(cells) in (width, width + 1) else []


def _block(text: str, line: Line) -> Row | None:
    """The first line of what scontrol shows of one job or node."""
    m = re.match(r"^(?:JobId=(?P<job>\d+)|NodeName=(?P<node>[\w.-]+))\b", text)
    return Row("job" if m["job"] else "node", m["job"] or m["node"], _pairs(text), line) if m else None


def _pairs(text: str) -> dict[str, str]:
    return {m["name"].lower(): m["value"].strip() for m in _PAIR.finditer(text)}


def json_rows(text: str) -> list[Row]:
    """Rows of `sacct --json`; empty where the text is something else."""
    try:
        found = json.loads(text)
        jobs = found["jobs"] if isinstance(found, dict) else None
        return [r for i, job in enumerate(jobs or []) if isinstance(job, dict) for r in _json_job(i, job)]
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return []


def _json_job(number: int, job: dict[str, Any]) -> Iterator[Row]:
    spent = job.get("time") or {}
    limit = _plain(spent.get("limit"))
    yield Row("job", str(job["job_id"]), {
        "state": _state(job), "exitcode": _exit(job.get("exit_code")), "elapsed": _clock(spent.get("elapsed")),
        "derivedexitcode": _exit(job.get("derived_exit_code")),
        "timelimit": _clock(limit * 60) if isinstance(limit, int) else "",
        "reqmem": f"{m}M" if isinstance(m := _plain((job.get("required") or {}).get("memory")), int) and m else "",
        "nodelist": str(job.get("nodes") or ""), "jobname": str(job.get("name") or ""),
        "by": str(job.get("kill_request_user") or ""),
    }, member=f"jobs[{number}]")  # fmt: skip
    for i, step in enumerate(job.get("steps") or []):
        name = str((step.get("step") or {}).get("id") or i)
        used = ((step.get("tres") or {}).get("requested") or {}).get("max") or []
        rss = next((t.get("count") for t in used if t.get("type") == "mem"), None)
        yield Row("job", name if "." in name else f"{job['job_id']}.{name}", {
            "state": _state(step), "exitcode": _exit(step.get("exit_code")), "maxrss": str(rss or ""),
        }, member=f"jobs[{number}].steps[{i}]")  # fmt: skip


def _state(of: dict[str, Any]) -> str:
    """`{"current": "FAILED"}`, in newer versions `["FAILED"]`; of a step the word itself."""
    state = of.get("state")
    state = state.get("current") if isinstance(state, dict) else state
    return str(state[0] if isinstance(state, list) and state else state or "")


def _exit(code: Any) -> str:
    """`code:signal`, as sacct prints it."""
    if not isinstance(code, dict):
        return ""
    signal = code.get("signal") or {}
    number = _plain(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else 0
    return f"{_plain(code.get('return_code')) or 0}:{number or 0}"


def _plain(value: Any) -> Any:
    """Newer versions wrap numbers: `{"set": true, "infinite": false, "number": 60}`."""
    if isinstance(value, dict):
        return value.get("number") if value.get("set") and not value.get("infinite") else None
    return value


def _clock(seconds: Any) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" if isinstance(seconds, int) else ""


def size_bytes(text: str) -> int | None:
    """`74068K`, `60M`, `4Gn` as bytes; None for a size per core (`2Gc`), as the cores are not told beside it."""
    m = _SIZE.fullmatch(text.strip())
    return int(float(m["number"]) * UNITS[m["unit"]]) if m and m["of"] != "c" else None


def seconds(text: str) -> int | None:
    """`1-02:03:04` as seconds; None for UNLIMITED and the like."""
    m = _TIME.fullmatch(text.strip())
    if m is None:
        return None
    days, hours, minutes, rest = (int(m[n] or 0) for n in ("days", "hours", "minutes", "seconds"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


# ----------
# What Slurm's rows mean for a run: how each job ended, what it used, what is wrong with its nodes.

ENDED_BADLY = {
    "OUT_OF_MEMORY": "out_of_memory", "TIMEOUT": "time_limit", "DEADLINE": "time_limit", "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail", "PREEMPTED": "preempted", "CANCELLED": "cancelled_by", "FAILED": "failed",
}  # fmt: skip
FAULTS = set(ENDED_BADLY.values()) | {"node_reason", "node_state", "memory_near_limit", "requeued", "pending"}
KILL, CLOSE = 9, 0.95  # the signal of a kill; share of the asked memory from which it is suspect
GOOD_NODE = ("IDLE", "ALLOC", "MIX", "COMP")
BAD_FLAGS = {"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "INVALID_REG", "REBOOT_REQUESTED", "REBOOT_ISSUED", "BLOCKED"}


class Verdict(NamedTuple):
    """A key below `slurm.`, a value, the row it is about and the line (None for JSON) that says so."""

    key: str
    value: Any
    row: Row
    line: Line | None


def verdicts(found: list[Row]) -> Iterator[Verdict]:
    """Facts about jobs and nodes. Memory and time shares are of what was asked for."""
    for place, row in enumerate(found):
        if row.kind == "node":
            yield from _node(row)
        elif not row.is_step:
            yield from _job(row, list(_steps(found, place)))
    yield from _requeues(found)


def _steps(found: list[Row], place: int) -> Iterator[Row]:
    """The steps of one record of a job: not those of its array's other tasks, nor of its other attempts."""
    row = found[place]
    for other in found[place + 1 :]:
        if other.is_step and other.id.partition(".")[0] == row.id:
            yield other
        elif not other.is_step and other.id == row.id:
            return


def _job(row: Row, steps: list[Row]) -> Iterator[Verdict]:
    said = row.get("state", "jobstate")
    state = _word(said)
    if not state:
        return
    at = row.line_with(state)
    yield Verdict("state", state, row, at)
    code, signal = _exit_of(row.get("exitcode"))
    worst = max([row, *steps], key=lambda r: _exit_of(r.get("exitcode"))[1])
    step_signal = _exit_of(worst.get("exitcode"))[1] or _exit_of(row.get("derivedexitcode"))[1]
    if code or signal:
        yield Verdict("exit", f"{code}:{signal}", row, row.line_with("ExitCode"))
    if state in ENDED_BADLY:
        by = said.partition(" by ")[2] or row.get("by") or "unknown"
        yield Verdict(ENDED_BADLY[state], by if state == "CANCELLED" else said, row, at)
    if step_signal or code > 128:
        yield Verdict("signal", step_signal or code - 128, worst, worst.line_with("ExitCode"))
    yield from _memory(row, steps, KILL in (step_signal, code, code - 128))
    spent, limit = seconds(row.get("elapsed", "runtime")), seconds(row.get("timelimit"))
    if spent is not None and limit:
        yield Verdict("time_share", round(spent / limit, 3), row, row.line_with("TimeLimit"))
    if state == "PENDING" and (why := row.get("reason")):
        yield Verdict("pending", why, row, row.line_with("Reason"))


def _memory(row: Row, steps: list[Row], killed: bool) -> Iterator[Verdict]:
    used = [(size, r) for r in [row, *steps] if (size := size_bytes(r.get("maxrss")))]
    asked = size_bytes(row.get("reqmem"))
    if not used:
        return
    most, step = max(used, key=lambda pair: pair[0])
    yield Verdict("max_rss_bytes", most, step, step.line)
    if asked:
        share = round(most / asked, 3)
        yield Verdict("memory_share", share, step, step.line)
        if share >= CLOSE:
            yield Verdict("out_of_memory" if killed else "memory_near_limit", share, step, step.line)


def _requeues(found: list[Row]) -> Iterator[Verdict]:
    """A job that was put back into the queue: several records of one number, or a count of restarts."""
    jobs = [r for r in found if r.kind == "job" and not r.is_step and not r.get("jobstate")]
    for row in found:
        if (restarts := row.get("restarts")).isdigit() and int(restarts):
            yield Verdict("requeued", int(restarts), row, row.line_with("Restarts"))
    for name in dict.fromkeys(r.id for r in jobs):
        same = [r for r in jobs if r.id == name and r.get("start") not in ("", "Unknown")]
        if len(same) > 1:
            yield Verdict("requeued", len(same) - 1, same[-1], same[-1].line)


def _node(row: Row) -> Iterator[Verdict]:
    state, reason = row.get("state"), row.get("reason")
    words = state.rstrip("*~#!%$@^-").split("+")  # `*` says that it does not respond, the rest is power
    if state and ("*" in state or not words[0].startswith(GOOD_NODE) or set(words[1:]) & BAD_FLAGS):
        yield Verdict("node_state", f"{row.id} {state}", row, row.line_with("State="))
    if reason:
        yield Verdict("node_reason", f"{row.id}: {reason}", row, row.line_with("Reason="))


def _word(state: str) -> str:
    return state.split(" ")[0].rstrip("+") if state else ""


def _exit_of(text: str) -> tuple[int, int]:
    """`137:0` as exit code and signal."""
    code, _, signal = text.partition(":")
    return (int(code) if code.isdigit() else 0), (int(signal) if signal.isdigit() else 0)


# ----------
# How much host memory the scheduler gives a job, by the arithmetic of its flags.

SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)i?[Bb]?$", re.IGNORECASE)
JOB_UNITS = {"k": 1 << 10, "": 1 << 20, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}  # without a unit: MiB
PLAIN = {**JOB_UNITS, "": 1}  # Kubernetes counts bytes
GPUS = re.compile(r"(?:gpu(?::[\w.-]{1,40})?:|[\w.-]{1,40}:)?(\d{1,4})(?:\(.{0,40}\))?")
MOST = 1 << 16  # of anything that is counted on a node


@dataclass(frozen=True, slots=True)
class JobMemory:
    """Bytes of a node's part of a job or of one container, in words, and the setting that says so."""

    bytes: int
    says: str
    setting: Setting


def job_memory(ws: Workspace) -> JobMemory | None:
    """The smallest memory limit that the run's scripts ask for; None where none does, or all of a node is asked for."""
    settings = read_settings(ws)
    found = []
    for s in settings.asked("host_memory_limit"):
        key = _key(s)
        if s.file.good or (size := _bytes(str(s.value), slurm=key.startswith("mem") and key != "memory")) is None:
            continue
        times, says = 1, f"{s.value}"
        if key in _ON_A_NODE:
            counted = _ON_A_NODE[key](settings)
            if counted is None:
                continue
            times, says = counted, f"{s.value} for each of {counted} {key.removeprefix('mem_per_')}s of a node"
        found.append(JobMemory(size * times, says, s))
    return min(found, key=lambda m: m.bytes, default=None)


def _cpus(settings: Settings) -> int | None:
    """Processors of a job on one node."""
    each, tasks = _count(settings, "cpus_per_task"), _tasks(settings)
    return each * tasks if each and tasks else None


def _gpus(settings: Settings) -> int | None:
    """GPUs of a job on one node."""
    if on_node := _count(settings, "gpus", "gpus_per_node", "gres"):
        return on_node
    if each := _count(settings, "gpus", "gpus_per_task"):
        tasks = _tasks(settings)
        return each * tasks if tasks else None
    return _share(_count(settings, "gpus", "gpus"), _count(settings, "nodes"))


def _tasks(settings: Settings) -> int | None:
    """Tasks on one node: told, or all of them over the nodes, or the one that Slurm starts where none are asked for."""
    if told := _count(settings, "processes_per_node", "ntasks_per_node"):
        return told
    tasks = _values(settings, "world_size", "ntasks")
    return _share(_count(settings, "world_size", "ntasks"), _count(settings, "nodes")) if tasks else 1


def _share(total: int | None, nodes: int | None) -> int | None:
    if total is None or nodes is None:
        return 1 if total == 1 else None
    return -(-total // nodes)


def _count(settings: Settings, name: str, *keys: str) -> int | None:
    """The one number that the scripts give a setting under any of these keys (under all, where none is named)."""
    found = {m[1] for v in _values(settings, name, *keys) if (m := GPUS.fullmatch(v))}
    number = int(found.pop()) if len(found) == 1 else 0
    return number if 0 < number <= MOST else None


def _values(settings: Settings, name: str, *keys: str) -> list[str]:
    return [
        str(s.value)
        for s in settings.asked(name)
        if not s.file.good and not s.default and (not keys or _key(s) in keys)
    ]


def _key(setting: Setting) -> str:
    return setting.key.lstrip("-").replace("-", "_").rsplit(".", 1)[-1]


_ON_A_NODE = {"mem_per_cpu": _cpus, "mem_per_gpu": _gpus}


def _bytes(text: str, slurm: bool) -> int | None:
    m = SIZE.match(text.strip())
    if m is None or float(m[1]) == 0:
        return None
    return int(float(m[1]) * (JOB_UNITS if slurm else PLAIN)[m[2].lower()])
