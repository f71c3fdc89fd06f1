"""Restarts and resumes inside a run: did the step, the curve, the learning rate or the data start over?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePosixPath

import numpy as np

from ...run.files import Line, RunFile
from ...run.lines import strip
from ...run.workspace import Workspace
from ...settings.settings import PlainSetting, Setting, read_settings
from ..curves import heads
from ..series import Series
from ..shape import mad, noise
from .finding import Curve, Finding, Group, plain
from .restored import Resumed, resumed_by_code

# ----------
# What a resume is put together from: weights of one run and optimizer state of another do not go together.


_WEIGHTS = re.compile(
    r"(?i)(?:^|[._])(?:weights?|model|net(?:work)?|params?|state_dict|ckpt|checkpoint)(?:$|[._](?:path|file|ckpt|checkpoint|state|from)$)"
)
_OPTIMIZER = re.compile(
    r"(?i)(?:^|[._])(?:load_|resume_|init_)?optim(?:i[sz]ers?)?(?:$|[._](?:path|file|ckpt|checkpoint|states?|from)$)"
)
_RESUMES = re.compile(r"(?i)resum|restor|continu|restart|load|init_?from|warm_?start|from_?checkpoint")
_FILE = re.compile(r"(?i)^(?=.*[/\\]).*\.(?:pt|pth|bin|ckpt|tar|pkl|safetensors|npz|msgpack)$")
_STEP = re.compile(r"(?<![\dA-Za-z])(\d{2,9})(?![\dA-Za-z])")


@dataclass(frozen=True, slots=True)
class Mixed:
    """Weights and an optimizer state that a resume takes from two places."""

    weights: Setting
    optimizer: Setting

    @property
    def says(self) -> str:
        """Both files in one line."""
        return f"weights from {self.weights.value}, optimizer state from {self.optimizer.value}"


def mixed_parts(ws: Workspace) -> Iterator[Mixed]:
    """Resumes whose two files lie in folders of two runs, or are those of two steps."""
    by_file: dict[str, list[Setting]] = {}
    for s in read_settings(ws).all:
        if isinstance(s.value, str) and not s.file.good and not s.default and _FILE.match(s.value):
            by_file.setdefault(s.file.name, []).append(s)
    for settings in by_file.values():
        optimizers = [s for s in settings if _OPTIMIZER.search(s.key)]
        weights = [s for s in settings if _WEIGHTS.search(s.key) and not _OPTIMIZER.search(s.key)]
        if len(optimizers) == 1 and len(weights) == 1 and _RESUMES.search(f"{optimizers[0].key} {weights[0].key}"):
            found = Mixed(weights[0], optimizers[0])
            if _apart(str(found.weights.value), str(found.optimizer.value)):
                yield found


def _apart(weights: str, optimizer: str) -> bool:
    """Whether two paths name two runs or two steps; `model/` and `optimizer/` of one checkpoint are one place."""
    a, b = (PurePosixPath(p.replace("\\", "/")) for p in (weights, optimizer))
    steps = [{int(n) for n in _STEP.findall(p.name)} or {int(n) for n in _STEP.findall(p.parent.name)} for p in (a, b)]
    if all(steps) and not steps[0] & steps[1]:
        return True
    return a.parent != b.parent and a.parent.parent == b.parent.parent and not _part(a.parent.name, b.parent.name)


def _part(a: str, b: str) -> bool:
    return any(re.search(r"(?i)optim|model|weight|net|state|ckpt|checkpoint", name) for name in (a, b))


# ----------

_RESUME = re.compile(
    rb"(?i)\b(?:resum(?:e|ed|es|ing)\b|restor(?:ed|ing)\b.{0,40}(?:checkpoint|ckpt|step)|"
    rb"loaded checkpoint|loading checkpoint|"
    rb"load(?:ed|ing)? .{0,60}checkpoint.{0,80} at iteration|continuing training|continue from)"
)
_RESUME_STEP = re.compile(rb"(?i)(?:step|iter(?:ation)?|global_step|checkpoint-|step[_-])\s*[:=]?\s*(\d{1,9})")
_NOT_RESUME = re.compile(
    rb"(?i)checkpoint shards"
    rb"|resum\w{0,3}(?:[ _]from)?(?:_checkpoint)?[\"']?\s*[:= ]\s*[\"']?(?:none|null|false|nothing)\b"
    rb"|resum\w{0,3}(?:_\w{1,30})?[\"']?\s*[:=]\s*[\"']?(?:true|yes|no|auto|latest|must|allow|[01])\b"
)
_RESTORED = re.compile(rb"(?i)restored all states")
_ONLY_WEIGHTS = re.compile(rb"(?i)\bloaded (?:model )?weights from\b")  # what was begun as a restoring: to evaluate
_DATA = re.compile(rb"(?i)\b(?:shards?|data ?loader|dataset|sampler|offset|streaming|file|epoch)\b|Loader")
_NUMBERS = re.compile(rb"\d+")
_STAMP = re.compile(rb"^\s*\[?\d{4}-\d\d-\d\d[T ][\d:.,]+\w*\]?|^\s*\[?\d\d:\d\d:\d\d[.,\d]*\]?")
_MAX_LINES = 5_000
_BESIDE, _AT_ONCE = 20, 2  # lines


@dataclass
class Restart:
    """A line that says training went on from a checkpoint, and the step it names."""

    file: RunFile
    line: Line
    step: float | None
    data_again: Line | None = None  # the first data line after it, when it says the same as at the very start
    whole: Line | None = None  # the word that all states are back


def restarts(file: RunFile, lines: Iterable[Line]) -> list[Restart]:
    """Resume lines of a log in order, each with the data position that started over after it, if one did."""
    found: list[Restart] = []
    opened: dict[bytes, list[tuple[int, bytes]]] = {}
    for line in lines:
        data = line.data
        if len(data) > 2000:
            continue
        if _RESUME.search(data) and not _NOT_RESUME.search(data):
            step = _RESUME_STEP.search(data)
            found.append(Restart(file, line, float(step[1]) if step else None))
            if len(found) > 50:
                break
        elif found and line.number - found[-1].line.number <= _AT_ONCE and _ONLY_WEIGHTS.search(data):
            found.pop()
        elif _DATA.search(data) and _NUMBERS.search(data) and len(opened) < _MAX_LINES:
            _note(opened, found, line)
    return found


def _note(opened: dict[bytes, list[tuple[int, bytes]]], found: list[Restart], line: Line) -> None:
    """Remember a line about data by its wording; tell the latest restart when its numbers began anew."""
    text = _STAMP.sub(b"", line.data).strip()
    template = _NUMBERS.sub(b"#", text)
    numbers = b" ".join(_NUMBERS.findall(text))
    earlier = opened.setdefault(template, [])
    since = found[-1].line.number if found else 0
    first_since = bool(found) and not any(number > since for number, _ in earlier)
    if found and first_since and found[-1].data_again is None and earlier:
        moved_on = len({n for _, n in earlier}) > 1
        if moved_on and numbers == earlier[0][1]:
            found[-1].data_again = line
    if len(earlier) < 2_000:
        earlier.append((line.number, numbers))


def all_restarts(ws: Workspace) -> list[Restart]:
    """Resume lines of all logs, in the words of libraries and in those of the program itself; looked for once."""
    return ws.memo("restarts", lambda: _all_restarts(ws))


def _all_restarts(ws: Workspace) -> list[Restart]:
    own = {(r.file.name, r.line.number): r for r in resumed_by_code(ws)}
    logs = [f for f in ws.by_role("log") if f.size < 64 << 20]
    said = [r for f in logs for r in restarts(f, ws.lines(f)) if not _weights_alone(ws, r, own)]
    known = {(r.file.name, r.line.number) for r in said}
    more = [Restart(r.file, r.line, r.step) for place, r in own.items() if place not in known]
    found: list[Restart] = []
    for r in sorted(said + more, key=lambda r: (r.file.name, r.line.number)):
        if found and _one_resume(found[-1], r):
            found[-1].step = r.step if found[-1].step is None else found[-1].step
            found[-1].data_again = found[-1].data_again or r.data_again
            found[-1].whole = r.line if _RESTORED.search(r.line.data) else found[-1].whole
        else:
            found.append(r)
    return found


def _one_resume(a: Restart, b: Restart) -> bool:
    """Whether two lines tell of one resume in different words."""
    near = a.file.name == b.file.name and b.line.number - a.line.number <= _BESIDE
    words = [_NUMBERS.sub(b"#", _STAMP.sub(b"", r.line.data)) for r in (a, b)]
    return near and words[0] != words[1] and (a.step is None or b.step is None or a.step == b.step)


def _weights_alone(ws: Workspace, r: Restart, own: dict[tuple[str, int], Resumed]) -> bool:
    """Whether a line that speaks of a checkpoint was printed where the program loads no state of a training."""
    if (r.file.name, r.line.number) in own or b"resum" in r.line.data.lower():
        return False
    return ws.ran.statement(r.file, strip(r.line.text).body) is not None


def restored_findings(ws: Workspace) -> Iterator[Finding]:
    """`resume.restored`: what the code that a resume went through loads, at the line that loads the optimizer."""
    for by in {id(r.by): r.by for r in resumed_by_code(ws)}.values():
        file = next((f for f in ws.files if f.name == by.file), None)
        wanted = by.parts.get("optimizer") or next(iter(by.parts.values()))
        line = next((x for x in ws.lines(file) if x.number == wanted), None) if file is not None else None
        if line is not None:
            yield Finding("resume.restored", ", ".join(sorted(by.parts)), file=file, line=line)


def skip_findings(ws: Workspace, all_restarts: Sequence[Restart]) -> Iterator[Finding]:
    """`resume.data_skip_off`: a run that was resumed was told not to pass over the batches it had trained on."""
    for s in read_settings(ws).asked("ignore_data_skip") if all_restarts else ():
        if s.value is True and not s.file.good:
            yield Finding("resume.data_skip_off", True, file=s.file, line=s.line)


def part_findings(ws: Workspace) -> Iterator[Finding]:
    """`resume.optimizer_elsewhere`: the optimizer's state is taken from another run or step than the weights."""
    for mixed in mixed_parts(ws):
        for s in (mixed.weights, mixed.optimizer):
            yield Finding("resume.optimizer_elsewhere", mixed.says, file=s.file, line=s.line)


