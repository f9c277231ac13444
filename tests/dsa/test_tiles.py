"""Tiles for a machine whose engines copy: all that a work item touches lies in scratch."""

from math import prod

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import make_model
from te_programs import Maker, conv2d, matmul

from aotc.ir.contents import buffers_in
from aotc.ir.statements import Copy, walk_body, without_bodies
from aotc.sched import decide, lower
from aotc.sched.accelerator.kernels.scratchpad_tile import fitted_tile, item_bytes
from aotc.sched.model.group_model import group_model
from aotc.target import get_target
from aotc.tools.verify import verify

TARGET = get_target("dsa:stcp920")


def product(rows, terms, columns):
    m = Maker("product")
    m.input("x", rows, terms)
    m.const("w", np.ones((terms, columns), np.float32))
    matmul(m, "y", "x", "w")
    return m.done("y")


def image(channels, size):
    m = Maker("image")
    m.input("x", 1, channels, size, size)
    conv2d(m, "y", "x", m.const("w", np.ones((channels, channels, 3, 3), np.float32)), 1, 1)
    return m.done("y")


def residuals(rows, terms, columns):
    """A product whose results go on with two other tensors of their size."""
    m = Maker("residuals")
    m.input("x", rows, terms), m.input("r", rows, columns), m.input("s", rows, columns)
    m.const("w", np.ones((terms, columns), np.float32))
    matmul(m, "h", "x", "w")
    m.pointwise("y", "h", lambda e, axes: (e + m.ref("r", *axes)) * m.ref("s", *axes))
    return m.done("y")


@pytest.mark.parametrize("program", [product(200, 300, 500), product(7, 3000, 90), image(40, 33),
                                     image(300, 14), image(5, 100), residuals(64, 1300, 600)],
                         ids=["wide", "long", "image", "deep", "large", "residuals"])
def test_nothing_is_reached_outside_of_scratch(program):
    plan = lower(program, decide(program, TARGET), TARGET)
    for k in (k for k in plan.kernels if k.lowered.stages):  # the others are of clusters
        outside = {*k.reads, *k.writes}
        touched = {b for s in walk_body(k.body) if not isinstance(s, Copy)
                   for b in buffers_in(without_bodies(s))}
        assert not touched & outside, k
        assert k.slab_bytes <= TARGET.machine.near.capacity
        sums = prod(d.value for d in program.shape("y"))  # in whole register tiles
        assert k.tiles.value >= min(TARGET.machine.workers, -(-sums // (16 * 16)))


def test_the_largest_tile_that_fits_is_found():
    program = product(64, 64, 64)
    group, = decide(program, TARGET).groups
    model = group_model(program, group)
    tile = fitted_tile(model, TARGET.machine, {})
    assert item_bytes(model, model.variables(tile)) <= TARGET.machine.room(TARGET.machine.near)
    assert fitted_tile(model, TARGET.machine, {}, whole=model.axes) == {}  # it fits as it is


def test_a_sum_that_scratch_cannot_hold_is_reached_in_place():
    """A row of the left operand alone is larger than scratch."""
    program = product(3, 20000, 4)
    plan = lower(program, decide(program, TARGET), TARGET)
    assert all(k.slab_bytes <= TARGET.machine.near.capacity for k in plan.kernels)
    group = decide(program, TARGET).groups[0]
    assert fitted_tile(group_model(program, group), TARGET.machine, {}) is None


def test_half_precision_is_stored_as_such(tmp_path):
    rng, f16 = np.random.default_rng(3), TensorProto.FLOAT16
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    model = make_model(nodes, {"x": (f16, [5, 24])}, {"y": (f16, [5, 9])},
                       {"w": rng.standard_normal((24, 9)).astype(np.float16)})
    path = tmp_path / "half.onnx"
    path.write_bytes(model.SerializeToString())
    matches = verify(path, TARGET.name, report=lambda line: None)
    assert matches and all(m.ok for _, m in matches), matches
