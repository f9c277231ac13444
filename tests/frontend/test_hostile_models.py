"""Models that try to take the compiler's time, memory or stack: one clear error, or a bundle."""

import os
import resource
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.cli import main
from aotc.errors import AotcError, ModelError, ScheduleError, UnsupportedError
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.choose.connect import DEPTH_LIMIT, NODES_LIMIT
from aotc.sched.choose.tree_size import tree_size
from aotc.sched.model.stages import group_stages
from aotc.target import get_target
from aotc.target.machine_file import with_machine

F32 = TensorProto.FLOAT
X = helper.make_tensor_value_info("x", F32, [2, 3])


def _model(nodes, outputs=("y",), inputs=(X,), constants=(), functions=()):
    graph = helper.make_graph(
        nodes, "g", list(inputs), [helper.make_tensor_value_info(o, F32, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets[:1 + bool(functions)], ir_version=9,
                             functions=functions)


def _chain(op, count, twice=False):
    nodes = [helper.make_node(op, [f"a{i}"] * (1 + twice), [f"a{i + 1}"]) for i in range(count)]
    nodes[0].input[:] = ["x"] * (1 + twice)
    return _model(nodes, (f"a{count}",))


def _compiled(model, target="c"):
    return run_pipeline(Options(model, target=target, name="m", stop_after="bundle"))


@pytest.mark.parametrize("connect", [
    "all", pytest.param("register", marks=pytest.mark.product)])
@pytest.mark.parametrize("model, least", [
    (_chain("Add", 40, twice=True), 4), (_chain("Relu", 300), 5),
    (_model([helper.make_node("Sum", ["x"] * 500, ["y"])]), 1),
    (_model([helper.make_node("Concat", ["x"] * 500, ["y"], axis=0)]), 1),
], ids=["doubling", "chain", "sum", "concat"])
def test_long_and_doubling_expressions_are_cut(model, least, connect):
    """x + x forty times over is a tree of 2^40 nodes, were all of it one stage."""
    work = run_pipeline(Options(model, target="c", name="m", stop_after="plan", connect=connect))
    stages = [s for g in work.schedule.groups for s in group_stages(work.program, g)]
    sizes = [tree_size(e) for s in stages for e in s.exprs()]
    assert len(stages) >= least and len(work.plan.kernels) >= (least if connect != "all" else 1)
    if least > 1:
        assert all(s.nodes <= NODES_LIMIT and s.depth <= DEPTH_LIMIT for s in sizes)


def test_many_inputs_keep_their_values(tmp_path):
    import aotc
    count = 150
    names = [f"x{i}" for i in range(count)]
    inputs = [helper.make_tensor_value_info(n, F32, [1 + i % 2, 3]) for i, n in enumerate(names)]
    model = _model([helper.make_node("Concat", names, ["y"], axis=0),
                    helper.make_node("Max", names[::2], ["z"]),
                    helper.make_node("Sum", names[::2], ["s"])], ("y", "z", "s"), inputs)
    rng = np.random.default_rng(0)
    feeds = {n: rng.integers(-9, 9, (1 + i % 2, 3)).astype("f4") for i, n in enumerate(names)}
    got = aotc.compile(model, tmp_path / "b", target="c", name="m").load().run(feeds)
    assert np.array_equal(got["y"], np.concatenate(list(feeds.values())))
    assert np.array_equal(got["z"], np.max([feeds[n] for n in names[::2]], 0))
    assert np.array_equal(got["s"], np.sum([feeds[n] for n in names[::2]], 0))


def _function(name, *calls):
    nodes, last = [], "a"
    for k, op in enumerate(calls):
        made = "b" if k == len(calls) - 1 else f"t{k}"
        nodes.append(helper.make_node(op, [last], [made], domain="f" if op != "Relu" else ""))
        last = made
    return helper.make_function("f", name, ["a"], ["b"], nodes,
                                [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)])


def _calls(*functions, first=None):
    node = helper.make_node(first or functions[-1].name, ["x"], ["y"], domain="f")
    return _model([node], functions=functions)


CALLS = {
    "itself": (_calls(_function("F", "F")), ModelError, "calls itself"),
    "each other": (_calls(_function("F", "G"), _function("G", "F")), ModelError, "calls itself"),
    "a deep stack": (_calls(_function("F0", "Relu"), *(
        _function(f"F{i}", f"F{i - 1}") for i in range(1, 300))), ModelError, "deep"),
    "4^25 nodes": (_calls(_function("F0", "Relu"), *(
        _function(f"F{i}", *[f"F{i - 1}"] * 4) for i in range(1, 25))), UnsupportedError, "nodes"),
}


@pytest.mark.parametrize("what", CALLS)
def test_functions_that_never_end(what):
    model, error, text = CALLS[what]
    with pytest.raises(error, match=text):
        _compiled(model)


def test_functions_that_end_are_inlined():
    model = _calls(_function("F0", "Relu"), _function("F1", "F0", "F0"), _function("F2", "F1"))
    assert _compiled(model).plan.kernels


@pytest.mark.parametrize("values", [(0, np.inf, 1), (0, 5, 0), (np.nan, 1, 1)])
def test_a_float_range_without_an_end(values):
    constants = [(n, np.float32(v)) for n, v in zip("abc", values)]
    with pytest.raises(ModelError, match="finite"):
        _compiled(_model([helper.make_node("Range", list("abc"), ["r"]),
                          helper.make_node("Add", ["x", "r"], ["y"])], constants=constants))


def test_a_frame_longer_than_its_signal():
    """Found by the fuzzer: 2^61 elements to add up, more than a number of operations can say."""
    wave = helper.make_tensor_value_info("x", F32, [1, 16, 1])
    model = _model([helper.make_node("STFT", ["x", "step", "", "length"], ["y"])], inputs=[wave],
                   constants=[("step", np.int64(4)), ("length", np.int64(1 << 61))])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F32, [1, 3, 5, 2]))
    with pytest.raises(ModelError):
        _compiled(model)


