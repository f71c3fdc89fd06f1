"""A whole recording told: what each process group did, which of them went wrong first, and where its ranks are."""

from __future__ import annotations

from dataclasses import dataclass, field

from .groups import Group, groups
from .peers import Unpaired, unpaired
from .recordings import Recording
from .rules import Row
from .verdict import Verdict, done, verdict

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
        ahead = next(
            (
                v
                for v in wrong
                for place in late
                if v.group is place.group and not place.ended and v.group.key not in seen
            ),
            None,
        )
        if at.kinds or ahead is None:
            return at
        at = ahead
    return at
