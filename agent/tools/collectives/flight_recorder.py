"""PyTorch's flight recorder: the dumps of all ranks set against each other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from ...core.types import Evidence, ToolResult, Value
from ...reading.run.lines import spans
from ...reading.run.workspace import Workspace
from ...reading.stacks.flight_dump import Dump
from ...reading.stacks.flight_recordings import Recording, recordings, shown, stack
from ...reading.stacks.flight_verdict import Side, Story, Verdict, operation, story
from ..tool import clean, failed, finding, not_applicable, tool

SHOWN = 12  # ranks of one kind; the counts in the texts are exact
STACKS = 4  # ranks whose stacks are looked up
RECORDINGS = 8  # that are compared
OTHERS = 2  # further groups in which ranks differ

Fact = Callable[..., Evidence]

EMITS = (
    "flight.missing_rank", "flight.mismatch", "flight.shift", "flight.culprit", "flight.rank_behind",
    "flight.behind_by", "flight.never_entered", "flight.timed_out", "flight.all_entered", "flight.frame",
    "flight.elsewhere", "flight.p2p_unpaired", "flight.agree",
)  # fmt: skip


@tool(emits=EMITS, recall=True)
def flight_recorder(ws: Workspace) -> ToolResult:
    """Compare the flight-recorder dumps of all ranks: where they part, who is behind, who never entered.

    Use when a job hangs or dies in a collective and left dumps (nccl_trace_rank_0, comm_trace, any other name;
    pickled or JSON). For each process group it finds the first collective that differs between ranks (operation, size,
    dtype, order), the ranks that never entered it, the code they last came from, and sends without a receive. Ranks
    without a dump are named: the one at fault is often among them. Nothing of a dump is executed.
    """
    found = [r for r in recordings(ws) if not _good(r)]
    if not found:
        return not_applicable("no flight-recorder dump (TORCH_FR_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT make them)")
    if not any(r.broken or any(d.count for d in r.dumps.values()) for r in found):
        return clean("the dumps hold no entry: nothing was recorded (Gloo records no sends and receives)")
    if not any(r.dumps for r in found):
        name, why = found[0].broken[0][0].name, found[0].broken[0][1]
        return failed(f"{sum(len(r.broken) for r in found)} dump(s), none readable: {name}: {why}")
    readable = [r for r in found if r.dumps]
    stories = [story(r) for r in readable[:RECORDINGS]]
    evidence = [e for s in stories for e in _told(ws, s)]
    more = [f"{len(readable) - RECORDINGS} further recordings were not compared"] if readable[RECORDINGS:] else []
    unread = [f"{file.name}: {why}" for r in found for file, why in r.broken[:SHOWN]]
    text = "\n".join([*(line for s in stories for line in _lines(s)), *more, *unread])
    parts = [p for s in stories for p in _summary(s)]
    parts += [f"{len(r.broken)} dump(s) of one recording cannot be read" for r in found if not r.dumps]
    if not parts:
        counts = " and ".join(str(len(s.recording.dumps)) for s in stories)
        return clean("; ".join([f"{counts} ranks agree in every collective, nothing waits", *more]), evidence, text)
    return finding("; ".join(parts[:6]), evidence, text)


def _good(recording: Recording) -> bool:
    files = [d.file for d in recording.dumps.values()] + [f for f, _ in recording.broken]
    return all(f.good for f in files)


def _told(ws: Workspace, s: Story) -> Iterator[Evidence]:
    recording = s.recording
    some = next(iter(recording.dumps.values()))
    missing = recording.missing
    for rank in missing[:SHOWN]:
        text = f"rank {rank} of {len(recording.world)} left no readable dump ({len(missing)} such: {_ranks(missing)})"
        yield ws.binary(some.file, "pg_config", "flight.missing_rank", rank, text, **{"rank": rank})
    if s.first is not None:
        yield from _first(ws, s, s.first)
        for other in [v for v in s.verdicts if v.kinds and v is not s.first][:OTHERS]:
            yield from _sides(ws, s, other, _facts(ws, s, other))
    elif s.waits is not None:
        yield from _waiting(ws, s, s.waits)
    elif not missing and not recording.broken and not s.unpaired:
        entries = sum(d.count for d in recording.dumps.values())
        text = f"{entries} entries of {len(recording.dumps)} ranks agree and have ended"
        yield ws.binary(some.file, "entries", "flight.agree", True, text, rank=None)
    for group, u in s.unpaired[:SHOWN]:
        what = {"unreceived": f"sends to rank {u.other}, which never receives it",
                "unsent": f"waits for rank {u.other}, which never sends it",
                "size": f"sends rank {u.other} another size than it expects"}[u.kind]  # fmt: skip
        text = f"{group.label}: rank {u.rank} {what} (number {u.number} of this pair, sizes {u.sizes})"
        dump = recording.dumps[u.rank]
        yield ws.binary(dump.file, f"record {u.record}", "flight.p2p_unpaired", u.kind, text, **{"rank": u.rank})


def _first(ws: Workspace, s: Story, v: Verdict) -> Iterator[Evidence]:
    fact = _facts(ws, s, v)
    op = operation(v.row[1]) if v.row else "?"
    yield from _sides(ws, s, v, fact)
    for rank in v.behind[:SHOWN]:
        came = f"enqueued {v.last[rank]} of {v.front} collectives" if v.last[rank] else "never entered the group"
        text = f"{v.group.label}: rank {rank} {came} and not {op} {v.seq} ({len(v.behind)} behind: {_ranks(v.behind)})"
        yield fact("rank_behind", rank, text, rank)
        if not v.last[rank]:
            yield fact("never_entered", rank, text, rank)
    if v.behind:
        most = v.front - min(v.last[r] for r in v.behind)
        yield fact("behind_by", most, f"{v.group.label}: up to {most} collectives behind")
    for rank in v.timed_out[:SHOWN]:
        text = f"{v.group.label}: rank {rank} gave up {op} {v.seq}, which it never completed"
        yield fact("timed_out", v.seq, text, rank)
    for rank in v.behind[:STACKS]:
        yield from _place(ws, s, rank)


def _facts(ws: Workspace, s: Story, v: Verdict) -> Fact:
    """Makes evidence of one process group: in the rank's own dump, or in that of any member."""
    dumps = s.recording.dumps
    some = dumps[next(iter(v.group.work))]
    member = f"{v.group.label} #{v.seq}"

    def fact(key: str, value: Value, text: str, rank: int | None = None) -> Evidence:
        file = dumps[rank].file if rank in dumps else some.file
        return ws.binary(file, member, f"flight.{key}", value, text, **{"rank": rank})

    return fact


