"""Nodes of the domain com.microsoft to try: rows as in operator_tables.py."""

import numpy as np
from frontend_cases import RUNTIME, NodeCase, rand

MS = {"domain": "com.microsoft"}


def row(op, *arrays, consts=(), outputs=1, **attrs):
    """(op, arrays, attributes, positions of constants, number of outputs)."""
    return op, list(arrays), MS | attrs, consts, outputs


def ids(*shape, below, seed=0):
    return np.random.default_rng(seed).integers(0, below, shape).astype(np.int32)


X = rand(2, 3, 10)
GAMMA, BETA, BIAS = (rand(10, seed=k) for k in (1, 2, 3))
SKIP = rand(2, 3, 10, seed=4)
TABLES = [rand(n, 10, seed=n) for n in (13, 7, 2)]
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
IMAGE, TAPS, PER_TAP = rand(1, 3, 7, 6), rand(4, 3, 3, 3, seed=1), rand(4, seed=2)

FUSED = {
    "ms_gelu": row("Gelu", X),
    "ms_bias_gelu": row("BiasGelu", X, BIAS, consts=(1,)),
    "ms_fast_gelu": row("FastGelu", X),
    "ms_fast_gelu_bias": row("FastGelu", X, BIAS),
    "ms_quick_gelu": row("QuickGelu", X),
    "ms_quick_gelu_alpha": row("QuickGelu", X, alpha=1.3),
    "ms_skip_layer_norm": row("SkipLayerNormalization", X, SKIP, GAMMA, BETA, consts=(2, 3)),
    "ms_skip_layer_norm_sum": row("SkipLayerNormalization", X, SKIP[:1], GAMMA, None, BIAS,
                                  consts=(2, 4), outputs=(1, 0, 0, 1), epsilon=1e-5),
    "ms_skip_rms": row("SkipSimplifiedLayerNormalization", X, SKIP, GAMMA, consts=(2,),
                       epsilon=1e-6),
    "ms_skip_rms_sum": row("SkipSimplifiedLayerNormalization", X, SKIP[0], GAMMA, BIAS,
                           consts=(2, 3), outputs=(1, 0, 0, 1)),
    "ms_embed": row("EmbedLayerNormalization", ids(2, 5, below=13), ids(2, 5, below=2), *TABLES,
                    GAMMA, BETA, MASK, consts=(2, 3, 4, 5, 6), outputs=2),
    "ms_embed_sum": row("EmbedLayerNormalization", ids(2, 5, below=13), None, *TABLES[:2], None,
                        GAMMA, BETA, None, ids(2, 5, below=7), consts=(2, 3, 5, 6), outputs=3,
                        epsilon=1e-5),
    "ms_matmul": row("FusedMatMul", rand(2, 4, 3), rand(2, 5, 4, seed=1), alpha=0.3, transA=1,
                     transB=1),
    "ms_matmul_plain": row("FusedMatMul", rand(2, 3, 4), rand(4, 5, seed=1)),
    "ms_matmul_batch": row("FusedMatMul", rand(3, 2, 4), rand(2, 4, 5, seed=1), transBatchA=1),
    "ms_matmul_batches": row("FusedMatMul", rand(4, 2, 3), rand(5, 2, 4, seed=1), transBatchA=1,
                             transA=1, transBatchB=1, transB=1, alpha=2.0),
    "ms_matmul_turned": row("TransposeMatMul", rand(4, 3), rand(4, 5, seed=1), transA=1),
    **{f"ms_gemm_{a}": row("FusedGemm", rand(3, 5), rand(4, 5, seed=1), rand(4, seed=2),
                           consts=(1, 2), transB=1, alpha=0.7, activation=a, **params)
       for a, params in (("Relu", {}), ("LeakyRelu", dict(activation_alpha=0.2)),
                         ("HardSigmoid", dict(activation_alpha=0.3, activation_beta=0.4)),
                         ("Tanh", {}), ("Sigmoid", {}))},
    **{f"ms_conv_{a}": row("FusedConv", IMAGE, TAPS, PER_TAP, consts=(1, 2), pads=[1] * 4,
                           activation=a, **params)
       for a, params in (("Relu", {}), ("LeakyRelu", dict(activation_params=[0.2])),
                         ("Clip", dict(activation_params=[-0.5, 0.5])), ("Tanh", {}),
                         ("HardSigmoid", dict(activation_params=[0.3, 0.4])))},
    "ms_conv_sum": row("FusedConv", IMAGE, TAPS, PER_TAP, rand(1, 4, 7, 6, seed=3), consts=(1, 2),
                       pads=[1] * 4, activation="Relu"),
    "ms_conv_stride": row("FusedConv", rand(2, 4, 9, 8), rand(6, 2, 3, 2, seed=1), consts=(1,),
                          strides=[2, 1], group=2, activation="Sigmoid"),
    "ms_nhwc_pool": row("NhwcMaxPool", ids(1, 7, 6, 3, below=255).astype(np.uint8),
                        kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    "ms_nhwc_pool_i8": row("NhwcMaxPool", (ids(2, 5, 6, 3, below=255) - 128).astype(np.int8),
                           kernel_shape=[2, 2], ceil_mode=1, strides=[3, 3]),
}
# what ONNX Runtime runs on other devices only
ELSEWHERE = {
    "ms_bias_softmax": row("BiasSoftmax", rand(2, 3, 4, 5), rand(2, 1, 1, 5, seed=1), axis=3,
                           is_inner_broadcast=1),
    "ms_bias_softmax_rows": row("BiasSoftmax", rand(2, 3, 4, 5), rand(2, 1, 1, 5, seed=1), axis=2,
                                is_inner_broadcast=1),
    "ms_bias_split_gelu": row("BiasSplitGelu", X, BIAS, consts=(1,)),
    "ms_bias_add": row("BiasAdd", X, BIAS, SKIP, consts=(1,)),
    "ms_group_norm": row("GroupNorm", rand(2, 3, 4, 6), rand(6, seed=1), rand(6, seed=2),
                         consts=(1, 2), groups=2, activation=1),
    "ms_skip_group_norm": row("SkipGroupNorm", rand(2, 3, 4, 6), rand(6, seed=1), rand(6, seed=2),
                              rand(2, 6, seed=3), rand(6, seed=4), consts=(1, 2, 4), outputs=2,
                              groups=3, activation=0),
    "ms_nhwc_conv": row("NhwcConv", rand(1, 7, 6, 3), TAPS, PER_TAP, consts=(1, 2), pads=[1] * 4),
    "ms_nhwc_fused": row("NhwcFusedConv", rand(1, 7, 6, 3), TAPS, PER_TAP, consts=(1, 2),
                         activation="Relu"),
}


def contrib_cases():
    """Every row of this module."""
    for table, executors in ((FUSED, RUNTIME), (ELSEWHERE, ())):
        for name, (op, arrays, attrs, consts, outputs) in table.items():
            yield NodeCase(name, op, arrays, attrs, consts, outputs, executors=executors)
