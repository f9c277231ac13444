"""Range, of extents, constants and data."""

from dataclasses import replace

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import (
    bound_number,
    expect,
    replace_by_room,
    room,
    tell_count,
    zero_behind,
)
from aotc.frontend.building.known import follow_loads, whole_of
from aotc.frontend.building.rational import to_int
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.numeric.ops_math import quotient
from aotc.frontend.ranges import capacity, most_of
from aotc.ir.dtypes import INDEX, is_float
from aotc.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Unary,
    Where,
    binary,
    compare,
    int_of,
    loads,
    maximum,
)
from aotc.ir.simplify import simplify


@op("Range", since=11)
def range_op(node: Node, b: Builder) -> Result:
    start, limit, step = vals = [b.known(v) for v in b.inputs()]
    b.same_dtype(*vals)
    if not is_float(start.dtype) and not any(b.from_data(v) for v in vals):
        return _whole_range(b, *vals)
    found = None
    if is_float(start.dtype):
        found = _float_range(b, *vals) or _range_of_extents(b, *vals)
    found = found or _range_of_known_length(b, *vals)
    return _range_from_data(b, *vals) if found is None else found


def _whole_range(b: Builder, *vals: Val) -> Val:
    first, last, by = (b.ints(v)[0] for v in vals)
    if isinstance(by, Const) and by.value == 0:
        raise b.bad("Range with step 0")
    count = (quotient(last - first + by - 1, by) if not isinstance(by, Const) or by.value > 0
             else quotient(first - last - by - 1, simplify(0 - by)))
    count = simplify(maximum(count, Const(0)))
    return b.map((count,), lambda index: cast(vals[0].dtype, first + index[0] * by), vals)


def _range_of_extents(b: Builder, *vals: Val) -> Val | None:
    """A Range whose float bounds are extents; None if its length is no index expression."""
    if any(v.buffer for v in vals):
        return None
    first, last, by = (b.at(v, (Const(0),) * v.rank) for v in vals)
    count = to_int(Unary("ceil", (last - first) / by))
    if count is None:
        return None
    return b.map((simplify(maximum(count, Const(0))),),
                 lambda index: first + cast(first.dtype, index[0]) * by, vals)


def _range_of_known_length(b: Builder, *vals: Val) -> Val | None:
    """A Range that begins where data says, as many elements as extents say: Range(p, p + n); None
    if that is not what it is.  Floats round, so that their number is compared at run time."""
    first, last, by = (follow_loads(b, b.at(v, (Const(0),) * v.rank)) for v in vals)
    length = _added(first, last)
    if length is None or loads(length) or loads(by):
        return None
    if is_float(first.dtype):
        count = to_int(Unary("ceil", length / by))
    else:
        step = simplify(cast(INDEX, by))
        count = None if step == Const(0) else quotient(
            cast(INDEX, length) + step - 1, step) if isinstance(step, Const) and int_of(
            step) > 0 else None
    if count is None:
        return None
    n, start = simplify(maximum(count, Const(0))), b.at(vals[0], (Const(0),) * vals[0].rank)
    if is_float(first.dtype):
        steps = Unary("ceil", (b.at(vals[1], (Const(0),) * vals[1].rank) - start) / by)
        expect(b, [(Where(compare("le", steps, const(0, first.dtype)), Const(0),
                          cast(INDEX, steps)), n)],
               f"from a start that rounds there must be {n} elements, their number is")
    return b.map((n,), lambda index: start + cast(start.dtype, index[0]) * by, vals)


def _added(first: Expr, last: Expr) -> Expr | None:
    """What ``last`` has more than ``first``; None if that cannot be said."""
    if not is_float(first.dtype):
        return simplify(_whole(last) - _whole(first))
    if isinstance(last, Binary) and last.op == "add" and first in (last.a, last.b):
        return last.b if last.a == first else last.a
    return None


def _whole(e: Expr) -> Expr:
    """Integer arithmetic as that of indices: a sum that leaves its dtype has no elements anyway."""
    if isinstance(e, Cast) and not is_float(e.x.dtype) and e.x.dtype != "bool":
        return _whole(e.x)
    if isinstance(e, Binary) and e.op in ("add", "sub", "mul"):
        return binary(e.op, _whole(e.a), _whole(e.b))
    return cast(INDEX, e)


def _range_from_data(b: Builder, *vals: Val) -> Val:
    """A Range whose bounds are data: as long as declared, any other length is a fault; or with
    room for as many as its bound says.  In a sub-graph what it meets has an extent of its own: the
    largest of an input does without one."""
    dtype = vals[0].dtype
    first, last, by = (b.at(v, (Const(0),) * v.rank) for v in vals)
    found = room(b, [(0, 0)], _most_steps(b, first, last, by))
    if found is None and b.inner:
        found = room(b, [(0, 0)], capacity(b))
        found = found and replace(found, guess=True)
    n = found.extent if found else b.declared(rank=1)[0]
    if is_float(dtype):
        length, step = cast("f64", last) - cast("f64", first), cast("f64", by)
        steps, none = Unary("ceil", length / step), const(0, "f64")
        # what is no number fits no extent
        count: Expr = Where(compare("le", steps, none), Const(0), cast(INDEX, steps))
    else:
        low, high, step = (bound_number(cast(INDEX, e)) for e in (first, last, by))
        none, count = Const(0), maximum(Const(0) - (low - high) // step, Const(0))
    count = Where(compare("eq", step, none), Const(-1), count)
    if found is None:
        expect(b, [(count, n)], f"the data must give the declared {n} elements, their number is")
        return b.map((n,), lambda index: first + cast(dtype, index[0]) * by, vals)
    tell_count(b, b.compute((), count, tag="count"), replace(found, limited=True))
    if (first, by) == (const(0, dtype), const(1, dtype)):
        b.said[whole_of(follow_loads(b, last))] = len(b.counts) - 1
    return b.map((n,), lambda index: zero_behind(b, found, index[0], first + cast(
        dtype, index[0]) * by), vals)


def _most_steps(b: Builder, first: Expr, last: Expr, by: Expr) -> Expr | None:
    """Room for the steps up to a number that data says, if it is one of elements or has an end;
    None if it is another number."""
    if is_float(first.dtype) or not isinstance(by, Const) or by.value <= 0:
        return None
    span = most_of(b, simplify(cast(INDEX, last) - cast(INDEX, first)))
    if span is not None:
        return simplify((span + (by.value - 1)) // by.value)
    ends = replace_by_room(b, cast(INDEX, first)), replace_by_room(b, cast(INDEX, last))
    if ends[0] is None or ends[1] is None:
        return None
    return simplify(maximum((ends[1] - ends[0] + (by.value - 1)) // by.value, Const(0)))


def _float_range(b: Builder, *vals: Val) -> Val | None:
    """A Range whose float bounds are constants; None if they are not."""
    first, last, by = (b.scalar(v) for v in vals)
    dtype = vals[0].dtype
    if first is None or last is None or by is None:
        return None
    if not by or not np.isfinite([first, last, by]).all():
        raise b.bad(f"Range from {first} to {last} by {by}: give finite numbers and a step")
    count = max(int(np.ceil((last - first) / by)), 0)
    return b.map((Const(count),), lambda index: const(first, dtype)
                 + cast(dtype, index[0]) * const(by, dtype), [vals[0]])
