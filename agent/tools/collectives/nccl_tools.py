"""What NCCL's own log says: version, network, warnings, failed initialization, tests, trials of versions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from ...core.own_files import KNOWLEDGE, read_table
from ...core.types import Evidence, ToolResult
from ...reading.logs import nccl_lines as nl
from ...reading.logs.failures import failures
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import Hit, anchored
from ..tool import clean, finding, listed, not_applicable, tool

EACH = 6  # evidence of one key and value

RESULTS = re.compile(
    r"nccl(?:SystemError|UnhandledCudaError|InternalError|InvalidUsage|InvalidArgument|RemoteError)\b|"
    r"unhandled (?:cuda|hip|system) error|internal error - please report|"
    r"invalid (?:usage|argument)\b(?= \(run with NCCL)|"
    r"remote process exited or there was a network error",
)
RESULT_OF = {
    "ncclSystemError": "unhandled system error",
    "ncclUnhandledCudaError": "unhandled cuda error",
    "ncclInternalError": "internal error",
    "ncclInvalidUsage": "invalid usage",
    "ncclInvalidArgument": "invalid argument",
    "ncclRemoteError": "remote error",
    "remote process exited or there was a network error": "remote error",
}
CONNECTION = re.compile(
    r"(?:connect(?:ion)?|socket|recv|send|tcpstore)\b.{0,200}?"
    r"(refused|timed? ?out|no route to host|unreachable|reset by peer|connection abort)",
    re.IGNORECASE,
)
PEER = re.compile(
    r"(?:connect(?:ing)?|connection) to \[?\(?'?([\w.:%-]+?)'?(?:[<,\])]|\s|:\d{2,5}\b(?![:\w]))", re.IGNORECASE
)
RETRIED = re.compile(r"retry|retrying|will retry|attempt \d", re.IGNORECASE)
STORE = re.compile(r"tcpstore|client socket|rendezvous|c10d", re.IGNORECASE)
HARMLESS = re.compile(
    r"no plugin found|could not find: libnccl-net|failed to open libibverbs|NET/Plugin|"
    r"libnccl-(?:net|tuner|profiler)\S* ?(?:not found|no)|"
    r"failed to find (?:symbol )?nccl\w*plugin|NET/IB ?: no device found",
    re.IGNORECASE,
)
NO_IB = re.compile(r"failed to open libibverbs|NET/IB ?: no device found", re.IGNORECASE)
SOCKET = re.compile(r"NET/Socket ?: using|using (?:internal )?network socket", re.IGNORECASE)
IB = re.compile(r"NET/IB ?: using(?! interface)|using network (?:IB|\w*libfabric|\w*RDMA)", re.IGNORECASE)
INIT = re.compile(r"comm 0x[0-9a-f]+ rank (\d+) nranks (\d+).{0,200}Init (START|COMPLETE)", re.IGNORECASE)


@dataclass(slots=True)
class Seen:
    """What accumulates over the lines."""

    hosts: set[str] = field(default_factory=set)
    harmless: list[Hit] = field(default_factory=list)
    no_ib: list[Hit] = field(default_factory=list)
    socket: Hit | None = None
    started: dict[tuple[str, int], Hit] = field(default_factory=dict)
    complete: dict[tuple[str, int], Hit] = field(default_factory=dict)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)

    def first_few(self, key: str, value: object, limit: int = EACH) -> bool:
        self.told[key, str(value)] += 1
        return self.told[key, str(value)] <= limit


@tool(
    emits=(
        "nccl.warn", "nccl.result", "nccl.connection", "nccl.store_connection", "nccl.connection_peer",
        "nccl.init_complete", "nccl.init_incomplete", "nccl.net", "nccl.ib_missing",
        "nccl.socket_between_nodes", "nccl.interface", "nccl.env", "nccl.p2p", "nccl.p2p_disabled",
        "nccl.nvls_failure", "nccl.ib_error", "nccl.mtu_mismatch", "nccl.version_mismatch", "nccl.cuda_failure",
        "nccl.shm_failure", "nccl.duplicate_gpu", "nccl.mismatched_collective", "nccl.straggler", "nccl.harmless",
        "nccl.test_passed", "nccl.test_failed", "nccl.test_out_of_bounds", "nccl.test_bandwidth",
    ),
    recall=True,
)  # fmt: skip
def nccl_log(ws: Workspace) -> ToolResult:
    """Read NCCL's log lines and errors, nccl-tests reports, and trials with different NCCL versions.

    Use when NCCL fails or is slow: names the version, the network and interface chosen, warnings, result codes,
    ranks whose initialization began and never completed, duplicated GPUs, transport failures, and says which
    alarming lines are harmless here. Healthy initialization and a passed nccl-test are evidence too.
    """
    found = anchored(ws)
    seen = Seen()
    evidence = [e for hit in found.of("nccl") for e in _line(ws, hit, seen)]
    evidence += _after_all(ws, seen)
    if not found.of("nccl", good=True):
        return not_applicable("no line of NCCL in the run's files")
    faults = [e for e in evidence if e.key.split(".")[1] in FAULTS]
    if not faults:
        return clean(_healthy(evidence), evidence)
    kinds = list(dict.fromkeys(e.key.split(".")[1] for e in faults))
    return finding(f"{', '.join(kinds[:4])}: {str(faults[0].value)[:120]}", evidence, listed(evidence[:60]))


FAULTS = {
    "warn", "result", "init_incomplete", "nvls_failure", "ib_error", "connection", "store_connection",
    "duplicate_gpu", "cuda_failure", "shm_failure", "test_failed", "version_mismatch",
    "mtu_mismatch", "mismatched_collective",
}  # fmt: skip


def _line(ws: Workspace, hit: Hit, seen: Seen) -> Iterator[Evidence]:
    text = hit.text
    parsed = nl.LINE.search(text)
    if parsed:
        seen.hosts.add(parsed["host"])
    if HARMLESS.search(text):
        seen.harmless.append(hit)
        if NO_IB.search(text):
            seen.no_ib.append(hit)
        return
    for key, value in nl.facts_of("nccl", text):
        if seen.first_few(key, value):
            yield hit.cite(ws, f"nccl.{key}", value)
    if SOCKET.search(text):
        seen.socket = seen.socket or hit
    if IB.search(text) and seen.first_few("ib", True, 2):
        yield hit.cite(ws, "nccl.net", "IB")
    yield from _error(ws, hit, seen, parsed)
    for key, value in nl.footer_of(text):
        yield ws.cite(hit.file, hit.line, f"nccl.{key}", value)
    if m := INIT.search(text):
        which = seen.started if m[3].upper() == "START" else seen.complete
        which.setdefault((hit.file.name, int(m[1])), hit)


def _error(ws: Workspace, hit: Hit, seen: Seen, parsed: re.Match[str] | None) -> Iterator[Evidence]:
    text = hit.text
    if parsed and parsed["level"] == "WARN" and seen.first_few("warn", _template(parsed["message"]), 2):
        yield hit.cite(ws, "nccl.warn", parsed["message"].strip()[:300])
    if (m := RESULTS.search(text)) and seen.first_few("result", m[0], 3):
        yield hit.cite(ws, "nccl.result", RESULT_OF.get(m[0], m[0]))
    m = CONNECTION.search(text)
    if m and not (RETRIED.search(text) or failures(ws).is_outside(hit.file.name, hit.line.number, text)):
        kind = "timed out" if m[1].lower().startswith("time") else m[1].lower()
        key = "store_connection" if STORE.search(text) else "connection"
        if seen.first_few(key, kind, 3):
            yield hit.cite(ws, f"nccl.{key}", kind)
            if peer := PEER.search(text):
                yield hit.cite(ws, "nccl.connection_peer", peer[1])


def _after_all(ws: Workspace, seen: Seen) -> Iterator[Evidence]:
    for hit in list(seen.complete.values())[:2]:
        yield hit.cite(ws, "nccl.init_complete", True)
    missing = sorted(k for k in seen.started if k not in seen.complete)
    for name, rank in missing[:8]:
        hit = seen.started[name, rank]
        yield ws.cite(hit.file, hit.line, "nccl.init_incomplete", sorted({r for _, r in missing})[:64], rank=rank)
    several = len(seen.hosts) > 1
    distinct: dict[str, Hit] = {}
    for hit in seen.harmless:
        distinct.setdefault(_template(hit.text), hit)
    if several and seen.no_ib:
        yield seen.no_ib[0].cite(ws, "nccl.ib_missing")
    for hit in list(distinct.values())[:6]:
        why = "a line of a machine without this transport; NCCL goes on without it"
        if not (several and NO_IB.search(hit.text)):
            yield hit.cite(ws, "nccl.harmless", why)
    if seen.socket:
        yield seen.socket.cite(ws, "nccl.net", "Socket")
        if several:
            yield ws.cite(seen.socket.file, seen.socket.line, "nccl.socket_between_nodes", True)


def _template(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text.split("NCCL", 1)[-1])[:160]


def _healthy(evidence: list[Evidence]) -> str:
    keys = {e.key for e in evidence}
    if any(e.key == "nccl.test_passed" and e.value for e in evidence):
        return "the NCCL test ran to its end with no wrong value"
    return "initialization completed, no warning that matters" if "nccl.init_complete" in keys else "no NCCL failure"


# ----------
# NCCL's warnings ranked by what they are likeliest to come from, and the transport it chose.

WARNINGS_EACH = 4
CHOSEN = {"gdr": "GPU Direct RDMA", "init_seconds": "seconds of initialization", "rccl_version": "RCCL"}
RCCL = re.compile(r"RCCL version ?:? ?\d", re.IGNORECASE)
MADE = {"gdr": str.lower, "init_seconds": float, "transport": lambda via: re.sub(r"/\d+(?=/|$)", "", via)}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of warning: its cause where it has one of its own, and what it means. `place`: how telling, from 0."""

    place: int
    name: str
    cause: str
    pattern: re.Pattern[str]
    means: str


