"""Outputs that lie in the buffers of inputs: which are found, which refused, and what they mean."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import make_model

import aotc
from aotc.errors import AotcError, ModelError, UnsupportedError
from aotc.ir.expr import Const
from aotc.options import Options
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.oracle.run_plan import run_plan
from aotc.pipeline import run_pipeline
from aotc.sched.model.typical_calls import small_regime

F32, node = TensorProto.FLOAT, helper.make_node
PAST, NEW, PRESENT = ["b", "p", 3], ["b", "s", 3], ["b", "p + s", 3]


def cache(nodes, past=PAST, new=NEW, present=PRESENT, others=None, tensors=None):
    """A model with the inputs past.0 and x, and the output present.0."""
    return make_model(nodes, {"past.0": (F32, past), "x": (F32, new)},
                      {"present.0": (F32, present)} | (others or {}), tensors)


def concat(axis=1, inputs=("past.0", "y"), out="present.0"):
    return [node("Mul", ["x", "x"], ["y"]), node("Concat", inputs, [out], axis=axis)]


def aliased(model, alias="auto", stop="program", **options):
    return run_pipeline(Options(model, alias=alias, stop_after=stop, **options))


def check(model, feeds, want, **options):
    """Every reader of the Program, the Schedule and the Plan sees what ``want`` says."""
    plan = aliased(model, stop="plan", target="c", **options).plan
    work = aliased(model, stop="schedule", target="c", **options)
    syms = {"b": 2, "s": 2, "p": 4, "capacity": 9}
    syms = {s.name: syms[s.name] for s in work.rewritten.syms}
    before = {n: a.copy() for n, a in feeds.items()}
    named = {n: feeds[work.program.buffers[n].onnx] for n in work.program.inputs}
    for got in (evaluate(work.program, feeds, syms), run_plan(plan, named, syms),
                interpret(work.rewritten, work.schedule.base, named, syms)):
        for name, array in want.items():
            found = next(a for n, a in got.items() if work.program.buffers[n].onnx == name)
            np.testing.assert_allclose(found, array, rtol=1e-6)
    assert all(np.array_equal(feeds[n], before[n], equal_nan=True) for n in feeds)
    return work


@pytest.fixture
def feeds():
    """A buffer with room for 9 entries that holds 4, NaN behind them, and two new ones."""
    rng = np.random.default_rng(0)
    held = rng.standard_normal((2, 9, 3)).astype(np.float32)
    held[:, 4:] = np.nan
    return {"past.0": held, "x": rng.standard_normal((2, 2, 3)).astype(np.float32)}


def grown(feeds):
    after = feeds["past.0"].copy()
    after[:, 4:6] = feeds["x"] ** 2
    return after


def test_readers_of_the_past_and_of_the_whole_read_the_buffer(feeds):
    nodes = [*concat(), node("ReduceSum", ["past.0", "axis"], ["old"], keepdims=0),
             node("ReduceSum", ["present.0", "axis"], ["all"], keepdims=0)]
    others = {n: (F32, ["b", 3]) for n in ("old", "all")}
    after = grown(feeds)
    want = {"present.0": after, "old": feeds["past.0"][:, :4].sum(1), "all": after[:, :6].sum(1)}
    work = check(cache(nodes, others=others, tensors={"axis": np.array([1])}), feeds, want)
    assert "alias present_0 is past_0, p + s entries of axis 1, those from p on new" in str(
        work.program) and "require p + s <= capacity" in str(work.program)
    assert not any("where" in str(s) for s in work.program.steps)  # nobody asks which half


def test_copies_of_the_output_are_the_output(feeds):
    nodes = [*concat(out="t"), node("Identity", ["t"], ["u"]),
             node("Identity", ["u"], ["present.0"]), node("Exp", ["t"], ["e"])]
    work = check(cache(nodes, others={"e": (F32, PRESENT)}), feeds,
                 {"present.0": grown(feeds), "e": np.exp(grown(feeds)[:, :6])})
    assert len(work.program.aliases) == 1


def test_the_last_axis_and_fixed_extents(feeds):
    """[b, 3, p] with a capacity that is a number and a past that is always 4 long."""
    feeds = {n: a.transpose(0, 2, 1).copy() for n, a in feeds.items()}
    model = cache(concat(2), ["b", 3, 4], ["b", 3, "s"], ["b", 3, "n"])
    after = feeds["past.0"].copy()
    after[:, :, 4:6] = feeds["x"] ** 2
    work = check(model, feeds, {"present.0": after}, dims={"capacity": 9})
    assert work.program.shape("past_0")[2] == Const(9)
    assert [s.name for s in work.program.syms] == ["b", "s"]


def test_pairs_are_found_by_name_with_one_text_for_each_star():
    nodes = [node("Concat", [f"past.{k}.key", "x"], [f"present.{k}.key"], axis=1) for k in (0, 12)]
    inputs = {f"past.{k}.key": (F32, PAST) for k in (0, 12)} | {"x": (F32, NEW)}
    model = make_model(nodes, inputs, {f"present.{k}.key": (F32, PRESENT) for k in (0, 12)})
    for wanted in ({"past.*": "present.*"}, {"past.*.*": "present.*.*"}, "auto"):
        found = aliased(model, wanted).program.aliases
        assert [(a.past, a.present) for a in found] == [
            ("past_0_key", "present_0_key"), ("past_12_key", "present_12_key")]
    assert len(aliased(model, {"past.12.key": "present.12.key"}).program.aliases) == 1
    assert not run_pipeline(Options(model, stop_after="program")).program.aliases
    for wanted, text in (({"old.*": "present.*"}, "no input is called old"),
                         ({"past.*": "now.*"}, "would be output now.0.key, which there is not"),
                         ({"past.*": "present"}, "as many")):
        with pytest.raises(ModelError, match=text):
            aliased(model, wanted)


def repeated():
    """z f32[], a number that is multiplied by itself and the output's sum for every batch."""
    names = [helper.make_tensor_value_info(n, F32, None) for n in ("t", "row", "u")]
    body = helper.make_graph([node("ReduceSum", ["present.0"], ["sum"], keepdims=0),
                              node("Mul", ["sum", "t"], ["v"]), node("Sin", ["v"], ["u"])],
                             "body", names[:2], names[2:])
    return [node("Scan", ["one", "x"], ["z"], body=body, num_scan_inputs=1)]


