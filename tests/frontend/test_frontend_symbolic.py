"""Symbolic extents: shape arithmetic leaves nothing at run time, limits are found or checked."""

import numpy as np
import pytest
from frontend_cases import compare, helper, model_of, numpy_helper, program_of, rand, run

from aotc.errors import FaultError, ModelError
from aotc.frontend import load_model, read_graph
from aotc.ir.dtypes import is_float
from aotc.ir.expr import Const
from aotc.ir.program import Compute

F, I64 = np.float32, np.int64


def node(op, inputs, *outputs, **attrs):
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


def shape_computing(program):
    """Integer Computes that depend on nothing but symbols and constants."""
    fixed, found = set(program.consts), []
    for s in program.steps:
        if isinstance(s, Compute) and set(s.inputs) <= fixed:
            fixed.update(s.outs)
            if not is_float(program.dtype(s.out)):
                found.append(s.out)
    return found


def attention_like():
    """x[batch, seq, 12] -> heads and back by shapes read from x."""
    consts = {"zero": np.array(0), "one": np.array(1), "heads": np.array([3]),
              "minus": np.array([-1]), "first": np.array([0])}
    nodes = [node("Shape", ["x"], "s"), node("Gather", ["s", "zero"], "b0"),
             node("Gather", ["s", "one"], "n0"), node("Unsqueeze", ["b0", "first"], "b"),
             node("Unsqueeze", ["n0", "first"], "n"),
             node("Concat", ["b", "n", "heads", "minus"], "split_shape", axis=0),
             node("Reshape", ["x", "split_shape"], "split"),
             node("Transpose", ["split"], "t", perm=[0, 2, 1, 3]),
             node("Transpose", ["t"], "u", perm=[0, 2, 1, 3]),
             node("Concat", ["b", "n", "minus"], "join_shape", axis=0),
             node("Reshape", ["u", "join_shape"], "y")]
    return model_of(nodes, {"x": (F, ("batch", "seq", 12))}, ["y"], consts)


def test_shapes_read_from_inputs_leave_only_moves():
    program = program_of(attention_like())
    assert not program.checks and not shape_computing(program)
    assert len(program.steps) == 4
    for shape in ((1, 1, 12), (3, 7, 12)):
        x = rand(*shape)
        np.testing.assert_array_equal(run(program, {"x": x})[0], x)


def test_default_ranges_and_where_they_come_from():
    graph = read_graph(load_model(attention_like()))
    assert [(d.onnx, d.sym.lo, d.sym.hi, d.source) for d in graph.dims] == [
        ("batch", 1, None, "default"), ("seq", 1, None, "default")]
    assert [d.sym.reach for d in graph.dims] == [64, 2048]  # what decisions reckon with
    graph = read_graph(load_model(attention_like()), dims={"batch": 4, "seq": (2, 99)})
    assert [(d.onnx, d.sym.lo, d.sym.hi, d.source) for d in graph.dims] == [
        ("seq", 2, 99, "given")]
    assert graph.inputs[0].shape[0] == Const(4)


def table_model(rows=512):
    """Position embedding: a table of ``rows`` rows read by a range over seq."""
    consts = {"table": rand(rows, 4), "zero": np.array(0), "one": np.array(1)}
    nodes = [node("Shape", ["x"], "s"), node("Gather", ["s", "one"], "n"),
             node("Range", ["zero", "n", "one"], "positions"),
             node("Gather", ["table", "positions"], "p"), node("Add", ["x", "p"], "y")]
    return model_of(nodes, {"x": (F, ("batch", "seq", 4))}, ["y"], consts)


def test_a_table_limits_the_symbol_that_indexes_it():
    graph = read_graph(load_model(table_model()))
    seq = graph.dims[1]
    assert (seq.sym.hi, seq.source) == (512, "derived") and "table" in seq.why
    program = program_of(table_model())
    assert not program.checks and "checked" not in str(program)
    compare(table_model(), {"x": rand(2, 9, 4)})


def test_a_given_range_beyond_the_table_is_refused():
    with pytest.raises(ModelError, match=r"'seq' is given as 1\.\.1024.*at most 512.*table"):
        program_of(table_model(), dims={"seq": (1, 1024)})
    with pytest.raises(ModelError, match="table"):
        program_of(table_model(), dims={"seq": 513})


