"""Forests in the library kernels that walk trees: as compiled C, in the evaluator and in the
interpreter they give what the same forests give as tensor expressions."""

import copy

import numpy as np
import pytest
from frontend_cases import by_reference, program_of, run
from ml_nodes import ML, MODES, lists
from onnx import TensorProto, helper
from small_models import make_model, together

import aotc
from aotc.frontend.ops.ml.forest import Forest, Votes
from aotc.frontend.ops.ml.packed import packed
from aotc.ir.library import HOSTED
from aotc.ir.program import LibCall
from aotc.options import Options
from aotc.oracle.interpret import interpret
from aotc.pipeline import run_pipeline

FEATURES = 5
SIZES = (1, 2, 15, 16, 17, 32, 33, 70)


def features(rng, rows, dtype="f4"):
    """Rows with many thresholds among them, NaN and infinities."""
    x = rng.standard_normal((rows, FEATURES)).astype(dtype)
    x[rng.random(x.shape) < 0.3] = 1
    for value in (np.nan, np.inf, -np.inf, -0.0):
        x[rng.random(x.shape) < 0.1] = value
    return x


def regressor(rng, dtype="f4", rows="rows", **asked):
    """A model of a TreeEnsembleRegressor on rows [any, FEATURES]."""
    attributes = lists(rng, "target", features=FEATURES, **asked)
    if dtype == "f8":
        for name in ("nodes_values", "target_weights"):
            values = attributes.pop(name)
            attributes[f"{name}_as_tensor"] = helper.make_tensor(
                name, TensorProto.DOUBLE, [len(values)], values)
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML,
                            n_targets=asked["targets"], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = make_model([node], {"x": (kind, [rows, FEATURES])},
                       {"y": (TensorProto.FLOAT, [rows, asked["targets"]])})
    model.opset_import.append(helper.make_opsetid(ML, 3))
    return model


CASES = {
    "one_target": dict(trees=40, depth=5, targets=1, modes=MODES[:1]),
    "few_trees": dict(trees=3, depth=7, targets=1, modes=MODES[:4]),
    "deep": dict(trees=6, depth=11, targets=1, modes=MODES[:1]),
    "apart": dict(trees=36, depth=4, targets=3, modes=MODES[:4], one_each=True),
    "uneven": dict(trees=34, depth=4, targets=3, modes=MODES[:2], one_each=True),
    "votes": dict(trees=20, depth=4, targets=3, votes=2, modes=MODES[:4]),
    "leaves": dict(trees=4, depth=0, targets=1, modes=MODES[:1]),
    "doubles": dict(trees=20, depth=5, targets=1, modes=MODES[:4], dtype="f8"),
    "double_votes": dict(trees=20, depth=5, targets=2, votes=2, modes=MODES[:4], dtype="f8")}


@pytest.mark.parametrize("target", ("c", pytest.param("native", marks=pytest.mark.product)))
def test_any_number_of_rows(target, tmp_path):
    rng = np.random.default_rng(3)
    models = {n: regressor(rng, **asked) for n, asked in CASES.items()}
    model = together([copy.deepcopy(m) for m in models.values()])
    steps = program_of(model, library=HOSTED).steps
    assert sum(isinstance(s, LibCall) for s in steps) == len(CASES)
    model = aotc.compile(model, tmp_path / "b", target=target, name="net").load(threads=2)
    for rows in SIZES:
        feeds = {f"q{k}_x": features(rng, rows, asked.get("dtype", "f4"))
                 for k, asked in enumerate(CASES.values())}
        got = model.run(feeds)
        for k, (name, alone) in enumerate(models.items()):
            want, = run(program_of(alone, library=()), {"x": feeds[f"q{k}_x"]})
            np.testing.assert_allclose(got[f"q{k}_y"], want, rtol=1e-5, atol=1e-5, err_msg=name)


def test_rows_do_not_depend_on_each_other(tmp_path):
    """The same sums for a row by itself and among others."""
    rng = np.random.default_rng(4)
    models = [regressor(rng, **CASES[n]) for n in ("apart", "votes")]
    model = aotc.compile(together(models), tmp_path / "b", target="c", name="net").load()
    x = features(rng, 45)
    whole = model.run({"q0_x": x, "q1_x": x})
    for r in range(0, 45, 9):
        for name, y in model.run({"q0_x": x[r:r + 1], "q1_x": x[r:r + 1]}).items():
            assert np.array_equal(y, whole[name][r:r + 1])


@pytest.mark.parametrize("name", ("apart", "votes", "doubles"))
@pytest.mark.parametrize("rows", (1, 40))
def test_twins(name, rows):
    """The evaluator, the interpreter and ONNX's reference."""
    rng = np.random.default_rng(rows)
    model, x = regressor(rng, rows=rows, **CASES[name]), features(rng, rows, "f4")
    x = x.astype(CASES[name].get("dtype", "f4"))
    work = run_pipeline(Options(model, target="c", name="net", stop_after="schedule"))
    plain, = run(program_of(model, library=()), {"x": x})
    for got in (run(work.program, {"x": x})[0],
                *interpret(work.rewritten, work.schedule, {"x": x}).values()):
        np.testing.assert_allclose(got, plain, rtol=1e-5, atol=1e-5)
    if x.dtype == np.float64:
        return  # of thresholds in tensors the reference knows nothing
    finite = np.nan_to_num(x)  # the reference knows no missing values in these operators
    want, = by_reference(model, {"x": finite})
    np.testing.assert_allclose(run(work.program, {"x": finite})[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", (
    dict(nodes_values=[np.nan] * 3), dict(nodes_modes=["BRANCH_EQ", "LEAF", "LEAF"]),
    dict(nodes_values=[np.inf] * 3), dict(
        nodes_modes=["BRANCH_LT", "LEAF", "LEAF"], nodes_values=[-np.inf] * 3)))
def test_what_no_threshold_says(change):
    """Such nodes are left to tensor expressions, and mean what they say."""
    stump = dict(nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2], nodes_featureids=[0] * 3,
                 nodes_values=[1.0, 0.0, 0.0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
                 nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
                 target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0],
                 target_weights=[1.0, 2.0]) | change
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=1, **stump)
    x = np.array([[np.nan], [-np.inf], [0], [1], [np.inf]], np.float32)
    model = make_model([node], {"x": (1, [5, 1])}, {"y": (1, [5, 1])})
    model.opset_import.append(helper.make_opsetid(ML, 3))
    program = program_of(model, library=HOSTED)
    assert not any(isinstance(s, LibCall) for s in program.steps)
    split = np.float32(stump["nodes_values"][0])
    test = {"BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less,
            "BRANCH_EQ": np.equal}[stump["nodes_modes"][0]]
    assert np.array_equal(run(program, {"x": x})[0], np.where(test(x, split), 1, 2))


def test_trees_that_share_many_nodes_stay_apart():
    """A chain of nodes that lead to one another twice would be as many nodes as it has paths."""
    rng = np.random.default_rng(0)
    count = 40
    own = np.arange(count)
    forest = Forest(
        rng.integers(0, 3, count), rng.standard_normal(count).astype("f4"), np.zeros(count, int),
        np.zeros(count, int), np.stack([np.minimum(own + 1, count - 1)] * 2, 1),
        np.zeros((count, 0), "f4"), np.zeros(1, int), count,
        Votes(np.array([count - 1]), np.zeros(1, int), np.ones(1, "f4"), 1))
    assert packed(forest, 3) is None
