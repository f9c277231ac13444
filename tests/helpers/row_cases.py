"""Cases for every micro-kernel row: ``CASES[category](row, target)`` gives (Case forced onto the
row, Case of the same Program on the plain nest) pairs."""

from itertools import chain

import numpy as np
from contraction_cases import contraction_cases
from dot_cases import dot_cases, narrow_map_cases, narrow_window_cases
from harness import Case
from pair_cases import bf16_map_cases
from row_pairs import Pair, one_group, pair
from stream_cases import stream_cases
from te_programs import Maker, ax, relu

from aotc.ir.expr import (
    Binary,
    Cast,
    Const,
    Sym,
    Unary,
    Var,
    Where,
    all_hold,
    compare,
    maximum,
    minimum,
)
from aotc.ir.program import Fold, neutral_value
from aotc.ir.schedule import Group, Schedule
from aotc.ir.stage_choice import StageChoice

INF, NAN = float("inf"), float("nan")


# ---------------------------------------------------------------- maps

def extents(target):
    """Ragged lane extents."""
    n = target.lanes
    return tuple(dict.fromkeys((1, max(1, n - 1), n, n + 1, 3 * n + 2)))


def _sigmoid(x):
    return Const(1, "f32") / (Const(1, "f32") + Unary("exp", -x))


def _f(v):
    return Const(v, "f32")


# name -> (expression of x and y, tolerance, special inputs)
MAPS = {
    "arithmetic": (lambda x, y: (x + y) * x - y / (_f(2) + Unary("abs", x)), 2e-6, ()),
    "max": (lambda x, y: maximum(x, y), 0, (INF, -INF, NAN)),
    "min": (lambda x, y: minimum(x, y), 0, (INF, -INF, NAN)),
    "relu": (lambda x, y: relu(x), 0, (INF, -INF, NAN)),
    "clip": (lambda x, y: minimum(_f(6), maximum(x, _f(-1))), 0, (INF, -INF, NAN)),
    "sigmoid": (lambda x, y: _sigmoid(x), 1e-6, (INF, -INF, 200.0, -200.0, NAN)),
    "gelu": (lambda x, y: x * _f(0.5) * (_f(1) + Unary("erf", x * _f(0.70710678))), 2e-6, ()),
    "where": (lambda x, y: Where(compare("gt", x, y), x, y * _f(2)), 1e-6, (INF, -INF, NAN)),
    "both": (lambda x, y: Where(Binary("and", compare("gt", x, _f(0)), compare("lt", y, _f(0))),
                                x, y), 0, (NAN,)),
    "not": (lambda x, y: Where(Unary("not", compare("le", x, _f(0))), x, y), 0, (NAN, INF)),
    "isnan": (lambda x, y: Where(Unary("isnan", x), y, x), 0, (NAN, INF, -INF)),
    "isinf": (lambda x, y: Where(Unary("isinf", x), y, x), 0, (NAN, INF, -INF)),
    "round": (lambda x, y: Unary("round", x * _f(4)) + Unary("floor", y) - Unary("ceil", x), 0,
              (INF, 0.5, 1.5)),
    "sign": (lambda x, y: Unary("sign", x) * _f(3), 0, (INF, -INF, NAN, 0.0)),
    "power": (lambda x, y: Binary("pow", Unary("abs", x), y), 2e-6, (0.0, 1.0)),
    "sqrt": (lambda x, y: Unary("sqrt", Unary("abs", x)), 1e-6, (INF, NAN, 0.0)),
    "log": (lambda x, y: Unary("log", Unary("abs", x)), 1e-6, (INF, NAN, 0.0)),
    "waves": (lambda x, y: Unary("sin", x) + Unary("cos", y) * Unary("tan", x), 2e-6, (9000.0,)),
    "hyperbolic": (lambda x, y: Unary("sinh", x) + Unary("tanh", y) + Unary("atan", x), 2e-6, ()),
    "integers": (lambda x, y: Cast("f32", Cast("i32", x * _f(9)) + Cast("i32", y)), 0, ()),
    "modulo": (lambda x, y: Binary("mod", x, _f(3)) + Binary("floordiv", y, _f(2)), 2e-6, ()),
    "bool": (lambda x, y: Cast("f32", compare("gt", x, y)), 0, (NAN,)),
}


