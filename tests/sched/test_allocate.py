"""The arena: buffers that live at the same time never share bytes, dying inputs are reused."""

from dataclasses import replace
from functools import cache
from itertools import accumulate

import numpy as np
import pytest
from te_programs import Maker, ax
from te_random import random_program, random_schedule

from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const, Sym, Unary
from aotc.ir.layout import Layout
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.oracle.eval_expr import index_value
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.oracle.run_plan import run_plan
from aotc.sched import check_schedule, complete, decide, lower
from aotc.sched.memory.allocate import find_in_place, liveness, slot_sizes
from aotc.sched.memory.slots import colour
from aotc.target import get_target

TARGET = get_target("x86-64-v3")


def size_of(program, schedule, name, syms):
    """Bytes of a stored tensor under its layout, counted here."""
    shape = tuple(index_value(d, syms) for d in program.shape(name))
    layout = Layout.from_json(schedule.layouts.get(name, ()))
    dims = [d if isinstance(d, int) else index_value(d, syms) for d in layout.shape(shape)]
    return int(np.prod(dims, dtype=np.int64)) * DTYPES[program.dtype(name)].size


def spans_of_life(program, schedule):
    """{temp: (group that writes it, last group that reads it)}, counted here."""
    life = {}
    for i, g in enumerate(schedule.groups):
        for b in g.outputs:
            if program.buffers[b].role == "temp":
                life[b] = (i, i)
        for c in g.computes:
            for b in program.producer[c].inputs:
                if b in life and b not in g.outputs:
                    life[b] = (life[b][0], i)
    return life


def starts(program, schedule, syms):
    """Where each slot begins in the arena; they lie one behind the other."""
    sizes = [index_value(e, syms) for e in slot_sizes(program, schedule)]
    assert all(n % 64 == 0 for n in sizes)
    return list(accumulate(sizes, initial=0))


def overlaps(program, schedule, syms):
    """Pairs of temps that live together and share bytes, but for in-place pairs."""
    life, begin = spans_of_life(program, schedule), starts(program, schedule, syms)
    assert set(life) == set(schedule.buffers)
    live = liveness(program, schedule.groups)
    reused = {(o, b) for i, g in enumerate(schedule.groups)
              for o, b in find_in_place(program, schedule, g, live, i).items()}
    for a in life:
        for b in life:
            if a == b or (a, b) in reused or (b, a) in reused:
                continue
            together = life[a][0] <= life[b][1] and life[b][0] <= life[a][1]
            x, y = (begin[p.slot] + p.offset for p in (schedule.buffers[a], schedule.buffers[b]))
            if together and x < y + size_of(program, schedule, b, syms) and (
                    y < x + size_of(program, schedule, a, syms)):
                yield a, b


PARTS = [0, *(pytest.param(n, marks=pytest.mark.product) for n in range(20, 120, 20))]


@cache
def decided(seed):
    """(a random Program, its decided Schedule)."""
    p = random_program(seed)
    return p, decide(p, TARGET)


@pytest.mark.parametrize("first", PARTS)
def test_live_buffers_never_share_bytes(first):
    for seed in range(first, first + 20):
        p, free = decided(seed)
        for s in (free, random_schedule(p, TARGET, seed)):
            for n in (1, 4, 9):
                syms = {x.name: n for x in p.syms}
                assert not list(overlaps(p, s, syms)), (seed, n)


@pytest.mark.parametrize("first", PARTS)
def test_slots_hold_their_tenants_at_every_extent(first):
    seen = 0
    for seed in range(first, first + 20):
        p, s = decided(seed)
        for n in (1, 3, 9):
            syms = {x.name: n for x in p.syms}
            begin = starts(p, s, syms)
            for name, slot in s.buffers.items():
                end = begin[slot.slot] + slot.offset + size_of(p, s, name, syms)
                assert end <= begin[slot.slot + slot.span], (seed, name, n)
                assert slot.offset % 64 == 0
                seen += 1
    assert seen > 30


def chain(n, last, extent=40):
    """x -> t1 -> ... -> tn elementwise, each in a group of its own -> last(m, tn)."""
    m = Maker()
    m.input("x", extent)
    source = "x"
    for k in range(1, n + 1):
        source = m.pointwise(f"t{k}", source, lambda e, _: Unary("exp", e))
    last(m, source)
    return m.done("y")


