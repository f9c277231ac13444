"""Rounding of scaled integers to 8 bits without floats, Program -> Program, for targets on which
those are slow.  Of what ``requantise`` leaves

    u8(clamp(round(f32(t) * r) + z))            becomes  u8(clamp(((t * m) >> s) + z))
    u8(clamp(round(f32(x)*rx + (f32(y)*ry + c))))   "    u8(clamp((x*mx + y*my + k) >> s))

with integers m = r * 2**s and one shift for all channels, as long as that is within a hundredth of
a quantum, wherever the result is not cut off.  Halves are rounded up, not to even.  Sums of scaled
8-bit numbers, such as an average's, become sums of integers that are scaled once.
"""

from dataclasses import dataclass
from math import floor, inf, log2, prod

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.expr import Binary, Cast, Const, Expr, Load, Unary, Where
from aotc.ir.numbers.fixed_point import LEAST_SHIFT, MOST_SHIFT, rescale, shift_down
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, make_const, update
from aotc.ir.simplify import upper
from aotc.passes.quantised.factors import RANGE, match_saturation

_NEAR = 0.01  # of a quantum: what integers may be off by where floats round
_EXACT = 1 << 15  # of a multiplier at least: 2**8 / 2**15 is off by less than that
_SUM_BITS = 30  # of sums of 8-bit numbers times multipliers


def sum_integers(program: Program) -> Program:
    """Program whose sums of scaled 8-bit numbers are sums of i32, scaled afterwards."""
    buffers = dict(program.buffers)
    steps: list[Step] = []
    for s in program.steps:
        steps += _summed(s, buffers) if isinstance(s, Compute) else [s]
    return update(program, steps=tuple(steps), buffers=buffers)


def _summed(c: Compute, buffers: dict[str, Buffer]) -> list[Compute]:
    """The sum of integers and the map that scales it; the compute itself if it is no such sum."""
    found = _scaled_number(c.body) if c.fold == "sum" and len(c.outs) == 1 else None
    terms = prod(inf if (n := upper(r.extent)) is None else n for r in c.raxes)
    if found is None or terms * 512 >= 1 << 31:
        return [c]
    value, scale = found
    name = free_name(buffers, f"{c.out}_whole")
    buffers[name] = Buffer(name, tuple(a.extent for a in c.axes), "i32")
    total = Compute((name,), c.axes, c.raxes, "sum", value, origin=c.origin)
    scaled = Binary("mul", Cast("f32", Load(name, c.axes, "i32")), scale)
    return [total, Compute(c.outs, c.axes, (), "none", scaled, origin=c.origin)]


def _scaled_number(e: Expr) -> tuple[Expr, Const] | None:
    """(integer, scale) of ``(f32(x) - zero) * scale``, 0 where a guard fails; None for others."""
    if isinstance(e, Where) and isinstance(e.b, Const) and e.b.value == 0:
        inner = _scaled_number(e.a)
        return None if inner is None else (
            Where(e.cond, inner[0], Const(0, "i32")), inner[1])
    if not (isinstance(e, Binary) and e.op == "mul" and isinstance(e.b, Const)):
        return None
    x, zero = e.a, 0.0
    if isinstance(x, Binary) and x.op == "sub" and isinstance(x.b, Const):
        zero, x = x.b.value, x.a
    if not (isinstance(x, Cast) and x.dtype == "f32" and isinstance(x.x, Load)
            and x.x.dtype in RANGE and zero == round(zero) and abs(zero) < 256):
        return None
    whole: Expr = Cast("i32", x.x)
    return (whole - Const(int(zero), "i32") if zero else whole), e.b


def round_in_integers(program: Program) -> Program:
    """Program with roundings of scaled integers in the forms above."""
    work = _Work(program)
    steps = tuple(work.step(s) if isinstance(s, Compute) and s.fold == "none" and len(s.outs) == 1
                  else s for s in program.steps)
    return update(program, steps=steps, buffers=work.buffers, consts=work.consts)


@dataclass(frozen=True)
class _Scaled:
    """An integer (i32) and what it is multiplied by, a constant or a load of one along an axis."""

    x: Expr
    ratio: Expr


