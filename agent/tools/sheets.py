"""Small tables and listings that somebody made of a run: controls, sums by rank, names on both sides."""

from __future__ import annotations

from itertools import combinations

from ..reading.anomalies.resume import all_restarts
from ..reading.files import RunFile
from ..reading.sample_trace import taken_again
from ..reading.sheets import Sheet, Shown, apart, by_rank, prefixes, printed, sheet, shown
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

ROLES = ("metrics", "data", "other", "log", "capture", "config")
BYTES = 64 << 10  # of one table
FILES = 60
TRACE = 8 << 20  # bytes of a record of sample ids


@tool(
    emits=(
        "variant.no_effect", "variant.machine_decides", "variant.one_metric_apart",
        "reward.component_zero", "numerics.tensor_unchanged",
        "resume.samples_repeated", "rank.parameters_differ", "files.key_prefix_differs",
    ),
    recall=True,
)  # fmt: skip
def compare_rows(ws: Workspace) -> ToolResult:
    """Compare the rows of small tables and listings: settings without effect, columns that never move, controls.

    Use where the run's files hold a table of trials, of weights, of sample ids or of sums by rank.
    """
    files = [f for f in ws.files if f.size <= BYTES and f.role in ROLES]
    evidence = []
    read = 0
    tables: list[tuple[RunFile, Sheet]] = []
    for file in files[:FILES]:
        lines = [x for x in ws.lines(file) if x.text.strip()]
        table = sheet(lines)
        read += table is not None
        found: list[Shown] = [*(shown(table) if table else ()), *by_rank(lines[:2000]), *prefixes(lines[:2000])]
        evidence += [ws.cite(file, s.line, s.key, s.value) for s in found[:24]]
        if whole := table or printed(lines):
            tables.append((file, whole))
    evidence += _taken_again(ws)
    for (one, a), (other, b) in list(combinations(tables, 2))[:200]:
        evidence += [ws.cite(other if second else one, s.line, s.key, s.value) for second, s in apart(a, b)]
    if not evidence:
        return clean(f"{read} small tables show nothing odd") if read else not_applicable("no small table")
    keys = sorted({e.key for e in evidence})
    text = "\n".join(f"{e.file}:{e.line} {e.key} {e.value}: {e.text}" for e in evidence)
    return finding(", ".join(keys), evidence, text)


def _taken_again(ws: Workspace) -> list[Evidence]:
    """Batches of the first start that a resumed one took once more, by a record of sample ids."""
    out = []
    for file in [f for f in ws.files if f.role in ("metrics", "data", "other", "log")] if all_restarts(ws) else []:
        for first, again, count in list(taken_again(ws.lines(file)) if file.size <= TRACE else ())[:4]:
            out += [ws.cite(file, line, "resume.samples_repeated", f"{count} batches") for line in (first, again)]
    return out
