"""Lines of NCCL and of PyTorch's process groups, as facts.

NCCL prints `host:pid:tid [device] NCCL INFO ...` and `... file.cc:line (function) NCCL WARN ...`; the watchdog
of PyTorch prints one sentence for each rank with the sequence number, operation and sizes of the work that
did not end; TORCH_DISTRIBUTED_DEBUG=DETAIL prints both fingerprints of a mismatch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LINE = re.compile(
    r"(?P<host>[\w.-]{1,120}):(?P<pid>\d{1,8}):(?P<tid>\d{1,8}) \[(?P<device>\d{1,4})\]\s*"
    r"(?P<place>\S{1,80}:\d{1,6}(?: \([^)]{1,80}\))?\s)?\s*[NR]CCL (?P<level>INFO|WARN|TRACE) (?P<message>.*)"
)
VERSION = re.compile(
    r"NCCL version:?\s(\d+\.\d+\.\d+)|\bnccl \((\d+), (\d+), (\d+)\)|"
    r"nvidia[-_]nccl[-_]cu\d+\s{0,40}(?:==|\s)\s?(\d+\.\d+\.\d+)|libnccl\.so\.(\d+\.\d+\.\d+)|"
    r"NCCL[ _]?version['\"]?\s?[:=]\s?['\"]?v?(\d+\.\d+\.\d+)|\bnccl[-_/=]v?(\d+\.\d+\.\d+)\b",
    re.IGNORECASE,
)
TIMEOUT = re.compile(r"caught collective operation timeout", re.IGNORECASE)
WORK = re.compile(r"WorkNCCL\((?:[^)]{0,300}?Timeout\(ms\)=\d+|[^)]{0,300})\)")
WORK_FIELD = re.compile(r"(SeqNum|OpType|NumelIn|NumelOut|TensorShape|Timeout\(ms\))=(\[[^\]]*\]|[^,\s)]+)")
RAN = re.compile(r"ran for (\d+) ?m(?:illi)?s")
GROUP_RANK = re.compile(r"\[(?:PG (?:ID )?(?P<group>[^\]\[]{1,120}?) )?Rank (?P<rank>\d{1,6})\]")
PROGRESS = re.compile(
    r"(?:(?:at (?:nccl )?work|work sequence id): (?P<at>\d+)\b.{0,120}?)?"
    r"last enqueued (?:nccl )?work: (?P<enqueued>-?\d+).{0,200}?last completed (?:nccl )?work: (?P<completed>-?\d+)",
    re.IGNORECASE | re.DOTALL,
)
FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d+) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d+),? ?)?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]*)\])?(?:, TensorDtypes=(?P<dtype>\w+))?"
)
ASPECT = re.compile(r"Collectives differ in the following aspects:(?P<what>.{0,300})", re.IGNORECASE | re.DOTALL)
ASYNC = re.compile(r"async exception:? (?P<error>.{1,200})", re.IGNORECASE)
CLOSED = re.compile(
    r"connection closed by (?:remote )?peer \[?(?P<a>[\w.:-]+?)\]?(?:<\d+>|:\d+|\b(?![\w.:-]))|"
    r"(?:call to recv from|call to send to|socketProgress\w*: call to \w+ \w+) (?P<b>[\w.-]+)<\d+> failed ?: "
    r"(?:connection reset|broken pipe|connection timed out)|recv from (?P<c>[\w.-]+)<\d+> failed",
    re.IGNORECASE,
)
RESET = re.compile(r"connection (?:reset|closed) by (?:remote )?peer", re.IGNORECASE)
DESYNC = re.compile(
    r"\[(?P<ranks>[\d, ]+)\] (?:finished collective #\d+, but didn'?t join|did ?n.t join) collective", re.IGNORECASE
)
BARRIER_RANKS = re.compile(
    r"Ranks? (?P<ranks>[\d, ]+?) failed to pass monitoredBarrier in (?P<ms>\d+) ?ms", re.IGNORECASE
)
GLOO_WAIT = re.compile(r"timed out waiting (\d+) ?ms for (\w+) operation", re.IGNORECASE)
CLIENTS = re.compile(r"(\d+)/(\d+) clients joined", re.IGNORECASE)
HEARTBEAT = re.compile(r"heartbeat monitor timed out|stuck.{0,40}watchdog|watchdog.{0,60}(?:stuck|hang)", re.IGNORECASE)
WORLD = re.compile(
    r"world[ _]?size['\"]?\s?[:=(]?\s?(\d{1,6})\b|starting with (\d{1,6}) processes|\bnranks (\d{1,6})\b|"
    r"rank \d+ ?/ ?world (\d{1,6})|num_processes['\"]?\s?[:=]\s?(\d{1,6})|total processes\s?[:=]?\s?(\d{1,6})",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Work:
    """The collective a rank waits in. Numbers it does not print are None; `ran_ms` is how long it waited."""

    op: str = ""
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    shape: str = ""
    timeout_ms: int | None = None
    ran_ms: int | None = None
    group: str = ""
    rank: int | None = None


@dataclass(slots=True)
class Progress:
    """What a rank's process group says about its queue: the numbers of NCCL work."""

    rank: int | None
    group: str
    timed_out: int | None
    enqueued: int
    completed: int


