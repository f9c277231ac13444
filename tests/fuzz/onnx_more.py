"""Rows of the random graph generator for the operators that few models have: rare functions, images
in other forms, several indices, halves and integers, quantised products, signals, attention."""

import numpy as np
from onnx import helper
from onnx_graphs import FLOATS, INTEGERS, info
from onnx_nodes import _image, broadcastable, row

HALF = (np.float16, *FLOATS)


def _int64(g, *values):
    return g.const(np.array(values, np.int64))


def _finite(g, *dtypes, rank=None):
    return g.pick(lambda v: v.array.dtype in dtypes and np.isfinite(v.array).all()
                  and (rank is None or v.array.ndim == rank))


@row(3)
def function(g):
    x = g.pick(lambda v: v.array.dtype in HALF)
    op = g.rng.choice(("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan",
                       "Shrink", "ThresholdedRelu", "HardSwish", "Swish", "Exp", "Sqrt", "Tanh",
                       "Sigmoid", "Reciprocal", "Log", "Softplus", "Elu", "Celu", "Mish"))
    if x and (x.exact or op not in ("Shrink", "ThresholdedRelu")):
        g.add(op, [x], exact=op in ("Shrink", "ThresholdedRelu"))


@row(2)
def integer_function(g):
    x = g.pick(lambda v: v.array.dtype in INTEGERS)
    if x:
        g.add(g.rng.choice(("Abs", "Neg", "Sign", "BitwiseNot", "Relu", "ReduceSum", "ReduceMax",
                            "ReduceMin", "ReduceProd", "CumSum")), [x], exact=True)


@row()
def many(g):
    x = g.pick(lambda v: v.array.dtype in HALF)
    if x:
        more = [broadcastable(g, x) for _ in range(g.rng.randint(0, 3))]
        op = g.rng.choice(("Sum", "Mean", "Max", "Min"))
        g.add(op, [x, *more], exact=op in ("Max", "Min"))


@row()
def slope(g):
    x = g.floats()
    if x:
        shape = tuple(1 if g.rng.random() < 0.5 else n for n in x.array.shape)
        g.add("PRelu", [x, g.const(g.data(shape, x.array.dtype))])


@row(2)
def type_of(g):
    """Shapes, sizes, types and values taken from other tensors."""
    x = g.pick()
    match g.rng.randrange(6):
        case 0:
            g.add("Shape", [x], exact=True)
        case 1:
            g.add("Size", [x], exact=True)
        case 2:
            value = helper.make_tensor("v", 1, [1], [2.5])
            shape = g.add("Shape", [x], exact=True)
            if shape:
                g.add("ConstantOfShape", shape, exact=True, value=value)
        case 3:
            if x.array.ndim == 2:
                g.add("EyeLike", [x], exact=True, k=g.rng.randint(-2, 2))
        case 4:
            low, step = g.rng.randint(-3, 3), g.rng.choice((1, 2, -1))
            g.add("Range", [g.const(np.array(v)) for v in (low, low + 7 * step, step)], exact=True)
        case 5:
            y = g.pick(lambda v: v.array.dtype in FLOATS)
            if y and x.array.dtype.kind in "biu":
                g.add("CastLike", [x, y], exact=True)


@row(2)
def whole(g):
    x = _image(g)
    op = g.rng.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "LRN", "LpPool",
                       "MeanVarianceNormalization", "Dropout", "Flatten"))
    if op == "GlobalMaxPool" and x.array.ndim != 4:
        return  # the reference evaluator pools over the wrong axes there
    if op == "LRN" and x.array.shape[0] != x.array.shape[1]:
        return  # and takes the batch for the number of channels here
    kinds = {"LRN": {"size": g.rng.choice((1, 3, 5))}, "LpPool": {
        "kernel_shape": [1] * (x.array.ndim - 2)}, "GlobalLpPool": {"p": g.rng.randint(1, 3)},
        "Flatten": {"axis": g.rng.randint(0, x.array.ndim)}}
    g.add(op, [x], exact=op in ("GlobalMaxPool", "Dropout", "Flatten"), **kinds.get(op, {}))


