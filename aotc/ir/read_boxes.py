"""The one analysis of reads: which part of its inputs a box of a compute needs.

    interval(expr, ranges)                  lowest and highest value of an index expression
    read_intervals(compute, ranges, shape)  per buffer and dimension, first and last index
    boxes_read(exprs, ranges, shape)        the same of expressions, with a bound of the extent

Welder's Propagate, halo sizes, redundant edges, unfold and padding all rest on these.  Box
bounds are expressions, so one analysis serves every tile of a kernel.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Shape,
    Sym,
    Unary,
    Where,
    children,
    keep_result,
    leaves,
    maximum,
    minimum,
)
from aotc.ir.program import Compute
from aotc.ir.simplify import are_equal, lower, simplify, to_poly, upper

Ranges = Mapping[Axis, tuple[Expr, Expr]]  # (first, last), or (first, extent) of a box
ShapeOf = Callable[[str], Shape]  # of a buffer
Facts = tuple[Expr, ...]  # index expressions that are >= 0
Bound = tuple[Expr, Expr, Expr]  # (first, last, width)
Ends = tuple[Expr, Expr, Expr, tuple[Expr, Expr] | None]  # (first, last, width, raw)
_FLIP = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def interval(expr: Expr, ranges: Ranges) -> tuple[Expr, Expr] | tuple[None, None]:
    """(lowest, highest) value of an index expression, both inclusive, as expressions.

    ranges: {Axis: (lo, last)} inclusive; axes not named run over their whole extent.  Exact for
    affine expressions, a safe bound for floor division and modulo; (None, None) where the value
    depends on data, which a ``Var`` (a sum that a loop has just made) is too.
    """
    found = _bounds(expr, ranges)
    return (None, None) if found is None else found[:2]


def read_intervals(compute: Compute, ranges: Ranges,
                   shape: ShapeOf) -> dict[str, tuple[tuple[Expr, Expr], ...]]:
    """{buffer: ((first, last), ...)} read by the points of ``ranges``, inclusive.

    ranges: {Axis: (lo, last)} as for ``interval``; shape: buffer name -> its shape.  Both ends
    are clamped to the buffer and tightened by the conditions of enclosing Wheres; ``last`` may
    come out below ``first``: then nothing is read.  Several loads of a buffer give one box.
    """
    return {b: tuple((lo, last) for lo, last, *_ in dims)
            for b, dims in _read(compute, ranges, shape).items()}


def boxes_read(exprs: Iterable[Expr], ranges: Ranges,
               shape: ShapeOf) -> dict[str, tuple[Bound, ...]]:
    """``read_intervals`` of expressions with logical indices instead of a compute's, and of every
    dimension a bound of ``last - first`` that holds no tile origin, where one is known."""
    return {b: tuple((lo, last, width) for lo, last, width, _ in dims)
            for b, dims in _read_by(exprs, ranges, shape).items()}


def reads_once(compute: Compute, buffer: str) -> bool:
    """True if no element of ``buffer`` is read at two points of a map: one Load, every index an
    axis of its own (plus a constant) or a constant, all other axes held at one value by the
    conditions it happens under.  So a concatenation reads its pieces."""
    found = _loads_of(compute.body).get(buffer, ())
    if compute.fold != "none" or len(found) != 1:
        return False
    (load, known), = found
    moved = [a for i in load.index for a in compute.axes if _fixed(simplify(i - a))]
    if len(moved) + sum(map(_fixed, load.index)) != len(load.index):
        return False
    held = (_tightened(a, known, {}, a.extent)[:2] for a in compute.axes if a not in moved)
    return len(set(moved)) == len(moved) and all(are_equal(lo, last) for lo, last in held)


def extent_bound(lo: Expr, last: Expr) -> int | None:
    """Largest possible number of values between two bounds, an integer; None if unbounded."""
    return upper(simplify(last - lo + 1))


# ---------------------------------------------------------------- loads under their guards

def _read(compute: Compute, ranges: Ranges, shape: ShapeOf) -> dict[str, list[Ends]]:
    """{buffer: [(first, last, width, raw)]}: clamped ends, width >= last - first without tile
    origins."""
    return _read_by((compute.body,), ranges, shape)


def _read_by(exprs: Iterable[Expr], ranges: Ranges, shape: ShapeOf) -> dict[str, list[Ends]]:
    """``_read`` of expressions."""
    found: dict[str, list[Ends]] = {}
    for load, known in (x for e in exprs for x in guarded_loads(e, ())):
        dims = [_tightened(i, known, ranges, simplify(extent))
                for i, extent in zip(load.index, shape(load.buffer))]
        old = found.get(load.buffer)
        found[load.buffer] = dims if old is None else [
            _union(x, y, extent) for x, y, extent in zip(old, dims, shape(load.buffer))]
    return found


@keep_result
def _loads_of(e: Expr) -> dict[str, list[tuple[Load, Facts]]]:
    """{buffer: [(Load, conditions under which it happens)]} of an expression."""
    found: dict[str, list[tuple[Load, Facts]]] = {}
    for load, known in dict.fromkeys(guarded_loads(e, ())):
        found.setdefault(load.buffer, []).append((load, known))
    return found


def guarded_loads(e: Expr, known: Facts, seen: dict[tuple[object, object], Facts] | None = None
                  ) -> Iterator[tuple[Load, Facts]]:
    """(Load, conditions under which it happens) for every Load of ``e``, also inside indices.
    A condition is an index expression that is >= 0.  seen: nodes with the conditions they were
    met under, by identity, and the tuples of conditions themselves: a concatenation of hundreds has
    hundreds of them, each longer by one than that before."""
    seen = {} if seen is None else seen
    if (e, id(known)) in seen:
        return
    seen[e, id(known)] = known  # holding it keeps its id its own
    if isinstance(e, Load):
        yield e, known
    if isinstance(e, Where):
        yield from guarded_loads(e.cond, known, seen)
        for branch, holds in ((e.a, True), (e.b, False)):
            facts = conditions(e.cond, holds)
            inner = seen.setdefault((id(known), facts), known + facts)
            yield from guarded_loads(branch, inner, seen)
        return
    for k in children(e):
        yield from guarded_loads(k, known, seen)


def conditions(cond: Expr, holds: bool) -> Facts:
    """Index expressions that are >= 0 if ``cond`` is ``holds``; conditions that are no
    conjunction of index comparisons give none."""
    if isinstance(cond, Unary) and cond.op == "not":
        return conditions(cond.x, not holds)
    if not isinstance(cond, Binary):
        return ()
    if cond.op == ("and" if holds else "or") and cond.dtype == "bool":
        return conditions(cond.a, holds) + conditions(cond.b, holds)
    if cond.op not in _FLIP or cond.a.dtype != "i64":
        return ()
    op, a, b = cond.op if holds else _FLIP[cond.op], cond.a, cond.b
    return {"ge": (a - b,), "gt": (a - b - 1,), "le": (b - a,), "lt": (b - a - 1,),
            "eq": (a - b, b - a), "ne": ()}[op]


def _tightened(index: Expr, known: Facts, ranges: Ranges, extent: Expr) -> Ends:
    """(first, last, width, raw) of one index: clamped to 0..extent-1 and to what is known.
    raw: (lo, width) before clamping, whose difference to a neighbour's is simple."""
    first: Expr = Const(0)
    end = simplify(extent - 1)
    lo, last, width = _bounds(index, ranges) or (first, end, end)
    raw = (lo, width)
    for fact in known:
        below, above = simplify(index - fact), simplify(index + fact)
        if _fixed(below):
            first = maximum(first, below)
        if _fixed(above):
            end = minimum(end, above)
    inside = simplify(end - first)
    lo, last = simplify(maximum(lo, first)), simplify(minimum(last, end))
    for closer in (simplify(last - lo), inside):
        if _fixed(closer) and proves_le(closer, width):
            width = closer
    return lo, last, width, raw


