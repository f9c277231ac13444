"""Tiles of axes that are the rows of a product."""

from aotc.ir.category import Axes
from aotc.ir.expr import Const
from aotc.sched.model.size import estimate, reach


def even_tile(extent: int, tile: int) -> int:
    """The tile shrunk so that all tiles are nearly equal."""
    count = -(-extent // max(1, min(tile, extent)))
    return -(-extent // count)


def row_block(axes: Axes, rows: int, mr: int, grow: float) -> dict[str, int]:
    """Tile of the row axes: whole inner axes while they fit, then a cut, then single steps.  An
    inner axis whose extent is a symbol's is whole if even its largest extent does not make far more
    rows of it, ``grow`` times those wanted; the outermost is always cut: large ones have many
    workers."""
    tile, inner, most = {}, 1, 1
    for a in reversed(axes):
        n, largest = estimate(a.extent), reach(a.extent)
        static = isinstance(a.extent, Const)
        fits = a is not axes[0] and largest and most * largest <= rows * grow
        if inner * n <= rows and (static or fits):
            inner, most = inner * n, most * (largest or n)
            continue
        cut = max(1, rows // inner)
        if inner == 1:
            cut = max(mr, cut // mr * mr)
        tile[a.name] = even_tile(n, cut) if static and inner > 1 else cut
        inner = max(rows, inner) * n  # every outer axis goes in single steps
    return tile


__all__ = ["even_tile", "row_block"]
