"""The state of GPUs: where it is read, and what it means, whichever way it was read."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..run.files import Line, RunFile
from ..run.lines import fact_of, output_lines
from ..scan.anchors import anchored, excerpt, patterns
from . import smi
from .smi import Reading

if TYPE_CHECKING:
    from ...core.shell import Completed
    from ..run.workspace import Workspace

HOT = 85  # degrees Celsius: the throttle point of data-centre cards is near
BUSY = 50  # percent of use from which a low clock or link is no economy of an idle card
LOW_CLOCK, LOW_POWER = 0.6, 0.9  # shares of what the card could have
CLOCKS = 6  # low clocks that are told
HELD = 1 << 30  # bytes in use without an owner in sight
PROCESS_LIST = re.compile(r"^\|\s+(?:Processes:|GPU .{0,20}PID\s+Type)|^\|\s+No running processes found")
MIB = 1 << 20
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
NO_REASON = ("gpu_idle", "active", "supported")
# fields that are a fact as they are said, unless that is nothing; and those that are one in a certain state
SAID = {
    "name": "name", "process": "process", "process.foreign": "other_process", "process.ended": "ended_process",
    "gpu_recovery_action": "recovery_action", "fabric.status": "fabric",
}  # fmt: skip
NAMED = {"gpu_recovery_action", "fabric.status"}
STATES = {
    "remapped_rows.pending": ("remap_pending", "active"), "retired_pages.pending": ("remap_pending", "active"),
    "remapped_rows.failure": ("remap_failure", "active"), "mig.mode.current": ("mig", "Enabled"),
    "persistence_mode": ("persistence_off", "Disabled"),
}  # fmt: skip
NOTHING = {"none", "n/a", "[n/a]", "success", ""}
NVLINK_DOWN = re.compile(r"^\s*Link \d+: <?inactive>?|^\s*Link \d+:.{0,20}\bdown\b", re.IGNORECASE)
FAULTS = {
    "ecc_uncorrectable", "remap_pending", "remap_failure", "throttle", "clock_low", "nvlink_errors", "pcie_width_low",
    "pcie_gen_low", "missing", "recovery_action", "driver_mismatch", "driver_missing", "fabric", "hot", "error",
    "busy_no_progress", "no_answer", "nvlink_inactive", "ended_process", "other_process", "memory_unowned",
}  # fmt: skip


class Fact(NamedTuple):
    """A key below `gpu.`, a value, and the line it was read from."""

    key: str
    value: Any
    line: Line


@dataclass(slots=True)
class Answer:
    """What one source says of the GPUs: readings, and facts that are none, such as a driver that refuses.

    `source` is the capture or the command. `lines` are all of its lines, for forms that are no readings. `why` says in
    one line why it gives no answer, or not all of it. `last`: what comes after it in `SOURCES` could say no more.
    `cards` counts NVIDIA devices on the PCI bus, None where nobody counted.
    """

    source: RunFile | Completed
    readings: list[Reading] = field(default_factory=list)
    trouble: list[Fact] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    why: str = ""
    last: bool = False
    cards: int | None = None


def facts(answer: Answer) -> Iterator[Fact]:
    """All that a source says.

    Sizes are bytes, temperatures degrees Celsius, clocks MHz, link widths lanes, use percent.
    """
    readings, lines = answer.readings, answer.lines
    yield from answer.trouble
    shown: Counter[tuple[str, str]] = Counter()
    for fact in _single(readings):
        same, all_ = (fact.key, str(fact.value)), (fact.key, "")
        shown[same] += 1
        if shown[same] <= 2 and shown[all_] < 12:
            shown[all_] += 1
            yield fact
    yield from _left_over(readings, lines)
    yield from _nvlink(readings, lines)
    yield from _health(readings)
    yield from _load(readings, lines)


def _single(readings: list[Reading]) -> Iterator[Fact]:
    """What each reading says by itself or beside another one of its card and sample."""
    cards: dict[int, dict[str, Reading]] = {}
    for card in _samples(readings):
        for r in card.values():
            found = _fault(r) or _beside(r, card)
            if found:
                yield Fact(*found, r.line)
        cards[next(iter(card.values())).gpu] = card
    for card in cards.values():
        yield from _unowned(card)


def _samples(readings: list[Reading]) -> Iterator[dict[str, Reading]]:
    """Readings of one card at one time: a field that comes again begins another sample. Processes may be several."""
    open_: dict[int, dict[str, Reading]] = {}
    for r in readings:
        card = open_.setdefault(r.gpu, {})
        if r.field in card and not r.field.startswith("process"):
            yield card
            card = open_[r.gpu] = {}
        name = r.field
        while name in card:
            name += " "  # a further process of this sample
        card[name] = r
    yield from (card for card in open_.values() if card)


def _fault(r: Reading) -> tuple[str, Any] | None:
    n, name, said = r.number, r.field, r.text.strip()
    if name.startswith("ecc.errors.uncorrected") and n:
        return ("ecc_lifetime" if ".aggregate." in name else "ecc_uncorrectable"), int(n)
    if name.startswith("clocks_event_reasons.") and r.active:
        return _reason(name.split(".")[1])
    if name == "temperature.gpu" and n and n >= HOT:
        return "hot", int(n)
    if name == "remapped_rows.uncorrectable" and n:
        return "rows_remapped", int(n)
    if name == "memory.total" and n:
        return "memory_total", int(n * MIB)
    if name in SAID:
        return None if name in NAMED and said.lower() in NOTHING else (SAID[name], said)
    key, when = STATES.get(name, ("", ""))
    return (key, True) if key and (r.active if when == "active" else said == when) else None


def _reason(reason: str) -> tuple[str, Any] | None:
    if reason in SLOWDOWNS:
        return "throttle", reason
    if "power_cap" in reason:
        return "power_cap", True
    return None if reason in NO_REASON else ("clock_reason", reason)


def _beside(r: Reading, card: dict[str, Reading]) -> tuple[str, Any] | None:
    """A value that is low beside the one of the same card that it could have."""

    def number(field: str) -> float:
        return (card[field].number or 0) if field in card else 0

    n = r.number or 0
    if r.field == "pcie.link.width.current" and 0 < n < number("pcie.link.width.max"):
        return "pcie_width_low", int(n)
    busy = "utilization.gpu" in card and number("utilization.gpu") >= BUSY  # an idle link saves power
    if r.field == "pcie.link.gen.current" and busy and 0 < n < number("pcie.link.gen.max"):
        return "pcie_gen_low", int(n)
    if r.field == "enforced.power.limit" and 0 < n < LOW_POWER * number("power.default_limit"):
        return "power_limit_low", round(n / number("power.default_limit"), 3)
    return None


def _unowned(card: dict[str, Reading]) -> Iterator[Fact]:
    """Memory in use, and no process in sight: left by one that ended, or held from another container."""
    used = card.get("memory.used")
    if used is None or "memory.reserved" not in card or "process" in card or card[used.field].gpu < 0:
        return
    held = int((used.number or 0) * MIB)
    if held >= HELD:
        yield Fact("memory_unowned", held, used.line)


def _left_over(readings: list[Reading], lines: list[Line]) -> Iterator[Fact]:
    """The plain table, its list of processes empty: memory that an idle card holds belongs to none of them.

    Within a container the list is always empty; there the card of a run that goes on is busy.
    """
    listed = any(r.field.startswith("process") for r in readings)
    if listed or not any(PROCESS_LIST.match(line.text) for line in lines):
        return
    table = [r for r in readings if r.gpu < 0]
    use = {r.line.number: r.number for r in table if r.field == "utilization.gpu"}
    for r in [r for r in table if r.field == "memory.used"][:4]:
        held = int((r.number or 0) * MIB)
        if held >= HELD and use.get(r.line.number) == 0:
            yield Fact("memory_unowned", held, r.line)


def _nvlink(readings: list[Reading], lines: list[Line]) -> Iterator[Fact]:
    shown = 0
    for line in lines:
        m = smi.NVLINK.search(line.text)
        if ((m and int(m["count"]) > 0) or NVLINK_DOWN.search(line.text)) and shown < 6:
            shown += 1
            yield Fact("nvlink_errors", f"{m['kind']} {m['count']}" if m else line.text.strip(), line)
    links = [r for r in readings if r.field.startswith("nvlink.")]
    for r in [r for r in links if not r.field.endswith(".state") and r.number][:6]:
        yield Fact("nvlink_errors", f"{r.field.rpartition('.')[2]} {r.text}", r.line)
    up = {r.gpu for r in links if r.text == "Active"}  # with none up there is no bridge at all
    for r in [r for r in links if r.text == "Inactive" and r.gpu in up][:6]:
        yield Fact("nvlink_inactive", f"GPU {r.gpu} link {r.field.split('.')[1]}", r.line)


def _health(readings: list[Reading]) -> Iterator[Fact]:
    """Clean health is said only where errors were looked at and all of them are zero."""
    looked = [r for r in readings if r.field.startswith(("ecc.errors.uncorrected", "remapped_rows"))]
    looked = [r for r in looked if r.field != "remapped_rows.correctable"]
    names = [r for r in readings if r.field == "name"]
    if names:
        yield Fact("count", len({r.gpu for r in names}), names[0].line)
    for r in [r for r in readings if r.field == "count" and r.number == 0]:
        yield Fact("count", 0, r.line)
    bad = any(r.number or r.active for r in looked)
    if looked and not bad and any(r.number == 0 or r.text.strip().lower() == "no" for r in looked):
        yield Fact("health_clean", True, looked[0].line)


def _load(readings: list[Reading], lines: list[Line]) -> Iterator[Fact]:
    """Use, memory and power over the capture; full use at low, flat power makes no progress."""
    by_field: dict[str, list[Reading]] = {}
    for r in readings:
        if r.number is not None:
            by_field.setdefault(r.field, []).append(r)
    use = by_field.get("utilization.gpu", [])
    if use:
        yield Fact("utilization", round(sum(r.number or 0 for r in use) / len(use), 1), use[0].line)
    if memory := by_field.get("memory.used"):
        most = max(memory, key=lambda r: r.number or 0)
        yield Fact("memory_used", int((most.number or 0) * MIB), most.line)
    if hot := by_field.get("temperature.gpu"):
        top = max(hot, key=lambda r: r.number or 0)
        yield Fact("temperature", int(top.number or 0), top.line)
    yield from _clocks(readings)
    power = by_field.get("power.draw", [])
    if len(use) >= 2 and len(power) >= 2 and all((r.number or 0) >= 98 for r in use):
        yield from _flat([(r.line, r.number or 0) for r in power])
    polled = smi.polls(lines) if not use else []
    if polled:
        yield Fact("utilization", float(max(polled[0][1])), polled[0][0])
    if len(polled) >= 2 and all(min(p) >= 98 for _, p, _, _ in polled):
        yield from _flat([(line, w) for line, _, watts, _ in polled for w in watts])


def _clocks(readings: list[Reading]) -> Iterator[Fact]:
    """Clocks far below what the card could have while it is busy, at most `CLOCKS` of them."""
    shown = 0
    for card in _samples(readings):
        limit, use = card.get("clocks.max.sm"), card.get("utilization.gpu")
        now = card.get("clocks.current.sm") or card.get("clocks.sm")
        if not (limit and limit.number and now and now.number) or shown == CLOCKS:
            continue
        busy = (use.number or 0) >= BUSY if use else True
        if busy and now.number < LOW_CLOCK * limit.number:
            shown += 1
            yield Fact("clock_low", int(now.number), now.line)


def _flat(power: list[tuple[Line, float]]) -> Iterator[Fact]:
    """Spinning kernels draw nearly the same power everywhere; real steps swing."""
    watts = [w for _, w in power]
    if min(watts) > 0 and max(watts) / min(watts) <= 1.35:
        for line in list(dict.fromkeys(line for line, _ in power))[:3]:
            yield Fact("busy_no_progress", f"{min(watts):.0f} to {max(watts):.0f} W at full utilization", line)


# ----------
# Where it is read: the captures of a run, and this machine, which is asked until a source answers.

SECONDS, SMI_SECONDS = 10.0, 15.0
LIBRARY_MISSING, NOT_LOADED, MISMATCH, NO_PERMISSION = 12, 9, 18, 4  # NVML's own error numbers
QUERIED = (
    "index", "name", "pci.bus_id", "memory.total", "memory.used", "memory.reserved", "utilization.gpu",
    "temperature.gpu", "power.draw", "enforced.power.limit", "power.default_limit", "clocks.current.sm",
    "clocks.max.sm", "clocks_event_reasons.hw_slowdown", "clocks_event_reasons.hw_thermal_slowdown",
    "clocks_event_reasons.hw_power_brake_slowdown", "clocks_event_reasons.sw_thermal_slowdown",
    "ecc.errors.uncorrected.volatile.total", "ecc.errors.uncorrected.aggregate.total", "retired_pages.pending",
    "pcie.link.width.current", "pcie.link.width.max", "pcie.link.gen.current", "pcie.link.gen.max", "mig.mode.current",
    "persistence_mode", "gpu_recovery_action",
)  # fmt: skip
TRIES = 8  # fields an older driver may not know, one refusal each
UNKNOWN = re.compile(r'Field "(?P<field>[\w.]+)" is not a valid field')


def captured(ws: Workspace) -> Iterator[Answer]:
    """What the captures among the run's files say; a refusal is told three times of all of them."""
    found = anchored(ws)
    shown: Counter[str] = Counter()
    for file in found.files("gpu"):
        answer = Answer(file)
        for hit in [h for h in found.of("gpu") if h.file is file]:
            for fact in _refused(hit.line, hit.text):
                shown[fact.key] += 1
                if shown[fact.key] <= 3:
                    answer.trouble.append(fact)
        answer.lines = excerpt(ws, file, "gpu")
        answer.readings, answer.why = smi.read(answer.lines)
        if answer.why:
            ws.tell(file.name, answer.why)
        yield answer


