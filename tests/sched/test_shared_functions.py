"""Which kernels and stages have one function: Plans say it, and every emitter writes them so."""

import re
from dataclasses import replace

import numpy as np
import pytest
from harness import compile_program, differences
from te_programs import Maker, ax, matmul, random_feeds, relu

from aotc.emit.bundle.variants import EMITTERS
from aotc.ir.expr import Const, Where, check_index, compare
from aotc.ir.statements import Section, walk_body
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import decide, lower
from aotc.sched.shared_functions import kernel_key, share_functions
from aotc.target import get_target, native_target

EVERY = ("c", "x86-64-v3", "aarch64", "riscv64", "cuda:sm_90", "dsa:stcp920")
WIDTH = 32


def tower(layers=4, scales=(), rows=64):
    """h = relu(h w) so many times, of one width; scales: of layers, beside others"""
    rng = np.random.default_rng(3)
    m = Maker("tower")
    last = m.input("x", rows, WIDTH)
    for n in range(layers):
        m.const(f"w{n}", rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH ** 0.5)
        matmul(m, f"p{n}", last, f"w{n}")
        scale = dict(scales).get(n, 2.0)
        last = m.pointwise(f"h{n}", f"p{n}", lambda e, _, s=scale: relu(e * Const(s, "f32")))
    return m.done(last)


def planned(program, target, how="none"):
    """(Plan, Schedule) with the groups that ``how`` connects: none, unless stages are asked for.
    What lies in clusters' memories is addressed by where it lies: such kernels share little."""
    schedule = decide(program, target, how, inner=True)
    return lower(program, schedule, target), schedule


def functions(plan):
    """The functions of a Plan's kernels, in order."""
    return [k.function or k.name for k in plan.kernels]


def stage_functions(plan):
    """The functions of a Plan's stages."""
    return [s.function for k in plan.kernels for s in walk_body(k.body)
            if isinstance(s, Section) and s.function]


def text_of(plan, target):
    files = EMITTERS[target.emitter](plan, target)
    return "\n".join(files[n] for n in sorted(files) if n.endswith((".c", ".cu")))


# ---------------------------------------------------------------- kernels

@pytest.mark.parametrize("name", EVERY)
def test_layers_of_one_width_have_one_function(name):
    """The first layer reads what the caller brings, which GPUs do not take for aligned."""
    target = get_target(name)
    plan, _ = planned(tower(5), target)
    assert plan_faults(plan) == []
    inner = [k.function for k in plan.kernels if {"w1", "w2", "w3"} & {*k.reads}]
    assert len(inner) == 3 and len(set(inner)) == 1 and inner[0], str(plan)
    assert f", the function of {inner[0]}\n" in str(plan)
    text = text_of(plan, target)
    end = "_device(const" if target.emitter == "simt" else "_body(tower_frame"
    assert text.count(f"tower_{inner[0]}{end}") == 1
    for k in plan.kernels:  # the bundle calls each by its own name
        assert len(re.findall(rf" tower_{k.name}\(", text)) == 1


@pytest.mark.parametrize("name, how", [
    ("native", "none"), ("cuda:sm_90", "all"), ("dsa:stcp920", "none"),
    *(pytest.param(*p, marks=pytest.mark.product) for p in (
        ("native", "all"), ("cuda:sm_90", "none"), ("dsa:stcp920", "all")))])
def test_what_shares_functions_is_right(name, how, tmp_path):
    target = native_target() if name == "native" else get_target(name)
    program = tower(5, [(2, 3.0)])
    plan, schedule = planned(program, target, how)
    feeds = random_feeds(program, np.random.default_rng(1))
    want = evaluate(program, feeds)
    assert not differences(run_plan(plan, feeds), want, 1e-5)
    if how == "none":
        assert len(set(functions(plan))) < len(plan.kernels)
    model = compile_program(program, schedule, target, tmp_path / "b")
    assert not differences(model.run(feeds), want, 1e-5)


def looked_up(why):
    """Rows of a table by two indices, whose faults are told as ``why`` says"""
    m = Maker("rows")
    m.const("w", np.ones((9, 8), np.float32))
    for n in (0, 1):
        m.input(f"at{n}", 4, dtype="i64")
        i, j = ax("i", 4), ax("j", 8)
        m.step(f"y{n}", (i, j), m.ref("w", check_index(m.ref(f"at{n}", i), 9, why[n]), j))
    return m.done("y0", "y1")


def mapped(*maps, dtypes=("f32", "f32"), extents=(40, 40)):
    """Maps of tensors of their own"""
    m = Maker("maps")
    for n, fn in enumerate(maps):
        m.input(f"x{n}", extents[n], dtype=dtypes[n])
        m.pointwise(f"y{n}", f"x{n}", fn)
    return m.done(*(f"y{n}" for n in range(len(maps))))


def scaled(number, dtype="f32"):
    return lambda e, _: e * Const(number, dtype)


