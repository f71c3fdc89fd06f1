"""What NVML answers about this machine, asked by a child with a time limit: a sick card blocks its caller."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .command_output import fact_of, output_lines
from .files import Line
from .smi import Reading

if TYPE_CHECKING:
    from ..shell import Completed
    from ..workspace import Workspace

SECONDS = 10.0
LIBRARY_MISSING, NOT_LOADED, MISMATCH, NO_PERMISSION = 12, 9, 18, 4  # NVML's own error numbers


@dataclass(slots=True)
class Answer:
    """Readings by GPU, and what went wrong: `trouble` holds (key below `gpu.`, value, line of the output).

    `usable`: NVML itself answered. `hung` names the question that was never answered. `why` says in one line why
    there is no answer. `cards` counts NVIDIA devices on the PCI bus, None where the child did not get so far.
    """

    done: Completed
    readings: list[Reading] = field(default_factory=list)
    trouble: list[tuple[str, Any, Line]] = field(default_factory=list)
    usable: bool = False
    hung: str = ""
    why: str = ""
    cards: int | None = None


def ask_nvml(ws: Workspace) -> Answer:
    """NVML's answer, asked once for a workspace."""
    argv = [sys.executable, "-I", "-m", "traindoctor.agent.probes.nvml", *map(str, ws.pids)]
    return ws.memo("nvml", lambda: _read(ws.shell(argv, SECONDS)))


def _read(done: Completed) -> Answer:
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
        answer.hung = f"{asking[0]['asking']}" + ("" if gpu is None else f" of GPU {gpu}")
        answer.trouble.append(("no_answer", answer.hung, asking[1]))
        answer.why = f"NVML did not answer within {SECONDS:g} s (asked for {answer.hung})"
    elif not answer.usable and not answer.why:
        answer.why = (done.stderr.strip().splitlines() or ["the child that asks NVML printed nothing"])[-1][:200]
    return answer


def _take(answer: Answer, fact: dict[str, Any], line: Line) -> None:
    name, value = str(fact["field"]), fact.get("value")
    if name == "pci_cards":
        answer.cards = int(value or 0)
    elif name == "init_error":
        answer.why = f"NVML: {value}"
        if fact.get("code") == MISMATCH:
            answer.trouble.append(("driver_mismatch", str(value), line))
        elif fact.get("code") in (NOT_LOADED, LIBRARY_MISSING) and answer.cards:
            answer.trouble.append(("driver_missing", f"{answer.cards} card(s) on the bus; NVML: {value}", line))
        elif fact.get("code") not in (NOT_LOADED, LIBRARY_MISSING, NO_PERMISSION):
            answer.trouble.append(("missing", str(value), line))
    elif name == "no_binding":
        answer.why = str(value)
    elif name == "error":
        key = "error" if "asked" in fact else "missing"  # no further question to a card that is lost
        answer.trouble.append((key, f"GPU {fact.get('gpu')}: {value}", line))
    elif "gpu" in fact:
        answer.usable = True
        answer.readings.append(Reading(int(fact["gpu"]), name, str(value), line))
    else:
        answer.readings.append(Reading(-1, name, str(value), line))
        if name == "count":
            answer.usable = True
            if answer.cards and answer.cards > int(value or 0):
                answer.trouble.append(("hidden", answer.cards - int(value or 0), line))
