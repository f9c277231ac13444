"""Random ONNX graphs, by seed.  Every node is run by the reference evaluator while the graph grows:
what it refuses is not taken, and its values give the shapes of what comes next.

    graph = random_graph(seed)      graph.model, graph.feeds, graph.wanted
"""

import random
import warnings
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ML, MS = "ai.onnx.ml", "com.microsoft"
NEWEST = 21  # opset of single nodes for ONNX Runtime, which is behind the standard
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 19, *(20,) * 6, 21, 22, 23, 24, 25, 26, 27, 28)
# over all dimensions from axis on before opset 13; the reference evaluator takes one at any opset
OF_ONE_AXIS = ("Softmax", "LogSoftmax", "Hardmax")
# operator: the opset that made these inputs of its attributes, and their names by position
OLDER = {"Squeeze": (13, {1: "axes"}), "Unsqueeze": (13, {1: "axes"}), "Split": (13, {1: "split"}),
         "ReduceSum": (13, {1: "axes"}), "Clip": (11, {1: "min", 2: "max"}),
         "Pad": (11, {1: "pads"}), "Slice": (10, {1: "starts", 2: "ends", 3: "axes"}),
         "TopK": (10, {1: "k"}), "Dropout": (12, {1: "ratio"}), "Upsample": (9, {1: "scales"})}
OLDER |= {f"Reduce{n}": (18, {1: "axes"}) for n in (
    "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")}
ELEMENTS = 4000  # of one tensor, at most
FLOATS = (np.float32, np.float64)
# how far executors may differ after an operator that rounds, as a share of the largest value
ROUNDING = {np.dtype(np.float16): 4e-3, np.dtype(np.float32): 2e-4, np.dtype(np.float64): 1e-8}
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
DTYPES = FLOATS + INTEGERS + (np.bool_, np.float16)
# types that are stored only, and how far executors may differ after a rounding to one
STORED = {np.dtype(getattr(ml_dtypes, n)): rounding for n, rounding in (
    ("bfloat16", 2e-2), ("float8_e4m3fn", 0.15), ("float8_e4m3fnuz", 0.15), ("float8_e5m2", 0.3),
    ("float8_e5m2fnuz", 0.3), ("float4_e2m1fn", 0.6), ("int4", 0), ("uint4", 0), ("int2", 0),
    ("uint2", 0))}


@dataclass(frozen=True)
class Value:
    """A tensor of the graph, or a sequence of tensors (a list).  ``rounding``: the largest of
    ``ROUNDING`` and ``STORED`` among the dtypes it was computed in; 0: no rounding stands between
    it and the inputs, so that executors may not differ in it, and steps (floor, compare, argmax)
    may follow."""

    name: str
    array: np.ndarray
    rounding: float = 0.0

    @property
    def exact(self):
        return self.rounding == 0


@dataclass(frozen=True)
class Graph:
    """``model``: ModelProto; ``feeds`` and ``wanted``: {name: array}; ``rounding``: how far every
    output may be off, see ``Value``."""

    model: object
    feeds: dict
    wanted: dict
    rounding: dict


