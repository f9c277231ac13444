"""What ranges of extents are decided by: last rows, narrow rows, the size of code."""

from dataclasses import replace

import numpy as np
import pytest
from edits import with_tables
from te_programs import Maker, matmul

from aotc.ir.expr import Sym
from aotc.ir.schedule import Variant
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched import decide
from aotc.sched.cost.group_cost import Aligned
from aotc.sched.cost.predict import Prices, tails_of
from aotc.sched.dynamic.text_size import text_bytes
from aotc.sched.shape_variants import parts
from aotc.target import get_target
from benchmarks.exported.build import Writer

V3 = get_target("x86-64-v3")


def product(depth, columns, lo, hi):
    """x w, of rows between ``lo`` and ``hi``"""
    m = Maker("product")
    rows = Sym("rows", lo, hi)
    m.input("x", rows, depth)
    m.const("w", np.linspace(-1, 1, depth * columns, dtype=np.float32).reshape(depth, columns))
    matmul(m, "y", "x", "w")
    return m.done("y")


def test_rows_that_are_computed():
    whole, tails = Aligned(0, (0,), 1, 7, 64), Aligned(0, (0,), 1, 7, 64, tails=(2, 4))
    assert [whole.padded(n) for n in (7, 8, 14, 15)] == [7, 14, 14, 21]
    assert [tails.padded(n) for n in (1, 2, 3, 4, 5, 7, 8, 10, 14, 19)] == [
        2, 2, 4, 4, 7, 7, 9, 11, 14, 21]


@pytest.mark.parametrize("depth, lo, hi, wanted", [
    (20, 1, 12, True), (20, 4000, 90000, False), (900, 4000, 90000, True)])
def test_last_rows_have_tiles_where_that_pays(depth, lo, hi, wanted):
    """Few rows, or sums whose tiles are functions of their own."""
    program = product(depth, 48, lo, hi)
    schedule = decide(program, V3)
    group, = schedule.groups
    assert bool(tails_of(program, group, V3)) == wanted
    assert group.choices["y"].tails == wanted
    if wanted and depth == 20:
        without = with_tables(group, loops={"y": group.choices["y"].said | {"tails": 0}})
        prices, mr = Prices(program, V3), V3.row(group.rows["y"]).tile.mr
        for n in range(lo, hi + 1):
            with_, none = (prices.group(schedule, g, {"rows": n}) for g in (group, without))
            assert with_ <= none and (with_ < none) == (0 < n % mr <= -(-mr // 2)), n


@pytest.mark.parametrize("target, depth, lo, wanted", [
    ("x86-64-v4", 200, 1, 2), ("x86-64-v4", 200, 2, 1), ("x86-64-v4", 900, 1, 1),
    ("x86-64-v3", 200, 1, 1)])
def test_one_row_alone_has_a_tile_where_others_take_longer(target, depth, lo, wanted):
    """Half of a tile of few vectors is as fast, and so is the quarter that long sums have."""
    program, target = product(depth, 1024, lo, 64), get_target(target)
    group, = decide(program, target).groups
    assert group.choices["y"].tails == wanted
    assert (min(tails_of(program, group, target)["y"]) == 1) == (wanted == 2)


def test_sums_that_are_written_out_are_longer_than_calls():
    """Once more for every smaller tile of last rows; ``tails`` alone tells these two apart."""
    out, calls = (product(depth, 48, 1, 12) for depth in (20, 900))
    group, = decide(out, V3).groups
    fewer = with_tables(group, loops={"y": group.choices["y"].said | {"tails": 0}})
    sizes = [text_bytes(out, g, V3) for g in (group, fewer)]
    assert sizes[0] > sizes[1] > text_bytes(calls, decide(calls, V3).groups[0], V3) > 0


def test_narrow_rows_are_as_fast_as_they_are():
    g = Writer("layer", 1)
    model = g.model(g.op("Gemm", g.input("x", ["n", 512]), g.weight(512, 512), g.weight(512)))
    dims, compute = {"n": (64, 1024)}, []
    for precision in ("f32", "bf16"):
        work = run_pipeline(Options(model, target="x86-64-v4-bf16", dims=dims, precision=precision,
                                    stop_after="schedule"))
        prices = Prices(work.program, work.target)
        compute.append(prices.call(work.schedule, {"n": 1024}))
    assert compute[1] < compute[0] * 1.2 / work.target.tuning.narrow_rate + 1e-4


def test_leaves_of_one_candidate_have_one_program():
    """Their kernels assume what all of them serve."""
    program = product(64, 96, 1, 2000)
    base = decide(program, V3)
    twice = replace(base, variants=tuple(
        Variant(when, base) for when in ({"rows": (1, 4)}, {"rows": (9, 20)})))
    programs = {id(p.program) for p in parts(program, twice)}
    assert len(programs) == 1 and parts(program, twice)[0].program.syms == program.syms