def test_the_shape_of_a_dynamic_tensor_is_no_constant(tmp_path):
    """Found by the fuzzer: an output that reads no buffer, but an extent of the call."""
    import aotc
    wide = helper.make_tensor_value_info("x", F32, ["n", 2, 4, 2])
    model = _model([helper.make_node("Shape", ["x"], ["y"])], inputs=[wide])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [4]))
    got = aotc.compile(model, tmp_path / "b", target="c", name="m").load().run(
        {"x": np.zeros((3, 2, 4, 2), "f4")})
    assert got["y"].tolist() == [3, 2, 4, 2]


def test_transposed_steps_of_nothing():
    """Found by the fuzzer."""
    image = helper.make_tensor_value_info("x", F32, [1, 1, 4, 4])
    with pytest.raises(ModelError, match="positive"):
        _compiled(_model([helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 0])],
                         inputs=[image], constants=[("w", np.ones((1, 1, 1, 1), np.float32))]))


def test_types_that_cannot_be_inferred():
    """Found by the fuzzer: a node of a domain without opset, beside one that is expanded."""
    model = _model([helper.make_node("TopK", ["x"], ["a"], domain="com.microsoft"),
                    helper.make_node("ReduceLogSum", ["x"], ["b"]),
                    helper.make_node("Bernoulli", ["x"], ["c"]),
                    helper.make_node("MeanVarianceNormalization", ["x"], ["y"])])
    with pytest.raises(AotcError):
        _compiled(model)


def test_a_loop_without_a_body_beside_a_node_that_is_expanded():
    """Found by the fuzzer: type inference asks for an impossible amount of memory."""
    model = _model([helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
                    helper.make_node("Loop", [], ["y"])])
    with pytest.raises(AotcError):
        _compiled(model)


def test_more_dimensions_than_an_array_has():
    wide = helper.make_tensor_value_info("x", F32, [1] * 100)
    with pytest.raises(UnsupportedError, match="100 dimensions"):
        _compiled(_model([helper.make_node("Relu", ["x"], ["y"])], inputs=[wide]))


