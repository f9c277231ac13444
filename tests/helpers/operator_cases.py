"""Every operator as small Programs with inputs and expected outputs, to be run as compiled C.

Three sources: the ONNX standard's node cases, the tables of nodes that the frontend's tests use
(each also in another dtype), and elementwise operators in every dtype the standard allows, over
shapes that broadcast, on numbers with all the special values in them.
"""

import itertools
import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import onnx
from frontend_cases import EXECUTORS, TensorProto, helper, model_of, one_node, program_of
from ml_nodes import ML
from operator_tables import NUMBERS, NodeCase, node_cases
from standard_cases import WRONG, array_of, cases, convert

from aotc.errors import UnsupportedError
from aotc.frontend.read.read_types import dtype_name
from aotc.ir.dtypes import DTYPES
from aotc.ir.library import HOSTED
from aotc.passes.fold import fold_constants
from aotc.passes.inline import inline_moves

# operators in every dtype; one input, or two of the same type
UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu
HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu
Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu""".split()
BINARY = """Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less
LessOrEqual Max Mean Min Mod Mul Or PRelu Pow Sub Sum Xor""".split()
OPSET = 24  # where Swish appears
SHAPES = ((37,), (3, 5, 7), (), (2, 1, 3, 1, 5), (0, 4), (1,))
PAIRS = (((3, 1, 7), (4, 1)), ((33,), (33,)), ((2, 1, 3, 1, 5), (1, 4, 1, 2, 1)), ((5,), ()),
         ((), ()), ((1,), (2, 3)))
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1.0, -1.0, 1e30,
           -1e30, 1e-30, 3e9, -3e9, 100.0, -100.0)
PORTABLE, WIDEST, BOTH = "portable", "widest", "both"  # which targets run a case
# what numpy makes of these, and so the reference evaluator, is the machine's business
UNDEFINED = ("Mod", "Div", "Pow", "BitShift")


@dataclass(frozen=True)
class OperatorCase:
    """``wanted``: outputs by somebody else, None where nobody runs it.  ``on``: PORTABLE or WIDEST
    where the C of the other target differs in nothing that the case is about, else BOTH."""

    name: str
    op: str
    program: object
    feeds: dict
    wanted: object = None
    rtol: float = 1e-4
    atol: float = 1e-5
    on: str = BOTH


def operator_case(name, op, program, feeds, wanted=None, **fields):
    """An OperatorCase over the Program as the scheduler sees it, feeds by buffer."""
    program = fold_constants(inline_moves(fold_constants(program)))
    feeds = {b: np.asarray(feeds[program.buffers[b].onnx]) for b in program.inputs}
    return OperatorCase(name, op, program, feeds, wanted, **fields)


# ---------------------------------------------------------------- the standard's cases

def standard_cases(wanted, portable=0, library=HOSTED):
    """Those of the operators that ``wanted(operator)`` is true for, within aotc's limits
    (test_frontend_conformance.py asserts what the limits are): for the widest target, the first
    ``portable`` of an operator for both; ``library``: kernels that the target has."""
    for op, group in cases().items():
        if not wanted(op):
            continue
        made = 0
        for c in group:
            inputs, outputs = (list(map(array_of, arrays)) for arrays in c.data_sets[0])
            try:
                program = None if c.name in WRONG else convert(c.model, inputs, library)
            except UnsupportedError:
                continue
            if program is not None:
                feeds = {i.name: a for i, a in zip(c.model.graph.input, inputs)}
                yield operator_case(c.name, op, program, feeds, outputs,
                                    rtol=max(c.rtol, 1e-3), atol=max(c.atol, 1e-5),
                                    on=BOTH if made < portable else WIDEST)
                made += 1


# ---------------------------------------------------------------- tables, also in another dtype

def table_cases(further=1, dtypes=("float64", "int32", "uint8", "int64", "uint16", "bool", "int8",
                                   "uint64")):
    """Every node of the tables as it is, those of com.microsoft on the targets by turns, and every
    ``further``-th in one other dtype that the standard allows there: the next of ``dtypes`` for
    the next row, on the targets by turns."""
    turn = itertools.cycle(range(len(dtypes)))
    for number, row in enumerate(node_cases()):
        own = bool(row.attrs.get("domain"))
        yield from _row(row, row.executors, (PORTABLE, WIDEST)[number % 2] if own else BOTH)
        if number % further:
            continue
        rest = [dtypes[(k + s) % len(dtypes)] for k in (next(turn),) for s in range(len(dtypes))]
        for dtype in rest:
            other = _retyped(row, dtype)
            where = (PORTABLE, WIDEST)[number % 2]
            found = [] if other is None else list(_row(other, (), where))
            if found:
                yield from found
                break


def _row(row, executors, on=BOTH):
    model, feeds = row.model()
    try:
        program = program_of(model)
    except UnsupportedError:
        return
    wanted = EXECUTORS[executors[0]](model, feeds) if executors else None
    yield operator_case(row.name, row.op, program, feeds, wanted, atol=row.atol, on=on)


def _retyped(row, dtype):
    """The row with its f32 arrays in another dtype; None if the standard forbids that, or does not
    know the operator."""
    if row.attrs.get("domain"):
        return None
    rng = np.random.default_rng(3)
    arrays = [a if a is None or np.asarray(a).dtype != np.float32 else
              np.asarray(a).astype(dtype) if dtype == "float64" else
              numbers(dtype, np.shape(a), rng, special=False) for a in row.arrays]
    if all(a is b for a, b in zip(arrays, row.arrays)):
        return None
    other = replace(row, name=f"{row.name}_{dtype}", arrays=arrays)
    try:
        onnx.shape_inference.infer_shapes(other.model()[0], check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return None
    return other


# ---------------------------------------------------------------- elementwise, all dtypes

def numbers(dtype, shape, rng, special=True):
    """Random numbers of a dtype; ``special``: with the ends of its range and NaN strewn in."""
    size = math.prod(shape)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.startswith("float"):
        x = rng.standard_normal(size) * 3
        return _strewn(x, SPECIAL, rng, special).reshape(shape).astype(dtype)
    info = np.iinfo(dtype)
    x = rng.integers(max(info.min, -20), 20, size).astype(dtype)
    ends = np.array([info.min, info.max, 0, 1, info.max // 2 + 1], dtype)
    return _strewn(x, ends, rng, special).reshape(shape)


def _strewn(x, values, rng, special):
    if special and x.size > 4:
        where = rng.random(x.size) < 0.4
        x[where] = rng.choice(values, where.sum())
    return x


def elementwise_cases(shapes=2, further=1):
    """``shapes`` of the shapes (in turn) for every operator and dtype, those after the first for
    every ``further``-th only.  The first are for the
    widest target (test_operators.py has the portable one's under the sanitizers), the others for
    the portable one, those of floats for both: they are vectors on the widest."""
    rng, turn = np.random.default_rng(7), itertools.count()
    pairs = [(name, d) for name in UNARY + BINARY for d in allowed(name)]
    for number, (op, dtype) in enumerate(pairs):
        for k in range(1 if number % further else shapes):
            table = PAIRS if op in BINARY else SHAPES
            shape = table[(next(turn) if k else 0) % len(table)]
            arrays = [numbers(dtype, s, rng) for s in (shape if op in BINARY else (shape,))]
            name = f"{op}_{dtype}_" + "_".join("x".join(map(str, a.shape)) for a in arrays)
            row = NodeCase(name, op, arrays, _attributes(op, dtype, k), opset=OPSET)
            yield from _elementwise(row, WIDEST if k == 0 else BOTH if dtype.startswith("float")
                                    else PORTABLE)


def _elementwise(row, on):
    model, feeds = row.model()
    try:
        program = program_of(model)
    except UnsupportedError:
        return
    wanted = None
    half = row.arrays[0].dtype == np.float16
    # the reference evaluator fails on some scalars (of Softsign) and on a Mean that broadcasts; it
    # multiplies slopes by zero, which where they overflowed to infinity is no number
    if row.arrays[0].ndim and row.op != "Mean" and (row.op != "PRelu" or not half) and (
            row.op not in UNDEFINED or row.arrays[0].dtype.kind == "f"):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = EXECUTORS["reference"](model, feeds)
    # the reference evaluator rounds to half precision at every step
    tolerance = dict(rtol=5e-3, atol=1e-3) if half else {}
    yield operator_case(row.name, row.op, program, feeds, wanted, on=on, **tolerance)


def _attributes(op, dtype, k):
    if op == "BitShift":
        return dict(direction=("LEFT", "RIGHT")[k % 2])
    return dict(fmod=1) if op == "Mod" and (dtype.startswith("float") or k % 2) else {}


def allowed(op):
    """numpy names of the dtypes that the standard allows for an operator's first input."""
    schema = onnx.defs.get_schema(op, OPSET, "")
    texts = next(c.allowed_type_strs for c in schema.type_constraints
                 if c.type_param_str == schema.inputs[0].type_str)
    found, known = [], set(onnx.TensorProto.DataType.keys())  # itself it cannot be asked
    for text in texts:
        key = text.removeprefix("tensor(").removesuffix(")").upper()
        if text.startswith("tensor(") and key in known:
            name = dtype_name(onnx.TensorProto.DataType.Value(key))
            found += [str(DTYPES[name].numpy)] if name else []
    return found


def cast_cases():
    """Every conversion, of all values: what does not fit follows the rule of docs/ir.md.  For the
    widest target: the portable one has them under the sanitizers."""
    rng = np.random.default_rng(9)
    names = dict.fromkeys(NUMBERS + ("uint64", "uint32", "uint16"))
    for source, to in itertools.product(names, names):
        x = numbers(source, (64,), rng)
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(to))
        model, feeds = one_node("Cast", [x], dict(to=elem))
        yield operator_case(f"cast_{source}_{to}", "Cast", program_of(model), feeds, on=WIDEST)


