"""Collective timeouts and mismatches: who reports, who is silent, who is behind, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...core.types import Evidence, ToolResult
from ...reading.logs import nccl_lines as nl
from ...reading.logs.standstill import at_work, working
from ...reading.run.files import last_line
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import Anchored, Hit, anchored
from ..tool import clean, few, finding, tool

SHOWN_RANKS = 32  # of one message; the lists of ranks are complete


@dataclass(slots=True)
class Report:
    """One rank's timeout or queue state, with its line."""

    hit: Hit
    rank: int | None
    work: nl.Work | None = None
    progress: nl.Progress | None = None


@tool(
    emits=(
        "watchdog.timeout", "watchdog.timeout_ms", "watchdog.barrier", "watchdog.first_collective",
        "watchdog.behind_rank", "watchdog.ranks_silent", "watchdog.one_silent", "watchdog.silent_rank_works",
        "watchdog.main_rank_alone", "watchdog.seq_differs", "watchdog.op_differs", "watchdog.size_differs",
        "watchdog.shape_differs", "watchdog.mismatch", "watchdog.async_error", "watchdog.remote_closed",
        "watchdog.connection_reset", "watchdog.peer_last_line", "watchdog.local_peer_closed", "watchdog.gloo_timeout",
        "watchdog.clients_missing", "watchdog.heartbeat",
    ),
    recall=True,
)  # fmt: skip
def watchdog(ws: Workspace) -> ToolResult:
    """Read the reports of PyTorch's collective watchdog and of its debug modes over all ranks.

    Use when a job hangs or dies with a collective timeout, an async NCCL error, a monitored barrier or a
    "mismatch between collectives". Compares sequence number, operation and sizes between ranks, and says
    which ranks report nothing: the culprit is often the silent one. A timeout is a consequence, not a cause.
    """
    found = anchored(ws)
    reports = _reports(found)
    world = _world(found)
    evidence = [
        *_timeouts(ws, reports),
        *_differences(ws, reports),
        *_who_is_behind(ws, reports),
        *_roster(ws, found, reports, world),
        *_mismatches(ws, found),
        *_late_without_watchdog(ws, found),
        *_other_lines(ws, found),
    ]
    if not evidence and not reports:
        return clean("no collective timeout, mismatch or lost peer")
    return finding(_summary(reports, evidence), evidence, _told(reports, evidence))


def _reports(found: Anchored) -> list[Report]:
    reports: list[Report] = []
    for hit in found.of("watchdog"):
        text = hit.text
        if nl.TIMEOUT.search(text) and (work := nl.work_of(text)):
            reports.append(Report(hit, _first(work.rank, hit.rank), work=work))
        if progress := nl.progress_of(text):
            reports.append(Report(hit, _first(progress.rank, hit.rank), progress=progress))
    return _once(reports)


def _first(*ranks: int | None) -> int | None:
    return next((r for r in ranks if r is not None), None)


def _once(reports: list[Report]) -> list[Report]:
    """A rank repeats its timeout when its watchdog thread ends; the first stands for all."""
    seen: set[tuple] = set()
    kept = []
    for r in reports:
        same = (
            r.rank if r.rank is not None else r.hit.file.name,
            repr(r.work and (r.work.seq, r.work.op, r.work.group)),
            r.progress is None,
        )
        if same not in seen:
            seen.add(same)
            kept.append(r)
    return kept


def _timeouts(ws: Workspace, reports: list[Report]) -> Iterator[Evidence]:
    timeouts = [(r, r.work) for r in reports if r.work]
    for r, work in timeouts[:SHOWN_RANKS]:
        yield ws.cite(r.hit.file, r.hit.line, "watchdog.timeout", work.op, rank=r.rank)
    for r, work in timeouts[:1]:
        if work.timeout_ms is not None:
            yield ws.cite(r.hit.file, r.hit.line, "watchdog.timeout_ms", work.timeout_ms, rank=r.rank)
        if work.op == "BARRIER":
            yield ws.cite(r.hit.file, r.hit.line, "watchdog.barrier", True, rank=r.rank)
    first = next((r for r, work in timeouts if work.seq is not None and work.seq <= 2), None)
    none_done = next((r for r in reports if r.progress and r.progress.completed <= 0), None)
    if (early := first or none_done) and not any((work.seq or 0) > 2 for _, work in timeouts):
        yield ws.cite(early.hit.file, early.hit.line, "watchdog.first_collective", True, rank=early.rank)


