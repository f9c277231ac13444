"""The fuzzers in small, by default; in earnest they run by hand (docs/fuzzing.md)."""

import random

import numpy as np
import pytest
from harness import every
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx_graphs import random_graph
from run_bytes import corpus, edited, flipped, offend
from run_graphs import drawn, dynamic, faults, main, part
from run_programs import main as run_programs

from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline


@pytest.mark.parametrize("seed", every(range(8), 2))
def test_random_graphs(seed, tmp_path):
    assert not faults(random_graph(seed), tmp_path / "bundle", "native")


@pytest.mark.parametrize("of", ("contrib", "loops", "stored", "texts"))
def test_random_graphs_of_one_kind(of, tmp_path):
    assert not faults(random_graph(2, of=of), tmp_path / "b", "c")


@pytest.mark.product
@pytest.mark.parametrize("of", ("contrib", "loops", "stored", "texts"))
def test_many_random_graphs_of_one_kind(of):
    assert main(["--graphs", "40", "--seed", "9000", "--of", of, "--draw",
                 "--seconds", "100000"]) == 0


@pytest.mark.parametrize("seed", range(30, 33))
def test_random_graphs_with_drawn_decisions(seed, tmp_path):
    """Dynamic dimensions, targets, threads and what else a user may ask for."""
    graph = dynamic(random_graph(seed), seed)
    assert not faults(graph, tmp_path / "bundle", options=drawn(seed, "native"))


@pytest.mark.product
@pytest.mark.parametrize("target", ("native", "c"))
def test_many_random_graphs(target):
    assert main(["--graphs", "60", "--seed", "5000", "--target", target,
                 "--seconds", "100000"]) == 0


