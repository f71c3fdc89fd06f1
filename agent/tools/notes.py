"""Lines of small files that speak of a difference or a fault: tables, probes and notes kept beside the logs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..reading.files import Line, RunFile
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SIZE = 8 << 10  # bytes of a file that a person wrote or cut out for others to read
FILES, PER_FILE, SHOWN = 64, 2, 6
LEAST = 2.0
_TELLING = re.compile(
    r"(?i)\b(?:differs?|differences?|differ|mismatch\w*|diverge[sd]?|outliers?|non-?finite|nans?|invalid|wrong|stuck|hangs?"
    r"|unexpected|nonzero|corrupt\w*|inconsistent|truncated?|dropped|unequal|not (?:equal|found|loaded|used|called)"
    r"|all zeros?|grad(?:ient)? ?(?:norm)? ?0\.0+|only (?:difference|change)|length for \d+|completes|no error)\b"
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]{4,}")
_PLAIN = frozenset(
    {"about", "after", "again", "because", "before", "cannot", "could", "does", "every", "first", "found",
     "have", "here", "model", "other", "same", "should", "since", "some", "still", "than", "that", "their",
     "there", "these", "this", "train", "training", "until", "what", "when", "where", "which", "while",
     "with", "without", "would", "wrong", "error", "errors", "problem", "batch", "loss", "data", "steps"}  # fmt: skip
)


@tool(emits=("log.telling",), recall=True)
def telling_lines(ws: Workspace) -> ToolResult:
    """Quote lines of small files that speak of a difference or a fault

    Tables of trials, probes, dumps and notes often hold the decisive number; no format is assumed. What is found
    here decides nothing: it is shown beside the proof.
    """
    asked = {w.lower() for w in _WORD.findall(ws.question)} - _PLAIN
    found: list[tuple[float, RunFile, Line]] = []
    small = [f for f in ws.files if 0 < f.size <= SIZE and not f.good and f.role != "checkpoint"][:FILES]
    for file in small:
        found += sorted(_scored(ws, file, asked), key=lambda s: -s[0])[:PER_FILE]
    if not small:
        return not_applicable("no small file beside the logs")
    found.sort(key=lambda s: -s[0])
    evidence: list[Evidence] = [ws.cite(file, line, "log.telling", score) for score, file, line in found[:SHOWN]]
    if not evidence:
        return clean("no line of the small files speaks of a difference or a fault")
    rows = [f"{e.file}:{e.line}: {e.text}" for e in evidence]
    return finding(f"{len(evidence)} telling lines", evidence, "\n".join(rows))


def _scored(ws: Workspace, file: RunFile, asked: set[str]) -> Iterator[tuple[float, RunFile, Line]]:
    """Lines of one file with how much they say, each wording once."""
    told: set[str] = set()
    for line in ws.lines(file):
        text = line.text[:400]
        shape = re.sub(r"\d+", "#", text)
        if shape in told or text.lstrip().startswith(("File ", "at ")):
            continue
        told.add(shape)
        shared = {w.lower() for w in _WORD.findall(text)} & asked
        score = 2.0 * bool(_TELLING.search(text)) + min(2.0, 1.0 * len(shared)) + 0.5 * bool(re.search(r"\d", text))
        if score >= LEAST:
            yield score, file, line
