"""Files of a run: roles, places, and bytes read within bounds."""

import bz2
import gzip
import lzma
import os
import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.run import files
from traindoctor.agent.reading.run.discover import places
from traindoctor.agent.reading.run.files import decoded
from traindoctor.agent.reading.run.roles import role_of
from traindoctor.agent.reading.run.workspace import Workspace


@pytest.mark.parametrize(
    ("name", "head", "role"),
    [
        ("train.log", b"x", "log"),
        ("slurm-12.out", b"x", "log"),
        ("train.log.gz", b"x", "log"),
        ("notebook_output.txt", b"----\nValueError   Traceback (most recent call last)\n", "log"),
        ("console.txt", b"{'loss': 1.2, 'epoch': 0.01}\n", "log"),
        ("attempt_0/3/stderr.log", b"", "log"),
        ("attempt_0/3/error.json", b'{"message": {"message": "x", "extraInfo": {"py_callstack": ""}}}', "log"),
        ("launch.sh", b"torchrun x", "config"),
        ("commands.txt", b"torchrun --nproc 2 t.py\n", "config"),
        ("run.txt", b"#!/bin/bash\nCUDA_VISIBLE_DEVICES=0 python train.py --lr 1\n", "config"),
        ("console.txt", b"python train.py --lr 1\nSteps: 2%|x | 9/400 [00:09<07:00, 1.36it/s, loss=0.2]\n", "log"),
        ("paste.txt", b"$ torchrun t.py\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate\n", "log"),
        ("how.txt", b"python train.py --on_error stop\n# ValueError: seen with lr 2\n", "config"),
        ("ds_config.json", b'{"zero_optimization": {"stage": 3}}', "config"),
        ("pip-freeze.txt", b"torch==2.6\n", "environment"),
        ("versions.txt", b"torch 2.5.1\n", "environment"),
        ("env.txt", b"torch: 2.6\ncuda: 12.4\n", "environment"),
        ("system.txt", b"Ubuntu 24.04\n", "environment"),
        ("requirements.txt", b"trl\n", "environment"),
        ("listing.txt", b"torch==2.1.0\nvllm==0.5.1\n", "environment"),
        ("dmesg.txt", b"[ 1.000000] x", "capture"),
        ("stuck.txt", b"Process 12: python train.py\nThread 12 (idle)\n", "capture"),
        ("poll.txt", b"$ nvidia-smi\n+-----\n", "capture"),
        ("lldb-bt.txt", b"(lldb) bt all\n", "capture"),
        ("gpu.csv", b"index, utilization.gpu [%]\n", "capture"),
        ("metrics.csv", b"step,loss\n1,2\n", "metrics"),
        ("samples.csv", b"text,label\nhello,1\n", "data"),
        ("log.jsonl", b'{"step": 1, "loss": 2.0}\n', "metrics"),
        ("train.jsonl", b'{"messages": []}\n', "data"),
        ("checkpoint-5/trainer_state.json", b"{}", "metrics"),
        ("events.out.tfevents.17.host", b"\x00\x01", "metrics"),
        ("model.safetensors", b"\0", "checkpoint"),
        ("latest_checkpointed_iteration.txt", b"100", "checkpoint"),
        ("train.py", b"import torch", "code"),
        ("blob", b"\0\1\2\3" * 100, "other"),
        ("output", b"epoch 1 loss 2.0\n", "log"),
        ("counts.txt", b"exact_sum 40840\nall_reduce_result 41216\n", "log"),
    ],
)
def test_roles(name: str, head: bytes, role: str) -> None:
    assert role_of(name, head) == role


def test_places_from_names() -> None:
    names = [
        "rank3.log",
        "logs/rank_12.err",
        "worker-a.log",
        "node12/stderr.log",
        "none_abc/attempt_1/5/stderr.log",
        "train.log",
    ]
    found = places((n, "log") for n in names)
    assert found["rank3.log"].rank == 3
    assert found["logs/rank_12.err"].rank == 12
    assert found["worker-a.log"].host == "worker-a"
    assert found["node12/stderr.log"].host == "node12"
    assert (found["none_abc/attempt_1/5/stderr.log"].attempt, found["none_abc/attempt_1/5/stderr.log"].rank) == (1, 5)
    assert found["train.log"].variant is None


