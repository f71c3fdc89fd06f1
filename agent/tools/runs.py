"""A failed run against a good one: what it says that the other never said, and what it never came to say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ..reading.contrasts import Contrast, between_variants, between_versions
from ..reading.curves import curves
from ..reading.points import point_evidence
from ..reading.series import Series
from ..reading.settings import plain_value, read_settings
from ..reading.templates import Said, Template, said
from ..reading.versions import read_environment
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHOWN = 24  # new kinds of lines told, and as many that are missing
_LOUD = re.compile(r"(?i)error|fail|exception|fatal|warn|abort|timeout|timed out|nan\b|overflow|killed|cannot|refused")
_CHANGES = {"step_time": 1.15, "throughput": 1.15, "memory": 1.1, "peak_memory": 1.1, "loss": 1.1, "grad_norm": 1.5,
            "data_time": 1.5, "learning_rate": 1.01, "loss_scale": 1.5}  # fmt: skip


@tool(
    emits=(
        "diff.new_line", "diff.missing_line", "diff.setting", "diff.version", "diff.metric_ratio", "diff.data_file",
        "diff.host",
    ),
    recall=True,
)  # fmt: skip
def compare_runs(ws: Workspace) -> ToolResult:
    """Compare a failed run with a good one: kinds of log lines, settings, versions, nodes, data, curves.

    Use when a healthy run is given with --good. What differs is told with the line of each side, loudest lines
    first; what the good run said and this one never came to say is told too.
    """
    if not any(f.good for f in ws.files):
        return not_applicable("no good run to compare with: name one with --good")
    bad = said(ws, [f for f in ws.by_role("log", "capture") if not f.good])
    good = said(ws, [f for f in ws.by_role("log", "capture") if f.good])
    reading = read_settings(ws)
    settings = [c for c in between_variants(reading) if "good" in c.where][:SHOWN]
    versions = [c for c in between_versions(read_environment(ws)) if "good" in c.where][:SHOWN]
    new, missing = _new(bad, good), _missing(bad, good)
    evidence = [
        *(ws.cite(t.file, t.first, "diff.new_line", t.text[:300]) for t in new[:SHOWN]),
        *(ws.cite(t.file, t.first, "diff.missing_line", t.text[:300]) for t in missing[:SHOWN]),
        *(e for c in settings for e in _sides(ws, "diff.setting", c)),
        *(e for c in versions for e in _sides(ws, "diff.version", c)),
        *_curves(ws), *_data(ws), *_hosts(ws),
    ]  # fmt: skip
    counts = f"{len(new)} new kind(s) of lines, {len(missing)} missing, {len(settings)} setting(s) and {len(versions)}"
    summary = f"{counts} version(s) differ from the good run"
    if not (bad.whole and good.whole):
        summary += "; the logs were not read to their ends"
    if not evidence:
        return clean("nothing differs from the good run", text=summary)
    return finding(summary, evidence, "\n".join([summary, *_rows(new, missing, settings, versions)]))


def _new(bad: Said, good: Said) -> list[Template]:
    """Kinds of lines only the bad run has: those that sound like trouble first, then in the order they came."""
    new = [t for kind, t in bad.templates.items() if kind not in good.templates]
    return sorted(new, key=lambda t: not _LOUD.search(t.text))


def _missing(bad: Said, good: Said) -> list[Template]:
    """Kinds of lines the good run had by the place where the bad one ended."""
    end = max((t.last.number for t in bad.templates.values()), default=0)
    return [t for kind, t in good.templates.items() if kind not in bad.templates and t.first.number <= end]


def _sides(ws: Workspace, key: str, c: Contrast) -> Iterator[Evidence]:
    value = {"name": c.name, "a": plain_value(c.a), "b": plain_value(c.b), "where": c.where}
    for file, line in dict.fromkeys(c.places):
        yield ws.cite(file, line, key, value)


def _curves(ws: Workspace) -> Iterator[Evidence]:
    """Medians of curves over the steps that both runs have."""
    found = curves(ws)
    for metric, least in _CHANGES.items():
        ours, theirs = found.of(metric, good=False), found.of(metric, good=True)
        if not (ours and theirs):
            continue
        a, b = max(ours, key=lambda s: s.count), max(theirs, key=lambda s: s.count)
        ratio = _ratio(a, b)
        if ratio is not None and max(ratio, 1 / ratio) >= least:
            value = {"name": metric, "ratio": round(ratio, 4)}
            for s in (a, b):
                yield point_evidence(ws, s, int(np.flatnonzero(s.finite)[-1]), "diff.metric_ratio", value)


def _ratio(a: Series, b: Series) -> float | None:
    last = min(a.steps[-1], b.steps[-1])
    shared = [s.values[s.finite & s.fair & (s.steps <= last)] for s in (a, b)]
    ours, theirs = (np.median(v) if len(v) >= 3 else 0 for v in shared)
    return float(ours / theirs) if ours > 0 and theirs > 0 else None


def _data(ws: Workspace) -> Iterator[Evidence]:
    """Data files of one name and different sizes."""
    good = {f.path.name: f for f in ws.by_role("data") if f.good}
    for file in ws.by_role("data"):
        other = good.get(file.path.name)
        if not file.good and other is not None and other.size != file.size:
            said = f"{file.size} bytes here, {other.size} in the good run"
            yield ws.binary(file, file.path.name, "diff.data_file", file.path.name, said)


def _hosts(ws: Workspace) -> Iterator[Evidence]:
    """Nodes whose names files carry, and which the good run did not use."""
    theirs = {f.host for f in ws.files if f.good and f.host}
    for file in ws.files:
        if not file.good and file.host and theirs and file.host not in theirs:
            yield ws.binary(file, file.name, "diff.host", file.host, f"{file.host} was not part of the good run")
            theirs.add(file.host)


def _rows(
    new: list[Template], missing: list[Template], settings: list[Contrast], versions: list[Contrast]
) -> Iterator[str]:
    for word, kinds in (("new", new), ("missing", missing)):
        for t in kinds[:SHOWN]:
            yield f"{word}: {t.file.name}:{t.first.number} ({t.count}x) {t.first.text.strip()[:200]}"
        if len(kinds) > SHOWN:
            yield f"{word}: {len(kinds) - SHOWN} more of {len(kinds)}"
    for c in (*settings, *versions):
        yield f"differs: {c.name}: {c.a} / {c.b} ({c.where})"
