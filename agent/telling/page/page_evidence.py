"""The evidence: cited lines in their context, file by file; other facts as cards; all the rest as a table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...core.errors import ParseError
from ...core.report import CitedEvidence, Report
from ...core.types import LINE_CAP
from ...reading.run.files import RunFile, blocks, open_regular, packing_of, utf16
from ...reading.run.workspace import Workspace
from ...reading.scan.windows import AFTER, NEARBY_BEFORE
from ...safety.fences import one_line
from ..outline import place
from .page_markup import Html, clipped, is_ident, joined, tag, within

# ----------
# What stands around the cited lines in their files, read again at their places and compared with what is cited.


LINES = 4  # shown before a cited line, and after it
_PACKED = 1 << 20  # bytes of a packed file up to which it is unpacked again
_UNPACKED = 8 << 20  # and of what it holds


@dataclass(slots=True)
class Span:
    """A stretch of a file that holds the surroundings of one or more cited lines; `start` is its offset."""

    start: int
    data: bytes
    text: str = ""

    def __post_init__(self) -> None:
        self.text = self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Window:
    """A cited line in its span, whose text may change but never how many lines it has; `lead` counts those before."""

    evidence: str
    line: int
    span: Span
    lead: int

    def rows(self) -> dict[int, str]:
        """The lines to show by their numbers, the cited one among them."""
        lines = self.span.text.split("\n")
        if not lines[-1]:
            lines.pop()  # what follows the last newline is no line
        first = max(1 if self.span.start else 0, self.lead - LINES)  # a line that began before the span is none
        shown = lines[first : self.lead + LINES + 1]
        return {self.line - self.lead + first + i: text.rstrip("\r") for i, text in enumerate(shown)}


def windows(workspace: Workspace, evidence: Iterable[CitedEvidence]) -> list[Window]:
    """A window for each line that still stands where it was cited. Large packed files are passed over."""
    files = {f.name: f for f in workspace.files}
    by_file: dict[str, list[CitedEvidence]] = {}
    for e in evidence:
        if e.kind == "line" and e.line is not None and e.offset is not None and e.file in files:
            by_file.setdefault(e.file, []).append(e)
    return [w for name, found in by_file.items() for w in _windows(files[name], found)]


def _windows(file: RunFile, evidence: list[CitedEvidence]) -> Iterator[Window]:
    """Windows of one file; lines near each other share a span, so that it is looked through once."""
    content = _unpacked(file)
    groups: list[tuple[int, int, list[CitedEvidence]]] = []
    for e in sorted(evidence, key=lambda e: e.offset or 0):
        low, high = max(0, (e.offset or 0) - NEARBY_BEFORE), (e.offset or 0) + LINE_CAP + AFTER
        if groups and low <= groups[-1][1]:
            groups[-1] = (groups[-1][0], high, [*groups[-1][2], e])
        else:
            groups.append((low, high, [e]))
    for low, high, group in groups:
        span = Span(low, content[low:high] if content is not None else _read(file, low, high))
        yield from (w for e in group if (w := _window(e, span)))


def _window(e: CitedEvidence, span: Span) -> Window | None:
    """The window, if the line is there: after a newline, and saying what is cited."""
    at, data = (e.offset or 0) - span.start, span.data
    if at >= len(data) or (at > 0 and data[at - 1 : at] != b"\n") or (at == 0 and span.start):
        return None
    end = data.find(b"\n", at, at + LINE_CAP)
    line = data[at : end if end >= 0 else at + LINE_CAP].decode(errors="replace").rstrip("\r")
    if not line.startswith(e.text.rstrip("\r\ufffd")) or (line and not e.text.strip("\r")):
        return None
    return Window(e.id, e.line or 1, span, data.count(b"\n", 0, at))


def _read(file: RunFile, start: int, end: int) -> bytes:
    """Bytes of a plain file; none where it cannot be read."""
    try:
        with open_regular(file.path) as stream:
            stream.seek(start)
            return stream.read(end - start) or b""
    except (ParseError, OSError):
        return b""


def _unpacked(file: RunFile) -> bytes | None:
    """The content of a small packed file, nothing of a large one; None for a plain one, which is read in place."""
    try:
        with open_regular(file.path) as stream:
            head = stream.read(2048) or b""
        if not packing_of(head) and not utf16(head):
            return None
        data = bytearray()
        if file.size <= _PACKED:
            for block in blocks(file.path):
                data += block
                if len(data) >= _UNPACKED:
                    break
        return bytes(data[:_UNPACKED])
    except (ParseError, OSError):
        return b""


# ----------

CARDS, FACTS, ROWS, ALIKE = 24, 60, 300, 6  # shown of each; what is more is counted
RIVALS, SIGNS = 6, 5  # causes whose evidence gets cards, and how much of it for and against each
_CITED, _AROUND, _VALUE = 1_200, 240, 160  # characters of a cited line, of one around it, of a value
_TELLING = "log.telling"  # its value weighs the line against others of this run and says nothing to people
_CARD_BYTES, _ROW_BYTES, _TABLE_BYTES = 800_000, 120_000, 250_000
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(slots=True)
class Shown:
    """What gets a card: the cited evidence in order, and what reads like each of it; then what gets a row."""

    cited: list[CitedEvidence] = field(default_factory=list)
    alike: dict[str, list[CitedEvidence]] = field(default_factory=dict)
    rest: list[CitedEvidence] = field(default_factory=list)

    @property
    def told(self) -> list[CitedEvidence]:
        """All that the page says something of."""
        alike = [e for group in self.alike.values() for e in group[:ALIKE]]
        return [*self.cited, *alike, *self.rest[:ROWS]]

    @property
    def anchors(self) -> set[str]:
        """Ids that the page can be jumped to."""
        return {e.id for e in self.told if is_ident(e.id)}

    def exchanged(self, clean: dict[int, CitedEvidence]) -> Shown:
        """The same of other copies of the evidence, by the identity of these; what has none is counted alone."""

        def of(found: list[CitedEvidence]) -> list[CitedEvidence]:
            return [clean.get(id(e), e) for e in found]

        alike = {clean[id(e)].id: of(self.alike[e.id]) for e in self.cited if e.id in self.alike}
        return Shown(of(self.cited), alike, of(self.rest))


def shown(report: Report) -> Shown:
    """The evidence that summary, chain and the leading causes cite, in that order; lines that read alike once."""
    by_id = {e.id: e for e in report.evidence}
    wanted = [i for s in report.summary for i in s.cites] + [link.evidence for link in report.chain]
    wanted += [i for a in report.also for i in a.cites]
    for d in report.differential[:RIVALS]:
        wanted += [*d.supported_by[:SIGNS], *d.contradicted_by[:SIGNS]]
    found = Shown()
    kinds: dict[str, CitedEvidence] = {}
    for e in (by_id[i] for i in dict.fromkeys(wanted) if i in by_id):
        kind = _template(e)
        if (first := kinds.get(kind)) is not None and (e.file, e.line) != (first.file, first.line):
            found.alike.setdefault(first.id, []).append(e)
        elif len(found.cited) < FACTS:
            kinds.setdefault(kind, e)
            found.cited.append(e)
    told = {e.id for e in found.cited} | {e.id for group in found.alike.values() for e in group[:ALIKE]}
    found.rest = [e for e in by_id.values() if e.id not in told]
    return found


def _template(e: CitedEvidence) -> str:
    """What a line says apart from its numbers: ranks that say the same say it once."""
    return f"{e.kind} {_NUMBERS.sub('#', e.text)}" if e.line and e.text.strip() else e.id


def evidence(found: Shown, windows: list[Window]) -> Html:
    """The whole section."""
    around = {w.evidence: w for w in windows}
    by_file: dict[str, list[CitedEvidence]] = {}
    for e in found.cited:
        by_file.setdefault(e.file or "" if e.line else e.id, []).append(e)
    cards = [card for group in by_file.values() for card in _cards(group, found, around)]
    kept, more = within(cards[:CARDS], _CARD_BYTES)
    more += max(len(cards) - CARDS, 0)
    note = tag("p", f"{more:,} more excerpts are in the JSON report.", class_="note") if more else None
    return joined(*kept, note, _table(found.rest))


def _cards(group: list[CitedEvidence], found: Shown, around: dict[str, Window]) -> list[Html]:
    """Cards of one file: lines whose contexts meet share one."""
    if not group[0].line:
        return [_card(group, [], found)]
    texts: dict[int, str] = {}
    for e in group:
        if e.id in around:
            texts |= around[e.id].rows()
    for e in group:
        texts.setdefault(e.line or 0, e.text.rstrip("\r\n"))
    runs: list[list[tuple[int, str]]] = []
    for number, text in sorted(texts.items()):
        if not runs or runs[-1][-1][0] + 1 != number:
            runs.append([])
        runs[-1].append((number, text))
    cards = []
    for run in runs:
        inside = [e for e in group if run[0][0] <= (e.line or 0) <= run[-1][0]]
        if inside:
            cards.append(_card(inside, run, found))
    return cards


def _card(group: list[CitedEvidence], rows: list[tuple[int, str]], found: Shown) -> Html:
    lines: dict[int, list[str]] = {}
    for e in group:
        lines.setdefault(e.line or 0, []).append(e.id)
    head = place(group[0]) if not group[0].line else one_line(group[0].file or "")
    facts = tag("ul", *(_fact(e, found) for e in group), class_="facts")
    shown_rows, more = within([_row(n, text, lines.get(n, [])) for n, text in rows], _ROW_BYTES)
    said = tag("div", *shown_rows, class_="lines") if rows else None
    note = tag("p", f"{more:,} more lines are left out.", class_="note") if more else None
    if said is None and group[0].text.strip():
        said = tag("div", _row(0, clipped(group[0].text.strip(), _CITED), [group[0].id]), class_="lines")
    return tag("article", tag("h3", clipped(head, 300)), facts, said, note)


def _fact(e: CitedEvidence, found: Shown) -> Html:
    """What a piece of evidence states, of whom, when; and where else the same is written."""
    who = [f"{name} {value}" for name, value in (("rank", e.rank), ("host", e.host), ("attempt", e.attempt),
           ("variant", e.variant), ("step", e.step)) if value is not None]  # fmt: skip
    who += [f"at {e.time}"] if e.time else []
    what = "looked for, not there" if e.kind == "absent" else "" if e.key == _TELLING else _value(e.value)
    searched = f"searched {', '.join(e.searched or []) or 'the files of the run'}" if e.kind == "absent" else None
    parts = [
        tag("b", e.id, id=e.id if is_ident(e.id) else None), " ", tag("code", clipped(one_line(e.key), _VALUE)),
        f" {what}" if what else None, f", line {e.line:,}" if e.line else None, " ",
        tag("span", clipped(one_line(", ".join(who)), _VALUE), class_="who") if who else None,
        tag("small", clipped(one_line(searched), 400)) if searched else None,
    ]  # fmt: skip
    return tag("li", *parts, _alike(found.alike.get(e.id, [])))


def _alike(others: list[CitedEvidence]) -> Html | None:
    if not others:
        return None
    named: list[Html | str] = [
        joined(tag("b", e.id, id=e.id if is_ident(e.id) else None), f" {clipped(place(e), _VALUE)}")
        for e in others[:ALIKE]
    ]
    more = f" and {len(others) - ALIKE:,} more" if len(others) > ALIKE else ""
    return tag("small", "reads alike: ", joined(*named, between=", "), more)


def _value(value: object) -> str:
    """A value in few words; true is said by the key alone."""
    if value is True or value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"= {clipped(one_line(text), _VALUE)}"


def _row(number: int, text: str, ids: list[str]) -> Html:
    """A line of a file; a cited one is marked, also for those who see no colour."""
    mark = tag("span", ">" if ids else " ", class_="hit")
    label = tag("span", f"{number:>6}" if number else "", class_="no")
    body = clipped(one_line(text), _CITED if ids else _AROUND)
    return tag("div", mark, label, " ", tag("span", body, class_="said"), "\n", class_="row cited" if ids else "row")


def _table(rest: list[CitedEvidence]) -> Html | None:
    """Evidence that no sentence cites."""
    if not rest:
        return None
    head = tag("tr", *(tag("th", name, scope="col") for name in ("", "what", "value", "where", "who")))
    rows = []
    for e in rest[:ROWS]:
        who = ", ".join(str(w) for w in (f"rank {e.rank}" if e.rank is not None else "", e.host, e.variant) if w)
        cells = (clipped(one_line(e.key), 80), _value(e.value).removeprefix("= "), clipped(place(e), 120),
                 clipped(one_line(who), 60))  # fmt: skip
        ident = tag("th", e.id, id=e.id if is_ident(e.id) else None, scope="row")
        rows.append(tag("tr", ident, *(tag("td", c) for c in cells)))
    kept, more = within(rows, _TABLE_BYTES)
    more += max(len(rest) - ROWS, 0)
    note = tag("p", f"{more:,} more are in the JSON report.", class_="note") if more else None
    title = f"{len(rest):,} more pieces of evidence"
    return tag("details", tag("summary", title), tag("div", tag("table", head, *kept), class_="wide"), note)
