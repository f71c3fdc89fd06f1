"""Grep as a rival: the first row of a table of well-known lines that matches anywhere is the answer."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.core.report import CitedEvidence, Differential, Report, RootCause
from ...agent.core.types import LINE_CAP
from ..score import HEALTHY
from .texts import numbered, texts

if TYPE_CHECKING:
    from ..asked import Task

_STATED = 0.5  # grep states no confidence; one that is neither


@cache
def rows() -> list[tuple[str, re.Pattern[str]]]:
    """Cause and pattern, in the order of the table."""
    import yaml

    table = yaml.safe_load(Path(__file__).with_name("grep.yaml").read_text(encoding="utf-8"))
    return [(row["cause"], re.compile(row["find"])) for row in table]


def solve(task: Task) -> Report:
    """The cause of the first row that matches; no match means that nothing is wrong."""
    found: dict[str, CitedEvidence] = {}
    for name, path in texts(task.files):
        for number, line in numbered(path):
            for cause, pattern in rows():
                if cause not in found and pattern.search(line):
                    found[cause] = _cited(f"E{len(found) + 1}", name, number, line)
    ranked = [cause for cause, _ in rows() if cause in found]
    if not ranked:
        return Report(status="healthy", root_cause=RootCause(id=HEALTHY, confidence=_STATED))
    weighed = [
        Differential(id=cause, confidence=_STATED if n == 0 else 0.0, supported_by=[found[cause].id])
        for n, cause in enumerate(ranked)
    ]
    evidence = [found[cause] for cause in ranked]
    root = RootCause(id=ranked[0], confidence=_STATED)
    return Report(status="likely", root_cause=root, differential=weighed, evidence=evidence)


def _cited(i: str, name: str, number: int, line: str) -> CitedEvidence:
    shown, cut = line[: LINE_CAP // 4], len(line) > LINE_CAP // 4
    return CitedEvidence(id=i, key="line", kind="line", file=name, line=number, text=shown, cut=cut)
