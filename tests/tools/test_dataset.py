"""Whole datasets of every format: sound ones are clean, spoiled ones are told with the record that shows it."""

from __future__ import annotations

import csv
import io
import json
import random
import struct
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.dataset_tools import check_dataset, sample_records

from tests.tools.captured import Seen

WORDS = [
    "river",
    "stone",
    "window",
    "garden",
    "copper",
    "signal",
    "morning",
    "letter",
    "engine",
    "harbour",
    "winter",
    "paper",
    "silver",
    "doctor",
    "bridge",
    "yellow",
    "forest",
    "kitchen",
    "planet",
    "orange",
    "mirror",
    "basket",
    "candle",
    "thunder",
    "pocket",
    "island",
    "violin",
    "ladder",
    "cotton",
    "anchor",
]


def prose(seed: int, words: int = 40) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) + str(rng.randrange(50)) for _ in range(words)) + "."


def pairs(count: int, first: int = 0) -> list[dict]:
    return [{"prompt": prose(2 * n), "response": prose(2 * n + 1, 25)} for n in range(first, first + count)]


def jsonl(rows: list[dict]) -> str:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)


def ask(folder: Path, **args) -> Seen:
    result = check_dataset(Workspace([folder]), **args)
    for e in result.evidence:
        assert check_dataset.allows(e.key)
    return Seen(result, folder)


def write(folder: Path, kind: str, rows: list[dict]) -> str:
    """The same rows in one of the formats."""
    if kind == "jsonl":
        (folder / "train.jsonl").write_text(jsonl(rows))
    elif kind == "json":
        (folder / "train.json").write_text(json.dumps(rows))
    elif kind == "json_pretty":
        (folder / "train.json").write_text(json.dumps({"version": [1], "data": rows}, indent=2))
    elif kind == "csv":
        with (folder / "train.csv").open("w", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet", row_group_size=50)
    elif kind == "arrow_file":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_file(str(folder / "train.arrow"), table.schema) as out:
            out.write_table(table, max_chunksize=50)
    elif kind == "arrow_stream":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(str(folder / "train.arrow"), table.schema) as out:
            out.write_table(table, max_chunksize=50)
    elif kind == "tar":
        with tarfile.open(folder / "train-000.tar", "w") as out:
            for n, row in enumerate(rows):
                data = json.dumps(row).encode()
                info = tarfile.TarInfo(f"{n:06d}.json")
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))
    return kind


KINDS = ("jsonl", "json", "json_pretty", "csv", "parquet", "arrow_file", "arrow_stream", "tar")


@pytest.mark.parametrize("kind", KINDS)
def test_sound_data_is_clean(tmp_path, kind) -> None:
    write(tmp_path, kind, pairs(120))
    seen = ask(tmp_path, path="train*")
    assert seen.result.outcome == "clean", seen.result.text
    assert seen.one("data.records") == 120


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "tar"])
def test_one_spoiled_record_among_many(tmp_path, kind) -> None:
    rows = pairs(120)
    rows[77]["response"] = ""
    rows[90]["prompt"] = "caf\u00c3\u00a9 " + rows[90]["prompt"]
    write(tmp_path, kind, rows)
    seen = ask(tmp_path, path="train*")
    assert seen.result.outcome == "finding"
    assert seen.one("data.empty_fields") == "response"
    assert seen.one("data.encoding_damage") == 1
    shown = seen.of("data.empty_fields")[0]
    if kind == "jsonl":
        assert shown.line == 78
    if kind == "csv":
        assert shown.line == 79
    if kind in ("parquet",) or kind.startswith("arrow"):
        assert shown.member and shown.member.endswith("1, row 27")


def test_copies_near_copies_and_what_is_neither(tmp_path) -> None:
    rows = pairs(300)
    near = [dict(r, response=r["response"].replace("river", "brook", 1) + " Indeed.") for r in rows[:30]]
    (tmp_path / "train.jsonl").write_text(jsonl(rows + near))
    seen = ask(tmp_path)
    assert 0.05 <= seen.one("data.near_duplicates") <= 0.12
    assert not seen.values("data.duplicates")
    (tmp_path / "train.jsonl").write_text(jsonl(rows + rows[:90]))
    seen = ask(tmp_path)
    assert seen.one("data.duplicates") == pytest.approx(90 / 390, abs=0.001)
    assert seen.of("data.duplicates")[0].line == 301
    assert not seen.values("data.near_duplicates")


