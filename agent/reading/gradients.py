"""Gradients by parameter, wherever a run left them: the recorder's rows, curves for each layer, saved tensors.

The recorder's file is `gradients.jsonl`: one object a line with `step`, `name`, `norm` (null where no gradient came),
and optionally `requires_grad`, `max`, `nonfinite` (elements) and `weight_norm`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import deadline
from .checkpoints.numbers import numbers_of
from .checkpoints.state import state_of
from .checkpoints.weights import holds_gradients
from .curves import Curves, line_at
from .files import Line, RunFile
from .json_rows import json_rows, small_enough

if TYPE_CHECKING:
    from ..workspace import Workspace

_FILE_LIMIT = 1 << 30
_NAMES = 200_000  # parameters of one file
_BEFORE = re.compile(
    r"(?i)^(?:train/|debug/|model/)?(?:grad(?:ient)?s?(?:_?(?:l2)?_?norms?)?|gnorm)(?:_?(?:l2|2\.0)_?norm)?[/:.]+(?P<name>.+)$"
)
_AFTER = re.compile(r"(?i)^(?:train/)?(?P<name>.+?)[/._:]+(?:grad(?:ient)?(?:_?(?:l2|2))?[_/.]?norm|gnorm|grad)$")
_LISTED = re.compile(
    r"(?:^|\.)(?:layers?|blocks?|h|embed\w*|wte|lm_head|weight|bias|fc\d*|conv\d*|\w+\.\d+|routers?|gate|gating|experts?|attn|attention|mlp|head|encoder|decoder|backbone)(?:\.|$)"
)
_END = re.compile(r"[/._](?:l2_?norm|norm|l2|mean|2)$", re.IGNORECASE)


@dataclass(slots=True)
class Gradient:
    """What is known of one parameter's gradient over the recorded steps.

    Attributes:
        norm, weight_norm: at the last step with a number; NaN where never known.
        first_norm: at the first step with a number.
        steps, zeros: recorded steps, and those with a gradient of zero or none at all.
        frozen: `requires_grad` was false at every recorded step.
        bad_step: first step with a gradient that is not finite; `bad` is the line of it.
        line: line of the last row, for text; `member` the tensor, for binary files.
    """

    name: str
    file: RunFile
    norm: float = math.nan
    first_norm: float = math.nan
    weight_norm: float = math.nan
    step: int | None = None
    steps: int = 0
    zeros: int = 0
    absent: int = 0
    frozen: bool = False
    bad_step: int | None = None
    line: Line | None = None
    bad: Line | None = None
    member: str = ""

    def add(self, norm: float | None, step: int | None, line: Line | None, broken: bool = False) -> None:
        """One more step; `norm` None where there was no gradient."""
        self.steps += 1
        self.step = step
        if norm is None or norm == 0:
            self.zeros += 1
            self.absent += norm is None
        if broken or (norm is not None and not math.isfinite(norm)):
            if self.bad_step is None and self.bad is None:
                self.bad_step, self.bad = step, line
            return
        self.line = line
        self.norm = 0.0 if norm is None else norm
        if math.isnan(self.first_norm):
            self.first_norm = self.norm


@dataclass(slots=True)
class Recorded:
    """All gradients of one source. `kind`: recorder, curves, saved."""

    kind: str
    label: str
    gradients: list[Gradient]
    unread: int = 0


def recorded_gradients(ws: Workspace) -> list[Recorded]:
    """What the recorder wrote, one result for each file."""
    found = []
    for file in ws.by_role("metrics", "data", "log", "other"):
        if file.good or ".json" not in file.path.name:
            continue
        head = ws.head(file)
        ours = b'"norm"' in head and b'"name"' in head and head.lstrip().startswith(b"{")
        if ours and small_enough(ws, file, _FILE_LIMIT):
            rows: dict[str, Gradient] = {}
            unread = sum(not _row(rows, file, line) for line in ws.lines(file) if line.data.strip())
            if rows:
                found.append(Recorded("recorder", file.name, list(rows.values()), unread))
    return found


def _row(rows: dict[str, Gradient], file: RunFile, line: Line) -> bool:
    """Take one line in; whether it was one of ours."""
    if line.number % 4096 == 0:
        deadline.check()
    try:
        row = json.loads(line.data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or "norm" not in row:
        return False
    name = row["name"][:300]
    gradient = rows.get(name)
    if gradient is None:
        if len(rows) >= _NAMES:
            return False
        gradient = rows[name] = Gradient(name, file)
    gradient.frozen = row.get("requires_grad") is False and (gradient.frozen or not gradient.steps)
    step = _number(row.get("step"))
    broken = (_number(row.get("nonfinite")) or 0) > 0
    known = step is not None and math.isfinite(step)
    gradient.add(_number(row["norm"]), int(step) if known and step is not None else None, line, broken)
    weight = _number(row.get("weight_norm"))
    if weight is not None:
        gradient.weight_norm = weight
    return True


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def curve_gradients(ws: Workspace, found: Curves) -> list[Recorded]:
    """Gradient norms of layers or parameters that a tracker keeps as a curve each."""
    by_file: dict[tuple[str, int | None, str | None], list[Gradient]] = {}
    for s in found.series:
        name = gradient_name(s.raw)
        if name is None or s.file.good:
            continue
        gradient = Gradient(name, s.file, member=s.raw)
        binary = "tfevents" in s.file.path.name
        for i, value in enumerate(s.values.tolist()):
            gradient.add(value, int(s.steps[i]) if s.stepped else None, None)
        finite = s.finite.nonzero()[0]
        bad = (~s.finite).nonzero()[0]
        if not binary:
            gradient.line = line_at(s, int(finite[-1])) if len(finite) else None
            gradient.bad = line_at(s, int(bad[0])) if len(bad) else None
        by_file.setdefault((s.file.name, s.rank, s.variant), []).append(gradient)
    rows: dict[tuple[str, int | None, str | None], dict[str, Gradient]] = {}
    for row in json_rows(ws, b"rad"):
        held = rows.setdefault((row.file.name, row.file.rank, row.file.variant), {})
        for key, value in [*row.numbers.items(), *((key, None) for key in row.empty)]:
            if (name := gradient_name(key)) and (name in held or len(held) < _NAMES):
                held.setdefault(name, Gradient(name, row.file)).add(value, row.step, row.line)
    for key, held in rows.items():
        by_file.setdefault(key, list(held.values()))
    return [
        Recorded("curves", file, gradients)
        for (file, _, _), gradients in by_file.items()
        if len({g.name for g in gradients}) >= 3
    ]


def gradient_name(raw: str) -> str | None:
    """The parameter or layer that a curve's name speaks of, or None where it is no gradient of one."""
    found = _BEFORE.match(raw) or _AFTER.match(raw)
    if not found:
        return None
    name = _END.sub("", found["name"].replace("/", "."))
    return name if _LISTED.search(name) else None