def sequence_cases():
    """What goes through a list of tensors: each operator on sequences between two others."""
    split = helper.make_node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0)
    make = helper.make_node("SequenceConstruct", ["x", "x"], ["s"])
    empty = helper.make_node("SequenceEmpty", [], ["e"])
    join = helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1)
    chains = {
        "SplitToSequence": [split, helper.make_node("SequenceAt", ["s", "one"], ["y"])],
        "SequenceAt": [make, helper.make_node("SequenceAt", ["s", "one"], ["y"])],
        "SequenceConstruct": [helper.make_node("SequenceConstruct", ["x", "x"], ["t"]), join],
        "SequenceEmpty": [empty, helper.make_node("SequenceInsert", ["e", "x"], ["t"]), join],
        "SequenceInsert": [make, helper.make_node("SequenceInsert", ["s", "x", "one"], ["t"]),
                           join],
        "SequenceErase": [split, helper.make_node("SequenceErase", ["s", "one"], ["t"]), join],
        "SequenceLength": [split, helper.make_node("SequenceLength", ["s"], ["y"])],
        "ConcatFromSequence": [helper.make_node("Identity", ["x"], ["z"]), helper.make_node(
            "SplitToSequence", ["z"], ["t"]), join]}
    x = np.random.default_rng(13).standard_normal((3, 5)).astype(np.float32)
    for op, nodes in chains.items():
        model = model_of(nodes, {"x": (np.float32, x.shape)}, ["y"], {"one": np.array(1)})
        yield operator_case(op, op, program_of(model), {"x": x},
                            EXECUTORS["onnxruntime"](model, {"x": x}))


