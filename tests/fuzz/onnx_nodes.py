"""Rows of the random graph generator: each proposes one node to a Grower, or nothing."""

import numpy as np
from onnx import helper
from onnx_graphs import DTYPES, FLOATS, INTEGERS

ROWS = []


def row(times=1):
    """Register a proposal; ``times``: its weight."""
    def register(function):
        ROWS.extend([function] * times)
        return function
    return register


def _int64(g, *values):
    return g.const(np.array(values, np.int64))


@row(4)
def unary(g):
    x = g.floats()
    op = g.rng.choice(("Relu", "Sigmoid", "Tanh", "Exp", "Abs", "Neg", "Erf", "Sqrt", "Softplus",
                       "Elu", "HardSigmoid", "LeakyRelu", "Sin", "Cos", "Softsign", "Gelu",
                       "HardSwish", "Selu", "Mish", "Celu", "Identity", "Reciprocal", "Log"))
    # of a large number that is rounded, a turn more or less
    if x and op in ("Sin", "Cos") and not x.exact and np.nanmax(np.abs(x.array), initial=0) > 8:
        return
    # the reference computes erf in f32 whatever is asked
    if x and not (op in ("Erf", "Gelu") and x.array.dtype != np.float32):
        g.add(op, [x], exact=op in ("Relu", "Abs", "Neg", "Identity"))


@row(2)
def step(g):
    x = g.floats(exact=True)
    if x:
        g.add(g.rng.choice(("Floor", "Ceil", "Round", "Sign", "IsNaN", "IsInf")), [x], exact=True)


def broadcastable(g, x):
    """A value that broadcasts with x: another tensor, or a constant of a shrunken shape."""
    if g.rng.random() < 0.4:
        other = g.pick(lambda v: v.array.dtype == x.array.dtype and _fits(v.array, x.array))
        if other:
            return other
    shape = tuple(1 if g.rng.random() < 0.4 else n for n in x.array.shape)
    return g.const(g.data(shape[g.rng.randint(0, len(shape)):], x.array.dtype))


def _fits(a, b):
    return all(m == n or 1 in (m, n) for m, n in zip(a.shape[::-1], b.shape[::-1]))


def _swap(g, *pair):
    return pair if g.rng.random() < 0.5 else pair[::-1]


@row(5)
def binary(g):
    x = g.pick(lambda v: v.array.dtype in FLOATS + INTEGERS)
    if x:
        op = g.rng.choice(("Add", "Sub", "Mul", "Div", "Min", "Max"))
        integer = x.array.dtype not in FLOATS
        y = broadcastable(g, x)
        if op == "Div" and integer:
            y = g.const(np.array(g.rng.choice((1, 2, 3, 5)), x.array.dtype))
        a, b = (x, y) if op == "Div" else _swap(g, x, y)
        g.add(op, [a, b], exact=integer or op in ("Min", "Max"))


@row(2)
def compare(g):
    x = g.pick(lambda v: v.exact and v.array.dtype in FLOATS + INTEGERS)
    if x:
        y = broadcastable(g, x)
        if y.exact:
            op = g.rng.choice(("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"))
            g.add(op, [x, y], exact=True)


@row()
def logical(g):
    x = g.pick(lambda v: v.array.dtype == np.bool_)
    if x:
        if g.rng.random() < 0.3:
            g.add("Not", [x], exact=True)
        else:
            g.add(g.rng.choice(("And", "Or", "Xor")), [x, broadcastable(g, x)], exact=True)


@row()
def bits(g):
    x = g.pick(lambda v: v.array.dtype in INTEGERS)
    if x:
        op = g.rng.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod"))
        y = broadcastable(g, x) if op != "Mod" else g.const(np.array(7, x.array.dtype))
        g.add(op, [x, y], exact=True)


@row(2)
def where(g):
    c = g.pick(lambda v: v.array.dtype == np.bool_)
    if c:
        x = g.pick(lambda v: _fits(v.array, c.array)) or g.input(c.array.shape)
        g.add("Where", [c, x, broadcastable(g, x)], exact=True)


