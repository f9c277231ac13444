"""Small ONNX models for the frontend's tests, and the comparison with independent executors."""

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from aotc.frontend import load_model, read_graph, to_program
from aotc.ir.library import HOSTED
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate

OPSET = 18
BOTH, REFERENCE, RUNTIME = ("reference", "onnxruntime"), ("reference",), ("onnxruntime",)
DOMAIN_OPSETS = {"ai.onnx.ml": 3}  # 1 of others


def rand(*shape, seed=0, scale=1.0):
    """Normal f32 numbers."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def model_of(nodes, inputs, outputs, consts=None, opset=OPSET, domains=()):
    """A ModelProto.  inputs: {name: (dtype, shape)}, outputs: names, consts: {name: array}."""
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(d)), s)
             for n, (d, s) in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(n) for n in outputs]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (consts or {}).items()]
    graph = helper.make_graph(nodes, "small", infos, outs, tensors)
    imports = [helper.make_opsetid("", opset)] + [
        helper.make_opsetid(d, DOMAIN_OPSETS.get(d, 1)) for d in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def one_node(op, arrays, attrs=None, consts=(), outputs=1, opset=OPSET, shapes=None):
    """(model, feeds) of a single node: ``arrays`` by position (None: missing), those whose
    position is in ``consts`` as initializers; ``outputs``: their number, or a flag per output;
    ``shapes`` replaces declared input shapes."""
    names = ["" if a is None else f"in{k}" for k, a in enumerate(arrays)]
    while names and not names[-1]:
        names.pop()
    feeds = {f"in{k}": np.asarray(a) for k, a in enumerate(arrays)
             if a is not None and k not in consts}
    held = {f"in{k}": np.asarray(arrays[k]) for k in consts}
    outs = [f"out{k}" if wanted else "" for k, wanted in enumerate(
        [1] * outputs if isinstance(outputs, int) else outputs)]
    node = helper.make_node(op, names, outs, name="the_node", **(attrs or {}))
    typed = {n: (a.dtype, (shapes or {}).get(n, a.shape)) for n, a in feeds.items()}
    domains = [node.domain] if node.domain else []
    return model_of([node], typed, list(filter(None, outs)), held, opset, domains), feeds


@dataclass(frozen=True)
class NodeCase:
    """One node: ``arrays`` by position (None: missing), those in ``consts`` as initializers.
    ``atol``: what executors may differ by."""

    name: str
    op: str
    arrays: list
    attrs: dict = field(default_factory=dict)
    consts: tuple = ()
    outputs: int = 1
    opset: int = 18
    executors: tuple = BOTH
    atol: float = 1e-5

    def model(self):
        """(ModelProto, feeds)."""
        return one_node(self.op, self.arrays, self.attrs, self.consts, self.outputs, self.opset)


LIBRARY = HOSTED


def program_of(model, dims=None, library=None):
    """The checked Program of a model; ``library``: for a target that has these library kernels
    (default: as ``LIBRARY`` says)."""
    library = LIBRARY if library is None else library
    program = to_program(read_graph(load_model(model), dims=dims), library)
    assert check_program(program) == []
    return program


def run(program, feeds):
    """Outputs in order."""
    known = {program.buffers[n].onnx for n in program.inputs}
    return list(evaluate(program, {k: v for k, v in feeds.items() if k in known}).values())


def by_reference(model, feeds):
    return ReferenceEvaluator(model).run(None, feeds)


def by_onnxruntime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


EXECUTORS = {"reference": by_reference, "onnxruntime": by_onnxruntime}


def same(got, wanted, rtol=1e-4, atol=1e-5):
    """Assert equal dtype, shape and values."""
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        w = np.asarray(w)
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)


def compare(model, feeds, executors=("reference", "onnxruntime"), dims=None, **tolerance):
    """Evaluate our Program and every executor; the Program, for structural assertions."""
    program = program_of(model, dims)
    got = run(program, feeds)
    for name in executors:
        same(got, EXECUTORS[name](model, feeds), **tolerance)
    return program


__all__ = ["TensorProto", "helper", "numpy_helper", "onnx"]
