"""Operators of hundreds of inputs: as computes of at most so many each, with the same values."""

import numpy as np
import pytest
from frontend_cases import compare, one_node, program_of, rand

from aotc.frontend.ops.numeric.ops_math import RUN
from aotc.frontend.ops.tensors.ops_shape import PARTS


def many(op, arrays, attrs=None, shapes=None):
    """A model of one node over an input and constants: (ModelProto, feeds)."""
    return one_node(op, arrays, attrs, tuple(range(1, len(arrays))), shapes=shapes)


@pytest.mark.parametrize("count", (RUN + 1, 3 * RUN, RUN * RUN + 5))
@pytest.mark.parametrize("op", ("Sum", "Mean", "Max", "Min"))
def test_operands_of_different_shapes(op, count):
    arrays = [rand(*((3, 4), (4,), (3, 1))[i % 3], seed=i) for i in range(count)]
    arrays[0][1, 2] = np.nan
    arrays[0][2, 1] = np.inf
    model, feeds = many(op, arrays)
    compare(model, feeds, ("onnxruntime",))
    assert len(program_of(model).steps) < 2 * count // RUN + 3


@pytest.mark.parametrize("axis", (0, 1, -1))
@pytest.mark.parametrize("count", (PARTS + 1, 3 * PARTS - 7))
def test_parts_of_different_extents(axis, count):
    shape = [2, 3, 2]
    arrays = []
    for i in range(count):
        shape[axis] = 1 + i % 3
        arrays.append(rand(*shape, seed=i))
    compare(*many("Concat", arrays, {"axis": axis}), ("onnxruntime",))


def test_parts_of_a_free_extent():
    arrays = [rand(3, 2, seed=i) for i in range(PARTS + 9)]
    model, _ = many("Concat", arrays, {"axis": 0}, shapes={"in0": ("n", 2)})
    for n in (1, 6):
        compare(model, {"in0": rand(n, 2)}, ("onnxruntime",), dims={"n": (1, 8)})
