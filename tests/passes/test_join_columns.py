"""Rewrite rule ``join_columns``: products of the same rows as one, who gets it, what is refused."""

import numpy as np
import pytest
from grouped_cases import numbers
from harness import Case, build_cases, differences
from te_programs import Maker, ax, matmul, random_feeds, relu

from aotc.errors import ScheduleError, ToolchainError
from aotc.ir.expr import Cast, Const, maximum
from aotc.ir.numbers.group_bytes import group_bytes
from aotc.ir.numbers.grouped import Grouping, grouped_value
from aotc.oracle.evaluate import evaluate
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.sums.join_columns import RULE, join_alike
from aotc.runtime.simulate import find_cxx
from aotc.sched import decide
from aotc.target import get_target

RNG = np.random.default_rng(7)
FOUR = Grouping(4, 32, 2, True)
GPU, CPUS = get_target("cuda:sm_90"), ("c", "x86-64-v3")


def weights(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def attention(rows=40, width=64, columns=(64, 32, 32), bias=True, residual=False, groups=False):
    """q, k and v of x f32[rows, width], with biases, and what reads them: q k^T and k^T v.
    groups: weights are 4 bits in groups."""
    p = Maker()
    p.input("x", rows, width)
    i = ax("i", rows)
    for name, n in zip("qkv", columns):
        j = ax("j", n)
        if groups:
            k = ax("k", width)
            p.const(f"w{name}", group_bytes(FOUR, *numbers(FOUR, width, n, ord(name))))
            p.step(f"{name}_sum", (i, j), p.ref("x", i, k) * grouped_value(FOUR, f"w{name}", k, j),
                   (k,), "sum")
        else:
            p.const(f"w{name}", weights(width, n))
            matmul(p, f"{name}_sum", "x", f"w{name}")
        value = p.ref(f"{name}_sum", i, j)
        if bias:
            value = value + p.ref(p.const(f"b{name}", weights(n)), j)
        if residual:
            value = value + p.ref("x", i, 0)
        p.step(name, (i, j), relu(value) if name == "q" and residual else value)
    n, j, r = columns[1], ax("j", rows), ax("r", min(columns))
    p.step("scores", (i, j), p.ref("q", i, r) * p.ref("k", j, r), (r,), "sum")
    m, c, s = ax("m", n), ax("c", columns[2]), ax("s", rows)
    p.step("state", (m, c), p.ref("k", s, m) * p.ref("v", s, c), (s,), "sum")
    return p.done("scores", "state")


def joined(program, name="q_sum", others=("k_sum", "v_sum")):
    """The rewritten program, which has the values of the program as it is."""
    found = apply_rewrites(program, ((RULE, name, {"with": list(others)}),))
    feeds = random_feeds(program, np.random.default_rng(5), {})
    assert differences(evaluate(found, feeds, {}), evaluate(program, feeds, {}), 2e-6) == []
    return found


def names_of(program):
    return [s.out for s in program.steps]


def test_products_of_the_same_rows_become_one_with_their_biases():
    found = joined(attention())
    assert names_of(found) == ["q_sum_joined", "q_joined", "scores", "state"]
    assert found.consts["wq_joined"].shape == (64, 128)
    assert found.consts["bq_joined"].shape == (128,)
    assert found.producer["q_joined"].origin == ("node_q", "node_k", "node_v")


def test_maps_join_as_far_as_they_are_alike():
    found = joined(attention(residual=True))
    assert names_of(found)[0] == "q_sum_joined" and set(names_of(found)[1:4]) == {"q", "k", "v"}
    found = joined(attention(bias=False))
    assert "q_joined" in found.buffers and "q" not in found.buffers
    found = joined(attention(), "k_sum", ["v_sum"])  # some of them
    assert {"q_sum", "q", "k_sum_joined", "k_joined"} <= set(names_of(found))


def scaled(numbers):
    """Products of the same rows, rounded to bytes by numbers of their own: scale, least, middle."""
    p = Maker()
    p.input("x", 12, 32)
    i, j = ax("i", 12), ax("j", 16)
    for name, (scale, least, middle) in zip("abc", numbers):
        p.const(f"w{name}", weights(32, 16))
        matmul(p, f"{name}_sum", "x", f"w{name}")
        big = maximum(p.ref(f"{name}_sum", i, j) * scale, Const(least, "f32"))
        p.step(f"{name}_big", (i, j), big)
        p.step(name, (i, j), Cast("i8", Cast("i32", p.ref(f"{name}_big", i, j))
                                  + Const(middle, "i32")))
    e = Cast("i32", p.ref("a", i, j)) * Cast("i32", p.ref("b", i, j))
    p.step("y", (i, j), e + Cast("i32", p.ref("c", i, j)))
    return p.done("y")


def test_numbers_that_differ_become_constants_along_the_columns():
    found = joined(scaled([(2.0, -3.0, 1), (0.5, -3.0, 1), (3.0, -2.5, -4)]), "a_sum",
                   ["b_sum", "c_sum"])
    assert names_of(found) == ["a_sum_joined", "a_big_joined", "a_joined", "y"]
    assert {a.shape for a in found.consts.values()} == {(48,), (32, 48)}
    assert len(found.consts) == 4  # weights, scales, least ones, middles
    same = joined(scaled([(2.0, -3.0, 1)] * 3), "a_sum", ["b_sum", "c_sum"])
    assert len(same.consts) == 1


def of_bytes(rows, columns=(64, 32, 32)):
    """Products of u8 rows by s8 weights with a scale each, and one that reads them all."""
    p = Maker()
    p.input("x", rows, 64, dtype="u8")
    i, k = ax("i", rows), ax("k", 64)
    for name, n, scale in zip("qkv", columns, (0.5, 0.25, 2.0)):
        j = ax("j", n)
        w = p.ref(p.const(f"w{name}", RNG.integers(-127, 128, (64, n)).astype(np.int8)), k, j)
        p.step(f"{name}_sum", (i, j), Cast("i32", p.ref("x", i, k)) * Cast("i32", w), (k,), "sum")
        p.step(name, (i, j), Cast("f32", p.ref(f"{name}_sum", i, j)) * Const(scale, "f32"))
    j, r = ax("j", rows), ax("r", 32)
    p.step("scores", (i, j), p.ref("q", i, r) * p.ref("k", j, r) + p.ref("v", i, r), (r,), "sum")
    return p.done("scores")


def test_steps_between_stay_before_what_reads_them():
    p = Maker()
    p.input("x", 8, 16)
    i, j = ax("i", 8), ax("j", 16)
    for name in "ab":
        p.const(f"w{name}", weights(16, 16))
    matmul(p, "a", "x", "wa")
    p.step("early", (i, j), relu(p.ref("a", i, j)))
    p.step("scale", (i,), p.ref("x", i, 3) * 2.0)
    matmul(p, "b", "x", "wb")
    p.step("y", (i, j), p.ref("b", i, j) * p.ref("scale", i) + p.ref("early", i, j))
    found = joined(p.done("y"), "a", ["b"])
    assert names_of(found) == ["scale", "a_joined", "early", "y"]


@pytest.mark.parametrize("dtype", ["f16", "groups"])
def test_weights_are_joined_as_they_are_stored(dtype):
    p = Maker()
    p.input("x", 6, 64)
    i, j, r = ax("i", 6), ax("j", 24), ax("r", 64)
    for name in "ab":
        if dtype == "f16":
            w = Cast("f32", p.ref(p.const(f"w{name}", weights(64, 24).astype(np.float16)), r, j))
        else:
            p.const(f"w{name}", group_bytes(FOUR, *numbers(FOUR, 64, 24, ord(name))))
            w = grouped_value(FOUR, f"w{name}", r, j)
        p.step(name, (i, j), p.ref("x", i, r) * w, (r,), "sum")
    p.step("y", (i, j), p.ref("a", i, j) * relu(p.ref("b", i, j)))
    found = joined(p.done("y"), "a", ["b"])
    (array,) = found.consts.values()
    assert array.shape[-1] == 48 and array.dtype == (np.float16 if dtype == "f16" else np.uint8)


def test_what_cannot_be_joined_is_refused_with_the_choices():
    program = attention()
    assert list(join_alike(program)) == [("q_sum", "k_sum", "v_sum")]
    for name, parameters, text in (
            ("q_sum", {"with": ["q"]}, "some of k_sum, v_sum"), ("q_sum", {}, "parameters are"),
            ("q_sum", {"with": ["q_sum"]}, "some of k_sum"),
            ("q_sum", {"with": []}, "some of k_sum"),
            ("scores", {"with": ["state"]}, "choose from k_sum, q_sum, v_sum")):
        with pytest.raises(ScheduleError, match=text):
            apply_rewrites(program, ((RULE, name, parameters),))


def other_rows():
    p = Maker()
    p.input("x", 8, 16)
    p.input("z", 8, 16)
    for name, rows in (("a", "x"), ("b", "z")):
        p.const(f"w{name}", weights(16, 16))
        matmul(p, name, rows, f"w{name}")
    i, j = ax("i", 8), ax("j", 16)
    p.step("y", (i, j), p.ref("a", i, j) + p.ref("b", i, j))
    return p.done("y")


def an_output():
    p = Maker()
    p.input("x", 8, 16)
    for name in "ab":
        p.const(f"w{name}", weights(16, 16))
        matmul(p, name, "x", f"w{name}")
    return p.done("a", "b")


def by_parts_of_columns():
    """A weight that several columns share."""
    p = Maker()
    p.input("x", 8, 16)
    i, j, r = ax("i", 8), ax("j", 16), ax("r", 16)
    for name in "ab":
        w = p.ref(p.const(f"w{name}", weights(16, 8)), r, j // 2)
        p.step(name, (i, j), p.ref("x", i, r) * w, (r,), "sum")
    p.step("y", (i, j), p.ref("a", i, j) + p.ref("b", i, j))
    return p.done("y")


@pytest.mark.parametrize("made", [other_rows, an_output, by_parts_of_columns])
def test_others_are_left_apart(made):
    assert list(join_alike(made())) == []


def chosen(program, target):
    return [(c, p["with"]) for rule, c, p in decide(program, target).rewrites if rule == RULE]


def test_gpus_join_what_pays_and_cpus_nothing():
    small = attention(128, 256, (256, 256, 256))
    assert chosen(small, GPU) == [("q_sum", ["k_sum", "v_sum"])]
    assert all(chosen(small, get_target(t)) == [] for t in CPUS)
    # maps that would need a kernel of their own stay with their products
    assert chosen(attention(128, 256, (256, 256, 256), residual=True), GPU) == []


@pytest.mark.parametrize("precision", ["f32", "f16", "groups", "bytes"])
def test_joined_products_are_right_in_the_simulator(tmp_path, precision):
    try:
        find_cxx()
    except ToolchainError as err:
        pytest.skip(str(err))
    cases = []
    groups, floats = precision == "groups", precision in ("groups", "bytes")
    for program in (of_bytes(33), of_bytes(5)) if precision == "bytes" else (
            attention(33, 64, (64, 36, 36), groups=groups),
            attention(1, 128, (68, 32, 20), groups=groups)):
        schedule = decide(program, GPU, precision="f32" if floats else precision)
        assert RULE in [r[0] for r in schedule.rewrites]
        tolerance = {"f32": 2e-6, "f16": 2e-3, "groups": 4e-6, "bytes": 4e-6}[precision]
        cases.append(Case("joined", program, schedule, tolerance))
    build_cases(cases, GPU, tmp_path / "b").check(1)


def test_extents_are_constants():
    found = joined(attention())
    assert found.buffers["q_joined"].shape == (Const(40), Const(128))
