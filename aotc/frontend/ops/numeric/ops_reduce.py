"""Reductions, argmax and cumulative operators' kin."""

from collections.abc import Collection, Sequence
from functools import reduce

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import Build, op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import At, Index, Inner, Result, Val
from aotc.frontend.embedding_bag import BAGS, Bags
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.ops_pool import nan_wins, scaled_by_count
from aotc.frontend.ops.numeric.bag_folds import folded_bags
from aotc.frontend.ops.tensors.reshape import source_index
from aotc.ir.access import volume
from aotc.ir.dtypes import INDEX, is_float
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Var, Where, binary, compare
from aotc.ir.program import FOLD_STEP, Fold, neutral_value

# name: (fold, element before the fold, map after it)
_ROWS: dict[str, tuple[str, At | None, At | None]] = {
    "ReduceSum": ("sum", None, None),
    "ReduceProd": ("prod", None, None),
    "ReduceMax": ("max", None, None),
    "ReduceMin": ("min", None, None),
    "ReduceL1": ("sum", lambda e: Unary("abs", e), None),
    "ReduceL2": ("sum", lambda e: e * e, lambda e: real("sqrt", e)),
    "ReduceSumSquare": ("sum", lambda e: e * e, None),
    "ReduceLogSum": ("sum", None, lambda e: real("log", e)),
}


def real(name: str, e: Expr) -> Expr:
    """A function of real numbers; of integers, truncated."""
    return Unary(name, e) if is_float(e.dtype) else cast(e.dtype, Unary(name, cast("f64", e)))




