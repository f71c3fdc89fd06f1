"""GPU health and load: of this machine by NVML or nvidia-smi, of a run by the captures among its files."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...core.types import Evidence, ToolResult
from ...reading.machine import kernel_log as kl
from ...reading.machine import smi
from ...reading.machine.gpu_state import FAULTS, Answer, asked, captured, facts
from ...reading.machine.kernel_log import KernelLog, kernel_log
from ...reading.run.files import Line, RunFile, holds, lines
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import Hit, anchored, around
from ...reading.scan.harvest import is_hearsay
from ..tool import clean, failed, few, finding, listed, not_applicable, tool

# what a card says now tells nothing of a run that is over: keys of their own, unless its processes are named
PASSING = {
    "health_clean": "healthy_now", "utilization": "utilization_now", "memory_used": "memory_used_now",
    "temperature": "temperature_now",
}  # fmt: skip


@tool(
    emits=(
        "gpu.name", "gpu.count", "gpu.ecc_uncorrectable", "gpu.ecc_lifetime", "gpu.remap_pending", "gpu.remap_failure",
        "gpu.rows_remapped", "gpu.throttle", "gpu.clock_reason", "gpu.power_cap", "gpu.power_limit_low",
        "gpu.clock_low", "gpu.temperature", "gpu.hot", "gpu.recovery_action", "gpu.fabric", "gpu.process",
        "gpu.other_process", "gpu.ended_process", "gpu.memory_unowned", "gpu.pcie_width_low", "gpu.pcie_gen_low",
        "gpu.nvlink_errors", "gpu.nvlink_inactive", "gpu.health_clean", "gpu.utilization", "gpu.memory_used",
        "gpu.busy_no_progress", "gpu.missing", "gpu.no_answer", "gpu.driver_mismatch", "gpu.driver_missing",
        "gpu.healthy_now", "gpu.hidden",
    ),
    recall=True,
    live=True,
)  # fmt: skip
def gpu_status(ws: Workspace) -> ToolResult:
    """Health and load of GPUs: errors, remapped rows, throttling, clocks, links, memory and who holds it.

    Use when hardware is suspected, when a card is missing or slow, or to see who else holds GPU memory. Asks NVML
    (or nvidia-smi) where the run is this machine's own; reads recorded nvidia-smi output (CSV, XML, -q, the table,
    NVLink counters) otherwise. Says also when health is clean, and when the driver does not answer.
    """
    seen = [e for answer in captured(ws) for e in _cited(ws, answer)]
    why = ""
    for answer in asked(ws) if ws.live else ():
        seen += _cited(ws, answer)
        why = answer.why or ("" if answer.readings else why)
    if not seen:
        nothing = "no capture of nvidia-smi among the run's files"
        if not ws.live:
            return not_applicable(nothing)
        return not_applicable(why) if why.startswith("no NVIDIA") else failed(why or nothing)
    text = listed(seen[:80])
    faults = [e for e in seen if e.key.split(".")[1] in FAULTS]
    if not faults:
        note = f"; this machine: {why}" if why else ""
        return clean(f"{_cards(seen)} show no fault{note}", gpu_status.declared(seen), text)
    kinds = list(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in faults))
    return finding(", ".join(kinds) + (f" ({why})" if why else ""), gpu_status.declared(seen), text)


def _cards(evidence: list[Evidence]) -> str:
    """`2 GPUs`, where they were counted."""
    counts = [e.value for e in evidence if e.key == "gpu.count" and isinstance(e.value, int)]
    return f"{max(counts)} GPU{'' if max(counts) == 1 else 's'}" if counts else "the readings of the GPUs"


def _cited(ws: Workspace, answer: Answer) -> Iterator[Evidence]:
    for key, value, line in facts(answer):
        if isinstance(answer.source, RunFile):
            yield ws.cite(answer.source, line, f"gpu.{key}", value)
        else:
            yield ws.answered(answer.source, f"gpu.{key if ws.pids else PASSING.get(key, key)}", value, line.text)


# ----------
# Power of the machine: what its cards may draw beside what its supplies carry, and starts without a shutdown.

LARGEST, LARGEST_LOG = 8 << 20, 64 << 20  # bytes of a file that may hold power limits, and of a log that is searched
SUPPLIES, STARTS = b"Max Power Capacity", (b"Linux version ", b"Boot ", b"Reboot", b"- crash ")
SHARE = 0.8  # of a supply; processors, drives, fans and swings above the limit take the rest
BEFORE = 30  # lines before a start in which an orderly shutdown, or another reason for the end, would stand
OF_PROGRAMS = 3  # of those lines; a log of the kernel alone does not show an orderly shutdown
SHOWN = 6
LIMITS = ("enforced.power.limit", "power.limit")
SUPPLY = re.compile(r"^\s*Max Power Capacity:\s*(\d{2,5}) W\s*$")
START = re.compile(
    r"^-+ ?(?:Boot [0-9a-f]{8,32}|Reboot) ?-+$|"
    r"\bkernel: (?:\[ *0\.0+\] )?Linux version \d|^\[ +0\.0+\] Linux version \d"
)
REASON = re.compile(
    r"(?i)shut(?:ting)? ?down|power(?:ing)?[- ]?(?:off|down)|powerkey|reboot|\bhalt|Journal stopped|Stopp(?:ed|ing) |"
    r"signal SIGTERM|panic|\bOops\b|lockup|out of memory|oom-kill|Call Trace|critical temperature|machine check"
)
SESSION_LOST = re.compile(r"^\S{1,32} +\S.{8,90} - crash +\(\d[\d+:]{2,12}\) *$")  # of `last`: no shutdown after it
PROGRAM = re.compile(
    r"^(?:[A-Z][a-z]{2} +\d{1,2} [\d:]{8}(?:\.\d+)?|\d{4}-\d\d-\d\d[T ]\S{8,40}) \S{1,80} "
    r"(?!kernel\b)[\w./@()-]{1,80}(?:\[\d+\])?: "
)


@tool(emits=("host.power_short", "host.cut_off"), recall=True)
def power_budget(ws: Workspace) -> ToolResult:
    """Compare what the cards may draw with what the power supplies carry, and find starts without a shutdown.

    Use when a machine goes off or reboots under load and no log says why. Reads dmidecode's supplies, the power limits
    that nvidia-smi prints, sessions that `last` ends with a crash, and where a journal begins anew although nothing
    before it ended.
    """
    every = [f for f in ws.by_role("log", "capture", "environment", "other") if not f.good]
    captures = [f for f in every if f.size <= LARGEST_LOG or f.role in ("capture", "other")]
    unread = len(every) - len(captures)
    rest = f"; {unread} log(s) over {LARGEST_LOG >> 20} MiB not searched" if unread else ""
    told_of = [f for f in captures if holds(f.path, (SUPPLIES, *STARTS))]
    supplies = [s for f in told_of for s in _supplies(f)]
    limits = _limits([f for f in captures if f.size <= LARGEST]) if supplies else {}
    evidence = [*_short(ws, supplies, limits), *(e for f in told_of for e in _cut_off(ws, f))]
    if evidence:
        short = next((e for e in evidence if e.key == "host.power_short"), None)
        cut = sum(e.key == "host.cut_off" for e in evidence)
        told = [f"the cards may draw {short.value} of what the supply carries"] if short else []
        told += [f"{cut} start(s) of the machine without a shutdown before"] if cut else []
        return finding("; ".join(told) + rest, evidence)
    if not supplies:
        return not_applicable(f"no power supply and no start of the machine in the run's files{rest}")
    return clean(("the cards' limits fit the supply" if limits else "no power limit of a card is known") + rest)


def _supplies(file: RunFile) -> Iterator[tuple[int, RunFile, Line]]:
    for line in lines(file.path):
        if SUPPLIES in line.data and (m := SUPPLY.match(line.text)):
            yield int(m[1]), file, line


def _limits(files: list[RunFile]) -> dict[int, tuple[float, RunFile, Line]]:
    """The highest limit of each card."""
    highest: dict[int, tuple[float, RunFile, Line]] = {}
    for file in files:
        for r in smi.readings(lines(file.path)):
            watts = r.number if r.field in LIMITS else None
            if watts and watts > highest.get(r.gpu, (0.0,))[0]:
                highest[r.gpu] = (watts, file, r.line)
    return highest


def _short(
    ws: Workspace, supplies: list[tuple[int, RunFile, Line]], limits: dict[int, tuple[float, RunFile, Line]]
) -> Iterator[Evidence]:
    carried = sum(watts for watts, _, _ in supplies)
    drawn = sum(watts for watts, _, _ in limits.values())
    if not carried or drawn < SHARE * carried:
        return
    places = [(file, line) for _, file, line in [*supplies, *limits.values()]]
    for file, line in places[:SHOWN]:
        yield ws.cite(file, line, "host.power_short", round(drawn / carried, 2))


def _cut_off(ws: Workspace, file: RunFile) -> Iterator[Evidence]:
    """Starts with ordinary lines right before them: the machine went off without being told to."""
    before: deque[str] = deque(maxlen=BEFORE)
    found = 0
    for line in lines(file.path):
        if b"- crash " in line.data and SESSION_LOST.match(line.text[:200]):
            found += 1
            if found <= SHOWN:
                yield ws.cite(file, line, "host.cut_off", line.text.strip()[:120])
        elif (b"oot" in line.data or b"Linux version" in line.data) and START.search(line.text[:400]):
            told = sum(PROGRAM.match(text) is not None for text in before)
            if told >= OF_PROGRAMS and found < SHOWN and not any(REASON.search(text) for text in before):
                found += 1
                yield ws.cite(file, line, "host.cut_off", line.text.strip()[:120])
            before.clear()
        elif line.text.strip():
            before.append(line.text[:400])


# ----------
# NVIDIA's kernel messages: Xid codes with what they mean, and cards that left the bus without a code.

EACH = 4  # lines shown of one code
ABOVE = 3  # lines above a verdict in which its card may stand
ABOUT_GPUS = re.compile(r"NVRM|nvidia|xid", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A kernel line about a GPU, in a file or in what the kernel says now.

    `cite` makes evidence of a line of the same source; `above` gives the lines before it, the nearest first.
    """

    line: Line
    text: str
    cite: Callable[[Line, str, Any], Evidence]
    above: Callable[[], list[Line]]