@dataclass(slots=True)
class Mismatch:
    """Two fingerprints of one DETAIL report; `kinds` of op, shape, dtype, sequence."""

    kinds: list[str] = field(default_factory=list)
    sides: list[dict[str, str]] = field(default_factory=list)


def version_of(text: str) -> str | None:
    """The NCCL version a line names (`2.26.2`), in any of the usual spellings."""
    if (m := VERSION.search(text)) is None:
        return None
    groups = [g for g in m.groups() if g is not None]
    return ".".join(groups) if len(groups) == 3 else groups[0]


def work_of(text: str) -> Work | None:
    """The `WorkNCCL(...)` of a watchdog line."""
    if (m := WORK.search(text)) is None:
        return None
    fields = dict(WORK_FIELD.findall(m[0]))
    ran = RAN.search(text, m.end())
    who = GROUP_RANK.search(text)
    return Work(
        op=fields.get("OpType", ""),
        seq=_int(fields.get("SeqNum")),
        numel_in=_int(fields.get("NumelIn")),
        numel_out=_int(fields.get("NumelOut")),
        shape=fields.get("TensorShape", ""),
        timeout_ms=_int(fields.get("Timeout(ms)")),
        ran_ms=int(ran[1]) if ran else None,
        group=(who["group"] or "") if who else "",
        rank=int(who["rank"]) if who else None,
    )


def progress_of(text: str) -> Progress | None:
    """Last enqueued and last completed work, from either generation of the message."""
    if (m := PROGRESS.search(text)) is None:
        return None
    who = GROUP_RANK.search(text)
    return Progress(
        rank=int(who["rank"]) if who else None,
        group=(who["group"] or "") if who else "",
        timed_out=_int(m["at"]),
        enqueued=int(m["enqueued"]),
        completed=int(m["completed"]),
    )


def mismatch_of(text: str) -> Mismatch | None:
    """A DETAIL report: who ran what, and in what they differ."""
    sides = [{k: v for k, v in m.groupdict().items() if v is not None} for m in FINGERPRINT.finditer(text)]
    aspect = ASPECT.search(text)
    if len(sides) < 2 and not aspect:
        return None
    kinds = []
    if len(sides) >= 2:
        names = {"op": "op", "shape": "shape", "dtype": "dtype", "seq": "sequence"}
        kinds = [word for key, word in names.items() if sides[0].get(key) != sides[1].get(key)]
    if aspect:
        what = aspect["what"].lower()
        words = {"shape": "shape", "optype": "op", "op type": "op", "dtype": "dtype", "sequence": "sequence"}
        kinds += [word for key, word in words.items() if key in what and word not in kinds]
    return Mismatch(kinds, sides)


def world_size(text: str) -> int | None:
    """The number of processes a line states."""
    m = WORLD.search(text)
    return int(next(g for g in m.groups() if g)) if m else None


def closed_peer(text: str) -> str | None:
    """Host (or address) of the peer that closed the connection; empty when the line does not name it."""
    if m := CLOSED.search(text):
        return next(g for g in m.groups() if g)
    return "" if RESET.search(text) else None


def is_this_machine(peer: str) -> bool:
    """Whether a peer is a process of the same machine, whose end tells nothing of a node."""
    return peer.startswith(("127.", "::1", "localhost", "0:0:0:0:0:0:0:1"))


def ranks_in(listing: str) -> list[int]:
    """`1, 2, 5` -> [1, 2, 5]."""
    return [int(part) for part in listing.replace(",", " ").split() if part.isdigit()]


def _int(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None
