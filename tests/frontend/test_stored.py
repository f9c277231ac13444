"""Types that are stored only: conversions both ways, quantisation, operators on them."""

import json

import numpy as np
import onnx
import pytest
from frontend_cases import by_reference, helper, program_of, run

import aotc
from aotc.errors import ModelError, UnsupportedError
from aotc.runtime.tensor_info import stored_dtype
from aotc.tools.verify import verify

TYPES = {"bf16": "BFLOAT16", "f8e4m3fn": "FLOAT8E4M3FN", "f8e4m3fnuz": "FLOAT8E4M3FNUZ",
         "f8e5m2": "FLOAT8E5M2", "f8e5m2fnuz": "FLOAT8E5M2FNUZ", "f8e8m0": "FLOAT8E8M0",
         "f4e2m1": "FLOAT4E2M1", "i4": "INT4", "u4": "UINT4", "i2": "INT2", "u2": "UINT2"}
SMALL = [t for t in TYPES if t.startswith(("f8e4", "f8e5"))]
FEW = ("i4", "u4", "i2", "u2")  # integers of less than a byte
F32 = onnx.TensorProto.FLOAT

pytest.importorskip("ml_dtypes", reason="the onnx package has no ml_dtypes")


def elem(stored):
    return onnx.TensorProto.DataType.Value(TYPES[stored])


def model_of(nodes, inputs, outputs, tensors=(), opset=25):
    """inputs, outputs: {name: (element type, shape)}."""
    infos = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in part.items()]
             for part in (inputs, outputs)]
    graph = helper.make_graph(nodes, "small", *infos, list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def tensor(name, stored, array):
    return onnx.numpy_helper.from_array(np.asarray(array).astype(stored_dtype(stored)), name)


def numbers(integers=False):
    """Ends of ranges, ties, numbers below the least normal one, everything around them."""
    rng = np.random.default_rng(0)
    if integers:
        return rng.integers(-40, 40, 300).astype("f4") + 0.25
    ties = np.concatenate([(k + 0.5) * 2.0 ** e * np.ones(1) for k in range(32)
                           for e in range(-24, 12)])
    x = np.concatenate([ties, -ties, rng.standard_normal(500) * 2.0 ** rng.integers(-30, 30, 500),
                        [0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 448, 464, 465, 57344, 61440,
                         61441, 240, 248, 3e38, 1e-40, -3e38]])
    return x.astype("f4")


def bits(array):
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)


def same_numbers(got, want):
    np.testing.assert_array_equal(got.astype("f4"), want.astype("f4"))
    some = ~np.isnan(want.astype("f4"))
    np.testing.assert_array_equal(bits(got)[some], bits(want)[some])


@pytest.mark.parametrize("stored", TYPES)
@pytest.mark.parametrize("saturate", (0, 1))
def test_every_conversion_rounds_as_the_reference(stored, saturate):
    x = numbers(stored in FEW)
    for rounding in ("up", "down", "nearest") if stored == "f8e8m0" else ("up",):
        options = dict(saturate=saturate, round_mode=rounding) if stored[:2] == "f8" else {}
        nodes = [helper.make_node("Cast", ["x"], ["y"], to=elem(stored), **options),
                 helper.make_node("Cast", ["y"], ["z"], to=F32)]
        model = model_of(nodes, {"x": (F32, ["n"])}, {"y": (elem(stored), ["n"]),
                                                      "z": (F32, ["n"])})
        with np.errstate(all="ignore"):
            wanted = by_reference(model, {"x": x})
        made = run(program_of(model), {"x": x})
        same_numbers(made[0].view(wanted[0].dtype), wanted[0])
        np.testing.assert_array_equal(made[1], wanted[1])


@pytest.mark.parametrize("stored", TYPES)
def test_every_code_is_read_as_the_reference_reads_it(stored):
    size = 1 << (16 if stored == "bf16" else 8 if stored[:2] == "f8" else int(stored[1]))
    codes = np.arange(size, dtype="u2" if size > 256 else "u1")
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=F32)]
    model = model_of(nodes, {"x": (elem(stored), [size])}, {"y": (F32, [size])})
    got, = run(program_of(model), {"x": codes})
    np.testing.assert_array_equal(got, codes.view(stored_dtype(stored)).astype("f4"))