class _Work:
    """The pass in progress: constants with those that it adds."""

    def __init__(self, program: Program) -> None:
        self.buffers, self.consts = dict(program.buffers), dict(program.consts)

    def step(self, s: Compute) -> Compute:
        x, zero = match_saturation(s.body), 0.0
        if x is None:
            return s
        if isinstance(x, Binary) and x.op == "add" and isinstance(x.b, Const):
            zero, x = x.b.value, x.a
        if not (isinstance(x, Unary) and x.op == "round") or zero != round(zero):
            return s
        low, high = (int(v) for v in RANGE[s.body.dtype])
        e = x.x
        if isinstance(e, Binary) and e.op == "max" and isinstance(e.b, Const):
            low = max(low, int(e.b.value) + int(zero))
            e = e.a
        terms: list[_Scaled] = []
        fixed: list[Expr] = []
        if not self.collect(e, terms, fixed) or not terms:
            return s
        wide = [t for t in terms if _width(t.x) > 8]
        value = self.several(s, terms, fixed, int(zero)) if not wide else self.one(
            s, terms[0], fixed, int(zero)) if len(terms) == 1 else None
        if value is None:
            return s
        if _range_of(value) == s.body.dtype and (low, high) == RANGE[s.body.dtype]:
            assert isinstance(value, Cast), value
            return Compute(s.outs, s.axes, (), "none", value.x, origin=s.origin)
        narrow = Binary("min", Binary("max", value, Const(low, "i32")), Const(high, "i32"))
        return Compute(s.outs, s.axes, (), "none", Cast(s.body.dtype, narrow), origin=s.origin)

    def one(self, s: Compute, term: _Scaled, fixed: list[Expr], zero: int) -> Expr | None:
        """``rescale`` of one scaled integer of 32 bits, with constants that are whole multiples of
        the scale or nearly so; None for others."""
        along = {e.index for e in (term.ratio, *fixed) if isinstance(e, Load)}
        ratio = self.values(term.ratio).astype(np.float64)
        if len(along) > 1 or not (ratio > 0).all():
            return None
        shift = LEAST_SHIFT - 1 - floor(log2(float(ratio.max())))
        multiplier = np.rint(np.ldexp(ratio, shift))
        if multiplier.max() >= 2.0 ** 31:  # rounded up to it
            shift, multiplier = shift - 1, np.rint(multiplier / 2)
        rest = sum((self.values(c).astype(np.float64) for c in fixed), np.zeros(1)) / ratio
        whole = np.rint(rest)
        if not LEAST_SHIFT <= shift <= MOST_SHIFT or multiplier.min() < _EXACT or (
                np.abs(rest - whole) * ratio > _NEAR).any() or (np.abs(whole) >= 2.0 ** 30).any():
            return None
        like = next((e for e in (term.ratio, *fixed) if isinstance(e, Load)), term.ratio)
        x = term.x
        if whole.any():
            x = Binary("add", x, self.stored(s, "whole", whole.astype(np.int32), like))
        m = self.stored(s, "multiplier", multiplier.astype(np.int32), term.ratio)
        value = rescale(x, m, shift)
        return value + Const(zero, "i32") if zero else value

    def several(self, s: Compute, terms: list[_Scaled], fixed: list[Expr],
                zero: int) -> Expr | None:
        """A sum of scaled 8-bit numbers and constants; None for others."""
        if not all(isinstance(c, Const) for c in (*fixed, *(t.ratio for t in terms))):
            return None
        ratios = [float(self.values(t.ratio)[0]) for t in terms]
        rest = sum(float(self.values(c)[0]) for c in fixed) + zero
        if ratios == [1.0] and not rest and _range_of(terms[0].x) == s.body.dtype:
            return terms[0].x
        most = 256.0 * sum(map(abs, ratios)) + abs(rest) + 1
        shift = _SUM_BITS - 1 - floor(log2(most))
        if shift < 1 or 128 * len(ratios) / 2.0 ** shift > _NEAR:
            return None
        total: Expr = Const(round((rest + 0.5) * 2.0 ** shift), "i32")
        for t, r in zip(terms, ratios):
            total = Binary("add", Binary("mul", t.x, Const(round(r * 2.0 ** shift), "i32")), total)
        return shift_down(total, shift)

    def collect(self, e: Expr, terms: list[_Scaled], fixed: list[Expr]) -> bool:
        """Terms and constants of a sum; False if there is something else in it."""
        if self.constant(e):
            fixed.append(e)
            return True
        if isinstance(e, Binary) and e.op == "add":
            return self.collect(e.a, terms, fixed) and self.collect(e.b, terms, fixed)
        term = self.scaled(e)
        if term is not None:
            terms.append(term)
        return term is not None

    def scaled(self, e: Expr) -> _Scaled | None:
        """The _Scaled that an expression is."""
        ratio: Expr = Const(1.0, "f32")
        if isinstance(e, Binary) and e.op == "mul" and self.constant(e.b):
            ratio, e = e.b, e.a
        if not (isinstance(e, Cast) and e.dtype == "f32"):
            return None
        x = e.x
        if x.dtype in RANGE:
            return _Scaled(Cast("i32", x), ratio)
        return _Scaled(x, ratio) if x.dtype == "i32" else None

    def constant(self, e: Expr) -> bool:
        return e.dtype == "f32" and (isinstance(e, Const) or (
            isinstance(e, Load) and e.buffer in self.consts))

    def values(self, e: Expr) -> Array:
        """The values of a constant, as f32."""
        assert isinstance(e, (Const, Load)), e
        array: Array = np.full(1, e.value, np.float32) if isinstance(e, Const) else self.consts[
            e.buffer].reshape(-1)
        return array

    def stored(self, s: Compute, tag: str, values: Array, like: Expr) -> Expr:
        """Integers in the place of a constant."""
        if not isinstance(like, Load):
            return Const(int(values[0]), "i32")
        if (values == values[0]).all():
            return Const(int(values[0]), "i32")
        name = free_name(self.buffers, f"{s.out}_{tag}")
        array = values.reshape(self.consts[like.buffer].shape)
        self.consts[name], self.buffers[name] = array, make_const(name, array)
        return Load(name, like.index, "i32")


def _range_of(x: Expr) -> str:
    """The 8-bit dtype that an i32 was converted from; "" for others."""
    return x.x.dtype if isinstance(x, Cast) and x.x.dtype in RANGE else ""


def _width(x: Expr) -> int:
    """Bits of an i32 that are more than its sign."""
    return 8 if _range_of(x) else 32


__all__ = ["round_in_integers", "sum_integers"]
