"""What a peer's answer is worth: its labels as causes, by the mapping, held against an incident's labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..case import Case

FOLDER = Path(__file__).parent


@cache
def mapping() -> dict[str, Any]:
    """`mapping.yaml` as it stands, with grep's own table as its row."""
    import yaml

    from ..solvers import grep

    data: dict[str, Any] = yaml.safe_load((FOLDER / "mapping.yaml").read_text(encoding="utf-8"))
    data["peers"]["grep"] = {
        "about": f"{len(grep.rows())} well-known lines, the first that matches anywhere",
        "not_for": "curves, metrics, slow runs, anything that leaves no line of an error",
        "answers": {cause: [cause] for cause, _ in grep.rows()},
    }
    return data


@dataclass(frozen=True, slots=True)
class Verdict:
    """One peer on one incident. `right`: its first answer; `among`: any of its answers, in whatever place."""

    peer: str
    id: str
    set: str  # the folder that the incident lies in
    fault: bool  # False: a sound run, or one with too little to tell
    in_scope: bool  # the peer has an answer for an expected cause
    right: bool
    among: bool
    labels: tuple[str, ...]
    seconds: float
    error: str = ""

    @property
    def blamed(self) -> bool:
        """Whether it found something in a run with nothing to find."""
        return not self.fault and bool(self.labels)


def judge(peer: str, case: Case, labels: list[str], seconds: float, error: str = "") -> Verdict:
    """Hold labels, best first, against what the incident expects or accepts; silence counts as `silent` says."""
    table = mapping()
    answers: dict[str, list[str]] = table["peers"][peer]["answers"]
    expected = set(case.expected)
    fitting = [bool(expected & set(answers.get(label, ()))) for label in labels]
    silent = bool(expected & set(table["silent"]))
    return Verdict(
        peer=peer,
        id=case.id,
        set=case.folder.parent.name,
        fault=not case.expected[0].startswith("none."),
        in_scope=any(expected & set(causes) for causes in answers.values()),
        right=not error and (fitting[0] if labels else silent),
        among=not error and (any(fitting) if labels else silent),
        labels=tuple(labels),
        seconds=seconds,
        error=error,
    )
