"""Lines of small files that bear on the question: tables, probes, excerpts of code and notes kept beside the logs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..reading.files import Line, RunFile
from ..tool import clean, finding, not_applicable, tool
from ..types import ToolResult
from ..workspace import Workspace

SIZE = 8 << 10  # bytes of a file that a person wrote or cut out for others to read
FILES, PER_FILE, SHOWN = 64, 3, 8
LEAST = 1.5  # about one rare word of the question, or a word of difference
_TELLING = re.compile(
    r"(?i)\b(?:differs?|differences?|differ|mismatch\w*|diverge[sd]?|outliers?|non-?finite|nans?|invalid|wrong|stuck|hangs?"
    r"|unexpected|nonzero|corrupt\w*|inconsistent|truncated?|dropped|unequal|not (?:equal|found|loaded|used|called)"
    r"|all zeros?|grad(?:ient)? ?(?:norm)? ?0\.0+|only (?:difference|change)|length for \d+|completes|no error)\b"
)
_OWN_FILES = re.compile(
    r"^(?:tokenizer\w*|vocab|special_tokens_map|added_tokens|trainer_state|generation_config|preprocessor_config|\w+\.index"
    r"|wandb-\w+|meta)\.(?:json|yaml)$|^merges\.txt$|\.jinja$"
)
_PART = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}|\d+\.\d+|\d{2,}")
_COMMON = """the and for with that this from are was not but has have its what why when which does did can how all any
our out one two than then only same still after before into over run runs training train model step steps loss error
errors
line file log logs data true false none self return import def class print config args cfg int str list value values
name"""
_PLAIN = frozenset(_COMMON.split())


@dataclass(slots=True)
class _Candidate:
    """A line with the words it is made of; identifiers count as their parts."""

    file: RunFile
    line: Line
    text: str
    words: set[str]


@tool(emits=("log.telling",), recall=True)
def telling_lines(ws: Workspace) -> ToolResult:
    """Quote lines of small files that bear on the question

    Tables of trials, probes, dumps, excerpts and notes often hold the decisive number; no format is assumed. A line
    counts by the rare words it shares with the question and by words of difference or fault. What is found here
    decides nothing: it is shown beside the proof.
    """
    small = [f for f in ws.files if 0 < f.size <= SIZE and not f.good and _for_readers(f)][:FILES]
    if not small:
        return not_applicable("no small file beside the logs")
    asked = _words(ws.question)
    by_file = [list(_candidates(ws, file)) for file in small]
    spread = Counter(word for lines in by_file for c in lines for word in c.words)
    total = sum(len(lines) for lines in by_file)
    found: list[tuple[float, _Candidate]] = []
    for lines in by_file:
        scored = ((_score(c, asked, spread, total), c) for c in lines)
        found += sorted((s for s in scored if s[0] >= LEAST), key=lambda s: -s[0])[:PER_FILE]
    found.sort(key=lambda s: -s[0])
    evidence = [ws.cite(c.file, c.line, "log.telling", round(score, 2)) for score, c in found[:SHOWN]]
    if not evidence:
        return clean("no line of the small files speaks of the question or of a fault")
    rows = [f"{e.file}:{e.line}: {e.text}" for e in evidence]
    return finding(f"{len(evidence)} telling lines", evidence, "\n".join(rows))


def _for_readers(file: RunFile) -> bool:
    """Whether a file may have been written for people, and not by a library for itself."""
    return file.role not in ("checkpoint", "trace", "record") and not _OWN_FILES.search(file.path.name)


def _words(text: str) -> set[str]:
    return {part.lower().rstrip("s") for part in _PART.findall(text)} - _PLAIN


def _candidates(ws: Workspace, file: RunFile) -> Iterator[_Candidate]:
    """Lines of one file, each wording once."""
    told: set[str] = set()
    for line in ws.lines(file):
        text = line.text[:400]
        shape = re.sub(r"\d+", "#", text)
        if shape in told or not text.strip() or text.lstrip().startswith(("File ", "at ", "Traceback")):
            continue
        told.add(shape)
        yield _Candidate(file, line, text, _words(text))


def _score(candidate: _Candidate, asked: set[str], spread: Counter[str], total: int) -> float:
    shared = sum(math.log(1 + total / spread[word]) for word in candidate.words & asked)
    score = shared / (1 + 0.15 * max(0, len(candidate.words) - 6))  # a long line shares words by chance
    score += 2.0 * bool(_TELLING.search(candidate.text)) + 0.5 * bool(re.search(r"\d", candidate.text))
    return score / 2 if candidate.text.lstrip().startswith(("#", "import ", "from ")) else score
