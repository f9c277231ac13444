"""What single layers become: rows and forms that depend on extents and layouts, never on names."""

from dataclasses import replace

import numpy as np
import pytest
from edits import with_tables
from te_programs import Maker, ax, conv2d

from aotc.errors import ScheduleError
from aotc.ir.expr import Const, Where, all_hold, compare
from aotc.ir.kernel.plan_stages import Contract
from aotc.sched.cost.decided import Decided
from aotc.sched.cost.group_cost import resident_buffers
from aotc.sched.decide import decide
from aotc.sched.lowering.lower import lower
from aotc.target import get_target

X86 = [get_target("x86-64-v4"), get_target("x86-64-v3")]


def only_group(program, target):
    schedule = decide(program, target)
    assert len(schedule.groups) == 1
    return schedule.groups[0], schedule


def with_split(schedule, split):
    return replace(schedule, groups=(with_tables(schedule.groups[0], split={"y": split}),))


def matmul(m, k, n):
    p = Maker()
    i, j, r = ax("i", m), ax("j", n), ax("r", k)
    p.input("x", m, k)
    p.const("w", np.zeros((k, n), np.float32))
    p.step("y", (i, j), p.ref("x", i, r) * p.ref("w", r, j), (r,), "sum")
    return p.done("y")


@pytest.mark.parametrize("target", X86, ids=lambda t: t.name)
def test_a_long_sum_over_weights_that_no_cache_holds_runs_in_slices(target):
    program = matmul(512, 2048, 2048)
    g, schedule = only_group(program, target)
    step = g.splits["y"]["r"]
    assert 2048 % step == 0 and 0 < g.tile["j"] < 2048
    contract, = (s for k in lower(program, schedule, target).kernels for s in k.lowered.stages)
    assert contract.slices.steps == step


@pytest.mark.parametrize("target", X86, ids=lambda t: t.name)
def test_a_long_sum_over_columns_in_place_runs_in_slices_unless_both_fit(target):
    """What attention over channels sums: all pixels."""
    def transposed(pixels, channels):
        p = Maker()
        i, j, r = ax("i", channels), ax("j", channels), ax("r", pixels)
        p.input("q", pixels, channels)
        p.input("k", pixels, channels)
        p.step("y", (i, j), p.ref("q", r, i) * p.ref("k", r, j), (r,), "sum")
        return p.done("y")

    g, schedule = only_group(transposed(16384, 64), target)
    assert g.choices["y"].b == "direct" and g.splits["y"].keys() == {"r"}
    contract, = (s for k in lower(transposed(16384, 64), schedule, target).kernels
                 for s in k.lowered.stages)
    assert contract.slices.steps == g.splits["y"]["r"]
    assert only_group(transposed(2048, 64), target)[0].splits == {}


def test_what_leaves_the_cache_between_two_panels_is_paid_for():
    """Rows of a whole sum that do not fit beside a panel, panels longer than the cache, and sums of
    slices are levels of the cost; what stays costs nothing more."""
    def levels(k, tile, split):
        program = matmul(512, k, 2048)
        g, _ = only_group(program, X86[0])
        asked = Decided(program, X86[0], g, {}, resident_buffers(program, X86[0].machine))
        known = {name for name, _, _ in asked.cost(tile).levels}
        return {name for name, _, _ in asked.cost(tile, split).levels} - known

    assert levels(2048, {"i": 256, "j": 256}, {}) == {"rows in L3"}
    assert levels(2048, {"i": 14, "j": 256}, {}) == levels(2048, {"i": 256, "j": 64}, {}) == set()
    assert levels(2048, {"i": 126, "j": 256}, {"y": {"r": 512}}) == {"sums in L2"}
    assert levels(8192, {"i": 256, "j": 64}, {}) == {"panels in L3"}
    assert levels(8192, {"i": 7, "j": 64}, {}) == set()


