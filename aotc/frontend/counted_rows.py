"""Nodes along axes of which data says how many elements there are
(``frontend/counted_tensors.py``).  Folds
see what there is: what lies behind becomes what changes nothing, and a mean is of as many as there
are.  What moves elements along such an axis makes another one, with a number of its own."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.calls import expect_count
from aotc.frontend.building.declared import (
    Count,
    expect,
    expected_shape,
    place_among,
    reads_data,
    room,
    zero_behind,
)
from aotc.frontend.building.known import choose_element
from aotc.frontend.building.registry import Build, lookup
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import SMALL, Entries, Index, Result, Val
from aotc.frontend.counted_sizes import SIZED, build_sized, replace_derived
from aotc.frontend.counted_tensors import find_rows_after, neutral_element
from aotc.frontend.graph import Graph, Node, shorten
from aotc.frontend.loops.rounds import counts_rounds
from aotc.frontend.ops.tensors.ops_slice import INT_MAX
from aotc.frontend.ops.tensors.reshape import source_index
from aotc.frontend.row_values import Alike, Found, Row
from aotc.ir.expr import (
    Const,
    Expr,
    Shape,
    Where,
    all_hold,
    compare,
    maximum,
    minimum,
)
from aotc.ir.simplify import are_equal, simplify

MEAN = "ReduceMean"
ZERO, ONE = Const(0), Const(1)
_PLACES = {"RoiAlign": 2}  # operators -> their input that holds places, the second of others
_PUT = ("Scatter", "ScatterElements", "ScatterND")


def meet_rows(node: Node, b: Builder) -> Found | None:
    """What a node makes of the rows among its inputs, whose rules are entered; None where no rule
    of its operator says it.  UnsupportedError that names it and the node that the rows come from
    where they are extents that the model declares."""
    mine = [i for i in node.inputs if i in b.rows]
    if not mine or node.proto is not None:  # the nodes of a definition meet them, one by one
        return Found()

    def shape(tensor: str) -> Shape | None:
        v = b.env.get(tensor)
        return v.shape if isinstance(v, Val) else v.whole.shape if isinstance(v, Entries) else None
    found = find_rows_after(_with_known(b, node), node, b.rows, shape)
    if found is None:
        return None
    if any(r.tensor in b.graph.declared for r in found.rows):
        raise refuse_unknown_count(b, b.rows[mine[0]][0])
    for one in found.alike:
        _expect_alike(b, one)
    return found


def _with_known(b: Builder, node: Node) -> Graph:
    """The graph with the node's parameters that are known, as its constants."""
    vals = {i: b.env.get(i) for i in node.inputs[1:] if i and i not in b.graph.initializers}
    known = {i: a for i, v in vals.items() if isinstance(v, Val) and v.size is not None
             and v.size <= SMALL and (a := b.known(v).array) is not None}
    return replace(b.graph, initializers={**b.graph.initializers, **known}) if known else b.graph


def _expect_alike(b: Builder, one: Alike) -> None:
    """The rule that an axis has as many elements as a number says."""
    number, name = _number(b, one.start), shorten(b.counts[one.start][2].label)
    for row in b.rows.get(one.tensor, ()):
        if row.axis == one.axis:
            expect(b, [(number - _number(b, row.start), ZERO)],
                   f"{name} and {shorten(b.counts[row.start][2].label)} must give equally many "
                   "elements, they differ by")
            return
    extent = b.tensor(one.tensor).shape[one.axis]
    number = Where(compare("eq", extent, ONE), ONE, number) if one.spread else number
    expect(b, [(number, extent)], f"{name} must give as many elements as {one.tensor!r} has along "
           f"axis {one.axis}, their number is")


def refuse_unknown_count(b: Builder, row: Row) -> Exception:
    """The refusal of the current node, which must know how many elements there are."""
    start = b.counts[row.start][2]
    return b.unsupported(
        f"it needs to know how many elements {shorten(start.label)!r} ({start.op}) gives, which "
        "data says", "compute what follows that from input shapes, or cut the model in front of it")


def _number(b: Builder, start: int) -> Expr:
    """How many elements there are."""
    return b.load(b.counts[start][0], ())


