"""More nodes of the domain com.microsoft to try, of recent language models and of older tools."""

import numpy as np
from frontend_cases import rand

MS = {"domain": "com.microsoft"}


def row(op, *arrays, consts=(), outputs=1, **attrs):
    """(op, arrays, attributes, positions of constants, number of outputs)."""
    return op, list(arrays), MS | attrs, consts, outputs


def ids(*shape, below, seed=0, dtype=np.int32):
    return np.random.default_rng(seed).integers(0, below, shape).astype(dtype)


def f(value):
    return np.float32(value)


CONV = [rand(2, 4, 5), rand(4, 1, 3, seed=1), rand(4, seed=2)]


def convolved(*inputs, **attrs):
    return row("CausalConvWithState", *inputs, outputs=2, consts=(1, 2), **attrs)


def linear(rule, tokens, keys=2, queries=2, state=True, columns=1, **attrs):
    """LinearAttention of so many heads of keys and queries on two of values; ``columns``: decays of
    each head."""
    q, k, v = (rand(2, tokens, n, seed=s, scale=0.5)
               for s, n in enumerate((queries * 4, keys * 4, 10)))
    decay = -np.abs(rand(2, tokens, 2 * columns, seed=4)) if "gated" in rule else None
    beta = np.abs(rand(2, tokens, 2, seed=5)) * 0.3 if "delta" in rule else None
    return row("LinearAttention", q, k, v, rand(2, 2, 4, 5, seed=3) if state else None, decay, beta,
               q_num_heads=queries, kv_num_heads=2, update_rule=rule, outputs=2, **attrs)


CARRIED = {
    "ms_causal_conv": convolved(*CONV, rand(2, 4, 2, seed=3), activation="silu"),
    "ms_causal_conv_start": row("CausalConvWithState", *CONV[:2], consts=(1,), outputs=2),
    "ms_causal_conv_wide": convolved(CONV[0][..., :1], *CONV[1:], rand(2, 4, 4), dilation=2),
    "ms_causal_conv_last": convolved(rand(2, 5, 2, 2), *CONV[1:], rand(2, 2, 2, 2, seed=3),
                                     channels_last=1, activation="swish"),
    **{f"ms_linear_{rule}": linear(rule, 3) for rule in ("linear", "gated", "delta")},
    "ms_linear_both": linear("gated_delta", 3, state=False, scale=0.3),
    "ms_linear_long": linear("gated_delta", 11, keys=1, queries=1),
    "ms_linear_queries": linear("gated_delta", 1, queries=4, columns=4),
}

ENDS, STATES = np.array([0, 1, 5, 7], np.int32), rand(3, 4, 2, seed=2)


def packed(*more, state=True, heads=2, deep=False, rank=3, **attrs):
    """GatedDeltaNet of two requests of three tokens."""
    q, k, v = (rand(6, n, size, seed=s, scale=0.5)
               for s, (n, size) in enumerate(((heads, 4), (heads, 4), (4, 5))))
    decay = -np.abs(rand(6, 4, *([4] if deep else []), seed=3))
    given = [q, k, v, None, decay, np.abs(rand(6, 4, seed=4)) * 0.3]
    if rank == 4:
        given = [a if a is None else a.reshape(2, 3, *a.shape[1:]) for a in given]
    given.append(rand(2, 4, 5, 4, seed=5) if state else None)
    return row("GatedDeltaNet", *given, *more, outputs=2, qk_l2_norm=1, **attrs)


HEADS = [rand(4, seed=7), rand(4, seed=8), rand(4, 4, seed=9)]
PACKED_QKV = row("GatedDeltaNet", rand(6, 36, scale=0.5), None, None, None,
                 -np.abs(rand(6, 4, seed=3)), np.abs(rand(6, 4, seed=4)) * 0.3,
                 rand(2, 4, 5, 4, seed=5), outputs=2, qk_l2_norm=1)
ROWS_OF_TOKENS = {
    "ms_varlen_conv": row("VarlenCausalConvWithState", rand(7, 4), CONV[1], ENDS, CONV[2], STATES,
                          consts=(1, 3), outputs=2, activation="silu"),
    "ms_varlen_conv_wide": row("VarlenCausalConvWithState", rand(7, 4), CONV[1], ENDS, None,
                               rand(3, 4, 4), consts=(1,), outputs=2, dilation=2),
    "ms_delta_net": packed(), "ms_delta_net_deep": packed(deep=True, scale=0.3),
    "ms_delta_net_alone": packed(state=False, rank=4), "ms_delta_net_packed": PACKED_QKV,
    "ms_delta_net_soft": packed(*HEADS[:2], gate_activation="softplus", beta_activation="sigmoid"),
    "ms_delta_net_bound": packed(HEADS[0], HEADS[2], deep=True, gate_activation="sigmoid",
                                 gate_lower_bound=-3.0),
}

