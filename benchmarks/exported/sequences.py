"""Networks on text, sound, graphs and tables as exporters write them, a block or a few of each."""

import numpy as np

from benchmarks.exported.build import LAST, Writer


def detr_head(size=20, c=128, heads=8, queries=50):
    """Positions from cumulative sums of a mask, one layer of each side, boxes and classes."""
    g = Writer("detr_head")
    x, keep = g.input("x", [1, c, size, size]), g.input("keep", [1, size, size], "bool")
    mask, pos = g.op("Cast", keep, to=1), []
    period = (10000.0 ** (2 * (np.arange(c // 2) // 2) / (c // 2))).astype(np.float32)
    for axis in (1, 2):
        e = g.op("CumSum", mask, np.int64(axis))
        last = g.op("Slice", e, [-1], [LAST], [axis])
        e = g.op("Mul", g.op("Div", e, g.op("Add", last, np.float32(1e-6))), np.float32(2 * np.pi))
        e = g.op("Div", g.op("Unsqueeze", e, [3]), period)
        sine = g.op("Sin", g.op("Slice", e, [0], [LAST], [3], [2]))
        cosine = g.op("Cos", g.op("Slice", e, [1], [LAST], [3], [2]))
        both = g.op("Concat", g.op("Unsqueeze", sine, [4]), g.op("Unsqueeze", cosine, [4]),
                    axis=4)
        pos.append(g.op("Reshape", both, [1, size, size, c // 2]))
    pos = g.op("Reshape", g.op("Concat", *pos, axis=3), [1, size * size, c])
    h = g.op("Transpose", g.op("Reshape", x, [1, c, -1]), perm=[0, 2, 1])
    h = _detr_layer(g, h, pos, h, pos, c, heads)
    q = _detr_layer(g, g.weight(1, queries, c), g.weight(1, queries, c), h, pos, c, heads)
    boxes = g.linear(g.op("Relu", g.linear(q, c, c)), c, 4)
    return g.model(g.op("Softmax", g.linear(q, c, 92), axis=-1), g.op("Sigmoid", boxes))


def _detr_layer(g, x, x_pos, memory, memory_pos, c, heads):
    q = g.heads(g.linear(g.op("Add", x, x_pos), c, c), heads, c // heads)
    k = g.heads(g.linear(g.op("Add", memory, memory_pos), c, c), heads, c // heads)
    v = g.heads(g.linear(memory, c, c), heads, c // heads)
    x = g.layer_norm(g.op("Add", x, g.linear(g.attention(q, k, v, c // heads, heads), c, c)), c)
    y = g.linear(g.op("Relu", g.linear(x, c, 4 * c)), 4 * c, c)
    return g.layer_norm(g.op("Add", x, y), c)


def rope_decoder(n=256, heads=8, shared=2):
    """One step or a prompt of a decoder: rotated halves, a cache, grouped heads, SwiGLU."""
    g, size, kv = Writer("rope_decoder"), n // heads, heads // shared
    ids = g.input("input_ids", [1, "seq"], "int64")
    position = g.input("position_ids", [1, "seq"], "int64")
    mask = g.input("mask", [1, 1, "seq", "total"])
    past = [g.input(f"past_{p}", [1, kv, "past", size]) for p in ("key", "value")]
    x = g.op("Gather", g.weight(1000, n), ids, axis=0)
    h = g.rms_norm(x, n)
    angle = g.op("Mul", g.op("Unsqueeze", g.op("Cast", position, to=1), [2]),
                 (10000.0 ** (-np.arange(0, size, 2) / size))[None, None])
    angle = g.op("Unsqueeze", g.op("Concat", angle, angle, axis=-1), [1])
    turn = g.op("Cos", angle), g.op("Sin", angle)
    q = _rotated(g, g.heads(g.linear(h, n, n, False), heads, size), turn, size)
    k = _rotated(g, g.heads(g.linear(h, n, kv * size, False), kv, size), turn, size)
    v = g.heads(g.linear(h, n, kv * size, False), kv, size)
    k, v = (g.op("Concat", p, new, axis=2) for p, new in zip(past, (k, v)))

    def repeated(t):
        wide = g.op("Expand", g.op("Unsqueeze", t, [2]), [1, kv, shared, 1, size])
        return g.op("Reshape", wide, [0, heads, -1, size])
    y = g.attention(q, repeated(k), repeated(v), size, heads, mask)
    x = g.op("Add", x, g.linear(y, n, n, False))
    h = g.rms_norm(x, n)
    h = g.op("Mul", g.silu(g.linear(h, n, 3 * n, False)), g.linear(h, n, 3 * n, False))
    x = g.op("Add", x, g.linear(h, 3 * n, n, False))
    return g.model(g.linear(g.rms_norm(x, n), n, 1000, False), k, v)


def _rotated(g, x, turn, size):
    half = g.op("Concat", g.op("Neg", g.op("Slice", x, [size // 2], [LAST], [3])),
                g.op("Slice", x, [0], [size // 2], [3]), axis=-1)
    return g.op("Add", g.op("Mul", x, turn[0]), g.op("Mul", half, turn[1]))


def t5_encoder(n=128, heads=4):
    """Buckets of relative positions by Log, as the graph computes them from its own shape."""
    g = Writer("t5_encoder")
    ids = g.input("input_ids", ["batch", "seq"], "int64")
    x = g.op("Gather", g.weight(500, n), ids, axis=0)
    length = g.op("Gather", g.op("Shape", ids), np.int64(1), axis=0)
    p = g.op("Range", np.int64(0), length, np.int64(1))
    d = g.op("Sub", g.op("Unsqueeze", p, [0]), g.op("Unsqueeze", p, [1]))
    side = g.op("Mul", g.op("Cast", g.op("Greater", d, np.int64(0)), to=7), np.int64(16))
    d = g.op("Abs", d)
    far = g.op("Log", g.op("Div", g.op("Cast", d, to=1), np.float32(8)))
    far = g.op("Mul", g.op("Div", far, np.float32(np.log(16))), np.float32(8))
    far = g.op("Min", g.op("Add", g.op("Cast", far, to=7), np.int64(8)), np.int64(15))
    bucket = g.op("Add", side, g.op("Where", g.op("Less", d, np.int64(8)), d, far))
    bias = g.op("Gather", g.weight(32, heads), bucket, axis=0)
    bias = g.op("Unsqueeze", g.op("Transpose", bias, perm=[2, 0, 1]), [0])
    for _ in range(2):
        x = g.op("Add", x, g.self_attention(g.rms_norm(x, n), n, heads, bias=bias))
        h = g.rms_norm(x, n)
        h = g.op("Mul", _gelu_new(g, g.linear(h, n, 4 * n, False)), g.linear(h, n, 4 * n, False))
        x = g.op("Add", x, g.linear(h, 4 * n, n, False))
    return g.model(g.rms_norm(x, n))


def _gelu_new(g, x):
    cube = g.op("Mul", g.op("Pow", x, np.float32(3)), np.float32(0.044715))
    t = g.op("Tanh", g.op("Mul", g.op("Add", x, cube), np.float32((2 / np.pi) ** 0.5)))
    return g.op("Mul", g.op("Mul", x, np.float32(0.5)), g.op("Add", t, np.float32(1)))


def clip_text(n=128, heads=4, tokens=32):
    """A causal mask, quick GELU, the features at the largest token id, of length one."""
    g = Writer("clip_text")
    ids = g.input("input_ids", ["batch", tokens], "int64")
    x = g.op("Add", g.op("Gather", g.weight(500, n), ids, axis=0), g.weight(tokens, n))
    mask = np.triu(np.full((tokens, tokens), -1e9), 1)[None, None].astype(np.float32)
    for _ in range(2):
        x = g.op("Add", x, g.self_attention(g.layer_norm(x, n), n, heads, bias=g.const(mask)))
        x = g.op("Add", x, g.mlp(g.layer_norm(x, n), n, 4 * n, lambda v: g.op(
            "Mul", v, g.op("Sigmoid", g.op("Mul", v, np.float32(1.702))))))
    x = g.layer_norm(x, n)
    last = g.op("Unsqueeze", g.op("ArgMax", ids, axis=1, keepdims=0), [1])
    y = g.op("GatherND", x, last, batch_dims=1)
    y = g.op("MatMul", y, g.weight(n, n))
    return g.model(g.op("Div", y, g.op("ReduceL2", y, axes=[1], keepdims=1)))


def whisper_encoder(frames=400, n=128, heads=4):
    g = Writer("whisper_encoder")
    x = g.gelu(g.conv(g.input("mel", [1, 80, frames]), 80, n, dims=1))
    x = g.gelu(g.conv(x, n, n, stride=2, dims=1))
    x = g.op("Add", g.op("Transpose", x, perm=[0, 2, 1]), g.weight(frames // 2, n))
    x = g.op("Add", x, g.self_attention(g.layer_norm(x, n), n, heads))
    x = g.op("Add", x, g.mlp(g.layer_norm(x, n), n, 4 * n))
    return g.model(g.layer_norm(x, n))


def wav2vec2(samples=8000, n=64):
    """Strided filters over samples, normalised per channel; a grouped convolution as position."""
    g = Writer("wav2vec2")
    x = g.conv(g.input("sound", [1, 1, samples]), 1, n, 10, 5, pads=[0, 0], dims=1, bias=False)
    x = g.gelu(g.group_norm(x, n, n, [0, n, -1], 1))
    for _ in range(2):
        x = g.gelu(g.conv(x, n, n, 3, 2, pads=[0, 0], dims=1, bias=False))
    x = g.linear(g.layer_norm(g.op("Transpose", x, perm=[0, 2, 1]), n), n, 2 * n)
    p = g.conv(g.op("Transpose", x, perm=[0, 2, 1]), 2 * n, 2 * n, 64, group=8, pads=[32, 32],
               dims=1)
    p = g.gelu(g.op("Slice", p, [0], [-1], [2]))
    x = g.layer_norm(g.op("Add", x, g.op("Transpose", p, perm=[0, 2, 1])), 2 * n)
    return g.model(g.op("Add", x, g.self_attention(x, 2 * n, 4)))


def tcn(length=256, c=48):
    """Causal dilated convolutions: padded on both sides, the future cut off behind."""
    g = Writer("tcn")
    x = g.input("x", ["batch", c, length])
    for rate in (1, 2, 4):
        h = x
        for _ in range(2):
            h = g.conv(h, c, c, dilation=rate, pads=[2 * rate] * 2, dims=1)
            h = g.op("Relu", g.op("Slice", h, [0], [-2 * rate], [2]))
        x = g.op("Relu", g.op("Add", x, h))
    return g.model(g.linear(g.op("Squeeze", g.op("Slice", x, [-1], [LAST], [2]), [2]), c, 10))


def conv_tasnet(samples=4000, n=64):
    """Speech apart: one norm over all channels and times, masks, a transposed convolution."""
    g = Writer("conv_tasnet")
    w = g.op("Relu", g.conv(g.input("mix", [1, 1, samples]), 1, n, 16, 8, pads=[0, 0], dims=1))

    def global_norm(x):
        m = g.op("ReduceMean", g.op("ReduceMean", x, axes=[1], keepdims=1), axes=[2], keepdims=1)
        d = g.op("Sub", x, m)
        v = g.op("ReduceMean", g.op("Pow", d, np.float32(2)), axes=[1, 2], keepdims=1)
        y = g.op("Div", g.op("Mul", g.weight(1, n, 1), d), g.op(
            "Sqrt", g.op("Add", v, np.float32(1e-8))))
        return g.op("Add", y, g.weight(1, n, 1))
    x = global_norm(w)
    for rate in (1, 2):
        h = global_norm(g.op("PRelu", g.conv(x, n, n, 1, dims=1), np.full((1, 1), 0.25)))
        h = global_norm(g.op("PRelu", g.conv(h, n, n, 3, group=n, dilation=rate, dims=1),
                             np.full((1, 1), 0.25)))
        x = g.op("Add", x, g.conv(h, n, n, 1, dims=1))
    mask = g.op("Reshape", g.op("Sigmoid", g.conv(x, n, 2 * n, 1, dims=1)), [1, 2, n, -1])
    y = g.op("Reshape", g.op("Mul", g.op("Unsqueeze", w, [1]), mask), [2, n, -1])
    return g.model(g.op("ConvTranspose", y, g.weight(n, 1, 16), kernel_shape=[16], strides=[8]))


def lstm_reader(steps=40, n=64):
    """Text in images: features of columns through two directions, classes of every column."""
    g = Writer("lstm_reader")
    x = g.op("Relu", g.conv(g.input("line", [1, 1, 16, 4 * steps]), 1, 32, 3, 2))
    x = g.op("MaxPool", g.op("Relu", g.conv(x, 32, n)), kernel_shape=[8, 2], strides=[8, 2])
    x = g.op("Transpose", g.op("Squeeze", x, [2]), perm=[2, 0, 1])
    for width in (n, 2 * n):
        y = g.op("LSTM", x, g.weight(2, 4 * n, width), g.weight(2, 4 * n, n), g.weight(2, 8 * n),
                 hidden_size=n, direction="bidirectional")
        x = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, -1])
    return g.model(g.op("LogSoftmax", g.linear(x, 2 * n, 97), axis=2))


def gru_forecaster(steps=48, n=64):
    """A window normalised by its own mean and deviation, a GRU, and back to scale."""
    g = Writer("gru_forecaster")
    x = g.input("series", ["batch", steps, 8])
    m = g.op("ReduceMean", x, axes=[1], keepdims=1)
    d = g.op("Sub", x, m)
    s = g.op("Sqrt", g.op("Add", g.op("ReduceMean", g.op("Mul", d, d), axes=[1], keepdims=1),
                          np.float32(1e-5)))
    x = g.op("Transpose", g.op("Div", d, s), perm=[1, 0, 2])
    y = g.op("GRU", x, g.weight(1, 3 * n, 8), g.weight(1, 3 * n, n), g.weight(1, 6 * n),
             hidden_size=n, linear_before_reset=1)
    y = g.op("Gather", g.op("Squeeze", y, [1]), np.int64(-1), axis=0)
    y = g.op("Unsqueeze", g.linear(y, n, 8), [1])
    return g.model(g.op("Add", g.op("Mul", y, s), m))


def recommender(features=8, n=16):
    """Looked-up categories, products of pairs (a factorisation machine) and a tower."""
    g = Writer("recommender")
    ids, dense = (g.input("ids", ["batch", features], "int64"),
                  g.input("dense", ["batch", 13]))
    tables = [g.op("Gather", g.weight(200, n), g.op("Gather", ids, np.int64(i), axis=1), axis=0)
              for i in range(features)]
    e = g.op("Concat", *[g.op("Unsqueeze", t, [1]) for t in tables], axis=1)
    total = g.op("ReduceSum", e, np.array([1]), keepdims=0)
    second = g.op("Sub", g.op("Mul", total, total), g.op(
        "ReduceSum", g.op("Mul", e, e), np.array([1]), keepdims=0))
    x = g.op("Concat", g.op("Flatten", e), g.op("Log", g.op("Add", g.op("Relu", dense),
                                                           np.float32(1))), second, axis=1)
    width = features * n + 13 + n
    for _ in range(2):
        x = g.op("Relu", g.linear(x, width, 128))
        width = 128
    return g.model(g.op("Sigmoid", g.linear(x, 128, 1)))


def point_net(points=512):
    """A learned 3x3 transform, shared layers over points, the largest of all points."""
    g = Writer("point_net")
    x = g.input("points", [1, 3, points])

    def layers(x, widths):
        for a, b in zip(widths, widths[1:]):
            x = g.op("Relu", g.conv(x, a, b, 1, dims=1))
        return x
    t = g.op("ReduceMax", layers(x, (3, 64, 128)), axes=[2], keepdims=0)
    t = g.op("Add", g.op("Reshape", g.linear(t, 128, 9), [-1, 3, 3]), np.eye(3)[None])
    x = g.op("Transpose", g.op("MatMul", g.op("Transpose", x, perm=[0, 2, 1]), t), perm=[0, 2, 1])
    local = layers(x, (3, 64))
    whole = g.op("ReduceMax", layers(local, (64, 128, 256)), axes=[2], keepdims=1)
    x = g.op("Concat", g.op("Expand", whole, [1, 256, points]), local, axis=1)
    return g.model(g.op("LogSoftmax", g.conv(layers(x, (320, 128)), 128, 13, 1, dims=1), axis=1))


def graph_attention(nodes=200, edges=1200, n=64):
    """Messages along edges: looked up by node, a softmax over each node's edges, summed."""
    g = Writer("graph_attention")
    x = g.linear(g.input("x", [nodes, 32]), 32, n, False)
    e = g.rng.integers(0, nodes, (2, edges))
    source, target = g.const(e[0]), g.const(e[1])
    sides = [g.op("ReduceSum", g.op("Mul", x, g.weight(1, n)), np.array([1]), keepdims=0)
             for _ in range(2)]
    s = g.op("LeakyRelu", g.op("Add", g.op("Gather", sides[0], source), g.op(
        "Gather", sides[1], target)), alpha=0.2)
    p = g.op("Exp", g.op("Sub", s, g.op("ReduceMax", s, keepdims=0)))
    total = g.op("ScatterElements", np.zeros(nodes, np.float32), target, p, axis=0,
                 reduction="add")
    p = g.op("Div", p, g.op("Gather", total, target))
    m = g.op("Mul", g.op("Gather", x, source), g.op("Unsqueeze", p, [1]))
    y = g.op("ScatterND", np.zeros((nodes, n), np.float32), g.op("Unsqueeze", target, [1]), m,
             reduction="add")
    return g.model(g.linear(g.op("Elu", y), n, 7))


def selective_scan(length=64, n=64, state=8):
    """A state space block: gates, a causal filter, decays summed along time by CumSum."""
    g = Writer("selective_scan")
    x = g.input("x", [1, length, n])
    u, z = g.op("Split", g.linear(g.rms_norm(x, n), n, 2 * n, False), outputs=2, axis=-1)
    u = g.conv(g.op("Transpose", u, perm=[0, 2, 1]), n, n, 4, group=n, pads=[3, 3], dims=1)
    u = g.silu(g.op("Transpose", g.op("Slice", u, [0], [length], [2]), perm=[0, 2, 1]))
    step = g.op("Softplus", g.linear(u, n, n))
    b, c = g.op("Split", g.linear(u, n, 2 * state, False), outputs=2, axis=-1)
    decay = g.op("Mul", g.op("Unsqueeze", step, [3]), -np.exp(g.rng.random((n, state))) / 8)
    past = g.op("CumSum", decay, np.int64(1))
    inputs = g.op("Mul", g.op("Unsqueeze", g.op("Mul", step, u), [3]), g.op("Unsqueeze", b, [2]))
    h = g.op("CumSum", g.op("Mul", inputs, g.op("Exp", g.op("Neg", past))), np.int64(1))
    h = g.op("Mul", h, g.op("Exp", past))
    y = g.op("ReduceSum", g.op("Mul", h, g.op("Unsqueeze", c, [2])), np.array([3]), keepdims=0)
    y = g.op("Mul", g.op("Add", y, g.op("Mul", u, g.weight(n))), g.silu(z))
    return g.model(g.op("Add", x, g.linear(y, n, n, False)))


MODELS = {f.__name__: f for f in (
    detr_head, rope_decoder, t5_encoder, clip_text, whisper_encoder, wav2vec2, tcn, conv_tasnet,
    lstm_reader, gru_forecaster, recommender, point_net, graph_attention, selective_scan)}
