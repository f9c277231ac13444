"""Library kernels of blocks of threads, simulated, against ONNX Runtime and the evaluator: places
in order, what a condition keeps, updates, boxes."""

import numpy as np
import pytest
from cusim_build import needs_cxx
from frontend_cases import EXECUTORS, one_node
from onnx import helper

import aotc
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.pipeline import run_pipeline

TARGET = "cuda:sm_80"
pytestmark = needs_cxx
F, I = np.float32, np.int64
JOINS = ("none", "add", "mul", "max", "min")


def run(folder, op, arrays, attrs=None, consts=(), outputs=1, shapes=None, opset=18):
    """(outputs on the simulator, those of the evaluator, those of ONNX Runtime), in order."""
    model, feeds = one_node(op, arrays, attrs, consts, outputs, opset)
    for info, (dtype, shape) in zip(model.graph.output, shapes or ()):
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        info.CopyFrom(helper.make_tensor_value_info(info.name, elem, shape))
    bundle = aotc.compile(model, folder, target=TARGET, name="net")
    assert any(f.name.startswith("aotc_block") for f in folder.iterdir())
    got = bundle.load(simulate="random:7").run(feeds)
    program = run_pipeline(Options(source=model, out=None, target=TARGET,
                                   stop_after="inline")).program
    ours = evaluate(program, {program.buffers[b].name: feeds[program.buffers[b].onnx]
                              for b in program.inputs})
    by_name = {program.buffers[b].onnx or b: a for b, a in ours.items()}
    names = [o.name for o in model.graph.output]
    return ([got[n] for n in names], [by_name[n] for n in names],
            EXECUTORS["onnxruntime"](model, feeds))


def alike(results):
    got, *others = results
    for other in others:
        for a, b in zip(got, other, strict=True):
            np.testing.assert_array_equal(a, b)