def convolution(size, channels):
    """A 3x3 convolution of channels to as many, channels last, on size x size."""
    p = Maker()
    n, o, i, j, k = ax("n", 1), ax("o", channels), ax("i", channels), ax("j", 3), ax("k", 3)
    y, x = ax("y", size), ax("x", size)
    p.input("x", 1, size + 2, size + 2, channels)
    p.const("w", np.zeros((3, 3, channels, channels), np.float32))
    p.step("y", (n, y, x, o), p.ref("x", n, y + j, x + k, i) * p.ref("w", j, k, i, o), (j, k, i),
           "sum")
    return p.done("y")


@pytest.mark.parametrize("target", X86, ids=lambda t: t.name)
def test_the_taps_of_a_convolution_are_slices_where_a_panel_leaves_the_cache(target):
    program = convolution(12, 1536)
    schedule = decide(program, target, winograd="off")
    g, = schedule.groups
    assert g.splits["y"].keys() == {"j", "k", "i"} and g.splits["y"]["j"] == g.splits["y"]["k"] == 1
    contract, = (s for k in lower(program, schedule, target).kernels for s in k.lowered.stages)
    assert len(contract.slices.taps) == 2 and not contract.taps
    for wrong in ({"i": 512}, {"i": 512, "j": 2, "k": 1}, {"i": 512, "j": 1, "k": 1, "o": 4}):
        with pytest.raises(ScheduleError, match="split of y: '[jko]'"):
            lower(program, with_split(schedule, wrong), target)
    for size, channels in ((12, 256), (2, 1536)):  # a panel that stays, few rows
        assert decide(convolution(size, channels), target, winograd="off").groups[0].splits == {}


@pytest.mark.parametrize("size", [(512, 256, 4096), (8, 4096, 4096), (512, 2048, 16)])
def test_short_sums_few_rows_and_small_weights_stay_whole(size):
    assert only_group(matmul(*size), X86[0])[0].splits == {}


def test_plain_c_runs_sums_whole_and_says_so():
    target, program = get_target("c"), matmul(512, 2048, 2048)
    g, schedule = only_group(program, target)
    assert g.splits == {}
    with pytest.raises(ScheduleError, match="split of y: sums run in slices where"):
        lower(program, with_split(schedule, {"r": 512}), target)


@pytest.mark.parametrize("split", [{"q": 512}, {"r": 0}, {"i": 4}])
def test_a_slice_of_another_axis_or_of_nothing_is_refused(split):
    program = matmul(512, 2048, 2048)
    schedule = with_split(only_group(program, X86[0])[1], split)
    with pytest.raises(ScheduleError, match="choose r and a positive number of steps"):
        lower(program, schedule, X86[0])


def move(shape, perm):
    p = Maker()
    axes = [ax(f"a{d}", shape[d]) for d in perm]
    p.input("x", *shape)
    p.step("y", tuple(axes), p.ref("x", *(axes[perm.index(d)] for d in range(len(shape)))))
    return p.done("y")


@pytest.mark.parametrize("target", X86, ids=lambda t: t.name)
@pytest.mark.parametrize(("shape", "perm", "loops"), [
    ((64, 48), (1, 0), {"lanes": "a1", "block": "a0"}),
    ((2, 8, 5, 6), (0, 2, 3, 1), {"lanes": "a3", "block": "a1"}),
])
def test_moves_that_exchange_the_innermost_axis_transpose_blocks(target, shape, perm, loops):
    g, _ = only_group(move(shape, perm), target)
    assert target.row(g.rows["y"]).exchanges and g.choices["y"].said == loops


def test_other_moves_copy_runs():
    g, _ = only_group(move((4, 8, 64), (1, 0, 2)), X86[0])
    assert g.rows["y"].startswith("move_f32__") and "block" not in g.choices["y"].said


