"""Nodes of the domain com.microsoft to try: rows as in operator_tables.py."""

import numpy as np
from contrib_more import BOUND, MORE, f, ids, row
from frontend_cases import RUNTIME, NodeCase, rand

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
    "ms_nhwc_conv": row("NhwcConv", rand(1, 7, 6, 3), TAPS.transpose(0, 2, 3, 1), PER_TAP,
                        consts=(1, 2), pads=[1] * 4),
    "ms_nhwc_taps": row("NhwcConv", rand(1, 7, 6, 3), rand(4, 3, 2, 5), None, consts=(1,)),
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
    "ms_heads_packed": heads(None, np.array([5, 3, 0, 4, 8, 0, 5, 10], np.int32)),
    "ms_heads_mask_rows": heads(None, ones(2, 4, 5, seed=3)),
    "ms_attention_packed": attention(np.array([5, 3, 0, 5, 10, 0, 5, 10], np.int32)),
    "ms_attention_no_mask": attention(np.zeros((2, 1), np.int32), unidirectional=1),
    "ms_attention_mask_row": attention(np.zeros((1, 1), np.int32)),
}
BUFFERS, PLACE = [rand(4, 3, 6, 4, seed=n) for n in (3, 4)], np.array([2], np.int32)
TOKENS_OF_BEAMS = [rand(4, 1, 12, seed=n) for n in range(3)]
BEAMS = ids(2, 2, 6, below=2, seed=1)
ALONE = dict(num_heads=3, past_present_share_buffer=1, outputs=3)


def decoder(*inputs, **attrs):
    return row("DecoderMaskedMultiHeadAttention", *inputs, **attrs)


DECODERS = {
    "ms_heads_buffer": row("MultiHeadAttention", *(rand(4, 2, 12, seed=n) for n in range(3)), None,
                           None, None, *BUFFERS, PLACE, num_heads=3, unidirectional=1, outputs=3),
    "ms_heads_beams": row("MultiHeadAttention", *TOKENS_OF_BEAMS, None, None, None, *BUFFERS, PLACE,
                          BEAMS, num_heads=3, outputs=3),
    "ms_decoder_crossed": decoder(TOKENS_OF_BEAMS[0], *BUFFERS, ones(4, 6), num_heads=3),
    "ms_decoder": decoder(*TOKENS_OF_BEAMS, None, None, *BUFFERS, PLACE, **ALONE),
    "ms_decoder_mask": decoder(*TOKENS_OF_BEAMS, ones(4, 3), rand(4, 3, 1, 3, seed=6), *BUFFERS,
                               PLACE, None, None, rand(36, seed=7), **ALONE),
    "ms_decoder_beams": decoder(*TOKENS_OF_BEAMS, None, None, *BUFFERS, PLACE,
                                np.array([2], np.int32), BEAMS, **ALONE),
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
    "ms_groups_scores": grouped(QUERY, KEY, VALUE, None, (3, 3), 4, None, None, None,
                                rand(1, 1, 4, 4, seed=6), outputs=4, qk_output=1, softcap=2.0),
    "ms_groups_shares": grouped(*STEP, CACHE, (5, 5), 6, outputs=4, qk_output=2),
    "ms_groups_window": grouped(*STEP, CACHE, (4, 9), 10, COS, SIN, None, rand(2, 1, 1, 10, seed=6),
                                sliding_window_cache=1, local_window_size=5, **ROTATED),
    "ms_groups_windows": grouped(*(a[:1] for a in (QUERY, KEY, VALUE)), CACHE[:1], (10,), 11, COS,
                                 SIN, sliding_window_cache=1, local_window_size=4, **ROTATED),
}


def stored(bits, per_channel, sequence=1, **attrs):
    """GroupQueryAttention with a cache of integers."""
    scale = np.array([0.02 if bits == 8 else 0.3], np.float32)
    scale = scale * (np.abs(rand(1, 2, 1, 16, seed=7)) + 0.5) if per_channel else scale
    past = [u8(1, 2, 5, 2 * bits, seed=n).view(np.int8 if bits == 8 else np.uint8) for n in (1, 2)]
    kind = "PER_CHANNEL" if per_channel else "PER_TENSOR"
    end = 4 + sequence
    return row("GroupQueryAttention", *(a[:1, :sequence] for a in (QUERY, KEY, VALUE)), *past,
               np.array([end], np.int32), np.array(end + 1, np.int32), *[None] * 5, scale, scale,
               num_heads=4, kv_num_heads=2, outputs=3, k_quant_type=kind, v_quant_type=kind,
               kv_cache_bit_width=bits, **attrs)