def map_cases(row, target):
    for name, (fn, tol, special) in MAPS.items():
        n = extents(target)[len(name) % len(extents(target))]
        m = Maker()
        m.input("x", 3, n)
        m.input("y", 3, n)
        i, j = ax("i", 3), ax("j", n)
        m.step("z", (i, j), fn(m.ref("x", i, j), m.ref("y", i, j)))
        yield pair(name, m.done("z"), "z", row, {"lanes": "j"}, target, tol=tol, special=special)
    for n in (*extents(target), Sym("s", 1, 70)):
        yield _broadcasts(row, target, n)
        yield _strides(row, target, n)
        yield _indexed(row, target, n)
    yield _outside_loads(row, target)


def _broadcasts(row, target, n):
    m = Maker()
    i, j = ax("i", 5), ax("j", n)
    m.input("x", 5, n)
    m.input("rows", 5, 1)
    m.input("columns", n)
    m.step("z", (i, j), m.ref("x", i, j) * m.ref("rows", i, 0) + m.ref("columns", j)
           + Cast("f32", i * 2 + j))
    return pair(f"broadcast {n}", m.done("z"), "z", row, {"lanes": "j"}, target, {"i": 2})


def _strides(row, target, n):
    """The lane axis is not the last: stores and loads are strided; another result is too."""
    m = Maker()
    i, j = ax("i", n), ax("j", 3)
    m.input("x", n, 3)
    m.input("y", 3, n)
    m.step("z", (i, j), m.ref("x", i, j) + m.ref("y", j, i))
    return pair(f"strided {n}", m.done("z"), "z", row, {"lanes": "i"}, target)


def _indexed(row, target, n):
    """Gather by data, a bool and an i64 tensor among the loads."""
    m = Maker()
    i, j = ax("i", 3), ax("j", n)
    m.input("x", 3, 19)
    m.input("at", 3, n, dtype="i64")
    m.input("mask", n, dtype="bool")
    where = Binary("mod", m.ref("at", i, j), Const(19))
    m.step("z", (i, j), Where(m.ref("mask", j), m.ref("x", i, where), Const(-INF, "f32"))
           + Cast("f32", m.ref("at", i, j)))
    return pair(f"gather {n}", m.done("z"), "z", row, {"lanes": "j"}, target)


def _outside_loads(row, target):
    """Neighbours under a guard: a load outside must not happen."""
    m = Maker()
    n = 2 * target.lanes + 3
    i, j = ax("i", 2), ax("j", n)
    m.input("x", 2, n)

    def at(d):
        ok = all_hold([compare("ge", j + d, 0), compare("lt", j + d, n)])
        return Where(ok, m.ref("x", i, j + d), _f(0))

    m.step("z", (i, j), Unary("exp", at(-2)) + at(0) * at(3))
    return pair("neighbours", m.done("z"), "z", row, {"lanes": "j"}, target)


# ---------------------------------------------------------------- moves

def exchange_cases(row, target):
    """Transposes of ragged extents, whole and in tiles, with neighbours that merge, with padding,
    and moves that turn out to exchange nothing."""
    block = row.block
    for n in (1, 3, block - 1, block, 2 * block + 5, Sym("s", 1, 60)):
        for k in (1, 4, block + 3):
            m = Maker()
            b, i, j = ax("b", 2), ax("i", k), ax("j", n)
            m.input("x", 2, n, k)
            m.step("z", (b, i, j), m.ref("x", b, j, i))
            yield pair(f"exchange {n}x{k}", m.done("z"), "z", row, {"lanes": "i", "block": "j"},
                       target, {"b": 1, "i": 5}, tol=0, special=(NAN, INF))
    m = Maker()
    c, h, w = ax("c", 3), ax("h", 5), ax("w", block + 2)
    m.input("x", 3, 5, block + 2)
    m.step("z", (h, w, c), m.ref("x", c, h, w))
    yield pair("channels last", m.done("z"), "z", row, {"lanes": "w", "block": "c"}, target,
               {"h": 2}, tol=0)
    m = Maker()
    i, j = ax("i", block + 4), ax("j", block + 9)
    m.input("x", block + 7, block)
    ok = all_hold([compare("ge", i, 2), compare("lt", i, block + 2), compare("ge", j, 1),
                   compare("lt", j, block + 8)])
    m.step("z", (i, j), Where(ok, m.ref("x", j - 1, i - 2), _f(-3)))
    yield pair("padded", m.done("z"), "z", row, {"lanes": "i", "block": "j"}, target, tol=0)
    m = Maker()
    i, j = ax("i", 7), ax("j", block + 1)
    m.input("x", 7, block + 1)
    m.step("z", (i, j), m.ref("x", i, block - j))
    yield pair("reversed", m.done("z"), "z", row, {"lanes": "i", "block": "j"}, target, tol=0)


