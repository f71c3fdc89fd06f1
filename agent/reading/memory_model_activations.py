"""What the backward pass keeps of one layer, in bytes per token, as PyTorch's autograd saves it.

Counted from the operations of Hugging Face's modules and checked against what they allocate
(`benchmarks/memory_estimate.py`): a norm in float32 keeps its input and its normalised value, attention keeps queries,
keys, values, output and one number per head, a gated feed-forward keeps four tensors of its width. Linear layers under
autocast copy their input once each, because only weights are cached. Fused kernels keep inputs alone.
"""

from __future__ import annotations

from .memory_model_plan import Plan
from .model_config import Model

NORM: dict[str, tuple[int, int]] = {"rms": (4, 2), "rms_plus_one": (4, 4), "layer": (2, 0)}


def layer(m: Model, plan: Plan, moe: bool) -> float:
    """Bytes per token kept by one layer on one device, without checkpointing.

    Args:
        moe: the layer's feed-forward is made of experts.
    """
    t = plan.tensor
    along = t if plan.sequence_parallel else 1
    feed = _experts(m, plan) if moe else _feed_forward(m, plan, m.ffn)
    return _norms(m, plan) / along + _projections(m, plan, moe) / along + (_attention(m, plan) + feed) / t


def recomputed(m: Model, plan: Plan) -> float:
    """Bytes per token that attention with stored scores keeps: what selective checkpointing computes again."""
    return _scores(m, plan) / plan.tensor if plan.attention == "eager" else 0.0


def score_gradients(m: Model, plan: Plan) -> float:
    """Bytes per token of the gradients of eager attention's scores: two in float32 at once."""
    return 8 * m.heads * plan.sequence / plan.context / plan.tensor


def feed_forward(m: Model, plan: Plan) -> float:
    """Bytes per token that a feed-forward keeps, and that are gone when backward reaches attention."""
    return (_experts(m, plan) if m.moe_layers else _feed_forward(m, plan, m.ffn)) / plan.tensor


def _norms(m: Model, plan: Plan) -> float:
    """Inputs and normalised values of norms; what they hand to linear layers counts in `_projections`."""
    t, h, d = m.traits, m.hidden, plan.compute
    wide = plan.residual
    if plan.kernels == "fused":
        return t["norms"] * h * wide
    if t["norm"] == "layer":
        return t["norms"] * (h * wide + 8)
    kept = 4 + (0 if plan.lora_rank else _normalised(m, wide))
    each = (t["norms"] * h + (m.query + m.keys_values // 2 if t["qk_norm"] else 0)) * kept + t["norms"] * 4
    return each + ((m.q_rank + m.kv_rank) * (kept + d) if m.kv_rank else 0)


def _normalised(m: Model, wide: int) -> int:
    return 4 if m.traits["norm"] == "rms_plus_one" else wide


def _projections(m: Model, plan: Plan, moe: bool) -> float:
    """Inputs of the linear layers that come from norms: the norm's output, or autocast's copies of it."""
    h, d = m.hidden, plan.compute
    if plan.lora_rank:
        return _adapted(m, plan)
    fused = bool(m.traits["fused_inputs"]) or plan.kernels == "fused"
    if not plan.copied or plan.kernels == "fused":
        return 2 * h * d
    return (1 if fused else 3) * h * d + (1 if fused or moe else m.gates - 1) * h * d


def _adapted(m: Model, plan: Plan) -> float:
    """Inputs of adapters: the base is frozen and keeps none; adapters in float32 copy their input each."""
    h = m.hidden
    everything = plan.lora_targets == "all"
    modules = 2 + (2 + m.gates if everything else 0)
    shared = plan.precision == "fp32"
    if everything:
        width = 2 * h + m.ffn if shared else (2 + m.gates) * h + m.values + m.ffn
    else:
        width = h if shared else 2 * h
    each = plan.compute if plan.precision in ("fp32", "mixed") else 4
    return width * each + modules * plan.lora_rank * each


def _attention(m: Model, plan: Plan) -> float:
    d = plan.compute
    per_token = m.query + m.keys_values + m.values + m.traits["attention_extra"] * m.hidden
    if plan.attention != "eager":
        return per_token * d + 4 * m.heads
    groups = m.heads // max(1, m.kv_heads)
    repeated = (m.keys_values * (groups - 1)) if groups > 1 else 0
    return (per_token + repeated) * d + _scores(m, plan)


def _scores(m: Model, plan: Plan) -> float:
    """Scores of eager attention: the softmax, its 16-bit copy where there is one, and the cap's result."""
    d, length = plan.compute, plan.sequence / plan.context
    upcast = m.traits["upcast"] or plan.precision == "mixed"
    each = d + (4 if upcast and d < 4 else 0) + (d if m.traits["softcap"] else 0)
    return m.heads * length * each


def _feed_forward(m: Model, plan: Plan, width: int) -> float:
    copies = m.traits["activation_copies"]
    if plan.kernels == "fused":
        copies = 3 if m.traits["gated"] else 2
    if plan.lora_rank and plan.kernels != "fused":
        copies = max(1, copies - 1)
    return copies * width * plan.compute


def _experts(m: Model, plan: Plan) -> float:
    """Each token visits some experts: its copies, their width, and the result that is weighted; the shared one."""
    routed = m.experts_per_token * (2 * m.hidden * plan.compute + _feed_forward(m, plan, m.expert_ffn))
    router = m.experts * 12 + m.experts_per_token * 24
    return routed + router + (_feed_forward(m, plan, m.shared_ffn) if m.shared_ffn else 0)
