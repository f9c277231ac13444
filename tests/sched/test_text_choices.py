"""How statements are written is a Schedule's to say: each choice changes the C, none the values."""

import re
from dataclasses import replace

import numpy as np
import onnx
import pytest
from harness import Case, build_cases
from onnx import TensorProto, helper, numpy_helper
from te_programs import Maker, ax, matmul, random_feeds

import aotc
from aotc.emit.bundle.variants import EMITTERS
from aotc.errors import ScheduleError, ToolchainError
from aotc.ir.expr import Cast, Const, Sym, check_index
from aotc.ir.schedule import Schedule
from aotc.ir.stage_choice import TEXTS
from aotc.ir.statements import walk_body
from aotc.ir.tile_statements import Tile
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.passes.rewrites import apply_rewrites
from aotc.runtime.simulate import find_cxx
from aotc.sched import check_schedule, complete, decide, lower
from aotc.sched.judge.judge import Judge
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.sched.text_choices.keep_said import keep_said
from aotc.target import get_target, runs_here
from aotc.tools.verify import verify

V3, V4, VNNI, GPU, RISCV = map(get_target, (
    "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "cuda:sm_80", "riscv64"))


def product(depth, columns=60, rows=50):
    """x w + r"""
    m = Maker("product")
    m.input("x", rows, depth)
    m.input("r", rows, columns)
    m.const("w", np.linspace(-1, 1, depth * columns, dtype=np.float32).reshape(depth, columns))
    matmul(m, "xw", "x", "w")
    i, j = ax("row", rows), ax("col", columns)
    m.step("y", (i, j), m.ref("xw", i, j) + m.ref("r", i, j))
    return m.done("y")


def grouped():
    """A 3x3 convolution in groups, channels last."""
    m = Maker("grouped")
    m.input("x", 2, 9, 20, 64)
    m.input("w", 4, 3, 3, 16, 16)
    n, oh, ow, g, o = ax("n", 2), ax("oh", 7), ax("ow", 18), ax("g", 4), ax("o", 16)
    i, j, k = ax("i", 3), ax("j", 3), ax("k", 16)
    m.step("y", (n, oh, ow, g, o), m.ref("x", n, oh + i, ow + j, g * 16 + k)
           * m.ref("w", g, i, j, k, o), (i, j, k), "sum")
    return m.done("y")


def depthwise():
    m = Maker("depthwise")
    m.input("x", 9, 26, 64)
    m.input("w", 3, 3, 64)
    oh, ow, c, i, j = ax("oh", 7), ax("ow", 24), ax("c", 64), ax("i", 3), ax("j", 3)
    m.step("y", (oh, ow, c), m.ref("x", oh + i, ow + j, c) * m.ref("w", i, j, c), (i, j), "sum")
    return m.done("y")


def means():
    """Sums over rows, columns side by side in lanes."""
    m = Maker("means")
    m.input("x", 100, 64)
    j, r = ax("j", 64), ax("r", 100)
    m.step("y", (j,), m.ref("x", r, j), (r,), "sum")
    return m.done("y")


def rows():
    """Few long rows: several warps fold each."""
    m = Maker("rows")
    m.input("x", 2, 5000)
    i, r = ax("i", 2), ax("r", 5000)
    m.step("y", (i,), m.ref("x", i, r), (r,), "sum")
    return m.done("y")


def halves():
    """x w of f16 numbers."""
    m, i, j, k = Maker("halves"), ax("i", 333), ax("j", 640), ax("k", 40)
    m.input("x", 333, 40, dtype="f16")
    m.const("w", np.random.default_rng(2).standard_normal((40, 640)).astype(np.float16).astype(
        np.float32))
    m.step("wide", (i, k), Cast("f32", m.ref("x", i, k)))
    m.step("y", (i, j), m.ref("wide", i, k) * m.ref("w", k, j), (k,), "sum")
    return m.done("y")


def folded():
    """(sum of x) w: rows of 64 elements in the arena."""
    m, i, j, k, r = Maker("folded"), ax("i", 40), ax("j", 48), ax("k", 64), ax("r", 3)
    m.input("x", 3, 40, 64)
    m.const("w", np.linspace(-1, 1, 64 * 48, dtype=np.float32).reshape(64, 48))
    m.step("h", (i, k), m.ref("x", r, i, k), (r,), "sum")
    m.step("y", (i, j), m.ref("h", i, k) * m.ref("w", k, j), (k,), "sum")
    return m.done("y")


def looked_up():
    """Rows of a table, at places that data says."""
    m, i, j = Maker("looked_up"), ax("i", 30), ax("j", 64)
    m.input("ids", 30, dtype="u8")
    m.const("table", np.linspace(-1, 1, 50 * 64, dtype=np.float32).reshape(50, 64))
    place = check_index(Cast("i64", m.ref("ids", i)), Const(50))
    m.step("y", (i, j), m.ref("table", place, j) + m.ref("table", 3, j))
    return m.done("y")


def shuffled():
    """A pixel shuffle, channels last: runs of two lie side by side."""
    m, c, i, j = Maker("shuffled"), ax("c", 3), ax("i", 10), ax("j", 12)
    m.input("x", 5, 6, 12)
    m.step("y", (c, i, j), m.ref("x", i // 2, j // 2, c * 4 + i % 2 * 2 + j % 2))
    return m.done("y")


def bytes_in_threes(columns=70):
    """x w of bytes, three products per sum: rows are packed with a fourth."""
    m, i, j, k = Maker("bytes"), ax("i", 9), ax("j", columns), ax("k", 3)
    m.input("x", 9, 3, dtype="u8")
    m.const("w", np.ones((3, columns), np.int8))
    m.step("y", (i, j), Cast("i32", m.ref("x", i, k)) * Cast("i32", m.ref("w", k, j)), (k,), "sum")
    return m.done("y")


def across():
    """(x w) transposed: results lie across the lanes."""
    m, i, j, k = Maker("across"), ax("i", 50), ax("j", 40), ax("k", 64)
    m.input("x", 50, 64)
    m.const("w", np.linspace(-1, 1, 64 * 40, dtype=np.float32).reshape(64, 40))
    m.step("y", (j, i), m.ref("x", i, k) * m.ref("w", k, j), (k,), "sum")
    return m.done("y")


def centred():
    """Rows less their means."""
    m, i, j, r = Maker("centred"), ax("i", 40), ax("j", 512), ax("r", 512)
    m.input("x", 40, 512)
    m.step("s", (i,), m.ref("x", i, r) * (1 / 512), (r,), "sum")
    m.step("y", (i, j), m.ref("x", i, j) - m.ref("s", i))
    return m.done("y")


EDITS = [(product(40), {"order": "rows"}), (product(40), {"fetch_tiles": 0}),
         (product(40), {"fetch_tiles": 1}), (product(300), {"order": "rows"}),
         (product(300), {"fetch_epilogue": 0}), (product(300), {"fetch_panel": 0}),
         (product(300), {"panel_step": 5}), (product(40), {"fetch_epilogue": 1}),
         (product(40), {"sums": "memory"}), (product(300), {"sums": "registers"}),
         (product(40, rows=Sym("rows", 2, 99)), {"tails": 0}),
         (product(40, rows=Sym("rows", 2, 99)), {"tails": 2}),
         (grouped(), {"fetch_rows": 0}), (grouped(), {"fetch_rows": 5}),
         (depthwise(), {"ahead": 0}), (depthwise(), {"ahead": 2048}),
         (means(), {"columns": 1}), (means(), {"columns": 3}),
         (means(), {"columns_from": 200}),
         (looked_up(), {"lookup_rows": 0}), (looked_up(), {"lookup_rows": 3}),
         (looked_up(), {"lookup_lines": 1}), (shuffled(), {"quotients": 0}),
         (across(), {"transposed_rows": 0}), (across(), {"transposed_rows": 9})]


SHARED = [(product(300), {"stages": 2}), (product(300, rows=300), {"order": "rows"}),
          (rows(), {"team": 1}), (rows(), {"team": 2}), (rows(), {"neighbours": 1}),
          (looked_up(), {"neighbours": 2}), (centred(), {"held_rows": 0}),
          (product(300), {"a_fetch": "value"}), (product(300), {"b_fetch": "value", "b_width": 1}),
          (product(304), {"b_width": 1}), (folded(), {"a_width": 1}),
          (product(300), {"a_along": "rows"}),
          (product(300), {"b_along": "sum"}),
          (halves(), {"stages": 2, "a_along": "rows", "b_width": 1})]
# on vectors of other kinds
OTHERS = [(product(300), {"reread": 3}, V4), (product(40), {"reread": 4}, V4),
          (product(300), {"unroll": 2}, RISCV), (means(), {"registers": 1}, RISCV),
          (depthwise(), {"block_registers": 1}, RISCV),
          (bytes_in_threes(), {"copied_run": 1}, VNNI),
          (bytes_in_threes(128), {"columns": 1}, VNNI), *((p, c, GPU) for p, c in SHARED)]


def edited(program, choices, target=V3):
    """(decided, edited) Schedules: the first stage that takes the choices has them, what goes with
    them is chosen again."""
    schedule = decide(program, target)
    for g in schedule.groups:
        for stage in g.rows:
            new = g.choices | {stage: g.choices[stage].bare.with_said(choices)}
            groups = tuple(replace(g, choices=new) if x is g else x for x in schedule.groups)
            new = Schedule.from_json(replace(schedule, groups=groups).to_json())
            new = complete(program, new, target)
            if not check_schedule(program, new, target):
                return schedule, new
    raise AssertionError(f"no stage takes {choices}")


def said(schedule, key):
    """What stages say of a choice."""
    return {x.said[key] for g in schedule.groups for x in g.choices.values() if key in x.said}


def text(program, schedule, target=V3):
    return EMITTERS[target.emitter](lower(program, schedule, target), target)


@pytest.mark.parametrize("program, choices", EDITS,
                         ids=[f"{p.name}-{k}-{v}" for p, c in EDITS for k, v in c.items()])
def test_a_choice_changes_the_statements_and_no_value(program, choices):
    before, after = edited(program, choices)
    assert text(program, after) != text(program, before) and before.hash != after.hash
    syms = {s.name: 37 for s in program.syms}
    feeds = random_feeds(program, np.random.default_rng(1), syms)
    got = run_plan(lower(program, after, V3), feeds, syms)["y"]
    want = evaluate(program, feeds, syms)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_sums_in_parts_join_each_other_in_memory():
    """Whatever a Schedule says of where its epilogue finds them."""
    program = product(600)
    _, after = edited(program, {"sums": "registers"})
    plan = lower(program, after, V3)
    tiles = [s for k in plan.kernels for s in walk_body(k.body) if isinstance(s, Tile)]
    assert [(s.micro.part, s.in_place) for s in tiles] == [(512, False)]


def test_edited_schedules_run(tmp_path):
    """As C: the same values."""
    cases = [Case(f"{p.name} {c}", p, edited(p, c)[1]) for p, c in EDITS]
    built = build_cases(cases, V3, tmp_path)
    sample = built.sample(4)
    for case, got, want in zip(cases, sample.got, sample.want):
        for g, w in zip(got.values(), want.values()):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4, err_msg=case.name)


@pytest.mark.parametrize("program, choices, target", [(p, c, V3) for p, c in EDITS] + OTHERS,
                         ids=lambda x: "-".join(x) if isinstance(x, dict) else "")
def test_a_decided_schedule_says_every_choice_and_lowering_makes_none(program, choices, target):
    """As JSON, too; without one of them it is not lowered, and completing brings it back."""
    decided, other = edited(program, choices, target)
    for key, value in choices.items():
        assert value in said(other, key) and said(decided, key)
        for schedule in (decided, other):
            assert said(Schedule.from_json(schedule.to_json()), key) == said(schedule, key)
        less = replace(decided, groups=tuple(
            g.saying(lambda c, key=key: c.with_said({key: None})) for g in decided.groups))
        with pytest.raises(ScheduleError, match=f"has no choice of '{key}'.*complete"):
            lower(program, less, target)
        assert complete(program, less, target).groups == decided.groups
    assert choose_writing(program, other, target) == other
    assert said(keep_said(program, other, target), next(iter(choices)))
    bare = keep_said(program, decided, target)
    assert not any(c.text.said for g in bare.groups for c in g.choices.values())


def test_stages_stand_apart_or_not():
    m = Maker("layers")
    m.input("x", 97, 40)
    i = ax("m", 97)
    for name, source, k, n in (("h", "x", 40, 48), ("y", "h", 48, 24)):
        m.const(f"w_{name}", np.ones((k, n), np.float32))
        j, r = ax("n", n), ax("k", k)
        m.step(name, (i, j), m.ref(source, i, r) * m.ref(f"w_{name}", r, j), (r,), "sum")
    program = m.done("y")
    before, after = edited(program, {"apart": 0})
    one, other = ("\n".join(text(program, s).values()).count("AOTC_APART") for s in (before, after))
    assert one - other == 1


@pytest.mark.parametrize("choice", TEXTS)
def test_other_values_are_refused(choice):
    known = [(p, c, V3) for p, c in (*EDITS, (product(40), {"apart": 1}))] + OTHERS
    program, good, target = next(x for x in known if choice in x[1])
    _, schedule = edited(program, good, target)
    for wrong in ("sideways", -1, 1 << 30):
        bad = replace(schedule, groups=tuple(g.saying(
            lambda c, wrong=wrong: c.with_said({choice: wrong}) if choice in c.said else c)
            for g in schedule.groups))
        faults = check_schedule(program, bad, target)
        wanted = rf"{choice} {wrong!r}; (choose|contraction_\S+ takes) "
        assert any(re.search(wanted, f) for f in faults)


def test_results_wait_for_whole_rows_in_one_order_only():
    program = across()
    usual, rows = edited(program, {"order": "rows"})
    assert said(usual, "transposed_rows") == {V3.tuning.turned_rows}
    assert not said(rows, "transposed_rows")
    plan = lower(program, rows, V3)
    assert not any(k.scratch for k in plan.kernels)
    both = replace(usual, groups=tuple(
        g.saying(lambda c: c.with_said({"order": "rows"})) for g in usual.groups))
    assert any("transposed_rows 48 in order 'rows'" in f for f in check_schedule(program, both, V3))


def test_completing_keeps_what_was_said():
    program = product(40)
    _, after = edited(program, {"order": "rows"})
    again = complete(program, after, V3)
    assert any(x.order == "rows" for g in again.groups for x in g.choices.values())


@pytest.mark.parametrize("program, choices, target", OTHERS,
                         ids=["-".join(f"{k}-{v}" for k, v in c.items()) for _, c, _ in OTHERS])
def test_choices_of_other_vectors_and_of_shared_work_items(program, choices, target):
    before, after = edited(program, choices, target)
    assert text(program, after, target) != text(program, before, target)


@pytest.mark.skipif(not runs_here(V4), reason="the CPU has no AVX-512")
def test_vectors_of_columns_that_are_read_again(tmp_path):
    cases = [Case(f"{p.name} {c}", p, edited(p, c, t)[1]) for p, c, t in OTHERS if t == V4]
    build_cases(cases, V4, tmp_path).check(5)


@pytest.fixture
def simulator():
    try:
        find_cxx()
    except ToolchainError as err:
        pytest.skip(str(err))


@pytest.mark.product
def test_edited_schedules_run_on_the_simulator(tmp_path, simulator):
    cases = [Case(f"{p.name} {c}", p, edited(p, c, GPU)[1]) for p, c in SHARED]
    build_cases(cases, GPU, tmp_path).check(3)


def test_an_edited_schedule_is_verified_on_the_simulator(tmp_path, simulator):
    """From a file, as a user edits it: two copies of a small product in flight."""
    w = numpy_helper.from_array(np.linspace(-1, 1, 96, dtype=np.float32).reshape(24, 4), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (50, 24))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (50, 4))], [w])
    model, file = tmp_path / "small.onnx", tmp_path / "small.json"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    bundle = aotc.compile(model, tmp_path / "b", target=GPU.name).path
    schedule = Schedule.from_json((bundle / "schedule.json").read_text())
    group, = schedule.groups
    edit = group.saying(lambda c: replace(c, stages=2))
    file.write_text(replace(schedule, groups=(edit,)).to_json())
    results = verify(model, target=GPU.name, simulate=True, schedule=file, report=str)
    assert len(results) == 2 and all(match.ok for _, match in results)