def move_cases(row, target):
    if row.exchanges:
        yield from exchange_cases(row, target)
        return
    for n in (*extents(target), Sym("s", 1, 60)):
        i, j = ax("i", 4), ax("j", n)
        m = Maker()
        m.input("x", n, 4)
        m.step("z", (i, j), m.ref("x", j, i))
        yield pair(f"transpose {n}", m.done("z"), "z", row, {"lanes": "j"}, target, tol=0,
                   special=(NAN, INF))
        m = Maker()
        m.input("x", 4, n)
        m.step("z", (i, j), m.ref("x", 3 - i, j.extent - 1 - j))
        yield pair(f"reverse {n}", m.done("z"), "z", row, {"lanes": "j"}, target, tol=0)
        yield _concat(row, target, n)
    for n in extents(target):
        yield _pad(row, target, n)
        m = Maker()
        i, j = ax("i", 3), ax("j", n)
        m.input("x", 3, 2 * n + 3)
        m.step("z", (i, j), m.ref("x", i, j * 2 + 1))
        yield pair(f"slice {n}", m.done("z"), "z", row, {"lanes": "j"}, target, tol=0)
    yield _take(row, target)


def _concat(row, target, n):
    """Two inputs side by side along the lanes."""
    m = Maker()
    i = ax("i", 3)
    m.input("x", 3, 5)
    m.input("y", 3, n)
    j = ax("j", m.buffers["y"].shape[1] + 5)
    m.step("z", (i, j), Where(compare("lt", j, 5), m.ref("x", i, j), m.ref("y", i, j - 5)))
    return pair(f"concat {n}", m.done("z"), "z", row, {"lanes": "j"}, target, tol=0)


def _pad(row, target, n):
    m = Maker()
    i, j = ax("i", 6), ax("j", n + 5)
    m.input("x", 3, n)
    ok = all_hold([compare("ge", i, 2), compare("lt", i, 5), compare("ge", j, 1),
                   compare("lt", j, n + 1)])
    m.step("z", (i, j), Where(ok, m.ref("x", i - 2, j - 1), Const(-3, "f32")))
    return pair(f"pad {n}", m.done("z"), "z", row, {"lanes": "j"}, target, tol=0)


def _take(row, target):
    """Rows picked by a data index: vector loads from a row that is only known at run time."""
    m = Maker()
    i, j = ax("i", 5), ax("j", target.lanes + 3)
    m.input("x", 7, target.lanes + 3)
    m.input("at", 5, dtype="i64")
    m.step("z", (i, j), m.ref("x", Binary("mod", m.ref("at", i), Const(7)), j))
    return pair("take", m.done("z"), "z", row, {"lanes": "j"}, target, tol=0)


# ---------------------------------------------------------------- reductions and windows

def reduction_cases(row, target):
    for n, fold in zip((*extents(target), Sym("s", 1, 70)) * 3, ("sum", "max", "min") * 6):
        for lanes in ("r", "i"):
            yield _rows(row, target, n, fold, lanes)
    yield _dot(row, target)
    yield _two_axes(row, target)
    for fold, lanes in (("sum", "r"), ("max", "j")):
        yield _between_ends(row, target, fold, lanes)