def separate(p):
    """A decided Schedule with every compute in a group of its own."""
    groups = tuple(Group(f"g{i}", s.outs, s.outs, s.out) for i, s in enumerate(p.steps))
    return complete(p, Schedule(TARGET.name, groups), TARGET)


def reversed_copy(m, source):
    i = ax("i", 40)
    m.step("y", (i,), m.ref(source, 39 - i))


def test_elementwise_chains_run_in_place():
    p = chain(3, reversed_copy)
    s = separate(p)
    assert len({(x.slot, x.offset) for x in s.buffers.values()}) == 1
    assert slot_sizes(p, s) == (Const(192),)


def test_no_reuse_where_an_element_is_read_later_or_elsewhere():
    def reverse_then_use(m, source):
        i = ax("i", 40)
        m.step("r", (i,), m.ref(source, 39 - i) * Const(2, "f32"))
        m.step("y", (i,), m.ref("r", i))

    p = chain(1, reverse_then_use)
    s = separate(p)
    assert s.buffers["t1"] != s.buffers["r"]

    def use_twice(m, source):
        m.pointwise("u", source, lambda e, _: Unary("exp", e))
        i = ax("i", 40)
        m.step("y", (i,), m.ref("u", i) + m.ref(source, i))

    p = chain(1, use_twice)
    s = separate(p)
    assert s.buffers["t1"] != s.buffers["u"]


def test_a_later_output_of_the_same_loops_keeps_its_input():
    """The first result must not overwrite what the second still reads."""
    m = Maker()
    i, r = ax("i", 6), ax("r", 5)
    m.input("x", 6, 5)
    m.step("top", (i,), m.ref("x", i, r), (r,), "max")
    m.step("total", (i,), m.ref("x", i, r), (r,), "sum")
    m.step("z", (i,), m.ref("total", i) - m.ref("top", i))
    m.step("y", (i,), m.ref("total", 5 - i))
    p = m.done("z", "y")
    groups = (Group("a", ("top",), ("top",), "top"),
              Group("b", ("total", "z"), ("total", "z"), "total", {"total": "register"}),
              Group("c", ("y",), ("y",), "y"))
    s = complete(p, Schedule(TARGET.name, groups), TARGET)
    assert s.buffers["total"] != s.buffers["top"]


def test_static_arena_is_smaller_than_the_sum():
    n = Sym("n", 1, 64)
    for symbolic in (False, True):
        m = Maker()
        m.input("x", n if symbolic else 64, 32)
        source = "x"
        for k in range(6):
            i, j = ax("i", m.buffers["x"].shape[0]), ax("j", 32)
            source = m.step(f"t{k}", (i, j), m.ref(source, i, 31 - j) * Const(0.5, "f32"))
        p = m.done(source)
        s = separate(p)
        plan = lower(p, s, TARGET)
        total = sum(index_value(x, {"n": 64}) for x in plan.slots)
        assert total == 2 * 64 * 32 * 4  # two tensors are alive at a time, of five


def test_a_stage_of_several_overwrites_what_only_it_reads():
    """Residual, then the sum of each row: the residual may lie where its dying input was; not if
    another stage reads that input, too."""
    def group(extra):
        m = Maker()
        m.input("x", 12, 8)
        i, j, r = ax("i", 12), ax("j", 8), ax("r", 8)
        m.step("t", (i, j), m.ref("x", 11 - i, j))
        m.step("a", (i, j), m.ref("t", i, j) + m.ref("x", i, j))
        m.step("m", (i,), m.ref("a", i, r) + (m.ref("t", i, r) if extra else Const(0, "f32")),
               (r,), "max")
        m.step("s", (i, j), m.ref("a", i, j) - m.ref("m", i))
        m.step("y", (i, j), m.ref("a", 11 - i, j) + m.ref("s", i, j))
        p = m.done("y")
        groups = (Group("f", ("t",), ("t",), "t"),
                  Group("g", ("a", "m", "s"), ("a", "s"), "s", {"a": "L1", "m": "L1"}, {"i": 4},
                        parallel=("i",)), Group("h", ("y",), ("y",), "y"))
        return p, complete(p, Schedule(TARGET.name, groups), TARGET)

    p, s = group(False)
    assert s.buffers["a"] == s.buffers["t"] != s.buffers["s"]
    x = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)
    assert np.array_equal(interpret(p, s, {"x": x})["y"], evaluate(p, {"x": x})["y"])
    p, s = group(True)
    assert s.buffers["a"] != s.buffers["t"]


