"""A failed run against a good one: what it says that the other never said, and what it never came to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from ....index.search import Result, Results, search
from ...core.types import LINE_CAP, Evidence, ToolResult
from ...reading.curves.anomalies.variants import worse
from ...reading.curves.curves import curves
from ...reading.curves.series import Series
from ...reading.run.lines import Said, Template, said
from ...reading.run.workspace import Workspace
from ...reading.settings.catalogue import Entry, entries
from ...reading.settings.contrasts import Contrast, between_variants, between_versions
from ...reading.settings.settings import plain_value, read_settings
from ...reading.settings.versions import read_environment
from ..tool import clean, finding, not_applicable, tool

SHOWN = 24  # new kinds of lines told, and as many that are missing
_LOUD = re.compile(r"(?i)error|fail|exception|fatal|warn|abort|timeout|timed out|nan\b|overflow|killed|cannot|refused")
_CHANGES = {"step_time": 1.15, "throughput": 1.15, "memory": 1.1, "peak_memory": 1.1, "loss": 1.1, "grad_norm": 1.5,
            "data_time": 1.5, "learning_rate": 1.01, "loss_scale": 1.5}  # fmt: skip


@tool(emits=(), recall=True)
def compare_runs(ws: Workspace) -> ToolResult:
    """Compare a failed run with a good one: kinds of log lines, settings, versions, nodes, data, curves.

    Use when a healthy run is given with --good. What differs is told with the line of each side, loudest lines
    first; what the good run said and this one never came to say is told too. All of it stands in the text.
    """
    if not any(f.good for f in ws.files):
        return not_applicable("no good run to compare with: name one with --good")
    bad = said(ws, [f for f in ws.by_role("log", "capture") if not f.good])
    good = said(ws, [f for f in ws.by_role("log", "capture") if f.good])
    reading = read_settings(ws)
    settings = [c for c in between_variants(ws, reading) if "good" in c.where][:SHOWN]
    versions = [c for c in between_versions(read_environment(ws)) if "good" in c.where][:SHOWN]
    new, missing = _new(bad, good), _missing(bad, good)
    rows = [*_lines(new, missing), *map(_sides, (*settings, *versions)), *_curves(ws), *_data(ws), *_hosts(ws)]
    counts = f"{len(new)} new kind(s) of lines, {len(missing)} missing, {len(settings)} setting(s) and {len(versions)}"
    summary = f"{counts} version(s) differ from the good run"
    if not (bad.whole and good.whole):
        summary += "; the logs were not read to their ends"
    if not rows:
        return clean("nothing differs from the good run", text=summary)
    return finding(summary, [], "\n".join([summary, *rows]))


def _new(bad: Said, good: Said) -> list[Template]:
    """Kinds of lines only the bad run has: those that sound like trouble first, then in the order they came."""
    new = [t for kind, t in bad.templates.items() if kind not in good.templates]
    return sorted(new, key=lambda t: not _LOUD.search(t.text))


def _missing(bad: Said, good: Said) -> list[Template]:
    """Kinds of lines the good run had by the place where the bad one ended."""
    end = max((t.last.number for t in bad.templates.values()), default=0)
    return [t for kind, t in good.templates.items() if kind not in bad.templates and t.first.number <= end]


def _sides(c: Contrast) -> str:
    """A setting or a version that differs, with the line of each side."""
    places = ", ".join(f"{file.name}:{line.number}" for file, line in dict.fromkeys(c.places))
    return f"differs: {c.name}: {plain_value(c.a)} / {plain_value(c.b)} ({c.where}; {places})"


def _curves(ws: Workspace) -> Iterator[str]:
    """Which run came out worse, and medians of curves over the steps that both have."""
    found = curves(ws)
    which = worse([s for s in found.series if not s.file.good], [s for s in found.series if s.file.good])
    if which is not None:
        yield f"differs: by its curves {('this run', 'the good run')[which]} came out worse"
    for metric, least in _CHANGES.items():
        ours, theirs = found.of(metric, good=False), found.of(metric, good=True)
        if not (ours and theirs):
            continue
        a, b = max(ours, key=lambda s: s.count), max(theirs, key=lambda s: s.count)
        ratio = _ratio(a, b)
        if ratio is not None and max(ratio, 1 / ratio) >= least:
            yield f"differs: {metric}: {ratio:.4g} times that of the good run ({a.file.name} / {b.file.name})"


def _ratio(a: Series, b: Series) -> float | None:
    first, last = max(a.steps.min(), b.steps.min()), min(a.steps.max(), b.steps.max())
    shared = [s.values[s.finite & s.fair & (s.steps >= first) & (s.steps <= last)] for s in (a, b)]
    ours, theirs = (np.median(v) if len(v) >= 3 else 0 for v in shared)
    return float(ours / theirs) if ours > 0 and theirs > 0 else None


def _data(ws: Workspace) -> Iterator[str]:
    """Data files of one name and different sizes."""
    good = {f.path.name: f for f in ws.by_role("data") if f.good}
    for file in ws.by_role("data"):
        other = good.get(file.path.name)
        if not file.good and other is not None and other.size != file.size:
            yield f"differs: {file.name}: {file.size} bytes here, {other.size} in the good run"


def _hosts(ws: Workspace) -> Iterator[str]:
    """Nodes whose names files carry, and which the good run did not use."""
    theirs = {f.host for f in ws.files if f.good and f.host}
    for file in ws.files:
        if not file.good and file.host and theirs and file.host not in theirs:
            yield f"{file.host} was not part of the good run"
            theirs.add(file.host)


def _lines(new: list[Template], missing: list[Template]) -> Iterator[str]:
    for word, kinds in (("new", new), ("missing", missing)):
        for t in kinds[:SHOWN]:
            yield f"{word}: {t.file.name}:{t.first.number} ({t.count}x) {t.first.text.strip()[:200]}"
        if len(kinds) > SHOWN:
            yield f"{word}: {len(kinds) - SHOWN} more of {len(kinds)}"


# ----------
# What is known apart from any run: catalogues, playbooks and the user's own documents.

PASSAGES = 4


@tool(emits=("knowledge.entry", "knowledge.passage"))
def look_up(
    ws: Workspace,
    query: Annotated[str, Field(description="a term, an error, a setting, or a question in words", min_length=2)],
) -> ToolResult:
    """Look a term or a question up in catalogues, playbooks and the user's own documents.

    Use for what needs no run: what an Xid code, an exit code, a setting or a word of the field means, which settings do
    nothing, which versions conflict, how a failure is recognised and repaired. Answers with the passages and where
    they stand; says so when nothing bears on the question.
    """
    known = entries(query)
    found = search(f"{query} {' '.join(e.term for e in known)}"[:800], k=2 * PASSAGES)
    evidence = [_entry(e) for e in known] + [_passage(r) for r in _distinct(found, known)]
    limited = f" ({found.degraded})" if found.degraded else ""
    if not evidence:
        return clean(f"no catalogue, playbook or document bears on this{limited}")
    text = "\n\n".join(f"[{e.file} > {e.member}]\n{e.text}" for e in evidence)
    return finding(f"{len(known)} entries and {len(evidence) - len(known)} passages{limited}", evidence, text)


def _distinct(found: Results, known: list[Entry]) -> Iterator[Result]:
    """Passages, the user's own first; where a catalogue names a playbook or a cause, of the playbooks only that one."""
    named = {e.see for e in known if e.see}
    own = [r for r in found if r.kind == "document"]
    ours = [r for r in found if r.kind != "document"]
    ours = [r for r in ours if r.document in named or r.cause in named] or ([] if named else ours)
    yield from [*own, *ours][:PASSAGES]


def _entry(e: Entry) -> Evidence:
    return Evidence(
        key="knowledge.entry", value=e.term, kind="document", file=f"knowledge/{e.document}", member=e.term, text=e.text
    )


def _passage(r: Result) -> Evidence:
    name = Path(r.document).name if r.kind == "document" else f"playbook {r.document}"
    headings = " > ".join(r.headings)
    return Evidence(
        key="knowledge.passage", value=headings, kind="document", file=name, member=headings,
        text=r.text[:LINE_CAP], cut=len(r.text) > LINE_CAP,
    )  # fmt: skip