X, GATE, STREAMS = rand(2, 3, 8), rand(2, 3, 1, seed=2), rand(2, 3, 4, 8)
FLAT, BLOCK = STREAMS.reshape(2, 3, 32), rand(2, 3, 8, seed=3)
ANGLES = np.outer(np.arange(20), 1 / 10 ** np.linspace(0, 1, 8)).astype(np.float32)
OF_THREE = [ids(3, 2, 5, below=20, dtype=np.int64), np.cos(ANGLES), np.sin(ANGLES)]
KEYS = [rand(2, 3, 2, 8, seed=n) for n in (0, 1)]
SCALES = [rand(2, 8, seed=n) for n in (3, 4, 5)]
SHARES, LEAN = rand(5, 8), rand(8, seed=1, scale=0.1)
GATES = {
    "ms_gated_add": row("GatedAdd", X, rand(2, 3, 8, seed=1), GATE),
    "ms_gated_norm": row("GatedRMSNorm", X, rand(4, seed=3), rand(2, 3, 8, seed=1)),
    "ms_gated_norm_sigmoid": row("GatedRMSNorm", X, rand(8, seed=3), rand(2, 3, 8, seed=1),
                                 activation="sigmoid", epsilon=1e-3),
    "ms_scaled_silu": row("ScaledSiLU", X, alpha=1.3),
    "ms_scaled_silu_by": row("ScaledSiLU", X, f(0.7)),
    "ms_linear_gate": row("LinearAttentionGate", X, rand(8, seed=1), -np.abs(rand(8, seed=2)),
                          rand(2, 3, 8, seed=3), outputs=2),
    "ms_engram": row("EngramGate", *KEYS, BLOCK, *SCALES, outputs=2, epsilon=1e-3),
    "ms_branch_norm": row("BranchwiseRMSNorm", STREAMS, rand(4, 8, seed=1), epsilon=1e-4),
    "ms_branch_norm_flat": row("BranchwiseRMSNorm", FLAT, rand(32, seed=1), num_branches=4),
    "ms_premix": row("HyperConnectionPreMix", STREAMS, rand(2, 3, 4, seed=1), reduction_scale=0.5),
    "ms_premix_flat": row("HyperConnectionPreMix", FLAT, rand(2, 3, 32, seed=1), num_branches=4),
    "ms_postmix": row("HyperConnectionPostMix", STREAMS, BLOCK, rand(2, 3, 4, seed=1)),
    "ms_postmix_flat": row("HyperConnectionPostMix", FLAT, BLOCK, rand(2, 3, 4, 1, seed=1),
                           rand(2, 3, 4, 4, seed=2), num_branches=4),
    "ms_rotary_three": row("MRotaryEmbedding", rand(2, 3, 5, 16), *OF_THREE, consts=(2, 3),
                           mrope_section=[4, 2, 2]),
    "ms_rotary_woven": row("MRotaryEmbedding", rand(2, 5, 60), *OF_THREE, consts=(2, 3),
                           mrope_section=[3, 3, 2], mrope_layout=1, interleaved=1, num_heads=3,
                           rotary_embedding_dim=16),
    "ms_router": row("MoEGroupRouter", SHARES, LEAN, top_k=2),
    "ms_router_groups": row("MoEGroupRouter", SHARES, LEAN, top_k=3, n_group=4, topk_group=2,
                            group_topk=2, router_sentinel=-5.0),
    "ms_router_scores": row("MoEGroupRouter", rand(3, 256), LEAN, rand(8, 256, seed=2, scale=0.1),
                            outputs=(0, 1, 1), top_k=2),
}

WORDS = np.array([[4, 7, 2, 0, 0, 6, 0, 0], [1, 2, 3, 4, 5, 6, 7, 1], [3] + [0] * 7],
                 np.int32)
RUNS = [ids(2, 7, below=6, dtype=np.int64), np.array([7, 13, 2 ** 40 + 1]),
        np.array([11, 13, 17, 19])]
IN_RUNS = dict(max_ngram_size=3, n_head_per_ngram=2, pad_id=9, outputs=2)
SEGMENTS = ids(7, below=2, seed=3)
REGIONS = np.array([[0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1], [-0.2, 0.1, 0.8, 1.3],
                    [0.9, 0.8, 0.1, 0.2]], np.float32)