def _sides(ws: Workspace, s: Story, v: Verdict, fact: Fact) -> Iterator[Evidence]:
    """In what the sides differ, who is in the minority, and from where each side came."""
    if not v.kinds:
        return
    usual, odd = v.sides[0], v.sides[-1]
    text = f"{v.group.label} #{v.seq}: {_side(usual)} / {_side(odd)}"
    for kind in v.kinds:
        yield fact("mismatch", kind, text, odd.ranks[0])
    if v.shift:
        yield fact("shift", v.shift, f"{text}; from there on the order is shifted ({v.shift})", odd.ranks[0])
    if len(odd.ranks) < len(usual.ranks):
        for rank in odd.ranks[:SHOWN]:
            yield fact("culprit", rank, f"{text}; {len(odd.ranks)} in the minority: {_ranks(odd.ranks)}", rank)
    for side in v.sides[:STACKS]:
        dump = s.recording.dumps[side.ranks[0]]
        yield from _stack(ws, dump, side.ranks[0], side.work.records[side.at], f"{_side(side)}, from ")


def _waiting(ws: Workspace, s: Story, v: Verdict) -> Iterator[Evidence]:
    """No difference, but something does not end."""
    rank = v.waiting[0]
    dump, op = s.recording.dumps[rank], operation(v.row[1]) if v.row else "?"
    member = f"{v.group.label} #{v.seq}"
    told = f"{v.group.label}: collective {v.seq}, {_shown(v.row)}, has not ended on {_ranks(v.waiting)}"
    if v.all_in:
        text = f"{told}; all {len(v.group.ranks)} ranks have entered it alike: no rank is missing"
        yield ws.binary(dump.file, member, "flight.all_entered", op, text, **{"rank": rank})
    for late in v.timed_out[:SHOWN]:
        text = f"{v.group.label}: rank {late} gave up {op} {v.seq}"
        yield ws.binary(s.recording.dumps[late].file, member, "flight.timed_out", v.seq, text, **{"rank": late})
    at = s.last.get(rank)
    if at is not None:
        yield from _stack(ws, dump, rank, at.record, f"rank {rank} waits in {op}, from ")


