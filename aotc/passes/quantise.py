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

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from aotc.ir.category import Axes, factor_pairs
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    Where,
    axes_of,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.program import Buffer, Compute, Program, Step, make_const, update
from aotc.passes.inline import is_move

_MOVES = 16  # reshapes and transposes between a tensor's quantised form and its product
EXACT = (1 << 24) // (255 * 255)  # so many products of centred bytes fit an f32's digits
EXACT_SUM = (1 << 24) // 255  # so many bytes add up exactly in f32
_RANGE = {"i8": (-128.0, 127.0), "u8": (0.0, 255.0)}
_SHIFT = {"u8": 128, "i8": -128}  # what the other type's numbers are stored plus


@dataclass(frozen=True)
class Quantised:
    """A factor ``f32(i32(load) - zero) * scale``, zero where ``guard`` (None: nowhere) is false.
    zero: an i32 Expr; scale: an f32 Expr, None for a factor that is an i32 already."""

    load: Load
    guard: Expr | None
    zero: Expr
    scale: Expr | None


def integer_products(program: Program, rows: bool = True) -> Program:
    """Program with every sum of products of a quantised tensor and quantised constant weights
    written over integers, and tensors of 8 bits that it makes stored as u8, signed ones with an
    offset of 128.  With ``rows``, if a target has some for all bytes, so are sums of products of
    two computed tensors along one axis; those columns are stored as i8, and signed rows as they
    are."""
    pairs = [m for s in program.steps if isinstance(s, Compute)
             and (m := _two_computed(program, s)) is not None] if rows else []
    program = _stored(program, {w.load.buffer for _, w in pairs} | {
        x.load.buffer for x, _ in pairs if x.load.dtype == "i8"})
    work = _Work(program, rows)
    for step in program.steps:
        work.steps += work.product(step) if isinstance(step, Compute) else [step]
    return update(program, steps=tuple(work.steps), buffers=work.buffers, consts=work.consts)


# ---------------------------------------------------------------- factors

def dequantised(program: Program, e: Expr) -> Quantised | None:
    """The Quantised that a factor (a Load, or one with a zero fill) is, through moves; or None."""
    guard = None
    if isinstance(e, Where) and isinstance(e.b, Const) and e.b.value == 0:
        guard, e = e.cond, e.a
    for _ in range(_MOVES):
        step = program.producer.get(e.buffer) if isinstance(e, Load) else None
        if not isinstance(e, Load) or not isinstance(step, Compute) or step.fold != "none" or (
                len(step.outs) != 1):
            return None
        e = substitute(step.body, dict(zip(step.axes, e.index)))
        found = _affine(program, e)
        if found is not None:
            return replace(found, guard=guard)
    return None


def _affine(program: Program, e: Expr) -> Quantised | None:
    """``f32(i32(q) - zero) * scale`` or ``i32(q) - zero`` over an 8-bit Load q, as a Quantised."""
    scale = None
    if e.dtype == "f32":
        if not (isinstance(e, Binary) and e.op == "mul" and isinstance(e.a, Cast)):
            return None
        scale, e = scalars(program, e.b), e.a.x
        if any(isinstance(n, (Cast, Where)) for n in walk(scale)):
            return None
    q: Expr = e
    zero: Expr = Const(0, "i32")
    if isinstance(e, Binary) and e.op == "sub" and e.dtype == "i32":
        q, zero = e.a, scalars(program, e.b)
    if isinstance(q, Cast) and q.dtype == "i32":
        q = q.x
    if isinstance(q, Binary) and q.op == "sub" and isinstance(q.b, Const):  # an offset tensor
        zero, q = _plus(zero, q.b), q.a.x if isinstance(q.a, Cast) else q.a
    if not isinstance(q, Load) or q.dtype not in ("u8", "i8") or zero.dtype != "i32":
        return None
    return Quantised(q, None, zero, scale)


def _plus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(a.value + b.value, "i32")
    return a + b


