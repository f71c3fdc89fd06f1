"""All dumps of a run, sorted into recordings (one moment of one attempt), each dump with its rank."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from ...core import deadline
from ...core.errors import ParseError
from ..run.files import BLOCK, RunFile
from ..run.roles import is_dump
from .flight_dump import LIMIT, Dump, Key, Twins, Work, callers, load, parse

if TYPE_CHECKING:
    from ..run.workspace import Workspace

HEAD = 8192
ALIKE = 8  # different ends of one process group that are tried
_NAMED = re.compile(r"nccl_trace|comm_trace|flight_?rec", re.IGNORECASE)
_PROSE = (".log", ".txt", ".out", ".err", ".md", ".py", ".sh", ".csv", ".html", ".yaml", ".yml")
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")
_RANK = re.compile(r"(rank[-_.]?)\d+", re.IGNORECASE)


@dataclass(slots=True)
class Recording:
    """Dumps that belong together.

    Attributes:
        name: file name of the dumps with `#` for the rank.
        dumps: by rank.
        broken: files that should be dumps and could not be read, with why.
        guessed: ranks were given in the order of the file names, as nothing else tells them.
    """

    name: str
    dumps: dict[int, Dump] = field(default_factory=dict)
    broken: list[tuple[RunFile, str]] = field(default_factory=list)
    guessed: bool = False

    @property
    def world(self) -> tuple[int, ...]:
        """Every rank that any process group of any dump names, and those below the last where no dump names any."""
        named = {ranks for d in self.dumps.values() for ranks in d.members.values() if ranks}
        if not named and not self.guessed:
            return tuple(range(max(self.dumps, default=-1) + 1))  # with several groups Gloo's dumps list nobody
        return tuple(sorted(set(self.dumps).union(*named)))

    @property
    def missing(self) -> list[int]:
        """Ranks that left no dump that can be read."""
        return [r for r in self.world if r not in self.dumps]


def recordings(ws: Workspace) -> list[Recording]:
    """Every recording of the run, the one with the most dumps first; made once."""
    return ws.memo("flight", lambda: _recordings(ws))


def _recordings(ws: Workspace) -> list[Recording]:
    found: dict[tuple, Recording] = {}
    loose: dict[tuple, list[Dump]] = {}
    alike: dict[Key, list[Work]] = {}
    twins = Twins()
    with _no_collector():
        for file in ws.by_role("trace", "capture"):
            deadline.check()
            named = bool(_NAMED.search(file.path.name))
            data = ws.read(file, LIMIT + 1 if named or file.size < BLOCK else HEAD)
            if not is_dump(data[:HEAD]) and not (named and _no_text(file, data[:HEAD])):
                continue
            place = (file.run, file.good, file.attempt, file.variant, _without_rank(file))
            recording = found.setdefault(place, Recording(place[-1]))
            try:
                whole = data if len(data) > HEAD else ws.read(file, LIMIT + 1)
                dump = twins.of(file, whole)
                if dump is None:
                    dump = parse(file, whole)
                    twins.learn(whole, dump)
            except ParseError as e:
                why = "empty" if not file.size else str(e)
                recording.broken.append((file, why))
                ws.tell(file.name, f"flight-recorder dump: {why}")
                continue
            for key, work in dump.work.items():
                _share(alike.setdefault(key, []), work)
            if dump.rank is None:
                loose.setdefault(place, []).append(dump)
            else:
                _keep(recording.dumps, dump.rank, dump)
    for place, dumps in _together(loose).items():
        _place(found[place], dumps)
    kept = [r for r in found.values() if r.dumps or r.broken]
    return sorted(kept, key=lambda r: -len(r.dumps))


def _share(known: list[Work], work: Work) -> None:
    """Ranks in step hold equal rows: kept once, they need a thousandth of the memory."""
    for other in known[-ALIKE:]:
        if other.rows[-1] == work.rows[-1] and other.rows == work.rows:
            work.rows = other.rows
            work.records = other.records if other.records == work.records else work.records
            work.states = other.states if other.states == work.states else work.states
            return
    known.append(work)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Thousands of small objects without a cycle: looking for cycles among them doubles the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _no_text(file: RunFile, head: bytes) -> bool:
    """Whether a file that is named as a dump is meant to be one, rather than notes or a log about dumps."""
    return file.path.suffix.lower() not in _PROSE and (not head or head[:1] in (b"\x80", b"{") or b"\0" in head)


def _without_rank(file: RunFile) -> str:
    if file.rank is not None and _RANK.search(file.name):
        return _RANK.sub(r"\1#", file.name)
    return _LAST_NUMBER.sub("#", file.name)


def _keep(dumps: dict[int, Dump], rank: int, dump: Dump) -> None:
    """Of two dumps of one rank the longer stands."""
    if rank not in dumps or dump.count > dumps[rank].count:
        dump.rank = rank
        dumps[rank] = dump


def _together(loose: dict[tuple, list[Dump]]) -> dict[tuple, list[Dump]]:
    """Dumps of one folder whose names have nothing in common belong together all the same."""
    by_folder: dict[tuple, list[tuple]] = {}
    for place in loose:
        by_folder.setdefault((*place[:-1], str(PurePath(place[-1]).parent)), []).append(place)
    joined: dict[tuple, list[Dump]] = {}
    for places in by_folder.values():
        if len(places) > 1 and all(len(loose[p]) == 1 for p in places):
            joined[places[0]] = [d for p in places for d in loose[p]]
        else:
            joined |= {p: loose[p] for p in places}
    return joined


def _place(recording: Recording, dumps: list[Dump]) -> None:
    """Give a rank to dumps whose file is not named by one: the last number of the name, else their order."""
    numbers = [_LAST_NUMBER.search(d.file.name) for d in dumps]
    told = [int(m[0]) for m in numbers if m and len(m[0]) < 7]
    world = sorted({r for d in dumps for ranks in d.members.values() for r in ranks}) or list(range(len(dumps)))
    if len(set(told)) == len(dumps) and set(told) <= set(world):
        for rank, dump in zip(told, dumps, strict=True):
            _keep(recording.dumps, rank, dump)
        return
    free = [r for r in world if r not in recording.dumps]
    recording.guessed = len(free) > 1
    for rank, dump in zip(free, sorted(dumps, key=lambda d: d.file.name), strict=False):
        _keep(recording.dumps, rank, dump)


def stack(ws: Workspace, dump: Dump, record: int) -> list[tuple[str, str, int]]:
    """(function, file, line), innermost first, of the record with this number; the file is read again for it."""
    try:
        entries = load(ws.read(dump.file, LIMIT + 1)).get("entries", [])
    except ParseError:
        return []
    return next((list(callers(e)) for e in entries if type(e) is dict and e.get("record_id") == record), [])


# ----------
# Process groups over all ranks: who belongs to one, and what each member enqueued in it.

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


# ----------
# Frames of a stack that say where a program is: its own, not those of the library under it.

Frame = tuple[str, str, int]  # function, file, line

_LIBRARY = re.compile(
    r"(?:^|/)(?:torch|deepspeed|accelerate|lightning(?:_fabric)?|megatron/core/(?:distributed|utils))/"
    r"|c10d_logger\.py$|distributed_c10d\.py$|<frozen |/python3\.\d+/(?!site-packages)"
)
_TORCH = re.compile(r"(?:^|/)torch/|c10d_logger\.py$|<frozen ")


def own(frames: list[Frame]) -> list[Frame]:
    """Frames of the program, innermost first; failing that those above torch, failing that all."""
    mine = [f for f in frames if not _LIBRARY.search(f[1])]
    return mine or [f for f in frames if not _TORCH.search(f[1])] or frames


def shown(frames: list[Frame], most: int = 3) -> str:
    """`next_batch (data.py:12) < train (train.py:80)`; file names without their folders."""
    return " < ".join(f"{name} ({file.rpartition('/')[2]}:{line})" for name, file, line in own(frames)[:most])
