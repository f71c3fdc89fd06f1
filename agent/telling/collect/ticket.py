"""A ticket for whoever runs the machines: which node and card, what they said and when, what is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.errors import UsageError
from ...reading.machine import kernel_log as kl
from ...reading.machine.smi import readings
from ...reading.run.clocks import Stamp, earlier, stamp_of
from ...reading.scan.anchors import Hit, anchored
from ...reading.scan.harvest import is_hearsay
from .report_copy import UNKNOWN, Paper, written

if TYPE_CHECKING:
    from ...core.report import Report
    from ...reading.run.workspace import Workspace


# ----------
# What a run's files and its machine say against the hardware: events by card, and the cards by their numbers.


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


# ----------

# Causes that somebody who runs the machines repairs, and what is asked of them beside what the codes say.
ASKS: dict[str, tuple[str, ...]] = {
    "hw.ecc_uncorrectable": (
        "Read the row-remapping state (`nvidia-smi -q -d ROW_REMAPPER`); replace the GPU if remapping failed.",
    ),
    "hw.gpu_fell_off_bus": ("Check power, seating and the PCIe slot; replace the GPU or its board if it repeats.",),
    "hw.nvlink_error": ("Check the links (`nvidia-smi nvlink -e`) and the fabric manager's log of this node.",),
    "hw.gsp_timeout": ("Reset the GPU or reboot the node; check driver and GSP firmware versions.",),
    "hw.power_thermal": ("Check power supplies, power cabling and cooling of the node.",),
    "hw.silent_data_corruption": ("Take the GPU out of service until a long diagnostic passes (`dcgmi diag -r 4`).",),
    "dist.node_failure": ("Say why the node was lost, and whether it is safe to use again.",),
    "dist.ib_link": ("Check port, cable and switch counters (`ibdiagnet`, `mlxlink`); replace what flaps.",),
    "dist.p2p_acs": ("Switch PCIe ACS off, or the IOMMU to passthrough, on bare-metal training nodes.",),
    "speed.thermal_throttle": ("Check cooling and power caps of the node.",),
    "env.driver_mismatch": ("Bring kernel module and user-space driver to one version; reload the module or reboot.",),
}  # fmt: skip
DIAGNOSE = "Run `dcgmi diag -r 3` on the node and attach its result."
ON_GPUS = ("hw.", "speed.thermal")
ROWS, PLACES, BEFORE = 30, 6, 10
_JOB = re.compile(rb"\bSLURM_JOB_?ID\W{1,3}(\d{1,12})\b|\*\*\* (?:JOB|STEP) (\d{1,12})")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def infrastructure_ticket(ws: Workspace, report: Report, attached: str = "", *, force: bool = False) -> str:
    """The ticket as markdown.

    Args:
        attached: file name of a bundle that was written with it.
        force: write it also where the diagnosis points elsewhere.

    Raises:
        UsageError: nothing points at the machines, and it was not forced.
    """
    cause = of_machines(report)
    if cause is None and not force:
        root = report.root_cause
        what = f"{root.title or root.id} ({report.status.replace('_', ' ')})"
        raise UsageError(f"the evidence does not point at the machines but at: {what}", "--force writes it anyway")
    return written(ws, report, lambda paper, clean: _write(paper, ws, clean, cause, attached))


def of_machines(report: Report) -> str | None:
    """The cause that whoever runs the machines can repair: the verdict, or a second finding."""
    if report.status in ("confirmed", "likely", "hypothesis") and report.root_cause.id in ASKS:
        return report.root_cause.id
    return next((a.id for a in report.also if a.id in ASKS), None)


def _write(paper: Paper, ws: Workspace, report: Report, cause: str | None, attached: str) -> None:
    seen, known = events(ws, report), cards(ws)
    named = nodes(report, seen, known)
    lead = seen[0] if seen else None
    paper.head(_title(report, lead, named, cause), 1)
    if cause is None:
        paper.say("The diagnosis does not point at the machines; this ticket was asked for all the same.", "")
    _verdict(paper, report, cause)
    paper.head("Node and GPU")
    _hardware(paper, ws, seen, known, named)
    paper.head("Evidence")
    _evidence(paper, seen)
    paper.head("Seen before")
    _before(paper, ws, report, named)
    paper.head("Impact")
    _impact(paper, ws, report)
    paper.head("What was tried")
    _tried(paper, ws)
    paper.head("What is asked for")
    for ask in _asked(report, seen, named, cause):
        paper.own(ask)
    paper.head("Contact")
    paper.lines += ["- Name:", "- Team:", "- Reachable:"]
    if attached:
        paper.head("Attached")
        paper.item("logs around the failure and what the machine said, with secrets taken out", attached)


def nodes(report: Report, seen: list[Event], known: list[Card]) -> list[str]:
    """Nodes that the evidence itself names; a node that merely reports is none of them."""
    told = [e.node for e in seen if e.node and not e.follows] or [e.node for e in seen if e.node]
    told += [c.node for e in seen if (c := of_event(e, known)) and c.node]
    if not told and report.restart:
        told = list(report.restart.exclude)
    return [n for n in dict.fromkeys(told) if _NODE.fullmatch(n)]


def _title(report: Report, lead: Event | None, named: list[str], cause: str | None) -> str:
    where = ", ".join(named[:4]) or "node not known"
    what = lead.what if lead and lead.code is not None else report.root_cause.title or cause or "hardware"
    card = f" (GPU {lead.pci.removeprefix('PCI:')})" if lead and lead.pci else ""
    return f"{where}: {what}{card}"


def _verdict(paper: Paper, report: Report, cause: str | None) -> None:
    root = report.root_cause
    sure = f"{report.status.replace('_', ' ')}, {root.confidence:.0%}" if root.id else report.status
    by = f"traindoctor {report.meta.version or UNKNOWN}"
    paper.say(f"Diagnosis: {root.title or root.id or 'none'} ({sure}, by {by}).")
    if cause and cause != root.id:
        paper.say("", f"Second finding, which this ticket is about: {cause}.")


def _hardware(paper: Paper, ws: Workspace, seen: list[Event], known: list[Card], named: list[str]) -> None:
    rows: dict[tuple[str, ...], None] = {}
    for event in seen:
        if event.pci and not event.follows:
            card = of_event(event, known) or Card(event.node, pci=event.pci)
            pci = event.pci.removeprefix("PCI:")
            rows[event.node or card.node, card.index, pci, card.uuid, card.serial, card.name] = None
    if not rows:
        rows = {(n, "", "", "", "", ""): None for n in named or [""]}
    paper.table(("node", "index", "PCI", "uuid", "serial", "GPU"), list(rows)[:ROWS])
    from .bundle_parts import environment

    told = environment(ws)["told"]
    for word, key in (("Driver", "driver"), ("GPU", "gpu"), ("NCCL", "nccl")):
        values = [str(r["value"]) for r in told if r["name"] == key]
        paper.item(f"{word}: {', '.join(values[:4]) or UNKNOWN}")
    paper.item(f"VBIOS: {', '.join(dict.fromkeys(c.vbios for c in known if c.vbios)) or UNKNOWN}")


def _evidence(paper: Paper, seen: list[Event]) -> None:
    if not seen:
        paper.say("No line of a kernel log, of the scheduler or of a capture is among the run's files.")
        return
    paper.table(
        ("event", "node", "PCI", "times", "first seen", "last seen", "where"),
        [
            (e.what + (" (follows another)" if e.follows else ""), e.node, e.pci.removeprefix("PCI:"), str(e.count),
             e.first.text if e.first else "", e.last.text if e.last else "", _places(e.places))
            for e in seen[:ROWS]
        ],
    )  # fmt: skip
    paper.block("\n".join(dict.fromkeys(e.text.strip() for e in seen[:ROWS])))


def _places(places: list[str]) -> str:
    return ", ".join(places[:PLACES]) + (f" and {len(places) - PLACES} more" if len(places) > PLACES else "")


def _before(paper: Paper, ws: Workspace, report: Report, named: list[str]) -> None:
    rows = [("", b.time, b.cause, b.status, b.session) for b in (report.restart.before if report.restart else [])]
    rows += list(_named_before(ws, named, report.session))
    once = {row[-1]: row for row in rows}  # a row that names its node goes before one that does not
    for node, time, cause, status, _ in sorted(once.values(), key=lambda r: r[1], reverse=True)[:BEFORE]:
        paper.item(f"{time}: {cause} ({status})", remark=node)
    if not once:
        paper.say(f"{UNKNOWN.capitalize()}: no earlier diagnosis of these nodes or of this kind is in the history.")


def _named_before(ws: Workspace, named: list[str], session: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Earlier diagnoses of this team that name a node; none where the history cannot be read."""
    from ...session.history.diagnoses import Wanted, found
    from ...session.history.history_database import Unusable, place_of, reading
    from ...session.store import usable_state

    place, here = place_of(usable_state()[0]), {str(r.absolute()) for r in ws.roots}
    for node in named:
        try:
            entries = reading(place, lambda base, n=node: found(base, Wanted(node=n, limit=BEFORE)), [])
        except Unusable:
            return
        for e in entries:
            if e.session != session:
                same = ", an earlier look at this run" if e.root in here else ""
                yield f"node {node}{same}", e.time, e.cause, e.status, e.session


