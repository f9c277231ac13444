"""Expressions over a box of index points, in numpy: the inner half of the oracle (evaluate.py).

Every axis is an ``arange`` along its own dimension, so the value of an expression is an array
that broadcasts over the box; a sub-expression only has extent along the axes it depends on.
``Where`` is lazy in effect: a branch is evaluated under the mask of the points that take it,
faults count only on those points, and indices of the others are clipped.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from aotc.errors import FaultError
from aotc.ir.dtypes import BF16, DTYPES, INDEX, Array, from_bf16, is_float, to_bf16
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Guarded,
    Load,
    Sym,
    Unary,
    Var,
    Where,
    show,
)
from aotc.ir.simplify import simplify

Window = tuple[Array, tuple[int, ...]]  # (elements, index of the first of them)
Read = Callable[[str], Array | Window]
Syms = Mapping[str, Any]  # symbol -> an int, or the ints of many points side by side
Affine = dict[Axis | None, int]  # coefficients; of None: the constant
_LISTED = 1 << 14  # numbers that are Python's, 32 bytes each, at a time


class Guard:
    """The points at which an expression is really evaluated (mask None: all of them), with the
    values already known there.  What holds for a parent holds for its children."""

    def __init__(self, mask: Array | None = None, parent: "Guard | None" = None) -> None:
        self.mask, self.parent = mask, parent
        self.memo: dict[Expr, Array] = {}

    def find(self, e: Expr) -> Array | None:
        guard: Guard | None = self
        while guard is not None:
            if e in guard.memo:
                return guard.memo[e]
            guard = guard.parent
        return None

    def narrowed(self, cond: Array) -> "Guard":
        return Guard(cond if self.mask is None else self.mask & cond, self)

    def active(self, flags: Array) -> Array:
        return flags if self.mask is None else flags & self.mask


class EvalScope:
    """Where an expression is evaluated: ``ranges`` maps each Axis to (lo, size) in the order of
    the dimensions, ``read(buffer)`` gives an array or (array, index of its first element),
    None where nothing is loaded, ``syms`` and ``variables`` map names to values, ``wide`` computes
    every float in f64."""

    def __init__(self, ranges: Mapping[Axis, tuple[int, int]], read: Read | None, syms: Syms,
                 variables: Mapping[str, Array] | None = None, wide: bool = False,
                 origin: Sequence[str] = ()) -> None:
        self.ranges, self.read, self.syms = ranges, read, syms
        self.variables, self.wide, self.origin = variables or {}, wide, origin
        self.top = Guard()
        self.grid: dict[Expr, Array] = {}
        for k, (axis, (lo, size)) in enumerate(ranges.items()):
            shape = [1] * len(ranges)
            shape[k] = size
            self.grid[axis] = np.arange(lo, lo + size, dtype=np.int64).reshape(shape)

    def dtype(self, name: str) -> np.dtype[Any]:
        wide = self.wide and is_float(name) and name != BF16
        return np.dtype(np.float64) if wide else DTYPES[name].numpy

    def value(self, e: Expr, guard: Guard | None = None) -> Array:
        """Array of ``e``, broadcastable over the ranges, in ``self.dtype(e.dtype)``."""
        guard = guard or self.top
        out = guard.find(e)
        if out is None:
            out = guard.memo[e] = _EVAL[type(e)](self, e, guard)
        return out

    def fault(self, what: str) -> FaultError:
        where = f" (from {', '.join(self.origin)})" if self.origin else ""
        return FaultError(f"{what}{where}")


# ---------------------------------------------------------------- leaves and operators

def _const(scope: EvalScope, e: Const, guard: Guard) -> Array:
    if e.dtype == BF16:
        return to_bf16(np.asarray(e.value, np.float32))
    return np.asarray(e.value, dtype=scope.dtype(e.dtype))


def _axis(scope: EvalScope, e: Axis, guard: Guard) -> Array:
    if e not in scope.grid:
        raise scope.fault(f"axis {e.name} is not bound")
    return scope.grid[e]


def _sym(scope: EvalScope, e: Sym, guard: Guard) -> Array:
    return np.asarray(scope.syms[e.name], dtype=np.int64)


def _var(scope: EvalScope, e: Var, guard: Guard) -> Array:
    return np.asarray(scope.variables[e.name])


def _cast(scope: EvalScope, e: Cast, guard: Guard) -> Array:
    x, to = scope.value(e.x, guard), DTYPES[e.dtype].numpy
    x = from_bf16(x) if e.x.dtype == BF16 else x
    if e.dtype == BF16:
        return to_bf16(x)
    if to.kind == "b":
        return np.asarray(x != 0)
    if to.kind in "iu":
        if x.dtype.kind == "f":
            x = _truncated(x, "i32" if to.itemsize < 4 or e.dtype == "i32" else "i64",
                           e.dtype == "u64")
        return x.astype(to)
    return x.astype(to).astype(scope.dtype(e.dtype))


def _truncated(x: Array, dtype: str, unsigned: bool) -> Array:
    """Floats toward zero; the least number of ``dtype`` for NaN and where it does not fit.
    ``unsigned``: above it, the numbers up to 2**64 fit too."""
    x = np.trunc(x.astype(np.float64))
    info = np.iinfo(DTYPES[dtype].numpy)
    fits = (x >= info.min) & (x < float(info.max + 1))
    out = np.where(fits, x, 0).astype(info.dtype)
    out[~fits] = info.min
    if unsigned:
        high = (x >= 2.0**63) & (x < 2.0**64)
        out = out.astype(np.uint64)
        out[high] = x[high].astype(np.uint64)
    return out


def _in_f64(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Transcendental functions go through f64 and are rounded once: correct to half a unit."""
    def apply(x: Array) -> Array:
        return fn(x.astype(np.float64)).astype(x.dtype)
    return apply