@tool(
    emits=("gpu.xid", "gpu.xid_culprit", "gpu.xid_blame", "gpu.fell_off_bus", "gpu.xid_nonfatal", "gpu.sxid",
           "gpu.sxid_fatal", "gpu.none_found", "gpu.probe_failed", "gpu.gsp"),
    recall=True,
    live=True,
)  # fmt: skip
def xid_errors(ws: Workspace) -> ToolResult:
    """List NVIDIA Xid errors from the kernel log, with meaning, immediate action and what to look into afterwards.

    Use when a rank vanished, a GPU is missing, CUDA calls fail with unspecified errors, or a node is suspected.
    Reads kernel logs among the run's files, and this machine's own (journal, dmesg) where the run is its own: there
    only what is near the run's time. Finds cards that fell off the bus also where no Xid was printed, names the code
    that came first, and says when a kernel log was read and holds none.
    """
    hits = [h for h in anchored(ws).of("xid") if not is_hearsay(h.text, lambda h=h: kl.begin(h.text))]
    now = kernel_log(ws) if ws.live else KernelLog()
    seen = [*(_recorded(ws, hit) for hit in hits), *_living(ws, now)]
    codes = [(s, x) for s in seen if (x := kl.xid_of(s.text)) and not kl.SEARCHED.search(s.text)]
    told = [*_codes(codes), *_off_the_bus(seen), *_other(seen)]
    read = _kernel_logs(hits) + ([" ".join(now.done.argv)] if now.done else [])
    if not codes and read:
        told += _none(seen, read)
    if any(e.key not in {"gpu.xid", "gpu.none_found"} or (e.kind != "absent" and e.key == "gpu.xid") for e in told):
        return finding(_summary(told), xid_errors.declared(told), listed(told))
    if told:
        older = f" ({now.older} older lines passed over)" if now.older else ""
        return clean(f"kernel log read, no Xid{older}", told)
    if now.why:
        return failed(f"the kernel log could not be read: {now.why}")
    return not_applicable("no kernel log among the run's files")


