"""Rows of the random graph generator for com.microsoft, as ONNX Runtime's optimiser and quantisers
write it; ONNX Runtime says what is right."""

import numpy as np
from onnx_graphs import MS
from onnx_nodes import row

F32 = np.float32
ACTIVATIONS = (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"alpha": 0.2}),
               ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}))


def _rows(g, rank=None, last=None):
    """A finite tensor of the graph, or a new input."""
    x = g.pick(lambda v: v.array.dtype == F32 and v.array.ndim >= 2 and v.array.size
               and np.isfinite(v.array).all() and np.abs(v.array).max() < 50
               and rank in (None, v.array.ndim) and last in (None, v.array.shape[-1]))
    if x is None or g.rng.random() < 0.3:
        shape = g.shape(rank or g.rng.choice((2, 3, 3)))
        shape = tuple(max(1, n) for n in shape)
        x = g.input((*shape[:-1], last or shape[-1]), F32, special=False)
    return x


def _floats(g, *shape, scale=1.0):
    return g.const((g.data(shape, F32) * scale).astype(F32))


def _bytes(g, shape, dtype=None):
    """Bytes as an input or a constant, with their scale and zero point."""
    dtype = dtype or g.rng.choice((np.uint8, np.int8))
    info = np.iinfo(dtype)
    array = g.np.integers(info.min, info.max + 1, shape).astype(dtype)
    x = g.input(shape, dtype, special=False)
    x.array[...] = array
    return [x, *_scale(g, dtype)]


def _scale(g, dtype):
    """Scale and zero point."""
    zero = g.rng.randint(100, 140) if dtype == np.uint8 else g.rng.randint(-9, 9)
    return [g.const(F32(g.rng.choice((0.01, 0.02, 0.05)))), g.const(np.array(zero, dtype))]


def _add(g, op, inputs, outputs=1, **more):
    return g.add(op, inputs, outputs, domain=MS, **more)


@row(2)
def activation(g):
    x = _rows(g)
    op = g.rng.choice(("Gelu", "FastGelu", "QuickGelu", "BiasGelu"))
    bias = [_floats(g, x.array.shape[-1])] if op == "BiasGelu" or (
        op == "FastGelu" and g.rng.random() < 0.5) else []
    more = {"alpha": g.rng.choice((1.0, 1.7))} if op == "QuickGelu" else {}
    _add(g, op, [x, *bias], **more)


@row(2)
def skip_normal(g):
    x = _rows(g, rank=3)
    n = x.array.shape[-1]
    if n < 2:  # of one element nothing but rounding is left
        return
    skip = g.input(x.array.shape, F32, special=False)
    bias = [_floats(g, n)] if g.rng.random() < 0.5 else []
    if g.rng.random() < 0.5:
        _add(g, "SkipLayerNormalization", [x, skip, _floats(g, n), _floats(g, n), *bias],
             epsilon=1e-3)
    else:
        _add(g, "SkipSimplifiedLayerNormalization", [x, skip, _floats(g, n), *bias], epsilon=1e-3)


@row(2)
def product(g):
    x = _rows(g, rank=2)
    m, k = x.array.shape
    n = g.rng.choice((1, 5, 16))
    if g.rng.random() < 0.5:
        a, b = g.rng.randint(0, 1), g.rng.randint(0, 1)
        k = m if a else k
        _add(g, "FusedMatMul", [x, _floats(g, *((n, k) if b else (k, n)))], transA=a, transB=b,
             alpha=g.rng.choice((1.0, 0.3)))
    else:
        op, given = g.rng.choice(ACTIVATIONS)
        given = {f"activation_{key}": value for key, value in given.items()}
        _add(g, "FusedGemm", [x, _floats(g, k, n), _floats(g, n)], activation=op, **given)