def restart_findings(all_restarts: Iterable[Restart]) -> Iterator[Finding]:
    """Every resume with its step, and the data lines that began again after it."""
    for restart in all_restarts:
        value = plain(restart.step) if restart.step is not None else True
        yield Finding("resume.from_step", value, file=restart.file, line=restart.line)
        if restart.whole is not None:
            yield Finding("resume.restored", "all states", file=restart.file, line=restart.whole)
        if restart.data_again is not None:
            yield Finding("resume.data_restarted", True, file=restart.file, line=restart.data_again)


def beside_findings(series: Sequence[Series], all_restarts: Iterable[Restart]) -> Iterator[Finding]:
    """`resume.loss_before` and `resume.loss_after`: the losses next to a resume in its log."""
    for restart in all_restarts:
        logs = [s for s in series if s.metric == "loss" and s.file.name == restart.file.name and not s.rl]
        for curve in [Curve(max(logs, key=lambda s: s.count))] if logs else []:
            at = int(np.searchsorted(curve.series.offsets[curve.index], restart.line.offset))
            if 0 < at < len(curve):
                yield curve.at("resume.loss_before", plain(curve.values[at - 1]), at - 1)
                yield curve.at("resume.loss_after", plain(curve.values[at]), at)


def resumed_elsewhere(series: Sequence[Series], all_restarts: Iterable[Restart]) -> Iterator[Finding]:
    """A resumed run that has a log of its own, against the end of the only other log: rate and loss should go on."""
    marked = {r.file.name for r in all_restarts}
    for metric in ("learning_rate", "loss"):
        own = [s for s in series if s.metric == metric and s.finite.any() and not s.file.good]
        logs = [s for s in own if s.file.role == "log"]  # what a logger kept beside them says the same once more
        curves = {s.file.name: Curve(s) for s in (logs if len({s.file.name for s in logs}) > 1 else own)}
        if len(curves) != 2:
            continue
        later = [name for name in curves if name in marked] or _taken_up(curves)
        if len(later) != 1:
            continue
        before, after = (curves[next(name for name in curves if name != later[0])], curves[later[0]])
        at = _place_of(before, after)
        end, start = float(before.values[at]), float(after.values[0])
        if metric == "learning_rate" and end > 0 and not 0.4 < start / end < 2.5:
            yield after.at("resume.lr_reset", plain(start), 0)
            yield before.at("resume.lr_before", plain(end), at)
        elif metric == "loss" and end > 0 and start > 1.3 * end:
            yield after.at("resume.curve_jump", plain(round(start / end, 4)), 0)


