"""The recipes of whole checkouts have their form, and one is carried out on a repository made here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

EVALS = Path(__file__).resolve().parents[2] / "evals"
sys.path.insert(0, str(EVALS / "recorders"))  # its modules import each other by their bare names

from checkout import edited, main, read  # noqa: E402

RECIPES = sorted((EVALS / "checkouts").glob("*.yaml"))
LABELS = {"family", "difficulty", "question", "expected", "acceptable", "evidence", "fix", "fix_terms", "confirmed_by"}

OWN: dict[str, Any] = {
    "id": "tiny-stops-early",
    "repository": "ours/tiny",
    "edits": [
        {"file": "train.py", "find": "= 4", "put": "= 2\nRATE = 0.1"},
        {"file": "train.py", "line": 4, "find": "iteration", "put": "step"},
    ],
    "adds": {"data/words.txt": "resume that spirit\n"},
    "removes": r"\.gif$",
    "prepare": "wc -l < data/words.txt > data/lines",
    "train": "python train.py > train.log 2>&1",
    "ends": 3,
    "shows": {"train.log": r"^step 1 "},
    "labels": {
        "family": "none", "difficulty": "easy", "question": "Why two?", "expected": ["none.healthy"], "acceptable": [],
        "evidence": [{"file": "*.log", "text": "step 1"}],
    },
    "facts": [{"file": "train.py", "text": "STEPS = 2", "says": "two were asked for"}],
}  # fmt: skip
PROGRAM = (
    'import os\nSTEPS = 4\nfor step in range(STEPS):\n    print("iteration", step, os.getcwd())\nraise SystemExit(3)\n'
)


def causes() -> set[str]:
    families = yaml.safe_load((EVALS.parent / "knowledge" / "causes.yaml").read_text(encoding="utf-8"))
    return {cause for family in families.values() for cause in family}


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_form(path: Path) -> None:
    recipe = read(path)
    labels = recipe.labels
    assert recipe.id == path.stem
    assert recipe.repository.count("/") == 1
    assert len(recipe.commit) == 40
    assert labels.keys() >= LABELS
    assert {*labels["expected"], *labels["acceptable"]} <= causes()
    assert labels["evidence"]
    assert len(recipe.facts) >= 4
    assert all(fact.keys() == {"file", "text", "says"} for fact in recipe.facts)
    assert all(1 <= len(edit["find"]) <= 60 and "\n" not in edit["find"] for edit in recipe.edits)


@pytest.fixture
def mirror(tmp_path: Path) -> tuple[Path, str]:
    """A folder of git directories with one project in it, and its commit."""
    home = tmp_path / "mirror" / "ours+tiny"
    (home / "docs").mkdir(parents=True)
    for name, text in {"train.py": PROGRAM, "README.md": "python train.py\n", "docs/wave.gif": "GIF"}.items():
        (home / name).write_text(text)
    git = ["git", "-c", "user.name=tests", "-c", "user.email=tests@localhost", "-C", str(home)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    return tmp_path / "mirror", commit


def test_one_is_carried_out(mirror: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny-stops-early.yaml").write_text(yaml.safe_dump(OWN | {"commit": mirror[1]}))
    argv = [str(tmp_path / "tiny-stops-early.yaml"), "--mirror", str(mirror[0]), "--into", str(tmp_path / "made")]
    assert main(argv) == 0, capsys.readouterr().err
    home = tmp_path / "made" / "tiny-stops-early"
    files = {p.relative_to(home / "files").as_posix() for p in (home / "files").rglob("*") if p.is_file()}
    assert files == {"README.md", "train.py", "train.log", "data/words.txt", "data/lines"}
    assert (home / "files" / "train.log").read_text() == "step 0 /data/tiny\nstep 1 /data/tiny\n"
    labels = yaml.safe_load((home / "incident.yaml").read_text())
    assert labels["source"] == f"recipe: ours/tiny@{mirror[1][:12]}"
    assert labels["evidence"] == [{"file": "train.log", "text": "step 1"}]
    assert labels["facts"] == OWN["facts"]
    (home / "incident.yaml").unlink()
    assert main([*argv, "--labels"]) == 0
    assert yaml.safe_load((home / "incident.yaml").read_text()) == labels


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"edits": [{"file": "train.py", "find": "range", "put": ""}, {"file": "train.py", "find": "e", "put": ""}]},
         "'e' is not once in one line"),
        ({"commit": "0" * 40}, "no commit 000000"),
        ({"repository": "ours/other"}, "no git directory of ours/other"),
        ({"ends": 0}, "ended with 3, not [0]"),
        ({"prepare": "false"}, "what comes before the run ended with 1"),
        ({"shows": {"train.log": "NaN"}}, "lacks train.log: NaN"),
        ({"facts": [{"file": "train.log", "text": "loss", "says": "-"}]}, "no line 'loss' in train.log"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(
    mirror: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], told: str
) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN | {"commit": mirror[1]} | change))
    argv = [str(tmp_path / "own.yaml"), "--mirror", str(mirror[0]), "--into", str(tmp_path / "made")]
    assert main(argv) == 1
    assert told in capsys.readouterr().err


def test_a_line_is_the_project_s() -> None:
    text = "a = 1\nb = 1\nc = 1\n"
    edits = [{"file": "-", "find": "a", "put": "x\na"}, {"file": "-", "line": 3, "find": "= 1", "put": "= 2"}]
    assert edited(text, edits) == "x\na = 1\nb = 1\nc = 2\n"


def test_no_such_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere"]) == 2
    assert "no such recipe" in capsys.readouterr().err