@cache
def kinds() -> tuple[Kind, ...]:
    """The table of `knowledge/nccl_warnings.yaml`, the most telling first."""
    data = read_table(KNOWLEDGE / "nccl_warnings.yaml")
    return tuple(
        Kind(place, w["name"], w["cause"], re.compile(w["pattern"], re.IGNORECASE), w["means"])
        for place, w in enumerate(data["warnings"])
    )


def kind_of(message: str) -> Kind | None:
    """The most telling kind that a warning is of."""
    return next((k for k in kinds() if k.pattern.search(message[:2000])), None)


@tool(emits=("nccl.likely_cause",), recall=True)
def nccl_warnings(ws: Workspace) -> ToolResult:
    """Rank NCCL's (or RCCL's) warnings by the cause they are likeliest to come from, and name the transport chosen.

    Use when NCCL printed warnings: many follow from one, and a closed connection is hardly ever the cause. Tells the
    most telling kind first, which ranks print it, and by what the channels run (P2P, SHM, NET/IB with or without GPU
    Direct RDMA, NET/Socket).
    """
    hits = anchored(ws).of("nccl")
    if not any(nl.LINE.search(h.text) or RCCL.search(h.text) for h in hits):
        return not_applicable("no line of NCCL or RCCL in the run's files")
    told = [(h, m["message"]) for h in hits if (m := nl.LINE.search(h.text)) and m["level"] == "WARN"]
    warned = [(h, kind_of(message)) for h, message in told]
    known = sorted({k for _, k in warned if k is not None}, key=lambda k: k.place)
    evidence = list(_likely(ws, warned, known))
    rows = [*_ranked(warned, known), *_chosen(hits)]
    if not known:
        return clean("no warning of a known kind", evidence, "\n".join(rows))
    rows += [f"{k.name}: {k.means} ({k.cause})" for k in known]
    first = known[0]
    also = f"; also {', '.join(k.name for k in known[1:5])}" if known[1:] else ""
    return finding(f"{first.name}: {first.means}{also}", evidence, "\n".join(rows))


