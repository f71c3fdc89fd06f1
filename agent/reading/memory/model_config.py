"""The dimensions of a model: from a Hugging Face config.json, or from settings such as Megatron's flags.

    model = of_config(json.loads(text))        Model, or None where the mapping describes no transformer
    found = models_of(workspace)               every description among the run's files, the run's own first
    model.matrices, model.parameters           counts of parameters by part

What families do differently stands in `knowledge/models.yaml`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.own_files import KNOWLEDGE, read_table
from ..run.files import RunFile
from ..settings.settings import Setting, read_settings
from ..settings.settings_map import normal

if TYPE_CHECKING:
    from ..run.workspace import Workspace

MOST = 10_000_000  # no dimension of a model is larger; what claims to be is damage
CONFIG_CAP = 1 << 20
NESTED = ("text_config", "language_config", "llm_config", "thinker_config", "model", "config")
SETTINGS = {
    "layers": "num_layers", "hidden": "hidden_size", "heads": "attention_heads", "kv_heads": "kv_heads",
    "vocab": "vocab_size", "positions": "max_positions", "experts": "num_experts", "experts_per_token": "moe_topk",
}  # fmt: skip
UNMAPPED = ("ffn", "head_dim", "expert_ffn", "shared_ffn", "q_rank", "kv_rank", "nope_dim", "rope_dim", "value_dim")


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder-only transformer by its dimensions; 0 stands for a part it does not have.

    `traits` are the family's row of `knowledge/models.yaml`. `source` says where the dimensions were read.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    positions: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    nope_dim: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    tied: bool = False
    dtype: str = ""
    traits: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)
    source: str = ""

    @property
    def query(self) -> int:
        """Width of all queries together."""
        return self.heads * (self.nope_dim + self.rope_dim if self.kv_rank else self.head_dim)

    @property
    def values(self) -> int:
        """Width of what attention gives to its output projection."""
        return self.heads * (self.value_dim if self.kv_rank else self.head_dim)

    @property
    def keys_values(self) -> int:
        """Width of keys and values of one token together, as attention reads them."""
        return self.query + self.values if self.kv_rank else 2 * self.kv_heads * self.head_dim

    @property
    def cached(self) -> int:
        """Numbers that a cache of keys and values keeps for one token and layer."""
        return self.kv_rank + self.rope_dim if self.kv_rank else self.keys_values

    @property
    def moe_layers(self) -> int:
        return max(0, self.layers - self.dense_layers) if self.experts else 0

    @property
    def gates(self) -> int:
        """Matrices of one feed-forward: three where it is gated, else two."""
        return 3 if self.traits["gated"] else 2


@cache
def tables() -> dict[str, Any]:
    """`knowledge/models.yaml`, read once."""
    return read_table(KNOWLEDGE / "models.yaml")


def traits_of(family: str) -> dict[str, Any]:
    """The row of a family over the default one; an unknown family is read like the default."""
    rows = tables()["families"]
    return {**rows["default"], **rows.get(family, rows.get(family.split("_")[0], {}))}


def of_config(data: object, source: str = "") -> Model | None:
    """A model from a configuration as Hugging Face writes it; None where width or depth is missing or absurd."""
    if not isinstance(data, dict):
        return None
    numbers = _numbers(data)
    if not {"layers", "hidden"} <= numbers.keys():
        nested = next((data[k] for k in NESTED if isinstance(data.get(k), dict)), None)
        return of_config(nested, source) if nested is not None else None
    family = str(data.get("model_type") or "llama").lower()
    traits = traits_of(family)
    made = _model(family, numbers, traits)
    tied = data.get("tie_word_embeddings")
    dtype = str(data.get("dtype") or data.get("torch_dtype") or "").removeprefix("torch.")
    return replace(made, tied=bool(traits["tied"] if tied is None else tied), dtype=dtype, source=source)


def _numbers(data: dict[str, Any]) -> dict[str, int]:
    found = {}
    for name, keys in tables()["fields"].items():
        for key in keys:
            value = data.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= MOST:
                found[name] = int(value)
                break
    if data.get("multi_query") is True and not data.get("new_decoder_architecture"):
        found["kv_heads"] = 1
    return found


def _model(family: str, n: dict[str, int], traits: dict[str, Any]) -> Model:
    hidden = n["hidden"]
    heads = n.get("heads", max(1, hidden // 64))
    experts = n.get("experts", 0) if n.get("experts", 0) > 1 else 0
    ffn = n["ffn"] if "ffn" in n else int(traits["ffn_times"]) * hidden
    expert_ffn = n.get("expert_ffn", ffn) if experts else 0
    shared = n.get("shared_ffn", n.get("shared_experts", 0) * expert_ffn)
    mla = "kv_rank" in n and "value_dim" in n
    return Model(
        family=family, layers=n["layers"], hidden=hidden, heads=heads, kv_heads=n.get("kv_heads", heads),
        head_dim=n.get("head_dim", max(1, hidden // heads)), ffn=ffn, vocab=n.get("vocab", 0),
        positions=n.get("positions", 0) if traits["learned_positions"] else 0,
        experts=experts, experts_per_token=min(n.get("experts_per_token", 2), experts),
        expert_ffn=expert_ffn, shared_ffn=shared if experts else 0,
        dense_layers=min(n.get("dense_layers", 0), n["layers"]),
        q_rank=n.get("q_rank", 0) if mla else 0, kv_rank=n["kv_rank"] if mla else 0,
        nope_dim=n.get("nope_dim", 0), rope_dim=n.get("rope_dim", 0), value_dim=n.get("value_dim", 0),
        traits=traits,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Described:
    """A model with the place that describes it: a file, or the setting that gives its width."""

    model: Model
    file: RunFile | None = None
    setting: Setting | None = None


def models_of(ws: Workspace) -> list[Described]:
    """Every model that the run's files describe, those of settings last; checkpoints repeat theirs once."""
    return ws.memo("models", lambda: _models(ws))