OWNERS = np.array([0, 1, 1, 0], np.int32)
TAPS = rand(3, 4, 3, 3, seed=1)
OLDER = {
    **{f"ms_crops_{mode}_{h}": row("CropAndResize", rand(2, 3, 6, 5), REGIONS, OWNERS,
                                   np.array([h, 4], np.int32), consts=(3,), mode=mode,
                                   extrapolation_value=0.5)
       for mode, h in (("bilinear", 3), ("nearest", 1))},
    "ms_transposed_pads": row("ConvTransposeWithDynamicPads", rand(1, 3, 4, 5), TAPS,
                              np.array([1, 0, 0, 1]), rand(4), consts=(1, 2, 3), strides=[2, 1]),
    "ms_words": row("WordConvEmbedding", WORDS, rand(4, 1, 3, 5, seed=1), rand(4, seed=2),
                    rand(8, 5), consts=(1, 2, 3)),
    **{f"ms_murmur_{np.dtype(d).name}": row("MurmurHash3", (rand(3, 5) * 1e6).astype(d), **more)
       for d, more in ((np.int32, {}), (np.float32, dict(positive=0)), (np.int64, dict(seed=77)),
                       (np.float64, {}))},
    **{f"ms_no_repeats_{n}": row("NGramRepeatBlock", ids(3, 9, below=4, dtype=np.int64),
                                 rand(3, 6), ngram_size=n) for n in (1, 3)},
    "ms_run_hashes": row("NGramHashMapping", *RUNS, **IN_RUNS),
    "ms_run_hashes_i32": row("NGramHashMapping", *(a.astype(np.int32) for a in RUNS), **IN_RUNS),
    "ms_run_hashes_past": row("NGramHashMapping", *RUNS, ids(2, 2, below=6, dtype=np.int64),
                              np.array([0, 11, 24, 41]), np.array(2),
                              np.sort(ids(2, 7, below=3, seed=1), 1), reset_on_eos=1, **IN_RUNS),
    "ms_run_hashes_packed": row("VarlenNGramHashMapping", ids(7, below=5), *(
        a.astype(np.int32) for a in RUNS[1:]), ENDS, ids(3, 2, below=5, seed=1), None,
        np.array(2, np.int32), SEGMENTS, ids(3, 2, below=2, seed=2), reset_on_eos=1,
        **IN_RUNS | dict(outputs=3)),
    "ms_run_hashes_first": row("VarlenNGramHashMapping", ids(7, below=5, dtype=np.int64),
                               *RUNS[1:], ENDS, None, np.array([0, 11, 24, 41]), None, SEGMENTS,
                               **IN_RUNS | dict(outputs=3)),
    "ms_range": row("Range", np.array(2), np.array(9), np.array(3), consts=(0, 1, 2)),
    "ms_range_one": row("Range", np.array([2], np.int16), np.array([6], np.int16), consts=(0, 1)),
    "ms_sample": row("SampleOp", rand(2, 3)),
    "ms_unique": row("Unique", np.array([2, 1, 1, 3, 4, 3], np.float32), consts=(0,), outputs=3),
    "ms_matmul_16": row("MatMulInteger16", *(ids(*s, below=600, dtype=np.int16) - np.int16(300)
                                             for s in ((2, 3, 4), (4, 5)))),
}
MORE = CARRIED | ROWS_OF_TOKENS | GATES | OLDER
BLOCKS_OF_KEYS = [np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], np.int32),
                  np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], np.int32)]


def in_blocks(batch, sequence, lengths, rotated=False):
    """SparseAttention of four heads on two, in a cache of 64 keys."""
    q, k, v = (rand(batch, sequence, n, seed=s) for s, n in enumerate((64, 32, 32)))
    past = [rand(batch, 2, 64, 16, seed=s) for s in (3, 4)]
    angles = np.outer(np.arange(64), 1 / 10 ** np.linspace(0, 1, 8)).astype(np.float32)
    tables = [np.cos(angles), np.sin(angles)] if rotated else []
    return row("SparseAttention", q, k, v, *past, *BLOCKS_OF_KEYS,
               np.array(max(lengths), np.int32), np.array(lengths, np.int32), *tables,
               consts=(5, 6), num_heads=4, kv_num_heads=2, sparse_block_size=16,
               do_rotary=int(rotated), outputs=3)


# what ONNX Runtime runs in buffers that inputs and outputs share, or on sparse tensors, or gives
# without a count
BOUND = {
    "ms_warp": row("DynamicTimeWarping", rand(5, 7)),
    "ms_sparse_heads": in_blocks(1, 5, (50,), True),
    "ms_sparse_matmul": row("SparseToDenseMatMul", rand(4, 3), rand(5, 4, seed=1), transA=1,
                            transB=1, alpha=0.3),
}