def test_a_test_set_in_the_training_data(tmp_path) -> None:
    train, test = pairs(200), pairs(40, first=500)
    for n in range(10):
        train[n * 7]["prompt"] = "Some page said: " + test[n]["prompt"] + " " + prose(9000 + n)
    (tmp_path / "train.jsonl").write_text(jsonl(train))
    (tmp_path / "gsm_test.jsonl").write_text(jsonl(test))
    seen = ask(tmp_path)
    assert seen.one("data.contamination") == 10
    clean = pairs(40, first=900)
    (tmp_path / "gsm_test.jsonl").write_text(jsonl(clean))
    assert ask(tmp_path).result.outcome == "clean"


def test_a_named_evaluation_set(tmp_path) -> None:
    train, items = pairs(200), pairs(30, first=500)
    train[7]["prompt"] = items[3]["prompt"]
    (tmp_path / "train.jsonl").write_text(jsonl(train))
    (tmp_path / "gsm.jsonl").write_text(jsonl(items))
    assert ask(tmp_path, path="train.jsonl", against="gsm.jsonl").one("data.contamination") == 1
    with pytest.raises(ToolError, match="no evaluation set"):
        ask(tmp_path, against="other.jsonl")


def test_a_template_shared_by_all_items_is_no_overlap(tmp_path) -> None:
    head = "Below is an instruction that describes a task. Write a response that completes the request well. "
    train = [dict(r, prompt=head + r["prompt"]) for r in pairs(200)]
    test = [dict(r, prompt=head + r["prompt"]) for r in pairs(60, first=500)]
    (tmp_path / "train.jsonl").write_text(jsonl(train))
    (tmp_path / "valid.jsonl").write_text(jsonl(test))
    assert not ask(tmp_path).values("data.contamination")


@pytest.mark.parametrize(("labels", "met"), [(("rise", "rise"), [1, 1]), (("rise", "fall"), [])])
def test_half_of_an_item_under_another_label_is_no_overlap(tmp_path, labels: tuple[str, str], met: list[int]) -> None:
    words = prose(4).split()
    texts = [" ".join([*words[:20], *(f"{end}{n}" for n in range(7))]) for end in ("sea", "moor")]
    rows = [[dict(r, label=labels[0], text=r["prompt"]) for r in pairs(40, first=400 * n)] for n in (1, 2)]
    for some, label, text in zip(rows, labels, texts, strict=True):
        some[9] = {"text": text, "label": label}
    (tmp_path / "train.jsonl").write_text(jsonl(rows[0]))
    (tmp_path / "test.jsonl").write_text(jsonl(rows[1]))
    found = ask(tmp_path).values("data.contamination")
    assert found[:2] == met[: len(found)] and bool(found) == bool(met)


def test_ids_against_the_vocabulary(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["X"], "vocab_size": 1000}')
    rows = [{"input_ids": [(n * 7 + k) % 1000 for k in range(20)]} for n in range(30)]
    (tmp_path / "train.jsonl").write_text(jsonl(rows))
    assert ask(tmp_path).result.outcome == "clean"
    rows[12]["input_ids"][3] = 1000
    rows[13]["input_ids"][3] = -1
    (tmp_path / "train.jsonl").write_text(jsonl(rows))
    seen = ask(tmp_path)
    assert set(seen.values("data.token_out_of_range")) == {1000, -1}


def _megatron(folder: Path, documents: list[list[int]]) -> None:
    data = b"".join(np.array(d, "<i4").tobytes() for d in documents)
    (folder / "corpus_text_document.bin").write_bytes(data)
    lengths = np.array([len(d) for d in documents], "<i4")
    pointers = np.concatenate(([0], np.cumsum(lengths[:-1].astype("i8") * 4)))
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(documents), len(documents) + 1)
    tail = lengths.tobytes() + pointers.astype("<i8").tobytes() + np.arange(len(documents) + 1, dtype="<i8").tobytes()
    (folder / "corpus_text_document.idx").write_bytes(head + tail)