def test_a_second_opinion_may_be_asked_of_one_output():
    """The rest of the graph may be what the other runtime refuses."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"]),
             helper.make_node("Add", ["a", "a"], ["y"]), helper.make_node("Abs", ["b"], ["z"])]
    model = _model(nodes, [("x", (2, 3))], outputs=("y", "z"))
    graph = part(model, "z").graph
    assert [n.op_type for n in graph.node] == ["Neg", "Abs"]
    assert [o.name for o in graph.output] == ["z"] and len(model.graph.node) == 4


@pytest.mark.product
def test_many_random_graphs_with_drawn_decisions():
    assert main(["--graphs", "40", "--seed", "6000", "--draw", "--seconds", "100000"]) == 0


def test_random_programs_in_small():
    assert run_programs(["--batches", "1", "--batch", "4", "--seed", "3", "--seconds", "600"]) == 0


@pytest.mark.product
def test_random_graphs_under_sanitizers():
    assert main(["--graphs", "25", "--seed", "7000", "--sanitize", "--seconds", "100000"]) == 0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.product)])
@pytest.mark.parametrize("mutate", (edited, flipped))
def test_damaged_models_are_refused_or_right(mutate, seed):
    rng, seeds = random.Random(seed), corpus(40)
    for _ in range(30 if seed == 1 else 90):
        assert offend(mutate(rng, rng.choice(seeds))) is None


def _model(nodes, inputs, constants=(), opset=20, outputs=("y",)):
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _attribute(kind):
    node = helper.make_node("Relu", ["x"], ["y"])
    node.op_type = "Softmax"
    node.attribute.add(name="axis", type=kind)
    return _model([node], [("x", (2, 3))])


def _bad_text():
    data = _model([helper.make_node("Relu", ["x"], ["y"], name="badname")],
                  [("x", (2, 3))]).SerializeToString()
    return data.replace(b"badname", b"bad\xff\xfeme")


def _pads(*pads):
    return _model([helper.make_node("Pad", ["x", "p"], ["y"])], [("x", (2, 3))],
                  [("p", np.array(pads, np.int64))])


REFUSED = {
    "attribute without a type": _attribute(AttributeProto.UNDEFINED),
    "attribute without a value": _attribute(AttributeProto.INT),
    "sparse attribute": _attribute(AttributeProto.SPARSE_TENSOR),
    "text that is none": _bad_text(),
    "opset 0": _model([helper.make_node("Relu", ["x"], ["y"])], [("x", (2,))], opset=0),
    "opset 2^40": _model([helper.make_node("Relu", ["x"], ["y"])], [("x", (2,))], opset=1 << 40),
    "old opset, missing tensor": _model([helper.make_node("Relu", ["nowhere"], ["y"])],
                                        [("x", (2,))], opset=6),
    "absurd input": _model([helper.make_node("Relu", ["x"], ["y"])], [("x", (1 << 62, 4))]),
    "absurd result": _pads(0, 1 << 61, 0, 0),
    "transform of 2^31 points": _model([helper.make_node("DFT", ["x"], ["y"])],
                                       [("x", (1, 1 << 31, 2))]),
    "resized to 2^31 places": _model(
        [helper.make_node("Resize", ["x", "", "", "s"], ["y"])], [("x", (1, 1, 4, 4))],
        [("s", np.array([1, 1, 4, 1 << 31], np.int64))]),
    "constant for nobody": _model([helper.make_node("Constant", [], [], value_int=1),
                                   helper.make_node("Relu", ["x"], ["y"])], [("x", (2,))]),
    "negative result": _pads(0, -(1 << 61), 0, 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_found_before(name):
    with pytest.raises(AotcError) as caught:
        model = REFUSED[name]
        data = model if isinstance(model, bytes) else model.SerializeToString()
        run_pipeline(Options(data, target="c", name="net", stop_after="bundle"))
    assert len(str(caught.value)) > 20


def _names(count, kind):
    return [f"{kind}{k}" for k in range(count)]


WIDE = {
    "a sum of many maps": _model(
        [helper.make_node("Relu", [f"x{k}"], [f"t{k}"]) for k in range(400)]
        + [helper.make_node("Sum", _names(400, "t"), ["y"])],
        [(n, (4,)) for n in _names(400, "x")]),
    "pieces put together again": _model(
        [helper.make_node("Split", ["x"], _names(1500, "t"), axis=0),
         helper.make_node("Concat", _names(1500, "t"), ["y"], axis=0)], [("x", (1500,))]),
    "a product of 2^30 columns": _model([helper.make_node("MatMul", ["x", "w"], ["y"])],
                                        [("x", (5, 5)), ("w", (2, 5, 1 << 30))]),
}


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=pytest.mark.product) if n.startswith("pieces") else n for n in WIDE])
def test_wide_models_compile(name):
    """Their expressions were once walked anew for every input, work items counted one by one;
    ``offend`` has a limit."""
    assert offend(WIDE[name].SerializeToString(), stage="schedule") is None


@pytest.mark.parametrize("extents", ((3, 2, -1), (3, -5, 2), (-1,)))
def test_negative_extents_are_open(extents):
    """The inference of the onnx package, which one of the nodes asks for, would end the process."""
    graph = helper.make_graph(
        [helper.make_node("GatherND", ["x", "i"], ["y"]),
         helper.make_node("RotaryEmbedding", ["r", "c", "c"], ["z"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 2, 5)),
         helper.make_tensor_value_info("i", TensorProto.INT64, extents),
         helper.make_tensor_value_info("r", TensorProto.FLOAT, (1, 2, 3, 4)),
         helper.make_tensor_value_info("c", TensorProto.FLOAT, (1, 3, 2))],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in "yz"])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    before = model.SerializeToString()
    assert offend(model, stage="inline") is None
    assert model.SerializeToString() == before  # the caller's own


def test_a_large_model_is_not_recorded():
    """The evaluator would need the memory of a machine for a run of this one."""
    model = _model([helper.make_node("ReduceMax", ["x"], ["y"], keepdims=0)], [("x", (1 << 31,))])
    work = run_pipeline(Options(model.SerializeToString(), target="c", name="net",
                                stop_after="bundle"))
    assert work.bundle.files["test_net.bin"][8:16] == bytes(8)


def test_elements_that_do_not_exist_divide_by_nothing(tmp_path):
    """Reshape and Slice of an empty tensor: the indices of no element contain // 0."""
    nodes = [helper.make_node("Slice", ["x", "s", "s", "a"], ["e"]),
             helper.make_node("Reshape", ["e", "shape"], ["y"])]
    model = _model(nodes, [("x", (3, 4, 5))], [
        ("s", np.array([2], np.int64)), ("a", np.array([1], np.int64)),
        ("shape", np.array([5, 0, 3], np.int64))])
    model.graph.node[1].attribute.append(helper.make_attribute("allowzero", 1))
    bundle = run_pipeline(Options(model, tmp_path / "b", target="c", name="net"))
    assert not any(b"/ 0" in data for name, data in bundle.bundle.files.items()
                   if name.endswith(".c"))
