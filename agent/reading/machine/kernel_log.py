"""Kernel lines about NVIDIA devices: Xid and SXid codes, and cards that fell off the bus with or without a code."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.own_files import KNOWLEDGE, read_table
from ..run.clocks import stamp_of
from ..run.files import Line
from ..run.lines import output_lines
from ..scan.anchors import Hit

if TYPE_CHECKING:
    from ...core.shell import Completed
    from ..run.workspace import Workspace

XID = re.compile(r"Xid\s?\((?P<pci>(?:PCI:)?[0-9a-fA-F:.]+)\)[^\n]{0,20}?: (?P<code>\d{1,3})\b(?P<rest>.*)")
SXID = re.compile(r"SXid\s?\((?P<pci>(?:PCI:)?[0-9a-fA-F:.]+)\)[^\n]{0,20}?: (?P<code>\d{4,6})\b")
XID_WORDS = re.compile(r"\bXid\s?(?:error|code|event)?\s?[:=#]?\s?(?P<code>\d{1,3})\b(?!\.\d)")
OFF_THE_BUS = re.compile(r"(?:NVRM: |Xid \(|nvidia).{0,160}fallen off the bus|GPU is lost\b|GPU_IS_LOST", re.IGNORECASE)
CARD = re.compile(r"NVRM:.{0,20}NVIDIA GPU (?P<pci>[0-9a-fA-F:.]+)|NVRM: GPU (?:at PCI:)?(?P<other>[0-9a-fA-F:.]+)")
KERNEL = re.compile(r"NVRM:|^\$? ?(?:sudo )?(?:dmesg|journalctl)\b|^\[\s*\d+\.\d{6}\]|\bkernel: ")
_WORDS = re.compile(r"NVRM|S?Xid|fallen off|GPU.is.lost", re.IGNORECASE)
SEARCHED = re.compile(r"(?:dmesg|journalctl|kern\.log|/var/log/\S+)[^\n]*grep[^\n]*xid", re.IGNORECASE)
NVLINK5 = re.compile(r"^,?\s*(?P<unit>[A-Z]\w*(?:/\w+)?)\s+(?P<severity>(?:Link )?Fatal|Non-?fatal)\b", re.IGNORECASE)
RECOVERY = re.compile(r"recovery action changed.{0,40}to (?:0x\w+ )?\(?([\w ]+)\)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Xid:
    """One code on one device; `known` is the catalogue's entry, None for codes it does not hold.

    `nonfatal`: an event of an NVLink unit that the driver got over (codes 144 to 150 say which).
    """

    code: int
    pci: str
    known: dict[str, Any] | None
    nonfatal: bool = False


@cache
def catalogue() -> dict[int, dict[str, Any]]:
    """Entry by code: name, action (a sentence), bucket, investigate, blame, consequence, cause."""
    data = read_table(KNOWLEDGE / "xid.yaml")
    entries = dict(data["codes"])
    for span in data["ranges"]:
        shared = {k: v for k, v in span.items() if k not in {"from", "to"}}
        entries |= {code: shared for code in range(span["from"], span["to"] + 1) if code not in entries}
    return {
        code: {**entry, "bucket": entry["action"], "action": data["actions"][entry["action"]]}
        for code, entry in entries.items()
    }


def xid_of(text: str) -> Xid | None:
    """The Xid a kernel line (or a monitoring line that quotes one) states."""
    if "sxid" in text.lower():
        return None
    if m := XID.search(text):
        event = NVLINK5.match(m["rest"])
        mild = event is not None and event["severity"].lower().startswith("non")
        return Xid(int(m["code"]), m["pci"], catalogue().get(int(m["code"])), mild)
    m = XID_WORDS.search(text)
    return Xid(int(m["code"]), "", catalogue().get(int(m["code"]))) if m else None


def culprit(codes: list[Xid]) -> Xid | None:
    """Which of many codes is to blame: the first that does not merely follow another.

    A fault of the hardware that asks for an action goes before one of the application: the application cannot take a
    card off the bus, a sick card can make it fail. Where all follow another, a fault of the hardware still counts
    (a remapped row names the memory); a cleanup alone blames nobody, nor does an event the driver got over.
    """
    own = [x for x in codes if not (x.known or {}).get("consequence") and not x.nonfatal]
    sick = [x for x in own if x.known and x.known["blame"] == "hardware" and x.known["bucket"] != "IGNORE"]
    marks = [x for x in codes if x.known and x.known["blame"] == "hardware" and not x.nonfatal]
    return next(iter(sick or own or marks), None)


def begin(text: str) -> int | None:
    """Where in a line the kernel's words begin."""
    m = _WORDS.search(text)
    return m.start() if m else None


# ----------
# The kernel log of this machine: by the journal, else by dmesg, and of it what is near the run's time.
#
# What befell the hardware within a day matters to a run. A process that was killed matters only while the run ran.

