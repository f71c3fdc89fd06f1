"""The host's side in recorded text: kernel, disks, limits, scheduler, links, services that were restarted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..reading import host_lines as hl
from ..reading.anchor_lines import Anchored, Hit, anchored
from ..reading.anchor_windows import excerpt
from ..reading.files import RunFile
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 4
STATES_OF_INTEREST = {"COMPLETED"}  # told once, as a sign of health
MEASURES = {"nofile_limit", "memlock_limit", "shm_bytes", "memory_total_bytes", "memory_available_bytes"}


@tool(
    emits=(
        "host.oom_kill", "host.cgroup_oom", "host.disk_full", "host.quota", "host.inodes_full", "host.shm_bytes",
        "host.nofile_limit", "host.memlock_limit", "host.too_many_files", "host.process_limit",
        "host.memory_total_bytes", "host.memory_available_bytes", "host.slurm_state", "host.slurm_exit",
        "host.node_failure", "host.preempted", "host.time_limit", "host.evicted", "host.ib_down",
        "host.ib_counters", "host.hung_task", "host.mce", "host.pcie_error", "host.fs_error", "host.clock",
        "host.reboot", "host.service_restart", "host.port_in_use",
    ),
    recall=True,
)  # fmt: skip
def host_health(ws: Workspace) -> ToolResult:
    """Read recorded host facts: kernel log, df, free, ulimit, sacct and Slurm lines, InfiniBand state, journal.

    Use when a process was killed, a node vanished, a disk or /dev/shm may be full, a job hit its time limit or
    was preempted, links are down, or a service such as the fabric manager was restarted.
    """
    found = anchored(ws)
    hits = found.of("host")
    if not hits:
        return not_applicable("no host capture or scheduler line among the run's files")
    evidence = [*_lines(ws, hits), *_captures(ws, found), *_restarts(ws, hits)]
    evidence = list({(e.key, str(e.value), e.file, e.line): e for e in evidence}.values())
    faults = [e for e in evidence if e.key.split(".")[1] not in MEASURES and e.value != "COMPLETED"]
    text = "\n".join(f"{e.file}:{e.line} {e.key} = {e.value}" for e in evidence)
    if not faults:
        return clean(f"{len(evidence)} host fact(s), none of them a fault", evidence, text)
    kinds = list(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in faults))
    return finding(f"{', '.join(kinds[:5])}: {str(faults[0].value)[:100]}", evidence, text)


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
