"""Tensors of which data says how many elements there are, followed to the model's outputs: as long
as nothing but operators that make each element of one axis from one element of another read them,
they can be computed for the most elements there may be, and the caller told how many there are."""

from dataclasses import dataclass

from aotc.frontend.graph import Graph, Node

# operators of one tensor that keep its shape
_SAME = frozenset("""
    Abs Cast Ceil Clip Cos Erf Exp Floor Identity IsInf IsNaN Log Neg Not Reciprocal Relu Round
    Sigmoid Sign Sin Sqrt Tanh
""".split())
_WITH_ONE = frozenset("Add And Div Equal Greater Less Max Min Mod Mul Or Pow Sub".split())


@dataclass(frozen=True)
class Row:
    """Axis ``axis`` of ``tensor`` has as many elements as data says; ``rank``: None if unknown;
    ``places``: what lies behind them is zeros, which may be looked up."""

    tensor: str
    axis: int
    rank: int | None
    places: bool = True


def followed(graph: Graph, start: Row) -> tuple[tuple[str, int], ...] | None:
    """The (output, axis) of the Graph that have as many elements as ``start``; None if anything
    else depends on their number."""
    readers: dict[str, list[Node]] = {}
    for n in graph.nodes:
        for i in dict.fromkeys((*n.inputs, *n.captures)):
            readers.setdefault(i, []).append(n)
    found: list[tuple[str, int]] = []
    todo = [start]
    while todo:
        row = todo.pop()
        if row.tensor in graph.outputs:
            found.append((row.tensor, row.axis))
        for n in readers.get(row.tensor, ()):
            after = None if n.domain or row.tensor in n.captures else _after(graph, n, row)
            if after is None:
                return None
            todo.append(after)
    return tuple(dict.fromkeys(found)) or None


def _after(graph: Graph, n: Node, row: Row) -> Row | None:
    """What of a node's result has as many elements; None if that cannot be said."""
    out, given = n.outputs[0], n.inputs
    if n.op in _SAME and given[0] == row.tensor:
        return Row(out, row.axis, row.rank, row.places and n.op in ("Cast", "Identity"))
    if n.op in _WITH_ONE and all(i == row.tensor or i in graph.initializers and (
            graph.initializers[i].ndim == 0) for i in given):
        return Row(out, row.axis, row.rank, False)
    if n.op == "Transpose" and row.rank is not None:
        perm = list(n.attr("perm", range(row.rank)[::-1]))
        return Row(out, perm.index(row.axis), row.rank, row.places)
    if n.op in ("Squeeze", "Unsqueeze") and given[0] == row.tensor:
        return _reshaped(graph, n, row)
    if n.op == "Gather" and len(set(given)) == 2:
        return _gathered(graph, n, row)
    if n.op == "GatherND" and given[0] != row.tensor and not n.attr("batch_dims", 0):
        inner = row.places and row.rank is not None and row.axis < row.rank - 1
        return Row(out, row.axis, None, False) if inner else None
    return None


def _reshaped(graph: Graph, n: Node, row: Row) -> Row | None:
    axes = n.attr("axes")
    if axes is None and len(n.inputs) > 1 and n.inputs[1] in graph.initializers:
        axes = graph.initializers[n.inputs[1]].reshape(-1).tolist()
    if axes is None or row.rank is None:
        return None
    rank = row.rank + (len(axes) if n.op == "Unsqueeze" else 0)
    places = {a % rank for a in axes}
    rest = [k for k in range(rank) if k not in places]
    if n.op == "Unsqueeze":
        return Row(n.outputs[0], rest[row.axis], rank, row.places)
    return None if row.axis in places else Row(n.outputs[0], rest.index(row.axis), len(rest),
                                               row.places)


def _gathered(graph: Graph, n: Node, row: Row) -> Row | None:
    """Elements taken at the places in the tensor, or a few taken of each of its rows."""
    axis = n.attr("axis", 0)
    if n.inputs[1] == row.tensor:
        return Row(n.outputs[0], axis + row.axis, None, False) if axis >= 0 and row.places else None
    few = graph.initializers.get(n.inputs[1])
    if few is None or row.rank is None or axis % row.rank == row.axis:
        return None
    axis %= row.rank
    return Row(n.outputs[0], row.axis + (few.ndim - 1 if axis < row.axis else 0),
               row.rank + few.ndim - 1, row.places)
