"""Cases of rows that multiply u8 or s8 by s8 (those of bf16: ``pair_cases``, of grouped weights:
``grouped_cases``), and of vector nests that load and store integers."""

from dataclasses import replace
from itertools import product

import numpy as np
from edits import with_tables
from grouped_cases import grouped_cases
from pair_cases import pair_cases
from row_pairs import Pair, one_group, pair
from te_programs import Maker, ax

from aotc.ir.expr import Binary, Cast, Const, Sym, Unary, Where, all_hold, compare, maximum, minimum
from aotc.sched.model.stages import group_stages
from aotc.sched.rows.dots import dot_factors, dot_layout

EXTREME = {"u8": (255, 254, 128, 0), "i8": (127, -128, -127, 0)}  # strewn into inputs
INF, NAN = float("inf"), float("nan")


def _weights(rng, *shape):
    """s8 with many extremes: pairs of products beyond 16 bits."""
    return rng.choice(np.array([-128, -127, -1, 0, 3, 126, 127], np.int8), shape)


def _i32(e):
    return Cast("i32", e)


def _requantised(acc, m, lane):
    """u8(clamp(round(relu-like scaled sum))) with a scale and an offset per column."""
    m.input("ratio", lane.extent)
    m.input("offset", lane.extent, dtype="i32")
    e = Cast("f32", acc - m.ref("offset", lane)) * (m.ref("ratio", lane) * Const(0.002, "f32"))
    e = Unary("round", e) + Const(3.0, "f32")
    return Cast("u8", minimum(maximum(e, Const(0.0, "f32")), Const(255.0, "f32")))


def _forced(name, m, row, target, mode, k, tile=(), output="y"):
    """The program's product ``y`` on the row, its weights ``w`` in panels."""
    p = m.done(output)
    stage = group_stages(p, one_group(p, (output,), {}, {}).groups[0])[0]
    f, weights = dot_factors(stage)
    axis = next(r for r in f.k if r.name == k)
    layout = dot_layout(f, weights, axis, row, p.consts["w"].shape)
    loops = {"lanes": f.lane.name, "k": k, "a": mode, "b": "panel"}
    return pair(name, p, stage.name, row, loops, target, tile, {"w": layout.to_json()},
                special=EXTREME[row.a])


def _matmul(row, target, rng, mode, size, stored="i32", tile=(), turned=False):
    rows, columns, depth = size
    m = Maker()
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    side = (i, k) if mode == "rows" else (k, i)
    m.input("x", *(a.extent for a in side), dtype=row.a)
    m.const("w", _weights(rng, *((columns, depth) if turned else (depth, columns))))
    left, right = _i32(m.ref("x", *side)), _i32(m.ref("w", *((j, k) if turned else (k, j))))
    m.step("y", (i, j), left * right, (k,), "sum")
    last = "y"
    if stored == "f32":
        last = m.step("z", (i, j), Cast("f32", m.ref("y", i, j)) * Const(0.25, "f32"))
    elif stored == "u8":
        last = m.step("z", (i, j), _requantised(m.ref("y", i, j), m, j))
    text = f"{mode} {rows},{columns},{depth} -> {stored} {dict(tile)}"
    return _forced(text, m, row, target, mode, "k", tile, last)


def _by_matrices(row, target, rng, size):
    """y[h, i, p, j] = sum(k) x[h, i, k] w[p, k, h, j]: a constant matrix for every h and p."""
    heads, rows, phases, columns, depth = size
    m = Maker()
    h, i, p, j, k = (ax(n, e) for n, e in zip("hipjk", size))
    m.input("x", heads, rows, depth, dtype=row.a)
    m.const("w", _weights(rng, phases, depth, heads, columns))
    m.step("y", (h, i, p, j), _i32(m.ref("x", h, i, k)) * _i32(m.ref("w", p, k, h, j)), (k,),
           "sum")
    return _forced(f"by matrices {size}", m, row, target, "packed" if depth % 4 else "rows", "k",
                   {"h": 1, "j": row.tile.nr})