def saved_gradients(ws: Workspace, path: str = "") -> list[Recorded]:
    """Gradients saved as tensors: files named for them, or the one that `path` names, and tensors called `.grad`."""
    return [r for file in _gradient_files(ws, path) if (r := _saved(ws, file, bool(path))) is not None]


def _gradient_files(ws: Workspace, path: str) -> Iterator[RunFile]:
    for file in ws.by_role("checkpoint", "other"):
        named = path and (file.name == path or file.name.endswith("/" + path) or str(file.path) == path)
        if named or (not path and not file.good and holds_gradients(file.name)):
            yield file


def _saved(ws: Workspace, file: RunFile, asked: bool) -> Recorded | None:
    state = state_of(ws, file)
    tensors = [t for t in state.tensors.values() if t.dtype.startswith(("float", "bfloat"))]
    marked = [t for t in tensors if t.name.endswith(".grad") or re.match(r"(?:.*\.)?grad(?:ient)?s\.", t.name)]
    if asked and not marked and not holds_gradients(file.name):
        return None
    tensors = marked or tensors
    numbers = numbers_of(ws, tensors)
    gradients = []
    for t in tensors:
        name = re.sub(r"^(?:.*\.)?grad(?:ient)?s\.", "", t.name.removesuffix(".grad"))
        seen = numbers.get(t.name)
        if seen is None or not seen.read:
            continue
        gradient = Gradient(name, file, member=t.name)
        gradient.add(seen.norm, None, None, bool(seen.nan or seen.inf))
        gradient.norm = seen.norm
        if seen.nan or seen.inf:
            gradient.bad_step = -1
        gradients.append(gradient)
    return Recorded("saved", file.name, gradients, len(tensors) - len(gradients)) if gradients else None
