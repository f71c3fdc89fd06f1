"""What a load that is not strict left out: a head or a token of the task, or layers of the model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ...core.types import Evidence
from ..curves.curves import curves
from ..run.files import Line, RunFile
from ..scan.logpass import LogPass
from ..settings.settings import read_settings
from .failures import failures
from .roster import roster

if TYPE_CHECKING:
    from ..run.workspace import Workspace

_MISSING = re.compile(r"(?i)missing(?:_keys| keys)?\W{0,3}\[")
_LEFT = re.compile(r"(?i).{0,40}?unexpected(?:_keys| keys)?\W{0,3}\[")
_KEY = re.compile(r"['\"]([\w.\-]{1,300})['\"]")
# By the first part of a parameter's name, what is made anew for a task; by the last, what holds nothing learned.
_OF_THE_TASK = re.compile(
    r"(?i)^(?:(?:module|model|base_model)\.)*(?:(?:pretrain|pred|mlm|cls|seg|bbox|mask|mlp|proj|projection|aux|det|task|score|lm"
    r"|ssl)?_?head\d?s?|classifiers?|fc|cls|cls_(?:token|score|pred)|category_tokens?|task_tokens?|prompt_tokens?|mask_token"
    r"|class_embed|score|qa_outputs|queue(?:_ptr)?|momentum_encoder|teacher)(?:[._]|\d|$)"
    r"|(?:^|\.)(?:pooler\.dense\.(?:weight|bias)|position_ids|num_batches_tracked|total_ops|total_params|inv_freq)$"
)
_FEW = 24
_STEPS = 3  # losses that make a training


def load_reports(ws: Workspace, found: LogPass) -> Iterator[Evidence]:
    """`load.only_heads`: every name that is missing or left over belongs to a head or a token of one task.

    Only where a run trains what it made anew: in an evaluation a head at random is the fault itself.
    """
    for hit in found.hits.get("sig.ckpt.weights_not_loaded", ()):
        missing, left = _listed(hit.line.text)
        if 0 < len(missing) <= _FEW and all(map(_OF_THE_TASK.search, [*missing, *left])) and _trains(ws):
            yield ws.cite(hit.file, hit.line, "load.only_heads", True)


def _trains(ws: Workspace) -> bool:
    """Whether losses of several steps are among the files."""
    return any(s.count >= _STEPS for s in curves(ws).of("loss", good=False))


def _listed(text: str) -> tuple[list[str], list[str]]:
    """The names that are missing and those left over; none where a line lists not both. One look at each character."""
    if (first := _MISSING.search(text)) is None or (end := text.find("]", first.end())) < 0:
        return [], []
    second = _LEFT.match(text, end + 1)
    if second is None or (over := text.find("]", second.end())) < 0:
        return [], []
    return _KEY.findall(text, first.end(), end), _KEY.findall(text, second.end(), over)


# ----------
# Shapes that differ on loading because tensors were cut into another number of parts when they were saved.

MISMATCH = re.compile(
    r"size mismatch for (?P<name>\S{1,200}): copying a param(?:eter)? with shape "
    r"torch\.Size\(\[(?P<saved>[\d, ]{1,60})\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[(?P<built>[\d, ]{1,60})\]\)"
)
PART = re.compile(
    r"(?:^|[/_.-])(?:mp_rank|tp_rank|model_parallel_rank|tp|mp)[_-]?(\d{1,4})(?=$|[/_.-])"
    r"|consolidated\.(\d{2})\.pth$"
)
FEWEST = 2  # tensors that must differ alike


@dataclass(frozen=True, slots=True)
class Split:
    """Parts on disk, parts that the model being loaded is cut into, and the lines and the file that show it."""

    saved: int
    built: int
    lines: list[tuple[RunFile, Line]]
    part: RunFile


def split_otherwise(ws: Workspace) -> Split | None:
    """Parts then and now, where all mismatched tensors differ by one factor that exactly the two numbers explain.

    Numbers alone do not tell a cut from a wider layer: what the run has now must be known, by its tensor-parallel
    size or by having fewer processes than there are parts.
    """
    found = [(u.file, line, m) for u in failures(ws).units for line, text in u.details if (m := MISMATCH.search(text))]
    ratios = {_ratio(m["saved"], m["built"]) for _, _, m in found}
    files = _parts(ws)
    if len({m["name"] for _, _, m in found}) < FEWEST or len(ratios) != 1 or not files:
        return None
    ratio = ratios.pop()
    if ratio is None or (built := len(files) / ratio).denominator != 1:
        return None
    saved, now = len(files), int(built)
    return Split(saved, now, [(f, line) for f, line, _ in found[:2]], files[-1]) if _is_so(ws, saved, now) else None


def _ratio(saved: str, built: str) -> Fraction | None:
    """Built over saved, where exactly one dimension differs."""
    pairs = list(zip(_sizes(saved), _sizes(built), strict=False))
    off = [Fraction(b, a) for a, b in pairs if a != b and a and b]
    return off[0] if len(_sizes(saved)) == len(_sizes(built)) and len(off) == 1 else None


def _sizes(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _parts(ws: Workspace) -> list[RunFile]:
    """One file of each part of the save that has the most parts."""
    saves: dict[str, dict[int, RunFile]] = defaultdict(dict)
    for file in ws.by_role("checkpoint"):
        if (m := PART.search(file.name)) and not file.good:
            saves[file.name[: m.start()]].setdefault(int(m[1] or m[2]), file)
    most = max(saves.values(), key=len, default={})
    return [most[n] for n in sorted(most)] if sorted(most) == list(range(len(most))) else []


def _is_so(ws: Workspace, saved: int, built: int) -> bool:
    settings = read_settings(ws)
    parallel = settings.value("tensor_parallel")
    if isinstance(parallel, int) and parallel > 0:
        return parallel == built != saved
    known = [settings.value(name) for name in ("world_size", "processes_per_node")] + [roster(ws).world]
    nodes = settings.value("nodes")
    counts = [n for n in known if isinstance(n, int) and n > 0]
    alone = not isinstance(nodes, int) or nodes == 1
    return built < saved and alone and bool(counts) and built in counts


# ----------
# How long the batch was that failed: the lengths that progress lines print, the last held against those before.

LENGTH = re.compile(
    r"\b(?:num_|n_|max_|input_|padded_|total_)?(?:tokens?|seq(?:uence)?s?(?:[ _]?len(?:gth)?s?)?|len(?:gth)?s?|"
    r"frames|shape|padded(?: to)?|width)\b['\"]?\s{0,2}[:=]?\s{0,2}(?:torch\.Size)?[(\[\s]{0,3}"
    r"(?P<sizes>\d{1,9}(?:\s{0,2}[x\u00d7,]\s{0,2}\d{1,9}){0,3})",
    re.IGNORECASE,
)
LEAST = 3  # lines before the last one that show what is usual
OUTLYING = 4.0  # times the longest that was seen before


def outlying(lines: Sequence[Line], at: int) -> tuple[Line, int, int] | None:
    """The last batch's line and length before line `at`, where it is far longer than all that were told before.

    The third is the longest of those, which passed.

    Lines are compared that name the length in the same words; of several sizes the greatest counts.
    """
    series: dict[str, list[tuple[Line, int]]] = {}
    for line in lines[:at]:
        for m in LENGTH.finditer(line.text[:400]):
            name = re.sub(r"[\W\d]+", " ", m[0][: m.start("sizes") - m.start()]).strip().lower()
            series.setdefault(name, []).append((line, max(int(n) for n in re.findall(r"\d+", m["sizes"]))))
    for told in series.values():
        before = [size for _, size in told[:-1]]
        line, last = told[-1]
        if len(before) >= LEAST and last > OUTLYING * max(before) > 0:
            return line, last, max(before)
    return None
