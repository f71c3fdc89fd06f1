"""A BERT sentence encoder written down as an ONNX graph from its weights.

Written node by node instead of traced: it needs only the `onnx` package, takes half a second, and does not
change with the versions of torch and transformers. The encoder is the usual one: embeddings, layers of
self-attention and feed-forward, mean over the tokens of the mask, unit length.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

OPSET = 17


class _Graph:
    """Nodes and constants in the order they are written; every call returns the name of its output."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: np.ndarray | np.floating) -> str:
        import numpy as np
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name: str) -> str:
        return self.constant(self.weights[name])

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def linear(self, x: str, name: str) -> str:
        import numpy as np

        kernel = self.constant(np.ascontiguousarray(self.weights[f"{name}.weight"].T))
        return self.op("Add", self.op("MatMul", x, kernel), self.weight(f"{name}.bias"))

    def norm(self, x: str, name: str, epsilon: float) -> str:
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)


def write_encoder(folder: Path, target: Path) -> None:
    """Write the model in `folder` as the ONNX file `target`.

    It maps int64 `input_ids` and `attention_mask` (batch, tokens) to float32 `embedding` (batch, width).

    Raises:
        KeyError, ValueError: the model is no BERT of the usual make.
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
        raise ValueError(f"not a BERT with GELU but {config.get('model_type')!r}")
    g = _Graph(load_file(folder / "model.safetensors"))
    epsilon = float(config["layer_norm_eps"])
    x = g.norm(_embeddings(g), "embeddings.LayerNorm", epsilon)
    mask = g.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    blocked = g.op("Sub", g.constant(np.float32(1)), g.op("Unsqueeze", mask, g.constant(np.array([1, 2]))))
    bias = g.op("Mul", blocked, g.constant(np.float32(-1e9)))
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        attended = g.linear(_attention(g, x, bias, at, config), f"{at}.attention.output.dense")
        x = g.norm(g.op("Add", x, attended), f"{at}.attention.output.LayerNorm", epsilon)
        inner = _gelu(g, g.linear(x, f"{at}.intermediate.dense"))
        x = g.norm(g.op("Add", x, g.linear(inner, f"{at}.output.dense")), f"{at}.output.LayerNorm", epsilon)
    last = _mean(g, x, mask)
    g.nodes[-1].output[0] = "embedding"
    assert last == f"n{len(g.nodes) - 1}"
    tokens = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "s"]) for n in ("input_ids", "attention_mask")]
    out = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["b", int(config["hidden_size"])])
    graph = helper.make_graph(g.nodes, "encoder", tokens, [out], g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.save(model, str(target))


def _embeddings(g: _Graph) -> str:
    import numpy as np

    words = g.op("Gather", g.weight("embeddings.word_embeddings.weight"), "input_ids")
    length = g.op("Slice", g.op("Shape", "input_ids"), *(g.constant(np.array([i])) for i in (1, 2)))
    positions = g.weight("embeddings.position_embeddings.weight")
    placed = g.op("Slice", positions, g.constant(np.array([0])), length, g.constant(np.array([0])))
    segment = g.constant(g.weights["embeddings.token_type_embeddings.weight"][0])
    return g.op("Add", g.op("Add", words, placed), segment)


def _attention(g: _Graph, x: str, bias: str, at: str, config: dict[str, Any]) -> str:
    import numpy as np

    heads, width = config["num_attention_heads"], config["hidden_size"]
    split, joined = g.constant(np.array([0, 0, heads, width // heads])), g.constant(np.array([0, 0, width]))

    def parted(name: str, order: list[int]) -> str:
        return g.op("Transpose", g.op("Reshape", g.linear(x, f"{at}.attention.self.{name}"), split), perm=order)

    query, key, value = (
        parted("query", [0, 2, 1, 3]),
        parted("key", [0, 2, 3, 1]),
        parted("value", [0, 2, 1, 3]),
    )
    scaled = g.op("Mul", g.op("MatMul", query, key), g.constant(np.float32(1 / math.sqrt(width / heads))))
    weights = g.op("Softmax", g.op("Add", scaled, bias), axis=-1)
    return g.op("Reshape", g.op("Transpose", g.op("MatMul", weights, value), perm=[0, 2, 1, 3]), joined)


def _gelu(g: _Graph, x: str) -> str:
    import numpy as np

    erf = g.op("Erf", g.op("Mul", x, g.constant(np.float32(1 / math.sqrt(2)))))
    return g.op("Mul", g.op("Mul", x, g.constant(np.float32(0.5))), g.op("Add", erf, g.constant(np.float32(1))))


def _mean(g: _Graph, x: str, mask: str) -> str:
    import numpy as np

    column = g.op("Unsqueeze", mask, g.constant(np.array([2])))
    total = g.op("ReduceSum", g.op("Mul", x, column), g.constant(np.array([1])), keepdims=0)
    count = g.op("ReduceSum", mask, g.constant(np.array([1])), keepdims=1)
    return g.op("LpNormalization", g.op("Div", total, count), axis=-1, p=2)