def _groups(reports: Iterable[Report]) -> list[list[Report]]:
    """Reports of the same process group; a message without a group belongs to the unnamed one."""
    groups: dict[str, list[Report]] = {}
    for r in reports:
        name = (r.work.group if r.work else r.progress.group if r.progress else "").split(" PG GUID")[0]
        groups.setdefault(name, []).append(r)
    return list(groups.values())


def _differences(ws: Workspace, reports: list[Report]) -> Iterator[Evidence]:
    """The minority value of sequence number, operation or size among ranks of a group, each with its line."""
    for group in _groups(_earliest(reports)):
        for key in ("seq", "op", "size", "shape"):
            by_value: dict[object, list[Report]] = {}
            for r in group:
                if (value := _value(r, key)) not in (None, ""):
                    by_value.setdefault(value, []).append(r)
            if len(by_value) < 2:
                continue
            for value, same in sorted(by_value.items(), key=lambda x: -len(x[1]))[::-1][:4]:
                r, ranks = same[0], sorted(r.rank for r in same if r.rank is not None)
                shown = value[0] if isinstance(value, tuple) else value
                text = f"{shown} on ranks {ranks[:16]}"
                yield ws.cite(r.hit.file, r.hit.line, f"watchdog.{key}_differs", text, rank=r.rank)


def _earliest(reports: list[Report]) -> list[Report]:
    """Each rank's first stuck collective of a group: later ones time out behind it."""
    first: dict[tuple[int, str], Report] = {}
    for r in reports:
        if r.work is not None and r.rank is not None:
            known = first.get((r.rank, r.work.group))
            if known is None or (r.work.seq or 0) < (_value(known, "seq") or 0):
                first[r.rank, r.work.group] = r
    return list(first.values())


def _value(report: Report, key: str) -> Any:
    work = report.work
    if work is None or key != "size":
        return getattr(work, key, None)
    return (work.numel_in, work.numel_out) if work.numel_in is not None else None


def _who_is_behind(ws: Workspace, reports: list[Report]) -> Iterator[Evidence]:
    for group in _groups([r for r in reports if r.progress and r.rank is not None] + _earliest(reports)):
        for number in ("enqueued", "seq"):
            at = {r.rank: (n, r) for r in group if (n := getattr(r.progress or r.work, number, None)) is not None}
            lowest = min((n for n, _ in at.values()), default=0)
            behind = [r for n, r in at.values() if n == lowest]
            if at and len(behind) < len(at) and 2 * len(behind) <= len(at):
                for r in behind[:8]:
                    yield ws.cite(r.hit.file, r.hit.line, "watchdog.behind_rank", r.rank, rank=r.rank)
                break


def _world(found: Anchored) -> tuple[int, Hit] | None:
    sizes = [(size, hit) for hit in found.of("world") if (size := nl.world_size(hit.text))]
    return max(sizes, key=lambda x: x[0]) if sizes else None


def _roster(ws: Workspace, found: Anchored, reports: list[Report], world: tuple[int, Hit] | None) -> Iterator[Evidence]:
    reporting = sorted({r.rank for r in reports if r.rank is not None})
    if not reporting:
        return
    last = next(r for r in reports if r.rank == reporting[-1])
    size = max(reporting[-1] + 1, world[0] if world and world[0] <= 1 << 17 else 0)
    silent = sorted(set(range(size)) - set(reporting))
    if not silent or (len(reporting) < 2 and not world):
        return
    # the world size is stated by its own line where there is one; else the highest reporting rank implies it
    cited = world[1] if world and size == world[0] else last.hit
    yield ws.cite(cited.file, cited.line, "watchdog.ranks_silent", silent[:64])
    first = next((r for r in reports if r.work and r.work.timeout_ms), None)
    late = working(ws, silent[:8], first.hit, first.work.timeout_ms or 0) if first is not None and first.work else {}
    for rank, (file, line) in late.items():
        yield ws.cite(file, line, "watchdog.silent_rank_works", rank, rank=rank)
    if len(silent) == 1 and not late:
        key = "watchdog.main_rank_alone" if _alone(found, reports, silent[0]) else "watchdog.one_silent"
        yield ws.cite(cited.file, cited.line, key, silent[0])


def _alone(found: Anchored, reports: list[Report], silent: int) -> bool:
    """The others wait in a barrier for the first rank, whose death a closed connection would have told them."""
    works = [r.work for r in reports if r.work]
    lost = any(nl.closed_peer(hit.text) is not None for hit in found.of("watchdog"))
    return silent == 0 and not lost and bool(works) and all(w.op == "BARRIER" for w in works)


