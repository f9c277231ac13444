"""Folds over the outer axis of a matrix: several vectors of columns side by side."""

import re

import numpy as np
import pytest
from harness import DISTINCT, Case, at_length, build_cases
from te_programs import Maker, ax

from aotc.emit.bundle.variants import EMITTERS
from aotc.ir.expr import Const, Unary
from aotc.sched import decide, lower
from aotc.target import get_target

# columns: whole vectors that divide evenly, that do not, ragged ends, fewer than two vectors
COLUMNS = (8, 16, 32, 40, 56, 64, 72, 88, 96, 100, 129, 136, 200)


def columns(fold, n, rows=(7, 11), scale=1 / 77):
    """y[c] = fold over r, s of x[r, s, c], times a constant."""
    m = Maker(f"{fold}_{n}")
    m.input("x", *rows, n)
    c, r, s = ax("c", n), ax("r", rows[0]), ax("s", rows[1])
    m.step("folded", (c,), m.ref("x", r, s, c), (r, s), fold)
    m.step("y", (c,), m.ref("folded", c) * Const(scale, "f32"))
    return m.done("y")


@pytest.mark.parametrize("target", [pytest.param(t, marks=at_length(t)) for t in DISTINCT],
                         ids=lambda t: t.name)
def test_folds_of_columns(target, tmp_path):
    cases = [Case(f"{fold}_{n}", columns(fold, n), tol=4e-6,
                  special=(np.nan, np.inf, -np.inf) if fold != "sum" else ())
             for fold in ("sum", "max", "min") for n in COLUMNS]
    cases += [Case(f"short_{n}", columns("sum", n, (3, 5))) for n in (32, 40)]
    build_cases(cases, target, tmp_path).check(np.random.default_rng(5))


def text_of(program, target):
    target = get_target(target)
    plan = lower(program, decide(program, target), target)
    return "\n".join(EMITTERS[target.emitter](plan, target).values())


@pytest.mark.parametrize("n, wide", [(8, 1), (16, 2), (32, 4), (40, 5), (64, 8), (72, 8), (96, 6),
                                     (88, 5), (100, 6), (136, 8)])
def test_as_few_passes_as_there_can_be(n, wide):
    text = text_of(columns("sum", n), "x86-64-v3")
    loop = re.search(r"for \(int64_t r\w* = .*?\n((?:.*\n)*?) *}\n", text)[1]
    while "for (" in loop:
        loop = loop.split("\n", 1)[1]
    assert len(re.findall(r"aotc_load\(&?t_x\b", loop)) == wide


def deviations(n, rows=6000):
    """y[c] = mean over r of (x[r, c] - mean over r of x[r, c]) ** 2."""
    m = Maker(f"deviations_{n}")
    m.input("x", rows, n)
    c, r = ax("c", n), ax("r", rows)
    m.step("total", (c,), m.ref("x", r, c), (r,), "sum")
    m.step("mean", (c,), m.ref("total", c) * Const(1 / rows, "f32"))
    apart = m.ref("x", r, c) - m.ref("mean", c)
    m.step("squares", (c,), apart * apart, (r,), "sum")
    m.step("y", (c,), m.ref("squares", c) * Const(1 / rows, "f32"))
    return m.done("y")


@pytest.mark.parametrize("target", [pytest.param(t, marks=at_length(t)) for t in DISTINCT],
                         ids=lambda t: t.name)
def test_means_and_variances_of_columns(target, tmp_path):
    cases = [Case(f"deviations_{n}", deviations(n), tol=1e-5) for n in (40, 256, 300)]
    build_cases(cases, target, tmp_path).check(np.random.default_rng(6))


def test_long_folds_read_whole_rows_of_a_tile():
    """A line of every step fills a third of L2: kept for the variance, tiles would be that wide."""
    program, target = deviations(256), get_target("x86-64-v4")
    assert all(next(iter(g.tile.values())) >= 64 for g in decide(program, target).groups)
    text = text_of(program, "x86-64-v4")
    for square in (False, True):  # eight vectors side by side, none behind them
        loop = next(x for x in re.findall(r"for \(int64_t r\w* = .*?\n((?:.*\n)*?) *}\n", text)
                    if ("aotc_fma" in x) == square)
        assert len(re.findall(r"aotc_load\(&?t_x\b", loop)) == 8
    assert "aotc_load_n" not in text and "_hi = " not in text


def test_short_folds_and_functions_take_one_vector_at_a_time():
    assert "acc2" not in text_of(columns("sum", 64, (3, 5)), "x86-64-v3")
    m = Maker("roots")
    m.input("x", 77, 64)
    c, r = ax("c", 64), ax("r", 77)
    m.step("y", (c,), Unary("sqrt", m.ref("x", r, c)), (r,), "sum")
    assert "acc2" not in text_of(m.done("y"), "x86-64-v3")
