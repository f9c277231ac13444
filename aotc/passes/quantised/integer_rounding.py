"""Rounding of scaled integers to 8 bits without floats, Program -> Program, for targets on which
those are slow.  Of what ``requantise`` leaves

    u8(clamp(round(f32(t) * r) + z))            becomes  u8(clamp(((t * m) >> s) + z))
    u8(clamp(round(f32(x)*rx + (f32(y)*ry + c))))   "    u8(clamp((x*mx + y*my + k) >> s))

of whatever is affine in 8-bit numbers x, y or one sum t, such as a normalisation between two
roundings, with integers m = r * 2**s and one shift for all channels, as long as that is within a
hundredth of a quantum, wherever the result is not cut off.  Halves are rounded up, not to even.
Sums of scaled 8-bit numbers, such as an average's, become sums of integers that are scaled once.
"""

from dataclasses import dataclass, replace
from math import floor, inf, log2, prod

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, Unary, Where
from aotc.ir.numbers.fixed_point import LEAST_SHIFT, MOST_SHIFT, rescale, shift_down
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, make_const, update
from aotc.ir.simplify import upper
from aotc.passes.quantised.factors import RANGE, match_saturation
from aotc.passes.requantise import expand_maps

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
class _Affine:
    """``sum of factors[x] * x, plus rest``: of integers x, with numbers that are the same
    everywhere or run along the axis that constants are indexed by (``along``)."""

    factors: dict[Expr, Array]
    rest: Array
    along: tuple[Expr, ...] = ()

    def joined(self, other: "_Affine", sign: float) -> "_Affine | None":
        """The sum of both, or the difference; None if they run along different axes."""
        if self.along and other.along and self.along != other.along:
            return None
        factors = dict(self.factors)
        for x, f in other.factors.items():
            factors[x] = factors.get(x, np.zeros(1)) + sign * f
        return _Affine(factors, self.rest + sign * other.rest, self.along or other.along)

    def times(self, by: Array, along: tuple[Expr, ...]) -> "_Affine | None":
        """The product with numbers."""
        if self.along and along and self.along != along:
            return None
        return _Affine({x: f * by for x, f in self.factors.items()}, self.rest * by,
                       self.along or along)


