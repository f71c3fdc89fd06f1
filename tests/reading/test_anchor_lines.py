"""The pass for anchor lines: exact numbers and offsets, noise thinned, nothing rare lost."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan import literals
from traindoctor.agent.reading.scan.anchors import anchored, around, excerpt, rank_of

NOISE = b"node1:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def test_a_rare_line_in_noise_keeps_its_place(tmp_path: Path) -> None:
    data = NOISE * 40000 + b"torch.OutOfMemoryError: CUDA out of memory.\n" + NOISE * 40000
    (tmp_path / "train.log").write_bytes(data)
    found = anchored(Workspace([tmp_path]))
    (hit,) = found.of("oom")
    assert hit.line.number == 40001 and hit.line.offset == len(NOISE) * 40000
    noisy = found.of("nccl")
    assert len(noisy) < 6000 and all(data[h.line.offset :].startswith(h.line.data) for h in noisy[::500])


def test_a_line_is_told_once_for_a_topic(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("NCCL WARN NCCL error NCCL version 2.1.1 ncclSystemError\n")
    assert len(anchored(Workspace([tmp_path])).of("nccl")) == 1


def test_prose_code_and_binaries_are_left_out(tmp_path: Path) -> None:
    for name in ("README.md", "train.py", "run.sh"):
        (tmp_path / name).write_text("CUDA out of memory.\n")
    (tmp_path / "core.bin").write_bytes(b"\0\1CUDA out of memory.\n")
    (tmp_path / "train.log").write_text("step 1 loss 2\n")
    assert not anchored(Workspace([tmp_path])).of("oom")


def test_windows_in_plain_packed_and_utf16(tmp_path: Path) -> None:
    lines = [f"line {i} é" for i in range(500)]
    lines[250] = "RuntimeError: CUDA error: out of memory"
    text = "\n".join(lines)
    (tmp_path / "a.log").write_text(text)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "c.log").write_bytes(text.encode("utf-16"))
    ws = Workspace([tmp_path])
    hits = anchored(ws).of("oom")
    assert len(hits) == 3
    for hit in hits:
        window = around(ws, hit, before=100, after=60)
        assert hit.line in window and window[0].number < 251 < window[-1].number
        assert all(x.text == lines[x.number - 1] for x in window[:-1])


def test_excerpts_of_a_large_file_do_not_overlap(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(("filler " * 20 + "\n") * 9000 + "py-spy dump\npy-spy dump\n" + ("filler " * 20 + "\n") * 9000)
    ws = Workspace([tmp_path])
    numbers = [x.number for x in excerpt(ws, ws.files[0], "stack")]
    assert 9001 in numbers and numbers == sorted(set(numbers)) and len(numbers) < 2000


def test_ranks_by_prefix() -> None:
    for text in (b"[rank3]: x", b"[Rank 3] x", b"[default3]:x", b"3: x", b"[rank3]:[E5] y", b"x (W[rank=3] pid=1) y"):
        assert rank_of(text) == 3, text
    assert rank_of(b"ranking 3 things") is None and rank_of(b"x", 7) == 7


WORDS = (("a", "oom"), ("a", "out of memory"), ("b", "xid"), ("b", "nvrm:"))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["oom", "OOM", "out of memory", "Xid", "nvrm", ":", " ", "\n", "q"]), max_size=40))
def test_both_scanners_find_the_same_lines(parts: list[str]) -> None:
    block = "".join(parts).encode()
    fast = literals.scanner_of(WORDS).scan(block, Counter())
    plain = literals._Plain(WORDS).scan(block, Counter())

    def lines(found: list[tuple[int, str]]) -> set[tuple[int, str]]:
        return {(block.count(b"\n", 0, end - 1), topic) for end, topic in found}

    assert lines(fast) == lines(plain)