@row()
def normal(g):
    x = _finite(g, np.float32, rank=g.rng.choice((2, 3, 4)))
    if x is None or not x.array.size:
        return
    c = x.array.shape[1]
    match g.rng.randrange(4):
        case 0:
            # of p = 1 the reference evaluator adds values, not magnitudes
            g.add("LpNormalization", [x], p=2, axis=-1)
        case 1:
            shape = x.array.shape[-1:]
            g.add("RMSNormalization", [x, g.const(g.data(shape, np.float32))])
        case 2:
            groups = g.rng.choice([n for n in (1, 2, c) if c % n == 0])
            g.add("GroupNormalization", [x, *(g.const(g.data((c,), np.float32)) for _ in "ab")],
                  num_groups=groups)
        case 3:
            g.add("Hardmax" if x.exact else "LogSoftmax", [x], exact=x.exact,
                  axis=g.rng.randrange(x.array.ndim))


@row()
def blocks(g):
    x = g.pick(lambda v: v.array.ndim == 4 and v.array.dtype in FLOATS)
    if x is None or g.rng.random() < 0.3:
        x = g.input((1, 4 * g.rng.randint(1, 2), 4, 2 * g.rng.randint(1, 3)), np.float32)
    if g.rng.random() < 0.5:
        g.add("DepthToSpace", [x], exact=True, blocksize=2, mode=g.rng.choice(("DCR", "CRD")))
    else:
        g.add("SpaceToDepth", [x], exact=True, blocksize=2)


@row(2)
def nd(g):
    """GatherND and ScatterND, indices from data or constant."""
    x = g.pick(lambda v: v.array.ndim and v.array.size and v.array.dtype in FLOATS + INTEGERS)
    if x is None:
        return
    depth, count = g.rng.randint(1, x.array.ndim), g.rng.randint(1, 4)
    at = np.stack([g.np.integers(-n if g.rng.random() < 0.3 else 0, n, count)
                   for n in x.array.shape[:depth]], -1).astype(np.int64)
    index = g.const(at)
    if g.rng.random() < 0.5:
        index = g.input(at.shape, np.int64)
        g.feeds[index.name][...] = at
    if g.rng.random() < 0.5:
        g.add("GatherND", [x, index], exact=True)
    else:  # indices that occur twice have no order
        if len({tuple(i % n for i, n in zip(r, x.array.shape)) for r in at}) == count:
            updates = g.data((count, *x.array.shape[depth:]), x.array.dtype)
            g.add("ScatterND", [x, index, g.const(updates)], exact=True)


@row()
def turned(g):
    x = g.pick(lambda v: v.array.ndim >= 2 and v.array.size)
    if x:
        batch, steps = x.array.shape[1], x.array.shape[0]
        lens = np.asarray(g.np.integers(1, steps + 1, batch), np.int64)
        index = g.input((batch,), np.int64) if g.rng.random() < 0.5 else g.const(lens)
        if index.name in g.feeds:
            g.feeds[index.name][...] = lens
        g.add("ReverseSequence", [x, index], exact=True, time_axis=0, batch_axis=1)


@row()
def shapes_of_any_type(g):
    x = g.pick(lambda v: v.array.ndim and v.array.dtype in INTEGERS + HALF)
    if x is None:
        return
    match g.rng.randrange(3):
        case 0:
            pads = [g.rng.randint(0, 2) for _ in range(2 * x.array.ndim)]
            g.add("Pad", [x, _int64(g, *pads)], exact=True)
        case 1:
            low, high = (g.const(np.array(v, x.array.dtype)) for v in (1, 3))
            g.add("Clip", [x, low, high], exact=True)
        case 2:
            g.add("CenterCropPad", [x, _int64(g, *(g.rng.randint(1, 5) for _ in x.array.shape))],
                  exact=True)


@row(2)
def product_of_any_type(g):
    """Products of doubles, halves and integers."""
    kind = g.rng.choice((np.float64, np.float16, np.int32, np.int64, np.uint32, np.uint64))
    m, k, n = (g.rng.choice((1, 3, 8, 17)) for _ in range(3))
    x = g.pick(lambda v: v.array.dtype == kind and v.array.ndim >= 2 and v.array.size
               and (v.array.dtype.kind != "f" or np.isfinite(v.array).all()))
    x = x or g.input((m, k), kind, special=False)
    w = g.const(g.data((x.array.shape[-1], n), kind))
    g.add("MatMul", [x, w], exact=kind not in HALF)


