"""What depends on nothing but constants and extents is known while compiling, however a model
computes it: in floats, in narrow integers, by any operator."""

import warnings

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, by_reference, model_of, program_of, rand, run, same
from onnx import TensorProto, helper, numpy_helper

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.building.rational import condition, to_int
from aotc.ir.expr import Binary, Cast, Const, Sym, Unary, compare
from aotc.oracle.eval_expr import EvalScope, index_value

F, I = np.float32, np.int64
node = helper.make_node
KINDS = {"f16": np.float16, "f32": F, "f64": np.float64, "i32": np.int32, "i64": I}


def const(name, value, dtype=None):
    return node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value, dtype)))


def cast(x, y, dtype):
    return node("Cast", [x], [y], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# the extents of x [b, n, 4]: sh, and n alone as n1 [1] and n []
EXTENTS = [node("Shape", ["x"], ["sh"]), const("one", 1), const("a0", [0], I), const("zero", 0),
           node("Gather", ["sh", "one"], ["n"]), node("Unsqueeze", ["n", "a0"], ["n1"])]
SIZED = [cast("r", "size", I), node("ConstantOfShape", ["size"], ["y"])]  # r elements


def check(nodes, points=((1, 7), (3, 16), (2, 1)), dims=None, opset=18, oracle=by_onnxruntime):
    """The model on x [b, n, 4] at some extents; its Program must ask for no declared shape."""
    model = model_of([*EXTENTS, *nodes], {"x": (F, ("b", "n", 4))}, ["y"], opset=opset)
    program = program_of(model, {"b": (1, 4), "n": (1, 40)} if dims is None else dims)
    for b, n in points:
        feeds = {"x": rand(b, n, 4)}
        same(run(program, feeds), oracle(model, feeds))
    return program


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("scale", [0.5, 1.5, 0.1, 1 / 3])
@pytest.mark.parametrize("whole", ["Floor", "Ceil", "Round", "Identity"])
def test_integer_parts_of_scaled_extents(whole, scale, kind):
    for op in ("Mul", "Div"):
        check([cast("n1", "f", KINDS[kind]), const("s", scale, KINDS[kind]),
               node(op, ["f", "s"], ["m"]), node(whole, ["m"], ["r"]), *SIZED],
              points=[(1, n) for n in (1, 5, 12, 33, 39)])


def test_halves_round_to_even():
    check([cast("n1", "f", F), const("s", 0.5, F), node("Mul", ["f", "s"], ["m"]),
           node("Round", ["m"], ["r"]), *SIZED], points=[(1, n) for n in range(1, 10)])


def test_half_precision_has_its_own_integers():
    """2049 is no number of half precision: its extents go where its rounding says."""
    nodes = [cast("n1", "f", np.float16), const("s", 0.1, np.float16),
             node("Mul", ["f", "s"], ["m"]), node("Ceil", ["m"], ["r"]), *SIZED]
    check(nodes, oracle=by_reference)
    with pytest.raises(UnsupportedError, match="'ConstantOfShape_y'.*rounds where integers do not"):
        check(nodes, dims={"n": (1, 9000)})


SQUARES = {
    "n * n": [node("Mul", ["f", "f"], ["r"])],
    "sqrt(b * n)": [cast("b1", "g", F), node("Mul", ["f", "g"], ["p"]), node("Sqrt", ["p"], ["r"])],
    "sqrt(b^2 + n^2)": [cast("b1", "g", F), const("s", 2, F), node("Pow", ["f", "s"], ["p"]),
                        node("Pow", ["g", "s"], ["q"]), node("Add", ["p", "q"], ["t"]),
                        node("Sqrt", ["t"], ["r"])],
}


@pytest.mark.parametrize("what", SQUARES)
def test_numbers_may_grow_too_large_for_floats(what):
    """Any extents: those whose products are no whole numbers of the dtype any more are checked."""
    first = [node("Gather", ["sh", "a0"], ["b1"]), cast("n1", "f", F)]
    program = check([*first, *SQUARES[what], *SIZED], dims={"b": (1, 1 << 20), "n": (1, 1 << 20)})
    found = [Cast("i64", c.cond) for c in program.checks if "stays exact: " in c.why]
    for extents, fit in (((1, 1 << 10), True), ((1 << 10, 7), True), ((4099, 4099), False)):
        held = [index_value(c, dict(zip(("b", "n"), extents))) for c in found]
        assert held and all(held) == fit, held


STEPS = {
    "Pow 2": lambda k: [const("s", [2], k), node("Pow", ["f", "s"], ["r"])],
    "Min": lambda k: [const("s", [9], k), node("Min", ["f", "s"], ["r"])],
    "Clip": lambda k: [const("lo", 3, k), const("hi", 9, k),
                       node("Clip", ["f", "lo", "hi"], ["r"])],
    "Mod": lambda k: [const("s", [4], k), node("Mod", ["f", "s"], ["r"], fmod=1)],
    "Abs, Sign": lambda k: [const("s", [4], k), node("Sub", ["f", "s"], ["d"]),
                            node("Abs", ["d"], ["a"]), node("Sign", ["d"], ["g"]),
                            node("Sub", ["a", "g"], ["r0"]), node("Abs", ["r0"], ["r"])],
    "Where": lambda k: [const("s", [9], k), node("Less", ["f", "s"], ["l"]),
                        node("Not", ["l"], ["c"]), node("Where", ["c", "f", "s"], ["r"])],
    "ReduceProd": lambda k: [node("ReduceProd", ["all"], ["r"], keepdims=1)],
    "ReduceMean": lambda k: [node("ReduceMean", ["all"], ["r"], keepdims=1)],
    "ReduceMax": lambda k: [node("ReduceMax", ["all"], ["r"], keepdims=1)],
    "ArgMax": lambda k: [node("ArgMax", ["all"], ["r"], keepdims=1)],
    "TopK": lambda k: [const("k", [1], I), node("TopK", ["all", "k"], ["r", "at"])],
    "CumSum": lambda k: [node("CumSum", ["all", "zero"], ["r"])],
    "Einsum": lambda k: [node("Einsum", ["all", "f"], ["e"], equation="i,j->j"),
                         node("Identity", ["e"], ["r"])],
    "Tile": lambda k: [const("k", [2], I), node("Tile", ["f", "k"], ["r"])],
    "Pad": lambda k: [const("p", [1, 1], I), const("v", 3, k), node("Pad", ["f", "p", "v"], ["r"])],
    "Trilu": lambda k: [const("q", [1, 3], I), node("Reshape", ["all", "q"], ["m"]),
                        node("Trilu", ["m"], ["t"], upper=0),
                        node("ReduceSum", ["t"], ["r0"], keepdims=0),
                        node("Unsqueeze", ["r0", "a0"], ["r"])],
    "ScatterElements": lambda k: [const("i", [1], I), const("t", [2, 3, 4], k),
                                  node("ScatterElements", ["t", "i", "f"], ["r"])],
    "Range": lambda k: [const("from", 0, k), const("by", 2, k), cast("n", "to", k),
                        node("Range", ["from", "to", "by"], ["q"]), node("Size", ["q"], ["c"]),
                        node("Unsqueeze", ["c", "a0"], ["r"])],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", STEPS)
def test_operators_on_extents(what, kind):
    nodes = [cast("n1", "f", KINDS[kind]), cast("sh", "all", KINDS[kind]),
             *STEPS[what](KINDS[kind]), *SIZED]
    if kind == "f16":  # few kernels of ONNX Runtime take it: the same in f32
        twin = [cast("n1", "f", F), cast("sh", "all", F), *STEPS[what](F), *SIZED]
        model = model_of([*EXTENTS, *twin], {"x": (F, ("b", "n", 4))}, ["y"])
        check(nodes, oracle=lambda _, feeds: by_onnxruntime(model, feeds))
    else:
        check(nodes)


def test_the_side_of_a_patch_grid():
    grid = [cast("n", "f", F), const("half", 0.5, F), node("Pow", ["f", "half"], ["p"]),
            cast("p", "side", I), node("Unsqueeze", ["side", "a0"], ["side1"]),
            const("rest", [-1], I), const("same", [0], I),
            node("Concat", ["same", "side1", "side1", "rest"], ["to"], axis=0),
            node("Reshape", ["x", "to"], ["y"])]
    check(grid, points=[(1, 1), (2, 4), (1, 36)])
    for op in ("Floor", "Ceil", "Round"):
        check([cast("n1", "f", F), node("Sqrt", ["f"], ["q"]), node(op, ["q"], ["r"]), *SIZED],
              points=[(1, n) for n in (1, 2, 3, 4, 6, 7, 35, 36, 37)])


def test_the_range_of_detector_heads():
    check([const("from", 0, F), const("by", 1, F), cast("n", "to", F),
           node("Range", ["from", "to", "by"], ["g"]), const("h", 0.5, F),
           node("Add", ["g", "h"], ["y"])])


def test_what_is_not_zero_of_constants_and_of_whole_extents():
    full = node("ConstantOfShape", ["n1"], ["o"], value=numpy_helper.from_array(np.ones(1, F)))
    check([full, node("NonZero", ["o"], ["y"])])
    check([node("ConstantOfShape", ["n1"], ["o"]), node("NonZero", ["o"], ["y"])])
    check([const("s", [1, 7, 4], I), node("Equal", ["sh", "s"], ["e"]),
           node("NonZero", ["e"], ["y"])])
    check([const("s", [1, 7, 4], I), node("Equal", ["sh", "s"], ["e"]),
           node("Compress", ["sh", "e"], ["y"], axis=0)])
    check([const("m", [[1, 0, 2], [0, 0, 3]], F), node("NonZero", ["m"], ["y"])])
    check([const("m", [1, 0, 1, 1], F), node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
           node("Compress", ["x", "c"], ["y"], axis=2)])
    check([const("m", [3, 1, 1, 2], F), node("Unique", ["m"], ["u"]), node("Size", ["u"], ["c"]),
           cast("c", "f", F), node("Mul", ["x", "f"], ["y"])])


def test_suppressed_boxes_that_are_constants():
    boxes = [[[0, 0, 1, 1], [0, 0, 1, .9], [2, 2, 3, 3]]]
    check([const("boxes", boxes, F), const("scores", [[[.5, .6, .7]]], F), const("most", 5, I),
           const("over", .5, F),
           node("NonMaxSuppression", ["boxes", "scores", "most", "over"], ["y"])])


def test_signals_with_constant_parameters():
    signal = [const("flat", [0, -1], I), node("Reshape", ["x", "flat"], ["s2"]),
              const("a2", [2], I), node("Unsqueeze", ["s2", "a2"], ["s3"]), const("step", 3, I)]
    window = [const("length", 8, I), node("HannWindow", ["length"], ["w"])]
    for given in (["s3", "step", "w"], ["s3", "step", "", "length"], ["s3", "step", "w", "length"]):
        check([*signal, *window, node("STFT", given, ["y"])], points=[(1, 7), (3, 16)],
              dims={"b": (1, 4), "n": (4, 40)})
    check([*signal, *window, node("STFT", ["s3", "step", "w"], ["y"], onesided=0)],
          points=[(1, 7), (2, 9)], dims={"b": (1, 4), "n": (4, 40)})
    check([const(k, v) for k, v in (("m", I(8)), ("rate", I(8000)), ("lo", F(0)), ("hi", F(3e3)))]
          + [node("MelWeightMatrix", ["m", "n", "rate", "lo", "hi"], ["y"])], [(1, 16), (2, 24)])
    check([node("BlackmanWindow", ["n"], ["y"])])


def test_a_real_signal_without_its_last_dimension():
    """Not of the standard, but written: [batch, time]."""
    nodes = [const("step", 3, I), const("w", np.hanning(8), F), node("STFT", ["x", "step", "w"],
                                                                     ["y"])]
    plain = model_of(nodes, {"x": (F, (2, "t"))}, ["y"])
    whole = model_of(nodes, {"x": (F, (2, "t", 1))}, ["y"])
    x = rand(2, 21)
    program = program_of(plain, {"t": (8, 40)})
    same(run(program, {"x": x}), by_reference(whole, {"x": x[..., None]}))
    assert "cos" not in str(program), "the matrix of the transform and its window are one constant"


def test_branches_and_loops_whose_course_extents_decide():
    def graph(name, nodes, out, inputs=()):
        infos = [helper.make_empty_tensor_value_info(n) for n in (*inputs, *out)]
        return helper.make_graph(nodes, name, infos[:len(inputs)], infos[len(inputs):])
    branches = {"then_branch": graph("t", [node("Identity", ["x"], ["t1"])], ["t1"]),
                "else_branch": graph("e", [const("few", [1], F), node("Identity", ["few"], ["e1"])],
                                     ["e1"])}
    check([cast("n", "f", F), const("h", 0.5, F), node("Greater", ["f", "h"], ["c"]),
           node("If", ["c"], ["y"], **branches)])
    body = graph("b", [node("Add", ["v", "v"], ["v2"]), node("Identity", ["c"], ["c2"])],
                 ["c2", "v2"], ["i", "c", "v"])
    for info, elem in zip((*body.input, *body.output), (7, 9, 1, 9, 1)):
        info.type.tensor_type.elem_type = elem
    body.input[0].type.tensor_type.shape.SetInParent()
    body.input[1].type.tensor_type.shape.SetInParent()
    check([const("k", 2.7, F), node("Floor", ["k"], ["kf"]), cast("kf", "ki", I),
           node("Loop", ["ki", "", "x"], ["y"], body=body)])


def test_no_warning_of_numpy():
    nodes = [const("f", [6e4, -1, 0], np.float16), const("s", [1e-4, 0, 0], np.float16),
             node("Div", ["f", "s"], ["d"]), node("Sqrt", ["f"], ["q"]), node("Log", ["s"], ["l"]),
             node("Sum", ["d", "q", "l"], ["t"]), node("IsNaN", ["t"], ["b"]), cast("b", "r", I),
             node("Add", ["r", "n1"], ["r2"]), node("ConstantOfShape", ["r2"], ["y"])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = model_of([*EXTENTS, *nodes], {"x": (F, ("b", "n", 4))}, ["y"])
        y, = run(program_of(model), {"x": rand(1, 2, 4)})
    assert y.shape == (2, 3, 3)


def test_extents_are_not_called_data():
    """What is refused although nothing depends on data says so."""
    sine = [cast("n1", "f", F), node("Sin", ["f"], ["l"]), node("Ceil", ["l"], ["r"]), *SIZED]
    count = [const("far", 1 << 40), node("Mod", ["n", "far"], ["k"]), node("Range", [
        "zero", "k", "one"], ["q"]), node("TopK", ["q", "n1"], ["v", "at"]),
             node("ReduceSum", ["at"], ["r"], keepdims=1), *SIZED]
    for nodes, dims in (sine, {}), (count, None):
        with pytest.raises(UnsupportedError, match="pin the dimensions that it") as caught:
            check(nodes, dims=dims)
        assert "data" not in str(caught.value)


def test_parameters_that_were_quantised():
    """8-bit constants, and an extent with arithmetic in 32 bits on the way to floats."""
    check([const("t", [1.4, 2.2], F), const("s", 0.5, F), const("z", 3, np.uint8),
           node("QuantizeLinear", ["t", "s", "z"], ["q"]),
           node("DequantizeLinear", ["q", "s", "z"], ["r"]), *SIZED])
    check([cast("n1", "i", np.int32), const("k", [3], np.int32), node("Add", ["i", "k"], ["j"]),
           cast("j", "f", F), const("s", 0.5, F), node("Mul", ["f", "s"], ["r"]), *SIZED])


N, M = Sym("n", 1, 3000), Sym("m", 1, 300)


def f32(x):
    return Cast("f32", x)


@pytest.mark.parametrize("e", [
    Unary("ceil", f32(N) / Const(3, "f32")), Unary("round", f32(N) * Const(0.25, "f32")),
    Unary("floor", f32(N - 1) / f32(M)), f32(N - 1500) / Const(7, "f32"),
    Unary("ceil", Unary("sqrt", f32(N))), Unary("sqrt", f32(N * N * 4)),
    Binary("min", f32(N), f32(M)) * Const(2.5, "f32"),
    Unary("floor", f32(N) / Const(32, "f32")) * Const(32, "f32"),
])
def test_integer_parts_are_those_of_the_floats(e):
    exact = to_int(e)
    assert exact.dtype == "i64"
    for n in (1, 2, 3, 5, 7, 1499, 1500, 1503, 2999, 3000):
        for m in (1, 2, 299, 300):
            values = {"n": n, "m": m}
            assert index_value(exact, values) == index_value(Cast("i64", e), values)


@pytest.mark.parametrize("scale", [0.3, 0.6, 1 / 7, 2.4])
@pytest.mark.parametrize("op", ["mul", "div"])
@pytest.mark.parametrize("whole", ["floor", "ceil", "round"])
def test_products_that_round_to_the_other_side(whole, op, scale):
    """5 * 0.6 is 3 in f32 but 25 * 0.6 is above 15: the nearest number to 0.6 is above it."""
    e = Unary(whole, Binary(op, f32(N), Const(float(F(scale)), "f32")))
    every = EvalScope({}, None, {"n": np.arange(1, 3001)})
    assert np.array_equal(every.value(to_int(e)), every.value(Cast("i64", e)))


def test_comparisons_of_floats_and_what_has_no_integer():
    assert condition(compare("lt", f32(N) / Const(2, "f32"), Const(1500.5, "f32"))) == Const(
        True, "bool")
    assert to_int(Unary("sin", f32(N)) * Const(1000, "f32")) is None
    assert to_int(Unary("ceil", Const(0.6, "f32") * Const(10, "f32"))) == Const(6)


@pytest.mark.parametrize("first, last", [(-1 << 63, 5), (-1 << 63, (1 << 63) - 1), (0, 1 << 62)])
def test_more_elements_than_64_bits_count_are_refused(first, last):
    nodes = [const("a", first), const("z", last), const("one", 1), node("Range", ["a", "z", "one"],
                                                                        ["y"])]
    with pytest.raises(ModelError, match="Range|output_y") as caught:
        program_of(model_of(nodes, {"x": (F, (2,))}, ["y"]))
    assert "more than 1 TB" in str(caught.value)
