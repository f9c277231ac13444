"""Which expressions of integer tensors have a form over f32-wide lanes."""

from aotc.ir.expr import Binary, Cast, Const, Load, Sym, Var

NARROW = ("u8", "i8", "i32")
_RING = ("add", "sub", "mul")


def is_lane_int(e):
    """True for an i32 of loads, variables, scalars and 8-bit loads, and floats converted to
    integers, joined by sums, differences and products."""
    if e.dtype != "i32":
        return False
    if isinstance(e, Binary):
        return e.op in _RING and is_lane_int(e.a) and is_lane_int(e.b)
    if isinstance(e, Cast) and e.x.dtype in NARROW[:2]:
        return isinstance(e.x, Load) or isinstance(e.x, Cast) and e.x.x.dtype == "f32"
    if isinstance(e, Cast):
        return e.x.dtype == "f32" or isinstance(e.x, (Sym, Const))
    return isinstance(e, (Load, Var, Const))


def is_lane_value(e):
    """True for what vector lanes can store: an f32, an f32 converted to 8 bits, an i32 of
    ``is_lane_int``."""
    if e.dtype == "f32":
        return True
    if e.dtype in NARROW[:2]:
        return isinstance(e, Cast) and e.x.dtype == "f32"
    return is_lane_int(e)


__all__ = ["NARROW", "is_lane_int", "is_lane_value"]
