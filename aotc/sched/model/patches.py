"""Work items in patches: of two axes those that lie in a square are next to each other."""

from collections.abc import Mapping, Sequence

from aotc.ir.expr import Axis, Expr
from aotc.ir.simplify import simplify
from aotc.ir.statements import TILE


def patch_places(order: Sequence[Axis], counts: Sequence[Expr], patch: Mapping[str, int],
                 let: list[tuple[Axis, Expr]]) -> dict[Axis, Expr]:
    """{axis: number of a work item along it} of the last two of ``order`` where there is a
    ``patch``: bands of so many tiles along its axis, and in each one step of the other axis after
    the other.  counts: work items along each; let: gets the names that these are said with."""
    for name, wide in patch.items():
        (a, _), (b, n) = sorted(zip(order[-2:], counts[-2:]), key=lambda x: x[0].name != name)
        both = simplify(counts[-1] * counts[-2])
        within = Axis("tile_pair", both)
        let.append((within, TILE % both if len(order) > 2 else TILE))
        band = simplify(n * wide)
        return {a: within // band * wide + within % wide, b: within % band // wide}
    return {}


__all__ = ["patch_places"]
