"""The zip directory read strictly, and torch's archives of both widths."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pytest
from hostile_files import FLOATS, TENSOR, hostile_zips, torch_zip, zipped
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.checkpoints.formats.torch_files import read_members
from traindoctor.agent.reading.checkpoints.numbers import examine
from traindoctor.agent.reading.checkpoints.parts import State, opened
from traindoctor.agent.reading.checkpoints.weights import state_of
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.reading.run.workspace import Workspace

EXPECTED = {
    "no_end": "truncated", "cut_in_data": "truncated", "bytes_after": "corrupt", "bytes_before": "corrupt",
    "no_pickle": "missing_member", "no_storage": "missing_member", "compressed": "compressed_member",
    "bomb": "compressed_member", "twice": "duplicate_member", "parent": "unsafe_name", "absolute": "unsafe_name",
    "backslash": "unsafe_name", "drive": "unsafe_name", "storage_short": "size_mismatch", "encrypted": "encrypted_member",
    "local_name": "header_mismatch", "directory_name": "header_mismatch", "local_method": "header_mismatch",
    "local_size": "header_mismatch", "directory_size": "out_of_bounds", "sizes_differ": "corrupt", "overlap": "overlap",
    "offset_past_end": "out_of_bounds", "offset_nowhere": "header_mismatch", "count_wrong": "corrupt",
    "volumes": "corrupt", "directory_garbage": "corrupt", "zip64_nowhere": "corrupt", "zip64_wrong": "corrupt",
    "pickle_cut": "truncated", "pickle_checksum": "crc_mismatch",
}  # fmt: skip


def read(path: Path) -> State:
    """The state of the one file of a folder."""
    ws = Workspace([path.parent])
    return state_of(ws, ws.files[0])


@pytest.mark.parametrize(("name", "kind"), EXPECTED.items())
def test_each_kind_of_damage_has_its_name(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "a.pt").write_bytes(dict(hostile_zips())[name])
    state = read(tmp_path / "a.pt")
    assert not state.readable
    assert kind in [p.kind for p in state.problems], state.problems


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text("abcdefgh/é_", min_size=1, max_size=12).filter(lambda n: n[0] != "/"), st.binary(max_size=99), min_size=1), st.booleans())  # fmt: skip
def test_entries_as_the_standard_library_sees_them(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, bytes], wide: bool
) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in entries.items():
            with z.open(name, "w", force_zip64=wide) as f:
                f.write(data)
    path = tmp_path_factory.mktemp("zip") / "a.pt"
    path.write_bytes(out.getvalue())
    file = RunFile("a.pt", path, "checkpoint", path.stat().st_size)
    state = State(file, "torch_zip")
    with opened(file) as window:
        members = read_members(window, state)
        assert not state.problems
        assert {n: window.read(m.start, m.size) for n, m in members.items()} == entries


def test_an_archive_beyond_four_gigabytes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "big.pt"
    entries = [
        ("a/data.pkl", TENSOR),
        ("a/version", b"3"),
        ("a/byteorder", b"little"),
        ("a/filler", b""),
        ("a/data/0", FLOATS),
    ]
    with path.open("wb") as f, zipfile.ZipFile(f, "w") as z:
        for name, data in entries:
            if name == "a/filler":
                info = zipfile.ZipInfo(name)
                f.seek(0, 2)
                z.writestr(info, b"")
                f.truncate(5 << 30)  # a hole that costs no disk
                f.seek(5 << 30)
                z.start_dir = 5 << 30
            else:
                z.writestr(zipfile.ZipInfo(name), data)
    state = read(path)
    assert state.readable, state.problems
    assert state.tensors["w"].start > 5 << 30
    assert examine(Workspace([tmp_path]), state).numbers["w"].most == 4.0
    assert torch.load(path, weights_only=True)["w"].tolist() == [[1, 2], [3, 4]]


def test_a_storage_with_another_checksum(tmp_path: Path) -> None:
    data = bytearray(torch_zip())
    data[data.index(FLOATS)] ^= 1
    (tmp_path / "a.pt").write_bytes(data)
    state = read(tmp_path / "a.pt")
    assert state.readable  # the structure is whole; only the pass over the bytes can know
    found = examine(Workspace([tmp_path]), state)
    assert [(p.kind, p.member) for p in found.problems] == [("crc_mismatch", "a/data/0")]


def test_byte_order_and_many_entries(tmp_path: Path) -> None:
    big = [("a/data.pkl", TENSOR), ("a/byteorder", b"big"), ("a/data/0", bytes(16))]
    (tmp_path / "a.pt").write_bytes(zipped(big + [(f"a/x{i}", b"") for i in range(70_000)]))
    state = read(tmp_path / "a.pt")
    assert state.readable and len(state.members) == 70_003
    assert state.tensors["w"].swapped


def test_any_flipped_byte_is_survived(tmp_path: Path) -> None:
    good = torch_zip()
    chance = random.Random(3)
    for _ in range(150):
        data = bytearray(good)
        data[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / "a.pt").write_bytes(data)
        examine(Workspace([tmp_path]), read(tmp_path / "a.pt"))
