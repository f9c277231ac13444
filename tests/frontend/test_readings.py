"""Results whose rank extents decide: what the rest of a model takes holds for all calls."""

import numpy as np
import pytest
from frontend_cases import program_of, rand, run
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import FaultError, UnsupportedError
from aotc.frontend import load_model, read_graph
from aotc.runtime.status import RunError

node, info = helper.make_node, helper.make_tensor_value_info
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
W = rand(8, 4, seed=1)


def model_of(nodes, inputs, outputs, constants=None, functions=()):
    """inputs, outputs: {name: extents, None: no shape}; an input whose name begins with "flag" is
    one bool."""
    graph = helper.make_graph(
        nodes, "readings",
        [info(n, BOOL if n.startswith("flag") else F32, s) for n, s in inputs.items()],
        [info(n, F32, s) for n, s in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()])
    imports = [helper.make_opsetid("", 18)] + [helper.make_opsetid("own", 1)] * bool(functions)
    return helper.make_model(graph, ir_version=9, opset_imports=imports, functions=list(functions))


def squeezed(reader, shape=None, constants=None, squeeze=None):
    """``reader`` of q, the [batch, 4] that Squeeze without axes has seen."""
    return model_of([node("MatMul", ["x", "w"], ["p"]), squeeze or node("Squeeze", ["p"], ["q"]),
                     *reader], {"x": ["batch", 8]}, {"y": shape}, {"w": W, **(constants or {})})


RELU = [node("Relu", ["q"], ["y"])]
SLICE = [node("Slice", ["q", "s0", "s2", "s0"], ["y"])]
PLACES = {"s0": np.array([0]), "s2": np.array([2])}


def relu(x):
    return np.maximum(x @ W, 0)


def check(model, extents, want):
    """Calls with these batches are ``want`` of them, None: a fault."""
    program = program_of(model)
    for n in extents:
        x = rand(n, 8, seed=n)
        wanted = want(x)
        if wanted is None:
            with pytest.raises((FaultError, ValueError)):
                run(program, {"x": x})
            continue
        got, = run(program, {"x": x})
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_declared_output_says_the_rank():
    check(squeezed(RELU, ["batch", 4]), (1, 3), lambda x: None if len(x) == 1 else relu(x))
    check(squeezed(RELU, ["any", "other"]), (1, 3), lambda x: None if len(x) == 1 else relu(x))
    check(squeezed(RELU, [4]), (1, 3), lambda x: relu(x)[0] if len(x) == 1 else None)


def test_a_declared_tensor_says_the_rank():
    model = squeezed(RELU)
    model.graph.value_info.append(info("q", F32, [4]))
    check(model, (1, 2), lambda x: relu(x)[0] if len(x) == 1 else None)


def test_an_operator_that_takes_one_rank_says_it():
    model = squeezed([node("Gemm", ["q", "v"], ["y"])], None, {"v": W.T})
    check(model, (1, 3), lambda x: None if len(x) == 1 else x @ W @ W.T)
    model = squeezed([node("Concat", ["q", "c"], ["y"], axis=0)], None, {"c": W[:, 0]})
    check(model, (1, 3), lambda x: np.append(x @ W, W[:, 0]) if len(x) == 1 else None)


def test_a_place_is_taken_from_the_axis_that_has_one():
    check(squeezed(SLICE, None, PLACES), (1, 2), lambda x: (x @ W)[0][:2] if len(x) == 1 else None)
    model = squeezed([node("Gather", ["q", "s2"], ["y"])], None, PLACES)
    check(model, (1, 2), lambda x: (x @ W)[0][2:3] if len(x) == 1 else None)
    model = squeezed([node("Slice", ["q", "s0", "s2", "s1"], ["y"])], None,
                     {**PLACES, "s1": np.array([1])})
    check(model, (1, 3), lambda x: None if len(x) == 1 else (x @ W)[:, :2])


