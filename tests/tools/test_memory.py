"""What compiling and verifying hold in memory: weights and tensors once they are of no use."""

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from aotc import collector, pipeline
from aotc.ir.expr import Axis, Const, Load
from aotc.ir.program import Buffer, Compute, Program
from aotc.options import Options
from aotc.oracle.evaluate import evaluate

MB = 1 << 20
FIXED = 200 * MB  # what the promises allow beside multiples of the weights


def test_the_evaluator_frees_a_tensor_behind_its_last_reader():
    shape, i = (MB,), Axis("i", Const(MB))
    names = ["x", *(f"t{k}" for k in range(8)), "y"]
    buffers = {n: Buffer(n, (Const(MB),), "f32", "temp", n) for n in names}
    steps = tuple(Compute((b,), (i,), (), "none", Load(a, (i,), "f32") * Const(2.0, "f32"))
                  for a, b in zip(names, names[1:]))
    x = np.ones(shape, np.float32)
    tracemalloc.start()
    try:
        y = evaluate(Program("p", ("x",), ("y",), buffers, {}, steps), {"x": x})["y"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert y[0] == 2.0 ** 9
    assert peak < 6 * x.nbytes  # of nine tensors and the parts that one is computed in


def _model(rng, n, batch="batch", size=14):
    """A block of a convolutional net with a free batch: a depthwise window, a normalisation, up
    and down by products; about 8 * n * n weights."""
    weights = {"w": (n, 1, 7, 7), "s": (n,), "b": (n,), "up": (n, 4 * n), "down": (4 * n, n)}
    stored = [numpy_helper.from_array(
        rng.standard_normal(s, dtype=np.float32) / np.float32(np.sqrt(s[0])), k)
        for k, s in weights.items()]
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], group=n, pads=[3] * 4),
             helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
             helper.make_node("LayerNormalization", ["t", "s", "b"], ["l"]),
             helper.make_node("MatMul", ["l", "up"], ["u"]),
             helper.make_node("Sigmoid", ["u"], ["g"]),
             helper.make_node("Mul", ["u", "g"], ["v"]),
             helper.make_node("MatMul", ["v", "down"], ["d"]),
             helper.make_node("Transpose", ["d"], ["r"], perm=[0, 3, 1, 2]),
             helper.make_node("Add", ["x", "r"], ["y"])]
    infos = [helper.make_tensor_value_info(k, TensorProto.FLOAT, (batch, n, size, size))
             for k in "xy"]
    graph = helper.make_graph(nodes, "block", infos[:1], infos[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_constants_are_gone_when_the_image_is_made(monkeypatch):
    def alive():
        return [o for o in gc.get_objects() if isinstance(o, Program) and o.consts]

    others, seen, render = {id(p) for p in alive()}, [], pipeline.render_plans

    def seeing(*args, **given):
        seen.append([p.name for p in alive() if id(p) not in others])
        return render(*args, **given)

    monkeypatch.setattr(pipeline, "render_plans", seeing)
    monkeypatch.setattr(collector, "HEAVY", 0)
    model = _model(np.random.default_rng(0), 8)
    gc.disable()  # what is freed is freed on purpose
    try:
        work = pipeline.run_pipeline(Options(model, target="c", stop_after="bundle"))
    finally:
        gc.enable()
    assert seen == [[]]
    held = work.written()
    assert held.plans is None and held.bundle is None and held.program.inputs


# the command line, and behind it the KiB that this process had at most (getrusage counts what the
# process had that started it, too)
PEAK = """import sys
from aotc.cli import main
status = main(sys.argv[1:])
print(next(x.split()[1] for x in open("/proc/self/status") if x.startswith("VmHWM")))
sys.exit(status)"""


@pytest.mark.product
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no peak")
@pytest.mark.parametrize("command, times", [("compile", 3), ("verify", 6)])
def test_the_peak_of_a_command(command, times, tmp_path):
    model = _model(np.random.default_rng(0), 1600)
    weights = sum(len(t.raw_data) for t in model.graph.initializer)
    save(model, str(tmp_path / "block.onnx"))
    child = subprocess.run([sys.executable, "-c", PEAK, command, str(tmp_path / "block.onnx"), *(
        ("-o", str(tmp_path / "bundle")) if command == "compile" else ())],
        capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    peak = int(child.stdout.split()[-1]) * 1024
    assert peak < times * weights + FIXED, f"{peak / MB:.0f} MB, {weights / MB:.0f} of weights"
