"""Products of quantised tensors become integer contractions, Program -> Program.

    sum(k) (f32(i32(x) - zx) * sx) * (f32(i32(w) - zw) * sw)
      = f32(sum(k) i32(x) * i32(w)  -  zx * sum(k) i32(w)  -  zw * sum(k) i32(x)  +  K*zx*zw)
        * (sx * sw)

for 8-bit ``x`` and 8-bit ``w``, constant or computed, and the same without scales for sums that are
integer already.  The sum in the middle runs on dot products of bytes, whose columns ``w`` are s8;
the corrections are small computes, of which those of constants fold away.  Padding reads the zero
point.  Recognised from expressions alone: nothing here knows which operator wrote them.  (The
identity: B. Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, CVPR 2018, 2.3.)
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, prod

import numpy as np

from aotc.ir.category import Axes, factor_pairs, zero_outside
from aotc.ir.dtypes import Array
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Sym,
    Where,
    axes_of,
    compare,
    minimum,
    substitute,
    walk,
)
from aotc.ir.program import (
    Branch,
    Buffer,
    Compute,
    Loop,
    Program,
    Step,
    free_name,
    make_const,
    static_shape,
    update,
)
from aotc.ir.simplify import simplify, upper
from aotc.oracle.evaluate import eval_compute
from aotc.passes.quantised.factors import (
    RANGE,
    Quantised,
    add_number,
    difference,
    match_quantised,
    match_two_computed,
)
from aotc.passes.quantised.stored_bytes import stored_bytes
from aotc.passes.regions import rename_inputs

EXACT = 1 << 24  # up to here f32 holds every integer
_MOST_I32 = (1 << 31) - 1
_HALF = 128  # what u8 is larger than i8
_EXACT_TERMS = 1 << 16  # bytes whose sum f32 surely holds


def integer_products(program: Program, rows: bool = True, whole: bool = False) -> Program:
    """Program with every sum of products of a quantised tensor and quantised constant weights
    written over integers, and tensors of 8 bits that it makes stored as u8, signed ones with an
    offset of 128.  With ``rows``, if a target has some for all bytes, so are sums of products of
    two computed tensors along one axis; those columns are stored as i8, and signed rows as they
    are.  With ``whole``, sums that have no such rows are of integers, too, not of floats."""
    program = _with_moved_weights(program)
    pairs = [m for s in program.steps if isinstance(s, Compute)
             and (m := match_two_computed(program, s)) is not None] if rows else []
    program = stored_bytes(program, {w.load.buffer for _, w in pairs} | {
        x.load.buffer for x, _ in pairs if x.load.dtype == "i8"})
    work = _Work(program, rows, whole)
    for step in program.steps:
        work.steps += work.product(step) if isinstance(step, Compute) else [step]
    return update(program, steps=tuple(work.steps), buffers=work.buffers, consts=work.consts)


def _with_moved_weights(program: Program) -> Program:
    """Program whose constants of bytes are moved (transposed, reshaped) before it runs: weights are
    recognised as such wherever they come from, in bodies of regions, too."""
    consts, buffers, moved = dict(program.consts), dict(program.buffers), dict[str, Array]()
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, (Loop, Branch)):
            steps.append(rename_inputs(step, {}, moved) if moved else step)
        elif isinstance(step, Compute) and _moves_bytes(step, consts) and not (
                set(program.outputs) & set(step.outs)):
            value = eval_compute(step, None, consts.__getitem__, {})
            assert isinstance(value, np.ndarray), step.out  # one output
            moved[step.out] = consts[step.out] = value
            buffers[step.out] = make_const(step.out, value)
        else:
            steps.append(step)
    return update(program, steps=tuple(steps), buffers=buffers, consts=consts) if moved else program


def _moves_bytes(c: Compute, consts: Mapping[str, Array]) -> bool:
    """True for a compute that gives bytes of a constant other places, no more of them."""
    shape = static_shape(tuple(a.extent for a in c.axes))
    return (c.fold == "none" and isinstance(c.body, Load) and c.body.dtype in RANGE
            and c.body.buffer in consts and shape is not None
            and prod(shape) <= consts[c.body.buffer].size
            and set(axes_of(c.body)) <= set(c.axes)
            and not any(isinstance(n, (Load, Sym)) for i in c.body.index for n in walk(i)))


class _Work:
    """The pass in progress: buffers and constants with those that it adds."""

    def __init__(self, program: Program, rows: bool, whole: bool) -> None:
        self.program, self.rows, self.whole = program, rows, whole
        self.steps: list[Step] = []
        self.buffers, self.consts = dict(program.buffers), dict(program.consts)

    def product(self, c: Compute) -> list[Compute]:
        """The computes that take the place of ``c``: itself if it is no such product."""
        if c.fold != "sum" or len(c.outs) != 1 or not (
                isinstance(c.body, Binary) and c.body.op == "mul"):
            return [c]
        one, two = (match_quantised(self.program, e) for e in (c.body.a, c.body.b))
        if one is None or two is None or (one.scale is None) != (two.scale is None):
            return [c]
        constant = [f.load.buffer in self.consts for f in (one, two)]
        w, x = (one, two) if constant[0] else (two, one)
        made = _Product(self, c)
        if constant[0] != constant[1]:
            split = made.by_weights(x, w)
        else:
            found = match_two_computed(self.program, c) if self.rows else None
            split = made.of_two(*found) if found is not None else None
        return split or made.floats(x, w) or [c]

    def constant(self, e: Expr) -> bool:
        """True for an expression of constants alone."""
        return all(n.buffer in self.consts for n in walk(e) if isinstance(n, Load))


class _Product:
    """One sum of products, and the computes that take its place; the last one keeps its name."""

    def __init__(self, work: _Work, c: Compute) -> None:
        self.work, self.c = work, c
        self.steps: list[Compute] = []

    def add(self, tag: str, axes: Axes, raxes: Axes, fold: str, e: Expr) -> Load:
        """A Load of one more compute."""
        buffers = self.work.buffers
        name = free_name(buffers, f"{self.c.out}_{tag}")
        buffers[name] = Buffer(name, tuple(a.extent for a in axes), e.dtype)
        self.steps.append(Compute((name,), axes, raxes, fold, e, origin=self.c.origin))
        return Load(name, axes, e.dtype)

    def mapped(self, tag: str, q: Quantised, value: Callable[[Quantised], Expr]) -> Load:
        """What ``value`` makes of a factor, as a tensor of its own: the Load in place of its."""
        shape = self.work.buffers[q.load.buffer].shape
        axes = tuple(Axis(f"d{k}", e) for k, e in enumerate(shape))
        whole = value(replace(q, load=replace(q.load, index=axes)))
        return replace(self.add(tag, axes, (), "none", whole), index=q.load.index)

    # ------------------------------------------------------------ products of bytes

    def by_weights(self, x: Quantised, w: Quantised) -> list[Compute] | None:
        """The computes of a product of a tensor and constant weights; None if it has no such
        form."""
        outer = {a for f in (x, w) for e in (f.zero, f.scale) if e is not None for a in axes_of(e)}
        if x.load.dtype != "u8" and not self.work.rows or w.guard is not None or (
                outer & set(self.c.raxes)):
            return None
        w = self.signed_weights(w)
        body = Binary("mul", _padded(x), Cast("i32", w.load))
        return self.split(body, x, w) if _is_whole(self.work.program, self.c, body, w) else None

    def of_two(self, x: Quantised, w: Quantised) -> list[Compute]:
        """The computes of a product of two computed tensors."""
        if w.load.dtype == "u8":  # not made here, so that it could not be stored as i8
            signed = self.mapped("signed", w, lambda q: Cast(
                "i8", Cast("f32", q.load) - Const(float(_HALF), "f32")))
            w = replace(w, load=signed, zero=add_number(w.zero, -_HALF))
        return self.split(Binary("mul", _padded(x), Cast("i32", w.load)), x, w)

    def signed_weights(self, w: Quantised) -> Quantised:
        """Weights as i8: of unsigned ones 128 is taken away."""
        if w.load.dtype == "i8":
            return w
        name, consts = f"{w.load.buffer}_s8", self.work.consts
        if name not in consts:
            values = (consts[w.load.buffer].astype(np.int16) - _HALF).astype(np.int8)
            consts[name], self.work.buffers[name] = values, make_const(name, values)
        return replace(w, load=Load(name, w.load.index, "i8"), zero=add_number(w.zero, -_HALF))

    def split(self, body: Binary, x: Quantised, w: Quantised) -> list[Compute]:
        """Integer sum, corrections, and the map that scales."""
        total: Expr = self.add("dot", self.c.axes, self.c.raxes, "sum", body)
        if x.zero != Const(0, "i32"):
            total = total - self.correction("columns", body.b, x.zero)
        if w.zero != Const(0, "i32"):
            total = total - self.correction("rows", body.a, w.zero)
            if x.zero != Const(0, "i32"):
                depth: Expr = Const(1)
                for r in self.c.raxes:
                    depth = depth * r.extent
                total = total + x.zero * w.zero * Cast("i32", depth)
        return self.scaled(total, x, w)

    def correction(self, tag: str, factor: Expr, zero: Expr) -> Expr:
        """A zero point times the sum of the other factor; where it is a constant, a tensor."""
        raxes, axes = self.c.raxes, tuple(a for a in self.c.axes if a in axes_of(factor))
        assert isinstance(factor, Cast), factor
        total: Expr = self.add(tag, axes, raxes, "sum", factor) if self.work.constant(
            factor) else self.sum_of_bytes(tag, axes, factor)
        return self.add(f"{tag}_offset", axes, (), "none", zero * total) if isinstance(
            zero, Const) else zero * total

    def sum_of_bytes(self, tag: str, axes: Axes, factor: Cast) -> Expr:
        """An i32 sum of computed bytes, made of sums in f32, which has vector rows, each of so few
        terms that it is exact."""
        raxes, value = self.c.raxes, Cast("f32", factor.x)
        if _steps(raxes) <= _EXACT_TERMS:
            return Cast("i32", self.add(tag, axes, raxes, "sum", value))
        if len(raxes) > 1:  # of a window; its weights have known extents
            return self.add(tag, axes, raxes, "sum", factor)
        (r,) = raxes
        part = Axis(f"part_{r.name}", simplify((r.extent + (_EXACT_TERMS - 1)) // _EXACT_TERMS))
        step = Axis(r.name, minimum(r.extent, _EXACT_TERMS))
        at = part * _EXACT_TERMS + step
        some = self.add(f"{tag}_parts", (*axes, part), (step,), "sum", zero_outside(
            substitute(value, {r: at}), compare("lt", at, r.extent)))
        return self.add(tag, axes, (part,), "sum", Cast("i32", some))

    # ------------------------------------------------------------ the same in floats

    def floats(self, x: Quantised, w: Quantised) -> list[Compute] | None:
        """Integer sums without such a form, short enough to be exact in f32, which has vector rows:
        both factors centred, constants and what register tiles read as tensors of their own, the
        other where it is read.  With scales: by constant weights, as of one channel each."""
        c, scales = self.c, [e for e in (x.scale, w.scale) if e is not None]
        if w.guard is not None or not self.is_exact(x, w) or scales and (
                w.load.buffer not in self.work.consts
                or {a for e in scales for a in axes_of(e)} & set(c.raxes)):
            return None
        if self.work.whole:
            body = Binary("mul", _whole(x), _whole(w))
            return self.scaled(self.add("exact", c.axes, c.raxes, "sum", body), x, w)
        tiled = scales and factor_pairs(c.axes, c.raxes, c.fold, c.body)
        value = self.mapped("rows", x, difference) if tiled else difference(x)
        value = value if x.guard is None else Where(x.guard, value, Const(0.0, "f32"))
        body = Binary("mul", value, self.mapped("centred", w, difference))
        return self.scaled(Cast("i32", self.add("exact", c.axes, c.raxes, "sum", body)), x, w)

    def is_exact(self, x: Quantised, w: Quantised) -> bool:
        """True if f32, or an i32 of ``whole`` sums, surely holds every sum of products of the
        centred factors."""
        most = _steps(self.c.raxes)
        for q in (x, w):
            if not isinstance(q.zero, Const):
                return False
            low, high = RANGE[q.load.dtype]
            array = self.work.consts.get(q.load.buffer)
            if array is not None and array.size:
                low, high = float(array.min()), float(array.max())
            most *= max(high - q.zero.value, q.zero.value - low)
        return most <= (_MOST_I32 if self.work.whole else EXACT)

    # ------------------------------------------------------------ scales

    def scaled(self, total: Expr, x: Quantised, w: Quantised) -> list[Compute]:
        """The computes so far and the map that gives an integer sum its scales."""
        if x.scale is not None and w.scale is not None:
            total = Cast("f32", total) * self.scale(x.scale, w.scale)
        return self.steps + [replace(self.c, raxes=(), fold="none", body=total, acc="")]

    def scale(self, one: Expr, two: Expr) -> Expr:
        """The product of two scales; a constant of its own where both are."""
        if isinstance(one, Const) and isinstance(two, Const):
            return Const(float(np.float32(one.value) * np.float32(two.value)), "f32")
        e = one * two
        axes = tuple(sorted(axes_of(e), key=lambda a: a.name))
        return self.add("scale", axes, (), "none", e) if self.work.constant(e) else e


def _padded(x: Quantised) -> Expr:
    """The row operand as an i32: outside the guard it is the zero point."""
    zero, dtype = x.zero, x.load.dtype
    narrow = Const(zero.value, dtype) if isinstance(zero, Const) else Cast(dtype, zero)
    return Cast("i32", x.load if x.guard is None else Where(x.guard, x.load, narrow))


def _whole(q: Quantised) -> Expr:
    """A factor without its scale as an i32; its zero point is a constant."""
    e: Expr = Cast("i32", q.load)
    e = e if q.zero == Const(0, "i32") else e - q.zero
    return e if q.guard is None else Where(q.guard, e, Const(0, "i32"))


def _is_whole(program: Program, c: Compute, body: Binary, w: Quantised) -> bool:
    """True for weights that hold one axis of the result, which only they have, and the reduction
    axes, each once and whole."""
    plain = [i for i in w.load.index if i != Const(0)]
    if len(set(plain)) != len(plain) or not all(isinstance(i, Axis) for i in plain):
        return False
    shape = program.consts[w.load.buffer].shape if w.load.buffer in program.consts else ()
    if shape and any(i.extent != Const(d) for i, d in zip(w.load.index, shape)
                     if isinstance(i, Axis)):
        return False
    return any(f.b == w.load and len(f.n) == 1 and set(plain) <= {f.n[0], *c.raxes}
               and f.n[0] not in axes_of(f.a)
               for f in factor_pairs(c.axes, c.raxes, c.fold, body))


def _steps(axes: Axes) -> float:
    """Terms of a sum, at most; without end where nobody knows."""
    return prod(inf if (most := upper(r.extent)) is None else most for r in axes)


__all__ = ["integer_products"]
