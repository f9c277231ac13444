"""Recurrent layers, quantisation, scatter and sampling; random geometry; damaged models."""

import numpy as np
import onnx
import pytest
from frontend_cases import compare, helper, model_of, one_node, program_of, rand, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operator_tables import (
    DIRECTIONS,
    GATES,
    GRIDS,
    QUANTISED,
    REDUCTIONS,
    RUNTIME,
    grid_case,
    quantised_case,
    recurrent_case,
    scatter_cases,
)

from aotc.errors import AotcError, ModelError
from aotc.frontend import load_model, read_graph, to_program
from aotc.ir.program import Loop

QUIET = settings(max_examples=40, deadline=None, derandomize=True,
                 suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_recurrent_layer(op, direction):
    compare(*recurrent_case(op, direction).model(), RUNTIME)


def test_gru_with_linear_before_reset():
    arrays = [rand(3, 2, 4), rand(1, 9, 4, seed=1), rand(1, 9, 3, seed=2), rand(1, 18, seed=3)]
    model, feeds = one_node("GRU", arrays, dict(hidden_size=3, linear_before_reset=1), (1, 2, 3), 2)
    compare(model, feeds, RUNTIME)


@pytest.mark.parametrize("op, gates", (("RNN", 1), ("GRU", 3), ("LSTM", 4)))
@pytest.mark.parametrize("way", ("forward", "reverse", "bidirectional"))
def test_recurrent_layers_of_unknown_length(op, gates, way):
    ways = 1 + (way == "bidirectional")
    arrays = [rand(11, 2, 4), rand(ways, 3 * gates, 4), rand(ways, 3 * gates, 3)]
    model, feeds = one_node(op, arrays, dict(hidden_size=3, direction=way), (1, 2), 2,
                            shapes={"in0": ("steps", 2, 4)})
    compare(model, feeds, RUNTIME)
    assert sum(isinstance(s, Loop) for s in program_of(model).steps) == ways


@pytest.mark.parametrize("case", QUANTISED)
def test_quantisation(case):
    row = quantised_case(case)
    compare(*row.model(), RUNTIME, rtol=1e-5, atol=row.atol)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter(reduction):
    for row in scatter_cases(reduction):
        compare(*row.model(), row.executors)


def test_scatter_keeps_the_last_of_several_updates():
    model, feeds = one_node("ScatterND", [rand(4), np.array([[1], [1]]), rand(2, seed=1)])
    compare(model, feeds, ("reference",))


@pytest.mark.parametrize("mode,padding,align", GRIDS)
def test_grid_sample(mode, padding, align):
    compare(*grid_case(mode, padding, align).model(), RUNTIME)


@QUIET
@given(st.data())
def test_random_convolutions(data):
    def draw(lo, hi):
        return data.draw(st.integers(lo, hi))
    group, ic, oc = draw(1, 3), draw(1, 2), draw(1, 3)
    kernel, stride, dilation = [draw(1, 4), draw(1, 3)], [draw(1, 3), draw(1, 2)], [draw(1, 2), 1]
    pads = [draw(0, 2) for _ in range(4)]
    size = [max((k - 1) * d + 1, draw(1, 8)) for k, d in zip(kernel, dilation)]
    attrs = dict(group=group, strides=stride, dilations=dilation, pads=pads)
    x, w = rand(1, group * ic, *size), rand(group * oc, ic, *kernel, seed=1)
    compare(*one_node("Conv", [x, w], attrs, (1,)), RUNTIME)
    w = rand(group * ic, oc, *kernel, seed=1)
    extent = [(n - 1) * s + (k - 1) * d + 1 - p - q for n, s, k, d, p, q in
              zip(size, stride, kernel, dilation, pads[:2], pads[2:])]
    if min(extent) > 0:
        compare(*one_node("ConvTranspose", [x, w], attrs, (1,)), RUNTIME)


@QUIET
@given(st.data())
def test_random_pools(data):
    def draw(lo, hi):
        return data.draw(st.integers(lo, hi))
    kernel = [draw(1, 4), draw(1, 3)]
    pads = [draw(0, k - 1) for k in kernel] * 2
    attrs = dict(kernel_shape=kernel, strides=[draw(1, 3), draw(1, 3)], pads=pads,
                 ceil_mode=draw(0, 1))
    x = rand(1, 2, draw(4, 9), draw(4, 9))
    compare(*one_node("MaxPool", [x], attrs), RUNTIME)
    include = draw(0, 1)
    compare(*one_node("AveragePool", [x], attrs | dict(count_include_pad=include), opset=19),
            RUNTIME)


@QUIET
@given(st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=5), st.randoms())
def test_random_reshapes(shape, random):
    factors = [f for d in shape for f in {4: (2, 2), 6: (2, 3)}.get(d, (d,))]
    new = [1]
    for f in factors:
        new = new + [f] if random.random() < 0.5 else new[:-1] + [new[-1] * f]
    compare(*one_node("Reshape", [rand(*shape), np.array(new)], {}, (1,)))


