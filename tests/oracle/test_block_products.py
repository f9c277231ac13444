"""Products of blocks of threads as statements: what the Program says, with no barrier, wait or
group that can be left out."""

import re
from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import TOLERANCE
from harness import differences, every, scheduled
from row_cases import CASES
from te_programs import Maker, matmul, random_feeds

from aotc.errors import InterpreterError, UnsupportedError
from aotc.ir.block_statements import Arrived, BlockArray, Commit, Product
from aotc.ir.expr import Sym
from aotc.ir.statements import Barrier, bodies, walk_body, with_bodies
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import decide, lower
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import get_target

TARGET = get_target("cuda:sm_80")
ROWS = [r for r in TARGET.ukernels if r.category in ("contraction", "dot")]


def planned(case, seed=1):
    """(Plan, feeds, values of symbols, expected outputs) of a case."""
    schedule = scheduled(case, TARGET)
    program = apply_rewrites(case.program, schedule.rewrites)
    rng = np.random.default_rng(seed)
    syms = {s.name: int(rng.integers(s.lo, min(s.hi, 40) + 1)) for s in program.syms}
    feeds = random_feeds(program, rng, syms)
    plan = lower(program, choose_writing(program, schedule, TARGET), TARGET)
    return plan, feeds, syms, evaluate(program, feeds, syms)


@pytest.mark.parametrize("row", every([r.name for r in ROWS], 3))
def test_the_statements_of_a_row_are_its_product(row):
    row = TARGET.product_row(row)
    cases = [p.fast for p in CASES[row.category](row, TARGET)]
    for case in cases[::7]:
        plan, feeds, syms, want = planned(case)
        assert any(isinstance(s, Product) for k in plan.kernels for s in walk_body(k.body))
        wrong = differences(run_plan(plan, feeds, syms), want, TOLERANCE[row.a])
        assert not wrong, (case.name, wrong)


def without(body, kinds):
    """Every body in which one statement of those kinds is left out."""
    for i, s in enumerate(body):
        if isinstance(s, kinds):
            yield (*body[:i], *body[i + 1:])
        for name, inner in bodies(s):
            for less in without(inner, kinds):
                yield (*body[:i], with_bodies(s, {name: less}), *body[i + 1:])


def with_body(plan, body):
    return replace(plan, kernels=(replace(plan.kernels[0], body=body),))


# (row, name of its case): one tile with a table of rows, several without, whose steps wait behind
# each; where several have a table, its own barrier is enough
PRODUCTS = [("contraction_f32_32x32__simt", "rows x panel 32,32,8 {}"),
            ("contraction_f32_32x32x16__simt", "packed x packed 65,67,17 {}"),
            ("contraction_f16_64x64__mma", "packed x packed 129,131,17 {}"),
            ("contraction_f32_1x32__simt", "packed x packed 3,67,17 {}"),
            ("contraction_f32_1x32__simt", "rows x panel 2,33,3 {}"),
            ("dot_u8s8_4x32__simt", "rows 5,33,8"),
            ("dot_grouped_4x32__simt", "rows 9,67,96 8 bits")]


def case_of(row, name):
    row = TARGET.product_row(row)
    return next(p.fast for p in CASES[row.category](row, TARGET) if p.fast.name.startswith(name))


@pytest.mark.parametrize("row, name", PRODUCTS)
def test_no_barrier_wait_or_group_can_be_left_out(row, name):
    plan, feeds, syms, want = planned(case_of(row, name))
    assert not differences(run_plan(plan, feeds, syms), want, 3e-3)
    mutants = list(without(plan.kernels[0].body, (Barrier, Arrived, Commit)))
    assert len(mutants) >= 2
    for body in mutants:
        with pytest.raises(InterpreterError, match="without a barrier|before it is|before the wait"
                                                   "|has arrived"):
            run_plan(with_body(plan, body), feeds, syms)


def test_an_array_behind_the_memory_of_its_block_is_told():
    plan, feeds, syms, _ = planned(case_of(*PRODUCTS[0]))

    def moved(body):
        return tuple(replace(s, offset=s.offset + 64) if isinstance(s, BlockArray) else with_bodies(
            s, {n: moved(b) for n, b in bodies(s)}) for s in body)
    with pytest.raises(InterpreterError, match="ends at byte"):
        run_plan(with_body(plan, moved(plan.kernels[0].body)), feeds, syms)


@pytest.mark.parametrize("rows, depth, text", [
    (Sym("m", 1, 1 << 27), 64, "2^31 elements"), (2, Sym("k", 1, 1 << 33), "at most 2^31 fit")])
def test_what_32_bits_do_not_count_is_refused(rows, depth, text):
    m = Maker()
    m.input("x", rows, depth)
    m.input("w", depth, 64)
    matmul(m, "y", "x", "w")
    program = m.done("y")
    with pytest.raises(UnsupportedError, match=re.escape(text)):
        lower(program, decide(program, TARGET), TARGET)
