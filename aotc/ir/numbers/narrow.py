"""Which expressions of other types than f32 have a form over f32-wide lanes."""

from aotc.ir.dtypes import BF16, HALVES
from aotc.ir.expr import Binary, Cast, Const, Expr, Load, Sym, Unary, Var, Where

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


def round_tf32(e: Expr) -> Expr:
    """An f32 as the tf32 that is nearest, halves away from zero: the 13 lowest bits are zeros."""
    bits = Unary("bits", e)
    near = Binary("and", Binary("add", bits, Const(0x1000, "u32")), Const(0xFFFFE000, "u32"))
    return Where(Unary("isnan", e), e, Unary("float", near))


def is_tf32(e: Expr) -> bool:
    """True for what ``round_tf32`` makes."""
    return isinstance(e, Where) and isinstance(e.cond, Unary) and e.cond.op == "isnan" and (
        e == round_tf32(e.cond.x))


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
    to one of ``SHORT``, an i32 of ``is_lane_int``."""
    if e.dtype == "f32":
        return True
    if e.dtype in HALVES:
        return is_lane_half(e)
    if e.dtype in SHORT:
        return isinstance(e, Cast) and e.x.dtype == "f32"
    return is_lane_int(e)


__all__ = ["FLOAT_LANES", "SHORT", "is_lane_half", "is_lane_int", "is_lane_value", "is_tf32",
           "round_tf32", "stored_half", "widen_half"]
