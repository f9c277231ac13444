"""Models of ``benchmarks.dynamic`` where there is no zoo: the same layers with random weights."""

import numpy as np

from benchmarks.exported.build import Writer


def _residual(g, x, cin, cout, stride):
    y = g.op("Relu", g.conv(x, cin, cout, stride=stride))
    y = g.conv(y, cout, cout)
    if stride > 1 or cin != cout:
        x = g.conv(x, cin, cout, kernel=1, stride=stride)
    return g.op("Relu", g.op("Add", y, x))


def _stem(g, image):
    x = g.op("Relu", g.conv(g.input("x", image), 3, 64, kernel=7, stride=2))
    return g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def _classified(g, x, channels):
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    return g.model(g.op("Gemm", x, g.weight(1000, channels), g.weight(1000), transB=1))


def resnet18(image):
    """ResNet-18, its normalisations folded."""
    g = Writer("resnet18", 1)
    x, cin = _stem(g, image), 64
    for stage, cout in enumerate((64, 128, 256, 512)):
        for block in range(2):
            x = _residual(g, x, cin, cout, 2 if stage and not block else 1)
            cin = cout
    return _classified(g, x, 512)


def mobilenet_v2(image):
    """MobileNetV2 1.0 with ReLU6, its normalisations folded."""
    g = Writer("mobilenet_v2", 1)
    zero, six = np.float32(0), np.float32(6)
    x = g.op("Clip", g.conv(g.input("x", image), 3, 32, stride=2), zero, six)
    cin = 32
    for widen, cout, times, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                       (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for n in range(times):
            wide, step, y = cin * widen, 1 if n else stride, x
            if widen > 1:
                y = g.op("Clip", g.conv(y, cin, wide, kernel=1), zero, six)
            y = g.op("Clip", g.conv(y, wide, wide, stride=step, group=wide), zero, six)
            y = g.conv(y, wide, cout, kernel=1)
            x, cin = g.op("Add", x, y) if n else y, cout
    return _classified(g, g.op("Clip", g.conv(x, 320, 1280, kernel=1), zero, six), 1280)


def unet(image, widths=(64, 128, 256, 512, 1024)):
    """The classic U-Net of five levels, upwards by transposed convolutions."""
    g = Writer("unet", 1)

    def twice(x, cin, cout):
        for n in (cin, cout):
            x = g.op("Relu", g.conv(x, n, cout))
        return x
    x, kept, cin = g.input("x", image), [], 3
    for width in widths:
        if kept:
            x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = twice(x, cin, width)
        kept.append(x)
        cin = width
    for width, side in zip(widths[-2::-1], kept[-2::-1]):
        x = g.op("ConvTranspose", x, g.weight(2 * width, width, 2, 2), g.weight(width),
                 kernel_shape=[2, 2], strides=[2, 2])
        x = twice(g.op("Concat", side, x, axis=1), 2 * width, width)
    return g.model(g.conv(x, widths[0], 2, kernel=1))


def fcn(image):
    """Fully convolutional: three residual stages, a dilated one, scores of 21 classes at the
    image's size."""
    g = Writer("fcn", 1)
    x, cin = _stem(g, image), 64
    for cout, stride in ((64, 1), (128, 2), (256, 2)):
        x = _residual(g, x, cin, cout, stride)
        cin = cout
    y = g.op("Relu", g.conv(x, 256, 128, dilation=2))
    y = g.op("Add", y, g.op("Relu", g.conv(x, 256, 128, kernel=1)))
    scores = g.conv(y, 128, 21, kernel=1)
    size = g.op("Concat", g.op("Slice", g.op("Shape", scores), [0], [2]),
                g.op("Slice", g.op("Shape", "x"), [2], [4]), axis=0)
    return g.model(g.op("Resize", scores, "", "", size, mode="linear",
                        coordinate_transformation_mode="half_pixel"))


def _layers(g, x, n, layers, heads, bias, before):
    """Blocks of a transformer; ``before``: normalisations stand before the products."""
    def norm(x):
        return g.op("LayerNormalization", x, g.weight(n), g.weight(n), axis=-1)
    for _ in range(layers):
        y = g.self_attention(norm(x) if before else x, n, heads, bias=bias)
        x = g.op("Add", x, y) if before else norm(g.op("Add", x, y))
        y = g.mlp(norm(x) if before else x, n, 4 * n)
        x = g.op("Add", x, y) if before else norm(g.op("Add", x, y))
    return norm(x) if before else x


def _places(g, table):
    """Embeddings of the positions there are: rows of a table up to the tokens' number."""
    n = g.op("Shape", "input_ids", start=1, end=2)
    return n, g.op("Slice", table, [0], n, [0])


def bert_small_dyn():
    """BERT of 4 layers of width 512 with a mask, batch and sequence free."""
    g = Writer("bert_small_dyn", 1)
    ids = g.input("input_ids", ["batch", "seq"], "int64")
    mask = g.input("attention_mask", ["batch", "seq"], "int64")
    _, places = _places(g, g.weight(512, 512))
    x = g.op("Add", g.op("Gather", g.weight(30522, 512), ids), places)
    off = g.op("Sub", np.float32(1), g.op("Cast", mask, to=1))
    bias = g.op("Mul", g.op("Unsqueeze", off, [1, 2]), np.float32(-1e9))
    return g.model(_layers(g, x, 512, 4, 8, bias, before=False))


def gpt2_dyn():
    """GPT-2 of 124 million parameters, sequence free."""
    g = Writer("gpt2_dyn", 1)
    ids, table = g.input("input_ids", [1, "seq"], "int64"), g.weight(50257, 768)
    n, places = _places(g, g.weight(1024, 768))
    x = g.op("Add", g.op("Gather", table, ids), places)
    line = g.op("Range", np.int64(0), g.op("Squeeze", n, [0]), np.int64(1))
    keep = g.op("LessOrEqual", line, g.op("Unsqueeze", line, [1]))
    bias = g.op("Where", keep, np.float32(0), np.float32(-1e9))
    x = _layers(g, x, 768, 12, 12, bias, before=True)
    return g.model(g.op("MatMul", x, g.op("Transpose", table, perm=[1, 0])))


IMAGES = {f.__name__: f for f in (resnet18, mobilenet_v2, unet, fcn)}
TOKENS = {f.__name__: f for f in (bert_small_dyn, gpt2_dyn)}
