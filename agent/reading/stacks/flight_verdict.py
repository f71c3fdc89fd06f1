"""Where the ranks of one process group part: the first collective that differs, who is behind, who waits."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from ...core import deadline
from .flight_dump import Dump, Work, peer
from .flight_recordings import Group, Recording, groups

# ----------
# What must agree between ranks that run one collective, and in what two rows differ.


Row = tuple  # (sequence number, operation, input sizes, output sizes, input dtypes, output dtypes)

# Parts of a row (by position) that may rightly differ between ranks: only the root of a gather has outputs, and
# every rank sends and receives what it likes in an all-to-all.
_FREE: dict[str, tuple[int, ...]] = {
    "all_to_all": (2, 3), "all_to_all_single": (2, 3), "all_to_all_v_single": (2, 3), "alltoall": (2, 3),
    "alltoall_base": (2, 3), "all_gather_v": (2, 3), "reduce_scatter_v": (2, 3), "scatter": (2, 4), "gather": (3, 5),
    "reduce": (3, 5), "_reduce_oop": (3, 5), "broadcast": (4,), "_broadcast_oop": (2, 4),
}  # fmt: skip
TOGETHER = frozenset({  # none of their members ends before all have entered
    "all_reduce", "all_reduce_coalesced", "all_reduce_barrier", "barrier", "all_gather", "_all_gather_base",
    "all_gather_into_tensor_coalesced", "all_gather_coalesced", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced", "all_to_all", "all_to_all_single", "alltoall", "alltoall_base",
})  # fmt: skip
KINDS = ("op", "size", "dtype")


def operation(name: str) -> str:
    """`nccl:all_reduce` -> `all_reduce`."""
    return name.rpartition(":")[2].partition(" ")[0]


def strict(rows: list[Row]) -> list[Row]:
    """Rows without the parts that may differ, so that ranks in step have equal lists."""
    free = {name: _FREE[op] for name in {r[1] for r in rows} if (op := operation(name)) in _FREE}
    if not free:
        return rows
    return [_without(r, free[r[1]]) if r[1] in free else r for r in rows]


def _without(row: Row, free: tuple[int, ...]) -> Row:
    return tuple(None if i in free else part for i, part in enumerate(row))


def kinds(one: Row, other: Row) -> list[str]:
    """In what two rows of `strict` differ: op, size, dtype; `order` where they are not the same turn at all."""
    if one[0] != other[0]:
        return ["order"]
    if one[1] != other[1]:
        return ["op"]
    found = []
    if one[2:4] != other[2:4]:
        found.append("size")
    if one[4:6] != other[4:6]:
        found.append("dtype")
    return found


def shift(usual: list[Row], odd: list[Row], at: int) -> str | None:
    """How the odd rank's order differs from `at` on: it skipped one, has one more, or swapped two; else None."""
    mine, theirs = [r[1:] for r in odd[at : at + 4]], [r[1:] for r in usual[at : at + 4]]
    if len(mine) > 1 and len(theirs) > 1 and mine[0] == theirs[1] and mine[1] == theirs[0]:
        return "swapped"
    if len(theirs) > 1 and mine and _same(mine, theirs[1:]):
        return "skipped"
    if len(mine) > 1 and theirs and _same(mine[1:], theirs):
        return "extra"
    return None


def _same(one: list, other: list) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]


# ----------


@dataclass(slots=True)
class Side:
    """Ranks that enqueued the same at the first difference. `work` is that of one of them, `at` the place in it."""

    ranks: list[int]
    row: Row
    work: Work
    at: int