DAY, OLDEST = 24 * 3600.0, 7 * 24 * 3600.0
SLACK = 600.0  # seconds between the last word of a log and what ended the run
MARGIN = 5.0  # seconds by which clocks of a file system and of the kernel may differ
FILES = 200
# The journal first: it knows earlier boots, and gives the newest lines where there are very many.
ASKED = (
    ["journalctl", "--no-pager", "-o", "short-iso", "--since", "-7 days", "-n", "5000", "_TRANSPORT=kernel"],
    ["dmesg", "--time-format", "iso"],
)


@dataclass(slots=True)
class KernelLog:
    """Lines of the last day or of the run's time; `done` answered them, None where nobody did, for the reason `why`.

    `during` holds the numbers of the lines from the run's own time; `older` counts lines that were passed over.
    """

    done: Completed | None = None
    lines: list[Line] = field(default_factory=list)
    during: set[int] = field(default_factory=set)
    older: int = 0
    why: str = ""


def kernel_log(ws: Workspace) -> KernelLog:
    """The log of this machine's kernel, asked once for a workspace."""
    return ws.memo("kernel_log", lambda: _ask(ws))


def _ask(ws: Workspace) -> KernelLog:
    reasons = []
    for argv in ASKED:
        done = ws.shell(list(argv), 10.0)
        if done.code == 0 and not _empty(done.stdout):
            return _near(done, *_times(ws))
        said = (done.stderr or done.stdout).strip().splitlines()
        reasons.append(f"{argv[0]}: {_plain(said[-1] if said else 'nothing')}")
    return KernelLog(why="; ".join(reasons))


def _empty(text: str) -> bool:
    """The journal says so in a line of its own."""
    return not text.strip() or text.strip().startswith("-- No entries")


def _plain(said: str) -> str:
    for word in ("Operation not permitted", "insufficient permissions", "Permission denied"):
        if word.lower() in said.lower():
            return "no permission"
    return said.partition(": ")[2][:120] or said[:120]


def _times(ws: Workspace) -> tuple[float, float, float]:
    """Now, and between when the run ran, as far as its files tell: from the first that was written to the last."""
    names = [str(f.path) for f in ws.files if f.role in ("log", "config", "metrics") and not f.good][:FILES]
    done = ws.shell([sys.executable, "-I", "-m", "traindoctor.agent.jobs.probes.times", *names], 5.0)
    try:
        said = json.loads(done.stdout)
        now = float(said["now"])
        first, last = (float(said[k]) if said[k] is not None else now for k in ("first", "last"))
    except (ValueError, TypeError, KeyError):
        return 0.0, 0.0, float("inf")  # nobody knows: everything counts
    if ws.pids:  # it still runs
        last = now
    return now, max(first, now - OLDEST), last


def _near(done: Completed, now: float, first: float, last: float) -> KernelLog:
    """A line without a time of its own (continued output) belongs to the one above it."""
    log, inside, during = KernelLog(done), True, True
    for line in output_lines(done.stdout):
        stamp = stamp_of(line.text)
        if stamp and stamp.kind == "date":
            inside = stamp.value >= min(now - DAY, first - SLACK)
            during = first - MARGIN <= stamp.value <= last + SLACK
        if inside:
            log.lines.append(line)
            if during:
                log.during.add(line.number)
        else:
            log.older += 1
    return log


# ----------
# Readings of the kernel's counter of memory kills: did it move while the job ran?
#
# `grep oom_kill /proc/vmstat` and `memory.events` of a control group print `oom_kill N`; scripts note it before and
# after. A counter that stands where it stood says that nobody was killed for memory in between. A control group's own
# counter, printed with its name, starts at zero with the group: one reading tells.

COUNTER = re.compile(r"^\s*oom_kill[\s:=]+(\d{1,9})\s*$")
OF_GROUP = re.compile(r"\bmemory\.(?:oom_control|events(?:\.local)?)\b.{0,200}?\boom_kill[\s:=]+([1-9]\d{0,8})\b")


def kills_between(hits: Iterable[Hit]) -> list[tuple[Hit, int]]:
    """The last reading of each file that holds several, and by how much it is above the first one."""
    read: dict[str, list[tuple[Hit, int]]] = {}
    for hit in hits:
        if m := COUNTER.match(hit.text):
            read.setdefault(hit.file.name, []).append((hit, int(m[1])))
    return [(told[-1][0], told[-1][1] - told[0][1]) for told in read.values() if len(told) > 1]


def kills_of_group(hits: Iterable[Hit]) -> list[tuple[Hit, int]]:
    """Readings of a control group's own counter that count a kill."""
    return [(hit, int(m[1])) for hit in hits if (m := OF_GROUP.search(hit.text))]
