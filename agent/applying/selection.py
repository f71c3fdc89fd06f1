"""Which patches of a report are meant: those named, with what belongs to them, or those of its first repair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import UsageError
from ..report import Patch, Report


@dataclass(frozen=True, slots=True)
class Selection:
    """Patches in the order of the report, what to tell about the choice, and titles of repairs left aside."""

    patches: list[Patch]
    told: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Repair:
    """Patches that belong together; `finds` where they only help to find the cause."""

    title: str
    ids: list[str]
    finds: bool = False


def repairs(report: Report) -> list[Repair]:
    """The sets of patches of a report: of each repair that has some, then what belongs to none.

    Raises:
        UsageError: the report contradicts itself.
    """
    known = Counter(p.id for p in report.patches)
    if twice := [i for i, n in known.items() if n > 1]:
        raise UsageError(f"the report has several patches named {twice[0]}", "diagnose the run again")
    found = [Repair(f.named, list(dict.fromkeys(f.patches)), f.finds) for f in report.fixes if f.patches]
    if missing := [i for r in found for i in r.ids if i not in known]:
        raise UsageError(f"the report names a patch {missing[0]} that it does not have", "diagnose the run again")
    within = {i for r in found for i in r.ids}
    return found + [Repair(p.title or p.file, [p.id]) for p in report.patches if p.id not in within]


def select(report: Report, named: Sequence[str] = (), *, only: bool = False) -> Selection:
    """The patches to apply.

    Args:
        named: ids of patches; without any, the first repair that has some, and never what only finds the cause.
        only: leave out what belongs to those named.

    Raises:
        UsageError: the report has no patch, none that repairs, none of that name, or contradicts itself.
    """
    sets = repairs(report)
    if not sets:
        raise UsageError("the report has no patch", "its repairs are in words and commands: `doctor sessions show`")
    if not named:
        repairing = [s for s in sets if not s.finds]
        if not repairing:
            hint = f"take it by name to see more: `doctor apply {report.session or 'last'} {sets[0].ids[0]}`"
            raise UsageError("the report has no patch that repairs, only some that help to find the cause", hint)
        first, several = repairing[0], len(repairing) > 1
        told = [f"of {len(repairing)} repairs with patches the first is taken: {first.title}"] if several else []
        return _ordered(report, set(first.ids), told)
    known = {p.id.lower(): p.id for p in report.patches}
    if unknown := [n for n in named if n.lower() not in known]:
        raise UsageError(f"the report has no patch {unknown[0]}", f"it has {', '.join(known.values())}")
    wanted = {known[n.lower()] for n in named}
    told = []
    for patch in sorted(wanted, key=list(known.values()).index):
        own = [r for r in sets if patch in r.ids]
        if any(wanted.issuperset(r.ids) for r in own):
            continue
        rest = [i for i in own[0].ids if i not in wanted]
        if only:
            told.append(f"{patch} is applied without {', '.join(rest)}, which belongs to it")
        else:
            told.append(f"{', '.join(rest)} belongs to {patch} and is applied with it")
            wanted.update(rest)
    return _ordered(report, wanted, told)


def _ordered(report: Report, ids: set[str], told: list[str]) -> Selection:
    return Selection([p for p in report.patches if p.id in ids], told)
