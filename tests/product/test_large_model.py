"""A model over 2 GB, its weights beside it: no message, offset or extent may count in 32 bits, and
compiling holds the weights hardly more than twice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import aotc

N = 16500  # two square matrices of this many columns are 2.18 GB
WEIGHTS = 2 * N * N * 4
NEEDS = 4 * WEIGHTS  # bytes of memory, and of disk: the model (a sparse file), the bundle, room


def _available():
    """Bytes of memory that the system would give away; 0 where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    found = dict(line.split(":", 1) for line in lines)
    return int(found["MemAvailable"].split()[0]) * 1024


def _external(name, offset):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=(N, N),
                         data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", offset), ("length", WEIGHTS // 2)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _write(folder):
    """y = reversed(max(x * scale, 0)) * 2, by two matrices with one number in every row."""
    weights = np.memmap(folder / "w.bin", np.float32, "w+", shape=(2, N, N))
    at = np.arange(N)
    weights[0, at, at] = 1 + at % 3
    weights[1, at, N - 1 - at] = 2
    weights.flush()
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, N)) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w0"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
         helper.make_node("MatMul", ["b", "w1"], ["y"])], "large", infos[:1], infos[1:],
        [_external("w0", 0), _external("w1", WEIGHTS // 2)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
         str(folder / "large.onnx"))


@pytest.mark.product
def test_a_model_over_two_gigabytes(tmp_path):
    if shutil.disk_usage(tmp_path).free < NEEDS or _available() < NEEDS:
        pytest.skip(f"needs {NEEDS >> 30} GB of free memory and of free disk")
    _write(tmp_path)
    child = subprocess.Popen([sys.executable, "-m", "aotc", "compile", str(tmp_path / "large.onnx"),
                              "-o", str(tmp_path / "bundle"), "--target", "c"])
    _, status, used = os.wait4(child.pid, 0)  # of this child alone: other tests have others
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    peak = used.ru_maxrss * 1024
    assert (tmp_path / "bundle" / "large_weights.bin").stat().st_size > 1 << 31
    x = np.random.default_rng(0).standard_normal((1, N), dtype=np.float32)
    y = aotc.load(tmp_path / "bundle", threads=2).run({"x": x})["y"]
    shutil.rmtree(tmp_path)  # pytest keeps what tests leave
    want = np.maximum(x * (1 + np.arange(N, dtype=np.float32) % 3), 0)[:, ::-1] * 2
    np.testing.assert_array_equal(y, want)
    assert peak < 2.6 * WEIGHTS, f"{peak / WEIGHTS:.2f} times the weights"
