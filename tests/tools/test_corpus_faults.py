"""Data that are furniture of pages, read with another encoding, or samples that never come to an end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.dataset_tools import check_data_files, eval_failures

STORIES = [f"In the year {n} the miller's daughter walked to the sea and counted {n + 3} gulls." for n in range(60)]
PAGES = [
    "We use cookies to improve your experience. Accept all | Reject", "Home | News | Sport | Contact | Log in",
    "404 - the page you asked for is not here.", '<div class="nav">Products</div>', "Please enable JavaScript to go on",
    "(c) 2019 All rights reserved. Privacy policy", "Read more ...", "Be the first to comment",
]  # fmt: skip
COOKBOOK = "To keep cookies crisp, let them cool. " * 12 + "Our newsletter named this one the best of the year."


def told(folder: Path, key: str, tool=check_data_files) -> list[object]:
    return [e.value for e in tool(Workspace([folder])).evidence if e.key == key]


def corpus(folder: Path, texts: list[str], name: str = "train.jsonl") -> None:
    (folder / name).write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))


def test_furniture_of_pages(tmp_path: Path) -> None:
    corpus(tmp_path, [*STORIES[:8], *PAGES * 4])
    assert told(tmp_path, "data.boilerplate") == [0.8]


def test_stories_and_long_texts_that_name_a_newsletter(tmp_path: Path) -> None:
    corpus(tmp_path, [*STORIES[:20], *[f"{n} {COOKBOOK}" for n in range(20)], *PAGES[:4]])
    assert told(tmp_path, "data.boilerplate") == []


def test_repeats_count_in_a_corpus_alone(tmp_path: Path) -> None:
    corpus(tmp_path, STORIES[:4] * 10)
    assert told(tmp_path, "data.duplicates") == [0.9]
    (tmp_path / "train.jsonl").rename(tmp_path / "eval.jsonl")
    assert told(tmp_path, "data.duplicates") == []
    rows = [{"question": "1+1", "generated": "A: 2.", "extracted": "2", "reference": "2"}] * 20
    (tmp_path / "eval.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert told(tmp_path, "data.duplicates") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lm.yaml", "train_file: train.txt\nencoding: latin-1\nlr: 1.0e-3\n"),
        ("load.py", 'import pandas as pd\nframe = pd.read_csv("train.txt", sep="|", encoding="cp1252")\n'),
        ("args.json", '{"train_file": "train.txt", "file_encoding": "ISO-8859-15", "lr": 0.001}'),
    ],
)
def test_utf8_read_as_bytes_of_their_own(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    words = "La forêt étudie une idée, et l'élève préfère le café.\n" * 20
    (tmp_path / "train.txt").write_text(words, encoding="utf-8")
    assert len(told(tmp_path, "data.encoding_misread")) == 1
    (tmp_path / "train.txt").write_text(words, encoding="latin-1")  # then the wish is right
    assert told(tmp_path, "data.encoding_misread") == []
    (tmp_path / "train.txt").write_text("plain words\n" * 50)
    assert told(tmp_path, "data.encoding_misread") == []


def test_utf8_read_as_utf8(tmp_path: Path) -> None:
    (tmp_path / "lm.yaml").write_text("train_file: train.txt\nencoding: utf-8\nlr: 1.0e-3\n")
    (tmp_path / "train.txt").write_text("La forêt étudie une idée.\n" * 20, encoding="utf-8")
    assert told(tmp_path, "data.encoding_misread") == []


def test_a_table_of_samples_by_its_name(tmp_path: Path) -> None:
    rows = [f"mar,{s.replace(',', '')},{n % 2}\n" for n, s in enumerate(STORIES)]
    (tmp_path / "train.csv").write_text("month,text,angry\n" + "".join(rows))
    (tmp_path / "test.csv").write_text("month,text,angry\n" + "".join(rows[:20]))
    assert 20 in told(tmp_path, "data.contamination")
    (tmp_path / "test.csv").write_text("epoch,loss,acc\n1,0.7,0.5\n2,0.6,0.6\n")
    assert {f.name: f.role for f in Workspace([tmp_path]).files} == {"test.csv": "metrics", "train.csv": "data"}


@pytest.mark.parametrize(
    ("name", "line", "count"),
    [
        ("samples.txt", "the mugs are in the van the van the van\n    (40 tokens)\n", 1),
        ("gen.jsonl", '{"prompt": "where", "text": "in the van the van", "n_tokens": 40}\n', 1),
        ("samples.txt", "the mugs are in the van\n    (7 tokens)\n", 0),
        ("samples.txt", "document (1200 tokens)\n(40 tokens)\n", 0),
    ],
)
def test_samples_that_run_to_the_limit(tmp_path: Path, name: str, line: str, count: int) -> None:
    (tmp_path / "run.yaml").write_text("max_new_tokens: 40\nlr: 1.0e-3\n")
    (tmp_path / name).write_text(line * 6)
    assert len(told(tmp_path, "data.length_limited")) == count


def answers(folder: Path, said: list[tuple[str, str | None, str]]) -> None:
    rows = [{"question": "q", "generated": g, "extracted": e, "reference": r} for g, e, r in said]
    (folder / "generations.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def test_right_answers_that_no_pattern_finds(tmp_path: Path) -> None:
    answers(tmp_path, [(f"A: {n}.", None, str(n)) for n in range(20, 40)])
    assert told(tmp_path, "eval_result.not_extracted", eval_failures)[0] == 1.0


def test_answers_that_are_wrong_and_answers_that_are_right(tmp_path: Path) -> None:
    answers(tmp_path, [(f"A: {n + 7}.", str(n + 7), str(n)) for n in range(20, 40)])
    assert told(tmp_path, "eval_result.plainly_wrong", eval_failures) == [1.0]
    answers(tmp_path, [(f"A: {n}.", str(n), str(n)) for n in range(20, 40)])
    seen = eval_failures(Workspace([tmp_path]))
    assert seen.outcome == "clean" and [e.value for e in seen.evidence if e.key == "eval_result.accuracy"] == [1.0]
