"""GPU health and load: of this machine by NVML or nvidia-smi, of a run by the captures among its files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..reading import smi
from ..reading.anchor_lines import Hit, anchored
from ..reading.anchor_windows import excerpt
from ..reading.command_output import output_lines
from ..reading.files import RunFile
from ..reading.gpu_state import FAULTS, Fact, facts
from ..reading.nvml_answer import Answer, ask_nvml
from ..reading.smi_query import query
from ..reading.smi_xml import is_xml, xml_readings
from ..shell import Completed
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SMI_SECONDS = 15.0
# what a card says now tells nothing of a run that is over: keys of their own, unless its processes are named
PASSING = {
    "health_clean": "healthy_now", "utilization": "utilization_now", "memory_used": "memory_used_now",
    "temperature": "temperature_now",
}  # fmt: skip
BROKEN: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (key, re.compile(pattern, re.IGNORECASE))
    for key, pattern in (
        ("missing", r"unable to determine the device handle for gpu.{0,120}"),
        ("missing", r"no devices were found"),
        ("driver_mismatch", r"driver/library version mismatch"),
        ("driver_missing", r"couldn't communicate with the nvidia driver"),
    )
)


@tool(
    emits=(
        "gpu.name", "gpu.count", "gpu.ecc_uncorrectable", "gpu.ecc_lifetime", "gpu.remap_pending", "gpu.remap_failure",
        "gpu.rows_remapped", "gpu.throttle", "gpu.clock_reason", "gpu.power_cap", "gpu.power_limit_low",
        "gpu.clock_low", "gpu.temperature", "gpu.hot", "gpu.recovery_action", "gpu.fabric", "gpu.process",
        "gpu.other_process", "gpu.ended_process", "gpu.memory_unowned", "gpu.pcie_width_low", "gpu.pcie_gen_low",
        "gpu.nvlink_errors", "gpu.nvlink_inactive", "gpu.health_clean", "gpu.utilization", "gpu.memory_used",
        "gpu.memory_total", "gpu.mig", "gpu.persistence_off", "gpu.busy_no_progress", "gpu.missing", "gpu.error",
        "gpu.no_answer", "gpu.driver_mismatch", "gpu.driver_missing", "gpu.healthy_now", "gpu.utilization_now",
        "gpu.memory_used_now", "gpu.temperature_now", "gpu.hidden",
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
    found = anchored(ws)
    evidence = [*_broken(ws, found.of("gpu"))]
    for file in found.files("gpu"):
        evidence += _file(ws, file)
    why = ""
    if ws.live:
        answered, why = _machine(ws)
        evidence += answered
    if not evidence:
        nothing = "no capture of nvidia-smi among the run's files"
        if not ws.live:
            return not_applicable(nothing)
        return not_applicable(why) if why.startswith("no NVIDIA") else failed(why or nothing)
    text = "\n".join(f"{_where(e)} {e.key} = {e.value}" for e in evidence[:80])
    faults = [e for e in evidence if e.key.split(".")[1] in FAULTS]
    if not faults:
        note = f"; this machine: {why}" if why else ""
        return clean(f"{_cards(evidence)} show no fault{note}", evidence, text)
    kinds = list(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in faults))
    return finding(", ".join(kinds) + (f" ({why})" if why else ""), evidence, text)


def _cards(evidence: list[Evidence]) -> str:
    """`2 GPUs`, where they were counted."""
    counts = [e.value for e in evidence if e.key == "gpu.count" and isinstance(e.value, int)]
    return f"{max(counts)} GPU{'' if max(counts) == 1 else 's'}" if counts else "the readings of the GPUs"


def _where(e: Evidence) -> str:
    return f"{e.file}:{e.line}" if e.file else "this machine"


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
    if is_xml(lines):
        readings, why = xml_readings(lines)
        if why:
            ws.tell(file.name, why)
        lines = []
    else:
        readings = list(smi.readings(lines))
    for fact in facts(readings, lines):
        yield ws.cite(file, fact.line, f"gpu.{fact.key}", fact.value)


def _machine(ws: Workspace) -> tuple[list[Evidence], str]:
    """Evidence about this machine's cards, and why there is none or not all of it."""
    answer = ask_nvml(ws)
    evidence = [ws.answered(answer.done, f"gpu.{key}", value, line.text) for key, value, line in answer.trouble]
    evidence += [_now(ws, answer.done, f) for f in facts(answer.readings, [])]
    if answer.usable or answer.hung:  # what hangs NVML hangs nvidia-smi too
        return evidence, answer.why
    more, why = _by_nvidia_smi(ws, answer)
    return evidence + more, why


def _now(ws: Workspace, done: Completed, fact: Fact) -> Evidence:
    key = fact.key if ws.pids else PASSING.get(fact.key, fact.key)
    return ws.answered(done, f"gpu.{key}", fact.value, fact.line.text)


def _by_nvidia_smi(ws: Workspace, answer: Answer) -> tuple[list[Evidence], str]:
    done = ws.shell(["nvidia-smi", "-q", "-x"], SMI_SECONDS)
    said = (done.stdout + done.stderr).strip()
    if done.code is None and said.endswith("not recorded"):
        return [], "what the GPUs of that machine say was not recorded"
    if done.code is None and said.endswith("not installed"):
        cards = f"{answer.cards} card(s) on the PCI bus" if answer.cards else "no card on the PCI bus"
        return [], f"no NVIDIA driver on this machine ({answer.why}; nvidia-smi: {said.rpartition(': ')[2]}; {cards})"
    if done.code is None:
        late = done.stderr.partition("\n")[0]
        return [ws.answered(done, "gpu.no_answer", "nvidia-smi", late)], late
    lines = list(output_lines(done.stdout))
    first = said.splitlines()[0] if said else "nothing"
    readings, why = xml_readings(lines) if is_xml(lines) else ([], f"nvidia-smi: {first}")
    refused = list(_refused(ws, done, said))
    if not readings and not refused:
        asked, readings = query(ws, SMI_SECONDS)
        done, why = (asked, "") if asked else (done, why)
    if not readings:
        return refused, why
    return [_now(ws, done, f) for f in facts(readings, [])], why


def _refused(ws: Workspace, done: Completed, said: str) -> Iterator[Evidence]:
    """What nvidia-smi says instead of an answer."""
    for key, pattern in BROKEN:
        if m := pattern.search(said):
            yield ws.answered(done, f"gpu.{key}", m[0][:160], m[0])
