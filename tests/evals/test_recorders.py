"""The recorded incidents are what their tables say, give nothing away, and can be recorded anew."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

EVALS = Path(__file__).resolve().parents[2] / "evals"
sys.path.insert(0, str(EVALS / "recorders"))  # its modules import each other by their bare names

from carry import Entry, carry_out, entry, keep, lacking, lay_out, rewritten  # noqa: E402

TABLES = sorted(p.parent for p in (EVALS / "recorders").glob("*/runs.yaml"))
RECORDED = EVALS / "recorded"
LIMIT = 40_000_000
LABELS = {
    "family", "difficulty", "question", "also_asked", "expected", "acceptable", "evidence", "fix", "fix_terms", "why",
    "confirmed_by", "first_failure", "facts",
}  # fmt: skip
# What a name, a comment or a line would say that knows the answer.
TELLS = (
    rb"\binject(?:s|ed|ing|ion)?\b|\bsabotag\w+|\bdeliberate(?:ly)?\b|\bon purpose\b|\bsimulat(?:es?|ed|ing) (?:an? |the )?"
    rb"(?:fault|failure|crash|hang|error)|\bthe (?:fault|bug|mistake) (?:is|here)\b|^\s*(?:expected|difficulty|also_asked):"
    rb"|\broot.cause id\b|\btraindoctor\b|\bground.truth cause\b"
)
SAYS_SO = re.compile(r"(?i)\b(?:inject|broken|buggy|faulty|bug|wrong|sabotag)")  # in a run's name


@cache
def rows(table: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load((table / "runs.yaml").read_text(encoding="utf-8"))


def entries() -> list[Entry]:
    return [entry(name, table, row) for table in TABLES for name, row in rows(table).items()]


def recorded(name: str) -> dict[str, Any]:
    path = RECORDED / name / "incident.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {"source": "nowhere"}


def kept(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


def causes() -> set[str]:
    families = yaml.safe_load((EVALS.parent / "knowledge" / "causes.yaml").read_text(encoding="utf-8"))
    return {cause for family in families.values() for cause in family}


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_a_table_names_its_scripts_and_known_causes(table: Path) -> None:
    known = causes()
    for name, row in rows(table).items():
        run = entry(name, table, row)
        lost = [str(p) for p in run.scripts.values() if not p.is_file()]
        assert not lost, f"{name} names scripts that are not there: {lost}"
        assert not SAYS_SO.search(name)
        labels = run.labels
        assert set(labels) <= LABELS, f"{name}: {set(labels) - LABELS}"
        assert labels["difficulty"] in ("easy", "medium", "hard"), name
        said = [*labels["expected"], *labels.get("acceptable", ())]
        assert labels["expected"] and set(said) <= known, f"{name}: {set(said) - known}"
        assert labels["family"] == labels["expected"][0].split(".")[0], name
        assert labels["question"] and labels["why"], name


def test_a_name_is_given_once() -> None:
    names = [name for table in TABLES for name in rows(table)] + [
        p.parent.name for p in (EVALS / "healthy").glob("*/incident.yaml")
    ]
    assert not sorted({name for name in names if names.count(name) > 1})


def test_every_run_is_recorded_and_nothing_else() -> None:
    assert {run.name for run in entries()} == {p.name for p in RECORDED.iterdir() if p.is_dir()}


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_an_incident_carries_the_labels_of_its_row(table: Path) -> None:
    other = []
    for name, row in rows(table).items():
        found = recorded(name)
        source = str(found.pop("source"))
        if found != {"id": name, **row["labels"]} or not source.startswith("recorded: "):
            other.append(name)
    assert not other


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_the_kept_files_show_what_happened(table: Path) -> None:
    missing = {}
    for name, row in rows(table).items():
        files = RECORDED / name / "files"
        lines = {
            p.relative_to(files).as_posix(): p.read_bytes().decode(errors="replace").split("\n") for p in kept(files)
        }
        gone = lacking(row.get("shows", {}), files)
        for mark in [*(row["labels"].get("evidence") or ()), *(row["labels"].get("facts") or ())]:
            if not any(mark["text"] in line for line in lines.get(mark["file"], ())):
                gone.append(f"{mark['file']}: {mark['text']}")
        if gone:
            missing[name] = gone
    assert not missing


def test_the_incidents_are_small() -> None:
    sizes = {p: p.stat().st_size for p in RECORDED.rglob("*") if p.is_file()}
    assert sum(sizes.values()) < LIMIT
    by_run: dict[str, int] = {}
    for path, size in sizes.items():
        by_run[path.relative_to(RECORDED).parts[0]] = by_run.get(path.relative_to(RECORDED).parts[0], 0) + size
    assert not {name: size for name, size in by_run.items() if size > 1_000_000}


def test_no_file_gives_the_answer_away() -> None:
    ids = "|".join(sorted(re.escape(cause) for cause in causes()))
    tells = re.compile(TELLS + rb"|(?<![\w.])(?:" + ids.encode() + rb")(?![\w.(=\[])", re.IGNORECASE | re.MULTILINE)
    scripts = [
        p for table in TABLES for p in table.iterdir() if p.suffix in (".py", ".sh", ".c", ".json", ".yaml", ".txt")
    ]
    found = {}
    for path in [
        *(p for run in RECORDED.glob("*/files") for p in kept(run)),
        *(p for p in scripts if p.name != "runs.yaml"),
    ]:
        if hit := tells.search(path.read_bytes()):
            found[str(path.relative_to(EVALS))] = hit.group().decode(errors="replace")
    assert not found


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_loses_the_names_of_the_machine_and_nothing_else(protocol: int) -> None:
    frame = {"filename": "/home/one/env/lib/a.py", "name": "Grüße", "line": 3, "sizes": [(1, 2.5), None, True]}
    data = pickle.dumps({"entries": [frame, dict(frame, line=4)]}, protocol=protocol)
    after = rewritten(data, [(b"/home/one/env", b"/opt/venv")])
    frame["filename"] = "/opt/venv/lib/a.py"
    if protocol == 2:  # what torch writes its flight recorder's dumps in
        assert pickle.loads(after) == {"entries": [frame, dict(frame, line=4)]}
    else:
        assert after == data
    assert rewritten(data[:40], [(b"/home/one/env", b"/opt/venv")]) == data[:40]


def test_no_file_names_the_machine() -> None:
    here = re.compile(rb"/work/main|/tmp/(?:recorded|repair|B\d)|/mnt/(?:run|venv)\b|/root/")
    left = (p for run in RECORDED.glob("*/files") for p in kept(run))
    assert not [str(p.relative_to(EVALS)) for p in left if here.search(p.read_bytes())]


def test_there_are_enough_of_each_kind() -> None:
    expected = [run.labels["expected"][0] for run in entries()]
    failing = [cause for cause in expected if not cause.startswith("none.")]
    assert len(failing) >= 80
    assert len(set(failing)) >= 55
    assert expected.count("none.healthy") + len(list((EVALS / "healthy").glob("*/incident.yaml"))) >= 15
    assert expected.count("none.insufficient_evidence") >= 10
    hard = [run for run in entries() if run.labels["difficulty"] == "hard"]
    assert len(hard) >= len(expected) / 5


def test_a_run_recorded_anew_has_its_failure_again(tmp_path: Path) -> None:
    table = EVALS / "recorders" / "misleading"
    run = entry("banjo", table, rows(table)["banjo"])
    needs = subprocess.run([sys.executable, "-c", "import torch"], check=False, capture_output=True)
    if needs.returncode:
        pytest.skip("torch is not installed beside the tests")
    lay_out(run, tmp_path / "run")
    assert carry_out(run, tmp_path / "run") in run.ends
    size = keep(run, tmp_path / "run", tmp_path / "files")
    assert 0 < size < 100_000
    assert not lacking(run.shows, tmp_path / "files")
    assert not (tmp_path / "files" / "surnames.py").exists()
    text = (tmp_path / "files" / "job.log").read_text()
    assert str(tmp_path) not in text and os.uname().nodename not in text.replace("node01", "")
