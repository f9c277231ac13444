"""Pad that repeats elements: numpy's rule at any distance from the input, what negative amounts cut
is cut first, and nothing is repeated of an axis without elements."""

import numpy as np
import pytest
from frontend_cases import helper, one_node, program_of, rand, run

from aotc.errors import AotcError, FaultError
from aotc.oracle.evaluate import evaluate

AMOUNTS = ([0, 0], [1, 2], [3, 3], [6, 7], [40, 0], [-1, 6], [9, -2], [2, -1], [-1, -2], [-3, 9])


def by_numpy(x, before, after, mode):
    x = x[max(-before, 0): x.shape[0] - max(-after, 0)]
    return np.pad(x, [(max(before, 0), max(after, 0)), (0, 0)], mode=mode)


def padded(mode, x, amounts, fed, shapes=None):
    """(model, feeds) of a Pad of the first axis; ``fed``: the amounts are an input."""
    before, after = amounts
    arrays = [x, np.array([before, 0, after, 0])]
    model, feeds = one_node("Pad", arrays, dict(mode=mode), () if fed else (1,), shapes=shapes)
    if fed:
        shape = (x.shape[0] + before + after, x.shape[1])
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("out0", 1, shape))
    return model, feeds


@pytest.mark.parametrize("fed", (False, True))
@pytest.mark.parametrize("mode", ("reflect", "edge", "wrap"))
def test_repeats_at_any_distance(mode, fed):
    for n in (1, 2, 4, 7):
        x = rand(n, 3)
        for before, after in AMOUNTS:
            if n - max(-before, 0) - max(-after, 0) < 1:
                continue
            model, feeds = padded(mode, x, (before, after), fed)
            out, = run(program_of(model), feeds)
            np.testing.assert_array_equal(out, by_numpy(x, before, after, mode))


@pytest.mark.parametrize("mode", ("reflect", "edge", "wrap"))
def test_an_axis_of_any_extent(mode):
    for before, after in AMOUNTS:
        model, _ = padded(mode, rand(4, 3), (before, after), False, {"in0": ("n", 3)})
        least = 1 + max(-before, 0) + max(-after, 0)
        program = program_of(model, dims={"n": (least, 9)})
        for n in range(least, 10):
            x = rand(n, 3)
            out, = evaluate(program, {"in0": x}).values()
            np.testing.assert_array_equal(out, by_numpy(x, before, after, mode))


@pytest.mark.parametrize("mode", ("reflect", "edge", "wrap"))
def test_nothing_to_repeat_is_refused_or_a_fault(mode):
    model, _ = padded(mode, rand(4, 3), (2, 1), False, {"in0": ("n", 3)})
    program = program_of(model, dims={"n": (0, 9)})
    with pytest.raises(FaultError, match="elements to repeat"):
        evaluate(program, {"in0": rand(0, 3)})
    for x, amounts in ((rand(0, 3), (1, 1)), (rand(4, 3), (9, -4)), (rand(4, 3), (9, -6))):
        with pytest.raises(AotcError):
            program_of(padded(mode, x, amounts, False)[0])
        with pytest.raises(AotcError):
            model, feeds = padded(mode, x, amounts, True)
            run(program_of(model), feeds)
    model, _ = padded(mode, rand(4, 3), (0, 0), False, {"in0": ("n", 3)})
    assert not program_of(model, dims={"n": (0, 9)}).checks
