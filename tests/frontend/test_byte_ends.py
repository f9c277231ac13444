"""8-bit inputs and outputs in place of floats (``io="quantised"``): the same numbers as the model's
own outer roundings give, on bundles; what interfaces say of them; what is refused."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from quantised_net import bytes_net
from small_models import make_model

import aotc
from aotc.errors import AotcError, ModelError
from aotc.ir.numbers.byte_scale import ByteScale
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.samples import random_inputs
from aotc.tools.bench import measure
from aotc.tools.check_model import check_model
from aotc.tools.nodes import verify_nodes
from aotc.tools.verify import output_steps, verify

F32, F16, node = TensorProto.FLOAT, TensorProto.FLOAT16, helper.make_node
RNG = np.random.default_rng(3)
WEIGHTS = {"w": RNG.integers(-127, 128, (6, 5)).astype(np.int8), "ws": np.float32(0.01)}


X, Y = (0.05, np.uint8(131)), (0.08, np.int8(-7))


def net(x=X, y=Y, real=F32, domain="", batch="n"):
    """x -> Q, DQ -> MatMul -> Relu -> Q, DQ -> y, with these scales and zero points."""
    dtype = helper.tensor_dtype_to_np_dtype(real)
    tensors = WEIGHTS | {"ws": WEIGHTS["ws"].astype(dtype), "xs": dtype.type(x[0]), "xz": x[1],
                         "ys": dtype.type(y[0]), "yz": y[1]}
    return make_model([
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], name="in", domain=domain),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xf"], domain=domain),
        node("DequantizeLinear", ["w", "ws"], ["wf"]), node("MatMul", ["xf", "wf"], ["p"]),
        node("Relu", ["p"], ["r"]), node("QuantizeLinear", ["r", "ys", "yz"], ["yq"], name="mid"),
        node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], name="out", domain=domain)],
        {"x": (real, [batch, 6])}, {"y": (real, [batch, 5])}, tensors, opset=19)


def changed(model, change):
    """A copy of a model, changed."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    change(other.graph)
    return other


def both(model, path, target):
    """(the bundle as the model has it, the one with 8-bit ends), loaded."""
    return [aotc.compile(model, path / io, target=target, io=io).load()
            for io in ("model", "quantised")]


def scale_of(info, real="f32"):
    names = {"uint8": "u8", "int8": "i8"}
    return ByteScale(names[info.dtype.name], info.scale, info.zero, real)


@pytest.mark.parametrize("target", ("c", "native"))
@pytest.mark.parametrize("model, real", [
    (net(), "f32"), (net((0.02, np.int8(5)), (0.1, np.uint8(9))), "f32"), (net(real=F16), "f16"),
    (net(domain="com.microsoft"), "f32")])
def test_the_numbers_are_those_behind_the_models_own_roundings(model, real, target, tmp_path):
    floats, ours = both(model, tmp_path, target)
    x, y = scale_of(ours.inputs[0], real), scale_of(ours.outputs[0], real)
    dtype = floats.inputs[0].dtype
    every = np.arange(256, dtype=np.uint8).view(ours.inputs[0].dtype)  # each number in each column
    bytes_ = np.stack([np.roll(every, 43 * k) for k in range(6)], 1)
    real_x = (3 * RNG.standard_normal((300, 6))).astype(dtype)
    for q, given in ((bytes_, x.to_floats(bytes_)), (x.to_bytes(real_x), real_x)):
        got, want = ours.run({"x": q})["y"], floats.run({"x": given})["y"]
        assert got.dtype == ours.outputs[0].dtype and want.dtype == dtype
        assert np.array_equal(got, y.to_bytes(want)) and np.array_equal(y.to_floats(got), want)
        assert len(np.unique(got)) > 20


