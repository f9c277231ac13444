"""Ordering and choosing, half precision, and resampling: against numpy, the reference evaluator and
ONNX Runtime, on fresh random data with ties and NaN in it."""

import frontend_cases
import numpy as np
import pytest
from frontend_cases import by_onnxruntime, helper, one_node, program_of, rand, run, same
from onnx import parser
from onnx.reference import ReferenceEvaluator

from aotc.errors import FaultError, UnsupportedError
from aotc.frontend.building import calls
from aotc.ir.library import HOSTED
from aotc.target import get_target

I64, F = np.int64, np.float32


HOW = {"library": HOSTED, "threads": get_target("cuda").library, "expressions": ()}


@pytest.fixture(params=HOW)
def how(request, monkeypatch):
    """By library kernels, of C or of blocks of threads, however short the rows are; by tensor
    expressions, however long."""
    monkeypatch.setattr(calls, "SMALL_ROW", 0)
    monkeypatch.setattr(frontend_cases, "LIBRARY", HOW[request.param])


def declared(op, arrays, outputs, attrs=None, opset=18, consts=()):
    """(model, feeds) of a node whose outputs [(dtype, shape)] are declared."""
    model, feeds = one_node(op, arrays, attrs, consts, len(outputs), opset)
    for info, (dtype, shape) in zip(model.graph.output, outputs):
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        info.CopyFrom(helper.make_tensor_value_info(info.name, elem, shape))
    return model, feeds


def numbers(shape, dtype=F, seed=0):
    """Few different values, so that there are ties."""
    return np.random.default_rng(seed).integers(0, 7, shape).astype(dtype)


# ---------------------------------------------------------------- TopK

@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("dtype", (F, np.float64, I64, np.int32))
@pytest.mark.parametrize("largest", (0, 1))
@pytest.mark.parametrize("axis,k", [(0, 3), (1, 1), (-1, 11), (2, 0)])
def test_top_k(dtype, largest, axis, k):
    model, feeds = one_node("TopK", [numbers((5, 3, 11), dtype), np.array([k])], dict(
        axis=axis, largest=largest), (1,), 2)
    same(run(program_of(model), feeds), by_onnxruntime(model, feeds))


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("n", (6, 100))
@pytest.mark.parametrize("largest", (0, 1))
def test_top_k_takes_nan_for_the_largest(n, largest):
    x = np.full(n, -np.inf if largest else np.inf, F)
    x[:6] = [1, np.nan, 3, np.nan, -np.inf, np.inf]
    model, feeds = one_node("TopK", [x, np.array([6])], dict(largest=largest), (1,), 2)
    values, places = run(program_of(model), feeds)
    first = ([1, 3, 5, 2, 0, 4] if largest else
             [4, 0, 2, 5, 1, 3] if n == 6 else [4, 0, 2, 5, 6, 7])
    assert places.tolist() == first
    np.testing.assert_array_equal(values, x[places])


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("dtype", (F, I64, np.uint8, np.int32))
@pytest.mark.parametrize("largest", (0, 1))
def test_top_k_round_by_round(dtype, largest):
    x = np.random.default_rng(5).integers(0, 200, (3, 300, 2)).astype(dtype)
    model, feeds = one_node("TopK", [x, np.array([7])], dict(axis=1, largest=largest), (1,), 2)
    order = np.argsort(x if not largest else -x.astype(I64), axis=1, kind="stable")[:, :7]
    values, places = run(program_of(model), feeds)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_top_k_of_more_than_there_is_and_of_too_many():
    model, _ = one_node("TopK", [rand(4), np.array([5])], {}, (1,), 2)
    with pytest.raises(Exception, match="no more elements than there are"):
        program_of(model)
    model, _ = one_node("TopK", [np.zeros(20000, F), np.array([99])], {}, (1,), 2)
    with pytest.raises(UnsupportedError, match="at most 16384"):
        program_of(model, library=())
    program_of(model)


# ---------------------------------------------------------------- Unique, NonZero, Compress

@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("axis", (None, 0, 1, -1))
@pytest.mark.parametrize("ordered", (0, 1))
@pytest.mark.parametrize("seed", range(3))
def test_unique(axis, ordered, seed):
    x = np.random.default_rng(seed).integers(0, 2, (4, 3, 2)).astype(F)
    attrs = dict(sorted=ordered) | ({} if axis is None else dict(axis=axis))
    model, feeds = one_node("Unique", [x], attrs, (), 4)
    wanted = by_onnxruntime(model, feeds)
    model, feeds = declared("Unique", [x], [(w.dtype, w.shape) for w in wanted], attrs)
    same(run(program_of(model), feeds), wanted)


