"""The rule ``unfold``: convolutions over few channels, against the Program they come from."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import together

import aotc
from aotc.errors import ScheduleError
from aotc.ir.expr import loads
from aotc.options import Options
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.images.unfold import rewrite, unfold_candidates
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule, decide
from aotc.target import TARGETS
from aotc.tools.peers import open_peer

# channels, spatial extents, kernel, strides, dilations, pads (begins, ends)
CASES = {
    "7x7 stride 2": (3, (19, 23), (7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
    "3x3 ragged pads": (4, (9, 10), (3, 3), (1, 2), (1, 1), (0, 2, 1, 0)),
    "no padding": (3, (8, 9), (4, 4), (4, 4), (1, 1), (0, 0, 0, 0)),
    "dilated rows": (3, (12, 11), (3, 5), (1, 1), (2, 1), (2, 2, 2, 2)),
    "1-D": (2, (40,), (9,), (3,), (1,), (4, 4)),
    "3-D": (3, (5, 9, 8), (3, 3, 3), (1, 2, 2), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    "window wider than the image": (3, (2, 2), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    "groups": (16, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 3, 2, 16),
    "groups of few": (5, (8, 13), (3, 3), (2, 1), (1, 1), (0, 1, 1, 0), 2, 1, 9),
    "few outputs": (12, (9, 37), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1, 2, 3),
    "groups, window as wide as its step": (4, (12, 12), (3, 3), (3, 3), (1, 1), (0,) * 4, 2),
    "dilated columns": (9, (9, 13), (3, 3), (1, 1), (1, 2), (1, 2, 1, 2)),
}
APART = ("dilated columns",)  # whose taps do not join the channels


def convolution(channels, space, kernel, strides, dilations, pads, group=1, batch=2, out=5):
    """y = relu(conv(x, w) + b) with random weights."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((out * group, channels, *kernel)).astype(np.float32)
    b = rng.standard_normal(out * group).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=kernel, pads=pads,
                              strides=strides, dilations=dilations, group=group),
             helper.make_node("Relu", ["c"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [batch, channels * group, *space])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def program_of(model):
    return run_pipeline(Options(model, target="c", stop_after="inline")).program


def unfolded(program):
    name, = unfold_candidates(program)
    return apply_rewrites(program, (("unfold", name, {}),))


def feeds(model):
    shape = [d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(4).standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize("name", CASES)
def test_the_rewritten_program_computes_the_same(name):
    model = convolution(*CASES[name])
    before = program_of(model)
    target, = unfold_candidates(before)
    after = unfolded(before)
    assert check_program(after) == []
    conv = after.producer[target]
    assert len(conv.raxes) == len(before.producer[target].raxes) - (name not in APART)
    assert all(n.buffer != "x" for n in loads(conv.body)), "the input is read through the copy"
    x = feeds(model)
    a, b = (evaluate(p, x) for p in (before, after))
    for key in a:
        np.testing.assert_allclose(b[key], a[key], rtol=1e-4, atol=1e-4)


def test_compiled_convolutions_match_a_reference(tmp_path):
    pytest.importorskip("onnxruntime")
    models = [convolution(*case) for case in CASES.values()]
    whole = together(models)
    onnx.save(whole, tmp_path / "m.onnx")
    x = {f"q{k}_{n}": a for k, m in enumerate(models) for n, a in feeds(m).items()}
    got = aotc.compile(whole, out=tmp_path / "b", target="native", name="m").load().run(x)
    wanted = open_peer("onnxruntime", tmp_path / "m.onnx")(x)
    for k, name in enumerate(CASES):
        np.testing.assert_allclose(got[f"q{k}_y"], wanted[f"q{k}_y"], rtol=1e-4, atol=1e-4,
                                   err_msg=name)


@pytest.mark.parametrize("channels, kernel, stride", [(9, 4, 2), (8, 3, 2), (11, 5, 3)])
def test_a_transposed_convolution_reads_rows_of_a_copy_and_panels(channels, kernel, stride,
                                                                  tmp_path):
    """Its weights lie by phase and tap, so that they are packed at compile time."""
    w = np.random.default_rng(6).standard_normal((channels, 5, kernel, kernel)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[stride] * 2,
                          pads=[1, 0, 0, 1])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, channels, 6, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    before = program_of(model)
    target, = unfold_candidates(before)
    schedule = decide(before, TARGETS["x86-64-v4"], unfold=True)
    assert ("unfold", target, {}) in schedule.rewrites
    choice = next(g.choices[target] for g in schedule.groups if target in g.choices)
    assert (choice.a, choice.b) == ("rows", "panel")
    x = feeds(model)
    want = evaluate(before, x)["y"]
    np.testing.assert_allclose(evaluate(unfolded(before), x)["y"], want, rtol=1e-4, atol=1e-4)
    got = aotc.compile(model, out=tmp_path / "b", target="native", name="m").load().run(x)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_dynamic_batch_stays_dynamic():
    before = program_of(convolution(*CASES["7x7 stride 2"], batch="n"))
    after = unfolded(before)
    assert after.syms == before.syms and check_program(after) == []


@pytest.mark.parametrize("change", [
    {"channels": 1}, {"group": 4},
    {"kernel": (3, 3), "dilations": (1, 2)}, {"kernel": (2, 2), "pads": (0, 0, 0, 0)}])
def test_what_gains_nothing_is_left_alone(change):
    case = dict(zip(("channels", "space", "kernel", "strides", "dilations", "pads"),
                    (3, (20, 20), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))))
    if "group" in change:
        case["channels"] = 1
    before = program_of(convolution(**case | change))
    assert unfold_candidates(before) == ()
    for item in (("unfold", before.steps[0].out, {}), ("unfold", "absent", {}),
                 ("unfold", before.steps[0].out, {"oh": 2})):
        with pytest.raises(ScheduleError, match="unfold"):
            apply_rewrites(before, (item,))
    with pytest.raises(ScheduleError, match="no convolution over few channels"):
        rewrite(before, before.steps[0].out, {})


def test_groups_too_small_for_a_vector_keep_their_order():
    """Where lanes run over the columns, channels side by side are of no use."""
    for out, wanted in ((16, 1), (8, 0)):
        program = program_of(convolution(8, (20, 20), (3, 3), (1, 1), (1, 1), (1,) * 4, 4, 1, out))
        rewrites = decide(program, TARGETS["x86-64-v4"], unfold=True).rewrites
        assert sum(rule == "unfold" for rule, *_ in rewrites) == wanted


@pytest.mark.parametrize("out, stride, wanted", [(3, 1, 0), (3, 2, 1), (16, 1, 1)])
def test_few_outputs_run_over_the_columns(out, stride, wanted):
    """Columns that lie side by side, that is: not at stride 2."""
    step = stride, stride
    program = program_of(convolution(12, (20, 40), (3, 3), step, (1, 1), (1,) * 4, out=out))
    rewrites = decide(program, TARGETS["x86-64-v4"], unfold=True).rewrites
    assert sum(rule == "unfold" for rule, *_ in rewrites) == wanted


@pytest.mark.parametrize("target", ["c", "x86-64-v4", "aarch64"])
def test_the_schedule_names_the_rewrite_and_replays(target):
    program = program_of(convolution(*CASES["7x7 stride 2"]))
    schedule = decide(program, TARGETS[target], unfold=True)
    assert schedule.rewrites == (("unfold", *unfold_candidates(program), {}),)
    again = type(schedule).from_json(schedule.to_json())
    assert again.hash == schedule.hash and not check_schedule(program, again, TARGETS[target])
    conv = next(g for g in schedule.groups if g.anchor in unfold_candidates(program))
    assert conv.choices[conv.anchor].a == "rows" and conv.choices[conv.anchor].b == "panel"
