"""Statistics and values of tensors against torch, for every type, layout and kind of bits."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.deadline import Deadline
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.reading.checkpoints import numbers
from traindoctor.agent.reading.checkpoints.elements import KINDS, decoded
from traindoctor.agent.reading.checkpoints.formats.torch_files import joined
from traindoctor.agent.reading.checkpoints.numbers import Tally, chunks, dense, examine, numbers_of
from traindoctor.agent.reading.checkpoints.weights import state_of
from traindoctor.agent.reading.run.workspace import Workspace

torch = pytest.importorskip("torch")
safe = pytest.importorskip("safetensors.torch")

TYPES = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "int8", "uint8", "int16", "int32", "int64", "uint16", "bool", "complex64",
]  # fmt: skip


def tensors() -> dict[str, Any]:
    """One tensor for each type and each layout, with special values where the type has them."""
    torch.manual_seed(0)
    x = torch.randn(700, 333) * 10
    made: dict[str, Any] = {}
    for name in TYPES:
        dtype = getattr(torch, name)
        plain = (x > 0) if name == "bool" else x.abs().to(dtype) if name.startswith("uint") else x.to(dtype)
        made[name] = plain
        if dtype.is_floating_point or dtype.is_complex:
            wide = x.to(torch.complex128 if dtype.is_complex else torch.float64).reshape(-1).clone()
            wide[5], wide[77], wide[777], wide[8], wide[9] = float("nan"), float("inf"), -float("inf"), -0.0, 0.0
            made[f"{name}.special"] = wide.to(dtype)
        if dtype.is_floating_point:
            made[f"{name}.negative"] = (-x.abs() - 1).to(dtype)
    made |= {
        "zeros": torch.zeros(10), "constant": torch.full((7,), 3.0), "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(2.5), "tiny": torch.full((100,), 1e-30), "big": torch.full((100,), 1e30),
        "minus_zero": torch.tensor([-0.0, 0.0, 1.0]), "all_nan": torch.full((9,), float("nan")),
        "transposed": x.t(), "slice": x[::3, 5:100:7], "columns": x[:, 2:5], "cube": torch.randn(4, 5, 6).permute(2, 0, 1),
    }  # fmt: skip
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    torch.save(tensors(), folder / "zip.pt")
    torch.save(tensors(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    safe.save_file({k: v.contiguous().clone() for k, v in tensors().items()}, folder / "plain.safetensors")
    return folder


@pytest.mark.real
@pytest.mark.parametrize("name", ["zip.pt", "legacy.pt", "plain.safetensors"])
def test_statistics_agree_with_torch(folder: Path, name: str) -> None:
    ws = Workspace([folder])
    state = state_of(ws, next(f for f in ws.files if f.name == name))
    assert state.readable and not state.problems
    seen = examine(ws, state, deep=True)
    assert not seen.problems
    for key, value in tensors().items():
        got, wide = seen.numbers[key], value.to(torch.complex128 if value.is_complex() else torch.float64)
        nan = wide.isnan()
        assert (got.count, got.nan, got.inf) == (value.numel(), int(nan.sum()), int((wide.isinf() & ~nan).sum())), key
        assert got.zeros == int((wide == 0).sum()), key
        finite = wide[torch.isfinite(wide)]
        if finite.numel() and not value.is_complex():
            assert (got.least, got.most) == (float(finite.min()), float(finite.max())), key
        if finite.numel():
            assert got.squares == pytest.approx(float((finite.abs() ** 2).sum()), rel=1e-5), key
        assert got.constant == (key in ("zeros", "constant", "tiny", "big")), key


@pytest.mark.parametrize("name", ["zip.pt", "legacy.pt", "plain.safetensors"])
def test_values_come_in_order(folder: Path, name: str) -> None:
    ws = Workspace([folder])
    state = state_of(ws, next(f for f in ws.files if f.name == name))
    for key, value in tensors().items():
        if not value.is_complex():
            got = [np.zeros(0), *chunks(ws, state.tensors[key], 1000)]
            assert all(len(part) <= 1000 for part in got)
            np.testing.assert_array_equal(np.concatenate(got), value.to(torch.float64).reshape(-1).numpy(), key)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([t for t in TYPES if KINDS[t].family == "float"]), st.binary(min_size=0, max_size=4000))
def test_any_bits_count_as_in_torch(dtype: str, raw: bytes) -> None:
    width = KINDS[dtype].bits // 8
    raw = raw[: len(raw) // width * width]
    got = Tally(dtype).add(np.frombuffer(raw, np.uint8)).done()
    if not raw:
        assert got.count == 0
        return
    wide = torch.frombuffer(bytearray(raw), dtype=getattr(torch, dtype)).to(torch.float64)
    nan = int(wide.isnan().sum())
    assert (got.count, got.nan, got.inf) == (len(wide), nan, int(wide.isinf().sum()))
    assert got.zeros == int((wide == 0).sum())
    finite = wide[torch.isfinite(wide)]
    if len(finite):
        assert (got.least, got.most) == (float(finite.min()), float(finite.max()))
    values = decoded(np.frombuffer(raw, np.uint8), dtype)
    np.testing.assert_array_equal(values, wide.numpy())


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_checksums_join(a: bytes, b: bytes, c: bytes) -> None:
    both = joined(zlib.crc32(a), zlib.crc32(b), len(b))
    assert both == zlib.crc32(a + b)
    assert joined(both, zlib.crc32(c), len(c)) == zlib.crc32(a + b + c)


def test_checksums_join_over_terabytes() -> None:
    zero = zlib.crc32(b"")
    assert joined(zero, zero, 1 << 42) == zero


def test_big_tensors_are_cut_into_pieces_and_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "JOB", 4096)
    monkeypatch.setattr(numbers, "BLOCK", 1024)
    x = torch.randn(50_001, dtype=torch.float64)
    x[12_345] = float("nan")
    torch.save({"x": x, "y": x[1:].clone().to(torch.bfloat16)}, tmp_path / "big.pt")
    ws = Workspace([tmp_path])
    state = state_of(ws, ws.files[0])
    seen = examine(ws, state, deep=True)
    assert not seen.problems
    assert seen.numbers["x"].nan == seen.numbers["y"].nan == 1
    assert seen.numbers["x"].squares == pytest.approx(float(x.nan_to_num().square().sum()))
    data = bytearray((tmp_path / "big.pt").read_bytes())
    data[state.tensors["y"].start + 70_001] ^= 1
    (tmp_path / "big.pt").write_bytes(data)
    assert [p.kind for p in examine(ws, state).problems] == ["crc_mismatch"]


def test_a_file_that_shrinks_meanwhile_is_told(tmp_path: Path) -> None:
    torch.save({"x": torch.randn(100_000), "t": torch.randn(300, 300)[::2, ::2]}, tmp_path / "a.pt")
    ws = Workspace([tmp_path])
    state = state_of(ws, ws.files[0])
    with (tmp_path / "a.pt").open("r+b") as f:
        f.truncate(5000)
    seen = examine(ws, state)
    assert not seen.numbers["x"].read and not seen.numbers["t"].read
    assert {p.kind for p in seen.problems} == {"unreadable"}
    with pytest.raises(ToolError, match="cannot be read"):
        list(chunks(ws, state.tensors["x"]))


def test_a_pass_ends_with_the_time_of_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "JOB", 1 << 16)
    torch.save({"x": torch.zeros(1_000_000)}, tmp_path / "a.pt")
    ws = Workspace([tmp_path])
    state = state_of(ws, ws.files[0])
    with Deadline(0), pytest.raises(TimeoutError):
        examine(ws, state)


def test_expanded_tensors_cost_what_they_hold(tmp_path: Path) -> None:
    torch.save({"e": torch.arange(4.0).expand(1 << 30, 4)}, tmp_path / "a.pt")
    ws = Workspace([tmp_path])
    tensor = state_of(ws, ws.files[0]).tensors["e"]
    assert tensor.count == 1 << 32
    assert not dense(tensor)
    assert numbers_of(ws, [tensor])["e"].most == 3.0
    assert len(np.concatenate(list(chunks(ws, tensor)))) == 4


def test_tied_tensors_are_read_once(tmp_path: Path) -> None:
    x = torch.randn(1000)
    torch.save({"a": x, "b": x, "c": x[10:20]}, tmp_path / "a.pt")
    ws = Workspace([tmp_path])
    state = state_of(ws, ws.files[0])
    plain = [t for t in state.tensors.values() if dense(t)]
    listed = numbers.units_of(plain, [(state.file, m) for m in state.members.values()])
    assert sum(u.size for u in listed) == sum(m.size for m in state.members.values())
    assert numbers_of(ws, plain)["c"].squares == pytest.approx(float(x[10:20].square().sum()), rel=1e-5)
