"""Trial builds: what a Program is does not depend on how few of them there were."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.frontend import load_model, read_built, to_program

node = helper.make_node
F32 = TensorProto.FLOAT


def _model(nodes, inputs, constants, output):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "trials", [value(n, F32, s) for n, s in inputs.items()],
                              [value(output, F32, None)],
                              [numpy_helper.from_array(a, n) for n, a in constants.items()])
    return load_model(helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]))


def _narrowed_early():
    """A window that must fit, then enough nodes for the first build to end at it."""
    nodes = [node("Conv", ["x", "w"], ["t0"])]
    nodes += [node("Relu", [f"t{k}"], [f"t{k + 1}"]) for k in range(20)]
    return _model(nodes, {"x": [1, 1, "h", "v"]}, {"w": np.ones((1, 1, 5, 3), "f4")}, "t20")


def _narrowed_late():
    nodes = [node("Relu", [f"t{k}"], [f"t{k + 1}"]) for k in range(20)]
    nodes += [node("Conv", ["t20", "w"], ["y"])]
    return _model(nodes, {"t0": [1, 1, "h", "v"]}, {"w": np.ones((1, 1, 5, 3), "f4")}, "y")


def _asked_before_it_is_learnt():
    """Two extents broadcast, which an operator behind demands to be equal."""
    return _model([node("Add", ["x", "y"], ["s"]), node("MatMul", ["x", "y"], ["e"]),
                   node("Mul", ["s", "e"], ["z"])], {"x": ["n"], "y": ["m"]}, {}, "z")


def _learnt_in_vain():
    return _model([node("MatMul", ["x", "y"], ["z"])],
                  {"x": ["n"], "y": ["m"]}, {}, "z")


def _only_shapes():
    """Packed weights, which a trial build leaves packed."""
    rng = np.random.default_rng(1)
    packed = {"b": rng.integers(0, 256, (8, 2, 8), np.uint8), "c": np.ones(16, "f4")}
    return _model([node("MatMulNBits", ["x", "b", "c"], ["y"], domain="com.microsoft", K=32, N=8,
                        bits=4, block_size=16)], {"x": ["rows", 32]}, packed, "y")


@pytest.mark.parametrize("model", (_narrowed_early, _narrowed_late, _asked_before_it_is_learnt,
                                   _learnt_in_vain, _only_shapes))
def test_a_program_is_the_same_from_a_trial_and_with_all_that_is_learnt(model):
    graph, built = read_built(model())
    taught = replace(graph, learnt=built.joins.learnt())
    program, again = to_program(graph), to_program(taught)
    assert str(again) == str(program) and again.checks == program.checks
    reused = to_program(graph, built=built)
    assert str(reused) == str(program) and reused.checks == program.checks
    assert all(np.array_equal(a, program.consts[n]) for n, a in reused.consts.items())


def test_ranges_and_what_is_learnt_count():
    low = {str(d.sym.name): d.sym.lo for d in read_built(_narrowed_early())[0].dims}
    assert low == {"h": 5, "v": 3}
    graph, built = read_built(_asked_before_it_is_learnt())
    text = str(to_program(graph, built=built))
    assert "where" not in text and "!=" not in text  # it is no broadcast any more
    _, kept = read_built(_learnt_in_vain())
    assert kept.joins.learnt().equal and not kept.graph.learnt.equal  # one build was enough
    assert read_built(_only_shapes())[1].partial
