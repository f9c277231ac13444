"""Tensors whose extents data says: filled ones (ConstantOfShape), expanded and padded ones.  Along
such an axis there is room for the most elements that there may be, which the arithmetic of the
number proves, or its bound says, or else the largest extent of an input."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.calls import expect_count
from aotc.frontend.building.declared import (
    Count,
    bound_number,
    expect,
    expected_shape,
    number_along,
    reads_data,
    replace_by_room,
    room,
    tell_count,
)
from aotc.frontend.building.known import choose_element, follow_loads, whole_of
from aotc.frontend.building.values import At, Index, Val
from aotc.frontend.graph import Node, shorten
from aotc.frontend.ops.tensors.ops_slice import BORDERS, borders
from aotc.frontend.ranges import capacity, most_of, range_of
from aotc.frontend.row_values import Found, Row
from aotc.ir.dtypes import is_float
from aotc.ir.expr import (
    Const,
    Expr,
    Shape,
    Where,
    all_hold,
    compare,
    loads,
    maximum,
    minimum,
    substitute,
)
from aotc.ir.simplify import are_equal, lower, simplify

ZERO, ONE = Const(0), Const(1)


@dataclass
class _Sizes:
    """Extents of the node's result, one after the other.  ``numbers``: (axis, elements that there
    are) of those that data says; ``rows``: those that are as long as others."""

    b: Builder
    rank: int
    shape: list[Expr] = field(default_factory=list)
    numbers: list[tuple[int, Expr]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def fixed(self, extent: Expr) -> None:
        """An extent that no data says."""
        self.shape.append(extent)

    def row(self, start: int) -> None:
        """As many elements as a number that has been told says."""
        out, axis = self.b.node.outputs[0], len(self.shape)
        self.rows.append(Row(out, axis, start))
        self.numbers.append((axis, self.b.load(self.b.counts[start][0], ())))
        self.shape.append(self.b.counts[start][1])

    def said(self, e: Expr) -> None:
        """As many as an expression of data says."""
        start, axis = _start_of(self.b, e), len(self.shape)
        found = range_of(self.b, e)
        if not reads_data(e) or found.lo is not None and found.hi is not None and are_equal(
                found.lo, found.hi):
            self.fixed(e if found.lo is None else found.lo)
            return
        if start is not None and expected_shape(self.b, self.b.node.outputs[0]) is None:
            self.row(start)
            return
        total = self.b.compute((), e, tag=f"count{axis}")
        count = room_for(self.b, e, axis) or Count(self.b.declared(rank=self.rank)[axis])
        if count.room:
            self.b.derived[len(self.b.counts)] = replace_derived(self.b, e)
        expect_count(self.b, total, count)
        if count.room:
            self.numbers.append((axis, self.b.load(total, ())))
        self.shape.append(count.extent)

    def made(self, element: Callable[[Index], Expr], sources: list[Val]) -> Val:
        """The result, zero behind the elements that there are."""
        b = self.b
        b.met = Found(tuple(self.rows))

        def body(i: Index) -> Expr:
            e = element(i)
            held = all_hold(compare("lt", i[axis], number) for axis, number in self.numbers)
            return e if held is None else Where(held, e, Const(
                False if e.dtype == "bool" else 0, e.dtype))
        if not self.numbers:
            return b.map(self.shape, body, sources)
        axes = b.axes(self.shape)
        return b.compute(axes, body(axes))


def room_for(b: Builder, e: Expr, axis: int, beside: Shape = ()) -> Count | None:
    """Room for as many elements as ``e`` says along an axis of the node's result; where nothing
    says how many that may be, for the largest extent of an input, or of ``beside``.  None where a
    shape is declared."""
    most = most_of(b, e)
    known = room(b, [(0, axis)], replace_by_room(b, e) if most is None else most)
    count = known or room(b, [(0, axis)], capacity(b, beside))
    return count and replace(count, limited=True, guess=known is None)


def replace_derived(b: Builder, e: Expr) -> Expr:
    """A number of elements, made of those that no others determine."""
    return simplify(substitute(e, {b.load(b.counts[k][0], ()): root
                                   for k, root in b.derived.items()}))


def _start_of(b: Builder, e: Expr) -> int | None:
    """The number that has been told which ``e`` is."""
    said = b.said.get(whole_of(follow_loads(b, e)))
    if said is not None:
        return said
    for k, (total, _, _) in enumerate(b.counts):
        n = b.load(total, ())
        if are_equal(e, n) or are_equal(e, maximum(n, ZERO)):
            return k
    return None


def build_sized(node: Node, b: Builder) -> Val | None:
    """The node's Val where data says its extents, of it or of what it is made of; None elsewhere.
    Where a shape is declared and no rows are met, the operator's own function compares it."""
    make, given = _MAKE[node.op]
    rows = b.rows.get(node.inputs[0], ()) if node.op != "ConstantOfShape" else ()
    asked = b.elements(b.input(given)) if len(node.inputs) > given else []
    if not rows and (not any(_of_data(b, e) for e in asked) or (
            expected_shape(b, node.outputs[0]) is not None)):
        return None
    return make(node, b, asked, rows)


