"""Maps whose columns are read by quotient and remainder: pixel shuffles, and copies of runs."""

import re

import numpy as np
import pytest
from c_text import unbroken
from harness import DISTINCT, Case, at_length, build_cases
from te_programs import Maker, ax

from aotc.emit.bundle.variants import EMITTERS
from aotc.sched import decide, lower
from aotc.target import get_target


def shuffle(by, side, channels=3, plus=0.0):
    """Pixel shuffle of side x side pixels, channels last, to planes."""
    m = Maker(f"shuffle_{by}_{side}_{channels}")
    m.input("x", side, side, channels * by * by)
    c, i, j = ax("c", channels), ax("i", side * by), ax("j", side * by)
    value = m.ref("x", i // by, j // by, c * (by * by) + i % by * by + j % by)
    m.step("y", (c, i, j), value)
    return m.done("y")


def repeated(by, n):
    """y[i, j] = x[i, j // by]: a quotient without a remainder."""
    m = Maker(f"repeated_{by}_{n}")
    m.input("x", 5, n)
    i, j = ax("i", 5), ax("j", n * by)
    m.step("y", (i, j), m.ref("x", i, j // by))
    return m.done("y")


def apart(n):
    """Two different divisors: nothing to split by."""
    m = Maker(f"apart_{n}")
    m.input("x", n, n, 6)
    j = ax("j", n * 6)
    m.step("y", (j,), m.ref("x", j // 6, j // 2 % n, j % 6))
    return m.done("y")


@pytest.mark.parametrize("target", [pytest.param(t, marks=at_length(t)) for t in DISTINCT],
                         ids=lambda t: t.name)
def test_quotients_and_remainders(target, tmp_path):
    programs = [shuffle(by, side, channels) for by in (2, 3, 4) for side in (1, 5, 8)
                for channels in (1, 3)]
    programs += [repeated(2, 9), repeated(4, 16), apart(7), apart(10)]
    cases = [Case(f"case_{n}", p, special=(np.nan, np.inf)) for n, p in enumerate(programs)]
    build_cases(cases, target, tmp_path).check(np.random.default_rng(8))


@pytest.mark.parametrize("by", [2, 4])
def test_runs_are_copied_without_a_division(by):
    target = get_target("x86-64-v4")
    program = shuffle(by, 32)
    plan = lower(program, decide(program, target), target)
    text = "\n".join(EMITTERS[target.emitter](plan, target).values())
    assert f"{by} * sizeof(float)" in text and "for (int64_t j " not in text
    line = next(x for x in unbroken(text).splitlines() if re.search(r"memcpy\(&?t_y", x))
    assert "j" not in line.replace("memcpy", "")
    assert set(re.findall(rf"(\w+) / {by}\b", line)) == {"i_axis"}  # of the row alone
