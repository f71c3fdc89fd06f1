"""Evaluation items that stand in the training data: word n-grams shared by both, templates left out."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core import deadline
from ...core.types import Evidence
from ..run.files import Line, RunFile
from .dataset_files import Row, matches

if TYPE_CHECKING:
    import numpy as np

    from ..run.workspace import Workspace


# ----------
# Near duplicates by MinHash: signatures of word n-grams, candidates by bands, and what their overlap comes to.


PERMUTATIONS, BANDS = 64, 16  # four values a band: pairs from about half alike become candidates
WORDS = 5  # of one shingle
LENGTH = 20_000  # characters of a text that are compared
CROWD = 50  # texts of one bucket that are compared with each other
WIDE = ("\u2e80", "\uffdc")  # scripts written without spaces


def words(text: str, limit: int = LENGTH) -> list[bytes]:
    """Words of a text, lower case; single characters where it is written without spaces."""
    text = text[:limit].lower()
    parts = text.split()
    if len(text) > 12 * max(1, len(parts)) and any(WIDE[0] <= c <= WIDE[1] for c in text[:200]):
        return [c.encode("utf-8", "surrogatepass") for c in text if not c.isspace()]
    return [part.encode("utf-8", "surrogatepass") for part in parts]


def grams(parts: list[bytes], size: int) -> np.ndarray:
    """Hashes of the runs of `size` words, uint64; empty where there are fewer words."""
    import numpy as np

    if len(parts) < size:
        return np.empty(0, "u8")
    hashed = np.fromiter((zlib.crc32(p) for p in parts), "u8", len(parts))
    out = np.zeros(len(parts) - size + 1, "u8")
    for n in range(size):
        out = _mixed(out ^ (hashed[n : n + len(out)] + np.uint64(0x9E3779B97F4A7C15)))
    return out


def _mixed(values: np.ndarray) -> np.ndarray:
    """Every bit spread over all (the finalizer of splitmix64)."""
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Signatures:
    """MinHash signatures of texts that are added one by one."""

    def __init__(self) -> None:
        import numpy as np

        rng = np.random.default_rng(1)
        self._factor = rng.integers(1, 1 << 63, PERMUTATIONS, "u8") | np.uint64(1)
        self._rows: list[np.ndarray] = []
        self._index: list[int] = []

    def add(self, number: int, text: str) -> None:
        """Take a text in under a number of the caller's; one of fewer than `WORDS` words is passed over."""
        shingles = grams(words(text), WORDS)
        if len(shingles) < 3:
            return
        hashed = _mixed(shingles[:, None] * self._factor[None, :])
        self._rows.append(hashed.min(axis=0))
        self._index.append(number)

    def pairs(self, alike: float = 0.75) -> Iterator[tuple[int, int, float]]:
        """Numbers of texts whose n-grams overlap by at least `alike` (Jaccard, estimated), with the estimate.

        Each text is paired once, with the first it resembles.
        """
        import numpy as np

        if not self._rows:
            return
        table = np.stack(self._rows)
        width = PERMUTATIONS // BANDS
        buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
        for n in range(len(table)):
            best = (0.0, -1)
            for band in range(BANDS):
                bucket = buckets[band, table[n, band * width : (band + 1) * width].tobytes()]
                for other in bucket:
                    share = float((table[n] == table[other]).mean())
                    best = max(best, (share, other))
                if len(bucket) < CROWD:
                    bucket.append(n)
                if best[0] >= 0.999:
                    break
            if best[0] >= alike:
                yield self._index[best[1]], self._index[n], best[0]


# ----------

OVERLAP_WORDS, FEWEST = 13, 8  # words of an n-gram; an item of fewer words than the second says nothing
SHARE = 0.5  # of an item's n-grams that must occur
WHOLE = 0.9  # of an item, whatever its label
ITEMS = 20_000
_NAME_OF_RECORD = re.compile(r"(?i)(?:^|_)(?:id|idx|index|uid|uuid|key|name|url|hash|source|split|file|date)s?$")
_LABEL = re.compile(r"[A-Za-z][\w-]{0,31}$")  # one word that is no number
TEXT = 1_000_000  # characters of one training text
_HELD_OUT = re.compile(
    r"(?i)(^|[/_.\-])(test|eval(?:uation)?|val(?:id(?:ation)?)?|dev|h[oe]ldout|benchmark)([/_.\-\d]|$)"
)
_QUESTION = ("question", "prompt", "instruction", "problem", "query", "input", "text", "doc", "messages", "content")


@dataclass(frozen=True, slots=True)
class Shared:
    """An evaluation item and where in training most of it was met."""

    item: Row
    train: Row
    share: float


def held_out(name: str) -> bool:
    """Whether a file's name says that it is an evaluation set."""
    return bool(_HELD_OUT.search(name))


def question_of(row: Row) -> str:
    """What identifies an evaluation item: its question, else all its text."""
    for name in _QUESTION:
        value = row.fields.get(name)
        if isinstance(value, str) and len(value.split()) >= FEWEST:
            return value
    return max(row.texts(), key=len, default="")


