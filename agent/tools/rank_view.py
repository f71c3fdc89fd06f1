"""One rank from every side: its files and last words, how it failed, where it stands, how fast it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from ..reading import stack_dumps
from ..reading.anchor_lines import anchored
from ..reading.anchor_windows import excerpt
from ..reading.failures import failures
from ..reading.files import Line, RunFile
from ..reading.flight.recordings import recordings
from ..reading.flight.rules import operation
from ..reading.flight.story import story
from ..reading.points import point_evidence
from ..reading.rank_lines import last_lines, told_of, was_seen
from ..reading.rank_series import rank_tables
from ..reading.roster import Roster, roster
from ..reading.stack_groups import place
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHOWN = 8  # items of one kind; the counts are exact
PACES = ("step_time", "compute_time", "comm_time", "data_time", "throughput")
UNEQUAL = 1.2  # ratio to the middle rank from which a pace is worth a word


@dataclass(slots=True)
class _View:
    """What is known of a rank: evidence, one line of text for each, and what speaks against it."""

    evidence: list[Evidence] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def add(self, e: Evidence, row: str) -> None:
        self.evidence.append(e)
        self.rows.append(row)


@tool(emits=("rank_view.*",))
def look_at_rank(ws: Workspace, rank: Annotated[int, Field(description="the rank, from 0", ge=0)]) -> ToolResult:
    """Show everything that is known of one rank, each fact with its line.

    Use to check a rank that is suspected, or that somebody asks about: its files, the last lines it wrote, its
    failure, its recorded stack, where it stands in the flight recorder, its pace against the other ranks, and what
    the others say of it. Says so when no line, file or dump is that rank's own.
    """
    view, seen = _View(), roster(ws)
    others = [r for r in seen.ranks if r != rank]
    own = [f for f in ws.files if f.rank == rank and not f.good]
    for part in (_files, _words, _failures):
        part(ws, rank, view)
    _step(ws, rank, seen, view)
    for part in (_stack, _collectives, _pace):
        part(ws, rank, view)
    known = bool(view.evidence or own)
    for file, line, who in told_of(ws, rank)[:SHOWN]:
        teller = f"rank {who}" if who is not None else "no rank's own line"
        view.add(ws.cite(file, line, "rank_view.named_by_others", who), f"named in {_at(file, line)} ({teller})")
    if not known:
        return _unseen(ws, rank, seen, view)
    said = f"rank {rank}: " + ("; ".join(view.trouble) or "nothing of its own is wrong")
    said += f" ({len(others)} other rank{'s' * (len(others) != 1)} seen)" if others else " (no other rank is seen)"
    text = "\n".join([said, *view.rows])
    return finding(said, view.evidence, text) if view.trouble else clean(said, view.evidence, text)


def _unseen(ws: Workspace, rank: int, seen: Roster, view: _View) -> ToolResult:
    """Silence is an answer too, and another one than a rank that the run does not have."""
    logs = [f.name for f in ws.by_role("log", "capture", "trace") if not f.good]
    if not logs:
        return not_applicable("no log, stack or dump to look for a rank in")
    said = f"rank {rank} was never seen: no file, line, stack or dump is its own"
    view.evidence.append(Evidence(key="rank_view.seen", value=None, kind="absent", searched=logs[:20]))
    if seen.world is not None and seen.world_line is not None:
        file, line = seen.world_line
        exists = rank < seen.world
        said += f"; the run has {seen.world} ranks" + (
            ", it is one of the silent" if exists else ", none of this number"
        )
        view.add(ws.cite(file, line, "rank_view.world_size", seen.world), f"{seen.world} ranks: {_at(file, line)}")
    elif seen.ranks:
        said += f"; seen are {', '.join(map(str, seen.ranks[:16]))}{' and more' if len(seen.ranks) > 16 else ''}"
    else:
        said += "; no line names a rank at all"
    return finding(said, view.evidence, "\n".join([said, *view.rows]))


def _files(ws: Workspace, rank: int, view: _View) -> None:
    own = [f for f in ws.files if f.rank == rank and not f.good]
    view.rows += [f"file of its own: {f.name} ({f.role}, {f.size} bytes)" for f in own[:SHOWN]]
    if len(own) > SHOWN:
        view.rows.append(f"... and {len(own) - SHOWN} more files of its own")


def _words(ws: Workspace, rank: int, view: _View) -> None:
    member = was_seen(ws, rank)
    if member is None:
        return
    for line in last_lines(ws, member):
        shown = " ".join(line.text.split())[:300]
        view.add(ws.cite(member.file, line, "rank_view.last_line", rank=rank), f"{_at(member.file, line)}: {shown}")


def _failures(ws: Workspace, rank: int, view: _View) -> None:
    """Its failures as units, with the innermost frame; a consequence is told as one."""
    found = [u for u in failures(ws).units if u.rank == rank or (u.rank is None and u.file.rank == rank)]
    for unit in found[:SHOWN]:
        kind = "consequence" if unit.cascade else "failure"
        view.add(
            ws.cite(unit.file, unit.line, f"rank_view.{kind}", unit.text[:300], rank=rank, attempt=unit.attempt),
            f"{kind} at {_at(unit.file, unit.line)}: {unit.text[:300]}",
        )
        if unit.frames:
            frame = unit.frames[-1]
            view.add(
                ws.cite(unit.file, frame.line, "rank_view.frame", frame.text[:300], rank=rank),
                f"  in {frame.text[:300]}",
            )
    own = [u for u in found if not u.cascade]
    if own:
        view.trouble.append(f"failed with {own[0].text[:120]}")
    elif found:
        view.trouble.append(f"reports a consequence ({found[0].cascade})")


def _step(ws: Workspace, rank: int, seen: Roster, view: _View) -> None:
    """How far it came against the others, by the step its last line of progress names."""
    member = seen.members.get(rank)
    others = [m for m in seen.members.values() if m is not member and m.step is not None]
    if member is None or member.step is None or member.step_line is None:
        return
    view.add(
        ws.cite(member.file, member.step_line, "rank_view.last_step", member.step, rank=rank),
        f"last step {member.step}",
    )
    if others:
        far = max(others, key=lambda m: m.step or 0)
        if far.step_line is not None:
            e = ws.cite(far.file, far.step_line, "rank_view.furthest_other_step", far.step, rank=far.rank)
            view.add(e, f"the furthest of the others, {far.name}: step {far.step}")
        if (far.step or 0) > member.step:
            view.trouble.append(f"stopped at step {member.step}, others came to {far.step}")


def _stack(ws: Workspace, rank: int, view: _View) -> None:
    """Where its threads stand in recorded stack dumps."""
    for file in anchored(ws).files("stack"):
        json = file.path.suffix == ".json"
        read = (
            stack_dumps.json_stacks(ws.text(file, 8 << 20)) if json else stack_dumps.stacks(excerpt(ws, file, "stack"))
        )

        def cite(line: Line, key: str, value: object, of: int | None, at: RunFile = file) -> Evidence:
            return ws.cite(at, line, key, value, rank=of)

        stands = [
            p for s in read if (p := place(s, file.rank, file.name, cite)) and p.rank == rank and p.where != "idle"
        ]
        for p in stands[: SHOWN // 2]:
            view.add(p.emit(p.frame, "rank_view.stack", p.where), f"stands in {p.where}: {p.frame.text}")


def _collectives(ws: Workspace, rank: int, view: _View) -> None:
    """Its dump of the flight recorder, and each process group in which it is behind or differs."""
    for recording in recordings(ws)[:4]:
        if rank not in recording.world or any(d.file.good for d in recording.dumps.values()):
            continue
        dump = recording.dumps.get(rank)
        if dump is None:
            some = next(iter(recording.dumps.values()), None)
            if some is not None:
                text = f"rank {rank} left no dump that can be read ({len(recording.dumps)} ranks did)"
                view.add(ws.binary(some.file, "pg_config", "rank_view.no_dump", rank, text, **{"rank": rank}), text)
                view.trouble.append("left no flight-recorder dump")
            continue
        told = story(recording)
        if last := told.last.get(rank):
            ended = "has ended" if last.ended else "has not ended"
            text = f"its last collective: {operation(last.row[1])} {last.row[0]} of {last.group.label}, which {ended}"
            view.add(
                ws.binary(
                    dump.file, f"record {last.record}", "rank_view.last_collective", last.row[0], text, **{"rank": rank}
                ),
                text,
            )
        for v in told.verdicts:
            if rank in v.behind or any(v.kinds and rank in s.ranks for s in v.sides[1:]):
                what = "behind" if rank in v.behind else f"other in {', '.join(v.kinds)}"
                text = f"{v.group.label}: {what} at collective {v.seq} (came to {v.last.get(rank, 0)} of {v.front})"
                view.add(
                    ws.binary(dump.file, v.group.label, "rank_view.collective_differs", v.seq, text, **{"rank": rank}),
                    text,
                )
                view.trouble.append(text)


def _pace(ws: Workspace, rank: int, view: _View) -> None:
    """Its median against the middle of the other ranks, for each timer that several ranks print."""
    for table in rank_tables(ws, *PACES):
        if rank not in table.ranks or len(table.ranks) < 2:
            continue
        medians = np.median(table.values, axis=0)
        mine = float(medians[table.ranks.index(rank)])
        rest = float(np.median([m for r, m in zip(table.ranks, medians, strict=True) if r != rank]))
        series, at = table.source(rank)
        row = f"{table.metric}: {mine:.4g}, the others {rest:.4g} (medians over {len(table.steps)} common steps)"
        view.add(point_evidence(ws, series, at, f"rank_view.{table.metric}", {"own": mine, "others": rest}), row)
        worse = rest / mine if table.metric == "throughput" and mine > 0 else mine / rest if rest > 0 else 1.0
        if worse > UNEQUAL and table.metric != "comm_time":
            view.trouble.append(f"its {table.metric.replace('_', ' ')} is {worse:.2f} times that of the others")


def _at(file: RunFile, line: Line) -> str:
    return f"{file.name}:{line.number}"