def test_another_number_of_results_is_a_fault():
    x = np.array([1, 0, 2, 0, 3], F)
    model, feeds = declared("NonZero", [x], [(I64, (1, 3))])
    same(run(program_of(model), feeds), [np.array([[0, 2, 4]])])
    for wrong in (np.zeros(5, F), np.ones(5, F), np.array([0, 0, 0, 1, 1], F)):
        with pytest.raises(FaultError):
            run(program_of(model), {"in0": wrong})


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (1, 1)])
def test_non_zero(shape):
    x = numbers(shape) * (numbers(shape, seed=1) > 2)
    count = int(np.count_nonzero(x))
    model, feeds = declared("NonZero", [x], [(I64, (len(shape), count))])
    same(run(program_of(model), feeds), [np.array(np.nonzero(x))])


def test_non_zero_of_what_a_loop_gathers():
    """A few elements of data, each in a buffer of its own."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float x) => (float last, int64[2, 3] y) <int64 n = {4}, bool go = {1}> {
          last, seen = Loop (n, go, x) <body = b (int64 i, bool c, float s)
            => (bool c2, float next, float[1] kept) {
              c2 = Identity (c)
              one = Constant <value = float[1] {1}> ()
              kept = Sub (s, one)
              first = ReduceSum <keepdims = 0> (one)
              next = Add (s, first)
          }>
          y = NonZero (seen)
        }""")
    same(run(program_of(model), {"x": F(-1)})[1:], [np.array([[0, 1, 3], [0, 0, 0]])])
    with pytest.raises(FaultError):
        run(program_of(model), {"x": F(7)})


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("axis", (None, 0, 1))
@pytest.mark.parametrize("known", (True, False))
def test_compress(axis, known):
    x, flags = rand(4, 5), np.array([True, False, True, True])
    want = np.compress(flags, x, axis=axis)
    model, feeds = declared("Compress", [x, flags], [(F, want.shape)],
                            {} if axis is None else dict(axis=axis), consts=(1,) if known else ())
    same(run(program_of(model), feeds), [want])


# ---------------------------------------------------------------- boxes

@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("centre", (0, 1))
def test_non_max_suppression(seed, centre):
    rng = np.random.default_rng(seed)
    boxes = rng.random((2, 12, 4)).astype(F) * (1 if centre else 3)
    scores = rng.random((2, 3, 12)).astype(F)
    arrays = [boxes, scores, np.array([4]), np.array([0.3], F), np.array([0.2], F)]
    attrs = dict(center_point_box=centre)
    model, feeds = one_node("NonMaxSuppression", arrays, attrs)
    wanted = by_onnxruntime(model, feeds)
    model, feeds = declared("NonMaxSuppression", arrays, [(I64, wanted[0].shape)], attrs)
    same(run(program_of(model), feeds), wanted)


# ---------------------------------------------------------------- half precision

@pytest.mark.parametrize("op", ("Add", "Sub", "Mul", "Div"))
def test_half_precision_arithmetic_is_correctly_rounded(op):
    rng = np.random.default_rng(3)
    x, y = (rng.integers(0, 1 << 16, 4096).astype(np.uint16).view(np.float16) for _ in "xy")
    model, feeds = one_node(op, [x, y])
    with np.errstate(all="ignore"):
        fn = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[op]
        want = fn(x.astype(np.float64), y.astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(run(program_of(model), feeds)[0], want)


@pytest.mark.parametrize("op,arrays,attrs", [
    ("Transpose", [rand(3, 4).astype(np.float16)], {}),
    ("Gemm", [rand(3, 4).astype(np.float16), rand(4, 5).astype(np.float16)], {}),
    ("Softmax", [rand(3, 40).astype(np.float16)], {}),
    ("Pad", [rand(3, 4).astype(np.float16), np.array([1, 0, 0, 2])], {}),
    ("ReduceMean", [rand(3, 400).astype(np.float16)], {}),
])
def test_half_precision_tensors(op, arrays, attrs):
    model, feeds = one_node(op, arrays, attrs, (1,) if op == "Pad" else ())
    same(run(program_of(model), feeds), ReferenceEvaluator(model).run(None, feeds), 5e-3, 5e-3)


def test_half_precision_conversions():
    x = np.array([0, -0.0, 1e-8, 6e-8, 6.1e-5, 65504, 65519.9, 65520, np.inf, np.nan, 1 / 3], F)
    model, feeds = one_node("Cast", [x], dict(to=10))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(program_of(model), feeds)[0], x.astype(np.float16))


# ---------------------------------------------------------------- resampling

FREE = {"in0": ["b", "c", "h", "w"]}


@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
@pytest.mark.parametrize("coord", ("half_pixel", "pytorch_half_pixel", "align_corners",
                                   "asymmetric", "half_pixel_symmetric", "tf_half_pixel_for_nn",
                                   "tf_crop_and_resize"))
