"""Slices and borders: parts of a tensor, and tensors around one."""

from collections.abc import Callable, Iterable, Sequence

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import bound_number, expect, expect_shape, flag_any, reads_data
from aotc.frontend.building.registry import op
from aotc.frontend.building.values import At, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.window import guards
from aotc.ir.expr import (
    Binary,
    Const,
    Expr,
    Shape,
    Where,
    compare,
    maximum,
    minimum,
)
from aotc.ir.simplify import are_equal, proves, simplify

Border = Callable[[Expr, Expr, Expr | None], Expr]  # (index, extent, most outside) -> the place
INT_MAX = (1 << 31) - 1  # ends of this size and beyond mean "to the end" (exporters write both)


@op("Slice")
def slice_by_attributes(node: Node, b: Builder) -> Result:
    starts = [Const(s) for s in node.attr("starts")]
    ends = [Const(e) for e in node.attr("ends")]
    return _slice(b, starts, ends, node.attr("axes"), None)


@op("Slice", since=10)
def slice_op(node: Node, b: Builder) -> Result:
    steps = b.arg(4)
    if any(v is not None and b.from_data(v) for v in b.args()[1:]):
        return _slice_from_data(b)
    return _slice(b, b.ints(b.input(1)), b.ints(b.input(2)), b.param("axes", 3),
                  None if steps is None else b.static_ints(steps))


