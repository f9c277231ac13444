"""Regions: loops whose rounds keep states, cut inputs and stack outputs; branches that data choose.

Every way to run them agrees with the evaluator, and that with plain numpy."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.harness import compile_program
from helpers.te_programs import Maker, ax, matmul

from aotc.ir.expr import Cast, Const, Sym, Unary, Where, compare
from aotc.ir.program import Branch, Buffer, Entry, Loop, State
from aotc.ir.schedule import Schedule
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.oracle.run_plan import run_plan
from aotc.passes.fold import fold_constants
from aotc.passes.regions import apply_in_bodies
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.sched import check_schedule, decide, lower
from aotc.target import get_target

ROUND = Sym("turn", 0, 63)
BATCH, WIDE, IN = 3, 20, 7


def _recurrent_body(weights):
    """h_new = tanh(x W + h R + turn); seen = h_new."""
    m = Maker("body")
    m.input("h", BATCH, WIDE)
    m.input("x_t", BATCH, IN)
    m.const("w", weights[0])
    m.const("r", weights[1])
    matmul(m, "xw", "x_t", "w")
    matmul(m, "hr", "h", "r")
    i, j = ax("i", BATCH), ax("j", WIDE)
    turn = Cast("f32", ROUND) * Const(0.01, "f32")
    m.step("h_new", (i, j), Unary("tanh", m.ref("xw", i, j) + m.ref("hr", i, j) + turn))
    m.step("seen", (i, j), m.ref("h_new", i, j))
    return m.done("h_new", "seen", syms=(ROUND,))


def _recurrent(steps, backward=False):
    """The last state and all states of a recurrent layer over ``steps`` (an int or a Sym)."""
    rng = np.random.default_rng(5)
    weights = [rng.standard_normal(s).astype(np.float32) / 4 for s in ((IN, WIDE), (WIDE, WIDE))]
    m = Maker("recurrent")
    m.input("x", steps, BATCH, IN)
    m.input("start", BATCH, WIDE)
    trip = steps if isinstance(steps, Sym) else Const(steps)
    for name, shape, role in (("last", (BATCH, WIDE), "output"), ("spare", (BATCH, WIDE), "temp"),
                              ("all", (steps, BATCH, WIDE), "output")):
        m.buffers[name] = Buffer(name, tuple(Const(d) if isinstance(d, int) else d
                                             for d in shape), "f32", role)
    m.steps.append(Loop("layer", _recurrent_body(weights), trip, ROUND,
                        (State("start", "h", "h_new", "last", "spare"),),
                        (Entry("x", "x_t", backward),), (Entry("all", "seen", backward),)))
    return m.done("last", "all"), weights


def _recurrent_in_numpy(x, h, weights, backward):
    seen = np.zeros((len(x), BATCH, WIDE))
    for r in range(len(x)):
        t = len(x) - 1 - r if backward else r
        h = np.tanh(x[t].astype(float) @ weights[0] + h @ weights[1] + r * 0.01)
        seen[t] = h
    return {"last": h, "all": seen}


def _collatz():
    """Rounds until a number is 1 or ``most`` are over: the number, and how many rounds ran."""
    body = Maker("body")
    body.input("n", dtype="i64")
    body.input("more", dtype="bool")
    n = body.ref("n")
    body.step("n_new", (), Where(compare("eq", n % 2, Const(0)), n // 2, n * 3 + 1))
    body.step("again", (), compare("ne", body.ref("n_new"), Const(1)))
    inner = body.done("n_new", "again", syms=(ROUND,))
    m = Maker("collatz")
    m.input("first", dtype="i64")
    m.input("most", dtype="i64")
    m.input("on", dtype="bool")
    for name, dtype, role in (("number", "i64", "output"), ("ran", "i64", "output"),
                              ("spare", "i64", "temp"), ("on_last", "bool", "temp"),
                              ("on_spare", "bool", "temp")):
        m.buffers[name] = Buffer(name, (), dtype, role)
    m.steps.append(Loop("search", inner, Const(64), ROUND, (
        State("first", "n", "n_new", "number", "spare"),
        State("on", "more", "again", "on_last", "on_spare")), (), (), "most", "on", "again",
        "ran"))
    return m.done("number", "ran")


def _choice():
    """y = x W where ``yes``, else x + 1, then both times 2; the branch stands inside a loop that
    takes its condition from its round's entry of ``yes``."""
    weight = np.random.default_rng(3).standard_normal((6, 6)).astype(np.float32)
    bodies = []
    for name in ("then", "other"):
        m = Maker(name)
        m.input("v", 4, 6)
        i, j = ax("i", 4), ax("j", 6)
        if name == "then":
            m.const("weight", weight)
            matmul(m, "prod", "v", "weight")
            m.step("one", (i, j), m.ref("prod", i, j))
        else:
            m.step("two", (i, j), m.ref("v", i, j) + Const(1, "f32"))
        bodies.append(m.done("one" if name == "then" else "two"))
    m = Maker("round")
    m.input("v", 4, 6)
    m.input("yes_t", dtype="bool")
    m.buffers["chosen"] = Buffer("chosen", (Const(4), Const(6)), "f32")
    m.steps.append(Branch("which", "yes_t", tuple(bodies), ("chosen",)))
    i, j = ax("i", 4), ax("j", 6)
    m.step("v_new", (i, j), m.ref("chosen", i, j) * Const(0.5, "f32"))
    body = m.done("v_new")
    m = Maker("choice")
    m.input("x", 4, 6)
    m.input("yes", 5, dtype="bool")
    for name, role in (("y", "output"), ("spare", "temp")):
        m.buffers[name] = Buffer(name, (Const(4), Const(6)), "f32", role)
    m.steps.append(Loop("rounds", body, Const(5), ROUND, (State("x", "v", "v_new", "y", "spare"),),
                        (Entry("yes", "yes_t"),), ()))
    return m.done("y"), weight


