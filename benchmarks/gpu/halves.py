"""Models of f32 as models in f16 or bf16."""

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

F32 = TensorProto.FLOAT
KINDS = {"f16": (TensorProto.FLOAT16, np.float16),
         "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


def halved(model, dtype="f16"):
    """The ModelProto with f16, or bf16, in place of every f32: inputs, outputs, constants,
    conversions."""
    half, numbers = KINDS[dtype]
    model = onnx.ModelProto.FromString(model.SerializeToString())
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        tensor = value.type.tensor_type
        tensor.elem_type = half if tensor.elem_type == F32 else tensor.elem_type
    constants = list(model.graph.initializer)
    for node in model.graph.node:
        for a in node.attribute:
            if a.name == "to" and a.i == F32:
                a.i = half
            if a.type == onnx.AttributeProto.TENSOR:
                constants.append(a.t)
    for t in constants:
        if t.data_type == F32:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(numbers), t.name))
    return model


__all__ = ["halved"]
