"""Variants of a run side by side: who ended where, and ratios that equal a setting."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import PurePosixPath

import numpy as np

from ...run.files import RunFile
from ...run.metric_names import meaning, normal, setting
from ...run.workspace import Workspace
from ...settings.settings import PlainSetting, read_settings
from ...settings.sides import is_part
from ..curves import heads
from ..formats.metric_tables import SweepRow
from ..series import Series
from .finding import Curve, Finding, plain

_COMPARED = {
    "loss": False, "eval_loss": False, "eval_perplexity": False, "perplexity": False, "grad_norm": None, "reward": True,
    "eval_reward": True, "accuracy": True, "eval_accuracy": True, "success": True, "throughput": True, "tflops": True,
    "step_time": False, "initial_loss": False,
}  # fmt: skip
_MAX_VARIANTS = 16
_APART = 0.05  # share by which two outcomes differ
_PACES, _SLOWER = ("throughput", "tflops", "step_time"), 0.15  # and two paces, which vary by themselves
_WHOLE = 0.9  # of the steps of the longest, from which a run went as far as the others
_AT = re.compile(r"_at_.*$|_?(?:step|iter|epoch)_?\d+$")
_LOADS = re.compile(r"(?i)load|resum|restor|\binit|warm|weights|pretrain|checkpoint|ckpt|\bbase\b|from")
_COARSE = {"world_size", "global_batch_size", "micro_batch_size"}


def variant_findings(ws: Workspace, series: Sequence[Series], settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    """Outcome of each variant, best and worst, and exact ratios between them."""
    by_metric: dict[str, dict[str, Series]] = defaultdict(dict)
    for s in series:
        if s.metric in _COMPARED and s.copy_of is None and s.finite.any() and (s.rank or 0) == 0:
            held = by_metric[s.metric].get(s.label)
            if held is None or s.count > held.count:
                by_metric[s.metric][s.label] = s
    begun = _begun_from(ws, {c.file for curves in by_metric.values() for c in curves.values()})
    for metric, every in by_metric.items():
        curves = {label: s for label, s in every.items() if s.file.name not in begun}
        if not 2 <= len(curves) <= _MAX_VARIANTS or not _comparable(curves):
            continue
        yield from _outcomes(metric, curves)
        yield from _ratios(metric, curves, settings)
        yield from _identical(metric, curves)
    yield from _eval_alone(by_metric["eval_loss"], by_metric["loss"])
    yield from _finite_elsewhere(series)


def _begun_from(ws: Workspace, files: set[RunFile]) -> set[str]:
    """Files of runs that another of them began from: its log or its settings say that it loads what lies there."""
    homes = {f: PurePosixPath(f.name).parent.as_posix() for f in files}
    if len(set(homes.values()) - {"."}) < 2:
        return set()
    said = [(log.name, line.text[:2000]) for log, line in heads(ws) if b"/" in line.data]
    said += [(s.file.name, f"{s.key} {s.value}") for s in read_settings(ws).all if isinstance(s.value, str)]
    loads = [(name, text) for name, text in said if _LOADS.search(text)]
    found = set[str]()
    for file, home in homes.items():
        others = tuple(f"{h}/" for h in homes.values() if h not in (".", home))
        if home != "." and any(f"{home}/" in text and name.startswith(others) for name, text in loads):
            found.add(file.name)
    return found


def _identical(metric: str, curves: dict[str, Series]) -> Iterator[Finding]:
    """Two variants with the same numbers to the last digit: what differs between them has no effect."""
    if metric not in ("loss", "eval_loss", "reward"):
        return
    for a, b in combinations(curves, 2):
        one, other = curves[a].values, curves[b].values
        if len(one) >= 5 and len(one) == len(other) and len(np.unique(one)) >= 4 and np.array_equal(one, other):
            for name in (a, b):
                curve = Curve(curves[name])
                yield curve.at("variant.identical", f"{metric}: {a}, {b}", len(curve) - 1)
            return


def _finite_elsewhere(series: Sequence[Series]) -> Iterator[Finding]:
    """The variant whose training loss is never finite while that of a named sibling always is."""
    held: dict[str, Series] = {}
    for s in series:
        named = s.metric == "loss" and s.count and (s.rank or 0) == 0 and (s.variant or s.file.variant)
        if named and (s.label not in held or s.count > held[s.label].count):
            held[s.label] = s
    broken = [s for s in held.values() if not s.finite.any()]
    sound = [s for s in held.values() if s.finite.all()]
    if broken and sound and len(held) <= _MAX_VARIANTS:
        for s in broken:
            yield Finding("variant.nonfinite_alone", s.label, s, 0)
        yield Finding("variant.finite", sound[0].label, sound[0], 0)


def _comparable(curves: dict[str, Series]) -> bool:
    """Files are variants of one another when they were told to be, or are named alike; ranks are not."""
    named = [s.variant or s.file.variant for s in curves.values()]
    if any(is_part(s.file) for s in curves.values()):
        return False
    if _one_after_another(curves.values()):
        return False
    if all(named):
        return len(set(named)) > 1
    shapes = {
        normal("".join("#" if c.isdigit() else c for c in PurePosixPath(s.file.name).name)) for s in curves.values()
    }
    return len(shapes) == 1 and all(s.rank is None for s in curves.values())


def _one_after_another(curves: Iterable[Series]) -> bool:
    """Whether each goes on where another ended: attempts of one run."""
    order = sorted((s for s in curves if s.stepped), key=lambda s: float(s.steps[0]))
    return len(order) > 1 and all(b.steps[0] >= a.steps.max() for a, b in pairwise(order))


def _last(s: Series) -> tuple[float, int]:
    curve = Curve(s)
    share = curve.values[-max(1, len(curve) // 10) :]
    return float(np.median(share)), len(curve) - 1


def _broken(s: Series) -> bool:
    """Whether it ends in NaN, or in a loss of exactly nothing: what was lost cannot be the better outcome."""
    if not s.finite[-1]:
        return True
    tail = s.values[-max(3, len(s) // 10) :]
    return s.metric == "loss" and not s.rl and len(tail) >= 3 and not tail.any()


def _at_one_step(curves: Sequence[Series]) -> list[float] | None:
    """The value of each at the last step that all have, over the tenth before it; None where there is no such step."""
    if not all(s.stepped for s in curves):
        counts = [len(s) for s in curves]
        return [_last(s)[0] for s in curves] if min(counts) >= _WHOLE * max(counts) else None
    first, last = max(float(s.steps.min()) for s in curves), min(float(s.steps.max()) for s in curves)
    spans = [float(np.ptp(s.steps)) for s in curves]
    if last < first or last - first < 0.5 * min(spans):  # one goes on where the other ended
        return None
    out = []
    for s in curves:
        near = s.finite & (s.steps <= last)
        near &= s.steps >= min(last - 0.1 * (last - first), s.steps[near].max(initial=-np.inf))
        if not near.any():
            return None
        out.append(float(np.median(s.values[near])))
    return out


def worse(one: Sequence[Series], other: Sequence[Series]) -> int | None:
    """Which of two runs came out worse by the first measure that tells: 0, 1, or None where none does.

    They are compared at the same step. One that stopped much earlier is never the better one.
    """
    for metric, more_is_better in _COMPARED.items():
        pair = [
            max((s for s in side if _judged(s, metric)), key=lambda s: s.count, default=None) for side in (one, other)
        ]
        a, b = pair
        if more_is_better is None or a is None or b is None:
            continue
        if _broken(a) or _broken(b):
            if _broken(a) and _broken(b):
                return None
            return 0 if _broken(a) else 1
        values = _at_one_step([a, b])
        apart = _SLOWER if metric in _PACES else _APART
        if values is None or abs(values[0] - values[1]) <= apart * max(map(abs, values)):
            continue
        found = 0 if (values[0] < values[1]) == more_is_better else 1
        lasting = (b, a)[found], (a, b)[found]
        early = lasting[0].steps.max() < _WHOLE * lasting[1].steps.max()
        return None if early else found
    return None


def _judged(s: Series, metric: str) -> bool:
    enough = 1 if metric.startswith(("eval_", "initial_")) else 3
    return s.metric == metric and len(s) >= enough and (s.rank or 0) == 0 and not (s.rl and metric == "loss")


def _outcomes(metric: str, curves: dict[str, Series]) -> Iterator[Finding]:
    if metric == "grad_norm":
        return
    for name, s in curves.items():
        value, at = _last(s)
        first = plain(Curve(s).values[0])
        if s.finite[-1]:
            told = {"variant": name, "metric": metric, "last": plain(round(value, 6)), "first": first}
            yield Curve(s).at("variant.outcome", told, at)
        else:
            yield Finding(
                "variant.outcome", {"variant": name, "metric": metric, "last": "nan", "first": first}, s, len(s) - 1
            )
    if _COMPARED[metric] is not None and not (metric == "loss" and any(s.rl for s in curves.values())):
        yield from _best_and_worst(curves, bool(_COMPARED[metric]))


def _best_and_worst(curves: dict[str, Series], more_is_better: bool) -> Iterator[Finding]:
    """Best and worst of those that went as far as the others, at one step; one that broke is the worst."""
    reached = {name: float(s.steps.max()) if s.stepped else float(len(s)) for name, s in curves.items()}
    broken = [name for name, s in curves.items() if _broken(s)]
    whole = [n for n in curves if n not in broken and reached[n] >= _WHOLE * max(reached.values())]
    values = _at_one_step([curves[n] for n in whole]) if whole else None
    if values is None:
        return
    order = [n for _, n in sorted(zip(values, whole, strict=True), reverse=more_is_better)]
    best, worst = order[0], broken[0] if broken else order[-1]
    a, b = values[whole.index(best)], values[whole.index(order[-1])]
    if best != worst and (broken or abs(a - b) > _APART * max(abs(a), abs(b), 1e-9)):
        for key, name in (("variant.best", best), ("variant.worst", worst)):
            yield Finding(key, name, curves[name], len(curves[name]) - 1)


def _ratios(metric: str, curves: dict[str, Series], settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    """Ratios of the first values that equal a ratio of settings, or a whole number."""
    if metric not in ("loss", "eval_loss", "grad_norm", "perplexity", "eval_perplexity"):
        return
    names = list(curves)
    base_of = {n: Curve(curves[n]) for n in names}
    pairs = []
    for a, b in combinations(names, 2):
        for place, word in ((0, "first"), (-1, "last")):
            low, high = sorted((a, b), key=lambda n: base_of[n].values[place])
            small, big = float(base_of[low].values[place]), float(base_of[high].values[place])
            if small <= 0 or big / small < 1.4:
                continue
            pairs.append((low, high, place, word, big / small))
            break
    told = 0
    for low, high, place, word, ratio in pairs:
        matched = _matching(ratio, base_of[low].series, base_of[high].series, settings)
        whole = "loss" in metric and 1.9 < ratio < 16.5 and abs(ratio / round(ratio) - 1) < 0.005
        if not (matched or whole) or any(base_of[n].series.rl for n in (low, high)) or told >= 4:
            continue
        told += 1
        named = matched[0] if matched else None
        text = {"metric": metric, "ratio": round(ratio, 4), "low": low, "high": high, "at": word, "setting": named}
        key = "eval.loss_ratio_between_variants" if metric == "eval_loss" else "variant.metric_ratio"
        for name in (high, low):
            where = len(base_of[name]) - 1 if place else 0
            yield base_of[name].at(key, plain(round(ratio, 3)), where)
        yield base_of[high].at("variant.ratio", text, len(base_of[high]) - 1 if place else 0)
        if matched:
            yield Finding("loss.proportional_to", matched[0], file=matched[1].file, line=matched[1].line)


def _eval_alone(held: dict[str, Series], train: dict[str, Series]) -> Iterator[Finding]:
    """Variants that train alike and validate apart: the measuring differs, not the learning."""
    for a, b in combinations([n for n in held if n in train][:_MAX_VARIANTS], 2):
        ends = [_last(s)[0] for s in (held[a], held[b], train[a], train[b])]
        if min(ends) > 0 and max(ends[:2]) > 1.4 * min(ends[:2]) and max(ends[2:]) < 1.05 * min(ends[2:]):
            high = held[a] if ends[0] > ends[1] else held[b]
            yield Curve(high).at("eval.differs_while_train_equal", plain(round(max(ends[:2]) / min(ends[:2]), 4)), -1)


def _matching(
    ratio: float, low: Series, high: Series, settings: Sequence[PlainSetting]
) -> tuple[str, PlainSetting] | None:
    """The setting that differs between two variants by the same ratio."""
    of_low, of_high = _settings_of(low, settings), _settings_of(high, settings)
    # More processes go with every layout: a layout that fits as well is the nearer reason.
    for name, there in sorted(of_high.items(), key=lambda item: item[0] in _COARSE):
        here = of_low.get(name)
        base = here.value if here else 1.0
        if base > 0 and there.value != base and abs(there.value / base / ratio - 1) < 0.02:
            return name, there
    return None


def _settings_of(series: Series, settings: Sequence[PlainSetting]) -> dict[str, PlainSetting]:
    """Numbers set in the variant's own log, or in files of the same variant."""
    found: dict[str, PlainSetting] = {}
    for s in settings:
        same = s.file.name == series.file.name or (s.file.variant is not None and s.file.variant == series.file.variant)
        if same and s.name != "learning_rate":  # no rate bears on a first value
            found.setdefault(s.name, s)
    return found


