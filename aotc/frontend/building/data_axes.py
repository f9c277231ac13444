"""Axes that come from data: every choice that the declared shape of the result leaves open is
computed, and the data picks one.  A model's axes are constants nearly always; where they are an
input of the model there are few choices, and mostly one."""

from dataclasses import replace
from itertools import combinations

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import expect, expected_shape, flag_any
from aotc.frontend.building.registry import Build
from aotc.frontend.building.values import Index, Val
from aotc.frontend.embedding_bag import BAGS
from aotc.frontend.graph import Node
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const, Expr, Shape, Where, all_hold, any_holds, compare
from aotc.ir.program import static_shape
from aotc.ir.simplify import are_equal

Axes = tuple[int, ...]
ONE = Const(1)
_MOST = 6  # choices beyond which computing them all is no answer


def _reduced(node: Node, shape: Shape, axes: Axes) -> Shape:
    if node.attr("keepdims", 1):
        return tuple(ONE if k in axes else d for k, d in enumerate(shape))
    return tuple(d for k, d in enumerate(shape) if k not in axes)


def _squeezed(node: Node, shape: Shape, axes: Axes) -> Shape | None:
    keep = tuple(d for k, d in enumerate(shape) if k not in axes)
    return keep if all(shape[k] == ONE for k in axes) else None


def _unsqueezed(node: Node, shape: Shape, axes: Axes) -> Shape:
    rest = iter(shape)
    return tuple(ONE if k in axes else next(rest) for k in range(len(shape) + len(axes)))


def _kept(node: Node, shape: Shape, axes: Axes) -> Shape:
    return shape


# operators with an input that holds axes: shape of the result for a choice of them
def _transformed(node: Node, shape: Shape, axes: Axes) -> Shape | None:
    out = list(shape)
    half = node.attr("onesided", 0)
    if half:
        at = axes[0]
        out[at] = 2 * (shape[at] - 1) if node.attr("inverse", 0) else shape[at] // 2 + 1
    out[-1] = ONE if half and node.attr("inverse", 0) else Const(2)
    return tuple(out) if axes[0] < len(shape) - 1 else None


# the input that holds axes, where it is not the second one
_INPUT = {"DFT": 2}
_RESULT = {f"Reduce{name}": _reduced for name in (
    "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")} | {
        "Squeeze": _squeezed, "Unsqueeze": _unsqueezed, "CumSum": _kept, "CumProd": _kept,
        "DFT": _transformed}


def choose_axes(node: Node, b: Builder, build: Build) -> Val | None:
    """The node's Val if its axes come from data and the declared shape of the result leaves few
    choices; else None.  ``build`` is the operator's function."""
    if node.op not in _RESULT or node.domain or node.attr(BAGS) is not None:
        return None
    v = b.arg(_INPUT.get(node.op, 1))
    if v is None or v.size is None or not v.size or not b.from_data(v):
        return None
    shape, result = b.input(0).shape, _RESULT[node.op]
    declared = shape if result is _kept else expected_shape(b, node.outputs[0])
    if declared is None:
        return None
    rank = len(shape) + (v.size if node.op == "Unsqueeze" else 0)
    choices = [axes for axes in combinations(range(rank), v.size)
               if _alike(result(node, shape, axes), declared)]
    if not choices or len(choices) > _MOST:
        return None
    tests = [_equal(b, v, axes, rank) for axes in choices]
    text = " or ".join(str(list(axes)) for axes in choices)
    expect(b, [(flag_any(tests), Const(1))],
           f"the declared shape allows the axes {text}; of these the data gives")
    if len(choices) == 1:
        return _build(node, b, build, v, choices[0], node.outputs[0])
    vals = [_build(node, b, build, v, axes, f"{node.outputs[0]}_axes_{'_'.join(map(str, axes))}")
            for axes in choices]
    b.node = node

    def body(index: Index) -> Expr:
        out = b.at(vals[-1], index)
        for test, val in zip(tests[-2::-1], vals[-2::-1]):
            out = Where(test, b.at(val, index), out)
        return out
    return b.map(declared, body, [*vals, v])


def _alike(shape: Shape | None, declared: Shape) -> bool:
    return shape is not None and len(shape) == len(declared) and all(map(are_equal, shape,
                                                                         declared))


def _build(node: Node, b: Builder, build: Build, v: Val, axes: Axes, output: str) -> Val:
    """The operator with these axes as a constant, under another name."""
    place = _INPUT.get(node.op, 1)
    name = f"{node.inputs[place]} = {list(axes)}"
    array = np.array(axes, DTYPES[v.dtype].numpy).reshape(static_shape(v.shape))
    b.env[name] = b.const(array, name)
    b.node = replace(node, inputs=(*node.inputs[:place], name, *node.inputs[place + 1:]),
                     outputs=(output,))
    made = build(b.node, b)
    assert isinstance(made, Val), node.op  # those with axes from data have one output
    return made


def _equal(b: Builder, v: Val, axes: Axes, rank: int) -> Expr:
    """The condition that ``v`` holds these axes, in any order, perhaps counted from the end, each
    once."""
    points: list[Index] = [()] if v.rank == 0 else [(Const(k),) for k in range(len(axes))]
    found = [b.index_at(v, p) for p in points]
    held = [any_holds([compare("eq", e, Const(a)) for e in found for a in (axis, axis - rank)])
            for axis in axes]
    out = all_hold(c for c in held if c is not None)
    assert out is not None, v  # there is an axis at least
    return out


