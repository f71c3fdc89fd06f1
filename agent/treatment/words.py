"""A repair in words: what to set to what, and where the run sets it now."""

from __future__ import annotations

from .. import wording
from ..playbook import Fix, SettingChange
from ..predicates import Facts, judge
from ..report import ReportFix


def fitting(fix: Fix, facts: Facts) -> bool:
    """Whether a repair is for this form of the failure."""
    return all(judge(p, facts).state == "true" for p in fix.when)


def in_words(fix: Fix, facts: Facts) -> ReportFix:
    """The repair of a playbook, before any file is looked at."""
    changes = [_change(name, change, facts) for name, change in fix.settings.items()]
    return ReportFix(
        title=fix.title,
        finds=fix.finds,
        why=sentences(fix.why, fix.text, *changes),
        risk=fix.risk,
        commands=[*(set_in_shell(*variable) for variable in fix.env.items()), *fix.commands],
        verify=f"doctor tool {fix.verify.replace('_', '-')}" if fix.verify else "",
    )


def set_in_shell(name: str, value: str | None) -> str:
    """The command that gives a variable its value, or takes it out."""
    return f"unset {name}" if value is None else f"export {name}={value}"


def sentences(*parts: str) -> str:
    """Parts as sentences behind each other; each ends."""
    told = (part.strip() for part in parts if part.strip())
    return " ".join(part if part.endswith((".", "!", "?", ":", ")")) else f"{part}." for part in told)


def _change(name: str, change: SettingChange | bool | int | float | str, facts: Facts) -> str:
    """A setting's change as a sentence, with where the run sets it now."""
    found = facts.get(f"settings.asked.{name}")
    now = next((e for e in found if e.kind == "line"), None)
    at = f" (the run: {now.value} in {wording.place(now)})" if now else ""
    if not now and found:
        at = f" (not set in {', '.join((found[0].searched or [])[:3])})"
    if not isinstance(change, SettingChange):
        return f"Set {name} to {change}{at}."
    if change.remove:
        return f"Remove {name}{at}."
    if change.product_of:
        return f"Set {name} to {' x '.join(change.product_of)}{at}."
    if change.at_least is not None or change.at_most is not None:
        bound = f"at least {change.at_least:g}" if change.at_least is not None else f"at most {change.at_most:g}"
        return f"Set {name} to {bound}{at}."
    if change.multiply is None and change.set is None:
        return f"Set {name} to what the evidence asks for{at}."
    if change.multiply is None:
        return f"Set {name} to {change.set}{at}."
    if now and isinstance(now.value, int | float) and not isinstance(now.value, bool):
        value = now.value * change.multiply
        return f"Set {name} to {max(1, round(value)) if isinstance(now.value, int) else f'{value:g}'}{at}."
    return f"Multiply {name} by {change.multiply:g}{at}."
