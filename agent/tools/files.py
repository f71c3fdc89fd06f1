"""What the run left: files by role, and what could not be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..reading.folder_listings import left_out, listed_files
from ..reading.listing_gaps import gaps
from ..reading.roles import ROLES
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHOWN = 400
EACH, LOGS, LOG_LIMIT = 6, 64, 4 << 20
_NOT_THERE = re.compile(rb"No such file|[Nn]ot found|missing|does not exist|[Nn]o file with name|not find|[Uu]nable to")
_TENSOR_FILE = re.compile(r"[\w./@=+\-]+\.(?:pt|pth|bin|safetensors|distcp|ckpt|pkl|metadata)(?![\w/])")


@tool(emits=("files.skipped",))
def list_files(ws: Workspace) -> ToolResult:
    """List the files of the run by role, with what was skipped and why.

    Use first when it is unclear what there is to read. Roles: log, config, metrics, checkpoint, data, code,
    environment, capture, other; rank, host, attempt and variant are what names tell.
    """
    counts = Counter(f.role for f in ws.files)
    rows = []
    for role in ROLES:
        rows += [_row(f) for f in ws.files if f.role == role]
    shown = rows[:SHOWN]
    if len(rows) > SHOWN:
        shown.append(f"... and {len(rows) - SHOWN} more files")
    shown += [f"skipped {name}: {why}" for name, why in ws.skipped[:SHOWN]]
    evidence = [
        Evidence(key="files.skipped", value=why, kind="absent", file=name, searched=[name])
        for name, why in ws.skipped[:50]
    ]
    summary = ", ".join(f"{n} {role}" for role, n in counts.most_common())
    return finding(summary + (f"; {len(ws.skipped)} skipped" if ws.skipped else ""), evidence, "\n".join(shown))


def _row(f) -> str:
    told = [
        f"{word} {value}"
        for word, value in (("rank", f.rank), ("host", f.host), ("attempt", f.attempt), ("variant", f.variant))
        if value is not None
    ]
    good = ", good" if f.good else ""
    return f"{f.role:<12} {f.size:>12} {f.name}" + (f" ({', '.join(told)}{good})" if told or good else "")


@tool(
    emits=("listing.missing_member", "listing.member_elsewhere", "listing.short_file", "listing.wanted_elsewhere",
           "listing.other_world_size", "listing.part_of_row", "listing.no_plain_file", "listing.empty_adapter"),
    recall=True,
)  # fmt: skip
def check_listings(ws: Workspace) -> ToolResult:
    """Compare listings of checkpoint folders (`ls`, `find`, `aws s3 ls`) with what the logs ask for.

    Use where the checkpoint itself is not at hand but somebody listed it: ranks or shards left out of a row, a rank's
    file in another folder, tensor files that are tiny or shorter than in other saves, a file that was looked for in
    the wrong folder or for another world size.
    """
    entries, rest = listed_files(ws), left_out(ws)
    rest = f" ({rest})" if rest else ""
    if not entries:
        return not_applicable(f"no listing of a folder among the run's texts{rest}")
    seen: Counter[str] = Counter()
    evidence = []
    for gap in gaps(entries, _wanted(ws)):
        seen[gap.key] += 1
        if seen[gap.key] <= EACH:
            evidence.append(ws.cite(gap.entry.file, gap.entry.line, f"listing.{gap.key}", gap.value))
    if not evidence:
        return clean(f"{len(entries)} files listed, none missing or short by their names and sizes{rest}")
    text = "\n".join(f"{e.key}: {e.value}" for e in evidence)
    return finding(f"{len(entries)} files listed{rest}; {evidence[0].value}", evidence, text)


def _wanted(ws: Workspace) -> Iterator[str]:
    """Files that lines of the logs say are not there."""
    for file in ws.by_role("log", "other")[:LOGS]:
        if file.good or file.size > LOG_LIMIT:
            continue
        for line in ws.lines(file):
            if _NOT_THERE.search(line.data[:20_000]):
                for m in _TENSOR_FILE.finditer(line.data[:20_000].decode(errors="replace")):
                    yield m[0]
