"""Broken and hostile dataset files: no crash, bounded memory, never called clean where something was not read."""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.batch_tools import find_bad_samples, inspect_batch
from traindoctor.agent.tools.data.dataset_tools import check_dataset, eval_failures, sample_records

from tests.tools.captured import Seen
from tests.tools.test_dataset import _megatron, jsonl, pairs, write

TOOLS = (check_dataset, sample_records, find_bad_samples, inspect_batch, eval_failures)
GOOD = jsonl(pairs(40)).encode()
LINE = GOOD.split(b"\n")[0]


def ask(folder: Path) -> Seen:
    for tool in TOOLS:
        Seen(tool(Workspace([folder])), folder)
    return Seen(check_dataset(Workspace([folder])), folder)


TEXTS = {
    "nul_bytes": GOOD + b"\0" * 5000 + b"\n" + GOOD,
    "invalid_utf8": GOOD + LINE.replace(b"e", b"\xff\xfe", 2) + b"\n",
    "torn_in_the_middle": GOOD + LINE[: len(LINE) // 2] + b"\n" + LINE + b"\n",
    "deep_lists": GOOD + b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "number_of_5000_digits": GOOD + b'{"prompt": "x", "response": ' + b"9" * 5000 + b"}\n",
    "line_without_end": GOOD + b'{"prompt": "' + b"a" * (12 << 20),
    "lone_surrogates": GOOD + b'{"prompt": "\\ud800 odd", "response": "\\udfff"}\n' * 5,
    "not_a_number": GOOD + b'{"prompt": "a", "response": NaN}\n',
    "empty": b"",
    "only_blank_lines": b"\n" * 5000,
    "html": b"<!DOCTYPE html><html><body>403 Forbidden</body></html>\n" * 3,
    "git_pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 12\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_broken_lines(tmp_path, name) -> None:
    (tmp_path / "train.jsonl").write_bytes(TEXTS[name])
    seen = ask(tmp_path)
    if TEXTS[name].strip():
        assert seen.result.outcome in ("finding", "failed"), name


@pytest.mark.parametrize(
    "text", [GOOD.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + GOOD, GOOD.decode().encode("utf-16")], ids=["crlf", "bom", "utf16"]
)  # fmt: skip
def test_what_only_looks_odd_is_clean(tmp_path, text) -> None:
    (tmp_path / "train.jsonl").write_bytes(text)
    result = check_dataset(Workspace([tmp_path]))
    assert result.outcome == "clean", result.text


def test_packed_files(tmp_path) -> None:
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(GOOD))
    assert ask(tmp_path).result.outcome == "clean"
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(GOOD)[:-200])
    assert ask(tmp_path).result.outcome != "clean"
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b" " * (80 << 20) + b"\n" + GOOD))  # a bomb
    assert ask(tmp_path).result.outcome != "clean"


def test_arrays(tmp_path) -> None:
    for number, text in enumerate((
        b"[" * 5000, b'[{"a": 1}, {"a": ', b'[{"a": 1}]]]]}', b'{"data": [{"text": "' + b"x" * (10 << 20), b"[1, 2, 3]", b'[{"text": "\\',
    )):  # fmt: skip
        (tmp_path / "train.json").write_bytes(b'[{"text": "a"}]' if number < 0 else text)
        result = check_dataset(Workspace([tmp_path]), path="train.json")
        assert result.outcome in ("finding", "failed"), text[:40]


def test_a_csv_of_a_million_columns_and_one_of_open_quotes(tmp_path) -> None:
    (tmp_path / "train.csv").write_bytes(b"text," + b"a," * 1_000_000 + b"\n" + b"1," * 1_000_000 + b"\n")
    assert ask(tmp_path).result.outcome in ("finding", "failed")
    (tmp_path / "train.csv").write_bytes(b'text,label\n"never closed,1\n' + b"a,1\n" * 60_000)
    assert ask(tmp_path).values("data.torn_records")


@pytest.mark.real
def test_memory_is_bounded(tmp_path) -> None:
    row = json.dumps({"input_ids": list(range(2000)), "labels": list(range(2000))}).encode() + b"\n"
    (tmp_path / "train.jsonl").write_bytes(row * 1000)
    tracemalloc.start()
    result = check_dataset(Workspace([tmp_path]), sample=2000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 250 << 20
    assert "data.duplicates" in {e.key for e in result.evidence}


def test_claims_of_binary_files(tmp_path) -> None:
    """Sizes that the headers claim and the files do not have."""
    _megatron(tmp_path, [[1, 2, 3]] * 5)
    index = tmp_path / "corpus_text_document.idx"
    head = index.read_bytes()
    for sequences in (1 << 40, 1 << 62, 10_000_000):
        index.write_bytes(head[:18] + struct.pack("<QQ", sequences, 5) + head[34:])
        assert ask(tmp_path).values("data.corrupt")
    index.unlink()
    np.save(tmp_path / "train_tokens.npy", np.arange(10))
    data = (tmp_path / "train_tokens.npy").read_bytes()
    (tmp_path / "train_tokens.npy").write_bytes(data.replace(b"(10,)", b"(9999999999,)"[:5]))
    assert ask(tmp_path).result.outcome != "clean"
    (tmp_path / "train_tokens.npy").write_bytes(data.replace(b"'<i8'", b"'|O8'"))
    assert ask(tmp_path).result.outcome != "clean"
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + b"\0" * 50 + struct.pack("<I", 0x7FFFFFFF) + b"PAR1")
    assert ask(tmp_path).values("data.corrupt")


