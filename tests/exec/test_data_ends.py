"""Folds over rows from one number of data to another: loops with these ends, whatever the numbers
are, on every way that a fold is written."""

from dataclasses import replace

import numpy as np
import pytest
from changed_kernels import relowered
from harness import RUNNABLE, Case, build_cases, differences
from te_programs import Maker, ax

from aotc.ir.conditions import bounds_from_data
from aotc.ir.expr import Const, Load, Sym, Where, all_hold, check_index, compare
from aotc.ir.kernel.plan_stages import Nest
from aotc.ir.program import neutral_value
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.passes.inline import inline_moves
from aotc.sched import decide, lower
from aotc.target import get_target

ENDS = np.iinfo(np.int64)
FOLDS = ("sum", "max", "min", "prod")


def bags(rows, columns, fold="sum", count=9, dtype="f32"):
    """y[i, j] = fold of x[r, j] for r from first[i] to before end[i]."""
    m = Maker()
    m.input("x", rows, columns, dtype=dtype)
    first, end = (m.input(n, count, dtype="i64") for n in ("first", "end"))
    i, j, r = ax("i", count), ax("j", columns), ax("r", rows)
    inside = all_hold((compare("ge", r, m.ref(first, i)), compare("lt", r, m.ref(end, i))))
    m.step("y", (i, j), Where(inside, m.ref("x", r, j), neutral_value(fold, dtype)), (r,), fold)
    return m.done("y")


def rows(length, fold="sum", count=7):
    """y[i] = fold of x[i, k] for the k of one of all kinds of comparison, times 2."""
    m = Maker()
    m.input("x", count, length)
    m.input("n", count, dtype="i64")
    i, k = ax("i", count), ax("k", length)
    n, x = m.ref("n", i), m.ref("x", i, k)
    for name, cond in (("lt", compare("lt", k, n)), ("le", compare("ge", n, k)),
                       ("gt", compare("gt", k + 3, n)), ("eq", compare("eq", k, n)),
                       ("shifted", compare("le", i - 2 + k, n))):
        m.step(name, (i,), Where(cond, x, neutral_value(fold, "f32")), (k,), fold)
    # every point of a vector has ends of its own: these stay conditions where lanes lie along i
    m.step("one", (), Where(compare("lt", k, m.ref("n", 2)), m.ref("x", 2, k), Const(0, "f32")),
           (k,), "sum")
    return m.done("lt", "le", "gt", "eq", "shifted", "one")


CASES = [*(Case(f"{fold} {columns}", bags(200, columns, fold))
           for fold, columns in zip(FOLDS, (70, 3, 1, 20))),
         Case("i64", bags(150, 5, dtype="i64")), Case("free", bags(Sym("s", 0, None, 300), 19)),
         Case("long", rows(900)), Case("short", rows(20, "max")), Case("free rows", rows(
             Sym("s", 0, None, 300), "min"))]


def masked(length=90, count=6, columns=20):
    """A mask as a tensor of its own, what it chooses, a sum of that, and a product with others."""
    m = Maker()
    m.input("x", count, length, columns)
    m.input("n", count, dtype="i64")
    m.const("w", np.random.default_rng(2).standard_normal((length, 9)).astype(np.float32))
    i, k, j, o = ax("i", count), ax("k", length), ax("j", columns), ax("o", 9)
    m.step("mask", (i, k), compare("lt", k, m.ref("n", i)))
    m.step("kept", (i, k, j), Where(m.ref("mask", i, k), m.ref("x", i, k, j), Const(0, "f32")))
    m.step("total", (i, j), m.ref("kept", i, k, j), (k,), "sum")
    m.step("column", (i, k), Where(m.ref("mask", i, k), m.ref("x", i, k, 0), Const(0, "f32")))
    m.step("product", (i, o), m.ref("column", i, k) * m.ref("w", k, o), (k,), "sum")
    m.step("shared", (i, k, j), Where(m.ref("mask", i, k), m.ref("x", i, k, j), Const(0, "f32")))
    m.step("again", (i, j), m.ref("shared", i, k, j), (k,), "sum")
    m.step("same", (i, k, j), m.ref("shared", i, k, j) * Const(2, "f32"))
    return m.done("total", "product", "again", "same")


