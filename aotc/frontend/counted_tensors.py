"""Tensors of which data says how many elements there are, followed from node to node: all that is
made of them is computed for the most elements there may be, and the caller told how many there are.
Operators that make each element of one axis from one element of another leave behind the last what
nobody looks at; those that fold such an axis must not see it."""

from collections.abc import Iterable

from aotc.frontend.einsum import parse
from aotc.frontend.graph import Graph, Node
from aotc.frontend.row_values import (
    Alike,
    Found,
    Row,
    Rows,
    Rule,
    Shapes,
    made_row,
    match_rows,
    merge_found,
    sum_over_rows,
)
from aotc.frontend.rows_placed import PLACED
from aotc.ir.expr import Const
from aotc.ir.program import neutral_value

# operators of one tensor that keep its shape
_SAME = frozenset("""
    Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Clip Cos Cosh Elu Erf Exp Floor
    Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round
    Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu
""".split())
# of several that broadcast
_TOGETHER = frozenset("""
    Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max
    Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor
""".split())
# of items along the first axis, which know nothing of each other
_ITEMS = frozenset("""
    AveragePool BatchNormalization Conv ConvTranspose GlobalAveragePool GlobalMaxPool
    GroupNormalization InstanceNormalization MaxPool
""".split())
# folds, and what an element that is none must be for them
_FOLDS = {"ReduceSum": "sum", "ReduceL1": "sum", "ReduceL2": "sum", "ReduceSumSquare": "sum",
          "ReduceLogSum": "sum", "ReduceMean": "sum", "ReduceProd": "prod", "ReduceMax": "max",
          "ReduceMin": "min", "ReduceLogSumExp": "max", "ArgMax": "max", "ArgMin": "min",
          "Softmax": "max", "LogSoftmax": "max", "Hardmax": "max",
          "MatMul": "sum", "Gemm": "sum", "Einsum": "sum",
          "TopK": "max", "NonZero": "sum", "Compress": "sum", "CumSum": "sum", "CumProd": "prod",
          "NonMaxSuppression": "max"}


def neutral_element(node: Node, dtype: str) -> Const:
    """What an element that is none must be for the fold of a node's operator."""
    if dtype == "bool":
        return Const(False, dtype)
    fold = _FOLDS[node.op]
    if node.op == "TopK" and not node.attr("largest", 1):
        fold = "min"
    return neutral_value(fold, dtype)