PAIRS = {
    "equal": (mapped(scaled(2.0), scaled(2.0)), True),
    "constants": (mapped(scaled(2.0), scaled(3.0)), False),
    "dtypes": (mapped(scaled(2.0), scaled(2.0, "f64"), dtypes=("f32", "f64")), False),
    "extents": (mapped(scaled(2.0), scaled(2.0), extents=(40, 48)), False),
    "operations": (mapped(scaled(2.0), lambda e, _: e + Const(2.0, "f32")), False),
    "positions": (mapped(*(lambda e, axes, at=at: Where(compare("lt", axes[0], at), e, e * e)
                           for at in (3, 4))), False),
    "equal rules": (looked_up(("of a node", "of a node")), True),
    "rules": (looked_up(("of a node", "of another")), False),
    "rules that name nodes": (looked_up(("", "")), False),
}


@pytest.mark.parametrize("name", ["c", "x86-64-v3", "cuda:sm_90", "dsa:stcp920"])
@pytest.mark.parametrize("pair", PAIRS)
def test_kernels_that_differ_in_more_than_tensors_share_nothing(pair, name):
    program, same = PAIRS[pair]
    plan, _ = planned(program, get_target(name))
    assert len(plan.kernels) == 2
    assert (len(set(functions(plan))) == 1) == same, str(plan)


@pytest.mark.parametrize("name, tells", [("c", False), ("cuda:sm_90", True)])
def test_a_result_over_its_input_is_told_from_one_beside_it(name, tells):
    """GPUs are told of what is read that nothing writes there (``__restrict__``)."""
    target = get_target(name)
    m = Maker("chain")
    last = m.input("x", 64)
    for n in range(4):
        last = m.pointwise(f"y{n}", last, scaled(2.0))
    plan, _ = planned(m.done(last), target)
    k = plan.kernels[2]
    source, to = map(plan.place, (*k.reads, *k.writes))
    assert source.storage == to.storage == "arena"
    apart, over = (replace(plan, places=tuple(
        replace(to, slot=source.slot, offset=source.offset + by) if p is to else p
        for p in plan.places)) for by in (1 << 12, 0))
    assert apart.only_reads(k, source.name) and not over.only_reads(k, source.name)
    assert (kernel_key(apart, k) != kernel_key(over, k)) == tells
    if tells:
        text, = share_functions((over,))
        assert "__restrict__ t_" + source.name not in text_of(text, target)


def test_a_tensor_that_is_read_and_written_is_not_two(name="c"):
    """y = x y and y = x z differ in what they touch, as x x and x z do."""
    target = get_target(name)
    m = Maker("products")
    m.input("x", 40)
    m.input("z", 40)
    i = ax("i", 40)
    m.step("a", (i,), m.ref("x", i) * m.ref("z", i))
    m.step("b", (i,), m.ref("x", i) * m.ref("x", i))
    plan, _ = planned(m.done("a", "b"), target)
    assert len(set(functions(plan))) == len(plan.kernels) == 2


# ---------------------------------------------------------------- stages

@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64"])
def test_equal_stages_are_one_function(name):
    """Of five products of a kernel the inner three read and write scratch of one kind."""
    target = get_target(name)
    plan, _ = planned(tower(5), target, "all")
    found = stage_functions(plan)
    assert len(found) == 5 and len({f.name for f in found}) == 3
    shared = f"{plan.kernels[0].name}_stage1"
    assert [f.name for f in found[1:4]] == [shared] * 3
    assert f", apart as {found[1]}" in str(plan)
    text = text_of(plan, target)
    assert text.count(f"AOTC_APART void tower_{shared}(") == 1
    calls = re.findall(rf"^ +tower_{shared}\(([^;]*)\);", text, re.M)
    assert [[a.strip() for a in c.split(",")][:2] for c in calls] == [
        [f"t_w{n}", f"s_h{n - 1}"] for n in (1, 2, 3)]


def test_stages_of_several_kernels_are_one_function():
    """Two towers that are no part of each other, in one bundle."""
    target = get_target("x86-64-v3")
    one, other = (planned(tower(5, scales), target, "all")[0] for scales in ((), [(4, 3.0)]))
    second = other.kernels[0].named("k001")
    plan, = share_functions((replace(one, kernels=(one.kernels[0], second)),))
    assert functions(plan) == [k.name for k in plan.kernels]  # the last layers differ
    names = [f.name for f in stage_functions(plan)]
    assert names[5:] == [*names[:4], "k001_stage4"]
    text = text_of(plan, target)
    assert text.count("AOTC_APART void ") == 4  # the fourth is the other's


def test_stages_that_differ_are_two():
    target = get_target("x86-64-v3")
    plan, _ = planned(tower(5, [(2, 3.0)]), target, "all")
    names = [f.name for f in stage_functions(plan)]
    assert names[1] == names[3] != names[2]