def sweep_findings(file: RunFile, rows: Sequence[SweepRow]) -> Iterator[Finding]:
    """A table of settings against results: outcome per row, and results proportional to a setting."""
    columns = list(dict.fromkeys(c for r in rows for c in r.cells))
    results = [c for c in columns if _is_result(c)]
    knobs = [c for c in columns if c not in results]
    if not results or len(rows) < 2:
        return
    for row in rows[:_MAX_VARIANTS]:
        name = ", ".join(f"{c}={row.cells[c]}" for c in knobs[:4] if c in row.cells)
        for c in results[:3]:
            value = row.cells.get(c)
            if isinstance(value, float):
                told = {"variant": name, "metric": normal(c), "last": plain(value)}
                yield Finding("variant.outcome", told, file=file, line=row.line)
    for result in results:
        yield from _proportional(file, rows, result, knobs)
        yield from _finite_rows(file, rows, result, knobs)


def _finite_rows(file: RunFile, rows: Sequence[SweepRow], result: str, knobs: Sequence[str]) -> Iterator[Finding]:
    """Trials that end in NaN beside trials that do not."""
    broken = [r for r in rows if str(r.cells.get(result)).strip().lower() in ("nan", "inf", "-inf", "-nan")]
    sound = [r for r in rows if isinstance(v := r.cells.get(result), float) and np.isfinite(v)]
    if not broken or not sound or len(rows) > _MAX_VARIANTS:
        return
    for key, found in (("variant.finite", sound), ("variant.nonfinite_alone", broken)):
        for r in found[:2]:
            yield Finding(key, ", ".join(str(r.cells[c]) for c in knobs[:4] if c in r.cells), file=file, line=r.line)


