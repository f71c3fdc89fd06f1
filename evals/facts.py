"""Is every piece of evidence true? All evidence of labelled runs beside what a person found each piece to be.

A run is diagnosed offline as `doctor eval` does it; what counts is everything that its tools took for a fact, and which
of it the report cites. Precision is the share of the labelled facts that are true; recall the share of the deciding
facts (named by hand before the run was read) whose line some fact cites that is not known to be untrue.

    python -m traindoctor.evals.facts --draft evals/healthy/larch    writes or renews its label file
    python -m traindoctor.evals.facts --show evals/healthy/larch     its facts with labels and texts of their lines
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..agent.core.types import Evidence
from .case import Case, Mark, load
from .fact_labels import FOLDER, LABELS, ROOT, Labels, Row, beginning, drafted, row_of, written

BASELINE = Path(__file__).with_name("facts_baseline.json")
MANY = 20  # labelled facts from which on the precision of a family is compared
UNLABELLED = 0.15  # share of the facts that may be without a label
_NOT_OBSERVED = ("asked", "document")  # what the question says, passages of the manual
_WRITTEN = 1.7e9  # when the files of a run were last written: long ago, as in a finished run


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a run as it was found and labelled. `shown` is the text of its line."""

    row: Row
    cited: bool
    shown: str
    beside: bool = False  # read from a bystander or from data

    @property
    def family(self) -> str:
        """First part of the key, of settings the first two."""
        parts = self.row.key.split(".")
        return ".".join(parts[: 2 if parts[0] == "settings" and len(parts) > 2 else 1])


@dataclass(slots=True)
class Measured:
    """What came of one labelled run."""

    labels: Labels
    facts: list[Fact] = field(default_factory=list)
    decided: dict[Mark, bool] = field(default_factory=dict)  # of each deciding fact, whether some fact cites it


def observed(case: Case) -> tuple[list[Evidence], frozenset[str]]:
    """All evidence of a diagnosis of a run, and the ids of what its report cites."""
    from ..agent.core.events import ReportReady
    from ..agent.core.shell import Recorded
    from ..agent.reading.run.workspace import Workspace
    from ..agent.session import session
    from ..agent.session.graph import build_graph
    from ..agent.session.state import State, facts_of
    from ..agent.session.store import open_checkpoints

    with tempfile.TemporaryDirectory(prefix="doctor-eval-") as scratch:
        run, state = Path(scratch) / "run", Path(scratch) / "state"
        shutil.copytree(case.files, run, symlinks=True)
        for path in run.rglob("*"):
            os.utime(path, (_WRITTEN, _WRITTEN), follow_symlinks=False)
        workspace = Workspace([run], shell=Recorded(case.shell), question=case.question, live=case.shell.is_file())
        *_, last = session.diagnose(workspace, case.question, state=state, history=False)
        assert isinstance(last, ReportReady)
        with open_checkpoints(state, [], to_read=True) as checkpointer:
            kept = build_graph(checkpointer).get_state({"configurable": {"thread_id": last.report.session}})
    found = [e for same in facts_of(cast(State, kept.values)).by_key.values() for e in same]
    return [e for e in found if e.kind not in _NOT_OBSERVED], frozenset(e.id for e in last.report.evidence)


def measure(labels: Labels) -> Measured:
    """Diagnose a labelled run and label what is found. A fact that two tools tell counts once."""
    evidence, cited = observed(load(labels.path))
    facts: dict[tuple[Any, ...], Fact] = {}
    for e in evidence:
        row = labels.labelled(row_of(e))
        same = facts.get(at := (*row.identity, row.line))
        is_cited = e.id in cited or (same is not None and same.cited)
        facts[at] = Fact(row, is_cited, e.text, bool(row.file) and labels.is_beside(row.file))
    standing = [f for f in facts.values() if f.row.label not in LABELS[1:]]
    decided = {m: any(f.row.file == m.file and m.text in f.shown for f in standing) for m in labels.marks()}
    return Measured(labels, list(facts.values()), decided)


