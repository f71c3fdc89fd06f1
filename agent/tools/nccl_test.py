"""An all-reduce for real: how fast the links of this machine are, and which of them is slow or wrong."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..errors import ToolError
from ..reading import nccl_tests as nt
from ..reading.links import Link, link_between, links
from ..shell import Completed
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, Risk, ToolResult
from ..workspace import Workspace

SCRIPT = Path(__file__).resolve().parent.parent / "probes" / "all_reduce.py"
GRACE = 20.0  # seconds beyond its own limit until the launcher is killed
SLOW = 0.6  # of the middle pair's bandwidth, below which a pair is slow
LARGE = 16 << 20  # bytes from which a message shows the bandwidth of fast links


@dataclass(slots=True)
class Measured:
    """What a test printed: GB/s of bus bandwidth by bytes, wrong elements, GB/s of pairs; lines to quote."""

    done: Completed
    how: str
    ranks: int = 0
    backend: str = ""
    bus: dict[int, float] = field(default_factory=dict)
    wrong: int = 0
    pairs: dict[tuple[int, int], float] = field(default_factory=dict)
    bad_pairs: list[tuple[int, int]] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)
    ended: bool = False


@tool(
    emits=(
        "nccl.test_backend", "nccl.test_bandwidth", "nccl.test_passed", "nccl.test_failed", "nccl.test_out_of_bounds",
        "nccl.test_link", "nccl.test_expected", "nccl.test_slow", "nccl.test_slow_pair", "nccl.test_pair_ratio",
        "nccl.test_slow_rank",
    ),
    risk=Risk.COSTLY,
    live=True,
)  # fmt: skip
def nccl_test(
    ws: Workspace,
    ranks: Annotated[int, Field(description="processes; 0: one a GPU, or 2 without GPUs", ge=0, le=64)] = 0,
    pairwise: Annotated[bool, Field(description="also every pair of ranks alone, to find the slow one")] = False,
    largest_mib: Annotated[int, Field(description="size of the largest message", ge=1, le=4096)] = 64,
    link: Annotated[str, Field(description="name in knowledge/links.yaml of what connects the ranks")] = "",
    seconds: Annotated[float, Field(description="time limit", ge=10, le=900)] = 120.0,
) -> ToolResult:
    """Run an all-reduce on this machine: bandwidth against what its links should give, wrong values, slow pairs.

    Use when collectives are slow, hang or compute wrong values and the machine is free: it puts load on all GPUs. Runs
    all_reduce_perf of nccl-tests where it is installed, else an all-reduce through torch.distributed (NCCL with GPUs,
    Gloo without), in the interpreter that the user's config names, else in our own.
    """
    if not ws.live:
        return not_applicable("the run is not this machine's own: its links are elsewhere")
    if link and link not in links():
        raise ToolError(f"no link {link!r}; known: {', '.join(links())}")
    gpus = _gpus(ws)
    expected = links()[link] if link else _link(ws, gpus)
    found = None
    if gpus and not pairwise and ranks in (0, gpus):
        found = _by_nccl_tests(ws, gpus, largest_mib, seconds)
    found = found or _by_torch(ws, ranks or gpus or 2, pairwise, largest_mib, seconds)
    if not found.bus:
        return failed(f"no all-reduce could be run: {_why(found.done)}")
    if found.backend == "gloo" and not link:
        expected = links()["loopback"]  # it went through the host, whatever joins the GPUs
    return _result(ws, found, expected)


def _gpus(ws: Workspace) -> int:
    done = ws.shell(["nvidia-smi", "-L"], 20.0)
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.code == 0 else 0


def _link(ws: Workspace, gpus: int) -> Link | None:
    if not gpus:
        return links()["loopback"]
    if gpus == 1:
        return None
    topology = ws.shell(["nvidia-smi", "topo", "-m"], 20.0)
    devices = ws.shell(["nvidia-smi", "--query-gpu=name,pcie.link.gen.max", "--format=csv,noheader"], 20.0)
    return link_between(topology.stdout, devices.stdout)


def _by_nccl_tests(ws: Workspace, gpus: int, mib: int, seconds: float) -> Measured | None:
    """all_reduce_perf over all GPUs; None where it is not installed."""
    done = ws.shell(["all_reduce_perf", "-b", "4K", "-e", f"{mib}M", "-f", "4", "-g", str(gpus)], seconds)
    if done.code is None and "not installed" in done.stderr:
        return None
    found = Measured(done, "all_reduce_perf", gpus, "nccl")
    for line in (done.stdout + "\n" + done.stderr).splitlines():
        if row := nt.row_of(line):
            found.bus[row.size] = row.bus
            found.lines[f"size {row.size}"] = line.strip()
        facts = nt.facts_of(line)
        if facts.wrong is not None:
            found.wrong, found.ended, found.lines["end"] = facts.wrong, True, line.strip()
        if facts.failure:
            found.lines["failure"] = line.strip()
    return found


def _by_torch(ws: Workspace, ranks: int, pairwise: bool, mib: int, seconds: float) -> Measured:
    """Our own all-reduce, started by torchrun."""
    python = os.environ.get("DOCTOR_PYTHON") or sys.executable
    argv = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(SCRIPT)]
    argv += [str(mib << 20), f"{seconds:g}", str(int(pairwise))]
    done = ws.shell(argv, seconds + GRACE, env={"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")})
    found = Measured(done, "torch.distributed", ranks)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            _take(found, _parsed(line), line)
    return found


def _parsed(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _take(found: Measured, told: dict[str, Any], line: str) -> None:
    kind = told.get("kind")
    if kind == "ranks":
        found.ranks, found.backend, found.lines["ranks"] = int(told["ranks"]), str(told["backend"]), line
    elif kind == "size":
        found.bus[int(told["size"])] = float(told["busbw"])
        found.wrong += int(told["wrong"])
        found.lines[f"size {told['size']}"] = line
        if told["wrong"]:
            found.lines.setdefault("wrong", line)
    elif kind == "pair":
        pair = (int(told["a"]), int(told["b"]))
        found.pairs[pair] = float(told["busbw"])
        found.lines[f"pair {pair[0]}-{pair[1]}"] = line
        if told["wrong"]:
            found.bad_pairs.append(pair)
    elif kind == "end":
        found.ended, found.lines["end"] = True, line


def _why(done: Completed) -> str:
    """The last line that says something of why a command failed."""
    said = [x.strip() for x in done.stderr.splitlines() if "Error" in x or "error" in x or "not installed" in x]
    return (said or done.stderr.strip().splitlines() or [f"exit code {done.code}"])[-1][:200]


def _result(ws: Workspace, found: Measured, expected: Link | None) -> ToolResult:
    best = max(found.bus, key=lambda size: found.bus[size])
    fastest = found.bus[best]
    done, line = found.done, found.lines.get(f"size {best}", "")
    evidence = [
        ws.answered(done, "nccl.test_backend", found.backend, found.lines.get("ranks", line)),
        ws.answered(done, "nccl.test_bandwidth", round(fastest, 4), line),
    ]
    faults: list[str] = []
    if expected is not None:
        evidence.append(ws.answered(done, "nccl.test_link", expected.name, line))
        evidence.append(ws.answered(done, "nccl.test_expected", round(expected.low, 3), line))
        if fastest < expected.low and max(found.bus) >= LARGE:
            faults.append(f"slower than {expected.what} should be ({expected.low:.3g} to {expected.high:.3g} GB/s)")
            evidence.append(ws.answered(done, "nccl.test_slow", round(fastest / expected.low, 3), line))
    evidence += _correct(ws, found, faults)
    evidence += _pairs(ws, found, faults)
    rows = [f"{size:>12} B  {gb:10.3f} GB/s" for size, gb in sorted(found.bus.items())]
    rows += [f"ranks {a}-{b}  {gb:10.3f} GB/s" for (a, b), gb in sorted(found.pairs.items(), key=lambda p: p[1])[:40]]
    said = f"{found.ranks} ranks over {found.backend} ({found.how}): {fastest:.3f} GB/s on the bus at {best} bytes"
    if faults:
        return finding(f"{said}; {'; '.join(faults)}", evidence, "\n".join(rows))
    return clean(f"{said}, no wrong value", evidence, "\n".join(rows))


def _correct(ws: Workspace, found: Measured, faults: list[str]) -> Iterator[Evidence]:
    if found.wrong or found.bad_pairs:
        told = found.lines.get("wrong") or found.lines.get("end", "")
        faults.append(f"{found.wrong} wrong values")
        yield ws.answered(found.done, "nccl.test_out_of_bounds", found.wrong, told)
        yield ws.answered(found.done, "nccl.test_failed", f"{found.wrong} wrong values", told)
    elif found.ended:
        yield ws.answered(found.done, "nccl.test_out_of_bounds", 0, found.lines["end"])
        yield ws.answered(found.done, "nccl.test_passed", True, found.lines["end"])
    else:
        why = found.lines.get("failure") or _why(found.done)
        faults.append(f"it did not end: {why}")
        yield ws.answered(found.done, "nccl.test_failed", why, why)


def _pairs(ws: Workspace, found: Measured, faults: list[str]) -> Iterator[Evidence]:
    """The slowest pair against the middle one, and the rank that all slow pairs have in common."""
    if len(found.pairs) < 3:
        return
    middle = statistics.median(found.pairs.values())
    (a, b), least = min(found.pairs.items(), key=lambda p: p[1])
    line = found.lines[f"pair {a}-{b}"]
    yield ws.answered(found.done, "nccl.test_pair_ratio", round(least / max(middle, 1e-9), 3), line)
    slow = [pair for pair, gb in found.pairs.items() if gb < SLOW * middle] + found.bad_pairs
    for pair in slow[:6]:
        yield ws.answered(
            found.done, "nccl.test_slow_pair", f"{pair[0]}-{pair[1]}", found.lines[f"pair {pair[0]}-{pair[1]}"]
        )
    if slow:
        faults.append(f"slow or wrong between ranks {', '.join(f'{x}-{y}' for x, y in slow[:6])}")
        common = set.intersection(*(set(pair) for pair in slow))
        if len(common) == 1 and len(slow) > 1:
            rank = common.pop()
            yield ws.answered(found.done, "nccl.test_slow_rank", rank, line, rank=rank)