def _of_two(row, target, size, turned):
    """z[h, i, j] = f32(sum(k) x[h, i, k] v[h, k, j]) of bytes, both computed (``turned``: columns
    lie along k)."""
    heads, rows, columns, depth = size
    m = Maker()
    h, i, j, k = ax("h", heads), ax("i", rows), ax("j", columns), ax("k", depth)
    shapes = {"x": (heads, rows, depth),
              "v": (heads, columns, depth) if turned else (heads, depth, columns)}
    low = {"x": row.a, "v": "i8"}
    for n, shape in shapes.items():
        m.input(n, *shape, dtype=low[n])
        at = tuple(ax(f"{n}{d}", e) for d, e in enumerate(shape))
        turn = -1 if low[n] == "i8" else 255  # ones' complement
        m.step(f"{n}_low", at, Cast(low[n], Const(turn, "i32") - _i32(m.ref(n, *at))))
    m.step("y", (h, i, j), _i32(m.ref("x_low", h, i, k)) * _i32(
        m.ref("v_low", h, *((j, k) if turned else (k, j)))), (k,), "sum")
    m.step("z", (h, i, j), Cast("f32", m.ref("y", h, i, j)) * Const(0.25, "f32"))
    made = pair(f"of two {size} {turned}", m.done("z"), "y", row,
                {"lanes": "j", "k": "k", "b": "packed",
                 "a": "packed" if isinstance(depth, Sym) or depth % 4 else "rows"},
                target, {"h": 1}, special=EXTREME["u8"][2:])

    def stored(case):
        g, inner = case.schedule.groups[0], ("x_low", "v_low")
        g = with_tables(g, connect={**g.connect, **dict.fromkeys(inner, "L2")},
                    ukernel={**g.rows, **dict.fromkeys(inner, "loops")})
        return replace(case, schedule=replace(case.schedule, groups=(g,)))

    return Pair(stored(made.fast), stored(made.slow))