def shared(items: Sequence[Row], train: Sequence[Row]) -> list[Shared]:
    """Items of which at least half of the n-grams occur in one training record.

    n is 13, or the length of an item of 8 to 12 words. n-grams that many items have in common are a template and
    do not count.
    """
    import numpy as np

    by_size: dict[int, list[tuple[int, np.ndarray]]] = {}
    for n, row in enumerate(items[:ITEMS]):
        parts = words(question_of(row))
        if len(parts) >= FEWEST:
            size = min(OVERLAP_WORDS, len(parts))
            by_size.setdefault(size, []).append((n, np.unique(grams(parts, size))))
    best: dict[int, Shared] = {}
    for size, known in by_size.items():
        hashes, owners, sizes = _table(known)
        for row in train:
            deadline.check()
            seen = np.unique(np.concatenate([grams(words(t, TEXT), size) for t in row.texts()] or [grams([], size)]))
            if not len(seen) or not len(hashes):
                continue
            left, right = np.searchsorted(hashes, seen, "left"), np.searchsorted(hashes, seen, "right")
            met: Counter[int] = Counter()
            for a, b in zip(left[right > left], right[right > left], strict=True):
                met.update(owners[a:b].tolist())
            for n, count in met.items():
                share = count / sizes[n]
                if share < WHOLE and _decided_otherwise(items[n], row):
                    continue
                if share >= SHARE and (n not in best or best[n].share < share):
                    best[n] = Shared(items[n], row, round(share, 3))
    return [best[n] for n in sorted(best)]


def _decided_otherwise(item: Row, train: Row) -> bool:
    """Whether two records have another label: what they have in common is then not what is asked."""
    both = ((k, v, train.fields.get(k)) for k, v in item.fields.items() if not _NAME_OF_RECORD.search(k))
    words = [(a, b) for _, a, b in both if isinstance(a, str) and isinstance(b, str) and _LABEL.match(a)]
    return any(a != b and _LABEL.match(b) for a, b in words)


