"""aotc check: what a model needs, without compiling it."""

import numpy as np
import onnx
import pytest
from attention_model import attention
from half_models import halved
from onnx import TensorProto, helper, numpy_helper
from small_models import conv_stack, dense, make_model, running_sum, two_convolutions, u_net

import aotc
import aotc.tools.check_model
from aotc.cli import main
from aotc.options import Options
from aotc.tools.check_model import check_model
from benchmarks.decoder_models import Sizes, gpt2
from benchmarks.quantised import quantise

pytest.importorskip("onnxruntime.quantization")

node = helper.make_node
F32 = TensorProto.FLOAT


def model_of(nodes, outputs):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "checked", [value("x", F32, ["batch", 4, "seq"])],
                              [value(n, F32, None) for n in outputs],
                              [numpy_helper.from_array(np.ones((4, 300), "f4"), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20),
                                                   helper.make_opsetid("com.microsoft", 1)])


def checked(model, folder, capsys, *options):
    onnx.save(model, folder / "m.onnx")
    code = main(["check", str(folder / "m.onnx"), *options])
    assert not [f for f in folder.iterdir() if f.name != "m.onnx"]  # nothing is written
    return code, capsys.readouterr().out


def test_a_model_that_compiles(tmp_path, capsys):
    model = model_of([node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
                      node("MatMul", ["t", "w"], ["y"])], ["y"])
    code, text = checked(model, tmp_path, capsys, "--dim", "seq=2..8")
    assert code == 0
    for part in ("m.onnx: ai.onnx 20, com.microsoft 1, 2 nodes, 4.7 KB of weights",
                 "operators: Transpose x1, MatMul x1", "supported",
                 "in  x: f32[batch, 4, seq]", "out y: f32[batch, seq, 300]",
                 "dim batch in 1.. (default: a batch)", "dim seq in 2..8 (given)",
                 "arena at batch=1, seq=2: about 64 bytes",
                 "arena at batch=64, seq=8: about 64 bytes"):
        assert part in text, text


def quantised(model, form, folder):
    """An image model in 8 bits, as ONNX Runtime's tools write it."""
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    sets = [{"x": np.random.default_rng(s).standard_normal(shape).astype("f4")} for s in range(2)]
    onnx.save(model, folder / "f32.onnx")
    quantise(str(folder / "f32.onnx"), form, str(folder / "q.onnx"), sets)
    return onnx.load(folder / "q.onnx")


def recurrent(hidden=32):
    rng = np.random.default_rng(0)
    w = {n: rng.standard_normal((1, 4 * hidden, k)).astype("f4") / 8
         for n, k in (("w", 24), ("r", hidden))}
    return make_model([node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)],
                      {"x": (F32, ["t", 2, 24])}, {"y": (F32, ["t", 1, 2, hidden])}, w)


def arena_size(bundle, dims):
    """What a bundle says for these extents and one worker."""
    values = [int(dims[s["name"]]) for s in bundle._symbols]
    return bundle._library.function("arena_size_of")(bundle._ffi.new("int64_t[]", values or 1), 1)


IMAGES, CACHE = (24, (8, 16)), {"past_key_values.*": "present.*"}
MADE = {  # kind: (model in a folder, options)
    "8-bit qdq": (lambda folder: quantised(conv_stack(*IMAGES), "qdq", folder), {}),
    "8-bit qoperator": (lambda folder: quantised(u_net(16, IMAGES[1]), "qoperator", folder), {}),
    "8-bit dynamic": (lambda folder: quantised(conv_stack(*IMAGES), "dynamic", folder), {}),
    "8-bit attention": (lambda folder: quantised(attention(96), "qdq", folder), {}),
    "f32": (lambda folder: conv_stack(*IMAGES), {}),
    "Winograd": (lambda folder: two_convolutions(), {}),
    "f16": (lambda folder: halved(conv_stack(*IMAGES)), {}),
    "bf16": (lambda folder: attention(96), {"precision": "bf16"}),
    "free": (lambda folder: attention("n"), {"dims": {"n": (2, 200)}}),
    "variants": (lambda folder: dense("n"), {"variants": {"n": [(1, 1)]}}),
    "decoder": (lambda folder: gpt2(Sizes(layers=1)), {"alias": CACHE}),
    "loop": (lambda folder: running_sum(), {}),
    "LSTM": (lambda folder: recurrent(), {})}
QUICK = ("8-bit qdq", "free", "LSTM")


@pytest.mark.parametrize("kind", [
    k if k in QUICK else pytest.param(k, marks=pytest.mark.product) for k in MADE])
def test_the_arena_is_that_of_the_bundle(kind, tmp_path):
    """At both ends of free dimensions, whatever the model is made of."""
    make, options = MADE[kind]
    model = make(tmp_path)
    found = check_model(Options(model, target="native", **options))
    bundle = aotc.compile(model, tmp_path / "b", target="native", **options).load()
    assert len(found.arenas) == (2 if found.dims else 1)
    for at, about in found.arenas:
        exact = arena_size(bundle, dict(x.split("=") for x in at.split(", ") if x))
        assert exact / 1.5 <= about <= 1.5 * exact, (at, about, exact)


@pytest.mark.parametrize("kind", ["8-bit qdq", "8-bit dynamic", "f32"])
def test_the_arena_of_a_model_that_would_take_long(kind, tmp_path, monkeypatch):
    """Read off its Program, with weights that are made of constants and numbers of bytes as what
    they are."""
    model = MADE[kind][0](tmp_path)
    (_, exact), = check_model(Options(model, target="c")).arenas
    monkeypatch.setattr(aotc.tools.check_model, "DECIDED_STEPS", 0)
    (_, passed), = check_model(Options(model, target="c")).arenas
    monkeypatch.setattr(aotc.tools.check_model, "PASSED_BYTES", 0)
    (_, read), = check_model(Options(model, target="c")).arenas
    assert exact / 2.5 < passed < 2.5 * exact and exact / 2.5 < read < 2.5 * exact


def test_all_that_is_missing_at_once(tmp_path, capsys):
    nodes = [node("BeamSearch", ["x"], ["a"], domain="com.microsoft"),
             *(node("Gellu", ["x"], [f"g{k}"], name=f"act{k}") for k in range(3))]
    code, text = checked(model_of(nodes, ["a", "g0", "g1", "g2"]), tmp_path, capsys)
    assert code == 1 and "not supported:" in text
    assert "com.microsoft.BeamSearch" in text and "search outside of it" in text
    assert "nodes 'act0', 'act1', 'act2': operator ai.onnx.Gellu x3" in text
    assert "the nearest that compiles is ai.onnx.Gelu" in text


def test_a_model_that_contradicts_itself(tmp_path, capsys):
    code, text = checked(model_of([node("MatMul", ["x", "w"], ["y"])], ["y"]), tmp_path, capsys,
                         "--dim", "seq=7")
    assert code == 1 and "contradicts itself" in text and "MatMul" in text


def test_no_model(tmp_path, capsys):
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    assert main(["check", str(tmp_path / "m.onnx")]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["check"])
