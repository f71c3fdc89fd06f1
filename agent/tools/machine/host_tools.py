"""The host: of this machine by a probe, of a run by what its files record of kernel, disks, limits and scheduler."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ...core.errors import ToolError
from ...core.own_files import KNOWLEDGE, read_table
from ...core.shell import Completed
from ...core.types import Evidence, Risk, ToolResult
from ...reading.machine import host_state as hl
from ...reading.machine.host_state import ask_host
from ...reading.machine.host_state import facts as probed
from ...reading.machine.ib_links import facts, ports
from ...reading.machine.kernel_log import kernel_log, kills_between, kills_of_group
from ...reading.run.files import Line, RunFile, holds, lines
from ...reading.run.lines import fact_of, output_lines
from ...reading.run.workspace import STDIN, Workspace
from ...reading.scan.anchors import Anchored, Hit, anchored, excerpt
from ...reading.settings.settings import read_settings
from ..tool import clean, failed, few, finding, listed, not_applicable, tool

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
        "host.memory_available_bytes", "host.slurm_state", "host.slurm_exit", "host.node_failure", "host.preempted",
        "host.time_limit", "host.evicted", "host.ib_down", "host.ib_counters", "host.hung_task", "host.mce",
        "host.pcie_error", "host.fs_error", "host.clock", "host.reboot", "host.service_restart", "host.port_in_use",
        "host.disk_low", "host.read_only", "host.shm_full", "host.shm_leftover", "host.nofile_low", "host.memory_low",
        "host.memory_near_limit", "host.group_oom_kills", "host.io_pressure", "host.stolen", "host.zombie",
        "host.kills_counted", "host.no_kill_counted",
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
    seen = [*_lines(ws, hits), *_captures(ws, found), *_restarts(ws, hits), *_counted(ws, found)]
    why = ""
    if ws.live:
        here, why = _machine(ws)
        seen += here
    seen = list({(e.key, str(e.value), e.file, e.line): e for e in seen}.values())
    if not seen and why:
        return failed(why)
    if not seen:
        nothing = not_applicable("no host capture or scheduler line among the run's files")
        return clean("host captures and scheduler lines hold no fault") if hits else nothing
    faults = [e for e in seen if e.key.split(".")[1] not in MEASURES and e.value != "COMPLETED"]
    text = listed(seen)
    note, evidence = f" ({why})" if why else "", host_health.declared(seen)
    if not faults and why:
        return ToolResult("failed", f"{len(seen)} host fact(s), none of them a fault, but {why}", evidence, text)
    if not faults:
        return clean(f"{len(seen)} host fact(s), none of them a fault", evidence, text)
    kinds = list(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in faults))
    return finding(f"{', '.join(kinds[:5])}: {str(faults[0].value)[:100]}{note}", evidence, text)


def _machine(ws: Workspace) -> tuple[list[Evidence], str]:
    """What the probe and the kernel log of this machine say, and what could not be asked."""
    done, log = ask_host(ws), kernel_log(ws)
    said = list(probed(done))
    shown = Counter(key for key, _, _ in said)
    evidence = [
        ws.answered(done, f"host.{key}", value, line.text)
        for key, value, line in few(said, 2 * EACH, lambda fact: fact[0])
    ]
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
    said = ((key, value, hit) for hit in hits for key, value in hl.facts_of(hit.text))
    for key, value, hit in few(said, EACH, lambda x: (x[0], str(x[1]) if x[0].startswith("slurm_") else "")):
        yield hit.cite(ws, f"host.{key}", value)


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


# ----------
# Which file systems the run's data lie on, as captures of mounts say.

LARGEST = 64 << 20  # bytes of a file that is searched; captures may be larger
LITERALS = (b" type ", b"% /", b" rw,", b" ro,")  # one stands in every line of the forms below
SHOWN = 8
TYPE = r"(?P<type>[a-z][\w.\-]{1,24})"
# `mount`, /proc/mounts, `df -T`: device, place and type in three orders
FORMS = (
    re.compile(rf"^(?P<device>\S+) on (?P<place>/\S*) type {TYPE} \("),
    re.compile(rf"^(?P<device>\S+) (?P<place>/\S*) {TYPE} r[wo],\S+ \d \d$"),
    re.compile(
        rf"^(?P<device>\S+)\s+{TYPE}\s+[\d.]+[KMGTP]?\s+[\d.]+[KMGTP]?\s+[\d.]+[KMGTP]?\s+\d+%\s+(?P<place>/\S*)$"
    ),
)
NETWORK = re.compile(
    r"^(?:nfs4?|lustre|gpfs|beegfs|ceph|cifs|smb3?|glusterfs|afs|9p|virtiofs|wekafs|"
    r"fuse\.(?:s3fs|gcsfuse|sshfs|goofys|juicefs|rclone|blobfuse2?|ceph\S*|glusterfs|mount-s3|geesefs))$"
)
DATA = re.compile(r"(?i)data|train|valid|\bval|image|img|manifest|corpus|shard|folder|root")
WRITTEN = re.compile(r"(?i)out|save|log|ckpt|checkpoint|cache|model|pretrain|tokenizer|result|load|resume")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system at a place, and the line that says so."""

    place: str
    type: str
    file: RunFile
    line: Line

    def holds(self, path: str) -> bool:
        return path == self.place or path.startswith(self.place.rstrip("/") + "/")


