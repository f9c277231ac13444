"""Random inputs that suit a model, and the extents that are tried."""

import numpy as np
import pytest
from frontend_cases import program_of
from loop_cases import CASES

from aotc.ir.expr import Axis, Cast, Const, Guarded, Load, Sym, Where, check_index, compare
from aotc.ir.program import Buffer, Check, Compute, Program
from aotc.samples import (
    InputKind,
    border_extents,
    extents,
    input_kinds,
    live_bytes,
    random_inputs,
    record_samples,
)

N = Sym("n", 1, 500)


def program(steps, inputs, more=(), consts=None, checks=(), outputs=None, syms=(N,)):
    """Program over buffers ``{name: (shape, dtype)}``; the last step writes the output."""
    buffers = {n: Buffer(n, tuple(s), d, "temp", n)
               for n, (s, d) in {**inputs, **dict(more)}.items()}
    return Program("p", tuple(inputs), outputs or (steps[-1].out,), buffers, consts or {},
                   tuple(steps), syms, checks)


def i64(buffer, *index):
    return Load(buffer, index, "i64")


def lookup(index, rows=7):
    """Compute y[i, j] = table[checked(index), j] over i in 0..n, j in 0..3."""
    i, j = Axis("i", N), Axis("j", Const(3))
    body = Load("table", (check_index(index(i), Const(rows)), j), "f32")
    return Compute(("y",), (i, j), (), "none", body)


TABLE = {"table": ((Const(7), Const(3)), "f32"), "y": ((N, Const(3)), "f32")}
CONSTS = {"table": np.zeros((7, 3), np.float32)}


def test_an_index_of_a_table_spans_all_its_rows():
    p = program([lookup(lambda i: i64("ids", i))], {"ids": ((N,), "i64")}, TABLE, CONSTS)
    assert input_kinds(p)["ids"].kind == "table" and input_kinds(p)["ids"].high == 7
    ids = random_inputs(p, {"n": 400})["ids"]
    assert ids.dtype == np.int64 and set(ids) == set(range(7))
    assert set(random_inputs(p, {"n": 2})["ids"]) == {0, 6}


def test_a_wrapped_index_through_another_compute_is_still_one():
    k = Axis("k", N)
    cast = Compute(("wide",), (k,), (), "none", Cast("i64", Load("ids", (k,), "i32")))

    def wrapped(i):
        x = i64("wide", i)
        return Where(compare("lt", x, Const(0)), x + 7, x)

    p = program([cast, lookup(wrapped)], {"ids": ((N,), "i32")},
                {"wide": ((N,), "i64"), **TABLE}, CONSTS)
    assert (input_kinds(p)["ids"].kind, input_kinds(p)["ids"].high) == ("table", 7)


def test_an_index_of_an_extent_stays_inside_it():
    i, j = Axis("i", N), Axis("j", Const(3))
    body = Load("rows", (check_index(i64("ids", i), N), j), "f32")
    p = program([Compute(("y",), (i, j), (), "none", body)],
                {"ids": ((N,), "i64"), "rows": ((N, Const(3)), "f32")}, {"y": TABLE["y"]})
    for n in (1, 9, 50):
        ids = random_inputs(p, {"n": n})["ids"]
        assert ids.min() == 0 and ids.max() == n - 1


def test_what_must_equal_an_extent_does():
    rule = Compute(("rule",), (), (), "none", Guarded(
        "expected", Cast("i64", Load("count", (), "i32")) + 1, N, "why"))
    i = Axis("i", N)
    p = program([rule, Compute(("y",), (i,), (), "none", Load("x", (i,), "f32"))],
                {"count": ((), "i32"), "x": ((N,), "f32")},
                {"rule": ((), "i64"), "y": ((N,), "f32")})
    assert random_inputs(p, {"n": 7})["count"] == 6


def test_what_is_only_compared_or_converted_is_a_mask():
    i = Axis("i", N)
    body = Where(compare("gt", i64("mask", i), Const(0)), Load("x", (i,), "f32"),
                 Const(0.0, "f32"))
    p = program([Compute(("y",), (i,), (), "none", body)],
                {"mask": ((N,), "i64"), "x": ((N,), "f32")}, {"y": ((N,), "f32")})
    kinds = {n: k.kind for n, k in input_kinds(p).items()}
    assert kinds == {"mask": "mask", "x": "normal"}
    feeds = random_inputs(p, {"n": 50}, seed=3)
    assert set(feeds["mask"]) == {0, 1} and feeds["mask"][0] == 1
    assert feeds["x"].std() > 0.5


def test_other_integers_are_small_and_positive():
    i = Axis("i", N)
    p = program([Compute(("y",), (i,), (), "none", i64("a", i) * i64("a", i))],
                {"a": ((N,), "i64")}, {"y": ((N,), "i64")})
    values = random_inputs(p, {"n": 300})["a"]
    assert input_kinds(p)["a"].kind == "small" and values.min() == 1 and values.max() == 8


