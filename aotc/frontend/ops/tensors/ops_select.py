"""Choosing and ordering elements.  Long rows go to a library kernel (calls.py).  Short ones, and
targets without such kernels, count: the place of an element is the number of elements that come
before it, so every result is a sum over all pairs; no order of evaluation matters.

What there is to choose may depend on data; then the result has its declared shape, and another
number of elements is a fault.  Where none is declared it has room for all, if the caller alone
takes it, who is told the number."""

from dataclasses import replace

from aotc.frontend.building import calls
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.counted import find_known_places
from aotc.frontend.building.declared import (
    Count,
    clear_behind,
    expect,
    room,
    tell_count,
    zero_behind,
)
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import At, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.tensors.ops_control import stack
from aotc.frontend.ops.tensors.ops_shape import product, reshape
from aotc.frontend.ranges import most_of
from aotc.frontend.read.read_types import dtype_name
from aotc.ir.dtypes import DTYPES, INDEX, is_float
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Var, Where, compare, minimum
from aotc.ir.program import Fold, neutral_value, static_shape
from aotc.ir.simplify import simplify

MAX_ROW = 1 << 14  # elements that are compared with each other
MAX_ROUNDS = 64  # elements picked one by one
ROUNDS_PAY = 8  # elements per picked one from which on that is less work


def _bounded(b: Builder, extent: Expr) -> int:
    n = static_shape((extent,))
    if n is None or n[0] > MAX_ROW:
        raise b.unsupported(f"ordering {extent} elements",
                            f"pin the dimension; at most {MAX_ROW} are compared")
    return n[0]


def _isnan(e: Expr) -> Expr:
    return Unary("isnan", e) if is_float(e.dtype) else Const(False, "bool")


def _comes_first(x: Expr, y: Expr, largest: bool) -> Expr:
    """``x`` is strictly before ``y`` in the order; NaN counts as the largest."""
    wins = compare("gt" if largest else "lt", x, y)
    if not is_float(x.dtype):
        return wins
    one, other = (x, y) if largest else (y, x)
    return Binary("or", wins, Binary("and", _isnan(one), Unary("not", _isnan(other))))


def _alike(x: Expr, y: Expr) -> Expr:
    same = compare("eq", x, y)
    if not is_float(x.dtype):
        return same
    return Binary("or", same, Binary("and", _isnan(x), _isnan(y)))


# ---------------------------------------------------------------- TopK

@op("TopK")
def top_k_by_attribute(node: Node, b: Builder) -> Result:
    return _top_k(b, Const(node.attr("k")))


@op("TopK", since=10)
def top_k(node: Node, b: Builder) -> Result:
    x, k = b.input(0), b.input(1)
    given = b.elements(k)[0]
    if not b.from_data(k):
        return _top_k(b, given)
    axis = b.axis(node.attr("axis", -1), x.rank)
    n, most = x.shape[axis], most_of(b, given)
    found = room(b, [(0, axis), (1, axis)], n if most is None else minimum(most, n))
    if found is None:
        count = b.declared(rank=x.rank)[axis]
        expect(b, [(given, count)], f"the data must give the declared k of {count}, it is")
        return _top_k(b, count)
    tell_count(b, b.compute((), given, tag="count"), replace(found, limited=True))
    values, places = _top_k(b, found.extent)
    return clear_behind(b, found, values, axis), clear_behind(b, found, places, axis, out=1)


def _top_k(b: Builder, k: Expr) -> tuple[Val, Val]:
    x = b.input(0)
    b.need(x, "fiu")
    axis, largest = b.axis(b.node.attr("axis", -1), x.rank), bool(b.node.attr("largest", 1))
    n = x.shape[axis]
    b.require("le", k, n, "TopK takes no more elements than there are")
    if calls.calls_library(b, "topk", n):
        return _values(b, x, calls.top_k(b, x, axis, k, largest), axis)
    few = static_shape((k,))
    extent = static_shape((n,))
    if few is not None and 0 < few[0] <= MAX_ROUNDS and (
            extent is None or extent[0] > ROUNDS_PAY * few[0]):
        return _by_rounds(b, x, axis, few[0], largest)
    _bounded(b, n)
    axes, j = b.axes(x.shape), Axis("j", n)

    def along(i: Expr) -> Index:
        return axes[:axis] + (i,) + axes[axis + 1:]
    mine, other = b.load(x, axes), b.load(x, along(j))
    before = Binary("or", _comes_first(other, mine, largest),
                    Binary("and", _alike(other, mine), compare("lt", j, axes[axis])))
    rank = b.compute(axes, _one_if(before), (j,), "sum", "rank")
    return _by_rank(b, x, rank, axis, k)


