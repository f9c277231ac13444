"""Rounding to 8 bits straight from integers, Program -> Program.

    u8(clamp(round((f32(t) * s + b) / q) + z)) = u8(clamp(round(f32(t + b') * (s / q)) + z))

where the bias ``b`` is a whole multiple ``b'`` of the constant scale ``s`` (quantisers store biases
so), and a sum of several scaled integers, such as a residual connection, becomes

    u8(clamp(round(f32(x) * (sx / q) + (f32(y) * (sy / q) + c))))

with everything constant in ``c``.  One product replaces a division.  Results differ from the
division by at most one quantum, where the quotient lies within rounding errors of a tie.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, Unary, substitute
from aotc.ir.program import Compute, Program, free_name, make_const, update
from aotc.passes.quantised.factors import RANGE, match_saturation, saturate_float

_CHAIN = 8  # maps between an integer and its rounding
_WHOLE = 1e-6  # relative distance of a bias from a multiple of the scale

Constant = Const | Load  # one value, or one along an axis
Term = tuple[Cast, Constant]  # (an integer as f32, its scale)
Offset = tuple[int, Constant, Constant]  # (sign, its two factors)


@dataclass(frozen=True)
class Rounding:
    """``dtype(clamp(round(x / quantum) + zero))``; positive: x is max(x, 0)."""

    dtype: str
    x: Expr
    quantum: float
    zero: float
    positive: bool = False


def requantise(program: Program, chains: bool = False) -> Program:
    """Program with every rounding of scaled integers to 8 bits in the forms above.  chains: also of
    integers that several constants scale one after the other."""
    work = _Work(program, chains)
    steps = tuple(work.step(s) if isinstance(s, Compute) and s.fold == "none" else s
                  for s in program.steps)
    return update(program, steps=steps, buffers=work.buffers, consts=work.consts)


def match_rounding(e: Expr) -> Rounding | None:
    """The Rounding that an expression is; None if it is none."""
    y, zero = match_saturation(e), 0.0
    if isinstance(y, Binary) and y.op == "add" and isinstance(y.b, Const):
        zero, y = y.b.value, y.a
    if not (isinstance(y, Unary) and y.op == "round" and isinstance(y.x, Binary)
            and y.x.op == "div" and isinstance(y.x.b, Const) and y.x.b.value > 0):
        return None
    return Rounding(e.dtype, y.x.a, y.x.b.value, zero)


def expand_maps(program: Program, e: Expr) -> Expr:
    """``e`` with f32 maps that it loads written out, outermost first."""
    for _ in range(_CHAIN):
        p = program.producer.get(e.buffer) if isinstance(e, Load) else None
        if not isinstance(e, Load) or not isinstance(p, Compute) or p.fold != "none" or (
                len(p.outs) != 1 or e.dtype != "f32"):
            return e
        e = substitute(p.body, dict(zip(p.axes, e.index)))
    return e


class _Work:
    """The pass in progress: constants with those that it adds."""

    def __init__(self, program: Program, chains: bool) -> None:
        self.program, self.chains = program, chains
        self.buffers, self.consts = dict(program.buffers), dict(program.consts)

    def step(self, s: Compute) -> Compute:
        r = match_rounding(s.body)
        if r is None:
            return s
        x = expand_maps(self.program, r.x)
        if isinstance(x, Binary) and x.op == "max" and x.b == Const(0.0, "f32"):
            r, x = replace(r, positive=True), expand_maps(self.program, x.a)
        terms: list[Term] = []
        offsets: list[Offset] = []
        if not self.linear(x, Const(1.0, "f32"), terms, offsets) or not terms:
            return s
        value = self.one(s, r, *terms[0], offsets) if len(terms) == 1 else None
        if value is None:
            value = self.several(s, r, terms, offsets)
        return s if value is None else replace(s, body=value)

    def linear(self, e: Expr, scale: Constant, terms: list[Term], offsets: list[Offset]) -> bool:
        """Collect ``e * scale`` as (integer as f32, scale) terms and constant offsets; False if it
        is something else."""
        e = expand_maps(self.program, e)
        if self.constant(e):
            offsets.append((1, e, scale))
            return True
        centred = _centred(e)
        if centred is not None and self.constant(centred[1]):
            offsets.append((-1, centred[1], scale))
            e = centred[0]
        if isinstance(e, Cast) and DTYPES[e.x.dtype].kind in "iu" and DTYPES[e.x.dtype].size <= 4:
            terms.append((e, scale))
            return True
        if not isinstance(e, Binary):
            return False
        if e.op == "mul" and self.constant(e.b) and scale == Const(1.0, "f32"):
            return self.linear(e.a, e.b, terms, offsets)
        if e.op == "mul" and self.chains and isinstance(e.b, Const) and isinstance(scale, Const):
            both = np.float32(e.b.value) * np.float32(scale.value)
            return self.linear(e.a, Const(float(both), "f32"), terms, offsets)
        if e.op == "sub" and self.constant(e.b):
            offsets.append((-1, e.b, scale))
            return self.linear(e.a, scale, terms, offsets)
        return e.op == "add" and self.linear(e.a, scale, terms, offsets) and self.linear(
            e.b, scale, terms, offsets)

    def constant(self, e: Expr) -> TypeGuard[Constant]:
        """A constant, or a load of one along one axis."""
        return isinstance(e, Const) or isinstance(e, Load) and e.buffer in self.consts and sum(
            isinstance(i, Axis) for i in e.index) == 1 and all(
                isinstance(i, (Axis, Const)) for i in e.index)

    # ------------------------------------------------------------ the two forms

    def one(self, s: Compute, r: Rounding, term: Cast, scale: Constant,
            offsets: Sequence[Offset]) -> Expr | None:
        """One integer with a bias that is a multiple of its scale; None if it is not."""
        found = self.along(scale, *(part for _, *o in offsets for part in o))
        if found is None or term.x.dtype != "i32":
            return None
        axis, values = found
        size = values[0].astype(np.float64)
        bias = sum((sign * a.astype(np.float64) * b for (sign, *_), a, b in zip(
            offsets, values[1::2], values[2::2])), np.zeros(1))
        if (size <= 0).any():
            return None
        whole = np.rint(bias / size)
        if (np.abs(bias - whole * size) > _WHOLE * np.maximum(np.abs(bias), size)).any() or (
                np.abs(whole) >= 2.0 ** 31).any():
            return None
        total, whole = self.without_offset(term.x, whole, axis)
        if whole.any():
            total = Binary("add", total, self.stored(s, "bias", whole.astype(np.int32), axis))
        ratio = (values[0] / np.float32(r.quantum)).astype(np.float32)
        e = Binary("mul", Cast("f32", total), self.stored(s, "ratio", ratio, axis))
        rounded = Unary("round", Binary("max", e, Const(0.0, "f32")) if r.positive else e)
        moved = Binary("add", rounded, Const(r.zero, "f32")) if r.zero else rounded
        return saturate_float(r.dtype, moved)

    def without_offset(self, total: Expr, whole: Array, axis: Axis | None) -> tuple[Expr, Array]:
        """(the sum without a constant that it subtracts, ``whole`` less that constant)."""
        if not (isinstance(total, Binary) and total.op == "sub" and self.constant(total.b)):
            return total, whole
        if isinstance(total.b, Const):
            left = whole - total.b.value
        elif axis in (None, self.place(total.b)) and whole.size in (
                1, self.consts[total.b.buffer].size):
            left = whole - self.consts[total.b.buffer].reshape(-1)
        else:
            return total, whole
        fits = axis is not None or isinstance(total.b, Const)
        return (total.a, left) if fits and (np.abs(left) < 2.0 ** 31).all() else (total, whole)

    def several(self, s: Compute, r: Rounding, terms: Sequence[Term],
                offsets: Sequence[Offset]) -> Expr | None:
        """A sum of scaled integers and constants; the zero point is added before the rounding."""
        found = self.along(*(scale for _, scale in terms),
                           *(part for _, *o in offsets for part in o))
        if found is None:
            return None
        axis, values = found
        quantum = np.float64(np.float32(r.quantum))
        rest = values[len(terms):]
        fixed = sum((sign * a.astype(np.float64) * b / quantum for (sign, *_), a, b in zip(
            offsets, rest[::2], rest[1::2])), np.full(1, r.zero))
        e = self.stored(s, "fixed", fixed.astype(np.float32), axis)
        for k in range(len(terms)):
            ratio = (values[k] / quantum).astype(np.float32)
            e = Binary("add", Binary("mul", terms[k][0], self.stored(s, f"ratio{k}", ratio, axis)),
                       e)
        if r.positive:
            e = Binary("max", e, Const(r.zero, "f32"))
        return saturate_float(r.dtype, Unary("round", e))

    def along(self, *parts: Constant) -> tuple[Axis | None, list[Array]] | None:
        """(index of the one axis that the constants run along or None, their f32 values as vectors
        along it); None if they run along several."""
        indices = {self.place(p) for p in parts if isinstance(p, Load)}
        if len(indices) > 1:
            return None
        return indices.pop() if indices else None, [
            np.full(1, p.value, np.float32) if isinstance(p, Const)
            else self.consts[p.buffer].reshape(-1) for p in parts]

    def place(self, load: Load) -> Axis:
        return next(i for i in load.index if isinstance(i, Axis))

    def stored(self, s: Compute, tag: str, values: Array, axis: Axis | None) -> Expr:
        """The values as a Const if they are all the same, else a Load of a new constant."""
        dtype = "i32" if values.dtype == np.int32 else "f32"
        if axis is None or (values == values[0]).all():
            return Const(values[0].item(), dtype)
        name = free_name(self.buffers, f"{s.out}_{tag}")
        self.consts[name], self.buffers[name] = values, make_const(name, values)
        return Load(name, (axis,), dtype)


def _centred(e: Expr) -> tuple[Cast, Const] | None:
    """(f32(x), z as f32) of ``f32(i32(x) - z)`` for an 8-bit x and a constant z: exact in f32."""
    if not (isinstance(e, Cast) and isinstance(e.x, Binary) and e.x.op == "sub" and isinstance(
            e.x.a, Cast) and e.x.a.x.dtype in RANGE and isinstance(e.x.b, Const)):
        return None
    return Cast("f32", e.x.a.x), Const(float(e.x.b.value), "f32")


__all__ = ["Rounding", "expand_maps", "match_rounding", "requantise"]
