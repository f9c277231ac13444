"""What is not there: indices of no dimensions, boxes that are none, elements around a constant,
parameters that are left out."""

import numpy as np
import pytest
from frontend_cases import (
    by_onnxruntime,
    by_reference,
    helper,
    model_of,
    one_node,
    program_of,
    rand,
    run,
    same,
)

from aotc.errors import ModelError, UnsupportedError
from aotc.ir.library import HOSTED
from aotc.target import get_target

F, I = np.float32, np.int64
node = helper.make_node
LIBRARY = pytest.mark.parametrize("library", (HOSTED, get_target("cuda").library, ()))


@LIBRARY
@pytest.mark.parametrize("reduction", ("none", "add", "mul", "max", "min"))
@pytest.mark.parametrize("lead", ((), (3,), (2, 2), (0,)))
def test_an_index_of_no_dimensions_puts_in_whole_tensors(lead, reduction, library):
    x, updates = rand(2, 3), rand(*lead, 2, 3, seed=1)
    model, feeds = one_node("ScatterND", [x, np.zeros((*lead, 0), I), updates],
                            dict(reduction=reduction))
    same(run(program_of(model, library=library), feeds), by_reference(model, feeds))


@pytest.mark.parametrize("batch", (0, 1))
def test_an_index_of_no_dimensions_takes_whole_tensors(batch):
    x = rand(2, 3)
    model, feeds = one_node("GatherND", [x, np.zeros((2, 4, 0), I)], dict(batch_dims=batch))
    wanted = np.stack([x] * 8).reshape(2, 4, 2, 3) if not batch else np.stack([x] * 4, 1)
    got = run(program_of(model), feeds)
    same(got, [wanted])
    same(got, by_onnxruntime(model, feeds))


@LIBRARY
@pytest.mark.parametrize("batches,classes,boxes", [(1, 2, 0), (0, 1, 3), (2, 0, 3)])
def test_of_no_boxes_none_is_selected(batches, classes, boxes, library):
    arrays = [np.zeros((batches, boxes, 4), F), np.zeros((batches, classes, boxes), F), np.array(3)]

    def declared(count):
        model, feeds = one_node("NonMaxSuppression", arrays, consts=(2,))
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info(
            "out0", helper.TensorProto.INT64, (count, 3)))
        return model, feeds
    model, feeds = declared(0)
    same(run(program_of(model, library=library), feeds), [np.zeros((0, 3), I)])
    if not library:
        with pytest.raises(ModelError, match="of no boxes none is selected"):
            program_of(declared(2)[0], library=())


def test_a_scan_over_no_batch_is_refused():
    info = helper.make_tensor_value_info
    body = helper.make_graph([node("Add", ["a", "e"], ["s"]), node("Identity", ["s"], ["o"])], "b",
                             [info(n, 1, [2]) for n in "ae"], [info(n, 1, [2]) for n in "so"])
    scan = node("Scan", ["", "x0", "xs"], ["y", "z"], body=body, num_scan_inputs=1)
    with pytest.raises(UnsupportedError, match="Scan.*empty batch; pin the dimension"):
        program_of(model_of([scan], {"x0": (F, (0, 2)), "xs": (F, (0, 3, 2))}, ["y", "z"], opset=8))


# ---------------------------------------------------------------- around what is known

@pytest.mark.parametrize("op,amount", [("Pad", [0, 3]), ("Pad", [3, 0]), ("Pad", [2, 2]),
                                       ("CenterCropPad", [7]), ("CenterCropPad", [1])])
@pytest.mark.parametrize("held", (np.array([7, 9], I), np.array([3], np.int32), np.zeros(0, I),
                                  np.array([1.5, 2], F), np.array([True, False])))
def test_what_lies_around_a_constant(op, amount, held):
    """The elements of a short constant are known one by one; outside it there is none to read."""
    model, _ = one_node(op, [held, np.array(amount, I)], consts=(0, 1))
    same(run(program_of(model), {}), by_reference(model, {}))