def feeds_of(case, rng, value):
    """Runs of any length, and numbers that are no rows at all."""
    program = case.program
    out = {}
    for name in program.inputs:
        shape = [d.value if isinstance(d, Const) else value for d in program.shape(name)]
        if program.dtype(name) == "f32":
            out[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
            continue
        most = value if program.syms else 220
        out[name] = rng.integers(-5, most + 5, shape)
        if name != "x":
            odd = rng.random(shape) < 0.3
            out[name][odd] = rng.choice([ENDS.min, ENDS.max, -1, 0, most, ENDS.min + 3], odd.sum())
    return out


def narrowed(plan):
    return [s for k in plan.kernels for s in k.lowered.stages if isinstance(s, Nest) and s.ends]


@pytest.mark.parametrize("target", [
    pytest.param(t, id=t.name, marks=() if t is RUNNABLE[-1] else pytest.mark.product)
    for t in (RUNNABLE[0], RUNNABLE[-1], get_target("cuda:sm_80"))])
def test_folds_run_from_end_to_end(target, tmp_path):
    built = build_cases(CASES, target, tmp_path / "ends")
    rng = np.random.default_rng(3)
    for value in (0, 1, 40, 300):
        feeds = [feeds_of(c, rng, value) for c in CASES]
        syms = [{s.name: value for s in c.program.syms} for c in CASES]
        for c, f, s, got in zip(CASES, feeds, syms, built.run(feeds)):
            assert not differences(got, evaluate(c.program, f, s), 2e-6), (c.name, value)


@pytest.mark.parametrize("target", ["c", "x86-64-v3", "riscv64", "cuda:sm_80"])
def test_plans_have_the_ends_of_data(target):
    """The Plan says them, the proof knows them, and its interpreter goes from one to the other."""
    target, rng = get_target(target), np.random.default_rng(4)
    for case in CASES:
        plan = lower(case.program, decide(case.program, target), target)
        assert narrowed(plan) and not plan_faults(plan), case.name
        feeds, syms = feeds_of(case, rng, 33), {s.name: 33 for s in case.program.syms}
        assert not differences(run_plan(plan, feeds, syms), evaluate(case.program, feeds, syms),
                               2e-6), case.name


def test_a_mask_that_is_a_tensor_gives_its_fold_ends():
    """It is inlined where it is the ends of a loop; a product reads what it has chosen, and so
    does a fold beside others that read the same."""
    c, rng = get_target("c"), np.random.default_rng(5)
    before, case = masked(), Case("masked", inline_moves(masked()))
    bodies = {s.out: s.body for s in case.program.steps}
    assert isinstance(bodies["total"], Where)
    for s in before.steps:
        assert s.out not in ("product", "again") or bodies[s.out] == s.body
    plan = lower(case.program, decide(case.program, c), c)
    assert len(narrowed(plan)) == 1 and not plan_faults(plan)
    feeds = feeds_of(case, rng, 33)
    assert not differences(run_plan(plan, feeds), evaluate(before, feeds), 2e-6)


def test_an_end_that_is_not_held_inside_is_a_fault():
    c = get_target("c")
    program = bags(200, 3)
    plan = lower(program, decide(program, c), c)
    (kernel,) = plan.kernels
    (nest,) = kernel.lowered.stages
    for which, text in ((0, "below 0"), (1, "past its 200 steps")):
        name, end = nest.ends[which]
        loose = next(x for x in (end.a.a, end.a.b) if x.dtype == "i64" and hasattr(x, "buffer"))
        ends = tuple((v, loose if v == name else e) for v, e in nest.ends)
        bad = replace(plan, kernels=(relowered(kernel, stages=(replace(nest, ends=ends),)),))
        assert any(text in f for f in plan_faults(bad)), which


def test_data_with_a_rule_is_asked_at_every_row():
    """A rule holds where the axis has steps: it would be asked where it has none."""
    r, i = ax("r", 9), ax("i", 4)
    n = Load("n", (i,), "i64")
    assert bounds_from_data(compare("lt", r, n), r) is not None
    for cond in (compare("lt", r, check_index(n, 5)), compare("lt", r * 2, n),
                 compare("lt", r, n + r), compare("lt", r + n, 4), compare("ne", r, n),
                 compare("lt", r, i)):
        assert bounds_from_data(cond, r) is None, cond
