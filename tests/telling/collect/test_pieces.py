"""Parts of long files: whole lines, exact gaps, what matters is in, and no secret leaves through a cut."""

from __future__ import annotations

import gzip
import os
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.telling.collect.cleaning import Cleaning
from traindoctor.agent.telling.collect.pieces import MARGIN, NotText, excerpt

from tests.safety.redaction_corpus import Dice, key_block

GAP = re.compile(r"^\[(\d+) bytes left out\]$")


def of(path: Path) -> RunFile:
    return RunFile(path.name, path, "log", path.stat().st_size)


def written(folder: Path, lines: list[str], packed: bool = False) -> Path:
    data = "".join(lines).encode()
    path = folder / ("a.log.gz" if packed else "a.log")
    path.write_bytes(gzip.compress(data, 1, mtime=0) if packed else data)
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000), count=st.integers(1, 6000), room=st.sampled_from([0, 512, 40_000, 1 << 20]),
    focus=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9000)), max_size=4), packed=st.booleans(),
)  # fmt: skip
def test_a_cut_file_is_whole_lines_and_exact_gaps(tmp_path, seed, count, room, focus, packed):
    dice = random.Random(seed)
    lines = [f"line {i} {'x' * dice.randrange(120)}\n" for i in range(count)]
    whole = "".join(lines)
    spans = [(int(at * (len(whole) - 1)), int(at * (len(whole) - 1)) + size) for at, size in focus]
    found = excerpt(of(written(tmp_path, lines, packed)), Cleaning(), room, spans)
    at = 0
    for line in found.text.splitlines(keepends=True):
        if m := GAP.match(line.rstrip("\n")):
            at += int(m[1])
        else:
            assert whole[at : at + len(line)] == line
            assert at == 0 or whole[at - 1] == "\n"
            at += len(line)
    assert at == len(whole) == found.size
    assert found.kept == len(whole) - sum(int(n) for n in re.findall(r"(?m)^\[(\d+) bytes left out\]$", found.text))
    for start, end in spans:  # every line that begins within a focus is in it
        for m in re.finditer(r"line \d+ ", whole[start:end]):
            assert m[0] in found.text


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_through_a_key_shows_nothing_of_it(tmp_path: Path, packed: bool) -> None:
    block, inside = key_block(Dice(3), "RSA PRIVATE" " KEY")
    quiet = [f"step {i} loss 2.0\n" for i in range(4000)]
    lines = [*quiet, *(line + "\n" for line in block.split("\n")), *quiet]
    path = written(tmp_path, lines, packed)
    begin = sum(map(len, quiet))
    for at in range(begin, begin + len(block), 37):
        for span in ((at, at + 40_000), (at - 40_000, at)):
            shown = excerpt(of(path), Cleaning(), 100, [span]).text
            assert not [line for line in inside if line in shown], span


def test_a_value_told_by_the_line_before_is_not_shown(tmp_path: Path) -> None:
    """The name of a secret may stand just outside of what is kept."""
    secret = "Zq8" + "vTr4nb1x!"
    lines = [f"step {i} loss 2.0\n" for i in range(3000)] + ["  - name: DB_PASSWORD\n", f"    value: {secret}\n"]
    lines += [f"step {i} loss 2.0\n" for i in range(3000)]
    at = sum(map(len, lines[:3001]))
    shown = excerpt(of(written(tmp_path, lines)), Cleaning(), 100, [(at, at + 2000)]).text
    assert "value: <SECRET" in shown and secret not in shown and "DB_PASSWORD" not in shown


def test_a_line_longer_than_its_part_is_shown_from_its_start(tmp_path: Path) -> None:
    token = "hf_" + "abcdefghij" * 3 + "abcd"
    room = 64 << 10
    for before in (room // 2 - 20, room // 2 - MARGIN, room // 2 + 5):
        path = written(tmp_path, ["x " * (before // 2), token, " y" * (1 << 19)])
        shown = excerpt(of(path), Cleaning(), room).text
        assert shown.startswith("x x x") and "hf_abc" not in shown and GAP.match(shown.splitlines()[-1])
        assert len(shown) < room


def test_ten_gigabytes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.log"
    with path.open("wb") as f:
        f.write(b"step 1 loss 2.0\n" * 100_000)
        f.truncate(10 << 30)
        f.seek(0, os.SEEK_END)
        f.write(b"\nRuntimeError: the end\n" + b"bye\n" * 100_000)
    began = time.perf_counter()
    found = excerpt(of(path), Cleaning(), 600 << 10, [(5 << 30, (5 << 30) + 10)])
    assert time.perf_counter() - began < 5
    assert found.text.startswith("step 1 loss") and found.text.endswith("bye\n") and found.size > 10 << 30
    assert len(found.text) < 1 << 20


def test_holes_of_a_rotated_log_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\0" * 50_000 + b"step 1 loss 2.0\n" * 500 + b"\0" * 9000 + b"hf_" + b"\0" * 4096 + b"abcdefghij" * 3 + b"abcd\n")
    found = excerpt(of(path), Cleaning(), 1 << 20)
    assert found.nuls == 63_096 and found.text.startswith("step 1") and "<SECRET:hf:1>" in found.text


@pytest.mark.parametrize("data", [b"a\0bcde\0" * 400, os.urandom(9000), bytes(range(256)) * 9], ids=["wide", "noise", "all"])
def test_what_is_no_text_stays_away(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"text\n" + data)
    with pytest.raises(NotText):
        excerpt(of(path), Cleaning(), 1 << 20)