def test_extents_cover_both_ends_and_keep_the_checks():
    i = Axis("i", N)
    step = Compute(("y",), (i,), (), "none", Load("x", (i,), "f32"))
    parts = dict(inputs={"x": ((N,), "f32")}, more={"y": ((N,), "f32")})
    values = [e["n"] for e in extents(program([step], **parts))]
    assert len(values) == len(set(values)) >= 4
    assert 1 in values and 160 in values and any(v % 2 and v > 1 for v in values)
    even = Check(compare("eq", N % 2, Const(0)), "pairs")
    assert all(e["n"] % 2 == 0 for e in extents(program([step], checks=(even,), **parts)))


def test_extents_that_depend_on_each_other_agree():
    """A cache: the mask is as long as what is past and what is new."""
    i, total, past = Axis("i", N), Sym("total", 1, 400), Sym("past", 0, 200)
    step = Compute(("y",), (i,), (), "none", Load("x", (i,), "f32"))
    p = program([step], {"x": ((N,), "f32"), "m": ((total,), "f32"), "c": ((past,), "f32")},
                {"y": ((N,), "f32")}, syms=(N, total, past),
                checks=(Check(compare("eq", total, past + N), "the mask's length"),))
    found = extents(p)
    assert len(found) >= 3 and all(e["total"] == e["past"] + e["n"] for e in found)


def test_an_extent_without_a_bound_may_have_to_agree():
    a, b = Sym("a", 1, None), Sym("b", 2, None)
    i = Axis("i", b)
    step = Compute(("y",), (i,), (), "none", Load("x", (i,), "f32"))
    p = Program("p", ("x",), ("y",), {n: Buffer(n, (b,), "f32", r) for n, r in (
        ("x", "input"), ("y", "output"))}, {}, (step,), (a, b),
        (Check(compare("eq", a * 2, b), "a half"),))
    found = extents(p)
    assert found and all(v["a"] * 2 == v["b"] for v in found)


def test_recorded_samples_hold_what_the_program_computes():
    i = Axis("i", N)
    step = Compute(("y",), (i,), (), "none", Load("x", (i,), "f32") * 2.0)
    p = program([step], {"x": ((N,), "f32")}, {"y": ((N,), "f32")})
    samples = record_samples(p)
    assert len(samples) == 2
    for s in samples:
        assert s.inputs["x"].shape == (s.syms["n"],)
        np.testing.assert_array_equal(s.outputs["y"], 2 * s.inputs["x"])
    assert record_samples(p, limit=0) == ()


@pytest.mark.parametrize("seed", [0, 1])
def test_inputs_repeat_for_a_seed_and_differ_between_seeds(seed):
    i = Axis("i", N)
    p = program([Compute(("y",), (i,), (), "none", Load("x", (i,), "f32"))],
                {"x": ((N,), "f32")}, {"y": ((N,), "f32")})
    once, again = (random_inputs(p, {"n": 9}, seed)["x"] for _ in range(2))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, random_inputs(p, {"n": 9}, seed + 1)["x"])


def chain(steps=4):
    """y = -x, ``steps`` times, over f32[n, 256]."""
    i, j = Axis("i", N), Axis("j", Const(256))
    names = ["x", *(f"t{k}" for k in range(steps - 1)), "y"]
    return program([Compute((b,), (i, j), (), "none", -Load(a, (i, j), "f32"))
                    for a, b in zip(names, names[1:])], {"x": ((N, Const(256)), "f32")},
                   {n: ((N, Const(256)), "f32") for n in names[1:]})


def test_a_tensor_lives_to_its_last_reader():
    assert live_bytes(chain(), {"n": 3}) == live_bytes(chain(9), {"n": 3}) == 2 * 3 * 1024
    i, j = Axis("i", N), Axis("j", Const(256))
    last = Compute(("y",), (i, j), (), "none",
                   Load("t2", (i, j), "f32") + Load("x", (i, j), "f32"))
    kept = chain()
    kept = program([*kept.steps[:-1], last], {"x": ((N, Const(256)), "f32")},
                   {n: ((N, Const(256)), "f32") for n in ("t0", "t1", "t2", "y")})
    assert live_bytes(kept, {"n": 3}) == 3 * 3 * 1024


def test_extents_leave_room():
    p = chain()
    tall = extents(p)
    assert max(s["n"] for s in tall) == 160
    low = extents(p, room=2 * 40 * 1024)
    assert {"n": 1} in low and 20 <= max(s["n"] for s in low) <= 40
    assert len(low) == len({s["n"] for s in low}) > 2
    assert extents(p, room=0) == [{"n": 1}]
    assert border_extents(p, [{"n": (8, 100)}], room=2 * 40 * 1024) == [{"n": 8}, {"n": 31}]
    assert border_extents(p, [{"n": (80, 100)}], room=0) == [{"n": 80}]


def test_a_number_of_rounds_is_one_of_which_all_lie_inside():
    """Rounds read the rows of a tensor, of which there are so many, or as many as a symbol says."""
    by_name = {c.name: c.model for c in CASES}
    fixed = program_of(by_name["number_that_is_an_input"])
    assert input_kinds(fixed)["m_2"] == InputKind("table", 10)
    free = program_of(by_name["number_that_is_an_input_of_rows"])
    kind = input_kinds(free)["m_2"]
    assert kind.kind == "table" and str(kind.extent) == "t + 1"
    assert random_inputs(free, {"t": 7})["m"] == 7
