"""Which ranks (or hosts) a run has, which spoke, which fell silent, and how far each came."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..run.clocks import Stamp, stamp_of
from ..run.files import Line, RunFile, open_regular, packing_of
from ..run.lines import strip
from ..scan.anchors import Hit, around
from ..scan.logpass import FileSummary, LogPass, logpass
from .failures import Failures, failures

if TYPE_CHECKING:
    from ..run.workspace import Workspace

_WORLD = (
    re.compile(r"(?i)\bworld[_ -]?size\b *[.=:]* *(\d{1,6})\b"),
    re.compile(r"(?i)\bnranks (\d{1,6})\b"),
    re.compile(r"(?i)\brank:? \d+ ?(?:/|of) ?(?:world )?(\d{1,6})\b"),
    re.compile(r"Starting with (\d{1,6}) processes"),
    re.compile(r"(?i)GLOBAL_RANK: \d+, MEMBER: \d+/(\d{1,6})"),
    re.compile(r"\bnum_processes[ =:]+(\d{1,6})\b"),
    re.compile(r"\.py:\d+\] \(\d{1,4}/(\d{1,4})\) "),
    re.compile(r"(?i)\((\d{1,6}) processes\)|\b(\d{1,6}) GPUs?\b(?= )"),
)
_STEP = re.compile(
    r"(?i)\b(?:global_?step|step|iteration|iter)s?\b[ '\":=\[]{0,4}(\d{1,9})|\b(\d{1,9})/\d{1,9} \[\d+:\d\d"
    r"(?![^\]]*\b(?:examples?|files?|tokens?|lines?|docs?|shards?|[kMG]?i?B)/s)"  # a bar over data counts no steps
)


@dataclass(slots=True)
class Member:
    """One rank, or one host's log where ranks are not named. `last` is the last line it wrote."""

    rank: int | None
    file: RunFile
    lines: int = 0
    last: Line | None = None
    last_stamp: Stamp | None = None
    step: int | None = None
    step_line: Line | None = None
    failed: bool = False
    complained: bool = False  # it reported a consequence (a watchdog, a lost peer)

    @property
    def name(self) -> int | str:
        return self.rank if self.rank is not None else self.file.host or self.file.name


@dataclass(slots=True)
class Roster:
    """Everyone seen. `world` is the size that the logs state, with the line that states it."""

    members: dict[int | str, Member] = field(default_factory=dict)
    world: int | None = None
    world_line: tuple[RunFile, Line] | None = None

    @property
    def ranks(self) -> list[int]:
        return sorted(r for r in self.members if isinstance(r, int))

    @property
    def missing(self) -> list[int]:
        """Ranks of the stated world that no line names."""
        return [r for r in range(self.world or 0) if r not in self.members]

    @property
    def uncollected(self) -> bool:
        """Whether several ranks are missing because each rank writes a log of its own and theirs are not here.

        One missing log among many is told as a silent rank: it may be the one that never came to write.
        """
        files = [m.file.name for m in self.members.values()]
        return len(files) >= 2 and len(set(files)) == len(files) and len(self.missing) >= 2


def roster(ws: Workspace) -> Roster:
    """Made once, from the log pass and the failures."""
    return ws.memo("roster", lambda: _make(ws, logpass(ws), failures(ws)))


def _make(ws: Workspace, found: LogPass, wrong: Failures) -> Roster:
    result, silent = Roster(), set[bytes]()
    for summary in found.files.values():
        if summary.file.role != "log" or summary.file.good:
            continue
        for member in members_of(summary):
            kept = result.members.get(member.name)
            if kept is None or _later(member, kept):
                result.members[member.name] = member
        _world(result, summary, silent)
    _outcomes(result, wrong)
    return result


def members_of(summary: FileSummary) -> Iterator[Member]:
    """Ranks that label lines of a shared log; the rank or host that a log belongs to."""
    file = summary.file
    labelled = {r: seen for r, seen in summary.harvest.ranks.items() if r < 1 << 20}
    if file.rank is not None or not labelled or (file.host and len(labelled) == 1):
        rank = file.rank if file.rank is not None else next(iter(labelled), None) if file.host else None
        if rank is None and file.host:
            rank = _stated_rank(summary)
        if rank is not None or file.host:
            step, line = step_of(summary.last_progress)
            yield Member(rank, file, summary.lines, summary.last_line, summary.last_stamp, step, line)
        return
    places = sorted((seen.last_offset, rank) for rank, seen in labelled.items())
    texts = _lines_at(file, [offset for offset, _ in places])
    for offset, rank in places:
        seen = labelled[rank]
        line = Line(seen.last_line, offset, texts.get(offset, b""))
        step, step_line = step_of(line)
        yield Member(rank, file, seen.lines, line, stamp_of(line.text), step, step_line)


