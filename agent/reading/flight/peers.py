"""Sends and receives of one process group that found no counterpart."""

from __future__ import annotations

from dataclasses import dataclass

from .dump import Work, peer
from .groups import Group
from .recordings import Recording


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
