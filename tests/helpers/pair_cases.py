"""Cases of rows that multiply bf16 by bf16, and of vector nests that load and store bf16."""

from dataclasses import replace
from itertools import product

import numpy as np
from edits import with_tables
from row_pairs import Pair, one_group, pair
from te_programs import Maker, ax, relu

from aotc.ir.dtypes import to_bf16
from aotc.ir.expr import Cast, Const, Sym, Where, all_hold, compare
from aotc.ir.program import Buffer
from aotc.sched.model.stages import group_stages
from aotc.sched.rows.dots import dot_factors, dot_layout

INF, NAN = float("inf"), float("nan")
SPECIAL = (INF, -INF, NAN, 3.4e38, 1.00390625, -1.01171875)  # the last two lie between two bf16


def _weights(m, rng, *shape):
    array = to_bf16(rng.standard_normal(shape).astype(np.float32))
    m.consts["w"] = array
    m.buffers["w"] = Buffer("w", tuple(map(Const, shape)), "bf16", "const")


def _f32(e):
    return Cast("f32", e)


def _forced(name, m, row, target, mode, k, tile=(), special=()):
    """The program's product ``y`` on the row, its weights ``w`` in panels; its rows are read in
    place of a rounded copy in scratch, or rounded where they are packed."""
    p = m.done("z")
    inner = {"x_low": "L2"} if mode == "rows" else {}

    def connected(case):
        g = case.schedule.groups[0]
        rows = {**g.rows, **dict.fromkeys(inner, "loops")}
        return replace(case, schedule=replace(case.schedule, groups=(with_tables(
            g, connect={**g.connect, **inner}, ukernel=rows),)))

    group = replace(one_group(p, ("z",), {}, {}).groups[0], connect={
        "y": "register", "x_low": inner.get("x_low", "register")})
    stage = next(s for s in group_stages(p, group) if "y" in s.computes)
    f, weights = dot_factors(stage)
    axis = next(r for r in f.k if r.name == k)
    layout = dot_layout(f, weights, axis, row, p.consts["w"].shape)
    loops = {"lanes": f.n[0].name, "k": k, "a": mode, "b": "panel"}
    made = pair(name, p, stage.name, row, loops, target, tile, {"w": layout.to_json()},
                special=special, tol=4e-6)
    return Pair(connected(made.fast), connected(made.slow))


def matmul_case(row, target, rng, mode, size, tile=(), turned=False, special=()):
    """A product of ``size`` (rows, columns, depth); ``mode``: how its rows are read."""
    rows, columns, depth = size
    m = Maker()
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    r, c = ax("r", rows), ax("c", depth)
    m.input("x", rows, depth)
    _weights(m, rng, *((columns, depth) if turned else (depth, columns)))
    m.input("b", columns)
    m.step("x_low", (r, c), Cast("bf16", m.ref("x", r, c)))
    m.step("y", (i, j), _f32(m.ref("x_low", i, k)) * _f32(
        m.ref("w", *((j, k) if turned else (k, j)))), (k,), "sum")
    m.step("z", (i, j), relu(m.ref("y", i, j) + m.ref("b", j)))
    return _forced(f"{mode} {rows},{columns},{depth} {dict(tile)} {special}", m, row, target, mode,
                   "k", tile, special)


def _of_two(row, target, rng, size, turned, special=()):
    """A product of two computed tensors in a batch, whose columns every work item packs."""
    batch, rows, columns, depth = size
    m = Maker()
    h, i, j, k = ax("h", batch), ax("i", rows), ax("j", columns), ax("k", depth)
    shapes = {"x": (batch, rows, depth),
              "v": (batch, columns, depth) if turned else (batch, depth, columns)}
    for n, shape in shapes.items():
        m.input(n, *shape)
        at = tuple(ax(f"{n}{d}", e) for d, e in enumerate(shape))
        m.step(f"{n}_low", at, Cast("bf16", m.ref(n, *at)))
    m.step("y", (h, i, j), _f32(m.ref("x_low", h, i, k)) * _f32(
        m.ref("v_low", h, *((j, k) if turned else (k, j)))), (k,), "sum")
    m.step("z", (h, i, j), relu(m.ref("y", h, i, j)))
    low = ("x_low", "v_low")
    made = pair(f"of two {size} {turned}", m.done("z"), "y", row,
                {"lanes": "j", "k": "k", "b": "packed",
                 "a": "packed" if isinstance(depth, Sym) or depth % 2 else "rows"},
                target, {"h": 1}, special=special, tol=4e-6)

    def stored(case):
        g = case.schedule.groups[0]
        g = with_tables(g, connect={**g.connect, **dict.fromkeys(low, "L2")},
                    ukernel={**g.rows, **dict.fromkeys(low, "loops")})
        return replace(case, schedule=replace(case.schedule, groups=(g,)))

    return Pair(stored(made.fast), stored(made.slow))


