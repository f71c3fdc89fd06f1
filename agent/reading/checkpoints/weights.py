"""The state that a checkpoint file holds, told by its bytes. Structure only: no tensor is read here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...core.deadline import check
from ...core.errors import ParseError
from ..run.files import RunFile
from ..run.workspace import Workspace
from .formats.distributed import distributed_state
from .formats.pickled import Pickle
from .formats.placed import Placing
from .formats.safetensors_header import MAGIC, is_npz, is_safetensors, read_npy, read_npz, read_safetensors
from .formats.torch_files import (
    has_directory,
    is_torch_legacy,
    note_globals,
    read_members,
    read_torch_legacy,
    read_torch_zip,
)
from .layouts import Checkpoint, checkpoints
from .parts import Damaged, Problem, State, Tensor, Window, opened

_TORCH_NAMES = (".pt", ".pth", ".bin", ".ckpt", ".distcp")
_PICKLE_NAMES = (".pkl", ".pickle", ".metadata")


def state_of(ws: Workspace, file: RunFile) -> State:
    """What a file holds, whatever its format; bad input becomes problems and `readable=False`, never an error."""
    return ws.memo(("checkpoint state", file), lambda: _state(file))


def _state(file: RunFile) -> State:
    state = State(file, "unknown")
    try:
        with opened(file) as window:
            _read(window, state)
    except Damaged as e:
        state.problems.append(e.problem)
        state.readable = False
    except ParseError as e:
        state.problems.append(Problem("unreadable", str(e)))
        state.readable = False
    return state


def _read(window: Window, state: State) -> None:
    name = state.file.path.name.lower()
    head = window.read(0, min(window.size, 512))
    if not window.size:
        raise Damaged("empty", "the file has no bytes")
    if name.endswith(".safetensors") or is_safetensors(head):
        _refuse_zeros(window, head)
        read_safetensors(window, state)
    elif head[:4] == b"PK\x03\x04" or (name.endswith(_TORCH_NAMES) and has_directory(window)):
        _read_zip(window, state)
    elif head.startswith(MAGIC):
        read_npy(window, state)
    elif is_torch_legacy(window):
        read_torch_legacy(window, state)
    elif head[:1] == b"\x80" or name.endswith(_PICKLE_NAMES):
        _refuse_zeros(window, head)
        _read_pickle(window, state)
    else:
        _refuse_zeros(window, head)
        raise Damaged("unknown_format", f"starts with {head[:8].hex(' ')}: no checkpoint format that is read here")


def _refuse_zeros(window: Window, head: bytes) -> None:
    """A file of the right length with nothing in it is what a crashed node leaves behind."""
    if not head.strip(b"\0"):
        middle = window.read(window.size // 2, min(512, window.size - window.size // 2))
        if not middle.strip(b"\0"):
            raise Damaged("empty", f"{window.size} bytes that are zero at the start and in the middle: never written")


def _read_zip(window: Window, state: State) -> None:
    state.format = "torch_zip"
    if state.file.path.name.lower().endswith(".npz"):
        state.format = "npz"
    members = read_members(window, state, packed=state.format == "npz")
    if is_npz(members):
        read_npz(window, state, members)
    else:
        read_torch_zip(window, state, members)


def _read_pickle(window: Window, state: State) -> None:
    state.format = "pickle"
    pickle = Pickle(window)
    try:
        value = pickle.read()
    finally:
        note_globals(pickle, state)
    if pickle.storages:
        text = f"a pickle that needs {len(pickle.storages)} storages, which are not in the file"
        state.problems.append(Problem("missing_member", text))
    state.tree = Placing(state, lambda _: None).tree(value)
    if pickle.end < window.size:
        state.problems.append(Problem("hole", f"{window.size - pickle.end} bytes after the end of the pickle"))
        state.readable = False


# ----------
# The weights of a checkpoint under the names that the model's code gives them, whatever they were wrapped in.

CONTAINERS = ("state_dict", "model_state_dict", "module", "model", "net", "network", "params", "weights", "generator")
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_OUTER = re.compile(r"^(?:base_model\.model\.|model\.|transformer\.|language_model\.|net\.)+")
_ADAPTER = re.compile(r"\b(lora_|ia3_|adapter|prompt_embedding|vera_|oft_|hada_)", re.IGNORECASE)
_PIECE = re.compile(r"\[[\d, ]*\]$")  # the place of a piece of a distributed tensor
# Buffers: made by the code, never moved by an optimizer.
_BUFFERS = re.compile(
    r"(?:^|\.)(?:inv_freq|original_inv_freq|cos_cached|sin_cached|freqs_cis|position_ids|attn\.bias|masked_bias"
    r"|attn_mask|causal_mask|running_mean|running_var|num_batches_tracked|token_type_ids|_extra_state"
    r"|e_score_correction_bias|expert_bias|tokens_per_expert|rotary_emb\.\w+)$"
)
_NOT_WEIGHTS = re.compile(
    r"^(?:optim\w*|opt|lr_sched\w*|sched\w*|scaler|rng\w*|random\w*|ema\w*|callbacks|loops|hparams\w*|args|config)(?:\.|$)"
)
SLOTS = frozenset(
    ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_avg_diff", "exp_avg_sq_row", "exp_avg_sq_col", "momentum_buffer",
     "momentum", "square_avg", "exp_inf", "grad_avg", "acc_delta", "prev_grad", "sum", "state1", "state2", "fp32_param",
     "exp_hessian", "hessian", "moment1", "moment2", "exp_avg_bf16", "master_param")
)  # fmt: skip
_PARTS = ("model",)
# DeepSpeed keeps the weights that are trained in the optimizer's shards, as flat buffers of each rank.
_MASTERS = re.compile(r"(?:fp32_flat_groups|single_partition_of_fp32_groups)\.\d+$")
_GRADIENTS = re.compile(r"(?i)(?:^|[/_.-])grad(?:ient)?s?(?:[_.-]|$)")


@dataclass(slots=True)
class Weights:
    """The weights of one checkpoint.

    Attributes:
        name: of the checkpoint, as its folder or file is called.
        tensors: by name; where several files hold the same name (tensor parallel ranks), `name @file`.
        adapter: it holds adapters only, or adapters beside a base that stays as it is.
        readable: every file was understood; otherwise nothing may be called complete.
    """

    name: str
    framework: str
    step: int | None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    readable: bool = True
    why: str = ""

    @property
    def adapter(self) -> bool:
        return any(is_adapter(n) for n in self.tensors)

    @property
    def bytes(self) -> int:
        """Of all tensors together."""
        return sum(t.size for t in self.tensors.values())


def is_adapter(name: str) -> bool:
    """Whether a tensor belongs to an adapter (LoRA and its kin), by its name."""
    return bool(_ADAPTER.search(name))


def is_trained(tensor: Tensor, name: str) -> bool:
    """Whether an optimizer would move a tensor of this name and type: not a buffer, not integers, not empty."""
    return tensor.dtype.startswith(("float", "bfloat")) and tensor.size > 0 and not _BUFFERS.search(name)


def holds_gradients(name: str) -> bool:
    """Whether a file keeps gradients rather than weights, by its name (`grads.pt`, `gradients_step_10.safetensors`)."""
    return bool(_GRADIENTS.search(name.rpartition("/")[2]))


def bare(name: str) -> str:
    """A name without what wraps the model: `module.model.layers.0.w` and `_orig_mod.layers.0.w` are the same."""
    return _OUTER.sub("", _WRAPPERS.sub("", name))


def whole(name: str) -> str:
    """The tensor that a piece belongs to: `w[0, 128]` is part of `w`."""
    return _PIECE.sub("", name)


def weights_of(ws: Workspace, checkpoint: Checkpoint) -> Weights:
    """The weights of a checkpoint, by header alone; made once."""
    return ws.memo(("weights", checkpoint.run, checkpoint.name), lambda: _read_weights(ws, checkpoint))


def states_of(ws: Workspace, checkpoint: Checkpoint, *parts: str) -> Iterator[State]:
    """The states of a checkpoint's files of these parts; a distributed checkpoint gives one for all its files."""
    for part in parts:
        for file in checkpoint.files.get(part, []):
            check()
            if file.path.name == ".metadata":
                yield distributed_state(ws, file)
            elif file.path.suffix.lower() not in (".distcp", ".json", ".txt", ".md"):
                yield state_of(ws, file)


