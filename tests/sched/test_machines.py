"""Machines of other memories than any target has: every small model compiles for each of them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from product_models import attention, convnet, wide
from small_models import conv_stack, dense, embedding, two_convolutions, u_net
from te_programs import Maker, ax, matmul, relu

from aotc.errors import ScheduleError
from aotc.ir.schedule import Group, Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.pipeline import run_pipeline
from aotc.sched import complete, decide, lower
from aotc.sched.check.check_schedule import check_schedule
from aotc.sched.cost.group_cost import work_item
from aotc.sched.model.tilegraph import connect_levels
from aotc.target import get_target
from aotc.target.base import Machine, Memory
from aotc.target.machine_file import machine_json

FAR = Memory("far", 1 << 62, 25e9, "host", transaction=64)
FILE = Memory("file", 2048, 1e12, "thread", kind="managed")


def machine(*memories, scratch, **more):
    return Machine((FAR, *memories, FILE), scratch=scratch, workers=2, flops=86e9,
                   grain_flops=2_000_000, launch=3e-7, step=2e-8, overlap=0.7, **more)


def memory(name, kib, rate, scope="core", kind="cache", usable=0.75):
    return Memory(name, kib << 10, rate, scope, usable, kind=kind)


MACHINES = {
    "one cache": machine(memory("only", 512, 9e10), scratch="only"),
    "one cache for all": machine(memory("only", 4096, 9e10, "device"), scratch="only"),
    "three caches": machine(memory("third", 8192, 4e10, "device"), memory("second", 512, 9e10),
                            memory("first", 48, 1e11), scratch="second"),
    "three caches, scratch in the first": machine(
        memory("third", 8192, 4e10, "device"), memory("second", 512, 9e10),
        memory("first", 64, 1e11), scratch="first"),
    "a scratchpad": machine(memory("pad", 256, 1e11, kind="managed", usable=1.0), scratch="pad"),
    "two scratchpads": machine(
        memory("global", 8192, 5e10, "device", "managed", 1.0),
        memory("local", 128, 1e11, kind="managed", usable=1.0), scratch="local"),
    "one of the two is outer": machine(
        memory("outer", 512, 5e10, kind="managed", usable=1.0),
        memory("inner", 32, 1e11, kind="managed", usable=1.0), scratch="outer"),
}
MODELS = {"dense": dense, "embedding": embedding, "u_net": u_net, "conv_stack": conv_stack,
          "two_convolutions": two_convolutions, "convnet": convnet, "attention": attention,
          "wide": wide}
QUICK = {"embedding": tuple(MACHINES), "convnet": ("one cache", "two scratchpads")}
V3 = get_target("x86-64-v3")


@cache
def model_of(name):
    return MODELS[name]()


@pytest.mark.parametrize("kind, model", [
    pytest.param(k, m, marks=() if k in QUICK.get(m, ()) else pytest.mark.product)
    for k in MACHINES for m in MODELS])
def test_small_models_compile_for_a_machine_file(kind, model, tmp_path):
    path = tmp_path / "machine.json"
    target = replace(V3, machine=MACHINES[kind])
    path.write_text(machine_json(target))
    work = run_pipeline(Options(model_of(model), target=V3.name, machine=path, stop_after="plan"))
    assert work.plan.kernels
    levels = {v for g in work.schedule.groups for v in g.connect.values()}
    assert levels <= set(connect_levels(target.machine))
    least = run_pipeline(Options(model_of(model), target=V3.name, machine=path, stop_after="plan",
                                 connect="register"))
    assert stored(work.plan) <= stored(least.plan)
    if target.machine.managed and not work.program.syms:
        assert work.plan.slab_bytes <= target.machine.near.capacity


def stored(plan):
    return sum(p.storage == "arena" for p in plan.places)


def renamed(target, names):
    """The target with other names of its memories but the last."""
    own = dict(zip((x.name for x in target.machine.memories), names))
    return replace(target, machine=replace(
        target.machine, scratch=own[target.machine.scratch],
        memories=tuple(replace(x, name=own.get(x.name, x.name)) for x in target.machine.memories)))


@pytest.mark.parametrize("name", ["x86-64-v3", "riscv64", "cuda:sm_90"])
def test_names_decide_nothing(name):
    """The same machine under other names, some of them those of other memories."""
    target = get_target(name)
    names = ("L1", "L2", "DRAM", "shared")[:len(target.machine.memories) - 1]
    other = renamed(target, names)
    program = run_pipeline(Options(model_of("convnet"), target=name, stop_after="program")).program
    one, two = decide(program, target), decide(program, other)
    back = dict(zip(names, (x.name for x in target.machine.memories)))
    assert one.groups == tuple(replace(
        g, why=x.why, connect={b: back.get(lv, lv) for b, lv in g.connect.items()})
        for g, x in zip(two.groups, one.groups))
    assert [g.connect for g in one.groups] == [
        {b: back.get(lv, lv) for b, lv in g.connect.items()} for g in two.groups]
    assert any(set(g.connect.values()) - {"register"} for g in one.groups)


def rows():
    """Softmax without its maximum, and a product: a group of several stages."""
    m = Maker()
    m.input("x", 40, 24)
    m.const("w", np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32))
    i, k = ax("i", 40), ax("k", 24)
    m.pointwise("r", "x", lambda e, _: relu(e))
    m.step("s", (i,), m.ref("r", i, k), (k,), "sum")
    m.pointwise("d", "r", lambda e, at: e - m.ref("s", at[0]))
    matmul(m, "y", "d", "w")
    return m.done("y")


@pytest.mark.parametrize("kind", MACHINES)
def test_what_is_decided_computes_the_right_numbers(kind):
    target, p = replace(V3, machine=MACHINES[kind]), rows()
    feeds = {"x": np.random.default_rng(1).standard_normal((40, 24)).astype(np.float32)}
    s = decide(p, target)
    assert check_schedule(p, s, target) == []
    np.testing.assert_allclose(interpret(p, s, feeds)["y"], evaluate(p, feeds)["y"], rtol=2e-5,
                               atol=2e-5)


@pytest.mark.parametrize("kind, legal", [
    ("one cache", "register, only"), ("two scratchpads", "register, local"),
    ("three caches", "register, first, second"),
    ("three caches, scratch in the first", "register, first"),
    ("one of the two is outer", "register, inner, outer")])
def test_a_level_that_the_machine_does_not_have_says_which_it_has(kind, legal):
    target, p = replace(V3, machine=MACHINES[kind]), rows()
    names = tuple(s.outs[0] for s in p.steps)
    for level in ("L1", "far", "file", *legal.split(", ")[1:]):
        s = complete(p, Schedule(target.name, (Group(
            "g", names, ("y",), "y", dict.fromkeys(names[:-1], level), {"i": 8}),)), target)
        faults = check_schedule(p, s, target)
        assert (not faults) is (level in legal.split(", ")), faults
        assert all(f"connect level {level!r}" in f and f.endswith(f"choose from {legal}")
                   for f in faults)


def test_scratch_that_is_no_cache_must_fit():
    target = replace(V3, machine=machine(
        memory("pad", 4, 1e11, kind="managed", usable=1.0), scratch="pad"))
    p = rows()
    names = tuple(s.outs[0] for s in p.steps)
    group = Group("g", names, ("y",), "y", dict.fromkeys(names[:-1], "pad"))
    with pytest.raises(ScheduleError, match=r"bytes of pad memory .* has 4096; choose smaller"):
        lower(p, complete(p, Schedule(target.name, (group,)), target), target)


@pytest.mark.parametrize("kib", [8, 32])
def test_forms_that_scratch_has_no_room_for_are_not_chosen(kib):
    """A row of tiles of a Winograd form, and rows that are stored by transposed blocks."""
    target = replace(V3, machine=machine(
        memory("pad", kib, 1e11, kind="managed", usable=1.0), scratch="pad"))
    p = run_pipeline(Options(two_convolutions(), target=V3.name, stop_after="program")).program
    s = decide(p, target, winograd="auto")
    assert check_schedule(p, s, target) == [] and lower(p, s, target).slab_bytes <= kib << 10
    assert any(r == "winograd" for r, *_ in decide(p, V3, winograd="auto").rewrites)


def test_facts_of_a_machine_follow_from_its_memories():
    v3, gpu = V3.machine, get_target("cuda:sm_90").machine
    outer = MACHINES["one of the two is outer"]
    assert [m.outside(m.near).name for m in (v3, gpu, outer)] == ["L3", "L2", "far"]
    assert [[x.name for x in m.homes] for m in (v3, gpu, outer)] == [
        ["L1", "L2"], ["shared"], ["inner", "outer"]]
    assert [m.depth for m in (v3, gpu, outer)] == [2, 2, 1]
    assert [m.managed for m in (v3, gpu, outer)] == [False, True, True]
    assert v3.outside(v3.memory) is v3.memory and work_item(v3, 2) == 1
    assert [x.shared for x in v3.memories] == [True, True, False, False, False]
    shared = MACHINES["one cache for all"]
    assert shared.room(shared.near) == 4096 * 1024 * 0.75 / 2
    with pytest.raises(KeyError):
        v3.position("L4")
