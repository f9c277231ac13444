"""BatchNormalization with constant statistics, directly behind a linear operator with constant
weights that nothing else reads, becomes part of the weights (computed in f64)."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from aotc.frontend.graph import Graph, Node
from aotc.ir.dtypes import Array

LINEAR = ("Conv", "ConvTranspose", "Gemm")


def fold_batch_norm(graph: Graph) -> Graph:
    """A Graph without the BatchNormalization nodes that fold into the node before them; both
    names stay in the node's ``origin``."""
    makers = {o: n for n in graph.nodes for o in n.outputs if o}
    uses: dict[str, int] = {}
    for n in graph.nodes:
        for i in (*n.inputs, *n.captures):
            uses[i] = uses.get(i, 0) + 1
    for o in graph.outputs:
        uses[o] = uses.get(o, 0) + 1
    constants = dict(graph.initializers)
    changed: dict[int, Node | None] = {}
    for bn in graph.nodes:
        before = makers.get(bn.inputs[0]) if bn.op == "BatchNormalization" else None
        if before is None or not _folds(before, bn, constants, uses):
            continue
        merged = _merge(before, bn, constants)
        if merged is not None:
            changed[id(before)], changed[id(bn)] = merged, None
    if not changed:
        return graph
    nodes = tuple(n for n in (changed.get(id(n), n) for n in graph.nodes) if n is not None)
    live = {i for n in nodes for i in (*n.inputs, *n.captures)} | set(graph.outputs)
    return replace(graph, nodes=nodes,
                   initializers={k: v for k, v in constants.items() if k in live})


def _folds(before: Node, bn: Node, constants: Mapping[str, Array], uses: Mapping[str, int]) -> bool:
    def known(name: str) -> bool:  # of types that are stored only there are the bits
        return name in constants and constants[name].dtype.kind == "f"
    return (before.op in LINEAR and before.domain == bn.domain == ""
            and uses[bn.inputs[0]] == 1 and not bn.attr("training_mode", 0)
            and bn.attr("spatial", 1) == 1 and sum(bool(o) for o in bn.outputs) == 1
            and all(map(known, bn.inputs[1:5]))
            and all(not i or known(i) for i in before.inputs[1:]))


def _merge(node: Node, bn: Node, constants: dict[str, Array]) -> Node | None:
    """The linear node with scaled weights and a new bias, or None if shapes do not fit."""
    scale, shift, mean, var = (constants[i].astype(np.float64) for i in bn.inputs[1:5])
    scale = scale / np.sqrt(var + bn.attr("epsilon", 1e-5))
    weights = constants[node.inputs[1]]
    has_bias = len(node.inputs) > 2 and node.inputs[2]
    bias = constants[node.inputs[2]].astype(np.float64) if has_bias else np.zeros(1)
    attrs = dict(node.attrs)
    if node.op == "Gemm":
        attrs["beta"] = 1.0
        bias = bias * node.attr("beta", 1.0)
    scaled = _scale(node, weights.astype(np.float64), scale)
    if scaled is None or scaled.shape != weights.shape or bias.size not in (1, scale.size):
        return None
    bias = (bias.reshape(-1) - mean) * scale + shift
    names = tuple(_fresh(f"{node.inputs[1]}_{part}", constants) for part in ("folded", "bias"))
    constants[names[0]] = scaled.astype(weights.dtype)
    constants[names[1]] = bias.astype(weights.dtype)
    return replace(node, inputs=(node.inputs[0],) + names, outputs=bn.outputs, attrs=attrs,
                   origin=(node.origin or (node.label,)) + (bn.label,))


def _fresh(name: str, constants: Mapping[str, Array]) -> str:
    """``name``, numbered if a shared weight has been folded under it before."""
    return name if name not in constants else _fresh(name + "_", constants)


def _scale(node: Node, weights: Array, scale: Array) -> Array | None:
    """Weights times the scale of their output channel, or None if the counts disagree."""
    spread = (1,) * (weights.ndim - 2)
    if node.op == "Conv":
        return weights * scale.reshape((-1, 1) + spread) if len(weights) == scale.size else None
    if node.op == "Gemm":
        rows = bool(node.attr("transB", 0))
        if weights.shape[0 if rows else 1] != scale.size:
            return None
        return weights * (scale[:, None] if rows else scale[None, :])
    groups = node.attr("group", 1)
    if weights.shape[1] * groups != scale.size:
        return None
    grouped = weights.reshape((groups, -1) + weights.shape[1:])
    return (grouped * scale.reshape((groups, 1, -1) + spread)).reshape(weights.shape)