def _run(program, target, folder, feeds, syms=None, threads=1):
    """Outputs of the evaluator, once the C, the interpreter and the Plan have given the same."""
    target = get_target(target)
    schedule = decide(program, target)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert Schedule.from_json(schedule.to_json()).hash == schedule.hash
    assert check_schedule(program, schedule, target) == []
    want = evaluate(program, feeds, syms)
    literal = interpret(apply_schedule_rewrites(program, schedule), schedule, feeds, syms)
    planned = run_plan(lower(program, schedule, target), feeds, syms)
    got = compile_program(program, schedule, target, folder, threads=threads).run(feeds)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=0, atol=2e-5, err_msg=name)
        np.testing.assert_allclose(literal[name], array, rtol=0, atol=2e-5, err_msg=name)
        np.testing.assert_allclose(planned[name], array, rtol=0, atol=2e-5, err_msg=name)
    return want


@pytest.mark.parametrize("target, backward, steps", [
    ("x86-64-v3", False, 9), ("c", True, 4), ("x86-64-v3", True, Sym("seq", 0, 40)),
    ("c", False, Sym("seq", 1, None)), ("cuda", True, Sym("seq", 1, 40))], ids=str)
def test_a_recurrent_layer(tmp_path, target, backward, steps):
    program, weights = _recurrent(steps, backward)
    rng = np.random.default_rng()
    count = steps if isinstance(steps, int) else int(rng.integers(steps.lo, 40))
    feeds = {"x": rng.standard_normal((count, BATCH, IN)).astype(np.float32),
             "start": rng.standard_normal((BATCH, WIDE)).astype(np.float32)}
    got = _run(program, target, tmp_path / "b", feeds, {"seq": count}, threads=2)
    want = _recurrent_in_numpy(feeds["x"], feeds["start"], weights, backward)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("first, most, on, want", [
    (6, 100, True, (1, 8)), (6, 3, True, (5, 3)), (6, 0, True, (6, 0)), (6, -5, True, (6, 0)),
    (6, 9, False, (6, 0)), (27, 1 << 40, True, (None, 65))])
@pytest.mark.parametrize("target", ("c", pytest.param("cuda", marks=pytest.mark.product)))
def test_a_loop_until_data_end_it(tmp_path, target, first, most, on, want):
    feeds = {"first": np.array(first), "most": np.array(most), "on": np.array(on)}
    got = _run(_collatz(), target, tmp_path / "b", feeds)
    assert got["ran"] == want[1]
    assert want[0] is None or got["number"] == want[0]


@pytest.mark.parametrize("target", ("x86-64-v3", "cuda"))
def test_one_branch_runs_in_each_round(tmp_path, target):
    program, weight = _choice()
    rng = np.random.default_rng()
    feeds = {"x": rng.standard_normal((4, 6)).astype(np.float32),
             "yes": rng.integers(0, 2, 5).astype(bool)}
    want = feeds["x"].astype(float)
    for yes in feeds["yes"]:
        want = (want @ weight if yes else want + 1) * 0.5
    got = _run(program, target, tmp_path / "b", feeds)
    np.testing.assert_allclose(got["y"], want, rtol=0, atol=1e-5)


def test_a_malformed_region_is_told():
    program, _ = _recurrent(3)
    loop, = program.steps
    wrong = replace(loop, states=(replace(loop.states[0], start="x"),))
    assert any("h inside is no x" in f for f in check_program(replace(program, steps=(wrong,))))
    wrong = replace(loop, stacks=())
    assert any("its body makes" in f for f in check_program(replace(program, steps=(wrong,))))


def test_schedules_of_bodies_are_checked():
    program, _ = _recurrent(3)
    target = get_target("c")
    schedule = decide(program, target)
    assert any("0 schedules for 1 bodies" in f for f in check_schedule(
        program, replace(schedule, regions={}), target))
    assert any("no region 'other'" in f for f in check_schedule(
        program, replace(schedule, regions={**schedule.regions, "other": ()}), target))
    body, = schedule.regions["layer"]
    wrong = replace(body, groups=body.groups[:-1])
    assert any(f.startswith("region layer: ") for f in check_schedule(
        program, replace(schedule, regions={"layer": (wrong,)}), target))


def test_what_a_body_reads_keeps_its_name():
    """Of two equal computes that fold into one, the one that a body reads stays."""
    body = Maker("body")
    body.input("h", 4)
    body.input("twice", 4)
    i = ax("i", 4)
    body.step("h_new", (i,), body.ref("h", i) + body.ref("twice", i))
    m = Maker("captured")
    m.input("x", 4)
    for name in ("other", "twice"):
        m.step(name, (i,), m.ref("x", i) * m.ref("x", i))
    m.step("seen", (i,), m.ref("other", i) + Const(1, "f32"))
    for name, role in (("last", "output"), ("spare", "temp")):
        m.buffers[name] = Buffer(name, (Const(4),), "f32", role)
    m.steps.append(Loop("sums", body.done("h_new"), Const(3), ROUND,
                        (State("x", "h", "h_new", "last", "spare"),), (), ()))
    program = m.done("last", "seen")
    folded = apply_in_bodies(fold_constants, program)
    assert check_program(folded) == []
    feeds = {"x": np.random.default_rng().standard_normal(4).astype(np.float32)}
    for name, want in evaluate(program, feeds).items():
        np.testing.assert_array_equal(evaluate(folded, feeds)[name], want)