def _recorded(ws: Workspace, hit: Hit) -> Sighting:
    def cite(line: Line, key: str, value: Any) -> Evidence:
        host = {"host": found} if (found := _host(hit)) else {}
        return ws.cite(hit.file, line, key, value, rank=hit.rank, **host)

    return Sighting(hit.line, hit.text, cite, lambda: around(ws, hit, before=600, after=0)[::-1][1 : ABOVE + 1])


def _living(ws: Workspace, log: KernelLog) -> Iterator[Sighting]:
    done = log.done
    if done is None:
        return
    for i, line in enumerate(log.lines):
        if ABOUT_GPUS.search(line.text):
            yield Sighting(
                line,
                line.text,
                lambda at, key, value: ws.answered(done, key, value, at.text),
                lambda i=i: log.lines[max(0, i - ABOVE) : i][::-1],
            )


def _codes(codes: list[tuple[Sighting, kl.Xid]]) -> Iterator[Evidence]:
    shown: Counter[int] = Counter()
    for s, x in codes:
        shown[x.code] += 1
        if shown[x.code] > EACH:
            continue
        yield s.cite(s.line, "gpu.xid", x.code)
        if x.nonfatal:
            yield s.cite(s.line, "gpu.xid_nonfatal", x.code)
        elif shown[x.code] == 1 and x.known:
            yield s.cite(s.line, "gpu.xid_action", f"{x.code} {x.known['name']}: {x.known['action']}")
        if m := kl.RECOVERY.search(s.text):
            yield s.cite(s.line, "gpu.xid_action", m[1].strip())
    first = kl.culprit([x for _, x in codes])
    if first:
        s = next(s for s, x in codes if x is first)
        yield s.cite(s.line, "gpu.xid_culprit", first.code)
        if first.known:
            yield s.cite(s.line, "gpu.xid_blame", first.known["blame"])
            yield s.cite(s.line, "gpu.xid_investigate", first.known["investigate"])