@tool(emits=("storage.data_on_network", "storage.data_on_local"), recall=True)
def data_mounts(ws: Workspace) -> ToolResult:
    """Say on which file system the training data lie, from captures of mount, /proc/mounts or df -T.

    Use when data loading is slow or decays. Compares the data paths of flags and configs with the places where file
    systems are mounted; the longest matching place decides.
    """
    every = [f for f in ws.by_role("log", "capture", "environment", "other", "config") if not f.good]
    files = [f for f in every if f.size <= LARGEST or f.role in ("capture", "other")]
    unread = len(every) - len(files)
    rest = f"; {unread} file(s) over {LARGEST >> 20} MiB not searched" if unread else ""
    mounts = [m for f in files if holds(f.path, LITERALS) for m in _mounts(f)]
    if not mounts:
        return not_applicable(f"no capture of mounted file systems{rest}")
    network = [m for m in mounts if NETWORK.match(m.type)]
    evidence = list(_data(ws, mounts))
    if not network:
        return clean(f"no network file system is mounted{rest}", evidence)
    on = [e for e in evidence if e.key == "storage.data_on_network"]
    summary = f"{len(network)} network file system(s)" + (", data lie on one" if on else "") + rest
    rows = [f"{m.file.name}:{m.line.number} {m.place} is {m.type}" for m in network[:SHOWN]]
    return finding(summary, evidence, "\n".join([summary, *rows]))


def _mounts(file: RunFile) -> Iterator[Mount]:
    for line in lines(file.path):
        for form in FORMS if any(text in line.data[:400] for text in LITERALS) else ():
            if m := form.match(line.text[:400].strip()):
                yield Mount(m["place"], m["type"], file, line)
                break


def _data(ws: Workspace, mounts: list[Mount]) -> Iterator[Evidence]:
    told: set[str] = set()
    for s in read_settings(ws).all:
        key, path = s.key.rsplit(".", 1)[-1], s.value
        if not isinstance(path, str) or not path.startswith("/") or path in told:
            continue
        if not (s.name == "dataset" or DATA.search(key)) or WRITTEN.search(key):
            continue
        at = max((m for m in mounts if m.holds(path)), key=lambda m: len(m.place), default=None)
        if at is None or at.place == "/":
            continue
        told.add(path)
        where = "network" if NETWORK.match(at.type) else "local"
        value = f"{path} on {at.type}"
        yield ws.cite(s.file, s.line, f"storage.data_on_{where}", value)
        yield ws.cite(at.file, at.line, f"storage.data_on_{where}", value)


# ----------
# How fast the place is that a job reads from or writes to, measured and compared with what is ordinary.

MEGABYTES, SECONDS, FILES = 256, 20.0, 500
GRACE = 15.0  # seconds beyond its own limit until the child is killed
PROGRAM = "traindoctor.agent.jobs.probes.storage"
MEASURED = ("write", "read", "files", "stats")  # the first two in bytes


@tool(emits=("storage.slow",), risk=Risk.COSTLY, live=True)
def storage_speed(
    ws: Workspace,
    path: Annotated[str, Field(description="folder to measure; else that of the run")] = "",
    megabytes: Annotated[int, Field(description="written and read back", ge=8, le=4096)] = MEGABYTES,
) -> ToolResult:
    """Measure a folder's storage: one large file written, flushed and read, and many small files.

    Use when data loading or saving is slow and storage is suspected. Puts load on the file system for up to twenty
    seconds; refuses where space is short; leaves nothing behind. Compares with what is ordinary for its kind.
    """
    if not ws.live:
        return not_applicable("the run is not this machine's own: its storage is elsewhere")
    folder = _folder(ws, path)
    argv = [sys.executable, "-I", "-m", PROGRAM, str(folder), str(megabytes), f"{SECONDS:g}", str(FILES)]
    done = ws.shell(argv, SECONDS + GRACE)
    said = [(fact, line) for line in output_lines(done.stdout) if (fact := fact_of(line))]
    head = next((fact for fact, _ in said if "folder" in fact), {})
    if done.code is None and head:
        ws.shell([sys.executable, "-I", "-m", PROGRAM, "--remove", str(head["folder"])], GRACE)
    refused = next((str(fact["refused"]) for fact, _ in said if "refused" in fact), "")
    if refused or not head:
        return failed(refused or f"could not be measured: {done.stderr.strip()[-160:] or 'no answer'}")
    kind = _kind(str(head.get("kind", "")))
    rates = list(_measured(said))
    slow = [e for m, rate, line in rates if (e := _slow(ws, done, kind, m, rate, line))]
    words = ", ".join(_words(m, rate) for m, rate, _ in rates)
    text = "\n".join([f"{folder}: {kind['kind']}", *(_words(m, rate) for m, rate, _ in rates)])
    if done.code != 0:
        return ToolResult("failed", f"{folder} stopped answering within {SECONDS + GRACE:g} s", slow, text)
    if slow:
        return finding(f"{', '.join(str(e.value) for e in slow)} ({words})", slow, text)
    return clean(f"{folder} ({kind['kind']}): {words}", text=text)