def test_conversions_are_those_of_the_standard():
    scale = ByteScale("i8", float(np.float32(0.1)), -3, "f32")
    x = np.array([0, 0.25, 0.05, -0.05, 1e6, -1e6, 12.3], np.float32)
    s, z = numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(-3), "z")
    model = helper.make_model(helper.make_graph(
        [node("QuantizeLinear", ["x", "s", "z"], ["q"]),
         node("DequantizeLinear", ["q", "s", "z"], ["y"])], "g",
        [helper.make_tensor_value_info("x", F32, [7])],
        [helper.make_tensor_value_info("q", TensorProto.INT8, [7]),
         helper.make_tensor_value_info("y", F32, [7])], [s, z]),
        opset_imports=[helper.make_opsetid("", 19)])
    q, y = ReferenceEvaluator(model).run(None, {"x": x})
    assert np.array_equal(scale.to_bytes(x), q) and np.array_equal(scale.to_floats(q), y)


def test_kernels_are_those_of_a_model_that_has_bytes():
    """Nothing is left of the outer roundings."""
    inner = bytes_net()

    def floats(g):
        for n in g.node:
            n.input[:] = ["x_u8" if i == "x" else i for i in n.input]
        out, (scale, zero) = g.output[0].name, g.node[-1].input[1:]
        first = node("QuantizeLinear", ["x", "sx", "zx"], ["x_u8"])
        last = node("DequantizeLinear", [out, scale, zero], ["y"])
        nodes = [first, *g.node, last]
        del g.node[:]
        g.node.extend(nodes)
        g.input[0].type.tensor_type.elem_type = F32
        g.output[0].name, g.output[0].type.tensor_type.elem_type = "y", F32
    outer = changed(inner, floats)
    wanted, got = (run_pipeline(Options(m, target="cortex-m0", stop_after="inline", io=io)).program
                   for m, io in ((inner, "model"), (outer, "quantised")))
    assert len(got.steps) == len(wanted.steps)
    for step, other in zip(got.steps, wanted.steps):
        names = dict(zip((*step.inputs, *step.outs), (*other.inputs, *other.outs)))
        text = str(step)
        for name, new in sorted(names.items(), key=lambda n: -len(n[0])):
            text = text.replace(f"{name}[", f"{new}[")
        assert text == str(other)


def test_every_interface_says_what_numbers_stand_for(tmp_path):
    model = aotc.compile(net(), tmp_path / "b", target="c", io="quantised", name="net").load()
    x, y = model.inputs[0], model.outputs[0]
    assert (x.dtype, x.zero, y.dtype, y.zero) == (np.uint8, 131, np.int8, -7)
    assert (np.float32(x.scale), np.float32(y.scale)) == (np.float32(0.05), np.float32(0.08))
    data = json.loads((tmp_path / "b/manifest.json").read_text())
    assert [(t["scale"], t["zero"], t["real"]) for t in (*data["inputs"], *data["outputs"])] == [
        (x.scale, 131, "f32"), (y.scale, -7, "f32")]
    header = (tmp_path / "b/net.h").read_text()
    for text in ("#define NET_X_SCALE 0.05f", "#define NET_X_ZERO (131)",
                 "#define NET_Y_SCALE 0.08f", "#define NET_Y_ZERO (-7)",
                 "x: u8[n, 6], f32 0.05 * (q - 131)"):
        assert text in header
    with pytest.raises(ValueError, match="uint8"):
        model.run({"x": np.zeros((1, 6), np.float32)})
    plain = aotc.compile(net(), tmp_path / "plain", target="c", name="net")
    text = (tmp_path / "plain/net.h").read_text() + (tmp_path / "plain/manifest.json").read_text()
    assert "SCALE" not in text and '"scale"' not in text and plain.load().inputs[0].scale is None


def test_gpu_headers_say_it_too(tmp_path):
    aotc.compile(net(), tmp_path / "b", target="cuda:sm_80", io="quantised", name="net")
    assert "#define NET_X_ZERO (131)" in (tmp_path / "b/net.h").read_text()


