"""Where the time goes by the run's own timers: the slower variant and what it has, the share of generation."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ...core.types import Evidence, ToolResult
from ...reading.curves.curves import Pace, curves, is_binary, line_at, paces_told, point_evidence, slowing
from ...reading.curves.rank_series import RankTable, rank_tables
from ...reading.curves.series import Series
from ...reading.logs.roster import count_named
from ...reading.profiles.profile_tables import file_loads
from ...reading.profiles.step_times import RATIO, Skew, TimeShare, arrivals, skew, time_shares
from ...reading.run.files import RunFile
from ...reading.run.workspace import Workspace
from ...reading.settings.contrasts import between_versions, differences, pairs
from ...reading.settings.settings import plain_value, read_settings
from ...reading.settings.versions import Version, read_environment, release
from ...reading.stacks.flight_recordings import recordings
from ..tool import clean, finding, not_applicable, tool

SLOWER = 1.3  # ratio of seconds per step from which a variant is slower
MUCH = 0.5  # share of generation from which it holds the step up
LOOKED_AT = 40  # differences
# metric -> whether more of it is faster; the first that two variants share decides
METRICS = {"step_time": False, "bar_step_time": False, "throughput": True, "tflops": True}


# words that name one of two runs by themselves: old.log and new.log, env_before.txt and env_after.txt
REFERENCES = {"old", "before", "fast", "working", "previous", "earlier", "baseline", "reference"}
SIDES = REFERENCES | {"new", "after", "slow", "broken", "current"}
FIXED, LARGER = 4.0, 4.0  # how much more a batch so much larger gets done a second, from which steps cost the same


@tool(emits=("pace.slower_ratio", "pace.slower_with", "pace.slower_with_more"), recall=True)
def compare_paces(ws: Workspace) -> ToolResult:
    """Compare the pace of variants of a run and say which settings and versions the slower one has.

    Use when one configuration, environment or machine is slower than another. Gives the ratio of seconds per step
    and, for the slowest variant, each setting and package that differs from the fastest one, as `name: fast -> slow`.
    """
    found = _slowest(ws)
    if found is None:
        return not_applicable("no two variants print their pace")
    slow, fast, ratio = found
    if ratio < SLOWER:
        return clean(f"{_name(slow) or 'this run'} and {_name(fast)} run at a similar pace ({ratio:.2f} to 1)")
    at = int(np.flatnonzero(slow.finite)[-1])
    evidence = [
        point_evidence(ws, slow, at, "pace.slower_ratio", round(ratio, 2)),
        point_evidence(ws, fast, int(np.flatnonzero(fast.finite)[-1]), "pace.slower_ratio", round(ratio, 2)),
        *_differences(ws, slow, fast),
        *_versions(ws, _name(slow), _name(fast)),
        *_sizes(ws, slow, fast),
    ]
    with_what = ", ".join(dict.fromkeys(str(e.value) for e in evidence if e.key == "pace.slower_with"))
    summary = f"{_name(slow) or 'this run'} takes {ratio:.2f} times as long a step as {_name(fast) or 'this run'}"
    return finding(summary + (f"; it has {with_what}" if with_what else ""), evidence)


@tool(emits=("pace.fixed_cost",), recall=True)
def batch_cost(ws: Workspace) -> ToolResult:
    """Say whether a step costs nearly the same whatever it holds, by logs of several batch sizes.

    Use when small steps are slow. Compares logs that print samples a second and steps a second: where a larger batch
    gets several times as much done, the time goes into starting operations and not into computing them.
    """
    told = sorted((p for p in paces_told(ws) if p.each), key=_each)
    pairs = [(a, b) for a in told for b in told if a.what == b.what and _each(b) >= LARGER * _each(a)]
    if not pairs:
        return not_applicable("no two logs with a batch size and a pace each")
    # a log deeper than another is a trial or an older run: only one of small batches that is asked about is a finding
    pairs = [(a, b) for a, b in pairs if b.rate >= FIXED * a.rate and a.file.name.count("/") <= b.file.name.count("/")]
    if not pairs:
        return clean("larger batches get little more done a second")
    small, large = max(pairs, key=lambda pair: pair[1].rate / pair[0].rate)
    gain = round(large.rate / small.rate, 1)
    evidence = [ws.cite(p.file, p.line, "pace.fixed_cost", gain) for p in (small, large)]
    said = (
        f"{_each(large):.0f} instead of {_each(small):.0f} a step get {gain:g} times as many {small.what} done a second"
    )
    return finding(said, evidence)


def _each(pace: Pace) -> float:
    return pace.each or 0.0


@tool(emits=("step_share.generation",), recall=True)
def generation_share(ws: Workspace) -> ToolResult:
    """Say how much of each step of a reinforcement-learning run goes into generation.

    Use when such a run is slow. Reads the timers that verl, slime, NeMo-RL and OpenRLHF print beside the step's time;
    steps that overlap generation with training count as they are printed.
    """
    found = curves(ws)
    for taken in found.of("generation_time", good=False):
        for whole in found.of("step_time", good=False):
            if (taken.file, taken.rank, taken.variant) != (whole.file, whole.rank, whole.variant):
                continue
            steps, a, b = np.intersect1d(taken.steps, whole.steps, return_indices=True)
            both = np.isfinite(taken.values[a]) & np.isfinite(whole.values[b]) & (whole.values[b] > 0)
            if len(steps) < 3 or both.sum() < 3:
                continue
            share = float(np.median(np.clip(taken.values[a][both] / whole.values[b][both], 0, 1)))
            at = int(a[both][-1])
            evidence = [point_evidence(ws, taken, at, "step_share.generation", round(share, 3))]
            said = f"generation takes {share:.0%} of a step, {taken.values[at]:.4g} s in the last one"
            return finding(said, evidence) if share >= MUCH else clean(said, evidence)
    return not_applicable("no timer of generation beside the step's time")


def _name(s: Series) -> str:
    return "good" if s.file.good else s.variant or s.file.variant or _side(s.file)


def _side(file: RunFile) -> str:
    folders = file.name.lower().split("/")[:-1]
    words = re.split(r"[^a-z0-9]+", file.path.stem.lower())
    side = next((w for w in (*folders, *words) if w in SIDES), "")
    return side or (file.path.stem if count_named(file.path.stem) else "")


def _slowest(ws: Workspace) -> tuple[Series, Series, float] | None:
    """Slowest and fastest variant by the first metric that two of them share, with the ratio of their times."""
    found = curves(ws)
    for metric, more_is_faster in METRICS.items():
        by_name: dict[str, Series] = {}
        told = [p.series for p in paces_told(ws)] if metric == "throughput" else []
        for s in [*found.of(metric), *told]:
            if (s.rank or 0) == 0 and s.finite.sum() >= 2 and _name(s) not in by_name:
                by_name[_name(s)] = s
        named = by_name.keys() & {"good", *REFERENCES}
        if len(by_name) < 2 or ("" in by_name and not named):
            continue
        seconds = {name: _seconds(s, more_is_faster) for name, s in by_name.items()}
        known = sorted((n for n in seconds if seconds[n] > 0), key=lambda n: seconds[n])
        if len(known) >= 2:
            fast, slow = known[0], known[-1]
            return by_name[slow], by_name[fast], seconds[slow] / seconds[fast]
    return None


def _seconds(s: Series, more_is_faster: bool) -> float:
    """Median time of a step, or the inverse of a median rate; the first steps warm up and are left out."""
    values = s.values[s.finite & s.fair]
    values = values[len(values) // 10 :]
    median = float(np.median(values)) if len(values) else 0.0
    return 0.0 if median <= 0 else 1 / median if more_is_faster else median


def _differences(ws: Workspace, slow: Series, fast: Series) -> Iterator[Evidence]:
    """Each setting and version as `name: fast -> slow`, with the line of each side."""
    reading = read_settings(ws)
    ours = ((a, b) if fast.file.name in a.files else (b, a) for a, b in pairs(ws, reading))
    one, other = next(
        ((a, b) for a, b in ours if fast.file.name in a.files and slow.file.name in b.files), (None, None)
    )
    told = differences(ws, reading, one, other) if one and other else []
    values = [(c, c.a, c.b) if c.sides and c.sides[0] is one else (c, c.b, c.a) for c in told]
    for c in list(between_versions(read_environment(ws)))[:LOOKED_AT]:
        if sorted(c.where.split(" / ")) == sorted((_name(slow), _name(fast))):
            values.append((c, c.a, c.b) if c.where.startswith(f"{_name(fast)} / ") else (c, c.b, c.a))
    for c, before, after in values[:LOOKED_AT]:
        for file, line in dict.fromkeys(c.places):
            yield ws.cite(file, line, "pace.slower_with", f"{c.name}: {plain_value(before)} -> {plain_value(after)}")


def _versions(ws: Workspace, slow: str, fast: str) -> Iterator[Evidence]:
    """Packages whose versions differ between files that a word names, such as env_old.txt and env_new.txt."""
    held: dict[str, dict[str, Version]] = defaultdict(dict)
    for v in read_environment(ws).versions:
        if not v.file.variant:
            held[_side(v.file)].setdefault(v.package, v)
    for package in sorted(held[slow].keys() & held[fast].keys()) if slow and fast else ():
        a, b = held[fast][package], held[slow][package]
        if release(a.version) != release(b.version):
            for v in (b, a):
                yield ws.cite(v.file, v.line, "pace.slower_with", f"{package}: {a.version} -> {b.version}")


def _sizes(ws: Workspace, slow: Series, fast: Series) -> Iterator[Evidence]:
    """The slower run has more processes, by the names of both."""
    counts = [count_named(_name(s)) for s in (fast, slow)]
    if counts[0] is None or counts[1] is None or counts[0][0] != counts[1][0] or counts[0][1] >= counts[1][1]:
        return
    for s in (slow, fast):
        at = int(np.flatnonzero(s.finite)[-1])
        value = f"{counts[0][0]}: {counts[0][1]} -> {counts[1][1]}"
        yield point_evidence(ws, s, at, "pace.slower_with_more", value)


# ----------
# Where the time goes by what the run prints itself: waiting for data, transfers, saves, generation.

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


# ----------
# Stragglers: seconds a step of each rank, and who arrives last at the collectives.

SHOWN = 12
SLOW = ("skew.slow_rank", "skew.slow_data", "skew.late_rank")
# comm_time is small on the rank the others wait for
STEP_SKEW_METRICS = ("compute_time", "step_time", "comm_time", "data_time")


@tool(
    emits=(
        "skew.slow_rank", "skew.slow_data", "skew.persistent", "skew.slow_host", "skew.late_rank", "skew.even",
    ),
    recall=True,
)  # fmt: skip
def step_skew(ws: Workspace) -> ToolResult:
    """Find stragglers from the step times of each rank, or from when each entered its collectives.

    Use when training is slow or uneven and ranks report times of their own (logs a rank, labelled lines, a table with a
    column rank, TensorBoard files a rank) or left flight-recorder dumps. Tells the rank that computes longer or waits
    less than the others, whether it is always the same one, whether all slow ranks share a host, and what it costs.
    """
    tables = rank_tables(ws, *STEP_SKEW_METRICS)  # each attempt and variant has its own
    judged = [(t, s) for t in tables if (s := skew(t, waiting=t.metric == "comm_time")) is not None]
    evidence = [e for t, s in judged for e in _skew(ws, t, s)]
    late = [e for r in recordings(ws) if not any(d.file.good for d in r.dumps.values()) for e in _arrivals(ws, r)]
    if not judged and not late:
        return not_applicable("no step times of two ranks at common steps, no dumps with enough common collectives")
    evidence += late
    slow = sorted({e.rank for e in evidence if e.key in SLOW and e.rank is not None})
    text = "\n".join([*(_row(t, s) for t, s in judged), *(e.text for e in late)])
    if slow:
        return finding(f"rank(s) {', '.join(map(str, slow[:SHOWN]))} keep the others waiting", evidence, text)
    if any(s.in_turns and t.metric != "data_time" for t, s in judged):
        return finding("steps are uneven: another rank is slow each time", evidence, text)
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
    if not s.slow:
        return
    first = s.slow[0][0]
    for rank, ratio in s.slow[:SHOWN]:
        key = "skew.slow_data" if table.metric == "data_time" else "skew.slow_rank"
        yield _cite(ws, table, rank, key, rank, f"rank {rank}: {ratio:.2f} times the middle rank")
    yield _cite(ws, table, first, "skew.persistent", round(s.share, 3))
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
    yield ws.binary(dump.file, f"record {found.record}", "skew.late_rank", found.rank, text, **{"rank": found.rank})


def _row(table: RankTable, s: Skew) -> str:
    slow = ", ".join(f"rank {r} ({x:.2f} times)" for r, x in s.slow[:SHOWN])
    who = f"slow in {s.share:.0%} of the steps: {slow}" if slow else "in turns" if s.in_turns else "none slow"
    more = f" and {len(s.slow) - SHOWN} more" if len(s.slow) > SHOWN else ""
    return (
        f"{table.metric}: {len(table.ranks)} ranks over {s.steps} steps, slowest {s.ratio:.2f} times the middle one "
        f"(from {RATIO} on it counts): {who}{more}; the others lose {s.lost * _unit(table):.4f} s a step"
    )