@pytest.mark.parametrize("nodes, text", [
    (concat(inputs=("y", "past.0")), r"present_0.* is, by .*: where\(.* past_0\[.*reorder the "),
    ([node("Gather", ["past.0", "order"], ["moved"]), *concat(inputs=("moved", "y"))], "unchanged"),
    ([node("Exp", ["past.0"], ["moved"]), *concat(inputs=("moved", "y"))], "unchanged"),
    ([*concat(out="t"), node("Neg", ["t"], ["present.0"])], "unchanged"),
    ([*concat(), *repeated()], "reads all of the tensor"),
], ids=["in front", "other batches", "computed", "behind", "whole"])
def test_what_cannot_be_in_place_is_one_clear_error(nodes, text, tmp_path):
    others, b = ({"z": (F32, [])}, "b") if nodes[-1].op_type == "Scan" else ({}, 2)
    model = cache(nodes, [b, "p", 3], [b, "s", 3], [b, "p + s", 3], others,
                  {"order": np.arange(2), "one": np.array(1, np.float32)})
    with pytest.raises(UnsupportedError, match=f"alias past.0=present.0.*{text}"):
        aotc.compile(model, tmp_path / "b", alias={"past.*": "present.*"})
    assert not (tmp_path / "b").exists()
    with pytest.raises(UnsupportedError, match="alias auto: no output is an input with new"):
        aliased(model)


def test_single_entries_may_have_kernels_of_their_own():
    """What calls are decided for apart: one new entry, whatever is there."""
    found = small_regime(aliased(cache(concat()), dims={
        "b": 2, "s": (1, 256), "p": (0, 999)}).program)
    assert found == {"s": (1, 1)}


def test_options_that_do_not_go_with_it_are_refused(tmp_path):
    model = cache(concat())
    with pytest.raises(AotcError, match="alias 'no'"):
        aliased(model, "no")
    with pytest.raises(ModelError, match="'capacity' of its own"):
        aliased(cache(concat(), new=["b", "capacity", 3], present=["b", "n", 3]))


def test_a_program_says_what_is_wrong_with_an_alias():
    program = aliased(cache(concat())).program
    alias, = program.aliases
    assert not check_program(program)
    for wrong, text in ((replace(alias, past="x"), "other shapes"),
                        (replace(alias, present="y"), "must be an output and an input")):
        assert any(text in f for f in check_program(replace(program, aliases=(wrong,))))
    assert any("another alias" in f for f in check_program(
        replace(program, aliases=(alias, alias))))
    plain = run_pipeline(Options(cache(concat()), stop_after="program")).program
    same = {n: replace(plain.buffers["present_0"], name=n, role=plain.buffers[n].role)
            for n in ("past_0", "present_0")}
    broken = replace(plain, aliases=(alias,), buffers=plain.buffers | same)
    assert any("in place" in f for f in check_program(broken))


def _attention(kind, domain, extra, inputs, **attributes):
    """A node with its own cache: queries, keys and values of 4, 2 and 2 heads of 8."""
    names = ["q", "k", "v", *extra, "past_key", "past_value"]
    outs = ["y", "present_key", "present_value"]
    past, present = (F32, ["b", 2, "p", 8]), (F32, ["b", 2, "p + s", 8])
    held = {"past_key": past, "past_value": past}
    made = {"y": (F32, None), "present_key": present, "present_value": present}
    more = [n for n in inputs if n not in "qkv"]
    model = make_model([node(kind, names + more, outs, domain=domain, **attributes)],
                       inputs | held, made, opset=23)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def test_attention_operators_with_caches_of_their_own():
    whole = _attention("Attention", "", [""], {
        n: (F32, ["b", heads, "s", 8]) for n, heads in zip("qkv", (4, 2, 2))}, is_causal=1)
    grouped = _attention("GroupQueryAttention", "com.microsoft", [], {
        **{n: (F32, [1, "s", width]) for n, width in zip("qkv", (32, 16, 16))},
        "lengths": (TensorProto.INT32, [1]), "total": (TensorProto.INT32, [])},
        num_heads=4, kv_num_heads=2)
    for value in (*grouped.graph.input, *grouped.graph.output):
        dims = value.type.tensor_type.shape.dim
        if "past" in value.name or "present" in value.name:
            dims[0].dim_value = 1
    for model in (whole, grouped):
        found = aliased(model, {"past_*": "present_*"}).program.aliases
        assert [(a.past, a.present) for a in found] == [
            ("past_key", "present_key"), ("past_value", "present_value")]
