"""Tensors of which data says how many elements there are, followed from node to node: all that is
made of them is computed for the most elements there may be, and the caller told how many there are.
Operators that make each element of one axis from one element of another leave behind the last what
nobody looks at; those that fold such an axis must not see it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aotc.frontend.einsum import parse
from aotc.frontend.graph import Graph, Node
from aotc.frontend.masked import MASK, OfMask
from aotc.ir.expr import Const, Shape
from aotc.ir.program import neutral

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
          "Softmax": "max", "LogSoftmax": "max", "MatMul": "sum", "Gemm": "sum", "Einsum": "sum",
          "TopK": "max", "NonZero": "sum", "Compress": "sum", "CumSum": "sum", "CumProd": "prod"}
Shapes = Callable[[str], Shape | None]  # of a tensor with room for all, None if it is no tensor


@dataclass(frozen=True)
class Row:
    """Axis ``axis`` of ``tensor`` has as many elements as data says, in the number ``start`` of
    those that it says; ``places``: what lies behind them is zeros, which may be looked up."""

    tensor: str
    axis: int
    start: int
    places: bool = True


@dataclass(frozen=True)
class Alike:
    """Axis ``axis`` of ``tensor`` must have as many elements as the number ``start`` says, whatever
    there is room for; ``spread``: or one, which stands for all."""

    tensor: str
    axis: int
    start: int
    spread: bool = False


@dataclass(frozen=True)
class Found:
    """``rows`` that a node makes; ``folds``: those that it folds; ``alike``: what must have as many
    elements as others, and gets their room; ``inside``: the row in which it looks elements up;
    ``moved``: rows whose elements come to other places along the same axis, or whose number it
    tells."""

    rows: tuple[Row, ...] = ()
    folds: tuple[Row, ...] = ()
    alike: tuple[Alike, ...] = ()
    inside: tuple[Row, ...] = ()
    moved: tuple[Row, ...] = ()


Rows = Mapping[str, Sequence[Row]]


def none_of(node: Node, dtype: str) -> Const:
    """What an element that is none must be for the fold of a node's operator."""
    if dtype == "bool":
        return Const(False, dtype)
    fold = _FOLDS[node.op]
    if node.op == "TopK" and not node.attr("largest", 1):
        fold = "min"
    return neutral(fold, dtype)


