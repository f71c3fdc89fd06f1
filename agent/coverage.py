"""Which causes have a playbook, and how much the playbooks of a family hold."""

from __future__ import annotations

from collections.abc import Sequence

from .playbook import Playbook, causes

_COLUMNS = ("causes", "playbooks", "signatures", "predicates", "fixes", "as patch", "sources")


def covered(playbooks: Sequence[Playbook]) -> dict[str, list[str]]:
    """Every cause with the slugs of its playbooks."""
    found: dict[str, list[str]] = {cause: [] for cause in causes()}
    for p in playbooks:
        found.setdefault(p.cause, []).append(p.slug)
    return found


def table(playbooks: Sequence[Playbook]) -> list[str]:
    """One line a family and one of all; `as patch` counts repairs that change settings or the environment."""
    slugs = covered(playbooks)
    families = list(dict.fromkeys(cause.split(".")[0] for cause in slugs))
    rows = [f"{'family':<8}" + "".join(f"{c:>12}" for c in _COLUMNS)]
    for family in [*families, ""]:
        mine = [p for p in playbooks if not family or p.cause.split(".")[0] == family]
        wanted = [c for c in slugs if not family or c.split(".")[0] == family]
        without = [c for c in wanted if not slugs[c]]
        counts = (
            f"{len(wanted) - len(without)} of {len(wanted)}", len(mine), sum(len(p.signatures) for p in mine),
            sum(len(p.predicates) for p in mine), sum(len(p.fixes) for p in mine),
            sum(bool(f.settings or f.env or f.rename) for p in mine for f in p.fixes),
            sum(len(p.sources) for p in mine),
        )  # fmt: skip
        told = f"   without: {', '.join(without)}" if without and family else ""
        rows.append(f"{family or 'all':<8}" + "".join(f"{c:>12}" for c in counts) + told)
    return rows