def _erf(x: Array) -> Array:
    flat, out = np.ravel(x), np.empty(np.size(x), np.float64)
    for at in range(0, out.size, _LISTED):
        part = flat[at:at + _LISTED]
        out[at:at + _LISTED] = np.fromiter(map(math.erf, part.tolist()), np.float64, part.size)
    return out.reshape(np.shape(x))


_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil,
    "round": np.rint, "sign": np.sign, "not": np.logical_not, "isnan": np.isnan,
    "isinf": np.isinf, "erf": _in_f64(_erf),
    **{name: _in_f64(getattr(np, "arc" + name[1:] if name[0] == "a" else name))
       for name in ("exp", "log", "tanh", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
                    "cosh", "asinh", "acosh", "atanh")}}


def _unary(scope: EvalScope, e: Unary, guard: Guard) -> Array:
    x = scope.value(e.x, guard)
    if e.op == "float" and e.x.dtype == BF16:
        return from_bf16(x).astype(scope.dtype(e.dtype))
    if e.op in ("bits", "float"):
        seen = np.ascontiguousarray(x.astype(DTYPES[e.x.dtype].numpy)).view(DTYPES[e.dtype].numpy)
        return seen.reshape(x.shape).astype(scope.dtype(e.dtype))
    if x.dtype.kind in "iu" and e.op in ("floor", "ceil", "round", "sqrt"):
        return x if e.op != "sqrt" else _isqrt(x)
    return np.asarray(_UNARY[e.op](x))


def _isqrt(x: Array) -> Array:
    """The integer part of the square root, 0 below 0."""
    flat = [math.isqrt(max(v, 0)) for v in np.ravel(x).tolist()]
    return np.array(flat, x.dtype).reshape(np.shape(x))


def _div(a: Array, b: Array) -> Array:
    """Integers truncate toward zero; by zero they give 0, as in numpy."""
    if a.dtype.kind == "f":
        return a / b
    q = a // b
    return np.asarray(q + ((q < 0) & (q * b != a)), a.dtype)