def _taken_up(curves: dict[str, Curve]) -> list[str]:
    """The log that begins in mid-run, at steps that the other, which began at the start, reached or comes to next."""
    found = []
    for name, curve in curves.items():
        other = next(c for n, c in curves.items() if n != name)
        if not (curve.series.stepped and other.series.stepped) or len(other) < 5:
            continue
        first, last, each = float(curve.steps[0]), float(other.steps[-1]), float(np.median(np.diff(other.steps)))
        if each > 0 and other.steps[0] <= 2 * each and 0.2 * last < first <= last + 2 * each and first > 10 * each:
            found.append(name)
    return found


def _place_of(before: Curve, after: Curve) -> int:
    """Where a curve was left by the one that goes on from it: at its end, or at the step where the other begins."""
    if not (before.series.stepped and after.series.stepped) or after.steps[0] <= before.steps[0]:
        return len(before) - 1
    return max(0, int(np.searchsorted(before.steps, after.steps[0], side="right")) - 1)


def resume_findings(group: Group, begun: Mapping[str, Sequence[int]] | None = None) -> Iterator[Finding]:
    """Curves across a step that went back: was the way taken again the same, did the schedule start over?

    Args:
        begun: lines of a file at which something failed or began anew.
    """
    for metric in ("loss", "eval_loss", "grad_norm", "learning_rate", "eval_perplexity"):
        curve = group.curve(metric)
        if curve is None or not curve.series.stepped or len(curve) < 4:
            continue
        if metric.startswith("eval") and group.curve("loss") is not None:
            continue  # the counter of evaluations is not that of training
        falls = np.flatnonzero(np.diff(curve.steps) < 0) + 1
        lines = curve.series.lines[curve.index]
        told = (begun or {}).get(curve.series.file.name, ())
        marked = any(lines[at - 1] <= n <= lines[at] for at in falls[:50] for n in told)
        for at in falls[:5] if marked or not _of_epochs(curve.steps, falls) else ():
            yield from _across(metric, curve, int(at))