class _Work:
    """The pass in progress: constants with those that it adds."""

    def __init__(self, program: Program) -> None:
        self.program = program
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
        e, quantum = expand_maps(self.program, x.x), 1.0
        while isinstance(e, Binary) and e.op in ("div", "max", "min") and isinstance(e.b, Const):
            if e.op == "div" and e.b.value > 0:
                quantum *= e.b.value
            elif e.op != "div" and abs(e.b.value / quantum) < 1 << 20:
                bound = round(e.b.value / quantum) + int(zero)
                low, high = (max(low, bound), high) if e.op == "max" else (low, min(high, bound))
            else:
                return s
            e = expand_maps(self.program, e.a)
        value = self.rounded(s, e, quantum, int(zero)) if low <= high else None
        if value is None:
            return s
        if _range_of(value) == s.body.dtype and (low, high) == RANGE[s.body.dtype]:
            assert isinstance(value, Cast), value
            return Compute(s.outs, s.axes, (), "none", value.x, origin=s.origin)
        narrow = Binary("min", Binary("max", value, Const(low, "i32")), Const(high, "i32"))
        return Compute(s.outs, s.axes, (), "none", Cast(s.body.dtype, narrow), origin=s.origin)

    def rounded(self, s: Compute, e: Expr, quantum: float, zero: int) -> Expr | None:
        """``round(e / quantum) + zero`` as an i32; None if it has no such form."""
        found = self.affine(e)
        if found is None or not found.factors or not all(
                np.isfinite(v).all() for v in (found.rest, *found.factors.values())):
            return None
        found = found.times(np.full(1, 1 / quantum), ())
        assert found is not None, s.out
        if all(_range_of(x) for x in found.factors):
            return self.several(s, found, zero)
        return self.one(s, found, zero) if len(found.factors) == 1 else None

    def one(self, s: Compute, found: _Affine, zero: int) -> Expr | None:
        """``rescale`` of one scaled integer of 32 bits, with constants that are whole multiples of
        the scale or nearly so; None for others."""
        (x, ratio), = found.factors.items()
        if not (ratio != 0).all():
            return None
        shift = LEAST_SHIFT - 1 - floor(log2(float(np.abs(ratio).max())))
        multiplier = np.rint(np.ldexp(ratio, shift))
        if np.abs(multiplier).max() >= 2.0 ** 31:  # rounded up to it
            shift, multiplier = shift - 1, np.rint(multiplier / 2)
        rest = found.rest / ratio
        whole = np.rint(rest)
        if not LEAST_SHIFT <= shift <= MOST_SHIFT or np.abs(multiplier).min() < _EXACT or (
                np.abs((rest - whole) * ratio) > _NEAR).any() or (
                    np.abs(whole) >= 2.0 ** 30).any():
            return None
        if whole.any():
            if self.largest(x) + float(np.abs(whole).max()) >= 2.0 ** 31:
                return None
            x = Binary("add", x, self.stored(s, "whole", whole, found))
        value = rescale(x, self.stored(s, "multiplier", multiplier, found), shift)
        return value + Const(zero, "i32") if zero else value

    def several(self, s: Compute, found: _Affine, zero: int) -> Expr | None:
        """A sum of scaled 8-bit numbers and constants; None for others."""
        rest = found.rest + zero
        if len(found.factors) == 1:
            (x, ratio), = found.factors.items()
            if (ratio == 1).all() and not rest.any() and _range_of(x) == s.body.dtype:
                return x
        most = float((256 * sum(np.abs(f) for f in found.factors.values())
                      + np.abs(rest) + 1).max())
        shift = _SUM_BITS - 1 - floor(log2(most))
        if shift < 1 or 128 * len(found.factors) / 2.0 ** shift > _NEAR:
            return None
        total = self.stored(s, "rest", np.rint((rest + 0.5) * 2.0 ** shift), found)
        for k, (x, f) in enumerate(found.factors.items()):
            m = self.stored(s, f"multiplier{k}", np.rint(f * 2.0 ** shift), found)
            total = Binary("add", Binary("mul", x, m), total)
        return shift_down(total, shift)

    # ------------------------------------------------------------ expressions

    def affine(self, e: Expr) -> _Affine | None:
        """The _Affine that an f32 expression is; None for others."""
        e = expand_maps(self.program, e)
        if isinstance(e, Const):
            return _Affine({}, np.full(1, float(e.value)))
        if isinstance(e, Load):
            return self.constant(e)
        if isinstance(e, Cast):
            return _integer(e.x)
        if isinstance(e, Unary):
            x = self.affine(e.x)
            if x is None or e.op not in ("neg", "sqrt") or e.op == "sqrt" and x.factors:
                return None
            return x.times(np.full(1, -1.0), ()) if e.op == "neg" else replace(
                x, rest=np.sqrt(x.rest))
        if not isinstance(e, Binary) or e.op not in ("add", "sub", "mul", "div"):
            return None
        a, b = self.affine(e.a), self.affine(e.b)
        if a is None or b is None:
            return None
        if e.op in ("add", "sub"):
            return a.joined(b, 1.0 if e.op == "add" else -1.0)
        if e.op == "mul" and not a.factors:
            a, b = b, a
        if b.factors or e.op == "div" and not b.rest.all():
            return None
        return a.times(b.rest if e.op == "mul" else 1 / b.rest, b.along)

    def largest(self, e: Expr) -> float:
        """A bound of the size of an integer expression; without end where none is known."""
        match e:
            case Const(value):
                return abs(float(value))
            case Cast("i32", x) if x.dtype in RANGE:
                return 256.0
            case Binary("add" | "sub", a, b):
                return self.largest(a) + self.largest(b)
            case Binary("mul", a, b):
                return self.largest(a) * self.largest(b)
            case Where(_, a, b):
                return max(self.largest(a), self.largest(b))
            case Load(name) if name in self.consts:
                return float(np.abs(self.consts[name].astype(np.float64)).max(initial=0.0))
            case Load(name):
                c = self.program.producer.get(name)
                if isinstance(c, Compute) and c.fold in ("none", "max", "min", "sum"):
                    extents = [upper(r.extent) for r in c.raxes if c.fold == "sum"]
                    return self.largest(c.body) * prod(inf if n is None else n for n in extents)
        return inf

    def constant(self, e: Load) -> _Affine | None:
        """A constant that runs along one axis at most."""
        array = self.consts.get(e.buffer)
        moving = [i for i in e.index if not isinstance(i, Const)]
        if array is None or len(moving) > 1 or not all(isinstance(i, Axis) for i in moving) or (
                array.size != max(array.shape, default=1)):
            return None
        return _Affine({}, array.reshape(-1).astype(np.float64), tuple(moving))

    def stored(self, s: Compute, tag: str, values: Array, found: _Affine) -> Expr:
        """Integers as a constant, along the axis of those they are made from."""
        if (values == values[0]).all():
            return Const(int(values[0]), "i32")
        name = free_name(self.buffers, f"{s.out}_{tag}")
        array = values.astype(np.int32)
        self.consts[name], self.buffers[name] = array, make_const(name, array)
        return Load(name, found.along, "i32")


def _integer(x: Expr) -> _Affine | None:
    """An integer that is converted, of 8 bits less a constant, or of 32."""
    less = 0.0
    if isinstance(x, Binary) and x.op == "sub" and isinstance(x.b, Const) and _range_of(x.a):
        less, x = float(x.b.value), x.a
    if x.dtype in RANGE:
        x = Cast("i32", x)
    return _Affine({x: np.ones(1)}, np.full(1, -less)) if x.dtype == "i32" else None


def _range_of(x: Expr) -> str:
    """The 8-bit dtype that an i32 was converted from; "" for others."""
    return x.x.dtype if isinstance(x, Cast) and x.x.dtype in RANGE else ""


__all__ = ["round_in_integers", "sum_integers"]
