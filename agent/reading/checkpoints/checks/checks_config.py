"""Shapes and types of the weights against the config beside them: width, layers, vocabulary, rank of an adapter."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...run.files import RunFile
from ..layouts import Checkpoint
from ..parts import Tensor
from ..weights import bare, is_adapter, weights_in
from .checks import Flaw, index_flaws, skipped_in, states_of_checkpoint

if TYPE_CHECKING:
    from ...run.workspace import Workspace

_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|tok_embeddings|word_embeddings|embed_in|embeddings\.word_embeddings|shared|tokens_embed)\.weight$"
)
_HEAD = re.compile(r"(^|\.)(lm_head|embed_out)\.weight$|^((model|transformer)\.)?output(_layer)?\.weight$")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d{1,5})\.")
_OTHER_STACK = re.compile(r"vision|visual|audio|encoder\.|decoder\.|mtp|draft|image", re.IGNORECASE)
_WIDTH = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_INNER = ("text_config", "llm_config", "language_config", "thinker_config")


def config_of(ws: Workspace, checkpoint: Checkpoint) -> tuple[RunFile, dict[str, Any]] | None:
    """The model's config.json of a save, with what a multimodal one keeps for its language model at the top."""
    for file in checkpoint.files.get("config", []):
        if file.path.name == "config.json":
            try:
                known = json.loads(ws.read(file, 4 << 20))
            except (ValueError, RecursionError):
                return None
            if isinstance(known, dict) and ("model_type" in known or "architectures" in known):
                inner = next((known[k] for k in _INNER if isinstance(known.get(k), dict)), {})
                return file, {**known, **inner}
    return None


