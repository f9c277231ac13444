"""Tensors of which data says how many elements there are, followed to the model's outputs: all that
is made of them is computed for the most elements there may be, and the caller told how many there
are.  Operators that make each element of one axis from one element of another leave behind the
last what nobody looks at; those that fold such an axis must not see it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aotc.frontend.graph import Graph, Node
from aotc.ir.expr import Const
from aotc.ir.program import neutral, static_shape

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
          "Softmax": "max", "LogSoftmax": "max", "MatMul": "sum", "Gemm": "sum"}
Rank = Callable[[str], int | None]  # of a tensor, None if unknown


@dataclass(frozen=True)
class Row:
    """Axis ``axis`` of ``tensor`` has as many elements as data says; ``rank``: None if unknown;
    ``places``: what lies behind them is zeros, which may be looked up."""

    tensor: str
    axis: int
    rank: int | None
    places: bool = True


@dataclass(frozen=True)
class Fold:
    """The node that makes ``output`` folds axis ``axis`` of ``tensor``, of which data says how many
    elements there are."""

    output: str
    tensor: str
    axis: int


@dataclass(frozen=True)
class Followed:
    """``outputs``: (output, axis) of the Graph that have as many elements as a row; ``folds`` of
    such rows; ``stop``: the first node that needs their number otherwise, None if there is none."""

    outputs: tuple[tuple[str, int], ...] = ()
    folds: tuple[Fold, ...] = ()
    stop: Node | None = None


@dataclass(frozen=True)
class Found:
    """``rows`` that a node makes; (tensor, axis) of those that it ``folds``; ``rank`` of what it
    makes of them."""

    rows: tuple[Row, ...] = ()
    folds: tuple[tuple[str, int], ...] = ()
    rank: int | None = None


def none_of(op: str, dtype: str) -> Const:
    """What an element that is none must be for the fold of an operator."""
    return neutral(_FOLDS[op], dtype)


def followed(graph: Graph, starts: Iterable[Row], rank: Rank) -> Followed:
    """What depends on how many elements the rows have, which are as many in each."""
    rows = {r.tensor: r for r in starts}
    folds: list[Fold] = []
    ranks: dict[str, int | None] = {}

    def known(tensor: str) -> int | None:
        return ranks[tensor] if tensor in ranks else rank(tensor)

    for n in graph.nodes:
        mine = [i for i in n.inputs if i in rows]
        if not rows.keys().isdisjoint(n.captures):
            return Followed(stop=n)
        if not mine or any(o in rows for o in n.outputs):
            continue
        found = None if n.domain else _after(graph, n, rows, mine, known)
        if found is None or any(r.tensor in graph.declared for r in found.rows):
            return Followed(stop=n)
        rows |= {r.tensor: r if r.rank is not None else replace(r, rank=rank(r.tensor))
                 for r in found.rows}
        folds += [Fold(n.outputs[0], t, axis) for t, axis in found.folds]
        ranks[n.outputs[0]] = found.rank
    return Followed(tuple((o, rows[o].axis) for o in graph.outputs if o in rows), tuple(folds))


def _after(graph: Graph, n: Node, rows: Mapping[str, Row], mine: Sequence[str],
           rank: Rank) -> Found | None:
    """What a node makes of rows, the inputs ``mine``; None if that cannot be said."""
    row, out = rows[mine[0]], n.outputs[0]
    alone = n.inputs[0] == row.tensor and len(set(mine)) == 1
    if n.op in _TOGETHER:
        return _made(_together(graph, n, rows, rank))
    if n.op == "MatMul":
        return _product(n, rows, mine, rank)
    if n.op == "Gemm":
        return _gemm(n, rows, mine, rank)
    if n.op == "Concat":
        return _made(_joined(n, rows))
    if n.op == "Gather" and len(set(n.inputs)) == 2:
        return _made(_gathered(graph, n, row, rank))
    if n.op == "RoiAlign" and n.inputs[0] not in rows and set(mine) == set(n.inputs[1:]):
        numbers = rows[n.inputs[2]]  # of images: of those that are none, the first
        return _made(Row(out, 0, 4, False)) if numbers.places and row.axis == 0 else None
    if n.op == "GatherND" and n.inputs[0] not in rows and not n.attr("batch_dims", 0):
        return _made(_gathered_points(n, row, rank))
    if not alone:
        return None
    if n.op in _SAME:
        return _made(Row(out, row.axis, row.rank, row.places and n.op in ("Cast", "Identity")))
    if n.op in _ITEMS and row.axis == 0:
        single = len([o for o in n.outputs if o]) == 1
        return _made(Row(out, 0, row.rank, False)) if single else None
    if row.rank is None:
        return None
    if n.op == "Transpose":
        perm = list(n.attr("perm", range(row.rank)[::-1]))
        return _made(Row(out, perm.index(row.axis), row.rank, row.places))
    if n.op in ("Squeeze", "Unsqueeze"):
        return _made(_reshaped(graph, n, row))
    if n.op in ("Flatten", "Reshape", "Slice"):
        return _made(_cut(graph, n, row))
    if n.op in _FOLDS:
        return _folded(graph, n, row)
    if n.op == "LayerNormalization" and n.attr("axis", -1) % row.rank > row.axis:
        return _made(Row(out, row.axis, row.rank, False)) if len(n.outputs) == 1 else None
    return None


def _made(row: Row | None) -> Found | None:
    return None if row is None else Found((row,), (), row.rank)


def _together(graph: Graph, n: Node, rows: Mapping[str, Row], rank: Rank) -> Row | None:
    """Elements made of those at the same places; what is no row is the same for all of them."""
    mine = [rows[i] for i in n.inputs if i in rows]
    others = [i for i in n.inputs if i and i not in rows]
    ranks = {r.rank for r in mine}
    if len({r.axis for r in mine}) == len(ranks) == 1 and all(
            i in graph.initializers and graph.initializers[i].ndim == 0 for i in others):
        return Row(n.outputs[0], mine[0].axis, mine[0].rank, False)
    known = [rank(i) for i in others]
    if None in ranks or None in known:
        return None
    ends = {r.rank - r.axis for r in mine if r.rank is not None}  # counted from the last axis
    if len(ends) > 1:
        return None
    (end,) = ends
    for name, k in zip(others, known):
        array = graph.initializers.get(name)
        if k is not None and k >= end and (array is None or array.shape[k - end] != 1):
            return None
    whole = max(k for k in (*known, *ranks) if k is not None)
    return Row(n.outputs[0], whole - end, whole, False)


def _product(n: Node, rows: Mapping[str, Row], mine: Sequence[str], rank: Rank) -> Found | None:
    """Rows or columns of a product, or its sums."""
    a, b = n.inputs
    first, second = (rows[i].rank if i in rows else rank(i) for i in (a, b))
    if first is None or second is None or min(first, second) < 2:
        return None
    ends = {i: k - rows[i].axis for k, i in ((first, a), (second, b)) if i in rows}
    whole, out = max(first, second), n.outputs[0]
    if ends == {a: 1, b: 2} and a != b:  # the sums
        return Found((), ((a, rows[a].axis), (b, rows[b].axis)), whole)
    if set(ends) == {a} and ends[a] >= 2 and (ends[a] == 2 or second < ends[a]):
        return _made(Row(out, whole - ends[a], whole, False))
    if set(ends) == {b} and (ends[b] == 1 or ends[b] > 2 and first < ends[b]):
        return _made(Row(out, whole - ends[b], whole, False))
    return None


def _gemm(n: Node, rows: Mapping[str, Row], mine: Sequence[str], rank: Rank) -> Found | None:
    """The same of a Gemm: only rows that are its first operand's."""
    added = n.inputs[2] if len(n.inputs) > 2 else ""
    row = rows.get(n.inputs[0])
    if row is None or len(set(mine)) > 1 or row.axis != (1 if n.attr("transA", 0) else 0):
        return None
    if added and (rank(added) is None or (rank(added) or 0) > 1):
        return None
    return _made(Row(n.outputs[0], 0, 2, False))


