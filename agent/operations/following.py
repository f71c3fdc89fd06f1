"""What follows from the evidence whatever a playbook says: nodes out, leftovers cleared, files saved from damage."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..predicates import Facts
from ..report import ReportFix
from ..types import Evidence
from .filling import BLANK, fill
from .scene import Scene, names, table

_SLURM = re.compile(r"\bslurmstepd:|\bsrun: |\bSLURM_[A-Z]|#SBATCH\b|\bslurm_load_jobs\b", re.ASCII)
_KUBERNETES = re.compile(r"\bkubelet\b|\bkubectl\b|\bkubernetes\b|\bOOMKilled\b|\bpod/|Back-off restarting", re.ASCII)
_EACH = 8  # commands of one kind


def operations(
    cause: str, proof: Sequence[Evidence], facts: Facts, scene: Scene | None = None, said: Sequence[str] = ()
) -> list[ReportFix]:
    """Repairs that no file of the run carries. Nothing is run, and only what the evidence names is in a command.

    Args:
        cause: of the verdict.
        proof: the evidence it stands on.
        scene: paths of the runs, nodes at fault, the session.
        said: commands that the report has already, as they will be shown; none of them is given again.
    """
    scene = scene or Scene()
    known = {**names(proof, facts, scene), "cause": [cause]}
    found = []
    for row in table()["operations"]:
        if not _fits(row, cause, facts, known):
            continue
        commands = _commands(row, facts, known, [*said, *(c for f in found for c in f.commands)])
        if commands:
            verify = fill(row.get("verify", ""), known)[0]
            found.append(
                ReportFix(
                    title=row["title"], why=row.get("why", ""), risk=row.get("risk", ""), commands=commands,
                    verify="" if BLANK.search(verify) else verify,
                )
            )  # fmt: skip
    return found


def _fits(row: Mapping[str, Any], cause: str, facts: Facts, known: Mapping[str, list[str]]) -> bool:
    if not any(fnmatch.fnmatchcase(cause, pattern) for pattern in row.get("causes", ["*"])):
        return False
    if any(name not in known for name in row.get("needs", ())):
        return False
    if "keys" in row and not any(e.kind != "absent" for key in row["keys"] for e in facts.get(key)):
        return False
    wanted = row.get("scheduler")
    return wanted is None or wanted == scheduler(facts)


def scheduler(facts: Facts) -> str:
    """What started the job, by what it left: slurm, kubernetes, or nothing that is known."""
    if any(key.startswith(("slurm.", "host.slurm_")) for key in facts.by_key):
        return "slurm"
    texts = [e.text for found in facts.by_key.values() for e in found if e.kind in ("line", "command")]
    if any(_SLURM.search(t) for t in texts):
        return "slurm"
    cluster = facts.get("host.evicted") or any(_KUBERNETES.search(t) for t in texts)
    return "kubernetes" if cluster else "none"


def _commands(row: Mapping[str, Any], facts: Facts, known: Mapping[str, list[str]], said: Sequence[str]) -> list[str]:
    """The commands whose names are all known, none of them twice in the report."""
    found: list[str] = []
    for template in row["commands"]:
        for words in _each(row, facts, known):
            for command in fill(template, words):
                open_ = {m[1] for m in BLANK.finditer(command)} - set(row.get("open", ()))
                if not open_ and not any(_same(command, other) for other in (*said, *found)):
                    found.append(command)
    return found


def _each(row: Mapping[str, Any], facts: Facts, known: Mapping[str, list[str]]) -> list[Mapping[str, list[str]]]:
    """The known names, once for each piece of evidence that the row goes through."""
    if "each" not in row:
        return [known]
    pattern = re.compile(row["each"], re.ASCII)
    held = [e for key in row["keys"] for e in facts.get(key) if e.kind not in ("absent", "asked")]
    values = dict.fromkeys(tuple(m.groupdict().items()) for e in held if (m := pattern.search(str(e.value))))
    return [{**known, **{k: [v] for k, v in one if v}} for one in list(values)[:_EACH]]


def _same(command: str, other: str) -> bool:
    """The same command but for its reason and what is left open."""
    return _bare(command) == _bare(other)


def _bare(command: str) -> str:
    return re.sub(r"\breason=(?:\"[^\"]*\"|\S+)|\s*\.\.\.|\s*#.*", "", " ".join(command.split())).strip()
