"""Scratch is reserved for the largest extents: tiles that fit whatever the dimensions are."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from te_programs import Maker, ax, softmax

from aotc.errors import ScheduleError
from aotc.ir.expr import Binary, Const, Sym, Where, as_expr, compare, maximum
from aotc.ir.schedule import Schedule
from aotc.ir.simplify import simplify
from aotc.sched import check_schedule, complete, decide, lower
from aotc.sched.choose.connect import register_groups
from aotc.sched.judge.judge import Judge
from aotc.sched.memory.scratch import bounded_tile, round_up_bytes, scratch_bytes
from aotc.sched.model.stages import group_stages
from aotc.sched.model.tilegraph import merge_groups
from aotc.sched.text_choices.keep_said import keep_said
from aotc.target import get_target

V3, CUDA = get_target("x86-64-v3"), get_target("cuda:sm_90")


def rows(count, columns):
    m = Maker()
    m.input("x", count, 8, columns)
    softmax(m, "y", "x")
    return m.done("y")


def room(target):
    level = target.machine.near
    return level.capacity * level.usable


@pytest.mark.parametrize("target", [V3, CUDA, get_target("riscv64")], ids=lambda t: t.name)
@pytest.mark.parametrize("columns", [Sym("n", 1, 40), Sym("n", 1, 3000)])
def test_rows_of_any_extent_share_kernels_whose_scratch_fits(target, columns):
    """3000 columns count as 128, and all rows would be predicted to fit."""
    p = rows(Sym("b", 1, 1000), columns)
    s = decide(p, target)
    assert check_schedule(p, s, target) == []
    # on riscv64 two rows of 3000 columns at a time are predicted to take longer than two kernels
    assert len(s.groups) <= (2 if target.name == "riscv64" and columns.hi == 3000 else 1)
    for group, kernel in zip(s.groups, lower(p, s, target).kernels, strict=True):
        assert scratch_bytes(p, group) <= room(target)
        assert kernel.slab_bytes <= room(target)
    assert any(lv != "register" for g in s.groups for lv in g.connect.values())


def attention(batch, keys):
    """Projected queries and keys, their products, softmax, times v; per head."""
    m = Maker()
    b, h, i, j, d, e = (ax("b", batch), ax("h", 8), ax("i", keys), ax("j", keys), ax("d", 64),
                        ax("e", 64))
    m.input("x", batch, keys, 64)
    for w in "qk":
        m.const(f"w{w}", np.ones((8, 64, 64), np.float32))
        m.step(w, (b, h, i, e), m.ref("x", b, i, d) * m.ref(f"w{w}", h, d, e), (d,), "sum")
    m.step("s", (b, h, i, j), m.ref("q", b, h, i, d) * m.ref("k", b, h, j, d), (d,), "sum")
    softmax(m, "p", "s")
    m.step("o", (b, h, i, e), m.ref("p", b, h, i, j) * m.ref("x", b, j, e), (j,), "sum")
    return m.done("o")


def test_what_small_tiles_compute_again_is_counted():
    """Tiles of a few queries, for scratch to fit, would project all keys again in each."""
    target = get_target("x86-64-v4")
    p = attention(Sym("n", 1, 64), Sym("t", 1, 512))
    judge, groups = Judge(p, target), register_groups(p)
    projections = [judge.verdict(g).seconds for g in groups if g.anchor in ("q", "k")]
    alone = reduce(lambda a, b: merge_groups(p, a, b, "L1"),
                   [g for g in groups if g.anchor not in ("q", "k")])
    everything = reduce(lambda a, b: merge_groups(p, a, b, "L1"), groups)
    one, all_of_it = judge.verdict(alone), judge.verdict(everything)
    assert one.legal and scratch_bytes(p, replace(alone, tile=dict(one.tile))) <= room(target)
    assert not all_of_it.legal or all_of_it.seconds > one.seconds + sum(projections)


def test_rows_that_may_not_fit_stay_apart():
    p = rows(4, Sym("n", 1, 1 << 20))
    for target in (V3, CUDA):
        s = decide(p, target)
        assert len(s.groups) > 1
        for kernel in lower(p, s, target).kernels:
            assert kernel.slab_bytes <= room(target)


def softmax_group(p):
    first, *others = register_groups(p)
    for g in others:
        first = merge_groups(p, first, g, "L1")
    return first


def test_tiles_that_fit_stay_as_they_are():
    p = rows(Sym("b", 1, 1000), 40)
    group = replace(softmax_group(p), tile={"i0": 7}, parallel=("i0",))
    size = scratch_bytes(p, group)
    assert size == 7 * 8 * 40 * 4 + 256  # one value a row: the maximum, then the sum
    assert bounded_tile(p, V3, group, size, {}, ()) == {"i0": 7}
    smaller = bounded_tile(p, V3, group, size - 1, {}, ())
    assert smaller["i0"] < 7 and scratch_bytes(p, replace(group, tile=smaller)) < size
    assert bounded_tile(p, V3, group, 100, {}, {"i2"}) is None
    static = replace(softmax_group(rows(1000, 40)), tile={"i0": 7})
    assert bounded_tile(rows(1000, 40), V3, static, 100, {}, ()) == {"i0": 7}  # chosen by the model


def test_halves_of_a_free_extent_are_no_halves_of_tiles():
    """Windows over a tensor of (h + 1) // 2 rows read three of it for one of theirs."""
    m, h = Maker(), Sym("h", 8, 512)
    half = simplify((h + 1) // 2)
    m.input("x", 16, h)
    m.step("e", (ax("c", 16), ax("i", half)), maximum(m.ref("x", ax("c", 16), ax("i", half)), 0.0))
    c, o, k = ax("c", 16), ax("o", simplify((half + 1) // 2)), ax("k", 3)
    at = o * 2 + k - 1
    inside = Binary("and", compare("ge", at, Const(0)), compare("lt", at, half))
    m.step("y", (c, o), Where(inside, m.ref("e", c, at), Const(0, "f32")), (k,), "max")
    p = m.done("y")
    group = merge_groups(p, *register_groups(p), "L1")
    for rows, read in ((1, 3), (4, 9)):
        cut = replace(group, tile={"o": rows}, parallel=("o",))
        assert scratch_bytes(p, cut) == round_up_bytes(16 * read * 4)


def test_bounded_tiles_fill_vectors():
    """A product and windows over it: the channels are cut for the largest image, into panels."""
    m, n = Maker(), Sym("n", 8, 1000)
    c, i, k, j = ax("c", 512), ax("i", n), ax("k", 64), ax("j", 3)
    m.input("x", 64, n)
    m.const("w", np.ones((512, 64), np.float32))
    m.step("e", (c, i), m.ref("w", c, k) * m.ref("x", k, i), (k,), "sum")
    inside = Binary("and", compare("ge", i + j - 1, Const(0)), compare("lt", i + j - 1, n))
    m.step("y", (c, i), Where(inside, m.ref("e", c, i + j - 1), Const(0, "f32")), (j,), "max")
    p, target = m.done("y"), get_target("x86-64-v4")
    group = merge_groups(p, *register_groups(p), "L2")
    tile = dict(Judge(p, target).verdict(group).tile)
    assert set(tile) == {"c"} and tile["c"] % target.lanes == 0


def test_a_work_item_has_points_for_all_its_threads():
    p = rows(1000, 40)
    tile = bounded_tile(p, CUDA, replace(softmax_group(p), tile={"i0": 1, "i1": 1}), room(CUDA),
                        {}, ())
    assert tile == {"i0": 1} or 512 < 40 * tile["i1"] <= CUDA.machine.row_points


def test_a_total_that_nothing_reads_is_refused():
    """The stage of a scalar has no axes to ask for, and still nobody asks for it."""
    m = Maker()
    m.input("x", 5, 6)
    i, j = ax("i", 5), ax("j", 6)
    m.step("t", (i,), m.ref("x", i, j), (j,), "max")
    m.step("total", (), m.ref("t", i), (i,), "min")
    m.step("y", (i,), m.ref("t", i) * m.ref("t", i))
    p = m.done("total", "y")
    groups = register_groups(p)
    whole = groups[0]
    for g in groups[1:]:
        whole = merge_groups(p, whole, g, "L1")
    s = replace(decide(p, V3, "none"), groups=(replace(whole, anchor="y"),), layouts={},
                buffers={})
    faults = check_schedule(p, complete(p, s, V3), V3)
    assert any("nothing after total reads it" in f for f in faults), faults
    s = decide(p, V3)
    assert check_schedule(p, s, V3) == []


def test_an_inlined_anchor_is_named():
    m = Maker()
    m.input("x", 5, 6)
    i, j = ax("i", 5), ax("j", 6)
    m.step("t", (i, j), m.ref("x", i, j) * m.ref("x", i, j))
    m.step("y", (i, j), m.ref("t", i, j) + m.ref("x", i, j))
    p = m.done("y")
    group = replace(softmax_group(p), anchor="t")
    assert [s.computes for s in group_stages(p, group)] == [("y",)]
    s = complete(p, replace(decide(p, V3), groups=(group,), layouts={}, buffers={}), V3)
    with pytest.raises(ScheduleError, match="anchor t"):
        lower(p, s, V3)


def test_an_inner_axis_grows_once_outer_ones_are_cut():
    p = rows(Sym("b", 1, 1000), 40)
    group = replace(softmax_group(p), tile={"i0": 2, "i1": 4})
    size = scratch_bytes(p, replace(group, tile={"i0": 1, "i1": 4}, parallel=("i0", "i1")))
    assert bounded_tile(p, V3, group, size, {}, ()) == {"i0": 1, "i1": 4}
    assert bounded_tile(p, V3, group, size - 1, {}, ()) == {"i0": 1, "i1": 2}


def product():
    """Doubled rows, any number of them in any number of batches, by a matrix."""
    m = Maker()
    b, i, k, n = ax("b", Sym("b", 1, 9)), ax("i", Sym("t", 1, 40)), ax("k", 64), ax("n", 64)
    m.input("x", b.extent, i.extent, 64)
    m.const("w", np.ones((64, 64), np.float32))
    m.step("s", (b, i, k), m.ref("x", b, i, k) + m.ref("x", b, i, k))
    m.step("y", (b, i, n), m.ref("s", b, i, k) * m.ref("w", k, n), (k,), "sum")
    p = m.done("y")
    return p, merge_groups(p, *register_groups(p), "L1")


@pytest.mark.parametrize("tile, elements", [({"b": 2}, 2 * 40 * 64), ({"b": 1, "i": 16}, 16 * 64),
                                            ({"i": 16}, 9 * 16 * 64)])
def test_rows_in_scratch_lie_as_close_as_in_tensors(tile, elements):
    """Room is for the largest extents, strides are those of the call.  So all rows of a work item
    are one run: of none it is asked which batch's which row it is.  Not where parts of some
    batches are side by side."""
    p, group = product()
    group = replace(group, tile=tile, parallel=tuple(tile))
    assert scratch_bytes(p, group) == 4 * elements
    s = replace(decide(p, V3, "none"), groups=(group,), layouts={}, buffers={})
    kernel, = lower(p, complete(p, s, V3), V3).kernels
    assert kernel.slab_bytes == 4 * elements
    assert ("_at" in str(kernel)) == (tile == {"i": 16}), kernel


def windows(columns):
    """Three maxima of neighbours, one of another, in one kernel: the first and the last of them may
    lie in one place."""
    m = Maker()
    c, i, k = ax("c", 64), ax("i", columns), ax("k", 3)
    m.input("x", 64, columns)
    for name, source in zip("stuy", "xstu"):
        at = i + k - 1
        inside = Binary("and", compare("ge", at, Const(0)), compare("lt", at, as_expr(columns)))
        m.step(name, (c, i), Where(inside, m.ref(source, c, at), Const(0, "f32")), (k,), "max")
    p = m.done("y")
    group = reduce(lambda a, b: merge_groups(p, a, b, "L1"), register_groups(p))
    s = replace(decide(p, V3, "none"), groups=(group,), layouts={}, buffers={})
    return p, complete(p, s, V3)


@pytest.mark.parametrize("columns, said, places", [
    (40, "shared", 2), (8, "apart", 3), (Sym("n", 1, 40), "shared", 2), (Sym("n", 1, None), "", 3)])
def test_scratch_lies_where_the_schedule_says(columns, said, places):
    p, s = windows(columns)
    assert [g.scratch for g in s.groups] == [said] and check_schedule(p, s, V3) == []
    assert Schedule.from_json(s.to_json()) == s and complete(p, s, V3) == s

    def lies(schedule):
        kernel, = lower(p, schedule, V3).kernels
        return len({x.offset for x in kernel.scratch})

    assert lies(s) == places
    group, = s.groups
    assert (f"scratch {said}" in str(group)) == bool(said) and group.bare.scratch == ""
    old = replace(s, groups=(replace(group, scratch=""),))  # of a file that does not know it
    assert complete(p, old, V3) == s
    for way, n in (("shared", 2), ("apart", 3)):
        other = replace(s, groups=(replace(group, scratch=way),))
        faults = check_schedule(p, other, V3)
        if said or way == "apart":
            assert not faults and complete(p, other, V3) == other and lies(other) == n
            assert keep_said(p, other, V3).groups[0].scratch == ("" if way == said else way)
        else:
            assert any("has no constant bound, choose 'apart'" in f for f in faults)
    wrong = replace(s, groups=(replace(group, scratch="behind"),))
    assert any("scratch 'behind'; choose shared or apart" in f
               for f in check_schedule(p, wrong, V3))
