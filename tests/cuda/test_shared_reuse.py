"""Scratch that is used again within a work item: no race on the simulator, whatever dies when."""

import numpy as np
import onnx
import pytest
from cusim_build import ORDERS, needs_cxx
from onnx import TensorProto, helper
from small_models import make_model

import aotc
from aotc.tools.peers import open_reference
from aotc.tools.verify import compare

pytestmark = needs_cxx
F32 = np.float32


def row_graph(seed):
    """y = x * (sum of statistics per row of two or three tensors f32[r, c]): each tensor less one
    statistic goes through a function and is folded two or three times, so that it lies in scratch
    until the last fold.  Operators, sizes and order are drawn."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.choice((6, 300, 1024))), int(rng.choice((40, 96, 128)))
    node, nodes, narrow = helper.make_node, [], []
    names = "xwv"[:int(rng.integers(2, 4))]

    def fold(source, out):
        op = str(rng.choice(("ReduceMean", "ReduceMax", "ReduceMin")))
        nodes.append(node(op, [source], [out], axes=[-1]))
    for t in names:
        fold(t, f"m{t}")
        nodes.append(node("Sub", [t, f"m{t}"], [f"d{t}"]))
        nodes.append(node(str(rng.choice(("Exp", "Tanh", "Sigmoid"))), [f"d{t}"], [f"e{t}"]))
        for k in range(int(rng.integers(2, 4))):
            fold(f"e{t}", f"f{t}{k}")
            narrow.append(f"f{t}{k}")
    rng.shuffle(narrow)
    nodes += [node("Sum", narrow, ["c"]), node("Mul", ["x", "c"], ["y"])]
    shape = (TensorProto.FLOAT, [rows, columns])
    return make_model(nodes, dict.fromkeys(names, shape), {"y": shape})


def check(model, folder, orders=(True,)):
    """The model's y from the simulator in ``orders`` of threads, beside the reference's."""
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "rows.onnx")
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {k: np.random.default_rng().standard_normal(shape).astype(F32) for k in (
        i.name for i in model.graph.input)}
    want = open_reference(folder / "rows.onnx")[1](feeds)["y"]
    bundle = aotc.compile(folder / "rows.onnx", folder / "b", target="cuda:sm_90")
    for order in orders:
        assert compare("y", bundle.load(simulate=order).run(feeds)["y"], want).ok, order


@pytest.mark.parametrize("seed", (0, 5))
def test_statistics_of_rows(seed, tmp_path):
    check(row_graph(seed), tmp_path)


@pytest.mark.product
@pytest.mark.parametrize("seed", range(100, 112))
def test_statistics_of_rows_at_length(seed, tmp_path):
    check(row_graph(seed), tmp_path, ORDERS)