def test_a_megatron_dataset(tmp_path) -> None:
    (tmp_path / "train.sh").write_text("python pretrain_gpt.py --vocab-size 500 --seq-length 128\n")
    (tmp_path / "config.json").write_text('{"vocab_size": 500}')
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 500, 50).tolist() for _ in range(40)]
    _megatron(tmp_path, documents)
    assert ask(tmp_path).result.outcome == "clean"
    documents[7][3], documents[9] = 501, []
    _megatron(tmp_path, documents)
    seen = ask(tmp_path)
    assert seen.one("data.token_out_of_range") == 501
    assert seen.of("data.token_out_of_range")[0].member == f"id {7 * 50 + 3}"
    assert seen.one("data.empty_fields") == "sequence"
    data = (tmp_path / "corpus_text_document.bin").read_bytes()
    (tmp_path / "corpus_text_document.bin").write_bytes(data[:-40])
    assert "cut off" in ask(tmp_path).one("data.corrupt")


def test_flat_token_files(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 50304}')
    ids = np.random.default_rng(0).integers(0, 50257, 300_000)
    ids.astype("<u2").tofile(tmp_path / "train.bin")
    assert ask(tmp_path).result.outcome == "clean"
    ids.astype("<u4").tofile(tmp_path / "train.bin")
    assert ask(tmp_path).one("data.token_width") == 32
    ids[1234] = 60000
    ids.astype("<u2").tofile(tmp_path / "train.bin")
    np.save(tmp_path / "val_tokens.npy", ids.astype("<i8"))
    seen = ask(tmp_path)
    assert seen.values("data.token_out_of_range") == [60000, 60000]


def test_pictures_in_a_shard(tmp_path) -> None:
    good = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 4 + b"\xff\xd9"
    members = {
        "a.jpg": good,
        "a.txt": b"a red house",
        "b.jpg": good[:300],
        "b.txt": b"a cat",
        "c.jpg": b"",
        "c.txt": b"x",
    }
    with tarfile.open(tmp_path / "shard-0.tar", "w") as out:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    seen = ask(tmp_path)
    assert seen.one("data.broken_media").startswith("b.jpg: cut off")
    assert seen.one("data.empty_member") == "c.jpg is empty"


def test_rare_mentions_in_natural_text_are_no_findings(tmp_path) -> None:
    rows = pairs(1200)
    rows[5]["response"] += " Write <image> where the picture goes."
    rows[6]["response"] += " <|im_start|>assistant\nas in this template"
    rows[7]["response"] += " The sign \ufffd stands for what could not be decoded."
    (tmp_path / "train.jsonl").write_text(jsonl(rows))
    seen = ask(tmp_path)
    assert seen.result.outcome == "clean", seen.result.summary
    assert seen.values("data.odd_characters") == [1]


