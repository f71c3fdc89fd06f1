"""How many parameters a model has, by part; a device's share of them under a parallel layout."""

from __future__ import annotations

from dataclasses import dataclass

from .model_config import Model


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts. `matrices` are the weights of linear layers in the blocks without experts, `rest` norms and biases.

    `embedding` holds tokens and learned positions; `head` is 0 where it shares the embedding's table.
    """

    embedding: float
    head: float
    matrices: float
    experts: float
    rest: float

    @property
    def total(self) -> float:
        return self.embedding + self.head + self.matrices + self.experts + self.rest

    @property
    def dense(self) -> float:
        """All but experts."""
        return self.total - self.experts


def attention_matrices(m: Model) -> int:
    """Weights of the attention of one layer."""
    h = m.hidden
    if m.kv_rank:
        query = h * m.q_rank + m.q_rank * m.query if m.q_rank else h * m.query
        compressed = h * (m.kv_rank + m.rope_dim)
        return query + compressed + m.kv_rank * m.heads * (m.nope_dim + m.value_dim) + m.values * h
    return h * m.query + h * m.keys_values + m.values * h


def layer_rest(m: Model, moe: bool) -> int:
    """Norms and biases of one layer."""
    t, h = m.traits, m.hidden
    norms = t["norms"] * h * (2 if t["norm"] == "layer" else 1)
    if m.kv_rank:
        norms += m.q_rank + m.kv_rank
    if t["qk_norm"]:
        norms += m.query + m.keys_values // 2 if t.get("qk_norm_full") else 2 * m.head_dim
    biases = (m.query + m.keys_values if t["attention_bias"] else 0) + (h if t["output_bias"] else 0)
    if t["mlp_bias"] and not moe:
        biases += m.ffn * (m.gates - 1) + h
    return norms + biases


def whole(m: Model) -> Parameters:
    """Every parameter of the model."""
    h, dense = m.hidden, m.layers - m.moe_layers
    feed_forward = dense * m.gates * h * m.ffn
    routed = 0
    if m.moe_layers:
        routed = m.moe_layers * m.experts * m.gates * h * m.expert_ffn
        gate = h if m.traits.get("shared_gate") else 0
        feed_forward += m.moe_layers * (m.gates * h * m.shared_ffn + h * m.experts + gate)
    rest = dense * layer_rest(m, False) + m.moe_layers * layer_rest(m, True)
    rest += h * (2 if m.traits["norm"] == "layer" else 1)
    table = m.vocab * h
    matrices = m.layers * attention_matrices(m) + feed_forward
    return Parameters(table + m.positions * h, 0 if m.tied else table, matrices, routed, rest)


def adapters(m: Model, rank: int, targets: str) -> float:
    """Parameters of low-rank adapters: of queries and values (`attention`), or of every linear layer (`all`)."""
    h, half = m.hidden, m.keys_values // 2
    attention = rank * (h + m.query + h + half)
    if targets != "all":
        return m.layers * attention
    attention += rank * (h + half + m.values + h)
    width = m.ffn if not m.moe_layers else m.experts * m.expert_ffn + m.shared_ffn
    return m.layers * (attention + m.gates * rank * (h + width))


def share(m: Model, stage: int, pipeline: int, tensor: int, expert: int) -> Parameters:
    """What one device of a pipeline stage holds before any sharding over data-parallel ranks."""
    of_all = whole(m)
    part = -(-m.layers // pipeline) / m.layers
    first, last = stage == 0, stage == pipeline - 1
    head = of_all.head or (of_all.embedding if pipeline > 1 else 0)
    return Parameters(
        embedding=of_all.embedding / tensor if first else 0,
        head=(head / tensor if last else 0),
        matrices=of_all.matrices * part / tensor,
        experts=of_all.experts * part / expert,
        rest=of_all.rest * part,
    )