def build_along_rows(node: Node, b: Builder, build: Build) -> Result:
    """The node's Vals by ``build``, its operator's function, or by what it does along rows."""
    made = None if node.domain else _by_numbers(node, b)
    if made is not None:
        return made
    node = _with_room(node, b)
    met = b.met
    if met.moved:
        return _MOVES[node.op](node, b, met.moved)
    if node.op in _PUT:
        return build(node, b)  # which asks where there are elements
    if met.inside:
        return _looked_up(node, b, build, met.inside[0])
    return _folded(node, b, build, met.folds) if met.folds else build(node, b)


def _by_numbers(node: Node, b: Builder) -> Val | None:
    """A tensor whose extents numbers of elements say; None if they do not."""
    if node.op in SIZED:
        return build_sized(node, b)
    return _cut(node, b) if node.op == "Slice" and len(node.inputs) > 2 else None


def _with_room(node: Node, b: Builder) -> Node:
    """The node, its inputs zero where they must be (``Found.zeroed``), with room for as many
    elements as those they meet (``Found.alike``)."""
    wide: dict[str, Val] = {}
    for row in b.met.zeroed:
        wide[row.tensor] = _cleared(b, wide.get(row.tensor, b.tensor(row.tensor)), row)
    for one in b.met.alike:
        v, room_for = wide.get(one.tensor, b.tensor(one.tensor)), b.counts[one.start][1]
        if not are_equal(v.shape[one.axis], room_for):
            wide[one.tensor] = _spread(b, v, one.axis, room_for, one.spread)
    if not wide:
        return node
    names = {tensor: f"{tensor}_of_{node.outputs[0]}" for tensor in wide}
    b.env.update((names[tensor], v) for tensor, v in wide.items())

    def renamed(rows: Sequence[Row]) -> tuple[Row, ...]:
        return tuple(replace(r, tensor=names.get(r.tensor, r.tensor)) for r in rows)
    b.rows.update((names[tensor], renamed(b.rows[tensor])) for tensor in wide if tensor in b.rows)
    b.met = replace(b.met, folds=renamed(b.met.folds), inside=renamed(b.met.inside),
                    moved=renamed(b.met.moved))
    b.node = replace(node, inputs=tuple(names.get(i, i) for i in node.inputs))
    return b.node


def _cleared(b: Builder, v: Val, row: Row) -> Val:
    """``v``, zero behind the elements that there are of a row."""
    n, zero = _number(b, row.start), Const(False if v.dtype == "bool" else 0, v.dtype)
    return b.map(v.shape, lambda i: Where(compare("lt", i[row.axis], n), b.at(v, i), zero),
                 [v, b.counts[row.start][0]], "zeroed")


def _spread(b: Builder, v: Val, axis: int, extent: Expr, single: bool = False) -> Val:
    """``v`` with another extent along an axis, zero behind its own; ``single``: a single element
    is everywhere."""
    own, zero = v.shape[axis], Const(False if v.dtype == "bool" else 0, v.dtype)

    def body(i: Index) -> Expr:
        def at(place: Expr) -> Expr:
            return b.at(v, (*i[:axis], place, *i[axis + 1:]))
        none = simplify(Where(compare("eq", own, ONE), at(ZERO), zero)) if single else zero
        return Where(compare("lt", i[axis], own), at(i[axis]), none)
    return b.map((*v.shape[:axis], extent, *v.shape[axis + 1:]), body, [v], "room")


# ---------------------------------------------------------------- folds and look-ups

def _folded(node: Node, b: Builder, build: Build, folds: Sequence[Row]) -> Result:
    """A fold that sees what there is."""
    names = {r.tensor: f"{r.tensor}_of_{node.outputs[0]}" for r in folds}
    for tensor, name in names.items():
        b.env[name] = _there(b, node, b.tensor(tensor), [r for r in folds if r.tensor == tensor])
    if node.op == "TopK":
        k = Const(node.attr("k")) if "k" in node.attrs else b.elements(b.input(1))[0]
        expect(b, [(k - minimum(k, _number(b, folds[0].start)), ZERO)],
               "TopK takes no more elements than there are, too many by")
    inside = replace(node, inputs=tuple(names.get(i, i) for i in node.inputs))
    b.node = inside
    if node.op in ("ArgMax", "ArgMin") and node.attr("select_last_index", 0):
        return _last_of(b, build(inside, b), folds[0])
    if node.op != MEAN:
        return build(inside, b)
    return _mean(b, inside, b.tensor(folds[0].tensor), folds)