def _slice(b: Builder, starts: Sequence[Expr], ends: Sequence[Expr], axes: Sequence[int] | None,
           steps: Sequence[int] | None) -> Val:
    x = b.input(0)
    axes = list(range(len(starts))) if axes is None else [b.axis(a, x.rank) for a in axes]
    steps = steps or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise b.bad("starts, ends, axes and steps must have one length")
    shape, stride = list(x.shape), [1] * x.rank
    begin: list[Expr] = [Const(0)] * x.rank
    for start, end, axis, step in zip(starts, ends, axes, steps):
        if step == 0:
            raise b.bad("step 0")
        b.beyond += _is_beyond(start, end, x.shape[axis])
        begin[axis], stride[axis] = slice_start(b, start, x.shape[axis], step), step
        last = slice_end(b, end, x.shape[axis], step)
        length = last - begin[axis] if step > 0 else begin[axis] - last
        shape[axis] = b.settled(simplify(
            maximum((length + (abs(step) - 1)) // abs(step), Const(0))))
    return b.move(x, shape, lambda index: [s + i * t for s, i, t in zip(begin, index, stride)])


def _is_beyond(start: Expr, end: Expr, extent: Expr) -> bool:
    """True where a slice names a place after the first of an extent that may be any."""
    def names(e: Expr, first: int) -> bool:
        return isinstance(e, Const) and first < abs(e.value) < INT_MAX
    return not isinstance(extent, Const) and (names(start, 0) or names(end, 1))


def _slice_from_data(b: Builder) -> Val:
    """A slice whose bounds, axes or steps are data: its length is the declared one, anything else
    is a fault."""
    x, rank = b.input(0), b.input(0).rank
    starts, ends = b.elements(b.input(1)), b.elements(b.input(2))
    count = len(starts)
    axes = list(map(Const, range(count))) if b.arg(3) is None else b.elements(b.input(3))
    steps = [Const(1)] * count if b.arg(4) is None else b.elements(b.input(4))
    if not count == len(ends) == len(axes) == len(steps):
        raise b.bad("starts, ends, axes and steps must have one length")
    shape = b.declared(rank=rank)
    expect(b, [(flag_any(axis_is(a, k, rank) for k in range(rank)), 1) for a in axes],
           f"an axis from data must be one of {rank}; found are")
    places, lengths = [], []
    for k, extent in enumerate(x.shape):
        found = [(axis_is(a, k, rank), *map(bound_number, rest))
                 for a, *rest in zip(axes, starts, ends, steps)]
        place, length = _run_time_place(b, found, extent)
        places.append(place)
        lengths.append(length)
        b.nonempty(extent, shape, "elements to slice")
    expect_shape(b, lengths, shape)
    return b.move(x, shape, lambda index: [p(i) for p, i in zip(places, index)])


def axis_is(axis: Expr, k: int, rank: int) -> Expr:
    """The condition that an axis number (maybe counted from the end) is ``k``."""
    return simplify(Binary("or", compare("eq", axis, Const(k)),
                           compare("eq", axis, Const(k - rank))))


def _run_time_place(b: Builder, found: Iterable[tuple[Expr, ...]], extent: Expr) -> tuple[At, Expr]:
    """(function from an index of the result to one of the source, its length; -1 for a step of 0)
    along one dimension.
    found: (condition that it is this dimension that is sliced, start, end, step)."""
    found = [f for f in found if f[0] != Const(False, "bool")]
    if not found:
        return lambda i: b.checked(i, extent), extent
    taken: list[Expr] = [Const(0), extent, Const(1)]
    for cond, *parts in found:
        taken = [p if cond == Const(True, "bool") else Where(cond, p, q)
                 for p, q in zip(parts, taken)]
    start, end, step = taken
    up = compare("gt", step, Const(0))
    top = Where(up, extent, extent - 1)
    first = minimum(maximum(_from_end(start, extent), Const(0)), top)
    last = minimum(maximum(_from_end(end, extent), Where(up, Const(0), Const(-1))), top)
    length = Where(up, last - first, first - last)
    size = Where(up, step, Const(0) - step)
    length = Where(compare("eq", step, Const(0)), Const(-1),
                   maximum((length + size - 1) // size, Const(0)))
    return lambda i: b.checked(first + i * step, extent), length


def _from_end(e: Expr, extent: Expr) -> Expr:
    """Negative positions count from the end."""
    return simplify(Where(compare("lt", e, Const(0)), e + extent, e))


def slice_start(b: Builder, start: Expr, extent: Expr, step: int) -> Expr:
    """First index of a slice, clamped as ONNX says."""
    if isinstance(start, Const) and start.value >= INT_MAX:
        return simplify(extent if step > 0 else extent - 1)
    if isinstance(start, Const) and start.value <= -INT_MAX:
        return Const(0)
    top = extent if step > 0 else extent - 1
    return b.settled(simplify(minimum(maximum(_from_end(start, extent), Const(0)), top)))


def slice_end(b: Builder, end: Expr, extent: Expr, step: int) -> Expr:
    """End of a slice, clamped; a symbolic end is expected to stay within a fixed extent."""
    if isinstance(end, Const) and end.value >= INT_MAX:
        return extent if step > 0 else simplify(extent - 1)
    if isinstance(end, Const) and end.value <= -INT_MAX:
        return Const(0 if step > 0 else -1)
    end = _from_end(end, extent)
    if isinstance(extent, Const) and not isinstance(end, Const):
        b.note(simplify(compare("le", end, extent)), f"a slice ends within {extent}")
    low = Const(0 if step > 0 else -1)
    return b.settled(simplify(minimum(maximum(end, low), extent if step > 0 else extent - 1)))


@op("Pad")
def pad(node: Node, b: Builder) -> Result:
    x = b.input(0)
    amounts = ([Const(p) for p in node.attrs["pads"]] if "pads" in node.attrs
               else b.elements(b.input(1)))
    before, after = borders(b, x.rank, list(map(bound_number, amounts)))
    given = tuple(simplify(p + d + q) for p, d, q in zip(before, x.shape, after))
    shape = given
    if any(map(reads_data, given)):
        shape = b.declared(rank=x.rank)
        expect_shape(b, given, shape)
    mode = node.attr("mode", "constant")
    if mode == "constant":
        fill = b.arg(2) or b.scalar_val(node.attr("value", 0), x.dtype)

        def body(index: Index) -> Expr:
            inner = [simplify(i - p) for i, p in zip(index, before)]
            conds = guards(inner, x.shape)
            value = b.at(x, inner)
            return value if conds is None else Where(conds, value,
                                                     b.at(fill, (Const(0),) * fill.rank))
        return b.map(shape, body, [x, fill])
    if mode not in BORDERS:
        raise b.unsupported(f"Pad mode {mode!r}", f"use constant, {', '.join(BORDERS)}")
    places = [border_place(b, BORDERS[mode], *line, shape)
              for line in zip(before, after, x.shape, shape)]
    return b.move(x, shape, lambda index: [p(i) for p, i in zip(places, index)])


def border_place(b: Builder, border: Border, before: Expr, after: Expr, extent: Expr, length: Expr,
                  shape: Shape) -> At:
    """Function from an index of the result to one of the source, along one dimension of a Pad that
    repeats elements.  Negative amounts cut first: what is left is repeated, and there must be
    some, unless nothing is read."""
    if are_equal(before, Const(0)) and are_equal(extent, length):
        return lambda i: i
    none = Const(0)
    first = simplify(maximum(0 - before, none))  # elements cut off in front
    left = simplify(extent - first - maximum(0 - after, none))
    start = simplify(maximum(before, none))
    if reads_data(before) or reads_data(after):
        b.nonempty(extent, shape, "elements to repeat")

        def place(i: Expr) -> Expr:
            found = Where(compare("ge", left, Const(1)), border(i - start, left, None) + first,
                          Const(-1))
            return b.checked(found, extent, "there must be elements to repeat")
        return place
    b.nonempty(left, shape, "elements to repeat")
    most = simplify(maximum(before, after))
    return lambda i: simplify(border(simplify(i - start), left, most) + first)


def borders(b: Builder, rank: int, amounts: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """(amount before, amount after) per dimension; axes that are data pick their dimension."""
    v = b.arg(3)
    axes = list(map(Const, range(rank))) if v is None else b.elements(v)
    if len(amounts) != 2 * len(axes):
        raise b.bad(f"{len(amounts)} pads for {len(axes)} axes")
    none: Expr = Const(0)
    before, after = [none] * rank, [none] * rank
    for k, axis in enumerate(axes):
        if isinstance(axis, Const):
            a = b.axis(axis.value, rank)
            before[a], after[a] = amounts[k], amounts[k + len(axes)]
            continue
        expect(b, [(flag_any(axis_is(axis, a, rank) for a in range(rank)), 1)],
               f"an axis from data must be one of {rank}; found are")
        for a in range(rank):
            here = axis_is(axis, a, rank)
            before[a] = Where(here, amounts[k], before[a])
            after[a] = Where(here, amounts[k + len(axes)], after[a])
    return before, after


def _reflect(i: Expr, d: Expr, most: Expr | None) -> Expr:
    """Element ``i`` of ``d`` reflected at the first and the last one, again and again; once where
    it lies at most ``most`` (None: unknown) outside and that is proved to be enough."""
    if most is not None and proves(compare("lt", most, d)):
        i = Where(compare("lt", i, Const(0)), 0 - i, i)
        return Where(compare("ge", i, d), d * 2 - 2 - i, i)
    period = maximum(d * 2 - 2, Const(1))
    i = i % period
    return Where(compare("ge", i, d), period - i, i)


# the place among ``d`` elements of one that lies at most ``most`` outside
BORDERS: dict[str, Border] = {"edge": lambda i, d, most: minimum(maximum(i, Const(0)), d - 1),
            "reflect": _reflect, "wrap": lambda i, d, most: i % d}


@op("CenterCropPad", since=18)
def center_crop_pad(node: Node, b: Builder) -> Result:
    """Along every axis the middle of a longer input, or a shorter one amid zeros."""
    x = b.input(0)
    axes = [b.axis(a, x.rank) for a in node.attr("axes", range(x.rank))]
    wanted = b.elements(b.input(1))
    if len(wanted) != len(axes):
        raise b.bad(f"{len(wanted)} extents for {len(axes)} axes")
    given = list(x.shape)
    for a, d in zip(axes, wanted):
        given[a] = d
    shape = tuple(given)
    if any(map(reads_data, wanted)):
        shape = b.declared(rank=x.rank)
        expect_shape(b, given, shape)
    zero = b.scalar_val(0, x.dtype)

    def body(index: Index) -> Expr:
        # before a longer input half of what is cut, rounded down; before a shorter one half of
        # what is added: both are the difference halved toward zero
        inner = [i if are_equal(d, n) else simplify(i + _half(d - n))
                 for i, d, n in zip(index, x.shape, shape)]
        conds = guards(inner, x.shape)
        return b.at(x, inner) if conds is None else Where(conds, b.at(x, inner), b.at(zero, ()))
    return b.map(shape, body, [x])


def _half(e: Expr) -> Expr:
    """Halved toward zero."""
    return simplify(Where(compare("lt", e, Const(0)), Const(0) - (Const(0) - e) // 2, e // 2))
