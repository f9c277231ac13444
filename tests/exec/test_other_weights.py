"""Weights of sums of floats that a model stores as something else: halves under a Cast, bytes under
a DequantizeLinear, read by products, by rounds of recurrent layers, and by others than sums."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from small_models import make_model

import aotc
from aotc.ir.program import Loop, static_shape
from aotc.options import Options
from aotc.passes.regions import all_steps
from aotc.pipeline import run_pipeline

F32 = TensorProto.FLOAT
STEPS, WIDE, HIDDEN = 11, 70, 72  # more steps than are unrolled


def halves(rng, *shape):
    return (rng.standard_normal(shape) / 16).astype(np.float16)


def window():
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=F32),
             helper.make_node("Conv", ["x", "f"], ["y"], pads=[1] * 4)]
    return make_model(nodes, {"x": (F32, [1, 67, 9, 7])}, {"y": (F32, None)},
                      {"w": halves(np.random.default_rng(1), 93, 67, 3, 3)})


def product():
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=F32),
             helper.make_node("MatMul", ["x", "f"], ["y"])]
    return make_model(nodes, {"x": (F32, ["n", 130])}, {"y": (F32, None)},
                      {"w": halves(np.random.default_rng(1), 130, 300)})


def reader(kind):
    """A bidirectional LSTM over a batch of any size."""
    rng, stored, nodes = np.random.default_rng(2), {}, []
    for name, shape in {"W": (2, 4 * HIDDEN, WIDE), "R": (2, 4 * HIDDEN, HIDDEN)}.items():
        if kind == "halves":
            stored[name] = halves(rng, *shape)
            nodes.append(helper.make_node("Cast", [name], [f"f{name}"], to=F32))
        else:
            stored[name] = rng.integers(-127, 128, shape).astype(np.int8)
            stored[f"s{name}"], stored[f"z{name}"] = np.float32(0.001), np.int8(3)
            nodes.append(helper.make_node("DequantizeLinear", [name, f"s{name}", f"z{name}"],
                                          [f"f{name}"]))
    stored["B"] = rng.standard_normal((2, 8 * HIDDEN)).astype(np.float32)
    nodes.append(helper.make_node("LSTM", ["x", "fW", "fR", "B"], ["y"], hidden_size=HIDDEN,
                                  direction="bidirectional"))
    return make_model(nodes, {"x": (F32, [STEPS, "n", WIDE])}, {"y": (F32, None)}, stored)


MODELS = {"window": window, "product": product, "halves": lambda: reader("halves"),
          "bytes": lambda: reader("bytes")}


def inlined(model, optimize=None):
    return run_pipeline(Options(model, target="x86-64-v3", optimize=optimize,
                                stop_after="inline")).program


def stored_types(program):
    """Of all large constants, those of bodies too."""
    bodies = [b for s in all_steps(program.steps) if isinstance(s, Loop) for b in s.bodies]
    return {p.dtype(n) for p in (program, *bodies) for n in p.consts
            if np.prod(static_shape(p.shape(n))) > 1000}


@pytest.mark.parametrize("name", MODELS)
def test_sums_read_floats(name):
    """No compute converts them in a call; where code shall be small they are what they were."""
    program = inlined(MODELS[name]())
    assert stored_types(program) == {"f32"}
    small = stored_types(inlined(MODELS[name](), "size"))
    assert small & {"f16", "i8"}


@pytest.mark.parametrize("name", ["halves", "bytes"])
def test_each_direction_has_weights_of_its_own(name):
    """Parts, which lie as the product of their direction reads them."""
    loops = [s for s in inlined(MODELS[name]()).steps if isinstance(s, Loop)]
    assert len(loops) == 2
    for loop in loops:
        shapes = {static_shape(loop.body.shape(n)) for n in loop.body.consts}
        assert (1, 4 * HIDDEN, HIDDEN) in shapes


@pytest.mark.parametrize("name, target", [
    pytest.param(n, t, marks=() if k % 2 == (t == "c") else pytest.mark.product)
    for k, n in enumerate(MODELS) for t in ("c", "native")])
def test_values(name, target, tmp_path):
    model = MODELS[name]()
    ours = aotc.compile(model, tmp_path / "b", target=target, name="b",
                        dims={"n": (1, 30)} if name != "window" else None).load()
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    shape = theirs.get_inputs()[0].shape
    rng = np.random.default_rng()
    for n in (1, 2, 3, 7, 17) if "n" in shape else (1,):
        x = rng.standard_normal([n if d == "n" else d for d in shape]).astype(np.float32)
        np.testing.assert_allclose(ours.run({"x": x})["y"], theirs.run(None, {"x": x})[0],
                                   rtol=1e-4, atol=1e-4, err_msg=str(n))


def test_what_is_read_by_others_too_stays():
    """Halves that a call returns as floats beside their product."""
    shape = [300, 300]
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=F32),
             helper.make_node("MatMul", ["x", "f"], ["y"])]
    model = make_model(nodes, {"x": (F32, shape)}, {"y": (F32, shape), "f": (F32, shape)},
                       {"w": halves(np.random.default_rng(1), *shape)})
    assert stored_types(inlined(model)) == {"f16"}
