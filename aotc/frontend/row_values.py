"""What is known of axes whose number of elements data says, and how such axes meet: the values that
rules of operators (``frontend/counted_tensors.py``) are made of."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aotc.frontend.graph import Graph, Node
from aotc.ir.expr import Const, Shape

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
    tells; ``zeroed``: rows that must be zeros behind the elements that there are."""

    rows: tuple[Row, ...] = ()
    folds: tuple[Row, ...] = ()
    alike: tuple[Alike, ...] = ()
    inside: tuple[Row, ...] = ()
    moved: tuple[Row, ...] = ()
    zeroed: tuple[Row, ...] = ()


Rows = Mapping[str, Sequence[Row]]
# what a node makes of rows among its inputs; None if that cannot be said
Rule = Callable[[Graph, Node, Rows, Shapes], Found | None]


def merge_found(found: Iterable[Found | None]) -> Found | None:
    """All of them as one; None if one of them cannot be said."""
    out = Found()
    for f in found:
        if f is None:
            return None
        out = Found(out.rows + f.rows, out.folds + f.folds, out.alike + f.alike,
                    out.inside + f.inside, out.moved + f.moved, out.zeroed + f.zeroed)
    return out


def made_row(n: Node, axis: int, row: Row, places: bool = False) -> Found:
    """Results that have as many elements as ``row``, along ``axis``."""
    return Found(tuple(Row(o, axis, row.start, places and row.places) for o in n.outputs if o))


def match_rows(axes: Sequence[tuple[str, int]], rows: Rows, shape: Shapes | None = None
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


def sum_over_rows(axes: Sequence[tuple[str, int]], rows: Rows,
                  shape: Shapes | None = None) -> Found:
    """Axes that meet and are summed over: what lies behind the elements is in none of them."""
    met = match_rows(axes, rows, shape)
    if met is None:
        return Found()
    start, alike = met
    return Found((), tuple(Row(t, axis, start) for t, axis in dict.fromkeys(axes)), alike)


__all__ = ["Alike", "Found", "Row", "Rows", "Rule", "Shapes", "made_row", "match_rows",
           "merge_found", "sum_over_rows"]
