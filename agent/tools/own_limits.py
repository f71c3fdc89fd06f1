"""Ends that the run's own scripts made: a time limit around the launch, a watcher that kills what is quiet."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading.own_limits import Ended, timeouts, watchers
from ..tool import clean, finding, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace


@tool(emits=("limit.timeout_ended", "limit.watcher_killed"), recall=True)
def own_limits(ws: Workspace) -> ToolResult:
    """Say whether a script of the run itself ended it: `timeout` around the launch, or a loop that kills.

    Use when a process ended with 124, 137 or 143 and nothing says who sent the signal. A time limit is told where a
    log has the status 124 and a script starts the training under `timeout`; a watcher, where a log has the sentence
    that a script says before it kills.
    """
    evidence = [e for ended in timeouts(ws) for e in _both(ws, ended, "limit.timeout_ended")]
    evidence += [e for ended in watchers(ws) for e in _both(ws, ended, "limit.watcher_killed")]
    if not evidence:
        return clean("no script of the run is seen to end it")
    return finding(f"a script of the run ended it: {evidence[0].value}", evidence)


def _both(ws: Workspace, ended: Ended, key: str) -> Iterator[Evidence]:
    for file, line in (ended.log, ended.script):
        yield ws.cite(file, line, key, ended.what)
