"""Hand-written Schedules whose groups hold several stages: halo, attention, a whole MLP."""

from collections import Counter
from dataclasses import replace

import numpy as np
from edits import with_tables
from harness import Case, at_home
from te_programs import Maker, ax, conv2d, matmul, padded, relu, softmax

from aotc.ir.expr import Axis, Const, Sym, Unary, Where, check_index, compare
from aotc.ir.schedule import Group, Schedule
from aotc.sched.model.stages import group_stages

RNG = np.random.default_rng(11)


def weights(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(max(1, shape[-1]))).astype(np.float32)


def schedule(target, program, connect, tile, anchor, outputs=None, **fields):
    """One group of everything."""
    names = tuple(s.outs[0] for s in program.steps)
    g = with_tables(Group("g", names, tuple(outputs or program.outputs), anchor, connect, tile,
                          parallel=tuple(tile)), **fields)
    return at_home(Schedule(target.name, (g,)), target)


def with_loops(program, s):
    """The Schedule with every stage on the plain nest."""
    g, = s.groups
    rows = {x.name: "loops" for x in group_stages(program, g)}
    return replace(s, groups=(with_tables(g, ukernel=rows, loops={}),))


def two_convolutions(pad=1, stride=1, size=13):
    """conv 3x3 -> relu -> conv 3x3 -> bias: ``c1`` register, ``r1`` a tile with a halo."""
    m = Maker()
    m.input("x", 1, 3, size, 9)
    conv2d(m, "c1", "x", m.const("w1", weights(5, 3, 3, 3)), 1, pad)
    m.pointwise("r1", "c1", lambda e, _: relu(e))
    conv2d(m, "c2", "r1", m.const("w2", weights(6, 5, 3, 3)), stride, pad)
    m.const("bias", weights(6))
    m.pointwise("y", "c2", lambda e, i: e + m.ref("bias", i[1]))
    return m.done("y"), {"c1": "register", "r1": "L1", "c2": "register"}, "c2"