def measured(labels: Iterable[Labels], told: Callable[[str], None] | None = None) -> list[Measured]:
    """Every run that is there, one after the other; `told` gets a line about each that is not made here."""
    found = []
    for one in labels:
        if (one.path / "incident.yaml").is_file():
            found.append(measure(one))
        elif told:
            told(f"{one.id} is passed over: there is no {one.folder}")
    return found


# ----------
# Figures.


def counted(facts: Iterable[Fact]) -> dict[str, Any]:
    """How many facts there are of each label; the precision is None where none is labelled."""
    many = Counter(f.row.label or "unlabelled" for f in facts)
    known = sum(many[label] for label in LABELS)
    share = round(many["true"] / known, 4) if known else None
    return {"facts": many.total(), **{name: many[name] for name in (*LABELS, "unlabelled")}, "precision": share}


def by_family(facts: Iterable[Fact]) -> dict[str, dict[str, Any]]:
    """The same by family, the largest first."""
    families: dict[str, list[Fact]] = {}
    for fact in facts:
        families.setdefault(fact.family, []).append(fact)
    return {name: counted(families[name]) for name in sorted(families, key=lambda name: (-len(families[name]), name))}


def as_data(runs: list[Measured]) -> dict[str, Any]:
    """What `doctor eval --facts --json` prints."""
    facts = [f for run in runs for f in run.facts]
    cited = [f for f in facts if f.cited]
    decided = [hit for run in runs for hit in run.decided.values()]
    return {
        "schema": "traindoctor.facts/1",
        "runs": len(runs),
        "sound": sum(run.labels.sound for run in runs),
        "checkouts": sum(run.labels.checkout for run in runs),
        "all": counted(facts),
        "by_family": by_family(facts),
        "cited": counted(cited),
        "cited_by_family": by_family(cited),
        "beside": sum(f.beside for f in facts),
        "beside_cited": sum(f.beside for f in cited),
        "deciding": len(decided),
        "recall": round(sum(decided) / len(decided), 4) if decided else None,
        "by_run": {run.labels.id: counted(run.facts) for run in runs},
        "untrue": [
            {"run": run.labels.id, "label": f.row.label, "key": f.row.key, "at": f.row.at, "value": f.row.value,
             "cited": f.cited, "why": f.row.why}
            for run in runs for f in run.facts if f.row.label in LABELS[1:]
        ],
        "missed": [
            {"run": run.labels.id, "file": mark.file, "text": mark.text}
            for run in runs for mark, hit in run.decided.items() if not hit
        ],
        "missing": missing(runs),
    }  # fmt: skip


def as_lines(data: Mapping[str, Any]) -> list[str]:
    """The tables for people."""
    lines = [f"{data['runs']} runs, {data['sound']} of them sound, {data['checkouts']} whole checkouts", ""]
    for title, families, total in (
        ("all facts", data["by_family"], data["all"]),
        ("cited by reports", data["cited_by_family"], data["cited"]),
    ):
        lines.append(f"{title:<20}{'facts':>7}{'true':>7}{'mislead':>9}{'false':>7}{'unlab.':>8}{'precision':>11}")
        lines += [_table_row(name, row) for name, row in (*families.items(), ("all", total))] + [""]
    lines.append(f"read from bystanders or data: {data['beside']}, cited: {data['beside_cited']}")
    recall = "-" if data["recall"] is None else f"{data['recall']:.2f}"
    lines.append(f"recall of {data['deciding']} deciding facts: {recall}")
    return [*lines, f"unlabelled: {share_unlabelled(data):.1%} (--missing names them)"]


def _table_row(name: str, row: Mapping[str, Any]) -> str:
    precision = "-" if row["precision"] is None else f"{row['precision']:.3f}"
    counts = (row["facts"], row["true"], row["misleading"], row["false"], row["unlabelled"])
    cells = "".join(f"{n:>{width}}" for n, width in zip(counts, (7, 7, 9, 7, 8), strict=True))
    return f"{name:<20}{cells}{precision:>11}"