def _between_ends(row, target, fold, lanes):
    """Rows folded from one number of data to another, which may be no numbers of rows."""
    m = Maker()
    n = 3 * target.lanes + 2
    i, j, r = ax("i", 6), ax("j", n if lanes == "j" else 2), ax("r", 7 if lanes == "j" else n)
    m.input("x", *(a.extent for a in ((r, j) if lanes == "j" else (j, r))))
    first, end = (m.ref(m.input(name, 6, dtype="i64"), i) for name in ("first", "end"))
    inside = all_hold((compare("ge", r, first), compare("lt", r, end)))
    x = m.ref("x", r, j) if lanes == "j" else m.ref("x", j, r)
    m.step("y", (i, j), Where(inside, x, neutral_value(fold, "f32")), (r,), fold)
    return pair(f"{fold} between ends, lanes {lanes}", m.done("y"), "y", row, {"lanes": lanes},
                target)


def _rows(row, target, n, fold, lanes):
    """Rows folded; lanes over the reduction axis, or over the rows."""
    m = Maker()
    i, r = ax("i", 5 if lanes == "r" else n), ax("r", n if lanes == "r" else 5)
    m.input("x", i.extent, r.extent) if lanes == "r" else m.input("x", r.extent, i.extent)
    x = m.ref("x", i, r) if lanes == "r" else m.ref("x", r, i)
    m.step("y", (i,), x * x if fold == "sum" else x, (r,), fold)
    m.step("z", (i,), Unary("sqrt", m.ref("y", i)) if fold == "sum" else m.ref("y", i) * _f(2))
    special = () if fold == "sum" else (INF, -INF) if lanes == "i" else (INF, -INF, NAN)
    return pair(f"{fold} {n} lanes {lanes}", m.done("z"), "y", row, {"lanes": lanes}, target,
                tol=2e-6 if fold == "sum" else 0, special=special)


def _dot(row, target):
    m = Maker()
    n = 2 * target.lanes + 5
    i, r = ax("i", 4), ax("r", n)
    m.input("x", 4, n)
    m.input("y", 4, n)
    m.step("z", (i,), m.ref("x", i, r) * m.ref("y", i, r), (r,), "sum")
    return pair("dot", m.done("z"), "z", row, {"lanes": "r"}, target)


def _two_axes(row, target):
    """Two reduction axes that collapse, and one that does not."""
    m = Maker()
    i, r, s = ax("i", 3), ax("r", 5), ax("s", target.lanes + 2)
    m.input("x", 3, 5, target.lanes + 2)
    m.input("y", 5)
    m.step("z", (i,), m.ref("x", i, r, s) * m.ref("y", r), (r, s), "sum")
    return pair("two axes", m.done("z"), "z", row, {"lanes": "s"}, target)


