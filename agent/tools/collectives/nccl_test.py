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

from ...core.errors import ParseError, ToolError
from ...core.shell import Completed
from ...core.types import Evidence, Risk, ToolResult
from ...reading.logs import nccl_lines as nl
from ...reading.machine.ib_links import Link, link_between, links
from ...reading.run.files import Line, RunFile
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import Anchored, anchored, rank_of
from ..tool import clean, failed, finding, listed, not_applicable, tool

SCRIPT = Path(__file__).resolve().parents[2] / "jobs" / "probes" / "all_reduce.py"
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
        "nccl.test_bandwidth", "nccl.test_passed", "nccl.test_failed", "nccl.test_out_of_bounds", "nccl.test_slow",
        "nccl.test_slow_pair",
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
        if row := nl.row_of(line):
            found.bus[row.size] = row.bus
            found.lines[f"size {row.size}"] = line.strip()
        for key, value in nl.footer_of(line):
            if key == "test_out_of_bounds":
                found.wrong, found.ended, found.lines["end"] = int(value), True, line.strip()
            elif key == "test_failed" and "end" not in found.lines:
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
    evidence = [ws.answered(done, "nccl.test_bandwidth", round(fastest, 4), line)]
    faults: list[str] = []
    rows: list[str] = []
    if expected is not None:
        least = f"{expected.low:.3g} to {expected.high:.3g} GB/s"
        rows.append(f"expected of {expected.what} ({expected.name}): {least}")
        if fastest < expected.low and max(found.bus) >= LARGE:
            faults.append(f"slower than {expected.what} should be ({least})")
            evidence.append(ws.answered(done, "nccl.test_slow", round(fastest / expected.low, 3), line))
    evidence += _correct(ws, found, faults)
    evidence += _pairs(ws, found, faults)
    rows += [f"{size:>12} B  {gb:10.3f} GB/s" for size, gb in sorted(found.bus.items())]
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
    """Pairs that are slow against the middle one; the rank that all of them have in common is told."""
    if len(found.pairs) < 3:
        return
    middle = statistics.median(found.pairs.values())
    slow = [pair for pair, gb in found.pairs.items() if gb < SLOW * middle] + found.bad_pairs
    for pair in slow[:6]:
        yield ws.answered(
            found.done, "nccl.test_slow_pair", f"{pair[0]}-{pair[1]}", found.lines[f"pair {pair[0]}-{pair[1]}"]
        )
    if slow:
        faults.append(f"slow or wrong between ranks {', '.join(f'{x}-{y}' for x, y in slow[:6])}")
        common = set.intersection(*(set(pair) for pair in slow))
        if len(common) == 1 and len(slow) > 1:
            faults.append(f"rank {common.pop()} is in all of them")


# ----------
# Recorded reports of nccl-tests: tables in logs, JSON files.

BIGGEST = 16 << 20  # bytes of a report
NO_REPORT = "no report of nccl-tests"
EACH = 6


@tool(
    emits=("nccl.test_bandwidth", "nccl.test_passed", "nccl.test_failed", "nccl.test_out_of_bounds"),
    recall=True,
)
def nccl_reports(ws: Workspace) -> ToolResult:
    """Read recorded nccl-tests and rccl-tests: peak bandwidth, sizes with wrong values, the JSON report.

    Use when somebody ran all_reduce_perf or a sibling of it: the table tells the bandwidth at each size and at which
    sizes the check found wrong values; the footer alone gives only an average.
    """
    reports = [(f, nl.Report([r for x in ws.lines(f) if (r := nl.row_of(x.text, x))])) for f in _tables(ws)]
    broken: list[str] = []
    for file in ws.by_role("config", "metrics", "capture", "data"):
        if file.path.suffix == ".json" and not file.good and nl.is_report(ws.head(file)):
            try:
                reports.append((file, nl.report_of(ws.read(file, BIGGEST))))
            except ParseError as e:
                ws.tell(file.name, f"report of nccl-tests: {e}")
                broken.append(f"{file.name}: {e}")
    rows = [(f, row) for f, report in reports for row in report.rows]
    evidence = [ws.binary(f, m, f"nccl.{key}", v, words) for f, report in reports for m, key, v, words in report.told]
    if not evidence and not rows:
        return failed(f"{len(broken)} report(s) not readable: {broken[0]}") if broken else not_applicable(NO_REPORT)
    text = "\n".join(f"{f.name}: {r.size} B  {r.bus:g} GB/s  {r.wrong} wrong" for f, r in rows)
    wrong = [r.size for _, r in rows if r.wrong] + [e.value for e in evidence if e.key == "nccl.test_failed"]
    if wrong:
        return finding(f"nccl-tests found wrong values: {wrong[0]}", evidence, text)
    averages = [e.value for e in evidence if isinstance(e.value, float)]
    peak = max([*(r.bus for _, r in rows), *averages], default=0.0)
    return clean(f"nccl-tests reached {peak:g} GB/s, no wrong value", evidence, text)


