"""The range of a number that data says, in numbers and extents: the sum of a mask is at most as
many as the mask has elements, the place of a largest score is one of the scores.  Followed through
the steps that compute the number, as far as every one of them keeps a range."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import prod

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import LARGEST
from aotc.ir.dtypes import DTYPES, is_float
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Guarded,
    Load,
    Shape,
    Sym,
    Unary,
    Var,
    Where,
    maximum,
    minimum,
)
from aotc.ir.program import Compute, Fold, LibCall
from aotc.ir.simplify import lower, simplify

ZERO, ONE = Const(0), Const(1)
_DEEP = 4000  # expressions to look at
_FINE = 1 << 12  # of a factor that is a quotient, its divisor
_NARROW = 16  # bits of integers whose type says a range worth having


@dataclass(frozen=True)
class ValueRange:
    """``lo`` .. ``hi``, both inside, None: no end that is known.  ``none``: of no number at all, as
    the state of a fold that keeps what it had."""

    lo: Expr | None = None
    hi: Expr | None = None
    none: bool = False


_ANY = ValueRange()
_BIT = ValueRange(ZERO, ONE)


def range_of(b: Builder, e: Expr) -> ValueRange:
    """The range of an integer that data says, its ends without data in them."""
    found = _Ranges(b).of(simplify(e))
    lo, hi = (end and simplify(end) for end in (found.lo, found.hi))
    return ValueRange(lo, hi)


def most_of(b: Builder, e: Expr) -> Expr | None:
    """The most that a number may be, as an expression of extents; None if nothing says."""
    hi = range_of(b, e).hi
    return None if hi is None else maximum(hi, ZERO)


def capacity(b: Builder, beside: Shape = ()) -> Expr | None:
    """The largest extent of an input, or of ``beside``, which has room for what nothing bounds."""
    dims = dict.fromkeys(d for shape in (*(t.shape for t in b.graph.inputs), beside) for d in shape)
    return simplify(reduce(maximum, dims)) if dims else None


class _Ranges:
    """Ranges of one Builder's expressions; each buffer is looked at once."""

    def __init__(self, b: Builder) -> None:
        self.b, self.left = b, _DEEP
        self.buffers: dict[str, ValueRange] = {
            b.load(total, ()).buffer: ValueRange(ZERO, most) for total, most, _ in b.counts}

    def of(self, e: Expr) -> ValueRange:
        self.left -= 1
        if self.left < 0:
            return _ANY
        if e.dtype == "bool":
            return _BIT
        if isinstance(e, Const):
            return _of_number(e.value)
        if isinstance(e, Sym):
            return ValueRange(e, e)
        if isinstance(e, Axis):
            return ValueRange(ZERO, e.extent - 1)
        if isinstance(e, Var):
            return ValueRange(none=True)
        if isinstance(e, Load):
            return self._buffer(e)
        if isinstance(e, Cast):
            return self.of(e.x)
        if isinstance(e, Where):
            return _either(self.of(e.a), self.of(e.b))
        if isinstance(e, Guarded):
            whole = ValueRange(ZERO, e.b - 1) if e.op == "checked" else ValueRange(e.b, e.b)
            return _both(self.of(e.a), whole)
        if isinstance(e, Unary):
            return self._unary(e)
        return self._binary(e) if isinstance(e, Binary) else _ANY

    def _unary(self, e: Unary) -> ValueRange:
        if e.op in ("floor", "ceil", "round"):  # the ends are whole numbers
            return self.of(e.x)
        if e.op in ("tanh", "erf", "sin", "cos", "sign"):
            return ValueRange(Const(-1), ONE)
        return _negated(self.of(e.x)) if e.op == "neg" else _ANY

    def _binary(self, e: Binary) -> ValueRange:
        for one, other, place in ((e.a, e.b, 0), (e.b, e.a, 1)):
            if e.op in ("add", "sub")[:2 - place] and isinstance(one, Binary) and (
                    one.op in ("min", "max") and not is_float(e.dtype)):
                # max(x, y) + z as max(x + z, y + z), in which terms may cancel
                ends = (self.of(simplify(Binary(e.op, end, other))) for end in (one.a, one.b))
                return _JOINED[one.op](*ends)
        join = _JOINED.get(e.op)
        if e.op == "div" and isinstance(e.b, Const) and e.b.value > 0:
            return _scaled(self.of(e.a), 1 / Fraction(e.b.value))
        if e.op == "mul" and is_float(e.dtype):
            for one, other in ((e.a, e.b), (e.b, e.a)):
                if isinstance(one, Const) and one.value >= 0 and np.isfinite(one.value):
                    return _scaled(self.of(other), Fraction(one.value))
        if join is None:
            return _ANY
        x, y = self.of(e.a), self.of(e.b)
        return _ANY if (x.none or y.none) and e.op not in ("min", "max") else join(x, y)

    def _buffer(self, e: Load) -> ValueRange:
        if e.buffer not in self.buffers:
            self.buffers[e.buffer] = _ANY  # while it is looked at
            self.buffers[e.buffer] = _both(self._made(e), _of_type(e.dtype))
        return self.buffers[e.buffer]

    def _made(self, e: Load) -> ValueRange:
        """The range of what a step makes."""
        if e.buffer in self.b.consts:
            array = self.b.consts[e.buffer]
            if not array.size or not np.isfinite(array).all():
                return _ANY
            return ValueRange(Const(int(np.floor(array.min()))), Const(int(np.ceil(array.max()))))
        step = self.b.known.maker.get(e.buffer)
        if isinstance(step, LibCall) and step.kernel == "topk":
            return ValueRange(ZERO, self.b.buffers[step.inputs[0]].shape[-1] - 1)
        if not isinstance(step, Compute):
            return _ANY
        if isinstance(step.fold, Fold):
            k = step.outs.index(e.buffer)
            return _either(self.of(step.fold.init[k]), self.of(step.fold.update[k]))
        body = self.of(step.body)
        if step.fold == "sum":
            times = prod((a.extent for a in step.raxes), start=ONE)
            return ValueRange(body.lo and minimum(body.lo * times, ZERO),
                              body.hi and maximum(body.hi * times, ZERO))
        if step.fold in ("max", "min"):  # of nothing the worst number there is
            some = all((lower(a.extent) or 0) > 0 for a in step.raxes)
            return body if some else ValueRange(body.lo if step.fold == "min" else None,
                                                body.hi if step.fold == "max" else None)
        return body if step.fold == "none" else _ANY