def _there(b: Builder, node: Node, v: Val, rows: Sequence[Row]) -> Val:
    """``v`` with what changes no fold of the operator behind the elements that there are."""
    none = neutral_element(node, v.dtype)

    def body(i: Index) -> Expr:
        held = all_hold(compare("lt", i[r.axis], _number(b, r.start)) for r in rows)
        assert held is not None, rows
        return Where(held, b.at(v, i), none)
    return b.map(v.shape, body, [v, *(b.counts[r.start][0] for r in rows)], "there")


def _last_of(b: Builder, found: Result, row: Row) -> Val:
    """The last place, which is none behind the elements, where all are as what lies there."""
    assert isinstance(found, Val), found
    last = maximum(_number(b, row.start) - 1, ZERO)
    return b.map(found.shape, lambda i: minimum(b.at(found, i), last), [found])


def _mean(b: Builder, node: Node, x: Val, rows: Sequence[Row]) -> Val:
    """A sum, divided by as many elements as there are."""
    entry = lookup("", "ReduceSum", node.opset)
    assert entry is not None, node.opset
    b.node = replace(node, op="ReduceSum", outputs=(f"{node.outputs[0]}_sum",))
    added = entry.build(b.node, b)
    assert isinstance(added, Val), added
    b.node = node
    axes = b.param("axes", 1)
    counted = {r.axis: _number(b, r.start) for r in rows}
    others = [d for k, d in enumerate(x.shape) if k not in counted
              and (axes is None or k in {b.axis(a, x.rank) for a in axes})]

    def body(i: Index) -> Expr:
        count = prod(others, start=prod(counted.values(), start=ONE))
        none = compare("eq", count, ZERO)
        return Where(none, cast(added.dtype, ZERO), b.at(added, i)) / cast(added.dtype, count)
    return b.map(added.shape, body, [added, *(b.counts[r.start][0] for r in rows)])


def _looked_up(node: Node, b: Builder, build: Build, row: Row) -> Result:
    """Elements taken among those that there are; places that are none are where there is none."""
    at = _PLACES.get(node.op, 1)
    tensor = node.inputs[at]
    places, extent = b.tensor(tensor), b.tensor(node.inputs[0]).shape[row.axis]
    n, least = _number(b, row.start), int(tensor in b.rows)

    def body(i: Index) -> Expr:
        return place_among(b.index_at(places, i), n, extent, least)
    name = f"{tensor}_of_{node.outputs[0]}"
    b.env[name] = b.map(places.shape, body, [places, b.counts[row.start][0]], "places")
    b.node = replace(node, inputs=(*node.inputs[:at], name, *node.inputs[at + 1:]))
    return build(b.node, b)


# ---------------------------------------------------------------- numbers and shapes

def _dims(b: Builder, x: Val, rows: Sequence[Row]) -> list[Expr]:
    """The extents that a tensor has."""
    counted = {r.axis: _number(b, r.start) for r in rows}
    return [counted.get(k, d) for k, d in enumerate(x.shape)]


def _shape(node: Node, b: Builder, rows: Sequence[Row]) -> Val:
    dims = _dims(b, b.input(0), rows)
    dims = dims[slice(node.attr("start", 0), node.attr("end", len(dims)))]
    return b.value((len(dims),), lambda i: choose_element(tuple(dims) or (ZERO,), i[0]))


def _size(node: Node, b: Builder, rows: Sequence[Row]) -> Val:
    total = prod(_dims(b, b.input(0), rows), start=ONE)
    return b.value((), lambda i: total)


# ---------------------------------------------------------------- elements that move

def _count(b: Builder, axis: int, rank: int, number: Expr, most: Expr) -> tuple[Count, Val]:
    """(room, number []) of elements along an axis of the node's result."""
    total = b.compute((), number, tag="count")
    count = room(b, [(0, axis)], simplify(most)) or Count(b.declared(rank=rank)[axis])
    expect_count(b, total, count)
    return count, total


def _inside(place: Expr, extent: Expr) -> Expr:
    """A place that is one of the extent where it is used."""
    return maximum(minimum(place, extent - 1), ZERO)


