"""The form of the Computes that the scheduler recognises kernels by."""

import numpy as np
import pytest
from frontend_cases import compare, helper, model_of, one_node, program_of, rand, run
from half_models import halved

from aotc.ir.dtypes import from_bf16, to_bf16
from aotc.ir.expr import Binary, Load, Where, walk
from aotc.ir.program import Compute, Fold


def bodies(program):
    return [str(s) for s in program.steps]


def test_convolution_is_a_product_with_its_bias_apart():
    model, _ = one_node("Conv", [rand(1, 3, 8, 8), rand(4, 3, 3, 3), rand(4)],
                        dict(strides=[2, 2]), (1, 2))
    assert bodies(program_of(model)) == [
        "out0_sum[n, oc, oh, ow] = sum(ic, kh, kw) "
        "in0[n, ic, kh + oh * 2, kw + ow * 2] * in1[oc, ic, kh, kw]",
        "out0[n, oc, oh, ow] = out0_sum[n, oc, oh, ow] + in2[oc]"]


def test_padding_guards_only_what_can_lie_outside():
    model, _ = one_node("Conv", [rand(1, 1, 8, 8), rand(1, 1, 3, 1)], dict(pads=[1, 0, 0, 0]), (1,))
    assert bodies(program_of(model)) == [
        "out0[n, oc, oh, ow] = sum(ic, kh, kw) where(kh + oh - 1 >= 0, "
        "in0[n, ic, kh + oh - 1, kw + ow], 0.0) * in1[oc, ic, kh, kw]"]


def test_depthwise_convolution_has_one_channel_axis():
    model, _ = one_node("Conv", [rand(1, 4, 6, 6), rand(4, 1, 3, 3)], dict(group=4), (1,))
    step, = program_of(model).steps
    assert [a.name for a in step.axes] == ["n", "c", "oh", "ow"]
    assert [a.name for a in step.raxes] == ["kh", "kw"]


def test_grouped_convolution_ends_in_a_move():
    model, _ = one_node("Conv", [rand(1, 4, 6, 6), rand(6, 2, 3, 3)], dict(group=2), (1,))
    weights, product, move = program_of(model).steps
    assert str(weights).endswith("in1[i0 * 3 + i1, i2, i3, i4]"), "folded away where constant"
    assert [a.name for a in product.axes] == ["n", "g", "o", "oh", "ow"]
    assert ("in0[n, g * 2 + ic, kh + oh, kw + ow] * " + weights.out + "[g, o, ic, kh, kw]"
            in str(product))
    assert isinstance(move.body, Load) and move.fold == "none"


def test_transposed_convolution_is_sub_pixel():
    model, _ = one_node("ConvTranspose", [rand(1, 3, 4, 4), rand(3, 2, 2, 2)],
                        dict(strides=[2, 2]), (1,))
    weights, product, move = program_of(model).steps
    assert isinstance(weights.body, Load)  # by phase, done once where they are constant
    assert str(product).endswith(
        "sum(ic) in0[n, ic, ih, iw] * out0_phases[ic, oc, ah, aw]")
    assert isinstance(move.body, Load)


def test_transposed_convolution_guards_the_kernel_only_where_it_is_ragged():
    def guards(kernel):
        model, _ = one_node("ConvTranspose", [rand(1, 1, 4, 4), rand(1, 1, kernel, kernel)],
                            dict(strides=[2, 2]), (1,))
        return isinstance(program_of(model).steps[0].body, Where)
    assert guards(3) and not guards(4)


def test_matrix_product_names_its_axes():
    model, _ = one_node("MatMul", [rand(2, 5, 3, 4), rand(4, 6)])
    assert bodies(program_of(model)) == [
        "out0[b0, b1, m, n] = sum(k) in0[b0, b1, m, k] * in1[k, n]"]


def test_transposed_gemm_only_changes_indices():
    model, _ = one_node("Gemm", [rand(4, 3), rand(5, 4)], dict(transA=1, transB=1), (1,))
    assert bodies(program_of(model)) == ["out0[m, n] = sum(k) in0[k, m] * in1[n, k]"]


