"""Small tensor programs built by hand, for the tests of the scheduler, the emitter and the C."""

import numpy as np

from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Load, Sym, Unary, Where, all_hold, compare, maximum, walk
from aotc.ir.program import Buffer, Compute, Program, make_const
from aotc.ir.simplify import simplify
from aotc.oracle.check_program import check_program
from aotc.oracle.eval_expr import index_value


def ax(name, extent):
    """Axis of an int or symbolic extent."""
    return Axis(name, Const(extent) if isinstance(extent, int) else extent)


def zero(dtype="f32"):
    return Const(0, dtype)


def relu(e):
    return maximum(e, zero())


class Maker:
    """A Program under construction.  Buffers are named by the caller; ``ref(name, *index)`` loads
    one; ``done(*outputs)`` gives the checked Program."""

    def __init__(self, name="p"):
        self.name, self.steps, self.buffers, self.consts = name, [], {}, {}
        self.inputs = []

    def input(self, name, *shape, dtype="f32"):
        dims = tuple(Const(d) if isinstance(d, int) else d for d in shape)
        self.buffers[name] = Buffer(name, dims, dtype, "input", name)
        self.inputs.append(name)
        return name

    def const(self, name, array):
        self.consts[name] = array
        self.buffers[name] = make_const(name, array)
        return name

    def ref(self, name, *index):
        index = tuple(Const(i) if isinstance(i, int) else i for i in index)
        return Load(name, index, self.buffers[name].dtype)

    def step(self, out, axes, body, raxes=(), fold="none", acc=""):
        """One Compute; returns the name of its (first) output."""
        outs = (out,) if isinstance(out, str) else tuple(out)
        types = [body.dtype] if isinstance(fold, str) else [t for _, t in fold.states]
        for o, t in zip(outs, types):
            self.buffers[o] = Buffer(o, tuple(simplify(a.extent) for a in axes), t)
        self.steps.append(Compute(outs, tuple(axes), tuple(raxes), fold, body, acc,
                                  tuple(f"node_{o}" for o in outs)))
        return outs[0]

    def pointwise(self, out, source, fn):
        """``out[axes] = fn(source[axes], axes)``."""
        axes = [Axis(f"i{d}", e) for d, e in enumerate(self.buffers[source].shape)]
        return self.step(out, axes, fn(self.ref(source, *axes), axes))

    def done(self, *outputs, syms=()):
        """The Program; ``syms``: those that no shape shows."""
        buffers = dict(self.buffers)
        for o in outputs:
            b = buffers[o]
            buffers[o] = Buffer(o, b.shape, b.dtype, "output", o)
        syms = dict.fromkeys((*(n for b in buffers.values() for d in b.shape for n in walk(d)
                                if isinstance(n, Sym)), *syms))
        p = Program(self.name, tuple(self.inputs), tuple(outputs), buffers, dict(self.consts),
                    tuple(self.steps), tuple(syms))
        faults = check_program(p)
        assert not faults, faults
        return p


def padded(m, source, index, limits):
    """Load of ``source`` at ``index``, zero where a checked dim is outside: ``limits`` maps the
    position of a dim to its extent."""
    conds = [c for d, n in limits.items()
             for c in (compare("ge", index[d], 0), compare("lt", index[d], n))]
    cond = all_hold(conds)
    x = m.ref(source, *index)
    return x if cond is None else Where(cond, x, zero())


def conv2d(m, out, source, weight, stride=1, pad=0, dilation=1, groups=1):
    """NCHW convolution of ``source`` with ``weight`` [oc, ic/groups, kh, kw]."""
    n, c, h, w = m.buffers[source].shape
    oc, icg, kh, kw = (d.value for d in m.buffers[weight].shape)
    b, o = Axis("n", n), ax("oc", oc)
    i, j, k = ax("ic", icg), ax("kh", kh), ax("kw", kw)
    oh = ax("oh", (h.value + 2 * pad - dilation * (kh - 1) - 1) // stride + 1)
    ow = ax("ow", (w.value + 2 * pad - dilation * (kw - 1) - 1) // stride + 1)
    y, x = oh * stride + j * dilation - pad, ow * stride + k * dilation - pad
    channel = i if groups == 1 else simplify(o // (oc // groups) * icg + i)
    limits = {2: h.value, 3: w.value} if pad else {}
    value = padded(m, source, (b, channel, y, x), limits)
    return m.step(out, (b, o, oh, ow), value * m.ref(weight, o, i, j, k), (i, j, k), "sum")


def two_products(rows, terms, between, columns):
    """Two products of rows, h = relu(x w), y = h v, with random constants w and v."""
    rng = np.random.default_rng(5)
    m = Maker("rows")
    m.input("x", rows, terms)
    for name, shape in (("w", (terms, between)), ("v", (between, columns))):
        m.const(name, rng.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5)
    matmul(m, "p", "x", "w")
    m.pointwise("h", "p", lambda e, _: relu(e))
    matmul(m, "y", "h", "v")
    return m.done("y")


def matmul(m, out, a, b, n_axis="j"):
    """``out[i, j] = sum(k) a[i, k] * b[k, j]``."""
    i = Axis("i", m.buffers[a].shape[0])
    k, j = Axis("k", m.buffers[b].shape[0]), Axis(n_axis, m.buffers[b].shape[1])
    return m.step(out, (i, j), m.ref(a, i, k) * m.ref(b, k, j), (k,), "sum")


def softmax(m, out, source):
    """Softmax of the last axis of ``source`` as four computes: out_max, out_exp, out_sum, out."""
    axes = [Axis(f"i{d}", e) for d, e in enumerate(m.buffers[source].shape)]
    rows, r = axes[:-1], Axis("r", axes[-1].extent)
    top = m.step(f"{out}_max", rows, m.ref(source, *rows, r), (r,), "max")
    e = m.step(f"{out}_exp", axes,
               Unary("exp", m.ref(source, *axes) - m.ref(top, *rows)))
    s = m.step(f"{out}_sum", rows, m.ref(e, *rows, r), (r,), "sum")
    return m.step(out, axes, m.ref(e, *axes) / m.ref(s, *rows))


def random_feeds(program, rng, syms=None, special=()):
    """Inputs {buffer: array}: f32 normal, ints small, with ``special`` values strewn in."""
    feeds = {}
    for name in program.inputs:
        b = program.buffers[name]
        shape = tuple(index_value(d, syms or {}) for d in b.shape)
        dtype = DTYPES[b.dtype].numpy
        if b.dtype == "bool":
            feeds[name] = rng.integers(0, 2, shape).astype(bool)
        elif DTYPES[b.dtype].kind != "f":
            x = np.asarray(rng.integers(0 if DTYPES[b.dtype].kind == "u" else -9, 10, shape)
                           ).astype(dtype)
            for v in special:
                ends = np.iinfo(dtype)
                if np.isfinite(v) and v == int(v) and ends.min <= v <= ends.max:
                    x[rng.random(shape) < 0.15] = int(v)
            feeds[name] = x
        else:
            x = np.asarray(rng.standard_normal(shape)).astype(dtype)
            for v in special:
                x[rng.random(shape) < 0.15] = v
            feeds[name] = x
    return feeds
