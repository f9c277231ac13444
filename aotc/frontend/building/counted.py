"""Operators whose number of results depends on values, where those are known while compiling."""

import numpy as np
import onnx

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import reads_data
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import SMALL, At, Val
from aotc.frontend.graph import Node
from aotc.frontend.read.read_types import type_proto
from aotc.ir.dtypes import INDEX, Array
from aotc.ir.expr import Binary, Const, Expr, Where, compare
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify

_COUNTED = ("Compress", "NonMaxSuppression", "NonZero", "Unique")


def evaluate_constants(node: Node, b: Builder) -> tuple[Val | None, ...] | None:
    """The node's Vals as constants, computed by the standard's own evaluator, if it is such an
    operator and all its inputs are constants; else None."""
    if node.domain or node.op not in _COUNTED:
        return None
    from onnx.reference import ReferenceEvaluator  # which takes a while to import
    vals = {k: b.known(b.tensor(i)) for k, i in enumerate(node.inputs) if i}
    arrays = {k: v.array for k, v in vals.items() if v.array is not None}
    if len(arrays) < len(vals):
        return None
    made = onnx.helper.make_node(node.op, [i and f"in{k}" for k, i in enumerate(node.inputs)],
                                 [o and f"out{k}" for k, o in enumerate(node.outputs)],
                                 **node.attrs)
    inputs = [onnx.helper.make_value_info(f"in{k}", type_proto(v.dtype, v.shape))
              for k, v in vals.items()]
    outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in made.output if o]
    model = onnx.helper.make_model(onnx.helper.make_graph([made], "one", inputs, outputs),
                                   opset_imports=[onnx.helper.make_opsetid("", node.opset)])
    feeds = {f"in{k}": a.reshape(_lists(node, k, a)) for k, a in arrays.items()}
    with np.errstate(all="ignore"):
        results = iter(ReferenceEvaluator(model).run(None, feeds))
    return tuple(b.const(next(results), o) if o else None for o in node.outputs)


def _lists(node: Node, k: int, array: Array) -> tuple[int, ...]:
    """The shape that the evaluator wants: numbers of a suppression in lists of one."""
    return (1,) if node.op == "NonMaxSuppression" and k > 1 else array.shape


def find_known_places(b: Builder, flags: Val) -> tuple[Expr, At] | None:
    """(count, place) of the elements of the bool Val ``flags`` [n] that hold, place a function from
    a number below count; None if they depend on data.  All of an extent or none of it hold, or
    each of a few depends on extents."""
    flags = b.known(flags)
    if flags.buffer:
        return None
    n = flags.shape[0]
    everywhere = b.at(flags, b.axes((n,)))
    if isinstance(everywhere, Const):
        return (n if everywhere.value else Const(0)), lambda at: at
    size = static_shape((n,))
    if size is None or size[0] > SMALL:
        return None
    ones = [simplify(cast(INDEX, b.at(flags, (Const(k),)))) for k in range(size[0])]
    if any(map(reads_data, ones)):
        return None
    before: list[Expr] = [Const(0)]
    for one in ones:
        before.append(simplify(before[-1] + one))

    def place(at: Expr) -> Expr:
        out: Expr = Const(0)
        for k, one in reversed(list(enumerate(ones))):
            here = Binary("and", compare("eq", before[k], at), compare("eq", one, Const(1)))
            out = Where(here, Const(k), out)
        return simplify(out)
    return before[-1], place
