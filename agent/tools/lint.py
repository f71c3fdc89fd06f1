"""Settings that contradict each other, do nothing, or are known to bite; each with its lines. Facts, not verdicts."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading.lint_places import Lint
from ..reading.lints import lints as all_lints
from ..reading.settings import read_settings
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

CITED = 6  # lines of one lint that are told


@tool(emits=("lint.*",), recall=True)
def lint_settings(ws: Workspace) -> ToolResult:
    """Check the run's settings against each other and against what is known to bite.

    Arithmetic (batch sizes, parallel sizes, heads and layers, rollout constraints), settings without effect,
    folklore variables, missing clipping or warmup or checkpointing, processes against visible GPUs, duplicate
    keys, wrong types and typos. A lint is a fact with its lines; most are harmless on their own.
    """
    reading = read_settings(ws)
    if not reading.sources:
        return not_applicable("no settings to check")
    lints = list(all_lints(ws, reading))
    if not lints:
        return clean(f"{len(reading.all)} settings, nothing stands out")
    evidence = [e for lint in lints for e in _evidence(ws, lint)]
    rules = list(dict.fromkeys(lint.rule for lint in lints))
    summary = f"{len(rules)} kinds of notes on the settings: {', '.join(rules[:6])}"
    return finding(summary, evidence, "\n".join([summary, *(f"{x.rule}: {x.says}" for x in lints[:60])]))


def _evidence(ws: Workspace, lint: Lint) -> Iterator[Evidence]:
    key = f"lint.{lint.rule}"
    if not lint.lines:
        yield Evidence(key=key, value=lint.says, kind="absent", searched=lint.searched[:20])
    for file, line in list(dict.fromkeys(lint.lines))[:CITED]:
        yield ws.cite(file, line, key, lint.says)
