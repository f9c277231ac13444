"""Products of quantised tensors become integer contractions, Program -> Program.

    sum(k) (f32(i32(x) - zx) * sx) * (f32(i32(w) - zw) * sw)
      = f32(sum(k) i32(x) * i32(w)  -  zx * sum(k) i32(w)  -  zw * sum(k) i32(x)  +  K*zx*zw)
        * (sx * sw)

for 8-bit ``x`` and constant 8-bit ``w``, and the same without scales for sums that are integer
already.  The sum in the middle runs on u8 * s8 dot products; the corrections are small computes, of
which those of constants fold away.  Padding reads the zero point.  Recognised from expressions
alone: nothing here knows which operator wrote them.  (The identity: B. Jacob et al., Quantization
and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference, CVPR 2018, 2.3.)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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

_MOVES = 16  # reshapes and transposes between a tensor's quantised form and its product
EXACT = (1 << 24) // (255 * 255)  # so many products of centred bytes fit an f32's digits
_RANGE = {"i8": (-128.0, 127.0), "u8": (0.0, 255.0)}


@dataclass(frozen=True)
class Quantised:
    """A factor ``f32(i32(load) - zero) * scale``, zero where ``guard`` (None: nowhere) is false.
    zero: an i32 Expr; scale: an f32 Expr, None for a factor that is an i32 already."""

    load: Load
    guard: Expr | None
    zero: Expr
    scale: Expr | None


def integer_products(program: Program) -> Program:
    """Program with every sum of products of a quantised tensor and quantised constant weights
    written over integers, and signed 8-bit tensors that it makes stored with an offset of 128."""
    program = _unsigned(program)
    work = _Work(program)
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

    def __init__(self, program: Program) -> None:
        self.program = program
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
        split = self.dots(c, x, w) if constant[0] != constant[1] else None
        return split or self.floats(c, x, w)

    def dots(self, c: Compute, x: Quantised, w: Quantised) -> list[Compute] | None:
        """The computes of a product of a tensor and constant weights; None if it has no such
        form."""
        factors = (x, w)
        outer = {a for f in factors for e in (f.zero, f.scale) if e is not None for a in axes_of(e)}
        if x.load.dtype != "u8" or w.guard is not None or outer & set(c.raxes):
            return None
        w = self.signed(w)
        body = Binary("mul", self.padded(x), Cast("i32", w.load))
        lane = _lane(self.program, c, body, w)
        return None if lane is None else self.split(c, body, x, w, lane)

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
            name = f"{c.out}_{tag}"
            while name in self.buffers:
                name += "_"
            self.buffers[name] = Buffer(name, dims, "f32")
            names.append(name)
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
        zero = x.zero
        narrow = Const(zero.value, "u8") if isinstance(zero, Const) else Cast("u8", zero)
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

    def split(self, c: Compute, body: Binary, x: Quantised, w: Quantised,
              lane: Axis) -> list[Compute]:
        """Integer sum, corrections, and the map that scales: it keeps the name."""
        steps: list[Compute] = []

        def add(tag: str, axes: Axes, raxes: Axes, fold: str, e: Expr) -> Load:
            name = f"{c.out}_{tag}"
            while name in self.buffers:
                name += "_"
            self.buffers[name] = Buffer(name, tuple(a.extent for a in axes), e.dtype)
            steps.append(Compute((name,), axes, raxes, fold, e, origin=c.origin))
            return Load(name, axes, e.dtype)

        total: Expr = add("dot", c.axes, c.raxes, "sum", body)
        if x.zero != Const(0, "i32"):
            sums = add("columns", (lane,), c.raxes, "sum", body.b)
            total = total - (add("offset", (lane,), (), "none", x.zero * sums)
                             if isinstance(x.zero, Const) else x.zero * sums)
        if w.zero != Const(0, "i32"):
            rows = tuple(a for a in c.axes if a != lane)
            total = total - w.zero * add("rows", rows, c.raxes, "sum", body.a)
            if x.zero != Const(0, "i32"):
                depth: Expr = Const(1)
                for r in c.raxes:
                    depth = depth * r.extent
                total = total + x.zero * w.zero * Cast("i32", depth)
        if x.scale is not None and w.scale is not None:
            total = Cast("f32", total) * self.scale(add, x.scale, w.scale)
        return steps + [replace(c, raxes=(), fold="none", body=total, acc="")]

    def scale(self, add: Callable[[str, Axes, Axes, str, Expr], Load], one: Expr,
              two: Expr) -> Expr:
        """The product of two scales; a constant of its own where both are."""
        if isinstance(one, Const) and isinstance(two, Const):
            return Const(float(np.float32(one.value) * np.float32(two.value)), "f32")
        e = one * two
        axes = tuple(sorted(axes_of(e), key=lambda a: a.name))
        if all(n.buffer in self.consts for n in walk(e) if isinstance(n, Load)):
            return add("scale", axes, (), "none", e)
        return e


def _lane(program: Program, c: Compute, body: Binary, w: Quantised) -> Axis | None:
    """The axis that only the weights have, if they hold it and the reduction axes, each once and
    whole; None if the product has no such form."""
    plain = [i for i in w.load.index if i != Const(0)]
    if len(set(plain)) != len(plain) or not all(isinstance(i, Axis) for i in plain):
        return None
    shape = program.consts[w.load.buffer].shape if w.load.buffer in program.consts else ()
    if shape and any(i.extent != Const(d) for i, d in zip(w.load.index, shape)
                     if isinstance(i, Axis)):
        return None
    for f in factor_pairs(c.axes, c.raxes, c.fold, body):
        if f.b == w.load and len(f.n) == 1 and set(plain) <= {f.n[0], *c.raxes} and not any(
                f.n[0] in axes_of(e) for e in (f.a,)):
            return f.n[0]
    return None


# ---------------------------------------------------------------- signed tensors

def _unsigned(program: Program) -> Program:
    """Program in which 8-bit tensors made by rounding are u8: a signed one is stored plus 128 and
    read minus 128, so that dot products of u8 and s8 serve both."""
    made = {s.out: s for s in program.steps if isinstance(s, Compute) and s.fold == "none"
            and isinstance(s.body, Cast) and s.body.dtype == "i8" and s.body.x.dtype == "f32"
            and s.out not in program.results}
    made = {b: s for b, s in made.items() if all(isinstance(r, Compute)
                                                 for r in program.consumers.get(b, ()))}
    if not made:
        return program

    def visit(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in made:
            offset = Cast("i32", Load(n.buffer, n.index, "u8")) - Const(128, "i32")
            return Cast("i8", offset)
        if isinstance(n, Cast) and n.dtype == "i32" and isinstance(n.x, Cast) and (
                n.x.dtype == "i8" and isinstance(n.x.x, Binary) and _is_offset(n.x.x, made)):
            return n.x.x
        return None

    steps: list[Step] = []
    for s in program.steps:
        if isinstance(s, Compute):
            body = rewrite(s.body, visit)
            if s.out in made and isinstance(body, Cast):
                body = Cast("u8", _raised(program, body.x))
            s = replace(s, body=body) if body != s.body else s
        steps.append(s)
    buffers = {n: replace(b, dtype="u8") if n in made else b for n, b in program.buffers.items()}
    return update(program, steps=tuple(steps), buffers=buffers)


def _is_offset(e: Binary, made: Mapping[str, Compute]) -> bool:
    return e.op == "sub" and isinstance(e.a, Cast) and isinstance(e.a.x, Load) and (
        e.a.x.buffer in made)


def _raised(program: Program, e: Expr) -> Expr:
    """A float in -128 .. 127 plus 128; of a saturated sum the bounds move instead."""
    low, high = _RANGE["i8"]
    if isinstance(e, Binary) and e.op == "min" and e.b == Const(high, "f32") and isinstance(
            e.a, Binary) and e.a.op == "max" and e.a.b == Const(low, "f32"):
        inner, up = e.a.a, Const(128.0, "f32")
        if isinstance(inner, Binary) and inner.op == "add" and isinstance(inner.a, Unary):
            zero = scalars(program, inner.b)
            zero = Const(zero.value + 128.0, "f32") if isinstance(zero, Const) else zero + up
            inner = inner.a if zero == Const(0.0, "f32") else Binary("add", inner.a, zero)
        else:
            inner = Binary("add", inner, up)
        low, high = _RANGE["u8"]
        return Binary("min", Binary("max", inner, Const(low, "f32")), Const(high, "f32"))
    return Binary("add", e, Const(128.0, "f32"))


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
    name = f"{step.out}_float"
    while name in buffers:
        name += "_"
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