@pytest.mark.parametrize("target", ("c", "native"))
def test_conversions_as_compiled(target, tmp_path):
    """All types in one bundle, called with the arrays of ml_dtypes, and again with what came."""
    nodes, outputs = [], {}
    for t in TYPES:
        nodes += [helper.make_node("Cast", ["x"], [t], to=elem(t)),
                  helper.make_node("Cast", [t], [f"{t}_back"], to=F32),
                  helper.make_node("Cast", [f"in_{t}"], [f"{t}_read"], to=F32)]
        outputs |= {t: (elem(t), ["n"]), f"{t}_back": (F32, ["n"]), f"{t}_read": (F32, ["n"])}
    model = model_of(nodes, {"x": (F32, ["n"]), **{f"in_{t}": (elem(t), ["n"]) for t in TYPES}},
                     outputs)
    x = np.float32([0.3, -1.5, 1.7, 7.2, -2.4, 100, 1e9, -0.0, 3e-3, np.inf, np.nan, -np.nan])
    with np.errstate(all="ignore"):
        given = {f"in_{t}": x.astype(stored_dtype(t)) for t in TYPES}
        program = program_of(model)
        wanted = run(program, {"x": x, **{k: bits(v) for k, v in given.items()}})
    bundle = aotc.compile(model, tmp_path / "b", target=target, name="net")
    got = bundle.load().run({"x": x, **given})
    for info, w in zip(model.graph.output, wanted):
        g = got[info.name]
        np.testing.assert_array_equal(bits(g) if info.name in TYPES else g, w, err_msg=info.name)
    assert got["bf16"].dtype == stored_dtype("bf16")
    entry = json.loads((tmp_path / "b" / "manifest.json").read_text())["outputs"][0]
    assert (entry["dtype"], entry["stored"]) == ("u16", "bf16")
    assert "bf16 in u16[n]" in (tmp_path / "b" / "net.h").read_text()


QUANTISED = [(t, shape, scale, options) for t in (*FEW, *SMALL, "f4e2m1")
             for shape, scale, options in (
                 ((4, 6), (), {}), ((4, 6), (6,), dict(axis=1)),
                 ((4, 6), (2, 6), dict(axis=0, block_size=2)))]


@pytest.mark.parametrize("stored, shape, scale, options", QUANTISED)
def test_quantisation_per_tensor_axis_and_block(stored, shape, scale, options):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(shape) * 4).astype("f4")
    s = np.asarray(rng.random(scale) + 0.5, "f4")
    zero = np.ones(scale) if stored in FEW else np.zeros(scale)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **options),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **options)]
    model = model_of(nodes, {"x": (F32, shape)}, {"q": (elem(stored), shape), "y": (F32, shape)}, [
        onnx.numpy_helper.from_array(s, "s"), tensor("z", stored, zero)])
    wanted = by_reference(model, {"x": x})
    got = run(program_of(model), {"x": x})
    same_numbers(got[0].view(wanted[0].dtype), wanted[0])
    np.testing.assert_allclose(got[1], wanted[1], rtol=1e-6)


@pytest.mark.parametrize("stored", FEW)
def test_constants_of_few_bits_stay_packed(stored, tmp_path):
    """A product with dequantised weights: they take as many bytes as in the model's file, but for
    columns that fill the last panel."""
    rng = np.random.default_rng(2)
    k, n, block = 640, 512, 32
    low, high = (-(1 << int(stored[1]) - 1), 0)[stored[0] == "u"], 1 << int(stored[1]) - 1
    w = rng.integers(low, high, (k, n))
    s = rng.random((k // block, n)).astype("f4")
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=block),
             helper.make_node("MatMul", ["x", "f"], ["y"])]
    model = model_of(nodes, {"x": (F32, ["n", k])}, {"y": (F32, ["n", n])}, [
        tensor("w", stored, w), onnx.numpy_helper.from_array(s, "s")])
    bundle = aotc.compile(model, tmp_path / "b", target="native", name="net")
    x = rng.standard_normal((3, k)).astype("f4")
    want = x.astype("f8") @ (w * np.repeat(s, block, 0)).astype("f8")
    np.testing.assert_allclose(bundle.load().run({"x": x})["y"], want, rtol=1e-4, atol=1e-3)
    file = k * n * int(stored[1]) // 8 + s.nbytes
    assert (tmp_path / "b" / "net_weights.bin").stat().st_size < file + file // 16 + 4096