@row(2)
def cast(g):
    x = g.pick()
    to = g.rng.choice(DTYPES)
    small = np.isfinite(x.array).all() and (not x.array.size or abs(x.array.astype(
        np.float64)).max() < 100 and (x.array >= 0).all())
    integer = to not in FLOATS
    # what a cast of a negative or large float to an integer gives is not defined
    if not integer or to == np.bool_ or x.array.dtype not in FLOATS or small and x.exact:
        if to != np.bool_ or x.exact:
            g.add("Cast", [x], exact=True, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


@row(3)
def reduce(g):
    x = g.floats()
    if x:
        op = g.rng.choice(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare",
                           "LogSumExp"))
        axes = sorted(g.rng.sample(range(x.array.ndim), g.rng.randint(0, x.array.ndim)))
        axes = [a - x.array.ndim if g.rng.random() < 0.3 else a for a in axes]
        inputs = [x, _int64(g, *axes)] if axes else [x]
        g.add(f"Reduce{op}", inputs, exact=op in ("Max", "Min"), keepdims=g.rng.randint(0, 1))


@row()
def arg(g):
    x = g.pick(lambda v: v.exact and v.array.ndim and v.array.dtype in (np.float32, np.int32)
               and not np.isnan(v.array.astype(np.float64)).any())
    if x:
        g.add(g.rng.choice(("ArgMax", "ArgMin")), [x], exact=True,
              axis=g.rng.randrange(x.array.ndim), keepdims=g.rng.randint(0, 1),
              select_last_index=g.rng.randint(0, 1))


@row(2)
def along(g):
    x = g.floats()
    if x and x.array.ndim:
        axis = g.rng.randrange(-x.array.ndim, x.array.ndim)
        op = g.rng.choice(("Softmax", "LogSoftmax", "LayerNormalization", "CumSum"))
        if op == "CumSum":
            g.add(op, [x, g.const(np.array(axis, np.int64))], reverse=g.rng.randint(0, 1),
                  exclusive=g.rng.randint(0, 1))
        elif op == "LayerNormalization":
            shape = x.array.shape[axis:]
            g.add(op, [x, g.const(g.data(shape, x.array.dtype)),
                       g.const(g.data(shape, x.array.dtype))], axis=axis)
        else:
            g.add(op, [x], axis=axis)


@row(3)
def matmul(g):
    x = g.pick(lambda v: v.array.dtype == np.float32 and v.array.ndim)
    if x:
        k, n = x.array.shape[-1], g.rng.choice((1, 3, 8, 17, 33))
        y = g.pick(lambda v: v.array.dtype == np.float32 and v.array.ndim > 1
                   and v.array.shape[-2] == k)
        if y is None or g.rng.random() < 0.5:
            y = g.const(g.data((k, n), np.float32))
        g.add("MatMul", [x, y])


@row()
def gemm(g):
    x = g.pick(lambda v: v.array.dtype == np.float32 and v.array.ndim == 2)
    if x:
        ta, tb = g.rng.randint(0, 1), g.rng.randint(0, 1)
        k, n = x.array.shape[1 - ta], g.rng.choice((1, 5, 16))
        w = g.const(g.data((n, k) if tb else (k, n), np.float32))
        bias = g.rng.choice((None, (n,), (1, n), ()))
        inputs = [x, w] + ([] if bias is None else [g.const(g.data(bias, np.float32))])
        g.add("Gemm", inputs, transA=ta, transB=tb, alpha=g.rng.choice((1.0, 0.5)))


def _image(g):
    """Finite: what a NaN does to the maximum of a window, or an infinity to the zeros between the
    pixels of a transposed convolution, is nobody's rule."""
    found = g.pick(lambda v: v.array.dtype == np.float32 and v.array.ndim in (3, 4)
                   and v.array.size and np.isfinite(v.array).all())
    if found is None or g.rng.random() < 0.2:
        shape = (g.rng.randint(1, 2), g.rng.choice((1, 3, 4, 8)), *g.shape(g.rng.randint(1, 2)))
        found = g.input(shape, np.float32, special=False)
    return found


