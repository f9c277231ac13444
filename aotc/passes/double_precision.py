"""A Program in double precision: the exact reference that roundings are measured against."""

from dataclasses import replace

from aotc.ir.expr import Cast, Const, Expr, Load, Var, rewrite
from aotc.ir.program import Compute, Fold, Program
from aotc.passes.regions import apply_in_bodies

NARROW, WIDE = "f32", "f64"


def promote_to_f64(program: Program) -> Program:
    """The Program with f64 in place of every f32: buffers, constants, arithmetic, in bodies of
    regions too.  Inputs and outputs keep their names; a conversion to f32 on the way rounds no
    more."""
    return apply_in_bodies(_promoted, program)


def _promoted(program: Program) -> Program:
    memo: dict[Expr, Expr] = {}
    buffers = {n: replace(b, dtype=_wide(b.dtype)) for n, b in program.buffers.items()}
    consts = {n: a.astype("f8") if program.dtype(n) == NARROW else a
              for n, a in program.consts.items()}
    steps = tuple(_step(s, memo) if isinstance(s, Compute) else s for s in program.steps)
    return replace(program, buffers=buffers, consts=consts, steps=steps)


def _wide(dtype: str) -> str:
    return WIDE if dtype == NARROW else dtype


def _step(step: Compute, memo: dict[Expr, Expr]) -> Compute:
    fold = step.fold
    if isinstance(fold, Fold):
        fold = replace(fold, states=tuple((n, _wide(d)) for n, d in fold.states),
                       init=tuple(_expr(e, memo) for e in fold.init),
                       update=tuple(_expr(e, memo) for e in fold.update))
    return replace(step, body=_expr(step.body, memo), fold=fold, acc=_wide(step.acc))


def _expr(e: Expr, memo: dict[Expr, Expr]) -> Expr:
    return rewrite(e, _node, memo)


def _node(e: Expr) -> Expr | None:
    if e.dtype != NARROW:
        return None
    if isinstance(e, Const):
        return Const(e.value, WIDE)
    if isinstance(e, Load):
        return Load(e.buffer, e.index, WIDE)
    if isinstance(e, Cast):
        return Cast(WIDE, e.x)
    return Var(e.name, WIDE) if isinstance(e, Var) else None
