"""What NCCL's own log says: version, network, warnings, failed initialization, tests, trials of versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..reading import nccl_lines as nl
from ..reading import nccl_tests
from ..reading.anchor_lines import Hit, anchored
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 6  # evidence of one key and value
SMALL = 4 << 20  # logs compared line by line between trials

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
# (key, pattern, group of the value or None for True)
FACTS: tuple[tuple[str, re.Pattern[str], int | None], ...] = tuple(
    (key, re.compile(pattern, re.IGNORECASE), group)
    for key, pattern, group in (
        ("duplicate_gpu", r"duplicate GPU detected.{0,120}|multiple ranks are using the same.{0,80}", 0),
        (
            "nvls_failure",
            r"transport/nvls\.cc.{0,60}NCCL WARN.{0,160}|failed to bind NVLink SHARP.{0,120}|"
            r"NVLS.{0,40}(?:error|fail\w*).{0,80}",
            0,
        ),
        ("cuda_failure", r"(?:cuda|hip) failure (?:\d+ )?'([^']{1,120})'", 1),
        ("shm_failure", r"error while creating shared memory segment.{0,120}|posix_fallocate failed.{0,80}", 0),
        ("ib_error", r"status=(IBV_WC_\w+)|got completion.{0,60}?(?:with|status|error)[ =]+(\S+ ?\d*)", 0),
        ("ib_error", r"async (?:fatal )?event ?: ?.{1,80}|ibv_\w+ failed.{0,120}|call to ibv_\w+ failed.{0,120}", 0),
        ("mtu_mismatch", r"MTU mismatch.{0,120}", 0),
        ("version_mismatch", r"mismatched NCCL version detected.{0,160}", 0),
        ("mismatched_collective", r"mismatched collective detected.{0,120}|different \w+ operation counts", 0),
        ("straggler", r"\d+ ranks? ha(?:s|ve) launched up to operation \d+", 0),
        ("p2p_disabled", r"P2P is disabled.{0,100}", 0),
        ("net", r"using network (\S+)", 1),
        ("interface", r"(?:bootstrap|NET(?:/Socket)?) ?: using (?:interface )?(?:\[\d+\])?([\w.-]+):", 1),
        ("env", r"\b(NCCL_\w+) set by environment to .{1,80}", 0),
        ("p2p", r" via (P2P|SHM|NET|direct shared memory)\b", 1),
    )
)
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
LAST_ERROR = re.compile(r"\blast error:\s*(\S.{3,200})?$", re.IGNORECASE)


@dataclass(slots=True)
class Seen:
    """What accumulates over the lines."""

    hosts: set[str] = field(default_factory=set)
    harmless: list[Hit] = field(default_factory=list)
    no_ib: list[Hit] = field(default_factory=list)
    socket: Hit | None = None
    started: dict[tuple[str, int], Hit] = field(default_factory=dict)
    complete: dict[tuple[str, int], Hit] = field(default_factory=dict)
    told: dict[tuple[str, str], int] = field(default_factory=dict)

    def first_few(self, key: str, value: object, limit: int = EACH) -> bool:
        same = (key, str(value))
        self.told[same] = self.told.get(same, 0) + 1
        return self.told[same] <= limit


@tool(
    emits=(
        "nccl.warn", "nccl.result", "nccl.last_error", "nccl.connection", "nccl.store_connection",
        "nccl.connection_peer", "nccl.init_complete", "nccl.init_incomplete", "nccl.net", "nccl.ib_missing",
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
    return finding(
        _summary(faults), evidence, "\n".join(f"{e.file}:{e.line} {e.key} = {e.value}" for e in evidence[:60])
    )


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
    for key, pattern, group in FACTS:
        if (m := pattern.search(text)) and seen.first_few(
            key, value := (m[group] or "").strip()[:200] if group is not None else True
        ):
            yield ws.cite(hit.file, hit.line, f"nccl.{key}", value, rank=hit.rank)
    if SOCKET.search(text):
        seen.socket = seen.socket or hit
    if IB.search(text) and seen.first_few("ib", True, 2):
        yield ws.cite(hit.file, hit.line, "nccl.net", "IB", rank=hit.rank)
    yield from _error(ws, hit, seen, parsed)
    yield from _test(ws, hit)
    if m := INIT.search(text):
        which = seen.started if m[3].upper() == "START" else seen.complete
        which.setdefault((hit.file.name, int(m[1])), hit)


def _error(ws: Workspace, hit: Hit, seen: Seen, parsed: re.Match[str] | None) -> Iterator[Evidence]:
    text = hit.text
    if parsed and parsed["level"] == "WARN" and seen.first_few("warn", _template(parsed["message"]), 2):
        yield ws.cite(hit.file, hit.line, "nccl.warn", parsed["message"].strip()[:300], rank=hit.rank)
    if (m := RESULTS.search(text)) and seen.first_few("result", m[0], 3):
        yield ws.cite(hit.file, hit.line, "nccl.result", RESULT_OF.get(m[0], m[0]), rank=hit.rank)
    if (m := LAST_ERROR.search(text)) and m[1] and seen.first_few("last_error", m[1], 3):
        yield ws.cite(hit.file, hit.line, "nccl.last_error", m[1].strip(), rank=hit.rank)
    if (m := CONNECTION.search(text)) and not RETRIED.search(text):
        kind = "timed out" if m[1].lower().startswith("time") else m[1].lower()
        key = "store_connection" if STORE.search(text) else "connection"
        if seen.first_few(key, kind, 3):
            yield ws.cite(hit.file, hit.line, f"nccl.{key}", kind, rank=hit.rank)
            if peer := PEER.search(text):
                yield ws.cite(hit.file, hit.line, "nccl.connection_peer", peer[1], rank=hit.rank)


def _test(ws: Workspace, hit: Hit) -> Iterator[Evidence]:
    facts = nccl_tests.facts_of(hit.text)
    if facts.wrong is not None:
        yield ws.cite(hit.file, hit.line, "nccl.test_out_of_bounds", facts.wrong)
        if facts.wrong == 0:
            yield ws.cite(hit.file, hit.line, "nccl.test_passed", True)
        else:
            yield ws.cite(hit.file, hit.line, "nccl.test_failed", f"{facts.wrong} values out of bounds")
    if facts.average is not None:
        yield ws.cite(hit.file, hit.line, "nccl.test_bandwidth", facts.average)
    if facts.failure is not None:
        yield ws.cite(hit.file, hit.line, "nccl.test_failed", facts.failure)


def _after_all(ws: Workspace, seen: Seen) -> Iterator[Evidence]:
    for hit in list(seen.complete.values())[:2]:
        yield ws.cite(hit.file, hit.line, "nccl.init_complete", True, rank=hit.rank)
    missing = sorted(k for k in seen.started if k not in seen.complete)
    for name, rank in missing[:8]:
        hit = seen.started[name, rank]
        yield ws.cite(hit.file, hit.line, "nccl.init_incomplete", sorted({r for _, r in missing})[:64], rank=rank)
    several = len(seen.hosts) > 1
    distinct: dict[str, Hit] = {}
    for hit in seen.harmless:
        distinct.setdefault(_template(hit.text), hit)
    if several and seen.no_ib:
        hit = seen.no_ib[0]
        yield ws.cite(hit.file, hit.line, "nccl.ib_missing", True, rank=hit.rank)
    for hit in list(distinct.values())[:6]:
        why = "a line of a machine without this transport; NCCL goes on without it"
        if not (several and NO_IB.search(hit.text)):
            yield ws.cite(hit.file, hit.line, "nccl.harmless", why, rank=hit.rank)
    if seen.socket:
        yield ws.cite(seen.socket.file, seen.socket.line, "nccl.net", "Socket", rank=seen.socket.rank)
        if several:
            yield ws.cite(seen.socket.file, seen.socket.line, "nccl.socket_between_nodes", True)


def _template(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text.split("NCCL", 1)[-1])[:160]


def _healthy(evidence: list[Evidence]) -> str:
    keys = {e.key for e in evidence}
    if any(e.key == "nccl.test_passed" and e.value for e in evidence):
        return "the NCCL test ran to its end with no wrong value"
    return "initialization completed, no warning that matters" if "nccl.init_complete" in keys else "no NCCL failure"


def _summary(faults: list[Evidence]) -> str:
    first = faults[0]
    kinds = list(dict.fromkeys(e.key.split(".")[1] for e in faults))
    return f"{', '.join(kinds[:4])}: {str(first.value)[:120]}"
