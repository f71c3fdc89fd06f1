"""The fabric between nodes: ports of InfiniBand and RoCE cards, their state, rate and error counters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from ..reading.anchor_lines import anchored
from ..reading.anchor_windows import excerpt
from ..reading.command_output import output_lines
from ..reading.ib_links import Fact, facts, ports
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 16
HARMLESS = {"port", "errors_counted"}  # counts since the port came up prove nothing by themselves


@tool(
    emits=("ib.port", "ib.down", "ib.no_subnet_manager", "ib.rate_low", "ib.width_low", "ib.errors_rising",
           "ib.errors_counted"),
    live=True,
)  # fmt: skip
def ib_status(
    ws: Workspace,
    seconds: Annotated[float, Field(description="between two readings of the error counters", ge=0, le=60)] = 1.0,
) -> ToolResult:
    """State, rate and error counters of InfiniBand and RoCE ports; counters are compared over two readings.

    Use when NCCL reports a transport error, a link is suspected or nodes communicate slowly. Looks at this machine's
    ports where the run is its own; reads recorded ibstat, ibv_devinfo and counter files too.
    """
    evidence: list[Evidence] = []
    for file in anchored(ws).files("host"):
        for key, value, line in _few(facts(ports(excerpt(ws, file, "host")))):
            evidence.append(ws.cite(file, line, f"ib.{key}", value))
    why = "no ibstat, ibv_devinfo or port counters among the run's files"
    if ws.live:
        argv = [sys.executable, "-I", "-m", "traindoctor.agent.probes.ib", f"{seconds:g}"]
        done = ws.shell(argv, seconds + 10)
        found = ports(output_lines(done.stdout))
        evidence += [ws.answered(done, f"ib.{k}", v, line.text) for k, v, line in _few(facts(found))]
        if done.code != 0:
            why = f"the ports could not be read: {done.stderr.strip()[-160:] or 'no answer'}"
            return failed(why) if not evidence else ToolResult("failed", why, evidence, why)
        why = "this machine has no InfiniBand or RoCE port" if not found else why
    if not evidence:
        return not_applicable(why)
    text = "\n".join(f"{f'{e.file}:{e.line}' if e.file else 'this machine'} {e.key} = {e.value}" for e in evidence)
    faults = [e for e in evidence if e.key.split(".")[1] not in HARMLESS]
    if not faults:
        up = sum(e.key == "ib.port" for e in evidence)
        return clean(f"{up} port(s) up, no error counter rises", evidence, text)
    return finding(f"{len(faults)} fault(s) of ports: {faults[0].value}", evidence, text)


def _few(found: Iterable[Fact]) -> Iterator[Fact]:
    shown: dict[str, int] = {}
    for fact in found:
        shown[fact[0]] = shown.get(fact[0], 0) + 1
        if shown[fact[0]] <= EACH:
            yield fact
