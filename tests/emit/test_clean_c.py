"""The generated C compiles without warnings (as in all of these tests, see harness.STRICT), and
whatever the axes and tensors are called."""

from dataclasses import replace

import numpy as np
import pytest
from harness import RUNNABLE, Case, build_cases, compile_program
from te_programs import Maker, ax, conv2d, random_feeds, relu, softmax

from aotc.emit.c.scalars import Scalars
from aotc.ir.expr import Binary, Const, Unary, Var, Where, compare
from aotc.ir.program import Fold
from aotc.sched import decide

# locals, parameters, macros and functions of the generated C, keywords, fresh names
NAMES = ("f", "tile", "i", "l", "rows", "acc_tile", "live", "begin", "end", "worker", "n0", "m0",
         "acc", "acc1", "x", "s1", "v1", "g2", "m3", "n", "n4", "frame", "a_row", "b_col", "int",
         "for", "const", "int64_t", "expf", "tanhf", "NAN", "aotc_max", "t_x", "s_a", "tile_1",
         "j_lo", "j_n", "j_row", "errno", "main", "INT64_C", "k")


def named(a, b, c, d):
    """Axes a, b, c and tensors a, b, d in every kind of kernel."""
    m = Maker("clash")
    m.input(a, 9, 21)
    m.const(b, np.random.default_rng(1).standard_normal((21, 18)).astype(np.float32))
    i, j, k = ax(a, 9), ax(b, 18), ax(c, 21)
    m.step(d, (i, j), m.ref(a, i, k) * m.ref(b, k, j), (k,), "sum")
    m.step("p", (i, j), Unary("tanh", relu(m.ref(d, i, j)) + Unary("exp", -m.ref(d, i, j))))
    softmax(m, "q", "p")
    i, j, k, r = ax(a, 8), ax(b, 17), ax(c, 2), ax(d, 2)
    m.step("pool", (i, j), m.ref("p", i + r, j + k), (r, k), "max")
    c, d = (s if s != "x" else "state" for s in (c, d))  # x is the element in a fold's update
    best, at, e = Var(c, "f32"), Var(d, "i64"), Var("x", "f32")
    better = compare("gt", e, best)
    i, r = ax(a, 9), ax(b, 21)
    m.step(("top", "where"), (i,), m.ref(a, i, r), (r,),
           Fold(((c, "f32"), (d, "i64")), (Const(-1, "f32"), Const(0)),
                (Where(better, e, best), Where(better, r, at))))
    i, j = ax(a, 9), ax(b, 7)
    index = Binary("mod", m.ref("where", i) + j, Const(18))
    m.step("taken", (i, j), m.ref("p", i, index))
    m.input("image", 1, 3, 6, 7)
    m.const("w", np.ones((5, 3, 3, 3), np.float32))
    conv2d(m, "c", "image", "w", pad=1)
    return m.done("q", "pool", "top", "where", "taken", "c")


@pytest.mark.parametrize("target", [pytest.param(RUNNABLE[0], marks=pytest.mark.product),
                                    RUNNABLE[-1]], ids=lambda t: t.name)
def test_names_that_clash(target, tmp_path):
    quads = [NAMES[i:i + 4] for i in range(0, len(NAMES) - 3, 4)] + [NAMES[-4:]]
    if target is RUNNABLE[-1]:  # which reads the same templates
        quads = [(b, a, d, c) for a, b, c, d in quads]
    cases = [Case(" ".join(q), named(*q), tol=2e-5) for q in quads]
    build_cases(cases, target, tmp_path / "names").check(6)


@pytest.mark.parametrize("name", ["tile", "int", *(
    pytest.param(n, marks=pytest.mark.product) for n in ("f", "begin", "worker", "rows", "q0"))])
def test_tensors_and_model_of_one_clashing_name(name, tmp_path):
    """Not through the harness, which prefixes tensors."""
    m = Maker(name)
    m.input(name, 5, 33)
    m.const("w", np.ones((33, 8), np.float32))
    i, j, k = ax("i", 5), ax("j", 8), ax("k", 33)
    m.step("acc_tile", (i, j), m.ref(name, i, k) * m.ref("w", k, j), (k,), "sum")
    m.step("end", (i, j), relu(m.ref("acc_tile", i, j)))
    p = replace(m.done("end"), name=name)
    target = RUNNABLE[-1]
    model = compile_program(p, decide(p, target), target, tmp_path / "b")
    x = random_feeds(p, np.random.default_rng(0))
    want = np.maximum(x[name].sum(axis=1, keepdims=True), 0) + np.zeros((1, 8))
    np.testing.assert_allclose(model.run(x)["end"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op, sign", [("and", "&"), ("or", "|"), ("xor", "^")])
def test_flags_in_front_of_a_choice_have_brackets(op, sign):
    """Compilers ask for them (clang's -Wbitwise-conditional-parentheses)."""
    x, y, zero = Var("x", "f32"), Var("y", "f32"), Const(0, "f32")
    block = Scalars({"vars": {}}, None)
    flags = Binary(op, compare("lt", x, zero), compare("lt", y, zero))
    assert block.text(Where(flags, x, y)) == f"((x < 0.0f) {sign} (y < 0.0f)) ? x : y"
    assert block.text(Where(compare("lt", x, y), x, y)) == "x < y ? x : y"