def _read_weights(ws: Workspace, checkpoint: Checkpoint) -> Weights:
    held = Weights(checkpoint.name, checkpoint.framework, checkpoint.step)
    parts = [p for p in _PARTS if p in checkpoint.files] or ["index", "metadata", "optimizer"]
    states = list(states_of(ws, checkpoint, *parts))
    if not states and "metadata" in checkpoint.files:
        states = list(states_of(ws, checkpoint, "metadata"))
    if checkpoint.framework == "deepspeed":
        states += states_of(ws, checkpoint, "optimizer")
    by_name: dict[str, list[tuple[RunFile, Tensor]]] = {}
    for state in states:
        if not state.readable:
            held.readable, held.why = False, f"{state.file.name}: {_why(state)}"
        for name, tensor in weights_in(state).items():
            by_name.setdefault(name, []).append((state.file, tensor))
    for name, places in by_name.items():
        for file, tensor in places:
            held.tensors[name if len(places) == 1 else f"{name} @{checkpoint.within(file)}"] = tensor
    return held


def _why(state: State) -> str:
    return state.problems[0].text if state.problems else "not understood"


def weights_in(state: State) -> dict[str, Tensor]:
    """The weights in one file by their names in the model: without the key they were saved under, and without
    optimizer, scheduler and random state."""
    prefix = _container(state.tree)
    found = {}
    for name, tensor in state.tensors.items():
        if prefix and not name.startswith(prefix):
            continue
        inner = name.removeprefix(prefix)
        if not prefix and (_NOT_WEIGHTS.match(inner) or whole(inner).rpartition(".")[2] in SLOTS):
            if not (masters := _MASTERS.search(inner)):
                continue
            inner = masters[0]
        found[inner] = tensor
    return found


