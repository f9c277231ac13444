"""Fourier transforms along an axis of any length, at run time, against numpy's."""

import numpy as np
import pytest
from frontend_cases import program_of, run
from onnx import TensorProto, helper, numpy_helper

import aotc

# name: (attributes, whether the signal is complex, dft_length)
KINDS = {"real": ({}, False, None), "complex": ({}, True, None),
         "half": (dict(onesided=1), False, None), "back": (dict(inverse=1), True, None),
         "back_real": (dict(inverse=1), False, None), "cut": ({}, True, 6),
         "half_cut": (dict(onesided=1), False, 7), "back_half_of": (dict(inverse=1, onesided=1),
                                                                    True, 9)}


def wanted(signal, attrs, length, axis):
    x = signal[..., 0] + (1j * signal[..., 1] if signal.shape[-1] == 2 else 0)
    if attrs == dict(inverse=1, onesided=1):
        return np.fft.irfft(x, length or 2 * (x.shape[axis] - 1), axis)[..., None]
    if attrs.get("inverse"):
        made = np.fft.ifft(x, length, axis)
    else:
        made = np.fft.rfft(x.real, length, axis) if attrs else np.fft.fft(x, length, axis)
    return np.stack([made.real, made.imag], -1)


def model_of(opset):
    """Every kind along the first axis but one of [b, t, n, 1 or 2], which is the last but one in
    opset 20 and the second in opset 17."""
    axis, nodes, held = (1, [], []), [], [numpy_helper.from_array(np.array(1), "axis")]
    for name, (attrs, pairs, length) in KINDS.items():
        inputs = ["pairs" if pairs else "plain", f"{name}_length" if length else ""]
        if length:
            held.append(numpy_helper.from_array(np.array(length), f"{name}_length"))
        if opset >= 20:
            nodes.append(helper.make_node("DFT", [*inputs, "axis"], [name], **attrs))
        else:
            nodes.append(helper.make_node("DFT", inputs[:1 + bool(length)], [name], axis=axis[0],
                                          **attrs))
    graph = helper.make_graph(
        nodes, "dft", [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", "t", 2, parts])
                       for n, parts in (("plain", 1), ("pairs", 2))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in KINDS], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize("opset", (17, 20))
def test_along_a_free_axis(opset):
    program = program_of(model_of(opset))
    rng = np.random.default_rng(opset)
    for t in (1, 2, 5, 8, 31):
        feeds = {n: rng.standard_normal((2, t, 2, p)).astype(np.float32)
                 for n, p in (("plain", 1), ("pairs", 2))}
        got = dict(zip(KINDS, run(program, feeds)))
        for name, (attrs, pairs, length) in KINDS.items():
            want = wanted(feeds["pairs" if pairs else "plain"].astype(np.float64), attrs, length, 1)
            np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-5, err_msg=f"{name} {t}")


def test_a_spectrum_of_any_length_backwards(tmp_path):
    """As many points as there are frequencies say: two less than twice."""
    node = helper.make_node("DFT", ["x"], ["y"], axis=1, inverse=1, onesided=1)
    graph = helper.make_graph(
        [node], "back", [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1, "f", 2])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    net = aotc.compile(model, tmp_path / "b", target="c", name="net").load(threads=1)
    for f in (2, 3, 6, 17):
        x = np.random.default_rng(f).standard_normal((1, f, 2))
        want = wanted(x, dict(inverse=1, onesided=1), None, 1)
        np.testing.assert_allclose(net.run({"x": x})["y"], want, rtol=1e-9, atol=1e-12)
