"""Cases of rows that multiply f32 by grouped weights."""

from dataclasses import replace
from itertools import product

import numpy as np
from row_pairs import one_group, pair
from te_programs import Maker, ax, relu

from aotc.ir.category import grouped_dtypes
from aotc.ir.expr import Sym
from aotc.ir.numbers.byte_panels import panel_fault
from aotc.ir.numbers.group_bytes import group_bytes
from aotc.ir.numbers.grouped import Grouping, grouped_value, integer_value
from aotc.ir.tile_statements import dot_step
from aotc.sched.model.stages import group_stages
from aotc.sched.rows.dots import dot_factors, dot_layout

INF, NAN = float("inf"), float("nan")
# whole groups, a rest of one step, fewer steps than a group has; every number of bytes of a scale
GROUPINGS = [Grouping(bits, size, planes, zeros) for (bits, zeros), (size, planes) in zip(
    product((8, 4), (False, True)), ((32, 2), (18, 3), (32, 4), (40, 2)))]
# the same in whole steps of 16, as rows of threads take them
IN_STEPS = [replace(g, size=size) for g, size in zip(GROUPINGS, (32, 48, 16, 64))]


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


def _matmul(row, target, mode, g, size, tile=(), special=()):
    rows, columns, depth = size
    m = Maker()
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    m.input("x", *((rows, depth) if mode == "rows" else (depth, rows)), dtype=row.a)
    m.const("w", group_bytes(g, *numbers(g, depth, columns)))
    m.input("b", columns)
    x = m.ref("x", *((i, k) if mode == "rows" else (k, i)))
    x = x if row.a == "f32" else integer_value(x)
    m.step("y", (i, j), x * grouped_value(g, "w", k, j), (k,), "sum")
    m.step("z", (i, j), relu(m.ref("y", i, j) + m.ref("b", j)))
    p = m.done("z")
    stage = next(s for s in group_stages(p, one_group(p, ("z",), {}, {}).groups[0])
                 if "y" in s.computes)
    f, weights = dot_factors(stage)
    layout = dot_layout(f, weights, k, row, p.consts["w"].shape, True)
    staged = row.staging is not None
    loops = {"lanes": "j", "k": "k", "a": mode, "b": "packed" if staged else "panel"}
    return pair(f"{mode} {rows},{columns},{depth} {g} {dict(tile)} {special}", p, stage.name, row,
                loops, target, tile, {} if staged else {"w": layout.to_json()}, special=special,
                tol=4e-6)


def grouped_cases(row, target):
    """Ragged sizes on every side, infinities and NaN."""
    mr, nr = row.tile.mr, row.tile.nr
    every = GROUPINGS if row.shared is None else IN_STEPS
    taken = [g for g in every if row.takes(grouped_dtypes(row.a, g.bits))
             and not g.size % row.grouped.steps
             and (row.a == "f32" or panel_fault(g, dot_step(row.a)) is None)]
    for mode, g in product(("rows", "packed"), taken):
        rest = dot_step(row.a) if mode == "rows" else 1  # which are read so many at a time
        yield _matmul(row, target, mode, g, (mr + 1, nr + 1, g.size + rest))
    for g in taken:
        yield _matmul(row, target, "rows", g, (2 * mr + 1, 2 * nr + 3, 3 * g.size))
        if row.a == "f32":
            yield _matmul(row, target, "rows", g, (2 * mr, nr, 17), special=(INF, -INF, NAN))
    yield _matmul(row, target, "rows", g, (2 * mr + 3, 2 * nr, 64), {"i": mr + 2, "j": nr})
    yield _matmul(row, target, "rows", g, (Sym("m", 1, 40), nr + 2, 40))


__all__ = ["GROUPINGS", "grouped_cases", "numbers"]
