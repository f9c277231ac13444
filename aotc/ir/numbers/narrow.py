"""Which expressions of other types than f32 have a form over f32-wide lanes."""

from aotc.ir.dtypes import BF16, HALVES
from aotc.ir.expr import Binary, Cast, Const, Expr, Load, Sym, Unary, Var, Where
from aotc.ir.numbers.fixed_point import is_fixed
from aotc.ir.simplify import simplify

SHORT = ("u8", "i8", "u16", "i16")  # what lanes load and store, and convert floats to
FLOAT_LANES = ("f32", *HALVES)  # what sums of floats in lanes are stored as
_RING = ("add", "sub", "mul")


def widen_half(e: Expr) -> Expr:
    """The f32 that an f16 or bf16 is.  A bf16 is told by its bits: products of two that are
    converted are those of the CPU's instructions (``category.BF16_PRODUCT``), which lie in
    pairs."""
    return Unary("float", e) if e.dtype == BF16 else Cast("f32", e)


def stored_half(e: Expr) -> Expr | None:
    """The f16 or bf16 of which an expression is ``widen_half``; None of others."""
    if isinstance(e, Unary):
        return e.x if e.op == "float" and e.x.dtype == BF16 else None
    return e.x if isinstance(e, Cast) and e.dtype == "f32" and e.x.dtype == "f16" else None


def upper_half(e: Expr) -> Expr | None:
    """The u16 of which an expression is the float whose upper half it is, as a model's bf16 is
    read; None of others."""
    shifted = e.x if isinstance(e, Unary) and e.op == "float" else None
    if not isinstance(shifted, Binary) or shifted.op != "shl" or shifted.b != Const(16, "u32"):
        return None
    bits = shifted.a.x if isinstance(shifted.a, Cast) else None
    return bits if bits is not None and bits.dtype == "u16" else None


def bf16_bits(e: Expr) -> Expr:
    """The bits, a u16, of an f32 as bf16: to the nearest, ties to even; a NaN stays one."""
    bits = Unary("bits", e)
    upper = Binary("shr", bits, Const(16, "u32"))
    near = Binary("add", Binary("add", bits, Const(0x7FFF, "u32")),
                  Binary("and", upper, Const(1, "u32")))
    return Cast("u16", Where(Unary("isnan", e), Binary("or", upper, Const(0x40, "u32")),
                             Binary("shr", near, Const(16, "u32"))))


def rounded_to_bits(e: Expr) -> Expr | None:
    """The f32 of which an expression, simplified, is ``bf16_bits``; None of others."""
    lost = e.x.cond if isinstance(e, Cast) and isinstance(e.x, Where) else None
    x = lost.x if isinstance(lost, Unary) and lost.op == "isnan" else None
    return x if x is not None and x.dtype == "f32" and e == simplify(bf16_bits(x)) else None


def round_tf32(e: Expr) -> Expr:
    """An f32 as the tf32 that is nearest, halves away from zero: the 13 lowest bits are zeros."""
    bits = Unary("bits", e)
    near = Binary("and", Binary("add", bits, Const(0x1000, "u32")), Const(0xFFFFE000, "u32"))
    return Where(Unary("isnan", e), e, Unary("float", near))


def is_tf32(e: Expr) -> bool:
    """True for what ``round_tf32`` makes."""
    return isinstance(e, Where) and isinstance(e.cond, Unary) and e.cond.op == "isnan" and (
        e == round_tf32(e.cond.x))


def rounded_between(e: Expr) -> tuple[Expr, int, int, int] | None:
    """(x, zero, low, high) of an f32 that is round(x) + zero between two integers around 0 or on
    one side of it, as 8-bit numbers are made; None of others."""
    above = _with_whole(e, "min")
    below = above and _with_whole(above[0], "max")
    if not above or not below or below[1] > above[1]:
        return None
    x, zero = _with_whole(below[0], "add") or (below[0], 0)
    return (x.x, zero, below[1], above[1]) if isinstance(x, Unary) and x.op == "round" else None


def _with_whole(e: Expr, op: str) -> tuple[Expr, int] | None:
    """The operands of an operation whose second one is a constant integer of at most 16 bits."""
    if not isinstance(e, Binary) or e.op != op or not isinstance(e.b, Const):
        return None
    value = e.b.value
    return (e.a, int(value)) if abs(value) < 1 << 16 and value == int(value) else None


def strip_rounding(e: Expr) -> Expr:
    """What an expression that is rounded to halves, or to tf32, was."""
    half = stored_half(e)
    while half is not None and isinstance(half, Cast) and half.x.dtype == "f32":
        e, half = half.x, stored_half(half.x)
    return e.a if isinstance(e, Where) and is_tf32(e) else e


def is_lane_int(e: Expr) -> bool:
    """True for an i32 of loads, variables, scalars and loads of ``SHORT``, and floats converted
    to integers, joined by sums, differences and products."""
    if e.dtype != "i32":
        return False
    if isinstance(e, Binary):
        return e.op in _RING and is_lane_int(e.a) and is_lane_int(e.b)
    if isinstance(e, Cast) and e.x.dtype in SHORT:
        return isinstance(e.x, Load) or isinstance(e.x, Cast) and e.x.x.dtype == "f32"
    if isinstance(e, Cast):
        return e.x.dtype == "f32" or isinstance(e.x, (Sym, Const))
    return isinstance(e, (Load, Var, Const))


def is_lane_half(e: Expr) -> bool:
    """True for an f16 or bf16 that is an f32 converted, or loaded, or chosen from such."""
    if isinstance(e, Where):
        return is_lane_half(e.a) and is_lane_half(e.b)
    return e.dtype in HALVES and (isinstance(e, (Load, Const)) or (
        isinstance(e, Cast) and e.x.dtype == "f32"))


def is_lane_value(e: Expr) -> bool:
    """True for what vector lanes can store: an f32, 16 bits of ``is_lane_half``, an f32 converted
    to one of ``SHORT``, an i32 of ``is_lane_int``, a number that a multiplier and a shift made."""
    if e.dtype == "f32":
        return True
    if e.dtype in HALVES:
        return is_lane_half(e)
    if e.dtype in SHORT:
        return isinstance(e, Cast) and e.x.dtype == "f32" or is_fixed(e)
    return is_lane_int(e)


__all__ = ["FLOAT_LANES", "SHORT", "is_lane_half", "is_lane_int", "is_lane_value", "is_tf32",
           "bf16_bits", "round_tf32", "rounded_between", "rounded_to_bits", "stored_half",
           "upper_half", "widen_half"]
