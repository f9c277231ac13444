"""Softmax and the normalisations, as a handful of Computes each."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import Build, op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Element, Index, Inner, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.ops_pool import scaled_by_count
from aotc.frontend.ops.images.window import spatial_names
from aotc.frontend.ops.numeric.ops_reduce import fold_axes
from aotc.frontend.ops.tensors.ops_shape import product, reshape
from aotc.ir.expr import Axis, Const, Expr, Unary, Where, compare
from aotc.ir.simplify import simplify


def _drop(index: Index, axes: Collection[int]) -> Index:
    return tuple(i for k, i in enumerate(index) if k not in axes)


def softmax_over(b: Builder, x: Val, axes: Sequence[int], log: bool = False,
                 out: int = 0) -> Val:
    """max, exp(x - max), sum, divide (or x - max - log(sum)) over ``axes``: output ``out``."""
    top = fold_axes(b, x, axes, "max", None, "max", keep=False)
    if log:
        shifted = b.map(x.shape, lambda i: b.at(x, i) - b.at(top, _drop(i, axes)), [x], "shift")
        total = fold_axes(b, shifted, axes, "sum", lambda e, _: Unary("exp", e), "sum", keep=False)
        return b.map(x.shape, lambda i: b.at(shifted, i)
                     - Unary("log", b.at(total, _drop(i, axes))), [x], out=out)
    powers = b.map(x.shape, lambda i: Unary("exp", b.at(x, i) - b.at(top, _drop(i, axes))), [x],
                   "exp")
    total = fold_axes(b, powers, axes, "sum", None, "sum", keep=False)
    return b.map(x.shape, lambda i: b.at(powers, i) / b.at(total, _drop(i, axes)), [x],
                 out=out)


def _softmax(log: bool, flattened: bool) -> Build:
    def build(node: Node, b: Builder) -> Result:
        x = b.input(0)
        b.need(x, "f")
        if not x.rank:
            raise b.bad("needs rank 1 or more")
        axis = b.axis(node.attr("axis", 1 if flattened else -1), x.rank)
        # before opset 13 the input counts as a matrix: everything from the axis on is a row
        axes = list(range(axis, x.rank)) if flattened else [axis]
        return softmax_over(b, x, axes, log)
    return build


for _name, _log in (("Softmax", False), ("LogSoftmax", True)):
    op(_name)(_softmax(_log, True))
    op(_name, since=13)(_softmax(_log, False))


# ---------------------------------------------------------------- mean and variance

def mean_over(b: Builder, x: Val, axes: Sequence[int], tag: str = "mean",
              element: Inner | None = None, keep: bool = False) -> Val:
    """Mean of ``element(x)`` over ``axes``: a sum and a small Compute."""
    total = fold_axes(b, x, axes, "sum", element, tag + "_sum", keep)
    return scaled_by_count(b, total, [x.shape[k] for k in axes], tag)


def reciprocal_deviation(b: Builder, x: Val, axes: Sequence[int], mean: Val | None,
                         epsilon: float) -> Val:
    """1/sqrt(var + epsilon) over ``axes``, two passes; ``mean`` None leaves the mean in."""
    def squared(e: Expr, index: Index) -> Expr:
        e = e if mean is None else e - b.at(mean, _drop(index, axes))
        return e * e
    total = fold_axes(b, x, axes, "sum", squared, "var_sum", keep=False)
    eps, one = const(epsilon, x.dtype), const(1, x.dtype)
    variance = scaled_by_count(b, total, [x.shape[k] for k in axes], "var")
    return b.map(variance.shape, lambda i: one / Unary("sqrt", b.at(variance, i) + eps),
                 [variance], "rstd")


def normalised(b: Builder, x: Val, axes: Sequence[int], epsilon: float, finish: Inner,
               centre: bool = True, tag: str = "") -> tuple[Val, Val | None, Val]:
    """(y, mean, rstd) with y = finish((x - mean) * rstd, index)."""
    outer = [k for k in range(x.rank) if k not in axes]
    mean = mean_over(b, x, axes) if centre else None
    rstd = reciprocal_deviation(b, x, axes, mean, epsilon)

    def body(index: Index) -> Expr:
        place = [index[k] for k in outer]
        e = b.at(x, index)
        e = e if mean is None else e - b.at(mean, place)
        return finish(e * b.at(rstd, place), index)
    return b.map(x.shape, body, [x], tag), mean, rstd


def _affine(b: Builder, scale: Val | None, bias: Val | None,
            place: Callable[[Val, Index], Index]) -> Inner:
    """Function (normalised element, index) -> scaled and shifted element."""
    def finish(e: Expr, index: Index) -> Expr:
        if scale is not None:
            e = e * b.at(scale, place(scale, index))
        return e + b.at(bias, place(bias, index)) if bias is not None else e
    return finish


@op("LayerNormalization", since=17)
def layer_normalization(node: Node, b: Builder) -> Result:
    x, scale, bias = b.input(0), b.arg(1), b.arg(2)
    return _layer_norm(b, x, scale, bias, True)


@op("RMSNormalization", since=23)
def rms_normalization(node: Node, b: Builder) -> Result:
    return _layer_norm(b, b.input(0), b.arg(1), None, False)


def _layer_norm(b: Builder, x: Val, scale: Val | None, bias: Val | None, centre: bool) -> Result:
    b.need(x, "f")
    node = b.node
    axis = b.axis(node.attr("axis", -1), x.rank)
    axes = list(range(axis, x.rank))
    for v in (scale, bias):
        if v is not None:
            b.broadcast_to(v.shape, x.shape)
    finish = _affine(b, scale, bias, lambda v, index: b.pick(v, index, x.shape))
    y, mean, rstd = normalised(b, x, axes, node.attr("epsilon", 1e-5), finish, centre)
    if len([o for o in node.outputs if o]) < 2:
        return y
    kept = tuple(Const(1) if k in axes else d for k, d in enumerate(x.shape))
    return (y,) + tuple(b.move(v, kept, lambda i: i[:axis], out=k)
                        for k, v in ((1, mean), (2, rstd)) if v is not None)


@op("InstanceNormalization")
def instance_normalization(node: Node, b: Builder) -> Result:
    x, scale, bias = b.inputs()
    b.need(x, "f")
    finish = _affine(b, scale, bias, lambda v, index: (index[1],))
    return normalised(b, x, list(range(2, x.rank)), node.attr("epsilon", 1e-5), finish)[0]


@op("GroupNormalization", since=21)
def group_normalization(node: Node, b: Builder) -> Result:
    return _group_norm(node, b, False)


@op("GroupNormalization", since=18)
def group_normalization_per_group(node: Node, b: Builder) -> Result:
    """Opset 18 scales per group, not per channel."""
    return _group_norm(node, b, True)


def _group_norm(node: Node, b: Builder, per_group: bool) -> Val:
    x, scale, bias = b.inputs()
    b.need(x, "f")
    groups = node.attr("num_groups")
    b.require("eq", x.shape[1] % groups, 0, "num_groups must divide the channels")
    for v in (scale, bias):
        b.require("eq", v.shape[0], groups if per_group else x.shape[1], "scale and bias must fit")
    width = simplify(x.shape[1] // groups)
    grouped = reshape(b, x, (x.shape[0], Const(groups), width) + x.shape[2:], "grouped")

    def place(v: Val, index: Index) -> Index:
        return (index[1],) if per_group else (index[1] * width + index[2],)
    y = normalised(b, grouped, list(range(2, grouped.rank)), node.attr("epsilon", 1e-5),
                   _affine(b, scale, bias, place), tag="norm")[0]
    return reshape(b, y, x.shape)


@op("BatchNormalization")
def batch_normalization(node: Node, b: Builder) -> Result:
    x, stats = b.input(0), [b.input(k) for k in range(1, 5)]
    b.need(x, "f")
    if not node.attr("spatial", 1):
        raise b.unsupported("statistics per element", "export the model for inference")
    if x.rank < 2:
        raise b.bad("needs rank 2 or more")
    if node.attr("training_mode", 0):
        return _batch_statistics(b, x, *stats)
    names = _channel_names(x.rank)
    eps = node.attr("epsilon", 1e-5)
    held = [v.array for v in stats if v.array is not None]
    if len(held) == len(stats):
        factors, shifts, means, variances = (a.astype(np.float64) for a in held)
        factors = factors / np.sqrt(variances + eps)
        factor, offset = (b.const(a.astype(held[0].dtype), f"{stats[0].name}_{part}") for a, part in
                          ((factors, "factor"), (shifts - means * factors, "shift")))
        return b.map(x.shape, lambda i: b.at(x, i) * b.load(factor, (i[1],))
                     + b.load(offset, (i[1],)), [x], names=names)
    scale, shift, mean, var = stats

    def body(i: Index) -> Expr:
        c = (i[1],)
        rstd = const(1, x.dtype) / Unary("sqrt", b.at(var, c) + const(eps, x.dtype))
        return (b.at(x, i) - b.at(mean, c)) * (rstd * b.at(scale, c)) + b.at(shift, c)
    return b.map(x.shape, body, [x], names=names)


def _batch_statistics(b: Builder, x: Val, scale: Val, shift: Val, mean: Val,
                      var: Val) -> tuple[Val, ...]:
    """Training: the statistics of this batch, and the running ones moved towards them."""
    node, over = b.node, [k for k in range(x.rank) if k != 1]
    momentum = const(node.attr("momentum", 0.9), x.dtype)
    count = const(1, x.dtype) / cast(x.dtype, product([x.shape[k] for k in over]))

    def at(v: Val, i: Index) -> Expr:
        return b.at(v, (i[1],))

    def statistic(value: Element, tag: str) -> Val:
        channel = Axis("i1", x.shape[1])
        inner = {k: Axis(f"r{k}", x.shape[k]) for k in over}
        index = tuple(inner.get(k, channel) for k in range(x.rank))
        total = b.compute((channel,), value(index), tuple(inner.values()), "sum", f"{tag}_sum")
        return b.map(total.shape, lambda i: b.at(total, i) * count, [total], tag)
    middle = statistic(lambda i: b.load(x, i), "mean")

    def squared(i: Index) -> Expr:
        rest = b.load(x, i) - at(middle, i)
        return rest * rest
    spread = statistic(squared, "var")
    eps = const(node.attr("epsilon", 1e-5), x.dtype)
    y = b.map(x.shape, lambda i: (b.at(x, i) - at(middle, i)) * at(scale, i) / Unary(
        "sqrt", at(spread, i) + eps) + at(shift, i), [x], names=_channel_names(x.rank))

    def moved(old: Val, new: Val, out: int) -> Val:
        return b.map(old.shape, lambda i: b.at(old, i) * momentum + cast(
            old.dtype, b.at(new, i) * (const(1, x.dtype) - momentum)), [old], out=out)
    return (y, moved(mean, middle, 1), moved(var, spread, 2))[:len(node.outputs)]


def _channel_names(rank: int) -> list[str]:
    return ["n", "c"] + spatial_names("o", rank - 2)


@op("LpNormalization")
def lp_normalization(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, "f")
    axis, p = b.axis(node.attr("axis", -1), x.rank), node.attr("p", 2)
    element = (lambda e, _: e * e) if p == 2 else (lambda e, _: Unary("abs", e))
    total = fold_axes(b, x, [axis], "sum", element, "sum", keep=False)
    norm = total if p == 1 else b.map(total.shape, lambda i: Unary("sqrt", b.at(total, i)),
                                      [total], "norm")
    zero, one = const(0, x.dtype), const(1, x.dtype)

    def body(index: Index) -> Expr:
        length = b.at(norm, _drop(index, [axis]))
        return b.at(x, index) / Where(compare("eq", length, zero), one, length)
    return b.map(x.shape, body, [x])


@op("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, "f")
    axes = sorted(b.axis(a, x.rank) for a in node.attr("axes", (0, 2, 3)))
    return normalised(b, x, axes, 1e-9, lambda e, index: e)[0]