def grouped(channels, size=28):
    """A convolution of groups of ``channels`` over an image stored channel by channel."""
    p = Maker()
    p.input("x", 2, channels, size, size)
    p.const("w", np.zeros((2, channels, channels, 3, 3), np.float32))
    g, o, i = ax("g", 2), ax("o", channels), ax("i", channels)
    j, k, oh, ow = ax("kh", 3), ax("kw", 3), ax("oh", size), ax("ow", size)
    y, x = oh + j - 1, ow + k - 1
    inside = all_hold([compare("ge", y, 0), compare("lt", y, size), compare("ge", x, 0),
                       compare("lt", x, size)])
    value = Where(inside, p.ref("x", g, i, y, x), Const(0, "f32"))
    p.step("y", (g, o, oh, ow), value * p.ref("w", g, o, i, j, k), (i, j, k), "sum")
    return p.done("y")


@pytest.mark.parametrize("target", X86, ids=lambda t: t.name)
def test_few_channels_leave_the_lanes_to_pixels_that_lie_side_by_side(target):
    few, _ = only_group(grouped(target.lanes // 4), target)
    assert target.row(few.rows["y"]).category == "window"
    assert few.choices["y"].said.items() >= {"lanes": "ow", "block": "oh"}.items()
    many, _ = only_group(grouped(2 * target.lanes), target)
    assert target.row(many.rows["y"]).category == "contraction"


def test_a_pool_of_stride_two_has_lanes_along_its_rows():
    p = Maker()
    p.input("x", 4, 32, 64)
    c, oh, ow, i, j = ax("c", 4), ax("oh", 16), ax("ow", 32), ax("i", 2), ax("j", 2)
    p.step("y", (c, oh, ow), p.ref("x", c, oh * 2 + i, ow * 2 + j), (i, j), "max")
    g, _ = only_group(p.done("y"), X86[0])
    assert g.choices["y"].lanes == "ow"
    assert only_group(p.done("y"), get_target("riscv64"))[0].rows["y"]  # its own loads decide


@pytest.mark.parametrize("target", X86, ids=lambda t: t.name)
def test_results_across_the_lanes_are_gathered_and_transposed(target):
    p = Maker()
    p.input("x", 1, 16, 20, 20)
    conv2d(p, "y", "x", p.const("w", np.zeros((64, 16, 1, 1), np.float32)), 1, 0, 1)
    program = p.done("y")
    plan = lower(program, decide(program, target), target)
    contracts = [s for k in plan.kernels for s in k.lowered.stages if isinstance(s, Contract)]
    assert contracts and all(c.turned and c.turned.rows % c.micro.mr == 0 for c in contracts)


@pytest.mark.parametrize("target", X86, ids=lambda t: t.name)
def test_two_products_that_share_weights_read_the_same_panels(target):
    """Of many rows and of one: rows whose panels differ would pack the weights at every call."""
    p = Maker()
    p.input("x", 64, 256)
    p.input("v", 1, 256)
    p.const("w", np.ones((256, 768), np.float32))
    for name, source, rows in (("y", "x", 64), ("z", "v", 1)):
        i, j, r = ax("i", rows), ax("j", 768), ax("r", 256)
        p.step(name, (i, j), p.ref(source, i, r) * p.ref("w", r, j), (r,), "sum")
    schedule = decide(p.done("y", "z"), target)
    assert [next(iter(g.choices.values())).b for g in schedule.groups] == ["panel", "panel"]
    widths = {target.row(u).tile.nr for g in schedule.groups for u in g.rows.values()}
    assert len(widths) == 1


def test_columns_of_few_rows_are_shared_where_that_pays():
    """A row by a matrix waits for the weights: one work item for each worker, unless starting them
    takes longer than what they save; small ones stay whole."""
    target = get_target("x86-64-v4")
    program = matmul(1, 256, 1024)

    def tile(**more):
        machine = replace(target.machine, **more)
        return decide(program, replace(target, machine=machine)).groups[0].tile

    assert tile() == {"j": 512} and tile(workers=4) == {"j": 256}
    assert tile(workers=1) == tile(fork_join=1.0) == {}
    assert only_group(matmul(1, 64, 256), target)[0].tile == {}