@row()
def convolution(g):
    c, out = g.rng.choice((1, 3, 4)), g.rng.choice((1, 4, 16))
    x = g.input((1, c, g.rng.randint(3, 7), g.rng.randint(3, 7)), F32, special=False)
    op, given = g.rng.choice(ACTIVATIONS)
    more = {"activation_params": list(given.values())} if given else {}
    _add(g, "FusedConv", [x, _floats(g, out, c, 3, 3), _floats(g, out)], activation=op,
         pads=[g.rng.randint(0, 1)] * 4, strides=[g.rng.randint(1, 2)] * 2, **more)


@row(2)
def attention(g):
    heads, size, batch, rows = g.rng.choice((1, 2, 3)), g.rng.choice((4, 8)), 2, g.rng.randint(1, 5)
    n = heads * size
    bent = {"unidirectional": g.rng.randint(0, 1)}
    mask = np.ones((batch, rows), np.int32)
    mask[:, g.rng.randint(1, rows):] = 0
    mask = g.const(mask) if g.rng.random() < 0.5 else None
    if g.rng.random() < 0.5:
        x = g.input((batch, rows, n), F32, special=False)
        _add(g, "Attention", [x, _floats(g, n, 3 * n, scale=0.3), _floats(g, 3 * n), mask],
             num_heads=heads, **bent)
    else:
        q, k, v = (g.input((batch, rows, n), F32, special=False) for _ in "qkv")
        bias = _floats(g, 3 * n) if g.rng.random() < 0.5 else None
        _add(g, "MultiHeadAttention", [q, k, v, bias, mask], num_heads=heads, **bent)


@row()
def grouped_heads(g):
    shared, each, rows = g.rng.choice((1, 2)), g.rng.choice((1, 2, 3)), g.rng.randint(1, 4)
    size = 16
    q = g.input((1, rows, shared * each * size), F32, special=False)
    k, v = (g.input((1, rows, shared * size), F32, special=False) for _ in "kv")
    ends = [g.const(np.array([rows - 1], np.int32)), g.const(np.array(rows, np.int32))]
    _add(g, "GroupQueryAttention", [q, k, v, None, None, *ends], 3, num_heads=shared * each,
         kv_num_heads=shared)


@row()
def rotated(g):
    rows, heads = g.rng.randint(1, 4), g.rng.randint(1, 3)
    x = g.input((1, rows, heads * 16), F32, special=False)
    angles = np.outer(np.arange(8), 1 / 10 ** np.linspace(0, 1, 8))
    tables = [g.const(f(angles).astype(F32)) for f in (np.cos, np.sin)]
    _add(g, "RotaryEmbedding", [x, g.const(np.arange(rows)[None]), *tables],
         interleaved=g.rng.randint(0, 1))


