"""What readings of GPUs mean: faults, load and who holds memory, whichever way the readings were made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import smi
from .files import Line
from .smi import Reading

HOT = 85  # degrees Celsius: the throttle point of data-centre cards is near
BUSY = 50  # percent of use from which a low clock or link is no economy of an idle card
LOW_CLOCK, LOW_POWER = 0.6, 0.9  # shares of what the card could have
CLOCKS = 6  # low clocks that are told
HELD = 1 << 30  # bytes in use without an owner in sight
PROCESS_LIST = re.compile(r"^\|\s+(?:Processes:|GPU .{0,20}PID\s+Type)|^\|\s+No running processes found")
MIB = 1 << 20
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
NO_REASON = ("gpu_idle", "active", "supported")
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


def facts(readings: list[Reading], lines: list[Line]) -> Iterator[Fact]:
    """All that a capture or an answer says. `lines` are its lines, for forms that are no readings.

    Sizes are bytes, temperatures degrees Celsius, clocks MHz, link widths lanes, use percent.
    """
    shown: dict[tuple[str, str], int] = {}
    for fact in _single(readings):
        same, all_ = (fact.key, str(fact.value)), (fact.key, "")
        shown[same] = shown.get(same, 0) + 1
        if shown[same] <= 2 and shown.get(all_, 0) < 12:
            shown[all_] = shown.get(all_, 0) + 1
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
            found = _fault(r) or _mode(r) or _beside(r, card)
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
    n, field, said = r.number, r.field, r.text.strip()
    if field.startswith("ecc.errors.uncorrected") and n:
        return ("ecc_lifetime" if ".aggregate." in field else "ecc_uncorrectable"), int(n)
    if field in {"remapped_rows.pending", "retired_pages.pending"} and r.active:
        return "remap_pending", True
    if field == "remapped_rows.failure" and r.active:
        return "remap_failure", True
    if field == "remapped_rows.uncorrectable" and n:
        return "rows_remapped", int(n)
    if field.startswith("clocks_event_reasons.") and r.active:
        return _reason(field.split(".")[1])
    if field == "temperature.gpu" and n and n >= HOT:
        return "hot", int(n)
    if field == "gpu_recovery_action" and said.lower() not in NOTHING:
        return "recovery_action", said
    if field == "fabric.status" and said.lower() not in NOTHING:
        return "fabric", said
    return None


def _reason(reason: str) -> tuple[str, Any] | None:
    if reason in SLOWDOWNS:
        return "throttle", reason
    if "power_cap" in reason:
        return "power_cap", True
    return None if reason in NO_REASON else ("clock_reason", reason)


def _mode(r: Reading) -> tuple[str, Any] | None:
    """What the card is and how it is set up."""
    said = r.text.strip()
    if r.field == "name":
        return "name", said
    if r.field == "process":
        return "process", said
    if r.field in {"process.foreign", "process.ended"}:
        return ("other_process" if r.field.endswith("foreign") else "ended_process"), said
    if r.field == "mig.mode.current" and said == "Enabled":
        return "mig", True
    if r.field == "persistence_mode" and said == "Disabled":
        return "persistence_off", True
    if r.field == "memory.total" and r.number:
        return "memory_total", int(r.number * MIB)
    return None


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