@dataclass(slots=True)
class Verdict:
    """What is said of one process group.

    Attributes:
        kinds: in what the collective with number `seq` differs (op, size, dtype, order); empty where it does not.
        sides: the ranks by what they enqueued there, most ranks first.
        shift: how the smaller side's order differs: skipped, extra or swapped.
        front: number of the last collective that any rank enqueued; `last` by rank, 0 for one that enqueued none.
        behind: ranks with a dump that did not get as far; `unheard`: members without a dump.
        seq: the first number at which something is wrong, None where nothing is.
        row: what the ranks that are there run.
        waiting: ranks that entered it and did not end it; `timed_out`: given up by the watchdog.
        state_seq: the first number at which ranks that entered it are in different states.
        since: nanoseconds when the first rank entered it.
        lost: the buffers have wrapped, so that what came before `base` is not compared.
    """

    group: Group
    base: int = 0
    kinds: list[str] = field(default_factory=list)
    sides: list[Side] = field(default_factory=list)
    shift: str | None = None
    front: int = 0
    last: dict[int, int] = field(default_factory=dict)
    behind: list[int] = field(default_factory=list)
    unheard: list[int] = field(default_factory=list)
    seq: int | None = None
    row: Row | None = None
    waiting: list[int] = field(default_factory=list)
    timed_out: list[int] = field(default_factory=list)
    state_seq: int | None = None
    since: int = 0
    lost: bool = False

    @property
    def wrong(self) -> bool:
        return bool(self.kinds or self.behind or self.timed_out)

    @property
    def all_in(self) -> bool:
        """Every member has entered the collective that does not end, and they agree on it."""
        return bool(self.waiting) and not (self.kinds or self.behind or self.unheard)


def verdict(group: Group, recording: Recording) -> Verdict:
    """Compare all ranks of a group."""
    found = Verdict(group, unheard=[r for r in group.ranks if r not in recording.dumps])
    present = [r for r in group.ranks if r in recording.dumps]
    if not group.work:
        return found
    found.last = {r: group.work[r].last() if r in group.work else 0 for r in present}
    found.front = max(found.last.values())
    wrapped = [group.work[r].first() for r in group.work if recording.dumps[r].begins > 0]
    found.lost = bool(wrapped)
    found.base = max(wrapped, default=0)
    found.behind = _late([r for r in present if found.last[r] < found.front], found, recording)
    _differ(found)
    _states(found, recording)
    if found.kinds:
        found.behind = []  # after a difference the numbers of the ranks say nothing more
    elif found.behind and not found.waiting and not any(recording.dumps[r].backend == "gloo" for r in found.last):
        found.behind = []  # what the others ran beyond it has ended, so it took part: its dump is only older
    elif found.behind:
        found.seq = min(found.last[r] for r in found.behind) + 1
    elif found.seq is None and found.waiting:
        found.seq = found.front
    _entered(found)
    return found


def _late(behind: list[int], found: Verdict, recording: Recording) -> list[int]:
    """Of the ranks behind, those that did not take part later, after their dump was written.

    What needs every rank to end, and was followed by more on the same rank, has ended on all of them. A dump without
    any entry is no older one: nothing was recorded.
    """
    if not behind:
        return []
    proved = 0
    for rank, work in found.group.work.items():
        dump = recording.dumps[rank]
        newest = max(w.records[-1] for works in (dump.work, dump.peers) for w in works.values())
        for at in range(len(work.rows) - 1, -1, -1):
            if work.rows[at][0] <= proved:
                break
            if work.records[at] < newest and operation(work.rows[at][1]) in TOGETHER and done(dump, work.states[at]):
                proved = work.rows[at][0]
                break
    return [r for r in behind if found.last[r] >= proved or not found.last[r]]


def _differ(found: Verdict) -> None:
    """Sort the ranks into classes with equal rows, and find the first place at which two classes differ."""
    classes: list[tuple[list[Row], list[int], int, int]] = []  # rows, ranks, rank shown, place of the first row
    for rank, work in found.group.work.items():
        at = bisect_left(work.rows, (found.base,)) if found.base else 0
        rows = strict(work.rows[at:] if at else work.rows)
        deadline.check()
        same = next((c for c in classes if c[0] is rows or (c[0][-1:] == rows[-1:] and c[0] == rows)), None)
        if same is None:
            classes.append((rows, [rank], rank, at))
        else:
            same[1].append(rank)
    if len(classes) < 2:
        return
    first = _parting([c[0] for c in classes])
    if first is None:
        return
    at_it: list[tuple[Row, Side, list[Row]]] = []
    for rows, ranks, rank, start in classes:
        if first >= len(rows):
            continue
        same = next((s for row, s, _ in at_it if row == rows[first]), None)
        if same is None:
            work = found.group.work[rank]
            at_it.append((rows[first], Side(list(ranks), work.rows[start + first], work, start + first), rows))
        else:
            same.ranks += ranks
    at_it.sort(key=lambda s: -len(s[1].ranks))
    usual, odd = at_it[0], at_it[-1]
    found.kinds = kinds(usual[0], odd[0])
    found.shift = shift(usual[2], odd[2], first)
    found.sides = [side for _, side, _ in at_it]
    found.seq = usual[0][0]