def _mod(a: Array, b: Array) -> Array:
    """Floor modulo for integers, C ``fmod`` for floats."""
    return np.fmod(a, b) if a.dtype.kind == "f" else np.mod(a, b)


def _floordiv(a: Array, b: Array) -> Array:
    return np.floor(a / b) if a.dtype.kind == "f" else a // b


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    whole = np.power(a, np.maximum(b, 0))
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b % 2), 0))
    return np.where(b < 0, inverse, whole).astype(a.dtype)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div, "floordiv": _floordiv,
    "mod": _mod, "min": np.minimum, "max": np.maximum, "pow": _pow, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal}


def _binary(scope: EvalScope, e: Binary, guard: Guard) -> Array:
    a, b = scope.value(e.a, guard), scope.value(e.b, guard)
    if isinstance(e, Guarded):
        return _guarded(scope, e, a, b, guard)
    if a.dtype.kind == "b" and e.op in ("sub", "neg"):
        raise TypeError(f"{e.op} is not defined on bool: {show(e)}")
    return np.asarray(_BINARY[e.op](a, b))


def _guarded(scope: EvalScope, e: Guarded, a: Array, b: Array, guard: Guard) -> Array:
    """``a``, or the fault that its rule is broken."""
    bad = guard.active((a < 0) | (a >= b) if e.op == "checked" else a != b)
    if np.any(bad):
        seen, bound = (np.broadcast_to(x, np.shape(bad))[bad].flat[0] for x in (a, b))
        raise scope.fault(f"{e.why or show(e.a)}: index out of range: {seen}, must be in "
                          f"0..{bound - 1}" if e.op == "checked" else
                          f"{e.why or show(e.a)} {seen}, not {bound}")
    return a


def _where(scope: EvalScope, e: Where, guard: Guard) -> Array:
    cond = scope.value(e.cond, guard)
    yes, no = guard.active(cond), guard.active(~cond)
    if not np.any(no):
        return scope.value(e.a, guard)
    if not np.any(yes):
        return scope.value(e.b, guard)
    a = scope.value(e.a, guard.narrowed(cond))
    b = scope.value(e.b, guard.narrowed(~cond))
    return np.where(cond, a, b)


# ---------------------------------------------------------------- loads

def affine_form(e: Expr, syms: Mapping[str, int]) -> Affine | None:
    """``{Axis: coefficient, None: constant}`` of an index expression that is affine as written
    (symbols have values), else None."""
    if isinstance(e, Const):
        return {None: e.value}
    if isinstance(e, Sym):
        return {None: syms[e.name]}
    if isinstance(e, Axis):
        return {e: 1, None: 0}
    if isinstance(e, Unary) and e.op == "neg":
        inner = affine_form(e.x, syms)
        return None if inner is None else _scaled(inner, -1)
    if not isinstance(e, Binary) or e.op not in ("add", "sub", "mul"):
        return None
    a, b = affine_form(e.a, syms), affine_form(e.b, syms)
    if a is None or b is None:
        return None
    if e.op == "mul":
        if len(b) == 1:
            return _scaled(a, b[None])
        return _scaled(b, a[None]) if len(a) == 1 else None
    out = dict(a)
    for k, c in _scaled(b, 1 if e.op == "add" else -1).items():
        out[k] = out.get(k, 0) + c
    return out


def _scaled(form: Affine, factor: int) -> Affine:
    return {k: c * factor for k, c in form.items()}


def _load(scope: EvalScope, e: Load, guard: Guard) -> Array:
    if scope.read is None:
        raise scope.fault(f"{show(e)}: no tensor is given here")
    source = scope.read(e.buffer)
    array, first = source if isinstance(source, tuple) else (source, (0,) * source.ndim)
    view = _strided(scope, e, array, first, guard)
    if view is None:
        view = _gather(scope, e, array, first, guard)
    return view.astype(np.float64) if scope.wide and view.dtype.kind == "f" else view