def numbers(dtype, *shape):
    """With ties, and of floats NaNs, infinities and both zeros."""
    r = np.random.default_rng()
    x = r.integers(-20, 20, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        for special in (np.nan, np.inf, -np.inf, -0.0):
            x.reshape(-1)[r.integers(0, x.size, 3)] = special
    return x


@pytest.mark.parametrize("n,k", [(1500, 700), (300, 300), pytest.param(
    2000, 1, marks=pytest.mark.product), pytest.param(33, 2, marks=pytest.mark.product)])
@pytest.mark.parametrize("largest", (1, 0))
def test_first_elements_in_order(tmp_path, n, k, largest):
    x = numbers(F, 3, n)
    if not largest:  # ONNX Runtime has no one place for NaN there
        x = np.nan_to_num(x, nan=5.0)
    alike(run(tmp_path / "b", "TopK", [x, np.array([k])], dict(largest=largest), (1,), 2))


@pytest.mark.product
@pytest.mark.parametrize("dtype", ("f8", "i4", "i8", "u8", "i1", "u1"))
def test_first_elements_of_any_dtype(tmp_path, dtype):
    x = numbers("i8" if dtype == "i8" else dtype, 2, 700)
    if dtype in ("i8", "u8"):
        x = x << np.array(40, x.dtype)
    model, feeds = one_node("TopK", [x, np.array([50])], dict(axis=1), (1,), 2)
    got = aotc.compile(model, tmp_path / "b", target=TARGET).load(simulate=True).run(feeds)
    rank = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    order = np.argsort(-rank, axis=1, kind="stable")[:, :50]
    np.testing.assert_array_equal(got["out1"], order)
    np.testing.assert_array_equal(got["out0"], np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("n,share", [(5000, 0.3), pytest.param(
    40, 1.0, marks=pytest.mark.product), pytest.param(3000, 0.001, marks=pytest.mark.product)])
def test_what_a_condition_keeps(tmp_path, n, share):
    keep = np.random.default_rng().random(n) < share
    x = numbers(F, n, 2)
    alike(run(tmp_path / "b", "Compress", [x, keep], dict(axis=0),
              shapes=[(F, (int(keep.sum()), 2))]))


@pytest.mark.parametrize("how", [JOINS[1], *(pytest.param(
    j, marks=pytest.mark.product) for j in JOINS if j != "add")])
def test_single_updates_are_joined_in_order(tmp_path, how):
    """Many hit one element, some none; of floats that are whole numbers, whose sums are exact."""
    r = np.random.default_rng()
    x, at = r.integers(-9, 9, (4, 900)).astype(F), r.integers(-900, 900, (4, 700))
    at[1] = 3
    updates = r.integers(-9, 9, at.shape).astype(F)
    updates[1] = r.choice([-1, 1], 700)
    alike(run(tmp_path / "b", "ScatterElements", [x, at, updates], dict(axis=1, reduction=how)))


@pytest.mark.parametrize("width,how", [(40, "add"), *(pytest.param(
    w, j, marks=pytest.mark.product) for w, j in ((3, "none"), (3, "add"), (300, "max"),
                                                  (40, "none"), (1, "mul")))])
def test_rows_of_updates_are_joined_in_order(tmp_path, width, how):
    r = np.random.default_rng()
    x = r.integers(-9, 9, (150, width)).astype(F)
    at, updates = r.integers(0, 150, (400, 1)), r.integers(-2, 3, (400, width)).astype(F)
    alike(run(tmp_path / "b", "ScatterND", [x, at, updates], dict(reduction=how)))


@pytest.mark.parametrize("dtype", ["int32", *(pytest.param(
    d, marks=pytest.mark.product) for d in ("float64", "int64", "uint8", "bool"))])
def test_updates_of_any_dtype(tmp_path, dtype):
    r = np.random.default_rng()
    x, at = r.integers(0, 99, 500).astype(dtype), r.integers(0, 500, (800, 1))
    updates = r.integers(0, 99, 800).astype(dtype)
    how = "none" if dtype == "bool" else "add"
    alike(run(tmp_path / "b", "ScatterND", [x, at, updates], dict(reduction=how)))


def boxes(batches, classes, n):
    r = np.random.default_rng()
    corner = r.random((batches, n, 2)) * 10
    scores = r.integers(0, 50, (batches, classes, n)).astype(F) / 50  # ties
    return np.concatenate([corner, corner + r.random((batches, n, 2)) * 4], 2).astype(F), scores


@pytest.mark.parametrize("batches,classes,n,most,least,centred", [
    (2, 3, 400, 30, True, 0), *(pytest.param(*x, marks=pytest.mark.product) for x in (
        (1, 1, 900, 900, False, 0), (2, 2, 60, 5, True, 1), (1, 4, 40, 0, True, 0)))])
def test_boxes_that_do_not_overlap(tmp_path, batches, classes, n, most, least, centred):
    arrays = [*boxes(batches, classes, n), np.array([most]), F([0.4])] + [F([0.3])] * least
    model, feeds = one_node("NonMaxSuppression", arrays, dict(center_point_box=centred),
                            tuple(range(2, len(arrays))))
    want = EXECUTORS["onnxruntime"](model, feeds)[0]
    alike(run(tmp_path / "b", "NonMaxSuppression", arrays, dict(center_point_box=centred),
              tuple(range(2, len(arrays))), shapes=[(I, want.shape)]))


def test_scores_that_are_no_numbers_are_of_no_box(tmp_path):
    given, scores = boxes(1, 1, 300)
    scores[0, 0, ::7] = np.nan
    scores[0, 0, 3::7] = np.inf
    scores[0, 0, 5::7] = -np.inf
    model, feeds = one_node("NonMaxSuppression", [
        given, scores, np.array([300]), F([0.4])], consts=(2, 3))
    program = run_pipeline(Options(source=model, out=None, target="c",
                                   stop_after="inline")).program
    want = evaluate(program, {b: feeds[program.buffers[b].onnx] for b in program.inputs})
    got = aotc.compile(model, tmp_path / "b", target=TARGET).load(simulate="reverse").run(feeds)
    count = len(next(iter(got.values())))
    np.testing.assert_array_equal(got["out0"], want["out0"][:count])
    assert count and not (want["out0"][count:]).any()


def test_headers_travel_only_where_they_are_called(tmp_path):
    model, _ = one_node("Relu", [np.zeros((2, 3), F)])
    aotc.compile(model, tmp_path / "b", target=TARGET)
    assert not {"aotc_block.h", "aotc_topk.h"} & {f.name for f in (tmp_path / "b").iterdir()}