def _union(x: Ends, y: Ends, extent: Expr) -> Ends:
    lo, last = simplify(minimum(x[0], y[0])), simplify(maximum(x[1], y[1]))
    known, raw = [simplify(last - lo)], None
    if x[3] and y[3]:
        (a, m), (b, n) = x[3], y[3]
        base = simplify(minimum(a, b))
        raw = (base, simplify(maximum(a + m, b + n) - base))
        known.append(raw[1])
    width = next((w for w in known if _fixed(w)), simplify(extent - 1))
    return lo, last, width, raw if raw and _fixed(raw[1]) else None


def proves_le(a: Expr, b: Expr) -> bool:
    """True if a <= b is proved over all ranges."""
    least = lower(simplify(b - a))
    return least is not None and least >= 0


def _fixed(e: Expr) -> bool:
    """No axis, tile origin or datum occurs: the value is the same for every tile."""
    return all(isinstance(n, Sym) for n in leaves(e))


# ---------------------------------------------------------------- interval arithmetic

def _bounds(expr: Expr, ranges: Ranges) -> Bound | None:
    """(lo, last, width): inclusive ends, and a bound of last - lo that holds no tile origin
    where one is known, else last - lo itself.  None where the value depends on data."""
    low: Expr = Const(0)
    high: Expr = Const(0)
    width: Expr = Const(0)
    for mono, c in to_poly(expr).items():
        found = _product([_atom(a, ranges) for a in mono])
        if found is None:
            return None
        lo, last, w = found
        if c < 0:
            lo, last = last, lo
        low, high, width = low + lo * c, high + last * c, width + w * abs(c)
    low, high, width = simplify(low), simplify(high), simplify(width)
    exact = simplify(high - low)
    better = _fixed(exact) and (not _fixed(width) or proves_le(exact, width))
    return low, high, exact if better else width


