"""A Plan's statements executed one by one: what the Program says, and faults told by name."""

from dataclasses import replace

import numpy as np
import pytest
from harness import every
from row_cases import CASES
from te_programs import Maker, ax, matmul, random_feeds, softmax
from te_random import random_program, random_schedule

from aotc.errors import FaultError, InterpreterError
from aotc.ir.expr import Const, check_index
from aotc.ir.statements import For, Put, Section, Store, bodies, walk_body
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import decide, lower
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import TARGETS, get_target


def assert_alike(got, want):
    for name, w in want.items():
        if w.dtype.kind == "f":
            exact = 3e-3 if w.dtype == np.float16 else 2e-4
            np.testing.assert_allclose(got[name].astype(np.float64), w.astype(np.float64),
                                       rtol=exact, atol=1e-4, err_msg=name)
        else:  # a value of 8 bits may round the other way
            apart = np.abs(got[name].astype(np.int64) - w.astype(np.int64))
            assert apart.max(initial=0) <= (w.dtype in ("int8", "uint8")), name


def sizes(program, value=7):
    return {s.name: max(s.lo, min(s.hi or value, value)) for s in program.syms}


@pytest.mark.parametrize("target", ["c", "x86-64-v3", "riscv64", "cuda", "dsa:stcp920"])
@pytest.mark.parametrize("seed", every(range(300, 308), 2))
def test_random_programs_under_random_schedules(seed, target):
    target = get_target(target)
    program = random_program(seed, target.library)
    schedule = random_schedule(program, target, seed)
    program = apply_rewrites(program, schedule.rewrites)
    syms, rng = sizes(program), np.random.default_rng(seed)
    feeds = random_feeds(program, rng, syms)
    assert_alike(run_plan(lower(program, schedule, target), feeds, syms),
                 evaluate(program, feeds, syms))


@pytest.mark.parametrize("target", ["c", "x86-64-v3", "x86-64-v4", "riscv64"])
def test_cases_of_every_category_of_rows(target):
    """Some of the cases that rows are tested with, another part of them for every category."""
    target = TARGETS[target]
    first = {u.category: u for u in reversed(target.ukernels)}
    for number, row in enumerate(first.values()):
        cases = list(CASES[row.category](row, target))
        chosen = cases[number % len(cases)::23]
        assert chosen, row.category
        for case in (pair.fast for pair in chosen):
            program = apply_rewrites(case.program, case.schedule.rewrites)
            schedule = choose_writing(program, case.schedule, target)
            syms = sizes(program)
            feeds = random_feeds(program, np.random.default_rng(number), syms)
            assert_alike(run_plan(lower(program, schedule, target), feeds, syms),
                         evaluate(program, feeds, syms))


# ---------------------------------------------------------------- planted faults

def layers():
    """A product, its softmax and another product."""
    m = Maker("layers")
    m.input("x", 9, 12)
    m.const("w", np.linspace(-1, 1, 12 * 20, dtype=np.float32).reshape(12, 20))
    m.const("v", np.linspace(-1, 1, 20 * 9, dtype=np.float32).reshape(20, 9))
    matmul(m, "h", "x", "w")
    softmax(m, "p", "h")
    matmul(m, "y", "p", "v")
    return m.done("y")


@pytest.fixture(params=["c", "x86-64-v3"])
def planned(request):
    program, target = layers(), get_target(request.param)
    schedule = decide(program, target, "none")
    plan = lower(apply_rewrites(program, schedule.rewrites), schedule, target)
    feeds = {"x": np.random.default_rng(2).standard_normal((9, 12)).astype(np.float32)}
    assert_alike(run_plan(plan, feeds), evaluate(program, feeds))
    return plan, feeds


def refused(plan, feeds, *words):
    with pytest.raises(InterpreterError) as err:
        run_plan(plan, feeds)
    for word in words:
        assert word in str(err.value), err.value


def with_place(plan, name, **fields):
    return replace(plan, places=tuple(replace(p, **fields) if p.name == name else p
                                      for p in plan.places))


