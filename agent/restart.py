"""Whether starting the job again helps, without what, and from which checkpoint."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from .planner import HEALTHY, INSUFFICIENT
from .playbook import KNOWLEDGE
from .predicates import Facts
from .report import Restart
from .types import Evidence


@cache
def _table() -> dict[str, list[str]]:
    table: Any = yaml.safe_load((KNOWLEDGE / "restart.yaml").read_text(encoding="utf-8"))
    return table


def advise(cause: str, proof: list[Evidence], facts: Facts, failed_at: int | None) -> Restart | None:
    """The advice for a verdict; None where there is nothing to start again.

    Args:
        proof: the evidence that bears the verdict; its hosts are left out where the fault is theirs.
        failed_at: step of the first failure, where it is known.
    """
    if cause in (HEALTHY, INSUFFICIENT):
        return None
    advice = next((kind for kind, listed in _table().items() if cause in listed), "fix_first")
    hosts = {e.host for e in proof if e.host} if advice == "restart_excluding" else set()
    restart = Restart.model_validate({"advice": advice, "exclude": sorted(hosts)})
    saved = next((e for e in facts.get("checkpoint.last_clean") if e.kind != "absent"), None)
    if saved is not None:
        restart.from_checkpoint = str(saved.value)
        if failed_at is not None and saved.step is not None and failed_at > saved.step:
            restart.lost_steps = failed_at - saved.step
    return restart