def _by_rounds(b: Builder, x: Val, axis: int, k: int, largest: bool) -> tuple[Val, Val]:
    """(values, indices): in every round the best element behind the one before."""
    lead, n = x.shape[:axis] + x.shape[axis + 1:], x.shape[axis]
    outer, j = b.axes(lead), Axis("j", n)

    def along(i: Expr) -> Expr:
        return b.load(x, outer[:axis] + (i,) + outer[axis:])
    e, given = along(j), along(j)
    late: Expr = Const(0)
    if is_float(x.dtype) and not largest:  # min would make NaN the first: it comes behind infinity
        e, late = Where(_isnan(e), const(float("inf"), x.dtype), e), Where(_isnan(e), n, Const(0))
    fold = "max" if largest else "min"
    worst = neutral_value(fold, x.dtype)
    found: list[Val] = []
    for r in range(k):
        behind: Expr = Const(True, "bool")
        if found:
            at = b.load(found[-1], outer)
            before = along(b.checked(at, n))
            behind = Binary("or", _comes_first(before, given, largest),
                            Binary("and", _alike(before, given), compare("lt", at, j)))
        open_ = e if r == 0 else Where(behind, e, worst)
        best = b.compute(outer, open_, (j,), fold, f"best{r}")
        here = Binary("and", behind, _alike(b.load(best, outer), e))
        first = b.compute(outer, Where(here, j + late, n * 2), (j,), "min", f"first{r}")
        found.append(_modulo(b, first, n, f"place{r}"))
    return _values(b, x, stack(b, found, axis, 1), axis)


def _modulo(b: Builder, v: Val, n: Expr, tag: str) -> Val:
    return b.map(v.shape, lambda i: b.at(v, i) % n, [v], tag)


def _values(b: Builder, x: Val, at: Val, axis: int) -> tuple[Val, Val]:
    """(elements of ``x`` at the places ``at`` along the axis, the places)."""
    def value(i: Index) -> Expr:
        place = b.checked(b.at(at, i), x.shape[axis])
        return b.at(x, i[:axis] + (place,) + i[axis + 1:])
    return b.map(at.shape, value, [x, at]), at


def _one_if(cond: Expr) -> Expr:
    return Where(cond, Const(1), Const(0))


def _by_rank(b: Builder, x: Val, rank: Val, axis: int, k: Expr) -> tuple[Val, Val]:
    """(values, indices): the elements whose rank is 0 .. k-1, in that order."""
    shape = x.shape[:axis] + (k,) + x.shape[axis + 1:]
    axes, j = b.axes(shape), Axis("j", x.shape[axis])
    there = axes[:axis] + (j,) + axes[axis + 1:]
    hit = compare("eq", b.load(rank, there), axes[axis])
    places = b.compute(axes, Where(hit, j, Const(0)), (j,), "sum", "", out=1)
    return _values(b, x, Val(places.shape, INDEX, buffer=places.buffer), axis)


# ---------------------------------------------------------------- what a condition keeps

def kept_places(b: Builder, flags: Val, count: Count, tag: str) -> At:
    """Indices [count.extent] of the elements where the bool Val ``flags`` [n] holds; another
    number of them is a fault."""
    n = flags.shape[0]
    if calls.calls_library(b, "kept", n):
        return calls.find_places(b, flags, count)
    _bounded(b, n)
    i, j, r = Axis("i", n), Axis("j", n), Axis("r", count.extent)
    before = b.compute((i,), Where(compare("lt", j, i), _one_if(b.load(flags, (j,))), Const(0)),
                       (j,), "sum", f"{tag}_before")
    total = b.compute((), _one_if(b.load(flags, (j,))), (j,), "sum", f"{tag}_total")
    hit = Binary("and", b.load(flags, (j,)), compare("eq", b.load(before, (j,)), r))
    place = b.compute((r,), Where(hit, j, Const(0)), (j,), "sum", f"{tag}_place")
    return calls.check_place(b, place, total, count, n)


