"""Rows of the random graph generator whose tensors meet again: several consumers at several places,
a tensor beside what is made of it, reductions beside products, masks used twice.  Each adds a few
nodes; what they read is often what another of them has made, so that kernels may be put together in
many ways, and most of those would wait for each other."""

import numpy as np
from onnx_graphs import ELEMENTS
from onnx_nodes import row

LONG = (9, 24, 41, 53, 64)  # an extent of which tiles have parts
MAPS = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs")
FOLDS = ("ReduceMax", "ReduceMean", "ReduceSum", "ReduceMin")


def _int64(g, *values):
    return g.const(np.array(values, np.int64))


def _rows(g, least=2):
    """A finite f32 tensor of ``least`` dimensions or more; long ones now and then."""
    x = g.pick(lambda v: v.array.dtype == np.float32 and least <= v.array.ndim <= 4
               and v.array.size and np.isfinite(v.array).all()
               and np.abs(v.array).max() < 1e4)
    if x is None or g.rng.random() < 0.2:
        shape = [g.rng.choice(LONG), g.rng.choice((2, 5, 8, 16, 33))]
        x = g.input((1,) * g.rng.randint(0, 1) * (least == 2) + (2,) * (least - 2) + tuple(shape),
                    np.float32, special=False)
    return x


def _one(g, *args, **attributes):
    """The first result of a node; None where it is not taken."""
    made = g.add(*args, **attributes)
    return made[0] if made else None


def _map(g, x):
    return _one(g, g.rng.choice(MAPS), [x], exact=False)


def _product(g, x, columns=None):
    """``x`` by a constant matrix."""
    inner, columns = x.array.shape[-1], columns or g.rng.choice((1, 5, 16, 33))
    if x.array.size // inner * columns > ELEMENTS:
        columns = 1
    w = g.const(g.data((inner, columns), np.float32) / np.float32(max(1, inner) ** 0.5))
    return _one(g, "MatMul", [x, w])


def _part(g, x, axis, low, high):
    return _one(g, "Slice", [x, _int64(g, low), _int64(g, high), _int64(g, axis)], exact=True)


def _folded(g, x, axis):
    op = g.rng.choice(FOLDS)
    if op == "ReduceSum" or g.opset >= 18:
        return _one(g, op, [x, _int64(g, axis)], keepdims=1)
    return _one(g, op, [x], axes=[axis], keepdims=1)


def _joined(g, parts, op=None):
    """The parts that there are, by operators that broadcast."""
    parts = [p for p in parts if p]
    while len(parts) > 1:
        a, b = parts.pop(), parts.pop()
        found = _one(g, op or g.rng.choice(("Add", "Mul", "Sub", "Max")), [b, a])
        parts.append(found or b)
    return parts[0] if parts else None


@row(2)
def several_places(g):
    """One tensor at two places of an axis, and as a whole."""
    x = _rows(g)
    axis = g.rng.randrange(x.array.ndim)
    n = x.array.shape[axis]
    if n < 2:
        return
    made = _map(g, x) if g.rng.random() < 0.5 else x
    cut = g.rng.randint(1, n - 1)
    parts = [_part(g, made, axis, 0, n - cut), _part(g, made, axis, cut, n)]
    both = _joined(g, parts)
    if both and g.rng.random() < 0.5:
        _product(g, both)
    first = _part(g, made, axis, 0, 1)
    if first and g.rng.random() < 0.6:
        _joined(g, [_map(g, x), first])


@row(2)
def beside_itself(g):
    """A tensor, what is made of it, and of that, along one axis."""
    x = _rows(g)
    made = _product(g, x, x.array.shape[-1]) if g.rng.random() < 0.6 else _map(g, x)
    if made is None or made.array.shape != x.array.shape:
        return
    pieces = [x, made, _map(g, made), x]
    g.rng.shuffle(pieces)
    pieces = [p for p in pieces if p][:g.rng.randint(2, 4)]
    axis = g.rng.randrange(x.array.ndim)
    both = _one(g, "Concat", pieces, exact=True, axis=axis)
    if both and g.rng.random() < 0.6:
        g.rng.choice((_product, _map))(g, both)