def _place(ws: Workspace, s: Story, rank: int) -> Iterator[Evidence]:
    """What a rank that is behind did last, anywhere."""
    last, dump = s.last.get(rank), s.recording.dumps[rank]
    if last is None:
        return
    state = "which ended" if last.ended else "which has not ended"
    text = f"rank {rank} was last in {operation(last.row[1])} {last.row[0]} of {last.group.label}, {state}"
    if not last.ended:
        where = last.group.label
        yield ws.binary(dump.file, f"record {last.record}", "flight.elsewhere", where, text, **{"rank": rank})
    yield from _stack(ws, dump, rank, last.record, f"{text}; from ")


def _stack(ws: Workspace, dump: Dump, rank: int, record: int, before: str) -> Iterator[Evidence]:
    if frames := stack(ws, dump, record):
        told = shown(frames)
        yield ws.binary(dump.file, f"record {record}", "flight.frame", told, before + told, **{"rank": rank})


def _by_state(v: Verdict) -> str:
    """Which ranks have the collective scheduled, started or completed."""
    found: dict[str, list[int]] = {}
    for rank, work in v.group.work.items():
        at = bisect_left(work.rows, (v.state_seq,))
        if at < len(work.rows) and work.rows[at][0] == v.state_seq:
            found.setdefault(work.states[at][0], []).append(rank)
    told = "; ".join(f"{state} on {_ranks(ranks)}" for state, ranks in found.items())
    return f"{v.group.label}: collective {v.state_seq} is {told}"


def _shown(row: tuple | None) -> str:
    return f"{operation(row[1])} of {row[2]} {'/'.join(row[4])}" if row else "unknown"


def _side(side: Side) -> str:
    return f"{_ranks(side.ranks)}: {_shown(side.row)}"


def _ranks(ranks: list[int]) -> str:
    """`ranks 0-3, 7` with the exact number where it is cut."""
    runs = spans(ranks)
    more = f" ... ({len(ranks)} in all)" if len(runs) > SHOWN else ""
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(runs[:SHOWN])}{more}"


def _summary(s: Story) -> Iterator[str]:
    if (v := s.first) is not None:
        if v.kinds:
            yield f"{v.group.label} #{v.seq} differs in {' and '.join(v.kinds)}: {_side(v.sides[-1])}"
        elif v.behind:
            yield f"{v.group.label}: {_ranks(v.behind)} did not enter {_shown(v.row)} (#{v.seq})"
        else:
            yield f"{v.group.label}: {_ranks(v.timed_out)} gave up {_shown(v.row)} (#{v.seq})"
    elif s.waits is not None:
        w = s.waits
        yield f"{w.group.label}: {_shown(w.row)} (#{w.seq}) has not ended on {_ranks(w.waiting)}"
    if s.unpaired:
        yield f"{len(s.unpaired)} send(s) or receive(s) without counterpart"
    if s.recording.missing:
        yield f"no dump of {_ranks(s.recording.missing)}"
    if s.recording.broken:
        yield f"{len(s.recording.broken)} dump(s) not readable"


def _lines(s: Story) -> Iterator[str]:
    """One line a process group, those with a problem first."""
    version = next(iter(s.recording.dumps.values())).version
    guessed = "; ranks taken from the order of the file names" if s.recording.guessed else ""
    count = f"{len(s.recording.dumps)} dumps of {len(s.recording.world)} ranks"
    yield f"{s.recording.name}: {count}, PyTorch dump version {version}{guessed}"
    yield from (f"  {part}" for part in _summary(s))
    for v in sorted(s.verdicts, key=lambda v: not v.wrong)[:40]:
        state = ", ".join(
            part
            for part in (
                f"differs at {v.seq} in {v.kinds}" if v.kinds else "",
                f"{_ranks(v.behind)} behind" if v.behind else "",
                f"{_ranks(v.waiting)} waiting at {v.seq}" if v.waiting else "",
                f"compared from {v.base} on, older entries were overwritten" if v.lost else "",
            )
            if part
        )
        yield f"  {v.group.label} ({len(v.group.ranks)} ranks): up to #{v.front}{', ' + state if state else ', agree'}"
        if v.state_seq is not None and (v is s.first or v is s.waits):
            yield f"    {_by_state(v)}"
    if len(s.verdicts) > 40:
        yield f"  ... and {len(s.verdicts) - 40} more groups"