def test_softmax_is_four_computes():
    model, _ = one_node("Softmax", [rand(2, 3, 4)])
    assert [s.fold for s in program_of(model).steps] == ["max", "none", "sum", "none"]


def test_layer_normalization_is_two_pass():
    model, _ = one_node("LayerNormalization", [rand(2, 8), rand(8), rand(8)], {}, (1, 2))
    program = program_of(model)
    variance = next(s for s in program.steps if s.out.endswith("var_sum"))
    assert "(in0[i0, r1] - out0_mean[i0]) * (in0[i0, r1] - out0_mean[i0])" in str(variance)
    assert sum("sqrt" in str(s) for s in program.steps) == 1


@pytest.mark.parametrize("case", [
    ("Transpose", [rand(2, 3, 4)], dict(perm=[2, 0, 1]), ()),
    ("Reshape", [rand(4, 6), np.array([2, 3, 4])], {}, (1,)),
    ("Slice", [rand(9), np.array([1]), np.array([8]), np.array([0]), np.array([2])], {},
     (1, 2, 3, 4)),
    ("Unsqueeze", [rand(3), np.array([0])], {}, (1,)),
    ("Expand", [rand(3), np.array([2, 3])], {}, (1,)),
    ("DepthToSpace", [rand(1, 8, 2, 2)], dict(blocksize=2), ()),
])
def test_moves_are_single_loads(case):
    op, arrays, attrs, consts = case
    step, = program_of(one_node(op, arrays, attrs, consts)[0]).steps
    assert step.fold == "none" and isinstance(step.body, Load)


def test_reshape_divides_only_inside_a_group():
    model, _ = one_node("Reshape", [rand(2, 12, 5), np.array([2, 3, 4, 5])], {}, (1,))
    assert bodies(program_of(model)) == ["out0[i0, i1, i2, i3] = in0[i0, i1 * 4 + i2, i3]"]


def test_argmax_keeps_value_and_index():
    model, _ = one_node("ArgMax", [rand(3, 4)], dict(axis=1))
    program = program_of(model)
    step, = program.steps
    assert isinstance(step.fold, Fold) and len(step.outs) == 2
    assert program.outputs == (step.outs[1],)


def test_indices_from_data_are_wrapped_and_checked_constants_are_not():
    checked = program_of(one_node("Gather", [rand(5, 3), np.array([1, -1])])[0])
    plain = program_of(one_node("Gather", [rand(5, 3), np.array([1, -1, 3])], {}, (1,))[0])

    def has_check(program):
        return any(isinstance(n, Binary) and n.op == "checked" for n in walk(program.steps[0].body))
    assert has_check(checked) and not has_check(plain)


def test_average_pool_multiplies_by_a_constant_and_counts_ragged_windows():
    def last(pads):
        model, _ = one_node("AveragePool", [rand(1, 1, 6, 6)], dict(kernel_shape=[3, 3], pads=pads))
        return str(program_of(model).steps[-1])
    assert "* 0.111" in last([0, 0, 0, 0])
    assert "/ f32(" in last([1, 1, 1, 1])


def _conv_norm(group=1, op="Conv", extra_use=False):
    weights = rand(4, 4 // group, 3, 3) if op == "Conv" else rand(4, 4 // group, 3, 3)
    nodes = [helper.make_node(op, ["x", "w"], ["c"], name="the_conv", group=group),
             helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"],
                              name="the_norm")]
    stats = {k: rand(4, seed=i) for i, k in enumerate("sbm")} | {"v": np.abs(rand(4, seed=9)) + 0.1}
    outputs = ["y", "c"] if extra_use else ["y"]
    return model_of(nodes, {"x": (np.float32, (1, 4, 7, 7))}, outputs, {"w": weights} | stats)


