"""GPU health and load from captures of nvidia-smi among the run's files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..reading import smi
from ..reading.anchor_lines import Hit, anchored
from ..reading.anchor_windows import excerpt
from ..reading.files import RunFile
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

HOT = 85  # degrees Celsius: the throttle point of data-centre cards is near
BROKEN: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (key, re.compile(pattern, re.IGNORECASE))
    for key, pattern in (
        ("missing", r"unable to determine the device handle for gpu.{0,120}"),
        ("missing", r"no devices were found"),
        ("driver_mismatch", r"driver/library version mismatch"),
        ("driver_missing", r"couldn't communicate with the nvidia driver"),
    )
)
NVLINK_DOWN = re.compile(r"^\s*Link \d+: <?inactive>?|^\s*Link \d+:.{0,20}\bdown\b", re.IGNORECASE)
REASONS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
FAULTS = {
    "ecc_uncorrectable", "remap_pending", "remap_failure", "throttle", "clock_low", "nvlink_errors", "pcie_width_low",
    "missing", "recovery_action", "driver_mismatch", "driver_missing", "fabric", "hot", "busy_no_progress",
}  # fmt: skip


@tool(
    emits=(
        "gpu.name", "gpu.count", "gpu.ecc_uncorrectable", "gpu.remap_pending", "gpu.remap_failure", "gpu.throttle",
        "gpu.clock_reason", "gpu.power_cap", "gpu.clock_low", "gpu.temperature", "gpu.hot", "gpu.recovery_action",
        "gpu.fabric", "gpu.process", "gpu.pcie_width_low", "gpu.nvlink_errors", "gpu.health_clean", "gpu.utilization",
        "gpu.memory_used", "gpu.busy_no_progress", "gpu.missing", "gpu.driver_mismatch", "gpu.driver_missing",
    ),
    recall=True,
)  # fmt: skip
def gpu_status(ws: Workspace) -> ToolResult:
    """Read recorded nvidia-smi output: errors, remapped rows, throttling, temperature, clocks, memory, processes.

    Use when hardware is suspected, when a card is missing or slow, or to see who else holds GPU memory. Says
    also when the captured health is clean. Reads CSV queries, `nvidia-smi -q`, the plain table, NVLink counters.
    """
    found = anchored(ws)
    evidence = [*_broken(ws, found.of("gpu"))]
    for file in found.files("gpu"):
        evidence += _file(ws, file)
    if not evidence:
        return not_applicable("no capture of nvidia-smi among the run's files")
    text = "\n".join(f"{e.file}:{e.line} {e.key} = {e.value}" for e in evidence[:80])
    faults = [e for e in evidence if e.key.split(".")[1] in FAULTS]
    if not faults:
        return clean("the captured GPU state shows no fault", evidence, text)
    kinds = list(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in faults))
    return finding(", ".join(kinds), evidence, text)


def _broken(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    shown: Counter[str] = Counter()
    for hit in hits:
        for key, pattern in BROKEN:
            if m := pattern.search(hit.text):
                shown[key] += 1
                if shown[key] <= 3:
                    yield ws.cite(hit.file, hit.line, f"gpu.{key}", m[0][:160])


def _file(ws: Workspace, file: RunFile) -> Iterator[Evidence]:
    lines = excerpt(ws, file, "gpu")
    readings = list(smi.readings(lines))
    shown: Counter[tuple[str, str]] = Counter()
    for key, value, reading in _judge(readings):
        shown[key, str(value)] += 1
        if shown[key, str(value)] <= 2 and shown[key, ""] < 12:
            shown[key, ""] += 1
            yield ws.cite(file, reading.line, f"gpu.{key}", value)
    yield from _nvlink(ws, file, lines)
    yield from _health(ws, file, readings)
    yield from _load(ws, file, readings, lines)


def _judge(readings: list[smi.Reading]) -> Iterator[tuple[str, str | int | float | bool, smi.Reading]]:
    """What single readings say."""
    width: dict[int, float] = {}
    for r in readings:
        n, field = r.number, r.field
        if field == "name":
            yield "name", r.text, r
        elif field.startswith("ecc.errors.uncorrected") and n:
            yield "ecc_uncorrectable", int(n), r
        elif field in {"remapped_rows.pending", "retired_pages.pending"} and r.active:
            yield "remap_pending", True, r
        elif field == "remapped_rows.failure" and r.active:
            yield "remap_failure", True, r
        elif field.startswith("clocks_event_reasons.") and r.active:
            reason = field.split(".")[1]
            yield (
                ("throttle", reason, r)
                if reason in REASONS
                else ("power_cap", True, r)
                if "power_cap" in reason
                else ("clock_reason", reason, r)
            )
        elif field == "temperature.gpu" and n and n >= HOT:
            yield "hot", int(n), r
        elif field == "gpu_recovery_action" and r.text.strip().lower() not in {"none", "n/a", "[n/a]", ""}:
            yield "recovery_action", r.text.strip(), r
        elif field == "fabric.status" and r.text.strip().lower() not in {"success", "n/a", "[n/a]", ""}:
            yield "fabric", r.text.strip(), r
        elif field == "process":
            yield "process", r.text, r
        elif field == "pcie.link.width.max" and n:
            width[r.gpu] = n
        if field == "pcie.link.width.current" and n:
            top = width.get(r.gpu) or next(
                (x.number for x in readings if x.field == "pcie.link.width.max" and x.gpu == r.gpu), None
            )
            if top and n < top:
                yield "pcie_width_low", int(n), r


def _nvlink(ws: Workspace, file: RunFile, lines: list) -> Iterator[Evidence]:
    shown = 0
    for line in lines:
        m = smi.NVLINK.search(line.text)
        if ((m and int(m["count"]) > 0) or NVLINK_DOWN.search(line.text)) and shown < 6:
            shown += 1
            yield ws.cite(file, line, "gpu.nvlink_errors", f"{m['kind']} {m['count']}" if m else line.text.strip())


def _health(ws: Workspace, file: RunFile, readings: list[smi.Reading]) -> Iterator[Evidence]:
    """Clean health is said only where errors were looked at and all of them are zero."""
    looked = [r for r in readings if r.field.startswith(("ecc.errors.uncorrected", "remapped_rows"))]
    names = [r for r in readings if r.field == "name"]
    if names:
        yield ws.cite(file, names[0].line, "gpu.count", len({r.gpu for r in names}))
    bad = any(r.number or r.active for r in looked)
    if looked and not bad and any(r.number == 0 or r.text.strip().lower() == "no" for r in looked):
        yield ws.cite(file, looked[0].line, "gpu.health_clean", True)


def _load(ws: Workspace, file: RunFile, readings: list[smi.Reading], lines: list) -> Iterator[Evidence]:
    """Utilization, memory and power over the capture; full utilization at low, flat power makes no progress."""
    by_field: dict[str, list[smi.Reading]] = {}
    for r in readings:
        if r.number is not None:
            by_field.setdefault(r.field, []).append(r)
    use = by_field.get("utilization.gpu", [])
    if use:
        mean = sum(r.number or 0 for r in use) / len(use)
        yield ws.cite(file, use[0].line, "gpu.utilization", round(mean, 1))
    if memory := by_field.get("memory.used"):
        most = max(memory, key=lambda r: r.number or 0)
        yield ws.cite(file, most.line, "gpu.memory_used", int((most.number or 0) * (1 << 20)))
    if hot := by_field.get("temperature.gpu"):
        top = max(hot, key=lambda r: r.number or 0)
        yield ws.cite(file, top.line, "gpu.temperature", int(top.number or 0))
    yield from _clocks(ws, file, by_field)
    power = by_field.get("power.draw", [])
    if len(use) >= 2 and len(power) >= 2 and all((r.number or 0) >= 98 for r in use):
        yield from _flat(ws, file, [(r.line, r.number or 0) for r in power])
    polled = smi.polls(lines) if not use else []
    if polled:
        yield ws.cite(file, polled[0][0], "gpu.utilization", float(max(polled[0][1])))
    if len(polled) >= 2 and all(min(p) >= 98 for _, p, _, _ in polled):
        yield from _flat(ws, file, [(line, w) for line, _, watts, _ in polled for w in watts])


def _clocks(ws: Workspace, file: RunFile, by_field: dict[str, list[smi.Reading]]) -> Iterator[Evidence]:
    top = {r.gpu: r.number for r in by_field.get("clocks.max.sm", [])}
    busy = {r.gpu: r.number or 0 for r in by_field.get("utilization.gpu", [])}
    for r in by_field.get("clocks.current.sm", []) + by_field.get("clocks.sm", []):
        limit = top.get(r.gpu)
        if limit and r.number and r.number < 0.6 * limit and busy.get(r.gpu, 100) >= 50:
            yield ws.cite(file, r.line, "gpu.clock_low", int(r.number))


def _flat(ws: Workspace, file: RunFile, power: list) -> Iterator[Evidence]:
    """Spinning kernels draw nearly the same power everywhere; real steps swing."""
    watts = [w for _, w in power]
    if min(watts) > 0 and max(watts) / min(watts) <= 1.35:
        for line in list(dict.fromkeys(line for line, _ in power))[:3]:
            yield ws.cite(
                file, line, "gpu.busy_no_progress", f"{min(watts):.0f} to {max(watts):.0f} W at full utilization"
            )
