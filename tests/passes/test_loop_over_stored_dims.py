"""Norms over groups of channels as exporters write them: sums over the dimensions tensors have,
maps over their points, per-group values looked up once per channel."""

import numpy as np
import onnxruntime
import pytest
from te_programs import Maker, ax

from aotc import compile as compile_model
from aotc import load
from aotc.ir.expr import Const, Where, compare
from aotc.options import Options
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.loop_over_stored_dims import loop_over_stored_dims
from aotc.pipeline import run_pipeline
from aotc.sched.model.stages import group_stages
from benchmarks.exported.build import Writer


def grouped(width, groups, space, batch=2, conv=True):
    """Reshape, InstanceNormalization, Reshape, Mul, Add, SiLU, between convolutions if wanted."""
    g, c = Writer("grouped", seed=width), width * groups
    x = g.input("x", [batch, c, *space])
    dims = len(space)
    x = g.conv(x, c, c, dims=dims) if conv else x
    x = g.silu(g.group_norm(x, c, groups, [0, c, *space], dims))
    return g.model(g.conv(x, c, c, dims=dims) if conv else x)


def native(width, groups, space):
    """GroupNormalization of opset 21 on the model's own input, and behind a convolution."""
    g, c = Writer("native", seed=width), width * groups
    x = g.input("x", [2, c, *space])
    y = g.op("GroupNormalization", x, g.weight(c), g.weight(c), num_groups=groups)
    z = g.op("GroupNormalization", g.conv(x, c, c), g.weight(c), g.weight(c), num_groups=groups)
    return g.model(y, g.op("Relu", z), opset=21)


def last(width, groups, space):
    """As Keras has it: channels last, the mean over pixels and a group's channels."""
    g, c = Writer("last", seed=width), width * groups
    x = g.op("Relu", g.input("x", [2, *space, c]))
    v = g.op("Reshape", x, [0, *space, groups, width])
    axes = [1, 2, 4]
    d = g.op("Sub", v, g.op("ReduceMean", v, axes=axes))
    s = g.op("Sqrt", g.op("Add", g.op("ReduceMean", g.op("Mul", d, d), axes=axes),
                          np.float32(1e-3)))
    y = g.op("Reshape", g.op("Div", d, s), [0, *space, c])
    return g.model(g.op("Add", g.op("Mul", y, g.weight(c)), g.weight(c)))


def unshuffled(h, w, c):
    """Four pixels in the channels of one, a norm over the channels of each, a product in groups."""
    g, n = Writer("unshuffled", seed=c), 4 * c
    x = g.conv(g.input("x", [2, c, 2 * h, 2 * w]), c, c)
    x = g.op("Transpose", g.op("Reshape", x, [0, c, h, 2, w, 2]), perm=[0, 1, 3, 5, 2, 4])
    t = g.op("Transpose", g.op("Reshape", x, [0, n, h * w]), perm=[0, 2, 1])
    t = g.op("Transpose", g.layer_norm(t, n), perm=[0, 2, 1])
    return g.model(g.conv(g.op("Reshape", t, [0, n, h, w]), n, n, 1, group=2))


