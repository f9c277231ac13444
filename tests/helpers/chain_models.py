"""Chains of dense layers, with what stands between them in networks that compute points of a field:
encodings by sines, and a layer that reads the encoded input again."""

from dataclasses import dataclass

import numpy as np
from half_models import halved
from onnx import TensorProto, helper
from small_models import make_model

node = helper.make_node


@dataclass(frozen=True)
class Chain:
    """Layers of ``widths``, the first of them the input's; skip: the layer that reads the encoded
    input, too (0: none); encoded: the input beside its sine and cosine; heads: columns of two
    layers that read the last one, side by side in the result."""

    rows: int | str
    widths: tuple[int, ...]
    skip: int = 0
    encoded: bool = False
    heads: tuple[int, int] = ()


def chain_model(chain: Chain, dtype: str = "f32"):
    """y of x [rows, widths[0]]: relu between layers, a bias in each."""
    r, nodes, tensors = np.random.default_rng(3), [], {}
    at, width = "x", chain.widths[0]

    def layer(name, source, k, n):
        tensors[f"w{name}"] = (r.standard_normal((k, n)) * k**-0.5).astype(np.float32)
        tensors[f"b{name}"] = r.uniform(-0.2, 0.2, n).astype(np.float32)
        nodes.extend([node("MatMul", [source, f"w{name}"], [f"p{name}"]),
                      node("Add", [f"p{name}", f"b{name}"], [f"a{name}"])])
        return f"a{name}"

    if chain.encoded:
        nodes += [node("Sin", ["x"], ["s"]), node("Cos", ["x"], ["c"]),
                  node("Concat", ["x", "s", "c"], ["encoded"], axis=1)]
        at, width = "encoded", 3 * width
    first, own = at, width
    for number, n in enumerate(chain.widths[1:], 1):
        if number == chain.skip:
            nodes.append(node("Concat", [first, at], ["both"], axis=1))
            at, width = "both", own + width
        at = layer(number, at, width, n)
        if number < len(chain.widths) - 1 or chain.heads:
            nodes.append(node("Relu", [at], [f"r{number}"]))
            at = f"r{number}"
        width = n
    columns = width
    if chain.heads:
        made = [layer(f"h{i}", at, width, n) for i, n in enumerate(chain.heads)]
        nodes += [node("Sigmoid", [made[0]], ["soft"]), node("Concat", ["soft", made[1]], ["y"],
                                                             axis=1)]
        columns = sum(chain.heads)
    else:
        nodes[-1].output[0] = "y"
    f32 = TensorProto.FLOAT
    model = make_model(nodes, {"x": (f32, [chain.rows, chain.widths[0]])},
                       {"y": (f32, [chain.rows, columns])}, tensors)
    return model if dtype == "f32" else halved(model, dtype)


def chain_feeds(rows: int, width: int, seed: int = 5) -> dict[str, np.ndarray]:
    """x with ordinary numbers."""
    return {"x": np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)}
