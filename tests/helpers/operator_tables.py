"""Nodes to try operators with: one row each, shared by the tests of the frontend (against the
numpy evaluator) and of the compiled C."""

import itertools

import numpy as np
from contrib_tables import contrib_cases
from frontend_cases import BOTH, REFERENCE, RUNTIME, NodeCase, rand
from ml_nodes import ml_rows

I64 = np.int64


def ints(*values):
    return np.array(values, I64)


def conv(x, w, bias=None, **attrs):
    arrays = [rand(*x), rand(*w, seed=1)] + ([] if bias is None else [rand(bias, seed=2)])
    return "Conv", arrays, attrs, tuple(range(1, len(arrays)))


def transposed(x, w, bias=None, **attrs):
    return ("ConvTranspose",) + conv(x, w, bias, **attrs)[1:]


# id: (op, arrays, attributes, positions of constants, opset, executors)
CASES = {
    "conv_1d": (*conv((2, 3, 17), (4, 3, 5), 4, strides=[2], pads=[1, 2]), 18, BOTH),
    "conv_2d_plain": (*conv((1, 3, 9, 8), (5, 3, 3, 3)), 18, BOTH),
    "conv_2d_dilated": (*conv((1, 2, 15, 14), (3, 2, 3, 2), 3, dilations=[2, 3], pads=[1, 0, 2, 3],
                              strides=[1, 2]), 18, BOTH),
    "conv_2d_grouped": (*conv((2, 6, 8, 8), (8, 3, 3, 3), 8, group=2, pads=[1] * 4), 18, BOTH),
    "conv_2d_depthwise": (*conv((1, 5, 8, 9), (5, 1, 3, 3), 5, group=5, pads=[1] * 4), 18, BOTH),
    "conv_2d_multiplier": (*conv((1, 4, 8, 9), (8, 1, 3, 3), group=4), 18, BOTH),
    "conv_3d": (*conv((1, 2, 5, 6, 7), (3, 2, 3, 3, 3), 3, pads=[1] * 6, strides=[1, 2, 1]), 18,
                BOTH),
    "conv_same_upper": (*conv((1, 2, 10, 11), (3, 2, 4, 3), auto_pad="SAME_UPPER",
                              strides=[2, 3]), 18, RUNTIME),
    "conv_same_lower": (*conv((1, 2, 10, 11), (3, 2, 4, 3), auto_pad="SAME_LOWER",
                              strides=[2, 3]), 18, RUNTIME),
    "conv_valid": (*conv((1, 2, 7, 7), (3, 2, 3, 3), auto_pad="VALID"), 18, RUNTIME),
    "conv_1x1_of_1": (*conv((1, 1, 4, 4), (1, 1, 1, 1)), 18, BOTH),
    "transposed_tiles": (*transposed((1, 3, 4, 5), (3, 2, 2, 2), 2, strides=[2, 2]), 18, BOTH),
    "transposed_overlap": (*transposed((1, 3, 4, 5), (3, 2, 4, 4), 2, strides=[2, 2],
                                       pads=[1, 1, 1, 1]), 18, BOTH),
    "transposed_odd": (*transposed((2, 3, 4, 3), (3, 2, 3, 5), strides=[2, 3], pads=[1, 0, 0, 2],
                                   output_padding=[1, 2]), 18, RUNTIME),
    "transposed_grouped": (*transposed((1, 4, 3, 4), (4, 3, 3, 3), 6, strides=[2, 2], group=2), 18,
                           RUNTIME),
    "transposed_dilated": (*transposed((1, 2, 4, 4), (2, 3, 3, 2), dilations=[2, 3],
                                       strides=[2, 1], pads=[1, 1, 0, 0]), 18, RUNTIME),
    "transposed_1d": (*transposed((1, 2, 6), (2, 3, 4), 3, strides=[3]), 18, RUNTIME),
    "transposed_shape": (*transposed((1, 2, 4, 4), (2, 3, 3, 3), strides=[2, 2],
                                     output_shape=[8, 8]), 18, RUNTIME),
    "max_pool_ceil": ("MaxPool", [rand(1, 2, 10, 9)], dict(kernel_shape=[3, 3], strides=[2, 2],
                      pads=[1, 0, 1, 0], ceil_mode=1), (), 18, RUNTIME),
    "max_pool_dilated": ("MaxPool", [rand(1, 2, 12, 12)], dict(kernel_shape=[3, 2],
                         dilations=[2, 3]), (), 18, BOTH),
    "average_ceil": ("AveragePool", [rand(1, 2, 10, 9)], dict(kernel_shape=[3, 3], strides=[2, 2],
                     pads=[1, 1, 1, 1], ceil_mode=1), (), 19, RUNTIME),
    **{f"{op}_ceil_beyond": (op, [rand(1, 2, 2, 2)], dict(kernel_shape=[4, 3], strides=[3, 2],
                             pads=[0, 0, 0, 0], ceil_mode=1), (), 19, RUNTIME)
       for op in ("MaxPool", "AveragePool", "LpPool")},
    "average_ceil_beyond_include": ("AveragePool", [rand(1, 2, 3, 2)], dict(
        kernel_shape=[5, 4], strides=[3, 2], pads=[0, 1, 1, 0], ceil_mode=1,
        count_include_pad=1), (), 19, RUNTIME),
    "average_include": ("AveragePool", [rand(1, 2, 10, 9)], dict(kernel_shape=[3, 3],
                        strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1), (), 18, BOTH),
    "average_3d": ("AveragePool", [rand(1, 2, 6, 6, 6)], dict(kernel_shape=[2, 2, 2],
                   strides=[2, 2, 2]), (), 18, BOTH),
    "lp_pool": ("LpPool", [rand(1, 2, 8, 8)], dict(kernel_shape=[2, 2], p=3), (), 18, BOTH),
    "global_lp_pool": ("GlobalLpPool", [rand(2, 3, 4, 5)], dict(p=3), (), 18, RUNTIME),
    "rms_rows": ("SimplifiedLayerNormalization", [rand(2, 3, 20), rand(20, seed=1)],
                 dict(epsilon=1e-3), (1,), 18, RUNTIME),
    "gemm_scaled": ("Gemm", [rand(5, 3), rand(4, 5, seed=1), rand(4, seed=2)], dict(
        alpha=0.5, beta=2.0, transA=1, transB=1), (1,), 18, BOTH),
    "gemm_matrix_bias": ("Gemm", [rand(3, 5), rand(5, 4, seed=1), rand(3, 1, seed=2)], {}, (1,),
                         18, BOTH),
    "gemm_no_bias": ("Gemm", [rand(3, 5), rand(5, 4, seed=1)], {}, (), 18, BOTH),
    "gemm_ignores_bias": ("Gemm", [rand(3, 5), rand(5, 4), rand(4)], dict(beta=0.0), (), 18, BOTH),
    "matmul_vectors": ("MatMul", [rand(7), rand(7, seed=1)], {}, (), 18, BOTH),
    "matmul_vector_left": ("MatMul", [rand(7), rand(2, 7, 3, seed=1)], {}, (), 18, BOTH),
    "matmul_vector_right": ("MatMul", [rand(2, 3, 7), rand(7, seed=1)], {}, (), 18, BOTH),
    "matmul_broadcast": ("MatMul", [rand(2, 1, 3, 4), rand(5, 4, 6, seed=1)], {}, (), 18, BOTH),
    "matmul_ints": ("MatMul", [ints(1, 2, 3, 4).reshape(2, 2), ints(5, 6, 7, 8).reshape(2, 2)], {},
                    (), 18, BOTH),
    "softmax_12": ("Softmax", [rand(2, 3, 4)], dict(axis=1), (), 12, RUNTIME),
    "log_softmax_11": ("LogSoftmax", [rand(2, 3, 4)], {}, (), 11, RUNTIME),
    "softmax_extreme": ("Softmax", [rand(3, 5, scale=300.0)], {}, (), 18, BOTH),
    "reshape_zero": ("Reshape", [rand(2, 3, 4), ints(0, -1)], {}, (1,), 18, BOTH),
    "reshape_regroup": ("Reshape", [rand(4, 6, 5), ints(2, 3, 2, 10)], {}, (1,), 18, BOTH),
    "reshape_ones": ("Reshape", [rand(1, 6, 1), ints(1, 1, 2, 3, 1)], {}, (1,), 18, BOTH),
    "squeeze_11": ("Squeeze", [rand(1, 3, 1, 2)], dict(axes=[0, -2]), (), 11, BOTH),
    "squeeze_all": ("Squeeze", [rand(1, 3, 1, 2)], {}, (), 18, BOTH),
    "unsqueeze_11": ("Unsqueeze", [rand(3, 2)], dict(axes=[0, 3]), (), 11, BOTH),
    "slice_9": ("Slice", [rand(5, 6)], dict(starts=[1, -4], ends=[-1, 1000]), (), 9, RUNTIME),
    "slice_steps": ("Slice", [rand(9, 8), ints(8, 1), ints(-100, 7), ints(0, 1), ints(-2, 3)], {},
                    (1, 2, 3, 4), 18, BOTH),
    "slice_empty": ("Slice", [rand(5, 6), ints(3), ints(2)], {}, (1, 2), 18, BOTH),
    "split_11": ("Split", [rand(2, 6)], dict(axis=1, split=[1, 2, 3]), (), 11, BOTH),
    "split_uneven": ("Split", [rand(7, 2)], dict(num_outputs=3), (), 18, BOTH),
    "pad_10": ("Pad", [rand(2, 3)], dict(pads=[1, 0, 0, 2], value=1.5), (), 10, RUNTIME),
    "pad_negative": ("Pad", [rand(4, 5), ints(-1, 2, 1, -2)], {}, (1,), 18, RUNTIME),
    "pad_reflect": ("Pad", [rand(1, 2, 5, 6), ints(0, 0, 2, 3, 0, 0, 1, 4)], dict(mode="reflect"),
                    (1,), 18, BOTH),
    "pad_edge": ("Pad", [rand(4, 5), ints(2, 0, 1, 3)], dict(mode="edge"), (1,), 18, BOTH),
    "pad_wrap": ("Pad", [rand(4, 5), ints(2, 0, 1, 3)], dict(mode="wrap"), (1,), 19, BOTH),
    "clip_10": ("Clip", [rand(3, 4)], dict(min=-0.5, max=0.5), (), 10, BOTH),
    "clip_low_only": ("Clip", [rand(3, 4), np.float32(0.1)], {}, (1,), 18, BOTH),
    "reduce_sum_11": ("ReduceSum", [rand(2, 3, 4)], dict(axes=[0, 2], keepdims=0), (), 11, BOTH),
    "reduce_mean_all": ("ReduceMean", [rand(2, 3, 4)], {}, (), 18, BOTH),
    "reduce_noop": ("ReduceL2", [rand(2, 3)], dict(noop_with_empty_axes=1), (), 18, REFERENCE),
    "reduce_max_ints": ("ReduceMax", [ints(3, -5, 7, 2).reshape(2, 2), ints(1)],
                        dict(keepdims=0), (1,), 18, BOTH),
    "log_sum_exp_large": ("ReduceLogSumExp", [rand(3, 4, scale=200.0), ints(1)], {}, (1,), 18,
                          RUNTIME),
    "cumsum_both": ("CumSum", [rand(2, 5), np.array(1)], dict(exclusive=1, reverse=1), (1,), 18,
                    BOTH),
    "cumsum_small_ints": ("CumSum", [ints(1, 5, 2), np.array(0)], {}, (0, 1), 18, BOTH),
    "cumsum_blocks": ("CumSum", [rand(2, 301, 3), np.array(1)], {}, (1,), 18, BOTH),
    "cumsum_blocks_back": ("CumSum", [rand(3, 144), np.array(-1)], dict(exclusive=1, reverse=1),
                           (1,), 18, BOTH),
    "cumsum_blocks_of_blocks": ("CumSum", [np.arange(2049) % 7, np.array(0)], dict(reverse=1), (1,),
                                18, BOTH),
    "cumprod_blocks": ("CumProd", [1 + rand(200, 2, scale=0.01), np.array(0)], dict(exclusive=1),
                       (1,), 26, REFERENCE),
    "div_ints": ("Div", [ints(7, -7, 7, -7, 6), ints(2, 2, -2, -2, 3)], {}, (), 18, RUNTIME),
    "div_ints_const": ("Div", [ints(7, -7, 7, -7, 6), ints(2, 2, -2, -2, 3)], {}, (0, 1), 18,
                       RUNTIME),
    "mod_ints": ("Mod", [ints(7, -7, 7, -7), ints(3, 3, -3, -3)], {}, (), 18, BOTH),
    "mod_c": ("Mod", [ints(7, -7, 7, -7), ints(3, 3, -3, -3)], dict(fmod=1), (), 18, BOTH),
    **{f"mod_by_zero_{f}": ("Mod", [ints(7, -7, 0, 7), ints(0, 0, 0, 2)], dict(fmod=f), at, 18,
                            REFERENCE) for f, at in ((0, ()), (1, ()))},
    "pow_ints": ("Pow", [ints(2, 3, -4), ints(3, 2, 3)], {}, (), 18, BOTH),
    "pow_mixed": ("Pow", [rand(3), ints(2, 3, 0)], {}, (), 18, BOTH),
    **{f"pow_{e}": ("Pow", [np.abs(rand(3, 4)) + 0.1, np.float32(e)], {}, (1,), 18, BOTH)
       for e in (0, 1, 2, 3, 0.5, -1, -0.5, 2.5)},
    "pow_rank": ("Pow", [rand(3), np.full((1, 1), 2, np.float32)], {}, (1,), 18, BOTH),
    "gather_negative": ("Gather", [rand(5, 3), ints(-1, 0, 4, -5)], {}, (), 18, BOTH),
    "gather_const": ("Gather", [rand(5, 3), ints(-1, 0, 4, -5)], dict(axis=0), (1,), 18, BOTH),
    "gather_i32": ("Gather", [rand(4, 5, 3), np.array([[4, 0], [2, -1]], np.int32)], dict(axis=1),
                   (), 18, BOTH),
    "gather_scalar": ("Gather", [rand(4, 5), np.array(2)], dict(axis=-1), (1,), 18, BOTH),
    "gather_nd_batch": ("GatherND", [rand(2, 3, 4), ints(1, 0).reshape(2, 1)], dict(batch_dims=1),
                        (), 18, BOTH),
    "gather_elements": ("GatherElements", [rand(3, 3), ints(1, 2, 0, 2, 0, 0).reshape(2, 3)],
                        dict(axis=0), (), 18, BOTH),
    "layer_norm_rows": ("LayerNormalization", [rand(2, 3, 4), rand(3, 4, seed=1),
                        rand(3, 4, seed=2)], dict(axis=1), (1, 2), 18, BOTH),
    "layer_norm_bare": ("LayerNormalization", [rand(2, 3, 4), rand(4)], {}, (1,), 18, BOTH),
    "batch_norm": ("BatchNormalization", [rand(2, 3, 4), rand(3, seed=1), rand(3, seed=2),
                   rand(3, seed=3), np.abs(rand(3, seed=4))], dict(epsilon=1e-3), (1, 2, 3, 4), 15,
                   BOTH),
    "batch_norm_data": ("BatchNormalization", [rand(2, 3, 4), rand(3, seed=1), rand(3, seed=2),
                        rand(3, seed=3), np.abs(rand(3, seed=4))], {}, (), 15, BOTH),
    "instance_norm": ("InstanceNormalization", [rand(2, 3, 4, 5), rand(3), rand(3, seed=1)], {},
                      (1, 2), 18, BOTH),
    "argmax_last": ("ArgMax", [ints(3, 9, 9, 1).reshape(1, 4)], dict(axis=1, select_last_index=1),
                    (), 18, BOTH),
    "argmin_flat": ("ArgMin", [rand(3, 4)], dict(axis=0, keepdims=0), (), 18, BOTH),
    "tile": ("Tile", [rand(2, 3), ints(2, 3)], {}, (1,), 18, BOTH),
    "expand": ("Expand", [rand(3, 1), ints(2, 1, 6)], {}, (1,), 18, BOTH),
    "trilu": ("Trilu", [rand(2, 4, 5), np.array(1)], dict(upper=0), (1,), 18, BOTH),
    "one_hot": ("OneHot", [ints(0, 2, -1), np.array(4), np.array([0.5, 2], np.float32)],
                dict(axis=0), (1,), 18, BOTH),
    "max_of_three": ("Max", [rand(3, 4), rand(4, seed=1), rand(3, 1, seed=2)], {}, (), 18, BOTH),
    "mean_of_two": ("Mean", [rand(3, 4), rand(4, seed=1)], {}, (), 18, BOTH),
    "where": ("Where", [np.array([[True], [False]]), rand(3), rand(2, 3, seed=1)], {}, (), 18,
              BOTH),
    "range_down": ("Range", [np.array(9), np.array(-4), np.array(-3)], {}, (0, 1, 2), 18, BOTH),
    "max_roi": ("MaxRoiPool", [rand(2, 3, 5, 6), np.array(
        [[0, 0.6, 1, 4, 9], [1, -3, 2, 2.5, 3], [1, 4, 4, 1, 1]], np.float32)],
        dict(pooled_shape=[2, 3]), (), 18, RUNTIME),
    "resize_9": ("Upsample", [rand(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)], {}, (1,), 9,
                 RUNTIME),
    "resize_10": ("Resize", [rand(1, 2, 3, 4), np.array([1, 1, 2, 2], np.float32)], {}, (1,), 10,
                  RUNTIME),
    "lrn": ("LRN", [rand(1, 7, 3, 3)], dict(size=5, alpha=0.1), (), 18, RUNTIME),
    "prelu": ("PRelu", [rand(2, 3, 4), rand(3, 1)], {}, (1,), 18, BOTH),
    "einsum_attention": ("Einsum", [rand(2, 3, 4, 5), rand(2, 6, 4, 5, seed=1)],
                         dict(equation="bqhd,bkhd->bhqk"), (), 18, BOTH),
    "einsum_trace": ("Einsum", [rand(4, 4)], dict(equation="ii->"), (), 18, BOTH),
    "einsum_dots": ("Einsum", [rand(2, 3, 4), rand(4, 5, seed=1)], dict(equation="...k,kn->...n"),
                    (), 18, BOTH),
    "einsum_three": ("Einsum", [rand(2, 3), rand(3, 4), rand(4, 2)],
                     dict(equation="ab,bc,ca->a"), (), 18, REFERENCE),
    "not": ("Not", [np.array([True, False])], {}, (), 18, BOTH),
    "depth_to_space_crd": ("DepthToSpace", [rand(1, 12, 2, 3)], dict(blocksize=2, mode="CRD"), (),
                           18, BOTH),
    "space_to_depth": ("SpaceToDepth", [rand(1, 2, 4, 6)], dict(blocksize=2), (), 18, RUNTIME),
}