def after(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
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
    return _merged(found)


def _merged(found: Iterable[Found | None]) -> Found | None:
    out = Found()
    for f in found:
        if f is None:
            return None
        out = Found(out.rows + f.rows, out.folds + f.folds, out.alike + f.alike,
                    out.inside + f.inside, out.moved + f.moved)
    return out


def _made(n: Node, axis: int, row: Row, places: bool = False) -> Found:
    return Found(tuple(Row(o, axis, row.start, places and row.places) for o in n.outputs if o))


def _alone(graph: Graph, n: Node, row: Row, rank: int) -> Found | None:
    """What a node makes of a row of its first input, the others being none."""
    if n.op in _SAME:
        return _made(n, row.axis, row, n.op in ("Cast", "Identity"))
    if n.op in ("Shape", "Size", "Reshape"):
        return Found(moved=(row,))
    if n.op in _ITEMS and row.axis == 0:
        return _made(n, 0, row) if len([o for o in n.outputs if o]) == 1 else None
    if n.op == "Transpose":
        return _made(n, list(n.attr("perm", range(rank)[::-1])).index(row.axis), row, True)
    if n.op in ("Squeeze", "Unsqueeze"):
        return _reshaped(graph, n, row, rank)
    if n.op == "Flatten":
        return _made(n, 0, row, True) if (row.axis, n.attr("axis", 1)) == (0, 1) else None
    if n.op == "NonZero":
        return Found(folds=(row,))
    if n.op in ("Slice", "Split", "Tile", "CumSum", "CumProd", "TopK"):
        return _along(graph, n, row, rank)
    if n.op in _FOLDS:
        return _folded(graph, n, row, rank)
    if n.op == "LayerNormalization" and n.attr("axis", -1) % rank > row.axis:
        return _made(n, row.axis, row) if len(n.outputs) == 1 else None
    return None


def _along(graph: Graph, n: Node, row: Row, rank: int) -> Found | None:
    """Operators that do something along a few axes."""
    if n.op == "Tile":
        times = graph.initializers.get(n.inputs[1])
        once = times is not None and times.reshape(-1)[row.axis] == 1
        return _made(n, row.axis, row, True) if once else None
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
        return _made(n, row.axis, row, n.op != "TopK")
    if n.op in ("CumSum", "CumProd"):
        return Found(_made(n, row.axis, row).rows, (row,) if n.attr("reverse", 0) else ())
    if n.op == "TopK":
        return Found(folds=(row,))
    return Found(moved=(row,)) if n.op == "Slice" and len(axes) == 1 else None


def _meeting(axes: Sequence[tuple[str, int]], rows: Rows, shape: Shapes | None = None
             ) -> tuple[int, tuple[Alike, ...]] | None:
    """(number of elements, what must have as many) of axes of tensors, (tensor, axis), whose
    elements meet; None if none of them is a row.  ``shape``: of the tensors, where one element
    stands for all."""
    starts = [next((r.start for r in rows.get(t, ()) if r.axis == axis), None) for t, axis in axes]
    spread = shape is not None
    if shape is not None:
        kept = [k for k, (t, axis) in enumerate(axes)
                if starts[k] is not None or (shape(t) or ())[axis] != Const(1)]
        axes, starts = [axes[k] for k in kept], [starts[k] for k in kept]
    start = next((s for s in starts if s is not None), None)
    if start is None:
        return None
    return start, tuple(Alike(t, axis, start, spread and s is None)
                        for (t, axis), s in zip(axes, starts) if s != start)


def _lined(n: Node, inputs: Iterable[str], rows: Rows, shape: Shapes, whole: int,
           last: int = 0) -> Found | None:
    """Elements made of those at the same places, axes counted from the last one, beyond
    ``last``."""
    ranks = {i: len(shape(i) or ()) for i in inputs if i}
    made: list[Row] = []
    alike: tuple[Alike, ...] = ()
    for end in range(last + 1, whole + 1):
        met = _meeting([(i, rank - end) for i, rank in ranks.items() if rank >= end], rows, shape)
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
    return _merged([lined, Found(tuple(sides)), _summed([(a, first - 1), (b, second - 2)], rows)])


def _summed(axes: Sequence[tuple[str, int]], rows: Rows, shape: Shapes | None = None) -> Found:
    """Axes that a product is summed over: what lies behind the elements is in none of them."""
    met = _meeting(axes, rows, shape)
    if met is None:
        return Found()
    start, alike = met
    return Found((), tuple(Row(t, axis, start) for t, axis in dict.fromkeys(axes)), alike)


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
    found = [_summed(places, rows, shape) for label, places in axes.items() if label not in result]
    for k, label in enumerate(result):
        met = _meeting(axes[label], rows, shape)
        if met is not None:
            found.append(Found((Row(n.outputs[0], k, met[0], False),), (), met[1]))
    return _merged(found)


def _gemm(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """The same of a Gemm: only rows that are its first operand's."""
    added = n.inputs[2] if len(n.inputs) > 2 else ""
    mine = rows.get(n.inputs[0], ())
    side = 1 if n.attr("transA", 0) else 0
    if any(i in rows for i in n.inputs[1:]) or any(r.axis != side for r in mine) or (
            added and len(shape(added) or ()) > 1):
        return None
    return _merged(_made(n, 0, r) for r in mine)


def _joined(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Side by side along another axis than the rows', or behind each other."""
    axis = n.attr("axis", 0) % len(shape(n.inputs[0]) or (1,))
    mine = [r for i in dict.fromkeys(n.inputs) for r in rows.get(i, ())]
    made: list[Row] = []
    alike: tuple[Alike, ...] = ()
    for place in sorted({r.axis for r in mine} - {axis}):
        met = _meeting([(i, place) for i in dict.fromkeys(n.inputs)], rows)
        assert met is not None, n
        zeros = not met[1] and all(r.places for r in mine if r.axis == place)
        made.append(Row(n.outputs[0], place, met[0], zeros))
        alike += met[1]
    return Found(tuple(made), (), alike, (), tuple(r for r in mine if r.axis == axis))


def _gathered(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Elements taken at the places in a tensor, of each of its rows or among them."""
    of, at = n.inputs
    ranks = len(shape(of) or ()), len(shape(at) or ())
    axis = n.attr("axis", 0) % max(ranks[0], 1)
    places = rows.get(at, ())
    if of == at or not all(r.places for r in places):
        return None
    made = [Row(n.outputs[0], axis + r.axis, r.start, False) for r in places]
    made += [Row(n.outputs[0], r.axis + (ranks[1] - 1 if axis < r.axis else 0), r.start, r.places)
             for r in rows.get(of, ()) if r.axis != axis]
    return Found(tuple(made), inside=tuple(r for r in rows.get(of, ()) if r.axis == axis))


def _gathered_points(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Elements of a tensor taken at points, whose coordinates are the last axis."""
    of, at = n.inputs
    last = len(shape(at) or ()) - 1
    if of in rows or n.attr("batch_dims", 0) or any(
            r.axis == last or not r.places for r in rows[at]):
        return None
    return _merged(_made(n, r.axis, r) for r in rows[at])


def _cut_out(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Regions of images: of those that are none, of the first image."""
    regions, numbers = (rows.get(i, ()) for i in n.inputs[1:])
    if n.inputs[0] in rows or len(regions) != 1 or len(numbers) != 1 or regions[0].axis or (
            not numbers[0].places):
        return None
    met = _meeting([(n.inputs[1], 0), (n.inputs[2], 0)], rows)
    assert met is not None, n
    return Found(_made(n, 0, regions[0]).rows, (), met[1])


def _kept(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Rows of which a condition, as long, keeps some."""
    of, keep = n.inputs
    axis = n.attr("axis")
    if axis is None and len(shape(of) or ()) > 1:
        return None
    axis = (axis or 0) % max(len(shape(of) or ()), 1)
    mine, there = [r for r in rows.get(of, ()) if r.axis == axis], rows.get(keep, ())
    if bool(mine) != bool(there):
        return None
    others = tuple(Row(n.outputs[0], r.axis, r.start, r.places)
                   for r in rows.get(of, ()) if r.axis != axis)
    met = _meeting([(keep, 0), (of, axis)], rows) if there else None
    return Found(others, tuple(there), met[1] if met else ())


def _put_in(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Updates at as many places, and what they are put into."""
    of_mask = n.attr(MASK)
    if isinstance(of_mask, OfMask):
        return _by_mask(n, of_mask, rows, shape)
    into, at, new = n.inputs
    if len(set(n.inputs)) < 3:
        return None
    rank, places = len(shape(into) or ()), shape(at) or ()
    if n.op == "ScatterND":
        lead, width = len(places) - 1, places[-1]
        if not isinstance(width, Const) or any(r.axis == lead for r in rows.get(at, ())):
            return None
        named = set(range(width.value))
        updates = [_summed([(at, k), (new, k)], rows) for k in range(lead)]
        rest = {k: [(into, k), (new, k - width.value + lead)] for k in range(width.value, rank)}
    else:
        named = {n.attr("axis", 0) % max(rank, 1)}
        updates = [_summed([(at, k), (new, k)], rows) for k in named]
        rest = {k: [(t, k) for t in n.inputs] for k in set(range(rank)) - named}
    made = [Row(n.outputs[0], r.axis, r.start, False) for r in rows.get(into, ())]
    beside: tuple[Alike, ...] = ()
    for k, axes in rest.items():
        met = _meeting(axes, rows)
        if met is not None and k not in {r.axis for r in made}:
            return None
        beside += met[1] if met else ()
    inside = tuple(r for r in rows.get(into, ()) if r.axis in named)
    return _merged([*updates, Found(tuple(made), (), beside, inside)])


def _by_mask(n: Node, how: OfMask, rows: Rows, shape: Shapes) -> Found | None:
    """A choice between old and new elements, a mask along the first axes."""
    into, mask, value = n.inputs
    rank, lead, ahead = (len(shape(i) or ()) for i in n.inputs)
    if how.rows == "one" and value in rows:
        return None
    found: list[Found] = []
    for k in range(rank):
        axes = [(into, k)] + [(mask, k)] * (k < lead)
        at = k if how.rows == "all" else k - rank + ahead  # of the value, -1 and below: none
        if how.rows == "all" or how.rows == "alike" and k >= lead and at >= 0:
            axes.append((value, at))
        met = _meeting(axes, rows, shape)
        if met is not None:
            found.append(Found((Row(n.outputs[0], k, met[0], False),), (), met[1]))
    return _merged(found)


# operators of several inputs that may be rows
_SEVERAL: dict[str, Callable[[Graph, Node, Rows, Shapes], Found | None]] = {
    "MatMul": _product, "Gemm": _gemm, "Concat": _joined, "Gather": _gathered,
    "GatherND": _gathered_points, "RoiAlign": _cut_out, "Compress": _kept, "Einsum": _labelled,
    "ScatterND": _put_in, "ScatterElements": _put_in, "Scatter": _put_in}


def _folded(graph: Graph, n: Node, row: Row, rank: int) -> Found | None:
    """A fold along the rows' axis, or along others."""
    if n.op in ("Softmax", "LogSoftmax"):
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
        last = n.op in ("ArgMax", "ArgMin") and n.attr("select_last_index", 0)
        return None if last else Found(folds=(row,))
    before = 0 if n.attr("keepdims", 1) else sum(a < row.axis for a in axes)
    return _made(n, row.axis - before, row)


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
        return _made(n, rest[row.axis], row, True)
    return None if row.axis in places else _made(n, rest.index(row.axis), row, True)


__all__ = ["Alike", "Found", "Row", "after", "none_of"]