def _folder(ws: Workspace, path: str) -> Path:
    own = [r for r in ws.roots if r != STDIN]
    folder = Path(path).expanduser() if path else own[0] if own else Path()
    if not folder.exists():
        raise ToolError(f"no such path: {folder}", "name a folder that the job uses")
    return (folder if folder.is_dir() else folder.parent).resolve()


@cache
def _kinds() -> list[dict[str, Any]]:
    return read_table(KNOWLEDGE / "storage.yaml")["kinds"]


def _kind(system: str) -> dict[str, Any]:
    return next(k for k in _kinds() if re.search(k["type"], system or "unknown"))


def _measured(said: list[tuple[dict[str, Any], Line]]) -> Iterator[tuple[str, float, Line]]:
    """What was measured, how much of it a second, and the line that says so."""
    for fact, line in said:
        amount, spent = fact.get("bytes", fact.get("count")), fact.get("seconds")
        measure = str(fact.get("measure"))
        if measure not in MEASURED or not isinstance(amount, int) or not isinstance(spent, int | float):
            continue
        if amount > 0 and spent > 0:
            yield measure, amount / spent, line


def _slow(
    ws: Workspace, done: Completed, kind: dict[str, Any], measure: str, rate: float, line: Line
) -> Evidence | None:
    least = float(kind["least"][measure])
    if rate >= least:
        return None
    what = f"{measure} {rate / least:.0%} of the least that is ordinary for {kind['kind']} storage"
    return ws.answered(done, "storage.slow", what, line.text)


def _words(measure: str, rate: float) -> str:
    return f"{measure} {rate / 1e6:.0f} MB/s" if measure in ("write", "read") else f"{rate:.0f} {measure}/s"


# ----------
# The fabric between nodes: ports of InfiniBand and RoCE cards, their state, rate and error counters.

LINKS_EACH = 16
HARMLESS = {"port", "errors_counted"}  # counts since the port came up prove nothing by themselves


@tool(
    emits=("ib.port", "ib.down", "ib.rate_low", "ib.width_low", "ib.errors_rising"),
    live=True,
)
def ib_status(
    ws: Workspace,
    seconds: Annotated[float, Field(description="between two readings of the error counters", ge=0, le=60)] = 1.0,
) -> ToolResult:
    """State, rate and error counters of InfiniBand and RoCE ports; counters are compared over two readings.

    Use when NCCL reports a transport error, a link is suspected or nodes communicate slowly. Looks at this machine's
    ports where the run is its own; reads recorded ibstat, ibv_devinfo and counter files too.
    """
    seen: list[Evidence] = []
    for file in anchored(ws).files("host"):
        for key, value, line in few(facts(ports(excerpt(ws, file, "host"))), LINKS_EACH, lambda fact: fact[0]):
            seen.append(ws.cite(file, line, f"ib.{key}", value))
    why = "no ibstat, ibv_devinfo or port counters among the run's files"
    if ws.live:
        argv = [sys.executable, "-I", "-m", "traindoctor.agent.jobs.probes.ib", f"{seconds:g}"]
        done = ws.shell(argv, seconds + 10)
        found = ports(output_lines(done.stdout))
        told = few(facts(found), LINKS_EACH, lambda fact: fact[0])
        seen += [ws.answered(done, f"ib.{k}", v, line.text) for k, v, line in told]
        if done.code != 0:
            why = f"the ports could not be read: {done.stderr.strip()[-160:] or 'no answer'}"
            return failed(why) if not seen else ToolResult("failed", why, ib_status.declared(seen), why)
        why = "this machine has no InfiniBand or RoCE port" if not found else why
    if not seen:
        return not_applicable(why)
    text = listed(seen)
    faults = [e for e in seen if e.key.split(".")[1] not in HARMLESS]
    if not faults:
        up = sum(e.key == "ib.port" for e in seen)
        return clean(f"{up} port(s) up, no error counter rises", ib_status.declared(seen), text)
    return finding(f"{len(faults)} fault(s) of ports: {faults[0].value}", ib_status.declared(seen), text)
