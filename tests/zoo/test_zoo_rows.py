"""No real model spends its arithmetic in the slow ``loops`` row."""

import pytest
from zoo_files import OTHERS, SMALL
from zoo_plans import TARGET, planned

from aotc.ir.program import flops
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import check_schedule, decide
from aotc.sched.model.size import estimate
from aotc.target import TARGETS


def loops_share(program, schedule):
    """Fraction of a Program's floating-point operations whose stage runs in the ``loops`` row."""
    total = slow = 0
    for group in schedule.groups:
        for name in group.computes:
            n = estimate(flops(program.producer[name]))
            total += n
            # a compute inlined into a stage runs in that stage's row
            rows = {group.rows[name]} if name in group.rows else set(group.rows.values())
            slow += n if "loops" in rows else 0
    return slow / total


@pytest.mark.parametrize("name, target", [
    pytest.param(n, t, marks=() if n == "bert_tiny" or n in SMALL and t == TARGET
                 else pytest.mark.zoo)
    for n in SMALL + OTHERS for t in ("x86-64-v3", TARGET)])
def test_at_most_one_percent_of_the_flops_in_loops(zoo_model, name, target):
    work = planned(zoo_model(name))
    if target == TARGET:  # with what is rewritten first; its schedule has been checked
        program, schedule = apply_rewrites(work.program, work.schedule.rewrites), work.schedule
    else:
        program, schedule = work.program, decide(work.program, TARGETS[target])
        assert not check_schedule(program, schedule, TARGETS[target])
    assert loops_share(program, schedule) <= 0.01
