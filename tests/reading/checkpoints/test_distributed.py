"""Distributed checkpoints as PyTorch saves them, whole and damaged."""

from __future__ import annotations

import os
import pickle
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.checkpoints.formats.distributed import Chunk, DistributedState, distributed_state, flaw
from traindoctor.agent.reading.checkpoints.formats.symbols import verdict
from traindoctor.agent.reading.checkpoints.numbers import chunks, examine
from traindoctor.agent.reading.checkpoints.weights import state_of
from traindoctor.agent.reading.run.workspace import Workspace

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as workers  # noqa: E402

LONG = torch.arange(60.0).reshape(10, 6)
WIDE = torch.arange(21.0).reshape(7, 3)


def _rank(rank: int, folder: str, port: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    model = {
        "long": distribute_tensor(LONG, mesh, [Shard(0)]), "wide": distribute_tensor(WIDE, mesh, [Shard(1)]),
        "same": distribute_tensor(WIDE, mesh, [Replicate()]), "plain": torch.arange(5.0),
    }  # fmt: skip
    dcp.save({"model": model, "step": 7, "lr": {"groups": [{"lr": 0.1}]}}, checkpoint_id=f"{folder}/dcp")
    torch.save({"w": model["long"]}, f"{folder}/model_world_size_2_rank_{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that two ranks saved together."""
    folder = tmp_path_factory.mktemp("saved")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    workers.spawn(_rank, (str(folder), port), 2)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    for path in (saved / "dcp").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def read(folder: Path) -> tuple[DistributedState, Workspace]:
    """The state, and the run it is from."""
    ws = Workspace([folder])
    return distributed_state(ws, next((f for f in ws.files if f.name == ".metadata"), ws.files[0])), ws


def kinds(folder: Path) -> set[str]:
    """Kinds of the problems of a damaged checkpoint."""
    state, _ = read(folder)
    assert not state.readable
    return {p.kind for p in state.problems}


def test_every_piece_is_found_with_its_elements(folder: Path) -> None:
    state, ws = read(folder)
    assert state.readable and not state.problems
    assert state.shapes == {"model.long": (10, 6), "model.wide": (7, 3), "model.same": (7, 3), "model.plain": (5,)}
    assert {n: t.shape for n, t in state.tensors.items()} == {
        "model.long[0, 0]": (5, 6), "model.long[5, 0]": (5, 6), "model.wide[0, 0]": (7, 2), "model.wide[0, 2]": (7, 1),
        "model.same": (7, 3), "model.plain": (5,),
    }  # fmt: skip
    values = {n: np.concatenate(list(chunks(ws, t))) for n, t in state.tensors.items()}
    np.testing.assert_array_equal(values["model.long[5, 0]"], LONG[5:].reshape(-1))
    np.testing.assert_array_equal(values["model.wide[0, 2]"], WIDE[:, 2:].reshape(-1))
    assert state.tree["step"] == 7
    assert state.sources == ("__0_0.distcp", "__1_0.distcp")
    assert verdict(state.globals) == "safe-to-parse", state.globals
    seen = examine(ws, state)
    assert not seen.problems and seen.numbers["model.long[5, 0]"].most == 59.0


def test_a_distributed_tensor_in_a_file_of_its_rank(saved: Path) -> None:
    ws = Workspace([saved])
    for file in ws.files:
        if file.name.startswith("model_world"):
            state = state_of(ws, file)
            assert list(state.tensors) == ["w"] and state.tensors["w"].shape == (5, 6)
            assert state.tree["w"].name.endswith("DTensor")
            assert verdict(state.globals) == "safe-to-parse", state.globals


def test_no_metadata_is_an_unfinished_save(folder: Path) -> None:
    (folder / ".metadata").unlink()
    assert kinds(folder) == {"unfinished_save"}


def test_a_missing_file(folder: Path) -> None:
    (folder / "__1_0.distcp").unlink()
    assert kinds(folder) == {"missing_file"}


@pytest.mark.parametrize("left", [0, 1, 1000, -1])
def test_a_cut_file(folder: Path, left: int) -> None:
    path = folder / "__1_0.distcp"
    path.write_bytes(path.read_bytes()[:left])
    assert "truncated" in kinds(folder)


def test_a_flipped_bit_in_a_chunk(folder: Path) -> None:
    state, ws = read(folder)
    tensor = state.tensors["model.wide[0, 2]"]
    data = bytearray(tensor.file.path.read_bytes())
    data[tensor.start + 3] ^= 16
    tensor.file.path.write_bytes(data)
    assert [p.kind for p in examine(ws, state).problems] == ["crc_mismatch"]


def test_garbage_where_a_slice_should_be(folder: Path) -> None:
    path = folder / "__0_0.distcp"
    path.write_bytes(b"\0" * path.stat().st_size)
    assert kinds(folder) == {"corrupt"}


def _altered(folder: Path, change: Any) -> None:
    """Change the metadata as torch itself would load it, and save it again."""
    path = folder / ".metadata"
    with path.open("rb") as f:
        metadata = pickle.load(f)
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))


