"""What a run printed about its own numbers: overflow dumps, tensors that never change, rounded sums."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..reading import numerics as reading
from ..reading.files import Line, RunFile
from ..reading.implementations import continuations, disagreements
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

_FILE_LIMIT = 64 << 20
_TELLING = (
    b"abs max", b"absmax", b"tensor(", b"float16", b"exact", b"expected", b"reference", b"returned nan", b"eager",
    b"compile", b"resumed", b"restored", b"reloaded", b"fp32", b"sdpa",
)  # fmt: skip
_BACKWARD = re.compile(rb"Function '?(\w+)'? returned nan values in its (\d+)th output")
_NAMED = re.compile(
    rb"(?i)\b(?:nan|inf|non-?finite)\w*(?:/inf)?(?: values?)? (?:found |detected |encountered |first seen )?"
    rb"(?:in|at|for) (?:the )?(?:module |layer |parameter |param |grad(?:ient)?(?: of)? |output of |tensor )?"
    rb"['\"]?([A-Za-z_][\w]*\.[\w.]+)"
)


@tool(emits=("numerics.*",), recall=True)
def numerics(ws: Workspace) -> ToolResult:
    """Read what the run printed about its own tensors.

    Activation dumps (HF underflow/overflow report), tensors printed before and after training, label batches,
    exact sums beside reduced ones, counters kept in 16 bits, one quantity from two implementations, a continued run
    beside the uninterrupted one, autograd's anomaly detection.
    """
    evidence: list[Evidence] = []
    looked = 0
    for file in ws.by_role("log", "capture", "other", "data", "metrics", "environment"):
        if file.size > _FILE_LIMIT or file.good:
            continue
        if not any(any(t in block for t in _TELLING) for block in ws.blocks(file)):
            continue
        looked += 1
        evidence += _of_file(ws, file)
    if not looked:
        return not_applicable("no activation dump, printed tensor or comparison of sums")
    if not evidence:
        return clean(f"printed tensors in {looked} files look ordinary")
    keys = sorted({e.key for e in evidence})
    return finding(
        f"{', '.join(keys)}", evidence, "\n".join(f"{e.key} = {e.value!r}  {e.file}:{e.line}" for e in evidence)
    )


def _of_file(ws: Workspace, file: RunFile) -> Iterator[Evidence]:
    lines = list(ws.lines(file)) if file.size < 4 << 20 else None

    def again() -> Iterator[Line]:
        return iter(lines) if lines is not None else ws.lines(file)

    yield from _dumps(ws, file, list(reading.dump_rows(again()))[:5000])
    yield from _tensors(ws, file, list(reading.printed_tensors(again()))[:2000])
    for sums in list(reading.compared_sums(again()))[:6]:
        told = {"exact": sums.exact, "reduced": sums.reduced, "rounded_to": sums.rounded}
        yield ws.cite(file, sums.reduced_line, "numerics.exact_vs_reduced", told)
        yield ws.cite(file, sums.exact_line, "numerics.exact_vs_reduced", told)
        if sums.rounded:
            yield ws.cite(file, sums.reduced_line, "numerics.bf16_counter", sums.rounded)
    for name, dtype, line in list(reading.low_precision_counters(again()))[:6]:
        yield ws.cite(file, line, "numerics.low_precision_counter", f"{name} {dtype}")
    for pair in list(disagreements(again()))[:6]:
        told = dict(zip(pair.names, pair.values, strict=True))
        for line in pair.lines:
            yield ws.cite(file, line, "numerics.implementations_differ", told)
    for row in list(continuations(again()))[:3]:
        told = {"step": row.step, "whole": row.whole, "again": row.again}
        key = "numerics.update_differs_after_load" if row.agrees else "numerics.differs_after_load"
        for line in filter(None, (row.agrees, row.parts)):
            yield ws.cite(file, line, key, told)
    yield from _named(ws, file, again())


def _dumps(ws: Workspace, file: RunFile, rows: list[reading.DumpRow]) -> Iterator[Evidence]:
    near, first = reading.overflow(rows)
    for row in near[-4:]:
        yield ws.cite(file, row.line, "numerics.near_fp16_max", row.greatest)
    if first is not None:
        yield ws.cite(file, first.line, "numerics.first_nonfinite_module", first.module or first.tensor)
        if near:
            yield ws.cite(file, first.line, "numerics.fp16_overflow", True)
    grown = reading.growth(rows)
    if grown is not None:
        yield ws.cite(file, grown[1].line, "numerics.activations_grow", round(grown[1].greatest / grown[0].greatest, 1))


def _tensors(ws: Workspace, file: RunFile, printed: list[reading.PrintedTensor]) -> Iterator[Evidence]:
    before: dict[str, reading.PrintedTensor] = {}
    told = 0
    for tensor in printed:
        name = re.split(r"[^\w]+", tensor.label)[-1] if tensor.label else ""
        if name in ("labels", "label", "targets", "target") and tensor.same == -100:
            yield ws.cite(file, tensor.line, "numerics.labels_all_masked", True)
        if tensor.after and tensor.subject in before and told < 8:
            earlier = before[tensor.subject]
            if earlier.text == tensor.text:
                told += 1
                yield ws.cite(file, tensor.line, "numerics.tensor_unchanged", tensor.subject)
                yield ws.cite(file, earlier.line, "numerics.tensor_unchanged", tensor.subject)
                if tensor.same == 0:
                    yield ws.cite(file, tensor.line, "numerics.tensor_zero_after_training", tensor.subject)
            else:
                yield ws.cite(file, tensor.line, "numerics.tensor_changed", tensor.subject)
        elif not tensor.after:
            before.setdefault(tensor.subject, tensor)


def _named(ws: Workspace, file: RunFile, lines: Iterator[Line]) -> Iterator[Evidence]:
    """Autograd's anomaly detection, and the first module that a NaN check names."""
    for line in lines:
        if b"nan" not in line.data.lower() and b"inf" not in line.data.lower():
            continue
        if backward := _BACKWARD.search(line.data):
            yield ws.cite(file, line, "numerics.nan_in_backward", backward[1].decode())
            return
        if named := _NAMED.search(line.data):
            yield ws.cite(file, line, "numerics.first_nonfinite_module", named[1].decode(errors="replace").rstrip("."))
            return