def _stated_rank(summary: FileSummary) -> int | None:
    """`rank 1 / world 2` near the top of a host's own log."""
    m = re.search(rb"(?i)\brank:? (\d{1,6}) ?(?:/|of) ", summary.harvest.head[:8192])
    return int(m[1]) if m else None


def _lines_at(file: RunFile, offsets: list[int]) -> dict[int, bytes]:
    """The rest of the line at each offset of a plain file (its start is the label that was found)."""
    found: dict[int, bytes] = {}
    with open_regular(file.path) as raw:
        if packing_of(raw.read(16) or b""):
            return found
        for offset in offsets[:4096]:
            raw.seek(offset)
            found[offset] = (raw.read(2048) or b"").split(b"\n", 1)[0]
    return found


def step_of(line: Line | None) -> tuple[int | None, Line | None]:
    """The last step that a line names, with that line."""
    if line is None:
        return None, None
    found = list(_STEP.finditer(strip(line.data[-4096:].decode(errors="replace")).body))
    if not found:
        return None, None
    return int(found[-1][1] or found[-1][2]), line


def _later(one: Member, other: Member) -> bool:
    if one.last_stamp and other.last_stamp and one.last_stamp.kind == other.last_stamp.kind:
        return one.last_stamp.value > other.last_stamp.value
    return one.lines > other.lines


def _world(result: Roster, summary: FileSummary, silent: set[bytes]) -> None:
    """The largest number of ranks that a log's head names; `silent` keeps the wordings that name none."""
    offset = 0
    for number, data in enumerate(summary.harvest.head.split(b"\n"), 1):
        wording = data[:600].translate(None, b"0123456789")
        shapes = () if wording in silent else _WORLD
        text = data[:600].decode(errors="replace") if shapes else ""
        matches = [m for shape in shapes if (m := shape.search(text))]
        if not matches:
            silent.add(wording)
        else:
            for m in matches:
                size = int(next(g for g in m.groups() if g))
                if 1 < size <= 200_000 and size > (result.world or 0):
                    result.world, result.world_line = size, (summary.file, Line(number, offset, data))
        offset += len(data) + 1


def _outcomes(result: Roster, wrong: Failures) -> None:
    for unit in wrong.units:
        for name in (unit.rank, unit.file.rank, unit.host, unit.file.host, unit.file.name):
            member = result.members.get(name) if name is not None else None
            if member is not None:
                member.failed = member.failed or not unit.cascade
                member.complained = member.complained or bool(unit.cascade)
                break
    for note in wrong.notes:
        for name in (note.rank, note.file.host, note.file.name):
            member = result.members.get(name) if name is not None else None
            if member is not None:
                member.complained = True
                break


# ----------
# What ranks announce about their share of the data: unequal counts mean that they cannot make the same steps.

LINES = 2000  # of the head of each log
_THINGS = r"(?:mini-?)?batches|steps|iterations|samples|examples|records|sequences|shards"
_KINDS = ("batch", "step", "iteration", "sample", "example", "record", "shard")
_COUNT = re.compile(
    rf"(?i)\b(?P<before>\d[\d,]*) (?P<noun>{_THINGS})\b"
    rf"|\b(?P<name>(?:num|number|n|total|local)?[_ ]?(?:of )?(?:{_THINGS})|steps_per_epoch|len\(\w*loader\)"
    r"|(?:loader|dataset)[_ ](?:len(?:gth)?|size))(?: is|:| =|=)? ?(?P<after>\d[\d,]*)\b"
)
# A rank that says so has nothing left to do; it has not died.
DONE = re.compile(
    r"(?i)\b(?:finished|exhausted|ran out of|no more (?:data|batches|samples)|end of (?:the )?"
    r"(?:epoch|data\w*|training)"
    r"|training (?:done|complete\w*)|epoch \S{1,8} (?:done|complete\w*|ended)"
    r"|waiting (?:at|for) (?:the )?(?:barrier|other|end))\b"
)


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's count of one thing, with its line."""

    rank: int
    count: int
    file: RunFile
    line: Line


