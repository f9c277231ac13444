"""What products of narrow numbers cost: by the rows of their types, with what makes their operands,
before they have rows and with them."""

from dataclasses import replace

import numpy as np
import pytest
from te_programs import Maker, ax

from aotc.ir.expr import Cast
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.choose.loops import choose_loops
from aotc.sched.choose.precision import choose_precision
from aotc.sched.cost.accesses import access_costs
from aotc.sched.cost.decided import aligned_products, usual_product
from aotc.sched.cost.group_cost import padding
from aotc.sched.cost.row_cost import row_rate
from aotc.sched.model.group_model import group_model
from aotc.sched.model.stages import group_stages
from aotc.target import TARGETS

ROWS, DEPTH, COLUMNS = 96, 128, 96
TYPES = {"f32": ("f32", "f32", "f32"), "u8": ("u8", "i8", "i32"), "i8": ("i8", "i8", "i32"),
         "bf16": ("bf16", "bf16", "f32")}


def product(kind, depth=DEPTH, rows=ROWS):
    """y[rows, COLUMNS] = x[rows, depth] * w[depth, COLUMNS], operands of a kind of ``TYPES``."""
    a, b, of = TYPES[kind]
    m = Maker()
    m.input("x", rows, depth, dtype=a)
    m.input("w", depth, COLUMNS, dtype=b)
    i, j, k = ax("i", rows), ax("j", COLUMNS), ax("k", depth)
    x, w = (load if load.dtype == of else Cast(of, load)
            for load in (m.ref("x", i, k), m.ref("w", k, j)))
    m.step("y", (i, j), x * w, (k,), "sum")
    return m.done("y")


def grouped(level, target):
    """The same with weights of 4 bits in groups."""
    m = Maker()
    m.input("x", ROWS, DEPTH)
    m.const("w", np.random.default_rng(0).standard_normal((DEPTH, COLUMNS)).astype(np.float32))
    i, j, k = ax("i", ROWS), ax("j", COLUMNS), ax("k", DEPTH)
    m.step("y", (i, j), m.ref("x", i, k) * m.ref("w", k, j), (k,), "sum")
    program = m.done("y")
    return apply_rewrites(program, choose_precision(program, target, level))


def lone(program: Program, target):
    """(the group of y alone with its row, its stage)."""
    (group,), _ = choose_loops(program, target, (Group("g", ("y",), ("y",), "y"),))
    (stage,) = group_stages(program, group)
    return group, stage


def aligned(program, target):
    """As it lies on its row, and on the one that it would usually get."""
    group, stage = lone(program, target)
    found, = aligned_products([stage], group, target)
    return found, usual_product(program, target, 0, stage)


@pytest.mark.parametrize("target, kind, rate", [
    ("x86-64-v4-vnni", "f32", 1.0), ("x86-64-v4-vnni", "u8", 3.6), ("x86-64-v4-vnni", "i8", 3.0),
    ("x86-64-v4-bf16", "bf16", 2.0), ("x86-64-v4-amx", "u8", 10.0), ("x86-64-v4-amx", "bf16", 5.0),
    ("aarch64-dotprod", "i8", 3.6), ("c", "u8", 1.0)])
def test_products_are_as_fast_as_their_rows(target, kind, rate):
    """Work counts in products, whatever types they are of."""
    target = TARGETS[target]
    program = product(kind)
    found, usual = aligned(program, target)
    assert found.rate == usual.rate == rate
    assert found.sizes == (1 if kind in ("u8", "i8") else 2 if kind == "bf16" else 4,) * 2
    model = group_model(program, lone(program, target)[0])
    tile = model.variables({"i": found.mr, "j": found.nr})
    assert model.work(tile)[0] == 2 * found.mr * found.nr * DEPTH
    assert padding(model, (found,), model.boxes(tile)) == pytest.approx(1 / rate)


def test_a_single_row_of_few_sums_waits_and_tiles_beside_lanes_have_their_own_rate():
    amx = TARGETS["x86-64-v4-amx"]
    one, _ = aligned(product("bf16", rows=1), amx)
    assert one.mr == 1 and one.rate == 0.5  # of lanes of f32, four sums of eight
    slow = replace(amx.tuning, narrow_rate=0.5)
    rates = {row_rate(u, slow) for u in amx.rows("dot") if u.a == "bf16"}
    assert rates == {0.5}


def test_weights_of_few_bits_are_expanded_once_or_for_every_tile():
    target = TARGETS["x86-64-v4"]
    program = grouped("int4w", target)
    found, usual = aligned(program, target)
    assert found.once and usual.once and found.sizes == (4, 4)
    model = group_model(program, lone(program, target)[0])
    tile = model.variables({"i": 2 * found.mr, "j": found.nr})
    assert model.work(tile)[0] == 2 * 2 * found.mr * found.nr * DEPTH
    boxes = model.boxes(tile)
    assert padding(model, (found,), boxes) == pytest.approx(
        1 + found.expand / (2 * found.mr))
    often = replace(found, once=False)
    assert padding(model, (often,), boxes) == pytest.approx(1 + found.expand / found.mr)


def test_packing_rows_costs_by_runs_and_columns_by_lanes():
    target, tuning = TARGETS["x86-64-v4-vnni"], TARGETS["x86-64-v4-vnni"].tuning

    def packs(depth):
        program = product("u8", depth)
        group, _ = lone(program, target)
        assert group.choices["y"].b == "packed"
        return {axes: n for n, axes in access_costs(program, target, group, {})["y"].packs}

    columns = -(-tuning.packed // 4)
    assert packs(16) == {("i",): columns}
    assert packs(18) == {("j",): -(-tuning.moved // 18), ("i",): columns}
    assert packs(3)["j",] == -(-tuning.moved // 3)