def _strided(scope: EvalScope, e: Load, array: Array, first: Sequence[int],
             guard: Guard) -> Array | None:
    """The load as a view without copying, if its map is affine and stays inside; else None."""
    if any(size == 0 for _, size in scope.ranges.values()) or 0 in array.shape:
        return None
    forms = [affine_form(i, scope.syms) for i in e.index]
    known = [f for f in forms if f is not None]
    if len(known) < len(forms):
        if not array.flags.c_contiguous or any(first):
            return None
        return _linear(scope, e, array, guard)
    start: list[int] = []
    strides = dict.fromkeys(scope.ranges, 0)
    for form, extent, stride, base in zip(known, array.shape, array.strides, first):
        at = low = high = form[None] - base
        for axis, c in form.items():
            if axis is None:
                continue
            lo, size = scope.ranges[axis]
            at, low, high = at + c * lo, low + c * lo, high + c * lo
            low, high = low + min(0, c * (size - 1)), high + max(0, c * (size - 1))
            strides[axis] += c * stride
        if low < 0 or high >= extent:
            return None
        start.append(at)
    if not any(strides.values()):
        found: Array = array[tuple(start)]
        return found
    return _view(scope, array[tuple(slice(s, None) for s in start)], strides)


def _view(scope: EvalScope, base: Array, strides: Mapping[Axis, int]) -> Array:
    shape = [size if strides[a] else 1 for a, (_, size) in scope.ranges.items()]
    # the step along an axis of one element is never taken, and may be larger than a pointer
    steps = [strides[a] if n > 1 else 0 for a, n in zip(scope.ranges, shape)]
    return as_strided(base, shape, steps, writeable=False)


def _linear(scope: EvalScope, e: Load, array: Array, guard: Guard) -> Array | None:
    """Reshapes: floor-div and mod indices whose row-major position is affine after all."""
    known = {a: s for a, (_, s) in scope.ranges.items()}
    position: Expr = Const(0)
    stride = 1
    for i, extent in zip(reversed(e.index), reversed(array.shape)):
        at = scope.value(i, guard)
        if np.min(at) < 0 or np.max(at) >= extent:
            return None
        position, stride = position + i * stride, stride * extent
    form = affine_form(simplify(position), scope.syms)
    if form is None or any(a is not None and a not in known for a in form):
        return None
    start = form[None] + sum(c * scope.ranges[a][0] for a, c in form.items() if a is not None)
    strides = {a: form.get(a, 0) * array.itemsize for a in scope.ranges}
    return _view(scope, array.reshape(-1)[start:], strides)


def _gather(scope: EvalScope, e: Load, array: Array, first: Sequence[int], guard: Guard) -> Array:
    index = []
    for i, extent, base, dim in zip(e.index, array.shape, first, range(array.ndim)):
        at = scope.value(i, guard)
        at = at - base if base else at
        outside = (at < 0) | (at >= extent)
        if np.any(outside):
            bad = guard.active(outside)
            if np.any(bad):
                seen = np.broadcast_to(at, bad.shape)[bad].flat[0] + base
                raise scope.fault(f"index out of range: {show(e)} reads {seen} in dimension "
                                  f"{dim}, which holds {base}..{base + extent - 1}")
            at = np.clip(at, 0, max(extent - 1, 0))
        index.append(at)
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(*(np.shape(i) for i in index)), array.dtype)
    found: Array = array[tuple(index)]
    return found


_EVAL: dict[type[Expr], Callable[[EvalScope, Any, Guard], Array]] = {
    Const: _const, Axis: _axis, Sym: _sym, Var: _var, Cast: _cast, Unary: _unary,
    Binary: _binary, Guarded: _binary, Where: _where, Load: _load}


def index_value(e: Expr, syms: Mapping[str, int]) -> int:
    """Integer value of an index expression without axes (an extent) under ``syms``."""
    if e.dtype != INDEX:
        raise TypeError(f"{show(e)} is no index but {e.dtype}")
    return int(EvalScope({}, None, syms).value(e))