@pytest.mark.parametrize("amount", ([2, 0], [0, 2], [1, 1]))
def test_what_lies_around_a_shape(amount):
    nodes = [node("Shape", ["x"], ["s"]), node("Pad", ["s", "p", "one"], ["q"]),
             node("Reshape", ["x", "q"], ["y"])]
    model = model_of(nodes, {"x": (F, ("n", 4))}, ["y"],
                     {"p": np.array(amount, I), "one": np.array(1, I)})
    feeds = {"x": rand(3, 4)}
    same(run(program_of(model), feeds), by_onnxruntime(model, feeds))


# ---------------------------------------------------------------- parameters that are left out

CONTRIB = "com.microsoft"


def test_a_mean_without_zero_points_has_those_of_zero():
    x = np.random.default_rng(0).integers(0, 255, (2, 3, 4, 5)).astype(np.uint8)

    def model(zero):
        return one_node("QLinearGlobalAveragePool", [x, F(0.5), zero, F(0.75), zero],
                        dict(domain=CONTRIB), (1, 3) if zero is None else (1, 2, 3, 4))
    same(run(program_of(model(None)[0]), {"in0": x}), by_onnxruntime(*model(np.uint8(0))))


def test_scales_that_are_left_out():
    x = np.zeros((2, 3), np.uint8)
    model, _ = one_node("QLinearSigmoid", [x, None, None, F(1), None], dict(domain=CONTRIB), (3,))
    with pytest.raises(ModelError, match="QLinearSigmoid.*input 1 is missing"):
        program_of(model)


@pytest.mark.parametrize("scale,zero", [(F(1.5), None), (None, np.uint8(3))])
def test_a_product_with_half_a_quantisation_is_refused(scale, zero):
    """Its result would be no u8 or, at another scale, no f32."""
    a, b, s, z = np.zeros((2, 3), np.uint8), np.ones((3, 2), np.uint8), F(0.5), np.uint8(1)
    consts = (1, 2, 3, 4, 5, 7 if zero is None else 8)
    model, _ = one_node("QGemm", [a, s, z, b, s, z, None, scale, zero], dict(domain=CONTRIB),
                        consts)
    with pytest.raises(UnsupportedError, match="QGemm.*y_scale and y_zero_point.*give both"):
        program_of(model)


def _cropped(x, roi):
    return one_node("Resize", [x, roi, None, np.array([1, 1, 3, 3])], dict(
        mode="linear", coordinate_transformation_mode="tf_crop_and_resize"),
        (3,) if roi is None else (1, 3))


@pytest.mark.parametrize("roi", (None, np.zeros(0, F)))
def test_a_crop_without_its_region_takes_all(roi):
    x = rand(1, 1, 4, 4)
    whole = np.array([0] * 4 + [1] * 4, F)
    got, want = (run(program_of(model), feeds) for model, feeds in (
        _cropped(x, roi), _cropped(x, whole)))
    np.testing.assert_array_equal(got[0], want[0])


def test_a_crop_of_half_a_region_is_refused():
    with pytest.raises(ModelError, match="needs a region .roi. of 8 numbers, it has"):
        program_of(_cropped(rand(1, 1, 4, 4), np.zeros(3, F))[0])


@pytest.mark.parametrize("change", (dict(max_skip_count=-1), dict(mode="TFIDFX")))
def test_n_grams_that_are_counted_no_way(change):
    attrs = dict(mode="TF", max_gram_length=1, min_gram_length=1, max_skip_count=0,
                 ngram_counts=[0], ngram_indexes=[0, 1], pool_int64s=[2, 3]) | change
    with pytest.raises(ModelError, match="TfIdfVectorizer.*use TF, IDF or TFIDF, and 0 or more"):
        program_of(one_node("TfIdfVectorizer", [np.array([2, 3, 3, 1])], attrs)[0])