def _parting(lists: list[list[Row]]) -> int | None:
    """The first place at which two lists have different rows; None where each is the start of the longest."""
    longest = max(lists, key=len)
    low: int | None = None
    for rows in lists:
        common = len(rows) if low is None else min(len(rows), low)
        if rows[:common] == longest[:common]:
            continue
        same, right = 0, common  # the first `same` rows agree, the first `right` do not
        while right - same > 1:
            middle = (same + right) // 2
            if rows[same:middle] == longest[same:middle]:
                same = middle
            else:
                right = middle
        low = same
    return low


def done(dump: Dump, state: tuple[str, bool]) -> bool:
    """Whether an entry has ended. Gloo leaves the state at `scheduled` for good and only retires the entry."""
    return state[0] == "completed" or (state[1] and dump.backend == "gloo")


def _states(found: Verdict, recording: Recording) -> None:
    """The first collective of each rank that has not ended, and whether the watchdog gave it up."""
    pending: dict[int, int] = {}
    for rank, work in found.group.work.items():
        dump = recording.dumps[rank]
        open_ = [work.states.index(s) for s in set(work.states) if not done(dump, s)]
        if open_:
            pending[rank] = min(open_)
    if not pending:
        return
    numbers = {r: found.group.work[r].rows[at][0] for r, at in pending.items()}
    low = min(numbers.values())
    found.waiting = sorted(r for r, n in numbers.items() if n == low)
    found.timed_out = [r for r in found.waiting if found.group.work[r].states[pending[r]][1]]
    if found.seq is None:
        found.seq = low
    found.state_seq = _uneven_states(found, low)


def _uneven_states(found: Verdict, start: int) -> int | None:
    """The first number from `start` on at which ranks that entered it are in different states."""
    seen: dict[int, str] = {}
    uneven: list[int] = []
    for work in found.group.work.values():
        for at in range(bisect_left(work.rows, (start,)), len(work.rows)):
            number = work.rows[at][0]
            if seen.setdefault(number, work.states[at][0]) != work.states[at][0]:
                uneven.append(number)
                break
    return min(uneven, default=None)


def _entered(found: Verdict) -> None:
    """What runs at the number in question, and since when."""
    if found.seq is None:
        return
    times = []
    found.row = found.sides[0].row if found.sides else None
    for work in found.group.work.values():
        at = bisect_left(work.rows, (found.seq,))
        if at < len(work.rows) and work.rows[at][0] == found.seq:
            found.row = found.row or work.rows[at]
            if work.created[at]:
                times.append(int(work.created[at]))
    found.since = min(times, default=0)


