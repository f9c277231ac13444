"""Integers times a fraction in integers: a multiplier of 32 bits and a shift.

    rescale(x, m, s) = (x * m + 2**(s - 1)) >> s        to the nearest, halves up
"""

from aotc.ir.expr import Binary, Cast, Const, Expr

LEAST_SHIFT, MOST_SHIFT = 31, 62  # with a multiplier below 2**31 the result has 32 bits


def rescale(x: Expr, multiplier: Expr, shift: int) -> Expr:
    """``x * multiplier / 2**shift`` of i32, rounded, as an i32."""
    product = Binary("mul", Cast("i64", x), Cast("i64", multiplier))
    half = Const(1 << (shift - 1), "i64")
    return Cast("i32", Binary("shr", Binary("add", product, half), Const(shift, "i64")))


def match_rescaled(e: Expr) -> tuple[Expr, Expr, int] | None:
    """(x, multiplier, shift) of what ``rescale`` makes; None of others."""
    match e:
        case Cast("i32", Binary("shr", Binary("add", Binary(
                "mul", Cast("i64", x), Cast("i64", m)), Const()), Const(shift))):
            if x.dtype == m.dtype == "i32" and e == rescale(x, m, shift) and (
                    LEAST_SHIFT <= shift <= MOST_SHIFT):
                return x, m, shift
    return None


def shift_down(x: Expr, shift: int) -> Expr:
    """``x / 2**shift`` of an i32, rounded down, as an i32."""
    return Cast("i32", Binary("shr", Cast("i64", x), Const(shift, "i64")))


def match_shifted(e: Expr) -> tuple[Expr, int] | None:
    """(x, shift) of what ``shift_down`` makes; None of others."""
    match e:
        case Cast("i32", Binary("shr", Cast("i64", x), Const(shift))) if x.dtype == "i32" and (
                0 < shift < 32):
            return x, shift
    return None


def is_fixed(e: Expr) -> bool:
    """True for an 8-bit number of ``rescale`` or ``shift_down``, with a zero point, cut off."""
    match e:
        case Cast(dtype, Binary("min", Binary("max", x, Const()), Const())) if x.dtype == "i32":
            whole = x.a if isinstance(x, Binary) and isinstance(x.b, Const) else x
            return dtype in ("u8", "i8") and (
                match_rescaled(whole) is not None or match_shifted(whole) is not None)
    return False


__all__ = ["LEAST_SHIFT", "MOST_SHIFT", "is_fixed", "match_rescaled", "match_shifted", "rescale",
           "shift_down"]