def test_a_clamped_slice_limits_its_end():
    consts = {"ids": np.arange(512)[None], "table": rand(512, 4), "zero": np.array([0]),
              "one": np.array([1]), "two": np.array([2])}
    nodes = [node("Shape", ["x"], "n", start=1, end=2),
             node("Slice", ["ids", "zero", "n", "one"], "part"),
             node("Gather", ["table", "part"], "p"), node("Add", ["x", "p"], "y")]
    model = model_of(nodes, {"x": (F, ("b", "seq", 4))}, ["y"], consts)
    program = program_of(model)
    assert program.syms[1].hi == 512 and not program.checks and not shape_computing(program)
    compare(model, {"x": rand(2, 5, 4)})


def test_unnamed_extents_that_must_be_equal_become_one_symbol():
    model = model_of([node("Concat", ["x", "y"], "z", axis=1)],
                     {"x": (F, (None, 3)), "y": (F, (None, 4))}, ["z"])
    program = program_of(model)
    assert len(program.syms) == 1 and not program.checks
    compare(model, {"x": rand(5, 3), "y": rand(5, 4)})


def test_named_extents_that_must_be_equal_are_checked_at_entry():
    model = model_of([node("Add", ["x", "y"], "z")], {"x": (F, ("p",)), "y": (F, ("q",))}, ["z"])
    program = program_of(model)
    assert len(program.checks) == 1
    np.testing.assert_array_equal(run(program, {"x": rand(5), "y": rand(5)})[0], 2 * rand(5))
    with pytest.raises(FaultError, match="broadcast"):
        run(program, {"x": rand(5), "y": rand(4)})


def test_divisibility_that_cannot_be_proved_is_checked():
    model = model_of([node("Reshape", ["x", "shape"], "y")], {"x": (F, ("rows", 3))}, ["y"],
                     {"shape": np.array([-1, 6])})
    program = program_of(model)
    assert len(program.checks) == 1 and "Reshape" in program.checks[0].why
    np.testing.assert_array_equal(run(program, {"x": rand(4, 3)})[0], rand(4, 3).reshape(2, 6))
    with pytest.raises(FaultError):
        run(program, {"x": rand(3, 3)})


def test_a_window_narrows_the_extent_from_below():
    model = model_of([node("Conv", ["x", "w"], "y")], {"x": (F, (1, 2, "height", 9))}, ["y"],
                     {"w": rand(3, 2, 5, 5)})
    program = program_of(model)
    assert program.syms[0].lo == 5 and not program.checks
    compare(model, {"x": rand(1, 2, 7, 9)})


def test_an_extent_that_a_reshape_fixes_is_derived():
    model = model_of([node("Reshape", ["x", "shape"], "y")], {"x": (F, ("batch", 6))}, ["y"],
                     {"shape": np.array([3, 2])})
    graph = read_graph(load_model(model))
    assert (graph.dims[0].sym.lo, graph.dims[0].sym.hi) == (1, 1)
    with pytest.raises(ModelError, match="allows only 1: Reshape keeps"):
        program_of(model, dims={"batch": (1, 4)})
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([300, 2]), "shape"))
    with pytest.raises(ModelError, match=r"for any batch in 1\.\.64: state other extents"):
        program_of(model, dims={"batch": (1, 64)})
    assert program_of(model).syms[0].hi == 100
    assert program_of(model, dims={"batch": 100})


def test_a_chain_of_pools_narrows_the_extent_from_below():
    nodes = [node("MaxPool", [a], b, kernel_shape=[3], strides=[2])
             for a, b in (("x", "a"), ("a", "b"), ("b", "y"))]
    model = model_of(nodes, {"x": (F, (1, 1, "length"))}, ["y"])
    program = program_of(model)
    assert program.syms[0].lo == 15 and not program.checks
    compare(model, {"x": rand(1, 1, 15)})
    # a range of the user's own stands, and what it leaves open is checked at entry
    assert program_of(model, dims={"length": (5, 99)}).checks


def test_halving_and_doubling_asks_for_even_extents():
    nodes = [node("MaxPool", ["x"], "a", kernel_shape=[2], strides=[2]),
             node("Resize", ["a", "", "twice"], "b", mode="nearest"),
             node("Concat", ["x", "b"], "y", axis=1)]
    model = model_of(nodes, {"x": (F, (1, 2, "length"))}, ["y"],
                     {"twice": np.array([1, 1, 2], F)})
    program = program_of(model)
    assert len(program.checks) == 1
    assert run(program, {"x": rand(1, 2, 8)})[0].shape == (1, 4, 8)
    with pytest.raises(FaultError):
        run(program, {"x": rand(1, 2, 7)})


