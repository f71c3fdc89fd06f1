"""A ticket for whoever runs the machines: which node and card, what they said and when, what is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import UsageError
from .hardware import Card, Event, cards, events, of_event
from .paper import UNKNOWN, Paper, written

if TYPE_CHECKING:
    from ..report import Report
    from ..workspace import Workspace

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
    from .facts import environment

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
    from ..history.database import Unusable, reading
    from ..history.diagnoses import Wanted, found
    from ..history.place import place_of
    from ..store import usable_state

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
    from ..reading.roster import roster
    from ..reading.settings import read_settings

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
    from ..history.row import job_of

    name, number = job_of(ws)
    if name or number:
        return " ".join(t for t in (number, name) if t)
    for file in ws.files:
        if file.role in ("log", "capture", "config") and (m := _JOB.search(ws.head(file))):
            return (m[1] or m[2]).decode()
    return ""


def _tried(paper: Paper, ws: Workspace) -> None:
    from ..reading.failures import failures

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