def with_numbers(node: Node, b: Builder) -> Node:
    """The node, extents that data says it makes being numbers of elements that are told, as any
    operator follows them (``frontend/counted_axes.py``); as it is where a shape is declared."""
    k = _ASKING.get(node.op, len(node.inputs))
    if node.domain or k >= len(node.inputs) or not node.inputs[k]:
        return node
    v = b.tensor(node.inputs[k])
    if is_float(v.dtype) or v.rank > 1 or not b.from_data(v):
        return node
    asked = b.elements(v)
    if expected_shape(b, node.outputs[0]) is not None or not any(_of_data(b, e) for e in asked):
        return node
    numbers = [_told(b, e) if _of_data(b, e) and _start_of(b, e) is None else e for e in asked]
    name = f"{node.inputs[k]}_of_{node.outputs[0]}"
    b.env[name] = b.value(v.shape, lambda i: choose_element(tuple(numbers), i[0] if i else ZERO))
    return replace(node, inputs=(*node.inputs[:k], name, *node.inputs[k + 1:]))


def expect_declared(b: Builder, tensor: str) -> Val:
    """A tensor, of the extents that the model declares where data counts it: any other number is a
    fault."""
    v, declared = b.tensor(tensor), b.graph.declared.get(tensor)
    rows = b.rows.get(tensor, ())
    if not rows or declared is None:
        return v
    shape = list(v.shape)
    for r in rows:
        n, shape[r.axis] = b.load(b.counts[r.start][0], ()), declared[r.axis]
        own, b.node = b.node, b.counts[r.start][2]
        expect(b, [(n, declared[r.axis])], f"the data must give the {declared[r.axis]} elements "
               f"that {shorten(tensor)!r} is declared to have along axis {r.axis}, their number is")
        b.node = own
    del b.rows[tensor]

    def body(i: Index) -> Expr:
        held = all_hold(compare("lt", i[r.axis], v.shape[r.axis]) for r in rows)
        assert held is not None, rows
        return Where(held, b.at(v, i), Const(False if v.dtype == "bool" else 0, v.dtype))
    return b.map(shape, body, [v])


def _told(b: Builder, e: Expr) -> Expr:
    """A number that data says as one of elements."""
    count = room_for(b, e, 0, b.input(0).shape)
    assert count is not None, b.node  # nothing is declared
    total = b.compute((), maximum(e, ZERO), tag="count")
    tell_count(b, total, replace(count, rows=()))
    return b.load(total, ())


def _of_data(b: Builder, e: Expr) -> bool:
    """True for a number that data says; extents may have one that is computed, too."""
    return any(b.known.is_data(Val((), n.dtype, buffer=n.buffer)) for n in loads(e))


def _constant(node: Node, b: Builder, asked: list[Expr], rows: tuple[Row, ...]) -> Val:
    value = node.attr("value")
    fill = b.scalar_val(0.0, "f32") if value is None else b.const(value.reshape(-1)[:1])
    sizes = _Sizes(b, len(asked))
    for e in asked:
        sizes.said(e)
    return sizes.made(lambda i: b.at(fill, (ZERO,) * fill.rank), [fill])


