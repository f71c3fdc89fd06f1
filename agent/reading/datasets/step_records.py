"""Which records a training step saw: its number, the samples of a step, and the order the data came in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...types import Evidence
from ..anomalies.finding import groups
from ..anomalies.loss import loss_findings
from ..anomalies.progress import progress_findings
from ..curves import curves
from ..files import Line, RunFile
from ..plain_settings import plain_settings
from ..points import point_evidence
from ..settings import read_settings

if TYPE_CHECKING:
    from ...workspace import Workspace

LOG = 256 << 20  # bytes of one file looked through for logged indices

_EVENTS = ("loss.first_nan_step", "loss.first_inf_step", "loss.spike_step")
_CONSUMED = re.compile(r"consumed[_ ]samples['\"]?\s*[:=|]\s*(\d+)")
_INDICES = re.compile(
    r"""(?i)\b(?:sample_?|data_?|batch_?)?(?:indices|indexes|sample_ids|sample_idx|example_ids|doc_ids|idxs?)["']?\s*[:=]\s*"""
    r"""(?:tensor\()?\[([\d,\s]{1,20000})\]"""
)
_STEP = re.compile(r"""(?i)\b(?:global_?step|step|iteration|iter)["']?\s*[:=]?\s*(\d{1,9})\b""")
_SHUFFLES = re.compile(r"shuffle\s*=\s*True|RandomSampler|DistributedSampler|\.shuffle\(|randperm|random\.shuffle")
_IN_ORDER = re.compile(r"shuffle\s*=\s*False|SequentialSampler|shuffle:\s*false|--no-shuffle|\"shuffle\":\s*false")
_TRAINERS = frozenset({"hf", "trl", "axolotl", "llamafactory", "megatron", "nemo", "verl", "slime", "openrlhf"})


@dataclass(slots=True)
class StepRecords:
    """What is known of a step's records.

    Attributes:
        step: its number; None where nothing odd was seen and none was named.
        seen: evidence that the step is odd.
        numbers: the records, counted from 0, where that can be told.
        why: how they are known, or why they are not.
        cited: evidence for how they are known.
    """

    step: int | None = None
    seen: Evidence | None = None
    numbers: list[int] = field(default_factory=list)
    why: str = ""
    cited: Evidence | None = None


def records_of(ws: Workspace, step: int) -> StepRecords:
    """The records of a step, or of the first odd one of the loss where `step` is 0."""
    out = StepRecords(step or None)
    if not step:
        out.seen = next(_odd_steps(ws), None)
        out.step = out.seen.step if out.seen else None
    if out.step is None:
        out.why = "no step is known at which the loss was odd"
        return out
    for file, line, numbers in _logged(ws, out.step):
        out.numbers, out.why = numbers, "the run logged the indices of this step"
        out.cited = ws.cite(file, line, "sample.logged_indices", len(numbers))
        return out
    _counted(ws, out)
    return out


def _odd_steps(ws: Workspace) -> Iterator[Evidence]:
    """The first step with a loss that is not finite, else the first spike."""
    settings = plain_settings(ws)
    found: list[Evidence] = []
    for group in groups([s for s in curves(ws).series if not s.file.good]):
        for f in [*loss_findings(group, settings), *progress_findings(group)]:
            if f.key in _EVENTS and f.series is not None and f.step is not None:
                found.append(point_evidence(ws, f.series, f.index, "sample.step", f.step))
                if f.key != "loss.spike_step":
                    break
    nans = [e for e in found if not _finite(e)]
    yield from sorted(nans or found, key=lambda e: e.step or 0)


def _finite(e: Evidence) -> bool:
    return not re.search(r"(?i)\b(?:nan|inf)\b", e.text)


def _logged(ws: Workspace, step: int) -> Iterator[tuple[RunFile, Line, list[int]]]:
    """Lines that name the indices of this step."""
    for file in ws.by_role("log", "metrics", "data", "other"):
        if file.size > LOG or not _INDICES.search(ws.text(file, 256 << 10)):
            continue
        for line in ws.lines(file):
            text = line.text
            if (m := _INDICES.search(text)) and (s := _STEP.search(text)) and int(s[1]) == step:
                yield file, line, [int(n) for n in re.findall(r"\d+", m[1])][:100_000]


def _counted(ws: Workspace, out: StepRecords) -> None:
    """By arithmetic, where the data came in order."""
    assert out.step is not None
    size = batch_size(ws)
    if size is None:
        out.why = "the number of samples of a step is not known (micro-batch, accumulation and processes)"
        return
    consumed = _CONSUMED.search(out.seen.text) if out.seen else None
    last = int(consumed[1]) if consumed else out.step * size
    order, cited = _order(ws)
    first = max(0, last - size)
    if order != "in order":
        said = f"samples {first} to {last - 1} in the order of the sampler"
        out.why = f"the data are {order}: {said}, which does not say which records these are"
        out.cited = cited
        return
    out.numbers = list(range(first, min(last, first + 1_000_000)))
    out.why = f"read in order, {size} a step, steps counted from 1"
    out.cited = cited


def batch_size(ws: Workspace) -> int | None:
    """Samples of one optimizer step over all ranks; None where it cannot be told."""
    settings = read_settings(ws)

    def number(name: str) -> int | None:
        value = settings.value(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    if size := number("global_batch_size"):
        return size
    micro = number("micro_batch_size")
    if micro is None:
        return None
    world = number("world_size") or (number("nodes") or 1) * (number("gpus_per_node") or 1)
    for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        world = max(1, world // (number(name) or 1))
    return micro * (number("gradient_accumulation_steps") or 1) * world


def _order(ws: Workspace) -> tuple[str, Evidence | None]:
    """Whether the data are `in order`, `shuffled`, or in an order that nothing tells; and the line that says so."""
    asked = [s for s in read_settings(ws).asked("shuffle") if not s.file.good]
    if asked:
        word = "shuffled" if any(s.value is True for s in asked) else "in order"
        return word, ws.cite(asked[0].file, asked[0].line, "sample.order", word)
    for pattern, word in ((_SHUFFLES, "shuffled"), (_IN_ORDER, "in order")):
        for file in ws.by_role("code", "config"):
            if pattern.search(ws.text(file, 512 << 10)):
                line = next((x for x in ws.lines(file) if pattern.search(x.text)), None)
                if line is not None:
                    return word, ws.cite(file, line, "sample.order", word)
    if read_settings(ws).frameworks & _TRAINERS:
        return "shuffled by the trainer unless it is told not to", None
    return "in an order that nothing tells", None
