"""Where the time goes by what the run prints itself: waiting for data, transfers, saves, generation."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading.function_profile import file_loads
from ..reading.rates import slowing
from ..reading.time_shares import TimeShare, time_shares
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHARED = ("comm", "data")
LEAST = 0.02  # smaller shares are left out
HELD_UP = {"data": 0.4, "comm": 0.4, "checkpoint": 0.3, "generation": 0.5, "eval": 0.4}


@tool(emits=("breakdown.*", "profile.file_load_share", "generation.rate_falls"), recall=True)
def time_breakdown(ws: Workspace) -> ToolResult:
    """Say where the time goes by the durations that a run prints itself.

    Use when training is slow and its own lines, columns or a table at the end tell how long loading, computing,
    reducing gradients, saving or evaluating take. Gives the share of each part; where it is not told whether a step's
    time holds the part, the smaller share. Also the share that a table of cProfile gives to loading many files, and
    whether outputs come the slower the longer they get.
    """
    shares = time_shares(ws)
    others = [
        *(ws.cite(f.file, f.line, "profile.file_load_share", round(f.share, 4)) for f in file_loads(ws)),
        *(ws.cite(f.file, f.line, "generation.rate_falls", f.ratio) for f in slowing(ws)),
    ]
    if not shares and not others:
        return not_applicable("no line, column or table with durations of several parts of a step")
    evidence = [*_evidence(ws, shares), *others]
    text = "\n".join(f"{s.file.name}:{s.line.number}: {s.part} {s.share:.0%}" for s in shares)
    summary = ", ".join(f"{e.key.removeprefix('breakdown.')} {e.value:.0%}" for e in evidence)
    slow = [s for s in shares if s.share >= HELD_UP.get(s.part, 2)]
    return (
        finding(summary, evidence, text) if slow or others else clean(summary or "computing takes all", evidence, text)
    )


def _evidence(ws: Workspace, shares: list[TimeShare]) -> Iterator[Evidence]:
    """Each part once: of what all ranks wait for, the one that waits least, as the others may only wait for it."""
    for part in dict.fromkeys(s.part for s in shares):
        found = [s for s in shares if s.part == part]
        chosen = (min if part in SHARED else max)(found, key=lambda s: s.share)
        if chosen.share >= LEAST:
            yield ws.cite(chosen.file, chosen.line, f"breakdown.{part}", round(chosen.share, 4), rank=chosen.rank)
