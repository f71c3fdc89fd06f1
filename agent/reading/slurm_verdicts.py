"""What Slurm's rows mean for a run: how each job ended, what it used, what is wrong with its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .files import Line
from .slurm_accounts import Row, seconds, size_bytes

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
    code, signal = _exit(row.get("exitcode"))
    worst = max([row, *steps], key=lambda r: _exit(r.get("exitcode"))[1])
    step_signal = _exit(worst.get("exitcode"))[1] or _exit(row.get("derivedexitcode"))[1]
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


def _exit(text: str) -> tuple[int, int]:
    """`137:0` as exit code and signal."""
    code, _, signal = text.partition(":")
    return (int(code) if code.isdigit() else 0), (int(signal) if signal.isdigit() else 0)