def _external(folder, location):
    tensor = TensorProto(name="w", data_type=F32, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value="12")
    model = _model([helper.make_node("Mul", ["x", "w"], ["y"])])
    model.graph.initializer.append(tensor)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_that_is_no_plain_file(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(12))
    folder = tmp_path / "model"
    folder.mkdir()
    os.symlink("loop.bin", folder / "loop.bin")
    os.symlink(secret, folder / "link.bin")
    os.link(secret, folder / "hard.bin")
    os.mkfifo(folder / "pipe")
    for location in ("loop.bin", "link.bin", "hard.bin", "pipe", "n" * 5000, "a\0b", "."):
        with pytest.raises(ModelError) as caught:
            _compiled(_external(folder, location))
        assert "'w'" in str(caught.value) and len(str(caught.value)) < 600


def test_errors_fit_a_screen(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(_model([helper.make_node("Transpose", ["x"], ["y"], perm=[0] * 100_000)])
                     .SerializeToString())
    assert main(["compile", str(path), "-o", str(tmp_path / "b"), "--target", "c"]) == 1
    assert len(capsys.readouterr().err) < 2000 and not (tmp_path / "b").exists()


@pytest.mark.product
def test_what_does_not_fit_memory_is_an_error_of_the_model(tmp_path):
    """In a process of its own, whose address space ends at 1 GB: a matrix of 512 MB and what it is
    made from."""
    path = tmp_path / "m.onnx"
    wave = helper.make_tensor_value_info("x", F32, [1, 4096, 1])
    path.write_bytes(_model([helper.make_node("DFT", ["x"], ["y"])], inputs=[wave])
                     .SerializeToString())
    limit = 1 << 30
    done = subprocess.run([sys.executable, "-m", "aotc", "show", str(path), "program"],
                          capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit,) * 2))
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr[-2000:]
    assert "memory" in done.stderr


def test_a_schedule_is_written_whole_or_not_at_all(tmp_path):
    model, path = _chain("Relu", 2), tmp_path / "s.json"
    path.write_text("earlier")
    options = Options(model, tmp_path / "b", "c", "m", schedule_out=path)
    run_pipeline(options)
    assert path.read_text().startswith("{")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "s.json"]
    with pytest.raises((AotcError, OSError)):
        run_pipeline(Options(model, tmp_path / "c", "c", "m",
                             schedule_out=tmp_path / "no" / "s.json"))


def test_an_output_of_another_type_than_declared(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Shape", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(ModelError, match=r"output 'y' is declared as f32, its node makes i64\[2\]"):
        run_pipeline(Options(model, tmp_path / "b"))


def test_files_of_decisions_nested_beyond_reason():
    with pytest.raises(ScheduleError, match="not JSON"):
        Schedule.from_json("[" * 100_000)
    with pytest.raises(ScheduleError, match="machine file: .*nested too deep"):
        with_machine(get_target("c"), "[" * 100_000)


def test_tuning_asks_for_its_places_before_it_starts(tmp_path):
    with pytest.raises(AotcError, match="absent/t.json cannot be written"):
        aotc.tune(b"no model is read", tmp_path / "absent" / "t.json")


def _many(nodes, inputs):
    """A model of that many nodes, or with a node of so many inputs."""
    graph = onnx.GraphProto(name="g", input=[X], output=[
        helper.make_tensor_value_info("y", F32, None)])
    graph.node.extend([helper.make_node("Relu", ["x"], ["y"])] * nodes)
    graph.node.append(helper.make_node("Sum", ["x"] * inputs, ["z"]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("nodes, inputs, words", [
    (70_000, 1, "more than 65536 nodes"), (1, 300_000, "more than 262144 inputs")])
def test_more_nodes_than_compile_in_reasonable_time(nodes, inputs, words):
    with pytest.raises(UnsupportedError, match=words):
        _compiled(_many(nodes, inputs))


def test_messages_show_no_text_of_the_model_as_it_is_and_not_thousands_of_lines():
    text = "a\n\x1b[31m\0" + "long " * 1000
    nodes = [helper.make_node(f"{text}{k}", ["x"], [f"y{k}"], domain=text, name=text)
             for k in range(500)]
    model = _model(nodes, ("y0",))
    for known in (False, True):
        with pytest.raises(UnsupportedError) as caught:
            _compiled(model)
        lines = str(caught.value).split("\n")
        assert len(lines) < 60 and max(map(len, lines)) < 400 and "\x1b" not in str(caught.value)
        assert known or "... and 460 more" in str(caught.value)
        model.opset_import.append(helper.make_opsetid(text, 1))
