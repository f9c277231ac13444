"""Shapes that a model declares, followed backwards: what an elementwise operator reads has the
shape of its result (an extent that is 1 there instead is refused when the tensor is computed).  And
the rule that data must give what is declared."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotc.frontend.building.values import Val
from aotc.frontend.graph import Body, Node, shorten
from aotc.frontend.row_values import Row
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    ExprLike,
    Guarded,
    Shape,
    Where,
    any_holds,
    as_expr,
    compare,
    loads,
    maximum,
    minimum,
    substitute,
)
from aotc.ir.simplify import simplify

if TYPE_CHECKING:  # which needs this module
    from aotc.frontend.building.builder import Builder

# operators whose result has the shape that their inputs broadcast to
_ELEMENTWISE = frozenset("""
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Cast CastLike Ceil Clip Cos Cosh Div Elu Equal Erf Exp Floor Greater GreaterOrEqual
    HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mod Mul
    Neg Not Or Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum
    Tan Tanh Where Xor
""".split())
_FAR = 64  # operators to look through


def expected_shape(b: "Builder", tensor: str, rank: int | None = None) -> Shape | None:
    """The extents that the model declares for ``tensor``, or for a result of elementwise operators
    on it, the last ``rank`` of them; None if nothing is declared."""
    graph = b.graph
    users: dict[str, list[Node]] = {}
    for n in (*graph.nodes, *b.inner):
        for i in n.inputs:
            users.setdefault(i, []).append(n)
    todo = [tensor]
    seen: set[str] = set()
    while todo and len(seen) < _FAR:
        t = todo.pop(0)
        found = graph.declared.get(t)
        if found is not None and (rank is None or len(found) >= rank):
            return found if rank is None else found[len(found) - rank:]
        seen.add(t)
        todo += [n.outputs[0] for n in users.get(t, ()) if n.op in _ELEMENTWISE and not n.domain
                 and n.outputs[0] not in seen]
    return None


LARGEST = 1 << 40  # what data may say of extents and places: sums and products of a few fit 64 bits


def reads_data(e: Expr) -> bool:
    """True if an expression has a value from data in it."""
    return bool(loads(e))


def bound_number(e: Expr) -> Expr:
    """A number from data as arithmetic on extents takes it, which cannot overflow then."""
    return minimum(maximum(e, Const(-LARGEST)), Const(LARGEST)) if reads_data(e) else e


def flag_any(conds: Iterable[Expr]) -> Expr:
    """1 where any of the conditions holds, else 0."""
    out: Expr = Const(0)
    for cond in conds:
        out = Where(cond, Const(1), out)
    return simplify(out)


def expect(b: "Builder", pairs: Iterable[tuple[ExprLike, ExprLike]], what: str,
           out: int = 0) -> None:
    """Demand that the data gives what the model declares: (value, declared) pairs, mostly the
    extents of output ``out``.  ModelError where no data is needed to see that it does not; else a
    fault at run time that names the node, before anything is computed from the data."""
    found: list[tuple[Expr, Expr]] = [(simplify(as_expr(v)), simplify(as_expr(d)))
                                      for v, d in pairs]
    for value, declared in found:
        if not reads_data(value):
            b.require("eq", value, declared, what)
    found = [(v, d) for v, d in found if reads_data(v)]
    if not found:
        return
    axes = b.axes((Const(len(found)),)) if len(found) > 1 else ()
    value, declared = (_nth(row, axes) for row in zip(*found))
    b.compute(axes, Guarded("expected", value, declared, b.rule(what)), tag="rule", out=out)


@dataclass(frozen=True)
class Count:
    """The number of elements that data chooses: ``extent`` as declared; or, with ``room`` for any
    number up to it, the most there can be.  ``rows``: outputs of the node, and their axes, that
    have as many; ``limited``: data may give more, which is a fault; ``guess``: nothing in the model
    says that there are no more."""

    extent: Expr
    room: bool = False
    rows: tuple[tuple[str, int], ...] = ()
    limited: bool = False
    guess: bool = False


def room(b: "Builder", rows: Iterable[tuple[int, int]], most: Expr | None) -> Count | None:
    """Room for up to ``most`` elements in the node's outputs ``rows`` (number, axis), no more than
    the node's bound, if it has one; None where a shape is declared, or nothing says how many there
    can be."""
    named = tuple((b.node.outputs[k], axis) for k, axis in rows
                  if k < len(b.node.outputs) and b.node.outputs[k])
    if any(expected_shape(b, t) is not None for t, _ in named):
        return None
    name = b.node.label
    bounds = [n for n in dict.fromkeys((name, *b.node.origin, *b.node.outputs))
              if n in b.graph.bounds]
    b.bounded.update(bounds)
    ends: list[Expr] = [Const(b.graph.bounds[n]) for n in bounds]
    ends += [] if most is None else [most]
    if not ends:
        b.asked[name] = f", or say the most there may be: {_how_to_bound(b)}"
        return None
    extent = ends[0]
    for other in ends[1:]:
        extent = minimum(extent, other)
    return Count(simplify(extent), True, named, bool(bounds))


def tell_count(b: "Builder", total: Val, count: Count) -> None:
    """The caller is told ``total`` [], the number of elements that there are in what has room for
    them; a fault where it is more than there is room for, or none."""
    b.counts.append((total, count.extent, b.node))
    b.guessed |= count.guess
    for tensor, axis in count.rows:
        b.rows[tensor] = (*b.rows.get(tensor, ()), Row(tensor, axis, len(b.counts) - 1))
    if count.limited:
        n = b.load(total, ())
        expect(b, [(n, maximum(minimum(n, count.extent), Const(0)))], "the data must give at most "
               f"the {count.extent} elements that there is room for"
               + (f" unless more is said ({_how_to_bound(b)})" if count.guess else "")
               + ", their number is")


def _how_to_bound(b: "Builder") -> str:
    """How to say the most elements that the current node may give."""
    name = (*b.node.origin, b.node.label)[0]
    return f"--bound {name!r}=1000 (bound={{{name!r}: 1000}})"


def rows_given(rows: Mapping[str, tuple[Row, ...]], body: Body, given: Sequence[str]
               ) -> dict[str, tuple[Row, ...]]:
    """The rows that a body sees: those around it, and those of ``given`` as its inputs'."""
    seen = {t: found for t, found in rows.items() if t not in body.inputs}
    for name, t in zip(body.inputs, given):
        if t in rows:
            seen[name] = tuple(replace(r, tensor=name) for r in rows[t])
    return seen