def test_operators_on_bf16_round_once(tmp_path):
    """Operators compute in f32 and store bf16; those that place elements keep the bits."""
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(s).astype(stored_dtype("bf16")) for s in ((3, 4), (4, 5)))
    nodes = [helper.make_node("MatMul", ["x", "y"], ["p"]),
             helper.make_node("Relu", ["p"], ["r"]),
             helper.make_node("Transpose", ["r"], ["t"]),
             helper.make_node("Concat", ["t", "t"], ["c"], axis=1),
             helper.make_node("Softmax", ["c"], ["out"])]
    bf16 = elem("bf16")
    model = model_of(nodes, {"x": (bf16, [3, 4])}, {"out": (bf16, [5, 6]), "t": (bf16, [5, 3])},
                     [onnx.numpy_helper.from_array(y, "y")])
    got = aotc.compile(model, tmp_path / "b", target="c", name="net").load().run({"x": x})
    relu = np.maximum(x.astype("f4") @ y.astype("f4"), 0).T
    exact = np.exp(np.concatenate([relu, relu], 1))
    exact /= exact.sum(1, keepdims=True)
    for name, want in (("t", relu), ("out", exact)):
        assert got[name].dtype == x.dtype
        np.testing.assert_allclose(got[name].astype("f4"), want, rtol=2 ** -7)


def test_like_another_tensor_and_of_other_numbers():
    nodes = [helper.make_node("CastLike", ["i", "like"], ["a"]),
             helper.make_node("Cast", ["a"], ["b"], to=elem("u2")),
             helper.make_node("Cast", ["b"], ["c"], to=onnx.TensorProto.INT32),
             helper.make_node("Cast", ["h"], ["d"], to=elem("f8e4m3fn")),
             helper.make_node("Cast", ["d"], ["e"], to=onnx.TensorProto.FLOAT16),
             helper.make_node("Reshape", ["d", "shape"], ["f"])]
    f8, half = elem("f8e4m3fn"), onnx.TensorProto.FLOAT16
    model = model_of(nodes, {"i": (7, [4]), "like": (elem("i4"), [1]), "h": (half, [4])}, {
        "a": (elem("i4"), [4]), "c": (6, [4]), "e": (half, [4]), "f": (f8, [2, 2])}, [
        onnx.numpy_helper.from_array(np.array([2, 2]), "shape")])
    feeds = {"i": np.array([3, -3, 9, 200]), "like": np.zeros(1, "u1"),
             "h": np.array([0.3, -7, 500, np.nan], "f2")}
    a, c, e, f = run(program_of(model), feeds)
    assert a.tolist() == [3, 13, 9, 8] and c.tolist() == [3, 1, 1, 0]
    np.testing.assert_array_equal(e, np.float16([0.3125, -7, 448, np.nan]))
    assert f.tolist() == [[0x2A, 0xCE], [0x7E, 0x7F]]


def test_packed_constants_of_odd_size_and_raw_or_listed():
    values = np.array([[1, -2, 7], [-8, 0, 5], [3, -1, 2]])
    for raw in (True, False):
        t = tensor("w", "i4", values) if raw else helper.make_tensor(
            "w", elem("i4"), (3, 3), values.ravel().tolist())
        model = model_of([helper.make_node("Cast", ["w"], ["y"], to=onnx.TensorProto.INT32),
                          helper.make_node("Add", ["y", "x"], ["z"])],
                         {"x": (6, [3, 3])}, {"z": (6, [3, 3])}, [t])
        got, = run(program_of(model), {"x": np.zeros((3, 3), "i4")})
        assert got.tolist() == values.tolist()
    model.graph.initializer[0].int32_data.pop()
    with pytest.raises(ModelError, match="does not fit its shape"):
        program_of(model)


def test_what_is_refused_says_why():
    bf16 = elem("bf16")
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "body", [], [
        helper.make_tensor_value_info("b", bf16, [2])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    model = model_of([node], {"c": (9, []), "x": (bf16, [2])}, {"y": (bf16, [2])})
    with pytest.raises(UnsupportedError, match="output 'b' of a sub-graph has dtype BFLOAT16"):
        program_of(model)
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
             helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)]
    model = model_of(nodes, {"x": (bf16, [2])}, {"y": (bf16, [4])})
    with pytest.raises(UnsupportedError, match="sequence of tensors of a type"):
        program_of(model)
    wrong = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (bf16, [2])},
                     {"y": (4, [2])})
    with pytest.raises(ModelError, match="declared as u16, its node makes bf16"):
        program_of(wrong)


def test_verify_compares_stored_types(tmp_path):
    bf16, f8 = elem("bf16"), elem("f8e4m3fn")
    nodes = [helper.make_node("Add", ["x", "x"], ["y"]),
             helper.make_node("Cast", ["y"], ["z"], to=f8),
             helper.make_node("Cast", ["w"], ["v"], to=bf16)]
    model = model_of(nodes, {"x": (bf16, ["n", 4]), "w": (f8, ["n"])},
                     {"y": (bf16, ["n", 4]), "z": (f8, ["n", 4]), "v": (bf16, ["n"])})
    onnx.save(model, tmp_path / "m.onnx")
    found = verify(tmp_path / "m.onnx", "c", report=lambda line: None)
    assert len(found) > 2 and all(m.ok for _, m in found)
