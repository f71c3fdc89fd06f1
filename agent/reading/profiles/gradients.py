"""Gradients by parameter, wherever a run left them: the recorder's rows, curves for each layer, saved tensors.

The recorder's file is `gradients.jsonl`: one object a line with `step`, `name`, `norm` (null where no gradient came),
and optionally `requires_grad`, `max`, `nonfinite` (elements) and `weight_norm`.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import deadline
from ..checkpoints.numbers import numbers_of
from ..checkpoints.weights import forward_order, holds_gradients, layer_of, module_of, place, state_of
from ..curves.curves import Curves, line_at
from ..run.files import Line, RunFile
from ..run.records import json_rows, small_enough

if TYPE_CHECKING:
    from ..run.workspace import Workspace

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


# ----------
# Gradients by depth: where they end, where they vanish or explode, how large they are against the weights.

_ADAPTER = re.compile(r"(?i)(?:^|[._])(?:lora|adapters?|ia3|vera|dora|oft|boft|hada|lokr|prompt_encoder)(?:[._]|$)")
_LAYERS = 4  # layers from which a profile over depth means something


@dataclass(slots=True)
class Module:
    """One block of the model: the norm of its gradients together, and that of its weights (NaN where unknown)."""

    name: str
    layer: int | None
    norm: float
    weight_norm: float
    first_norm: float
    gradients: list[Gradient]

    @property
    def to_weight(self) -> float:
        """Gradient against weight; NaN where either is unknown."""
        return self.norm / self.weight_norm if self.weight_norm > 0 else math.nan


@dataclass(slots=True)
class Profile:
    """The blocks of a model in forward order.

    Attributes:
        ratio: early layers' norm over late layers' (median of the first and last quarter); NaN where unknown.
        slope: decades that the norm changes for each layer, from first to last.
        total: norm of all gradients together.
    """

    modules: list[Module] = field(default_factory=list)
    ratio: float = math.nan
    slope: float = math.nan
    total: float = math.nan

    @property
    def layers(self) -> list[Module]:
        """The blocks of the stack."""
        return [m for m in self.modules if m.layer is not None]

    @property
    def to_weight(self) -> float:
        """Median over the layers of gradient norm against weight norm; NaN where weights are unknown."""
        known = [m.to_weight for m in self.modules if math.isfinite(m.to_weight)]
        return statistics.median(known) if known else math.nan


def profile(gradients: list[Gradient]) -> Profile:
    """Blocks with their norms, in the order of the forward pass. Gradients never finite are left out."""
    by_module: dict[str, list[Gradient]] = {}
    known = [g for g in gradients if not math.isnan(g.norm)]
    given = {g.name: g for g in known}
    for name in forward_order(given):
        by_module.setdefault(module_of(name), []).append(given[name])
    found = Profile(
        [
            Module(
                name, layer_of(inner[0].name), _joined(g.norm for g in inner),
                _joined(g.weight_norm for g in inner), _joined(g.first_norm for g in inner), inner,
            )
            for name, inner in by_module.items()
        ]
    )  # fmt: skip
    if known:
        found.total = _joined(g.norm for g in known)
    layers = found.layers
    if len(layers) >= _LAYERS:
        quarter = max(1, len(layers) // 4)
        early = statistics.median(m.norm for m in layers[:quarter])
        late = statistics.median(m.norm for m in layers[-quarter:])
        found.ratio = early / late if late > 0 else math.inf if early > 0 else math.nan
        positive = [(i, math.log10(m.norm)) for i, m in enumerate(layers) if m.norm > 0]
        if len(positive) >= 3:
            found.slope = float(np.polyfit([i for i, _ in positive], [n for _, n in positive], 1)[0])
    return found


def _joined(values: Iterable[float]) -> float:
    return math.sqrt(sum(min(abs(v), 1e150) ** 2 for v in values))


def trained(gradients: list[Gradient]) -> list[Gradient]:
    """The parameters that were meant to be trained: beside adapters, the model's own never have a gradient."""
    if not any(_ADAPTER.search(g.name) for g in gradients):
        return gradients
    return [g for g in gradients if not g.steps or g.absent < g.steps or (_ADAPTER.search(g.name) and not g.frozen)]


def untouched(found: Profile) -> list[Gradient]:
    """Parameters whose gradient was zero or missing at every recorded step.

    Left out: early ones of a profile that fades towards the first layers (underflow), and the inner half of an
    adapter seen once, which has no gradient while the outer half is still zero.
    """
    silent = [g for m in found.modules for g in m.gradients if g.steps and g.zeros == g.steps]
    if not silent or len(silent) == sum(len(m.gradients) for m in found.modules):
        return silent
    alive = [m for m in found.modules if m.norm > 0]
    first = place(alive[0].gradients[0].name)
    fades = found.slope > 0.5 if math.isfinite(found.slope) else False
    return [
        g
        for g in silent
        if not (fades and not g.absent and place(g.name) <= first)
        and not (g.steps == 1 and ("lora_A" in g.name or "lora_down" in g.name))
    ]


def broken(gradients: list[Gradient]) -> list[Gradient]:
    """Parameters with a gradient that is not finite, at the first step that has any, in forward order."""
    bad = [g for g in gradients if g.bad_step is not None or g.bad is not None]
    if not bad:
        return []
    steps = [g.bad_step for g in bad if g.bad_step is not None]
    first = min(steps) if steps else None
    held = {g.name: g for g in bad if first is None or g.bad_step == first}
    return [held[name] for name in forward_order(held)]