def test_other_readers_of_an_output_read_floats(tmp_path):
    def more(g):
        g.node.extend([node("Mul", ["y", "y"], ["z"]), node("Add", ["k", "k"], ["kk"]),
                       node("Shape", ["x"], ["shape"])])
        g.input.append(helper.make_tensor_value_info("k", TensorProto.INT32, [2]))
        g.output.extend([helper.make_tensor_value_info("z", F32, ["n", 5]),
                         helper.make_tensor_value_info("kk", TensorProto.INT32, [2]),
                         helper.make_tensor_value_info("shape", TensorProto.INT64, [2])])
    floats, ours = both(changed(net(), more), tmp_path, "c")
    assert [t.dtype for t in ours.inputs] == [np.uint8, np.int32]
    assert [t.dtype for t in ours.outputs] == [np.int8, np.float32, np.int32, np.int64]
    q = RNG.integers(0, 256, (3, 6)).astype(np.uint8)
    k = np.array([3, -4], np.int32)
    got = ours.run({"x": q, "k": k})
    want = floats.run({"x": scale_of(ours.inputs[0]).to_floats(q), "k": k})
    assert np.array_equal(scale_of(ours.outputs[0]).to_floats(got["y"]), want["y"])
    assert all(np.array_equal(got[n], want[n]) for n in ("z", "kk", "shape"))


def test_readers_may_each_round_by_the_same_numbers(tmp_path):
    def more(g):
        g.node.extend([node("QuantizeLinear", ["x", "xs2", "xz"], ["again"]),
                       node("DequantizeLinear", ["again", "xs", "xz"], ["z"])])
        g.initializer.append(numpy_helper.from_array(np.float32(0.05).reshape(1), "xs2"))
        g.output.append(helper.make_tensor_value_info("z", F32, ["n", 6]))
    ours = both(changed(net(), more), tmp_path, "c")[1]
    q = RNG.integers(0, 256, (3, 6)).astype(np.uint8)
    assert np.array_equal(ours.run({"x": q})["z"], q)  # an output that is an input


def test_what_does_not_qualify_stays():
    def wide(g):  # scale by column
        next(t for t in g.initializer if t.name == "xs").CopyFrom(
            numpy_helper.from_array(np.full(6, 0.05, np.float32), "xs"))
        next(t for t in g.initializer if t.name == "xz").CopyFrom(
            numpy_helper.from_array(np.full(6, 3, np.uint8), "xz"))
    for model in (changed(net(), wide), net(x=(0.001, np.uint16(30000)))):
        found = run_pipeline(Options(model, target="c", io="quantised", stop_after="program"))
        assert {n: s.dtype for n, s in found.program.scales.items()} == {"y": "i8"}
        assert found.program.dtype(found.program.inputs[0]) == "f32"
    fixed = run_pipeline(Options(net(batch=1), target="c", io="quantised", stop_after="program",
                                 fix={"x": [[0.5] * 6]}))
    assert not fixed.program.inputs and [*fixed.program.scales] == ["y"]


def _read_by_another(g):
    g.node.append(node("Neg", ["x"], ["z"], name="other"))
    g.output.append(helper.make_tensor_value_info("z", F32, ["n", 6]))


def _rounded_twice(g):
    g.node.append(node("QuantizeLinear", ["x", "ys", "yz"], ["z"], name="other"))
    g.output.append(helper.make_tensor_value_info("z", TensorProto.INT8, ["n", 6]))


def _read_in_a_branch(g):
    def branch(name, op):
        return helper.make_graph([node(op, ["x"], [name])], name, [],
                                 [helper.make_tensor_value_info(name, F32, None)])
    g.node.append(node("If", ["c"], ["z"], name="other", then_branch=branch("a", "Neg"),
                       else_branch=branch("b", "Abs")))
    g.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    g.output.append(helper.make_tensor_value_info("z", F32, None))


def _is_an_output(g):
    g.output.append(helper.make_tensor_value_info("x", F32, ["n", 6]))


