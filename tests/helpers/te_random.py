"""Random small Programs and random legal Schedules of them, by seed."""

import random
from dataclasses import replace

import numpy as np
from edits import with_tables
from te_programs import Maker, softmax

from aotc.errors import ScheduleError
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Sym,
    Unary,
    Where,
    all_hold,
    check_index,
    compare,
    maximum,
    minimum,
)
from aotc.ir.program import Buffer, LibCall, neutral_value
from aotc.ir.simplify import simplify
from aotc.sched import check_schedule, complete, decide
from aotc.sched.model.stages import group_stages

LIMIT = 2500  # elements of one tensor
NARROW = ("i32", "i16", "i8", "u64", "u32", "u16", "u8")
SAFE = ("tanh", "sin", "cos", "erf", "abs", "neg")


class Generator:
    """Grows one Program step by step; ``done`` makes every unread tensor an output."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.m = Maker(f"p{seed}")
        self.count = 0
        self.sym = Sym("n", 1, 9) if self.rng.random() < 0.3 else None
        for _ in range(self.rng.randint(1, 2)):
            self.new_input("f32")
        self.new_input(self.rng.choice(("i64", "bool", "f32")))
        if self.rng.random() < 0.5:
            self.new_input(self.rng.choice(NARROW + ("f64",)))

    def name(self, stem="t"):
        self.count += 1
        return f"{stem}{self.count}"

    def new_input(self, dtype):
        rank = self.rng.choice((0, 1, 2, 2, 3, 3, 4, 5, 6))
        dims = [self.rng.choice((1, 2, 3, 4, 5, 7) if rank < 6 else (1, 2, 3))
                for _ in range(rank)]
        if dims and rank < 4:
            dims[-1] = self.rng.choice((1, 3, 8, 16, 17, 20, 33))
        if self.sym is not None and rank and self.rng.random() < 0.7:
            dims[0] = self.sym
        self.m.input(self.name("x"), *dims, dtype=dtype)

    def shape(self, t):
        return self.m.buffers[t].shape

    def axes(self, shape, stem="i"):
        return tuple(Axis(f"{stem}{d}", e) for d, e in enumerate(shape))

    def pick(self, dtype="f32", rank=0):
        found = [t for t, b in self.m.buffers.items() if b.dtype == dtype
                 and len(b.shape) >= rank and t not in self.m.consts]
        # recent tensors first: long chains
        return self.rng.choice(found[-3:] if self.rng.random() < 0.7 else found) if found else None

    def fits(self, shape):
        n = 1
        for d in shape:
            n *= d.value if isinstance(d, Const) else 9
        return n <= LIMIT

    # ------------------------------------------------------------ steps

    def unary(self):
        t = self.pick()
        op = self.rng.choice(SAFE)
        # of hundreds, sine and cosine turn the last digit of a sum into the fifth one of theirs
        near = op in ("sin", "cos")
        self.m.pointwise(self.name(), t, lambda e, _: Unary(
            op, minimum(maximum(e, Const(-9.0, "f32")), Const(9.0, "f32")) if near else e))

    def binary(self):
        """Two tensors of one shape, or one broadcast: trailing dims, dims of extent one."""
        t = self.pick()
        axes, shape = self.axes(self.shape(t)), self.shape(t)
        others = [u for u, b in self.m.buffers.items() if b.dtype == "f32"
                  and len(b.shape) <= len(shape) and u not in self.m.consts and all(
                      d in (e, Const(1)) for d, e in zip(b.shape[::-1], shape[::-1]))]
        u = self.rng.choice(others)
        tail = axes[len(axes) - len(self.shape(u)):]
        index = [0 if d == Const(1) else a for d, a in zip(self.shape(u), tail)]
        a, b = self.m.ref(t, *axes), self.m.ref(u, *index)
        op = self.rng.choice(("add", "sub", "mul", "max", "min"))
        e = {"max": maximum, "min": minimum}.get(op, lambda x, y: Binary(op, x, y))(a, b)
        self.m.step(self.name(), axes, e * Const(0.5, "f32") if op == "add" else e)

    def select(self):
        """A choice by an input's bits or by position."""
        t = self.pick()
        axes = self.axes(self.shape(t))
        b = self.pick("bool")
        x = self.m.ref(t, *axes)
        if b is not None and self.shape(b) == self.shape(t):
            cond = self.m.ref(b, *axes)
        elif axes:
            a = self.rng.choice(axes)
            cond = compare(self.rng.choice(("lt", "ge")), a, self.rng.randint(1, 4))
        else:
            return
        self.m.step(self.name(), axes, Where(cond, x, Const(0.25, "f32") - x))

    def reduce(self):
        t = self.pick(rank=1)
        if t is None:
            return
        shape = self.shape(t)
        inner = self.axes(shape)
        gone = set(self.rng.sample(range(len(shape)), self.rng.randint(1, min(2, len(shape)))))
        red = tuple(Axis(f"r{d}", shape[d]) for d in sorted(gone))
        keep = self.rng.random() < 0.4
        out = tuple(Axis(a.name, Const(1)) if d in gone else a for d, a in enumerate(inner)
                    if keep or d not in gone)
        by = {f"i{d}": r for d, r in zip(sorted(gone), red)}
        index = [by.get(a.name, a) for a in inner]
        self.m.step(self.name(), out, self.m.ref(t, *index) * Const(0.5, "f32"), red,
                    self.rng.choice(("sum", "max", "min")))

    def matmul(self):
        t = self.pick(rank=1)
        if t is None or not isinstance(self.shape(t)[-1], Const):
            return
        k = self.shape(t)[-1].value
        n = self.rng.choice((1, 3, 5, 16, 19, 40))
        front = self.axes(self.shape(t)[:-1])
        if not self.fits((*(a.extent for a in front), Const(n))):
            return
        data = np.random.default_rng(self.count).standard_normal((k, n)) / np.sqrt(k)
        w = self.m.const(self.name("w"), data.astype(np.float32))
        r, o = Axis("k", Const(k)), Axis("o", Const(n))
        self.m.step(self.name(), (*front, o),
                    self.m.ref(t, *front, r) * self.m.ref(w, r, o), (r,), "sum")

    def product(self):
        """t t^T over the last axis: both factors computed."""
        t = self.pick(rank=2)
        if t is None or not self.fits(self.shape(t)[:-1] + (self.shape(t)[-2],)):
            return
        *front, i, k = self.axes(self.shape(t))
        j = Axis("j", i.extent)
        self.m.step(self.name(), (*front, i, j), self.m.ref(t, *front, i, k)
                    * self.m.ref(t, *front, j, k) * Const(0.1, "f32")
                    if self.rng.random() < 0.3 else
                    self.m.ref(t, *front, i, k) * self.m.ref(t, *front, j, k), (k,), "sum")
        self.m.pointwise(self.name(), self.m.steps[-1].out, lambda e, _: Unary("tanh", e))

    def transpose(self):
        t = self.pick(rank=2)
        if t is None:
            return
        axes = self.axes(self.shape(t))
        order = self.rng.sample(range(len(axes)), len(axes))
        self.m.step(self.name(), tuple(axes[d] for d in order), self.m.ref(t, *axes))

    def flatten(self):
        t = self.pick(rank=2)
        if t is None:
            return
        *front, a, b = self.axes(self.shape(t))
        f = Axis("f", simplify(a.extent * b.extent))
        self.m.step(self.name(), (*front, f),
                    self.m.ref(t, *front, f // b.extent, f % b.extent))

    def slice(self):
        t = self.pick(rank=1)
        shape = self.shape(t) if t else ()
        if not t or not isinstance(shape[-1], Const) or shape[-1].value < 3:
            return
        axes = self.axes(shape)
        step = self.rng.choice((1, 2, -1))
        n = shape[-1].value
        last = Axis(axes[-1].name, Const((n - 1) // abs(step)))
        at = last * step + (1 if step > 0 else n - 1)
        self.m.step(self.name(), (*axes[:-1], last), self.m.ref(t, *axes[:-1], at))

    def pad(self):
        t = self.pick(rank=1)
        if t is None or not self.fits((*self.shape(t), Const(2))):
            return
        *front, a = self.axes(self.shape(t))
        wide = Axis(a.name, simplify(a.extent + 3))
        inside = all_hold([compare("ge", wide, 1), compare("lt", wide - 1, a.extent)])
        self.m.step(self.name(), (*front, wide), Where(
            inside, self.m.ref(t, *front, wide - 1), Const(0, "f32")))

    def concat(self):
        t = self.pick(rank=1)
        if t is None or not self.fits((*self.shape(t), Const(2))):
            return
        a, *rest = self.axes(self.shape(t))
        both = Axis(a.name, simplify(a.extent * 2))
        self.m.step(self.name(), (both, *rest), Where(
            compare("lt", both, a.extent), self.m.ref(t, both, *rest),
            Unary("neg", self.m.ref(t, both - a.extent, *rest))))

    def window(self):
        t = self.pick(rank=1)
        shape = self.shape(t) if t else ()
        if not t or not isinstance(shape[-1], Const):
            return
        *front, a = self.axes(shape)
        k = Axis("w", Const(3))
        stride = self.rng.choice((1, 2))
        o = Axis(a.name, Const((a.extent.value - 1) // stride + 1))
        at = o * stride + k - 1
        inside = all_hold([compare("ge", at, 0), compare("lt", at, a.extent)])
        fold = self.rng.choice(("sum", "max"))
        x = Where(inside, self.m.ref(t, *front, at),
                  Const(0 if fold == "sum" else float("-inf"), "f32"))
        self.m.step(self.name(), (*front, o), x, (k,), fold)

    def gather(self):
        t, at = self.pick(rank=1), self.pick("i64")
        if t is None or at is None:
            return
        first, *rest = self.axes(self.shape(t))
        many = self.axes(self.shape(at), "g")
        if not self.fits(tuple(x.extent for x in (*many, *rest))):
            return
        index = Binary("mod", self.m.ref(at, *many), first.extent)
        self.m.step(self.name(), (*many, *rest), self.m.ref(t, index, *rest))

    def run(self):
        """Rows folded from one number of data to another, whatever these are."""
        t, at = self.pick(rank=1), self.pick("i64")
        if t is None or at is None:
            return
        first, *rest = self.axes(self.shape(t))
        many, r = self.axes(self.shape(at), "g"), Axis("r0", first.extent)
        if not self.fits(tuple(x.extent for x in (*many, *rest))):
            return
        n, fold = self.m.ref(at, *many), self.rng.choice(("sum", "max", "min"))
        ends = (compare("ge", r, n), compare("lt", r, n + self.rng.randint(1, 4)))
        inside = all_hold(self.rng.choice((ends, ends[:1], ends[1:])))
        self.m.step(self.name(), (*many, *rest), Where(
            inside, self.m.ref(t, r, *rest), neutral_value(fold, "f32")), (r,), fold)

    def integers(self):
        t = self.pick("i64")
        if t is None:
            return
        axes = self.axes(self.shape(t))
        x = self.m.ref(t, *axes)
        e = self.rng.choice((x * 3 - 1, Binary("floordiv", x, Const(4)),
                             Binary("mod", x, Const(5)), maximum(x, Const(-2)),
                             axes[0] * 2 - x if axes else x))
        self.m.step(self.name(), axes, e)
        if self.rng.random() < 0.6:
            self.m.step(self.name(), axes, Cast("f32", e) * Const(0.1, "f32"))
        else:
            self.m.step(self.name(), axes, compare("gt", e, Const(0)))

    def narrow(self):
        """Arithmetic that wraps, in any integer type; of two tensors of one shape, or one."""
        t = self.pick(self.rng.choice(NARROW))
        if t is None:
            return
        axes, dtype = self.axes(self.shape(t)), self.m.buffers[t].dtype
        x = self.m.ref(t, *axes)
        ops = ("add", "sub", "mul", "min", "max", "and", "or", "xor", "div", "mod")
        e = Binary(self.rng.choice(ops), x, Const(self.rng.choice((0, 1, 3, 7, 100)), dtype))
        e = Binary(self.rng.choice(ops), e, x)
        match self.rng.randrange(4):
            case 0:
                e = Cast(self.rng.choice(NARROW), e)
            case 1:
                e = Cast("f32", e) * Const(0.001, "f32")
            case 2:
                e = compare("lt", e, x)
        self.m.step(self.name(), axes, e)

    def double(self):
        t = self.pick("f64")
        if t is not None:
            self.m.pointwise(self.name(), t, lambda e, _: self.rng.choice(
                (Unary("tanh", e), e * Const(0.5, "f64") - Const(1, "f64"), Cast("f32", e))))

    def order(self):
        """Rows of integers sorted by a library kernel, and the elements in that order."""
        found = [t for t, b in self.m.buffers.items() if b.dtype in NARROW + ("i64",) and b.shape]
        if not found or not self.library:
            return
        t = self.rng.choice(found)
        name, *axes = self.name(), *self.axes(self.shape(t))
        self.m.buffers[name] = Buffer(name, self.shape(t), "i64")
        self.m.steps.append(LibCall("topk", (("largest", self.rng.randint(0, 1)),), (t,), (name,),
                                    (f"node_{name}",)))
        at = check_index(self.m.ref(name, *axes), axes[-1].extent)
        self.m.step(self.name(), axes, self.m.ref(t, *axes[:-1], at))

    def softmax(self):
        t = self.pick(rank=1)
        if t is not None:
            softmax(self.m, self.name(), t)

    def done(self):
        read = {b for s in self.m.steps for b in s.inputs}
        leaves = [o for s in self.m.steps for o in s.outs if o not in read]
        extra = [o for s in self.m.steps for o in s.outs if o in read
                 and self.rng.random() < 0.08]
        return self.m.done(*leaves, *extra)


STEPS = {"unary": 3, "binary": 4, "select": 2, "reduce": 3, "matmul": 3, "product": 1,
         "transpose": 2, "flatten": 1, "slice": 1, "pad": 1, "concat": 1, "window": 2,
         "gather": 1, "run": 1, "integers": 1, "softmax": 1, "narrow": 2, "double": 1, "order": 1}


def random_program(seed, library=True):
    """The Program of a seed; ``library``: with calls of library kernels."""
    g = Generator(seed)
    g.library = library
    kinds = [k for k, n in STEPS.items() for _ in range(n)]
    while len(g.m.steps) < 3 + seed % 9:
        getattr(g, g.rng.choice(kinds))()
    return g.done()


# ---------------------------------------------------------------- schedules

def random_schedule(program, target, seed):
    """A legal Schedule: the decided one with random tiles, levels and fused groups.  Illegal
    steps of the walk are dropped."""
    rng = random.Random(seed)
    s = decide(program, target)
    for _ in range(7):
        move = rng.choice((_retile, _retile, _fuse, _level, _plain, _relayout))
        new = move(program, s, rng)
        if new is None:
            continue
        try:
            new = complete(program, replace(new, buffers={}), target)
        except ScheduleError:
            continue
        if not check_schedule(program, new, target):
            s = new
    # how many neighbours a thread may have depends on tiles and layouts
    return replace(s, groups=tuple(g.saying(
        lambda c: replace(c, neighbours=c.neighbours and 1)) for g in s.groups))


def _with_groups(program, s, groups):
    """The Schedule with other groups; layouts only of what they store."""
    stored = {b for g in groups for b in g.outputs} | set(program.consts)
    return replace(s, groups=groups, layouts={b: x for b, x in s.layouts.items() if b in stored})


def _bare(g, **fields):
    return with_tables(g, ukernel={}, loops={}, **fields)


def _swap(program, s, old, *new):
    return _with_groups(program, s, tuple(x for g in s.groups
                                          for x in (new if g is old else (g,))))


def _retile(program, s, rng):
    g = rng.choice(s.groups)
    anchor = next((s for s in group_stages(program, g) if g.anchor in s.computes), None)
    if anchor is None:
        return None  # a library call
    tile = {a.name: rng.randint(1, a.extent.value if isinstance(a.extent, Const) else 5)
            for a in anchor.axes if rng.random() < 0.5}
    order = tuple(rng.sample(list(tile), len(tile)))
    return _swap(program, s, g, replace(g, tile=tile, parallel=order))


def _fuse(program, s, rng):
    """Two groups become one: what flows between them stays in the slab."""
    pairs = [(a, b) for i, a in enumerate(s.groups) for b in s.groups[i + 1:]
             if any(o in program.producer[c].inputs for c in b.computes for o in a.outputs)]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    inside = set(a.computes) | set(b.computes)
    flows = {o: "L1" for o in a.outputs if any(o in program.producer[c].inputs
                                               for c in b.computes)}
    left = tuple(o for o in a.outputs if o in program.outputs or any(
        s.outs[0] not in inside for s in program.consumers.get(o, ())))
    new = _bare(b, name=f"{a.name}{b.name}", computes=a.computes + b.computes,
                outputs=left + b.outputs, connect=a.connect | b.connect | flows)
    return _with_groups(program, s, tuple(new if g is b else g for g in s.groups if g is not a))


def _level(program, s, rng):
    g = rng.choice(s.groups)
    edges = list(g.connect)
    if not edges:
        return None
    b = rng.choice(edges)
    last = g.computes[-1]
    level = "L1" if g.connect[b] == "register" else "register"
    return _swap(program, s, g, _bare(g, connect=g.connect | {b: level}, anchor=last, tile={},
                                      parallel=()))


def _plain(program, s, rng):
    g = rng.choice(s.groups)
    names = [s.name for s in group_stages(program, g)]
    return _swap(program, s, g, with_tables(g, ukernel=dict.fromkeys(names, "loops"), loops={}))


def _relayout(program, s, rng):
    """A stored tensor (or a weight) in another order, padded or split."""
    found = [b for g in s.groups for b in g.outputs if program.buffers[b].role == "temp"
             and program.shape(b)] + list(program.consts)
    if not found:
        return None
    b = rng.choice(found)
    rank = len(program.shape(b))
    rows = []
    if rng.random() < 0.5:
        dim = rng.randrange(rank)
        extent = program.shape(b)[dim]
        if isinstance(extent, Const):
            pad = -extent.value % 4
            rows += [("pad", dim, 0, pad), ("split", dim, ((extent.value + pad) // 4, 4))]
            rank += 1
    rows.append(("reorder", tuple(rng.sample(range(rank), rank))))
    return replace(s, layouts=s.layouts | {b: tuple(rows)})