def _of_epochs(steps: np.ndarray, falls: np.ndarray) -> bool:
    """Whether a counter begins anew again and again after as many steps: it counts within epochs."""
    back = steps[falls - 1] - steps[falls]
    return len(falls) > 1 and bool(np.ptp(back) <= 0.05 * back.max())


def _across(metric: str, curve: Curve, at: int) -> Iterator[Finding]:
    steps, values = curve.steps, curve.values
    if steps[at] <= max(1, 0.02 * steps[at - 1]) and steps[at - 1] > 20:
        if metric in ("loss", "eval_loss"):
            yield curve.at("resume.step_reset", plain(steps[at]), at)
        return
    before = (steps[:at] >= steps[at]) if (steps[:at] >= steps[at]).sum() >= 3 else (np.arange(at) >= at - 5)
    old, new = values[:at][before], values[at : at + max(3, int(before.sum()))]
    if len(old) < 3 or len(new) < 2:
        return
    if metric == "learning_rate":
        if old[-1] > 0 and abs(new[0] - old[0]) > 0.2 * old[0] and not min(old) * 0.8 <= new[0] <= max(old) * 1.25:
            yield curve.at("resume.lr_reset", plain(new[0]), at)
        return
    gap = float(np.median(new[:5]) - np.median(old))
    spread = max(noise(values[:at]), mad(old), 0.01 * abs(float(np.median(old))))
    if abs(gap) > 6 * spread and abs(gap) > 0.1 * abs(float(np.median(old))) and metric != "grad_norm":
        yield curve.at("resume.curve_jump", plain(round(float(np.median(new[:5]) / np.median(old)), 4)), at)


