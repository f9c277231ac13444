"""Layers whose tensors do not lie the way their kernels would like: lanes along a padded axis, rows
side by side, transposing stores.  Ragged sizes, NaN and infinities, against ONNX Runtime."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import together

import aotc
from aotc.ir.expr import Const
from aotc.ir.kernel.plan_stages import Contract, Nest
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.tools.peers import open_peer

TARGETS = ("c", "native")


def model_of(nodes, shapes, weights, output="y"):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ins, outs, **attrs) for op, ins, outs, attrs in nodes], "g",
        [value(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [value(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def agree(cases, target, folder):
    """The compiled models and ONNX Runtime give the same, NaN where the other has NaN; cases:
    {title: (model, feeds)}, compiled as one."""
    pytest.importorskip("onnxruntime")
    models, fed = zip(*cases.values())
    whole = together(models)
    feeds = {f"q{k}_{n}": a for k, named in enumerate(fed) for n, a in named.items()}
    onnx.save(whole, folder / "m.onnx")
    wanted = open_peer("onnxruntime", folder / "m.onnx")(feeds)
    got = aotc.compile(whole, out=folder / "b", target=target, name="m").load().run(feeds)
    for title, output in zip(cases, (o.name for o in whole.graph.output), strict=True):
        np.testing.assert_allclose(got[output], wanted[output], rtol=1e-4, atol=1e-4,
                                   err_msg=title)


def plan_of(model):
    return run_pipeline(Options(model, target="x86-64-v4", stop_after="plan")).plan


def stages(model, kind):
    return [s for k in plan_of(model).kernels for s in k.lowered.stages if isinstance(s, kind)]


# extents, kernel, strides, pads
WINDOWS = {"3x3": ((13, 37), (3, 3), (1, 1), (1, 1, 1, 1)),
           "5x5 ragged pads": ((11, 40), (5, 5), (1, 1), (0, 4, 2, 1)),
           "rows of stride 2": ((14, 35), (3, 3), (2, 1), (1, 1, 1, 1)),
           "columns of stride 2": ((9, 34), (3, 3), (1, 2), (1, 1, 1, 1)),
           "hardly an inside": ((5, 8), (1, 7), (1, 1), (0, 3, 0, 3))}


def depthwise(space, kernel, strides, pads, channels=5):
    return model_of([("Conv", ["x", "w"], ["y"], {"group": channels, "pads": pads,
                                                  "strides": strides})],
                    {"x": (2, channels, *space)}, {"w": random(channels, 1, *kernel)})


@pytest.mark.parametrize("target", TARGETS)
def test_windows_with_lanes_along_the_padding(target, tmp_path):
    cases = {}
    for name, window in WINDOWS.items():
        x = random(2, 5, *window[0])
        x[0, 0, 0, 0], x[1, 2, -1, -1], x[0, 3, 2, 3] = np.nan, np.inf, -np.inf
        cases[name] = depthwise(*window), {"x": x}
    agree(cases, target, tmp_path)


def test_only_rows_at_the_edges_of_a_window_count_their_taps():
    """All are vectors: at the padding along the lanes, loads of fewer lanes."""
    nests = stages(depthwise(*WINDOWS["3x3"]), Nest)
    assert len(nests) == 3 and all(n.vector for n in nests)
    inside, = (n for n in nests if all(isinstance(e, Const) for r in n.reduce
                                       for e in (r.lo, r.hi)))
    rows, = (r for r in inside.ranges if r.axis.name == "oh")
    assert (rows.lo, rows.hi) == (Const(1), Const(12))


@pytest.mark.parametrize("target", TARGETS)
def test_pools_of_an_input(target, tmp_path):
    cases = {}
    for op, special in (("MaxPool", np.inf), ("AveragePool", np.nan)):
        x = random(1, 3, 9, 37)
        x[0, 1, 4, 5] = special
        cases[op] = model_of([(op, ["x"], ["y"], {
            "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]})],
            {"x": x.shape}, {}), {"x": x}
    agree(cases, target, tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_a_library_call_on_what_a_pool_has_made(target, tmp_path):
    """The pool wishes blocks of channels, the call rows."""
    pool = ("MaxPool", ["x"], ["p"], {"kernel_shape": [2, 2]})
    model = model_of([pool, ("Flatten", ["p"], ["f"], {}), ("TopK", ["f", "k"], ["y", "at"], {})],
                     {"x": (1, 16, 6, 6)}, {"k": np.array([9])})
    agree({"": (model, {"x": random(1, 16, 6, 6)})}, target, tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_side_by_side(target, tmp_path):
    agree({f"{m} x {k} x {n}": (
        model_of([("Transpose", ["x"], ["t"], {"perm": [1, 0]}),
                  ("MatMul", ["t", "z"], ["y"], {})], {"x": (k, m), "z": (k, n)}, {}),
        {"x": random(k, m), "z": random(k, n)})
        for m, k, n in ((7, 33, 19), (64, 100, 70), (5, 9, 3), (130, 17, 65))}, target, tmp_path)


def test_rows_side_by_side_are_not_packed():
    model = model_of([("Transpose", ["x"], ["t"], {"perm": [1, 0]}),
                      ("MatMul", ["t", "z"], ["y"], {})], {"x": (100, 64), "z": (100, 70)}, {})
    contract, = stages(model, Contract)
    assert contract.a.mode == "rows" and contract.a.stride == Const(64)


@pytest.mark.parametrize("target", TARGETS)
def test_transposes(target, tmp_path):
    agree({f"{shape} {perm}": (
        model_of([("Transpose", ["x"], ["y"], {"perm": perm})], {"x": shape}, {}),
        {"x": random(*shape)})
        for shape, perm in (((37, 70), (1, 0)), ((3, 70, 129), (2, 0, 1)),
                            ((2, 100, 5, 66), (0, 3, 2, 1)), ((129, 64), (1, 0)))},
        target, tmp_path)


def test_a_transpose_exchanges_whole_blocks_in_registers():
    model = model_of([("Transpose", ["x"], ["y"], {"perm": [1, 0]})], {"x": (256, 512)}, {})
    group, = run_pipeline(Options(model, target="x86-64-v4",
                                  stop_after="schedule")).schedule.groups
    assert list(group.rows.values()) == ["move_f32_exchange__avx512"]
    assert all(t % 16 == 0 for t in group.tile.values())
