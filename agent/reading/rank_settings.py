"""What ranks announce about the shape of their work: a batch, a length, a layout that must be alike and is not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import Line, RunFile
from .lines import strip
from .logpass import logpass

if TYPE_CHECKING:
    from ..workspace import Workspace

LINES = 2000  # of the head of each log
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
    for number, data in enumerate(head.split(b"\n")[:LINES], 1):
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