def _table(known: list[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, dict[int, int]]:
    """Hashes in order, the item of each, and how many each item has; without those of a template."""
    import numpy as np

    hashes = np.concatenate([h for _, h in known])
    owners = np.concatenate([np.full(len(h), n) for n, h in known])
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    own = counts[inverse] <= max(2, 0.02 * len(known))
    hashes, owners = hashes[own], owners[own]
    order = np.argsort(hashes, kind="stable")
    sizes = Counter(owners.tolist())
    few = {n for n, _ in known if sizes[n] == 0}
    return hashes[order], owners[order], {n: sizes[n] for n, _ in known if n not in few}


# ----------
# Scores of one benchmark before and after training: two text files that differ in one word of their name, or rows
# `name  0.78 -> 0.59`.

SIZE = 1 << 20
_BEFORE = re.compile(r"(?i)(?<![a-z])(before|base(?:line)?|orig(?:inal)?|pre|vanilla|untuned|init(?:ial)?)(?![a-z])")
_AFTER = re.compile(r"(?i)(?<![a-z])(after|tuned|finetuned|ft|sft|post|trained|merged|lora|dpo|final)(?![a-z])")
_ROW = re.compile(r"^\s*(?P<name>[A-Za-z][\w .()/,@-]{1,70}?)\s*[:=]\s*(?P<value>\d+(?:\.\d+)?) ?%?\s*$")
_ARROW = re.compile(
    r"^\s*(?P<name>[A-Za-z][\w .()/,@-]{1,70}?)\s*[:=|]?\s+(?P<before>\d+(?:\.\d+)?) ?%?"
    r"\s*(?:->|=>|\u2192)\s*(?P<after>\d+(?:\.\d+)?) ?%?\s*$"
)
_NO_SCORE = re.compile(
    r"(?i)loss|perplexity|\bppl\b|\blr\b|rate|time|memory|size|steps?\b|scale|norm|version|\bms\b|gpus?\b"
)
_LOSS = 0.1  # share of the score that is gone
_LEAST = 0.02  # of the scale, so that small scores do not count


@dataclass(frozen=True)
class Change:
    """A score before and after, each with its line."""

    name: str
    before: float
    after: float
    files: tuple[RunFile, RunFile]
    lines: tuple[Line, Line]

    @property
    def fell(self) -> bool:
        """Whether the score fell by more than noise would explain."""
        scale = 100.0 if max(self.before, self.after) > 1.0 else 1.0
        return self.before - self.after > max(_LOSS * self.before, _LEAST * scale)

    @property
    def rose(self) -> bool:
        """Whether the score rose by as much."""
        scale = 100.0 if max(self.before, self.after) > 1.0 else 1.0
        return self.after - self.before > max(_LOSS * self.before, _LEAST * scale)


def changes(ws: Workspace) -> Iterator[Change]:
    """Scores with the same name in a file of before and its counterpart of after."""
    small = [f for f in ws.files if not f.good and f.size <= SIZE and f.name.endswith((".txt", ".log", ".md", ".out"))]
    for file in small:
        rows = list(_arrows(ws, file))
        if len(rows) >= 2:  # one alone may be anything
            yield from rows
    earlier = {_BEFORE.sub("*", f.name, count=1): f for f in small if _BEFORE.search(f.name)}
    for file in small:
        match = _AFTER.search(file.name)
        other = earlier.get(_AFTER.sub("*", file.name, count=1)) if match else None
        if other is None or other is file:
            continue
        old, new = scores(ws, other), scores(ws, file)
        for name in old.keys() & new.keys():
            yield Change(name, old[name][0], new[name][0], (other, file), (old[name][1], new[name][1]))


def _arrows(ws: Workspace, file: RunFile) -> Iterator[Change]:
    """Rows of one file that hold both scores."""
    for line in ws.lines(file):
        if len(line.data) <= 300 and (row := _ARROW.match(line.text)) and not _NO_SCORE.search(row["name"]):
            name = " ".join(row["name"].lower().split())
            yield Change(name, float(row["before"]), float(row["after"]), (file, file), (line, line))


def scores(ws: Workspace, file: RunFile) -> dict[str, tuple[float, Line]]:
    """Named scores of a text file: `name: value` lines and rows of the harness's tables."""
    found: dict[str, tuple[float, Line]] = {}
    for line in ws.lines(file):
        if len(line.data) > 300:
            continue
        if row := _ROW.match(line.text):
            found.setdefault(" ".join(row["name"].lower().split()), (float(row["value"]), line))
        elif line.text.startswith("|") and (cells := _table_row(line.text)):
            found.setdefault(cells[0], (cells[1], line))
    return found


def _table_row(text: str) -> tuple[str, float] | None:
    """Task, metric and value of a row as lm-evaluation-harness prints them."""
    cells = [c.strip() for c in text.strip().strip("|").split("|")]
    if len(cells) < 7 or not cells[0]:
        return None
    value = next((c for c in cells[5:] if re.fullmatch(r"\d+\.\d+", c)), None)
    return (f"{cells[0]} {cells[4]}".lower(), float(value)) if value else None


# ----------
# Summaries of an evaluation: scores of one task under two filters, and how the prompts were made.

SCORES_SIZE = 8 << 20
_CHAT = re.compile(r"(?i)(?:^|[-_/.])(?:it|instruct|chat|sft|dpo|rlhf)(?:$|[-_/.,\"])")
APART = 0.1  # scores of two filters


def summaries(ws: Workspace, path: str = "") -> Iterator[Evidence]:
    """Evidence from results files of the harness: `filters_disagree`, `no_chat_template`, `score`, `few_shot`."""
    for file in ws.files:
        if file.good or not matches(file.name, path) or not file.name.endswith(".json") or file.size > SCORES_SIZE:
            continue
        if b'"results"' not in ws.head(file) and "results" not in file.name:
            continue
        try:
            tree = json.loads(ws.text(file, SCORES_SIZE))
        except (ValueError, RecursionError):
            ws.tell(file.name, "no JSON")
            continue
        if isinstance(tree, dict) and isinstance(tree.get("results"), dict):
            yield from _of(ws, file, tree)


def _of(ws: Workspace, file: RunFile, tree: dict[str, Any]) -> Iterator[Evidence]:
    lines = list(ws.lines(file))
    for task, scores in list(tree["results"].items())[:200]:
        if not isinstance(scores, dict):
            continue
        by_metric: dict[str, dict[str, float]] = {}
        for name, value in scores.items():
            metric, _, rule = str(name).partition(",")
            if isinstance(value, int | float) and not isinstance(value, bool) and "stderr" not in metric:
                by_metric.setdefault(metric, {})[rule] = float(value)
        for metric, rules in by_metric.items():
            least, most = min(rules, key=lambda r: rules[r]), max(rules, key=lambda r: rules[r])
            if rules[most] - rules[least] > APART:
                line = _line(lines, f'"{metric},{least}"', str(task))
                said = f"{task} {metric}: {rules[least]:.4g} by {least}, {rules[most]:.4g} by {most}"
                yield ws.cite(file, line, "eval_result.filters_disagree", said)
            elif rules:
                yield ws.cite(file, _line(lines, f'"{metric},', str(task)), "eval_result.score", rules[most])
    config = tree.get("config") if isinstance(tree.get("config"), dict) else {}
    model = str(tree.get("model_name") or (config or {}).get("model_args") or "")
    if "chat_template" in tree and not tree["chat_template"] and _CHAT.search(model):
        yield ws.cite(file, _line(lines, '"chat_template"', ""), "eval_result.no_chat_template", model[:120])


def _line(lines: list[Line], key: str, after: str) -> Line:
    """The first line that holds the key, after the one that names the task."""
    mark, needle = after.encode(), key.encode()
    start = next((n for n, line in enumerate(lines) if mark and b'"' + mark + b'"' in line.data), 0)
    return next((line for line in lines[start:] if needle in line.data), lines[0] if lines else Line(1, 0, b""))
