"""The last resort: a decision that its own check refuses is made again without the merges of what
is refused, with a warning."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc import pipeline
from aotc.errors import AotcError, ScheduleError
from aotc.options import Options
from aotc.sched.check import check_schedule
from aotc.tools.show import show_stage

TARGET = "x86-64-v3"
RNG = np.random.default_rng(2)
W = RNG.standard_normal((6, 5)).astype("f4")


def model():
    """Two pairs of nodes that share a kernel each."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"]),
             helper.make_node("Exp", ["v"], ["b"]), helper.make_node("Neg", ["b"], ["z"])]
    sizes = {"x": (4, 6), "v": (9,)}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
                     for n, s in sizes.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yz"],
        [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture(autouse=True)
def _again(monkeypatch, decided_otherwise):
    monkeypatch.setattr(pipeline, "_decided_otherwise", decided_otherwise)


@pytest.fixture(params=("check", "lowering", "plan", "decider"))
def refuses(request, monkeypatch):
    """Where a group of several computes is refused that makes y; the decider fails as a whole."""
    def several(g):
        return len(g.computes) > 1 and "y" in g.outputs

    def instead(module, name, hit):
        known = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **more: hit(
            known, *args, **more))

    from aotc.sched import refused
    from aotc.sched.lowering import lower
    if request.param == "check":
        def own(known, program, schedule, target, g):
            return ["group: refused"] if several(g) else known(program, schedule, target, g)
        instead(check_schedule, "check_group", own)
        instead(refused, "check_group", own)
    elif request.param == "lowering":
        def own(known, program, schedule, target, g, *name):
            if several(g):
                raise KeyError(g.name)
            return known(program, schedule, target, g, *name)
        instead(lower, "lower_group", own)
        instead(refused, "lower_group", own)
    elif request.param == "plan":
        def own(known, plan):
            wrong = [k for k in plan.kernels if "y" in k.writes and len(k.origin) > 1]
            return ["kernel: refused"] if wrong else known(plan)
        instead(pipeline, "plan_faults", own)
        instead(refused, "plan_faults", own)
    else:
        def own(known, program, target, o, *rest):
            if o.connect != "none":
                raise StopIteration
            return known(program, target, o, *rest)
        instead(pipeline, "decide_as_asked", own)
    return request.param


def test_what_is_refused_is_decided_again(refuses, tmp_path, capsys):
    bundle = aotc.compile(model(), tmp_path / "b", TARGET, schedule_out=tmp_path / "s.json")
    lines = [x for x in capsys.readouterr().err.splitlines() if "warning" in x]
    assert len(lines) == 1 and "please report it" in lines[0] and bundle.refused is not None
    groups = {tuple(g["computes"]) for g in json.loads(
        (tmp_path / "s.json").read_text())["groups"]}
    # what is not involved keeps its merges, where it is known what is
    assert any("z" in g and len(g) == 2 for g in groups) == (refuses != "decider"), groups
    assert len(groups) == (4 if refuses == "decider" else 3)
    shown = json.loads(show_stage(model(), "schedule", TARGET, as_json=True))["groups"]
    assert {tuple(g["computes"]) for g in shown} == groups
    x, v = (RNG.standard_normal(s).astype("f4") for s in ((4, 6), 9))
    got = bundle.load().run({"x": x, "v": v})
    np.testing.assert_allclose(got["y"], np.maximum(x @ W, 0), atol=1e-5)
    np.testing.assert_allclose(got["z"], -np.exp(v), rtol=1e-5)


def test_nothing_is_decided_again_without_a_fault(tmp_path, capsys):
    bundle = aotc.compile(model(), tmp_path / "b", TARGET)
    assert bundle.refused is None and "warning" not in capsys.readouterr().err


def test_what_is_refused_without_merges_too_is_the_first_error(monkeypatch):
    tried = []

    def wrong(plan):
        tried.append(len(plan.kernels))
        return [f"kernel: refused {len(tried)}"]

    monkeypatch.setattr(pipeline, "plan_faults", wrong)
    with pytest.raises(AotcError, match="refused 1$"):
        pipeline.run_pipeline(Options(model(), target=TARGET, stop_after="plan"))
    assert tried == [2, 4]


def test_faults_of_an_edited_schedule_remain(tmp_path):
    work = pipeline.run_pipeline(Options(model(), target=TARGET, stop_after="schedule"))
    data = json.loads(work.schedule.to_json())
    data["groups"][0]["anchor"] = "nothing"
    (tmp_path / "s.json").write_text(json.dumps(data))
    with pytest.raises(ScheduleError, match="anchor"):
        pipeline.run_pipeline(Options(model(), target=TARGET, schedule=tmp_path / "s.json"))
