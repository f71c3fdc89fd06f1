"""Where the ranks of one process group part: the first collective that differs, who is behind, who waits."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from ... import deadline
from .dump import Dump, Work
from .groups import Group
from .recordings import Recording
from .rules import TOGETHER, Row, kinds, operation, shift, strict


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
    found.timed_out = sorted(
        r for r in found.waiting if found.group.work[r].states[pending[r]][1] and numbers[r] == low
    )  # fmt: skip
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
