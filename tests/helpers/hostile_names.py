"""Texts that mean something to C, Make, JSON or a shell, and a model named by them."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HOSTILE = ["quo\"te", "new\nline", "*/ int x; /*", "#include <no_such_header.h>",
           "$(touch pwned)", "`touch pwned`", "../../etc/passwd", "int", "class", "{{ 7*7 }}",
           "{% raw %}", "张量 😀", "a" * 5000, "a b", "a-b", "a.b", "A_B",
           "$HOME ${PATH} $(CC) %s%n", "\\", "??/", "'; exit", "run", "ctx", "syms",
           "weights", "status", "span", "session", "NULL", "9lives", ";", "<b>",
           "$<TARGET_FILE:x>", "f", "memset", "std", "_", "\t", "=", ":", "@", "x\u2028y",
           "</script>"]
F32 = TensorProto.FLOAT


def hostile_model():
    """One chain per hostile text: input -> Mul by a weight -> Relu -> output, everything named by
    it, and a dynamic dimension for the first few."""
    nodes, inputs, outputs, tensors = [], [], [], []
    for k, text in enumerate(HOSTILE):
        shape = [text, 3] if k < 6 else [2, 3]
        inputs.append(helper.make_tensor_value_info(f"{text}", F32, shape, doc_string=text))
        outputs.append(helper.make_tensor_value_info(f"out {text}", F32, shape))
        tensors.append(numpy_helper.from_array(np.full(3, k + 1, np.float32), f"w {text}"))
        nodes.append(helper.make_node("Mul", [text, f"w {text}"], [f"m {text}"], name=text,
                                      doc_string=text))
        nodes.append(helper.make_node("Relu", [f"m {text}"], [f"out {text}"], name=f"{text}2"))
    graph = helper.make_graph(nodes, HOSTILE[2], inputs, outputs, tensors, doc_string=HOSTILE[0])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
                              producer_name=HOSTILE[2], doc_string=HOSTILE[4])
    helper.set_model_props(model, {HOSTILE[0]: HOSTILE[2]})
    return model


def hostile_feeds(rows=2):
    """{input: array} of the model; ``rows``: the extent of its dynamic dimensions."""
    rng = np.random.default_rng(0)
    return {t: rng.standard_normal((rows if k < 6 else 2, 3)).astype(np.float32)
            for k, t in enumerate(HOSTILE)}
