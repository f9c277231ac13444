"""Resampling by phase: the same bytes, no look-up per element, chosen where lanes run along the
caller's columns."""

import numpy as np
import onnxruntime
import pytest
from harness import every

from aotc import compile as compile_model
from aotc import load
from aotc.errors import ScheduleError
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.passes.images.polyphase import find_resampling, resamplings
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline
from benchmarks.exported.build import Writer


def resized(shape, scales, mode="linear", where="half_pixel", conv=False, **attrs):
    """A Resize of an input; conv: of what a convolution has made, which another one reads."""
    g = Writer("resized")
    x = g.input("x", shape)
    x = g.conv(x, shape[1], shape[1]) if conv else x
    x = g.op("Resize", x, "", np.array(scales, np.float32), mode=mode,
             coordinate_transformation_mode=where, **attrs)
    return g.model(g.conv(x, shape[1], shape[1]) if conv else x)


CASES = {
    "linear by 2": resized([1, 3, 5, 19], [1, 1, 2, 2]),
    "linear by 3/2": resized([2, 3, 4, 26], [1, 1, 1.5, 1.5]),
    "linear by 8/5, columns": resized([1, 2, 19, 20], [1, 1, 1, 1.6]),
    "linear by 3/4": resized([1, 3, 24, 40], [1, 1, 0.75, 0.75]),
    "cubic by 2": resized([1, 3, 5, 18], [1, 1, 2, 2], "cubic", cubic_coeff_a=-0.75),
    "cubic by 3": resized([1, 1, 3, 11], [1, 1, 3, 3], "cubic"),
    "cubic by 2, without what lies outside": resized([1, 2, 4, 17], [1, 1, 2, 2], "cubic",
                                                     exclude_outside=1),
    "asymmetric by 4": resized([1, 3, 3, 9], [1, 1, 4, 4], where="asymmetric"),
    "a line by 5/2": resized([2, 45, 14], [1, 1, 2.5]),
}


def inlined(model):
    return run_pipeline(Options(model, stop_after="inline")).program


def noisy(shape):
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    x.reshape(-1)[[0, 7, -1]] = np.nan, np.inf, -np.inf
    return x


def shape_of(model):
    return [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]


@pytest.mark.parametrize("name", CASES)
def test_bytes_stay_the_same(name):
    program = inlined(CASES[name])
    ((compute, found),) = [x for x in resamplings(program) if x[0] in program.outputs]
    new = apply_rewrites(program, (("polyphase", compute, {}),))
    assert find_resampling(new, new.producer[compute]) is None
    assert not [n for n in new.producer[compute].loads if n.buffer == found.source]
    feeds = {"x": noisy(shape_of(CASES[name]))}
    for a, b in zip(evaluate(program, feeds).values(), evaluate(new, feeds).values()):
        np.testing.assert_array_equal(a, b)


# few elements are looked up, and eight lanes do that about as fast
AS_FAST = ("linear by 8/5, columns", "linear by 3/4", "a line by 5/2")


@pytest.mark.parametrize("name", every(CASES, 3))
def test_runs_like_onnx_runtime_and_leaves_little_to_plain_loops(name, tmp_path):
    model = CASES[name]
    work = run_pipeline(Options(model, target="x86-64-v3", stop_after="schedule"))
    taken = [rule for rule, _, _ in work.schedule.rewrites]
    assert taken == ([] if name in AS_FAST else ["polyphase"])
    if taken and name not in ("cubic by 3", "asymmetric by 4"):  # too few for vectors
        assert "loops" not in {u for g in work.schedule.groups for u in g.rows.values()}
    compile_model(model, tmp_path / "bundle", target="x86-64-v3")
    theirs = onnxruntime.InferenceSession(model.SerializeToString(),
                                          providers=["CPUExecutionProvider"])
    x = np.random.default_rng().standard_normal(shape_of(model)).astype(np.float32)
    (got,), (want,) = load(tmp_path / "bundle").run({"x": x}).values(), theirs.run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", [
    resized([1, 3, 5, 19], [1, 1, 2, 2], where="align_corners"),
    resized([1, 8, 6, 16], [1, 1, 2, 2], conv=True),  # channels innermost: no lanes along columns
], ids=["align_corners", "between convolutions"])
def test_others_stay_as_they_are(model):
    taken = run_pipeline(Options(model, stop_after="schedule")).schedule.rewrites
    assert "polyphase" not in {rule for rule, *_ in taken}


def test_what_cannot_be_is_told():
    program = inlined(CASES["linear by 2"])
    with pytest.raises(ScheduleError, match="no map that scales.*choose from resize_0"):
        apply_rewrites(program, (("polyphase", "y", {}),))
    with pytest.raises(ScheduleError, match="takes no parameters"):
        apply_rewrites(program, (("polyphase", "resize_0", {"by": 2}),))