def unequal(ws: Workspace) -> list[tuple[str, Share, Share]]:
    """`(thing, smallest, largest)` for each thing of which ranks announce different numbers, once per rank."""
    found: dict[str, dict[int, Share]] = defaultdict(dict)
    silent: set[bytes] = set()  # wordings that announce nothing: ranks say the same things
    for summary in logpass(ws).files.values():
        if summary.file.role == "log" and not summary.file.good:
            for thing, share in _shares(summary.file, summary.harvest.head, silent):
                found[thing].setdefault(share.rank, share)
    out = []
    for thing, shares in found.items():
        low, high = (f(shares.values(), key=lambda s: s.count) for f in (min, max))
        if len(shares) > 1 and low.count != high.count:
            out.append((thing, low, high))
    return out


def _shares(file: RunFile, head: bytes, silent: set[bytes]) -> Iterator[tuple[str, Share]]:
    offset = 0
    for number, data in enumerate(head.split(b"\n")[:LINES], 1):
        wording = data[:400].translate(None, b"0123456789")
        text = "" if wording in silent else data[:400].decode(errors="replace")
        m = _COUNT.search(text)
        if m is None:
            silent.add(wording)
        else:
            told = strip(text)
            rank = file.rank if file.rank is not None else told.rank
            noun = (m["noun"] or m["name"]).lower()
            thing = next((t for t in _KINDS if t in noun), noun)
            if rank is not None:
                count = int((m["before"] or m["after"]).replace(",", ""))
                yield thing, Share(rank, count, file, Line(number, offset, data))
        offset += len(data) + 1


# ----------
# The lines of one rank: its own last ones, and those in which others speak of it.

LAST, NEAR = 6, 16 << 10  # lines that are told, and bytes before the last one in which they are looked for


def last_lines(ws: Workspace, member: Member) -> list[Line]:
    """The last lines that a rank wrote, oldest first; of a log that several share only those it labels."""
    if member.last is None:
        return []
    near = around(ws, Hit(member.file, member.last, "last"), before=NEAR, after=0)
    whole = [x for x in near if x.number <= member.last.number and x.data.strip()]
    if member.file.rank != member.rank and member.rank is not None:
        whole = [x for x in whole if labelled(ws, member.file, x) == member.rank]
    # a shared log keeps of the rank's last line what follows its label; the file itself has the line whole
    return whole[-LAST:] or [member.last]


def labelled(ws: Workspace, file: RunFile, line: Line) -> int | None:
    """The rank that a line itself names as its writer."""
    summary = logpass(ws).files.get(file.name)
    return strip(line.text, summary.labels if summary else False).rank


def told_of(ws: Workspace, rank: int) -> list[tuple[RunFile, Line, int | None]]:
    """Lines of trouble that other ranks (or their launcher) wrote about this one, with who wrote them."""
    names = re.compile(rf"(?i)\b(?:global_|local_)?rank\s*[:=#\[(]?\s*{rank}\b(?!\.\d)")
    found: dict[tuple[str, int], tuple[RunFile, Line, int | None]] = {}
    wrong = failures(ws)
    lines = [(u.file, u.line, u.rank) for u in wrong.units]
    lines += [(u.file, line, u.rank) for u in wrong.units for line, _ in u.details]
    lines += [(n.file, n.read.line, n.rank) for n in wrong.notes]
    for file, line, who in lines:
        if who != rank and file.rank != rank and names.search(line.text[:4000]):
            found.setdefault((file.name, line.number), (file, line, who))
    return [found[at] for at in sorted(found)]


def was_seen(ws: Workspace, rank: int) -> Member | None:
    """The rank as the roster has it; None where no line and no file name is its own."""
    return roster(ws).members.get(rank)


# ----------
# What ranks announce about the shape of their work: a batch, a length, a layout that must be alike and is not.

RANK_SETTINGS_LINES = 2000  # of the head of each log
_GAP = r"[_ -]?"
_ALIKE = re.compile(
    rf"(?i)(?<![\w-])(?P<name>micro{_GAP}batch(?:{_GAP}size)?|(?:per{_GAP}device{_GAP}|local{_GAP}|global{_GAP}|train{_GAP})*"
    rf"(?:train{_GAP})?batch{_GAP}size|grad(?:ient)?{_GAP}acc(?:um(?:ulation)?)?(?:{_GAP}steps)?|seq(?:uence)?{_GAP}len(?:gth)?"
    rf"|world{_GAP}size|(?:tensor|pipeline|context|data|expert){_GAP}(?:model{_GAP})?parallel(?:{_GAP}(?:size|degree))?"
    rf"|(?:vocab(?:ulary)?|hidden){_GAP}size)['\"]?(?: is|:| =|=)? {{0,4}}(?P<value>\d[\d,]*)(?![\d.]*[\d/%])"
)
_DIGITS = b"0123456789"

