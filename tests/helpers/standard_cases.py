"""The ONNX standard's own node cases, and what of them lies beyond aotc's documented limits."""

import os
import pickle
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from frontend_cases import numpy_helper
from quick_builds import RUN

from aotc.errors import UnsupportedError
from aotc.frontend import load_model, read_graph, to_program
from aotc.frontend.building.registry import lookup
from aotc.frontend.read.read_types import stored_name
from aotc.ir.library import HOSTED

# Refusals that are the documented limits of aotc, by a part of the message.
LIMITS = ("has dtype", "conversion to this dtype", "is older than 7", "a shape, axis or size",
          "aotc does not compile", "quantisation to", "store it dense")
# Operators whose cases hold what numpy draws.
DRAWS = ("Bernoulli", "RandomUniformLike")
# Cases whose outcome is noise, with the reason.
WRONG = {
    "test_dft_inverse": "what cancels is compared with the noise of single precision",
    "test_dft_inverse_opset19": "what cancels is compared with the noise of single precision",
    "test_attention_4d_causal_fp16": "rounds to half precision within the sum of a product",
    **dict.fromkeys(("test_training_dropout", "test_training_dropout_mask",
                     "test_training_dropout_default", "test_training_dropout_default_mask"),
                    "drops what numpy's random numbers say"),
}


@cache
def cases():
    """{operator: [TestCase]} of models whose every node is a registered operator, on tensors of
    dtypes that are computed in (test_stored.py has the others).  Where a model leaves the shape of
    an output open, it is declared: it may depend on data.  They take long to collect: the first
    process of a run keeps them for the others."""
    run = os.environ.get(RUN)
    if not run:
        return _collected()
    file = Path(run) / "standard_cases"
    if not file.exists():
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps(_collected()))
        part.replace(file)
    return pickle.loads(file.read_bytes())


def _collected():
    from onnx.backend.test.case.node import collect_testcases
    out = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases():
            opset = {o.domain: o.version for o in case.model.opset_import}
            nodes = case.model.graph.node
            tensors = all(i.type.HasField("tensor_type")
                          and not stored_name(i.type.tensor_type.elem_type)
                          for i in (*case.model.graph.input, *case.model.graph.output))
            random = any(n.op_type in DRAWS for n in nodes)
            if tensors and not random and opset.get("", 7) >= 7 and all(
                    lookup(n.domain, n.op_type, opset.get(n.domain, 1)) for n in nodes):
                _declare(case)
                out.setdefault(nodes[0].op_type, []).append(case)
    return out


def _declare(case):
    """The outputs' extents, as the case has them, where the model does not state them."""
    for info, array in zip(case.model.graph.output, case.data_sets[0][1]):
        dims = info.type.tensor_type.shape.dim
        for d, n in zip(dims, array_of(array).shape):
            if not d.HasField("dim_value"):
                d.dim_value = n


def with_parameters(model, arrays):
    """The model with its small inputs beyond the first, and scalars, as initializers."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for k, (info, a) in enumerate(zip(model.graph.input, arrays)):
        if a.ndim <= 1 and a.size <= 16 and (k or a.dtype.kind == "i" or a.ndim == 0):
            fixed.graph.initializer.append(numpy_helper.from_array(a, info.name))
    return fixed


def convert(model, arrays, library=HOSTED):
    """The Program of a case, for a target with these library kernels."""
    try:
        return to_program(read_graph(load_model(model)), library)
    except UnsupportedError:
        return to_program(read_graph(load_model(with_parameters(model, arrays))), library)


def array_of(a):
    return numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else np.asarray(a)