def _impact(paper: Paper, ws: Workspace, report: Report) -> None:
    from ...reading.logs.roster import roster
    from ...reading.settings.settings import read_settings

    restart = report.restart
    world = roster(ws).world or read_settings(ws).value("world_size")
    paper.item(f"Job: {_job(ws) or UNKNOWN}")
    paper.item(f"GPUs of the job: {world if world is not None else UNKNOWN}")
    paper.item(f"GPU-hours lost: {_known(restart and restart.lost_gpu_hours)}")
    paper.item(f"Steps lost: {_known(restart and restart.lost_steps)}")


def _known(value: object) -> object:
    return UNKNOWN if value is None else value


def _job(ws: Workspace) -> str:
    """The scheduler's number of the job and its name, where files tell them."""
    from ...session.history.diagnoses import job_of

    name, number = job_of(ws)
    if name or number:
        return " ".join(t for t in (number, name) if t)
    for file in ws.files:
        if file.role in ("log", "capture", "config") and (m := _JOB.search(ws.head(file))):
            return (m[1] or m[2]).decode()
    return ""


def _tried(paper: Paper, ws: Workspace) -> None:
    from ...reading.logs.failures import failures

    attempts = sorted({u.attempt for u in failures(ws).units if u.attempt is not None})
    if len(attempts) > 1:
        paper.item(f"The job was started {len(attempts)} times or more: errors are in attempts {attempts}")
    paper.item(f"Reset, reboot, another node: {UNKNOWN}; to be filled in")


def _asked(report: Report, seen: list[Event], named: list[str], cause: str | None) -> Iterator[str]:
    """What follows from the verdict and from the codes, each thing once."""
    if named:
        drain = f"scontrol update nodename={','.join(named)} state=drain reason=..."
        yield f"Take out of service until checked: {', '.join(named)} (where Slurm runs it: `{drain}`)."
    elif cause:
        yield "Find the node: nothing here names it. Kernel logs of the job's nodes at the time of the failure would."
    codes = {e.code: e for e in seen if e.code is not None and not e.follows and e.action}
    for event in codes.values():
        yield f"{event.what}: {event.action}."
    yield from ASKS.get(cause or "", ())
    if cause and cause.startswith(ON_GPUS):
        yield DIAGNOSE
        yield "Say whether the GPU is to be replaced, and when the node is back."
