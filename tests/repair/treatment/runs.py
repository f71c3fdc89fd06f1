"""Runs as people leave them behind, small, and the repairs of a verdict on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traindoctor.agent.core.playbook import playbooks
from traindoctor.agent.core.report import Report, RootCause
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.core.unified import applied
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.repair.treatment.treat import treat
from traindoctor.agent.repair.treatment.treatment_words import fitting, in_words
from traindoctor.agent.verdict.predicates import Facts

LOG = "step 1 loss 2.5\nstep 2 loss 2.4\nstep 3 loss nan\n"


def run_of(folder: Path, files: dict[str, str]) -> Workspace:
    """A run with these files, and a log."""
    for name, text in {"train.log": LOG, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return Workspace([folder], live=False)


def seen(key: str, value: object, text: str = "", **more: object) -> Evidence:
    """A piece of evidence, as a tool makes it."""
    return Evidence(**{"key": key, "value": value, "kind": "line", "text": text or str(value), **more})


def repairs(
    ws: Workspace, slug: str, status: str = "confirmed", proof: str = "", evidence: Sequence[Evidence] = ()
) -> Report:
    """The report of a verdict by a playbook, treated; proved by a line of the file `proof`, where one is named."""
    playbook = next(p for p in playbooks() if p.slug == slug)
    facts = Facts.of(evidence)
    report = Report.model_validate({
        "status": status, "root_cause": RootCause(id=playbook.cause, playbook=slug, title=playbook.title),
        "fixes": [in_words(f, facts) for f in playbook.fixes if fitting(f, facts)],
        "evidence": [{"id": "E1", "key": "k", "kind": "line", "file": proof, "line": 1}] if proof else [],
        "chain": [{"evidence": "E1", "role": "cause", "text": "the proof"}] if proof else [],
    })  # fmt: skip
    treat(report, playbooks(), ws, facts)
    return report


def fix_named(report: Report, start: str) -> int:
    """Index of the repair whose title begins so."""
    return next(i for i, f in enumerate(report.fixes) if f.title.startswith(start))


def made(ws: Workspace, report: Report, fix: int) -> dict[str, str]:
    """The texts of the files after all patches of one repair."""
    texts = {f.name: f.path.read_bytes().decode() for f in ws.files}
    patches = {p.id: p for p in report.patches}
    for ident in report.fixes[fix].patches:
        patch = patches[ident]
        texts[patch.file] = applied(patch.diff, texts[patch.file], patch.file)
    return texts
