"""How many examples a training counts, against how many its file of training data holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ..beginnings import beginnings
from ..files import Line, RunFile
from ..records import RECORDS, Record, records
from ..settings import read_settings

if TYPE_CHECKING:
    from ...workspace import Workspace

CODE_LIMIT = 400_000
FEW = 0.5  # of the records, below which a held-out part does not explain the difference
LEAST = 200  # records of a file that is no mere sample of the data
_COUNTED = re.compile(
    r"^(?!.*(?i:\beval|\bval|\btest))(?:.{0,80}[\s:\]|>-])?(?:[Nn]um(?:ber of)? (?:train(?:ing)? )?(?:examples|samples)"
    r"|[Tt]rain(?:ing)? (?:set|dataset|samples|examples)(?: size)?)\s*[=:]\s*(?P<n>\d[\d,]*)\s*$"
)
_TRAIN = re.compile(r"(?i)(?:^|[/_.\-])train(?:ing)?(?:[/_.\-\d]|$)")
# What makes fewer or other examples out of the records on purpose: in keys, in values, in code.
_KEYS = re.compile(
    r"(?i)pack|concat|block_size|max_(?:train_)?(?:samples|examples)|num_(?:train_)?(?:samples|examples)|subset|fraction"
    r"|percent|subsample|streaming|data_?ratio|shard|sample_size"
)
_VALUES = re.compile(r"\[\d*%?:\d*%?\]")
_CODE = re.compile(
    r"(?i)train_test_split|random_split|Subset\(|\.take\(|\.select\(|islice|pack(?:ing|ed|_)|group_texts|max_(?:train_)?samples"
    r"|streaming|\.sample\(|\.shard\("
)


def fewer(ws: Workspace) -> Iterator[tuple[int, int, tuple[tuple[RunFile, Line], ...]]]:
    """The examples counted and the records of the one training file, with the lines of both."""
    files = [f for f in ws.by_role("data") if _TRAIN.search(f.name) and not f.good]
    if len(files) != 1:
        return
    held = records(ws, files[0])
    if not LEAST <= len(held) < RECORDS or _meant(ws):
        return
    for log, line in beginnings(ws):
        if (b"amples" in line.data or b"rain" in line.data) and (m := _COUNTED.match(line.text[:400])):
            count = int(m["n"].replace(",", ""))
            if 0 < count < FEW * len(held) and not (_share(count, len(held)) or _grouped(count, held)):
                yield count, len(held), ((log, line), (files[0], held[-1].line))
            return


def _meant(ws: Workspace) -> bool:
    for s in read_settings(ws).all:
        if (_KEYS.search(s.key) and s.value not in (None, False, 0, "")) or _VALUES.search(str(s.value)[:400]):
            return True
    code = (f for f in ws.files if f.name.endswith((".py", ".ipynb")) and f.size < CODE_LIMIT)
    return any(_CODE.search(ws.text(f, CODE_LIMIT)) for f in code)


def _share(count: int, held: int) -> bool:
    """Whether the count is that of one rank among several, or of samples that take some rows each."""
    return any(abs(count * k - held) <= k for k in range(2, 65))


def _grouped(count: int, held: list[Record]) -> bool:
    """Whether rows belong together by a field (turns of a dialogue), or are the same again: then fewer are meant."""
    near = max(2, 0.03 * count)
    names = {name for record in held[:20] for name in record.fields}
    for name in names:
        if abs(len({str(record.fields.get(name)) for record in held}) - count) <= near:
            return True
    return abs(len({str(record.fields) for record in held}) - count) <= near or _blocks(held)


def _blocks(held: list[Record]) -> bool:
    """Whether blank lines part the rows: a token a line, a sentence a block."""
    gaps = sum(b.line.number - a.line.number > 1 for a, b in pairwise(held))
    return gaps > 0.01 * len(held)