def map_cases():
    """A map of scores, which is their matrix, and strings, which are numbers."""
    x = np.abs(np.random.default_rng(14).standard_normal((5, 2))).astype(np.float32)
    node = helper.make_node("ZipMap", ["x"], ["y"], classlabels_int64s=[4, 9], domain=ML)
    model = model_of([node], {"x": (np.float32, x.shape)}, ["y"], domains=[ML])
    yield operator_case("zip_map", "ZipMap", program_of(model), {"x": x}, [x])
    node = helper.make_node("CategoryMapper", ["x"], ["y"], cats_strings=["a", "b", "c"],
                            cats_int64s=[7, 5, 6], domain=ML)
    model = model_of([node], {"x": (np.int64, (4,))}, ["y"], domains=[ML])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    yield operator_case("category_mapper", "CategoryMapper", program_of(model),
                        {"x": np.array([1, -1, 2, 0])}, [np.array([5, -1, 6, 7])])
    for op, key, attrs, want in (
            ("DictVectorizer", 7, dict(int64_vocabulary=[5, 2]), x),
            ("CastMap", 7, dict(map_form="SPARSE", max_map=2, cast_to="TO_INT64"),
             x.astype(np.int64))):
        node = helper.make_node(op, ["x"], ["y"], domain=ML, **attrs)
        model = model_of([node], {"x": (np.float32, None)}, ["y"], domains=[ML])
        model.graph.input[0].type.ClearField("tensor_type")
        kind = model.graph.input[0].type.map_type
        kind.key_type, kind.value_type.tensor_type.elem_type = key, TensorProto.FLOAT
        yield operator_case(op.lower(), op, program_of(model, {"x_rows": 5}), {"x": x}, [want])