def _is_result(column: str) -> bool:
    """Whether a column holds what came out: a metric, also one taken at some step (`loss_at_100`, `loss_step20`)."""
    found = meaning(column) or meaning(_AT.sub("", column.lower()), True)
    return found is not None and found.metric not in ("step", "epoch") and not setting(column)


def _proportional(file: RunFile, rows: Sequence[SweepRow], result: str, knobs: Sequence[str]) -> Iterator[Finding]:
    about_loss = "loss" in result.lower()
    for knob in knobs:
        name = setting(knob)
        cells = [(r.cells.get(knob), r.cells.get(result), r.line) for r in rows]
        pairs = [(x, y, at) for x, y, at in cells if isinstance(x, float) and isinstance(y, float) and x > 0 and y > 0]
        if len(pairs) < 3 or name in (None, "learning_rate"):
            continue
        x, y = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
        if x.max() < 1.9 * x.min() or y.max() < 1.7 * y.min():
            continue
        quotient = y / x
        exponent = float(np.polyfit(np.log(x), np.log(y), 1)[0])
        if quotient.max() / quotient.min() < 1.35 and abs(exponent - 1) < 0.2:
            low, high = pairs[int(np.argmin(y))], pairs[int(np.argmax(y))]
            key = "loss.proportional_to" if about_loss else "variant.proportional_to"
            yield Finding(key, name, file=file, line=high[2])
            yield Finding(key, name, file=file, line=low[2])
            yield Finding("variant.metric_ratio", plain(round(float(y.max() / y.min()), 3)), file=file, line=high[2])
            return
