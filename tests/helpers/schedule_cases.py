"""A network of several groups and its decided Schedule, from which tests make right and wrong
edits."""

from dataclasses import replace
from functools import reduce

import numpy as np
from te_programs import Maker, ax, matmul, relu, softmax

from aotc.sched import decide
from aotc.sched.choose.connect import register_groups
from aotc.sched.model.tilegraph import merge_groups, order_groups
from aotc.target import get_target

TARGET = get_target("x86-64-v3")


def network(rows=20):
    """matmul -> relu -> softmax; another matmul reads the softmax, a pooling reads the input."""
    rng = np.random.default_rng(0)
    m = Maker()
    m.input("x", rows, 24)
    m.const("w", rng.standard_normal((24, 40)).astype(np.float32))
    m.const("v", rng.standard_normal((40, 9)).astype(np.float32))
    matmul(m, "a", "x", "w")
    m.pointwise("b", "a", lambda e, _: relu(e))
    softmax(m, "s", "b")
    matmul(m, "y", "s", "v")
    i, o, k = ax("i", m.buffers["x"].shape[0].value), ax("o", 22), ax("k", 3)
    m.step("pool", (i, o), m.ref("x", i, o + k), (k,), "max")
    return m.done("y", "pool")


def decided():
    """Four groups: the products, the softmax as one kernel of several stages, the pooling."""
    groups = register_groups(PROGRAM)
    softmaxes = [g for g in groups if g.anchor.startswith("s_") or g.anchor == "s"]
    rows = reduce(lambda a, b: merge_groups(PROGRAM, a, b, "L1"), softmaxes)
    rows = replace(rows, tile={"i0": 20}, parallel=("i0",))
    groups = order_groups(PROGRAM, [g for g in groups if g not in softmaxes] + [rows])
    return decide(PROGRAM, TARGET, groups=tuple(
        replace(g, name=f"g{i:03d}") for i, g in enumerate(groups)))


PROGRAM = network()
GOOD = decided()


def named(schedule, computes):
    """The group of the Schedule that holds a compute."""
    return next(g for g in schedule.groups if computes in g.computes)
