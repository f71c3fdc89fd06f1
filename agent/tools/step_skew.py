"""Stragglers: seconds a step of each rank, and who arrives last at the collectives."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading.curves import is_binary, line_at
from ..reading.flight.recordings import recordings
from ..reading.rank_series import RankTable, rank_tables
from ..reading.skew import RATIO, Skew, arrivals, skew
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHOWN = 12
METRICS = ("compute_time", "step_time", "comm_time", "data_time")  # comm_time is small on the rank the others wait for

EMITS = (
    "skew.ranks", "skew.ratio", "skew.slow_rank", "skew.slow_data", "skew.persistent", "skew.in_turns",
    "skew.slow_host", "skew.lost_seconds", "skew.late_rank", "skew.late_seconds", "skew.even",
)  # fmt: skip


@tool(emits=EMITS, recall=True)
def step_skew(ws: Workspace) -> ToolResult:
    """Find stragglers from the step times of each rank, or from when each entered its collectives.

    Use when training is slow or uneven and ranks report times of their own (logs a rank, labelled lines, a table with a
    column rank, TensorBoard files a rank) or left flight-recorder dumps. Tells the rank that computes longer or waits
    less than the others, whether it is always the same one, whether all slow ranks share a host, and what it costs.
    """
    tables = rank_tables(ws, *METRICS)  # each attempt and variant has its own
    judged = [(t, s) for t in tables if (s := skew(t, waiting=t.metric == "comm_time")) is not None]
    evidence = [e for t, s in judged for e in _skew(ws, t, s)]
    late = [e for r in recordings(ws) if not any(d.file.good for d in r.dumps.values()) for e in _arrivals(ws, r)]
    if not judged and not late:
        return not_applicable("no step times of two ranks at common steps, no dumps with enough common collectives")
    evidence += late
    faults = [e for e in evidence if e.key in ("skew.slow_rank", "skew.slow_data", "skew.in_turns", "skew.late_rank")]
    text = "\n".join([*(_row(t, s) for t, s in judged), *(e.text for e in late)])
    if faults:
        return finding(_summary(faults), evidence, text)
    if judged:
        table, s = max(judged, key=lambda pair: pair[1].ratio)
        evidence.append(_cite(ws, table, table.ranks[0], "skew.even", True))
        return clean(f"{len(table.ranks)} ranks take equal time a step ({s.ratio:.2f} at most)", evidence, text)
    return clean("no rank enters the collectives late", evidence, text)


def _cite(ws: Workspace, table: RankTable, rank: int, key: str, value: object, text: str = "") -> Evidence:
    """The last point of a rank, or a record where its file has no lines."""
    series, at = table.source(rank)
    step = int(series.steps[at])
    of = {"rank": rank, "step": step, "attempt": series.attempt, "variant": series.variant}
    if is_binary(series.file):
        return ws.binary(series.file, series.raw, key, value, text, **of)
    return ws.cite(series.file, line_at(series, at), key, value, **of)


def _skew(ws: Workspace, table: RankTable, s: Skew) -> Iterator[Evidence]:
    first = s.slow[0][0] if s.slow else table.ranks[0]
    if table.metric == "data_time" and not s.slow:
        return
    yield _cite(ws, table, first, "skew.ranks", len(table.ranks))
    yield _cite(ws, table, first, "skew.ratio", round(s.ratio, 3))
    for rank, ratio in s.slow[:SHOWN]:
        key = "skew.slow_data" if table.metric == "data_time" else "skew.slow_rank"
        yield _cite(ws, table, rank, key, rank, f"rank {rank}: {ratio:.2f} times the middle rank")
    if s.slow:
        yield _cite(ws, table, first, "skew.persistent", round(s.share, 3))
    if s.in_turns:
        yield _cite(ws, table, first, "skew.in_turns", True)
    if s.slow or s.in_turns:
        yield _cite(ws, table, first, "skew.lost_seconds", round(s.lost * _unit(table), 4))
    hosts = {table.hosts[table.ranks.index(rank)] for rank, _ in s.slow}
    every = {h for h in table.hosts if h}
    if len(hosts) == 1 and len(every) > 1 and (host := next(iter(hosts))):
        mine = [r for r, h in zip(table.ranks, table.hosts, strict=True) if h == host]
        if len(s.slow) == len(mine):
            yield _cite(ws, table, first, "skew.slow_host", host)


def _unit(table: RankTable) -> float:
    """Seconds of one unit: a column may be named in milliseconds and keep its numbers."""
    named = table.sources[0][0].raw.lower()
    return 1e-3 if named.endswith(("ms", "msec", "millis")) and float(abs(table.values).max()) > 2 else 1.0


def _arrivals(ws: Workspace, recording) -> Iterator[Evidence]:
    found = arrivals(recording)
    if found is None:
        return
    dump = recording.dumps[found.rank]
    text = (
        f"{found.group}: rank {found.rank} enters last in {found.share:.0%} of {found.count} uneven collectives, "
        f"{found.late:.3f} s after the middle rank (clocks of different hosts may be apart by as much)"
    )
    member = f"record {found.record}"
    yield ws.binary(dump.file, member, "skew.late_rank", found.rank, text, **{"rank": found.rank})
    yield ws.binary(dump.file, member, "skew.late_seconds", round(found.late, 4), text, **{"rank": found.rank})


def _row(table: RankTable, s: Skew) -> str:
    slow = ", ".join(f"rank {r} ({x:.2f} times)" for r, x in s.slow[:SHOWN])
    who = f"slow in {s.share:.0%} of the steps: {slow}" if slow else "in turns" if s.in_turns else "none slow"
    more = f" and {len(s.slow) - SHOWN} more" if len(s.slow) > SHOWN else ""
    return (
        f"{table.metric}: {len(table.ranks)} ranks over {s.steps} steps, slowest {s.ratio:.2f} times the middle one "
        f"(from {RATIO} on it counts): {who}{more}; the others lose {s.lost * _unit(table):.4f} s a step"
    )


def _summary(faults: list[Evidence]) -> str:
    slow = sorted({e.rank for e in faults if e.key != "skew.in_turns" and e.rank is not None})
    if slow:
        return f"rank(s) {', '.join(map(str, slow[:SHOWN]))} keep the others waiting"
    return "steps are uneven: another rank is slow each time"