@pytest.mark.parametrize("change, told", [
    (_read_by_another, "'other' (Neg)"), (_rounded_twice, "'other' (QuantizeLinear to i8, scale "),
    (_read_in_a_branch, "'other' (If)"), (_is_an_output, "the model's outputs")])
def test_an_input_that_is_read_in_other_ways_is_refused(change, told, tmp_path):
    with pytest.raises(ModelError) as err:
        aotc.compile(changed(net(), change), tmp_path / "b", target="c", io="quantised")
    text = str(err.value)
    assert "input 'x'" in text and "'in' (QuantizeLinear to u8, scale 0.05, zero 131)" in text
    assert told in text and "leave io out" in text and not (tmp_path / "b").exists()


def test_a_model_without_such_ends_is_refused(tmp_path):
    model = make_model([node("Relu", ["x"], ["y"])], {"x": (F32, [2])}, {"y": (F32, [2])})
    with pytest.raises(ModelError) as err:
        aotc.compile(model, tmp_path / "b", target="c", io="quantised")
    text = str(err.value)
    assert "input 'x': no QuantizeLinear" in text and "output 'y': no DequantizeLinear" in text
    assert not (tmp_path / "b").exists()
    with pytest.raises(AotcError, match="'model', 'quantised'"):
        aotc.compile(net(), tmp_path / "b", target="c", io="bytes")
    assert "io 'quantised'" in check_model(Options(model, target="c", io="quantised")).refusal
    assert check_model(Options(net(), target="c", io="quantised")).arguments == (
        "in  x: u8[n, 6]", "out y: i8[n, 5]")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The file of a model."""
    found = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(net(), found)
    return found


@pytest.mark.parametrize("target", ("c", "native"))
def test_a_reference_is_fed_what_numbers_stand_for(target, path, tmp_path):
    lines = []
    results = verify(path, target, io="quantised", report=lines.append)
    assert len(results) > 2 and all(m.ok and m.unit == "quanta" and not m.fault
                                    for _, m in results), lines
    np.savez(tmp_path / "x.npz", x=RNG.standard_normal((4, 6)).astype(np.float32))  # the model's
    np.savez(tmp_path / "q.npz", x=RNG.integers(0, 256, (4, 6)).astype(np.uint8))  # the bundle's
    for name in ("x.npz", "q.npz"):
        assert all(m.ok for _, m in verify(path, "c", io="quantised", report=lines.append,
                                           inputs=tmp_path / name)), lines


def test_verify_sees_two_quanta(path, monkeypatch):
    """... of an output: its limit is one."""
    scale = ByteScale.to_floats
    monkeypatch.setattr(ByteScale, "to_floats", lambda s, a: scale(s, a) + 2 * s.scale * (
        s.dtype == "i8"))  # which is the output
    results = verify(path, "c", io="quantised", report=lambda line: None)
    assert not any(m.ok for _, m in results)
    assert all(abs(m.share - 2) < 0.01 for _, m in results)


def test_outputs_quanta_are_in_the_models_numbers():
    program = run_pipeline(Options(net(), target="c", io="quantised", stop_after="inline")).program
    assert output_steps(program) == {"y": pytest.approx(0.08)}
    drawn = random_inputs(program, {"n": 99})["x"]
    assert drawn.dtype == np.uint8 and drawn.min() < 5 and drawn.max() > 250


def test_kernels_are_judged_one_by_one(path):
    found = verify_nodes(path, "c", io="quantised", report=lambda line: None)
    assert found and all(f.ok for f in found)


def test_peers_are_timed_on_floats(path, tmp_path):
    pytest.importorskip("onnxruntime")
    rows = measure(path, tmp_path / "b", None, 1, ("onnxruntime",), "native", 0.01,
                   io="quantised")
    assert [(r.name, r.fault) for r in rows] == [("aotc", ""), ("onnxruntime", "")]
