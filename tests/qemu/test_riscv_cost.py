"""What models cost on RISC-V: counts, which are the same on every run, so they are asserted.

The bounds are the project's: contraction micro-kernels need at most 1.3 vector micro-ops for one
of a multiply-add and spill nothing, large products and convolutions 1.15 at VLEN 256 with all that
their kernels do besides; a model scores at most 0.6 of the portable bundle that the same compiler
vectorises by itself.  A micro-kernel of one row reads every element of B for one
multiply-add, so it needs 2 by its nature and counts in the sum of a model's micro-kernels only."""

import json
import os
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import make_model

from aotc.target import get_target
from benchmarks import riscv

if riscv.obstacle():
    pytest.skip(riscv.obstacle(), allow_module_level=True)

VLENS = get_target("riscv64").cross.vlens
OF_MULTIPLY_ADDS, OF_PORTABLE, OF_LARGE = 1.3, 0.6, 1.15
# a micro-kernel with fewer micro-ops than this met ragged edges only
WORTH_IT = 1 << 14


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return riscv.build_plugin(tmp_path_factory.mktemp("plugin"))


def _within_bounds(path, plugin, folder):
    found, callers = riscv.measure(path, folder, plugin, VLENS)
    wrong, kernels = [], 0
    for vlen in VLENS:
        row = riscv.summary(path.stem, vlen, riscv.DLEN, found, callers)
        if row["ratio"] > OF_PORTABLE:
            wrong.append(f"VLEN {vlen}: {row['ratio']:.3f} of the portable bundle")
        if row["contraction"] > OF_MULTIPLY_ADDS:
            wrong.append(f"VLEN {vlen}: {row['contraction']:.3f} of the multiply-adds")
        for cost in found["riscv64", vlen]:
            kernel = re.search(r"_contraction_f32_(\d+)x", cost.function)
            if kernel is None:
                continue
            kernels += 1
            if cost.spills:
                wrong.append(f"VLEN {vlen}: {cost.function}: {cost.spills} spills")
            if (int(kernel[1]) > 1 and cost.multiply_adds >= WORTH_IT
                    and cost.overhead > OF_MULTIPLY_ADDS):
                wrong.append(f"VLEN {vlen}: {cost.function}: {cost.overhead:.3f} of its "
                             "multiply-adds")
    assert not wrong, "\n".join(wrong)
    assert kernels, "no contraction micro-kernel was found"


def _product(rows=130, depth=128, columns=64):
    x, y = (TensorProto.FLOAT, [rows, depth]), (TensorProto.FLOAT, [rows, columns])
    w = np.random.default_rng(0).standard_normal((depth, columns)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]),
             helper.make_node("Add", ["m", "b"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    return make_model(nodes, {"x": x}, {"y": y}, {"w": w, "b": w[0]})


def _convolution(channels=64, size=28):
    x = (TensorProto.FLOAT, [1, channels, size, size])
    w = np.random.default_rng(0).standard_normal((channels, channels, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
             helper.make_node("Relu", ["c"], ["y"])]
    return make_model(nodes, {"x": x}, {"y": x}, {"w": w, "b": w[:, 0, 0, 0]})


def _bytes(rows=96, depth=128, columns=64):
    """Rows of u8 by weights of s8, as u8 again."""
    x = (TensorProto.UINT8, [rows, depth])
    tensors = {"w": np.random.default_rng(0).integers(-128, 128, (depth, columns)).astype(np.int8),
               "scale": np.float32(0.03), "zero": np.uint8(128), "one": np.int8(0)}
    nodes = [helper.make_node("QLinearMatMul", ["x", "scale", "zero", "w", "scale", "one", "scale",
                                                "zero"], ["y"])]
    return make_model(nodes, {"x": x}, {"y": (TensorProto.UINT8, [rows, columns])}, tensors)


@pytest.mark.parametrize("model", [
    _product, pytest.param(_convolution, marks=pytest.mark.product)])
def test_large_products_are_multiply_adds(model, plugin, tmp_path):
    onnx.save(model(), tmp_path / "m.onnx")
    found, callers = riscv.measure(tmp_path / "m.onnx", tmp_path, plugin, [256], ["riscv64"])
    kernels, whole = riscv.product_costs(found["riscv64", 256], callers)
    assert kernels.multiply_adds > WORTH_IT and not kernels.spills
    assert kernels.overhead <= whole.overhead <= OF_LARGE


@pytest.mark.product
def test_products_of_bytes(plugin, tmp_path):
    """They have the rate of f32, whose vectors take as many bytes as their sums."""
    onnx.save(_bytes(), tmp_path / "m.onnx")
    found, callers = riscv.measure(tmp_path / "m.onnx", tmp_path, plugin, [256])
    row = riscv.summary("m", 256, riscv.DLEN, found, callers)
    assert not row["contraction_spills"] and 1.0 < row["contraction"] <= OF_MULTIPLY_ADDS
    assert row["ratio"] <= OF_PORTABLE


@pytest.mark.product
def test_digits(digits_model, plugin, tmp_path):
    _within_bounds(digits_model[0], plugin, tmp_path)


@pytest.mark.product
@pytest.mark.parametrize("name", ["bert_tiny", "squeezenet1_1", "mobilenet_v2"])
def test_model(name, zoo_model, plugin, tmp_path):
    _within_bounds(zoo_model(name), plugin, tmp_path)


@pytest.mark.zoo
def test_super_resolution(zoo_model, plugin, tmp_path):
    """The whole graph on a sixteenth of its image, which takes a sixteenth of the time."""
    model = onnx.load(zoo_model("bsrn"))
    for value, size in ((model.graph.input[0], 32), (model.graph.output[0], 4 * 32)):
        for extent in value.type.tensor_type.shape.dim[2:]:
            extent.dim_value = size
    del model.graph.value_info[:]
    for tensor in model.graph.initializer:  # a Resize names the extents of its result
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.int64 and array.tolist()[-2:] == [128, 128]:
            tensor.CopyFrom(numpy_helper.from_array(np.append(array[:-2], (32, 32)), tensor.name))
    onnx.save(model, tmp_path / "bsrn.onnx")
    _within_bounds(tmp_path / "bsrn.onnx", plugin, tmp_path)


@pytest.mark.product
def test_the_report_prints_every_function_and_writes_the_counts(tmp_path, digits_model, capsys):
    out = tmp_path / "counts.json"
    code = riscv.main([str(digits_model[0]), "absent", "--vlen", "256", "--dlen", "256",
                       "--functions", "--json", str(out)])
    text, data = capsys.readouterr(), json.loads(out.read_text())
    assert code == 1 and data["failed"] == ["absent"] and "absent" in text.err
    row, = data["rows"]
    assert (row["vlen"], row["dlen"], row["model"]) == (256, 256, "digits")
    for target, score in (("riscv64", row["score"]), ("c", row["portable"])):
        costs = [riscv.Cost(**c) for c in row["functions"][target]]
        assert sum(c.score(256, 256) for c in costs) == pytest.approx(score)
        assert any(c.function == "model_run_buffers" for c in costs)
        assert all(f"  {c.function[:44]:44}" in text.out for c in costs)


def test_missing_tools_are_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert riscv.main(["digits"]) == 1
    assert "not installed: clang-19, qemu-riscv64, make" in capsys.readouterr().err


def test_an_emulator_with_another_plugin_interface_is_refused(monkeypatch, tmp_path):
    fake = tmp_path / "qemu-riscv64"
    fake.write_text("#!/bin/sh\necho qemu-riscv64 version 10.0.2\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "QEMU 5 to 8" in riscv.obstacle() and "10.0.2" in riscv.obstacle()
