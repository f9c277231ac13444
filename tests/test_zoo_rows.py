"""No real model spends its arithmetic in the slow ``loops`` row."""

import pytest
from test_zoo import OTHERS, SMALL

from aotc.frontend import load_model, read_graph, to_program
from aotc.ir.fold import fold_constants
from aotc.ir.inline import inline_moves
from aotc.ir.program import flops
from aotc.sched import check_schedule, decide
from aotc.sched.size import estimate
from aotc.target import TARGETS


def loops_share(path, target):
    """Fraction of a model's floating-point operations whose stage runs in the ``loops`` row."""
    program = fold_constants(to_program(read_graph(load_model(path))))
    program = fold_constants(inline_moves(program))
    schedule = decide(program, target)
    assert not check_schedule(program, schedule, target)
    total = slow = 0
    for group in schedule.groups:
        for name in group.computes:
            n = estimate(flops(program.producer[name]))
            total += n
            # a compute inlined into a stage runs in that stage's row
            rows = {group.ukernel[name]} if name in group.ukernel else set(group.ukernel.values())
            slow += n if "loops" in rows else 0
    return slow / total


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", [
    *SMALL, *(pytest.param(n, marks=pytest.mark.zoo) for n in OTHERS)])
def test_at_most_one_percent_of_the_flops_in_loops(zoo_model, name, target):
    assert loops_share(zoo_model(name), TARGETS[target]) <= 0.01