@row(2)
def quantised_product(g):
    kind, other = (g.rng.choice((np.uint8, np.int8)) for _ in range(2))
    m, k, n = (g.rng.choice((1, 4, 5, 16, 33)) for _ in range(3))
    if g.rng.random() < 0.5:
        x, w = g.input((m, k), kind), g.const(g.data((k, n), other))
        zeros = [g.const(np.array(g.rng.randint(0, 9), t)) for t in (kind, other)]
        if g.rng.random() < 0.4:
            zeros[1] = g.const(np.asarray(g.np.integers(0, 9, n), other))
        g.add("MatMulInteger", [x, w, *zeros[:g.rng.choice((0, 1, 2, 2))]], exact=True)
    else:
        x = g.input((1, 3, 6, g.rng.randint(3, 9)), kind)
        w = g.const(g.data((n, 3, 3, 1), other))
        zeros = [g.const(np.array(g.rng.randint(0, 9), t)) for t in (kind, other)]
        g.add("ConvInteger", [x, w, *zeros[:g.rng.choice((0, 1, 2))]], exact=True,
              pads=[g.rng.randint(0, 1) for _ in range(4)])


@row(2)
def quantised_pairs(g):
    """A product between QuantizeLinear/DequantizeLinear pairs, per tensor or per channel."""
    k, n = g.rng.choice((3, 16, 40)), g.rng.choice((1, 5, 16))
    x = g.input((g.rng.randint(1, 5), k), g.rng.choice((np.uint8, np.int8)), special=False)
    xs, xz = g.const(np.float32(0.05)), g.const(np.array(3, x.array.dtype))
    channels = g.rng.random() < 0.5
    ws = np.full(n, 0.02, np.float32) * np.float32(2) ** g.np.integers(-1, 2, n)
    wz = np.zeros(n, np.int8)
    w = g.const(g.data((k, n), np.int8))
    a = g.add("DequantizeLinear", [x, xs, xz])
    at = {"axis": 1} if channels else {}
    b = g.add("DequantizeLinear", [w, g.const(ws if channels else ws[0].astype(np.float32)),
                                   g.const(wz if channels else wz[0])], **at)
    y = a and b and g.add("MatMul", [a[0], b[0]])
    if y and g.rng.random() < 0.5:
        y = g.add("Relu", y, exact=True)
    if y:  # rounding to a step of the output is checked by the pair's far side
        g.add("Mul", [y[0], g.const(np.float32(0.5))])


@row()
def grid(g):
    x = _image(g)
    if x.array.ndim == 4:
        count, h, w = x.array.shape[0], g.rng.randint(1, 4), g.rng.randint(1, 4)
        at = g.input((count, h, w, 2), np.float32, special=False)
        g.add("GridSample", [x, at], align_corners=g.rng.randint(0, 1),
              padding_mode=g.rng.choice(("zeros", "border", "reflection")),
              mode="bilinear" if g.opset < 20 else g.rng.choice(("linear", "cubic")))


@row()
def regions(g):
    if g.opset < 16:
        return  # the reference evaluator shifts by half a pixel, which began with opset 16
    x = g.input((1, g.rng.randint(1, 3), 8, 9), np.float32, special=False)
    boxes = g.const(np.float32([[0, 0, 5, 6], [1, 2, 7, 7]]))
    g.add("RoiAlign", [x, boxes, _int64(g, 0, 0)], output_height=g.rng.randint(1, 3),
          output_width=g.rng.randint(1, 3), sampling_ratio=g.rng.randint(0, 2),
          mode=g.rng.choice(("avg", "max")))


@row()
def deformed(g):
    c, k = g.rng.choice((1, 4)), g.rng.choice((1, 2, 3))
    h, w = g.rng.randint(3, 6), g.rng.randint(3, 6)
    x = g.input((1, c, h, w), np.float32, special=False)
    offset = g.input((1, 2 * k * k, h - k + 1, w - k + 1), np.float32, special=False)
    weight = g.const(g.data((g.rng.choice((1, 3)), c, k, k), np.float32))
    g.add("DeformConv", [x, weight, offset], kernel_shape=[k, k], pads=[0] * 4)


@row()
def columns(g):
    x = g.input((1, 2 * 4, 9), np.float32)
    g.add("Col2Im", [x, _int64(g, 4, 4), _int64(g, 2, 2)])


@row()
def square(g):
    n = g.rng.randint(1, 4)
    g.add("Det", [g.input((*g.shape(1), n, n), np.float32, special=False)])


@row()
def waves(g):
    n = g.rng.choice((4, 5, 8, 16))
    x = g.input((1, n, g.rng.choice((1, 2))), np.float32, special=False)
    inverse = g.rng.randint(0, 1)
    once = 0 if inverse or x.array.shape[-1] == 2 else g.rng.randint(0, 1)
    axis = {"axis": 1} if g.opset < 20 else {}
    g.add("DFT", [x], inverse=inverse, onesided=once, **axis)


