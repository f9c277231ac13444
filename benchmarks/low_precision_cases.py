"""What ``benchmarks.low_precision`` measures: a name gives a model, what aotc makes of it, and
which peers run it.

``resnet50`` a model of the zoo, rounded to bf16, beside its f32 form; ``resnet50:qdq`` the same in
8 bits by ONNX Runtime's tools (static, u8 by s8, per channel); ``nbits:1`` a chain of MatMulNBits
of 4 bits for one row, weights of 4096 x 4096, more of them than caches hold; ``llama`` a token of a
decoder of 1 B parameters' shape with two layers of 16, weights of 4 bits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.samples import Feeds, extents, random_inputs
from benchmarks import decoder_models, models
from benchmarks.quantised import CALIBRATION, quantise

MS = "com.microsoft"
WIDE, CHAIN, GROUP = 4096, 12, 32  # weights of 12 matrices are 113 MB
ROOM, PAST, LAYERS = 512, 128, 2
ONE_BILLION = decoder_models.Sizes(32000, 2048, LAYERS, 32, 8, 5632, ROOM)


@dataclass(frozen=True)
class Case:
    """``own``: {label: options of aotc.compile}; ``peers``: {label: name and options of open_peer};
    ``feeds`` of aotc with extents ``dims`` that no input tells, ``theirs`` of the peers.  ``judge``
    is the system whose outputs others are compared with; ``weights``: bytes that a call reads at
    least, 0 if nobody asks."""

    name: str
    path: Path
    own: Mapping[str, Mapping[str, Any]]
    peers: Mapping[str, Mapping[str, Any]]
    feeds: Feeds
    theirs: Feeds
    judge: str = "onnxruntime"
    dims: Mapping[str, int] = field(default_factory=dict)
    weights: int = 0


PEERS: Mapping[str, Mapping[str, Any]] = {"openvino": {"precision": None}, "onnxruntime": {}}


def case(name: str, folder: Path, target: str, base: str) -> Case:
    """The Case of a name, its model written to ``folder``; KeyError if there is none."""
    kind, _, detail = name.partition(":")
    if kind == "nbits":
        return _rows(int(detail), folder, target)
    if kind == "llama":
        return _decoder(folder, target)
    path = models.case(kind, folder).path
    work = run_pipeline(Options(path, target=target, stop_after="fold"))
    syms = extents(work.program)[0]
    sets = [random_inputs(work.program, syms, seed) for seed in range(CALIBRATION + 1)]
    if detail == "qdq":
        quantised = folder / f"{kind}_qdq.onnx"
        quantise(path, "qdq", quantised, sets[1:])
        own = {"aotc": {"target": target}}
        return Case(name, quantised, own, PEERS, sets[0], sets[0])
    if detail:
        raise KeyError(name)
    feeds = models.case(kind, folder).feeds
    own = {"aotc": {"target": target, "precision": "bf16"}, "aotc f32": {"target": base}}
    return Case(name, path, own, PEERS, feeds, feeds)


def grouped(weights: np.ndarray, bits: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """(u8[columns, groups, GROUP * bits / 8], f32[columns * groups]) of f32[steps, columns]: codes
    of 4 or 8 bits around the middle with a scale for GROUP steps, as MatMulNBits stores them."""
    steps, columns = weights.shape
    parts = np.ascontiguousarray(weights.T).reshape(columns, steps // GROUP, GROUP)
    middle = 1 << bits - 1
    scales = np.abs(parts).max(-1, keepdims=True) / (middle - 1)
    codes = (np.rint(parts / np.maximum(scales, 1e-30)) + middle).astype(np.uint8)
    codes = codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4
    return codes, scales.astype(np.float32).ravel()


def _node(x: str, y: str, name: str, steps: int, columns: int, bits: int = 4) -> onnx.NodeProto:
    return helper.make_node("MatMulNBits", [x, f"{name}_codes", f"{name}_scales"], [y], domain=MS,
                            K=steps, N=columns, bits=bits, block_size=GROUP, accuracy_level=4)


def _held(name: str, weights: np.ndarray, bits: int = 4) -> list[TensorProto]:
    codes, scales = grouped(weights, bits)
    return [numpy_helper.from_array(codes, f"{name}_codes"),
            numpy_helper.from_array(scales, f"{name}_scales")]


def _rows(rows: int, folder: Path, target: str) -> Case:
    rng, nodes, held = np.random.default_rng(0), [], []
    for k in range(CHAIN):
        w = rng.standard_normal((WIDE, WIDE)).astype(np.float32) / np.float32(WIDE ** 0.5)
        nodes.append(_node(f"x{k}" if k else "x", f"x{k + 1}" if k + 1 < CHAIN else "y", f"w{k}",
                           WIDE, WIDE))
        held += _held(f"w{k}", w)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "rows", [value("x", TensorProto.FLOAT, [rows, WIDE])],
                              [value("y", TensorProto.FLOAT, [rows, WIDE])], held)
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)])
    path = folder / f"nbits_{rows}.onnx"
    onnx.save(model, path)
    feeds = {"x": rng.standard_normal((rows, WIDE)).astype(np.float32)}
    return Case(f"nbits:{rows}", path, {"aotc": {"target": target}}, PEERS, feeds, feeds,
                judge="aotc", weights=sum(len(t.raw_data) for t in held))


def in_groups(model: onnx.ModelProto, bits: int = 4) -> onnx.ModelProto:
    """The model with MatMulNBits for each MatMul of a constant matrix."""
    tensors, out = {t.name: t for t in model.graph.initializer}, onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.node[:], out.graph.initializer[:]
    out.opset_import.append(helper.make_opsetid(MS, 1))
    gone = set()
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in tensors:
            w = numpy_helper.to_array(tensors[node.input[1]])
            name = node.input[1]
            out.graph.node.append(_node(node.input[0], node.output[0], name, *w.shape, bits))
            out.graph.initializer.extend(_held(name, w, bits))
            gone.add(name)
        else:
            out.graph.node.append(node)
    out.graph.initializer.extend(t for n, t in tensors.items() if n not in gone)
    return out


def _decoder(folder: Path, target: str) -> Case:
    model = in_groups(decoder_models.llama(ONE_BILLION))
    path = folder / "llama.onnx"
    onnx.save(model, path)
    rng = np.random.default_rng(0)
    heads, size = ONE_BILLION.shared, ONE_BILLION.size
    caches = {i.name: rng.standard_normal((1, heads, ROOM, size)).astype(np.float32)
              for i in model.graph.input if i.name.startswith("past")}
    ids = {"input_ids": rng.integers(0, ONE_BILLION.vocabulary, (1, 1))}
    theirs = ids | {n: np.ascontiguousarray(c[:, :, :PAST]) for n, c in caches.items()}
    own = {"aotc": {"target": target, "alias": "auto", "dims": {
        "batch": 1, "seq": 1, "past": (0, ROOM - 1), "capacity": (1, ROOM)}}}
    weights = sum(len(t.raw_data) for t in model.graph.initializer
                  if t.name.endswith(("_codes", "_scales")))
    return Case("llama", path, own, PEERS, ids | caches, theirs, "onnxruntime", {"past": PAST},
                weights)
