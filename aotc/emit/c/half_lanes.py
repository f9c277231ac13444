"""C text of floats of 16 bits over vector lanes: converted at loads and stores; what only moves is
a vector whose lanes hold the 16 bits.  The functions are those of ``aotc_half.h``, and those that
convert bf16 of ``aotc_bf16.h``."""

from typing import TYPE_CHECKING

from aotc.emit.c.scalars import Scalars
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.dialect import Dialect
from aotc.emit.text.math_forms import sigmoid_argument
from aotc.ir.access import stride
from aotc.ir.dtypes import BF16, HALF, HALVES
from aotc.ir.expr import Cast, Const, Expr, Load, Unary, Where, loads, walk

if TYPE_CHECKING:
    from aotc.emit.c.vectors import Vectors

KIND = {HALF: "half", BF16: "bf16"}  # in the names of functions that convert


def widen_lanes(block: "Vectors", e: Cast) -> str:
    """C vector of f32 lanes of ``e``, a Cast of 16 bits, in a Vectors block."""
    x, kind = e.x, KIND[e.x.dtype]
    if isinstance(x, Where):  # a choice of conversions: loads convert at no cost
        return block.text(Where(x.cond, *(_as_float(b) for b in (x.a, x.b))))
    if isinstance(x, Cast) and x.x.dtype == "f32":
        return block.say.half_round(kind, block.text(x.x))
    at = None if x in block.known or x in block.many else _place(block, x)
    if at is None:
        return block.say.half_widen(kind, block.text(x))
    if block.count:
        return block.say.half_load_n(kind, at, block.count, block.fill)
    return block.say.half_load(kind, at)


def _as_float(e: Expr) -> Expr:
    return Const(float(e.value), "f32") if isinstance(e, Const) else Cast("f32", e)


def bits(block: "Vectors", e: Expr) -> str | None:
    """C vector of lanes that hold the bits of ``e``, an expression of 16 bits; None for a
    choice, which is one of vectors like any other."""
    if block.fixed(e) and (block.guard is None or not loads(e)):
        inner = Scalars(block.env, block.names, (e,))
        text = inner.text(e)
        block.lines += inner.lines
        return block.say.half_splat(text)
    if isinstance(e, Cast) and e.x.dtype == "f32":
        return block.say.half_narrow(KIND[e.dtype], block.text(e.x))
    if isinstance(e, Where):
        return None
    at = _place(block, e)
    if at is not None:
        return block.say.half_bits_n(at, block.count) if block.count else block.say.half_bits(at)
    if isinstance(e, Load) and block.say.facts.strided and block.guard is None and not any(
            isinstance(n, Load) for n in walk(e.index[0])):
        step = stride(e.index[0], block.lane)
        if step is not None:
            return block.say.half_bits_apart(block.pointer(e.buffer, e.index[0]),
                                             c_index(step, 13))
    return block.say.half_of(block.gathered(e, "uint32_t"))


def _place(block: "Vectors", e: Expr) -> str | None:
    """C text of the address of a Load whose lanes lie side by side; None for others."""
    if not isinstance(e, Load) or block.guard is not None or (
            stride(e.index[0], block.lane) != Const(1)) or any(
            isinstance(n, Load) and not block.fixed(n) for n in walk(e.index[0])):
        return None
    return block.pointer(e.buffer, e.index[0])


def put(block: "Vectors", value: Expr) -> tuple[str, bool]:
    """(C vector, True if it is of floats that the store converts) of what a store of 16 bits
    gets."""
    if isinstance(value, Cast) and value.x.dtype == "f32" and value not in block.many:
        return (_result(block, value.x) if value.dtype == HALF else block.text(value.x)), True
    return block.text(value), False


def _result(block: "Vectors", e: Expr) -> str:
    """C vector of floats that are rounded next: some functions need fewer digits for that."""
    if block.say.facts.forms and block.env["math"] == "fast" and not (
            e in block.many or e in block.known or block.fixed(e)):
        x = sigmoid_argument(e, block.many)
        if x is not None:
            return block.say.half_call("sigmoid", block.text(x))
        if isinstance(e, Unary) and e.op == "exp":
            return block.say.half_call("exp", block.text(e.x))
    return block.text(e)


def store(say: Dialect, dtype: str, at: str, value: tuple[str, bool], count: str) -> str:
    """C line that stores what ``put`` gave, lanes side by side."""
    (text, converts), kind = value, KIND[dtype]
    if converts:
        return say.half_store_n(kind, at, text, count) if count else say.half_store(kind, at, text)
    return say.half_put_n(at, text, count) if count else say.half_put(at, text)


def convert_to_bits(say: Dialect, dtype: str, value: tuple[str, bool]) -> str:
    """C vector of lanes of bits of what ``put`` gave."""
    return say.half_narrow(KIND[dtype], value[0]) if value[1] else value[0]


__all__ = ["HALVES", "KIND", "convert_to_bits", "bits", "put", "store", "widen_lanes"]