def asked(ws: Workspace) -> Iterator[Answer]:
    """What this machine says of its cards: each source in turn, until one answers or none after it could."""
    answers: list[Answer] = []
    for ask in SOURCES:
        answers.append(ask(ws, answers))
        yield answers[-1]
        if answers[-1].last:
            return


def _refused(line: Line, text: str) -> Iterator[Fact]:
    """What nvidia-smi says instead of an answer."""
    for key, pattern in patterns("gpu_refusals"):
        if m := pattern.search(text):
            yield Fact(key, m[0][:160], line)


def ask_nvml(ws: Workspace, _before: Sequence[Answer] = ()) -> Answer:
    """NVML's answer, asked once for a workspace, by a child with a time limit: a sick card blocks its caller."""
    argv = [sys.executable, "-I", "-m", "traindoctor.agent.jobs.probes.nvml", *map(str, ws.pids)]
    return ws.memo("nvml", lambda: _probed(ws.shell(argv, SECONDS)))


def _probed(done: Completed) -> Answer:
    answer = Answer(done)
    asking: tuple[dict[str, Any], Line] | None = None
    for line in output_lines(done.stdout):
        fact = fact_of(line)
        if "asking" in fact:
            asking = (fact, line)
        elif "field" in fact:
            try:
                _take(answer, fact, line)
            except (TypeError, ValueError):
                continue  # a recording that was cut or changed
    if done.code is None and asking is not None:
        gpu = asking[0].get("gpu")
        hung = f"{asking[0]['asking']}" + ("" if gpu is None else f" of GPU {gpu}")
        answer.trouble.append(Fact("no_answer", hung, asking[1]))
        answer.why = f"NVML did not answer within {SECONDS:g} s (asked for {hung})"
        answer.last = True  # what hangs NVML hangs nvidia-smi too
    elif not answer.last and not answer.why:
        answer.why = (done.stderr.strip().splitlines() or ["the child that asks NVML printed nothing"])[-1][:200]
    return answer