@row(2)
def bits(g):
    count, block = g.rng.choice((2, 4, 4, 8)), g.rng.choice((16, 32))
    k, n = block * g.rng.randint(1, 2), g.rng.choice((1, 5, 16))
    x = _rows(g, last=k)
    w = g.const(g.np.integers(0, 256, (n, k // block, block * count // 8)).astype(np.uint8))
    scales = _floats(g, n, k // block, scale=0.1)
    packed = -(-(k // block) * count // 8)
    zeros = g.const(g.np.integers(0, 256, (n, packed)).astype(np.uint8))
    _add(g, "MatMulNBits", [x, w, scales] + [zeros] * g.rng.randint(0, 1), K=k, N=n, bits=count,
         block_size=block, accuracy_level=1)


@row()
def rows_of_bits(g):
    n, blocks = g.rng.randint(1, 7), g.rng.randint(1, 2)
    table = g.const(g.np.integers(0, 256, (n, 8 * blocks)).astype(np.uint8))
    at = g.const(g.np.integers(0, n, g.rng.choice(((3,), (2, 2)))))
    _add(g, "GatherBlockQuantized", [table, at, _floats(g, n, blocks)], bits=4, block_size=16)


@row(3)
def bytes_by_element(g):
    shape = g.rng.choice(((3, 5), (1, 3, 4, 4), (2, 17)))
    a = _bytes(g, shape)
    dtype = a[0].array.dtype
    op = g.rng.choice(("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu",
                       "QLinearConcat", "QLinearSoftmax"))
    if op in ("QLinearAdd", "QLinearMul"):
        _add(g, op, [*a, *_bytes(g, shape, dtype), *_scale(g, dtype)], last=True)
    elif op == "QLinearConcat":
        _add(g, op, [*_scale(g, dtype), *a, *_bytes(g, shape, dtype)], last=True, axis=1)
    elif op == "QLinearSoftmax":
        zero = 0 if dtype == np.uint8 else -128
        _add(g, op, [*a, g.const(F32(1 / 256)), g.const(np.array(zero, dtype))], last=True,
             axis=-1, opset=13)
    else:
        more = {"alpha": 0.2} if op == "QLinearLeakyRelu" else {}
        _add(g, op, [*a, *_scale(g, dtype)], last=True, **more)


@row(2)
def bytes_of_windows(g):
    shape = (1, g.rng.randint(1, 4), g.rng.randint(3, 6), g.rng.randint(3, 6))
    a = _bytes(g, shape, np.uint8)
    if g.rng.random() < 0.5:
        _add(g, "QLinearGlobalAveragePool", [*a, *_scale(g, np.uint8)], last=True)
    else:
        _add(g, "QLinearAveragePool", [*a, *_scale(g, np.uint8)], last=True,
             kernel_shape=[2, 3], pads=[g.rng.randint(0, 1)] * 4)


@row(2)
def bytes_of_products(g):
    m, k, n = (g.rng.choice((1, 4, 16, 33)) for _ in range(3))
    w = g.const(g.data((k, n), np.int8))
    scales = g.const(np.abs(g.data((n,), F32)) / 50 + F32(0.01))
    match g.rng.randrange(3):
        case 0:
            a = _bytes(g, (m, k), np.uint8)
            _add(g, "MatMulIntegerToFloat", [a[0], w, a[1], scales, a[2]])
        case 1:
            a = _bytes(g, (m, k), np.uint8)
            _add(g, "QGemm", [*a, w, g.const(F32(0.01)), g.const(np.int8(0)), None,
                              *_scale(g, np.uint8)], last=True)
        case 2:
            x = g.input((m, k), F32, special=False)
            made = _add(g, "DynamicQuantizeMatMul", [x, w, scales], last=True)
            if made:  # a tie of the data's rounding shifts a step of it
                g.add("Mul", [made[0], g.const(F32(1))], last=True)


@row()
def experts(g):
    rows, n, inner, count = g.rng.randint(1, 5), 8, 6, 4
    x, routes = (g.input((rows, k), F32, special=False) for k in (n, count))
    _add(g, "MoE", [x, routes, _floats(g, count, inner, n, scale=0.3), _floats(g, count, inner),
                    _floats(g, count, n, inner, scale=0.3), _floats(g, count, n)],
         k=g.rng.randint(1, 2), activation_type=g.rng.choice(("relu", "gelu", "silu")))


@row()
def embedded(g):
    n, rows = g.rng.choice((4, 10)), g.rng.randint(1, 5)
    ids = [g.const(g.np.integers(0, k, (2, rows)).astype(np.int32)) for k in (13, 2)]
    tables = [_floats(g, k, n) for k in (13, 7, 2)]
    _add(g, "EmbedLayerNormalization", [*ids, *tables, _floats(g, n), _floats(g, n)], 2,
         epsilon=1e-3)


@row()
def twins(g):
    """What com.microsoft has beside ONNX."""
    x = _rows(g, rank=2)
    m, n = x.array.shape
    match g.rng.randrange(5):
        case 0:
            pads = g.const(np.array([g.rng.randint(0, 2) for _ in range(4)]))
            _add(g, "Pad", [x, pads], exact=True)
        case 1:
            _add(g, "Trilu", [x, g.const(np.array(g.rng.randint(-2, 2)))], exact=True,
                 upper=g.rng.randint(0, 1))
        case 2:
            at = g.np.integers(0, (m, n), (3, 2))
            _add(g, "GatherND", [x, g.const(at)], exact=True)
        case 3:
            _add(g, "CDist", [x, _floats(g, 3, n)], metric=g.rng.choice(("euclidean",
                                                                         "sqeuclidean")))
        case 4:
            most, axis = min(m, n), g.rng.randint(-2, 1)
            _add(g, "UnfoldTensor", [x], exact=True, dim=axis, size=g.rng.randint(1, most),
                 step=g.rng.randint(1, 3))


@row(2)
def carried(g):
    """Layers with a state."""
    batch, tokens, start = g.rng.randint(1, 2), g.rng.choice((1, 3, 12)), g.rng.random() < 0.5
    if g.rng.random() < 0.5:
        channels, taps, step = g.rng.choice((1, 4, 17)), g.rng.randint(1, 4), g.rng.randint(1, 2)
        last = g.rng.randint(0, 1)

        def placed(length):
            return (batch, length, channels) if last else (batch, channels, length)
        x = g.input(placed(tokens), F32, special=False)
        past = g.input(placed((taps - 1) * step), F32, special=False) if start else None
        bias = _floats(g, channels) if g.rng.random() < 0.5 else None
        _add(g, "CausalConvWithState", [x, _floats(g, channels, 1, taps), bias, past], 2,
             dilation=step, channels_last=last, activation=g.rng.choice(("none", "silu", "swish")))
        return
    rule = g.rng.choice(("linear", "gated", "delta", "gated_delta"))
    heads, size, columns = g.rng.choice((1, 2, 4)), g.rng.choice((4, 8)), g.rng.choice((3, 8))
    each = g.rng.choice([k for k in (1, 2, 4) if heads % k == 0])
    q, k = (g.input((batch, tokens, each * size), F32, special=False) for _ in "qk")
    if g.rng.random() < 0.3 and each == heads:
        q = g.input((batch, tokens, 2 * heads * size), F32, special=False)
        each = 2 * heads
    v = g.input((batch, tokens, heads * columns), F32, special=False)
    k.array[...] *= F32(0.3)  # updates that grow without an end are no layer
    past = g.input((batch, heads, size, columns), F32, special=False) if start else None
    decay = beta = None
    if "gated" in rule:
        decay = g.input((batch, tokens, heads * g.rng.choice((1, size))), F32, special=False)
        decay.array[...] = -np.abs(decay.array)
    if "delta" in rule:
        beta = g.input((batch, tokens, g.rng.choice((1, heads))), F32, special=False)
        beta.array[...] = np.abs(beta.array) / (1 + np.abs(beta.array))
    _add(g, "LinearAttention", [q, k, v, past, decay, beta], 2, q_num_heads=each,
         kv_num_heads=heads, update_rule=rule)


@row(2)
def cached_heads(g):
    """Keys of earlier calls: all of them or the last ones, as floats or integers; scores."""
    shared, each, size, rows = g.rng.choice((1, 2)), g.rng.randint(1, 3), 16, g.rng.randint(1, 3)
    room, window = g.rng.randint(3, 6), g.rng.random() < 0.5
    before = room + (g.rng.choice((0, 1, 7)) if window else 0)
    q = g.input((1, rows, shared * each * size), F32, special=False)
    k, v = (g.input((1, rows, shared * size), F32, special=False) for _ in "kv")
    more = {"sliding_window_cache": 1, "local_window_size": room} if window else {}
    total = before + rows
    bits = g.rng.choice((0, 0, 8, 4))
    shape, tail = (1, shared, room, size), []
    if bits:
        kind = np.int8 if bits == 8 else np.uint8
        past = [_bytes(g, (*shape[:3], size * bits // 8), kind)[0] for _ in "kv"]
        scale = _floats(g, *((1,) if g.rng.random() < 0.5 else (1, shared, 1, size)), scale=0.1)
        scale.array[...] = np.abs(scale.array) + F32(0.02)
        more |= {"kv_cache_bit_width": bits} | {
            f"{n}_quant_type": "PER_TENSOR" if scale.array.ndim == 1 else "PER_CHANNEL"
            for n in "kv"}
        tail = [None] * 5 + [scale, scale]
    else:
        past = [g.input(shape, F32, special=False) for _ in "kv"]
    scores = not window and not bits and g.rng.random() < 0.5
    if scores:
        more["qk_output"] = g.rng.randint(1, 2)
    ends = [g.const(np.array([total - 1], np.int32)), g.const(np.array(total, np.int32))]
    _add(g, "GroupQueryAttention", [q, k, v, *past, *ends, *tail], 4 if scores else 3, last=True,
         num_heads=shared * each, kv_num_heads=shared, **more)


@row()
def decoder(g):
    batch, beams, heads, size, room = 2, g.rng.randint(1, 3), g.rng.randint(1, 3), 4, 6
    q, k, v = (g.input((batch * beams, 1, heads * size), F32, special=False) for _ in "qkv")
    past = [g.input((batch * beams, heads, room, size), F32, special=False) for _ in "kv"]
    if g.rng.random() < 0.3:
        _add(g, "DecoderMaskedMultiHeadAttention", [q, *past], num_heads=heads)
        return
    at = g.const(np.array([g.rng.randrange(room)], np.int32))
    came = [g.const(np.array([beams], np.int32)), g.const(
        g.np.integers(0, beams, (batch, beams, room)).astype(np.int32))] if beams > 1 else []
    _add(g, "DecoderMaskedMultiHeadAttention", [q, k, v, None, None, *past, at, *came], 3,
         num_heads=heads, past_present_share_buffer=1)


@row()
def codes(g):
    k, n, block = g.rng.choice((8, 24, 64)), g.rng.choice((1, 5, 16)), g.rng.choice((16, 32))
    x = _rows(g, last=k)
    w = g.const(g.np.integers(0, 256, -(-n * k // 2)).astype(np.uint8))
    _add(g, "MatMulBnb4", [x, w, _floats(g, -(-n * k // block))], K=k, N=n, block_size=block,
         quant_type=g.rng.randint(0, 1))


@row()
def inverse(g):
    n = g.rng.choice((1, 2, 3, 5, 9))
    x = g.input((g.rng.randint(1, 3), n, n), F32, special=False)
    x.array[...] = x.array / (1 + np.abs(x.array)) + 2 * n * np.eye(n, dtype=F32)
    _add(g, "Inverse", [x])


@row(2)
def gates(g):
    """What recent language models have between their layers."""
    batch, rows, n, streams = 2, g.rng.randint(1, 4), g.rng.choice((4, 8, 17)), g.rng.randint(1, 4)
    x, y = (g.input((batch, rows, n), F32, special=False) for _ in "xy")
    many = g.input((batch, rows, streams, n), F32, special=False)
    match g.rng.randrange(7):
        case 0:
            _add(g, "GatedAdd", [x, y, g.input((batch, rows, 1), F32, special=False)])
        case 1:
            _add(g, "GatedRMSNorm", [x, _floats(g, n), y], epsilon=1e-3,
                 activation=g.rng.choice(("silu", "swish", "sigmoid")))
        case 2:
            _add(g, "ScaledSiLU", [x], alpha=g.rng.choice((0.5, 1.0, 1.7)))
        case 3:
            scale = _floats(g, n)
            scale.array[...] = -np.abs(scale.array)
            _add(g, "LinearAttentionGate", [x, _floats(g, n), scale, y], 2)
        case 4:
            _add(g, "BranchwiseRMSNorm", [many, _floats(g, streams, n)], epsilon=1e-3)
        case 5:
            mix = g.input((batch, rows, streams, g.rng.choice((1, n))), F32, special=False)
            _add(g, "HyperConnectionPreMix", [many, mix], reduction_scale=0.5)
        case 6:
            mix = g.input((batch, rows, streams), F32, special=False)
            whole = [g.input((batch, rows, streams, streams), F32, special=False)]
            _add(g, "HyperConnectionPostMix", [many, x, mix] + whole * g.rng.randint(0, 1))


@row()
def rows_of_tokens(g):
    lengths = [g.rng.randint(1, 4) for _ in range(g.rng.randint(1, 3))]
    ends, tokens = np.cumsum([0, *lengths]).astype(np.int32), sum(lengths)
    if g.rng.random() < 0.5:
        channels, taps, step = g.rng.choice((1, 4, 17)), g.rng.randint(1, 3), g.rng.randint(1, 2)
        x = g.input((tokens, channels), F32, special=False)
        past = g.input((len(lengths), channels, (taps - 1) * step), F32, special=False)
        bias = _floats(g, channels) if g.rng.random() < 0.5 else None
        _add(g, "VarlenCausalConvWithState", [x, _floats(g, channels, 1, taps), g.const(ends), bias,
                                              past], 2, dilation=step,
             activation=g.rng.choice(("none", "silu")))
        return
    batch, rows, heads, each = g.rng.randint(1, 2), g.rng.choice((1, 3, 12)), 2, g.rng.randint(1, 2)
    q, k = (g.input((batch * rows, heads, 4), F32, special=False) for _ in "qk")
    v = g.input((batch * rows, heads * each, 5), F32, special=False)
    decay, beta = (g.input((batch * rows, heads * each), F32, special=False) for _ in range(2))
    for a, sign in ((decay, -1), (beta, 1)):
        a.array[...] = sign * np.abs(a.array) / (1 + np.abs(a.array))
    state = g.input((batch, heads * each, 5, 4), F32, special=False)
    _add(g, "GatedDeltaNet", [q, k, v, None, decay, beta, state], 2, qk_l2_norm=1)


@row()
def hashes(g):
    if g.rng.random() < 0.4:
        x = g.input(g.shape(2), g.rng.choice((np.int32, np.int64, np.float32)), special=False)
        _add(g, "MurmurHash3", [x], exact=True, positive=g.rng.randint(0, 1),
             seed=g.rng.randint(0, 99))
        return
    words, most = g.rng.randint(3, 9), g.rng.randint(2, 3)
    ids = g.const(g.np.integers(0, 4, (2, words)))
    if g.rng.random() < 0.5:
        scores = g.input((2, 5), F32, special=False)
        _add(g, "NGramRepeatBlock", [ids, scores], exact=True, ngram_size=most)
        return
    sizes = g.const(g.np.integers(5, 50, (most - 1) * 2))
    past = g.const(g.np.integers(0, 4, (2, most - 1))) if g.rng.random() < 0.5 else None
    _add(g, "NGramHashMapping", [ids, g.const(g.np.integers(1, 99, most)), sizes, past], 2,
         exact=True, max_ngram_size=most, n_head_per_ngram=2, pad_id=9)


@row()
def crops(g):
    h, w, count = g.rng.randint(2, 6), g.rng.randint(2, 6), g.rng.randint(1, 3)
    x = g.input((2, 3, h, w), F32, special=False)
    regions = g.const(g.np.random((count, 4)).astype(F32))
    owners = g.const(g.np.integers(0, 2, count).astype(np.int32))
    size = g.const(np.array([g.rng.randint(1, 4), g.rng.randint(1, 4)], np.int32))
    _add(g, "CropAndResize", [x, regions, owners, size], extrapolation_value=0.5)
