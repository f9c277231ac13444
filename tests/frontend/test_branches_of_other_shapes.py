"""If on data whose branches give other extents: the caller is told how many elements there are; and
what a refusal proposes."""

import numpy as np
import pytest
from frontend_cases import program_of, rand, run
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import UnsupportedError

node, info = helper.make_node, helper.make_tensor_value_info
F32, BOOL = TensorProto.FLOAT, TensorProto.BOOL
W = rand(3, 4, seed=3)


def branch(name, nodes, outputs):
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(o)
                                               for o in outputs])


def model_of(nodes, inputs, outputs):
    graph = helper.make_graph(
        nodes, "branches", [info(n, *t) for n, t in inputs.items()],
        [info(n, F32, s) for n, s in outputs.items()],
        [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.array([0]), "axis"),
         numpy_helper.from_array(np.array([-1, 4]), "rows")])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def decoder(*after, **outputs):
    """A decoder with its past, and without, in one file: logits, keys and values."""
    then = branch("then", [node("Concat", ["past", "k"], ["tk"], axis=0),
                           node("Concat", ["past", "v"], ["tv"], axis=0),
                           node("ReduceMax", ["tk", "axis"], ["m"]),
                           node("Add", ["x", "m"], ["s"]), node("MatMul", ["s", "w"], ["tl"])],
                  ["tl", "tk", "tv"])
    other = branch("else", [node("MatMul", ["x", "w"], ["el"]), node("Identity", ["k"], ["ek"]),
                            node("Neg", ["v"], ["ev"])], ["el", "ek", "ev"])
    return model_of([node("If", ["use"], ["l", "nk", "nv"], then_branch=then, else_branch=other),
                     *after], {"use": (BOOL, [1]), "x": (F32, ["s", 3]), **{
                         n: (F32, ["s", 3]) for n in "kv"}, "past": (F32, ["p", 3])},
                    outputs or {"l": ["s", 4], "nk": ["t", 3], "nv": ["t", 3]})


def arrays(s, p, use):
    return {"use": np.array([use]), "x": rand(s, 3), "k": rand(s, 3, seed=1), "v": rand(s, 3,
            seed=2), "past": rand(p, 3, seed=4)}


def test_a_cache_that_one_branch_makes_longer(tmp_path):
    bundle = aotc.compile(decoder(), tmp_path / "b", target="c",
                          dims={"s": (1, 4), "p": (0, 8)}).load()
    for s, p, use in (1, 5, True), (3, 5, False), (2, 0, True), (4, 0, False):
        feeds = arrays(s, p, use)
        got = bundle.run(feeds)
        k, v, x, past = (feeds[n] for n in ("k", "v", "x", "past"))
        if use:
            k, v = np.concatenate([past, k]), np.concatenate([past, v])
            x = x + k.max(0)
        else:
            v = -v
        for name, want in {"l": x @ W, "nk": k, "nv": v}.items():
            assert got[name].shape == want.shape
            np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-5)


def test_results_of_one_length_are_counted_once_and_read_as_long_as_they_are():
    program = program_of(decoder())
    assert sum(bool(program.buffers[o].counts) for o in program.outputs) == 1
    program = program_of(decoder(node("ReduceMean", ["nk", "axis"], ["y"], keepdims=0), y=[3]))
    for use in (True, False):
        feeds = arrays(2, 3, use)
        keys = np.concatenate([feeds["past"], feeds["k"]]) if use else feeds["k"]
        np.testing.assert_allclose(run(program, feeds)[0], keys.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("then", (
    [node("ReduceMax", ["x", "axis"], ["a"], keepdims=0)], [node("Unknown", ["x"], ["a"])],
    [node("Cast", ["x"], ["a"], to=TensorProto.INT64)], [node("MatMul", ["x", "w"], ["a"])]))
def test_branches_that_fit_in_nothing_propose_a_setting(then):
    model = model_of([node("If", ["use"], ["y"], then_branch=branch("then", then, ["a"]),
                           else_branch=branch("else", [node("Relu", ["x"], ["b"])], ["b"]))],
                     {"use": (BOOL, []), "x": (F32, ["n", 4])}, {"y": None})
    with pytest.raises(UnsupportedError, match="input use: .*--fix use=VALUE") as err:
        program_of(model)
    assert str(err.value).count("--fix use=VALUE") == 1
