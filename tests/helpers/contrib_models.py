"""Small models in ONNX operators, as exporters write them, for ONNX Runtime's optimiser to fuse.
``python tests/helpers/contrib_models.py`` stores what ``onnxruntime.transformers.optimizer`` makes
of three of them, for tests that lack what it needs (sympy)."""

import gzip
from pathlib import Path

import numpy as np
import onnx
from frontend_cases import model_of
from onnx import helper


class Writer:
    """Nodes and constants of a graph: ``w("Add", "x", array)`` appends a node and returns the name
    of its output."""

    def __init__(self, seed=0):
        self.nodes, self.consts = [], {}
        self.rng = np.random.default_rng(seed)

    def __call__(self, op, *inputs, outputs=1, name=None, **attrs):
        names = ["" if i is None else i if isinstance(i, str) else self.const(i) for i in inputs]
        stem = name or f"t{len(self.nodes)}"
        outs = [stem] if outputs == 1 else list(outputs) if isinstance(outputs, tuple) else [
            f"{stem}_{k}" for k in range(outputs)]
        label = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, outs, name=label, **attrs))
        return outs[0] if outputs == 1 else outs

    def const(self, value):
        name = f"c{len(self.consts)}"
        self.consts[name] = np.asarray(value)
        return name

    def weight(self, *shape, scale=0.3):
        return self.const((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def model(self, inputs, outputs, opset=17, domains=()):
        return model_of(self.nodes, inputs, outputs, self.consts, opset, domains)

    # ---------------------------------------------------------------- pieces

    def linear(self, x, rows, columns):
        return self("Add", self("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def norm(self, x, columns):
        """A layer normalisation written out."""
        mean = self("ReduceMean", x, axes=[-1])
        rest = self("Sub", x, mean)
        square = self("ReduceMean", self("Pow", rest, np.float32(2)), axes=[-1])
        size = self("Sqrt", self("Add", square, np.float32(1e-5)))
        scaled = self("Mul", self("Div", rest, size), self.weight(columns))
        return self("Add", scaled, self.weight(columns))

    def rms(self, x, columns):
        square = self("ReduceMean", self("Pow", x, np.float32(2)), axes=[-1])
        size = self("Sqrt", self("Add", square, np.float32(1e-6)))
        return self("Mul", self.weight(columns), self("Div", x, size))

    def gelu(self, x):
        bent = self("Erf", self("Div", x, np.float32(2 ** 0.5)))
        return self("Mul", self("Mul", x, self("Add", bent, np.float32(1))), np.float32(0.5))

    def gelu_tanh(self, x):
        cube = self("Mul", self("Pow", x, np.float32(3)), np.float32(0.044715))
        bent = self("Tanh", self("Mul", self("Add", x, cube), np.float32((2 / np.pi) ** 0.5)))
        return self("Mul", self("Mul", x, np.float32(0.5)), self("Add", bent, np.float32(1)))

    def heads(self, x, count, size, perm=(0, 2, 1, 3)):
        split = self("Reshape", x, self.ints(0, 0, count, size))
        return self("Transpose", split, perm=list(perm))

    def attend(self, x, columns, count, mask):
        """Self-attention of ``count`` heads as BERT has it; the mask is added to the scores."""
        size = columns // count
        q, k, v = (self.heads(self.linear(x, columns, columns), count, size, perm)
                   for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
        score = self("Div", self("MatMul", q, k), np.float32(size ** 0.5))
        score = self("Add", score, mask) if mask else score
        mixed = self("MatMul", self("Softmax", score, axis=-1), v)
        mixed = self("Transpose", mixed, perm=[0, 2, 1, 3])
        return self.linear(self("Reshape", mixed, self.ints(0, 0, columns)), columns, columns)


def bert(columns=16, count=2):
    """Embeddings and one layer, of a free batch and sequence: (model, feeds)."""
    w = Writer()
    words = w("Gather", w.weight(13, columns), "ids")
    kinds = w("Gather", w.weight(2, columns), "kinds")
    places = w("Gather", w.weight(7, columns), np.arange(5)[None])
    x = w.norm(w("Add", w("Add", words, places), kinds), columns)
    mask = w("Cast", w("Unsqueeze", w("Unsqueeze", "mask", w.ints(1)), w.ints(2)), to=1)
    mask = w("Mul", w("Sub", np.float32(1), mask), np.float32(-10000))
    x = w.norm(w("Add", w.attend(x, columns, count, mask), x), columns)
    inner = w.gelu(w.linear(x, columns, 4 * columns))
    w("Identity", w.norm(w("Add", w.linear(inner, 4 * columns, columns), x), columns), name="y")
    shape = ("batch", 5)
    model = w.model(dict.fromkeys(("ids", "kinds", "mask"), (np.int64, shape)), ["y"])
    rng = np.random.default_rng(1)
    feeds = {"ids": rng.integers(0, 13, (2, 5)), "kinds": rng.integers(0, 2, (2, 5)),
             "mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])}
    return model, feeds


def gpt(columns=16, count=2, before=3, sequence=4):
    """A decoder's layer with a cache of earlier keys and values."""
    w = Writer()
    size = columns // count
    x = w.norm("x", columns)
    qkv = w("Split", w.linear(x, columns, 3 * columns), outputs=3, axis=2)
    q, k, v = (w.heads(part, count, size) for part in qkv)
    k = w("Concat", "past_k", k, axis=2, name="present_k")
    v = w("Concat", "past_v", v, axis=2, name="present_v")
    score = w("Div", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), np.float32(size ** 0.5))
    keep = np.tril(np.ones((9, 9), bool))[before:before + sequence, :before + sequence]
    score = w("Where", keep[None, None], score, np.float32(-10000))
    mixed = w("Transpose", w("MatMul", w("Softmax", score, axis=-1), v), perm=[0, 2, 1, 3])
    mixed = w.linear(w("Reshape", mixed, w.ints(0, 0, columns)), columns, columns)
    x = w("Add", mixed, "x")
    inner = w.gelu_tanh(w.linear(w.norm(x, columns), columns, 4 * columns))
    w("Add", w.linear(inner, 4 * columns, columns), x, name="y")
    past = (np.float32, ("batch", count, before, size))
    model = w.model({"x": (np.float32, ("batch", sequence, columns)), "past_k": past,
                     "past_v": past}, ["y", "present_k", "present_v"])
    rng = np.random.default_rng(2)
    shapes = {"x": (2, sequence, columns), "past_k": (2, count, before, size),
              "past_v": (2, count, before, size)}
    return model, {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def llama(columns=16, count=2):
    """A layer with root mean square norms, rotary embeddings written out, and a gate."""
    w = Writer()
    size, sequence = columns // count, 5
    angles = np.outer(np.arange(sequence), 1 / 10 ** np.linspace(0, 1, size // 2))
    angles = np.concatenate([angles, angles], -1).astype(np.float32)
    x = w.rms("x", columns)

    def turned(v):
        one, two = w("Split", v, w.ints(size // 2, size // 2), outputs=2, axis=-1)
        other = w("Concat", w("Neg", two), one, axis=-1)
        return w("Add", w("Mul", v, np.cos(angles)), w("Mul", other, np.sin(angles)))
    q, k, v = (w.heads(w("MatMul", x, w.weight(columns, columns)), count, size) for _ in range(3))
    score = w("MatMul", turned(q), w("Transpose", turned(k), perm=[0, 1, 3, 2]))
    score = w("Mul", score, np.float32(size ** -0.5))
    hidden = np.triu(np.full((sequence, sequence), -1e9, np.float32), 1)
    mixed = w("MatMul", w("Softmax", w("Add", score, hidden), axis=-1), v)
    mixed = w("Reshape", w("Transpose", mixed, perm=[0, 2, 1, 3]), w.ints(0, 0, columns))
    x = w("Add", "x", w("MatMul", mixed, w.weight(columns, columns)))
    inner = w.rms(x, columns)
    gate = w("MatMul", inner, w.weight(columns, 24))
    gate = w("Mul", gate, w("Sigmoid", gate))
    inner = w("Mul", gate, w("MatMul", inner, w.weight(columns, 24)))
    w("Add", x, w("MatMul", inner, w.weight(24, columns)), name="y")
    model = w.model({"x": (np.float32, ("batch", sequence, columns))}, ["y"])
    return model, {"x": np.random.default_rng(3).standard_normal(
        (2, sequence, columns)).astype(np.float32)}


def vit(columns=16, count=2):
    """Patches of an image, a class token, and a layer."""
    w = Writer()
    patches = w("Conv", "image", w.weight(columns, 3, 4, 4), w.weight(columns), strides=[4, 4])
    rows = w("Transpose", w("Reshape", patches, w.ints(0, columns, -1)), perm=[0, 2, 1])
    token = w("Expand", w.weight(1, 1, columns), w("Concat", w("Slice", w("Shape", "image"),
              w.ints(0), w.ints(1)), w.ints(1, columns), axis=0))
    x = w("Add", w("Concat", token, rows, axis=1), w.weight(1, 10, columns))
    x = w("Add", x, w.attend(w.norm(x, columns), columns, count, None))
    inner = w.gelu(w.linear(w.norm(x, columns), columns, 32))
    x = w.norm(w("Add", x, w.linear(inner, 32, columns)), columns)
    w("Identity", w.linear(w("Gather", x, np.array(0), axis=1), columns, 7), name="y")
    model = w.model({"image": (np.float32, ("batch", 3, 12, 12))}, ["y"])
    return model, {"image": np.random.default_rng(4).standard_normal(
        (2, 3, 12, 12)).astype(np.float32)}


def resnet():
    """Two blocks with batch norms and a residual connection, pooled, and a product."""
    w = Writer()

    def block(x, rows, columns, activation, **attrs):
        y = w("Conv", x, w.weight(rows, columns, 3, 3), pads=[1] * 4, **attrs)
        scale, shift, mean = (w.weight(rows) for _ in range(3))
        y = w("BatchNormalization", y, scale, shift, mean, np.ones(rows, np.float32))
        return w(activation, y) if activation else y
    x = block("image", 8, 3, "Relu", strides=[2, 2])
    y = block(block(x, 8, 8, "Relu"), 8, 8, None)
    x = w("Relu", w("Add", y, x))
    x = w("LeakyRelu", block(x, 6, 8, "HardSigmoid"), alpha=0.1)
    w("Gemm", w("Flatten", w("GlobalAveragePool", x)), w.weight(6, 5), w.weight(5), name="y")
    model = w.model({"image": (np.float32, ("batch", 3, 10, 9))}, ["y"])
    return model, {"image": np.random.default_rng(5).standard_normal(
        (2, 3, 10, 9)).astype(np.float32)}


MODELS = {"bert": bert, "gpt": gpt, "llama": llama, "vit": vit, "resnet": resnet}
STORED = Path(__file__).parents[1] / "exec" / "transformers"
KINDS = {"bert": "bert", "gpt": "gpt2", "vit": "vit"}  # as the optimiser calls them


def optimised(model, level, folder):
    """The model as ONNX Runtime's optimiser writes it; ``level``: a name of its levels."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    path = folder / f"{level}.onnx"
    options.optimized_model_filepath = str(path)
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # it warns that the model may suit this machine only
    onnxruntime.InferenceSession(model.SerializeToString(), options,
                                 providers=["CPUExecutionProvider"])
    return onnx.load(path)


def stored(name):
    """The model of a name in ``KINDS`` as the optimiser for transformers has written it."""
    return onnx.load_from_string(gzip.decompress((STORED / f"{name}.onnx.gz").read_bytes()))


def store():
    """The files of ``stored``."""
    from onnxruntime.transformers.optimizer import optimize_model
    for name, kind in KINDS.items():
        made = optimize_model(MODELS[name]()[0], kind, 2, 16, opt_level=0).model  # heads, columns
        del made.graph.value_info[:]
        (STORED / f"{name}.onnx.gz").write_bytes(gzip.compress(made.SerializeToString(), mtime=0))


if __name__ == "__main__":
    store()
