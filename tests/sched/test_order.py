"""Which tiled axis of a group is outermost, and which work items lie in a square: bytes decide."""

from dataclasses import replace

import numpy as np
import pytest
from te_programs import Maker, ax

from aotc.ir.expr import Const, substitute
from aotc.ir.schedule import Schedule
from aotc.ir.simplify import simplify
from aotc.ir.statements import TILE
from aotc.sched import check_schedule
from aotc.sched.choose.order import order_items
from aotc.sched.decide import decide
from aotc.sched.model.boxes import tile_anchor
from aotc.sched.model.stages import group_stages
from aotc.target import get_target

GPU = get_target("cuda:sm_80")
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


def product(m, k, n, batch=1):
    """y = x w of f32[batch, m, k] and f32[k, n], or of a matrix w for each of the batch."""
    p = Maker()
    b, i, j, r = ax("b", batch), ax("i", m), ax("j", n), ax("r", k)
    p.input("x", batch, m, k)
    p.input("w", batch, k, n)
    p.step("y", (b, i, j), p.ref("x", b, i, r) * p.ref("w", b, r, j), (r,), "sum")
    return p.done("y")


def places(program, group):
    """Where each work item of a group begins, along the axes that are cut."""
    (anchor,) = group_stages(program, group)
    tile = tile_anchor(anchor, group)
    out = []
    for number in range(tile.count.value):
        known = {TILE: Const(number)}
        for name, value in tile.let:
            known[name] = simplify(substitute(value, known))
        begin = {name.name: value.value for name, value in known.items()}
        out.append(tuple(begin[f"{a}_lo"] for a in group.tile))
    return out


def test_large_products_go_in_square_patches():
    """At a time as many rows of tiles are at work as columns, about; each tile once."""
    program = product(4096, 4096, 4096)
    schedule = decide(program, GPU)
    (group,) = schedule.groups
    assert group.patch and Schedule.from_json(schedule.to_json()) == schedule
    assert check_schedule(program, schedule, GPU) == []
    found = places(program, group)
    assert len({*found}) == len(found) == 64 * 64
    workers, plain = GPU.machine.workers, places(program, replace(group, patch={}))
    for first in range(0, len(found) - workers, 7 * workers):
        now = found[first:first + workers]
        lines = [len({p[d] for p in now}) for d in (-2, -1)]
        assert sum(lines) <= 3 * workers ** 0.5, (first, lines)
    assert sum(len({p[d] for p in plain[:workers]}) for d in (-2, -1)) > 6 * workers ** 0.5


def test_patches_part_every_product_of_a_batch():
    program = product(256, 64, 192, batch=3)
    (group,) = decide(program, GPU).groups
    assert not group.patch  # all of it fits into the memory that workers share
    tile = {"b": 1, "i": 32, "j": 64}
    for patch in ({"i": 4}, {"j": 3}, {"i": 8}):
        found = places(program, replace(group, flat=(), tile=tile, parallel=tuple(tile),
                                        patch=patch))
        assert [p[0] for p in found] == sorted(p[0] for p in found)
        assert {*found} == {(b, i, j) for b in range(3) for i in range(0, 256, 32)
                            for j in range(0, 192, 64)} and len(found) == 3 * 8 * 3
    assert [p[1:] for p in places(program, replace(
        group, flat=(), tile=tile, parallel=tuple(tile), patch={"i": 4}))][:6] == [
        (0, 0), (32, 0), (64, 0), (96, 0), (0, 64), (32, 64)]


@pytest.mark.parametrize("patch", [{"i": 3}, {"i": 0}, {"k": 2}, {"i": 2, "j": 2}, {"b": 1}])
def test_patches_are_of_whole_tiles(patch):
    program = product(256, 64, 192, batch=3)
    schedule = decide(program, GPU)
    (g,) = schedule.groups
    tile = {"b": 1, "i": 32, "j": 64}
    wrong = replace(schedule, groups=(replace(g, tile=tile, parallel=tuple(tile), patch=patch),))
    (fault,) = check_schedule(program, wrong, GPU)
    assert "what divides its tiles: i has 8, j has 3" in fault


def test_workers_that_take_neighbours_have_no_patches():
    program, group = matmul_group(784, 512, 128, {"i": 196, "j": 64})
    schedule = decide(program, CPU)
    (fault,) = check_schedule(program, replace(schedule, groups=(
        replace(group, patch={"i": 2}),)), CPU)
    assert "takes neighbouring work items" in fault