SLOWER = [({"stages": 2}, GPU), ({"a_fetch": "value"}, GPU), ({"b_width": 1}, GPU),
          ({"a_along": "rows"}, GPU), ({"reread": 3}, V4), ({"unroll": 1}, RISCV)]


@pytest.mark.parametrize("choices, target", SLOWER, ids=[next(iter(c)) for c, _ in SLOWER])
def test_the_cost_sees_choices(choices, target):
    """What deciders choose costs nothing more, other choices do."""
    program = product(300, rows=300)
    usual, other = edited(program, choices, target)
    judge = Judge(apply_rewrites(program, usual.rewrites), target)
    seconds = [sum(judge.priced(g).seconds for g in s.groups)
               for s in (usual, other, keep_said(program, usual, target))]
    assert seconds[0] == pytest.approx(seconds[2], rel=1e-9) and seconds[1] > seconds[0]


def test_the_cost_sees_how_many_threads_fold_a_row():
    usual, other = edited(rows(), {"team": 1}, GPU)
    judge = Judge(rows(), GPU)
    assert judge.priced(other.groups[0]).seconds > judge.priced(usual.groups[0]).seconds


def with_choices(program, choices, target):
    """The decided Schedule of a Program of one stage, which says the choices."""
    schedule = decide(program, target)
    group, = schedule.groups
    return replace(schedule, groups=(group.saying(lambda c: c.with_said(choices)),))