def test_chunks_without_a_place(folder: Path) -> None:
    _altered(folder, lambda m: m.storage_data.pop(next(k for k in m.storage_data if k.fqn == "model.long")))
    assert kinds(folder) == {"missing_chunk"}


def test_chunks_that_do_not_cover(folder: Path) -> None:
    _altered(folder, lambda m: m.state_dict_metadata["model.long"].chunks.pop())
    assert "missing_chunk" in kinds(folder)


def test_chunks_that_overlap(folder: Path) -> None:
    def change(m: Any) -> None:
        held = m.state_dict_metadata["model.long"].chunks
        held.append(held[0])

    _altered(folder, change)
    assert kinds(folder) == {"overlap"}


def test_slices_that_overlap_and_lie_outside(folder: Path) -> None:
    def change(m: Any) -> None:
        infos = [i for i in m.storage_data.values() if i.relative_path == "__1_0.distcp"]
        infos[1].offset = infos[0].offset + 10
        infos[2].offset = 1 << 40

    _altered(folder, change)
    assert {"overlap", "truncated"} <= kinds(folder)


def test_a_chunk_of_another_size(folder: Path) -> None:
    def change(m: Any) -> None:
        held = m.state_dict_metadata["model.plain"]
        held.size, held.chunks[0].sizes = torch.Size([6]), torch.Size([6])

    _altered(folder, change)
    assert kinds(folder) == {"size_mismatch"}


def test_a_path_out_of_the_folder(folder: Path) -> None:
    def change(m: Any) -> None:
        next(iter(m.storage_data.values())).relative_path = "../../etc/passwd"

    _altered(folder, change)
    assert kinds(folder) == {"unsafe_name"}


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x04N.", b"\x80\x04}.", b"text", b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R."]
)
def test_metadata_that_is_none(folder: Path, content: bytes) -> None:
    (folder / ".metadata").write_bytes(content)
    assert kinds(folder) & {"empty", "header_invalid", "pickle_invalid", "truncated"}


def test_every_cut_of_the_metadata(folder: Path) -> None:
    whole = (folder / ".metadata").read_bytes()
    for size in range(0, len(whole), 37):
        (folder / ".metadata").write_bytes(whole[:size])
        assert kinds(folder)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_a_grid_covers_and_less_does_not(counts: list[int], data: st.DataObject) -> None:
    cuts = [data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)) for n in counts]
    grid: list[Chunk] = [((), ())]
    for sizes in cuts:
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        grid = [((*o, s), (*z, n)) for o, z in grid for s, n in zip(starts, sizes, strict=True)]
    shape = tuple(map(sum, cuts))
    assert flaw(shape, grid) is None
    lost = data.draw(st.integers(0, len(grid) - 1))
    missing = flaw(shape, grid[:lost] + grid[lost + 1 :])
    assert missing is not None and missing[0] == "missing_chunk"
    twice = flaw(shape, [*grid, grid[lost]])
    assert twice is not None and twice[0] == "overlap"
    if len(grid) > 1:
        swapped = [grid[0] if c == grid[-1] and c[1] == grid[0][1] else c for c in grid]
        if swapped != grid:
            assert flaw(shape, swapped) is not None
