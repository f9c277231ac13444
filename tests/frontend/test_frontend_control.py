"""If, Loop and Scan: built in place, against ONNX Runtime."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, helper, model_of, program_of, rand, run, same
from onnx import TensorProto, numpy_helper

from aotc.errors import FaultError, ModelError, UnsupportedError
from aotc.ir.program import Loop

F, I64, BOOL = np.float32, np.int64, np.bool_


def info(name, dtype=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(nodes, inputs, outputs, constants=()):
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants]
    return helper.make_graph(nodes, "body", [info(*i) for i in inputs],
                             [helper.make_empty_tensor_value_info(o) for o in outputs], tensors)


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs, outputs, **attrs)


def compared(model, feeds, **options):
    same(run(program_of(model, **options), feeds), by_onnxruntime(model, feeds))


def branches():
    return dict(then_branch=graph([node("Mul", ["x", "two"], ["t"])], [], ["t"],
                                  [("two", F(2))]),
                else_branch=graph([node("Neg", ["x"], ["a"]), node("Add", ["a", "x3"], ["e"])],
                                  [], ["e"]))


@pytest.mark.parametrize("choice", (True, False))
@pytest.mark.parametrize("known", (True, False))
def test_if(choice, known):
    nodes = [node("Relu", ["x"], ["x3"]), node("If", ["c"], ["y"], **branches())]
    inputs = {"x": (F, (3, 4))} | ({} if known else {"c": (BOOL, ())})
    model = model_of(nodes, inputs, ["y"], {"c": np.array(choice)} if known else {})
    feeds = {"x": rand(3, 4)} | ({} if known else {"c": np.array(choice)})
    compared(model, feeds)


def test_a_known_condition_builds_one_branch():
    nodes = [node("Relu", ["x"], ["x3"]), node("If", ["c"], ["y"], **branches())]
    model = model_of(nodes, {"x": (F, (3,))}, ["y"], {"c": np.array(True)})
    assert "neg" not in str(program_of(model)) and "-x" not in str(program_of(model))


def test_ifs_within_ifs():
    inner = branches()
    for _ in range(8):
        body = graph([node("If", ["c"], ["t"], **inner)], [], ["t"])
        inner = dict(then_branch=body, else_branch=body)
    nodes = [node("Relu", ["x"], ["x3"]), node("If", ["c"], ["y"], **inner)]
    model = model_of(nodes, {"x": (F, (3,))}, ["y"], {"c": np.array(False)})
    compared(model, {"x": rand(3)})


def test_branches_of_different_shape_for_a_condition_that_is_data():
    wide = graph([node("Concat", ["x", "x"], ["t"], axis=0)], [], ["t"])
    plain = graph([node("Identity", ["x"], ["e"])], [], ["e"])
    model = model_of([node("If", ["c"], ["y"], then_branch=wide, else_branch=plain)],
                     {"x": (F, (3,)), "c": (BOOL, ())}, ["y"])
    for c in True, False:  # the caller is told how many there are
        y, count = run(program_of(model), {"x": rand(3), "c": np.array(c)})
        np.testing.assert_array_equal(y[:count], np.tile(rand(3), 1 + c))
    wide = graph([node("Unsqueeze", ["x", "zero"], ["t"])], [], ["t"])
    model = model_of([node("If", ["c"], ["y"], then_branch=wide, else_branch=plain)],
                     {"x": (F, (3,)), "c": (BOOL, ())}, ["y"], {"zero": np.array([0])})
    with pytest.raises(UnsupportedError, match="f32.1, 3. and f32.3.*--fix c=VALUE"):
        program_of(model)


def test_branches_whose_extents_differ_by_a_symbol():
    """Twice as many, every second one: no n serves both, so that the result is counted."""
    plain = graph([node("Identity", ["x"], ["e"])], [], ["e"])
    wide = graph([node("Concat", ["x", "x"], ["t"], axis=0)], [], ["t"])
    even = graph([node("Slice", ["x", "first", "last", "first", "two"], ["t"])], [], ["t"])
    steps = {"first": np.array([0]), "last": np.array([1 << 40]), "two": np.array([2])}
    for body, made in ((wide, lambda x: np.tile(x, 2)), (even, lambda x: x[::2])):
        model = model_of([node("If", ["c"], ["y"], then_branch=body, else_branch=plain)],
                         {"x": (F, ("n",)), "c": (BOOL, ())}, ["y"], steps)
        program = program_of(model)
        for n, c in (1, True), (5, True), (5, False):
            y, count = run(program, {"x": rand(n), "c": np.array(c)})
            np.testing.assert_array_equal(y[:count], made(rand(n)) if c else rand(n))


def counting(stop=None):
    """h' = h * k + i, with h gathered; ends early where ``stop`` says so."""
    nodes = [node("Cast", ["i"], ["fi"], to=TensorProto.FLOAT),
             node("Mul", ["h", "k"], ["hk"]), node("Add", ["hk", "fi"], ["next"]),
             node("Identity", ["next"], ["seen"])]
    nodes.append(node("Identity", ["c"], ["go"]) if stop is None else
                 node("Less", ["i", "stop"], ["go"]))
    constants = [] if stop is None else [("stop", np.array(stop, I64))]
    return graph(nodes, [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []),
                         ("h", TensorProto.FLOAT, None)], ["go", "next", "seen"], constants)