def reduced_axes(b: Builder, rank: int) -> list[int] | None:
    """The axes a Reduce node folds, in order; None if it folds nothing."""
    axes = b.param("axes", 1)
    if not axes:
        return None if b.node.attr("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({b.axis(a, rank) for a in axes})


def fold_axes(b: Builder, x: Val, axes: Collection[int], fold: str, element: Inner | None = None,
              tag: str = "", keep: bool = True) -> Val:
    """Fold ``element(x[index], index)`` over ``axes``; they stay as extents 1 if ``keep``."""
    outer = [Axis(f"i{k}", Const(1) if k in axes else d) for k, d in enumerate(x.shape)
             if keep or k not in axes]
    inner = {k: Axis(f"r{k}", x.shape[k]) for k in axes}
    by_name = {a.name: a for a in outer}
    index = tuple(inner[k] if k in inner else by_name[f"i{k}"] for k in range(x.rank))
    body: Expr = b.load(x, index)
    body = element(body, index) if element else body
    return b.compute(outer, body, tuple(inner.values()), fold, tag)


def _reduce_op(fold: str, before: At | None, after: At | None) -> Build:
    def build(node: Node, b: Builder) -> Result:
        x = b.input(0)
        b.need(x, "fiu" + ("b" if fold in ("max", "min") else ""))
        bags = node.attr(BAGS)
        if isinstance(bags, Bags):
            return folded_bags(b, bags, fold)
        axes, keep = reduced_axes(b, x.rank), bool(node.attr("keepdims", 1))
        if axes is None:
            return x if before is None and after is None else b.elementwise(
                lambda e: (after or _same)((before or _same)(e)), x)
        small = _small(b, x, axes, keep, fold, before, after)
        if small is not None:
            return small
        total = fold_axes(b, x, axes, fold, _of_element(before),
                          "" if after is None else "sum", keep)
        return total if after is None else b.map(
            total.shape, lambda i: after(b.at(total, i)), [total])
    return build


def _of_element(fn: At | None) -> Inner | None:
    return None if fn is None else lambda e, _: fn(e)


def _same(e: Expr) -> Expr:
    return e


def _small(b: Builder, x: Val, axes: Sequence[int], keep: bool, fold: str, before: At | None,
           after: At | None) -> Val | None:
    """A reduction of a short shape value over all its axes, as a shape value."""
    if not b.symbolic(x) or is_float(x.dtype) or before or after or not x.size \
            or len(axes) != x.rank or x.rank != 1 or x.size > 64:
        return None
    total = reduce(lambda p, q: binary(FOLD_STEP[fold], p, q),
                   [b.at(x, (Const(k),)) for k in range(x.size)])
    return b.map((Const(1),) if keep else (), lambda index: total, [x])


for _name, (_fold, _before, _after) in _ROWS.items():
    op(_name)(_reduce_op(_fold, _before, _after))


@op("ReduceMean")
def reduce_mean(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, "fiu")
    bags = node.attr(BAGS)
    if isinstance(bags, Bags):
        return folded_bags(b, bags, "sum", mean=True)
    axes, keep = reduced_axes(b, x.rank), bool(node.attr("keepdims", 1))
    if axes is None:
        return x
    total = fold_axes(b, x, axes, "sum", None, "sum", keep)
    return scaled_by_count(b, total, [x.shape[k] for k in axes])


@op("ReduceLogSumExp")
def reduce_log_sum_exp(node: Node, b: Builder) -> Result:
    given = x = b.input(0)
    b.need(x, "fiu")
    axes, keep = reduced_axes(b, x.rank), bool(node.attr("keepdims", 1))
    if axes is None:
        return x
    if not is_float(x.dtype):
        x = b.map(x.shape, lambda i: cast("f64", b.at(given, i)), [given], "real")
    top = _shift_of(b, fold_axes(b, x, axes, "max", None, "max"))

    def shifted(index: Index) -> Expr:
        place = [Const(0) if k in axes else i for k, i in enumerate(index)]
        return Unary("exp", b.at(x, index) - b.at(top, place))
    powers = b.map(x.shape, shifted, [x], "exp")
    total = fold_axes(b, powers, axes, "sum", None, "sum", keep)
    kept = [k for k in range(x.rank) if keep or k not in axes]

    def body(index: Index) -> Expr:
        place: list[Expr] = [Const(0)] * x.rank
        for k, i in zip(kept, index):
            place[k] = i
        return cast(given.dtype, Unary("log", b.at(total, index)) + b.at(top, place))
    return b.map(total.shape, body, [total])


def _shift_of(b: Builder, top: Val) -> Val:
    """The largest elements where they are finite, else 0: infinity minus infinity is NaN."""
    def body(index: Index) -> Expr:
        e, zero = b.at(top, index), const(0, top.dtype)
        return Where(compare("lt", Unary("abs", e), const(float("inf"), top.dtype)), e, zero)
    return b.map(top.shape, body, [top], "shift")


def _arg(better: str) -> Build:
    def build(node: Node, b: Builder) -> Result:
        x = b.input(0)
        b.need(x, "fiu")
        axis, keep = b.axis(node.attr("axis", 0), x.rank), bool(node.attr("keepdims", 1))
        return arg_best(b, x, axis, better, keep, bool(node.attr("select_last_index", 0)))
    return build


def arg_best(b: Builder, x: Val, axis: int, better: str, keep: bool, last: bool = False,
             tag: str = "", later_nan: bool = False) -> Val:
    """Index of the largest (``better`` "g") or smallest ("l") element along ``axis``.  A NaN is the
    best where it comes first, as ONNX Runtime has it; with ``later_nan`` the first NaN is, wherever
    it stands, as numpy has it."""
    outer = [Axis(f"i{k}", Const(1) if k == axis else d) for k, d in enumerate(x.shape)
             if keep or k != axis]
    r = Axis(f"r{axis}", x.shape[axis])
    by_name = {a.name: a for a in outer}
    body = b.load(x, [r if k == axis else by_name[f"i{k}"] for k in range(x.rank)])
    element, best, arg = Var("x", x.dtype), Var("best", x.dtype), Var("arg", INDEX)
    wins = compare(better + ("e" if last else "t"), element, best)
    if is_float(x.dtype) and later_nan:
        wins = nan_wins(wins, element, best)
    elif is_float(x.dtype):  # nothing is better than the NaN that the first may be
        wins = Binary("or", compare("eq", r, Const(0)), wins)
    start = neutral_value("max" if better == "g" else "min", x.dtype)
    fold = Fold((("best", x.dtype), ("arg", INDEX)), (start, Const(0)),
                (Where(wins, element, best), Where(wins, r, arg)))
    return b.compute_fold(outer, (r,), fold, body, ("best", tag))[1]


op("ArgMax")(_arg("g"))
op("ArgMin")(_arg("l"))


@op("Hardmax")
def hardmax_of_rows(node: Node, b: Builder) -> Result:
    """Before opset 13 the input counts as a matrix: everything from the axis on is a row."""
    x = b.input(0)
    axis = b.axis(node.attr("axis", 1), x.rank)
    if axis == x.rank - 1:
        return _hardmax(b, x, axis)
    shape = tuple(volume(s) for s in (x.shape[:axis], x.shape[axis:]))
    rows = b.move(x, shape, source_index(x.shape, shape), "rows")
    hits = _hardmax(b, rows, 1, "hits")
    return b.move(hits, x.shape, source_index(shape, x.shape))


@op("Hardmax", since=13)
def hardmax(node: Node, b: Builder) -> Result:
    x = b.input(0)
    return _hardmax(b, x, b.axis(node.attr("axis", -1), x.rank))


def _hardmax(b: Builder, x: Val, axis: int, tag: str = "") -> Val:
    b.need(x, "f")
    best = arg_best(b, x, axis, "g", keep=False, tag="arg", later_nan=True)

    def body(index: Index) -> Expr:
        hit = Binary("eq", index[axis], b.at(best, index[:axis] + index[axis + 1:]))
        return Where(hit, const(1, x.dtype), const(0, x.dtype))
    return b.map(x.shape, body, [x], tag)


@op("LRN")
def lrn(node: Node, b: Builder) -> Result:
    x, size = b.input(0), node.attr("size")
    b.need(x, "f")
    alpha, beta, bias = node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)
    axes = b.axes(x.shape)
    k = Axis("k", Const(size))
    c = axes[1] + k - (size - 1) // 2
    e = b.load(x, (axes[0], c) + axes[2:])
    inside = Binary("and", compare("ge", c, Const(0)), compare("lt", c, x.shape[1]))
    total = b.compute(axes, Where(inside, e * e, const(0, x.dtype)), (k,), "sum", "sum")

    def body(index: Index) -> Expr:
        base = b.at(total, index) * const(alpha / size, x.dtype) + const(bias, x.dtype)
        return b.at(x, index) / Binary("pow", base, const(beta, x.dtype))
    return b.map(x.shape, body, [x])
