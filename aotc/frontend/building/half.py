"""Dtypes of storage (f16): operators compute on f32, and what they make is rounded where it is
stored as f16.  Only tensors that the caller sees, and those that an operator looks at as numbers of
few digits, are here: between operators values stay f32, and buffers say what the model declares
them as (``Buffer.declared``), for who decides what is stored.  No operator's function knows of it.
Of a single operator, sums, differences, products, quotients and square roots are therefore the
correctly rounded ones; longer operators round once where an implementation in half precision would
round at every step."""

from dataclasses import replace

import numpy as np
import onnx

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import Build
from aotc.frontend.building.stored_type_operators import PLACES, STEPS
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import Result, Val, Value
from aotc.frontend.graph import Node

_HALF, WIDE = "f16", "f32"


def call(node: Node, b: Builder, build: Build) -> Result:
    """The node's Val or Vals, made by ``build(node, builder)``; f16 inputs are given to it as
    f32, and outputs that the operator's schema makes f16 come back as f16."""
    places = node.op in PLACES and not node.domain
    vals = {i: b.env[i] for i in node.inputs if i}
    stored = {i: v for i, v in vals.items() if isinstance(v, Val) and v.dtype == _HALF}
    if places and (node.op in STEPS or not any(v in b.wide for v in stored.values())):
        return build(node, b)
    types = {k for k, i in enumerate(node.inputs) if i in stored}
    outs = {k for k, o in enumerate(node.outputs) if o and _is_stored(node, k, types)}
    names = {i: f"{i} as {WIDE}" for i in stored}
    for i, v in stored.items():
        b.env[names[i]] = _widened(b, v, node)
    if not stored and not outs:
        return build(node, b)
    b.node = replace(node, inputs=tuple(names.get(i, i) for i in node.inputs))
    b.unrounded, first = outs, len(b.steps)
    result = build(b.node, b)
    b.unrounded = frozenset()
    made = {o for s in b.steps[first:] for o in s.outs}

    def stored_as(v: Value, k: int) -> Value:
        if k not in outs or not isinstance(v, Val) or v.dtype != WIDE:
            return v
        if v.buffer in made:
            b.buffers[v.buffer] = replace(b.buffers[v.buffer], declared=_HALF)
        return _rounded(b, v, k)

    if isinstance(result, tuple):
        return tuple(v if v is None else stored_as(v, k) for k, v in enumerate(result))
    return stored_as(result, 0)


def _widened(b: Builder, v: Val, node: Node) -> Val:
    """The f16 Val as f32: what it was rounded from, where the node does not mind."""
    if v in b.wide and node.op not in STEPS:
        return b.wide[v]
    if v not in b.exact:
        b.exact[v] = _converted(b, v, node)
    return b.exact[v]


def _converted(b: Builder, v: Val, node: Node) -> Val:
    if v.array is not None:
        b.halves = _HALF
        return b.const(v.array.astype(np.float32), v.name)
    fn = v.fn
    if fn is not None:
        return Val(v.shape, WIDE, fn=lambda index: cast(WIDE, fn(index)))
    tag = f"in{list(node.inputs).index(v.name)}" if v.name in node.inputs else "wide"
    return b.map(v.shape, lambda index: cast(WIDE, b.at(v, index)), [v], tag)


def _rounded(b: Builder, v: Val, k: int) -> Val:
    """The Val as f16; ``b.wide`` remembers what it comes from."""
    if v.array is not None:
        return b.const(v.array.astype(np.float16), v.name)
    stored = b.map(v.shape, lambda index: cast(_HALF, b.at(v, index)), [v], out=k)
    b.wide[stored] = v
    return stored


def _is_stored(node: Node, k: int, types: set[int]) -> bool:
    """True if output ``k`` is f16: its type is that of an f16 input, or an attribute says so.
    types: the numbers of the f16 inputs."""
    for name in ("dtype", "to", "output_dtype"):
        if name in node.attrs and node.attrs[name]:
            return bool(node.attrs[name] == onnx.TensorProto.FLOAT16)
    if not types or not onnx.defs.has(node.op, node.opset, node.domain):
        return False
    schema = onnx.defs.get_schema(node.op, node.opset, node.domain)
    formal = schema.outputs[min(k, len(schema.outputs) - 1)]
    alike = [j for j in range(len(node.inputs)) if node.inputs[j]
             and schema.inputs[min(j, len(schema.inputs) - 1)].type_str == formal.type_str]
    if alike:
        return alike[0] in types
    return any("tensor(float16)" in c.allowed_type_strs for c in schema.type_constraints
               if c.type_param_str == formal.type_str)