@QUIET
@given(st.data())
def test_random_slices(data):
    bound = st.integers(-12, 12) | st.sampled_from((2**63 - 1, -2**63 + 1, 2**31 - 1))
    n = data.draw(st.integers(1, 8))
    step = data.draw(st.integers(-3, 3).filter(bool))
    start, end = data.draw(bound), data.draw(bound)
    if step < 0:  # onnxruntime reads an end beyond the extent as "to the beginning" here
        end = min(end, n - 1)
    arrays = [rand(n)] + [np.array([v]) for v in (start, end, 0, step)]
    compare(*one_node("Slice", arrays, {}, (1, 2, 3, 4)), RUNTIME)


def small_network():
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Flatten", ["c"], ["d"]),
             helper.make_node("Gemm", ["d", "v"], ["e"], transB=1),
             helper.make_node("Softmax", ["e"], ["y"])]
    return model_of(nodes, {"x": (np.float32, ("batch", 2, 6, 6))}, ["y"],
                    {"w": rand(3, 2, 3, 3), "v": rand(4, 27)})


def outcome(source):
    """A Program, or the message of one of aotc's own errors."""
    try:
        return to_program(read_graph(load_model(source)))
    except AotcError as err:
        return str(err)


@settings(QUIET, max_examples=300)
@given(st.data())
def test_damaged_models_are_refused_or_compiled(data):
    """Whatever the bytes, only aotc's own errors come out."""
    raw = bytearray(small_network().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[:data.draw(st.integers(len(raw) // 2, len(raw)))]
    assert outcome(bytes(raw))


@settings(QUIET, max_examples=200)
@given(st.data())
def test_rewired_models_are_refused_or_compiled(data):
    model = small_network()
    node = data.draw(st.sampled_from(list(model.graph.node)))
    names = ["x", "w", "v", "", "a", "b", "c", "d", "e", "y", "nowhere"]
    ops = ["Add", "Concat", "LSTM", "Resize", "LayerNormalization", "Slice", "Einsum", "Where",
           "Range", "GatherND", "Split", "DepthToSpace", "QLinearConv", "OneHot", "MatMul"]
    kind = data.draw(st.integers(0, 3))
    if kind == 0:
        node.op_type = data.draw(st.sampled_from(ops))
    elif kind == 1:
        node.input[0] = data.draw(st.sampled_from(names))
    elif kind == 2:
        del node.attribute[:]
        node.input.append(data.draw(st.sampled_from(names)))
    else:
        tensor = data.draw(st.sampled_from(list(model.graph.initializer)))
        del tensor.dims[:]
        tensor.dims.extend(data.draw(st.lists(st.integers(-2, 9), max_size=5)))
    assert outcome(model)


def test_old_opsets_are_converted():
    """Before opset 7 broadcasting was stated by attributes, and PRelu slopes were per channel."""
    x, c, slope = rand(2, 3, 4), rand(4, seed=1), rand(3, seed=2)
    nodes = [helper.make_node("Add", ["x", "c"], ["a"], broadcast=1),
             helper.make_node("PRelu", ["a", "s"], ["y"])]
    # constants were listed among the inputs then
    typed = {n: (np.float32, a.shape) for n, a in (("x", x), ("c", c), ("s", slope))}
    model = model_of(nodes, typed, ["y"], {"c": c, "s": slope}, opset=6)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    got, = run(program_of(model), {"x": x})
    total = x + c
    np.testing.assert_allclose(got, np.where(total < 0, slope[:, None] * total, total), 1e-6)


def test_definitions_of_definitions_are_expanded():
    """SoftmaxCrossEntropyLoss is defined by NegativeLogLikelihoodLoss, and that by others."""
    model, feeds = one_node("SoftmaxCrossEntropyLoss", [rand(3, 5), np.array([0, 4, 2])])
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    compare(model, feeds, ("reference",))


def test_model_functions_are_inlined():
    inner = helper.make_function("local", "Twice", ["p"], ["q"],
                                 [helper.make_node("Add", ["p", "p"], ["q"])],
                                 [helper.make_opsetid("", 18)])
    model = model_of([helper.make_node("Twice", ["x"], ["y"], domain="local")],
                     {"x": (np.float32, (3,))}, ["y"], domains=("local",))
    model.functions.append(inner)
    assert isinstance(model, onnx.ModelProto)
    compare(model, {"x": rand(3)}, ("reference",))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_beyond_the_padded_input(op):
    """Rounded up there is a window, or none; of windows that hold nothing there is no mean."""
    for kernel, stride in ((5, 4), (5, 3), (5, 2)):  # one window, none, none
        model, feeds = one_node(op, [rand(1, 1, 2)], dict(
            kernel_shape=[kernel], strides=[stride], ceil_mode=1), opset=19)
        compare(model, feeds, ("onnxruntime",))
    model, _ = one_node(op, [rand(1, 1, 2)], dict(kernel_shape=[8], strides=[2], ceil_mode=1))
    with pytest.raises(ModelError, match="must fit the padded input"):
        program_of(model)
    model, feeds = one_node("AveragePool", [rand(1, 1, 1)], dict(
        kernel_shape=[4], pads=[3, 4], dilations=[2], strides=[3]), opset=19)
    assert np.isnan(run(program_of(model), feeds)[0]).any()
