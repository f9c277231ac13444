"""More rows of the random graph generator: what selects and orders, sub-graphs, recurrence, bits,
halves, quantisation."""

import numpy as np
from onnx import TensorProto, helper
from onnx_graphs import FLOATS, INTEGERS, info
from onnx_nodes import broadcastable, row

ORDERED = FLOATS + INTEGERS


def _int64(g, *values):
    return g.const(np.array(values, np.int64))


def _declare(g, made):
    """Tensors whose extents come from data."""
    g.declared.update(v.name for v in made)


@row(2)
def top_k(g):
    x = g.pick(lambda v: v.exact and v.array.ndim and v.array.dtype in ORDERED and v.array.size
               and not np.isnan(v.array.astype(np.float64)).any())
    if x is None or g.rng.random() < 0.3:  # long rows go to a library kernel
        x = g.input((2, g.rng.randint(33, 200)), g.rng.choice(ORDERED), special=False)
    if x:
        axis = g.rng.randrange(x.array.ndim)
        k = g.rng.choice((1, x.array.shape[axis], g.rng.randint(1, x.array.shape[axis])))
        g.add("TopK", [x, _int64(g, k)], 2, exact=True, axis=axis - x.array.ndim,
              largest=g.rng.randint(0, 1))


@row()
def non_zero(g):
    x = g.pick(lambda v: v.exact and v.array.ndim)
    if x and np.count_nonzero(x.array):
        _declare(g, g.add("NonZero", [x], exact=True))


@row()
def compress(g):
    x = g.pick(lambda v: v.array.ndim)
    if x:
        axis = g.rng.randrange(x.array.ndim)
        n = x.array.shape[axis]
        keep = g.data((g.rng.randint(1, max(1, n)),), np.bool_)
        if keep[:n].any() and n:
            given = g.const(keep) if g.rng.random() < 0.5 else g.input(keep.shape, np.bool_)
            if given.name in g.feeds:
                g.feeds[given.name][...] = keep
            _declare(g, g.add("Compress", [x, given], exact=True, axis=axis))


@row()
def unique(g):
    x = g.pick(lambda v: v.exact and v.array.size and v.array.dtype in ORDERED
               and not np.isnan(v.array.astype(np.float64)).any())
    if x:
        axis = {} if g.rng.random() < 0.6 or not x.array.ndim else {
            "axis": g.rng.randrange(x.array.ndim)}
        _declare(g, g.add("Unique", [x], 4, exact=True, sorted=1, **axis))


@row()
def suppress(g):
    n = g.rng.choice((1, 5, 40))
    boxes = g.input((1, n, 4), np.float32, special=False)
    scores = g.input((1, g.rng.randint(1, 2), n), np.float32, special=False)
    made = g.add("NonMaxSuppression",
                 [boxes, scores, _int64(g, g.rng.randint(1, 6)), g.const(np.float32([0.3])),
                  g.const(np.float32([-1.0]))], exact=True,
                 center_point_box=g.rng.randint(0, 1))
    _declare(g, made)


@row()
def branch(g):
    """If whose condition is data or constant; both branches read what is outside."""
    x = g.pick(lambda v: v.array.dtype == np.float32)
    if x is None:
        return
    cond = g.input((), np.bool_) if g.rng.random() < 0.6 else g.const(np.array(True))
    bodies = {}
    for side, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        out = g.name("s")
        bodies[side] = helper.make_graph([helper.make_node(op, [x.name], [out])], side, [],
                                         [info(out, x.array)])
    g.add("If", [cond], outer=[x], exact=True, **bodies)


