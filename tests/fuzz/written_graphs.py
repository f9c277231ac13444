"""Small models written as lines of text, run and compared with the reference."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import aotc


def run(text, feeds, folder, constants=(), also=(), shapes=None, **options):
    """(outputs, the reference's) of a model as ``written`` makes it.  ``options``: of
    ``aotc.compile``."""
    model, made = written(text, feeds, constants, also, shapes)
    options = {"target": "native", "name": "net"} | options
    got = aotc.compile(model, folder, **options).load().run(feeds)
    with np.errstate(all="ignore"):
        want = ReferenceEvaluator(model).run(None, feeds)
    return [got[o] for o in made], want


def written(text, feeds, constants=(), also=(), shapes=None):
    """(model, names of its outputs) of nodes written as "y z = Op(a; b; attribute=1)" lines;
    outputs are what no node reads, and ``also``.  ``feeds``: arrays as its inputs are; ``shapes``:
    of inputs with dynamic dimensions."""
    nodes = []
    for line in text.strip().splitlines():
        outs, call = line.strip().split(" = ")
        op, rest = call[:-1].split("(")
        parts = [p.strip() for p in rest.split(";")]
        attributes = {k: eval(v) for k, v in (p.split("=") for p in parts if "=" in p)}
        nodes.append(helper.make_node(op, [p for p in parts if "=" not in p], outs.split(),
                                      **attributes))
    read = {n for node in nodes for n in node.input}
    made = [o for node in nodes for o in node.output if o not in read or o in also]
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in feeds.items()}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, kinds[n], (shapes or {}).get(n, a.shape))
                     for n, a in feeds.items()],
        [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in made],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in dict(constants).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)],
                             ir_version=9), made
