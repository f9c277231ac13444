"""Train a small MLP on scikit-learn's handwritten digits and write it as ONNX."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def data():
    """(train images, test images, train labels, test labels); images f32[n, 64] in 0..16."""
    digits = load_digits()
    images = digits.data.astype(np.float32)
    return train_test_split(images, digits.target, test_size=0.3, random_state=0,
                            stratify=digits.target)


def train(images, labels):
    """A fitted MLPClassifier on images scaled to 0..1."""
    net = MLPClassifier(hidden_layer_sizes=(64, 32), max_iter=600, random_state=0)
    return net.fit(images / 16, labels)


def to_onnx(net):
    """ModelProto: images f32[batch, 64] -> logits f32[batch, 10], digit i64[batch]."""
    nodes = [helper.make_node("Div", ["images", "sixteen"], ["h0"], name="scale")]
    tensors = [numpy_helper.from_array(np.float32(16), "sixteen")]
    for k, (weights, bias) in enumerate(zip(net.coefs_, net.intercepts_), 1):
        last = k == len(net.coefs_)
        tensors += [numpy_helper.from_array(weights.astype(np.float32), f"w{k}"),
                    numpy_helper.from_array(bias.astype(np.float32), f"b{k}")]
        out = "logits" if last else f"a{k}"
        nodes.append(helper.make_node("Gemm", [f"h{k - 1}", f"w{k}", f"b{k}"], [out],
                                      name=f"dense{k}"))
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"h{k}"], name=f"relu{k}"))
    nodes.append(helper.make_node("ArgMax", ["logits"], ["digit"], name="best", axis=1,
                                  keepdims=0))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "digits", [value("images", TensorProto.FLOAT, ["batch", 64])],
        [value("logits", TensorProto.FLOAT, ["batch", 10]),
         value("digit", TensorProto.INT64, ["batch"])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_model(path):
    """Train, save the model to ``path``; returns (net, test images, test labels)."""
    train_x, test_x, train_y, test_y = data()
    net = train(train_x, train_y)
    save(to_onnx(net), path)
    return net, test_x, test_y
