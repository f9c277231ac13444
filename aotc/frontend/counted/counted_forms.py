"""Operators that take axes of which data says how many elements there are without an extent that a
symbol stands for: what lies behind the elements is as their padding for those that slide a window,
and recurrent layers are told how many steps there are."""

from collections.abc import Sequence
from dataclasses import replace

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.counted.counted_axes import Call, build_along_axes, extend_to_room
from aotc.frontend.graph import Node
from aotc.frontend.row_values import Row
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Const, Expr, Where, all_hold, compare, minimum
from aotc.ir.program import neutral_value

# operators that slide a window over what padding holds -> the fold that the padding does not change
_PADDED = {"Conv": "sum", "ConvTranspose": "sum", "MaxPool": "max"}
_RECURRENT = ("GRU", "LSTM", "RNN")
_LENGTHS = 4  # their input that holds the steps of every batch entry


def build_by_form(node: Node, b: Builder, call: Call) -> Result | None:
    """The node's Vals, whose numbers of elements are entered; None if its operator has no form of
    its own for such axes."""
    rows = b.rows.get(node.inputs[0], ()) if node.inputs and not node.domain else ()
    if not rows or any(i in b.rows for i in node.inputs[1:]):
        return None
    if node.op in _PADDED:
        return _padded(node, b, call, rows)
    return _recurrent(node, b, call, rows) if node.op in _RECURRENT else None


def _padded(node: Node, b: Builder, call: Call, rows: Sequence[Row]) -> Val | None:
    """What slides a window over the room, which holds padding behind the elements."""
    given = node.attr("auto_pad", "NOTSET") in ("NOTSET", "", "VALID")
    if not given or node.attr("output_shape") is not None or len(node.outputs) > 1 or any(
            r.axis < 2 for r in rows):
        return None
    build_along_axes(node, b, call, shapes=True)  # the number of elements of the result
    v = b.tensor(node.inputs[0])
    for r in rows:
        v = extend_to_room(b, v, r)
    none = neutral_value(_PADDED[node.op], v.dtype)
    if none.value or not all(r.places for r in rows):
        v = _there(b, v, rows, none)
    b.node = _with(node, b, 0, v)
    made = call(b.node, b)
    assert isinstance(made, Val), node
    return made


def _there(b: Builder, v: Val, rows: Sequence[Row], none: Const) -> Val:
    """``v``, ``none`` behind the elements that there are."""
    def body(i: Index) -> Expr:
        held = all_hold(compare("lt", i[r.axis], b.load(b.counts[r.start][0], ())) for r in rows)
        assert held is not None, rows
        return Where(held, b.at(v, i), none)
    return b.map(v.shape, body, [v, *(b.counts[r.start][0] for r in rows)], "there")


def _recurrent(node: Node, b: Builder, call: Call, rows: Sequence[Row]) -> Result | None:
    """A recurrent layer of as many steps as there are, in every batch entry; or of batch entries,
    which know nothing of each other, with room for the most."""
    batch = 0 if node.attr("layout", 0) else 1
    if len(rows) > 1 or rows[0].axis == 2:
        return None
    (row,) = rows
    v = extend_to_room(b, b.tensor(node.inputs[0]), row)
    b.node = _with(node, b, 0, v)
    if row.axis == batch:
        if any(node.inputs[_LENGTHS:7]):
            return None
        found = [0, 0, 0] if batch == 0 else [2, 1, 1]
    else:
        b.node = _with(b.node, b, _LENGTHS, _lengths(b, v.shape[batch], row))
        found = [1 - batch]
    made = call(b.node, b)
    for out, axis in zip(node.outputs, found):
        if out:
            b.rows[out] = (*b.rows.get(out, ()), Row(out, axis, row.start, False))
    return made


def _lengths(b: Builder, batch: Expr, row: Row) -> Val:
    """The steps of every batch entry: as many as there are, or fewer if the node has fewer."""
    given, total = b.arg(_LENGTHS), b.counts[row.start][0]

    def length(i: Index) -> Expr:
        number = b.load(total, ())
        return number if given is None else minimum(cast(INDEX, b.at(given, i)), number)
    return b.map((batch,), lambda i: cast("i32", length(i)),
                 [total, *([given] if given is not None else [])], "lengths")


def _with(node: Node, b: Builder, k: int, v: Val) -> Node:
    """The node with ``v`` as its input ``k``."""
    name = f"input_{k}_of_{next(o for o in node.outputs if o)}"
    b.env[name] = v
    inputs = [*node.inputs, *[""] * (k + 1 - len(node.inputs))]
    return replace(node, inputs=(*inputs[:k], name, *inputs[k + 1:]))


__all__ = ["build_by_form"]