def _kept_counted(b: Builder, flags: Val, axis: int, rank: int) -> tuple[Count, At]:
    """(count, place) of elements that data chooses: as many as the model declares along the axis of
    the result, or any number where the caller alone takes it."""
    count = room(b, [(0, axis)], flags.shape[0]) or Count(b.declared(rank=rank)[axis])
    return count, kept_places(b, flags, count, "kept")


def _kept(b: Builder, flags: Val, axis: int, rank: int) -> tuple[Count, At]:
    """``_kept_counted``, of flags that are known what constants and extents say."""
    known = find_known_places(b, flags)
    return _kept_counted(b, flags, axis, rank) if known is None else (Count(known[0]), known[1])


@op("Compress", since=9)
def compress(node: Node, b: Builder) -> Result:
    x, cond = b.input(0), b.known(b.input(1))
    axis = node.attr("axis")
    if axis is None:
        x, axis = reshape(b, x, (product(x.shape),), "flat"), 0
    axis = b.axis(axis, x.rank)
    n = simplify(minimum(cond.shape[0], x.shape[axis]))
    flags = b.move(cond, (n,), lambda i: i, "flags")
    count, place = _kept(b, flags, axis, x.rank)
    return b.map(x.shape[:axis] + (count.extent,) + x.shape[axis + 1:], lambda i: zero_behind(
        b, count, i[axis], b.at(x, i[:axis] + (place(i[axis]),) + i[axis + 1:])), [x, cond])


