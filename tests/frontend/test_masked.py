"""x[mask] = value: the places that NonZero finds in data, scattered to, are a choice."""

import numpy as np
import pytest
from frontend_cases import compare, helper, model_of, numpy_helper, program_of, rand, run

from aotc.errors import UnsupportedError

F = np.float32
FEEDS = [{"x": rand(*s, 4), "m": rand(*s, seed=1) > share}
         for s, share in (((2, 5), 0), ((1, 1), 9), ((3, 2), -9))]
FEEDS[0]["x"][0, 0, 0] = np.nan
FEEDS[0]["x"][1, 1, 1] = np.inf


def node(op, inputs, *outputs, **attrs):
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


def assigned(updates, consts=None, inputs=None, outputs=("y",), dtype=F, extents=("b", "s")):
    """x[m] = the tensor u that the nodes ``updates`` make; "idx" are the places, "rows" their
    shape."""
    nodes = [node("NonZero", ["m"], "nz"), node("Transpose", ["nz"], "idx", perm=[1, 0]),
             node("Shape", ["idx"], "is", start=0, end=1),
             node("Concat", ["is", "four"], "rows", axis=0), *updates,
             node("ScatterND", ["x", "idx", "u"], "y")]
    inputs = inputs or {"x": (dtype, (*extents, 4)), "m": (bool, extents)}
    return model_of(nodes, inputs, outputs, {"four": np.array([4]), **(consts or {})})


def expanded(v, dtype=F, **more):
    return assigned([node("Expand", ["v", "rows"], "u")], {"v": np.asarray(v, dtype)},
                    dtype=dtype, **more)


MODELS = {
    "a number": expanded([0]), "a scalar": expanded(np.nan), "a row": expanded(rand(4)),
    "a row of rank 2": expanded(rand(1, 4)),
    "a constant of a shape": assigned([node("ConstantOfShape", ["rows"], "u", value=(
        numpy_helper.from_array(np.array([3], F))))]),
    "reshaped": assigned([node("Expand", ["v", "rows"], "e"), node("Reshape", ["e", "rows"], "u")],
                         {"v": np.array([2], F)}),
    "what was there, negated": assigned([node("GatherND", ["x", "idx"], "g"),
                                         node("Mul", ["g", "v"], "h"), node("Neg", ["h"], "u")],
                                        {"v": np.array(2, F)}),
}


@pytest.mark.parametrize("name", MODELS)
def test_assignment_under_a_mask_is_a_choice(name):
    program = program_of(MODELS[name])
    assert not any("nz" in out or "idx" in out for s in program.steps for out in s.outs)
    for feeds in FEEDS:
        compare(MODELS[name], feeds, ("onnxruntime",))


def test_assignment_of_other_types():
    for dtype in (np.float16, np.int64):
        x = (FEEDS[0]["x"][..., :] * 10)
        compare(expanded([7], dtype), {"x": np.nan_to_num(x, posinf=9).astype(dtype),
                                       "m": FEEDS[0]["m"]}, ("onnxruntime",))


def test_rows_of_another_tensor():
    model = assigned([node("GatherND", ["z", "idx"], "u")], inputs={
        "x": (F, ("b", "s", 4)), "z": (F, ("b", "s", 4)), "m": (F, ("b", "s"))})
    compare(model, {"x": rand(2, 3, 4), "z": rand(2, 3, 4, seed=3),
                    "m": np.array([[0, np.nan, 1], [0, -0.0, 2]], F)}, ("onnxruntime",))


def test_a_mask_may_be_smaller_than_what_is_assigned_to():
    for extents in ((2, 5), (2, 0)):
        model = assigned([node("GatherND", ["z", "idx"], "u")], inputs={
            "x": (F, (3, 7, 4)), "z": (F, (2, 9, 4)), "m": (bool, extents)})
        compare(model, {"x": rand(3, 7, 4), "z": rand(2, 9, 4),
                        "m": rand(*extents, seed=1) > 0}, ("onnxruntime",))


def test_places_that_the_caller_wants_are_counted():
    model = expanded(rand(4), outputs=("y", "nz"))
    program = program_of(model)
    made = dict(zip(program.outputs, run(program, FEEDS[0])))
    wanted = np.nonzero(FEEDS[0]["m"])
    count = made["nz_count"]
    assert program.buffers["nz_count"].counts == (("nz", 1),) and count == len(wanted[0])
    np.testing.assert_array_equal(made["nz"][:, :count], wanted)


def test_rows_that_differ_are_refused():
    with pytest.raises(UnsupportedError, match="expand one element or one row"):
        program_of(expanded(rand(2, 4)))