def test_the_order_of_elements_alone_needs_no_rank():
    model = squeezed([node("Reshape", ["q", "s"], ["y"])], None, {"s": np.array([-1, 2])})
    check(model, (1, 3), lambda x: (x @ W).reshape(-1, 2))
    model = squeezed([node("Reshape", ["q", "s"], ["y"])], [None, None], {"s": np.array([0, -1])})
    with pytest.raises(UnsupportedError, match="the rank depends on batch"):
        program_of(model)


def test_nothing_that_says_it_is_refused_with_what_to_do():
    with pytest.raises(UnsupportedError, match="'Squeeze_q'.*rank depends on batch.*--dim batch=1"):
        program_of(squeezed(RELU))
    for dims, shape in ({"batch": 1}, (4,)), ({"batch": (2, 5)}, (2, 4)):
        got, = run(program_of(squeezed(RELU), dims), {"x": rand(max(1, len(shape)), 8)})
        assert got.shape == shape


def test_a_range_that_is_given_stands_and_contradicting_calls_are_faults():
    program = program_of(squeezed(RELU, ["batch", 4]), {"batch": (1, 8)})
    assert program.syms[0].lo == 1
    with pytest.raises(FaultError, match="removes the same ones in all calls"):
        run(program, {"x": rand(1, 8)})
    assert read_graph(load_model(squeezed(RELU, ["batch", 4]))).dims[0].sym.lo == 2


def test_inside_of_a_function_and_of_a_branch():
    own = helper.make_function("own", "Tight", ["a"], ["c"], [node("Squeeze", ["a"], ["c"])],
                               [helper.make_opsetid("", 18)])
    model = squeezed(RELU, [4], squeeze=node("Tight", ["p"], ["q"], domain="own"))
    model.functions.append(own)
    model.opset_import.append(helper.make_opsetid("own", 1))
    check(model, (1, 3), lambda x: relu(x)[0] if len(x) == 1 else None)

    def branch(op):
        return helper.make_graph([node("Squeeze", ["x"], ["s" + op]), node("MatMul", [
            "s" + op, "w"], ["m" + op]), node(op, ["m" + op], ["r" + op])], op, [],
            [info("r" + op, F32, ["batch", 4])])
    model = model_of([node("If", ["flag"], ["y"], then_branch=branch("Relu"),
                           else_branch=branch("Neg"))],
                     {"flag": [], "x": ["batch", 8]}, {"y": ["batch", 4]}, {"w": W})
    program, x = program_of(model), rand(3, 8)
    for flag, want in ((True, relu(x)), (False, -(x @ W))):
        got, = run(program, {"flag": np.array(flag), "x": x})
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    with pytest.raises((FaultError, ValueError)):
        run(program, {"flag": np.array(True), "x": x[:1]})


def test_two_of_them_are_told_apart():
    model = model_of([node("Squeeze", ["x"], ["a"]), node("Squeeze", ["z"], ["b"]),
                      node("Gemm", ["a", "w"], ["y"]), node("Relu", ["b"], ["u"])],
                     {"x": ["n", 8], "z": ["m", 3]}, {"y": None, "u": None}, {"w": W})
    with pytest.raises(UnsupportedError, match="depends on m") as err:
        program_of(model)
    assert "depends on n" not in str(err.value)


# ---------------------------------------------------------------- If on extents

def squeeze_if_one(tensor, axis, tag=""):
    """torch.squeeze(axis) as an exporter writes it: If(extent == 1) Squeeze else Identity."""
    axis_of = {f"axis{tag}": np.array([axis]), f"at{tag}": np.array(axis),
               f"one{tag}": np.array(1)}
    then = helper.make_graph([node("Squeeze", [tensor, f"axis{tag}"], [f"sq{tag}"])], "then", [],
                             [helper.make_empty_tensor_value_info(f"sq{tag}")])
    other = helper.make_graph([node("Identity", [tensor], [f"id{tag}"])], "else", [],
                              [helper.make_empty_tensor_value_info(f"id{tag}")])
    return [node("Shape", [tensor], [f"shape{tag}"]),
            node("Gather", [f"shape{tag}", f"at{tag}"], [f"extent{tag}"]),
            node("Equal", [f"extent{tag}", f"one{tag}"], [f"is{tag}"]),
            node("If", [f"is{tag}"], [f"q{tag}"], name=f"squeeze{tag}", then_branch=then,
                 else_branch=other)], axis_of