@pytest.mark.parametrize("scale", (0.6, 1.0, 1.7, 3.0))
def test_scales_give_what_onnxruntime_has(mode, coord, scale):
    """Constants, free extents, and data, which the standard's suite has its own rule for."""
    x, scales = rand(1, 2, 5, 7), np.array([1, 1, scale, scale], F)
    attrs = dict(mode=mode, coordinate_transformation_mode=coord)
    model, feeds = one_node("Resize", [x, None, scales], attrs, (2,))
    want = by_onnxruntime(model, feeds)
    same(run(program_of(model), feeds), want)
    if coord != "tf_crop_and_resize":
        model, feeds = one_node("Resize", [x, None, scales], attrs, (2,), shapes=FREE)
        same(run(program_of(model), feeds), want)
    if coord == "align_corners":
        want = ReferenceEvaluator(model).run(None, feeds)
    model, feeds = declared("Resize", [x, None, scales], [(F, want[0].shape)], attrs)
    same(run(program_of(model), feeds), want)


@pytest.mark.parametrize("mode", ("nearest", "linear"))
@pytest.mark.parametrize("scales", ([1, 1, 0.6, 0.3], [1, 1, 1.6, 0.7], [1, 1, 2, 3]))
def test_the_oldest_resize(mode, scales):
    """Opset 10: the nearest element is above where it gets smaller, else below."""
    x, scales = rand(1, 1, 9, 10), np.array(scales, F)
    model, feeds = one_node("Resize", [x, scales], dict(mode=mode), (1,), opset=10)
    want = by_onnxruntime(model, feeds)
    same(run(program_of(model), feeds), want)
    model, feeds = one_node("Resize", [x, scales], dict(mode=mode), (1,), 1, 10, FREE)
    same(run(program_of(model), feeds), want)
    model, feeds = declared("Resize", [x, scales], [(F, want[0].shape)], dict(mode=mode), opset=10)
    same(run(program_of(model), feeds), want)


@pytest.mark.parametrize("coord", ("half_pixel", "asymmetric", "align_corners"))
@pytest.mark.parametrize("rounding", ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
def test_the_nearest_element_is_onnxruntimes_at_any_extents(coord, rounding):
    """Quotients that are whole, or halves, but for their rounding."""
    attrs = dict(mode="nearest", coordinate_transformation_mode=coord, nearest_mode=rounding)
    for n, m in ((7, 1), (7, 17), (7, 38), (14, 2), (14, 34), (15, 51), (7, 2), (4, 95), (26, 61)):
        x = np.arange(n, dtype=F).reshape(1, 1, 1, n)
        model, feeds = one_node("Resize", [x, None, None, np.array([1, 1, 1, m])], attrs, (3,))
        same(run(program_of(model), feeds), by_onnxruntime(model, feeds))


def test_a_crop_is_the_whole_image_where_none_is_said():
    x = rand(1, 1, 5, 6)
    for mode, sizes in (("linear", [1, 1, 8, 3]), ("nearest", [1, 1, 1, 9])):
        attrs = dict(mode=mode, coordinate_transformation_mode="tf_crop_and_resize")
        model, feeds = one_node("Resize", [x, None, None, np.array(sizes)], attrs, (3,))
        same(run(program_of(model), feeds), by_onnxruntime(model, feeds))
        model, feeds = one_node("Resize", [x, np.zeros(0, F), None, np.array(sizes)], attrs, (1, 3))
        assert np.isfinite(run(program_of(model), feeds)[0]).all()


@pytest.mark.parametrize("mode", ("linear", "cubic"))
@pytest.mark.parametrize("attrs", [dict(antialias=1), dict(exclude_outside=1),
                                   dict(antialias=1, exclude_outside=1)])
@pytest.mark.parametrize("size", ((3, 4), (9, 8)))
def test_weights_of_the_special_kinds(mode, attrs, size):
    model, feeds = one_node("Resize", [rand(1, 1, 6, 7), None, None, np.array([1, 1, *size])],
                            dict(mode=mode, **attrs), (3,))
    same(run(program_of(model), feeds), ReferenceEvaluator(model).run(None, feeds))


@pytest.mark.parametrize("policy", ("not_larger", "not_smaller"))
def test_aspect_ratios_are_kept(policy):
    model, feeds = one_node("Resize", [rand(1, 1, 4, 6), None, None, np.array([7, 8])], dict(
        mode="nearest", axes=[2, 3], keep_aspect_ratio_policy=policy), (3,))
    same(run(program_of(model), feeds), ReferenceEvaluator(model).run(None, feeds))


def test_boxes_that_are_not_declared_have_room(how):
    """Two of each class at most: as many rounds, and room for twelve."""
    rng = np.random.default_rng()
    boxes = rng.random((2, 30, 4)).astype(F)
    scores = rng.random((2, 3, 30)).astype(F)
    model, feeds = one_node("NonMaxSuppression", [boxes, scores, np.array(2), F(0.3), F(0.9)],
                            consts=(2, 3, 4))
    wanted, = by_onnxruntime(model, feeds)
    program = program_of(model)
    assert len(program.steps) < 20 and program.shape(program.outputs[0])[0].value == 12
    got, count = run(program, feeds)
    assert count == len(wanted)
    np.testing.assert_array_equal(got[:count], wanted)
    assert not got[count:].any()