class Grower:
    """Grows one graph; ``rows`` of onnx_nodes.py propose nodes."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.special = self.rng.random() < 0.35
        self.run_time = self.rng.random() < 0.3  # shapes, axes, pads, indices are inputs
        self.empty = 0.15 if self.rng.random() < 0.15 else 0.02
        self.opset = self.rng.choice(OPSETS)
        self.values, self.nodes, self.feeds, self.consts = [], [], {}, []
        # tensors of strings and of stored types, sequences, and what a rounding may have shifted by
        # a step: for rows that ask for them
        self.others = []
        self.parameters = set()  # inputs that are such a thing
        self.declared = set()  # tensors whose shape comes from data: the model says it
        self.count = 0
        for _ in range(self.rng.randint(1, 3)):
            self.input()

    def name(self, stem="t"):
        self.count += 1
        return f"{stem}{self.count}"

    def shape(self, rank=None):
        rank = self.rng.choice((0, 1, 2, 2, 3, 3, 4, 4, 5, 6)) if rank is None else rank
        choices = (1, 2, 3, 4, 5, 7, 8, 16, 17) if rank < 4 else (1, 2, 3, 4, 5)
        shape = [self.rng.choice(choices) for _ in range(rank)]
        if shape and self.rng.random() < self.empty:
            shape[self.rng.randrange(rank)] = 0
        return tuple(shape)

    def data(self, shape, dtype, special=False):
        """Random array; ``special``: floats with a NaN and infinities, integers with the ends of
        their range among them."""
        if dtype == np.bool_:
            return self.np.random(shape) < 0.5
        if np.issubdtype(dtype, np.integer):
            info = np.iinfo(dtype)
            array = np.asarray(self.np.integers(max(info.min, -20), min(info.max, 20) + 1, shape),
                               dtype)
            if special and array.size:
                flat = array.reshape(-1)
                for end in (info.min, info.max):
                    flat[self.rng.randrange(flat.size)] = end
            return array
        array = np.asarray(self.np.normal(size=shape), dtype)
        if special and array.size:
            flat = array.reshape(-1)
            for bad in (np.nan, np.inf, -np.inf):
                flat[self.rng.randrange(flat.size)] = bad
        return array

    def given(self, array):
        """An input of strings or of a stored type."""
        value = Value(self.name("x"), array)
        self.feeds[value.name] = array
        self.others.append(value)
        return value

    def input(self, shape=None, dtype=None, special=True):
        dtype = dtype or self.rng.choice((np.float32,) * 6 + DTYPES)
        # not in constants: whether a zero of the padding meets an infinite weight is nobody's rule
        array = self.data(self.shape() if shape is None else shape, dtype,
                          special and self.special)
        value = Value(self.name("x"), array)
        self.feeds[value.name] = value.array
        self.values.append(value)
        return value

    def const(self, array):
        """A constant; now and then a Constant node instead of an initializer.  In some graphs a
        few integers may be an input instead."""
        array = np.asarray(array)
        if self.run_time and array.dtype == np.int64 and array.ndim <= 1 and array.size <= 8 and (
                self.rng.random() < 0.6):
            value = Value(self.name("p"), array)
            self.feeds[value.name] = array
            self.parameters.add(value.name)
            return value
        name = self.name("c")
        tensor = numpy_helper.from_array(array, name)
        if self.rng.random() < 0.2:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.consts.append(tensor)
        return Value(name, array)

    def pick(self, test=lambda v: True):
        """A value that passes the test, recent ones first; None if there is none."""
        return self._one(self.values, test)

    def other(self, test):
        """Like ``pick``, of ``others``."""
        return self._one(self.others, test)

    def _one(self, values, test):
        found = [v for v in values if test(v)]
        if not found:
            return None
        return self.rng.choice(found[-3:] if self.rng.random() < 0.6 else found)

    def floats(self, rank=None, exact=False):
        return self.pick(lambda v: v.array.dtype in FLOATS and (not exact or v.exact) and (
            rank is None or v.array.ndim == rank))

    def add(self, op, inputs, outputs=1, exact=False, outer=(), last=False, **attributes):
        """Append a node if the reference evaluator runs it (ONNX Runtime, of com.microsoft); its
        Values, or ().  ``outer``: Values that its sub-graphs read; ``last``: no row that does not
        ask for such things reads the results."""
        if op in OF_ONE_AXIS and self.opset < 13:
            attributes["axis"] = inputs[0].array.ndim - 1
        nodes, consts = len(self.nodes), len(self.consts)
        names = [self.name() for _ in range(outputs)]
        inputs, attributes = self._older(op, inputs, attributes)
        node = helper.make_node(op, [v.name if v else "" for v in inputs], names, **attributes)
        arrays = run_node(node, [v for v in (*inputs, *outer) if v], self.opset)
        if arrays is None or any(a.size > ELEMENTS or a.ndim > 6 for a in flat(arrays)):
            del self.nodes[nodes:], self.consts[consts:]
            return ()
        read = [v for v in (*inputs, *outer) if v]
        rounding = max((v.rounding for v in read), default=0.0)
        if rounding or not exact:
            rounding = max(rounding, *((ROUNDING | STORED).get(a.dtype, 0.0)
                                       for a in flat(arrays + [v.array for v in read])))
        if any(v.name in self.parameters for v in read):
            self.declared.update(names)
        made = [Value(n, a, rounding) for n, a in zip(names, arrays)]
        self.nodes.append(node)
        for v in made:
            known = not last and not isinstance(v.array, list) and v.array.dtype in DTYPES
            (self.values if known else self.others).append(v)
        return made

    def _older(self, op, inputs, attributes):
        """(inputs, attributes) as the graph's opset writes them: constants that were attributes
        once.  What has no older form is left to the check of the node."""
        since, names = OLDER.get(op, (0, {}))
        given = {n: inputs[k] for k, n in names.items() if k < len(inputs) and inputs[k]}
        if self.opset >= since or any(v in self.values for v in given.values()):
            return inputs, attributes
        return list(inputs[:1]), attributes | {n: v.array.tolist() for n, v in given.items()}

    def done(self, wish=3):
        """The Graph: everything nobody reads is an output, and some of the others."""
        read = {n for node in self.nodes for n in node.input}
        read |= {n for node in self.nodes for a in node.attribute if a.HasField("g")
                 for inner in a.g.node for n in inner.input}
        self.feeds = {n: a for n, a in self.feeds.items() if n in read or n not in self.parameters}
        made = [v for v in self.values + self.others if v.name not in self.feeds]
        made.sort(key=lambda v: int(v.name[1:]))
        outputs = [v for v in made if v.name not in read or self.rng.random() < 0.1]
        outputs = outputs[-wish - 4:] or self.values[:1]
        graph = helper.make_graph(
            self.nodes, "random", [info(n, a) for n, a in self.feeds.items()],
            [info(v.name, v.array) for v in outputs], self.consts,
            value_info=[info(v.name, v.array) for v in made if v.name in self.declared])
        return Graph(model_of(graph, self.opset), self.feeds, {v.name: v.array for v in outputs},
                     {v.name: v.rounding for v in outputs})


def flat(arrays):
    """Tensors, and those of sequences."""
    return [a for array in arrays for a in (array if isinstance(array, list) else [array])]


def info(name, array):
    if isinstance(array, list):
        kind = helper.np_dtype_to_tensor_dtype(array[0].dtype)
        shapes = {a.shape for a in array}
        shape = shapes.pop() if len(shapes) == 1 else [None] * array[0].ndim
        return helper.make_tensor_sequence_value_info(name, kind, shape)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def model_of(graph, opset):
    domains = {n.domain for n in graph.node}
    more = [helper.make_opsetid(d, v) for d, v in ((ML, 3), (MS, 1)) if d in domains]
    opsets = [helper.make_opsetid("", opset), *more]
    return helper.make_model(graph, opset_imports=opsets,
                             ir_version=max(4, helper.find_min_ir_version_for(opsets, True)))


def run_node(node, inputs, opset=20):
    """Arrays a node gives, or None where it breaks the rules of its opset or the reference
    evaluator (of com.microsoft: ONNX Runtime) does not run it."""
    feeds = {v.name: v.array for v in inputs}
    graph = helper.make_graph([node], "one", [info(n, a) for n, a in feeds.items()],
                              [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None)
                               for n in node.output])
    if node.domain == MS:
        return run_contrib(node, graph, feeds, min(opset, NEWEST))
    model = model_of(graph, opset)
    rules = checker.C.CheckerContext()
    rules.ir_version, rules.opset_imports = model.ir_version, {"": opset, ML: 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if not any(a.HasField("g") for a in node.attribute):
                checker.check_node(node, rules)
            arrays = ReferenceEvaluator(model).run(None, feeds)
        except Exception:  # whatever it is, the node is not taken
            return None
    arrays = [[np.asarray(x) for x in a] if isinstance(a, list) else np.asarray(a) for a in arrays]
    if any(a == [] for a in arrays if isinstance(a, list)):
        return None
    arrays = [a.astype(object) if not isinstance(a, list) and a.dtype.kind in "UT" else a
              for a in arrays]
    return arrays if all(a.dtype in (*DTYPES, *STORED, object) for a in flat(arrays)) else None


def run_contrib(node, graph, feeds, opset):
    """Arrays of a node of com.microsoft, or None where ONNX Runtime refuses it or is not there."""
    try:
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        for out in graph.output:
            out.ClearField("type")
        session = ort.InferenceSession(model_of(graph, opset).SerializeToString(), options,
                                       providers=["CPUExecutionProvider"])
        arrays = session.run([n for n in node.output if n], feeds)
    except Exception:  # whatever it is, the node is not taken
        return None
    return arrays if all(a.dtype in DTYPES and (
        a.dtype.kind != "f" or np.isfinite(a).all()) for a in arrays) else None


def random_graph(seed, nodes=None, of=None):
    """The graph of a seed; ``nodes``: how many node proposals (default 2 to 14); ``of``: a module
    whose rows propose most of them."""
    import onnx_contrib  # noqa: F401  more rows
    import onnx_joined  # noqa: F401
    import onnx_loops  # noqa: F401
    import onnx_ml  # noqa: F401
    import onnx_more  # noqa: F401
    import onnx_rows  # noqa: F401
    import onnx_stored  # noqa: F401
    import onnx_texts  # noqa: F401
    from onnx_nodes import ROWS
    grower = Grower(seed)
    special = [r for r in ROWS if r.__module__ == f"onnx_{of}"]
    for _ in range(grower.rng.randint(2, 14) if nodes is None else nodes):
        rows = special if special and grower.rng.random() < 0.7 else ROWS
        grower.rng.choice(rows)(grower)
    return grower.done()