def test_a_tar_with_names_that_climb(tmp_path) -> None:
    with tarfile.open(tmp_path / "train.tar", "w") as out:
        for name in ("../../etc/passwd.json", "/abs/x.json", "a/\x1b[31m.json"):
            out.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(link)
    ask(tmp_path)
    assert not (tmp_path.parent.parent / "etc").exists()


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?:\\w|\\d)*x", r"(a)\\1"])
def test_a_tokenizer_with_a_costly_pattern_is_not_used_to_count(tmp_path, pattern) -> None:
    tree = {
        "version": "1.0", "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern.replace("\\\\", "\\")}, "behavior": "Isolated", "invert": False},
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    (tmp_path / "train.jsonl").write_text(json.dumps({"prompt": "a" * 60_000 + "!", "response": "b"}) + "\n")
    assert "an estimate" in check_dataset(Workspace([tmp_path])).text


@pytest.mark.parametrize("text", ["{}", "[", "null", '{"model": {"type": "BPE", "vocab": {"a": -1}}}', "[" * 50_000])
def test_a_broken_tokenizer(tmp_path, text) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    (tmp_path / "train.jsonl").write_bytes(GOOD)
    assert ask(tmp_path).result.outcome == "clean"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission(tmp_path) -> None:
    (tmp_path / "train.jsonl").write_bytes(GOOD)
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    (tmp_path / "a.jsonl").chmod(0)
    assert ask(tmp_path).one("data.records") == 40


@pytest.mark.parametrize("kind", ["parquet", "arrow_file", "arrow_stream", "tar", "json", "csv", "npz", "megatron"])
def test_flipped_and_cut(tmp_path, kind) -> None:
    rng = random.Random(kind)
    if kind == "npz":
        np.savez_compressed(tmp_path / "train_tokens.npz", a=np.arange(5000) % 500)
    elif kind == "megatron":
        _megatron(tmp_path, [[n % 50 for n in range(40)] for _ in range(40)])
    else:
        write(tmp_path, kind, pairs(60))
    path = next(
        p for p in tmp_path.iterdir() if p.suffix in (".parquet", ".arrow", ".tar", ".json", ".csv", ".npz", ".idx")
    )
    whole = path.read_bytes()
    for _ in range(12):
        data = bytearray(whole)
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[at : at + rng.randrange(1, 100)] = rng.randbytes(rng.randrange(1, 100))
        else:
            data = data[: at + 1]
        path.write_bytes(bytes(data))
        Seen(check_dataset(Workspace([tmp_path])), tmp_path)


@pytest.mark.parametrize(
    "text", ['[{"a": 1}, {"b": 2}]', '[\n{"a":\n 1},\n\n{"b": 2}, {"c": 3}\n]\n', '{"x": [\n{"a": 1}]}']
)
@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_records_of_an_array_stand_where_they_begin(tmp_path, text, cut) -> None:
    """Wherever the blocks are cut, lines are those that counting newlines gives."""
    from traindoctor.agent.reading.datasets.text_rows import array_rows
    from traindoctor.agent.reading.run.files import RunFile

    data = text.encode()
    file = RunFile("a.json", tmp_path / "a.json", "data", len(data))
    blocks = (data[n : n + cut] for n in range(0, len(data), cut))
    rows = list(array_rows(blocks, file, lambda _: None, lambda _: True))
    starts = [i for i, c in enumerate(text) if c == "{" and not (text.startswith('{"x"') and i == 0)]
    assert [r.line.number for r in rows] == [1 + text.count("\n", 0, i) for i in starts]
    assert [r.line.offset for r in rows] == [text.rfind("\n", 0, i) + 1 for i in starts]


def test_lines_of_many_records_are_counted_once() -> None:
    """Bytes that are gone through for the lines of all records grow with the bytes, not with their square."""
    from traindoctor.agent.reading.datasets.text_rows import _Scan

    class Counted(bytes):
        passed = 0

        def count(self, what, start=0, end=None):  # pyright: ignore
            Counted.passed += (len(self) if end is None else end) - start
            return super().count(what, start, len(self) if end is None else end)

        def find(self, what, start=0):  # pyright: ignore
            found = super().find(what, start)
            Counted.passed += (found if found >= 0 else len(self)) - start
            return found

    for text in (b"[\n" + b'{"a": 1},\n' * 2000, b"[" + b'{"a": 1}, ' * 2000):
        scan = _Scan()
        scan.held, Counted.passed = Counted(text), 0
        assert len([scan.line(start) for start, _ in scan.records()]) == 2000
        assert Counted.passed < 10 * len(text)
