"""Recorded reports of nccl-tests: tables in logs, JSON files."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ParseError
from ..reading import nccl_tests as nt
from ..reading.anchor_lines import anchored
from ..reading.files import Line, RunFile
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

BIGGEST = 16 << 20  # bytes of a report
EACH = 6


@tool(
    emits=(
        "nccl.test_peak", "nccl.test_wrong_size", "nccl.test_bandwidth", "nccl.test_passed", "nccl.test_failed",
        "nccl.test_out_of_bounds",
    ),
    recall=True,
)  # fmt: skip
def nccl_reports(ws: Workspace) -> ToolResult:
    """Read recorded nccl-tests and rccl-tests: peak bandwidth, sizes with wrong values, the JSON report.

    Use when somebody ran all_reduce_perf or a sibling of it: the table tells the bandwidth at each size and at which
    sizes the check found wrong values; the footer alone gives only an average.
    """
    evidence: list[Evidence] = []
    rows: list[str] = []
    broken: list[str] = []
    for file in _tables(ws):
        evidence += _table(ws, file, rows)
    for file in ws.by_role("config", "metrics", "capture", "data"):
        if file.path.suffix == ".json" and not file.good and nt.is_report(ws.head(file)):
            try:
                evidence += _json(ws, file, rows)
            except ParseError as e:
                ws.tell(file.name, f"report of nccl-tests: {e}")
                broken.append(f"{file.name}: {e}")
    if broken and not evidence:
        return failed(f"{len(broken)} report(s) not readable: {broken[0]}")
    if not evidence:
        return not_applicable("no report of nccl-tests")
    wrong = [e for e in evidence if e.key in ("nccl.test_wrong_size", "nccl.test_failed")]
    if wrong:
        return finding(f"nccl-tests found wrong values: {wrong[0].value}", evidence, "\n".join(rows))
    peak = max((e.value for e in evidence if isinstance(e.value, float)), default=0.0)
    return clean(f"nccl-tests reached {peak:g} GB/s, no wrong value", evidence, "\n".join(rows))


def _tables(ws: Workspace) -> list[RunFile]:
    """Files in which a footer of nccl-tests was seen."""
    found = {
        h.file.name: h.file
        for h in anchored(ws).of("nccl")
        if nt.AVERAGE.search(h.text) or nt.OUT_OF_BOUNDS.search(h.text)
    }
    return [f for f in found.values() if f.size <= BIGGEST][:16]


def _table(ws: Workspace, file: RunFile, rows: list[str]) -> Iterator[Evidence]:
    best: tuple[nt.Row, Line] | None = None
    told = 0
    for line in ws.lines(file):
        row = nt.row_of(line.text)
        if row is None:
            continue
        rows.append(f"{file.name}: {row.size} B  {row.bus:g} GB/s  {row.wrong} wrong")
        if best is None or row.bus > best[0].bus:
            best = row, line
        if row.wrong and told < EACH:
            told += 1
            yield ws.cite(file, line, "nccl.test_wrong_size", row.size)
    if best is not None:
        yield ws.cite(file, best[1], "nccl.test_peak", best[0].bus)


def _json(ws: Workspace, file: RunFile, rows: list[str]) -> Iterator[Evidence]:
    """A JSON report as evidence; it may be one long line, so that members are named instead."""
    report = nt.report_of(ws.read(file, BIGGEST))
    rows += [f"{file.name}: {r.size} B  {r.bus:g} GB/s  {r.wrong} wrong" for r in report.rows]
    if report.rows:
        best = max(report.rows, key=lambda r: r.bus)
        yield ws.binary(file, "results", "nccl.test_peak", best.bus, f"{best.bus:g} GB/s at {best.size} bytes")
    for row in [r for r in report.rows if r.wrong][:EACH]:
        yield ws.binary(
            file, "results", "nccl.test_wrong_size", row.size, f"{row.wrong} wrong values of {row.size} bytes"
        )
    if report.average is not None:
        text = f"average bus bandwidth {report.average:g} GB/s"
        yield ws.binary(file, "average_bus_bandwidth", "nccl.test_bandwidth", report.average, text)
    if report.wrong is not None:
        yield ws.binary(file, "out_of_bounds", "nccl.test_out_of_bounds", report.wrong, f"{report.wrong} out of bounds")
        okay = report.okay if report.okay is not None else report.wrong == 0
        key, value = (
            ("nccl.test_passed", True)
            if okay and not report.errors
            else ("nccl.test_failed", f"{report.wrong} values out of bounds")
        )
        yield ws.binary(file, "out_of_bounds", key, value, f"{report.wrong} values out of bounds, okay: {okay}")
    for error in report.errors[:EACH]:
        yield ws.binary(file, "errors", "nccl.test_failed", error, error)
