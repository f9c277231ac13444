"""Rewrite rule ``split_k``: sums of products in parts, who gets them, and what is refused."""

import numpy as np
import pytest
from harness import Case, build_cases, differences
from te_programs import Maker, ax, conv2d, random_feeds, relu

from aotc.errors import ScheduleError, ToolchainError
from aotc.ir.expr import Const, Sym, Unary
from aotc.oracle.evaluate import evaluate
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.sums.split_k import RULE, candidates
from aotc.runtime.simulate import find_cxx
from aotc.sched import check_schedule, decide
from aotc.sched.cost.block_figures import tile_reach
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.target import get_target

RNG = np.random.default_rng(4)
GPU, CPU = get_target("cuda:sm_90"), get_target("c")


def product(m=40, n=30, k=96, const=True):
    """y = relu(x @ w): x f32[m, k], w f32[k, n]."""
    p, i, j, r = Maker(), ax("i", m), ax("j", n), ax("k", k)
    p.input("x", m, k)
    weights = RNG.standard_normal((k, n)).astype(np.float32)
    if const:
        p.const("w", weights)
    else:
        p.input("w", k, n)
    p.step("s", (i, j), p.ref("x", i, r) * p.ref("w", r, j), (r,), "sum")
    p.step("y", (i, j), relu(p.ref("s", i, j)))
    return p.done("y")


def check(program, parts, name="s"):
    """The rewritten program has the values of the program as it is."""
    found = apply_rewrites(program, ((RULE, name, {"parts": parts}),))
    feeds = random_feeds(program, np.random.default_rng(5), {})
    assert differences(evaluate(found, feeds, {}), evaluate(program, feeds, {}), 2e-6) == []
    return found


@pytest.mark.parametrize("const", [True, False])
@pytest.mark.parametrize("parts", [2, 3, 32, 96])
def test_sums_in_parts_are_the_same(parts, const):
    program = product(const=const)
    found = check(program, parts)
    assert found.buffers["s_parts"].shape == (Const(parts), Const(40), Const(30))
    if const:
        assert found.consts["w_parts"].shape == (parts, 96 // parts, 30) and "w" not in found.consts


def test_convolutions_are_cut_along_their_channels():
    p = Maker()
    p.input("x", 1, 24, 9, 9)
    p.const("w", RNG.standard_normal((20, 24, 3, 3)).astype(np.float32))
    conv2d(p, "s", "x", "w", pad=1)
    found = check(p.done("s"), 4)
    assert found.consts["w_parts"].shape == (20, 4, 6, 3, 3)


def folded(fold, shape=(24, 5, 9), keep=(1,)):
    """s = a fold of exp(x) over the dimensions that are not kept."""
    p = Maker()
    axes = [ax(f"i{d}", n) for d, n in enumerate(shape)]
    p.input("x", *shape)
    p.step("s", [axes[d] for d in keep], Unary("exp", p.ref("x", *axes)),
           [a for d, a in enumerate(axes) if d not in keep], fold)
    return p.done("s")


@pytest.mark.parametrize("fold", ["sum", "prod", "max", "min"])
def test_folds_in_parts_are_the_same(fold):
    check(folded(fold), 6)
    check(folded(fold, keep=()), 24)


def test_what_cannot_be_cut_is_refused_with_the_choices():
    program = product()
    for name, parameters, text in (
            ("s", {"parts": 5}, "one of 2, 3, 4, 6"), ("s", {"parts": True}, "one of 2"),
            ("s", {}, "parameters are"), ("y", {"parts": 2}, "choose from s")):
        with pytest.raises(ScheduleError, match=text):
            apply_rewrites(program, ((RULE, name, parameters),))
    assert candidates(program) == ("s",)


def parts_of(program, target=GPU):
    """{compute: parts} that a target decides for."""
    return {c: p["parts"] for rule, c, p in decide(program, target).rewrites if rule == RULE}


def test_small_products_with_long_sums_get_parts_where_blocks_of_threads_work():
    assert parts_of(product(49, 512, 4608))["s"] >= 4
    assert parts_of(product(2048, 2048, 1024)) == {}  # tiles enough
    assert parts_of(product(40, 30, 96)) == {}  # over in no time
    assert parts_of(product(1, 512, 4608)) == {}  # threads share the sum of a row
    assert parts_of(product(49, 512, 4608), CPU) == {}


def test_work_items_of_one_tile_take_whole_waves():
    """32 tiles of a long sum take as long as one; in two parts half of that, as long as all of them
    have a worker each.  Two on a worker reach more than one alone, ever more do not."""
    near = Neighbourhoods(product(49, 512, 4608), GPU, GPU.machine.workers)
    seconds = [near.asked("s", ((RULE, "s", {"parts": n}),) if n > 1 else ()).seconds
               for n in (1, 2, 4, 8, 16)]
    row = GPU.product_row("contraction_f32_32x32__simt")
    alone = 2 * 32 * 32 * 4608 / (GPU.machine.flops * tile_reach(GPU.machine, row, 1))
    assert seconds[0] == pytest.approx(alone + GPU.machine.launch)
    assert seconds[1] < 0.65 * seconds[0] and seconds[2] < 0.65 * seconds[1]
    assert 0.8 * seconds[2] < seconds[3] < seconds[2] and seconds[4] > seconds[3]


def test_folds_of_much_into_little_get_parts():
    assert parts_of(folded("sum", (8192, 4, 1024), ()))["s"] > 100  # one block for all of it
    assert parts_of(folded("max", (8192, 64), (1,)))["s"] >= 2  # columns: few blocks
    assert parts_of(folded("sum", (8192, 4096), (0,))) == {}  # rows: a block for each
    assert parts_of(folded("sum", (32, 512), ())) == {}  # over in no time
    assert parts_of(folded("sum", (8192, 4, 1024), ()), CPU) == {}


def test_rows_without_a_constant_number_stay_whole():
    p, n = Maker(), Sym("n", 1, 64)
    i, j, r = ax("i", n), ax("j", 64), ax("k", 4096)
    p.input("x", n, 4096)
    p.const("w", RNG.standard_normal((4096, 64)).astype(np.float32))
    p.step("s", (i, j), p.ref("x", i, r) * p.ref("w", r, j), (r,), "sum")
    assert parts_of(p.done("s")) == {}


def test_kernels_of_parts_are_right_in_the_simulator(tmp_path):
    try:
        find_cxx()
    except ToolchainError as err:
        pytest.skip(str(err))
    cases = []
    for program in (product(49, 40, 2304), product(33, 70, 1024, const=False)):
        schedule = decide(program, GPU)
        assert parts_of(program) and check_schedule(
            apply_rewrites(program, schedule.rewrites), schedule, GPU) == []
        cases.append(Case("parts", program, schedule))
    for fold in ("sum", "max", "min"):
        for keep in ((), (1,), (0, 2)):
            program = folded(fold, (30, 7, 70), keep)
            cases.append(Case(fold, program, decide(
                program, GPU, winograd=((RULE, "s", {"parts": 5 if 0 not in keep else 7}),))))
    build_cases(cases, GPU, tmp_path / "b").check(1)
