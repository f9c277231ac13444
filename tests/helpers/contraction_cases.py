"""Cases of contraction rows: every way to read the operands, ragged sizes, epilogues, convolutions,
results that lie across the lanes."""

from dataclasses import replace

import numpy as np
from edits import with_tables
from row_pairs import one_group, pair
from te_programs import Maker, ax, conv2d, relu

from aotc.ir.dtypes import HALF
from aotc.ir.expr import Const, Sym, Unary, Where, all_hold, compare, maximum
from aotc.ir.numbers.narrow import widen_half
from aotc.sched.model.stages import factors_for, group_stages
from aotc.sched.rows.panels import panel_layout

# of a row with operands of a type, relative to the largest result: f16 and tf32 have 11 bits,
# bf16 8
TOLERANCE = {"f32": 2e-5, "f16": 3e-3, "tf32": 3e-3, "bf16": 2.4e-2, "u8": 0, "i8": 0}
MODES = tuple((a, b) for a in ("rows", "packed") for b in ("panel", "direct", "packed"))


def contraction_cases(row, target):
    mr, nr = row.tile.mr, row.tile.nr
    rng = np.random.default_rng(mr * 100 + nr)
    sizes = ((1, 1, 1), (mr + 1, nr + 1, 3), (2 * mr + 1, 2 * nr + 3, 17), (mr, nr, 8))
    for n, (a, b) in enumerate(MODES):
        for size in sizes[:3] if n % 2 else sizes[1:]:
            yield _matmul(row, target, rng, a, b, size)
        yield _matmul(row, target, rng, a, b, sizes[1], epilogue=True)
        yield _matmul(row, target, rng, a, b, sizes[2], tile={"i": mr + 2, "j": nr})
        yield _matmul(row, target, rng, a, b, (Sym("m", 1, 40), nr + 2, 5))
        if b != "panel":  # columns fill register tiles, but not those of a work item
            yield _matmul(row, target, rng, a, b, (2 * mr, 4 * nr, 5), n % 2,
                          tile={"i": mr + mr // 2, "j": nr // 2 if a == "rows" else 3 * nr - 1})
            yield _matmul(row, target, rng, a, b, (3, Sym("w", 1, 90), 4), batch=2)
    for size, tile in (((mr, nr, 5), {}), ((50 * mr + 1, nr + 3, 7), {}),
                       ((3, 17, nr, 4), {"h": 2}), ((2, 61, 2 * nr + 1, 3), {"b": 1})):
        yield _columns_first(row, target, rng, size, tile)
    if target.part_loads and mr > 1:
        for epilogue in (False, True):
            tile = {"j": nr} if epilogue else {}
            for size in ((2 * mr + 1, 2 * nr + 3, 17), (Sym("m", 1, 40), nr, 21)):
                for a, b in (("rows", "panel"), ("rows", "direct"), ("strided", "direct")):
                    yield _in_slices(_matmul(row, target, rng, a, b, size, epilogue, tile))
    if row.staging is not None and row.a == HALF:  # of bf16 there are no inputs
        yield from _stored_cases(row, target, rng)
    for mode in ("rows", "packed"):
        for geometry in ((1, 0, 1), (1, 1, 1), (2, 1, 1), (1, 2, 2)):
            yield _convolution(row, target, rng, mode, *geometry)
            if mode == "rows" and target.part_loads and mr > 1:
                for steps in (3, 99):
                    yield _in_slices(_convolution(row, target, rng, mode, *geometry),
                                     {"kh": 1, "kw": 1, "ic": steps})


def _stored_cases(row, target, rng):
    """Operands that are stored as a row multiplies them, so that they are copied where elements lie
    side by side at multiples of 16 bytes: in rows, in columns, in panels, under a tile's end."""
    mr, nr, steps = row.tile.mr, row.tile.nr, row.steps
    for b in ("panel", "direct", "packed"):
        for size, tile in (((mr + 3, 2 * nr, 2 * steps), {}), ((2 * mr, nr + 8, steps + 8), {}),
                           ((mr, 2 * nr + 5, 5 * steps + 1), {}),
                           ((2 * mr + 1, 2 * nr + 8, 24), {"i": mr, "j": nr}),
                           ((Sym("m", 1, 40), nr + 8, 40), {})):
            for batch in (0, 2)[:1 + (b != "panel")]:
                yield _matmul(row, target, rng, "rows", b, size, b == "direct" and not batch and (
                    not tile), tile, batch, row.a)
    yield _matmul(row, target, rng, "packed", "direct", (mr + 8, nr + 8, 40), dtype=row.a)


def _matmul(row, target, rng, a, b, size, epilogue=False, tile=(), batch=0, dtype="f32"):
    """a: "rows", "packed", or "strided": rows read in place that lie across the sum.  dtype: that
    the operands are stored as."""
    rows, columns, depth = size
    m = Maker()
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    front = (ax("b", batch),) if batch else ()
    many = tuple(x.extent for x in front)
    m.input("x", *many, *((i.extent, k.extent) if a == "rows" else (k.extent, i.extent)),
            dtype=dtype)
    if b == "panel":
        m.const("w", rng.standard_normal((depth, columns)).astype(
            np.float16 if dtype == HALF else np.float32))
    else:
        m.input("w", *((k.extent, j.extent) if b == "direct" else (j.extent, k.extent)),
                dtype=dtype)
    left = m.ref("x", *front, *((i, k) if a == "rows" else (k, i)))
    right = m.ref("w", *((j, k) if b == "packed" else (k, j)))
    left, right = (x if x.dtype == "f32" else widen_half(x) for x in (left, right))
    m.step("y", (*front, i, j), left * right, (k,), "sum")
    last = "y"
    if epilogue:
        m.input("bias", j.extent)
        m.input("r", i.extent, j.extent)
        v = m.ref("y", i, j) + m.ref("bias", j)
        m.step("t", (i, j), v * Unary("tanh", v))
        last = m.step("z", (i, j), maximum(m.ref("t", i, j) + m.ref("r", i, j), Const(-1, "f32")))
    p = m.done(last)
    layouts = {"w": panel_layout((k, j), j, (k,), k, row.tile.nr, (depth, columns)).to_json()
               } if b == "panel" else {}
    text = f"{a} x {b} {rows},{columns},{depth}{' epilogue' if epilogue else ''} {dict(tile)}"
    text += f" of {dtype}" * (dtype != "f32")
    return pair(text, p, "y", row, {"lanes": "j", "k": "k", "a": a.replace("strided", "rows"),
                                    "b": b}, target, tile, layouts, tol=1e-5)


def _in_slices(p, split=(("k", 8),)):
    """The pair with the sum of the fast one in slices."""
    g = p.fast.schedule.groups[0]
    schedule = replace(p.fast.schedule, groups=(with_tables(g, split={"y": dict(split)}),))
    return replace(p, fast=replace(p.fast, name=f"{p.fast.name} sliced", schedule=schedule))


def written_out_cases(row, target):
    """Several steps of the sum written out, of rows of neighbours and of others that lie across
    it, the steps left over one by one."""
    mr, nr = row.tile.mr, row.tile.nr
    rng = np.random.default_rng(mr)
    for a, steps, depth in (("strided", 2, 7), ("strided", 8, 19), ("rows", 3, 8)):
        p = _matmul(row, target, rng, a, "direct", (mr + 1, nr + 3, depth))
        g = p.fast.schedule.groups[0]
        group = with_tables(g, loops={"y": g.choices["y"].said | {"unroll": steps}})
        yield replace(p.fast, name=f"{p.fast.name} by {steps}",
                      schedule=replace(p.fast.schedule, groups=(group,)))


def stored_types(row):
    """What operands of a row may lie in memory as, its own type last."""
    return ("f32", HALF) if row.a == HALF else ("f32",)


def deep_case(row, target, a, b, stages=None, stored=None):
    """Two by two register tiles in one work item, and sums that go through every stage twice
    (stages: of a row that has some, as many as are usual).  stored: the dtype of operands in
    memory, the row's own if left out."""
    stored = stored or stored_types(row)[-1]
    rng = np.random.default_rng(row.tile.mr)
    size = (row.tile.mr + 1, row.tile.nr + 3)
    if row.staging is None:
        return _matmul(row, target, rng, a, b, (*size, 19), dtype=stored).fast
    stages = stages or row.staging.usual
    size = (*size, row.steps * 2 * stages + 3)
    case = _matmul(row, target, rng, a, b, size, dtype=stored).fast
    group, = case.schedule.groups
    group = with_tables(group, loops={"y": group.choices["y"].said | {"stages": stages}})
    return replace(case, schedule=replace(case.schedule, groups=(group,)))


def long_case(row, target, stored):
    """Rows times weights where tiles and steps are whole and operands lie at multiples of 16 bytes,
    as in large models."""
    tile = row.tile
    size = (1 if row.staging is None else 4 * tile.mr, 4 * tile.nr, 1024)
    return _matmul(row, target, np.random.default_rng(tile.mr), "rows", "panel", size,
                   dtype=stored).fast


def _columns_first(row, target, rng, size, tile):
    """Results that lie across the lanes: y[b, j, h, i] of rows (h, i) that lie side by side."""
    *many, rows, columns, depth = size
    m = Maker()
    b, h = ax("b", many[0] if "b" in tile else 1), ax("h", many[0] if "h" in tile else 1)
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    m.input("x", b.extent, h.extent, rows, depth)
    m.const("w", rng.standard_normal((depth, columns)).astype(np.float32))
    m.input("bias", columns)
    axes = (b, j, h, i)
    m.step("y", axes, m.ref("x", b, h, i, k) * m.ref("w", k, j), (k,), "sum")
    m.step("z", axes, relu(m.ref("y", *axes) + m.ref("bias", j)))
    layout = panel_layout((k, j), j, (k,), k, row.tile.nr, (depth, columns)).to_json()
    return pair(f"columns first {size} {tile}", m.done("z"), "y", row,
                {"lanes": "j", "k": "k", "a": "rows", "b": "panel"}, target, tile, {"w": layout},
                tol=1e-5)


def _convolution(row, target, rng, mode, stride, pad, dilation):
    """Channels last: rows are read in place under a guard; or channels first, packed."""
    ic, oc = 5, row.tile.nr + 3
    m = Maker()
    text = f"conv {mode} stride {stride} pad {pad} dilation {dilation}"
    if mode == "packed":
        m.input("x", 2, ic, 7, 6)
        w = rng.standard_normal((oc, ic, 3, 2)).astype(np.float32)
        conv2d(m, "y", "x", m.const("w", w), stride, pad, dilation)
        p = m.done("y")
        f = factors_for(group_stages(p, one_group(p, ("y",), {}, {}).groups[0])[0], "oc")
        index = p.steps[0].loads[1].index if p.steps[0].loads[1].buffer == "w" else \
            p.steps[0].loads[0].index
        lane, k = index[0], f.k[0]
        layout = panel_layout(index, lane, f.k, k, row.tile.nr, w.shape)
        return pair(text, p, "y", row, {"lanes": "oc", "k": k.name, "a": "packed", "b": "panel"},
                    target, {"n": 1, "oh": 2}, {"w": layout.to_json()}, tol=1e-5)
    m.input("x", 2, 7, 6, ic)
    w = rng.standard_normal((3, 2, ic, oc)).astype(np.float32)
    m.const("w", w)
    n, o, i, j, k = ax("n", 2), ax("oc", oc), ax("ic", ic), ax("kh", 3), ax("kw", 2)
    oh = ax("oh", (7 + 2 * pad - 2 * dilation - 1) // stride + 1)
    ow = ax("ow", (6 + 2 * pad - dilation - 1) // stride + 1)
    y, x = oh * stride + j * dilation - pad, ow * stride + k * dilation - pad
    inside = all_hold([compare("ge", y, 0), compare("lt", y, 7), compare("ge", x, 0),
                       compare("lt", x, 6)])
    value = m.ref("x", n, y, x, i)
    value = Where(inside, value, Const(0, "f32")) if pad else value
    m.step("y", (n, oh, ow, o), value * m.ref("w", j, k, i, o), (j, k, i), "sum")
    p = m.done("y")
    layout = panel_layout((j, k, i, o), o, (j, k, i), i, row.tile.nr, w.shape)
    return pair(text, p, "y", row, {"lanes": "oc", "k": "ic", "a": "rows", "b": "panel"}, target,
                {"n": 1}, {"w": layout.to_json()}, tol=1e-5)
