"""How tensors of 8 bits are stored: as u8 or as i8, whichever the products that read them take,
Program -> Program."""

from collections.abc import Collection
from dataclasses import replace

from aotc.ir.expr import Binary, Cast, Const, Expr, Load, Unary, rewrite
from aotc.ir.program import Compute, Program, update
from aotc.passes.inline import is_move
from aotc.passes.quantised.factors import RANGE, match_saturation, replace_scalars, saturate_float

_SHIFT = {"u8": 128, "i8": -128}  # what the other type's numbers are stored plus


def stored_bytes(program: Program, signed: Collection[str]) -> Program:
    """Program in which 8-bit tensors made by rounding are i8 if they are ``signed``, else u8, and
    what only moves them, too: one of the other type is stored 128 larger, or smaller, and read so,
    so that dot products of few types serve all."""
    made: dict[str, str] = {}  # what changes: its new type
    for s in program.steps:
        if not isinstance(s, Compute) or len(s.outs) != 1 or s.out in program.results or not all(
                isinstance(r, Compute) for r in program.consumers.get(s.out, ())):
            continue
        if is_move(s) and isinstance(s.body, Load) and s.body.buffer in made:
            made[s.out] = made[s.body.buffer]
        dtype = "i8" if s.out in signed else "u8"
        if s.fold == "none" and s.body.dtype in RANGE and s.body.dtype != dtype and (
                _rounded(s.body) is not None):
            made[s.out] = dtype
    if not made:
        return program

    def visit(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in made:
            dtype = made[n.buffer]
            stored = Cast("i32", Load(n.buffer, n.index, dtype))
            return Cast(n.dtype, stored - Const(_SHIFT[dtype], "i32"))
        if isinstance(n, Cast) and n.dtype == "i32" and isinstance(n.x, Cast) and (
                n.x.dtype in RANGE and isinstance(n.x.x, Binary) and _is_offset(n.x.x, made)):
            return n.x.x
        return None

    def changed(s: Compute) -> Compute:
        if s.out in made and isinstance(s.body, Load):
            return replace(s, body=replace(s.body, dtype=made[s.out]))
        body = rewrite(s.body, visit)
        inner = _rounded(body) if s.out in made else None
        if inner is not None:
            body = saturate_float(made[s.out], _moved(program, inner, _SHIFT[made[s.out]]))
        return replace(s, body=body) if body != s.body else s

    buffers = {n: replace(b, dtype=made.get(n, b.dtype)) for n, b in program.buffers.items()}
    return update(program, buffers=buffers, steps=tuple(
        changed(s) if isinstance(s, Compute) else s for s in program.steps))


def _is_offset(e: Binary, made: Collection[str]) -> bool:
    return e.op == "sub" and isinstance(e.a, Cast) and isinstance(e.a.x, Load) and (
        e.a.x.buffer in made)


def _rounded(e: Expr) -> Expr | None:
    """The rounded float, with a zero point or without, that an 8-bit expression clamps to its
    type's range; None for others: what is cut off instead is no other number 128 further on."""
    inner = match_saturation(e)
    whole = inner.a if isinstance(inner, Binary) and inner.op == "add" else inner
    return inner if isinstance(whole, Unary) and whole.op == "round" else None


def _moved(program: Program, e: Expr, by: int) -> Expr:
    """A rounded float plus a constant, which its zero point takes in."""
    shift = Const(float(by), "f32")
    if not isinstance(e, Binary) or e.op != "add" or not isinstance(e.a, Unary):
        return Binary("add", e, shift)
    zero = replace_scalars(program, e.b)
    zero = Const(zero.value + shift.value, "f32") if isinstance(zero, Const) else zero + shift
    return e.a if zero == Const(0.0, "f32") else Binary("add", e.a, zero)


__all__ = ["stored_bytes"]