def shuffled(h, w, c, groups):
    """A product in groups that reads channels in another order."""
    g = Writer("shuffled", seed=c)
    x = g.op("Relu", g.conv(g.input("x", [2, c, h, w]), c, c, 1))
    x = g.op("Transpose", g.op("Reshape", x, [0, groups, c // groups, h, w]),
             perm=[0, 2, 1, 3, 4])
    return g.model(g.conv(g.op("Reshape", x, [0, c, h, w]), c, c, 1, group=groups))


CASES = {"3": grouped(3, 10, (9, 7)), "free batch": grouped(4, 8, (8, 8), "batch"),
         "10": grouped(10, 4, (6, 11)), "24, a line": grouped(24, 2, (37,)),
         "24, a volume": grouped(24, 2, (4, 5, 3)), "resident": grouped(5, 3, (8, 9), conv=False),
         "native": native(6, 5, (7, 8)), "last": last(10, 3, (5, 7)),
         "unshuffled": unshuffled(3, 5, 12), "shuffled": shuffled(3, 5, 128, 4)}


@pytest.mark.parametrize("name", CASES)
def test_means_the_same(name):
    program = run_pipeline(Options(CASES[name], stop_after="fold")).program
    new = run_pipeline(Options(CASES[name], stop_after="inline")).program
    assert check_program(new) == [] and loop_over_stored_dims(new) is new
    rng, syms = np.random.default_rng(3), {s.name: 3 for s in program.syms}
    shape = CASES[name].graph.input[0].type.tensor_type.shape.dim
    feeds = {"x": rng.standard_normal([d.dim_value or 3 for d in shape]).astype(np.float32)}
    feeds["x"].reshape(-1)[5] = np.inf
    for (k, a), b in zip(evaluate(program, feeds, syms).items(),
                         evaluate(new, feeds, syms).values()):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=k)


@pytest.mark.parametrize("name", CASES)
def test_no_scalar_loop_runs_over_a_tensor(name):
    """What is left to plain loops has a few values per group."""
    work = run_pipeline(Options(CASES[name], target="x86-64-v3", stop_after="schedule"))
    for g in work.schedule.groups:
        for s in group_stages(work.rewritten, g):
            points = np.prod([a.extent.value for a in s.axes + s.raxes
                              if isinstance(a.extent, Const)])
            assert g.rows[s.name] != "loops" or points <= 200, s.name


@pytest.mark.parametrize("name", [
    "last", "native", "shuffled", *(
        pytest.param(n, marks=pytest.mark.product) for n in ("3", "unshuffled", "24, a volume"))])
def test_runs_like_onnx_runtime(name, tmp_path):
    model = CASES[name]
    compile_model(model, tmp_path / "bundle")
    ours = load(tmp_path / "bundle")
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    theirs = onnxruntime.InferenceSession(model.SerializeToString(),
                                          providers=["CPUExecutionProvider"])
    rng = np.random.default_rng()
    for spoiled in (False, True):
        x = rng.standard_normal(shape).astype(np.float32) * 3 + 1
        if spoiled:  # one image of two
            x[0].reshape(-1)[rng.integers(x[0].size)] = np.nan
        for a, b in zip(ours.run({"x": x}).values(), theirs.run(None, {"x": x})):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_rows_of_a_group_are_read_in_place():
    """Channels of a group that lie in runs: the runs are a reduction axis of their own, of weights
    too."""
    work = run_pipeline(Options(CASES["shuffled"], target="x86-64-v3", stop_after="schedule"))
    (how,) = [x.said for g in work.schedule.groups for s, x in g.choices.items()
              if s.endswith("_group")]
    assert {"lanes": "o", "k": "ic_0", "a": "rows", "b": "panel"}.items() <= how.items()


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_place_of_the_largest_among_shuffled_channels(op, tmp_path):
    """A fold over digits still says the whole axis's index."""
    g = Writer("place", seed=3)
    x = g.op("Transpose", g.op("Reshape", g.input("x", [12, 5]), [3, 4, 5]), perm=[1, 0, 2])
    model = g.model(g.op(op, g.op("Reshape", x, [2, 6, 5]), axis=1, keepdims=0))
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    compile_model(model, tmp_path / "b", target="c")
    ours = load(tmp_path / "b")
    x = np.random.default_rng().standard_normal((12, 5), np.float32)
    (mine,), (right,) = ours.run({"x": x}).values(), theirs.run(None, {"x": x})
    np.testing.assert_array_equal(mine, right)


@pytest.mark.parametrize("columns, spread", [(17, False), (8, True)])
def test_what_lies_inside_only_under_a_condition_is_not_spread(columns, spread):
    """y[i, j] = x[i, j] + c[j // 2] for j < 8, else 0: c has no element for the columns behind."""
    m = Maker("guarded")
    m.input("x", 3, 8), m.const("c", np.arange(4, dtype=np.float32))
    i, j = ax("i", 3), ax("j", columns)
    m.step("y", (i, j), Where(compare("lt", j, Const(8)), m.ref("x", i, j) + m.ref(
        "c", j // 2), Const(0.0, "f32")))
    program = m.done("y")
    done = loop_over_stored_dims(program)
    assert ([s.out for s in done.steps] == ["c_each", "y"]) == spread
    x = np.random.default_rng().standard_normal((3, 8)).astype(np.float32)
    want = np.zeros((3, columns), np.float32)
    want[:, :8] = x + np.repeat(np.arange(4, dtype=np.float32), 2)
    np.testing.assert_array_equal(evaluate(done, {"x": x})["y"], want)