def _host(hit: Hit) -> str | None:
    """Journal lines carry the host between time and source: `Oct 18 08:02:11 node23 kernel: ...`."""
    words = hit.text.split(maxsplit=6)
    at = next((n for n, word in enumerate(words[:6]) if word.startswith("kernel")), 0)
    return words[at - 1] if at and re.search(r"\d:\d\d", words[at - 2 if at > 1 else 0]) else None


def _off_the_bus(seen: list[Sighting]) -> Iterator[Evidence]:
    """The one-line form, and the older one whose card stands in a line above the verdict."""
    for s in [s for s in seen if kl.OFF_THE_BUS.search(s.text)][:EACH]:
        card = kl.CARD.search(s.text) or kl.XID.search(s.text)
        line = s.line
        for above in s.above() if card is None else ():
            if card := kl.CARD.search(above.text):
                line = above
                break
        pci = next((g for g in card.groups()[:2] if g), "").strip(":.") if card else ""
        yield s.cite(s.line, "gpu.fell_off_bus", pci or True)
        if line is not s.line:
            yield s.cite(line, "gpu.fell_off_bus", pci or True)


def _other(seen: list[Sighting]) -> Iterator[Evidence]:
    said = ((key, value, s) for s in seen for key, value in _states(s.text))
    for key, value, s in few(said, EACH, lambda x: x[0]):
        yield s.cite(s.line, key, value)


def _states(text: str) -> Iterator[tuple[str, Any]]:
    if m := kl.SXID.search(text):
        yield "gpu.sxid", int(m["code"])
        if re.match(r",?\s*fatal\b", text[m.end() :], re.IGNORECASE):
            yield "gpu.sxid_fatal", int(m["code"])
    if "probe routine failed" in text or ("probe of" in text and "failed" in text):
        yield "gpu.probe_failed", True
    if "NVRM" in text and (("GSP" in text and "imeout" in text) or "RmInitAdapter failed" in text):
        yield "gpu.gsp", True


def _kernel_logs(hits: list[Hit]) -> list[str]:
    return list(dict.fromkeys(h.file.name for h in hits if kl.KERNEL.search(h.text) or kl.SEARCHED.search(h.text)))


def _none(seen: list[Sighting], read: list[str]) -> Iterator[Evidence]:
    yield Evidence(key="gpu.xid", value=None, kind="absent", searched=read, text="no Xid in the kernel log")
    for s in seen:
        if kl.SEARCHED.search(s.text):
            yield s.cite(s.line, "gpu.none_found", True)
            return


def _summary(evidence: list[Evidence]) -> str:
    by_key = {e.key: e for e in reversed(evidence)}
    if e := by_key.get("gpu.fell_off_bus"):
        return f"GPU {e.value if e.value is not True else ''} fell off the bus"
    if e := by_key.get("gpu.xid_action"):
        return f"Xid {e.value}"
    return f"{len(evidence)} kernel line(s) about the GPUs"
