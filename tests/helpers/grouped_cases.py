"""Cases of rows that multiply f32 by grouped weights."""

from dataclasses import replace
from itertools import product

import numpy as np
from row_pairs import one_group, pair
from te_programs import Maker, ax, relu

from aotc.ir.category import grouped_dtypes
from aotc.ir.dtypes import BF16, HALVES
from aotc.ir.expr import Cast, Sym
from aotc.ir.numbers.byte_panels import panel_fault
from aotc.ir.numbers.group_bytes import group_bytes
from aotc.ir.numbers.grouped import INTEGER_ROWS, Grouping, grouped_value, integer_value
from aotc.ir.numbers.narrow import widen_half
from aotc.ir.tile_statements import dot_step
from aotc.sched.model.stages import group_stages
from aotc.sched.rows.dots import dot_factors, dot_layout

INF, NAN = float("inf"), float("nan")
# whole groups, a rest of one step, fewer steps than a group has; every number of bytes of a scale
GROUPINGS = [Grouping(bits, size, planes, zeros) for (bits, zeros), (size, planes) in zip(
    product((8, 4), (False, True)), ((32, 2), (18, 3), (32, 4), (40, 2)))]
# the same in whole steps of 16, as rows of threads take them, and of those as long as a few steps
IN_STEPS = [replace(g, size=size) for g, size in zip(GROUPINGS, (32, 48, 16, 64))]
IN_CODES = [*IN_STEPS, *(replace(g, size=size) for g, size in zip(GROUPINGS, (16, 64, 128, 32))),
            Grouping(4, 128, 3, True), Grouping(8, 128, 4, True)]


def numbers(g, depth, columns, seed=0):
    """(codes, scales, zero points or None) of random weights, the ends of their range among
    them."""
    rng = np.random.default_rng(seed)
    half, count = 1 << g.bits - 1, -(-depth // g.size)
    codes = rng.integers(-half, half, (depth, columns))
    scale = rng.uniform(-1, 1, (count, columns)).astype(np.float32) / half
    keep = np.uint32((1 << 32) - (1 << 8 * (4 - g.planes)))
    scale = (scale.view(np.uint32) & keep).view(np.float32)
    zero = rng.integers(-half, half, (count, columns)) if g.zeros else None
    return codes.astype(np.int8), scale, zero


def long_grouped(row, target, g):
    """Rows times weights in groups where tiles and steps are whole and rows lie at multiples of 16
    bytes, as in large models."""
    size = (row.tile.mr * (1 if row.staging is None else 4), 4 * row.tile.nr, 1024)
    return _matmul(row, target, "rows", g, size, stored=row.a).fast


def _matmul(row, target, mode, g, size, tile=(), special=(), stored=None):
    rows, columns, depth = size
    m = Maker()
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    stored = stored or {BF16: "f32"}.get(row.a, row.a)  # tests give no bf16
    m.input("x", *((rows, depth) if mode == "rows" else (depth, rows)), dtype=stored)
    m.const("w", group_bytes(g, *numbers(g, depth, columns)))
    m.input("b", columns)
    x = m.ref("x", *((i, k) if mode == "rows" else (k, i)))
    if stored != row.a:
        at = ax("r", rows), ax("c", depth)
        m.step("x_low", at, Cast(BF16, m.ref("x", *(at if mode == "rows" else at[::-1]))))
        x = m.ref("x_low", i, k)
    x = widen_half(x) if row.a in HALVES else x if row.a == "f32" else integer_value(x)
    m.step("y", (i, j), x * grouped_value(g, "w", k, j), (k,), "sum")
    m.step("z", (i, j), relu(m.ref("y", i, j) + m.ref("b", j)))
    p = m.done("z")
    stage = next(s for s in group_stages(p, one_group(p, ("z",), {}, {}).groups[0])
                 if "y" in s.computes)
    f, weights = dot_factors(stage)
    layout = dot_layout(f, weights, k, row, p.consts["w"].shape, True)
    staged = row.staging is not None and not row.in_codes
    packed = stored != row.a or row.a in HALVES and not row.in_codes
    loops = {"lanes": "j", "k": "k", "a": "packed" if packed else mode,
             "b": "packed" if staged else "panel"}
    return pair(f"{mode} {rows},{columns},{depth} {g} {dict(tile)} {special}", p, stage.name, row,
                loops, target, tile, {} if staged else {"w": layout.to_json()}, special=special,
                tol=4e-6)


def grouped_cases(row, target):
    """Ragged sizes on every side, infinities and NaN."""
    mr, nr = row.tile.mr, row.tile.nr
    every = GROUPINGS if row.shared is None else IN_CODES if row.a in HALVES else IN_STEPS
    taken = [g for g in every if row.takes(grouped_dtypes(row.a, g.bits))
             and row.reads_groups_of(g.size, 3 * g.size)
             and (row.a not in INTEGER_ROWS or panel_fault(g, dot_step(row.a)) is None)]
    if row.in_codes:
        yield from _code_cases(row, target, taken)
        return
    for mode, g in product(("rows", "packed"), taken):
        rest = dot_step(row.a) if mode == "rows" else 1  # which are read so many at a time
        yield _matmul(row, target, mode, g, (mr + 1, nr + 1, g.size + rest))
    for g in taken:
        yield _matmul(row, target, "rows", g, (2 * mr + 1, 2 * nr + 3, 3 * g.size))
        if row.a not in INTEGER_ROWS:
            yield _matmul(row, target, "rows", g, (2 * mr, nr, 17), special=(INF, -INF, NAN))
    yield _matmul(row, target, "rows", g, (2 * mr + 3, 2 * nr, 64), {"i": mr + 2, "j": nr})
    yield _matmul(row, target, "rows", g, (Sym("m", 1, 40), nr + 2, 40))


def _code_cases(row, target, taken):
    """Every grouping in sums of one step and of several, whole and ragged; groups of several steps,
    of one and of less; rows that are copied 16 bytes at a time, and element by element."""
    mr, nr = row.tile.mr, row.tile.nr
    for g in taken:
        yield _matmul(row, target, "rows", g, (mr + 1, nr + 1, g.size + 8))
        yield _matmul(row, target, "rows", g, (2 * mr + 1, nr + 32, 3 * g.size))
        yield _matmul(row, target, "packed", g, (mr + 3, 33, g.size + 5))
        yield _matmul(row, target, "rows", g, (mr, nr, g.size + 1), special=(INF, -INF, NAN))
    for g in (Grouping(4, 48, 2, True), Grouping(8, 112, 3)):  # sums of one
        for depth in (g.size, g.size - 8, g.size - 13):
            yield _matmul(row, target, "rows", g, (mr + 3, nr, depth))
    yield _matmul(row, target, "rows", g, (2 * mr, 2 * nr, 112))
    g = taken[-1]
    yield _matmul(row, target, "rows", g, (2 * mr, 2 * nr, 4 * row.steps))
    yield _matmul(row, target, "rows", g, (2 * mr + 3, 2 * nr, 64), {"i": mr + 2, "j": nr})
    yield _matmul(row, target, "rows", g, (Sym("m", 1, 40), nr + 2, 40))


__all__ = ["GROUPINGS", "grouped_cases", "long_grouped", "numbers"]