def weights_of_model(ws: Workspace, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Weights by their bare names, from the files of the model alone; whole tensors only."""
    found: dict[str, Tensor] = {}
    if checkpoint.framework in ("hf", "peft", "torch", "lightning", "accelerate"):
        for _, state in states_of_checkpoint(ws, checkpoint, "model", "other"):
            found.update(weights_in(state))
    return found


def embedding_of(ws: Workspace, checkpoint: Checkpoint) -> Tensor | None:
    """The embedding of the tokens, where a save holds it whole."""
    held = weights_of_model(ws, checkpoint)
    named = [t for n, t in held.items() if _EMBEDDING.search(n) and len(t.shape) == 2 and not is_adapter(n)]
    return max(named, key=lambda t: t.shape[0], default=None)


def config_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """What the config says and the tensors do not."""
    held = weights_of_model(ws, checkpoint)
    if not held:
        return
    yield from _types(held)
    yield from _adapter(ws, checkpoint, held)
    known = config_of(ws, checkpoint)
    if known is None:
        broken = [f for f in checkpoint.files.get("config", []) if f.path.name == "config.json"]
        if broken and broken[0].size and checkpoint.framework in ("hf", "peft"):
            yield Flaw("checkpoint.config_broken", "config.json names no model", True, broken[0])
        return
    file, config = known
    yield from _vocabulary(file, config, held)
    if not _incomplete(ws, checkpoint):
        yield from _layers(file, config, held)


def _incomplete(ws: Workspace, checkpoint: Checkpoint) -> bool:
    """A shard is missing or may not be read: layers that are not there follow from it."""
    lost = any(f.key == "checkpoint.missing_shard" for f in index_flaws(ws, checkpoint))
    return lost or bool(skipped_in(ws, checkpoint)) or any(f.size == 0 for f in checkpoint.files.get("model", []))


def _vocabulary(file: RunFile, config: dict[str, Any], held: dict[str, Tensor]) -> Iterator[Flaw]:
    rows, width = config.get("vocab_size"), next((config[k] for k in _WIDTH if isinstance(config.get(k), int)), None)
    for name, tensor in held.items():
        embedding = bool(_EMBEDDING.search(name)) and not _OTHER_STACK.search(name.partition("embed")[0])
        if len(tensor.shape) != 2 or is_adapter(name) or not (embedding or _HEAD.search(name)):
            continue
        if isinstance(rows, int) and tensor.shape[0] != rows and (embedding or tensor.shape[0] < rows):
            text = f"{name} has {tensor.shape[0]} rows, config.json says vocab_size {rows}"
            yield Flaw("checkpoint.vocab_mismatch", text, tensor.shape[0], tensor.file, name)
        narrow = (
            config.get("embedding_size")
            or config.get("word_embed_proj_dim")
            or config.get("hidden_size_per_layer_input")
        )
        if embedding and isinstance(width, int) and tensor.shape[1] not in (width, narrow):
            text = f"{name} is {tensor.shape[1]} wide, config.json says {width}"
            yield Flaw("checkpoint.shape_mismatch", text, tensor.shape[1], tensor.file, name)


def _layers(file: RunFile, config: dict[str, Any], held: dict[str, Tensor]) -> Iterator[Flaw]:
    """Numbers of layers without a gap, as many as the config says (speculative heads may add some)."""
    stacks: dict[str, dict[int, Tensor]] = {}
    for name, tensor in held.items():
        m = _LAYER.search(name)
        if m and not _OTHER_STACK.search(name):
            stacks.setdefault(bare(name[: m.start(1)]), {}).setdefault(int(m[1]), tensor)
    if not stacks:
        return
    stack = max(stacks.values(), key=len)
    first = next(iter(stack.values()))
    said = next((config[k] for k in _LAYERS if isinstance(config.get(k), int)), None)
    if gaps := sorted(set(range(max(stack))) - set(stack)):
        text = f"layers {', '.join(map(str, gaps[:8]))} have no tensors, layer {max(stack)} has"
        yield Flaw("checkpoint.missing_tensor", text, len(gaps), first.file, f"layer {gaps[0]}")
    elif said is not None and said > 0 and len(stack) < said:
        text = f"{len(stack)} layers are there, config.json says {said}"
        yield Flaw("checkpoint.shape_mismatch", text, len(stack), first.file, f"layer {len(stack)}")
    elif said is not None and len(stack) > said + config.get("num_nextn_predict_layers", 0):
        text = f"{len(stack)} layers are there, config.json says {said}"
        yield Flaw("checkpoint.shape_mismatch", text, len(stack), first.file, f"layer {said}", "note")


def _types(held: dict[str, Tensor]) -> Iterator[Flaw]:
    """Layers of one kind in different types: one of them was written by something else."""
    kinds: dict[str, Counter[str]] = {}
    places: dict[tuple[str, str], tuple[str, Tensor]] = {}
    for name, tensor in held.items():
        if len(tensor.shape) >= 2 and _LAYER.search(name) and tensor.dtype.startswith(("float", "bfloat")):
            kind = re.sub(r"\d+", "#", name)
            kinds.setdefault(kind, Counter())[tensor.dtype] += 1
            places.setdefault((kind, tensor.dtype), (name, tensor))
    for kind, types in kinds.items():
        if len(types) > 1:
            odd = min(types, key=lambda t: types[t])
            name, tensor = places[kind, odd]
            text = f"{kind} is {', '.join(f'{t} in {n} layers' for t, n in types.items())}"
            yield Flaw("checkpoint.dtype_mixed", text, odd, tensor.file, name, "note")


def _adapter(ws: Workspace, checkpoint: Checkpoint, held: dict[str, Tensor]) -> Iterator[Flaw]:
    for file in checkpoint.files.get("config", []):
        if file.path.name != "adapter_config.json":
            continue
        try:
            known = json.loads(ws.read(file, 4 << 20))
        except (ValueError, RecursionError):
            yield Flaw("checkpoint.config_broken", "adapter_config.json is no JSON object", True, file)
            return
        rank = known.get("r") if isinstance(known, dict) else None
        if not isinstance(rank, int) or known.get("rank_pattern"):
            return
        for name, tensor in held.items():
            if "lora_A" in name and len(tensor.shape) == 2 and tensor.shape[0] != rank:
                text = f"{name} has rank {tensor.shape[0]}, adapter_config.json says {rank}"
                yield Flaw("checkpoint.shape_mismatch", text, tensor.shape[0], tensor.file, name)
                return