def find_rows_after(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """What a node makes of ``rows``, by tensor, some of which are its inputs; None if that cannot
    be said."""
    if n.domain:
        return None
    rank = {i: len(s) for i in n.inputs if i and (s := shape(i)) is not None}
    if any(i and i not in rank for i in n.inputs):
        return None
    if n.op in _TOGETHER:
        return _lined(n, n.inputs, rows, shape, max(rank.values()))
    several = _SEVERAL.get(n.op)
    if several is not None:
        return several(graph, n, rows, shape)
    if any(i in rows for i in n.inputs[1:]):
        return None
    found = [_alone(graph, n, row, rank[row.tensor]) for row in rows[n.inputs[0]]]
    return merge_found(found)


def _alone(graph: Graph, n: Node, row: Row, rank: int) -> Found | None:
    """What a node makes of a row of its first input, the others being none."""
    if n.op in _SAME:
        return made_row(n, row.axis, row, n.op in ("Cast", "Identity"))
    if n.op in ("Shape", "Size", "Reshape", "SequenceLength"):
        return Found(moved=(row,))
    if n.op in _ITEMS and row.axis == 0:
        return made_row(n, 0, row) if len([o for o in n.outputs if o]) == 1 else None
    if n.op == "Transpose":
        return made_row(n, list(n.attr("perm", range(rank)[::-1])).index(row.axis), row, True)
    if n.op in ("Squeeze", "Unsqueeze"):
        return _reshaped(graph, n, row, rank)
    if n.op == "Flatten":
        return made_row(n, 0, row, True) if (row.axis, n.attr("axis", 1)) == (0, 1) else None
    if n.op == "NonZero":
        return Found(folds=(row,))
    if n.op in ("Slice", "Split", "Tile", "CumSum", "CumProd", "TopK"):
        return _along(graph, n, row, rank)
    if n.op in _FOLDS:
        return _folded(graph, n, row, rank)
    if n.op == "TfIdfVectorizer":  # of texts as bytes: what lies behind is no token
        return Found() if (rank, row.axis) == (3, 1) else None
    if n.op == "LayerNormalization" and n.attr("axis", -1) % rank > row.axis:
        return made_row(n, row.axis, row) if len(n.outputs) == 1 else None
    return None


def _along(graph: Graph, n: Node, row: Row, rank: int) -> Found | None:
    """Operators that do something along a few axes."""
    if n.op == "Tile":
        times = graph.initializers.get(n.inputs[1])
        once = times is not None and times.reshape(-1)[row.axis] == 1
        return made_row(n, row.axis, row, True) if once else None
    if n.op == "Slice":
        axes = _axes(graph, n, 3) if "starts" in n.attrs or len(n.inputs) > 3 else (
            list(range(rank)))
    elif n.op in ("CumSum", "CumProd"):
        axes = _axes(graph, n)
    else:
        axes = [n.attr("axis", 0 if n.op == "Split" else -1)]
    if axes is None:
        return None
    if row.axis not in {a % rank for a in axes}:
        return made_row(n, row.axis, row, n.op != "TopK")
    if n.op in ("CumSum", "CumProd"):
        return Found(made_row(n, row.axis, row).rows, (row,) if n.attr("reverse", 0) else ())
    if n.op == "TopK":
        return Found(folds=(row,))
    return Found(moved=(row,)) if n.op == "Slice" and len(axes) == 1 else None


def _lined(n: Node, inputs: Iterable[str], rows: Rows, shape: Shapes, whole: int,
           last: int = 0) -> Found | None:
    """Elements made of those at the same places, axes counted from the last one, beyond
    ``last``."""
    ranks = {i: len(shape(i) or ()) for i in inputs if i}
    made: list[Row] = []
    alike: tuple[Alike, ...] = ()
    for end in range(last + 1, whole + 1):
        met = match_rows([(i, rank - end) for i, rank in ranks.items() if rank >= end], rows, shape)
        if met is not None:
            made.append(Row(n.outputs[0], whole - end, met[0], False))
            alike += met[1]
    return Found(tuple(made), (), alike)


def _product(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Rows or columns of a product, or its sums."""
    a, b = n.inputs
    first, second = len(shape(a) or ()), len(shape(b) or ())
    if min(first, second) < 2:
        return None
    whole = max(first, second)
    lined = _lined(n, n.inputs, rows, shape, whole, last=2)
    sides = [Row(n.outputs[0], whole - end, r.start, False)
             for i, k, end in ((a, first, 2), (b, second, 1))
             for r in rows.get(i, ()) if k - r.axis == end]
    sums = sum_over_rows([(a, first - 1), (b, second - 2)], rows)
    return merge_found([lined, Found(tuple(sides)), sums])


def _labelled(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Axes of an Einsum by their labels, in its result or summed over."""
    try:
        terms, result = parse(n.attr("equation", ""), [len(shape(i) or ()) for i in n.inputs])
    except ValueError:
        return None
    axes: dict[str, list[tuple[str, int]]] = {}
    for tensor, labels in zip(n.inputs, terms):
        for k, label in enumerate(labels):
            axes.setdefault(label, []).append((tensor, k))
    found = [sum_over_rows(places, rows, shape) for label, places in axes.items()
             if label not in result]
    for k, label in enumerate(result):
        met = match_rows(axes[label], rows, shape)
        if met is not None:
            found.append(Found((Row(n.outputs[0], k, met[0], False),), (), met[1]))
    return merge_found(found)


def _gemm(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """The same of a Gemm: only rows that are its first operand's."""
    added = n.inputs[2] if len(n.inputs) > 2 else ""
    mine = rows.get(n.inputs[0], ())
    side = 1 if n.attr("transA", 0) else 0
    if any(i in rows for i in n.inputs[1:]) or any(r.axis != side for r in mine) or (
            added and len(shape(added) or ()) > 1):
        return None
    return merge_found(made_row(n, 0, r) for r in mine)


def _joined(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Side by side along another axis than the rows', or behind each other."""
    axis = n.attr("axis", 0) % len(shape(n.inputs[0]) or (1,))
    mine = [r for i in dict.fromkeys(n.inputs) for r in rows.get(i, ())]
    made: list[Row] = []
    alike: tuple[Alike, ...] = ()
    for place in sorted({r.axis for r in mine} - {axis}):
        met = match_rows([(i, place) for i in dict.fromkeys(n.inputs)], rows)
        assert met is not None, n
        zeros = not met[1] and all(r.places for r in mine if r.axis == place)
        made.append(Row(n.outputs[0], place, met[0], zeros))
        alike += met[1]
    return Found(tuple(made), (), alike, (), tuple(r for r in mine if r.axis == axis))


# operators of several inputs that may be rows
def _of_list(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """The tensors of a list, joined along a new axis or one of extent 1."""
    (row,), whole = rows[n.inputs[0]], shape(n.inputs[0])
    fresh = n.attr("new_axis", 0)
    if whole is None:
        return None
    axis = n.attr("axis") % (len(whole) - (not fresh))
    return made_row(n, axis, row, True) if fresh or whole[1 + axis] == Const(1) else None


_SEVERAL: dict[str, Rule] = {
    "MatMul": _product, "Gemm": _gemm, "Concat": _joined, "Einsum": _labelled,
    "ConcatFromSequence": _of_list, **PLACED}


def _folded(graph: Graph, n: Node, row: Row, rank: int) -> Found | None:
    """A fold along the rows' axis, or along others."""
    if n.op in ("Softmax", "LogSoftmax", "Hardmax"):
        axis = n.attr("axis", -1 if n.opset >= 13 else 1) % rank
        over = {axis} if n.opset >= 13 else set(range(axis, rank))
        folds = (row,) if row.axis in over else ()
        return Found((Row(n.outputs[0], row.axis, row.start, False),), folds)
    if n.op in ("ArgMax", "ArgMin"):
        found: list[int] | None = [n.attr("axis", 0)]
    elif "axes" in n.attrs or len(n.inputs) > 1:
        found = _axes(graph, n)
    else:
        found = [] if n.attr("noop_with_empty_axes", 0) else list(range(rank))
    if found is None:
        return None
    axes = {a % rank for a in found}
    if row.axis in axes:
        return Found(folds=(row,))
    before = 0 if n.attr("keepdims", 1) else sum(a < row.axis for a in axes)
    return made_row(n, row.axis - before, row)


def _axes(graph: Graph, n: Node, given: int = 1) -> list[int] | None:
    """The axes that a node names, by an attribute or a constant; None if it does not."""
    axes = n.attr("axes")
    if axes is None and len(n.inputs) > given and n.inputs[given] in graph.initializers:
        axes = graph.initializers[n.inputs[given]].reshape(-1).tolist()
    return None if axes is None else list(axes)


def _reshaped(graph: Graph, n: Node, row: Row, rank: int) -> Found | None:
    axes = _axes(graph, n)
    if axes is None:
        return None
    rank += len(axes) if n.op == "Unsqueeze" else 0
    places = {a % rank for a in axes}
    rest = [k for k in range(rank) if k not in places]
    if n.op == "Unsqueeze":
        return made_row(n, rest[row.axis], row, True)
    return None if row.axis in places else made_row(n, rest.index(row.axis), row, True)


__all__ = ["find_rows_after", "neutral_element"]
