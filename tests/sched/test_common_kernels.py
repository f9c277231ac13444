"""Groups that several parts of a Schedule have: their statements are chosen, and lowered once, for
the calls of all of them."""

from dataclasses import replace

import numpy as np
from te_programs import Maker, ax, matmul

from aotc.ir.contents import nodes, with_symbols
from aotc.ir.expr import Sym
from aotc.ir.schedule import Schedule, Variant
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import decide, lower
from aotc.sched.common_kernels import lower_parts
from aotc.sched.dynamic.given import with_variants
from aotc.sched.shape_variants import parts
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import get_target

V3 = get_target("x86-64-v3")


def program():
    """y = x w v, two kernels."""
    m, rows = Maker("two"), Sym("rows", 1, 500)
    m.input("x", rows, 64)
    for name, shape in (("w", (64, 96)), ("v", (96, 40))):
        m.const(name, np.linspace(-1, 1, shape[0] * shape[1], dtype=np.float32).reshape(shape))
    matmul(m, "h", "x", "w")
    matmul(m, "y", "h", "v")
    return m.done("y")


def unwritten(*whens):
    """(Program, Schedule) of variants whose first group has another tile than the base's."""
    whole = program()
    base = decide(whole, V3, "register", written=False)
    first, second = base.groups
    other = replace(base, groups=(replace(first, tile={"i": first.tile["i"] // 2}), second))
    return whole, replace(base, variants=tuple(Variant(w, other) for w in whens))


def written_alone(whole, schedule):
    """The Program and the Schedule of the first variant, written for its own calls."""
    first = parts(whole, schedule)[0]
    return first.program, choose_writing(first.program, first.schedule, V3)


def lowered(*whens):
    """The Plans of the parts of ``unwritten``, the base's last, and the Plan of the first by
    itself."""
    whole, schedule = unwritten(*whens)
    own = parts(whole, choose_writing(whole, schedule, V3))
    return lower_parts(whole, own, V3), lower(*written_alone(whole, schedule), V3)


def statements(kernel):
    """Those of a kernel, of whatever calls."""
    return with_symbols(kernel.body, lambda s: Sym(s.name))


def ranges(plan, kernel):
    """The ends of the symbols that a Plan's kernel knows of."""
    return {(s.lo, s.hi) for s in nodes(plan.kernels[kernel]) if isinstance(s, Sym)}


def test_a_group_of_several_parts_is_lowered_once():
    (few, whole), alone = lowered({"rows": (1, 3)})
    assert statements(few.kernels[1]) == statements(whole.kernels[1])
    assert statements(few.kernels[1]) != statements(alone.kernels[1])
    assert statements(few.kernels[0]) == statements(alone.kernels[0])
    assert statements(few.kernels[0]) != statements(whole.kernels[0])
    assert ranges(few, 1) == {(1, 3)} and ranges(whole, 1) == {(4, 500)}
    assert few.weights_bytes == whole.weights_bytes


def test_its_kernel_is_right_for_the_calls_of_each():
    plans, _ = lowered({"rows": (1, 3)})
    for extent, plan in zip((1, 3, 4, 77, 500), (0, 0, 1, 1, 1)):
        x = np.random.default_rng(extent).standard_normal((extent, 64)).astype(np.float32)
        got = run_plan(plans[plan], {"x": x}, {"rows": extent})["y"]
        want = evaluate(program(), {"x": x}, {"rows": extent})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    assert not any(map(plan_faults, plans))


def test_one_extent_has_kernels_of_its_own_where_decisions_differ():
    (one, whole), alone = lowered({"rows": (1, 1)})
    assert one.kernels[0].body == alone.kernels[0].body and not ranges(one, 0)
    assert statements(one.kernels[1]) == statements(whole.kernels[1])
    assert ranges(one, 1) == {(1, 1)}


def test_its_writing_is_chosen_for_the_calls_of_all_and_stands_in_every_schedule():
    """As JSON, too, and chosen again it is the same; by itself the variant chooses otherwise."""
    whole, schedule = unwritten({"rows": (1, 3)})
    found, (_, alone) = choose_writing(whole, schedule, V3), written_alone(whole, schedule)
    variant, = found.variants
    same, other = variant.schedule.groups[1].choices, variant.schedule.groups[0].choices
    assert same == found.groups[1].choices != alone.groups[1].choices
    assert other == alone.groups[0].choices != found.groups[0].choices
    again = Schedule.from_json(found.to_json())
    assert again.hash == found.hash and choose_writing(whole, again, V3) == again


def test_lowering_reads_what_each_part_says():
    """One that says otherwise has a kernel of its own."""
    whole = program()
    base = decide(whole, V3, "register")
    first, second = base.groups
    edit = second.saying(lambda c: c.with_said({"tails": 0}))
    few, rest = lower_parts(whole, parts(whole, replace(base, variants=(
        Variant({"rows": (1, 3)}, replace(base, groups=(first, edit))),))), V3)
    assert statements(few.kernels[0]) == statements(rest.kernels[0])
    assert statements(few.kernels[1]) != statements(rest.kernels[1])


def test_a_group_that_only_few_calls_allow_is_no_other_part_s():
    """One element of a row needs no second walk over it."""
    m, i, k, r = Maker("less"), ax("i", 6), ax("k", Sym("n", 1, 99)), ax("r", Sym("n", 1, 99))
    m.input("x", 6, Sym("n", 1, 99))
    m.step("top", (i,), m.ref("x", i, r), (r,), "max")
    m.step("y", (i, k), m.ref("x", i, k) - m.ref("top", i))
    whole = m.done("y")
    schedule = choose_writing(whole, with_variants(
        whole, V3, [{"n": (1, 1)}], lambda p, t, layouts: decide(p, t, layouts=layouts)), V3)
    one, rest = lower_parts(whole, parts(whole, schedule), V3)
    assert ranges(one, 0) == set() and ranges(rest, 0) == {(2, 99)}


def test_what_two_numbers_allow_may_not_hold_of_what_lies_between():
    """Both outputs are one set of loops at 3 and at 5 columns, whose quotients undo each other;
    at 4 there is an element less: one Schedule for both does not merge them."""
    n = Sym("n", 3, 5)
    m, i, j, k = Maker("flat"), ax("i", 4), ax("j", 5), ax("k", n)
    p = ax("p", n * 20 + (n - 3) * (n - 5))
    m.input("x", 4, 5, n)
    m.step("twice", (i, j, k), m.ref("x", i, j, k) * 2.0)
    m.step("most", (i, j, k), m.ref("x", i, j, k) + m.ref("twice", i, j, k))
    m.step("row", (p,), m.ref("twice", p // (n * 5), p // n % 5, p % n))
    whole = m.done("most", "row")
    schedule = with_variants(
        whole, V3, [{"n": (3, 3)}, {"n": (5, 5)}],
        lambda q, t, layouts: decide(q, t, layouts=layouts, written=False))
    plans = lower_parts(whole, parts(whole, choose_writing(whole, schedule, V3)), V3)
    for extent, plan in zip((3, 5, 4), plans, strict=True):
        x = np.arange(20 * extent, dtype=np.float32).reshape(4, 5, extent)
        got = run_plan(plan, {"x": x}, {"n": extent})["row"]
        np.testing.assert_array_equal(got, 2 * x.reshape(-1)[:len(got)])
        assert len(got) == 20 * extent - (extent == 4) and not plan_faults(plan)