RESIZES = [(mode, coord, nearest, size) for mode, nearests in (
    ("nearest", ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    ("linear", ("floor",)), ("cubic", ("floor",)))
    for coord in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    for nearest in nearests for size in ((6, 9), (2, 10), (1, 3))]

UNARY = ("Abs", "Acos", "Asin", "Atan", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
         "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg", "Reciprocal", "Relu", "Round",
         "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Tan", "Tanh", "Celu",
         "ThresholdedRelu")

NUMBERS = ("float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def u8(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 255, shape, dtype=np.uint8)


CONTRIB = {"domain": "com.microsoft"}
_ONE = [np.float32(0.02), np.uint8(7), np.float32(0.05), np.uint8(60)]
_SCALES = [np.float32(0.02), np.uint8(7), np.float32(0.03), np.uint8(9), np.float32(0.06),
           np.uint8(60)]
QUANTISED = {
    "quantize": ("QuantizeLinear", [rand(3, 4, scale=5), np.float32(0.05), np.uint8(120)], {}),
    "quantize_axis": ("QuantizeLinear", [rand(3, 4), np.array([0.1, 0.2, 0.3], np.float32),
                                         np.array([1, 2, 3], np.int8)], dict(axis=0)),
    "dequantize": ("DequantizeLinear", [u8(3, 4), np.float32(0.05), np.uint8(120)], {}),
    "dequantize_i32": ("DequantizeLinear", [np.arange(6, dtype=np.int32), np.float32(0.5)], {}),
    "matmul_integer": ("MatMulInteger", [u8(3, 4), u8(4, 5, seed=1), np.uint8(7), np.uint8(9)], {}),
    "conv_integer": ("ConvInteger", [u8(1, 2, 5, 5), u8(3, 2, 3, 3, seed=1), np.uint8(7),
                                     np.uint8(9)], dict(pads=[1] * 4)),
    "qlinear_matmul": ("QLinearMatMul", [u8(3, 4), np.float32(0.02), np.uint8(7),
                                         u8(4, 5, seed=1), np.float32(0.03), np.uint8(9),
                                         np.float32(1.5), np.uint8(60)], {}),
    "qlinear_conv": ("QLinearConv", [u8(1, 2, 5, 5), np.float32(0.02), np.uint8(7),
                                     u8(3, 2, 3, 3, seed=1), np.float32(0.03), np.uint8(9),
                                     np.float32(2.5), np.uint8(60), np.arange(3, dtype=np.int32)],
                     {}),
    "dynamic_quantize": ("DynamicQuantizeLinear", [rand(3, 4)], {}),
    "qlinear_add": ("QLinearAdd", [u8(3, 4), *_SCALES[:2], u8(4, seed=1), *_SCALES[2:]], CONTRIB),
    "qlinear_mul": ("QLinearMul", [u8(3, 4), *_SCALES[:2], u8(3, 4, seed=1), *_SCALES[2:]],
                    CONTRIB),
    "qlinear_average": ("QLinearGlobalAveragePool", [u8(2, 3, 5, 4), *_ONE], CONTRIB),
    "qlinear_average_last": ("QLinearGlobalAveragePool", [u8(2, 5, 4, 3), *_ONE],
                             dict(CONTRIB, channels_last=1)),
    "qlinear_sigmoid": ("QLinearSigmoid", [u8(3, 4), *_ONE], CONTRIB),
    "qlinear_leaky": ("QLinearLeakyRelu", [u8(3, 4), *_ONE], dict(CONTRIB, alpha=0.2)),
    "qlinear_softmax": ("QLinearSoftmax", [u8(3, 4), np.float32(0.02), np.uint8(7),
                                           np.float32(1 / 256), np.uint8(0)],
                        dict(CONTRIB, opset=18, axis=-1)),
    "qgemm": ("QGemm", [u8(3, 8), np.float32(0.02), np.uint8(7), u8(5, 8, seed=1),
                        np.float32(0.03), np.uint8(9), np.arange(5, dtype=np.int32),
                        np.float32(1.5), np.uint8(60)], dict(CONTRIB, transB=1)),
    "qgemm_float": ("QGemm", [u8(3, 8), np.float32(0.02), np.uint8(7), u8(8, 5, seed=1),
                              np.float32(0.03), np.uint8(9)], dict(CONTRIB, alpha=0.5)),
}


def case_of_table(name):
    """The row ``name`` of CASES as a NodeCase."""
    op, arrays, attrs, consts, opset, executors = CASES[name]
    outputs = {"split_11": 3, "split_uneven": 3}.get(name, 1)
    return NodeCase(name, op, arrays, attrs, consts, outputs, opset, executors)


def resize_case(mode, coord, nearest, size):
    attrs = dict(mode=mode, coordinate_transformation_mode=coord, nearest_mode=nearest)
    sizes = np.array((1, 2) + size, I64)
    return NodeCase(f"resize_{mode}_{coord}_{nearest}_{size[0]}", "Resize",
                    [rand(1, 2, 3, 5), None, None, sizes], attrs, (3,), executors=RUNTIME)


def quantised_case(name):
    """A sum that lies on the border between two steps may be rounded either way."""
    op, arrays, attrs = QUANTISED[name]
    outputs = 3 if op == "DynamicQuantizeLinear" else 1
    rounded = op.startswith("QLinear") or op == "QGemm" and len(arrays) > 7
    return NodeCase(name, op, arrays, attrs, tuple(range(1, len(arrays))), outputs,
                    executors=RUNTIME, atol=1 if rounded else 1e-6)


def recurrent_case(op, direction):
    d, g = 2 if direction == "bidirectional" else 1, GATES[op]
    states = [rand(d, 2, 3, seed=5 + k) for k in range(2 if op == "LSTM" else 1)]
    arrays = [rand(4, 2, 5), rand(d, g * 3, 5, seed=1), rand(d, g * 3, 3, seed=2),
              rand(d, g * 6, seed=3), None, *states]
    return NodeCase(f"{op}_{direction}", op, arrays, dict(hidden_size=3, direction=direction),
                    (1, 2, 3), 3 if op == "LSTM" else 2, executors=RUNTIME)


def scatter_cases(reduction):
    indices = np.array([[1], [3], [0]])
    yield NodeCase(f"scatter_nd_{reduction}", "ScatterND",
                   [rand(4, 2), indices, rand(3, 2, seed=1)], dict(reduction=reduction))
    indices = np.array([[0, 2, 1], [1, -1, 0]])
    yield NodeCase(f"scatter_elements_{reduction}", "ScatterElements",
                   [rand(3, 3), indices, rand(2, 3, seed=1)],
                   dict(axis=1, reduction=reduction), executors=RUNTIME)


def grid_case(mode, padding, align):
    return NodeCase(f"grid_{mode}_{padding}_{align}", "GridSample",
                    [rand(2, 3, 5, 6), rand(2, 4, 3, 2, seed=1)],
                    dict(mode=mode, padding_mode=padding, align_corners=align), opset=16,
                    executors=RUNTIME)


REDUCTIONS = ("none", "add", "mul", "max", "min")
DIRECTIONS = ("forward", "reverse", "bidirectional")
GRIDS = tuple(itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (0, 1)))


def node_cases():
    """Every row of this module."""
    yield from map(case_of_table, CASES)
    yield from (resize_case(*r) for r in RESIZES)
    yield from map(quantised_case, QUANTISED)
    yield from (recurrent_case(op, d) for op in GATES for d in DIRECTIONS)
    yield from itertools.chain(*map(scatter_cases, REDUCTIONS))
    yield from (grid_case(*g) for g in GRIDS)
    yield from contrib_cases()
    yield from (NodeCase(name, op, arrays, attrs, executors=RUNTIME, outputs=outputs, consts=consts)
                for name, op, arrays, attrs, outputs, consts in ml_rows())
