"""Factors of products that are bytes with a scale and a zero point, recognised from expressions."""

from dataclasses import dataclass, replace

from aotc.ir.category import factor_pairs
from aotc.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Where,
    axes_of,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.program import Compute, Program

_MOVES = 16  # reshapes and transposes between a tensor's quantised form and its product
RANGE = {"i8": (-128.0, 127.0), "u8": (0.0, 255.0)}


@dataclass(frozen=True)
class Quantised:
    """A factor ``f32(i32(load) - zero) * scale``, zero where ``guard`` (None: nowhere) is false.
    zero: an i32 Expr; scale: an f32 Expr, None for a factor that is an i32 already."""

    load: Load
    guard: Expr | None
    zero: Expr
    scale: Expr | None


def match_quantised(program: Program, e: Expr) -> Quantised | None:
    """The Quantised that a factor (a Load, or one with a zero fill) is, through moves; or None."""
    guard = None
    if isinstance(e, Where) and isinstance(e.b, Const) and e.b.value == 0:
        guard, e = e.cond, e.a
    for _ in range(_MOVES):
        step = program.producer.get(e.buffer) if isinstance(e, Load) else None
        if not isinstance(e, Load) or not isinstance(step, Compute) or step.fold != "none" or (
                len(step.outs) != 1):
            return None
        e = substitute(step.body, dict(zip(step.axes, e.index)))
        found = match_affine(program, e)
        if found is not None:
            return replace(found, guard=guard)
    return None


def match_affine(program: Program, e: Expr) -> Quantised | None:
    """``f32(i32(q) - zero) * scale`` or ``i32(q) - zero`` over an 8-bit Load q, as a Quantised."""
    scale = None
    if e.dtype == "f32":
        if not (isinstance(e, Binary) and e.op == "mul" and isinstance(e.a, Cast)):
            return None
        scale, e = replace_scalars(program, e.b), e.a.x
        if any(isinstance(n, (Cast, Where)) for n in walk(scale)):
            return None
    q: Expr = e
    zero: Expr = Const(0, "i32")
    if isinstance(e, Binary) and e.op == "sub" and e.dtype == "i32":
        q, zero = e.a, replace_scalars(program, e.b)
    if isinstance(q, Cast) and q.dtype == "i32":
        q = q.x
    if isinstance(q, Binary) and q.op == "sub" and isinstance(q.b, Const):  # an offset tensor
        zero, q = add_number(zero, q.b.value), q.a.x if isinstance(q.a, Cast) else q.a
    if not isinstance(q, Load) or q.dtype not in ("u8", "i8") or zero.dtype != "i32":
        return None
    return Quantised(q, None, zero, scale)


def add_number(zero: Expr, more: int) -> Expr:
    """A zero point plus a number."""
    if isinstance(zero, Const):
        return Const(zero.value + more, "i32")
    return zero + Const(more, "i32")


def match_two_computed(program: Program, c: Compute) -> tuple[Quantised, Quantised] | None:
    """(rows, columns) of a sum of products of two quantised tensors, neither constant, along one
    axis; columns are the factor whose own axis comes later in the result.  None if it is none."""
    if c.fold != "sum" or len(c.outs) != 1 or not (
            isinstance(c.body, Binary) and c.body.op == "mul"):
        return None
    read = [match_quantised(program, e) for e in (c.body.a, c.body.b)]
    both = [replace(q, load=_behind_moves(program, q.load)) for q in read if q is not None]
    if len(both) < 2 or (both[0].scale is None) != (both[1].scale is None) or any(
            q.load.buffer in program.consts for q in both):
        return None
    one, two = (replace(q.load, dtype="f32") for q in both)  # only which axes they hold matters
    outer = {a for q in both for e in (q.zero, q.scale) if e is not None for a in axes_of(e)}
    found = []
    for f in factor_pairs(c.axes, c.raxes, c.fold, Binary("mul", one, two)):
        x, w = both if f.b == two else both[::-1]
        if len(f.n) == len(f.k) == 1 and w.guard is None and f.k[0] not in outer:
            found.append((c.axes.index(f.n[0]), x, w))
    return max(found, key=lambda m: m[0])[1:] if found else None


def _behind_moves(program: Program, load: Load) -> Load:
    """The Load of what bytes were before they changed place."""
    for _ in range(_MOVES):
        step = program.producer.get(load.buffer)
        if not isinstance(step, Compute) or len(step.outs) != 1 or step.fold != "none" or (
                not isinstance(step.body, Load)):
            break
        moved = substitute(step.body, dict(zip(step.axes, load.index)))
        assert isinstance(moved, Load), step.out
        load = moved
    return load


def replace_scalars(program: Program, e: Expr) -> Expr:
    """``e`` with loads of constants that have one value only replaced by it, casts of such
    carried out."""
    def visit(n: Expr) -> Expr | None:
        array = program.consts.get(n.buffer) if isinstance(n, Load) else None
        if array is not None and array.size and (array == array.flat[0]).all():
            return Const(array.flat[0].item(), n.dtype)
        if isinstance(n, Cast) and isinstance(n.x, Const) and n.dtype in ("i32", "f32") and (
                n.x.dtype in ("u8", "i8")):
            return Const(n.x.value, n.dtype)
        return None
    return rewrite(e, visit)


def difference(q: Quantised) -> Expr:
    """The factor without its scale in f32: differences of 8-bit numbers are exact there."""
    e: Expr = Cast("f32", q.load)
    if not isinstance(q.zero, Const):
        e = e - Cast("f32", q.zero)
    elif q.zero.value != 0:
        e = e - Const(float(q.zero.value), "f32")
    return e


def match_saturation(e: Expr) -> Expr | None:
    """The float that an 8-bit expression clamps to its type's range; None for others."""
    if not isinstance(e, Cast) or e.dtype not in RANGE:
        return None
    low, high = (Const(v, "f32") for v in RANGE[e.dtype])
    match e.x:
        case Binary("min", Binary("max", x, a), b) if (a, b) == (low, high):
            return x
    return None


def saturate_float(dtype: str, e: Expr) -> Expr:
    """A float as the 8-bit number that is nearest to it in the type's range, cut off."""
    low, high = (Const(v, "f32") for v in RANGE[dtype])
    return Cast(dtype, Binary("min", Binary("max", e, low), high))


__all__ = ["RANGE", "Quantised", "match_affine", "match_quantised", "difference", "add_number",
           "match_saturation", "saturate_float", "replace_scalars", "match_two_computed"]