def _two_computed(program: Program, c: Compute) -> tuple[Quantised, Quantised] | None:
    """(rows, columns) of a sum of products of two quantised tensors, neither constant, along one
    axis of known length; columns are the factor whose own axis comes later in the result.  None if
    it is none."""
    if c.fold != "sum" or len(c.outs) != 1 or not (
            isinstance(c.body, Binary) and c.body.op == "mul"):
        return None
    read = [dequantised(program, e) for e in (c.body.a, c.body.b)]
    both = [replace(q, load=_behind_moves(program, q.load)) for q in read if q is not None]
    if len(both) < 2 or (both[0].scale is None) != (both[1].scale is None) or any(
            q.load.buffer in program.consts for q in both):
        return None
    one, two = (replace(q.load, dtype="f32") for q in both)  # only which axes they hold matters
    outer = {a for q in both for e in (q.zero, q.scale) if e is not None for a in axes_of(e)}
    found = []
    for f in factor_pairs(c.axes, c.raxes, c.fold, Binary("mul", one, two)):
        x, w = both if f.b == two else both[::-1]
        if len(f.n) == len(f.k) == 1 and isinstance(f.k[0].extent, Const) and (
                w.guard is None and f.k[0] not in outer):
            found.append((c.axes.index(f.n[0]), x, w))
    return max(found, key=lambda m: m[0])[1:] if found else None


def _behind_moves(program: Program, load: Load) -> Load:
    """The Load of what bytes were before they changed place."""
    for _ in range(_MOVES):
        step = program.producer.get(load.buffer)
        if not isinstance(step, Compute) or len(step.outs) != 1 or step.fold != "none" or (
                not isinstance(step.body, Load)):
            break
        moved = substitute(step.body, dict(zip(step.axes, load.index)))
        assert isinstance(moved, Load), step.out
        load = moved
    return load


def scalars(program: Program, e: Expr) -> Expr:
    """``e`` with loads of constants that have one value only replaced by it, casts of such
    carried out."""
    def visit(n: Expr) -> Expr | None:
        array = program.consts.get(n.buffer) if isinstance(n, Load) else None
        if array is not None and array.size and (array == array.flat[0]).all():
            return Const(array.flat[0].item(), n.dtype)
        if isinstance(n, Cast) and isinstance(n.x, Const) and n.dtype in ("i32", "f32") and (
                n.x.dtype in ("u8", "i8")):
            return Const(n.x.value, n.dtype)
        return None
    return rewrite(e, visit)


# ---------------------------------------------------------------- products