def _joined(n: Node, rows: Mapping[str, Row]) -> Row | None:
    """Rows side by side, along another axis."""
    mine = [rows[i] for i in n.inputs if i in rows]
    row = mine[0]
    if len(mine) < len(n.inputs) or len({(r.axis, r.rank) for r in mine}) > 1 or (
            row.rank is None or n.attr("axis", 0) % row.rank == row.axis):
        return None
    return Row(n.outputs[0], row.axis, row.rank, all(r.places for r in mine))


def _folded(graph: Graph, n: Node, row: Row) -> Found | None:
    """A fold along the rows' axis, or along others."""
    assert row.rank is not None, row
    if n.op in ("Softmax", "LogSoftmax"):
        axis = n.attr("axis", -1 if n.opset >= 13 else 1) % row.rank
        over = {axis} if n.opset >= 13 else set(range(axis, row.rank))
        folds = ((row.tensor, row.axis),) if row.axis in over else ()
        return Found((Row(n.outputs[0], row.axis, row.rank, False),), folds, row.rank)
    if n.op in ("ArgMax", "ArgMin"):
        found: list[int] | None = [n.attr("axis", 0)]
    elif "axes" in n.attrs or len(n.inputs) > 1:
        found = _axes(graph, n)
    else:
        found = [] if n.attr("noop_with_empty_axes", 0) else list(range(row.rank))
    if found is None:
        return None
    axes = {a % row.rank for a in found}
    rank = row.rank if n.attr("keepdims", 1) else row.rank - len(axes)
    if row.axis in axes:
        last = n.op in ("ArgMax", "ArgMin") and n.attr("select_last_index", 0)
        return None if last else Found((), ((row.tensor, row.axis),), rank)
    before = 0 if n.attr("keepdims", 1) else sum(a < row.axis for a in axes)
    return _made(Row(n.outputs[0], row.axis - before, rank, False))