def missing(runs: Iterable[Measured]) -> list[str]:
    """What has no label yet, a line each."""
    return [_told(run, f) for run in runs for f in run.facts if f.row.label is None]


def _told(run: Measured, fact: Fact) -> str:
    row = fact.row
    label = f"[{row.label}{': ' + row.why if row.why else ''}] " if row.label else ""
    return f"{run.labels.id}: {label}{row.key} = {row.value} at {row.at}  {' '.join(fact.shown.split())[:120]}".rstrip()


def share_unlabelled(data: Mapping[str, Any]) -> float:
    """Unlabelled facts among all, in 0..1."""
    return data["all"]["unlabelled"] / max(1, data["all"]["facts"])


# ----------
# The kept figures.


def kept(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the next change is held against."""
    families = {k: {"labelled": _labelled(v), "precision": v["precision"]} for k, v in data["by_family"].items()}
    return {
        "schema": "traindoctor.facts.baseline/1",
        "runs": data["runs"],
        "precision": data["all"]["precision"],
        "cited_precision": data["cited"]["precision"],
        "recall": data["recall"],
        "beside": data["beside"],
        "families": dict(sorted(families.items())),
    }


def fallen(data: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """What is worse than it was kept, a line each: families with enough facts, recall, bystanders, labels."""
    now = kept(data)
    lines = [
        f"{name}: precision {found['precision']:.4f}, was {was['precision']:.4f}"
        for name, found in now["families"].items()
        if found["labelled"] >= MANY and (was := before["families"].get(name)) and was["labelled"] >= MANY
        if found["precision"] < was["precision"]
    ]
    if now["recall"] is not None and before["recall"] is not None and now["recall"] < before["recall"]:
        lines.append(f"recall of the deciding facts {now['recall']}, was {before['recall']}")
    if now["beside"] > before["beside"]:
        lines.append(f"facts from bystanders or data: {now['beside']}, was {before['beside']}")
    if (share := share_unlabelled(data)) > UNLABELLED:
        lines.append(f"{share:.0%} of the facts have no label, at most {UNLABELLED:.0%} may")
    return lines


def _labelled(row: Mapping[str, Any]) -> int:
    return row["facts"] - row["unlabelled"]


# ----------


def draft(run: Path) -> Path:
    """Write the label file of a run with all its evidence, or renew it; labels that it has stay."""
    labels = beginning(run)
    evidence, _ = observed(load(labels.path))
    rows = {row_of(e): e.text for e in evidence}
    path = FOLDER / f"{labels.id}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(written(drafted(labels, rows), rows), encoding="utf-8")
    return path


def main(args: list[str] | None = None) -> None:
    """Write drafts of labels, show labelled facts, or keep the figures anew."""
    parser = argparse.ArgumentParser(prog="python -m traindoctor.evals.facts", description=main.__doc__)
    parser.add_argument("--draft", nargs="+", type=Path, default=[], metavar="RUN", help="write or renew label files")
    parser.add_argument("--show", nargs="+", type=Path, default=[], metavar="RUN", help="facts, labels and texts")
    parser.add_argument("--keep", action="store_true", help="keep the figures of the runs in the repository anew")
    given = parser.parse_args(args)
    for run in given.draft:
        sys.stdout.write(f"{draft(run).relative_to(ROOT)}\n")
    for run in given.show:
        result = measure(beginning(run))
        sys.stdout.write("".join(f"{_told(result, f)}\n" for f in result.facts))
    if given.keep:
        from .fact_labels import find

        data = as_data(measured(one for one in find([FOLDER]) if one.is_kept))
        BASELINE.write_text(json.dumps(kept(data), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write("\n".join(as_lines(data)) + "\n")


if __name__ == "__main__":
    main()