class _Work:
    """The pass in progress: buffers and constants with those that it adds."""

    def __init__(self, program: Program, rows: bool) -> None:
        self.program, self.rows = program, rows
        self.steps: list[Step] = []
        self.buffers, self.consts = dict(program.buffers), dict(program.consts)

    def product(self, c: Compute) -> list[Compute]:
        """The computes that take the place of ``c``: itself if it is no such product."""
        if c.fold != "sum" or len(c.outs) != 1 or not (
                isinstance(c.body, Binary) and c.body.op == "mul"):
            return [c]
        one, two = (dequantised(self.program, e) for e in (c.body.a, c.body.b))
        if one is None or two is None or (one.scale is None) != (two.scale is None):
            return [c]
        constant = [f.load.buffer in self.program.consts for f in (one, two)]
        w, x = (one, two) if constant[0] else (two, one)
        split = self.dots(c, x, w) if constant[0] != constant[1] else self.pair(c)
        return split or self.floats(c, x, w)

    def pair(self, c: Compute) -> list[Compute] | None:
        """The computes of a product of two computed tensors; None if it has no such form."""
        found = _two_computed(self.program, c) if self.rows else None
        if found is None:
            return None
        x, w = found
        steps: list[Compute] = []
        if w.load.dtype == "u8":  # not made here, so that it could not be stored as i8
            shape = self.buffers[w.load.buffer].shape
            axes = tuple(Axis(f"d{k}", e) for k, e in enumerate(shape))
            name = _free(self.buffers, f"{w.load.buffer}_s8")
            self.buffers[name] = Buffer(name, shape, "i8")
            moved = Cast("i32", replace(w.load, index=axes)) - Const(128, "i32")
            steps.append(Compute((name,), axes, (), "none", Cast("i8", moved), origin=c.origin))
            w = replace(w, load=Load(name, w.load.index, "i8"),
                        zero=_plus(w.zero, Const(-128, "i32")))
        body = Binary("mul", self.padded(x), Cast("i32", w.load))
        return steps + self.split(c, body, x, w)

    def dots(self, c: Compute, x: Quantised, w: Quantised) -> list[Compute] | None:
        """The computes of a product of a tensor and constant weights; None if it has no such
        form."""
        factors = (x, w)
        outer = {a for f in factors for e in (f.zero, f.scale) if e is not None for a in axes_of(e)}
        if x.load.dtype != "u8" and not self.rows or w.guard is not None or outer & set(c.raxes):
            return None
        w = self.signed(w)
        body = Binary("mul", self.padded(x), Cast("i32", w.load))
        return self.split(c, body, x, w) if _is_whole(self.program, c, body, w) else None

    def floats(self, c: Compute, x: Quantised, w: Quantised) -> list[Compute]:
        """Integer sums without such a form, short enough to be exact in f32, which has vector rows:
        one factor converted where it is read, the other, centred, as a tensor of its own."""
        depth = 1
        for r in c.raxes:
            depth *= r.extent.value if isinstance(r.extent, Const) else EXACT
        zeros = [f.zero.value for f in (x, w) if isinstance(f.zero, Const)]
        if x.scale is not None or depth >= EXACT or len(zeros) < 2 or w.guard is not None or any(
                abs(z) > 255 for z in zeros):
            return [c]
        shape = self.buffers[w.load.buffer].shape
        axes = tuple(Axis(f"d{k}", e) for k, e in enumerate(shape))
        names = []
        for tag, dims in (("centred", shape), ("exact", tuple(a.extent for a in c.axes))):
            names.append(_free(self.buffers, f"{c.out}_{tag}"))
            self.buffers[names[-1]] = Buffer(names[-1], dims, "f32")
        centred = _difference(replace(w, load=replace(w.load, index=axes)))
        value = _difference(x)
        value = value if x.guard is None else Where(x.guard, value, Const(0.0, "f32"))
        return [Compute((names[0],), axes, (), "none", centred, origin=c.origin),
                Compute((names[1],), c.axes, c.raxes, "sum",
                        Binary("mul", value, Load(names[0], w.load.index, "f32")),
                        origin=c.origin),
                replace(c, raxes=(), fold="none", acc="",
                        body=Cast("i32", Load(names[1], c.axes, "f32")))]

    def padded(self, x: Quantised) -> Expr:
        """The row operand as an i32: outside the guard it is the zero point."""
        zero, dtype = x.zero, x.load.dtype
        narrow = Const(zero.value, dtype) if isinstance(zero, Const) else Cast(dtype, zero)
        return Cast("i32", x.load if x.guard is None else Where(x.guard, x.load, narrow))

    def signed(self, w: Quantised) -> Quantised:
        """Weights as i8: of unsigned ones 128 is taken away."""
        if w.load.dtype == "i8":
            return w
        name = f"{w.load.buffer}_s8"
        if name not in self.consts:
            values = (self.program.consts[w.load.buffer].astype(np.int16) - 128).astype(np.int8)
            self.consts[name], self.buffers[name] = values, make_const(name, values)
        return replace(w, load=Load(name, w.load.index, "i8"),
                       zero=_plus(w.zero, Const(-128, "i32")))

    def split(self, c: Compute, body: Binary, x: Quantised, w: Quantised) -> list[Compute]:
        """Integer sum, corrections, and the map that scales: it keeps the name."""
        steps: list[Compute] = []

        def add(tag: str, axes: Axes, raxes: Axes, fold: str, e: Expr) -> Load:
            name = _free(self.buffers, f"{c.out}_{tag}")
            self.buffers[name] = Buffer(name, tuple(a.extent for a in axes), e.dtype)
            steps.append(Compute((name,), axes, raxes, fold, e, origin=c.origin))
            return Load(name, axes, e.dtype)

        def sums(tag: str, e: Expr, zero: Expr) -> Expr:
            """``zero`` times the sum of a factor, where it is a constant a tensor of its own."""
            axes = tuple(a for a in c.axes if a in axes_of(e))
            assert isinstance(e, Cast), e
            if self.constant(e) or not _is_exact_sum(c.raxes):
                total: Expr = add(tag, axes, c.raxes, "sum", e)
            else:  # floats have vector rows
                total = Cast("i32", add(tag, axes, c.raxes, "sum", Cast("f32", e.x)))
            return add(f"{tag}_offset", axes, (), "none", zero * total) if isinstance(
                zero, Const) else zero * total

        total: Expr = add("dot", c.axes, c.raxes, "sum", body)
        if x.zero != Const(0, "i32"):
            total = total - sums("columns", body.b, x.zero)
        if w.zero != Const(0, "i32"):
            total = total - sums("rows", body.a, w.zero)
            if x.zero != Const(0, "i32"):
                depth: Expr = Const(1)
                for r in c.raxes:
                    depth = depth * r.extent
                total = total + x.zero * w.zero * Cast("i32", depth)
        if x.scale is not None and w.scale is not None:
            total = Cast("f32", total) * self.scale(add, x.scale, w.scale)
        return steps + [replace(c, raxes=(), fold="none", body=total, acc="")]

    def constant(self, e: Expr) -> bool:
        """True for an expression of constants alone."""
        return all(n.buffer in self.consts for n in walk(e) if isinstance(n, Load))

    def scale(self, add: Callable[[str, Axes, Axes, str, Expr], Load], one: Expr,
              two: Expr) -> Expr:
        """The product of two scales; a constant of its own where both are."""
        if isinstance(one, Const) and isinstance(two, Const):
            return Const(float(np.float32(one.value) * np.float32(two.value)), "f32")
        e = one * two
        axes = tuple(sorted(axes_of(e), key=lambda a: a.name))
        if self.constant(e):
            return add("scale", axes, (), "none", e)
        return e


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


