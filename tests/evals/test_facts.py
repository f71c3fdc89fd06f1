"""Labelled facts: rows that are found again, drafts that keep labels, figures, and no family below what was kept.

`python -m traindoctor.evals.facts --keep` keeps the figures anew, once what moved has been looked at.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.errors import KnowledgeError, UsageError
from traindoctor.agent.core.types import Evidence
from traindoctor.evals import facts
from traindoctor.evals.case import Mark
from traindoctor.evals.fact_labels import FOLDER, Labels, Row, drafted, find, load, row_of, written
from traindoctor.evals.facts import Fact, Measured

Doctor = Callable[..., subprocess.CompletedProcess[str]]
RUNS = 36  # that a test may diagnose: half a second each


def line(number: int, text: str, key: str = "settings.asked.learning_rate", value: object = 0.1) -> Evidence:
    return Evidence(key=key, value=value, file="train.py", line=number, text=text)  # pyright: ignore


def labels(*rows: Row, **more: object) -> Labels:
    return replace(Labels("run", "evals/healthy/run", True, False, tuple(rows)), **more)  # pyright: ignore


# ----------
# A label is found again.


@pytest.mark.parametrize(
    "now",
    [
        line(12, "lr = 0.1"),
        line(40, "    lr  =  0.1"),
        line(12, "lr = 0.1", value="1e-1"),
        line(12, "lr = 0.1", value=0.10000001),
    ],
)
def test_a_label_outlives_small_moves(now: Evidence) -> None:
    known = replace(row_of(line(12, "lr = 0.1")), label="misleading", why="overridden")
    found = labels(known).labelled(row_of(now))
    assert (found.label, found.why) == ("misleading", "overridden")
    assert found.at == f"train.py:{now.line}"


@pytest.mark.parametrize(
    "now",
    [
        line(12, "lr = 0.2"),
        line(12, "lr = 0.1", value=0.2),
        line(12, "lr = 0.1", key="settings.asked.minimum_rate"),
        replace(line(12, "lr = 0.1"), file="other.py"),
        Evidence(key="settings.asked.learning_rate", value=0.1, kind="absent"),
    ],
)
def test_another_fact_has_no_label(now: Evidence) -> None:
    known = replace(row_of(line(12, "lr = 0.1")), label="true")
    assert labels(known).labelled(row_of(now)).label is None


def test_of_lines_with_one_text_the_nearest_counts() -> None:
    first = replace(row_of(line(10, "lr = 0.1")), label="true")
    second = replace(row_of(line(90, "lr = 0.1")), label="false", why="of another program")
    assert labels(first, second).labelled(row_of(line(85, "lr = 0.1"))).label == "false"
    assert labels(first, second).labelled(row_of(line(14, "lr = 0.1"))).label == "true"


def test_facts_without_a_line_have_a_place() -> None:
    member = Evidence(key="checkpoint.count", value=3, kind="binary", file="last.ckpt", member="epoch")
    command = Evidence(key="gpu.xid", value=79, kind="command", argv=["nvidia-smi", "-q"])
    absent = Evidence(key="settings.asked.warmup_steps", value=None, kind="absent")
    assert [row_of(e).at for e in (member, command, absent)] == ["last.ckpt > epoch", "$ nvidia-smi -q", "absent"]
    assert [row_of(e).file for e in (member, command, absent)] == ["last.ckpt", "", ""]


# ----------
# Label files.


def test_a_file_that_is_written_reads_the_same(tmp_path: Path) -> None:
    odd = Evidence(
        key="log.warning", value='a: "b", {c} # \x9b[31m \ud7ff', file="a b:c.log", line=3, text="\x00\x1b odd #: line"
    )
    rows = [
        replace(row_of(line(1, "lr = 0.1")), label="true"),
        replace(row_of(odd), label="false", why='not "so": {x}'),
        row_of(line(2, "# y")),
    ]
    kept = labels(*rows, deciding=(Mark("train.log", "loss: {nan}"),), bystanders=("README*",), data=("*.txt",))
    path = tmp_path / "run.yaml"
    path.write_text(written(kept, {rows[2]: "the text\x07 of the line"}), encoding="utf-8")
    assert load(path) == kept
    assert path.read_text(encoding="utf-8").endswith("# the text of the line\n")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("facts: [{key: a.b, at: x, label: maybe}]", "no label is called maybe"),
        ("facts: [{key: a.b, at: x, label: misleading}]", "misleading without a why"),
        ("fact: []", "there is no fact among"),
        ("facts: [", "cannot be read"),
        ("facts: [{at: x}]", "cannot be read"),
    ],
)
def test_a_broken_label_file_is_told(tmp_path: Path, body: str, told: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"run: evals/healthy/run\nsound: true\ncheckout: false\n{body}\n", encoding="utf-8")
    with pytest.raises(KnowledgeError, match=told):
        load(path)


def test_no_label_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no labelled facts"):
        find([tmp_path])


def test_a_draft_keeps_labels_also_of_what_is_gone() -> None:
    here, gone = row_of(line(1, "lr = 0.1")), row_of(line(2, "warmup = 3", value=3))
    before = labels(
        replace(here, label="true"), replace(gone, label="false", why="never read"), row_of(line(4, "x", value=1))
    )
    new = row_of(line(9, "seed = 4", value=4))
    after = drafted(before, [new, row_of(line(5, "lr = 0.1")), new])
    assert [(row.at, row.label) for row in after.rows] == [
        ("train.py:5", "true"),
        ("train.py:9", None),
        ("train.py:2", "false"),
    ]


# ----------
# Figures.


def fact(key: str, label: str | None, cited: bool = False, at: str = "train.log", shown: str = "") -> Fact:
    return Fact(
        Row(key, at, "1", label=label, why="so" if label in ("misleading", "false") else ""),
        cited,
        shown,
        at == "README.md",
    )


def figures(*found: Fact, decided: dict[Mark, bool] | None = None) -> dict[str, Any]:
    return facts.as_data([Measured(labels(), list(found), decided or {})])


def test_figures_by_hand() -> None:
    data = figures(
        fact("settings.asked.seed", "true", cited=True), fact("settings.asked.epochs", "false"), fact("settings.other.x", None),
        fact("settings.odd", "true"), fact("loss.zero", "misleading", cited=True, at="README.md"),
        decided={Mark("train.log", "nan"): True, Mark("train.log", "inf"): False},
    )  # fmt: skip
    assert data["all"] == {"facts": 5, "true": 2, "misleading": 1, "false": 1, "unlabelled": 1, "precision": 0.5}
    assert {k: v["precision"] for k, v in data["by_family"].items()} == {
        "settings.asked": 0.5,
        "loss": 0.0,
        "settings": 1.0,
        "settings.other": None,
    }
    assert (data["cited"]["facts"], data["cited"]["precision"]) == (2, 0.5)
    assert (data["beside"], data["beside_cited"], data["recall"]) == (1, 1, 0.5)
    assert [(u["key"], u["cited"]) for u in data["untrue"]] == [("settings.asked.epochs", False), ("loss.zero", True)]
    assert data["missed"] == [{"run": "run", "file": "train.log", "text": "inf"}]
    assert data["missing"] == ["run: settings.other.x = 1 at train.log"]
    told = "\n".join(facts.as_lines(data))
    assert "settings.asked" in told and "unlabelled: 20.0%" in told


def test_what_falls_is_told() -> None:
    many = [fact(f"loss.a{n}", "true") for n in range(20)]
    before = facts.kept(figures(*many, decided={Mark("a", "b"): True}))
    assert facts.fallen(figures(*many, fact("run.state", "false"), decided={Mark("a", "b"): True}), before) == []
    worse = figures(
        *many, fact("loss.zero", "false"), *[fact("run.x", None, at="README.md")] * 9, decided={Mark("a", "b"): False}
    )
    assert facts.fallen(worse, before) == [
        "loss: precision 0.9524, was 1.0000",
        "recall of the deciding facts 0.0, was 1.0",
        "facts from bystanders or data: 9, was 0",
        "30% of the facts have no label, at most 15% may",
    ]


def test_a_run_that_is_not_made_here_is_passed_over() -> None:
    told: list[str] = []
    assert facts.measured([labels(folder="build/checkouts/none")], told.append) == []
    assert told == ["run is passed over: there is no build/checkouts/none"]


# ----------
# The runs of the repository.


@pytest.mark.real
def test_no_family_falls_below_what_was_kept() -> None:
    known = [one for one in find([FOLDER]) if one.is_kept]
    assert known and len(known) <= RUNS
    runs = facts.measured(known)
    assert [run.labels.id for run in runs] == [one.id for one in known]
    data = facts.as_data(runs)
    assert facts.fallen(data, json.loads(facts.BASELINE.read_text(encoding="utf-8"))) == [], "\n".join(data["missing"])


@pytest.mark.parametrize("one", find([FOLDER]), ids=lambda one: one.id)
def test_labels_name_what_is_there(one: Labels) -> None:
    assert one.is_kept == one.path.is_relative_to(FOLDER.parent)
    identities = [(*row.identity, row.line) for row in one.rows]
    assert len(set(identities)) == len(identities)
    if one.is_kept:
        for mark in one.marks():
            assert mark.text in (one.path / "files" / mark.file).read_text(encoding="utf-8", errors="replace"), mark


@pytest.mark.parametrize(
    ("option", "shown"), [((), "recall of 6 deciding facts"), (("--json",), '"schema": "traindoctor.facts/1"')]
)
def test_the_command_tells(doctor: Doctor, option: tuple[str, ...], shown: str) -> None:
    done = doctor("eval", "--facts", str(FOLDER / "cygnus.yaml"), *option)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
