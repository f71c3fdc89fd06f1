"""The header of safetensors, against the library itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile_files import FLOATS, entry, hostile_safetensors, safetensors
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.checkpoints.parts import State
from traindoctor.agent.reading.checkpoints.weights import state_of
from traindoctor.agent.reading.run.workspace import Workspace

safe = pytest.importorskip("safetensors")

STRICTER = {"twice", "twice_inside"}  # what the library lets pass and we do not


def read(path: Path) -> State:
    """The state of the one file of a folder."""
    ws = Workspace([path.parent])
    return state_of(ws, ws.files[0])


def library_reads(path: Path) -> bool:
    """Whether the library opens a file."""
    try:
        with safe.safe_open(path, "np") as f:
            for key in f.keys():  # noqa: SIM118 - not a dict
                f.get_slice(key).get_shape()
        return True
    except (safe.SafetensorError, OSError, RuntimeError, ValueError):
        return False


@pytest.mark.parametrize("name", [n for n, d in hostile_safetensors() if len(d) < 1_000_000])
def test_nothing_passes_that_the_library_refuses(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(dict(hostile_safetensors())[name])
    assert not read(path).readable
    if name not in STRICTER:
        assert not library_reads(path) or name in ("zeros",)


shapes = st.lists(st.integers(0, 4), max_size=3)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda n: n != "__metadata__"), shapes, max_size=5), st.sampled_from(["F32", "BF16", "I64", "U8"]))  # fmt: skip
def test_what_the_library_reads_we_read(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, list[int]], dtype: str
) -> None:
    width = {"F32": 4, "BF16": 2, "I64": 8, "U8": 1}[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, shape in tensors.items():
        size = width
        for n in shape:
            size *= n
        header[name] = entry(dtype, shape, [place, place + size])
        place += size
    path = tmp_path_factory.mktemp("st") / "a.safetensors"
    path.write_bytes(safetensors(header, bytes(place)))
    state = read(path)
    assert state.readable == library_reads(path), state.problems
    assert {n: list(t.shape) for n, t in state.tensors.items()} == tensors


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_header(tmp_path_factory: pytest.TempPathFactory, raw: bytes, length: int) -> None:
    path = tmp_path_factory.mktemp("st") / "a.safetensors"
    path.write_bytes(safetensors(b"{" + raw, FLOATS, length=length))
    state = read(path)
    assert state.readable or state.problems


def test_problems_say_where(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors({"layer.weight": entry(shape=[3, 2])}))
    state = read(path)
    assert [(p.kind, p.member) for p in state.problems if p.kind != "hole"] == [("size_mismatch", "layer.weight")]
    path.write_bytes(safetensors({"layer.weight": entry()}, FLOATS[:10]))
    told = read(path).problems[0]
    assert (told.kind, told.member) == ("truncated", "layer.weight") and "ends at byte" in told.text


def test_a_large_header_is_read_in_little_memory(tmp_path: Path) -> None:
    header = {
        f"model.layers.{i}.mlp.experts.{i % 64}.down_proj.weight": entry(offsets=[16 * i, 16 * i + 16])
        for i in range(60_000)
    }
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors(json.dumps(header).encode(), FLOATS * 60_000))
    state = read(path)
    assert state.readable and len(state.tensors) == 60_000
