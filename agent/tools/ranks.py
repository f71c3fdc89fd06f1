"""Who took part, who failed first, who fell silent, who is missing."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading.failure import Failure
from ..reading.failures import Failures, failures
from ..reading.last_words import early_leavers, stood_apart
from ..reading.logpass import logpass
from ..reading.rank_counts import DONE, unequal
from ..reading.rank_settings import unlike
from ..reading.roster import Member, Roster, roster
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHOWN = 64

EMITS = (
    "rank.seen",
    "rank.world_size",
    "rank.missing",
    "rank.no_file",
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
    if seen.missing and 2 * len(seen.ranks) >= (seen.world or 0):  # often only rank 0 logs at all
        missing: list = list(seen.missing[:SHOWN])
        yield ws.cite(file, line, "rank.no_file" if seen.uncollected else "rank.missing", missing)


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
        ("rank.no_file", "no log collected of"),
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
    return "\n".join(rows)
