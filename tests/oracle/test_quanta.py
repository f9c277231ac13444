"""Outputs behind roundings to 8 bits: their quanta are found, and verify allows one."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from te_programs import Maker, ax

import aotc.tools.nodes as nodes
from aotc.ir.expr import Cast, Const, Unary, maximum, minimum
from aotc.ir.numbers.fixed_point import rescale, shift_down
from aotc.oracle.quanta import quanta
from aotc.tools.verify import ROUNDED, compare, verify

F32, U8 = np.float32, np.uint8


def _rounded(e, dtype="u8"):
    e = Unary("round", e / Const(0.5, "f32")) + Const(3.0, "f32")
    return Cast(dtype, minimum(maximum(e, Const(0.0, "f32")), Const(255.0, "f32")))


def _program():
    m = Maker()
    i, j, k = ax("i", 4), ax("j", 4), ax("k", 4)
    m.input("x", 4, 4)
    m.input("given", 4, 4, dtype="u8")
    m.step("q", (i, j), _rounded(m.ref("x", i, j)))
    m.step("turned", (i, j), m.ref("q", j, i))
    real = (Cast("f32", Cast("i32", m.ref("turned", i, j)) - Const(3, "i32"))
            * Const(0.5, "f32"))
    m.step("real", (i, j), real)
    m.step("relu", (i, j), maximum(m.ref("real", i, j), Const(0.0, "f32")))
    m.step("half", (i, j), m.ref("relu", i, j) / Const(2.0, "f32"))
    m.step("most", (i,), m.ref("half", i, k), (k,), "max")
    m.step("total", (i,), m.ref("half", i, k), (k,), "sum")
    m.step("square", (i, j), m.ref("real", i, j) * m.ref("real", i, j))
    m.step("whole", (i, j), Cast("i32", m.ref("real", i, j)))
    m.step("exact", (i, j), Cast("f32", m.ref("given", i, j)) * Const(0.5, "f32"))
    return m.done("most", "total", "square", "whole", "exact")


def test_the_quantum_follows_scaling_and_moving():
    assert quanta(_program()) == {
        "q": 1.0, "turned": 1.0, "real": 0.5, "relu": 0.5, "half": 0.25, "most": 0.25,
        "total": None, "square": None, "whole": None}


def test_integers_times_a_fraction_are_rounded_too():
    m = Maker()
    i = ax("i", 4)
    m.input("x", 4, dtype="i32")
    for name, value in (("scaled", rescale(m.ref("x", i), Const(1 << 30, "i32"), 35)),
                        ("shifted", shift_down(m.ref("x", i), 3))):
        m.step(name, (i,), Cast("u8", minimum(maximum(value + Const(7, "i32"), Const(0, "i32")),
                                              Const(255, "i32"))))
    m.step("cut", (i,), Cast("u8", minimum(maximum(m.ref("x", i), Const(0, "i32")),
                                           Const(255, "i32"))))  # which is exact
    m.step("real", (i,), Cast("f32", m.ref("scaled", i)) * Const(0.5, "f32"))
    assert quanta(m.done("shifted", "cut", "real")) == {"scaled": 1.0, "shifted": 1.0, "real": 0.5}


def test_only_the_roundings_of_the_steps_that_are_given_count():
    program = _program()
    later = [s for s in program.steps if s.out in ("real", "relu")]
    assert quanta(program, later) == {}


def test_one_quantum_passes_and_two_do_not():
    want = np.arange(9, dtype=F32) * F32(0.25)
    one, two = want.copy(), want.copy()
    one[3] += 0.25
    two[3] += 0.5
    near, far = compare("y", one, want, 0.25), compare("y", two, want, 0.25)
    assert near.ok and near.share == 1 and near.unit == "quanta" and not far.ok
    assert not compare("y", one, want).ok
    assert compare("y", np.array([7], U8), np.array([8], U8), 1.0).ok
    assert not compare("y", np.array([6], U8), np.array([8], U8), 1.0).ok
    want[4] = np.nan
    assert compare("y", want, want, 0.25).ok and not compare("y", one, want, 0.25).ok


def test_without_a_quantum_of_fixed_size_the_limit_is_a_share():
    want = np.linspace(0, 1, 5, dtype=F32)
    assert compare("y", want + F32(ROUNDED / 2), want, None).ok
    assert not compare("y", want + F32(ROUNDED * 2), want, None).ok
    assert not compare("y", np.array([1]), np.array([2]), None).ok  # an index is exact


@pytest.fixture
def quantised(tmp_path):
    """y = what DequantizeLinear makes of x W, rounded; z u8: the rounded numbers themselves.
    x has sums that lie at ties and beside them."""
    rng = np.random.default_rng(0)
    w = rng.integers(-127, 128, (8, 5)).astype(np.int8)
    scales = {"sx": 0.5, "sw": 0.25, "sy": 1.0}
    stored = [numpy_helper.from_array(np.array(v, F32), n) for n, v in scales.items()]
    stored += [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array(100, U8), "zy"),
               numpy_helper.from_array(np.array(0, np.int8), "zw")]
    node = helper.make_node
    graph = helper.make_graph(
        [node("QuantizeLinear", ["x", "sx", "zy"], ["q"]),
         node("DequantizeLinear", ["q", "sx", "zy"], ["r"]),
         node("DequantizeLinear", ["w", "sw", "zw"], ["v"]),
         node("MatMul", ["r", "v"], ["p"], name="product"),
         node("QuantizeLinear", ["p", "sy", "zy"], ["z"]),
         node("DequantizeLinear", ["z", "sy", "zy"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 5]),
         helper.make_tensor_value_info("z", TensorProto.UINT8, [6, 5])], stored)
    path = tmp_path / "quantised.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_verify_reports_quanta(quantised):
    lines = []
    results = verify(quantised, target="c", report=lines.append)
    assert [m.unit for _, m in results] == ["quanta", "quanta"] and all(m.ok for _, m in results)
    assert "quanta (limit 1.01)" in lines[1]


def test_a_reference_whose_modes_differ_widens_the_limit(quantised, monkeypatch):
    """Steps that grew from layer to layer: judged by how far the reference is from itself."""
    import aotc.tools.verify as module
    real = module.open_reference
    name, run = real(quantised)
    if name != "onnxruntime":
        pytest.skip("not installed: onnxruntime")

    def moved(by):
        return lambda *_: (name, lambda feeds: {k: (v + by).astype(v.dtype)
                                                for k, v in run(feeds).items()})
    monkeypatch.setattr(module, "open_reference", moved(3))
    results = verify(quantised, target="c", report=lambda _: None)
    assert all(m.ok and m.share == 3 and m.limit == 12 for _, m in results)
    monkeypatch.setattr(module, "open_literal", lambda *_: moved(3)()[1])
    assert not any(m.ok for _, m in verify(quantised, target="c", report=lambda _: None))


def test_kernels_one_by_one_may_be_a_quantum_off(quantised):
    found = nodes.verify_nodes(quantised, target="c", report=lambda _: None)
    units = {r.tensor: r.unit for r in found}
    assert all(r.ok for r in found) and "quanta" in units.values()