# ----------
# Sends and receives of one process group that found no counterpart.


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A send that nobody receives, a receive that nobody sends, or a pair of different sizes.

    `kind` is unreceived, unsent or size; ranks are global; `record` is its number in the dump of `rank`.
    """

    kind: str
    rank: int
    other: int
    number: int
    sizes: list
    record: int


def unpaired(group: Group, recording: Recording, most: int = 64) -> list[Unpaired]:
    """What stays alone, oldest first; a peer without a dump is not judged."""
    sends, receives = _ends(group, "send"), _ends(group, "recv")
    found: list[Unpaired] = []
    for (source, target), sent in sends.items():
        got = receives.get((source, target), {})
        if target in recording.dumps:
            low = _from(group, recording, target, got)
            found += [
                Unpaired("unreceived", source, target, n, work.rows[at][2], work.records[at])
                for n, (work, at) in sent.items()
                if n not in got and n >= low
            ]
        for n in sent.keys() & got.keys():
            (work, at), (other, there) = sent[n], got[n]
            if work.rows[at][2] != other.rows[there][3]:
                found.append(Unpaired("size", source, target, n, work.rows[at][2], work.records[at]))
    for (source, target), got in receives.items():
        sent = sends.get((source, target), {})
        if source in recording.dumps:
            low = _from(group, recording, source, sent)
            found += [
                Unpaired("unsent", target, source, n, work.rows[at][3], work.records[at])
                for n, (work, at) in got.items()
                if n not in sent and n >= low
            ]
    return sorted(found, key=lambda u: (u.number, u.rank))[:most]


def _ends(group: Group, kind: str) -> dict[tuple[int, int], dict[int, tuple[Work, int]]]:
    """(from, to) in global ranks -> number of the pair -> where it stands."""
    found: dict[tuple[int, int], dict[int, tuple[Work, int]]] = {}
    ranks = group.ranks
    for work in group.peers.values():
        for at, row in enumerate(work.rows):
            told = peer(row[1])
            if told and told[0] == kind and max(told[1:]) < len(ranks):
                found.setdefault((ranks[told[1]], ranks[told[2]]), {})[row[0]] = (work, at)
    return found


def _from(group: Group, recording: Recording, rank: int, known: dict[int, tuple[Work, int]]) -> int:
    """The first number that the buffer of a rank can still show: where it has wrapped, the oldest it shows."""
    if recording.dumps[rank].begins == 0:
        return 0
    work = group.peers.get(rank)
    return min(known, default=min((r[0] for r in work.rows), default=0) if work else 1 << 62)


# ----------
# A whole recording told: what each process group did, which of them went wrong first, and where its ranks are.

HOPS = 16


@dataclass(slots=True)
class Last:
    """The last thing a rank enqueued anywhere: its process group, row, record and whether that has ended."""

    group: Group
    row: Row
    record: int
    ended: bool
    created: int


@dataclass(slots=True)
class Story:
    """What a recording says. `first` is where it began to go wrong, None where all ranks agree."""

    recording: Recording
    verdicts: list[Verdict] = field(default_factory=list)
    first: Verdict | None = None
    last: dict[int, Last] = field(default_factory=dict)
    unpaired: list[tuple[Group, Unpaired]] = field(default_factory=list)

    @property
    def waits(self) -> Verdict | None:
        """The group in which members wait in the same collective, where nothing else is wrong.

        With Gloo what has ended on one rank has ended for all: another rank that still holds it was only dumped in
        the moment before it noticed.
        """
        dumps = self.recording.dumps
        stuck = [
            v
            for v in self.verdicts
            if v.waiting
            and (v.unheard or len(v.waiting) == len(v.last) or any(dumps[r].backend != "gloo" for r in v.waiting))
        ]
        return min(stuck, key=lambda v: v.since) if stuck and self.first is None else None


def story(recording: Recording) -> Story:
    """Compare all ranks in all process groups."""
    told = Story(recording)
    for group in groups(recording):
        told.verdicts.append(verdict(group, recording))
        told.unpaired += [(group, u) for u in unpaired(group, recording)]
    told.last = _last(told)
    told.first = _first(told)
    return told


def _last(told: Story) -> dict[int, Last]:
    found: dict[int, Last] = {}
    for v in told.verdicts:
        for works in (v.group.work, v.group.peers):
            for rank, work in works.items():
                if rank not in found or work.records[-1] > found[rank].record:
                    ended = done(told.recording.dumps[rank], work.states[-1])
                    found[rank] = Last(v.group, work.rows[-1], work.records[-1], ended, int(work.created[-1]))
    return found


def _first(told: Story) -> Verdict | None:
    """The group where it began: the earliest difference; a rank that is late here as it waits elsewhere leads there."""
    wrong = sorted((v for v in told.verdicts if v.wrong), key=lambda v: v.since)
    if not wrong:
        return None
    at, seen = wrong[0], set()
    for _ in range(HOPS):
        seen.add(at.group.key)
        late = [told.last[r] for r in at.behind if r in told.last]
        open_ = [place.group for place in late if not place.ended]
        ahead = next((v for v in wrong if v.group.key not in seen and any(v.group is g for g in open_)), None)
        if at.kinds or ahead is None:
            return at
        at = ahead
    return at