def wide_after_narrow():
    """Four tensors of n x 16 that live together, then one of n x 64: four times theirs."""
    m, n = Maker(), Sym("n", 1, 300)
    m.input("x", n, 16)
    i, j, k = ax("i", n), ax("j", 16), ax("k", 64)
    for t, by in enumerate("abcd"):
        m.step(by, (i, j), m.ref("x", i, 15 - j) * Const(t + 1.5, "f32"))
    m.step("s", (i, j), (m.ref("a", i, 15 - j) + m.ref("b", i, 15 - j))
           * (m.ref("c", i, 15 - j) + m.ref("d", i, 15 - j)))
    m.step("wide", (i, k), Unary("exp", m.ref("s", i, k // 4)))
    m.step("y", (i, k), m.ref("wide", i, 63 - k))
    return m.done("y")


def test_a_wide_tensor_takes_several_slots_of_narrow_ones():
    p = wide_after_narrow()
    s = separate(p)
    assert s.buffers["wide"].span == 4 and check_schedule(p, s, TARGET) == []
    for n in (1, 7, 300):
        unit = -(-n * 16 * 4 // 64) * 64
        assert starts(p, s, {"n": n})[-1] == 5 * unit  # s and wide live together, a..d do not
        assert not list(overlaps(p, s, {"n": n}))
        x = np.random.default_rng(n).standard_normal((n, 16)).astype(np.float32)
        np.testing.assert_array_equal(interpret(p, s, {"x": x})["y"],
                                      evaluate(p, {"x": x})["y"])
    again = Schedule.from_json(s.to_json())
    assert again.buffers == s.buffers and s.to_json().count('"span"') == 1


def test_faults_of_places_in_several_slots():
    p = wide_after_narrow()
    s = separate(p)
    wide, other = s.buffers["wide"], s.buffers["s"]

    def faults(**places):
        return " ".join(check_schedule(p, replace(s, buffers=s.buffers | places), TARGET))

    assert "s and wide are live together" in faults(s=replace(wide, span=1))
    assert "s and wide are live together" in faults(s=Slot(wide.slot + 3))
    assert "overlap" in faults(wide=replace(wide, slot=max(0, other.slot - 1), span=2))
    assert "offset 64" in faults(wide=replace(wide, offset=64))
    assert "span 0" in faults(wide=replace(wide, span=0))
    assert "choose from slots 0.." in faults(wide=replace(wide, slot=90))


def test_a_symbolic_arena_is_what_lives_at_every_extent():
    """A block of attention: scores grow with the square of the extent; the rows that they are made
    of, and four times a row's size later on, find room where scores are at other times."""
    n = Sym("n", 1, 512)
    classes = {"x": (0, 9), "q": (1, 4), "k": (2, 4), "v": (3, 6), "scores": (4, 5),
               "weights": (5, 6), "mixed": (6, 7), "wide": (8, 9)}
    size = dict.fromkeys(classes, n * 2048) | {"scores": n * n * 32, "weights": n * n * 32,
                                               "wide": n * 8192}
    places = colour(classes, size)
    for extent in (16, 32, 64, 100, 128, 200, 384, 512):
        slots, alive = {}, [0] * 10
        for b, p in places.items():
            need = index_value(size[b], {"n": extent})
            for i in range(p.slot, p.slot + p.span):
                slots[i] = max(slots.get(i, 0), need / p.span)
            for i in range(classes[b][0], classes[b][1] + 1):
                alive[i] += need
        assert sum(slots.values()) <= 1.05 * max(alive), extent


def _normalised(tile):
    """A tensor, its rows divided by their largest element, that plus one; and the two groups of a
    schedule that computes the middle one in tiles of rows, or of columns."""
    m = Maker()
    m.input("x", 8, 48)
    m.pointwise("a", "x", lambda e, _: e * 2.0)
    i, j = ax("i", 8), ax("j", 48)
    m.step("top", (i,), m.ref("a", i, j), (j,), "max")
    m.step("b", (i, j), m.ref("a", i, j) / m.ref("top", i))
    m.pointwise("y", "b", lambda e, _: e + 1.0)
    p = m.done("y")
    groups = (Group("g0", ("a",), ("a",), "a"),
              Group("g1", ("top", "b"), ("b",), "b", {"top": "L1"}, tile, parallel=tuple(tile)),
              Group("g2", ("y",), ("y",), "y"))
    return p, complete(p, Schedule(TARGET.name, groups), TARGET)


def test_rows_that_earlier_stages_of_the_item_read_are_written_over():
    p, s = _normalised({"i": 3})
    assert check_schedule(p, s, TARGET) == []
    live = liveness(p, s.groups)
    assert find_in_place(p, s, s.groups[1], live, 1) == {"b": "a"}
    assert s.buffers["a"] == s.buffers["b"]
    feeds = {"x": np.linspace(1, 5, 8 * 48, dtype=np.float32).reshape(8, 48)}
    assert np.array_equal(interpret(p, s, feeds)["y"], evaluate(p, feeds)["y"])


def test_what_other_items_read_is_not_written_over():
    p, s = _normalised({"j": 16})  # every item folds whole rows
    assert check_schedule(p, s, TARGET) == []
    assert find_in_place(p, s, s.groups[1], liveness(p, s.groups), 1) == {}
    p, s = _normalised({})  # a single item may
    assert find_in_place(p, s, s.groups[1], liveness(p, s.groups), 1) == {"b": "a"}


def _softened(tile, size=12, run=None, turned=False):
    """Scores, and the two groups of a schedule whose second one keeps their exponentials, sums them
    and divides by the sums; ``turned`` stores the quotients of a square the other way round."""
    m = Maker()
    m.input("x", 12, size)
    m.pointwise("a", "x", lambda e, _: e * 2.0)
    i, j = ax("i", 12), ax("j", size)
    m.step("e", (i, j), Unary("exp", m.ref("a", i, j)))
    m.step("sum", (i,), m.ref("e", i, j), (j,), "sum")
    m.step("b", (i, j), m.ref("e", j, i) / m.ref("sum", j) if turned
           else m.ref("e", i, j) / m.ref("sum", i))
    m.pointwise("y", "b", lambda e, _: e + 1.0)
    p = m.done("y")
    groups = (Group("g0", ("a",), ("a",), "a"),
              Group("g1", ("e", "sum", "b"), ("b",), "b", {"e": "L1", "sum": "L1"}, tile,
                    parallel=() if run else tuple(tile), run=run or {}),
              Group("g2", ("y",), ("y",), "y"))
    return p, complete(p, Schedule(TARGET.name, groups), TARGET)


@pytest.mark.parametrize("tile", [{"i": 5}, {}])
def test_what_only_earlier_stages_read_is_written_over_if_it_is_the_same_part(tile):
    p, s = _softened(tile)
    assert check_schedule(p, s, TARGET) == []
    assert find_in_place(p, s, s.groups[1], liveness(p, s.groups), 1) == {"b": "a"}
    assert s.buffers["a"] == s.buffers["b"]
    feeds = {"x": np.random.default_rng().normal(size=(12, 12)).astype(np.float32)}
    want = evaluate(p, feeds)["y"]
    assert np.allclose(interpret(p, s, feeds)["y"], want, rtol=1e-6)
    assert np.allclose(run_plan(lower(p, s, TARGET), feeds)["y"], want, rtol=1e-6)


@pytest.mark.parametrize("tile, run, turned", [
    ({"j": 4}, None, False),  # every item reads whole rows
    ({"i": 4}, None, True),  # it reads rows that others write
    ({"i": 4}, {"i": 12}, False)])  # the next step may read what this one has written over
def test_what_is_not_the_same_part_is_not_written_over(tile, run, turned):
    p, s = _softened(tile, run=run, turned=turned)
    assert check_schedule(p, s, TARGET) == []
    assert find_in_place(p, s, s.groups[1], liveness(p, s.groups), 1) == {}
