"""Models of f32 as models in f16."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

F16, F32 = TensorProto.FLOAT16, TensorProto.FLOAT


def halved(model):
    """The ModelProto with f16 in place of every f32: inputs, outputs, constants, conversions."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        tensor = value.type.tensor_type
        tensor.elem_type = F16 if tensor.elem_type == F32 else tensor.elem_type
    constants = list(model.graph.initializer)
    for node in model.graph.node:
        for a in node.attribute:
            if a.name == "to" and a.i == F32:
                a.i = F16
            if a.type == onnx.AttributeProto.TENSOR:
                constants.append(a.t)
    for t in constants:
        if t.data_type == F32:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float16), t.name))
    return model


__all__ = ["halved"]
