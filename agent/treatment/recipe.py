"""A playbook's recipe in the numbers of this run: what each setting has to become."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..patching import REMOVE
from ..playbook import Fix, SettingChange
from ..reading.settings_map import settings_map

MICRO, STEPS = "micro_batch_size", "gradient_accumulation_steps"
Now = Callable[[str], Any]
Measured = Callable[[str, str], Any]
Change = SettingChange | bool | int | float | str


class _Differs:
    """Says that places of a run do not agree on a setting: equal to nothing, no number."""

    def __repr__(self) -> str:
        return "different values"


DIFFERS: Final = _Differs()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Canonical setting -> value (or `REMOVE`), what it is now, and what could not be turned into a number."""

    values: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether the run has all of it already."""
        return bool(self.values) and not self.open and all(same(self.before[n], v) for n, v in self.values.items())


def same(now: Any, wanted: Any) -> bool:
    """Whether a setting has its value already. What stands nowhere is off."""
    if wanted is REMOVE:
        return now in (None, False)
    if isinstance(wanted, bool):
        return now is wanted or (now is None and not wanted)
    return now == wanted and not isinstance(now, bool)


def recipe(fix: Fix, now: Now, measured: Measured = lambda amount, name: None) -> Recipe:
    """The settings of a repair, computed from what holds now.

    Args:
        now: the value of a canonical setting, None where it is not known, `DIFFERS` where places do not agree.
        measured: the value that the evidence gives a setting, by the name of the amount; None where it gives none.
    """
    made = Recipe()
    pair = _batch_kept(fix.settings, now, made)
    for asked, change in fix.settings.items():
        if asked in pair:
            continue
        name, change = _in_steps(asked, change, now)
        before = now(name)
        amount = change.amount if isinstance(change, SettingChange) else ""
        told = measured(amount, name) if amount else None
        value = _value(name, change, now) if told is None else told
        if value is None:
            why = "differs between files" if before is DIFFERS else "is not known"
            if not amount:  # what the evidence does not tell is for another form of the failure
                made.open[name] = f"what {name} is now {why}"
        elif told is None and isinstance(value, str) and "<" in value:
            made.open[name] = f"{name} depends on your site: {value}"
        else:
            made.values[name], made.before[name] = value, before
    return made


def _batch_kept(settings: Mapping[str, Change], now: Now, made: Recipe) -> tuple[str, ...]:
    """Micro-batch and accumulation changed against each other so that their product stays, where both are asked for."""
    factors = [getattr(settings.get(name), "multiply", None) for name in (MICRO, STEPS)]
    if None in factors or not factors[0] or abs(factors[0] * factors[1] - 1) > 1e-9:
        return ()
    micro, steps = now(MICRO), now(STEPS) or 1
    if not _whole(micro) or not _whole(steps):
        made.open[MICRO] = f"the micro-batch {'differs between files' if micro is DIFFERS else 'is not known'}"
        return MICRO, STEPS
    micro, steps = int(micro), int(steps)
    smaller, larger = (micro, steps) if factors[0] < 1 else (steps, micro)
    share = min(f for f in factors if f)
    fitting = [d for d in range(1, smaller) if smaller % d == 0 and d <= max(1, smaller * share)]
    if not fitting:
        name = MICRO if factors[0] < 1 else STEPS
        made.open[name] = f"{name} is {smaller} already: the global batch cannot be kept with less"
        return MICRO, STEPS
    less, more = fitting[-1], larger * (smaller // fitting[-1])
    values = (less, more) if factors[0] < 1 else (more, less)
    made.values.update(zip((MICRO, STEPS), values, strict=True))
    made.before.update({MICRO: micro, STEPS: steps})
    return MICRO, STEPS


def _whole(value: Any) -> bool:
    """A count, also where the setting's type allows a share."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < 1 << 24 and float(value).is_integer()


def _in_steps(name: str, change: Change, now: Now) -> tuple[str, Change]:
    """A share of the run as steps, where the run counts its warmup in steps: newer trainers take nothing else."""
    total, steps = now("max_steps"), now("warmup_steps")
    least = change.at_least if isinstance(change, SettingChange) else None
    if name != "warmup_ratio" or least is None or not _whole(total) or (now(name) and not steps):
        return name, change
    return "warmup_steps", SettingChange(at_least=max(1, round(least * total)))


def _value(name: str, change: Change, now: Now) -> Any:
    """What a setting has to become; None where that cannot be computed."""
    if not isinstance(change, SettingChange):
        return change
    if change.remove:
        return REMOVE
    if change.product_of:
        factors = [now(other) for other in change.product_of]
        return math.prod(map(int, factors)) if all(map(_whole, factors)) else None
    before = now(name)
    number = isinstance(before, int | float) and not isinstance(before, bool)
    if change.at_least is not None:
        return before if number and before >= change.at_least else _typed(name, change.at_least)
    if change.at_most is not None:  # 0 and below switch a bound off
        return before if number and 0 < before <= change.at_most else _typed(name, change.at_most)
    if change.multiply is None:
        return change.set
    if not number or before <= 0:  # -1 stands for no limit
        return None
    return _typed(name, before * change.multiply, least=1)


def _typed(name: str, value: float, least: int = 0) -> int | float:
    """A number in the setting's own type; a computed share or rate keeps two digits."""
    if settings_map().canonical[name].type in ("int", "seconds"):
        return max(least, int(value))
    return float(f"{value:.2g}")