@row(2)
def fold_beside_product(g):
    """Reductions and a product of one tensor that meet again."""
    x = _rows(g)
    made = _map(g, x) or x
    product = _product(g, made)
    axis = g.rng.choice((-1, x.array.ndim - 2))
    fold = _folded(g, made, axis)
    if g.rng.random() < 0.5:
        fold = _folded(g, product, axis) if product else fold
    both = _joined(g, [product, fold, made if g.rng.random() < 0.4 else None])
    if both and g.rng.random() < 0.4:
        _folded(g, both, g.rng.choice((-1, 0)))


@row(2)
def mask_twice(g):
    """A mask hides elements of what it was made of, and a part of it what is made of those."""
    x = _rows(g)
    zero = g.const(np.float32(0))
    mask = _one(g, g.rng.choice(("Less", "Greater")), [x, g.const(np.float32(0.3))], exact=True)
    if mask is None or not x.exact:
        return
    kept = _one(g, "Where", [mask, zero, x], exact=True)
    made = _product(g, kept) if kept else None
    if made and g.rng.random() < 0.5:
        made = _product(g, _map(g, made) or made)
    place = g.rng.randrange(x.array.shape[-1])
    first = _part(g, mask, x.array.ndim - 1, place, place + 1)
    if made and first:
        _one(g, "Where", [first, zero, made])


@row()
def shifted(g):
    """Rows and those before them, mixed by channel, two products of which one gates the other."""
    x = _rows(g)
    axis, n = x.array.ndim - 2, x.array.shape[-2]
    before = _part(g, x, axis, 0, n - 1) if n > 1 else None
    if before is None:
        return
    zero = g.const(np.zeros_like(x.array[..., :1, :]))
    before = _one(g, "Concat", [zero, before], exact=True, axis=axis)
    if before is None:
        return
    width, mixed = x.array.shape[-1], []
    for _ in range(2):
        share = g.data((width,), np.float32)
        a = _one(g, "Mul", [x, g.const(share)])
        b = _one(g, "Mul", [before, g.const(1 - share)])
        mixed.append(_one(g, "Add", [a, b]) if a and b else None)
    parts = [_product(g, m, width) for m in mixed if m]
    _joined(g, [p and _map(g, p) for p in parts] + [x], "Mul")


@row()
def scores(g):
    """Attention of a tensor to itself, hidden behind a diagonal, beside its neighbours'."""
    x = _rows(g)
    n = x.array.shape[-2]
    turned = list(range(x.array.ndim))
    turned[-2:] = turned[:-3:-1]
    other = _one(g, "Transpose", [x], exact=True, perm=turned)
    s = _one(g, "MatMul", [x, other]) if other and n * n < ELEMENTS else None
    if s is None:
        return
    hidden = g.const(np.where(np.tri(n, dtype=bool), 0, -1e4).astype(np.float32))
    s = _one(g, "Add", [s, hidden])
    p = _one(g, "Softmax", [s], axis=-1) if s else None
    y = _one(g, "MatMul", [p, x]) if p else None
    if y:
        _joined(g, [y, x, _folded(g, p, -2) if g.rng.random() < 0.5 and n == 1 else None])


@row()
def experts(g):
    """Two products of the same rows, each by its share of a softmax over a third."""
    x = _rows(g)
    gate = _product(g, x, 2)
    gate = _one(g, "Softmax", [gate], axis=-1) if gate else None
    if gate is None or gate.array.shape[-1] != 2:
        return
    width, parts = g.rng.choice((5, 16)), []
    for k in range(2):
        made = _product(g, x, width)
        share = _part(g, gate, x.array.ndim - 1, k, k + 1)
        parts.append(_one(g, "Mul", [_map(g, made) or made, share]) if made and share else None)
    _joined(g, parts, "Add")


@row()
def pooled(g):
    """Windows of a map that broadcasts, beside another reader of it."""
    c, n = g.rng.choice((3, 16, 53)), g.rng.choice((2, 5, 9))
    x = g.input((1, c, n, g.rng.choice((1, 4))), np.float32, special=False)
    v = g.input((c, 1, 1), np.float32, special=False)
    m, a = _map(g, v), None
    if m:
        a = _one(g, g.rng.choice(("Add", "Mul")), [x, m])
    pool = _one(g, "AveragePool", [a], kernel_shape=[2, 2], pads=[1, 1, 1, 1],
                strides=[g.rng.randint(1, 3)] * 2) if a else None
    fold = _folded(g, x, g.rng.choice((1, 2)))
    if pool and fold:
        last = _folded(g, pool, 2)
        _joined(g, [_joined(g, [x, last]), fold, m])