POOLS = ((2, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (5, 2, 2, 1))
WIDE = 7  # vectors of lanes: some in the middle that no padding touches


def _window_loops(row, lanes, block):
    """Rows with a register block slide it along ``block``."""
    return {"lanes": lanes} | ({"block": block} if row.block > 1 else {})


def window_cases(row, target):
    for kernel, stride, pad, dilation in POOLS:
        for fold in ("max", "sum"):
            for lanes in ("ow", "c"):
                yield _pool(row, target, fold, lanes, (kernel, stride, pad, dilation))
        for lanes in ("ow", "c"):
            yield _depthwise(row, target, lanes, (kernel, stride, pad, dilation))
    for stride in (1, 2):
        width = stride * WIDE * target.lanes + 3
        yield _depthwise(row, target, "ow", (3, stride, 1, 1), width)
        yield _grouped(row, target, stride, width // stride // 2)


def _pool(row, target, fold, lanes, geometry):
    """Pooling of [c, h, w], or of [h, w, c] with lanes over channels."""
    kernel, stride, pad, dilation = geometry
    h, w, c = 9, 2 * target.lanes + 5, 3
    if lanes == "c":
        w, c = 7, target.lanes + 3
    m = Maker()
    m.input("x", *((c, h, w) if lanes == "ow" else (h, w, c)))
    out = [(n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for n in (h, w)]
    ch, oh, ow = ax("c", c), ax("oh", out[0]), ax("ow", out[1])
    i, j = ax("kh", kernel), ax("kw", kernel)
    y, x = oh * stride + i * dilation - pad, ow * stride + j * dilation - pad
    inside = all_hold([compare("ge", y, 0), compare("lt", y, h), compare("ge", x, 0),
                       compare("lt", x, w)])
    value = m.ref("x", *((ch, y, x) if lanes == "ow" else (y, x, ch)))
    value = Where(inside, value, _f(-INF if fold == "max" else 0)) if pad else value
    axes = (ch, oh, ow) if lanes == "ow" else (oh, ow, ch)
    m.step("y", axes, value, (i, j), fold)
    m.step("z", axes, m.ref("y", *axes) * _f(0.25))
    choice = _window_loops(row, lanes, "oh" if lanes == "ow" else "ow")
    return pair(f"{fold} pool {geometry} lanes {lanes}", m.done("z"), "y", row, choice,
                target, {axes[0].name: 2}, tol=0 if fold == "max" else 2e-6,
                special=(-INF, NAN) if fold == "max" else ())


def _grouped(row, target, stride, width):
    """Groups of two channels: a contraction with too few lanes for its own rows."""
    m = Maker()
    m.input("x", 3, 2, 6, width)
    m.input("w", 3, 2, 2, 3, 3)
    g, o, i, j, k = ax("g", 3), ax("o", 2), ax("i", 2), ax("kh", 3), ax("kw", 3)
    oh, ow = ax("oh", 5 // stride + 1), ax("ow", (width - 1) // stride + 1)
    y, x = oh * stride + j - 1, ow * stride + k - 1
    inside = all_hold([compare("ge", y, 0), compare("lt", y, 6), compare("ge", x, 0),
                       compare("lt", x, width)])
    value = Where(inside, m.ref("x", g, i, y, x), _f(0)) * m.ref("w", g, o, i, j, k)
    m.step("y", (g, o, oh, ow), value, (i, j, k), "sum")
    m.step("z", (g, o, oh, ow), relu(m.ref("y", g, o, oh, ow)))
    return pair(f"groups stride {stride}", m.done("z"), "y", row,
                _window_loops(row, "ow", "oh"), target, {"g": 1})


def _depthwise(row, target, lanes, geometry, width=0):
    """Depthwise convolution of [c, h, w], or of [h, w, c] with lanes over channels."""
    kernel, stride, pad, dilation = geometry
    h, w, c = (8, width or target.lanes + 9, 3) if lanes == "ow" else (8, 9, target.lanes + 3)
    m = Maker()
    m.input("x", *((c, h, w) if lanes == "ow" else (h, w, c)))
    m.input("w", *((c, kernel, kernel) if lanes == "ow" else (kernel, kernel, c)))
    out = [(n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for n in (h, w)]
    ch, oh, ow = ax("c", c), ax("oh", out[0]), ax("ow", out[1])
    i, j = ax("kh", kernel), ax("kw", kernel)
    y, x = oh * stride + i * dilation - pad, ow * stride + j * dilation - pad
    inside = all_hold([compare("ge", y, 0), compare("lt", y, h), compare("ge", x, 0),
                       compare("lt", x, w)])
    first = lanes == "ow"
    value = m.ref("x", *((ch, y, x) if first else (y, x, ch)))
    value = Where(inside, value, _f(0)) if pad else value
    axes = (ch, oh, ow) if first else (oh, ow, ch)
    m.step("y", axes, value * m.ref("w", *((ch, i, j) if first else (i, j, ch))), (i, j), "sum")
    m.step("z", axes, relu(m.ref("y", *axes)))
    return pair(f"depthwise {geometry} lanes {lanes}", m.done("z"), "y", row,
                _window_loops(row, lanes, "oh" if first else "ow"), target,
                {"c": 1, "oh": 3} if first else {"oh": 3, "ow": 5})


# ---------------------------------------------------------------- constant matrices

def transform_cases(row, target):
    """Blocks of outputs by a constant matrix per axis: all points of a block, as an input transform
    has them, or outputs that count through blocks, with a ragged end."""
    for channels in (1, 5, target.lanes + 3):
        for points, taps in ((4, 4), (6, 6), (3, 5)):
            yield _points(row, target, channels, points, taps, pad=taps != 4)
            yield _outputs(row, target, channels, points, taps, extent=2 * points + 1)


def _matrix(m, name, rows, columns):
    array = np.random.default_rng(rows * columns).integers(-2, 3, (rows, columns)) / 2
    return m.const(name, array.astype(np.float32))


def _points(row, target, channels, points, taps, pad):
    """v[a, b, t, c] = sum(i, j) x[2t + i, j, c] * P[a, i] * Q[b, j], zeros past the end."""
    m = Maker()
    height = 8 if pad else 6 + taps
    m.input("x", height, taps, channels)
    a, b, t, c = ax("a", points), ax("b", points - 1), ax("t", 4), ax("c", channels)
    i, j = ax("i", taps), ax("j", taps)
    data = m.ref("x", t * 2 + i, j, c)
    if pad:
        data = Where(compare("lt", t * 2 + i, Const(height)), data, _f(0))
    body = data * m.ref(_matrix(m, "p", points, taps), a, i) * m.ref(
        _matrix(m, "q", points, taps), b, j)
    m.step("y", (a, b, t, c), body, (i, j), "sum")
    return pair(f"transform {points}x{taps} of {channels}", m.done("y"), "y", row,
                {"lanes": "c"}, target, {"t": 3})


def _outputs(row, target, channels, points, taps, extent):
    """y[o, c] = sum(i) x[o / points, i, c] * P[o % points, i], then an epilogue."""
    m = Maker()
    m.input("x", -(-extent // points), taps, channels)
    o, c, i = ax("o", extent), ax("c", channels), ax("i", taps)
    body = m.ref("x", o // points, i, c) * m.ref(_matrix(m, "p", points, taps), o % points, i)
    m.step("y", (o, c), body, (i,), "sum")
    m.step("z", (o, c), relu(m.ref("y", o, c)))
    return pair(f"transform back {points}x{taps} of {channels}", m.done("z"), "y", row,
                {"lanes": "c"}, target, {"o": points})


# ---------------------------------------------------------------- the plain nest

def loops_cases(row, target):
    """What only the plain nest runs: other dtypes, products, folds with several states."""
    m = Maker()
    i, r = ax("i", 4), ax("r", 7)
    x = m.ref(m.input("x", 4, 7), i, r)
    m.step("p", (i,), x, (r,), "prod")
    index, best, e = Var("index", "i64"), Var("best", "f32"), Var("x", "f32")
    better = compare("gt", e, best)
    m.step(("best", "index"), (i,), x, (r,),
           Fold((("best", "f32"), ("index", "i64")), (_f(-INF), Const(0)),
                (Where(better, e, best), Where(better, r, index))))
    k = m.ref(m.input("k", 4, 7, dtype="i64"), i, r)
    m.step("total", (i,), k, (r,), "sum")
    m.step("low", (i,), k, (r,), "min")
    m.step("q", (i, r), Binary("floordiv", k, Const(4)) * Binary("mod", k, Const(-3)))
    m.step("wide", (i,), x, (r,), "sum", acc="f64")
    any_of = m.ref(m.input("b", 4, 7, dtype="bool"), i, r)
    m.step("any", (i,), any_of, (r,), "max")
    m.step("all", (i,), any_of, (r,), "min")
    d = m.ref(m.input("d", 4, 7, dtype="f64"), i, r)
    m.step("f64", (i, r), Unary("exp", d) + maximum(d, Const(0.25, "f64")))
    small = m.ref(m.input("u", 4, 7, dtype="u8"), i, r)
    m.step("u8", (i, r), small * small + Const(200, "u8"))
    p = m.done("p", "best", "index", "total", "low", "q", "wide", "any", "all", "f64", "u8")
    groups = tuple(Group(f"g{n}", (s.outs[0],), s.outs, s.outs[0],
                         choices={s.outs[0]: StageChoice("loops")}) for n, s in enumerate(p.steps))
    case = Case("loops", p, Schedule(target.name, groups))
    yield Pair(case, case)


def _all(*makers):
    return lambda row, target: chain(*(make(row, target) for make in makers))


CASES = {"contraction": contraction_cases, "dot": dot_cases,
         "map": _all(map_cases, narrow_map_cases, bf16_map_cases), "move": move_cases,
         "reduction": reduction_cases, "transform": transform_cases, "loops": loops_cases,
         "stream": stream_cases, "window": _all(window_cases, narrow_window_cases)}

__all__ = ["CASES", "MAPS", "Pair", "pair", "one_group"]
