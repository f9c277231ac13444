"""Caches that grow where they lie, on GPUs: one kernel makes and stores a layer's new keys and
values."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from cusim_build import needs_cxx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import aotc
from aotc.emit.text.functions import shared_functions
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule
from aotc.target import get_target
from benchmarks.decoder_models import Sizes, call_feeds, gpt2, llama, stepwise

TARGET, F32 = "cuda:sm_90", np.float32
PAIRS = {"past_key_values.*": "present.*"}
TOKEN = {"batch": 1, "seq": 1, "past": (0, 63)}


def planned(model, dims=TOKEN, target=TARGET, **options):
    return run_pipeline(Options(model, target=target, dims=dims, alias=PAIRS, stop_after="plan",
                                **options))


def appends(work):
    """The groups that store new entries."""
    made = {a.present for a in work.program.aliases}
    return [g for g in work.schedule.groups if g.anchor in made]


def test_a_layer_of_a_token_starts_nine_kernels():
    """Queries, keys and values; new entries; scores with softmax; values by them; the projection; a
    norm; two products; a norm."""
    work = planned(gpt2(Sizes(width=64, heads=4, shared=4, inner=128, layers=3)))
    assert len(work.plan.kernels) == 3 * 9 + 3
    assert len(shared_functions([work.plan])) == 12
    assert [g.outputs for g in appends(work)] == [
        (f"present_{n}_key", f"present_{n}_value") for n in range(3)]
    assert all(p.name != "present_0_key_new" for p in work.plan.places)  # it is never stored


@pytest.mark.parametrize("make, heads", [(gpt2, 4), (llama, 2)])
def test_schedules_of_new_entries_mean_what_the_program_means(make, heads):
    model = make(Sizes(width=64, heads=4, shared=heads, inner=128, layers=1))
    work = planned(model, {"batch": 2, "seq": (1, 4), "past": (0, 9), "capacity": 12})
    program = apply_schedule_rewrites(work.program, work.schedule)
    assert len(appends(work)) == 1 and len(appends(work)[0].computes) > 2
    rng = np.random.default_rng(3)
    feeds = {}
    for name in program.inputs:
        b = program.buffers[name]
        cache = [2, heads, 12, 16]
        feeds[name] = rng.standard_normal(cache).astype(F32) if "key_values" in name else (
            np.ones((2, 8), np.int64) if "mask" in name else np.arange(6).reshape(2, 3))
        assert len(b.shape) == feeds[name].ndim
    syms = {"past": 5, "seq": 3}
    want, got = evaluate(program, feeds, syms), interpret(program, work.schedule, feeds, syms)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, atol=1e-5)


def test_what_is_no_part_of_new_entries_is_refused():
    work = planned(gpt2(Sizes(width=64, heads=4, shared=4, inner=128, layers=1)))
    schedule, target = work.schedule, get_target(TARGET)
    (own,) = appends(work)
    again = Schedule.from_json(json.loads(json.dumps(schedule.to_json())))
    assert check_schedule(work.program, again, target) == []

    def faults(changed, at=target, without=None):
        groups = tuple(changed if g is own else g for g in schedule.groups if g is not without)
        return " ".join(check_schedule(work.program, replace(schedule, groups=groups), at))
    assert "list them all as outputs" in faults(replace(own, outputs=own.outputs[:1]))
    norm = next(g for g in schedule.groups if g.anchor.startswith("layernorm"))
    taken = replace(own, computes=(*norm.computes, *own.computes),
                    connect=norm.connect | own.connect)
    assert "shares a kernel with a library call that stores new entries" in faults(
        taken, without=norm)
    assert "a group of its own where a work item is one thread's" in faults(
        own, get_target("x86-64-v3"))


def test_others_keep_kernels_of_their_own():
    """On CPUs; where groups are asked to stay apart; where new entries are an output, too."""
    model = gpt2(Sizes(width=64, heads=4, shared=4, inner=128, layers=1))
    for options in ({"target": "x86-64-v3"}, {"connect": "none"}, {"connect": "register"}):
        assert all(len(g.computes) == 1 for g in appends(planned(model, **options)))
    work = planned(_shown_entries(), {"past": (0, 9)})
    assert [len(g.computes) for g in appends(work)] == [1]


def _shown_entries():
    """present = past with 2 x behind it; 2 x is an output itself."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Mul", ["x", "two"], ["new"]),
             helper.make_node("Concat", ["past_key_values.k", "new"], ["present.k"], axis=1)]
    graph = helper.make_graph(nodes, "g", [
        value("past_key_values.k", TensorProto.FLOAT, [2, "past", 4]),
        value("x", TensorProto.FLOAT, [2, 1, 4])],
        [value("present.k", TensorProto.FLOAT, [2, "past + 1", 4]),
         value("new", TensorProto.FLOAT, [2, 1, 4])],
        [numpy_helper.from_array(np.array(2, F32), "two")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


@needs_cxx
@pytest.mark.parametrize("make, heads", [
    (llama, 2), pytest.param(gpt2, 4, marks=pytest.mark.product)])
def test_caches_grow_in_the_simulator(make, heads, tmp_path):
    """A prefill and single tokens, of two lines at once; what lies behind the end is left alone."""
    model = make(Sizes(width=64, heads=4, shared=heads, inner=96, layers=1))
    bundle = aotc.compile(model, tmp_path / "b", target=TARGET, name="m", alias=PAIRS,
                          dims={"past": (0, 64), "seq": (1, 64), "batch": (1, 2)},
                          variants={"seq": [(1, 1)]})
    ids, lengths = np.random.default_rng(1).integers(0, 41, (2, 23)), [21, 1, 1]
    want, theirs = stepwise(InferenceSession(model.SerializeToString()), {"input_ids": ids},
                            lengths)
    ours = bundle.load(simulate="reverse")
    names, at, found = [i.name for i in ours.inputs], 0, []
    caches = {i.name: np.full((2, i.shape[1], 25, i.shape[3]), np.nan, F32)
              for i in ours.inputs if i.alias >= 0}
    for n in lengths:
        found.append(ours.run(call_feeds(names, ids, at, n) | caches, {"past": at})["logits"])
        at += n
    np.testing.assert_allclose(np.concatenate(found, 1), want, atol=2e-5)
    for name, cache in caches.items():
        assert np.isnan(cache[:, :, 23:]).all()
        np.testing.assert_allclose(cache[:, :, :23], theirs[name.partition(".")[2]], atol=2e-5)