def u8(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


ROTARY |= {
    "ms_groups_i8": stored(8, False), "ms_groups_i8_columns": stored(8, True, 3),
    "ms_groups_i4": stored(4, False, 3), "ms_groups_i4_columns": stored(4, True),
    "ms_groups_i8_window": stored(8, True, sliding_window_cache=1, local_window_size=5),
}


def bits(count, k, n, block, *more, rows=3, consts=(1, 2), **attrs):
    """MatMulNBits of [2, rows, k] and n columns in ``count`` bits."""
    blocks = -(-k // block)
    scales = rand(n, blocks, seed=2, scale=0.1)
    return row("MatMulNBits", rand(2, rows, k), u8(n, blocks, block * count // 8, seed=1), scales,
               *more, consts=consts, K=k, N=n, bits=count, block_size=block, **attrs)


BLOCKS = {
    "ms_bits_4": bits(4, 32, 5, 16),
    "ms_bits_4_zeros": bits(4, 40, 5, 16, u8(5, 2, seed=3), consts=(1, 2, 3)),
    "ms_bits_4_floats": bits(4, 32, 6, 16, rand(6, 2, seed=3) + 8, consts=(1, 2, 3)),
    "ms_bits_8": bits(8, 48, 7, 32, u8(7, 2, seed=3), None, rand(7, seed=4), consts=(1, 2, 3, 5)),
    "ms_bits_groups": bits(4, 32, 5, 16, None, ids(32, below=2), consts=(1, 2, 4)),
    "ms_bits_2": bits(2, 32, 5, 16, rows=1),
    "ms_bits_column": bits(2, 64, 1, 32),
    "ms_bits_data": bits(4, 32, 5, 16, consts=()),
    **{f"ms_codes_{kind}_{held}": row("MatMulBnb4", rand(2, 3, 24), u8(60, seed=1),
                                      np.abs(rand(8, seed=2)), consts=(1, 2) if held else (), K=24,
                                      N=5, block_size=16, quant_type=kind)
       for kind in (0, 1) for held in (0, 1)},
    "ms_rows_4": row("GatherBlockQuantized", u8(7, 16), np.array([[1, 6, 0], [3, 3, 2]]),
                     rand(7, 2, seed=1), consts=(0, 2), bits=4, block_size=16),
    "ms_rows_4_zeros": row("GatherBlockQuantized", u8(7, 24), np.array([5, -1]),
                           rand(7, 3, seed=1), u8(7, 2, seed=2), consts=(0, 2, 3), bits=4,
                           block_size=16, quantize_axis=-1),
    "ms_rows_8": row("GatherBlockQuantized", u8(7, 32), np.array([[4]]), rand(7, 1, seed=1),
                     u8(7, 1, seed=2), consts=(0, 2, 3), bits=8, block_size=32),
}


HALF = [f(0.02), np.uint8(7)], [f(0.05), np.uint8(60)]


def lstm(directions, per_gate, peephole=None, lengths=None, signed=False, **attrs):
    """DynamicQuantizeLSTM of 3 hidden columns."""
    scales = (directions, 12) if per_gate else (directions,)
    weights = [u8(directions, n, 12, seed=n) for n in (5, 3)]
    per = [a for k in (0, 1) for a in (0.01 + 0.001 * np.abs(rand(*scales, seed=k)),
                                       np.full(scales, 128 + k, np.uint8))]
    if signed:
        weights = [w.view(np.int8) for w in weights]
        per = [np.zeros(scales, np.int8) if a.dtype == np.uint8 else a for a in per]
    return row("DynamicQuantizeLSTM", rand(4, 2, 5), *weights, rand(directions, 24, seed=3),
               lengths, *(rand(directions, 2, 3, seed=k) for k in (4, 5)), peephole, *per,
               consts=(1, 2, 3, 8, 9, 10, 11), hidden_size=3, outputs=3, **attrs)


QUANTISED = {
    "ms_dequantize": row("DequantizeLinear", u8(3, 4), *HALF[0], consts=(1, 2)),
    "ms_dequantize_axis": row("DequantizeLinear", u8(3, 4), np.abs(rand(4)), u8(4, seed=1),
                              consts=(1, 2), axis=1),
    "ms_dequantize_16": row("DequantizeLinear", u8(3, 4).astype(np.uint16) * 250, f(0.001),
                            np.uint16(32000), consts=(1, 2)),
    "ms_dequantize_i16": row("DequantizeLinear", (u8(3, 4).astype(np.int16) - 128) * 250,
                             np.abs(rand(3)), np.array([3, -7, 900], np.int16), consts=(1, 2),
                             axis=0),
    "ms_quantize": row("QuantizeLinear", rand(3, 4), f(0.02), np.uint8(120), consts=(1, 2)),
    "ms_quantize_16": row("QuantizeLinear", rand(3, 4), f(0.0001), np.uint16(32000),
                          consts=(1, 2)),
    "ms_quantize_axis": row("QuantizeLinear", rand(3, 4), np.abs(rand(3, seed=1)) / 9999,
                            np.array([3, -7, 900], np.int16), consts=(1, 2), axis=0),
    "ms_qaverage": row("QLinearAveragePool", u8(1, 3, 7, 6), *HALF[0], *HALF[1],
                       consts=(1, 2, 3, 4), kernel_shape=[3, 2], strides=[2, 1],
                       pads=[1, 0, 1, 1]),
    "ms_qaverage_last": row("QLinearAveragePool", u8(1, 7, 6, 3), *HALF[0], *HALF[1],
                            consts=(1, 2, 3, 4), kernel_shape=[3, 3], channels_last=1,
                            count_include_pad=1, pads=[1, 1, 1, 1]),
    "ms_qwhere": row("QLinearWhere", u8(3, 4) > 99, u8(3, 4, seed=1), *HALF[0], u8(4, seed=2),
                     *HALF[1], f(0.06), np.uint8(50), consts=(2, 3, 5, 6, 7, 8)),
    "ms_qconcat": row("QLinearConcat", *HALF[1], u8(2, 3), *HALF[0], u8(2, 4, seed=1), f(0.07),
                      np.uint8(3), consts=(0, 1, 3, 4, 6, 7), axis=1),
    "ms_qconv_last": row("QLinearConv", u8(1, 7, 6, 3), *HALF[0], u8(4, 3, 3, 3, seed=1), f(0.01),
                         np.uint8(120), *HALF[1], np.arange(4, dtype=np.int32),
                         consts=(1, 2, 3, 4, 5, 6, 7, 8), channels_last=1, pads=[1] * 4),
    "ms_qmatmul": row("MatMulIntegerToFloat", u8(2, 3, 8), u8(8, 5, seed=1), f(0.02),
                      np.abs(rand(5)), np.uint8(9), u8(5, seed=2), rand(5, seed=3),
                      consts=(1, 3, 5, 6)),
    "ms_qmatmul_signed": row("MatMulIntegerToFloat", u8(3, 8), u8(8, 5).astype(np.int8), f(0.02),
                             f(0.03), consts=(1,)),
    "ms_dynamic_matmul": row("DynamicQuantizeMatMul", rand(2, 3, 8), u8(8, 5), f(0.02),
                             np.uint8(99), rand(5, seed=3), consts=(1, 2, 3, 4)),
    "ms_dynamic_matmul_axis": row("DynamicQuantizeMatMul", rand(3, 8), u8(8, 5).astype(np.int8),
                                  np.abs(rand(5)), consts=(1, 2)),
    "ms_qattention": row("QAttention", u8(2, 5, 8), u8(8, 36).astype(np.int8), rand(36, seed=2),
                         f(0.01), f(0.02), np.array([5, 3], np.int32), np.uint8(120), np.int8(0),
                         consts=(1, 2, 3, 4, 6, 7), num_heads=3),
    "ms_qattention_past": row("QAttention", u8(2, 2, 8), u8(8, 36).astype(np.int8),
                              rand(36, seed=2), f(0.01), f(0.02), None, np.uint8(120), np.int8(0),
                              rand(2, 2, 3, 4, 4), consts=(1, 2, 3, 4, 6, 7), num_heads=3,
                              unidirectional=1, outputs=2),
    "ms_qembed": row("QEmbedLayerNormalization", ids(2, 5, below=13), ids(2, 5, below=2),
                     u8(13, 6), u8(7, 6, seed=1), u8(2, 6, seed=2), u8(6, seed=3), u8(6, seed=4),
                     MASK, *[f(0.01 + k / 99) for k in range(5)], *[np.uint8(99 + k) for k in
                     range(5)], consts=(*range(2, 7), *range(8, 18)), outputs=2),
}
LSTMS = {
    "ms_lstm": lstm(1, False),
    "ms_lstm_gates": lstm(2, True, direction="bidirectional"),
    "ms_lstm_lengths": lstm(1, False, lengths=np.array([2, 3], np.int32), signed=True),
    "ms_lstm_peephole": lstm(1, True, rand(1, 9), direction="reverse"),
}
TOKENS, ROUTES = rand(5, 8), rand(5, 4, seed=1)
EXPERTS = [rand(4, 6, 8, seed=2), rand(4, 6, seed=3), rand(4, 8, 6, seed=4), rand(4, 8, seed=5)]
GATED = [rand(4, 12, 8, seed=2), rand(4, 12, seed=3), *EXPERTS[2:]]
MIXTURES = {
    "ms_experts": row("MoE", TOKENS, ROUTES, *EXPERTS, consts=(2, 3, 4, 5)),
    "ms_experts_two": row("MoE", TOKENS.reshape(1, 5, 8), ROUTES, EXPERTS[0], None, EXPERTS[2],
                          consts=(2, 4), k=2, normalize_routing_weights=1,
                          activation_type="gelu"),
    "ms_experts_silu": row("MoE", TOKENS, ROUTES, *EXPERTS, consts=(2, 3, 4, 5), k=3,
                           activation_type="silu"),
    "ms_experts_gated": row("MoE", TOKENS, ROUTES, *GATED, consts=(2, 3, 4, 5), k=2,
                            activation_type="swiglu", swiglu_fusion=1, swiglu_limit=1.0,
                            activation_alpha=1.702, activation_beta=1.0),
    "ms_qexperts": row("QMoE", rand(5, 32), ROUTES, u8(4, 64, 16), rand(4, 64, seed=1) / 20,
                       rand(4, 64, seed=2), u8(4, 32, 16, seed=3), rand(4, 32, seed=4) / 20,
                       rand(4, 32, seed=5), consts=tuple(range(2, 8)), k=2, swiglu_fusion=1,
                       activation_type="swiglu", expert_weight_bits=4),
    **{f"ms_qexperts_weights_{whole}": row(
        "QMoE", rand(5, 32), ROUTES, u8(4, 64, 16), rand(4, 64, seed=1) / 20, None,
        u8(4, 32, 16, seed=3), rand(4, 32, seed=4) / 20, *[None] * 7, np.abs(rand(5, 4, seed=9)),
        consts=(2, 3, 5, 6), k=2, swiglu_fusion=1, activation_type="swiglu", expert_weight_bits=4,
        normalize_routing_weights=whole) for whole in (0, 1)},
    "ms_qexperts_zeros": row("QMoE", rand(5, 32), ROUTES, u8(4, 64, 16), rand(4, 64, seed=1) / 20,
                             None, u8(4, 32, 16, seed=3), rand(4, 32, seed=4) / 20, None, None,
                             None, None, u8(4, 32, seed=8), u8(4, 16, seed=9),
                             consts=(2, 3, 5, 6, 11, 12), swiglu_fusion=1,
                             activation_type="swiglu", expert_weight_bits=4),
    "ms_qexperts_blocks": row("QMoE", rand(5, 32), ROUTES, u8(4, 64, 16), rand(4, 64, 2) / 20,
                              None, u8(4, 32, 16, seed=3), rand(4, 32, 2, seed=4) / 20, None,
                              None, None, None, u8(4, 64, 1, seed=8), u8(4, 32, 1, seed=9),
                              consts=(2, 3, 5, 6, 11, 12), k=1, swiglu_fusion=1, block_size=16,
                              activation_type="swiglu", expert_weight_bits=4),
}

ELSEWHERE |= {
    "ms_qmean": row("QLinearReduceMean", u8(2, 3, 5), *HALF[0], *HALF[1], consts=(1, 2, 3, 4),
                    axes=[1], keepdims=0),
}

ROWS = [np.zeros((3, 4), np.int32), np.array([0, 2, 6, 7], np.int32)]
ELSEWHERE |= {
    "ms_rows": row("PackedAttention", rand(7, 6), rand(6, 36, seed=1), rand(36, seed=2), *ROWS,
                   consts=(1, 2), num_heads=3),
    "ms_rows_heads": row("PackedMultiHeadAttention", *(rand(7, 12, seed=n) for n in range(3)),
                         None, *ROWS, num_heads=3),
}

TWINS = {
    "ms_pad": row("Pad", rand(2, 3), np.array([[0, 2, 1, 0]]), np.float32(0.5), consts=(1,)),
    "ms_pad_reflect": row("Pad", rand(4, 3), np.array([2, 1, 1, 0]), consts=(1,), mode="reflect"),
    "ms_trilu": row("Trilu", rand(2, 4, 5), np.array(1), consts=(1,), upper=0),
    "ms_grid": row("GridSample", rand(2, 3, 5, 4), rand(2, 3, 6, 2, seed=1), mode="bilinear",
                   padding_mode="border", align_corners=1),
    "ms_gather_nd": row("GatherND", rand(3, 4, 2), np.array([[1, 3], [2, 0]])),
    "ms_unfold": row("UnfoldTensor", rand(3, 7), size=3, step=2),
    "ms_unfold_rows": row("UnfoldTensor", ids(5, 3, 2, below=99), size=2, dim=0),
    **{f"ms_inverse_{n}": row("Inverse", rand(2, n, n)) for n in (1, 3, 9)},
    "ms_inverse_f64": row("Inverse", rand(5, 5).astype(np.float64)),
    "ms_expand": row("ExpandDims", rand(3, 4), np.array(-2, np.int32), consts=(1,)),
    "ms_distance": row("CDist", rand(5, 7), rand(3, 7, seed=1), metric="euclidean"),
    "ms_distance_square": row("CDist", rand(5, 7), rand(3, 7, seed=1)),
}
ELSEWHERE |= {
    "ms_positions": row("RelativePositionBias", rand(8, 3), np.array(9), np.array(9),
                        consts=(1, 2), max_distance=6),
    "ms_positions_both": row("RelativePositionBias", rand(16, 3), np.array(20), np.array(20),
                             consts=(0, 1, 2), max_distance=12, is_bidirectional=1),
    "ms_solve": row("Solve", np.eye(4, dtype=np.float32) * 3 + rand(4, 4), rand(4, 5, seed=1),
                    consts=(0,)),
    "ms_embedding": row("TorchEmbedding", rand(5, 4), np.array([[1, 4], [0, 2]]), consts=(0,)),
    "ms_gemm_gelu": row("GemmFastGelu", rand(2, 3, 4), rand(4, 5, seed=1), rand(5, seed=2),
                        consts=(1, 2)),
    "ms_swiglu": row("SwiGLU", rand(3, 8), activation_alpha=1.7, activation_beta=1.0, limit=0.8),
}

# what is rounded to 8 bits may lie on the border between two steps
TOLERANCES = {"QLinearAveragePool": 1, "QLinearConcat": 1, "QLinearConv": 1, "QLinearWhere": 1,
              "QuantizeLinear": 1, "MatMulNBits": 1e-4, "QMoE": 1e-4, "Inverse": 1e-4}


def contrib_cases():
    """Every row of this module."""
    run = (FUSED | ATTENTION | DECODERS | ROTARY | BLOCKS | QUANTISED | LSTMS | MIXTURES | TWINS
           | MORE)
    for table, executors in ((run, RUNTIME), (ELSEWHERE | BOUND, ())):
        for name, (op, arrays, attrs, consts, outputs) in table.items():
            yield NodeCase(name, op, arrays, attrs, consts, outputs, executors=executors,
                           atol=TOLERANCES.get(op, 1e-5))