# ---------------------------------------------------------------- dtypes that change inside a group

_PRODUCERS = {
    "matmul": ("MatMul", ["x", "w"], {}), "conv": ("Conv", ["image", "taps"], dict(pads=[1] * 4)),
    "sum": ("ReduceSum", ["x"], {}), "softmax": ("Softmax", ["x"], {}),
    "map": ("Exp", ["x"], {}), "max": ("MaxPool", ["image"], dict(kernel_shape=[2, 2]))}
_CONSUMERS = {f"to_{t}": [("Cast", ["p"], dict(to=helper.np_dtype_to_tensor_dtype(np.dtype(t))))]
              for t in ("float64", "int32", "int8", "uint8", "bool", "int64")} | {
    "compare": [("Greater", ["p", "one"], {})],
    "choose": [("Greater", ["p", "one"], {}), ("Where", ["p1", "one", "p"], {})],
    "there_and_back": [("Cast", ["p"], dict(to=TensorProto.INT32)),
                       ("Cast", ["p1"], dict(to=TensorProto.FLOAT)), ("Add", ["p", "p2"], {})],
    "best": [("ArgMax", ["p"], dict(axis=-1)), ("Cast", ["p1"], dict(to=TensorProto.FLOAT)),
             ("Mul", ["p", "p2"], {})]}


def mixed_cases():
    """Values that change their dtype behind a contraction, a window, a reduction or a map: what
    the last node gives is an output, and so is the first node's result in every other case."""
    rng = np.random.default_rng(11)
    data = {"x": (5, 37), "w": (37, 19), "image": (1, 3, 9, 20), "taps": (4, 3, 3, 3)}
    data = {n: rng.standard_normal(s).astype(np.float32) for n, s in data.items()}
    for (a, (op, inputs, attrs)), (k, (b, chain)) in itertools.product(
            _PRODUCERS.items(), enumerate(_CONSUMERS.items())):
        nodes = [helper.make_node(op, inputs, ["p"], **attrs)]
        nodes += [helper.make_node(o, i, [f"p{j}"], **at) for j, (o, i, at) in enumerate(chain, 1)]
        outputs = [f"p{len(chain)}"] + ["p"] * (k % 2)
        fixed = {n: data[n] for n in inputs[1:]} | {"one": np.float32(1)}
        model = model_of(nodes, {inputs[0]: (np.float32, data[inputs[0]].shape)}, outputs, fixed)
        feeds = {inputs[0]: data[inputs[0]]}
        yield operator_case(f"{a}_{b}", chain[-1][0], program_of(model), feeds,
                            on=BOTH if k % 2 else WIDEST)


def own_cases(further=1):
    """Every case but the standard's, with names that differ; what repeats an operator in another
    shape or dtype for every ``further``-th."""
    return [*table_cases(further), *elementwise_cases(2, further), *cast_cases(), *mixed_cases(),
            *sequence_cases(), *map_cases()]
