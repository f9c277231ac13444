"""Maps that only scale 8-bit tensors are done where they are read, Program -> Program."""

from dataclasses import replace

from aotc.ir.category import factor_pairs
from aotc.ir.expr import Cast, Const, Expr, Load, Where, rewrite, substitute
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, update
from aotc.passes.quantised.factors import RANGE, difference, match_affine


def inline_dequantised(program: Program) -> Program:
    """Program in which computes that only scale an 8-bit tensor are done where they are read: the
    tensor in memory stays 8 bits.  Sums of float products keep their operands."""
    ready: dict[str, Compute] = {}
    steps: list[Step] = []
    buffers = dict(program.buffers)
    for step in program.steps:
        if not isinstance(step, Compute):
            steps.append(step)
            continue
        if not factor_pairs(step.axes, step.raxes, step.fold, step.body):
            def visit(n: Expr) -> Expr | None:
                if isinstance(n, Load) and n.buffer in ready:
                    p = ready[n.buffer]
                    return substitute(p.body, dict(zip(p.axes, n.index)))
                return None
            step = replace(step, body=rewrite(step.body, visit))
        steps += _largest(step, buffers)
        found = match_affine(program, step.body) if step.fold == "none" else None
        if found is not None and found.scale is not None and len(step.outs) == 1 and (
                step.out not in program.results):
            ready[step.out] = replace(step, body=difference(found) * found.scale)
    return update(program, steps=tuple(steps), buffers=buffers)


def _largest(step: Compute, buffers: dict[str, Buffer]) -> list[Compute]:
    """The step; a largest or smallest 8-bit value of loads is found among floats, which have vector
    forms, and converted back: exact."""
    some = all(isinstance(r.extent, Const) and r.extent.value > 0 for r in step.raxes)
    body = _float_lanes(step.body) if step.fold in ("max", "min") and some else None
    if body is None or len(step.outs) != 1:
        return [step]
    name = free_name(buffers, f"{step.out}_float")
    buffers[name] = Buffer(name, tuple(a.extent for a in step.axes), "f32")
    return [replace(step, outs=(name,), body=body),
            replace(step, raxes=(), fold="none",
                    body=Cast(step.body.dtype, Load(name, step.axes, "f32")))]


def _float_lanes(e: Expr) -> Expr | None:
    """An 8-bit expression of loads, choices and constants as the same of f32; None for others."""
    if e.dtype not in RANGE:
        return None
    if isinstance(e, Const):
        return Const(float(e.value), "f32")
    if isinstance(e, Load):
        return Cast("f32", e)
    if not isinstance(e, Where):
        return None
    a, b = _float_lanes(e.a), _float_lanes(e.b)
    return None if a is None or b is None else Where(e.cond, a, b)


__all__ = ["inline_dequantised"]
