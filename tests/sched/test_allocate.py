"""The arena: buffers that live at the same time never share bytes, dying inputs are reused."""

import numpy as np
import pytest
from te_programs import Maker, ax
from te_random import random_program, random_schedule

from aotc.ir.dtypes import DTYPES
from aotc.ir.eval_expr import index_value
from aotc.ir.expr import Const, Sym, Unary
from aotc.ir.layout import Layout
from aotc.ir.schedule import Group, Schedule
from aotc.sched import complete, decide, lower
from aotc.sched.allocate import in_place, liveness, slot_sizes
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


def overlaps(program, schedule, syms):
    """Pairs of temps that live together and share bytes, but for in-place pairs."""
    life = spans_of_life(program, schedule)
    assert set(life) == set(schedule.buffers)
    live = liveness(program, schedule.groups)
    reused = {(o, b) for i, g in enumerate(schedule.groups)
              for o, b in in_place(program, schedule, g, live, i).items()}
    for a in life:
        for b in life:
            if a == b or (a, b) in reused or (b, a) in reused:
                continue
            together = life[a][0] <= life[b][1] and life[b][0] <= life[a][1]
            x, y = schedule.buffers[a], schedule.buffers[b]
            if together and x.slot == y.slot and x.offset < y.offset + size_of(
                    program, schedule, b, syms) and y.offset < x.offset + size_of(
                    program, schedule, a, syms):
                yield a, b


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_live_buffers_never_share_bytes(first):
    for seed in range(first, first + 30):
        p = random_program(seed)
        for s in (decide(p, TARGET), random_schedule(p, TARGET, seed)):
            for n in (1, 4, 9):
                syms = {x.name: n for x in p.syms}
                assert not list(overlaps(p, s, syms)), (seed, n)


def test_slots_hold_their_tenants_at_every_extent():
    seen = 0
    for seed in range(60):
        p = random_program(seed)
        s = decide(p, TARGET)
        sizes = slot_sizes(p, s)
        for n in (1, 3, 9):
            syms = {x.name: n for x in p.syms}
            for name, slot in s.buffers.items():
                need = slot.offset + size_of(p, s, name, syms)
                assert need <= index_value(sizes[slot.slot], syms), (seed, name, n)
                assert slot.offset % 64 == 0
                seen += 1
    assert seen > 100


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
