"""Which record of a step: named where it can be, and an honest answer where it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.batch_tools import find_bad_samples

from tests.tools.captured import Seen

JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 8 + b"\xff\xd9"
WAV = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80>\0\0\0}\0\0\2\0\x10\0data\0\0\0\0"


def rows(count: int = 200) -> list[dict]:
    return [{"prompt": f"What is {n} and {n * 7}?", "response": f"That is {n * 8}."} for n in range(count)]


def ask(folder: Path, data: list[dict] | None = None, **args) -> Seen:
    if data is not None:
        (folder / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in data))
    result = find_bad_samples(Workspace([folder]), **args)
    for e in result.evidence:
        assert find_bad_samples.allows(e.key)
    return Seen(result, folder)


def run(folder: Path, *, shuffle: str) -> None:
    """A run of 4 x 2 samples a step whose loss is NaN at step 13."""
    log = "".join(f"step: {n} loss: {'nan' if n == 13 else 2.5 - n / 50:.4}\n" for n in range(1, 21))
    (folder / "train.log").write_text(log)
    (folder / "config.yaml").write_text(
        f"per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\nworld_size: 1\nshuffle: {shuffle}\n"
    )


def test_data_in_order_name_the_record(tmp_path) -> None:
    run(tmp_path, shuffle="false")
    data = rows()
    data[99]["response"] = ""
    seen = ask(tmp_path, data)
    assert seen.one("sample.step") == 13
    assert seen.one("sample.range") == "96-103"
    assert [(e.line, e.value) for e in seen.of("sample.bad_in_step")] == [(100, "empty")]
    assert [e.line for e in seen.of("sample.of_step")] == [97, 98, 99, 101, 102, 103, 104]


def test_shuffled_data_say_so_and_what_to_log(tmp_path) -> None:
    run(tmp_path, shuffle="true")
    data = rows()
    data[150]["prompt"] = None
    seen = ask(tmp_path, data)
    assert "shuffled" in seen.result.text and "log the indices" in seen.result.text
    assert seen.one("sample.empty") == "prompt"
    assert not seen.values("sample.range")


def test_logged_indices_win(tmp_path) -> None:
    run(tmp_path, shuffle="true")
    (tmp_path / "data_order.log").write_text("step 12 indices: [1, 2]\nstep 13 indices: [7, 150, 31]\n")
    data = rows()
    data[150]["prompt"] = "x\ufffd\ufffdy"
    seen = ask(tmp_path, data)
    assert seen.one("sample.logged_indices") == 3
    assert [(e.line, e.value) for e in seen.of("sample.bad_in_step")] == [(151, "encoding")]


def test_samples_consumed_as_megatron_logs_them(tmp_path) -> None:
    line = " iteration {n:8d}/     200 | consumed samples: {c:12d} | learning rate: 1.0E-04 | global batch size: 16 | lm loss: {v} |"
    text = "\n".join(
        line.format(n=n, c=1000 + n * 16, v="nan" if n == 9 else f"{5 - n / 10:.6E}") for n in range(1, 12)
    )
    (tmp_path / "train.log").write_text(text + "\n")
    (tmp_path / "run.sh").write_text(
        "python pretrain_gpt.py --global-batch-size 16 --micro-batch-size 4 --no-shuffle\n"
    )
    seen = ask(tmp_path, rows(1200))
    assert seen.one("sample.range") == f"{1000 + 8 * 16}-{1000 + 9 * 16 - 1}"


@pytest.mark.parametrize(
    ("spoil", "key"),
    [
        ({"score": float("inf")}, "not_finite"),
        ({"response": ""}, "empty"),
        ({"response": "word " * 20000}, "too_long"),
        ({"input_ids": [5, -7, 3]}, "out_of_range"),
        ({"labels": [-100, -100, -100, -100]}, "all_masked"),
        ({"image": "pictures/none.jpg"}, "media_missing"),
    ],
)
def test_one_bad_record(tmp_path, spoil, key) -> None:
    (tmp_path / "config.yaml").write_text("max_seq_length: 512\n")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "one.jpg").write_bytes(JPEG)
    data = rows()
    data[42] = {**data[42], **spoil}
    seen = ask(tmp_path, data)
    assert seen.of(f"sample.{key}")[0].line == 43
    assert {e.key for e in seen.evidence} == {f"sample.{key}"}


def test_pictures_and_sounds(tmp_path) -> None:
    for name, data in {"a.jpg": JPEG, "b.jpg": JPEG[:500], "c.png": b"", "d.wav": WAV, "e.jpg": b"<html>"}.items():
        (tmp_path / name).write_bytes(data)
    seen = ask(tmp_path)
    told = {e.file: e.value for e in seen.of("sample.broken_media")}
    assert set(told) == {"b.jpg", "c.png", "d.wav", "e.jpg"}
    assert told["d.wav"] == "a sound of length zero"


def test_losses_of_single_samples(tmp_path) -> None:
    (tmp_path / "sample_losses.jsonl").write_text(
        "".join(
            json.dumps({"sample_id": n, "loss": float("nan") if n == 31 else 90.0 if n == 60 else 2 + n % 7 / 10})
            + "\n"
            for n in range(100)
        )
    )
    seen = ask(tmp_path)
    assert seen.one("sample.loss_not_finite") == "31"
    assert seen.values("sample.loss_outlier") == ["60"]
    assert seen.of("sample.loss_outlier")[0].line == 61


def test_sound_records_are_clean(tmp_path) -> None:
    assert ask(tmp_path, rows()).result.outcome == "clean"
    assert find_bad_samples(Workspace([tmp_path]), step=3).outcome == "clean"


def test_nothing_to_look_at(tmp_path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    assert find_bad_samples(Workspace([tmp_path])).outcome == "not_applicable"


def test_records_that_cannot_be_opened_are_not_called_clean(tmp_path) -> None:
    (tmp_path / "outside").mkdir()
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "outside" / "train-2.jsonl").write_text('{"prompt": ""}\n')
    (folder / "train-2.jsonl").symlink_to(tmp_path / "outside" / "train-2.jsonl")
    seen = ask(folder, rows())
    assert seen.result.outcome == "failed"
    assert "train-2.jsonl" in seen.result.text


def test_a_part_that_is_not_read_is_no_finding(tmp_path, monkeypatch) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"prompt": ["a question of ordinary length"] * 50}), tmp_path / "train.parquet")
    monkeypatch.setattr("traindoctor.agent.reading.datasets.columnar.GROUP", 10)
    seen = ask(tmp_path)
    assert seen.result.outcome == "failed"
    assert not seen.values("sample.not_read")


def test_a_picture_that_cannot_be_opened_is_told(tmp_path) -> None:
    (tmp_path / "a.jpg").write_bytes(JPEG)
    (tmp_path / "b.jpg").write_bytes(JPEG)
    ws = Workspace([tmp_path])
    (tmp_path / "b.jpg").unlink()
    result = find_bad_samples(ws)
    assert "b.jpg: cannot be read" in " ".join(f"{n}: {w}" for n, w in ws.skipped)
    assert result.outcome == "failed"


def test_pictures_are_looked_up_once_for_all_records(tmp_path) -> None:
    """The names of the run are gone through once, not for every record."""
    from traindoctor.agent.reading.datasets import record_questions

    (tmp_path / "one.jpg").write_bytes(JPEG)
    held = record_questions.held_media(Workspace([tmp_path]))
    assert held.misses("pictures/two.jpg")
    assert not held.misses("C:\\pictures\\one.jpg")
    assert not held.misses("sound.wav")  # the run holds no sounds at all
