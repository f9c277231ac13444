"""Operators whose number of results depends on values: where those are known while compiling; and
where data counts them, folds along such an axis (``frontend/rows.py``): what lies behind becomes
what changes nothing, and a mean is of as many as there are."""

from dataclasses import replace
from math import prod

import numpy as np
import onnx

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import loaded
from aotc.frontend.building.registry import Build, lookup
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import SMALL, At, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.read.read_types import type_proto
from aotc.frontend.rows import none_of
from aotc.ir.dtypes import INDEX, Array
from aotc.ir.expr import Binary, Const, Expr, Where, compare
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify

MEAN = "ReduceMean"
_COUNTED = ("Compress", "NonMaxSuppression", "NonZero", "Unique")


def counted(node: Node, b: Builder) -> tuple[Val | None, ...] | None:
    """The node's Vals as constants, computed by the standard's own evaluator, if it is such an
    operator and all its inputs are constants; else None."""
    if node.domain or node.op not in _COUNTED:
        return None
    from onnx.reference import ReferenceEvaluator  # which takes a while to import
    vals = {k: b.known(b.tensor(i)) for k, i in enumerate(node.inputs) if i}
    arrays = {k: v.array for k, v in vals.items() if v.array is not None}
    if len(arrays) < len(vals):
        return None
    made = onnx.helper.make_node(node.op, [i and f"in{k}" for k, i in enumerate(node.inputs)],
                                 [o and f"out{k}" for k, o in enumerate(node.outputs)],
                                 **node.attrs)
    inputs = [onnx.helper.make_value_info(f"in{k}", type_proto(v.dtype, v.shape))
              for k, v in vals.items()]
    outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in made.output if o]
    model = onnx.helper.make_model(onnx.helper.make_graph([made], "one", inputs, outputs),
                                   opset_imports=[onnx.helper.make_opsetid("", node.opset)])
    feeds = {f"in{k}": a.reshape(_lists(node, k, a)) for k, a in arrays.items()}
    with np.errstate(all="ignore"):
        results = iter(ReferenceEvaluator(model).run(None, feeds))
    return tuple(b.const(next(results), o) if o else None for o in node.outputs)


def _lists(node: Node, k: int, array: Array) -> tuple[int, ...]:
    """The shape that the evaluator wants: numbers of a suppression in lists of one."""
    return (1,) if node.op == "NonMaxSuppression" and k > 1 else array.shape


def kept_known(b: Builder, flags: Val) -> tuple[Expr, At] | None:
    """(count, place) of the elements of the bool Val ``flags`` [n] that hold, place a function from
    a number below count; None if they depend on data.  All of an extent or none of it hold, or
    each of a few depends on extents."""
    flags = b.known(flags)
    if flags.buffer:
        return None
    n = flags.shape[0]
    everywhere = b.at(flags, b.axes((n,)))
    if isinstance(everywhere, Const):
        return (n if everywhere.value else Const(0)), lambda at: at
    size = static_shape((n,))
    if size is None or size[0] > SMALL:
        return None
    ones = [simplify(cast(INDEX, b.at(flags, (Const(k),)))) for k in range(size[0])]
    if any(map(loaded, ones)):
        return None
    before: list[Expr] = [Const(0)]
    for one in ones:
        before.append(simplify(before[-1] + one))

    def place(at: Expr) -> Expr:
        out: Expr = Const(0)
        for k, one in reversed(list(enumerate(ones))):
            here = Binary("and", compare("eq", before[k], at), compare("eq", one, Const(1)))
            out = Where(here, Const(k), out)
        return simplify(out)
    return before[-1], place


def fold_counted(node: Node, b: Builder, build: Build) -> Result:
    """The node's Vals by ``build``, its operator's function, which sees of such rows what there
    is."""
    found = {i: b.folds[key] for i in dict.fromkeys(node.inputs)
             if (key := (node.outputs[0], i)) in b.folds}
    if not found:
        return build(node, b)
    names = {i: f"{i}_of_{node.outputs[0]}" for i in found}
    for i, (axis, total) in found.items():
        b.env[names[i]] = _there(b, node.op, b.tensor(i), axis, total)
    inside = replace(node, inputs=tuple(names.get(i, i) for i in node.inputs))
    if node.op != MEAN:
        b.node = inside
        return build(inside, b)
    (x,) = found
    return _mean(b, inside, b.tensor(x), *found[x])


def _there(b: Builder, op: str, v: Val, axis: int, total: Val) -> Val:
    """``v`` with what changes no fold of the operator behind the elements that there are."""
    none = none_of(op, v.dtype)
    return b.map(v.shape, lambda i: Where(
        compare("lt", i[axis], b.load(total, ())), b.at(v, i), none), [v, total], "there")


def _mean(b: Builder, node: Node, x: Val, axis: int, total: Val) -> Val:
    """A sum, divided by as many elements as there are."""
    entry = lookup("", "ReduceSum", node.opset)
    assert entry is not None, node.opset
    b.node = replace(node, op="ReduceSum", outputs=(f"{node.outputs[0]}_sum",))
    added = entry.build(b.node, b)
    assert isinstance(added, Val), added
    b.node = node
    axes = b.param("axes", 1)
    others = [d for k, d in enumerate(x.shape)
              if k != axis and (axes is None or k in {b.axis(a, x.rank) for a in axes})]

    def body(i: tuple[Expr, ...]) -> Expr:
        count = prod(others, start=b.load(total, ()))
        none = compare("eq", count, Const(0))
        return Where(none, cast(added.dtype, Const(0, INDEX)), b.at(added, i)) / cast(
            added.dtype, count)
    return b.map(added.shape, body, [added, total])
