"""Decoders with a cache of keys and values, written node by node as exporters do: the past is an
input ``past_key_values.N.key`` (``.value``) f32[batch, heads, past, size], what comes out is
``present.N.key``, the past and this call's."""

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Sizes:
    """Of a decoder.  ``shared``: heads of keys and values, which groups of heads share."""

    vocabulary: int = 41
    width: int = 24
    layers: int = 2
    heads: int = 4
    shared: int = 2
    inner: int = 36
    positions: int = 512

    @property
    def size(self):
        return self.width // self.heads


class _Nodes:
    """Nodes and weights under construction."""

    def __init__(self, sizes, seed):
        self.sizes, self.rng = sizes, np.random.default_rng(seed)
        self.nodes, self.tensors = [], {}

    def __call__(self, kind, *inputs, out=None, **attributes):
        out = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=f"n{len(self.nodes)}",
                                           **attributes))
        return out

    def hold(self, array):
        name = f"c{len(self.tensors)}"
        self.tensors[name] = np.asarray(array)
        return name

    def ints(self, *values):
        return self.hold(np.array(values, np.int64))

    def weight(self, *shape):
        w = self.rng.standard_normal(shape) / np.sqrt(shape[0])
        return self.hold(w.astype(np.float32))

    def vector(self, n, mean=1.0):
        return self.hold((mean + self.rng.standard_normal(n) / 10).astype(np.float32))

    def linear(self, x, n, m, bias=False):
        y = self("MatMul", x, self.weight(n, m))
        return self("Add", y, self.vector(m, 0.0)) if bias else y

    def heads(self, x, count):
        """[batch, seq, width] as [batch, heads, seq, size]."""
        x = self("Reshape", x, self.ints(0, 0, count, self.sizes.size))
        return self("Transpose", x, perm=[0, 2, 1, 3])

    def cached(self, new, layer, what):
        return self("Concat", f"past_key_values.{layer}.{what}", new, axis=2,
                    out=f"present.{layer}.{what}")

    def attended(self, q, k, v, keep):
        """softmax(q k' / sqrt(size), where ``keep``) v, heads side by side again."""
        s = self.sizes
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Mul", scores, self.hold(np.float32(s.size ** -0.5)))
        scores = self("Where", keep, scores, self.hold(np.float32(-1e9)))
        mixed = self("MatMul", self("Softmax", scores, axis=-1), v)
        mixed = self("Transpose", mixed, perm=[0, 2, 1, 3])
        return self("Reshape", mixed, self.ints(0, 0, s.width))

    def model(self, inputs, heads, logits):
        s, f32 = self.sizes, TensorProto.FLOAT
        names = [f"{n}.{what}" for n in range(s.layers) for what in ("key", "value")]
        inputs = inputs | {f"past_key_values.{n}": (f32, ["batch", heads, "past", s.size])
                           for n in names}
        outputs = {logits: (f32, ["batch", "seq", s.vocabulary])}
        outputs |= {f"present.{n}": (f32, ["batch", heads, "past + seq", s.size]) for n in names}
        both = [[helper.make_tensor_value_info(n, *how) for n, how in table.items()]
                for table in (inputs, outputs)]
        tensors = [numpy_helper.from_array(a, n) for n, a in self.tensors.items()]
        return helper.make_model(helper.make_graph(self.nodes, "decoder", *both, tensors),
                                 opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _places(b):
    """(extents of this call [1], past [1], positions of this call i64[seq], of all keys)."""
    seq = b("Shape", "input_ids", start=1, end=2)
    past = b("Shape", "past_key_values.0.key", start=2, end=3)
    total = b("Add", past, seq)
    zero, one = b.hold(np.int64(0)), b.hold(np.int64(1))
    axis = b.ints(0)
    first, last = b("Squeeze", past, axis), b("Squeeze", total, axis)
    return b("Range", first, last, one), b("Range", zero, last, one)


def _causal(b, mine, keys):
    """bool[seq, total]: keys that are not behind a query."""
    return b("LessOrEqual", keys, b("Unsqueeze", mine, b.ints(1)))


def _rms(b, x):
    n = b.sizes.width
    mean = b("ReduceMean", b("Mul", x, x), b.ints(-1), keepdims=1)
    root = b("Sqrt", b("Add", mean, b.hold(np.float32(1e-5))))
    return b("Mul", b("Div", x, root), b.vector(n))


def _rotated(b, x, cos, sin):
    """The halves of a head turned by angles [seq, size / 2]."""
    half = b.ints(b.sizes.size // 2, b.sizes.size // 2)
    b.nodes.append(helper.make_node("Split", [x, half], [f"{half}_a", f"{half}_b"], axis=-1))
    one, two = f"{half}_a", f"{half}_b"
    left = b("Sub", b("Mul", one, cos), b("Mul", two, sin))
    right = b("Add", b("Mul", two, cos), b("Mul", one, sin))
    return b("Concat", left, right, axis=-1)


def llama(sizes=Sizes(), seed=0):
    """RMSNorm, rotary embeddings at places counted from the past's length, grouped heads, SwiGLU;
    its one other input is input_ids i64[batch, seq]."""
    b, s = _Nodes(sizes, seed), sizes
    mine, keys = _places(b)
    keep, group = _causal(b, mine, keys), s.heads // s.shared
    steps = 100.0 ** (-np.arange(s.size // 2) / (s.size // 2))
    angles = b("Mul", b("Cast", b("Unsqueeze", mine, b.ints(1)), to=TensorProto.FLOAT),
               b.hold(steps.astype(np.float32)))
    cos, sin = b("Cos", angles), b("Sin", angles)
    table = b.hold(b.rng.standard_normal((s.vocabulary, s.width)).astype(np.float32))
    x = b("Gather", table, "input_ids")
    for n in range(s.layers):
        h = _rms(b, x)
        q, k, v = (b.heads(b.linear(h, s.width, count * s.size), count)
                   for count in (s.heads, s.shared, s.shared))
        q, k = _rotated(b, q, cos, sin), _rotated(b, k, cos, sin)
        k, v = b.cached(k, n, "key"), b.cached(v, n, "value")
        k, v = (_repeated(b, t, group) for t in (k, v))
        x = b("Add", x, b.linear(b.attended(q, k, v, keep), s.width, s.width))
        h = _rms(b, x)
        gate, up = (b.linear(h, s.width, s.inner) for _ in range(2))
        h = b("Mul", b("Mul", gate, b("Sigmoid", gate)), up)
        x = b("Add", x, b.linear(h, s.inner, s.width))
    b("MatMul", _rms(b, x), b.weight(s.width, s.vocabulary), out="logits")
    return b.model({"input_ids": (TensorProto.INT64, ["batch", "seq"])}, s.shared, "logits")


def _repeated(b, x, group):
    """Each head of keys ``group`` times, as exporters write repeat_kv."""
    if group == 1:
        return x
    s = b.sizes
    shape = b("Shape", x)
    sizes = b("Concat", b("Slice", shape, b.ints(0), b.ints(2)), b.ints(group),
              b("Slice", shape, b.ints(2), b.ints(4)), axis=0)
    x = b("Expand", b("Unsqueeze", x, b.ints(2)), sizes)
    return b("Reshape", x, b("Concat", b("Slice", shape, b.ints(0), b.ints(1)), b.ints(s.heads),
                             b("Slice", shape, b.ints(2), b.ints(4)), axis=0))


def gpt2(sizes=Sizes(shared=4), seed=0):
    """LayerNorm, learnt positions, GELU, heads of their own; other inputs: input_ids and
    position_ids i64[batch, seq], attention_mask i64[batch, past + seq]."""
    b, s = _Nodes(sizes, seed), sizes
    mine, keys = _places(b)
    there = b("Cast", b("Unsqueeze", "attention_mask", b.ints(1, 2)), to=TensorProto.BOOL)
    keep = b("And", _causal(b, mine, keys), there)
    tokens, places = (b.hold(b.rng.standard_normal((n, s.width)).astype(np.float32))
                      for n in (s.vocabulary, s.positions))
    x = b("Add", b("Gather", tokens, "input_ids"), b("Gather", places, "position_ids"))
    for n in range(s.layers):
        h = _layer_norm(b, x)
        q, k, v = (b.heads(b.linear(h, s.width, s.width, True), s.heads) for _ in range(3))
        k, v = b.cached(k, n, "key"), b.cached(v, n, "value")
        x = b("Add", x, b.linear(b.attended(q, k, v, keep), s.width, s.width, True))
        h = b.linear(_layer_norm(b, x), s.width, s.inner, True)
        h = b("Mul", h, b("Add", b("Erf", b("Mul", h, b.hold(np.float32(0.5 ** 0.5)))),
                          b.hold(np.float32(1))))
        h = b("Mul", h, b.hold(np.float32(0.5)))
        x = b("Add", x, b.linear(h, s.inner, s.width, True))
    b("MatMul", _layer_norm(b, x), b.weight(s.width, s.vocabulary), out="logits")
    i64 = TensorProto.INT64
    return b.model({"input_ids": (i64, ["batch", "seq"]), "position_ids": (i64, ["batch", "seq"]),
                    "attention_mask": (i64, ["batch", "past + seq"])}, s.heads, "logits")


def _layer_norm(b, x):
    return b("LayerNormalization", x, b.vector(b.sizes.width), b.vector(b.sizes.width, 0.0),
             axis=-1)


def stepwise(session, feeds, lengths):
    """Outputs of an onnxruntime session over tokens ``feeds["input_ids"]`` [batch, n] in calls of
    so many of them each, the caches handed on: (logits [batch, n, ..], the last caches by name
    behind ``past_key_values.``)."""
    ids = feeds["input_ids"]
    inputs = {i.name: i for i in session.get_inputs()}
    past = {n: np.zeros((ids.shape[0], i.shape[1], 0, i.shape[3]), np.float32)
            for n, i in inputs.items() if n.startswith("past_key_values.")}
    found, at = [], 0
    for n in lengths:
        outs = session.run(None, call_feeds(inputs, ids, at, n) | past)
        found.append(outs[0])
        past = dict(zip(past, outs[1:], strict=True))
        at += n
    return np.concatenate(found, 1), {n.partition(".")[2]: a for n, a in past.items()}


def call_feeds(names, ids, at, n):
    """What a call over ``n`` tokens from place ``at`` is fed beside the caches."""
    batch, feeds = ids.shape[0], {"input_ids": ids[:, at:at + n]}
    if "position_ids" in names:
        feeds["position_ids"] = np.broadcast_to(np.arange(at, at + n), (batch, n)).copy()
    if "attention_mask" in names:
        feeds["attention_mask"] = np.ones((batch, at + n), np.int64)
    return feeds