def depthwise_pointwise(stride=1):
    m = Maker()
    h, w, c, kernel = 11, 10, 7, 3
    m.input("x", c, h, w)
    m.const("k", weights(c, kernel, kernel))
    m.const("p", weights(c, 9))
    out = [(n + 2 - kernel) // stride + 1 for n in (h, w)]
    ch, oh, ow, i, j = ax("c", c), ax("oh", out[0]), ax("ow", out[1]), ax("i", 3), ax("j", 3)
    value = padded(m, "x", (ch, oh * stride + i - 1, ow * stride + j - 1), {1: h, 2: w})
    m.step("d", (ch, oh, ow), value * m.ref("k", ch, i, j), (i, j), "sum")
    m.pointwise("r", "d", lambda e, _: relu(e))
    oc = ax("oc", 9)
    m.step("y", (oc, oh, ow), m.ref("r", ch, oh, ow) * m.ref("p", ch, oc), (ch,), "sum")
    return m.done("y"), {"d": "register", "r": "L1"}, "y"


def attention(rows=10, keys=14, depth=6, causal=False):
    """q k^T -> softmax -> times v; the scores never leave the slab."""
    m = Maker()
    m.input("q", rows, depth)
    m.input("k", keys, depth)
    m.input("v", keys, 5)
    i, j, d = ax("i", rows), ax("j", keys), ax("d", depth)
    m.step("s", (i, j), m.ref("q", i, d) * m.ref("k", j, d), (d,), "sum")
    m.pointwise("t", "s", lambda e, a: e * Const(0.4, "f32") if not causal else Where(
        compare("le", a[1], a[0]), e * Const(0.4, "f32"), Const(float("-inf"), "f32")))
    softmax(m, "p", "t")
    matmul(m, "o", "p", "v", "c")
    return m.done("o"), {"s": "register", "t": "L1", "p_max": "L1", "p_exp": "L1",
                         "p_sum": "L1", "p": "L1"}, "o"


def mlp(batch=21, stored=()):
    """Four layers; ``stored``: hidden layers that are outputs too."""
    m = Maker()
    m.input("x", batch, 6)
    last, connect = "x", {}
    for n, (a, b) in enumerate(((6, 18), (18, 10), (10, 12), (12, 4))):
        m.const(f"w{n}", weights(a, b))
        m.const(f"b{n}", weights(b))
        matmul(m, f"m{n}", last, f"w{n}")
        last = m.pointwise(f"h{n}", f"m{n}", lambda e, i, n=n: Unary(
            "tanh", e + m.ref(f"b{n}", i[1])))
        connect |= {f"m{n}": "register", f"h{n}": "L1"}
    del connect["h3"]
    return m.done(*stored, "h3"), connect, "m3"


def row_norm(rows, columns=12):
    """Layer normalisation of rows, then a matrix product: mean and variance stay in the slab."""
    m = Maker()
    m.input("x", rows, columns)
    i, c = Axis("i", m.buffers["x"].shape[0]), ax("c", columns)
    inv = Const(1 / columns, "f32")
    m.step("total", (i,), m.ref("x", i, c), (c,), "sum")
    m.step("centre", (i, c), m.ref("x", i, c) - m.ref("total", i) * inv)
    m.step("square", (i,), m.ref("centre", i, c) * m.ref("centre", i, c), (c,), "sum")
    m.step("n", (i, c), m.ref("centre", i, c) / Unary(
        "sqrt", m.ref("square", i) * inv + Const(1e-5, "f32")))
    m.const("w", weights(columns, 7))
    matmul(m, "y", "n", "w")
    return m.done("y"), {"total": "L1", "centre": "L1", "square": "L1", "n": "L1"}, "y"


def storing_convolutions():
    """two_convolutions whose hidden tensor is an output too."""
    p, connect, anchor = two_convolutions()
    buffers = p.buffers | {"r1": replace(p.buffers["r1"], role="output", onnx="r1")}
    return replace(p, outputs=("r1", "y"), buffers=buffers), connect, anchor


def slides(parts, stages, **run):
    """Parts of a group whose ``stages`` slide along a ``run``."""
    return (*parts, {"run": run, "reuse": dict.fromkeys(stages, "slide")})


def three_convolutions(columns=11, batch=1):
    """1x1 -> depthwise 3x3 -> 1x1, channels last in scratch, the middle one behind a halo."""
    m = Maker()
    m.input("x", batch, 5, 14, columns)
    conv2d(m, "e", "x", m.const("we", weights(20, 5, 1, 1)))
    m.pointwise("er", "e", lambda e, _: relu(e))
    conv2d(m, "d", "er", m.const("wd", weights(20, 1, 3, 3)), 1, 1, groups=20)
    m.pointwise("dr", "d", lambda e, _: relu(e))
    conv2d(m, "y", "dr", m.const("wp", weights(6, 20, 1, 1)))
    return m.done("y"), {"e": "register", "er": "L1", "d": "register", "dr": "L1"}, "y"


def grouped_convolutions(columns=11):
    """1x1 in groups -> depthwise 3x3 -> 1x1: loops over groups store at channels."""
    m = Maker()
    m.input("x", 6, 14, columns)
    m.const("we", weights(3, 4, 2))
    g, o, i, h, w = ax("g", 3), ax("o", 4), ax("i", 2), ax("h", 14), ax("w", columns)
    m.step("e", (g, o, h, w), m.ref("x", g * 2 + i, h, w) * m.ref("we", g, o, i), (i,), "sum")
    one, c = ax("one", 1), ax("c", 12)
    m.step("er", (one, c, h, w), relu(m.ref("e", c // 4, c % 4, h, w)))
    conv2d(m, "d", "er", m.const("wd", weights(12, 1, 3, 3)), 1, 1, groups=12)
    conv2d(m, "y", "d", m.const("wp", weights(6, 12, 1, 1)))
    return m.done("y"), {"e": "register", "er": "L1", "d": "L1"}, "y"


def chain(pads=(1, 1, 1), strides=(1, 2, 1), dilations=(1, 1, 2)):
    """Convolutions one after another, each reading a halo of the one before."""
    m = Maker()
    m.input("x", 1, 3, 23, 9)
    last, connect = "x", {}
    for n, (p, s, d) in enumerate(zip(pads, strides, dilations)):
        conv2d(m, f"c{n}", last, m.const(f"w{n}", weights(4, 3 if n == 0 else 4, 3, 3)), s, p, d)
        last = m.pointwise(f"r{n}", f"c{n}", lambda e, _: relu(e))
        connect |= {f"c{n}": "register", last: "L1"}
    del connect[last]
    return m.done(last), connect, f"c{len(pads) - 1}"


def smoothing(rows):
    """Two sums over three rows each, one after the other."""
    m = Maker()
    m.input("x", rows, 8)
    h, i, w, k = Axis("h", rows - 2), Axis("i", rows - 4), ax("w", 8), ax("k", 3)
    m.step("a", (h, w), m.ref("x", h + k, w), (k,), "sum")
    m.step("y", (i, w), m.ref("a", i + k, w), (k,), "sum")
    return m.done("y"), {"a": "L1"}, "y"


def picked():
    """Elements at places that the same loops have counted, of a tensor in scratch."""
    m = Maker()
    m.input("x", 7, 6)
    i, j = ax("i", 7), ax("j", 5)
    m.pointwise("e", "x", lambda e, _: e * Const(2, "f32"))
    above = Where(compare("gt", m.ref("e", i, j), Const(0, "f32")), Const(1), Const(0))
    m.step("n", (i,), above, (j,), "sum")
    m.step("v", (i,), m.ref("e", i, check_index(m.ref("n", i), Const(6))))
    return m.done("n", "v"), {"e": "L1", "n": "register"}, "v"


def masks():
    """Rows from one product times pixels whose channels lie innermost: columns that are packed."""
    m = Maker()
    m.input("x", 10, 8)
    m.input("pixels", 3, 96, 16)
    matmul(m, "rows", "x", m.const("w", weights(8, 16)))
    i, h, w, c = ax("i", 10), ax("h", 3), ax("w", 96), ax("c", 16)
    m.step("y", (i, h, w), m.ref("rows", i, c) * m.ref("pixels", h, w, c), (c,), "sum")
    return m.done("y"), {"rows": "L1"}, "y"


S = Sym("s", 1, 40)
# name -> (program, connect levels, anchor), tiles for any row, tiles that cut panels of weights
def whole_norm(rows=9):
    """The square sum of everything, in every tile: of the two outputs of one stage it reads one
    whole, the other is read in the tile alone."""
    m = Maker()
    m.input("x", rows, 7)
    m.const("w", weights(7))
    i, j, one = ax("i", rows), ax("j", 7), ax("one", 1)
    d = m.step("d", (i, j), m.ref("x", i, j) - Const(0.5, "f32"))
    m.step("s", (i, j), m.ref("w", j) * m.ref(d, i, j))
    m.step("p", (i, j), m.ref(d, i, j) * m.ref(d, i, j))
    m.step("v", (one,), m.ref("p", i, j), (i, j), "sum")
    m.step("y", (i, j), m.ref("s", i, j) / m.ref("v", 0))
    return m.done("y"), {"d": "register", "s": "L1", "p": "L1", "v": "L1"}, "y"


GROUPS = {
    "convolutions": (two_convolutions(), ({"oh": 4}, {"oh": 1}, {"oh": 5, "ow": 4}, {}),
                     ({"oc": 2, "oh": 3},)),
    "valid convolutions": (two_convolutions(pad=0), ({"oh": 4}, {"oh": 3, "ow": 2}), ()),
    "strided convolutions": (two_convolutions(stride=2), ({"oh": 3}, {"oh": 2, "ow": 3}), ()),
    "storing convolutions": (storing_convolutions(), ({}, {"oh": 13}), ()),
    "depthwise pointwise": (depthwise_pointwise(), ({"oh": 4}, {"oh": 3, "ow": 7}),
                            ({"oc": 4},)),
    "strided depthwise": (depthwise_pointwise(2), ({"oh": 4}, {"oh": 1, "ow": 2}), ()),
    "sliding convolutions": (slides(two_convolutions(), ["c1"], oh=4), (
        {"oh": 2}, {"oh": 1}, {"oh": 4}, {"oh": 2, "ow": 4}), ()),
    "sliding all rows": (slides(two_convolutions(pad=0), ["c1"], oh=15), ({"oh": 3},), ()),
    "sliding strided": (slides(two_convolutions(stride=2), ["c1"], oh=4), ({"oh": 2}, {"oh": 1}),
                        ()),
    "sliding depthwise": (slides(depthwise_pointwise(), ["d"], oh=6), ({"oh": 3}, {"oh": 1}), ()),
    "sliding bottleneck": (slides(three_convolutions(), ["e"], oh=6), ({"oh": 3}, {"oh": 1}), ()),
    "sliding groups": (slides(grouped_convolutions(), ["e"], oh=6), ({"oh": 3}, {"oh": 1}), ()),
    "sliding images": (slides(three_convolutions(batch=3), ["e"], oh=6), ({"n": 1, "oh": 3},), ()),
    "sliding chain": (slides(chain(), ["c0", "c1"], oh=6), ({"oh": 2}, {"oh": 1}), ()),
    "half sliding chain": (slides(chain(), ["c0"], oh=12), ({"oh": 3},), ()),
    "sliding symbolic rows": (slides(smoothing(Sym("t", 5, 40)), ["a"], i=6),
                              ({"i": 3}, {"i": 2}), ()),
    "attention": (attention(), ({"i": 4}, {"i": 1}, {"i": 3, "c": 2}, {}), ()),
    "causal attention": (attention(causal=True), ({"i": 4},), ()),
    "symbolic rows": (attention(rows=S), ({"i": 4},), ()),
    "mlp": (mlp(), ({"i": 8}, {"i": 1}, {}), ({"i": 5, "j": 3},)),
    "storing mlp": (mlp(stored=("h1",)), ({"i": 8}, {}), ()),
    "symbolic mlp": (mlp(S), ({"i": 8},), ()),
    "norm": (row_norm(9), ({"i": 2}, {}), ()),
    "whole norm": (whole_norm(), ({"i": 2}, {"i": 4, "j": 3}), ()),
    "symbolic norm": (row_norm(S), ({"i": 3},), ()),
    "picked": (picked(), ({"i": 3}, {}), ()),
    "masks": (masks(), ({"w": 16}, {"w": 3}, {"w": 40}), ()),
}
SCHEDULES = [(name, parts, tile, cuts) for name, (parts, tiles, panels) in GROUPS.items()
             for cuts, some in ((False, tiles), (True, panels)) for tile in some]


def group_cases(target, loops, tiles=99):
    """The Cases of a target: every group with ``tiles`` of its tiles on micro-kernel rows.  On
    plain loops too, which are the same C for every CPU: with ``loops`` of its tiles."""
    made = Counter()
    for name, (p, connect, anchor, *run), tile, cuts in SCHEDULES:
        if run and target.machine.threads:
            continue  # blocks of threads make no steps
        s = schedule(target, p, connect, tile, anchor, **(run[0] if run else {}))
        made[name] += 1
        if not cuts and made[name] <= tiles:
            yield Case(f"{name} {tile}", p, s, tol=2e-5)
        if made[name] <= loops:
            yield Case(f"{name} {tile} loops", p, with_loops(p, s), tol=2e-5)
