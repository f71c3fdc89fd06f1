"""States of files against the libraries that wrote them: names, types, shapes, strides, plain values."""

from __future__ import annotations

import collections
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traindoctor.agent.reading.checkpoints.formats.symbols import verdict
from traindoctor.agent.reading.checkpoints.numbers import chunks, examine
from traindoctor.agent.reading.checkpoints.parts import Opaque, State, Tensor
from traindoctor.agent.reading.checkpoints.weights import state_of
from traindoctor.agent.reading.run.workspace import Workspace

torch = pytest.importorskip("torch")


def read(path: Path) -> State:
    """The state of one file."""
    ws = Workspace([path.parent])
    return state_of(ws, next(f for f in ws.files if f.path == path))


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Tensors of what torch loaded, by the names that we give them."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return {n: t for k, v in pairs for n, t in flat(v, f"{path}.{k}" if path else str(k)).items()}


def same(state: State, loaded: Any) -> None:
    """Every tensor that torch sees, and no other, with the same elements."""
    want = flat(loaded)
    assert state.readable and not state.problems, state.problems
    assert set(state.tensors) == set(want)
    ws = Workspace([state.file.path.parent])
    for name, value in want.items():
        tensor = state.tensors[name]
        assert (tensor.dtype, tensor.shape) == (str(value.dtype).removeprefix("torch."), tuple(value.shape)), name
        got = np.concatenate([np.zeros(0), *chunks(ws, tensor)])
        np.testing.assert_array_equal(got, value.detach().to(torch.float64).reshape(-1).numpy(), name)


