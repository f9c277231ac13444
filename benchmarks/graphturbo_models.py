"""The networks of GraphTurbo's Table 2 as graphs for the deciders of instances.

The zoo's models where it has them, with the batch as a dimension of its own; BERT at other lengths
than the zoo's is built here, all layers with the same random weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.accelerator.instances.from_program import from_program
from aotc.sched.accelerator.instances.tensor_graph import TensorGraph
from benchmarks.graphturbo_graphs import batched
from benchmarks.models import case

STORED = {"f32": 2}  # assumed: tensors and weights are stored in half precision


@dataclass(frozen=True)
class Configuration:
    """A row of Tables 2 and 3: runs of a cluster at once, TVM's throughput, and how often DDR, LLB
    and L1 hold an output (the vendor's counts are None where it has none)."""

    label: str
    title: str
    batch: int
    tvm: int
    ours: int
    unit: str
    result: float
    ddr: tuple[int, int | None, int]
    llb: tuple[int | None, int]
    l1: tuple[int | None, int]
    graph: Callable[[Path, int], TensorGraph]


def read(model: onnx.ModelProto | str) -> TensorGraph:
    """The Graph of a model, stored in half precision."""
    program = run_pipeline(Options(model, None, "c", "model", stop_after="inline")).program
    return from_program(program, STORED)


@cache
def _zoo(name: str, folder: Path) -> TensorGraph:
    return read(str(case(name, folder).path))


def zoo(name: str) -> Callable[[Path, int], TensorGraph]:
    """(folder, n) -> Graph of n runs of a model of the zoo."""
    return lambda folder, n: batched(_zoo(name, folder), n)


@cache
def dlrm(folder: Path, n: int) -> TensorGraph:
    """The zoo's DLRM at batch n, which it has in its shapes."""
    model = onnx.load(str(case("dlrm", folder).path))
    old = model.graph.output[0].type.tensor_type.shape.dim[0].dim_value
    for v in (*model.graph.input, *model.graph.output):
        for d in v.type.tensor_type.shape.dim:
            d.dim_value = n if d.dim_value == old else d.dim_value
    for t in model.graph.initializer:
        a = numpy_helper.to_array(t)
        if a.dtype == np.int64 and a.ndim == 1 and a.size > 1 and a[0] == old:
            t.CopyFrom(numpy_helper.from_array(np.array([n, *a[1:]]), t.name))
    del model.graph.value_info[:]
    return read(model)


def encoder(length: int, layers: int = 12, width: int = 768, heads: int = 12) -> onnx.ModelProto:
    """An ONNX model: the encoder of BERT-base for one sentence of ``length``, from embeddings."""
    rng = np.random.default_rng(0)
    consts, nodes = {}, []

    def const(name, *shape):
        if name not in consts:
            consts[name] = numpy_helper.from_array(
                rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02), name)
        return name

    def add(op, out, *inputs, **attributes):
        nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def linear(out, x, name, rows, columns):
        product = add("MatMul", f"{out}_m", x, const(f"{name}_w", rows, columns))
        return add("Add", out, product, const(f"{name}_b", columns))

    shapes = {"split": (1, length, heads, width // heads), "join": (1, length, width)}
    for name, shape in shapes.items():
        consts[name] = numpy_helper.from_array(np.array(shape, np.int64), name)
    consts["scale"] = numpy_helper.from_array(np.float32((width // heads) ** -0.5), "scale")
    x = "x"
    for i in range(layers):
        parts = []
        for p, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
            y = add("Reshape", f"{p}{i}_r", linear(f"{p}{i}", x, p, width, width), "split")
            parts.append(add("Transpose", f"{p}{i}_t", y, perm=perm))
        y = add("Mul", f"s{i}", add("MatMul", f"s{i}_m", *parts[:2]), "scale")
        y = add("MatMul", f"a{i}", add("Softmax", f"p{i}", y, axis=-1), parts[2])
        y = add("Reshape", f"a{i}_r", add("Transpose", f"a{i}_t", y, perm=(0, 2, 1, 3)), "join")
        y = add("Add", f"r{i}", linear(f"o{i}", y, "o", width, width), x)
        x = add("LayerNormalization", f"n{i}", y, const("g", width), const("h", width))
        y = add("Gelu", f"g{i}", linear(f"f{i}", x, "f", width, 4 * width))
        y = add("Add", f"t{i}", linear(f"e{i}", y, "e", 4 * width, width), x)
        x = add("LayerNormalization", f"m{i}", y, const("g", width), const("h", width))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "encoder", [value("x", TensorProto.FLOAT, (1, length, width))],
        [value(x, TensorProto.FLOAT, (1, length, width))], list(consts.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


@cache
def _encoder(length: int) -> TensorGraph:
    return read(encoder(length))


def bert(length: int) -> Callable[[Path, int], TensorGraph]:
    """(folder, n) -> Graph of the encoder for n sentences of ``length``."""
    return lambda folder, n: batched(_encoder(length), n)


_ROWS = (
    ("A", "ResNet-50", 64, 2, 16, "images", 1064, (58, 1, 1), (11, 11), (291, 284),
     zoo("resnet50")),
    ("B", "BERT-128", 32, 4, 8, "sentences", 512, (242, 2, 1), (0, 0), (304, 305),
     zoo("bert_base")),
    ("C", "BERT-256", 16, 2, 4, "sentences", 412, (242, 2, 1), (25, 110), (401, 240), bert(256)),
    ("D", "BERT-384", 8, 1, 2, "sentences", 36, (515, 2, 1), (49, 75), (968, 967), bert(384)),
    ("E", "BERT-512", 8, 1, 2, "sentences", 324, (242, 2, 1), (25, 76), (474, 337), bert(512)),
    ("F", "DLRM", 1024, 64, 256, "queries", 131000, (76, 1, 0), (0, 0), (75, 76), dlrm),
    ("G", "MobileNet-v2", 128, 2, 32, "images", 1416, (56, 1, 0), (7, 3), (619, 608),
     zoo("mobilenet_v2")),
    ("H", "Vision Transformer", 32, 4, 8, "images", 40, (214, None, 24), (None, 60), (None, 340),
     zoo("vit_base_16")),
    ("I", "DenseNet-121", 32, 4, 8, "images", 456, (247, None, 0), (None, 3), (None, 389),
     zoo("densenet121")),
    ("J", "Conformer", 12, 1, 3, "sentences", 184, (1054, None, 4), (None, 813), (None, 250),
     zoo("conformer")))
CONFIGURATIONS = tuple(Configuration(*row) for row in _ROWS)