def detector(kernel, stride, tag=""):
    """Frames of x, of which there is one, through Gemm: (nodes from x to y{tag}, constants)."""
    nodes, constants = squeeze_if_one(f"p{tag}", 2, tag)
    return [node("Conv", ["x", f"k{tag}"], [f"p{tag}"], strides=[stride]), *nodes,
            node("Gemm", [f"q{tag}", "v"], [f"y{tag}"])], {
                f"k{tag}": rand(6, 1, kernel, seed=kernel), "v": rand(6, 3, seed=2), **constants}


def detected(x, kernel):
    return np.einsum("bt,ct->bc", x[:, 0, :kernel], rand(6, 1, kernel, seed=kernel)[:, 0]) @ rand(
        6, 3, seed=2)


def test_the_branch_that_what_reads_it_takes_runs(tmp_path, capsys):
    nodes, constants = detector(8, 4)
    model = model_of(nodes, {"x": ["batch", 1, "samples"]}, {"y": [None, None]}, constants)
    bundle = aotc.compile(model, tmp_path / "b", target="c").load()
    assert "'samples' in 8..11 (derived: the branch runs that" in capsys.readouterr().err
    for batch, samples in (1, 8), (3, 11):
        x = rand(batch, 1, samples, seed=batch)
        np.testing.assert_allclose(bundle.run({"x": x})["y"], detected(x, 8), rtol=1e-4, atol=1e-5)
    for samples in (7, 12):
        with pytest.raises((RunError, ValueError)):
            bundle.run({"x": rand(1, 1, samples)})


def test_the_other_branch_runs_where_its_rank_is_taken():
    nodes, constants = squeeze_if_one("x", 0)
    model = model_of([*nodes, node("Gemm", ["q", "w"], ["y"])], {"x": ["batch", 8]},
                     {"y": None}, {"w": W, **constants})
    check(model, (1, 3), lambda x: None if len(x) == 1 else x @ W)
    model = model_of([*nodes, node("Relu", ["q"], ["y"])], {"x": ["batch", 8]}, {"y": None},
                     constants)
    with pytest.raises(UnsupportedError, match="'squeeze' .*branches that give f32.*--dim batch="):
        program_of(model)


def test_branches_that_data_chooses_may_want_other_extents():
    """As voice detectors for two rates in one file."""
    def branch(kernel, stride, tag):
        nodes, constants = detector(kernel, stride, tag)
        return helper.make_graph(nodes, tag, [], [info(f"y{tag}", F32, [None, None])], [
            numpy_helper.from_array(a, n) for n, a in constants.items()])
    model = model_of([node("If", ["flag"], ["y"], then_branch=branch(12, 8, "_a"),
                           else_branch=branch(8, 8, "_b"))],
                     {"flag": [], "x": ["batch", 1, "samples"]}, {"y": [None, None]})
    program = program_of(model)
    assert [(s.lo, s.hi) for s in program.syms if s.name == "samples"] == [(12, 19)]
    for flag, samples, kernel in (True, 17, 12), (True, 13, 12), (False, 13, 8):
        x = rand(2, 1, samples)
        got, = run(program, {"flag": np.array(flag), "x": x})
        np.testing.assert_allclose(got, detected(x, kernel), rtol=1e-4, atol=1e-5)
    x = rand(2, 1, 17)
    with pytest.raises(FaultError, match="the branch runs that the rest of the model takes"):
        run(program, {"flag": np.array(False), "x": x})


def test_an_extent_that_is_0_copies_the_input_s_beside_an_open_one():
    constants = {"zero": np.array([0]), "one": np.array([1]), "open": np.array([-1])}
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]),
             node("Sub", ["n", "one"], ["less"]), node("Concat", ["less", "open"], ["t"], axis=0),
             node("Reshape", ["x", "t"], ["y"])]
    check(model_of(nodes, {"x": ["n", 8]}, {"y": None}, constants), (1, 2, 5), lambda x: x.reshape(
        max(len(x) - 1, 1), -1))