def _expanded(node: Node, b: Builder, asked: list[Expr], rows: tuple[Row, ...]) -> Val:
    x, tensor = b.input(0), node.inputs[0]
    rank = max(x.rank, len(asked))
    sizes, single = _Sizes(b, rank), dict[int, Expr]()  # axes -> extent that is 1 or the result's
    for axis in range(rank):
        own, at = axis - rank + x.rank, axis - rank + len(asked)
        d, e = x.shape[own] if own >= 0 else ONE, asked[at] if at >= 0 else ONE
        n = number_along(b, rows, tensor, own)
        if n is not None:
            if e != ONE and not are_equal(e, n):
                wanted = Where(compare("eq", e, ONE), n, e) if reads_data(e) else e
                expect(b, [(n - wanted, ZERO)], f"the shape must have the extent of {tensor!r}"
                       f" along axis {own}, which has more elements by")
            sizes.row(next(r.start for r in rows if r.axis == own))
        elif not reads_data(e):
            sizes.fixed(b.broadcast((d,), (e,))[0])
            single[axis] = d
        else:
            if d != ONE:
                fits = Where(compare("eq", e, ONE), d, e)
                expect(b, [(Where(compare("eq", d, ONE), ONE, fits), d)],
                       f"the shape must have the extent of {tensor!r} along axis {own}, it has")
                e = Where(compare("eq", e, ONE), d, e)
            sizes.said(simplify(e))
            single[axis] = d

    def element(i: Index) -> Expr:
        place = [i[k] if k not in single else b.joins.at(single[k], sizes.shape[k], i[k])
                 for k in range(rank - x.rank, rank)]
        return b.at(x, place)
    return sizes.made(element, [x])


def _padded(node: Node, b: Builder, asked: list[Expr], rows: tuple[Row, ...]) -> Val:
    x, mode = b.input(0), node.attr("mode", "constant")
    amounts = [Const(p) for p in node.attrs["pads"]] if "pads" in node.attrs else asked
    before, after = borders(b, x.rank, amounts)
    sizes = _Sizes(b, x.rank)
    ends = [d if n is None else n for d, n in (
        (d, number_along(b, rows, node.inputs[0], k)) for k, d in enumerate(x.shape))]
    for k, (p, n, q) in enumerate(zip(before, ends, after)):
        if p == ZERO and q == ZERO and reads_data(n):
            sizes.row(next(r.start for r in rows if r.axis == k))
            continue
        total = simplify(p + n + q)
        sizes.said(simplify(bound_number(p) + n + bound_number(q)) if reads_data(total) else total)
    before = list(map(bound_number, before))
    if mode != "constant":
        places = [_bordered(b, mode, *line) for line in zip(before, after, ends, x.shape)]
        return sizes.made(lambda i: b.at(x, [place(j) for place, j in zip(places, i)]), [x])
    fill = b.arg(2) or b.scalar_val(node.attr("value", 0), x.dtype)

    def element(i: Index) -> Expr:
        inner = [simplify(j - p) for j, p in zip(i, before)]
        held = all_hold(c for j, p, q, n, e in zip(inner, before, after, ends, x.shape)
                        for c in (compare("ge", j, ZERO), compare("lt", j, n))
                        if (p, q) != (ZERO, ZERO))
        value = b.at(x, inner)
        return value if held is None else Where(held, value, b.at(fill, (ZERO,) * fill.rank))
    return sizes.made(element, [x, fill])


def _bordered(b: Builder, mode: str, before: Expr, after: Expr, n: Expr, extent: Expr) -> At:
    """Function from an index of the result to one of the source, along an axis of ``n`` elements
    whose border repeats them."""
    if before == ZERO and after == ZERO:
        return lambda i: i
    least = range_of(b, before).lo, range_of(b, after).lo
    if mode not in BORDERS or any(e is None or (lower(e) or 0) < 0 for e in least):
        raise b.unsupported(f"Pad mode {mode!r} by amounts that may cut elements off",
                            "cut them off before (Slice)")
    some = maximum(n, ONE)
    return lambda i: maximum(minimum(BORDERS[mode](i - before, some, None), extent - 1), ZERO)


_MAKE = {"ConstantOfShape": (_constant, 0), "Expand": (_expanded, 1), "Pad": (_padded, 1)}
SIZED = frozenset(_MAKE)
# other operators -> their input that says extents of what they make
_ASKING = {"AffineGrid": 1, "CenterCropPad": 1, "OneHot": 1, "Resize": 3}

__all__ = ["SIZED", "expect_declared", "room_for", "replace_derived", "build_sized", "with_numbers"]
