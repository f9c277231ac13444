"""Networks on images as exporters write them, a block or a few of each."""

import numpy as np

from benchmarks.exported.build import LAST, Writer


def res_block(g, x, cin, cout, size, groups=32, time=None):
    """Two convolutions of x [n, cin, size, size], each behind a norm of groups; ``time``
    [n, 256] is added between."""
    h = g.conv(g.silu(g.group_norm(x, cin, groups, [0, cin, size, size])), cin, cout)
    if time is not None:
        t = g.linear(g.silu(time), 256, cout)
        h = g.op("Add", h, g.op("Unsqueeze", g.op("Unsqueeze", t, [2]), [3]))
    h = g.conv(g.silu(g.group_norm(h, cout, groups, [0, cout, size, size])), cout, cout)
    x = x if cin == cout else g.conv(x, cin, cout, 1)
    return g.op("Add", x, h)


def vae_decoder(size=32, c=128):
    g = Writer("vae_decoder")
    x = g.conv(g.input("latent", [1, 4, size, size]), 4, c)
    x = res_block(g, x, c, c, size)
    n = g.op("Reshape", g.group_norm(g.op("Reshape", x, [0, c, -1]), c, 32, [0, c, size * size],
                                     1), [0, c, -1])
    y = g.self_attention(g.op("Transpose", n, perm=[0, 2, 1]), c, 1)
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1]), [0, c, size, size])
    x = res_block(g, g.op("Add", x, y), c, c, size)
    x = g.op("Resize", x, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = res_block(g, g.conv(x, c, c), c, c // 2, 2 * size)
    x = g.silu(g.group_norm(x, c // 2, 32, [0, c // 2, 2 * size, 2 * size]))
    return g.model(g.conv(x, c // 2, 3))


def diffusion_unet(size=32, c=96):
    """Channels per group of 3 and 6; cross attention over 77 tokens; a gated GELU."""
    g = Writer("diffusion_unet")
    x, text = g.input("sample", [1, 4, size, size]), g.input("text", [1, 77, 128])
    t = g.op("Mul", g.op("Unsqueeze", g.input("t", [1]), [1]), np.exp(
        np.arange(32) * -0.28)[None])
    t = g.op("Concat", g.op("Sin", t), g.op("Cos", t), axis=-1)
    t = g.linear(g.silu(g.linear(t, 64, 256)), 256, 256)
    a = res_block(g, g.conv(x, 4, c), c, c, size, time=t)
    b = spatial_transformer(g, a, c, size, text)
    h = g.conv(b, c, c, stride=2)
    h = res_block(g, h, c, 2 * c, size // 2, time=t)
    h = spatial_transformer(g, h, 2 * c, size // 2, text)
    h = g.op("Resize", h, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    h = g.op("Concat", g.conv(h, 2 * c, c), b, axis=1)
    h = res_block(g, h, 2 * c, c, size, time=t)
    h = g.silu(g.group_norm(h, c, 32, [0, c, size, size]))
    return g.model(g.conv(h, c, 4))


def spatial_transformer(g, x, c, size, text, heads=4, words=128):
    """Attention among the pixels of x [n, c, size, size] and to text [n, tokens, words], and a
    gated GELU."""
    h = g.conv(g.group_norm(x, c, 32, [0, c, size, size]), c, c, 1)
    h = g.op("Reshape", g.op("Transpose", h, perm=[0, 2, 3, 1]), [0, size * size, c])
    h = g.op("Add", h, g.self_attention(g.layer_norm(h, c), c, heads))
    q = g.heads(g.linear(g.layer_norm(h, c), c, c, False), heads, c // heads)
    k, v = (g.heads(g.linear(text, words, c, False), heads, c // heads) for _ in range(2))
    h = g.op("Add", h, g.linear(g.attention(q, k, v, c // heads, heads), c, c))
    u, gate = g.op("Split", g.linear(g.layer_norm(h, c), c, 8 * c), outputs=2, axis=-1)
    h = g.op("Add", h, g.linear(g.op("Mul", u, g.gelu(gate)), 4 * c, c))
    h = g.op("Transpose", g.op("Reshape", h, [0, size, size, c]), perm=[0, 3, 1, 2])
    return g.op("Add", g.conv(h, c, c, 1), x)


def convnext(size=28, c=96):
    g = Writer("convnext")
    x = g.input("x", [1, c, size, size])
    for _ in range(2):
        h = g.op("Transpose", g.conv(x, c, c, 7, group=c), perm=[0, 2, 3, 1])
        h = g.mlp(g.layer_norm(h, c), c, 4 * c)
        h = g.op("Transpose", g.op("Mul", g.weight(c), h), perm=[0, 3, 1, 2])
        x = g.op("Add", x, h)
    return g.model(x)


def _squeeze_excite(g, x, c, hidden, act, gate):
    s = g.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    return g.op("Mul", x, gate(g.conv(act(g.conv(s, c, hidden, 1)), hidden, c, 1)))


def _sigmoid(g):
    return lambda x: g.op("Sigmoid", x)


def efficientnet(size=56, c=24):
    g = Writer("efficientnet")
    x = g.input("x", ["batch", c, size, size])
    for stride in (2, 1):
        wide = 6 * c
        h = g.silu(g.conv(x, c, wide, 1))
        h = g.silu(g.conv(h, wide, wide, 5, stride, group=wide))
        h = g.conv(_squeeze_excite(g, h, wide, c // 4, g.silu, _sigmoid(g)), wide, c, 1)
        x = h if stride == 2 else g.op("Add", x, h)
    return g.model(g.op("Flatten", g.op("GlobalAveragePool", x)))


def regnet(size=28, c=120, width=24):
    g = Writer("regnet")
    x = g.input("x", [1, c, size, size])
    for _ in range(2):
        h = g.op("Relu", g.conv(x, c, c, 1))
        h = g.op("Relu", g.conv(h, c, c, 3, group=c // width))
        h = _squeeze_excite(g, h, c, 30, lambda v: g.op("Relu", v), _sigmoid(g))
        x = g.op("Relu", g.op("Add", x, g.conv(h, c, c, 1)))
    return g.model(x)


def mobilenet_v3(size=28, c=40):
    """Hard swish and hard sigmoid, the latter as Add, Clip, Div."""
    g = Writer("mobilenet_v3")
    x = g.input("x", ["batch", c, size, size])

    def hard(v):
        return g.op("Div", g.op("Clip", g.op("Add", v, np.float32(3)), np.float32(0),
                                np.float32(6)), np.float32(6))
    for _ in range(2):
        h = g.op("HardSwish", g.conv(x, c, 3 * c, 1))
        h = g.op("HardSwish", g.conv(h, 3 * c, 3 * c, 5, group=3 * c))
        h = _squeeze_excite(g, h, 3 * c, 32, lambda v: g.op("Relu", v), hard)
        x = g.op("Add", x, g.conv(h, 3 * c, c, 1))
    return g.model(x)


def yolo_head(size=40, c=64):
    """C2f, SPPF, a pyramid of two levels and heads with distributions over distances."""
    g = Writer("yolo_head")
    a, b = g.input("p4", [1, c, size, size]), g.input("p5", [1, c, size // 2, size // 2])

    def act(x, *args, **kw):
        return g.silu(g.conv(x, *args, **kw))
    h = act(b, c, c // 2, 1)
    pools = [h]
    for _ in range(3):
        pools.append(g.op("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4))
    b = act(g.op("Concat", *pools, axis=1), 2 * c, c, 1)
    up = g.op("Resize", b, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    h = act(g.op("Concat", up, a, axis=1), 2 * c, c, 1)
    u, v = g.op("Split", h, outputs=2, axis=1)
    h = g.op("Add", v, act(act(v, c // 2, c // 2), c // 2, c // 2))
    a = act(g.op("Concat", u, v, h, axis=1), 3 * c // 2, c, 1)
    rows = []
    for x in (a, b):
        box = g.conv(act(act(x, c, c), c, c), c, 64, 1)
        rows.append(g.op("Reshape", g.op("Concat", box, g.conv(act(x, c, 80), 80, 80, 1), axis=1),
                         [1, 144, -1]))
    box, cls = g.op("Split", g.op("Concat", *rows, axis=2), [64, 80], outputs=2, axis=1)
    d = g.op("Transpose", g.op("Reshape", box, [1, 4, 16, -1]), perm=[0, 2, 1, 3])
    d = g.conv(g.op("Softmax", d, axis=1), 16, 1, 1, bias=False)
    points = size * size + size * size // 4
    d = g.op("Reshape", d, [1, 4, points])
    anchors = g.weight(1, 2, points)
    lo = g.op("Sub", anchors, g.op("Slice", d, [0], [2], [1]))
    hi = g.op("Add", anchors, g.op("Slice", d, [2], [4], [1]))
    centre = g.op("Div", g.op("Add", lo, hi), np.float32(2))
    box = g.op("Mul", g.op("Concat", centre, g.op("Sub", hi, lo), axis=1), g.weight(1, points))
    return g.model(g.op("Concat", box, g.op("Sigmoid", cls), axis=1))


def shufflenet(size=28, c=116):
    g = Writer("shufflenet")
    x, half = g.input("x", [1, c, size, size]), c // 2
    for _ in range(2):
        u, v = g.op("Split", x, outputs=2, axis=1)
        v = g.op("Relu", g.conv(v, half, half, 1))
        v = g.op("Relu", g.conv(g.conv(v, half, half, 3, group=half), half, half, 1))
        x = g.op("Reshape", g.op("Concat", u, v, axis=1), [0, 2, half, size, size])
        x = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1, 3, 4]), [0, -1, size, size])
    return g.model(x)


def _shuffled(g, x, c, groups, size):
    """A channel shuffle as torch writes it."""
    x = g.op("Reshape", x, [0, groups, c // groups, size, size])
    return g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1, 3, 4]), [0, -1, size, size])


def shufflenet_v1(size=28, c=240, groups=3):
    """A unit that halves the image and one with a residual sum: products in groups on either side
    of a shuffle and a depthwise convolution."""
    g = Writer("shufflenet_v1")
    x, mid = g.input("x", [1, c, size, size]), c // 4
    for stride in (2, 1):
        h = g.op("Relu", g.conv(x, c, mid, 1, group=groups))
        h = g.conv(_shuffled(g, h, mid, groups, size), mid, mid, 3, stride, mid)
        h = g.conv(h, mid, c, 1, group=groups)
        if stride == 2:
            x = g.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
            x, c, mid = g.op("Relu", g.op("Concat", x, h, axis=1)), 2 * c, c // 2
            size //= 2
        else:
            x = g.op("Relu", g.op("Add", x, h))
    return g.model(x)


def pixel_mixer(size=48, c=32):
    """Pixels unshuffled, a norm over the channels of each, and shuffled back before a depthwise
    convolution, as restoration networks have it."""
    g = Writer("pixel_mixer")
    n, half = 4 * c, size // 2
    x = g.conv(g.input("x", [1, 3, size, size]), 3, c)
    h = g.op("Reshape", x, [0, c, half, 2, half, 2])
    h = g.op("Reshape", g.op("Transpose", h, perm=[0, 1, 3, 5, 2, 4]), [0, n, -1])
    h = g.op("Transpose", g.layer_norm(g.op("Transpose", h, perm=[0, 2, 1]), n), perm=[0, 2, 1])
    h = g.gelu(g.conv(g.op("Reshape", h, [0, n, half, half]), n, n, 1))
    h = g.op("DepthToSpace", h, blocksize=2, mode="CRD")
    h = g.conv(g.conv(h, c, c, 5, group=c), c, c, 1)
    return g.model(g.conv(g.op("Add", x, h), c, 3))


def super_resolution(size=48, c=48):
    """PReLU and a pixel shuffle as Reshape, Transpose, Reshape; a bicubic skip."""
    g = Writer("super_resolution")
    x = g.input("x", [1, 3, size, size])
    h = g.conv(x, 3, c)
    for _ in range(3):
        h = g.op("PRelu", g.conv(h, c, c), g.const(np.full((c, 1, 1), 0.2)))
    h = g.op("Reshape", g.conv(h, c, 12), [0, 3, 2, 2, size, size])
    h = g.op("Reshape", g.op("Transpose", h, perm=[0, 1, 4, 2, 5, 3]), [0, 3, 2 * size, 2 * size])
    up = g.op("Resize", x, "", np.array([1, 1, 2, 2], np.float32), mode="cubic",
              cubic_coeff_a=-0.75, coordinate_transformation_mode="half_pixel")
    return g.model(g.op("Add", h, up))


def deeplab(size=32, c=128):
    """Atrous pyramid, pooled branch, bilinear upsampling and the best class of each pixel."""
    g = Writer("deeplab")
    x, out = g.input("x", [1, c, size, size]), []
    for rate in (1, 6, 12):
        out.append(g.op("Relu", g.conv(x, c, 64, 1 if rate == 1 else 3, dilation=rate)))
    p = g.op("Relu", g.conv(g.op("GlobalAveragePool", x), c, 64, 1))
    out.append(g.op("Resize", p, "", "", np.array([1, 64, size, size]), mode="linear",
                    coordinate_transformation_mode="half_pixel"))
    h = g.op("Relu", g.conv(g.op("Concat", *out, axis=1), 256, 64, 1))
    h = g.op("Resize", g.conv(h, 64, 21, 1), "", np.array([1, 1, 4, 4], np.float32),
             mode="linear", coordinate_transformation_mode="half_pixel")
    return g.model(g.op("ArgMax", h, axis=1, keepdims=0))


def style_transfer(size=64, c=32):
    """Reflected borders, normalised instances, nearest upsampling."""
    g = Writer("style_transfer")

    def layer(x, cin, cout, k=3, stride=1):
        x = g.op("Pad", x, [0, 0, k // 2, k // 2] * 2, mode="reflect")
        x = g.conv(x, cin, cout, k, stride, pads=[0] * 4)
        return g.op("InstanceNormalization", x, g.weight(cout), g.weight(cout))
    x = g.op("Relu", layer(g.input("x", [1, 3, size, size]), 3, c, 9))
    x = g.op("Relu", layer(x, c, 2 * c, 3, 2))
    x = g.op("Add", x, layer(g.op("Relu", layer(x, 2 * c, 2 * c)), 2 * c, 2 * c))
    x = g.op("Resize", x, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return g.model(layer(g.op("Relu", layer(x, 2 * c, c)), c, 3, 9))


def optical_flow(size=48, c=32):
    """A warp by a flow field (GridSample) and a correlation volume of 9 shifts."""
    g = Writer("optical_flow")
    a, b = g.input("a", [1, c, size, size]), g.input("b", [1, c, size, size])
    flow = g.input("flow", [1, 2, size, size])
    line = np.linspace(-1, 1, size)
    base = np.stack(np.meshgrid(line, line), -1)[None]
    grid = g.op("Add", g.op("Mul", g.op("Transpose", flow, perm=[0, 2, 3, 1]),
                            np.float32(0.02)), base)
    b = g.op("GridSample", b, grid, align_corners=1, mode="bilinear", padding_mode="zeros")
    padded = g.op("Pad", b, [0, 0, 1, 1] * 2)
    shifts = []
    for dy in range(3):
        for dx in range(3):
            s = g.op("Slice", padded, [dy, dx], [dy + size, dx + size], [2, 3])
            shifts.append(g.op("ReduceMean", g.op("Mul", a, s), axes=[1], keepdims=1))
    h = g.op("LeakyRelu", g.op("Concat", *shifts, a, flow, axis=1), alpha=0.1)
    h = g.op("LeakyRelu", g.conv(h, 9 + c + 2, 64), alpha=0.1)
    return g.model(g.op("Add", flow, g.conv(h, 64, 2)))


def tf_mobilenet(size=56, c=32):
    """As tf2onnx leaves Keras: pixels outermost at the borders, explicit Pads, Relu6 as Clip,
    the mean over pixels with channels last."""
    g = Writer("tf_mobilenet")
    x = g.op("Transpose", g.input("x", ["batch", size, size, 3]), perm=[0, 3, 1, 2])

    def relu6(v):
        return g.op("Clip", v, np.float32(0), np.float32(6))
    x = g.op("Pad", x, [0, 0, 0, 0, 0, 0, 1, 1])
    x = relu6(g.conv(x, 3, c, 3, 2, pads=[0] * 4))
    for _ in range(2):
        x = relu6(g.conv(x, c, c, 3, group=c))
        x = relu6(g.conv(x, c, 2 * c, 1))
        c *= 2
    x = g.op("Transpose", x, perm=[0, 2, 3, 1])
    x = g.op("ReduceMean", x, axes=[1, 2], keepdims=0)
    return g.model(g.op("Softmax", g.linear(x, c, 100), axis=-1))


def conv3d(depth=8, size=28, c=16):
    """A clip through factored volumes, normalised in groups of 10."""
    g = Writer("conv3d")
    x = g.input("clip", [1, 3, depth, size, size])
    x = g.op("Relu", g.conv(x, 3, 40, dims=3))
    x = g.op("Relu", g.group_norm(g.conv(x, 40, 40, dims=3), 40, 4, [0, 40, depth, size, size],
                                  3))
    x = g.op("MaxPool", x, kernel_shape=[2] * 3, strides=[2] * 3)
    x = g.op("Relu", g.group_norm(g.conv(x, 40, 48, dims=3), 48, 2,
                                  [0, 48, depth // 2, size // 2, size // 2], 3))
    return g.model(g.linear(g.op("Flatten", g.op("GlobalAveragePool", x)), 48, 10))


def swin_block(size=28, c=96, window=7, heads=3):
    """Shifted windows: a roll as Slice and Concat, a bias looked up, a mask over windows."""
    g = Writer("swin_block")
    x, n, tokens = g.input("x", [1, size * size, c]), size // window, window * window
    h = g.op("Reshape", g.layer_norm(x, c), [1, size, size, c])
    h = _roll(g, _roll(g, h, 3, 1), 3, 2)
    h = g.op("Transpose", g.op("Reshape", h, [1, n, window, n, window, c]),
             perm=[0, 1, 3, 2, 4, 5])
    h = g.op("Reshape", h, [-1, tokens, c])
    qkv = g.op("Transpose", g.op("Reshape", g.linear(h, c, 3 * c),
                                 [n * n, tokens, 3, heads, c // heads]), perm=[2, 0, 3, 1, 4])
    q, k, v = (g.op("Gather", qkv, np.int64(i), axis=0) for i in range(3))
    q = g.op("Mul", q, np.float32((c // heads) ** -0.5))
    s = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    index = g.rng.integers(0, (2 * window - 1) ** 2, tokens * tokens)
    bias = g.op("Gather", g.weight((2 * window - 1) ** 2, heads), g.const(index), axis=0)
    bias = g.op("Transpose", g.op("Reshape", bias, [tokens, tokens, heads]), perm=[2, 0, 1])
    s = g.op("Reshape", g.op("Add", s, g.op("Unsqueeze", bias, [0])),
             [1, n * n, heads, tokens, tokens])
    mask = np.where(g.rng.random((1, n * n, 1, tokens, tokens)) < 0.1, -100.0, 0.0)
    s = g.op("Reshape", g.op("Add", s, mask), [-1, heads, tokens, tokens])
    y = g.op("Transpose", g.op("MatMul", g.op("Softmax", s, axis=-1), v), perm=[0, 2, 1, 3])
    y = g.linear(g.op("Reshape", y, [n * n, tokens, c]), c, c)
    y = g.op("Transpose", g.op("Reshape", y, [1, n, n, window, window, c]),
             perm=[0, 1, 3, 2, 4, 5])
    y = g.op("Reshape", y, [1, size, size, c])
    y = g.op("Reshape", _roll(g, _roll(g, y, -3, 1), -3, 2), [1, size * size, c])
    x = g.op("Add", x, y)
    return g.model(g.op("Add", x, g.mlp(g.layer_norm(x, c), c, 4 * c)))


def _roll(g, x, by, axis):
    return g.op("Concat", g.op("Slice", x, [by], [LAST], [axis]),
                g.op("Slice", x, [0], [by], [axis]), axis=axis)


def linear_attention(size=16, c=64):
    """EfficientViT's: ReLU of keys and queries, no softmax, sums as one more column."""
    g = Writer("linear_attention")
    x = g.input("x", [1, c, size, size])
    qkv = g.op("Concat", h := g.conv(x, c, 3 * c, 1), g.conv(h, 3 * c, 3 * c, 5, group=3 * c),
               axis=1)
    qkv = g.op("Transpose", g.op("Reshape", qkv, [1, -1, 48, size * size]), perm=[0, 1, 3, 2])
    q, k, v = (g.op("Slice", qkv, [i * 16], [(i + 1) * 16], [3]) for i in range(3))
    q, k = g.op("Relu", q), g.op("Relu", k)
    v = g.op("Pad", v, [0, 0, 0, 0, 0, 0, 0, 1], np.float32(1))
    y = g.op("MatMul", q, g.op("MatMul", g.op("Transpose", k, perm=[0, 1, 3, 2]), v))
    y = g.op("Div", g.op("Slice", y, [0], [-1], [3]), g.op("Add", g.op(
        "Slice", y, [-1], [LAST], [3]), np.float32(1e-15)))
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 1, 3, 2]), [1, -1, size, size])
    return g.model(g.op("Add", x, g.conv(y, 2 * c, c, 1)))


def qdq_residual(size=28, c=64):
    """An 8-bit residual network with a free batch: QuantizeLinear and DequantizeLinear around
    every tensor, weights per channel."""
    g = Writer("qdq_residual")
    x = g.input("x", ["batch", c, size, size])

    def pair(v, scale, zero=128):
        args = (np.float32(scale), np.uint8(zero))
        return g.op("DequantizeLinear", g.op("QuantizeLinear", v, *args), *args)

    def conv(v, cin, cout, k, stride=1):
        w = g.rng.integers(-127, 128, (cout, cin, k, k)).astype(np.int8)
        s = (g.rng.random(cout) + 0.5) / (64 * np.sqrt(cin * k * k))
        w = g.op("DequantizeLinear", w, s.astype(np.float32), np.zeros(cout, np.int8), axis=0)
        return g.op("Conv", v, w, g.weight(cout), kernel_shape=[k, k], pads=[k // 2] * 4,
                    strides=[stride] * 2)
    x = pair(x, 0.03)
    for stride in (1, 1, 2):
        wide = c * stride
        h = pair(g.op("Relu", conv(x, c, wide, 3, stride)), 0.02, 0)
        h = pair(conv(h, wide, wide, 3), 0.03)
        x = x if stride == 1 else pair(conv(x, c, wide, 1, stride), 0.03)
        x, c = pair(g.op("Relu", g.op("Add", h, x)), 0.02, 0), wide
    y = pair(g.op("GlobalAveragePool", x), 0.02, 0)
    return g.model(g.linear(g.op("Flatten", y), c, 10))


MODELS = {f.__name__: f for f in (
    vae_decoder, diffusion_unet, convnext, efficientnet, regnet, mobilenet_v3, yolo_head,
    shufflenet, shufflenet_v1, pixel_mixer, super_resolution, deeplab, style_transfer, optical_flow,
    tf_mobilenet, conv3d, swin_block, linear_attention, qdq_residual)}