def _tables(ws: Workspace) -> list[RunFile]:
    """Files in which a footer of nccl-tests was seen."""
    found = {
        h.file.name: h.file
        for h in anchored(ws).of("nccl")
        if nl.AVERAGE.search(h.text) or nl.OUT_OF_BOUNDS.search(h.text)
    }
    return [f for f in found.values() if f.size <= BIGGEST][:16]


# ----------
# NCCL versions: which are named, whether one run mixes them, and trials that set one against another.

SMALL = 4 << 20  # bytes of logs compared line by line between trials
Named = dict[str, tuple[RunFile, dict[str, Line]]]  # by file: the versions it names, each with a line


@tool(
    emits=(
        "nccl.version", "nccl.version_mixed", "nccl.version_comparison", "nccl.trial_failed_at", "nccl.trial_passed",
        "nccl.fault_free_sizes",
    ),
    recall=True,
)  # fmt: skip
def nccl_versions(ws: Workspace) -> ToolResult:
    """Name the NCCL versions in a run and compare trials that differ in that version.

    Use when collectives hang, crash or compute wrong values and the same program was tried with several NCCL
    builds: a table of trials (CSV) or logs side by side tell whether one version fails where another passes.
    """
    found = anchored(ws)
    if not found.of("nccl", good=True):
        return not_applicable("no NCCL version is named in the run's files")
    evidence = list(_versions(ws, found))
    telling = [e for e in evidence if e.key != "nccl.version"]
    if not telling:
        return clean(f"{len(evidence)} NCCL version(s) named, none compared", evidence)
    bad = sorted({e.value["version"] for e in telling if isinstance(e.value, dict) and not e.value["ok"]})
    summary = f"trials fail with NCCL {', '.join(bad)} and pass with another" if bad else "NCCL versions are mixed"
    return finding(summary, evidence, listed(evidence[:60]))


def _versions(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    """The versions named, whether one run mixes them, and trials that compare them."""
    by_file: Named = {}
    for hit in found.of("nccl", good=True):
        if hit.file.path.suffix != ".csv" and (version := nl.version_of(hit.text)):
            lines = by_file.setdefault(hit.file.name, (hit.file, {}))[1]
            if version not in lines or ("NCCL version" in hit.text) > ("NCCL version" in lines[version].text):
                lines[version] = hit.line  # what NCCL itself prints at start is what was loaded
    told: set[str] = set()
    for file, versions in by_file.values():
        for version, line in versions.items():
            if not file.good and (version not in told or len(by_file) <= 8):
                told.add(version)
                yield ws.cite(file, line, "nccl.version", version, rank=rank_of(line.data, file.rank))
    yield from _mixed(ws, by_file)
    yield from _tables_trials(ws, found)
    yield from _logs_side_by_side(ws, by_file)


def _mixed(ws: Workspace, by_file: Named) -> Iterator[Evidence]:
    for file, versions in by_file.values():
        if file.role == "environment" or file.good or len(versions) < 2 or file.size < 0:
            continue
        loaded = {v: x for v, x in versions.items() if "NCCL version" in x.text or "nccl (" in x.text}
        if len(loaded) > 1:
            for version, line in loaded.items():
                yield ws.cite(file, line, "nccl.version_mixed", version)


def _tables_trials(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    for file in found.files("nccl", good=True):
        if file.path.suffix not in {".csv", ".tsv"}:
            continue
        rows = nl.table_trials(list(ws.lines(file)))
        if nl.several_versions(rows):
            for t in rows[:12]:
                yield ws.cite(file, t.line, "nccl.version_comparison", {"version": t.version, "ok": t.ok})


def _logs_side_by_side(ws: Workspace, by_file: Named) -> Iterator[Evidence]:
    logs = [
        (f, next(iter(v.items())))
        for f, v in by_file.values()
        if f.role in {"log", "capture", "other"} and f.size <= SMALL
    ]
    if len(logs) < 2 or len({v for _, (v, _) in logs}) < 2:
        return
    read = {f.name: list(ws.lines(f)) for f, _ in logs[:12]}
    failed = {name: nl.failure_line(lines) for name, lines in read.items()}
    ok = [(f, v) for f, v in logs[:12] if failed[f.name] is None]
    for file, (version, line) in logs[:12]:
        if (failure := failed[file.name]) is None or not any(v[0] != version for _, v in ok):
            continue
        yield ws.cite(file, line, "nccl.version_comparison", {"version": version, "ok": False})
        good, (better, better_line) = next((f, v) for f, v in ok if v[0] != version)
        failed_at, passed = nl.parting(read[file.name], read[good.name])
        at = failed_at or failure
        yield ws.cite(file, at, "nccl.trial_failed_at", at.text.strip()[:200])
        yield ws.cite(good, better_line, "nccl.version_comparison", {"version": better, "ok": True})
        if passed:
            yield ws.cite(good, passed, "nccl.trial_passed", passed.text.strip()[:200])
            yield ws.cite(good, passed, "nccl.fault_free_sizes", better)
