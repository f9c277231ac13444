"""What the template of weights in groups on tensor cores is rendered with."""

from typing import Any

from aotc.emit.c.scalars import Scalars
from aotc.ir.block_statements import BlockTile, StepGroups


def group_names(s: BlockTile, groups: StepGroups, block: Scalars) -> dict[str, Any]:
    """{name in the template: value} of a step; ``block`` gets the lines in front of it."""
    g, span = groups.grouping, groups.span
    _, swizzle = s.swizzle
    assert swizzle is not None, s.row
    rows = swizzle.rows * 4 // g.bits  # of the four lanes of a quad, whose bytes are turned alike
    turn = f" / {rows}" * (rows > 1) + f" % {swizzle.chunks}" * (4 // rows > swizzle.chunks)
    return {"g": g, "span": span, "groups": s.depth // span, "codes": s.depth * g.bits // 8,
            "beside": g.zeros + g.planes, "zeros": str(g.zeros).lower(),
            "first": "BN + " if g.zeros else "", "totals": groups.totals.name, "b_turn": turn,
            "per_k": " / 2" if g.bits == 4 else "", "per_lane": " * 2" if g.bits == 8 else "",
            "ends": "" if groups.ends is None else block.text(groups.ends, 0)}


__all__ = ["group_names"]