@row()
def attend(g):
    """Attention and RotaryEmbedding, of 4 dimensions."""
    heads, size = g.rng.choice((1, 2)), g.rng.choice((4, 8))
    shape = (1, heads, g.rng.randint(1, 5), size)
    if g.rng.random() < 0.5:
        q, k, v = (g.input(shape, np.float32, special=False) for _ in "qkv")
        g.add("Attention", [q, k, v], is_causal=g.rng.randint(0, 1))
    else:
        x = g.input(shape, np.float32, special=False)
        tables = [g.const(g.data((1, shape[2], size // 2), np.float32)) for _ in "sc"]
        g.add("RotaryEmbedding", [x, *tables], interleaved=g.rng.randint(0, 1))


@row()
def scan(g):
    """A Scan with one state and one sequence."""
    steps, n = g.rng.randint(1, 5), g.rng.randint(1, 6)
    x = g.input((steps, n), np.float32, special=False)
    s, e, t, o = (g.name("s") for _ in range(4))
    start = g.const(np.zeros(n, np.float32))
    of = [info(name, start.array) for name in (s, e, t, o)]
    body = helper.make_graph([helper.make_node("Add", [s, e], [t]),
                              helper.make_node("Abs", [t], [o])], "body", of[:2], of[2:])
    g.add("Scan", [start, x], 2, body=body, num_scan_inputs=1,
          scan_output_directions=[g.rng.randint(0, 1)])


@row()
def newest(g):
    """Operators of the last opsets, whose dtypes and axes are drawn."""
    x = g.pick(lambda v: v.array.ndim and v.array.dtype in (*FLOATS, np.int32, np.int64))
    if x is None:
        return
    match g.rng.randrange(4):
        case 0:
            g.add("CumProd", [x, g.const(np.array(g.rng.randrange(x.array.ndim)))],
                  exclusive=g.rng.randint(0, 1), reverse=g.rng.randint(0, 1))
        case 1:
            to = {4: (1, 6, 12), 8: (7, 11, 13)}[x.array.dtype.itemsize]
            if x.exact:
                g.add("BitCast", [x], exact=True, to=g.rng.choice(to))
        case 2:
            cache, new = (g.input((2, 1, n, 3), np.float32, special=False) for n in (6, 2))
            at = np.asarray(g.np.integers(0, 5, 2), np.int64)
            g.add("TensorScatter", [cache, new, g.const(at)], exact=True, axis=2)
        case 3:
            if x.array.dtype == np.float32:
                g.add("Swish", [x], alpha=g.rng.choice((1.0, 0.5)))


@row()
def rare(g):
    """Images undone, waves in frames, scales of old opsets."""
    x = _image(g)
    match g.rng.randrange(4):
        case 0:
            if x.exact and x.array.ndim == 4 and min(x.array.shape[2:]) > 1:
                at = {"kernel_shape": [2, 2], "strides": [2, 2]}
                made = g.add("MaxPool", [x], 2, exact=True, **at)
                if made:
                    g.add("MaxUnpool", made, exact=True, **at)
        case 1:
            wave = g.input((1, 16, 1), np.float32, special=False)
            window = g.const(np.abs(g.data((8,), np.float32)))
            g.add("STFT", [wave, g.const(np.int64(4)), window, g.const(np.int64(8))])
        case 2:
            scales = g.const(np.float32([1, 1, *(2 for _ in x.array.shape[2:])]))
            g.add("Upsample", [x, scales], exact=True, mode="nearest")
        case 3:
            theta = g.input((1, 2, 3), np.float32, special=False)
            g.add("AffineGrid", [theta, _int64(g, 1, 1, 3, 4)], align_corners=g.rng.randint(0, 1))


@row()
def quantised_operators(g):
    """QLinearMatMul and DynamicQuantizeLinear; sums of constants that land on no half."""
    kind = g.rng.choice((np.uint8, np.int8))
    if g.rng.random() < 0.5:
        x = _finite(g, np.float32)
        if x and x.exact and x.array.size:
            g.add("DynamicQuantizeLinear", [x], 3)
        return
    k, n = g.rng.choice((4, 16, 33)), g.rng.choice((1, 8))
    x, w = g.input((3, k), kind, special=False), g.const(g.data((k, n), kind))
    zero = g.const(np.array(2, kind))
    scales = [g.const(np.float32(v)) for v in (0.03, 0.0511, 0.377)]
    g.add("QLinearMatMul", [x, scales[0], zero, w, scales[1], zero, scales[2], zero], exact=True)