def test_choices_of_other_machines_and_teams_that_do_not_fit_are_refused():
    for choices, target in (({"apart": 0}, GPU), ({"stages": 2}, V3)):
        program = product(40)
        faults = check_schedule(program, with_choices(program, choices, target), target)
        assert any(f"loops has {next(iter(choices))!r}" in f for f in faults)
    for program, choices, fault in (
            (product(40), {"stages": 1}, "stages 1; contraction_f32_.* takes 2 to 8"),
            (halves(), {"stages": 7}, "stages 7; contraction_f16_.* takes 2 to 6")):
        schedule = decide(program, GPU)
        wide = replace(schedule, groups=tuple(g.saying(
            lambda c, choices=choices: c.with_said(choices) if c.said else c)
            for g in schedule.groups))
        assert any(re.search(fault, f) for f in check_schedule(program, wide, GPU))
    anywhere = replace(GPU, aligned=False)
    for choices in ({"a_width": 4}, {"a_width": 2}, {"b_width": 4, "b_along": "sum"}):
        with pytest.raises(ScheduleError, match="; choose ._fetch copy, ._width 1"
                           if "a_width" in choices else "; choose b_fetch copy, b_width 4"):
            lower(product(40), with_choices(product(40), choices, anywhere), anywhere)
    with pytest.raises(ScheduleError, match="neighbours 4; no elements lie side by side at a "
                                            "multiple of their accesses here: remove neighbours"):
        lower(rows(), with_choices(rows(), {"neighbours": 4}, anywhere), anywhere)
    schedule = decide(halves(), GPU)
    copied = replace(schedule, groups=tuple(g.saying(
        lambda c: c.with_said({"a_fetch": "copy"} if c.row.startswith("contraction") else {}))
        for g in schedule.groups))
    with pytest.raises(ScheduleError, match="; choose a_fetch value, a_width"):
        lower(halves(), copied, GPU)
    for team in (3, 16):
        with pytest.raises(ScheduleError, match=f"team {team}; choose a power of two, at most 8"):
            lower(rows(), with_choices(rows(), {"team": team}, GPU), GPU)
    with pytest.raises(ScheduleError, match=r"team 32; choose a power of two, at most 4 \(64 rows"):
        lower(means(), with_choices(means(), {"team": 32}, GPU), GPU)