def _mismatches(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    told = [(h, mismatch) for h in found.of("watchdog") if (mismatch := nl.mismatch_of(h.text))]
    for hit, mismatch in told[:8]:
        for kind in mismatch.kinds or ["unknown"]:
            yield hit.cite(ws, "watchdog.mismatch", "size" if kind == "shape" else kind)
            if kind in {"shape", "op"} and len(mismatch.sides) >= 2:
                sides = " / ".join(f"rank {s.get('rank')}: {s.get(kind)}" for s in mismatch.sides[:4])
                key = "size" if kind == "shape" else kind
                yield hit.cite(ws, f"watchdog.{key}_differs", sides)


def _late_without_watchdog(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    """Under gloo nobody reports for all: ranks that wrote on late in another's wait, with no timeout of their own."""
    waits = [(h, m) for h in found.of("watchdog") if h.rank is not None and (m := nl.GLOO_WAIT.search(h.text))]
    told = {h.rank for h, _ in waits}
    for hit, m in waits[:4]:
        for word in at_work(ws, hit.rank or 0, int(m[1])):
            if word.rank not in told:
                told.add(word.rank)
                yield ws.cite(word.file, word.line, "watchdog.silent_rank_works", word.rank, rank=word.rank)


def _other_lines(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    """Lost peers, async errors, barriers, heartbeat and store messages, a few of each."""
    said = ((key, value, hit) for hit in found.of("watchdog") for key, value in _facts(hit.text))
    for key, value, hit in few(said, 6, lambda x: x[0]):
        yield hit.cite(ws, f"watchdog.{key}", value)
        if key == "remote_closed":
            yield from _peer(ws, hit, str(value))


def _facts(text: str) -> Iterator[tuple[str, str | int | list[int]]]:
    if m := nl.ASYNC.search(text):
        yield "async_error", m["error"].strip()[:200]
    if (peer := nl.closed_peer(text)) is not None:
        local = bool(peer) and nl.is_this_machine(peer)
        yield ("remote_closed", peer) if peer and not local else ("connection_reset", text.strip()[:160])
        if local:
            yield "local_peer_closed", peer
    if m := nl.BARRIER_RANKS.search(text):
        yield "barrier", f"ranks {m['ranks']} did not pass in {m['ms']} ms"
        for rank in nl.ranks_in(m["ranks"])[:8]:
            yield "behind_rank", rank
    if m := nl.DESYNC.search(text):
        for rank in nl.ranks_in(m["ranks"])[:8]:
            yield "behind_rank", rank
    if m := nl.GLOO_WAIT.search(text):
        yield "gloo_timeout", f"{m[2]} {m[1]} ms"
    if (m := nl.CLIENTS.search(text)) and m[1] != m[2]:
        yield "clients_missing", f"{m[1]} of {m[2]} joined"
    if nl.HEARTBEAT.search(text):
        yield "heartbeat", text.strip()[:200]


def _peer(ws: Workspace, hit: Hit, peer: str) -> Iterator[Evidence]:
    """The last line of the log that the named peer left: a peer that just stops is the suspect."""
    name = peer.split(".")[0].lower()
    if not name or name.isdigit():
        return
    for file in ws.by_role("log", "capture", "other"):
        if file.name != hit.file.name and name in file.path.name.lower() and (line := last_line(file)):
            yield ws.cite(file, line, "watchdog.peer_last_line", line.text.strip()[:200])
            return


def _summary(reports: list[Report], evidence: list[Evidence]) -> str:
    by_key = {e.key: e for e in evidence}
    parts = []
    if e := by_key.get("watchdog.timeout"):
        parts.append(f"{e.value} timed out")
    if e := by_key.get("watchdog.ranks_silent"):
        parts.append(f"ranks {e.value} report nothing")
    if e := by_key.get("watchdog.behind_rank"):
        parts.append(f"rank {e.value} is behind")
    if e := by_key.get("watchdog.mismatch"):
        parts.append(f"collectives differ in {e.value}")
    if e := by_key.get("watchdog.remote_closed"):
        parts.append(f"peer {e.value} closed the connection")
    return "; ".join(parts) or f"{max(len(reports), len(evidence))} line(s) of the process groups"


def _told(reports: list[Report], evidence: list[Evidence]) -> str:
    rows = [f"{e.key} = {e.value}" for e in evidence if e.key != "watchdog.timeout"]
    for r in reports[:SHOWN_RANKS]:
        state = r.work or r.progress
        rows.append(f"{r.hit.file.name}:{r.hit.line.number} rank {r.rank}: {state}")
    if len(reports) > SHOWN_RANKS:
        rows.append(f"... {len(reports) - SHOWN_RANKS} more of {len(reports)}")
    return "\n".join(rows)