def _take(answer: Answer, fact: dict[str, Any], line: Line) -> None:
    name, value = str(fact["field"]), fact.get("value")
    if name == "pci_cards":
        answer.cards = int(value or 0)
    elif name == "init_error":
        answer.why = f"NVML: {value}"
        if fact.get("code") == MISMATCH:
            answer.trouble.append(Fact("driver_mismatch", str(value), line))
        elif fact.get("code") in (NOT_LOADED, LIBRARY_MISSING) and answer.cards:
            answer.trouble.append(Fact("driver_missing", f"{answer.cards} card(s) on the bus; NVML: {value}", line))
        elif fact.get("code") not in (NOT_LOADED, LIBRARY_MISSING, NO_PERMISSION):
            answer.trouble.append(Fact("missing", str(value), line))
    elif name == "no_binding":
        answer.why = str(value)
    elif name == "error":
        key = "error" if "asked" in fact else "missing"  # no further question to a card that is lost
        answer.trouble.append(Fact(key, f"GPU {fact.get('gpu')}: {value}", line))
    else:
        answer.readings.append(Reading(int(fact.get("gpu", -1)), name, str(value), line))
        answer.last = answer.last or "gpu" in fact or name == "count"
        if name == "count" and answer.cards and answer.cards > int(value or 0):
            answer.trouble.append(Fact("hidden", answer.cards - int(value or 0), line))