def _joined(node: Node, b: Builder, rows: Sequence[Row]) -> Val:
    """One behind the other, each as long as it is."""
    vals = b.inputs()
    axis = b.axis(node.attr("axis", 0), vals[0].rank)
    ends: list[Expr] = [ZERO]
    most: Expr = ZERO
    for name, v in zip(node.inputs, vals):
        number = next((_number(b, r.start) for r in rows if r.tensor == name), v.shape[axis])
        ends.append(simplify(ends[-1] + number))
        most = simplify(most + v.shape[axis])
    for v in vals[1:]:
        for k, (d, e) in enumerate(zip(vals[0].shape, v.shape, strict=True)):
            if k != axis:
                b.require("eq", d, e, "Concat: other dimensions must be equal")
    whole, sources = replace_derived(b, ends[-1]), list(vals)
    if reads_data(whole):
        count, total = _count(b, axis, vals[0].rank, ends[-1], most)
        sources.append(total)
    else:  # n elements and K - n
        count = Count(whole)

    def body(i: Index) -> Expr:
        def part(k: int) -> Expr:
            place = _inside(i[axis] - ends[k], vals[k].shape[axis])
            return b.at(vals[k], i[:axis] + (place,) + i[axis + 1:])
        out = part(len(vals) - 1)
        for k in reversed(range(len(vals) - 1)):
            out = Where(compare("lt", i[axis], ends[k + 1]), part(k), out)
        return zero_behind(b, count, i[axis], out)
    shape = (*vals[0].shape[:axis], count.extent, *vals[0].shape[axis + 1:])
    return b.map(shape, body, sources)


def _sliced(node: Node, b: Builder, rows: Sequence[Row]) -> Val:
    """A run of the elements that there are; ends count from the last one that there is."""
    (row,) = rows
    steps = b.arg(4)
    if steps is not None and b.elements(steps) != [ONE]:
        raise refuse_unknown_count(b, row)
    first, last = ([Const(node.attr(name)[0])] if name in node.attrs else b.elements(b.input(k))
                   for k, name in ((1, "starts"), (2, "ends")))
    return _run_of(b, b.input(0), row.axis, _number(b, row.start), first[0], last[0])


def _cut(node: Node, b: Builder) -> Val | None:
    """Runs along axes, of which data says where they begin or end, or the round of a loop how long
    they are; None if neither does, or such an axis is a row."""
    first, last = b.elements(b.input(1)), b.elements(b.input(2))
    given, steps = b.arg(3), b.arg(4)
    by_round = b.rounds and any(counts_rounds(e, b.turns) for e in (*first, *last))
    if not by_round and not any(map(reads_data, (*first, *last))) or (
            steps is not None and any(e != ONE for e in b.elements(steps))) or (
            expected_shape(b, node.outputs[0]) is not None):
        return None
    v = b.input(0)
    axes = [Const(k) for k in range(len(first))] if given is None else b.elements(given)
    places = [b.axis(int(a.value), v.rank) for a in axes if isinstance(a, Const)]
    rows = {r.axis for r in b.rows.get(node.inputs[0], ())}
    if not len(set(places)) == len(axes) == len(first) == len(last) or rows.intersection(places):
        return None
    if by_round and not any(map(reads_data, (*first, *last))) and not all(
            counts_rounds(b.settled(_length(v.shape[axis], begin, end)), b.turns)
            for axis, begin, end in zip(places, first, last)):
        return None
    for axis, begin, end in zip(places, first, last):
        v = _run_of(b, v, axis, v.shape[axis], begin, end)
    return v


def _place(e: Expr, n: Expr) -> Expr:
    """An end of a run among ``n`` elements."""
    if isinstance(e, Const) and abs(e.value) >= INT_MAX:
        return n if e.value > 0 else ZERO
    return simplify(minimum(maximum(Where(compare("lt", e, ZERO), e + n, e), ZERO), n))


def _length(n: Expr, first: Expr, last: Expr) -> Expr:
    """The elements of a run."""
    return simplify(maximum(_place(last, n) - _place(first, n), ZERO))


