"""Where a path that is not there was written, and where a file of its name lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.paths_tools import trace_missing_paths

from tests.reading.test_what_ran import made

FAILS = (
    'reading the letters\nTraceback (most recent call last):\n  File "train.py", line 3, in <module>\n    open(p)\n{}\n'
)


def found(folder: Path, error: str, **files: str) -> dict[str, tuple[str, str, int | None]]:
    named = {
        name.replace("__", "/").replace("_py", ".py").replace("_yaml", ".yaml"): text for name, text in files.items()
    }
    ws = Workspace([made(folder, {"train.log": FAILS.format(error), **named})])
    return {e.key: (str(e.value), e.file or "", e.line) for e in trace_missing_paths(ws).evidence}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("DATA = '/home/ann/sets/mail.csv'\n", "DATA"),
        ("root = '/home/ann/sets'\n", "root"),
        ("root = '/home/ann/sets/'\n", "root"),
        ("p.add_argument('--data-dir', type=str, default='/home/ann/sets')\n", "data-dir"),
        ("cfg = {'data': '/home/ann/sets/mail.csv'}\n", "data"),
        ("open('/home/ann/sets/' + name)\n", "/home/ann/sets"),
    ],
)
def test_the_line_that_holds_the_path(tmp_path, written, name) -> None:
    error = "FileNotFoundError: [Errno 2] No such file or directory: '/home/ann/sets/mail.csv'"
    assert found(tmp_path, error, train_py="# /home/ann/sets\n" + written)["path.written"] == (name, "train.py", 2)


@pytest.mark.parametrize(
    "error",
    [
        "PermissionError: [Errno 13] Permission denied: 'sets/mail.csv'",
        "OSError: sets/mail.csv not found.",
        "RuntimeError: Cannot open file sets/mail.csv",
        "ValueError: sets/mail.csv does not exist",
    ],
)
def test_other_words_for_it(tmp_path, error) -> None:
    assert found(tmp_path, error, config_yaml="data: sets/mail.csv\n")["path.written"] == ("data", "config.yaml", 1)


def test_a_word_that_names_a_folder_is_no_path(tmp_path) -> None:
    error = "FileNotFoundError: [Errno 2] No such file or directory: 'data/mail.csv'"
    assert not found(tmp_path, error, train_py="rows = batch['data']\nopen('data' + name)\n")


def test_a_file_of_that_name_in_another_folder(tmp_path) -> None:
    error = "FileNotFoundError: [Errno 2] No such file or directory: 'sets/mail.csv'"
    assert found(tmp_path / "a", error, Data__mail="x") == {}
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mail.csv").write_text("a,b\n1,2\n")
    assert found(tmp_path / "b", error)["path.elsewhere"][0] == "mail.csv"
    (tmp_path / "c" / "sets").mkdir(parents=True)
    (tmp_path / "c" / "sets" / "mail.csv").write_text("a,b\n1,2\n")  # where it was looked for, on another machine
    assert "path.elsewhere" not in found(tmp_path / "c", error)


@pytest.mark.parametrize(
    "error",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/opt/venv/lib/python3.11/site-packages/a/b.json'",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "ValueError: loss/total does not decrease",
        "KeyError: 'a/b'",
        "OSError: a/b does not exist on the Hugging Face Hub",
        "RepositoryNotFoundError: 404 Client Error. Repository a/b not found",
    ],
)
def test_no_path_of_the_run(tmp_path, error) -> None:
    result = trace_missing_paths(
        Workspace([made(tmp_path, {"train.log": FAILS.format(error), "train.py": "x = 'a/b'\n"})])
    )
    assert result.outcome == "not_applicable"