def _ask_xml(ws: Workspace, before: Sequence[Answer]) -> Answer:
    """`nvidia-smi -q -x`, or what it says instead."""
    done = ws.shell(["nvidia-smi", "-q", "-x"], SMI_SECONDS)
    said = (done.stdout + done.stderr).strip()
    answer = Answer(done, why="nvidia-smi: " + (said.partition("\n")[0] or "nothing"), last=done.code is None)
    if done.code is not None:
        lines = list(output_lines(done.stdout))
        if smi.is_xml(lines):
            answer.readings, answer.why = smi.read(lines)
        if not answer.readings:
            answer.trouble += [fact for line in output_lines(said) for fact in _refused(line, line.text)]
        answer.last = bool(answer.readings or answer.trouble)
    elif said.endswith("not recorded"):
        answer.why = "what the GPUs of that machine say was not recorded"
    elif said.endswith("not installed"):
        cards = f"{before[0].cards or 'no'} card{'(s)' if before[0].cards else ''} on the PCI bus"
        why = f"{before[0].why}; nvidia-smi: {said.rpartition(': ')[2]}; {cards}"
        answer.why = f"no NVIDIA driver on this machine ({why})"
    else:
        answer.why = done.stderr.partition("\n")[0]
        answer.trouble.append(Fact("no_answer", "nvidia-smi", Line(0, 0, answer.why.encode())))
    return answer


def _ask_csv(ws: Workspace, _before: Sequence[Answer]) -> Answer:
    """`nvidia-smi --query-gpu`, for drivers whose XML cannot be read; without the fields that they do not know."""
    fields: list[str] = list(QUERIED)
    tries = 0
    while True:
        tries += 1
        done = ws.shell(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], SMI_SECONDS)
        if done.code == 0:
            header = next(output_lines(f"--query-gpu={','.join(fields)}"))
            return Answer(done, list(smi.readings([header, *output_lines(done.stdout)])))
        unknown = UNKNOWN.search(done.stdout + done.stderr)
        if not unknown or unknown["field"] not in fields or tries == TRIES:
            return Answer(done)
        fields.remove(unknown["field"])
        fields += [f"clocks_throttle_reasons.{n}" for p, _, n in [unknown["field"].partition(".")] if "event" in p]


# in the order in which they are asked
SOURCES: tuple[Callable[[Workspace, Sequence[Answer]], Answer], ...] = (ask_nvml, _ask_xml, _ask_csv)