def _run_of(b: Builder, x: Val, axis: int, n: Expr, first: Expr, last: Expr) -> Val:
    """From the element ``first`` to the one before ``last`` of the ``n`` that there are."""
    extent = x.shape[axis]
    begin = b.settled(_place(first, n))
    most = extent
    if isinstance(first, Const) and isinstance(last, Const):
        a, z = first.value, last.value
        span = z - a if (a < 0) == (z < 0) else -a if a < 0 else None
        most = extent if span is None or span >= INT_MAX else minimum(extent, Const(max(span, 0)))
    count, total = _count(b, axis, x.rank, b.settled(_length(n, first, last)), most)

    def body(i: Index) -> Expr:
        at = _inside(i[axis] + begin, extent)
        return zero_behind(b, count, i[axis], b.at(x, i[:axis] + (at,) + i[axis + 1:]))
    return b.map((*x.shape[:axis], count.extent, *x.shape[axis + 1:]), body, [x, total])


def _reshaped(node: Node, b: Builder, rows: Sequence[Row]) -> Val:
    """Elements in another shape: the axis as it is, or all behind it and it in one line."""
    x, row = b.input(0), rows[0]
    n, axis = _number(b, row.start), row.axis
    to = _asked(node, b, x, row)
    counted = [k for k, d in enumerate(to) if reads_data(d)]
    if len(rows) > 1 or len(counted) != 1:
        raise refuse_unknown_count(b, row)
    (k,) = counted
    here = [simplify(prod(s, start=ONE)) for s in (
        x.shape[:axis], to[:k], x.shape[axis + 1:], to[k + 1:])]
    if are_equal(*here[:2]) and are_equal(*here[2:]):
        shape = (*to[:k], x.shape[axis], *to[k + 1:])
        if not are_equal(to[k], n):
            expect(b, [(to[k] - n, ZERO)], "the shape must have the elements that there are, it "
                   "has more by")
        b.met = Found((Row(node.outputs[0], k, row.start, row.places),))
        return b.move(x, shape, source_index(x.shape, shape))
    if not (are_equal(here[0], ONE) and are_equal(here[1], ONE)):
        raise refuse_unknown_count(b, row)
    return _lined_up(b, x, axis, to, k, n)


def _asked(node: Node, b: Builder, x: Val, row: Row) -> list[Expr]:
    """The extents that a Reshape asks for, what is left over told by the others."""
    given = b.elements(b.input(1)) if len(node.inputs) > 1 else list(map(Const, node.attr("shape")))
    dims = _dims(b, x, [row])
    to = [dims[k] if d == ZERO and not node.attr("allowzero", 0) and k < len(dims) else d
          for k, d in enumerate(given)]
    rest = [k for k, d in enumerate(to) if d == Const(-1)]
    for k in rest:
        others = to[:k] + to[k + 1:]
        own = [d for d in others if reads_data(d)]
        if own and all(are_equal(d, _number(b, row.start)) for d in own):
            dims = [d for j, d in enumerate(dims) if j != row.axis]
            others = [d for d in others if not reads_data(d)]
        to[k] = simplify(prod(dims, start=ONE) // prod(others, start=ONE))
    return to


def _lined_up(b: Builder, x: Val, axis: int, to: Sequence[Expr], k: int, n: Expr) -> Val:
    """Reshape of what begins with the counted axis, to what begins with one."""
    inner, made = (simplify(prod(s, start=ONE)) for s in (x.shape[axis + 1:], to[k + 1:]))
    most = (x.shape[axis] * inner + made - 1) // made
    count, total = _count(b, k, len(to), to[k], most)
    expect(b, [(to[k] * made - n * inner, ZERO)], "the shape must have as many elements as there "
           "are, it has more by")

    def body(i: Index) -> Expr:
        line = i[k] * made
        for j in range(k + 1, len(to)):
            line = line + i[j] * prod(to[j + 1:], start=ONE)
        place: list[Expr] = [*i[:0], *([ZERO] * axis), _inside(line // inner, x.shape[axis])]
        for j in range(axis + 1, x.rank):
            place.append(line // prod(x.shape[j + 1:], start=ONE) % x.shape[j])
        return zero_behind(b, count, i[k], b.at(x, place))
    return b.map((*to[:k], count.extent, *to[k + 1:]), body, [x, total])


def _listed(node: Node, b: Builder, rows: Sequence[Row]) -> Val:
    (row,) = rows
    return b.value((), lambda i: _number(b, row.start))


_MOVES: dict[str, Callable[[Node, Builder, Sequence[Row]], Val]] = {
    "Shape": _shape, "Size": _size, "SequenceLength": _listed, "Concat": _joined,
    "Slice": _sliced, "Reshape": _reshaped}
