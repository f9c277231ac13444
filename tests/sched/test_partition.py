"""States of the search for groups: what may be merged is what leaves an order, exactly."""

import random
from types import SimpleNamespace

import pytest
from te_programs import Maker

from aotc.errors import ScheduleError
from aotc.sched.candidates.partition import Partition
from aotc.sched.choose.connect import separate_groups
from aotc.sched.model.tilegraph import merge_groups, order_groups
from aotc.target import get_target

LEVEL = get_target("c").machine.homes[0].name


def random_maps(rng, count):
    """A Program of maps, each of one to three that were made before it."""
    m = Maker()
    m.input("x", 4)
    names = ["x"]
    for n in range(count):
        near = names[-6:] if rng.random() < 0.7 else names
        sources = rng.sample(near, min(len(near), rng.randint(1, 3)))
        names.append(m.pointwise(f"t{n}", sources[0], lambda e, a, sources=sources: sum(
            (m.ref(s, a[0]) for s in sources[1:]), e)))
    return m.done(*names[-3:])


class Whoever:
    """A judge to whom every merge is legal."""

    own = frozenset()

    def __init__(self, program):
        self.program, self.numbers = program, {}

    def verdict(self, group):
        return SimpleNamespace(seconds=1.0)

    def number(self, value):
        return self.numbers.setdefault(value, len(self.numbers))

    def merge(self, a, b):
        return merge_groups(self.program, a, b, LEVEL), 0.0


@pytest.mark.parametrize("seed", range(12))
def test_groups_join_exactly_where_no_other_group_lies_between(seed):
    rng = random.Random(seed)
    program = random_maps(rng, 24)
    judge = Whoever(program)
    state = Partition.of(program, separate_groups(program), judge)
    edges = [(b, s.outs[0]) for b in program.producer for s in program.consumers.get(b, ())]
    rng.shuffle(edges)
    refused = 0
    for source, sink in edges:
        a, b = (state.groups[state.owner[c]] for c in (source, sink))
        if a is b:
            continue
        new = state.joined(source, sink, judge)
        assert (new is None) == waits(program, state, a, b)
        refused += new is None
        state = new or state
        groups = order_groups(program, state.all_groups())
        owner = {c: g.name for g in groups for c in g.computes}
        for s in program.steps:  # ranks are an order of the groups
            for read in s.inputs:
                if read in owner and owner[read] != owner[s.outs[0]]:
                    assert state.ranks[owner[read]] < state.ranks[owner[s.outs[0]]]
    assert refused


def waits(program, state, a, b):
    """True if groups wait for each other once two are one."""
    others = [g for g in state.all_groups() if g is not a and g is not b]
    try:
        order_groups(program, [*others, merge_groups(program, a, b, LEVEL)])
    except ScheduleError:
        return True
    return False