def looped(count, cond, body, declared=None):
    names = ["n" if count is not None else "", "c" if cond is not None else "", "h0"]
    nodes = [node("Loop", names, ["h", "all"], body=body)]
    constants = {"k": np.array([0.5, 2.0], F)}
    inputs = {"h0": (F, (2,))}
    for name, value in (("n", count), ("c", cond)):
        if value is None:
            continue
        if isinstance(value, tuple):
            inputs[name] = (value[0].dtype, value[0].shape)
        else:
            constants[name] = value
    model = model_of(nodes, inputs, ["h", "all"], constants)
    if declared is not None:
        model.graph.output[1].CopyFrom(info("all", TensorProto.FLOAT, (declared, 2)))
    return model


@pytest.mark.parametrize("count,cond,stop", [
    (np.array(5), np.array(True), None), (np.array(5), None, None), (np.array(9), None, 2),
    (None, np.array(True), 3), (np.array(1), np.array(True), None)])
def test_loops_of_known_length(count, cond, stop):
    compared(looped(count, cond, counting(stop)), {"h0": rand(2)})


def test_a_loop_whose_length_is_data():
    model = looped((np.array(4),), np.array(True), counting(), declared=4)
    compared(model, {"h0": rand(2), "n": np.array(4)})
    for wrong in (3, 5, 0, -1):
        with pytest.raises(FaultError):
            run(program_of(model), {"h0": rand(2), "n": np.array(wrong)})


def test_a_loop_whose_condition_is_data():
    model = looped((np.array(3),), (np.array(True),), counting(), declared=3)
    compared(model, {"h0": rand(2), "n": np.array(3), "c": np.array(True)})
    with pytest.raises(FaultError):
        run(program_of(model), {"h0": rand(2), "n": np.array(3), "c": np.array(False)})


def test_a_loop_of_known_length_that_data_might_end():
    nodes = [node("Mul", ["h", "k"], ["next"]), node("Identity", ["next"], ["seen"]),
             node("ReduceMax", ["next"], ["most"], keepdims=0),
             node("Less", ["most", "limit"], ["go"])]
    body = graph(nodes, [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []),
                         ("h", TensorProto.FLOAT, None)], ["go", "next", "seen"],
                 [("limit", np.array(100, F))])
    model = looped(np.array(3), np.array(True), body, declared=3)
    compared(model, {"h0": rand(2)})  # the condition still holds behind the last round
    compared(model, {"h0": np.array([1, 20], F)})  # ... or no more
    with pytest.raises(FaultError):
        run(program_of(model), {"h0": np.array([1, 90], F)})


def test_a_long_loop_is_one_step():
    compared(looped(np.array(300), np.array(True), counting()), {"h0": rand(2)})
    program = program_of(looped(np.array(10**6), np.array(True), counting()))
    assert sum(isinstance(s, Loop) for s in program.steps) == 1


@pytest.mark.parametrize("most, stop", [
    (300, 100), (300, 299), (300, 300),
    pytest.param(10**4, 9000, marks=pytest.mark.product)])
