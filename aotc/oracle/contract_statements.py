"""What the Contract of a block of threads computes, as plain statements: its row's template is one
loop of the whole block, with barriers of its own."""

from aotc.ir.category import zero_outside
from aotc.ir.expr import Expr, Load, as_expr
from aotc.ir.kernel.plan_stages import Contract, Operand
from aotc.ir.simplify import simplify
from aotc.ir.statements import Accumulate, Body, For, Range, Start, Store


def contract_statements(c: Contract) -> Body:
    """Every row and column of a Contract: its sum, then its stores."""
    a, b = (_element(c, o) for o in (c.a, c.b))
    inner = _loops((*c.taps, c.k), (Accumulate("sum", ((c.acc, a * b),)),))
    return _loops((*c.outer, *c.m, c.n), (Start(c.acc, "sum"), *inner, Store(c.puts)))


def _loops(ranges: tuple[Range, ...], body: Body) -> Body:
    for r in reversed(ranges):
        body = (For(r.axis, r.lo, r.hi, body),)
    return body


def _element(c: Contract, o: Operand) -> Expr:
    if o.mode == "packed":
        return o.packed
    k, n = c.k.axis, c.n.axis
    if o.mode == "rows":
        at = o.offset + k * o.stride
    elif o.mode == "direct":
        at = o.offset + k * o.stride + n
    else:
        flat = as_expr(0)
        for r in (*c.taps, c.k):
            flat = flat * r.axis.extent + r.axis
        nr = c.micro.nr
        at = o.offset + flat * nr + n % nr
    return zero_outside(Load(o.buffer, (simplify(at),), "f32"), o.guard)


__all__ = ["contract_statements"]
