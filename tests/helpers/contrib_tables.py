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

QKV = [rand(2, 5, 12, seed=9), rand(12, 36, seed=1, scale=0.3), rand(36, seed=2)]
THREE = [rand(2, n, 12, seed=k) for k, n in enumerate((4, 5, 5))]
PAST = [rand(2, 3, 4, 4, seed=n) for n in (3, 4)]
LENGTHS, BOTH_ENDS = np.array([5, 3], np.int32), np.array([5, 4, 0, 2], np.int32)
SCORE_BIAS = rand(1, 3, 5, 5, seed=5)


def attention(*inputs, **attrs):
    return row("Attention", *QKV, *inputs, consts=(1, 2), num_heads=3, **attrs)


def heads(*inputs, **more):
    return row("MultiHeadAttention", *THREE, *inputs, num_heads=3, **more)


def ones(*shape, seed=0):
    """A mask with most of its elements 1, those of the first key always."""
    mask = (np.random.default_rng(seed).random(shape) < 0.7).astype(np.int32)
    mask[..., 0] = 1
    return mask


ATTENTION = {
    "ms_attention": attention(),
    "ms_attention_lengths": attention(LENGTHS),
    "ms_attention_ends": attention(BOTH_ENDS),
    "ms_attention_mask": attention(MASK, unidirectional=1),
    "ms_attention_mask_rows": attention(ones(2, 5, 5), mask_filter_value=-50.0),
    "ms_attention_nothing": attention(np.zeros((2, 5), np.int32)),
    "ms_attention_bias": attention(None, None, SCORE_BIAS, scale=0.2),
    "ms_attention_past": row("Attention", *QKV, ones(2, 8), rand(2, 2, 3, 3, 4, seed=4),
                             consts=(1, 2), num_heads=3, outputs=2, unidirectional=1),
    "ms_attention_present": row("Attention", *QKV, consts=(1, 2), num_heads=3, outputs=2),
    "ms_attention_sizes": row("Attention", QKV[0], rand(12, 30, seed=1), rand(30, seed=2),
                              consts=(1, 2), num_heads=3, qkv_hidden_sizes=[12, 12, 6]),
    "ms_heads": heads(),
    "ms_heads_bias": heads(rand(36, seed=2), consts=(3,)),
    "ms_heads_mask": heads(None, ones(2, 5), rand(2, 1, 4, 5, seed=8), scale=0.4),
    "ms_heads_lengths": heads(None, LENGTHS),
    "ms_heads_causal": row("MultiHeadAttention", THREE[1], *THREE[1:], None, None, None, *PAST,
                           num_heads=3, unidirectional=1, outputs=3),
    "ms_heads_past": heads(rand(36, seed=2), ones(2, 9), None, *PAST, outputs=3),
    "ms_heads_present": heads(outputs=3),
    "ms_heads_crossed": row("MultiHeadAttention", THREE[0], *PAST, num_heads=3),
}

ANGLES = np.outer(np.arange(12), 1 / 10 ** np.arange(0, 1, 0.125)).astype(np.float32)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)  # of heads of 16 columns
PLACES = np.array([[0, 1, 2, 3], [5, 6, 7, 8]])


def grouped(q, k=None, v=None, past=None, lengths=(3, 3), total=4, *inputs, heads=4, shared=2,
            outputs=3, **attrs):
    """GroupQueryAttention; a past of keys has one of values with other numbers."""
    values = None if past is None else past[:, :, ::-1] * 0.5
    return row("GroupQueryAttention", q, k, v, past, values, np.array(lengths, np.int32),
               np.array(total, np.int32), *inputs, num_heads=heads, kv_num_heads=shared,
               outputs=outputs, **attrs)


QUERY, KEY, VALUE = rand(2, 4, 64), rand(2, 4, 32, seed=1), rand(2, 4, 32, seed=2)
STEP = [rand(2, 1, n, seed=k) for k, n in enumerate((64, 32, 32))]
CACHE = rand(2, 2, 5, 16, seed=5)
ROTATED = dict(do_rotary=1)

ROTARY = {
    "ms_rotary": row("RotaryEmbedding", rand(2, 4, 48), PLACES, COS, SIN, consts=(2, 3)),
    "ms_rotary_heads": row("RotaryEmbedding", rand(2, 3, 4, 16), PLACES, COS, SIN, consts=(2, 3),
                           interleaved=1),
    "ms_rotary_part": row("RotaryEmbedding", rand(2, 4, 60), np.array([3]), COS, SIN,
                          consts=(2, 3), num_heads=3, rotary_embedding_dim=16),
    "ms_groups": grouped(QUERY, KEY, VALUE),
    "ms_groups_one": grouped(rand(2, 4, 32), KEY, VALUE, heads=2, scale=0.3),
    "ms_groups_packed": grouped(rand(2, 4, 128), None, None, None, (3, 3), 4, COS, SIN, **ROTATED),
    "ms_groups_rotated": grouped(QUERY, KEY, VALUE, None, (3, 3), 4, COS, SIN, **ROTATED,
                                 rotary_interleaved=1, local_window_size=2),
    "ms_groups_cap": grouped(QUERY, KEY, VALUE, softcap=2.0, smooth_softmax=1),
    "ms_groups_sink": grouped(QUERY, KEY, VALUE, None, (3, 3), 4, None, None, None, None,
                              rand(4, seed=6)),
    "ms_groups_bias": grouped(QUERY, KEY, VALUE, None, (3, 3), 4, None, None, None,
                              rand(1, 1, 4, 4, seed=6)),
    "ms_groups_step": grouped(*STEP, CACHE, (5, 5), 6, COS, SIN, **ROTATED),
    "ms_groups_alone": grouped(*(a[:1] for a in STEP), CACHE[:1], (5,), 6, COS, SIN, **ROTATED),
    "ms_groups_chunk": grouped(QUERY[:1], KEY[:1], VALUE[:1], CACHE[:1], (8,), 9, COS, SIN,
                               **ROTATED),
    "ms_groups_places": grouped(*STEP, CACHE, (5, 5), 6, COS, SIN, np.array([[5], [5]]),
                                **ROTATED),
}


def contrib_cases():
    """Every row of this module."""
    for table, executors in ((FUSED, RUNTIME), (ATTENTION, RUNTIME), (ROTARY, RUNTIME),
                             (ELSEWHERE, ())):
        for name, (op, arrays, attrs, consts, outputs) in table.items():
            yield NodeCase(name, op, arrays, attrs, consts, outputs, executors=executors)