@pytest.mark.parametrize(
    ("names", "variants"),
    [
        ({"run_a.log": "log", "run_b.log": "log"}, {"run_a.log": "a", "run_b.log": "b"}),
        ({"cp1.log": "log", "cp2.log": "log"}, {"cp1.log": "cp1", "cp2.log": "cp2"}),
        (
            {"run_1.0.log": "log", "run_1e-6.log": "log", "config_1.0.yaml": "config", "config_1e-6.yaml": "config"},
            {"config_1.0.yaml": "1.0", "run_1e-6.log": "1e-6"},
        ),
        ({"bs1.log": "log", "bs16.log": "log", "train_bs1.yaml": "config"}, {"train_bs1.yaml": "bs1"}),
        ({"good/train.log": "log", "bad/train.log": "log"}, {"good/train.log": "good", "bad/train.log": "bad"}),
        ({"rank0.log": "log", "rank1.log": "log"}, {"rank0.log": None, "rank1.log": None}),
        ({"train.log": "log", "server.log": "log"}, {"train.log": None}),
    ],
)
def test_variants_from_names(names: dict[str, str], variants: dict[str, str | None]) -> None:
    found = places(names.items())
    assert {n: found[n].variant for n in variants} == variants


def _lines(path: Path) -> list[files.Line]:
    return list(files.lines(path))


@given(data=st.binary(max_size=3000))
def test_lines_partition_the_file(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.log"
    path.write_bytes(b"x" + data.replace(b"\0", b""))
    whole = path.read_bytes()
    for number, line in enumerate(_lines(path), 1):
        assert line.number == number
        assert whole[line.offset : line.offset + len(line.data)] == line.data
    assert b"\n".join(x.data for x in _lines(path)).rstrip(b"\n") == whole.rstrip(b"\n")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_packed_files_read_as_plain_ones(tmp_path: Path, pack) -> None:
    data = b"".join(b"line %d\n" % i for i in range(50_000))
    (tmp_path / "a.log.packed").write_bytes(pack(data))
    assert b"".join(files.blocks(tmp_path / "a.log.packed")) == data


def test_several_gzip_members_follow_one_another(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert b"".join(files.blocks(tmp_path / "a.gz")) == b"one\ntwo\n"


def test_a_cut_off_archive_gives_what_it_has_and_says_so(tmp_path: Path) -> None:
    packed = gzip.compress(os.urandom(200_000) + b"\nend\n")
    (tmp_path / "a.log.gz").write_bytes(packed[: len(packed) // 2])
    told: list[str] = []
    got = b"".join(files.blocks(tmp_path / "a.log.gz", told.append))
    assert len(got) > 50_000
    assert len(told) == 1 and "cut off" in told[0]


def test_a_bomb_is_stopped() -> None:
    told: list[str] = []
    size = sum(len(b) for b in decoded(iter([gzip.compress(b"\0" * (80 << 20))]), told.append))
    assert size < 40 << 20
    assert "more than allowed" in told[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_reads_as_utf8(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.log").write_bytes("RuntimeError: böse\nnext\n".encode(encoding))
    assert [x.text for x in _lines(tmp_path / "a.log")] == ["RuntimeError: böse", "next"]


def test_a_huge_line_is_cut_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"first\n" + b"x" * (30 << 20) + b"\nlast\n")
    found = _lines(tmp_path / "a.log")
    assert [x.number for x in found] == [1, 2, 3]
    assert found[1].cut and len(found[1].data) == files.LINE_LIMIT
    assert found[2].offset == 6 + (30 << 20) + 1


def test_a_file_is_read_up_to_the_size_it_had(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a\n" * 10)
    reader = files.blocks(path)
    with path.open("ab") as more:
        first = next(reader)
        more.write(b"b\n" * 10)
    assert first + b"".join(reader) == b"a\n" * 10


def test_evidence_quotes_its_line(tmp_path: Path) -> None:
    (tmp_path / "rank2.log").write_bytes(b"a\nboom \xff\n")
    ws = Workspace([tmp_path])
    line = list(ws.lines(ws.files[0]))[1]
    e = ws.cite(ws.files[0], line, "log.line")
    assert (e.file, e.line, e.offset, e.text, e.rank) == ("rank2.log", 2, 2, "boom \ufffd", 2)


def test_several_runs_and_a_good_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text("x\n")
    ws = Workspace([tmp_path / "one"], good=[tmp_path / "two"])
    assert [(f.name, f.run, f.good) for f in ws.files] == [("r1/train.log", "r1", False), ("r2/train.log", "r2", True)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_the_head_of_a_file_costs_no_more_than_it_takes(tmp_path: Path, pack) -> None:
    data = random.Random(1).randbytes(3 << 20)
    path = tmp_path / "a.bin"
    path.write_bytes(pack(data))
    assert files.head(path, 8192) == data[:8192]
    raw = files.raw_blocks(path, size=8192)
    assert len(next(raw)) == 8192


def test_the_head_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x" * 20000)
    ws = Workspace([tmp_path])
    assert ws.head(ws.files[0]) == b"x" * 8192
    (tmp_path / "a.log").write_text("y")
    assert ws.head(ws.files[0]) == b"x" * 8192