@pytest.mark.parametrize("op", ("Conv", "ConvTranspose"))
@pytest.mark.parametrize("group", (1, 2, 4))
def test_batch_normalization_folds_into_the_weights(op, group):
    program = compare(_conv_norm(group, op), {"x": rand(1, 4, 7, 7)}, ("onnxruntime",))
    assert len(program.consts) == 2
    assert all(s.origin == ("the_conv", "the_norm") for s in program.steps)


def test_batch_normalization_stays_where_its_input_is_read_elsewhere():
    program = compare(_conv_norm(extra_use=True), {"x": rand(1, 4, 7, 7)}, ("onnxruntime",))
    assert {s.origin for s in program.steps} == {("the_conv",), ("the_norm",)}


def test_batch_normalization_of_bf16_stays_and_is_right():
    """Weights that are bits of another type are not multiplied as what holds them."""
    model, x = _conv_norm(), rand(1, 4, 7, 7)
    program, bits = program_of(halved(model, "bf16")), to_bf16(x)
    (want,) = run(program_of(model), {"x": from_bf16(bits)})
    (got,) = run(program, {"x": bits})
    np.testing.assert_allclose(from_bf16(got), want, atol=0.05 * np.abs(want).max())


@pytest.mark.parametrize("transposed", (0, 1))
def test_batch_normalization_folds_into_gemm(transposed):
    w = rand(4, 3) if transposed else rand(3, 4)
    nodes = [helper.make_node("Gemm", ["x", "w", "c"], ["t"], transB=transposed, beta=0.5),
             helper.make_node("BatchNormalization", ["t", "s", "b", "m", "v"], ["y"])]
    consts = {"w": w, "c": rand(4, seed=5), "v": np.abs(rand(4, seed=9)) + 0.1}
    consts |= {k: rand(4, seed=i) for i, k in enumerate("sbm")}
    model = model_of(nodes, {"x": (np.float32, (2, 3))}, ["y"], consts)
    program = compare(model, {"x": rand(2, 3)})
    assert len(program.steps) == 2


def test_every_output_has_a_step_of_its_own():
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Relu", ["x"], ["r"]),
             helper.make_node("Shape", ["x"], ["shape"])]
    outputs = ["same", "x", "r", "w", "shape"]
    model = model_of(nodes, {"x": (np.float32, (2, 3))}, outputs, {"w": rand(2)})
    model.graph.output.append(model.graph.output[2])
    program = program_of(model)
    x = rand(2, 3)
    got = run(program, {"x": x})
    assert len(set(program.outputs)) == 6
    assert all(isinstance(program.producer[o], Compute) for o in program.outputs)
    assert all(program.buffers[o].role == "output" for o in program.outputs)
    for g, w in zip(got, [x, x, np.maximum(x, 0), rand(2), [2, 3], np.maximum(x, 0)]):
        np.testing.assert_array_equal(g, w)


HOSTILE = ("int", "exp", 'a"; system("x")', "*/ evil /*", "new\nline", "", "ü", "x" * 5000, "X",
           "x", "_", "9lives", "a.b", "a/b", "a_b", "aotc_run", "n", "i0", "weights[0]", "%s%n")


def test_hostile_names_become_distinct_identifiers():
    names = [n or "e" for n in HOSTILE]
    nodes = [helper.make_node("Relu", [names[-1]], [names[0]])] + [
        helper.make_node("Neg", [a], [b], name=a) for a, b in zip(names, names[1:-1])]
    model = model_of(nodes, {names[-1]: (np.float32, (2,))}, [names[-2]])
    program = program_of(model)
    assert len(program.buffers) == len(names)
    for name, buffer in program.buffers.items():
        assert name.isidentifier() and name.isascii() and name == name.lower() and len(name) <= 40
        assert name[0].isalpha() and name not in ("int", "exp", "n", "i0")
        assert buffer.onnx in names
    x = np.array([1, -2], np.float32)
    sign = -1 if (len(names) - 2) % 2 else 1
    np.testing.assert_array_equal(run(program, {names[-1]: x})[0], sign * np.maximum(x, 0))
