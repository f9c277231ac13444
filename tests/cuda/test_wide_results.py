"""Results of products on tensor cores: threads exchange sums, so that each stores 16 bytes of
neighbouring columns, and reads as many of a bias or a residual."""

import numpy as np
import pytest
from cusim_build import needs_cxx
from harness import Case, build_cases, differences
from te_programs import Maker, ax, random_feeds, relu

from aotc.emit.bundle.alignment import aligned_tensors
from aotc.ir.block_statements import Neighbours
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Cast
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.statements import walk_body
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import decide, lower
from aotc.target import get_target

TARGET = get_target("cuda:sm_80")
HALF_ROWS, NAN, INF = 70, float("nan"), float("inf")


def dense(columns, dtype="f16", result="f16", rows=HALF_ROWS, terms=64):
    """y = relu(x w + b) + r of tensors of ``dtype``, y and r of ``result``."""
    m, i, j, k = Maker(), ax("i", rows), ax("j", columns), ax("k", terms)
    m.input("x", rows, terms, dtype=dtype)
    m.input("r", rows, columns, dtype=result)
    numbers = np.random.default_rng(3).standard_normal((terms, columns)).astype(np.float16)
    m.const("w", numbers.astype(np.float32))
    m.const("b", numbers[0].astype(np.float32))

    def wide(x):
        return x if x.dtype == "f32" else Cast("f32", x)

    m.step("p", (i, j), wide(m.ref("x", i, k)) * m.ref("w", k, j), (k,), "sum")
    value = relu(m.ref("p", i, j) + m.ref("b", j)) + wide(m.ref("r", i, j))
    m.step("y", (i, j), value if result == "f32" else Cast(result, value))
    return m.done("y")


def product_of(program, schedule=None):
    """The Contract of a Program with one."""
    plan = lower(program, schedule or decide(program, TARGET), TARGET)
    (c,) = [s for k in plan.kernels for s in k.lowered.stages if isinstance(s, Contract)]
    return c


@pytest.mark.parametrize("columns, result, width", [
    (64, "f16", 4), (72, "f16", 4), (128, "f32", 4), (36, "f32", 4), (36, "f16", 4),
    (34, "f32", None), (35, "f16", None)])
def test_columns_side_by_side_are_stored_together(columns, result, width):
    """As many as 16 bytes hold of the widest that is read or stored so: the bias is f32."""
    c = product_of(dense(columns, result=result))
    assert c.row.endswith("__mma")
    if width is None:
        assert c.wide is None
        return
    assert c.wide.width == width and c.wide.writes == ("y",)
    assert {x.buffer for x in c.wide.reads} == {"r", "b"}


@pytest.mark.parametrize("columns, result", [(72, "f16"), (128, "f32"), (35, "f32")])
def test_the_plan_says_what_is_stored_at_once(columns, result):
    """As statements, which run as such, and of which callers learn how their tensors must lie."""
    program = dense(columns, result=result, rows=33, terms=16)
    plan = lower(program, decide(program, TARGET), TARGET)
    told = [s for k in plan.kernels for s in walk_body(k.body) if isinstance(s, Neighbours)]
    assert [s.wide.width for s in told] == ([4] if columns != 35 else [])
    found = {(t.onnx, t.size) for t in aligned_tensors([plan]) if t.kind == "out"}
    assert found == ({("y", 4 * DTYPES[result].size)} if told else set())
    feeds = random_feeds(program, np.random.default_rng(4), {})
    assert differences(run_plan(plan, feeds), evaluate(program, feeds), 2e-3) == []


@needs_cxx
@pytest.mark.parametrize("result", ["f16", "f32"])
def test_results_are_right_whatever_the_columns(result, tmp_path):
    cases = [Case(f"{n}", dense(n, result=result, rows=rows), tol=2e-3 if result == "f16" else 2e-6,
                  special=(NAN, INF, -INF)) for n, rows in (
                      (64, 70), (136, 33), (36, 64), (40, 129), (35, 40), (256, 20))]
    build_cases(cases, TARGET, tmp_path / "b").check(1)