def stored_in_arena(plan):
    return [p.name for p in plan.places if p.storage == "arena"]


def test_a_buffer_that_is_too_small(planned):
    plan, feeds = planned
    name = stored_in_arena(plan)[0]
    elements = plan.place(name).elements - 1
    refused(with_place(plan, name, elements=elements), feeds, name, "elements", "kernel k00")


def test_a_buffer_that_another_one_lies_over(planned):
    plan, feeds = planned
    first, second = stored_in_arena(plan)[:2]
    place = plan.place(first)
    moved = with_place(plan, second, slot=place.slot, offset=place.offset)
    refused(moved, feeds, f"reads {first}[", f"where {second} is by now")


def test_a_kernel_that_is_left_out(planned):
    plan, feeds = planned
    name = stored_in_arena(plan)[0]
    rest = tuple(k for k in plan.kernels if name not in k.writes)
    refused(replace(plan, kernels=rest), feeds, f"reads {name}[", "before it is stored")


def test_a_loop_that_stops_too_soon(planned):
    """Every loop of every kernel that runs, one step short: the result is another, or a fault is
    told."""
    plan, feeds = planned
    whole = run_plan(plan, feeds)["y"]
    nowhere = Store((Put("nowhere", Const(0), Const(0)),))
    count = 0
    for i, kernel in enumerate(plan.kernels):
        for number, s in enumerate(walk_body(kernel.body)):
            if not isinstance(s, For) or s.note:  # prefetches change nothing
                continue

            def run(change, i=i, kernel=kernel, number=number):
                changed = replace(kernel, body=mutated(kernel.body, number, change))
                kernels = (*plan.kernels[:i], changed, *plan.kernels[i + 1:])
                return run_plan(replace(plan, kernels=kernels), feeds)["y"]

            try:
                run(lambda s: replace(s, body=(*s.body, nowhere)))
                continue  # no point of it is ever reached
            except InterpreterError as err:
                assert "nowhere" in str(err)
            count += 1
            try:
                other = run(lambda s: replace(s, hi=s.hi - s.step))
            except InterpreterError as err:
                assert kernel.name in str(err) or plan.kernels[i + 1].name in str(err)
            else:
                assert not np.array_equal(other, whole), s
    assert count >= 6


def mutated(body, number, change):
    """The body with its statement of that number, as ``walk_body`` counts, changed."""
    out, at = [], 0
    for s in body:
        inside = sum(1 for _ in walk_body((s,)))
        if at == number:
            s = change(s)
        elif at < number < at + inside:
            inner = at + 1
            for name, part in bodies(s):
                size = sum(1 for _ in walk_body(part))
                if inner <= number < inner + size:
                    s = replace(s, **{name: mutated(part, number - inner, change)})
                inner += size
        out.append(s)
        at += inside
    return tuple(out)


def test_a_store_past_the_end(planned):
    plan, feeds = planned
    *kernels, last = plan.kernels
    stores = [s for s in walk_body(last.body) if isinstance(s, Store)]
    assert stores and all(isinstance(s, Section) for s in last.body[-1:])
    moved = with_place(plan, "y", elements=Const(9 * 9 - 1))
    refused(moved, feeds, "stores y[80]", "which has 80 elements", last.name)


def test_values_that_break_a_rule_are_faults():
    m = Maker("looked_up")
    m.input("ids", 5, dtype="i64")
    m.const("table", np.arange(12, dtype=np.float32).reshape(4, 3))
    i, j = ax("i", 5), ax("j", 3)
    m.step("y", (i, j), m.ref("table", check_index(m.ref("ids", i), 4, "ids"), j))
    program, target = m.done("y"), get_target("x86-64-v3")
    plan = lower(program, decide(program, target), target)
    ids = np.array([3, 0, 1, 2, 3])
    np.testing.assert_array_equal(run_plan(plan, {"ids": ids})["y"],
                                  np.arange(12, dtype=np.float32).reshape(4, 3)[ids])
    with pytest.raises(FaultError, match="out of range: 4"):
        run_plan(plan, {"ids": ids + 1})