def _is_exact_sum(axes: Axes) -> bool:
    """True if f32 adds so many bytes exactly, in any order."""
    return prod(r.extent.value if isinstance(r.extent, Const) else EXACT_SUM
                for r in axes) < EXACT_SUM


def _free(buffers: Mapping[str, Buffer], name: str) -> str:
    while name in buffers:
        name += "_"
    return name


# ---------------------------------------------------------------- how bytes are stored

def _stored(program: Program, signed: Collection[str]) -> Program:
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
        if s.fold == "none" and s.body.dtype in _RANGE and s.body.dtype != dtype and (
                _saturated(s.body) is not None):
            made[s.out] = dtype
    if not made:
        return program

    def visit(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in made:
            dtype = made[n.buffer]
            stored = Cast("i32", Load(n.buffer, n.index, dtype))
            return Cast(n.dtype, stored - Const(_SHIFT[dtype], "i32"))
        if isinstance(n, Cast) and n.dtype == "i32" and isinstance(n.x, Cast) and (
                n.x.dtype in _RANGE and isinstance(n.x.x, Binary) and _is_offset(n.x.x, made)):
            return n.x.x
        return None

    def changed(s: Compute) -> Compute:
        if s.out in made and isinstance(s.body, Load):
            return replace(s, body=replace(s.body, dtype=made[s.out]))
        body = rewrite(s.body, visit)
        inner = _saturated(body) if s.out in made else None
        if inner is not None:
            body = _saturating(made[s.out], _moved(program, inner, _SHIFT[made[s.out]]))
        return replace(s, body=body) if body != s.body else s

    buffers = {n: replace(b, dtype=made.get(n, b.dtype)) for n, b in program.buffers.items()}
    return update(program, buffers=buffers, steps=tuple(
        changed(s) if isinstance(s, Compute) else s for s in program.steps))


def _is_offset(e: Binary, made: Collection[str]) -> bool:
    return e.op == "sub" and isinstance(e.a, Cast) and isinstance(e.a.x, Load) and (
        e.a.x.buffer in made)


def _saturated(e: Expr) -> Expr | None:
    """The float that an 8-bit expression clamps to its type's range; None for others."""
    if not isinstance(e, Cast) or e.dtype not in _RANGE or not isinstance(e.x, Binary):
        return None
    low, high = (Const(v, "f32") for v in _RANGE[e.dtype])
    x = e.x
    if x.op == "min" and x.b == high and isinstance(x.a, Binary) and x.a.op == "max" and (
            x.a.b == low):
        return x.a.a
    return None


def _saturating(dtype: str, e: Expr) -> Expr:
    low, high = (Const(v, "f32") for v in _RANGE[dtype])
    return Cast(dtype, Binary("min", Binary("max", e, low), high))


def _moved(program: Program, e: Expr, by: int) -> Expr:
    """A rounded float plus a constant, which its zero point takes in."""
    shift = Const(float(by), "f32")
    if not isinstance(e, Binary) or e.op != "add" or not isinstance(e.a, Unary):
        return Binary("add", e, shift)
    zero = scalars(program, e.b)
    zero = Const(zero.value + shift.value, "f32") if isinstance(zero, Const) else zero + shift
    return e.a if zero == Const(0.0, "f32") else Binary("add", e.a, zero)


# ---------------------------------------------------------------- reading 8 bits

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
        found = _affine(program, step.body) if step.fold == "none" else None
        if found is not None and found.scale is not None and len(step.outs) == 1 and (
                step.out not in program.results):
            ready[step.out] = replace(step, body=_difference(found) * found.scale)
    return update(program, steps=tuple(steps), buffers=buffers)


def _largest(step: Compute, buffers: dict[str, Buffer]) -> list[Compute]:
    """The step; a largest or smallest 8-bit value of loads is found among floats, which have vector
    forms, and converted back: exact."""
    some = all(isinstance(r.extent, Const) and r.extent.value > 0 for r in step.raxes)
    body = _float_lanes(step.body) if step.fold in ("max", "min") and some else None
    if body is None or len(step.outs) != 1:
        return [step]
    name = _free(buffers, f"{step.out}_float")
    buffers[name] = Buffer(name, tuple(a.extent for a in step.axes), "f32")
    return [replace(step, outs=(name,), body=body),
            replace(step, raxes=(), fold="none",
                    body=Cast(step.body.dtype, Load(name, step.axes, "f32")))]


def _float_lanes(e: Expr) -> Expr | None:
    """An 8-bit expression of loads, choices and constants as the same of f32; None for others."""
    if e.dtype not in _RANGE:
        return None
    if isinstance(e, Const):
        return Const(float(e.value), "f32")
    if isinstance(e, Load):
        return Cast("f32", e)
    if not isinstance(e, Where):
        return None
    a, b = _float_lanes(e.a), _float_lanes(e.b)
    return None if a is None or b is None else Where(e.cond, a, b)


def _difference(q: Quantised) -> Expr:
    """The factor without its scale in f32: differences of 8-bit numbers are exact there."""
    e: Expr = Cast("f32", q.load)
    if not isinstance(q.zero, Const):
        e = e - Cast("f32", q.zero)
    elif q.zero.value != 0:
        e = e - Const(float(q.zero.value), "f32")
    return e


__all__ = ["Quantised", "dequantised", "inline_dequantised", "integer_products"]