def _product(triples: Iterable[Bound | None]) -> Bound | None:
    """Bounds of a product of atoms; axes may be anything, points keep the width simple."""
    out: Bound = (Const(1), Const(1), Const(0))
    for x in triples:
        if x is None:
            return None
        out = _times(out, x)
    return out


def _not_negative(e: Expr) -> bool:
    least = lower(e)
    return least is not None and least >= 0


def _times(x: Bound, y: Bound) -> Bound:
    if x[0] == x[1] == Const(1):
        return y
    for p, q in ((x, y), (y, x)):
        if p[0] == p[1] and _not_negative(p[0]):
            return p[0] * q[0], p[0] * q[1], p[0] * q[2]
    if _not_negative(x[0]) and _not_negative(y[0]):
        lo, last = x[0] * y[0], x[1] * y[1]
    else:
        ends = [simplify(a * b) for a in x[:2] for b in y[:2]]
        lo, last = ends[0], ends[0]
        for e in ends[1:]:
            lo, last = minimum(lo, e), maximum(last, e)
    return lo, last, simplify(last - lo)


def _atom(a: Expr, ranges: Ranges) -> Bound | None:
    if isinstance(a, Axis):
        lo, last = ranges.get(a) or (Const(0), simplify(a.extent - 1))
        return lo, last, simplify(last - lo)
    if isinstance(a, Sym):
        return a, a, Const(0)
    if isinstance(a, Cast) and a.x.dtype == "bool":
        return Const(0), Const(1), Const(1)
    if isinstance(a, Where):
        x, y = _bounds(a.a, ranges), _bounds(a.b, ranges)
        if x is None or y is None:
            return None
        lo, last = minimum(x[0], y[0]), maximum(x[1], y[1])
        return lo, last, simplify(last - lo)
    return _binary(a, ranges) if isinstance(a, Binary) else None


def _binary(a: Binary, ranges: Ranges) -> Bound | None:
    """Bounds of min, max, checked, floor division and modulo."""
    x, y = _bounds(a.a, ranges), _bounds(a.b, ranges)
    if a.op == "checked" and y is not None:
        end = simplify(y[1] - 1)
        if x is None:
            return Const(0), end, end
        return maximum(x[0], Const(0)), minimum(x[1], end), x[2]
    if x is None or y is None:
        return None
    if a.op in ("min", "max"):
        pick = minimum if a.op == "min" else maximum
        return pick(x[0], y[0]), pick(x[1], y[1]), simplify(maximum(x[2], y[2]))
    least = lower(y[0])
    if a.op not in ("floordiv", "mod") or y[0] != y[1] or least is None or least < 1:
        return None
    d = y[0]
    first, last = simplify(x[0] // d), simplify(x[1] // d)
    if a.op == "floordiv":
        return first, last, simplify((x[2] + d - 1) // d)
    if are_equal(first, last):
        return simplify(x[0] % d), simplify(x[1] % d), x[2]
    return Const(0), simplify(d - 1), simplify(d - 1)


__all__ = ["boxes_read", "interval", "read_intervals", "extent_bound", "proves_le"]