def test_lengths_by_the_runs_own_tokenizer(tmp_path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.train_from_iterator(
        [prose(n) for n in range(50)], trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"])
    )
    inner.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.yaml").write_text("cutoff_len: 300\n")
    rows = pairs(60)
    rows[5]["response"] = prose(77, 400)
    (tmp_path / "train.jsonl").write_text(jsonl(rows))
    seen = ask(tmp_path)
    expected = len(inner.encode("\n".join(rows[5].values())).ids)
    assert seen.values("data.long_records") == [expected]
    assert seen.of("data.long_records")[0].line == 6
    assert "tokens of tokenizer.json" in seen.result.text


def test_a_large_file_is_sampled_evenly_and_that_is_said(tmp_path) -> None:
    (tmp_path / "train.jsonl").write_text(jsonl(pairs(3000)))
    seen = ask(tmp_path, sample=100)
    assert seen.result.outcome == "failed"
    assert "of 3000 records" in seen.result.summary
    assert "not everything was read" in seen.result.summary


def test_damage_is_seen_in_lines_that_are_not_parsed(tmp_path) -> None:
    lines = jsonl(pairs(3000)).encode().splitlines(keepends=True)
    lines[1501] = lines[1501][:40] + b"\n"
    lines[1503] = lines[1503].replace(b"river", b"r\xff\xfever", 1).replace(b"stone", b"st\xe9ne", 1)
    (tmp_path / "train.jsonl").write_bytes(b"".join(lines))
    seen = ask(tmp_path, sample=100)
    assert seen.of("data.torn_records")[0].line == 1502
    assert seen.of("data.encoding_damage")[0].line == 1504


@pytest.mark.parametrize(
    ("spoil", "key"),
    [
        (lambda r: r[10].update(response="ha " * 900), "data.repetitive_share"),
        (lambda r: r[10].update(prompt="\x1b[31mred\x1b[0m \x02"), "data.control_characters"),
        (
            lambda r: [x.update(label=n // 30) for n, x in enumerate(r)] and r[0].update(label=-1),
            "data.label_out_of_range",
        ),
        (lambda r: [x.update(label="yes") for x in r], "data.single_class"),
        (lambda r: r[3].update(score=float("nan")), "data.not_finite"),
        (lambda r: r[3].pop("response"), "data.missing_fields"),
        (lambda r: r[5].update(response=["a", "b"]), "data.schema_differs"),
    ],
)
def test_what_else_is_told(tmp_path, spoil, key) -> None:
    rows = pairs(90)
    spoil(rows)
    (tmp_path / "train.jsonl").write_text(jsonl(rows))
    assert ask(tmp_path).values(key)


def test_broken_columnar_files(tmp_path) -> None:
    write(tmp_path, "parquet", pairs(200))
    whole = (tmp_path / "train.parquet").read_bytes()
    (tmp_path / "train.parquet").write_bytes(whole[:-100])
    assert "cut off" in ask(tmp_path).one("data.corrupt")
    meta = pq.ParquetFile(io.BytesIO(whole)).metadata
    start = meta.row_group(2).column(0).dictionary_page_offset or meta.row_group(2).column(0).data_page_offset
    (tmp_path / "train.parquet").write_bytes(whole[:start] + b"\xff" * 200 + whole[start + 200 :])
    seen = ask(tmp_path)
    assert seen.of("data.corrupt")[0].member == "row group 2"
    assert seen.one("data.records") == 200
    (tmp_path / "train.parquet").unlink()
    write(tmp_path, "arrow_stream", pairs(200))
    whole = (tmp_path / "train.arrow").read_bytes()
    (tmp_path / "train.arrow").write_bytes(whole[: len(whole) * 2 // 3])
    assert ask(tmp_path).values("data.corrupt")


def test_records_are_shown(tmp_path) -> None:
    rows = pairs(50)
    rows[20]["response"] = prose(5, 300)
    rows[21]["response"] = "again " * 200
    rows[22]["response"] = "zero\u200bwidth"
    (tmp_path / "train.jsonl").write_text(jsonl(rows))
    ws = Workspace([tmp_path])
    assert [e.line for e in sample_records(ws, where="longest", count=1).evidence] == [21]
    assert [e.line for e in sample_records(ws, where="repetitive", count=5).evidence] == [22]
    assert [e.line for e in sample_records(ws, where="odd").evidence] == [23]
    some = sample_records(ws, count=7)
    assert len(some.evidence) == 7
    assert some.evidence == sample_records(ws, count=7).evidence
    assert some.evidence != sample_records(ws, count=7, seed=1).evidence


def test_nothing_to_look_at(tmp_path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    assert check_dataset(Workspace([tmp_path])).outcome == "not_applicable"
    assert sample_records(Workspace([tmp_path])).outcome == "not_applicable"


def test_a_file_without_a_readable_record_is_no_missing_one(tmp_path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"PAR1" + bytes(100))
    shown = sample_records(Workspace([tmp_path]))
    assert shown.outcome == "failed"
    assert "PAR1" in shown.summary


def test_a_dataset_that_cannot_be_opened_is_told(tmp_path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "notes.txt").write_text("a note\n")
    (tmp_path / "train.jsonl").write_text('{"a": 1}\n')
    (folder / "train.jsonl").symlink_to(tmp_path / "train.jsonl")
    checked = check_dataset(Workspace([folder]))
    assert checked.outcome == "failed"
    assert "train.jsonl" in checked.summary