def _container(tree: Any) -> str:
    """The key below which a training state keeps its weights, with a dot; empty where they lie at the top."""
    prefix = ""
    for _ in range(3):
        if not isinstance(tree, dict):
            break
        key = next((k for k in CONTAINERS if isinstance(tree.get(k), dict) and _holds_tensors(tree[k])), None)
        if key is None or any(isinstance(v, Tensor) and len(v.shape) > 1 for v in tree.values()):
            break
        prefix, tree = f"{prefix}{key}.", tree[key]
    return prefix


def _holds_tensors(tree: Any, depth: int = 3) -> bool:
    if isinstance(tree, Tensor):
        return True
    return depth > 0 and isinstance(tree, dict) and any(_holds_tensors(v, depth - 1) for v in tree.values())


def chosen_checkpoint(ws: Workspace, path: str) -> Checkpoint | None:
    """The checkpoint a user names: by its whole name, the end of it, or a file in it."""
    wanted = path.strip().rstrip("/").removeprefix("./")
    held = checkpoints(ws)
    for test in (
        lambda c: c.name == wanted,
        lambda c: c.name.endswith("/" + wanted) or wanted.endswith("/" + c.name),
        lambda c: any(f.name == wanted or str(f.path) == path for files in c.files.values() for f in files),
        lambda c: wanted in c.name,
    ):
        if found := [c for c in held if test(c)]:
            return found[0]
    return None


# ----------
# Where in the forward pass a parameter stands, told by its name: embedding, layers by number, final norm, head.

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h|resblocks|stages?|block|encoder|decoder|net|cells)\.(\d+)(?:\.|$)")
_HEAD = re.compile(
    r"(?:^|\.)(?:lm_head|head|output|output_layer|classifier|score|fc|cls|embed_out|v_head|proj_out)(?:\.|$)"
)
_EMBED = re.compile(r"(?:^|\.)(?:\w*embed\w*|wte|wpe|tok_emb|pos_emb|patch_\w+|stem|conv1)(?:\.|$)")
_SIDE = re.compile(r"(?:^|\.)(encoder|vision\w*|visual|decoder)(?:\.|$)")

_EARLY, _LAYERS, _NORM, _LAST = 0, 1, 2, 3


def layer_of(name: str) -> int | None:
    """Number of the layer that a parameter belongs to, or None outside the stack."""
    found = _LAYER.search(bare(name))
    return int(found[1]) if found else None


def place(name: str) -> tuple[int, int, int]:
    """A key that sorts names by the forward pass: side (encoder before decoder), stage, layer."""
    inner = bare(name)
    side = _SIDE.search(inner)
    behind = 1 if side and side[1] == "decoder" else 0
    layer = layer_of(inner)
    if layer is not None:
        return behind, _LAYERS, layer
    if _EMBED.search(inner):
        return behind, _EARLY, 0
    if _HEAD.search(inner):
        return 2, _LAST, 0
    return (behind, _NORM, 0) if "norm" in inner or re.search(r"(?:^|\.)ln", inner) else (2, _NORM, 1)


def module_of(name: str) -> str:
    """The block whose share a parameter is: `layers.3` for those in the stack, else its module."""
    inner = bare(name).partition(" @")[0]
    found = _LAYER.search(inner)
    return inner[: found.end(1)] if found else inner.rpartition(".")[0] or inner


def forward_order(names: Iterable[str]) -> list[str]:
    """Names in the order of the forward pass; within a layer as they were given, which is how the code lists them."""
    return sorted(names, key=place)