_Place = tuple[str, str | None, int | None, str]  # run, variant, attempt, folder: ranks of one job


@dataclass(frozen=True, slots=True)
class Announced:
    """One member's value, with its line. `member` is its rank, else its host."""

    member: int | str
    name: str
    value: int
    file: RunFile
    line: Line


def unlike(ws: Workspace) -> list[tuple[Announced, Announced]]:
    """`(usual, odd)` for each line that ranks of one job print in the same words with another number.

    Numbers that change within one rank are counts of what comes along, and not compared.
    """
    found: dict[tuple[_Place, bytes], dict[int | str, list[Announced]]] = defaultdict(lambda: defaultdict(list))
    silent: set[bytes] = set()
    for summary in logpass(ws).files.values():
        file = summary.file
        if file.role == "log" and not file.good:
            for wording, one in _announced(file, summary.harvest.head, silent):
                folder = re.sub(r"\d+", "#", file.name.rpartition("/")[0])
                found[(file.run, file.variant, file.attempt, folder), wording][one.member].append(one)
    out: dict[str, tuple[Announced, Announced]] = {}
    for by_member in found.values():
        firsts = [all_[0] for all_ in by_member.values()]
        if len(firsts) < 2 or any(len({a.value for a in all_}) > 1 for all_ in by_member.values()):
            continue
        values = [a.value for a in firsts]
        usual = max(firsts, key=lambda a: values.count(a.value))
        odd = next((a for a in firsts if a.value != usual.value), None)
        if odd is not None:
            out.setdefault(usual.name, (usual, odd))
    return list(out.values())


def _announced(file: RunFile, head: bytes, silent: set[bytes]) -> Iterator[tuple[bytes, Announced]]:
    offset = 0
    for number, data in enumerate(head.split(b"\n")[:RANK_SETTINGS_LINES], 1):
        wording = data[:400].translate(None, _DIGITS)
        m = None if wording in silent else _ALIKE.search(data[:400].decode(errors="replace"))
        if m is None:
            silent.add(wording)
        else:
            told = strip(m.string)
            member = file.rank if file.rank is not None else told.rank if told.rank is not None else file.host
            if member is not None:
                value = int(m["value"].replace(",", ""))
                yield wording, Announced(member, m["name"].lower(), value, file, Line(number, offset, data))
        offset += len(data) + 1


# ----------
# How many processes a run had, by the name that somebody gave its log: `two_gpus.log`, `4nodes.txt`, `np8.out`.

_WORDS = {"one": 1, "single": 1, "two": 2, "dual": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "sixteen": 16}
_THING = r"gpu|node|card|device|process|proc|machine"
_BEFORE = re.compile(
    rf"(?i)(?:^|[^a-z0-9])(?P<n>{'|'.join(_WORDS)}|[1-9]\d{{0,3}})[ _-]?(?:x[ _-]?)?"
    rf"(?P<what>{_THING})(?:e?s)?(?![a-z0-9])"
)
# A number behind a singular word names one of several (`gpu0`, `node3`); behind a plural it counts.
_BEHIND = re.compile(
    r"(?i)(?:^|[^a-z])(?:n?(?P<what>gpu|node|card|device|processe|proc|machine)s|np|nproc|world_?size)"
    r"[ _=-]?(?P<n>[1-9]\d{0,3})(?![0-9a-z])"
)


def count_named(name: str) -> tuple[str, int] | None:
    """What a name counts (`nodes` or `world_size`) and how many of them; None where it counts nothing."""
    found = {(_kind(m["what"]), _WORDS.get(m["n"].lower()) or int(m["n"])) for m in _BEFORE.finditer(name)}
    found |= {(_kind(m["what"]), int(m["n"])) for m in _BEHIND.finditer(name)}
    return found.pop() if len(found) == 1 else None


def _kind(what: str | None) -> str:
    return "nodes" if what and what.lower() in ("node", "machine") else "world_size"
