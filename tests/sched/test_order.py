"""Which tiled axis of a group is outermost: bytes per worker decide."""

from dataclasses import replace

import numpy as np
import pytest
from te_programs import Maker, ax

from aotc.sched.choose.order import order_items
from aotc.sched.decide import decide
from aotc.target import get_target

CPU = get_target("x86-64-v4")


def matmul_group(m, k, n, tile):
    p = Maker()
    i, j, r = ax("i", m), ax("j", n), ax("r", k)
    p.input("x", m, k)
    p.const("w", np.zeros((k, n), np.float32))
    p.step("y", (i, j), p.ref("x", i, r) * p.ref("w", r, j), (r,), "sum")
    program = p.done("y")
    group = decide(program, CPU).groups[0]
    return program, replace(group, tile=tile, parallel=tuple(tile))


@pytest.mark.parametrize("m, k, n, tile, order", [
    (784, 512, 128, {"i": 196, "j": 64}, "ij"),    # x 1.6 MB, w 0.26 MB: a worker reads half of x
    (196, 1024, 512, {"i": 48, "j": 128}, "ji"),   # x 0.8 MB, w 2 MB: half of w
    (256, 256, 256, {"i": 64, "j": 64}, "ij"),     # alike: rows stay with the worker
    (784, 512, 128, {"i": 784, "j": 64}, "ij"),    # nothing to choose: as given
])
def test_a_worker_reads_its_part_of_the_larger_operand(m, k, n, tile, order):
    program, group = matmul_group(m, k, n, tile)
    assert "".join(order_items(program, CPU.machine, group).parallel) == order


def test_the_order_of_items_that_are_blocks_of_threads_is_as_given():
    program, group = matmul_group(196, 1024, 512, {"i": 48, "j": 128})
    gpu = get_target("cuda:sm_90").machine
    assert order_items(program, gpu, group).parallel == ("i", "j")


def test_axes_of_one_tile_stay_in_front():
    p = Maker()
    b, i, j = ax("b", 1), ax("i", 64), ax("j", 4096)
    p.input("x", 1, 64, 4096)
    p.step("y", (b, i, j), p.ref("x", b, i, j))
    program = p.done("y")
    group = replace(decide(program, CPU).groups[0], tile={"j": 512, "b": 1, "i": 8})
    found = order_items(program, CPU.machine, replace(group, parallel=("j", "b", "i")))
    assert found.parallel == ("b", "i", "j")
