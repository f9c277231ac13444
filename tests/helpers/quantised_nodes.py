"""Quantised models judged tensor by tensor: every tensor that is rounded to 8 bits against its
exact value, computed in double precision from the very bytes that the same system stored before
it."""

from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aotc.ir.expr import Cast, Unary, loads, rewrite
from aotc.ir.program import Compute
from aotc.options import Options
from aotc.oracle.evaluate import infer_syms, input_arrays, run_step
from aotc.passes.double_precision import promote_to_f64
from aotc.pipeline import run_pipeline

SEEN = "seen_"
BYTES = {"u8": np.uint8, "i8": np.int8}
# operators that round: where (scale, zero point) of the result stand among the inputs
_ROUNDS = {"QuantizeLinear": (1, 2), "QLinearConv": (6, 7), "QLinearMatMul": (6, 7),
           "QLinearAdd": (6, 7), "QLinearMul": (6, 7), "QLinearGlobalAveragePool": (3, 4),
           "QLinearSigmoid": (3, 4), "QLinearSoftmax": (3, 4), "QGemm": (7, 8)}


@dataclass(frozen=True)
class Rounded:
    """One 8-bit tensor of one run: ``off`` quanta between it and the rounded exact value, ``over``
    quanta (beyond the half that rounding costs) to the exact value itself, at most; ``share`` of
    elements that are off."""

    name: str
    off: int
    over: float
    share: float


def observed(model):
    """(model with each rounded tensor dequantised as a further output, {output: (tensor, scale,
    zero point)}): outputs of that kind leave the rest of the graph as executors know it."""
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    copy, seen = onnx.ModelProto(), {}
    copy.CopyFrom(model)
    for node in model.graph.node:
        at = _ROUNDS.get(node.op_type)
        if at is None or len(node.input) <= at[0] or not node.input[at[0]]:
            continue
        scale, zero = (node.input[k] for k in at)
        name = f"{SEEN}{len(seen)}"
        copy.graph.node.append(helper.make_node("DequantizeLinear", [node.output[0], scale, zero],
                                                [name], name=name))
        copy.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        seen[name] = node.output[0], stored[scale].item(), stored[zero].item()
    return copy, seen


def judge(path, seen, feeds, outputs):
    """A Rounded per tensor of an ``observed`` model at ``path``: ``outputs`` of one run on
    ``feeds`` against the model's own operators in double precision."""
    program = run_pipeline(Options(path, target="c", stop_after="program")).program
    views = {program.buffers[n].onnx: program.producer[n] for n in program.outputs}
    tensors = {next(iter(loads(views[name].body))).buffer: name for name in seen}
    exact = promote_to_f64(program)
    arrays = {n: a.astype(np.float64) if a.dtype == np.float32 else a
              for n, a in input_arrays(program, feeds).items()}
    syms = infer_syms(program, arrays, None)
    arrays.update(exact.consts)
    results = []
    for step in exact.steps:
        name = tensors.get(step.outs[0])
        if name is None or not isinstance(step, Compute):
            arrays.update(zip(step.outs, run_step(exact, step, arrays, syms, {})))
            continue
        (real,) = run_step(exact, _unrounded(step), arrays, syms, {})
        tensor, scale, zero = seen[name]
        stored = np.rint(outputs[name].astype(np.float64) / np.float64(scale)) + zero
        wrong = np.abs(stored - np.rint(real))
        results.append(Rounded(tensor, int(wrong.max()), float(np.abs(stored - real).max() - 0.5),
                               float((wrong > 0).mean())))
        arrays[step.outs[0]] = stored.astype(BYTES[step.body.dtype])
    return results


def _unrounded(step):
    """The step without its rounding: a real number in the range of the bytes."""
    assert isinstance(step.body, Cast) and step.body.dtype in BYTES, step
    body = rewrite(step.body.x,
                   lambda n: n.x if isinstance(n, Unary) and n.op == "round" else None)
    return replace(step, body=body)
