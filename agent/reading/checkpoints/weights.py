"""The weights of a checkpoint under the names that the model's code gives them, whatever they were wrapped in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...deadline import check
from ..files import RunFile
from .distributed import distributed_state
from .layouts import Checkpoint, checkpoints
from .parts import State, Tensor
from .state import state_of

if TYPE_CHECKING:
    from ...workspace import Workspace

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
    return ws.memo(("weights", checkpoint.run, checkpoint.name), lambda: _read(ws, checkpoint))


def states_of(ws: Workspace, checkpoint: Checkpoint, *parts: str) -> Iterator[State]:
    """The states of a checkpoint's files of these parts; a distributed checkpoint gives one for all its files."""
    for part in parts:
        for file in checkpoint.files.get(part, []):
            check()
            if file.path.name == ".metadata":
                yield distributed_state(ws, file)
            elif file.path.suffix.lower() not in (".distcp", ".json", ".txt", ".md"):
                yield state_of(ws, file)


def _read(ws: Workspace, checkpoint: Checkpoint) -> Weights:
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