@op("NonZero", since=9)
def non_zero(node: Node, b: Builder) -> Result:
    x = b.known(b.input(0))
    dims = x.shape
    flat = reshape(b, x, (product(dims),), "flat")
    flags = b.map(flat.shape, lambda i: cast("bool", b.at(flat, i)), [flat], "flags")
    count, place = _kept(b, flags, 1, 2)

    def coordinate(i: Index) -> Expr:
        at = place(i[1])
        out: Expr = Const(0)
        step: Expr = Const(1)
        for d in reversed(range(len(dims))):
            out = Where(compare("eq", i[0], Const(d)), at // step % dims[d], out)
            step = simplify(step * dims[d])
        return zero_behind(b, count, i[1], out)
    return b.map((Const(max(len(dims), 1)), count.extent), coordinate, [flags])


# ---------------------------------------------------------------- Unique

@op("Unique", since=11)
def unique(node: Node, b: Builder) -> Result:
    """Rows of [n, m]: the slices along the axis, or the single elements."""
    x, axis = b.input(0), node.attr("axis")
    if axis is None:
        rows = reshape(b, x, (product(x.shape), Const(1)), "rows")
    else:
        axis = b.axis(axis, x.rank)
        rows = _slices(b, x, axis)
    n, m = rows.shape
    few = static_shape((n,))
    count = Count(n) if few is not None and few[0] <= 1 else room(
        b, [(0, axis or 0), (1, 0), (3, 0)], n) or Count(
            _unique_count(b, axis))
    if calls.calls_library(b, "unique", n):
        place, rank, counts, total = calls.find_unique(b, rows, count, node.attr("sorted", 1))
    else:
        place, rank, counts, total = _unique_by_counting(b, rows, count, node.attr("sorted", 1))
    at = calls.check_place(b, place, total, count, n)
    if axis is None:
        y = b.map((count.extent,), lambda k: zero_behind(b, count, k[0], b.load(
            rows, (at(k[0]), Const(0)))), [rows, place])
    else:
        y = b.map(x.shape[:axis] + (count.extent,) + x.shape[axis + 1:], lambda k: zero_behind(
            b, count, k[axis], b.at(x, k[:axis] + (at(k[axis]),) + k[axis + 1:])), [x, place])
    if count.room:
        place, counts = clear_behind(b, count, place, 0,
                                     out=1), clear_behind(b, count, counts, 0, out=3)
    return (y, place, rank, counts)[:len(node.outputs)]


def _unique_by_counting(b: Builder, rows: Val, count: Count, ordered: int) -> tuple[Val, ...]:
    """(place, inverse, counts, total), as the library kernel gives them."""
    n, m = rows.shape
    _bounded(b, n)
    i, j = Axis("i", n), Axis("j", n)
    order = _row_order(b, rows, m)
    same = compare("eq", b.load(order, (i, j)), Const(0))
    earlier = b.compute((i,), Where(compare("lt", j, i), _one_if(same), Const(0)), (j,), "sum",
                        "earlier")
    first = compare("eq", b.load(earlier, (j,)), Const(0))
    if ordered:
        ahead = compare("gt", b.load(order, (i, j)), Const(0))
    else:  # firsts that stand before the first of mine
        own = b.compute((i,), Where(same, j, n), (j,), "min", "mine")
        ahead = compare("lt", j, b.load(own, (i,)))
    rank = b.compute((i,), _one_if(Binary("and", first, ahead)), (j,), "sum", "", out=2)
    r = Axis("r", count.extent)
    total = b.compute((), _one_if(first), (j,), "sum", "total")
    mine = compare("eq", b.load(rank, (j,)), r)
    place = b.compute((r,), Where(mine, j, n), (j,), "min", "", out=1)
    counts = b.compute((r,), _one_if(mine), (j,), "sum", "", out=3)
    return place, rank, counts, total


def _unique_count(b: Builder, axis: int | None) -> Expr:
    """The number of different rows, from whatever output declares it."""
    for k, name in enumerate(b.node.outputs):
        if name and k != 2 and b.graph.declared.get(name) is not None:
            dims = b.declared(k)
            return dims[axis] if k == 0 and axis is not None else dims[0]
    return b.declared(0)[axis or 0]


def _slices(b: Builder, x: Val, axis: int) -> Val:
    n = x.shape[axis]
    rest = x.shape[:axis] + x.shape[axis + 1:]
    front = b.move(x, (n,) + rest, lambda i: i[1:axis + 1] + (i[0],) + i[axis + 1:], "front")
    return reshape(b, front, (n, product(rest)), "rows")


def _row_order(b: Builder, rows: Val, m: Expr) -> Val:
    """[n, n]: 1 where row j comes before row i, -1 behind it, 0 where they are the same."""
    n = rows.shape[0]
    i, j, k = Axis("i", n), Axis("j", n), Axis("k", m)
    x, y = b.load(rows, (i, k)), b.load(rows, (j, k))
    step = Where(_comes_first(y, x, False), Const(1), Where(_alike(x, y), Const(0), Const(-1)))
    state, new = Var("order", INDEX), Var("x", INDEX)
    fold = Fold((("order", INDEX),), (Const(0),),
                (Where(compare("eq", state, Const(0)), new, state),))
    return b.compute_fold((i, j), (k,), fold, step, ("order",))[0]


# ---------------------------------------------------------------- bits

@op("BitCast", since=26)
def bit_cast(node: Node, b: Builder) -> Result:
    """The same bits as another dtype of the same width."""
    x, to = b.input(0), dtype_name(node.attr("to"))
    if to is None or DTYPES[to].size != DTYPES[x.dtype].size:
        raise b.unsupported(f"{x.dtype} seen as type {node.attr('to')}",
                            f"use types of one width among {', '.join(DTYPES)}")
    unsigned = f"u{8 * DTYPES[to].size}"

    def seen(e: Expr) -> Expr:
        if to == e.dtype:
            return e
        if is_float(e.dtype):
            e = Unary("bits", e)
        e = cast(unsigned, e)
        if to == "bool":
            return Where(compare("ne", e, const(0, unsigned)), Const(True, "bool"),
                         Const(False, "bool"))
        return Unary("float", e) if is_float(to) else cast(to, e)
    return b.elementwise(seen, x)
