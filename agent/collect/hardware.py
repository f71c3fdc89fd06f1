"""What a run's files and its machine say against the hardware: events by card, and the cards by their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..reading import kernel_log as kl
from ..reading.anchor_lines import Hit, anchored
from ..reading.clocks import Stamp, earlier, stamp_of
from ..reading.hearsay import is_hearsay
from ..reading.smi import readings

if TYPE_CHECKING:
    from ..report import Report
    from ..workspace import Workspace

CAPTURE = 4 << 20
CARDS = 4096
_LISTED = re.compile(r"^GPU (?P<index>\d+): (?P<name>.+?) \(UUID: (?P<uuid>GPU-[0-9a-f-]+)\)")
_BLOCK = re.compile(r"^GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_LEAF = re.compile(
    r"^\s+(?P<name>Serial Number|GPU UUID|Minor Number|Product Name|VBIOS Version|Board Part Number)\s*:\s*"
    r"(?P<value>\S.*?)\s*$"
)
_NAMES = {"Serial Number": "serial", "GPU UUID": "uuid", "Minor Number": "index", "Product Name": "name",
          "VBIOS Version": "vbios", "Board Part Number": "part"}  # fmt: skip
_NONE = re.compile(r"^\[?(?:N/A|Not Supported|Unknown|Requested)", re.IGNORECASE)
# Evidence that speaks of the machine; of these, what the verdict rests on goes into a ticket.
KEYS = ("gpu.", "ib.", "host.")


@dataclass(slots=True)
class Event:
    """One kind of event on one card: how often, from when to when, with the lines that say so."""

    what: str
    node: str
    pci: str
    code: int | None = None
    action: str = ""
    follows: bool = False
    count: int = 0
    places: list[str] = field(default_factory=list)
    first: Stamp | None = None
    last: Stamp | None = None
    text: str = ""


@dataclass(slots=True)
class Card:
    """A card as some capture names it; what nothing says is empty."""

    node: str = ""
    index: str = ""
    name: str = ""
    uuid: str = ""
    serial: str = ""
    pci: str = ""
    vbios: str = ""
    part: str = ""
    place: str = ""


def events(ws: Workspace, report: Report) -> list[Event]:
    """Xid codes of the kernel log, then what else the verdict rests on; those that follow others come last."""
    found: dict[tuple[str, str, str], Event] = {}
    for hit in anchored(ws).of("xid"):
        if is_hearsay(hit.text, lambda h=hit: kl.begin(h.text)) or kl.SEARCHED.search(hit.text):
            continue
        if (x := kl.xid_of(hit.text)) is None:
            continue
        name = f"Xid {x.code}" + (f": {x.known['name']}" if x.known else "")
        event = found.setdefault((name, _node(hit), short(x.pci)), Event(name, _node(hit), x.pci, x.code))
        if x.known:
            event.action = x.known["action"]
            event.follows = bool(x.known.get("consequence"))
        _saw(event, hit.text, f"{hit.file.name}:{hit.line.number}")
    shown = {place for e in found.values() for place in e.places}
    for e in _cited(report):
        place = f"{e.file}:{e.line}" if e.file else " ".join(e.argv or ["this machine"])
        if place in shown and e.file:
            continue
        event = found.setdefault((e.key, e.host or "", ""), Event(f"{e.key} = {e.value}", e.host or "", ""))
        _saw(event, e.text, place)
    return sorted(found.values(), key=lambda e: (e.follows, e.code is None))


def cards(ws: Workspace) -> list[Card]:
    """Cards as captures of nvidia-smi number them."""
    found: list[Card] = []
    for file in ws.by_role("capture", "environment", "log"):
        if file.good or file.size > CAPTURE or len(found) > CARDS:
            continue
        head = ws.head(file)
        if not re.search(rb"GPU \d+: |UUID|uuid|serial|Serial Number|NVSMI", head):
            continue
        found += _listed(ws.text(file, CAPTURE), file.host or "", file.name)
        found += _queried(list(ws.lines(file)), file.host or "", file.name)
    return found


def of_event(event: Event, known: list[Card]) -> Card | None:
    """The one card that an event is of."""
    same = [c for c in known if event.pci and short(c.pci) == short(event.pci) and _may_be(c.node, event.node)]
    numbers = {(c.uuid, c.serial) for c in same}
    return same[0] if len(numbers) == 1 else None


def _may_be(one: str, other: str) -> bool:
    return not one or not other or one == other


def short(pci: str) -> str:
    """`PCI:0000:AB:00` and `00000000:ab:00.0` as `ab:00`."""
    parts = pci.removeprefix("PCI:").lower().partition(".")[0].split(":")
    return ":".join(parts[-2:])


def _cited(report: Report) -> Iterator:
    wanted = {i for d in report.differential[:1] for i in d.supported_by} | {c.evidence for c in report.chain}
    wanted |= {i for a in report.also for i in a.cites}
    for e in report.evidence:
        if e.id in wanted and e.key.startswith(KEYS) and e.kind in ("line", "command") and "xid" not in e.key:
            yield e


def _saw(event: Event, text: str, place: str) -> None:
    event.count += 1
    event.places.append(place)
    event.text = event.text or text
    if (stamp := stamp_of(text)) is not None:
        if event.first is None or earlier(stamp, event.first):
            event.first = stamp
        if event.last is None or earlier(event.last, stamp):
            event.last = stamp


def _node(hit: Hit) -> str:
    """The host of a kernel line: its file's, or the word before `kernel:` of a journal."""
    if hit.file.host:
        return hit.file.host
    m = re.search(r"\d\d:\d\d:\d\d\S* (?P<host>[A-Za-z][\w.-]{1,62}) kernel\b", hit.text)
    return m["host"] if m else ""


def _listed(text: str, node: str, name: str) -> Iterator[Card]:
    """`nvidia-smi -L` and the blocks of `nvidia-smi -q`."""
    card: Card | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if m := _LISTED.match(line):
            yield Card(node, m["index"], m["name"], m["uuid"], place=f"{name}:{number}")
        elif m := _BLOCK.match(line):
            if card is not None:
                yield card
            card = Card(node, pci=m["pci"], place=f"{name}:{number}")
        elif card is not None and (m := _LEAF.match(line)) and not _NONE.match(m["value"]):
            setattr(card, _NAMES[m["name"]], m["value"])
    if card is not None:
        yield card


def _queried(lines: list, node: str, name: str) -> Iterator[Card]:
    """Rows of `nvidia-smi --query-gpu` that name a card."""
    rows: dict[tuple[int, int], Card] = {}
    fields = {"pci.bus_id": "pci", "uuid": "uuid", "serial": "serial", "index": "index", "name": "name"}
    for r in readings(lines):
        if r.gpu >= 0 and r.field in fields and not _NONE.match(r.text):
            card = rows.setdefault((r.line.number, r.gpu), Card(node, place=f"{name}:{r.line.number}"))
            setattr(card, fields[r.field], r.text)
    yield from (c for c in rows.values() if c.pci and (c.uuid or c.serial))