def test_what_a_long_loop_gathers_that_ends_early_is_counted(most, stop):
    """Data say where it ends; what extents and constants say of that is known while compiling."""
    model = looped(np.array(most), np.array(True), counting(stop))
    feeds = {"h0": rand(2)}
    last, rows = by_onnxruntime(model, feeds)
    same(run(program_of(model), feeds), [last, rows])
    body = model.graph.node[0].attribute[0].g
    body.initializer.pop()
    model.graph.input.append(info("stop", TensorProto.INT64, []))
    feeds["stop"] = np.array(stop)
    got = run(program_of(model), feeds)
    assert got[1].shape == (most, 2) and got[2] == len(rows)
    same([got[0], got[1][:len(rows)]], [last, rows])
    assert not got[1][len(rows):].any()


def test_loops_that_are_unbounded():
    with pytest.raises(UnsupportedError, match="a loop without an end; give it a number"):
        program_of(looped(None, np.array(True), counting()))


def running_sum():
    return graph([node("Add", ["s", "e"], ["sum"]), node("Mul", ["sum", "w"], ["out"])],
                 [("s", TensorProto.FLOAT, None), ("e", TensorProto.FLOAT, None)],
                 ["sum", "out"])


@pytest.mark.parametrize("attrs", [
    {}, dict(scan_input_directions=[1]), dict(scan_output_directions=[1]),
    dict(scan_input_axes=[1], scan_output_axes=[-1]),
    dict(scan_input_axes=[-1], scan_input_directions=[1], scan_output_axes=[1])])
def test_scans(attrs):
    x = rand(4, 4)
    model = model_of([node("Scan", ["s0", "x"], ["s", "y"], body=running_sum(),
                           num_scan_inputs=1, **attrs)],
                     {"s0": (F, (4,)), "x": (F, (4, 4))}, ["s", "y"], {"w": rand(4, seed=3)})
    compared(model, {"s0": rand(4, seed=1), "x": x})


def test_a_scan_over_a_symbolic_axis():
    model = model_of([node("Scan", ["s0", "x"], ["s", "y"], body=running_sum(),
                           num_scan_inputs=1)],
                     {"s0": (F, (4,)), "x": (F, ("t", 4))}, ["s", "y"], {"w": rand(4, seed=3)})
    for dims in (None, {"t": 5}):
        compared(model, {"s0": rand(4, seed=1), "x": rand(5, 4)}, dims=dims)


@pytest.mark.parametrize("count", (-1, 0, 3, 5))
def test_scans_with_a_wrong_number_of_inputs(count):
    model = model_of([node("Scan", ["s0", "x"], ["s", "y"], body=running_sum(),
                           num_scan_inputs=count)],
                     {"s0": (F, (4,)), "x": (F, (4, 4))}, ["s", "y"], {"w": rand(4, seed=3)})
    with pytest.raises(ModelError, match="scan inputs of 2 do not fit"):
        program_of(model)


def test_branches_with_different_numbers_of_outputs():
    one = graph([node("Relu", ["x"], ["t"])], [], ["t"])
    two = graph([node("Relu", ["x"], ["t"]), node("Neg", ["x"], ["u"])], [], ["t", "u"])
    model = model_of([node("If", ["c"], ["y"], then_branch=one, else_branch=two)],
                     {"x": (F, (3,)), "c": (BOOL, ())}, ["y"])
    with pytest.raises(ModelError, match="branches with 1 and 2 outputs"):
        program_of(model)


def test_loops_inside_loops():
    """40 rounds of 40 rounds."""
    held = [("n", np.array(40, I64)), ("c", np.array(True))]
    body, state = None, ("z", TensorProto.FLOAT, None)
    for depth in range(2):
        ins = [(f"i{depth}", TensorProto.INT64, []), (f"c{depth}", TensorProto.BOOL, []), state]
        inner = [node("Add", ["z", "half"], ["r"])] if body is None else [
            node("Loop", ["n", "c", "z"], ["r"], body=body)]
        body = graph([*inner, node("Identity", [f"c{depth}"], ["go"])], ins, ["go", "r"])
    model = model_of([node("Loop", ["n", "c", "x"], ["y"], body=body)], {"x": (F, (3,))}, ["y"],
                     dict(held) | {"half": np.float32(0.5)})
    program = program_of(model)
    loop, = (s for s in program.steps if isinstance(s, Loop))
    assert any(isinstance(s, Loop) for s in loop.body.steps)
    np.testing.assert_allclose(run(program, {"x": rand(3)})[0], rand(3) + 800, rtol=1e-4)