def test_scaled_sizes_computed_in_floats_stay_exact():
    consts = {"scale": np.array([1.5], F), "two": np.array([2]), "c": np.array([1, 1])}
    nodes = [node("Shape", ["x"], "hw", start=2), node("Cast", ["hw"], "f", to=1),
             node("Mul", ["f", "scale"], "g"), node("Floor", ["g"], "h"),
             node("Cast", ["h"], "i", to=7), node("Concat", ["c", "i"], "shape", axis=0),
             node("ConstantOfShape", ["shape"], "y")]
    model = model_of(nodes, {"x": (F, (1, 1, "h", "w"))}, ["y"], consts)
    program = program_of(model)
    assert not shape_computing(program)
    for h, w in ((2, 3), (5, 4), (7, 7)):
        assert run(program, {"x": rand(1, 1, h, w)})[0].shape == (1, 1, h * 3 // 2, w * 3 // 2)


def test_upsampling_to_a_computed_size_is_integer_arithmetic():
    consts = {"twice": np.array([2, 2]), "nc": np.array([1, 3])}
    nodes = [node("Shape", ["x"], "hw", start=2), node("Mul", ["hw", "twice"], "more"),
             node("Concat", ["nc", "more"], "sizes", axis=0),
             node("Resize", ["x", "", "", "sizes"], "y", mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor")]
    model = model_of(nodes, {"x": (F, (1, 3, "h", "w"))}, ["y"], consts)
    assert not shape_computing(program_of(model))
    compare(model, {"x": rand(1, 3, 3, 5)}, ("onnxruntime",))


@pytest.mark.parametrize("ratio", (2, 3))
def test_linear_upsampling_of_a_symbolic_image(ratio):
    model = model_of([node("Resize", ["x", "", "scales"], "y", mode="linear")],
                     {"x": (F, (1, 2, "h", "w"))}, ["y"],
                     {"scales": np.array([1, 1, ratio, ratio], F)})
    compare(model, {"x": rand(1, 2, 4, 5)})


def test_dimension_arithmetic_refers_to_names_that_stand_alone():
    model = model_of([node("Concat", ["x", "y"], "z", axis=0)],
                     {"x": (F, ("past",)), "y": (F, ("past + 1",))}, ["z"])
    program = program_of(model)
    assert [s.name for s in program.syms] == ["past"]
    assert run(program, {"x": rand(3), "y": rand(4)})[0].shape == (7,)


def test_causal_mask_from_ranges_is_a_comparison_of_indices():
    consts = {"zero": np.array(0), "one": np.array(1), "a0": np.array([0]), "a1": np.array([1]),
              "low": np.array(-1e9, F), "nought": np.array(0, F)}
    nodes = [node("Shape", ["x"], "s"), node("Gather", ["s", "zero"], "n"),
             node("Range", ["zero", "n", "one"], "r"), node("Unsqueeze", ["r", "a0"], "k"),
             node("Unsqueeze", ["r", "a1"], "q"), node("LessOrEqual", ["k", "q"], "seen"),
             node("Where", ["seen", "nought", "low"], "mask"), node("Add", ["x", "mask"], "y")]
    model = model_of(nodes, {"x": (F, ("n", "n"))}, ["y"], consts)
    program = program_of(model)
    assert str(program.steps[0]).endswith("= where(i1 <= i0, 0.0, -1000000000.0)")
    compare(model, {"x": rand(4, 4)})


@pytest.mark.parametrize("name", (
    "bert_small_dyn", pytest.param("gpt2_dyn", marks=pytest.mark.zoo), "dense_dynamic"))
def test_dynamic_models_compute_no_shapes_at_run_time(zoo_model, name):
    program = program_of(load_model(zoo_model(name)))
    assert not shape_computing(program) and not program.checks


@pytest.mark.parametrize("name,dims", (("bert_small_dyn", {"batch": 2, "seq": 5}),
                                       ("dense_dynamic", {"M": 3})))
def test_dynamic_models_match_onnxruntime(zoo_model, zoo_inputs, name, dims):
    compare(load_model(zoo_model(name)), zoo_inputs(name, 0, dims), ("onnxruntime",), rtol=1e-3)