def _axes(graph: Graph, n: Node, given: int = 1) -> list[int] | None:
    """The axes that a node names, by an attribute or a constant; None if it does not."""
    axes = n.attr("axes")
    if axes is None and len(n.inputs) > given and n.inputs[given] in graph.initializers:
        axes = graph.initializers[n.inputs[given]].reshape(-1).tolist()
    return None if axes is None else list(axes)


def _reshaped(graph: Graph, n: Node, row: Row) -> Row | None:
    axes = _axes(graph, n)
    if axes is None or row.rank is None:
        return None
    rank = row.rank + (len(axes) if n.op == "Unsqueeze" else 0)
    places = {a % rank for a in axes}
    rest = [k for k in range(rank) if k not in places]
    if n.op == "Unsqueeze":
        return Row(n.outputs[0], rest[row.axis], rank, row.places)
    return None if row.axis in places else Row(n.outputs[0], rest.index(row.axis), len(rest),
                                               row.places)


def _cut(graph: Graph, n: Node, row: Row) -> Row | None:
    """Rows in another shape, or a part of each of them."""
    if n.op == "Flatten":
        return Row(n.outputs[0], 0, 2, row.places) if (row.axis, n.attr("axis", 1)) == (
            0, 1) else None
    if n.op == "Reshape":  # 0: the extent that there is
        to = graph.initializers.get(n.inputs[1])
        kept = to is not None and row.axis == 0 and not n.attr("allowzero", 0) and _keeps_first(
            graph, row, [int(k) for k in to.reshape(-1)])
        return Row(n.outputs[0], 0, to.size, row.places) if to is not None and kept else None
    axes = _axes(graph, n, 3)
    if axes is None or row.rank is None or row.axis in {a % row.rank for a in axes}:
        return None
    return Row(n.outputs[0], row.axis, row.rank, row.places)


def _keeps_first(graph: Graph, row: Row, to: list[int]) -> bool:
    """True if a shape has the rows' first extent: as it is, or as what the others leave over."""
    if to[:1] == [0]:
        return True
    if to[:1] != [-1]:
        return False
    known = graph.types.get(row.tensor)
    others = static_shape(known[1][1:]) if known is not None and known[1] else None
    return others is not None and min(to[1:], default=1) > 0 and prod(others) == prod(to[1:])


def _gathered(graph: Graph, n: Node, row: Row, rank: Rank) -> Row | None:
    """Elements taken at the places in the tensor, or a few taken of each of its rows."""
    axis = n.attr("axis", 0)
    if n.inputs[1] == row.tensor:
        of = rank(n.inputs[0])
        whole = None if of is None or row.rank is None else of + row.rank - 1
        axis += of if axis < 0 and of is not None else 0
        return Row(n.outputs[0], axis + row.axis, whole, False) if axis >= 0 and (
            row.places) else None
    few = graph.initializers.get(n.inputs[1])
    if few is None or row.rank is None or axis % row.rank == row.axis:
        return None
    axis %= row.rank
    return Row(n.outputs[0], row.axis + (few.ndim - 1 if axis < row.axis else 0),
               row.rank + few.ndim - 1, row.places)


def _gathered_points(n: Node, row: Row, rank: Rank) -> Row | None:
    """Rows of a tensor taken at points, whose coordinates are the last axis."""
    inner = row.places and row.rank is not None and row.axis < row.rank - 1
    return Row(n.outputs[0], row.axis, None, False) if inner else None


__all__ = ["Fold", "Followed", "Row", "followed", "none_of"]