def _convolution(row, target, rng, mode, stride, pad, fill):
    """Channels last, read in place or copied in runs, outside the tensor ``fill``; or channels
    first, packed byte by byte."""
    ic, oc = (8, row.tile.nr + 3) if mode == "rows" else (5, row.tile.nr)
    m = Maker()
    shape = (2, ic, 7, 6) if mode == "packed" else (2, 7, 6, ic)
    m.input("x", *shape, dtype=row.a)
    m.const("w", _weights(rng, oc, ic, 3, 2))
    n, o, c, j, k = ax("n", 2), ax("oc", oc), ax("ic", ic), ax("kh", 3), ax("kw", 2)
    oh = ax("oh", (7 + 2 * pad - 3) // stride + 1)
    ow = ax("ow", (6 + 2 * pad - 2) // stride + 1)
    y, x = oh * stride + j - pad, ow * stride + k - pad
    value = m.ref("x", n, c, y, x) if mode == "packed" else m.ref("x", n, y, x, c)
    inside = all_hold([compare("ge", y, 0), compare("lt", y, 7), compare("ge", x, 0),
                       compare("lt", x, 6)])
    value = Where(inside, value, Const(fill, row.a)) if pad else value
    m.step("y", (n, o, oh, ow), _i32(value) * _i32(m.ref("w", o, c, j, k)), (c, j, k), "sum")
    m.step("z", (n, o, oh, ow), _requantised(m.ref("y", n, o, oh, ow), m, o))
    text = f"conv {mode} stride {stride} pad {pad} outside {fill}"
    return _forced(text, m, row, target, "rows" if mode == "rows" else "packed",
                   "kh" if mode == "packed" else "ic", {"n": 1}, "z")


def dot_cases(row, target):
    """Ragged sizes on every side, sums that saturate 16 bits, every stored type."""
    if row.grouped is not None:
        yield from grouped_cases(row, target)
        return
    if row.a == "bf16":
        yield from pair_cases(row, target)
        return
    mr, nr = row.tile.mr, row.tile.nr
    rng = np.random.default_rng(nr)
    for mode, stored in product(("rows", "packed"), ("i32", "f32", "u8")):
        depths = (4, 8, 20) if mode == "rows" else (1, 3, 17)
        sizes = ((1, 1), (mr + 1, nr + 1), (2 * mr + 1, 2 * nr + 3))
        for (rows, columns), depth in zip(sizes, depths):
            yield _matmul(row, target, rng, mode, (rows, columns, depth), stored)
    yield _matmul(row, target, rng, "rows", (2 * mr + 3, 2 * nr, 12), "u8",
                  {"i": mr + 2, "j": nr}, turned=True)
    yield _matmul(row, target, rng, "rows", (Sym("m", 1, 40), nr + 2, 8), "f32")
    yield _by_matrices(row, target, rng, (3, mr + 1, 2, nr + 1, 8))
    yield _by_matrices(row, target, rng, (2, 3, 1, nr, 5))
    if row.shared is None or row.by_columns:  # others read columns that are packed while compiling
        yield _of_two(row, target, (2, mr + 1, nr + 3, 8), False)
        yield _of_two(row, target, (3, 2 * mr, nr, 23), True)
        yield _of_two(row, target, (2, mr, 2 * nr + 1, 36), True)
        yield _of_two(row, target, (1, 1, 5, 1), False)
        yield _of_two(row, target, (2, mr + 2, nr + 1, Sym("d", 1, 40)), False)
        yield _of_two(row, target, (2, 3, nr, Sym("d", 1, 40)), True)
    for mode in ("rows", "packed", "runs"):
        for geometry in ((1, 0, 0), (1, 1, 0), (2, 1, 131 if row.a == "u8" else -125)):
            yield _convolution(row, target, rng, mode, *geometry)


def long_dot(row, target):
    """Rows of bytes times weights where tiles and steps are whole and operands lie at multiples of
    16 bytes, as in large models; what comes of it is rounded again."""
    return _matmul(row, target, np.random.default_rng(row.tile.mr), "rows",
                   (4 * row.tile.mr, 4 * row.tile.nr, 1024), "u8").fast


# ---------------------------------------------------------------- vector nests

def _rounded(e, dtype):
    low, high = (0, 255) if dtype == "u8" else (-128, 127)
    e = Unary("round", e * Const(40.0, "f32")) + Const(5.0, "f32")
    return Cast(dtype, minimum(maximum(e, Const(low, "f32")), Const(high, "f32")))


# name -> (dtype of the input, expression of it)
NARROW = {
    "u8 to f32": ("u8", lambda x: (Cast("f32", x) - Const(3.0, "f32")) * Const(0.1, "f32")),
    "i8 to f32": ("i8", lambda x: Cast("f32", x) * Const(0.1, "f32")),
    "centred u8": ("u8", lambda x: Cast("f32", _i32(x) - Const(128, "i32"))),
    "f32 to u8": ("f32", lambda x: _rounded(x, "u8")),
    "f32 to i8": ("f32", lambda x: _rounded(x, "i8")),
    "there and back": ("f32", lambda x: Cast("f32", _rounded(x, "i8")) * Const(0.5, "f32")),
    "there and back u8": ("f32", lambda x: Cast("f32", _rounded(x, "u8")) + x),
    "f32 to i32": ("f32", lambda x: Cast("i32", x * Const(1e6, "f32")) + Const(1, "i32")),
    "i32 ring": ("i32", lambda x: x * x - x + Const(1 << 30, "i32")),
    "i32 of i8": ("i8", lambda x: _i32(x) * Const(-3, "i32")),
    "i32 to f32": ("i32", lambda x: Cast("f32", x * Const(1 << 28, "i32"))),
}


def narrow_map_cases(row, target):
    """Integers side by side, turned around (gathered and scattered), and ragged."""
    if "u8" not in row.stored:
        return
    wide = 2 * target.lanes + 1
    for name, (dtype, fn) in NARROW.items():
        special = {"f32": (INF, -INF, NAN, 0.0125)}.get(dtype, (255, 128) if dtype == "u8" else ())
        for n, turned, lane in ((1, False, "j"), (wide, False, "j"), (wide, True, "j"),
                                (wide, False, "i")):
            m = Maker()
            i, j = ax("i", 3 if lane == "j" else n), ax("j", n if lane == "j" else 3)
            m.input("x", *((j.extent, i.extent) if turned else (i.extent, j.extent)), dtype=dtype)
            m.step("y", (i, j), fn(m.ref("x", *((j, i) if turned else (i, j)))))
            yield pair(f"{name} {n} {turned} lanes {lane}", m.done("y"), "y", row, {"lanes": lane},
                       target, special=special)


def narrow_window_cases(row, target):
    """The largest of dequantised neighbours, rounded again: under a padding, blocked or not."""
    if "u8" not in row.stored:
        return
    for n, pad in product((target.lanes + 1,), (0, 1)):
        m = Maker()
        m.input("x", 9, n, dtype="u8")
        o, c, k = ax("o", 9 - 2 + 2 * pad), ax("c", n), ax("k", 3)
        at = o + k - pad
        value = Cast("f32", m.ref("x", at, c)) * Const(0.5, "f32")
        if pad:
            inside = Binary("and", compare("ge", at, 0), compare("lt", at, 9))
            value = Where(inside, value, Const(-INF, "f32"))
        m.step("y", (o, c), value, (k,), "max")
        loops = {"lanes": "c"} | ({"block": "o"} if row.block > 1 else {})
        yield pair(f"max of u8 {n} pad {pad}", m.done("y"), "y", row, loops, target,
                   special=(255,))