def _window(g, x):
    size = x.array.shape[2:]  # a window of 3 steps of 2 spans 5: no output must be empty
    kernel = [1 if n < 5 else g.rng.randint(1, 3) for n in size]
    pads = [g.rng.randint(0, k - 1) for k in kernel * 2]
    return {"kernel_shape": kernel, "pads": pads,
            "strides": [g.rng.randint(1, 2) for _ in kernel],
            "dilations": [g.rng.randint(1, 2) for _ in kernel]}


@row(3)
def conv(g):
    x = _image(g)
    c, at = x.array.shape[1], _window(g, x)
    group = g.rng.choice([n for n in (1, 1, 2, c) if c % n == 0])
    out = group * g.rng.choice((1, 2, 5, 8))
    w = g.const(g.data((out, c // group, *at["kernel_shape"]), np.float32))
    b = [g.const(g.data((out,), np.float32))] if g.rng.random() < 0.5 else []
    g.add("Conv", [x, w, *b], group=group, **at)


@row()
def conv_transpose(g):
    x = _image(g)
    c, at = x.array.shape[1], _window(g, x)
    w = g.const(g.data((c, g.rng.choice((1, 3, 8)), *at["kernel_shape"]), np.float32))
    g.add("ConvTranspose", [x, w], **at)


@row(2)
def pool(g):
    x = _image(g)
    at = _window(g, x)
    op = g.rng.choice(("MaxPool", "AveragePool"))
    at["ceil_mode"] = g.rng.randint(0, 1)
    if op == "AveragePool":
        at["count_include_pad"] = g.rng.randint(0, 1)
        at["dilations"] = [1] * len(at["strides"])
        at["ceil_mode"] = 0
    g.add(op, [x], exact=op == "MaxPool", **at)


@row()
def norm(g):
    x = _image(g)
    c = x.array.shape[1]
    scale, bias = (g.const(g.data((c,), np.float32)) for _ in "ab")
    # before opset 14 the reference evaluator moves the means as training does
    if g.opset < 14 or g.rng.random() < 0.5:
        g.add("InstanceNormalization", [x, scale, bias])
    else:
        mean, var = g.const(g.data((c,), np.float32)), g.const(
            np.abs(g.data((c,), np.float32)) + np.float32(0.1))
        g.add("BatchNormalization", [x, scale, bias, mean, var])


@row(2)
def transpose(g):
    x = g.pick()
    perm = list(range(x.array.ndim))
    g.rng.shuffle(perm)
    g.add("Transpose", [x], exact=True, **({"perm": perm} if perm else {}))


@row(2)
def reshape(g):
    x = g.pick()
    left, shape = x.array.size, []
    while left > 1 and len(shape) < 4:
        n = g.rng.choice([d for d in range(1, left + 1) if left % d == 0])
        shape.append(n)
        left //= n
    shape.append(left)
    if g.rng.random() < 0.3 and x.array.size:
        shape[g.rng.randrange(len(shape))] = -1
    g.add("Reshape", [x, _int64(g, *shape)], exact=True)


@row(2)
def concat(g):
    x = g.pick(lambda v: v.array.ndim)
    if x:
        axis = g.rng.randrange(x.array.ndim)
        shape = list(x.array.shape)
        shape[axis] = g.rng.randint(1, 4)
        y = g.pick(lambda v: v.array.dtype == x.array.dtype and v.array.ndim == x.array.ndim
                   and all(i == axis or m == n for i, (m, n) in enumerate(
                       zip(v.array.shape, x.array.shape))))
        g.add("Concat", [x, y or g.const(g.data(shape, x.array.dtype)), x], exact=True, axis=axis)


@row()
def split(g):
    x = g.pick(lambda v: v.array.ndim and max(v.array.shape) > 1)
    if x:
        axis = int(np.argmax(x.array.shape))
        n = g.rng.randint(1, x.array.shape[axis] - 1)
        g.add("Split", [x, _int64(g, n, x.array.shape[axis] - n)], 2, exact=True, axis=axis)


@row(2)
def slices(g):
    x = g.pick(lambda v: v.array.ndim)
    if x:
        rank = x.array.ndim
        axes = sorted(g.rng.sample(range(rank), g.rng.randint(1, rank)))
        # a start before the first element steps backwards from it, the reference says from nowhere
        starts = [g.rng.randint(-x.array.shape[a], 6) for a in axes]
        ends = [g.rng.randint(-6, 6) for _ in axes]
        steps = [g.rng.choice((1, 1, 2, -1, -2)) for _ in axes]
        g.add("Slice", [x, *(_int64(g, *v) for v in (starts, ends, axes, steps))], exact=True)


@row()
def pad(g):
    x = g.floats()
    if x and x.array.ndim:
        mode = g.rng.choice(("constant", "reflect", "edge", "wrap"))
        most = min(2, max(0, min(x.array.shape) - 1))
        pads = [g.rng.randint(-1 if mode == "constant" else 0, most)
                for _ in range(2 * x.array.ndim)]
        g.add("Pad", [x, _int64(g, *pads)], exact=True, mode=mode)


@row()
def grow(g):
    x = g.pick()
    if g.rng.random() < 0.5:
        shape = [n if n > 1 else g.rng.randint(1, 4) for n in x.array.shape]
        g.add("Expand", [x, _int64(g, *([2] * g.rng.randint(0, 1)), *shape)], exact=True)
    elif x.array.ndim:
        g.add("Tile", [x, _int64(g, *(g.rng.randint(1, 3) for _ in x.array.shape))], exact=True)


@row()
def ranks(g):
    x = g.pick()
    if g.rng.random() < 0.5:
        g.add("Unsqueeze", [x, _int64(g, g.rng.randint(-x.array.ndim - 1, x.array.ndim))],
              exact=True)
    else:
        ones = [i for i, n in enumerate(x.array.shape) if n == 1]
        g.add("Squeeze", [x, _int64(g, g.rng.choice(ones))] if ones else [x], exact=True)


@row(2)
def gather(g):
    x = g.pick(lambda v: v.array.ndim and min(v.array.shape))
    if x:
        axis = g.rng.randrange(x.array.ndim)
        n = x.array.shape[axis]
        op = g.rng.choice(("Gather", "GatherElements"))
        shape = g.shape(g.rng.randint(0, 2)) if op == "Gather" else tuple(
            g.rng.randint(1, m) for m in x.array.shape)
        at = np.asarray(g.np.integers(-n, n, shape), np.int64)
        index = g.const(at)
        if g.rng.random() < 0.5:
            index = g.input(shape, np.int64)
            g.feeds[index.name][...] = at
        g.add(op, [x, index], exact=True, axis=axis)


@row()
def scatter(g):
    x = g.pick(lambda v: v.array.ndim and v.array.dtype in (np.float32, np.int64)
               and min(v.array.shape))
    if x:
        axis = g.rng.randrange(x.array.ndim)
        shape = x.array.shape[:axis] + (1,) + x.array.shape[axis + 1:]
        index = g.const(np.asarray(g.np.integers(0, x.array.shape[axis], shape), np.int64))
        g.add("ScatterElements", [x, index, g.const(g.data(shape, x.array.dtype))], exact=True,
              axis=axis)


@row()
def upsample(g):
    # finite: the reference multiplies what is not nearest by 0
    x = g.pick(lambda v: v.array.dtype == np.float32 and v.array.ndim == 4
               and np.isfinite(v.array).all())
    if x:
        scales = g.const(np.array((1, 1, g.rng.choice((1, 2, 3)), 2), np.float32))
        mode = g.rng.choice(("nearest", "linear"))
        g.add("Resize", [x, None, scales], exact=mode == "nearest", mode=mode,
              coordinate_transformation_mode=g.rng.choice(("half_pixel", "asymmetric")))


@row()
def clip(g):
    x = g.floats()
    if x:
        low, high = (g.const(np.array(v, x.array.dtype)) for v in (-0.5, 1.5))
        g.add("Clip", [x, low, high], exact=True)


@row()
def triangle(g):
    x = g.pick(lambda v: v.array.ndim >= 2)
    if x:
        g.add("Trilu", [x, g.const(np.array(g.rng.randint(-1, 1), np.int64))], exact=True,
              upper=g.rng.randint(0, 1))


@row()
def empty(g):
    if g.rng.random() < 0.3:
        g.input(tuple(g.rng.choice((0, 1, 3)) for _ in range(g.rng.randint(1, 3))), np.float32)
