"""The host: of this machine by a probe, of a run by what its files record of kernel, disks, limits and scheduler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..reading import host_lines as hl
from ..reading.anchor_lines import Anchored, Hit, anchored
from ..reading.anchor_windows import excerpt
from ..reading.files import RunFile
from ..reading.host_state import ask_host
from ..reading.host_state import facts as probed
from ..reading.kernel_now import kernel_log
from ..reading.kill_counters import kills_between, kills_of_group
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 4
MEASURES = {
    "nofile_limit", "memlock_limit", "shm_bytes", "memory_total_bytes", "memory_available_bytes", "disk_free_bytes",
    "memory_limit_bytes", "memory_peak_share", "cores", "cores_allowed", "load_per_core", "open_files", "clock_free",
    "oom_kill_elsewhere", "cgroup_oom_elsewhere", "hung_task_elsewhere", "reboot_elsewhere", "no_kill_counted",
}  # fmt: skip
KILLED = re.compile(r"(?i)killed process (\d+)")
OF_THE_RUN = {"oom_kill", "cgroup_oom", "hung_task", "reboot"}  # only where they happened while it ran
OF_KERNEL = OF_THE_RUN | {"mce", "pcie_error", "fs_error"}


@tool(
    emits=(
        "host.oom_kill", "host.cgroup_oom", "host.disk_full", "host.quota", "host.inodes_full", "host.shm_bytes",
        "host.nofile_limit", "host.memlock_limit", "host.too_many_files", "host.process_limit",
        "host.memory_total_bytes", "host.memory_available_bytes", "host.slurm_state", "host.slurm_exit",
        "host.node_failure", "host.preempted", "host.time_limit", "host.evicted", "host.ib_down",
        "host.ib_counters", "host.hung_task", "host.mce", "host.pcie_error", "host.fs_error", "host.clock",
        "host.reboot", "host.service_restart", "host.port_in_use", "host.disk_free_bytes", "host.disk_low",
        "host.read_only", "host.shm_full", "host.shm_left_bytes", "host.shm_leftover", "host.nofile_low",
        "host.open_files",
        "host.memory_low", "host.memory_limit_bytes", "host.memory_peak_share", "host.memory_near_limit",
        "host.group_oom_kills", "host.memory_pressure", "host.io_pressure", "host.io_wait", "host.stolen",
        "host.cores", "host.cores_allowed", "host.load_per_core", "host.zombie", "host.stuck", "host.clock_free",
        "host.no_answer", "host.oom_kill_elsewhere", "host.cgroup_oom_elsewhere", "host.hung_task_elsewhere",
        "host.reboot_elsewhere", "host.kills_counted", "host.no_kill_counted",
    ),
    recall=True,
    live=True,
)  # fmt: skip
def host_health(ws: Workspace) -> ToolResult:
    """Disks, shared memory, limits, memory and its control group, kernel events, pressure, scheduler states, links.

    Use when a process was killed, a node vanished, a disk or /dev/shm may be full, a job hit its time limit or
    was preempted, links are down, everything is slow, or a service such as the fabric manager was restarted. Looks at
    this machine where the run is its own; reads recorded df, free, ulimit, kernel, sacct and journal text otherwise.
    """
    found = anchored(ws)
    hits = found.of("host")
    evidence = [*_lines(ws, hits), *_captures(ws, found), *_restarts(ws, hits), *_counted(ws, found)]
    why = ""
    if ws.live:
        here, why = _machine(ws)
        evidence += here
    evidence = list({(e.key, str(e.value), e.file, e.line): e for e in evidence}.values())
    if not evidence and why:
        return failed(why)
    if not evidence:
        nothing = not_applicable("no host capture or scheduler line among the run's files")
        return clean("host captures and scheduler lines hold no fault") if hits else nothing
    faults = [e for e in evidence if e.key.split(".")[1] not in MEASURES and e.value != "COMPLETED"]
    text = "\n".join(f"{f'{e.file}:{e.line}' if e.file else 'this machine'} {e.key} = {e.value}" for e in evidence)
    note = f" ({why})" if why else ""
    if not faults and why:
        return ToolResult("failed", f"{len(evidence)} host fact(s), none of them a fault, but {why}", evidence, text)
    if not faults:
        return clean(f"{len(evidence)} host fact(s), none of them a fault", evidence, text)
    kinds = list(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in faults))
    return finding(f"{', '.join(kinds[:5])}: {str(faults[0].value)[:100]}{note}", evidence, text)


def _machine(ws: Workspace) -> tuple[list[Evidence], str]:
    """What the probe and the kernel log of this machine say, and what could not be asked."""
    done = ask_host(ws)
    shown: Counter[str] = Counter()
    evidence = []
    for key, value, line in probed(done):
        shown[key] += 1
        if shown[key] <= 2 * EACH:
            evidence.append(ws.answered(done, f"host.{key}", value, line.text))
    log = kernel_log(ws)
    for line in log.lines if log.done else ():
        for key, value in hl.facts_of(line.text):
            others = ws.pids and not shown["group_oom_kills"] and _of_others(ws, key, line.text)
            if key in OF_THE_RUN and (others or line.number not in log.during):
                key = f"{key}_elsewhere"
            shown[key] += 1
            if log.done and key.removesuffix("_elsewhere") in OF_KERNEL and shown[key] <= EACH:
                evidence.append(ws.answered(log.done, f"host.{key}", value, line.text))
    missing = [f"the probe of the host ended early: {_last(done.stderr)}"] if done.code != 0 else []
    missing += [f"the kernel log could not be read: {log.why}"] if log.why else []
    return evidence, "; ".join(missing)


def _of_others(ws: Workspace, key: str, text: str) -> bool:
    """Whether a kill befell another process than those named, whose control group counts its own kills."""
    killed = KILLED.search(text)
    return key in ("oom_kill", "cgroup_oom") and not (killed and int(killed[1]) in ws.pids)


def _last(text: str) -> str:
    return next(iter(text.strip().splitlines()[-1:]), "no reason given")[:160]


def _lines(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    shown: Counter[tuple[str, str]] = Counter()
    for hit in hits:
        for key, value in hl.facts_of(hit.text):
            same = (key, str(value) if key in {"slurm_state", "slurm_exit"} else "")
            shown[same] += 1
            if shown[same] <= EACH:
                yield ws.cite(hit.file, hit.line, f"host.{key}", value, rank=hit.rank)


def _captures(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    """df and friends: tables whose header gives the unit, commands whose answer is the next line."""
    for file in found.files("host"):
        yield from _capture(ws, file)


def _capture(ws: Workspace, file: RunFile) -> Iterator[Evidence]:
    unit, asked = "size", ""
    for line in excerpt(ws, file, "host", after=4 << 10):
        text = line.text
        if m := hl.DF_HEADER.match(text):
            unit = m["unit"].lower()
        facts = [*hl.disk_facts(text, unit), *hl.memory_facts(text)]
        if asked and text.strip().isdigit():
            facts.append(("nofile_limit" if asked == "n" else "memlock_limit", int(text)))
        m = hl.ULIMIT_COMMAND.search(text)
        asked = m["what"] if m else ""
        for key, value in facts:
            yield ws.cite(file, line, f"host.{key}", value)


def _counted(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    """What the kernel's counter of memory kills says, where it was read before and after."""
    for hit, more in kills_between(found.of("oom")):
        key, value = ("host.kills_counted", more) if more > 0 else ("host.no_kill_counted", True)
        yield ws.cite(hit.file, hit.line, key, value)
    for hit, count in kills_of_group(found.of("oom"))[:EACH]:
        yield ws.cite(hit.file, hit.line, "host.group_oom_kills", count)


def _restarts(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    """A service that was stopped and started again while the machine was up; both lines are cited."""
    stopped: dict[str, Hit] = {}
    told: Counter[str] = Counter()
    for hit in hits:
        if (m := hl.SYSTEMD.search(hit.text)) is None:
            continue
        unit = m["unit"].strip(" .").lower()
        if m["what"] == "Stopping" or (m["what"] == "Stopped" and unit not in stopped):
            stopped[unit] = hit
        elif m["what"] in {"Starting", "Started"} and unit in stopped and told[unit] < EACH:
            told[unit] += 1
            value = m["unit"].strip(" .")
            yield ws.cite(stopped[unit].file, stopped[unit].line, "host.service_restart", value)
            yield ws.cite(hit.file, hit.line, "host.service_restart", value)
            del stopped[unit]