def rows_left(b: "Builder", body: Body, made: Sequence[str] | None) -> dict[str, tuple[Row, ...]]:
    """The rows of a body's outputs as those of ``made``; UnsupportedError where it is None and
    there are some."""
    found = [o for o in body.outputs if o in b.rows]
    if made is None and found:
        raise b.unsupported(
            f"a sub-graph whose result {shorten(found[0])!r} has as many elements as data says",
            "pad it to a fixed number of them inside (Pad, or Concat and Slice)")
    return {name: tuple(replace(r, tensor=name) for r in b.rows[o])
            for o, name in zip(body.outputs, made or ()) if o in b.rows and name}


def replace_by_room(b: "Builder", e: Expr) -> Expr | None:
    """An expression of numbers that data says with the most there may be in their place; None if
    other data is in it.  It need not be the most itself."""
    most = {b.load(total, ()): extent for total, extent, _ in b.counts}
    out = simplify(substitute(e, most))
    return None if reads_data(out) else out


def zero_behind(b: "Builder", count: Count, place: Expr, e: Expr) -> Expr:
    """``e``, zero at places behind the elements that there are."""
    if not count.room:
        return e
    return Where(compare("lt", place, b.load(b.counts[-1][0], ())), e, Const(
        False if e.dtype == "bool" else 0, e.dtype))


def clear_behind(b: "Builder", count: Count, v: Val, axis: int, tag: str = "", out: int = 0) -> Val:
    """``v``, zero along an axis behind the elements that there are."""
    return b.map(v.shape, lambda i: zero_behind(b, count, i[axis], b.at(v, i)), [v], tag, out)


def number_along(b: "Builder", rows: Iterable[Row], tensor: str, axis: int) -> Expr | None:
    """How many elements there are along an axis of a tensor, if it is one of ``rows``; else None:
    as many as its extent says."""
    return next((b.load(b.counts[r.start][0], ()) for r in rows
                 if (r.tensor, r.axis) == (tensor, axis)), None)


def place_among(given: Expr, n: Expr, extent: Expr, least: int = 0) -> Expr:
    """A place that data gives among ``n`` elements (at least ``least``), maybe counted from the
    last one; ``extent``, which is none, where it is none of them."""
    at = Where(compare("lt", given, Const(0)), given + n, given)
    outside = any_holds([compare("lt", at, Const(0)), compare("ge", at, maximum(n, Const(least)))])
    assert outside is not None, given
    return Where(outside, extent, at)


def expect_shape(b: "Builder", values: Sequence[ExprLike], declared: Shape, out: int = 0) -> None:
    """``expect`` for the extents ``values`` of output ``out``.  ModelError for another rank."""
    text = f"[{', '.join(map(str, declared))}]"
    if len(values) != len(declared):
        raise b.bad(f"{len(values)} extents for a result declared {text}")
    expect(b, zip(values, declared), f"the data must give the declared shape {text}, an extent is",
           out)


def _nth(values: Sequence[Expr], axes: Sequence[Axis]) -> Expr:
    """The value of the number that the one axis says; the only one without an axis."""
    out = values[-1]
    for k in range(len(values) - 2, -1, -1):
        out = Where(compare("eq", axes[0], Const(k)), values[k], out)
    return out
