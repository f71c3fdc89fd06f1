"""Restarts and resumes inside a run: did the step, the curve, the learning rate or the data start over?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...workspace import Workspace
from ..files import Line, RunFile
from ..resume_parts import mixed_parts
from ..series import Series
from ..settings import read_settings
from ..shape import mad, noise
from .finding import Curve, Finding, Group, plain

_RESUME = re.compile(
    rb"(?i)\b(?:resum(?:e|ed|es|ing)\b|restor(?:ed|ing)\b.{0,40}(?:checkpoint|ckpt|step)|"
    rb"loaded checkpoint|loading checkpoint|"
    rb"load(?:ed|ing)? .{0,60}checkpoint.{0,80} at iteration|continuing training|continue from)"
)
_STEP = re.compile(rb"(?i)(?:step|iter(?:ation)?|global_step|checkpoint-|step[_-])\s*[:=]?\s*(\d{1,9})")
_NOT_RESUME = re.compile(
    rb"(?i)checkpoint shards"
    rb"|resum\w{0,3}(?:[ _]from)?(?:_checkpoint)?[\"']?\s*[:= ]\s*[\"']?(?:none|null|false|nothing)\b"
)
_DATA = re.compile(rb"(?i)\b(?:shards?|data ?loader|dataset|sampler|offset|streaming|file|epoch)\b|Loader")
_NUMBERS = re.compile(rb"\d+")
_STAMP = re.compile(rb"^\s*\[?\d{4}-\d\d-\d\d[T ][\d:.,]+\w*\]?|^\s*\[?\d\d:\d\d:\d\d[.,\d]*\]?")
_MAX_LINES = 5_000


@dataclass
class Restart:
    """A line that says training went on from a checkpoint, and the step it names."""

    file: RunFile
    line: Line
    step: float | None
    data_again: Line | None = None  # the first data line after it, when it says the same as at the very start


def restarts(file: RunFile, lines: Iterable[Line]) -> list[Restart]:
    """Resume lines of a log in order, each with the data position that started over after it, if one did."""
    found: list[Restart] = []
    opened: dict[bytes, list[tuple[int, bytes]]] = {}
    for line in lines:
        data = line.data
        if len(data) > 2000:
            continue
        if _RESUME.search(data) and not _NOT_RESUME.search(data):
            step = _STEP.search(data)
            found.append(Restart(file, line, float(step[1]) if step else None))
            if len(found) > 50:
                break
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
    """Resume lines of all logs; looked for once."""
    return ws.memo(
        "restarts", lambda: [r for f in ws.by_role("log") if f.size < 64 << 20 for r in restarts(f, ws.lines(f))]
    )


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
        if restart.data_again is not None:
            yield Finding("resume.data_restarted", True, file=restart.file, line=restart.data_again)


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


def resume_findings(group: Group) -> Iterator[Finding]:
    """Curves across a step that went back: was the way taken again the same, did the schedule start over?"""
    for metric in ("loss", "eval_loss", "grad_norm", "learning_rate", "eval_perplexity"):
        curve = group.curve(metric)
        if curve is None or not curve.series.stepped or len(curve) < 4:
            continue
        for at in (np.flatnonzero(np.diff(curve.steps) < 0) + 1)[:5]:
            yield from _across(metric, curve, int(at))


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
