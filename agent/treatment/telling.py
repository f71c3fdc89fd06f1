"""What a patch says of itself: its changes in words, what it risks, and how to see afterwards that it holds."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from ..patching import REMOVE, Edit
from ..playbook import KNOWLEDGE, Fix
from .recipe import MICRO, STEPS, Recipe

SHOWN = 160  # characters of an old or new value


@cache
def _table() -> dict[str, Any]:
    return yaml.load(
        (KNOWLEDGE / "treatment.yaml").read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )


def groups() -> list[list[str]]:
    """Settings that are changed together or not at all."""
    return _table()["together"]


def edit_told(edit: Edit) -> str:
    """One change: `micro_batch_size: 8 -> 4 (line 12)`."""
    old, new = (" ".join(text.strip(" \t\r\n\\,").split())[:SHOWN] for text in (edit.old, edit.new))
    said = f"{old} -> {new}" if old and new else f"{new} put in" if new else f"{old} taken out"
    return f"{edit.name}: {said} (line {edit.line})"


def risk(fix: Fix, wanted: Recipe) -> str:
    """What the repair may cost: its own words, else what is known of its settings and variables."""
    if fix.risk:
        return fix.risk
    table = _table()
    known, before = table["risks"], wanted.before
    if {MICRO, STEPS} == wanted.values.keys():
        return known[MICRO]["kept"]
    told = [
        _fitting(known.get(name, {}), value, before.get(name), fix.settings.get(name))
        for name, value in wanted.values.items()
    ]
    told += [table["variables"].get(variable, "") for variable in fix.env]
    return " ".join(dict.fromkeys(filter(None, told)))


def _fitting(by: dict[str, str], value: Any, before: Any, change: Any) -> str:
    if value is REMOVE or value is False:
        return by.get("disabled") or by.get("any", "")
    if isinstance(value, bool | str):
        return by.get("enabled") or by.get("any", "")
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (value, before))
    way = ("up" if value > before else "down") if numbers else _bound(change)
    return by.get(way) or by.get("any", "")


def _bound(change: Any) -> str:
    """The way a bound moves a number that is not known."""
    if getattr(change, "at_least", None) is not None:
        return "up"
    return "down" if getattr(change, "at_most", None) is not None else "enabled"


def shows(wanted: Recipe) -> str:
    """What to look at after the next start; empty where nothing is known."""
    told = [_table()["shows"][name] for name in wanted.values if name in _table()["shows"]]
    return f"After the start look for {', and '.join(told[:2])}." if told else ""


def changes_told(wanted: Recipe) -> list[str]:
    """What a repair sets, one sentence for each setting."""
    told = []
    for name, value in wanted.values.items():
        before = wanted.before.get(name)
        now = "" if before is None else f" (now {before})"
        told.append(f"Take {name} out{now}." if value is REMOVE else f"Set {name} to {value}{now}.")
    return told


def settled_text(wanted: Recipe) -> str:
    """Says that the run has all of a repair, or that nothing shows whether what should be off is on by default."""
    unset = [name for name, value in wanted.values.items() if value is False and wanted.before[name] is None]
    held = [f"{n} {'off' if v is REMOVE else v}" for n, v in wanted.values.items() if n not in unset]
    told = [f"The run has this already ({', '.join(held)})."] if held else []
    if unset:
        told.append(f"No file of the run sets {', '.join(unset)}: where it is on by default, set it to off.")
    return " ".join(told)
