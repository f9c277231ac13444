"""Elements that data counts in sub-graphs.  Results of an If have as many as those of the branch
that runs: both are computed, with room for the most that either may have.  States of a Loop keep
the number that they have."""

from collections.abc import Callable, Sequence
from functools import partial

from aotc.errors import UnsupportedError
from aotc.frontend.building.bodies import branch, run_and_undo
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.calls import expect_count
from aotc.frontend.building.declared import Count, number_along, room
from aotc.frontend.building.values import Index, Val, Value
from aotc.frontend.graph import Body, shorten
from aotc.frontend.row_values import Row
from aotc.ir.expr import Const, Expr, Shape, Where, all_hold, compare, maximum
from aotc.ir.simplify import are_equal, simplify


def choose_counted(b: Builder, cond: Val, vals: Sequence[Value], tensors: Sequence[str],
                   out: int) -> Val:
    """Output ``out`` of an If: of the two ``vals``, whose rows are those of ``tensors``, the first
    where the bool ``cond`` of one element holds, else the second."""
    x, y = map(b.as_tensor, vals)
    if x.dtype != y.dtype or x.rank != y.rank:
        raise b.unsupported(f"branches that give {x} and {y} for a condition that is data",
                            "make results of one type and rank")
    holds = b.at(cond, (Const(0),) * cond.rank)
    shape: list[Expr] = []
    ends: list[list[tuple[int, Expr]]] = [[], []]  # (axis, elements that there are) of each
    for axis in range(x.rank):
        rows = [next((r for r in b.rows.get(t, ()) if r.axis == axis), None) for t in tensors]
        shape.append(_extent(b, holds, (x, y), tensors, rows, axis, out))
        for v, t, found in zip((x, y), tensors, ends):
            number = number_along(b, b.rows.get(t, ()), t, axis)
            if number is not None or not are_equal(v.shape[axis], shape[axis]):
                found.append((axis, v.shape[axis] if number is None else number))

    def there(v: Val, i: Index, found: Sequence[tuple[int, Expr]]) -> Expr:
        """The element of ``v``, zero behind those that there are."""
        zero = Const(False if v.dtype == "bool" else 0, v.dtype)
        held = all_hold(compare("lt", i[axis], number) for axis, number in found)
        if any(d == Const(0) for d in v.shape):
            return zero
        return b.at(v, i) if held is None else Where(held, b.at(v, i), zero)
    return b.map(shape, lambda i: Where(holds, there(x, i, ends[0]), there(y, i, ends[1])),
                 [cond, x, y], out=out)


def run_one_with_room(b: Builder, cond: Val, runs: Sequence[Callable[[], Sequence[Value]]]
                      ) -> tuple[Val, ...]:
    """The results of an If of which one branch runs, with room for the larger of the extents where
    branches give other ones: data says how many elements there are, and the caller is told.
    ``runs``: build the body for true and for false.  UnsupportedError where
    they differ in more."""
    made = [m for run in runs if (m := run_and_undo(b, partial(tensors_of, b, run))) is not None]
    if len(made) < 2 or any(b.rows.get(o) for o in b.node.outputs):
        raise _unequal(b, "branches that do not compile by themselves")
    pairs = list(zip(*made, strict=True))
    if any(x.rank != y.rank or x.dtype != y.dtype for x, y in pairs):
        raise _unequal(b, "branches that give other ranks or types")
    shapes = [tuple(d if are_equal(d, e) else simplify(maximum(d, e)) for d,
                    e in zip(x.shape, y.shape))
              for x, y in pairs]

    def filled(run: Callable[[], Sequence[Value]]) -> list[Val]:
        return [_filled(b, b.as_tensor(v), shape) for v, shape in zip(run(), shapes)]
    out = branch(b, cond, [partial(filled, run) for run in runs], range(len(shapes)))
    holds = b.at(cond, (Const(0),) * cond.rank)
    told: dict[tuple[Expr, Expr], int] = {}  # extents of both -> the number of their count
    for k, (x, y) in enumerate(pairs):
        for axis, ends in enumerate(zip(x.shape, y.shape)):
            if are_equal(*ends):
                continue
            if ends in told:  # as many as of another result
                name, start = b.node.outputs[k], told[ends]
                b.rows[name] = (*b.rows.get(name, ()), Row(name, axis, start))
                continue
            total = b.compute((), Where(holds, *ends), tag=f"count{k}_{axis}")
            count = room(b, [(k, axis)], shapes[k][axis])
            if count is None:
                raise _unequal(b, "branches that give another shape than is declared")
            expect_count(b, total, count)
            told[ends] = len(b.counts) - 1
    return out


def tensors_of(b: Builder, run: Callable[[], Sequence[Value]]) -> list[Val]:
    """The results of ``run``, which are tensors."""
    return [b.as_tensor(v) for v in run()]


def _unequal(b: Builder, what: str) -> UnsupportedError:
    return b.unsupported(what, "make the results of both of one shape")


def _filled(b: Builder, v: Val, shape: Shape) -> Val:
    """``v`` with zeros behind its elements, of another shape."""
    ends = [(k, d) for k, (d, n) in enumerate(zip(v.shape, shape)) if not are_equal(d, n)]
    if not ends:
        return v
    zero = Const(False if v.dtype == "bool" else 0, v.dtype)

    def body(i: Index) -> Expr:
        held = all_hold(compare("lt", i[k], d) for k, d in ends)
        assert held is not None, shape
        return Where(held, b.at(v, i), zero)
    return b.map(shape, body, [v], tag="filled")


def inline_round_counted(b: Builder, body: Body, vals: Sequence[Value],
                         tag: str = "") -> tuple[Value, ...]:
    """``Builder.inline`` of a Loop's body: states have as many elements after it as before."""
    states = b.node.inputs[2:]
    made = [f"{o}_left" for o in body.outputs]
    outs = b.inline(body, vals, tag, made, ("", "", *states))
    rows = [{(r.axis, r.start) for r in b.rows.pop(name, ())} for name in made]
    for k, found in enumerate(rows):
        state = states[k - 1] if 0 < k <= len(states) else ""
        if found != {(r.axis, r.start) for r in b.rows.get(state, ())}:
            what = "a state" if state else "a result"
            raise b.unsupported(
                f"a sub-graph with {what} {shorten(body.outputs[k])!r} that has as many elements "
                "as data says, another number in each round",
                "pad it to a fixed number of them inside (Pad, or Concat and Slice)")
    return outs


def _extent(b: Builder, holds: Expr, vals: Sequence[Val], tensors: Sequence[str],
            rows: Sequence[Row | None], axis: int, out: int) -> Expr:
    """The extent of the result along an axis, whose number of elements is told where data says
    it."""
    extents = [v.shape[axis] for v in vals]
    starts = {r.start if r else -1 for r in rows}
    name = b.node.outputs[out]
    if starts == {-1} and are_equal(*extents):
        return extents[0]
    start = starts.pop()
    if not starts and start >= 0:  # as many in both
        b.rows[name] = (*b.rows.get(name, ()), Row(name, axis, start))
        return b.counts[start][1]
    one, two = (e if n is None else n for e, n in zip(extents, (
        number_along(b, b.rows.get(t, ()), t, axis) for t in tensors)))
    total = b.compute((), Where(holds, one, two), tag=f"count{out}_{axis}")
    count = room(b, [(out, axis)], simplify(maximum(*extents))) or Count(
        b.declared(out, vals[0].rank)[axis])
    expect_count(b, total, count)
    return count.extent


__all__ = ["choose_counted", "inline_round_counted", "run_one_with_room", "tensors_of"]