def _of_number(value: float) -> ValueRange:
    if not np.isfinite(value) or abs(value) >= LARGEST:
        return _ANY
    return ValueRange(Const(int(np.floor(value))), Const(int(np.ceil(value))))


def _scaled(x: ValueRange, by: Fraction) -> ValueRange:
    """Of a number times a factor, which is not negative; its ends are whole numbers."""
    by = by.limit_denominator(_FINE)
    if not _from_zero(x) or x.hi is None or not by:
        return ValueRange(ZERO) if _from_zero(x) else _ANY
    more = 0 if by.denominator == 1 else 1  # what is rounded
    return ValueRange(ZERO, simplify(x.hi * by.numerator // by.denominator) + more)


def _of_type(dtype: str) -> ValueRange:
    kind, bits = DTYPES[dtype].kind, 8 * DTYPES[dtype].size
    if dtype == "bool":
        return _BIT
    if kind == "u":
        return ValueRange(ZERO, Const((1 << bits) - 1) if bits <= _NARROW else None)
    return ValueRange(Const(-(1 << bits - 1)), Const((1 << bits - 1) - 1)) if (
        kind == "i" and bits <= _NARROW) else _ANY


def _pick(choose: Callable[[Expr, Expr], Expr], x: Expr | None, y: Expr | None,
          known: bool) -> Expr | None:
    """Of two ends one; ``known``: the known one where the other is not."""
    if x is None or y is None:
        return (x or y) if known else None
    return choose(x, y)


def _either(x: ValueRange, y: ValueRange) -> ValueRange:
    """Of a number that is in one of two ranges."""
    if x.none or y.none:
        return y if x.none else x
    return ValueRange(_pick(minimum, x.lo, y.lo, False), _pick(maximum, x.hi, y.hi, False))


def _both(x: ValueRange, y: ValueRange) -> ValueRange:
    """Of a number that is in both ranges."""
    return ValueRange(_pick(maximum, x.lo, y.lo, True), _pick(minimum, x.hi, y.hi, True), x.none)


def _least(x: ValueRange, y: ValueRange) -> ValueRange:
    return ValueRange(_pick(minimum, x.lo, y.lo, False), _pick(minimum, x.hi, y.hi, True))


def _largest(x: ValueRange, y: ValueRange) -> ValueRange:
    return ValueRange(_pick(maximum, x.lo, y.lo, True), _pick(maximum, x.hi, y.hi, False))


def _added(x: ValueRange, y: ValueRange) -> ValueRange:
    return ValueRange(_pick(lambda p, q: p + q, x.lo, y.lo, False),
                      _pick(lambda p, q: p + q, x.hi, y.hi, False))


def _negated(x: ValueRange) -> ValueRange:
    return ValueRange(None if x.hi is None else ZERO - x.hi, None if x.lo is None else ZERO - x.lo)


def _product(x: ValueRange, y: ValueRange) -> ValueRange:
    """Of numbers of which one at least is not negative."""
    if not _from_zero(x):
        x, y = y, x
    if not _from_zero(x) or x.hi is None:
        return ValueRange(ZERO) if _from_zero(x) and _from_zero(y) else _ANY
    return ValueRange(None if y.lo is None else minimum(y.lo * x.hi, ZERO) if not _from_zero(y)
                      else ZERO, None if y.hi is None else maximum(y.hi * x.hi, ZERO))


def _quotient(x: ValueRange, y: ValueRange) -> ValueRange:
    """By a number of at least 1, rounded down."""
    if y.lo is None or (lower(y.lo) or 0) < 1 or not _from_zero(x):
        return _ANY
    return ValueRange(ZERO, None if x.hi is None else simplify(x.hi // y.lo))


def _rest(x: ValueRange, y: ValueRange) -> ValueRange:
    if y.lo is None or (lower(y.lo) or 0) < 1 or y.hi is None:
        return _ANY
    return ValueRange(ZERO, y.hi - 1)


def _from_zero(x: ValueRange) -> bool:
    low = None if x.lo is None else lower(simplify(x.lo))
    return low is not None and low >= 0


_JOINED: Mapping[str, Callable[[ValueRange, ValueRange], ValueRange]] = {
    "add": _added, "sub": lambda x, y: _added(x, _negated(y)), "mul": _product, "min": _least,
    "max": _largest, "floordiv": _quotient, "mod": _rest}

__all__ = ["ValueRange", "capacity", "most_of", "range_of"]