def _convolution(row, target, rng, mode, stride, pad):
    """Channels last, read in place or copied in runs, zero outside the tensor."""
    ic, oc = (8, row.tile.nr + 3) if mode == "rows" else (5, row.tile.nr)
    m = Maker()
    shape = (2, 7, 6, ic)
    m.input("x", *shape)
    _weights(m, rng, oc, ic, 3, 2)
    at = tuple(ax(f"a{d}", e) for d, e in enumerate(shape))
    m.step("x_low", at, Cast("bf16", m.ref("x", *at)))
    n, o, c, j, k = ax("n", 2), ax("oc", oc), ax("ic", ic), ax("kh", 3), ax("kw", 2)
    oh = ax("oh", (7 + 2 * pad - 3) // stride + 1)
    ow = ax("ow", (6 + 2 * pad - 2) // stride + 1)
    y, x = oh * stride + j - pad, ow * stride + k - pad
    value = m.ref("x_low", n, y, x, c)
    inside = all_hold([compare("ge", y, 0), compare("lt", y, 7), compare("ge", x, 0),
                       compare("lt", x, 6)])
    value = Where(inside, value, Const(0, "bf16")) if pad else value
    m.step("y", (n, o, oh, ow), _f32(value) * _f32(m.ref("w", o, c, j, k)), (c, j, k), "sum")
    m.step("z", (n, o, oh, ow), relu(m.ref("y", n, o, oh, ow)))
    return _forced(f"conv {mode} stride {stride} pad {pad}", m, row, target, mode, "ic", {"n": 1})


def pair_cases(row, target):
    """Ragged sizes on every side, infinities and NaN, rows under a padding."""
    mr, nr = row.tile.mr, row.tile.nr
    rng = np.random.default_rng(nr)
    for mode in ("rows", "packed"):
        depths = (2, 10, 18) if mode == "rows" else (1, 9, 17)
        sizes = ((1, 1), (mr + 1, nr + 1), (2 * mr + 1, 2 * nr + 3))
        for (rows, columns), depth in zip(sizes, depths):
            yield matmul_case(row, target, rng, mode, (rows, columns, depth))
        yield matmul_case(row, target, rng, mode, (2 * mr, nr, 6), special=SPECIAL)
    yield matmul_case(row, target, rng, "rows", (2 * mr + 3, 2 * nr, 12), {"i": mr + 2, "j": nr},
                      True)
    yield matmul_case(row, target, rng, "rows", (Sym("m", 1, 40), nr + 2, 8))
    yield _of_two(row, target, rng, (2, mr + 1, nr + 3, 6), False)
    yield _of_two(row, target, rng, (3, 2 * mr, nr, 7), True)
    yield _of_two(row, target, rng, (1, 1, 5, 1), False, SPECIAL)
    yield _of_two(row, target, rng, (2, mr + 2, nr + 1, Sym("d", 1, 40)), False, SPECIAL)
    yield _of_two(row, target, rng, (2, 3, nr, Sym("d", 1, 40)), True)
    for mode, geometry in product(("rows", "packed"), ((1, 0), (2, 1))):
        yield _convolution(row, target, rng, mode, *geometry)


def bf16_map_cases(row, target):
    """Numbers rounded in lanes, ragged: what is between two bf16, on them, beyond them."""
    if "bf16" not in row.stored:
        return
    for n in (1, 3 * target.lanes + 2):
        m = Maker()
        i, j = ax("i", 3), ax("j", n)
        m.input("x", 3, n)
        m.step("y", (i, j), _f32(Cast("bf16", m.ref("x", i, j))) * Const(2, "f32"))
        yield pair(f"rounded {n}", m.done("y"), "y", row, {"lanes": "j"}, target, tol=0,
                   special=(*SPECIAL, 1e-45, -1e-39, 0.0, -0.0))


__all__ = ["bf16_map_cases", "matmul_case", "pair_cases"]
