"""Who took part, who failed first, who fell silent, who is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from ...core.types import Evidence, ToolResult
from ...reading.curves.curves import point_evidence
from ...reading.curves.rank_series import rank_tables
from ...reading.logs.failures import Failures, failures
from ...reading.logs.roster import DONE, Member, Roster, last_lines, roster, told_of, unequal, unlike, was_seen
from ...reading.logs.standstill import early_leavers, stood_apart
from ...reading.logs.tracebacks import Failure
from ...reading.run.files import Line, RunFile
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import anchored, excerpt
from ...reading.scan.logpass import logpass
from ...reading.stacks import stack_dumps
from ...reading.stacks.flight_recordings import recordings
from ...reading.stacks.flight_verdict import operation, story
from ...reading.stacks.stack_groups import place
from ..tool import clean, finding, not_applicable, tool

SHOWN = 64

EMITS = (
    "rank.seen",
    "rank.world_size",
    "rank.missing",
    "rank.first_failed",
    "rank.silent_while_others_fail",
    "rank.last_seen_step",
    "rank.step_spread",
    "rank.all_same_error",
    "rank.only_one_failed",
    "rank.counts_differ",
    "rank.setting_differs",
    "rank.silent_done",
    "rank.left_epoch_early",
)


@tool(recall=True, emits=EMITS)
def rank_roster(ws: Workspace) -> ToolResult:
    """List the ranks: seen, missing, first to fail, fallen silent

    The culprit is often the rank that says nothing while the others complain, or whose log just stops. Ranks come
    from line labels, file names and hosts; a rank that only the world size implies is missing.
    """
    if not logpass(ws).files:
        return not_applicable("no log to read ranks from")
    seen, wrong = roster(ws), failures(ws)
    if len(seen.members) < 2 and seen.world is None:
        return not_applicable("nothing in the logs names more than one rank")
    evidence = [
        *_who(ws, seen),
        *_failed(ws, seen, wrong),
        *_silent(ws, seen),
        *_steps(ws, seen),
        *_counts(ws),
        *_settings(ws),
        *_ends(ws),
    ]
    text = _table(seen)
    if any(e.key in ("rank.missing", "rank.silent_while_others_fail", "rank.first_failed") for e in evidence):
        return finding(_headline(seen, evidence), evidence, text)
    return clean(f"{len(seen.members)} ranks or hosts seen, none missing or silent", evidence, text)


def _cite(ws: Workspace, member: Member, key: str, value: object) -> Iterator[Evidence]:
    if member.last is not None:
        yield ws.cite(
            member.file,
            member.last,
            key,
            value,
            rank=member.rank,
            step=member.step,  # type: ignore[arg-type]
            time=member.last_stamp.text if member.last_stamp else None,
        )


def _who(ws: Workspace, seen: Roster) -> Iterator[Evidence]:
    members = list(seen.members.values())
    if members:
        yield from _cite(ws, members[-1], "rank.seen", len(members))
    if seen.world_line is None:
        return
    file, line = seen.world_line
    yield ws.cite(file, line, "rank.world_size", seen.world)
    if seen.missing and not seen.uncollected and 2 * len(seen.ranks) >= (seen.world or 0):  # often only rank 0 logs
        yield ws.cite(file, line, "rank.missing", list(seen.missing[:SHOWN]))


def _failed(ws: Workspace, seen: Roster, wrong: Failures) -> Iterator[Evidence]:
    real = [u for u in wrong.units if not u.cascade and u.rank is not None]
    first = _first_ranked(wrong)
    if first is not None:
        time = first.stamp.text if first.stamp else None
        yield ws.cite(
            first.file, first.line, "rank.first_failed", first.rank, rank=first.rank, host=first.host, time=time,
            attempt=first.attempt,
        )  # fmt: skip
    ranks = {u.rank for u in real}
    everyone = set(seen.ranks)
    if not ranks or len(everyone) < 2:
        return
    lead = real[0]
    if len(ranks) == 1:
        yield ws.cite(lead.file, lead.line, "rank.only_one_failed", rank=lead.rank)
    elif ranks >= everyone and any(set(g.ranks) >= everyone for g in wrong.groups):
        yield ws.cite(lead.file, lead.line, "rank.all_same_error", rank=lead.rank)


def _first_ranked(wrong: Failures) -> Failure | None:
    """The first failure, or the same one where it is told with its rank."""
    first = wrong.first
    if first is None or first.rank is not None:
        return first
    same = next((g.members for g in wrong.groups if any(m is first for m in g.members)), [])
    return next((m for m in same if m.rank is not None), None)


def _silent(ws: Workspace, seen: Roster) -> Iterator[Evidence]:
    """A member that reports nothing while at least one other reports a consequence or fails."""
    loud = [m for m in seen.members.values() if m.failed or m.complained]
    if not loud:
        return
    quiet = [m for m in seen.members.values() if not m.failed and not m.complained]
    if any(m.failed for m in loud) and not any(m.complained for m in loud):
        quiet = []  # one fails on its own, the others simply had no time to notice
    for member in quiet[:SHOWN]:
        done = member.last is not None and DONE.search(member.last.text)
        yield from _cite(ws, member, "rank.silent_done" if done else "rank.silent_while_others_fail", member.name)
    if seen.world_line is not None and not quiet and len(loud) >= 2 and not seen.uncollected:
        file, line = seen.world_line
        for rank in seen.missing[:8] if len(seen.missing) * 2 < (seen.world or 0) else []:
            yield ws.cite(file, line, "rank.silent_while_others_fail", rank, rank=rank)
    elif seen.world_line is None and len(loud) >= 3:
        yield from _gap(ws, seen, loud)


def _gap(ws: Workspace, seen: Roster, loud: list[Member]) -> Iterator[Evidence]:
    """With no world size stated: the one rank missing from 0..n of those that complain."""
    ranks = seen.ranks
    absent = [r for r in range(ranks[-1] + 1) if r not in ranks] if ranks else []
    if 0 < len(absent) * 3 <= len(ranks):
        for rank in absent:
            yield from (e.with_(rank=rank) for e in _cite(ws, loud[0], "rank.silent_while_others_fail", rank))


def _steps(ws: Workspace, seen: Roster) -> Iterator[Evidence]:
    known = [m for m in seen.members.values() if m.step is not None]
    for member in known[:SHOWN]:
        yield from _cite(ws, member, "rank.last_seen_step", member.step)
    if len(known) > 1:
        spread = max(m.step or 0 for m in known) - min(m.step or 0 for m in known)
        slowest = min(known, key=lambda m: m.step or 0)
        yield from _cite(ws, slowest, "rank.step_spread", spread)


def _counts(ws: Workspace) -> Iterator[Evidence]:
    """Ranks that announce different numbers of batches or samples; both lines are cited."""
    for thing, low, high in unequal(ws):
        told = {"of": thing, "low": low.count, "high": high.count}
        for share in (low, high):
            yield ws.cite(share.file, share.line, "rank.counts_differ", told, rank=share.rank)


def _settings(ws: Workspace) -> Iterator[Evidence]:
    """Ranks that announce another batch, length or layout than the others; both lines are cited."""
    for usual, odd in unlike(ws):
        told = f"{usual.name}: {odd.value} on {odd.member}, {usual.value} on {usual.member}"
        for one in (odd, usual):
            rank = one.member if isinstance(one.member, int) else None
            yield ws.cite(one.file, one.line, "rank.setting_differs", told, rank=rank)


def _ends(ws: Workspace) -> Iterator[Evidence]:
    """Ranks that say that their epoch is over while others stand in a step of it; both last lines are cited."""
    done, behind = early_leavers(ws)
    if done and stood_apart(ws, behind):
        for word in (*done[:4], *behind[:4]):
            yield ws.cite(word.file, word.line, "rank.left_epoch_early", done[0].rank, rank=word.rank)


def _headline(seen: Roster, evidence: list[Evidence]) -> str:
    parts = [f"{len(seen.members)} seen" + (f" of {seen.world}" if seen.world else "")]
    for key, words in (
        ("rank.first_failed", "first to fail"),
        ("rank.silent_while_others_fail", "silent"),
        ("rank.missing", "missing"),
    ):
        values = [str(e.value) for e in evidence if e.key == key]
        if values:
            parts.append(f"{words}: {', '.join(values[:8])}")
    return "; ".join(parts)


def _table(seen: Roster) -> str:
    rows = []
    for member in list(seen.members.values())[:SHOWN]:
        state = "failed" if member.failed else "complains" if member.complained else "quiet"
        last = member.last.text[:160].strip() if member.last else ""
        number = member.last.number if member.last else 0
        rows.append(f"{member.name}: {state}, step {member.step}, {member.file.name}:{number}: {last}")
    if len(seen.members) > SHOWN:
        rows.append(f"... and {len(seen.members) - SHOWN} more")
    if seen.uncollected:
        rows.append(f"no log collected of ranks {', '.join(map(str, seen.missing[:SHOWN]))}")
    return "\n".join(rows)


# ----------
# One rank from every side: its files and last words, how it failed, where it stands, how fast it is.

RANK_VIEW_SHOWN = 8  # items of one kind; the counts are exact
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
    for file, line, who in told_of(ws, rank)[:RANK_VIEW_SHOWN]:
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
    view.rows += [f"file of its own: {f.name} ({f.role}, {f.size} bytes)" for f in own[:RANK_VIEW_SHOWN]]
    if len(own) > RANK_VIEW_SHOWN:
        view.rows.append(f"... and {len(own) - RANK_VIEW_SHOWN} more files of its own")


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
    for unit in found[:RANK_VIEW_SHOWN]:
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
        for p in stands[: RANK_VIEW_SHOWN // 2]:
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
