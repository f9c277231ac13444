"""C text of integer lanes: loads and stores of 8, 16 and 32 bits, conversions from and to f32.

A vector of i32 has as many lanes as one of f32.
"""

from typing import TYPE_CHECKING

from aotc.emit.c.scalars import Scalars
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.dialect import Dialect
from aotc.ir.access import stride
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Binary, Cast, Const, Expr, Load, Var, children, loads
from aotc.ir.numbers.narrow import SHORT, is_lane_int, rounded_between
from aotc.ir.statements import Put

if TYPE_CHECKING:
    from aotc.emit.c.vectors import Vectors


def convert_to_float(block: "Vectors", e: Cast) -> str | None:
    """C vector of ``e``, a Cast to f32, in a Vectors block; None if its lanes have no integer
    form (it is gathered then)."""
    x = e.x
    if is_lane_int(x) or x.dtype in SHORT and is_lane_int(Cast("i32", x)):
        text: str = block.say.int_to_float(integers(block, x))
        return text
    return None


def integers(block: "Vectors", e: Expr) -> str:
    """C text of the i32 lanes of an ``is_lane_int`` expression or a Load of ``SHORT``."""
    say = block.say
    if isinstance(e, Var) and e in block.acc:
        return block.acc[e]
    if block.fixed(e) and (block.guard is None or not loads(e)):
        inner = Scalars(block.env, block.names, (e,))
        text = inner.text(e)
        block.lines += inner.lines
        return say.int_splat(text)
    if isinstance(e, Cast) and e.x.dtype == "f32":
        return _truncated(block, e, e.dtype)
    if isinstance(e, Cast):
        return integers(block, e.x)
    if isinstance(e, Binary):
        return say.int_arithmetic(e.op, integers(block, e.a), integers(block, e.b))
    assert isinstance(e, Load), e
    data = block.guard is not None or bool(loads(e.index[0]))
    step = None if data else stride(e.index[0], block.lane)
    if step is None or step != Const(1) and not say.facts.strided:
        return say.int_load("i32", block.gathered(e, "int32_t"))
    p = block.pointer(e.buffer, e.index[0])
    if step != Const(1):
        return say.int_load_apart(e.dtype, p, c_index(step, 13))
    return say.int_load_n(e.dtype, p, block.count) if block.count else say.int_load(e.dtype, p)


def _truncated(block: "Vectors", e: Cast, dtype: str) -> str:
    """C text of the i32 lanes of a Cast of f32, as far as ``dtype`` has them."""
    found = rounded_between(e.x) if block.say.facts.rounds and not (
        {e.x, *children(e.x)} & block.many) else None
    if found is None or not _holds(e.dtype, *found[2:]):
        text: str = block.say.int_from_float(dtype, block.text(e.x))
        return text
    x, zero, low, high = found
    rounded: str = block.say.int_rounded(block.text(x), zero, low, high)
    return rounded


def _holds(dtype: str, low: int, high: int) -> bool:
    """True if numbers from ``low`` to ``high`` are of an integer type that loses the upper bits of
    what is no number."""
    t = DTYPES[dtype]
    first = 0 if t.kind == "u" else -(1 << t.size * 8 - 1)
    return dtype in SHORT and first <= low and high < first + (1 << t.size * 8)


def stored_lanes(block: "Vectors", e: Expr) -> str:
    """C text of the i32 lanes whose low bits a put of ``e`` (``is_lane_value``) keeps."""
    if isinstance(e, Cast) and e.x.dtype == "f32":
        return _truncated(block, e, "i32")
    return integers(block, e)


def store(say: Dialect, p: Put, value: str, count: str, at: str) -> str:
    """C line that stores i32 lanes side by side in the put's dtype."""
    bits = width(p)
    return say.int_store_n(bits, at, value, count) if count else say.int_store(bits, at, value)


def width(p: Put) -> int:
    """Bits of what a put of integers stores."""
    return DTYPES[p.value.dtype].size * 8


__all__ = ["convert_to_float", "integers", "store", "stored_lanes", "width"]
