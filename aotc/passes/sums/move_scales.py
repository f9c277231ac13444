"""Scales of both factors of a product move to one of them.

    sum(k) (q[m, k] * a) * (x[k, n] * b)    becomes    sum(k) (q[m, k] * (a * b)) * x[k, n]

Attention is often written so, with the root of its scale on queries and on keys.  Keys that are as
they come need no scaled copy, and a cache of them is read where it lies.  The factor with fewer
elements keeps the scale, the first one where that is not known.
"""

from dataclasses import replace
from math import prod

import numpy as np

from aotc.ir.expr import Binary, Const, Expr, Load
from aotc.ir.program import Compute, Program, update
from aotc.ir.simplify import upper


def move_scales(program: Program) -> Program:
    """The Program with one scaled factor, where products of f32 have two that nobody else
    reads."""
    changed: dict[str, Compute] = {}
    for step in program.steps:
        if isinstance(step, Compute):
            changed |= _moved(program, step)
    return program if not changed else update(program, steps=tuple(
        changed.get(s.outs[0], s) if isinstance(s, Compute) else s for s in program.steps))


def _moved(program: Program, c: Compute) -> dict[str, Compute]:
    """{map: what it becomes}, of the two that a product multiplies."""
    if c.fold != "sum" or not (isinstance(c.body, Binary) and c.body.op == "mul"):
        return {}
    first, second = (_scaled(program, e) for e in (c.body.a, c.body.b))
    if first is None or second is None or first[0] is second[0]:
        return {}
    if _elements(second[0]) < _elements(first[0]):
        first, second = second, first
    (kept, x, a), (bare, y, b) = first, second
    limits = np.finfo(np.float32)
    if not float(limits.tiny) <= abs(a * b) <= float(limits.max):
        return {}
    scale = float(np.float32(a * b))
    return {kept.out: replace(kept, body=Binary("mul", x, Const(scale, "f32"))),
            bare.out: replace(bare, body=y)}


def _scaled(program: Program, e: Expr) -> tuple[Compute, Expr, float] | None:
    """(a map that only one product reads, what it scales, by what) of a factor; None of others."""
    c = program.producer.get(e.buffer) if isinstance(e, Load) else None
    if not isinstance(c, Compute) or c.fold != "none" or len(c.outs) != 1 or (
            c.out in program.outputs or len(program.consumers[c.out]) != 1):
        return None
    match c.body:
        case Binary("mul", x, Const(value, "f32")):
            return c, x, float(value)
    return None


def _elements(c: Compute) -> float:
    """Of what a map makes; without end where that is not known."""
    extents = [upper(a.extent) for a in c.axes]
    return float("inf") if None in extents else float(prod(n for n in extents if n is not None))


__all__ = ["move_scales"]