def _likely(ws: Workspace, warned: list[tuple[Hit, Kind | None]], known: list[Kind]) -> Iterator[Evidence]:
    """One cause, by the first line of the most telling warning that has one of its own."""
    for likely in [k for k in known if k.cause != "none"][:1]:
        hit = next(h for h, kind in warned if kind == likely)
        yield hit.cite(ws, "nccl.likely_cause", likely.cause)


def _ranked(warned: list[tuple[Hit, Kind | None]], known: list[Kind]) -> Iterator[str]:
    """Each kind with its first line of a few ranks, then warnings of no known kind."""
    for kind in known:
        seen: dict[object, Hit] = {}
        for hit in (h for h, k in warned if k == kind):
            seen.setdefault(hit.rank if hit.rank is not None else hit.file.name, hit)
        for hit in list(seen.values())[:WARNINGS_EACH]:
            yield f"{_at(hit)} {kind.name}"
    for hit in [h for h, kind in warned if kind is None][:WARNINGS_EACH]:
        yield f"{_at(hit)} of no known kind: {hit.text.split('NCCL WARN', 1)[-1].strip()[:200]}"


def _at(hit: Hit) -> str:
    return f"{hit.file.name}:{hit.line.number}" + (f" rank {hit.rank}" if hit.rank is not None else "")


def _chosen(hits: list[Hit]) -> Iterator[str]:
    """Transports, GPU Direct RDMA, seconds of initialization, RCCL's version; each value once."""
    told: set[tuple[str, object]] = set()
    for hit in hits:
        for key, said in nl.facts_of("nccl_chosen", hit.text):
            fact = (CHOSEN.get(key, key), MADE.get(key, str)(said))
            if fact not in told and sum(what == fact[0] for what, _ in told) < WARNINGS_EACH:
                told.add(fact)
                yield f"{_at(hit)} {fact[0]} {fact[1]}"