@row()
def loop(g):
    """A Loop with a carried value and a scanned one, over a constant number of rounds.  What is
    scanned has one dimension: the reference stacks others along the first."""
    x = g.pick(lambda v: v.array.dtype == np.float32 and v.array.size < 400)
    if x is None:
        return
    flat = _int64(g, -1)
    i, c, v, w, o, s = (g.name("s") for _ in range(6))
    body = helper.make_graph(
        [helper.make_node("Identity", [c], [o]), helper.make_node("Abs", [v], [w]),
         helper.make_node("Reshape", [v, flat.name], [s])], "body",
        [helper.make_tensor_value_info(i, TensorProto.INT64, ()),
         helper.make_tensor_value_info(c, TensorProto.BOOL, ()), info(v, x.array)],
        [helper.make_tensor_value_info(o, TensorProto.BOOL, ()), info(w, x.array),
         info(s, x.array.reshape(-1))])
    rounds, more = g.const(np.array(g.rng.randint(1, 4))), g.const(np.array(True))
    g.add("Loop", [rounds, more, x], 2, outer=[flat], exact=True, body=body)


@row()
def recurrent(g):
    steps, batch, size, hidden = (g.rng.randint(1, 4) for _ in range(4))
    x = g.input((steps, batch, size), np.float32, special=False)
    op, gates = g.rng.choice((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    both = g.rng.randint(1, 2)
    w, r = (g.const(g.data((both, gates * hidden, n), np.float32)) for n in (size, hidden))
    b = [g.const(g.data((both, 2 * gates * hidden), np.float32))] if g.rng.random() < 0.5 else []
    g.add(op, [x, w, r, *b], 3 if op == "LSTM" else 2, hidden_size=hidden,
          direction="bidirectional" if both == 2 else g.rng.choice(("forward", "reverse")))


@row()
def shift(g):
    x = g.pick(lambda v: v.array.dtype in INTEGERS[4:])
    if x:
        count = g.const(g.np.integers(0, x.array.dtype.itemsize * 8, x.array.shape).astype(
            x.array.dtype))
        g.add("BitShift", [x, count], exact=True, direction=g.rng.choice(("LEFT", "RIGHT")))


@row(2)
def half(g):
    """Arithmetic on f16: every operator rounds once."""
    x = g.pick(lambda v: v.array.dtype == np.float16)
    if x is None:
        g.input(dtype=np.float16, special=False)
        return
    op = g.rng.choice(("Add", "Sub", "Mul", "Max", "Min", "Neg", "Abs", "Relu", "Floor"))
    if op in ("Neg", "Abs", "Relu") or op == "Floor" and x.exact:
        g.add(op, [x], exact=True)
    elif op != "Floor":
        g.add(op, [x, broadcastable(g, x)], exact=op in ("Max", "Min"))


@row()
def power(g):
    x = g.pick(lambda v: v.array.dtype in FLOATS)
    if x:
        g.add("Pow", [x, g.const(np.array(g.rng.choice((0, 1, 2, 3, -1, 0.5)), x.array.dtype))])


@row()
def einsum(g):
    x = g.pick(lambda v: v.array.dtype == np.float32 and v.array.ndim == 2
               and np.isfinite(v.array).all())
    if x:
        w = g.const(g.data((x.array.shape[1], g.rng.randint(1, 9)), np.float32))
        g.add("Einsum", [x, w], equation=g.rng.choice(("ij,jk->ik", "ij,jk->k", "ij,jk->kij")))


@row()
def quantise(g):
    x = g.pick(lambda v: v.exact and v.array.dtype == np.float32
               and np.isfinite(v.array).all())
    if x:
        kind = g.rng.choice((np.uint8, np.int8))
        scale, zero = g.const(np.float32(0.0625)), g.const(np.array(g.rng.randint(0, 9), kind))
        made = g.add("QuantizeLinear", [x, scale, zero], exact=True)
        if made:
            g.add("DequantizeLinear", [made[0], scale, zero], exact=True)


@row()
def one_hot(g):
    x = g.pick(lambda v: v.array.dtype == np.int64 and v.array.ndim < 4)
    if x:
        g.add("OneHot", [x, _int64(g, g.rng.randint(1, 6)), g.const(np.float32([-1, 2]))],
              exact=True, axis=g.rng.choice((-1, 0)))
