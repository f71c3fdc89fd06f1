"""NCCL versions: which are named, whether one run mixes them, and trials that set one against another."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading import nccl_lines as nl
from ..reading import trials
from ..reading.anchor_lines import Anchored, anchored, rank_of
from ..reading.files import Line, RunFile
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SMALL = 4 << 20  # logs compared line by line between trials


@tool(
    emits=(
        "nccl.version",
        "nccl.version_mixed",
        "nccl.version_comparison",
        "nccl.trial_failed_at",
        "nccl.trial_passed",
        "nccl.fault_free_sizes",
    ),
    recall=True,
)
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
    return finding(summary, evidence, "\n".join(f"{e.file}:{e.line} {e.key} = {e.value}" for e in evidence[:60]))


def _versions(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    """The versions named, whether one run mixes them, and trials that compare them."""
    by_file: dict[str, tuple[RunFile, dict[str, Line]]] = {}
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
    yield from _tables(ws, found)
    yield from _logs_side_by_side(ws, by_file)


def _mixed(ws: Workspace, by_file: dict[str, tuple[RunFile, dict[str, Line]]]) -> Iterator[Evidence]:
    for file, versions in by_file.values():
        if file.role == "environment" or file.good or len(versions) < 2 or file.size < 0:
            continue
        loaded = {v: x for v, x in versions.items() if "NCCL version" in x.text or "nccl (" in x.text}
        if len(loaded) > 1:
            for version, line in loaded.items():
                yield ws.cite(file, line, "nccl.version_mixed", version)


def _tables(ws: Workspace, found: Anchored) -> Iterator[Evidence]:
    for file in found.files("nccl", good=True):
        if file.path.suffix not in {".csv", ".tsv"}:
            continue
        rows = trials.table_trials(list(ws.lines(file)))
        if trials.several_versions(rows):
            for t in rows[:12]:
                yield ws.cite(file, t.line, "nccl.version_comparison", {"version": t.version, "ok": t.ok})


def _logs_side_by_side(ws: Workspace, by_file: dict[str, tuple[RunFile, dict[str, Line]]]) -> Iterator[Evidence]:
    logs = [
        (f, next(iter(v.items())))
        for f, v in by_file.values()
        if f.role in {"log", "capture", "other"} and f.size <= SMALL
    ]
    if len(logs) < 2 or len({v for _, (v, _) in logs}) < 2:
        return
    read = {f.name: list(ws.lines(f)) for f, _ in logs[:12]}
    failed = {name: trials.failure_line(lines) for name, lines in read.items()}
    ok = [(f, v) for f, v in logs[:12] if failed[f.name] is None]
    for file, (version, line) in logs[:12]:
        if (failure := failed[file.name]) is None or not any(v[0] != version for _, v in ok):
            continue
        yield ws.cite(file, line, "nccl.version_comparison", {"version": version, "ok": False})
        good, (better, better_line) = next((f, v) for f, v in ok if v[0] != version)
        parted = trials.contrast(read[file.name], read[good.name])
        at = parted.failed_at or failure
        yield ws.cite(file, at, "nccl.trial_failed_at", at.text.strip()[:200])
        yield ws.cite(good, better_line, "nccl.version_comparison", {"version": better, "ok": True})
        if parted.passed:
            yield ws.cite(good, parted.passed, "nccl.trial_passed", parted.passed.text.strip()[:200])
            yield ws.cite(good, parted.passed, "nccl.fault_free_sizes", better)