def content() -> dict[str, Any]:
    x = torch.randn(30, 4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(x).sum().backward()
    adam.step()
    return {
        "model": model.state_dict(), "optimizer": adam.state_dict(), "scheduler": {"last_epoch": 3, "_last_lr": [0.1]},
        "epoch": 7, "loss": 0.25, "done": False, "none": None, "name": "run é", "tied": [x, x.t(), x[2:5, ::2]],
        "rng": torch.get_rng_state(), "size": x.shape, "nested": {1: (2, {"deep": torch.tensor(5)})}, "raw": b"ab",
        "ordered": collections.OrderedDict(a=1), "default": collections.defaultdict(list, b=[2]), "big": 1 << 70,
    }  # fmt: skip


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_torch_files(tmp_path: Path, new: bool, protocol: int) -> None:
    path = tmp_path / "a.pt"
    torch.save(content(), path, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
    state = read(path)
    same(state, torch.load(path, weights_only=False))
    assert state.format == ("torch_zip" if new else "torch_legacy")
    assert verdict(state.globals) == "safe-to-parse"
    tree = state.tree
    assert (tree["epoch"], tree["loss"], tree["done"], tree["none"], tree["name"]) == (7, 0.25, False, None, "run é")
    assert (tree["raw"], tree["big"], tree["ordered"], tree["default"]) == (b"ab", 1 << 70, {"a": 1}, {"b": [2]})
    assert tree["size"] == (30, 4) and tree["nested"][1][0] == 2
    assert tree["optimizer"]["param_groups"][0]["lr"] == 1e-3
    assert isinstance(tree["optimizer"]["state"][0]["exp_avg"], Tensor)


def test_a_tensor_alone_and_a_whole_module(tmp_path: Path) -> None:
    torch.save(torch.randn(3), tmp_path / "tensor.pt")
    assert list(read(tmp_path / "tensor.pt").tensors) == ["tensor"]
    module = torch.nn.TransformerEncoderLayer(8, 2)
    torch.save(module, tmp_path / "module.pt")
    state = read(tmp_path / "module.pt")
    assert isinstance(state.tree, Opaque) and state.tree.name.endswith("TransformerEncoderLayer")
    assert set(state.tensors) == set(module.state_dict())


def test_types_of_their_own_storage(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    made = {n: x.abs().to(getattr(torch, n)) for n in ("float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "bfloat16")}
    torch.save(made, tmp_path / "a.pt")
    same(read(tmp_path / "a.pt"), made)


def test_quantized_tensors(tmp_path: Path) -> None:
    q = torch.quantize_per_tensor(torch.randn(4, 4), 0.1, 0, torch.qint8)
    torch.save({"q": q}, tmp_path / "a.pt")
    state = read(tmp_path / "a.pt")
    assert state.readable and state.tensors["q"].dtype == "qint8" and state.tensors["q"].shape == (4, 4)


def test_meta_tensors_hold_nothing(tmp_path: Path) -> None:
    torch.save({"m": torch.empty(3, device="meta")}, tmp_path / "a.pt")
    state = read(tmp_path / "a.pt")
    assert state.readable and not state.tensors and state.tree["m"].state["device"] == "meta"


def test_arrays_inside_of_pickles(tmp_path: Path) -> None:
    a = np.random.default_rng(0).normal(size=(50, 20))
    saved = {"a": a, "f": np.asfortranarray(a), "s": np.float32(2.5), "i": np.int64(-3), "b": np.arange(3, dtype=">i4"),
             "o": np.array([{"x": 1}], dtype=object), "t": np.array(["ab"])}  # fmt: skip
    for name, save in (
        ("a.pkl", lambda p: p.write_bytes(pickle.dumps(saved, 4))),
        ("b.pkl", lambda p: p.write_bytes(pickle.dumps(saved, 2))),
        ("c.pt", lambda p: torch.save(saved, p)),
    ):
        save(tmp_path / name)
        state = read(tmp_path / name)
        assert state.readable, state.problems
        ws = Workspace([tmp_path])
        assert (state.tree["s"], state.tree["i"]) == (2.5, -3)
        for key in "afb":
            got = np.concatenate(list(chunks(ws, state.tensors[key])))
            np.testing.assert_array_equal(got, saved[key].reshape(-1), f"{name} {key}")
        assert isinstance(state.tree["o"], Opaque) and isinstance(state.tree["t"], Opaque)


def test_files_of_numpy(tmp_path: Path) -> None:
    a = np.arange(600, dtype=np.float32).reshape(20, 30)
    np.save(tmp_path / "a.npy", np.asfortranarray(a))
    np.savez(tmp_path / "b.npz", a=a, b=a.astype(">f8"))
    np.savez_compressed(tmp_path / "c.npz", a=a, z=np.zeros(1 << 20))
    ws = Workspace([tmp_path])
    for name, keys in (("a.npy", ["array"]), ("b.npz", ["a", "b"]), ("c.npz", ["a"])):
        state = read(tmp_path / name)
        assert state.readable and list(state.tensors) == keys, state.problems
        for key in keys:
            np.testing.assert_array_equal(np.concatenate(list(chunks(ws, state.tensors[key]))), a.reshape(-1))
        assert not examine(ws, state).problems


def test_names_decide_nothing(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "zip.bin")
    (tmp_path / "pytorch_model.bin").write_bytes((tmp_path / "zip.bin").read_bytes())
    assert read(tmp_path / "pytorch_model.bin").format == "torch_zip"
    (tmp_path / "page.pt").write_text("<html>not found</html>")
    state = read(tmp_path / "page.pt")
    assert not state.readable and state.problems[0].kind == "unknown_format"


def test_a_real_trainer_and_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64
    )
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "hf")
    state = read(tmp_path / "hf" / "model.safetensors")
    assert state.metadata["format"] == "pt" and state.readable
    named = dict(model.named_parameters())
    assert set(state.tensors) == set(named) and {t.shape for t in state.tensors.values()} == {
        tuple(p.shape) for p in named.values()
    }
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path / "x"), report_to=[])
    torch.save(arguments, tmp_path / "training_args.bin")
    state = read(tmp_path / "training_args.bin")
    assert state.readable and state.tree.state["output_dir"] == str(tmp_path / "x")
    assert verdict(state.globals) == "safe-to-parse", state.globals

    class Module(lightning.LightningModule):
        def __init__(self, width: int = 4) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.inner = torch.nn.Linear(width, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.inner(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    trainer = lightning.Trainer(
        max_steps=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tmp_path, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(8, 4)))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    state = read(tmp_path / "last.ckpt")
    loaded = torch.load(tmp_path / "last.ckpt", weights_only=False)
    same(state, loaded)
    assert state.tree["global_step"] == 2 and state.tree["hyper_parameters"] in ({"width": 4}, Opaque("x"))
    assert verdict(state.globals) == "safe-to-parse", state.globals


def test_the_tar_of_the_beginning_is_told_in_one_line(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "ancient.pt", "w") as tar:  # as torch.save wrote it before 0.1.10
        for name in ("sys_info", "pickle", "tensors", "storages"):
            data = pickle.dumps({name: 1}, 2)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    state = read(tmp_path / "ancient.pt")
    assert (state.format, state.readable, state.tensors) == ("unknown", False, {})
    assert [(p.kind, p.text) for p in state.problems] == [
        ("unknown_format", "starts with 73 79 73 5f 69 6e 66 6f: no checkpoint format that is read here")
    ]
