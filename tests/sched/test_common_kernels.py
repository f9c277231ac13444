"""Groups that several parts of a Schedule have: one kernel for the calls of all of them."""

from dataclasses import replace

import numpy as np
from te_programs import Maker, matmul

from aotc.ir.contents import nodes, with_symbols
from aotc.ir.expr import Sym
from aotc.ir.schedule import Variant
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import decide, lower
from aotc.sched.common_kernels import lower_parts
from aotc.sched.shape_variants import parts
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


def lowered(*whens):
    """The Plans of variants whose first group has another tile than the base's, the base's last,
    and the Plan of the first by itself."""
    whole = program()
    base = decide(whole, V3, "register")
    first, second = base.groups
    other = replace(base, groups=(replace(first, tile={"i": first.tile["i"] // 2}), second))
    own = parts(whole, replace(base, variants=tuple(Variant(w, other) for w in whens)))
    return lower_parts(whole, own, V3), lower(own[0].program, own[0].schedule, V3)


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
