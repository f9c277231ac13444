"""Dtypes of storage (f16): values are converted to f32 before an operator computes with them and
rounded once after it, so that no operator's function knows them.  Sums, differences, products,
quotients and square roots are therefore the correctly rounded ones; longer operators round once
where an implementation in half precision would round at every step."""

from dataclasses import replace

import numpy as np
import onnx

from aotc.frontend.symbolic import cast
from aotc.frontend.values import Val

STORED, WIDE = "f16", "f32"

# operators that only place elements: they take the stored dtype as it is
_PLACES = frozenset("""
    Cast CastLike BitCast Identity Shape Size Reshape Flatten Squeeze Unsqueeze Transpose Expand
    Tile DepthToSpace SpaceToDepth Slice Split Concat Trilu Where Gather GatherElements GatherND
    ReverseSequence ConstantOfShape EyeLike OneHot Dropout Pad Compress If Loop Scan
""".split())


def call(node, b, build):
    """The node's Val or Vals, made by ``build(node, builder)``; f16 inputs are given to it as
    f32, and outputs that the operator's schema makes f16 come back as f16."""
    if node.op in _PLACES and not node.domain:
        return build(node, b)
    stored = {i: b.env[i] for i in node.inputs if i and b.env[i].dtype == STORED}
    types = {k for k, i in enumerate(node.inputs) if i in stored}
    outs = {k for k, o in enumerate(node.outputs) if o and _is_stored(node, k, types)}
    names = {i: f"{i} as {WIDE}" for i in stored}
    for i, v in stored.items():
        if names[i] not in b.env:
            b.env[names[i]] = _widened(b, v, node)
    if not stored and not outs:
        return build(node, b)
    b.node = replace(node, inputs=tuple(names.get(i, i) for i in node.inputs))
    b.unrounded = outs
    result = build(b.node, b)
    b.unrounded = frozenset()
    vals = result if isinstance(result, tuple) else (result,)
    vals = tuple(_rounded(b, v, k) if k in outs and v is not None and v.dtype == WIDE else v
                 for k, v in enumerate(vals))
    return vals if isinstance(result, tuple) else vals[0]


def _widened(b, v, node):
    if v.array is not None:
        return b.const(v.array.astype(np.float32), v.name)
    if v.fn is not None:
        return Val(v.shape, WIDE, fn=lambda index: cast(WIDE, v.fn(index)))
    tag = f"in{list(node.inputs).index(v.name)}" if v.name in node.inputs else "wide"
    return b.map(v.shape, lambda index: cast(WIDE, b.at(v, index)), [v], tag)


def _rounded(b, v, k):
    if v.array is not None:
        return b.const(v.array.astype(np.float16), v.name)
    return b.map(v.shape, lambda index: cast(STORED, b.at(v, index)), [v], out=k)


def _is_stored(node, k, types):
    """True if output ``k`` is f16: its type is that of an f16 input, or an attribute says so.
    types: the numbers of the f16 inputs."""
    for name in ("dtype", "to", "output_dtype"):
        if name in node.attrs and node.attrs[name]:
            return node.attrs[name] == onnx.TensorProto.FLOAT16
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
