"""Rows of the random graph generator for types that are stored only: bfloat16, floats of 8 and 4
bits, integers of 4 and 2.  They are converted, quantised, placed; bfloat16 is computed with."""

import ml_dtypes
import numpy as np
from onnx import helper
from onnx_graphs import FLOATS, STORED
from onnx_nodes import row

BF16 = np.dtype(ml_dtypes.bfloat16)
FEW = [t for t in STORED if t.name[-1] in "24" and "int" in t.name]  # integers of a few bits
EIGHT = [t for t in STORED if t.name.startswith("float8")]
QUANTISED = [*FEW, np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2),
             np.dtype(ml_dtypes.float4_e2m1fn), *map(np.dtype, (np.int16, np.uint16))]


def kind_of(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def numbers(g, shape, dtype):
    """Random numbers that a dtype has."""
    if dtype in FEW:
        info = ml_dtypes.iinfo(dtype)
        return g.np.integers(info.min, info.max + 1, shape).astype(dtype)
    return (g.np.normal(size=shape) * 2).astype(dtype)


def _stored(g, test=lambda t: True):
    """A tensor of a stored type: of the graph, a constant or an input."""
    x = g.other(lambda v: getattr(v.array, "dtype", None) in STORED and test(v.array.dtype))
    if x is None or g.rng.random() < 0.3:
        dtype = g.rng.choice([t for t in STORED if test(t)])
        array = numbers(g, g.shape(), dtype)
        x = g.given(array) if g.rng.random() < 0.6 else g.const(array)
    return x


@row(2)
def to_stored(g):
    x = g.pick(lambda v: v.array.dtype in (np.float32, np.float16) and v.exact)
    if x is None or not np.isfinite(x.array).all():
        x = g.input(dtype=np.float32, special=False)
    to = g.rng.choice([t for t in STORED if t not in FEW])
    g.add("Cast", [x], exact=True, to=kind_of(to))


@row(2)
def from_stored(g):
    x = _stored(g)
    g.add("Cast", [x], exact=True, to=kind_of(g.rng.choice((np.float32, np.float32, np.float16))))


@row(2)
def placed(g):
    x = _stored(g)
    rank = x.array.ndim
    match g.rng.randrange(6):
        case 0:
            if rank:
                g.add("Transpose", [x], exact=True, perm=g.rng.sample(range(rank), rank))
        case 1:
            g.add("Reshape", [x, g.const(np.array([-1]))], exact=True)
        case 2:
            if rank:
                axis = g.rng.randrange(rank)
                g.add("Concat", [x, x], exact=True, axis=axis)
        case 3:
            if rank and x.array.shape[0]:
                at = g.np.integers(0, x.array.shape[0], g.rng.randint(1, 4))
                g.add("Gather", [x, g.const(at)], exact=True, axis=0)
        case 4:
            if rank:
                ends = [g.const(np.array([v])) for v in (g.rng.randint(0, 1), 99, rank - 1)]
                g.add("Slice", [x, *ends, g.const(np.array([g.rng.choice((1, 2))]))], exact=True)
        case 5:
            g.add("Unsqueeze", [x, g.const(np.array([0]))], exact=True)


@row(2)
def brain_floats(g):
    """Every operator computes in f32 and rounds once."""
    x = _stored(g, lambda t: t == BF16)
    op = g.rng.choice(("Add", "Sub", "Mul", "Max", "Min", "Neg", "Abs", "Relu", "Sigmoid"))
    if op in ("Neg", "Abs", "Relu", "Sigmoid"):
        g.add(op, [x], exact=op in ("Neg", "Abs", "Relu"))
    else:
        y = g.const(numbers(g, x.array.shape[g.rng.randint(0, x.array.ndim):], BF16))
        g.add(op, [x, y], exact=op in ("Max", "Min"))


@row()
def brain_product(g):
    m, k, n = (g.rng.choice((1, 3, 8, 17)) for _ in range(3))
    x, w = (numbers(g, s, BF16) for s in ((m, k), (k, n)))
    g.add("MatMul", [g.given(x), g.const(w)])


@row(3)
def quantised(g):
    """QuantizeLinear and back: per tensor, axis or block of neighbours."""
    x = g.pick(lambda v: v.exact and v.array.dtype == np.float32 and v.array.ndim
               and v.array.size and np.isfinite(v.array).all())
    if x is None:
        x = g.input((g.rng.choice((2, 4)), 8), np.float32, special=False)
    dtype, more, shape = g.rng.choice(QUANTISED), {}, ()
    axis = g.rng.randrange(x.array.ndim)
    if g.rng.random() < 0.6:
        more, shape = {"axis": axis}, x.array.shape[axis:axis + 1]
        if x.array.shape[axis] % 2 == 0 and g.rng.random() < 0.5:
            more["block_size"] = 2
            shape = list(x.array.shape)
            shape[axis] //= 2
    scale = g.const(np.asarray(2.0 ** g.np.integers(-4, 2, shape), np.float32))
    floats = dtype.name.startswith("float")
    zero = np.zeros(shape, dtype) if floats else np.asarray(g.np.integers(0, 2, shape)).astype(
        dtype)
    zero = g.const(zero)
    made = g.add("QuantizeLinear", [x, scale, zero], exact=True, **more)
    if made and g.rng.random() < 0.8:
        g.add("DequantizeLinear", [made[0], scale, zero], exact=True, **more)


@row(2)
def weights(g):
    """A product by constant weights of few bits, a scale per column or per block of rows."""
    m, k, n = g.rng.randint(1, 5), g.rng.choice((4, 16, 32)), g.rng.choice((1, 5, 16))
    dtype = g.rng.choice([*FEW, np.dtype(np.int8), np.dtype(np.uint8)])
    block = g.rng.choice((2, 4))
    blocked = g.rng.random() < 0.6
    w = numbers(g, (k, n), dtype) if dtype in FEW else g.data((k, n), dtype)
    shape = (k // block, n) if blocked else (n,)
    more = {"axis": 0, "block_size": block} if blocked else {"axis": 1}
    scale = g.const(np.abs(g.data(shape, np.float32)) + np.float32(0.1))
    zero = [g.const(g.np.integers(0, 2, shape).astype(dtype))] if g.rng.random() < 0.5 else []
    made = g.add("DequantizeLinear", [g.const(w), scale, *zero], **more)
    x = g.pick(lambda v: v.array.dtype == np.float32 and v.array.ndim >= 2 and v.array.size
               and v.array.shape[-1] == k and np.isfinite(v.array).all())
    if made:
        g.add("MatMul", [x or g.input((m, k), FLOATS[0], special=False), made[0]])
