"""Matrix products."""

import operator
from functools import reduce

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.einsum import order_products, parse
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.ops_conv import add_bias
from aotc.ir.dtypes import is_float
from aotc.ir.expr import Axis, Const, Expr, Shape
from aotc.ir.simplify import are_equal

ASSUMED = 64  # of an extent that is not known, to compare orders of products


@op("MatMul")
def matmul_op(node: Node, b: Builder) -> Result:
    x, y = b.input(0), b.input(1)
    b.same_dtype(x, y)
    b.need(x, "fiu")
    return matmul(b, x, y)


def matmul(b: Builder, x: Val, y: Val, acc: str = "", tag: str = "") -> Val:
    """Product of Vals with broadcast batch dimensions; rank 1 is a vector on its side."""
    if not x.rank or not y.rank:
        raise b.bad("matrix product of a scalar")
    xs = x.shape if x.rank > 1 else (Const(1),) + x.shape
    ys = y.shape if y.rank > 1 else y.shape + (Const(1),)
    b.require("eq", xs[-1], ys[-2], "inner dimensions must be equal")
    batch = b.axes(b.broadcast(xs[:-2], ys[:-2]), prefix="b") if max(len(xs), len(ys)) > 2 else ()
    m, n = Axis("m", xs[-2]), Axis("n", ys[-1])
    k = Axis("k", ys[-2] if isinstance(ys[-2], Const) else xs[-1])
    left = b.load(x, (_batch_index(b, xs, batch) + (m, k))[-x.rank:] if x.rank > 1 else (k,))
    right = b.load(y, _batch_index(b, ys, batch) + (k, n) if y.rank > 1 else (k,))
    axes = batch + ((m,) if x.rank > 1 else ()) + ((n,) if y.rank > 1 else ())
    return b.compute(axes, left * right, (k,), "sum", tag, acc=acc)


def _batch_index(b: Builder, shape: Shape, batch: tuple[Axis, ...]) -> Index:
    dims = shape[:-2]
    return tuple(b.joins.at(d, a.extent, a) for d, a in zip(dims, batch[len(batch) - len(dims):]))


@op("Gemm")
def gemm(node: Node, b: Builder) -> Result:
    x, y, c = b.input(0), b.input(1), b.arg(2)
    b.same_dtype(x, y)
    b.need(x, "fiu")
    if x.rank != 2 or y.rank != 2:
        raise b.bad("Gemm needs matrices")
    ta, tb = bool(node.attr("transA", 0)), bool(node.attr("transB", 0))
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if not is_float(x.dtype) and (alpha != int(alpha) or beta != int(beta)):
        raise b.unsupported(f"alpha {alpha}, beta {beta} on integers", "cast the inputs to a float")
    b.require("eq", x.shape[0 if ta else 1], y.shape[1 if tb else 0],
              "inner dimensions must be equal")
    c = None if beta == 0 else c
    m, n = Axis("m", x.shape[1 if ta else 0]), Axis("n", y.shape[0 if tb else 1])
    k = Axis("k", y.shape[1 if tb else 0])
    body = b.load(x, (k, m) if ta else (m, k)) * b.load(y, (n, k) if tb else (k, n))
    last = alpha == 1 and c is None
    out = b.compute((m, n), body, (k,), "sum", "" if last else "sum")
    if alpha != 1:
        raw = out
        out = b.map(raw.shape, lambda i: b.at(raw, i) * const(alpha, x.dtype), [raw],
                    "" if c is None else "alpha", names=["m", "n"])
    if c is None:
        return out
    if beta != 1:
        c = b.elementwise(lambda e: e * const(beta, e.dtype), c, tag="beta")
    if c.rank == 1 and are_equal(c.shape[0], n.extent):
        return add_bias(b, out, c, axis=1, names=["m", "n"])
    b.broadcast_to(c.shape, out.shape)
    return b.map(out.shape, lambda i: b.at(out, i) + b.load(c, b.pick(c, i, out.shape)), [out],
                 names=["m", "n"])


@op("Einsum", since=12)
def einsum(node: Node, b: Builder) -> Result:
    """Product of all operands, summed over the labels that the result lacks; of several, two by
    two where that is less work."""
    vals = b.inputs()
    b.same_dtype(*vals)
    try:
        given, result = parse(node.attr("equation", ""), [v.rank for v in vals])
    except ValueError as err:
        raise b.bad(str(err)) from err
    found: dict[str, list[Expr]] = {}
    for v, labels in zip(vals, given):
        for label, d in zip(labels, v.shape):
            found.setdefault(label, []).append(d)
    extents = {label: b.joins.extent(dims) for label, dims in found.items()}
    axes = {label: Axis(f"i{k}", d) for k, (label, d) in enumerate(extents.items())}
    sizes = {c: d.value if isinstance(d, Const) else ASSUMED for c, d in extents.items()}
    made = list(zip(vals, map(tuple, given)))
    steps = order_products([t for _, t in made], tuple(result), sizes)
    for number, (which, kept) in enumerate(steps, 1):
        body = reduce(operator.mul, (b.load(v, [
            b.joins.at(d, extents[c], axes[c]) for c, d in zip(own, v.shape)])
            for v, own in (made[k] for k in which)))
        over = {c for k in which for c in made[k][1]} - {*kept}
        raxes = tuple(a for c, a in axes.items() if c in over)
        tag = "" if number == len(steps) else "product"
        made.append((b.compute(tuple(axes[c] for c in kept), body, raxes, "sum", tag), kept))
    return made[-1][0]