def _models(ws: Workspace) -> list[Described]:
    found: list[Described] = []
    seen: set[Model] = set()
    for file in ws.files:
        if not file.name.endswith("config.json") or file.good or file.size > CONFIG_CAP:
            continue
        try:
            made = of_config(json.loads(ws.read(file, CONFIG_CAP)), file.name)
        except (ValueError, RecursionError):
            continue
        if made and made.vocab and (key := replace(made, source="", dtype="")) not in seen:
            seen.add(key)
            found.append(Described(made, file=file))
    if found:
        return found
    described = _of_settings(ws) or _named(ws)
    return [described] if described else []


def of_name(name: str) -> Model | None:
    """A well-known model by its name; None for any other."""
    for row in tables()["known"]:
        if re.search(row["name"], name, re.IGNORECASE):
            layers, hidden, ffn, heads, kv_heads, head_dim, vocab = row["is"]
            experts, chosen, expert_ffn = row.get("experts", (0, 0, 0))
            n = {"layers": layers, "hidden": hidden, "ffn": ffn, "heads": heads, "kv_heads": kv_heads, "vocab": vocab}
            n |= {"head_dim": head_dim, "positions": row.get("positions", 0)}
            if experts:
                n |= {"experts": experts, "experts_per_token": chosen, "expert_ffn": expert_ffn}
            made = _model(row["family"], n, traits_of(row["family"]))
            return replace(made, tied=bool(row.get("tied")), source=name)
    return None


def _named(ws: Workspace) -> Described | None:
    """A run that only names its model."""
    settings = read_settings(ws)
    value = settings.value("model")
    made = of_name(value) if isinstance(value, str) else None
    setting = next(iter(settings.used("model") or settings.asked("model")), None)
    return Described(made, setting=setting) if made and setting else None


def _of_settings(ws: Workspace) -> Described | None:
    """Megatron and its like give the dimensions as flags."""
    settings = read_settings(ws)
    n: dict[str, int] = {}
    for name, canonical in SETTINGS.items():
        value = settings.value(canonical)
        if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= MOST:
            n[name] = int(value)
    if not {"layers", "hidden"} <= n.keys():
        return None
    other = {normal(s.key).rpartition(".")[2]: s.value for s in settings.all}
    for name in UNMAPPED:
        for key in tables()["fields"][name]:
            if isinstance(other.get(key), int) and 0 < other[key] <= MOST:
                n[name] = other[key]
    traits = dict(traits_of("megatron"))
    if other.get("swiglu") in (True, None, "") and "swiglu" in other:
        traits |= {"gated": True, "activation_copies": 4}
    if str(other.get("normalization", "")).lower().startswith("rms"):
        traits |= {"norm": "rms", "attention_bias": False, "output_bias": False, "mlp_bias": False}
    setting = next(iter(settings.asked("hidden_size") or settings.used("hidden_size")), None)
    made = _model("megatron", {"vocab": 50304, **n}, traits)
    if setting is None:
        return None
    tied = settings.value("tie_embeddings")
    return Described(replace(made, tied=tied is not False, source=setting.file.name), setting=setting)
