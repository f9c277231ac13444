"""Models to measure: the zoo's where there is a zoo, else a few built here with random weights."""

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Case:
    """A model file with inputs by name; ``gflop`` per inference (0 if unknown)."""

    name: str
    path: Path
    feeds: dict
    gflop: float = 0.0


def zoo_folder():
    """AOTC_ZOO, else ../shared/zoo beside the repository; it may not exist."""
    return Path(os.environ.get("AOTC_ZOO", ROOT.parent / "shared" / "zoo"))


def zoo_module(name):
    """A module of the zoo's own scripts: materialize, reference or export."""
    spec = importlib.util.spec_from_file_location(f"zoo_{name}", zoo_folder() / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names():
    """Names of the models there are."""
    if zoo_folder().is_dir():
        return sorted(p.stem for p in zoo_folder().glob("*.json"))
    return list(OWN)


def case(name, folder):
    """The Case of a model, written to ``folder`` unless it is there already.  KeyError if there
    is no such model."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / f"{name}.onnx"
    if not zoo_folder().is_dir():
        model, feeds = OWN[name]()
        onnx.save(model, path)
        return Case(name, path, feeds)
    stub = zoo_folder() / f"{name}.stub.onnx"
    if not stub.exists():
        raise KeyError(name)
    meta = json.loads((zoo_folder() / f"{name}.json").read_text())
    if not path.exists():
        zoo_module("materialize").materialize(str(stub), str(path))
    return Case(name, path, zoo_module("reference").make_inputs(meta), meta["gflops"])


def takes_batches(name):
    """Whether a model of the zoo is right at other batches than 1."""
    return bool(json.loads((zoo_folder() / f"{name}.json").read_text()).get("batchable"))


def at_batch(name, batch):
    """A model of the zoo at some batch, the ModelProto.  KeyError if there is no such model."""
    stub = zoo_folder() / f"{name}.stub.onnx"
    if not stub.exists():
        raise KeyError(name)
    return zoo_module("materialize").load(str(stub), None if batch == 1 else batch)


# ---------------------------------------------------------------- models of our own

def _random(rng, *shape):
    fan_in = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
    return (rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def _model(nodes, tensors, x_shape, output):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "benchmark", [value("x", TensorProto.FLOAT, x_shape)],
        [value(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in tensors.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _mlp():
    rng, nodes, tensors = np.random.default_rng(0), [], {}
    sizes = (784, 512, 512, 10)
    for k, (a, b) in enumerate(zip(sizes, sizes[1:])):
        tensors.update({f"w{k}": _random(rng, a, b), f"b{k}": _random(rng, b)})
        nodes += [helper.make_node("Gemm", [f"h{k}" if k else "x", f"w{k}", f"b{k}"], [f"g{k}"]),
                  helper.make_node("Relu", [f"g{k}"], [f"h{k + 1}"])]
    feeds = {"x": rng.standard_normal((64, 784)).astype(np.float32)}
    return _model(nodes, tensors, [64, 784], "h3"), feeds


def _convnet():
    rng, nodes, tensors = np.random.default_rng(1), [], {}
    channels = (3, 32, 64, 128)
    for k, (a, b) in enumerate(zip(channels, channels[1:])):
        tensors.update({f"w{k}": _random(rng, b, a, 3, 3), f"b{k}": _random(rng, b)})
        nodes += [helper.make_node("Conv", [f"h{k}" if k else "x", f"w{k}", f"b{k}"], [f"c{k}"],
                                   pads=[1, 1, 1, 1], strides=[2, 2]),
                  helper.make_node("Relu", [f"c{k}"], [f"h{k + 1}"])]
    feeds = {"x": rng.standard_normal((1, 3, 112, 112)).astype(np.float32)}
    return _model(nodes, tensors, [1, 3, 112, 112], "h3"), feeds


def _attention():
    rng, rows, wide = np.random.default_rng(2), 128, 256
    tensors = {n: _random(rng, wide, wide) for n in ("wq", "wk", "wv", "wo")}
    tensors["scale"] = np.float32(wide ** -0.5)
    node = helper.make_node
    nodes = [node("MatMul", ["x", "wq"], ["q"]), node("MatMul", ["x", "wk"], ["k"]),
             node("MatMul", ["x", "wv"], ["v"]),
             node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
             node("MatMul", ["q", "kt"], ["s"]), node("Mul", ["s", "scale"], ["scaled"]),
             node("Softmax", ["scaled"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["a"]),
             node("MatMul", ["a", "wo"], ["o"]), node("Add", ["o", "x"], ["y"])]
    feeds = {"x": rng.standard_normal((4, rows, wide)).astype(np.float32)}
    return _model(nodes, tensors, [4, rows, wide], "y"), feeds


OWN = {"mlp": _mlp, "convnet": _convnet, "attention": _attention}
