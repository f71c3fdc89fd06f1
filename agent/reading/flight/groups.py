"""Process groups over all ranks: who belongs to one, and what each member enqueued in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .dump import Dump, Key, Work
from .recordings import Recording

DEFAULT = "default_pg"


@dataclass(slots=True)
class Group:
    """One process group.

    Attributes:
        key: its name and description.
        ranks: its members; where no dump states them, those that enqueued something in it.
        work: collectives by rank, of the members that have a dump and enqueued something.
        peers: sends and receives by rank.
    """

    key: Key
    ranks: tuple[int, ...]
    work: dict[int, Work] = field(default_factory=dict)
    peers: dict[int, Work] = field(default_factory=dict)

    @property
    def label(self) -> str:
        name, about = self.key
        return about if about and about != "undefined" else f"group {name}"


def groups(recording: Recording) -> list[Group]:
    """Every process group in which something was enqueued. Two of one name with other members are two."""
    found: dict[tuple[Key, tuple[int, ...] | None], Group] = {}
    for rank, dump in sorted(recording.dumps.items()):
        for key in {**dump.work, **dump.peers}:
            ranks = members(dump, key, recording)
            group = found.setdefault((key, ranks), Group(key, ranks or ()))
            if key in dump.work:
                group.work[rank] = dump.work[key]
            if key in dump.peers:
                group.peers[rank] = dump.peers[key]
    for (_, ranks), group in found.items():
        if ranks is None:
            group.ranks = tuple(sorted({*group.work, *group.peers}))
    return list(found.values())


def members(dump: Dump, key: Key, recording: Recording) -> tuple[int, ...] | None:
    """Members of a group as a dump states them, None where it does not.

    With Gloo the dump names only the first group, by an empty name, while its entries call it `0`, `default_pg`.
    """
    if key in dump.members:
        return dump.members[key]
    same = [ranks for (name, _), ranks in dump.members.items() if name == key[0]]
    if len(same) == 1:
        return same[0]
    if key[1] == DEFAULT:
        return dump.members.get(("", "")) or recording.world
    return None