# ----------
# A log that names loaded weights, and whose first loss is that of a model that was never trained.

_LOADED = re.compile(
    rb"(?i)\bload(?:ed|ing)\b.{0,80}(?:checkpoint|ckpt|state.?dict|\bweights\b|pretrained|\.pth?\b|\.safetensors|\.bin\b)"
    rb"|\binit\w* (?:model )?from .{0,60}(?:checkpoint|ckpt|pretrain)"
)
_WEIGHTS_FROM = re.compile(
    r"(?i)(?:^|\s)(?:(?:init\w*|warm\w*|starting|weights|parameters)\b(?:.{0,60}\s)?from:?|load\w*(?:.{0,60}\sfrom:?)?)"
    r"\s['\"]?(?P<path>[^\s'\"]+\.(?:pth?|bin|ckpt|safetensors|npz|pkl|tar))\b"
)
_HEAD = 2000  # lines before the first loss
_EARLY, _ABOVE = 10, 1.3  # steps at which a first loss is that of the weights as they came; above that of new ones
_NEAR, _SAME, _FELL = 0.03, 0.03, 0.7


def loaded_findings(ws: Workspace, series: Sequence[Series], settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    """`loss.as_untrained`: weights are said to be loaded, and the loss starts at ln(vocabulary), or where another
    log of the same runs started that loads nothing and has learned since."""
    curves = [
        Curve(s) for s in series if s.metric == "loss" and s.file.role == "log" and s.finite.any() and not s.rl
    ]  # fmt: skip
    sizes = {s.value for s in settings if s.name == "vocab_size" and s.value > 1000}
    loading = {id(c): _loads(ws, c) for c in curves[:24]}
    for curve in curves[:24]:
        first = float(curve.values[0])
        if not loading[id(curve)] or (curve.series.stepped and curve.steps[0] > 50) or first < 2:
            continue
        chance = any(abs(first - math.log(n)) < _NEAR * math.log(n) for n in sizes)
        if chance or any(_as(first, other) for other in curves[:24] if not loading[id(other)]):
            yield curve.at("loss.as_untrained", plain(first), 0)


def weights_findings(ws: Workspace) -> Iterator[Finding]:
    """`resume.weights_from`: the file that a log says its weights come from."""
    told = set[tuple[str, str]]()
    for file, line in heads(ws):
        m = _WEIGHTS_FROM.search(line.text[:600]) if b"from" in line.data or b"oad" in line.data else None
        if m is not None and (file.name, m["path"]) not in told and len(told) < _MOST:
            told.add((file.name, m["path"]))
            yield Finding("resume.weights_from", m["path"], file=file, line=line)


def worse_findings(ws: Workspace, series: Sequence[Series]) -> Iterator[Finding]:
    """`loss.above_untrained`: weights are said to be loaded, and the loss starts far above where new models started."""
    for metric in ("loss", "eval_loss"):
        logs = [s for s in series if s.metric == metric and s.file.role == "log" and s.finite.any() and not s.rl]
        begun = [c for c in map(Curve, logs[:24]) if c.series.stepped and c.steps[0] <= _EARLY]
        fresh = [float(c.values[0]) for c in begun if not _loads(ws, c)]
        for curve in begun if fresh else ():
            if float(curve.values[0]) > _ABOVE * max(fresh) and _loads(ws, curve):
                yield curve.at("loss.above_untrained", plain(curve.values[0]), 0)


def _as(first: float, other: Curve) -> bool:
    """Whether another curve began at this loss, as new models do, and then learned."""
    start, end = float(other.values[0]), float(other.values[-1])
    fresh = not other.series.stepped or other.steps[0] <= 50
    return fresh and abs(first - start) < _SAME * start and end < _FELL * start


def _loads(ws: Workspace, curve: Curve) -> bool:
    """Whether a line before the first loss of a log says that weights were loaded."""
    until = int(curve.series.offsets[curve.index[0]])
    for line in ws.lines(curve.series.file):
        if line.offset >= until or line.number > _HEAD:
            return False
        if _LOADED.search(line.data[:2000]) or _WEIGHTS_FROM.search(line.text[:600]):
            return True
    return False


# ----------
# Two logs that went through the same steps: a resume that met other batches, and a loss that is a multiple.

_SHARED = 5  # steps
_OTHER_BATCH = 0.01  # of the loss, right after the resume: the same batch on the same weights gives less
_SAME_LEVEL = 0.1
_HIGHER = 1.25
_MOST = 12  # logs


def same_step_findings(series: Sequence[Series], all_restarts: Iterable[Restart]) -> Iterator[Finding]:
    """`resume.other_batches` and `variant.loss_higher_in_one_log`, over pairs of logs with one learning rate."""
    losses = [s for s in series if s.metric == "loss" and s.finite.any() and not s.rl and not s.file.good]
    logs = {s.file.name: Curve(s) for s in losses if s.rank in (None, 0) and s.variant is None}
    rates = {s.file.name: Curve(s) for s in series if s.metric == "learning_rate" and s.finite.any()}
    resumed = {r.file.name: r.step for r in all_restarts}
    if len(logs) > _MOST or len(logs) != len({s.file.name for s in losses}):
        return
    for a, b in combinations(logs, 2):
        pair = _shared(logs[a], logs[b])
        if pair is None or not _same_rate(rates.get(a), rates.get(b)):
            continue
        later = b if b in resumed and a not in resumed else a if a in resumed and b not in resumed else None
        if later is None:
            yield from _higher(logs[a], logs[b], pair)
        elif logs[a].series.stepped:
            first, second = (pair[1], pair[0]) if later == a else pair
            yield from _other_batches(logs[a if later == b else b], first, logs[later], second)


def _shared(a: Curve, b: Curve) -> tuple[np.ndarray, np.ndarray] | None:
    """Places of the steps that both have; None where they are few, or one of them has steps twice."""
    if a.series.stepped != b.series.stepped:
        return None
    if any(len(np.unique(c.steps)) < len(c) for c in (a, b)):
        return None
    _, at_a, at_b = np.intersect1d(a.steps, b.steps, assume_unique=True, return_indices=True)
    return (at_a, at_b) if len(at_a) >= _SHARED else None


def _same_rate(a: Curve | None, b: Curve | None) -> bool:
    """Whether both logs have a learning rate and it is the same at the steps both have."""
    pair = _shared(a, b) if a is not None and b is not None else None
    if pair is None or a is None or b is None:
        return False
    return bool(np.allclose(a.values[pair[0]], b.values[pair[1]], rtol=0.02, atol=0))


def _other_batches(through: Curve, first: np.ndarray, later: Curve, second: np.ndarray) -> Iterator[Finding]:
    """The run that was resumed differs from its first step on, and its level is the same: the batches are others."""
    if second[0] > 2 or first[0] == 0:
        return  # not the steps right after the resume, or the other log has none before it
    one, other = through.values[first], later.values[second]
    apart = np.abs(one - other) / np.maximum(np.abs(one), 1e-9)
    level = abs(float(np.median(other) / np.median(one)) - 1) if np.median(one) > 0 else 1.0
    if apart[0] > _OTHER_BATCH and float(np.median(apart)) > _OTHER_BATCH and level < _SAME_LEVEL:
        yield through.at("resume.other_batches", plain(float(through.steps[first[0]])), int(first[0]))
        yield later.at("resume.other_batches", plain(float(later.steps[second[0]])), int(second[0]))


def _higher(a: Curve, b: Curve, pair: tuple[np.ndarray, np.ndarray]) -> Iterator[Finding]:
    """One log's loss is a multiple of the other's over the steps they share."""
    one, other = a.values[pair[0]], b.values[pair[1]]
    if min(one.min(), other.min()) <= 0:
        return
    logs = np.log(other / one)
    ratio = float(np.exp(abs(np.mean(logs))))
    if ratio < _HIGHER or abs(float(np.mean(logs))) < 3 * mad(logs) / np.sqrt(len(logs)):
        return
    high, low = (b, a) if np.mean(logs) > 0 else (a, b)
    for curve in (high, low):
        yield curve.at("variant.loss_higher_in_one_log", plain(round(ratio, 3)), 0)
