"""What templates of weights in groups on tensor cores are rendered with."""

from typing import Any

from aotc.emit.c.half_lanes import KIND
from aotc.emit.c.scalars import Scalars
from aotc.emit.simt.thread_sums import MMA
from aotc.emit.text.cexpr import c_index
from aotc.ir.block_statements import BlockTile, FewRowSums, StepGroups
from aotc.ir.expr import Const
from aotc.ir.simplify import simplify
from aotc.target.kernel_rows import ProductRow


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


def few_group_names(s: FewRowSums, row: ProductRow, threads: int) -> dict[str, Any]:
    """{name in the template of few rows on tensor cores: value}, in a block of so many threads."""
    g = s.grouping
    assert g is not None and row.shared is not None, s.row
    chunk = next(n for n in (64, 32, 16) if n % g.size == 0 or g.size % n == 0)
    span, own, end = min(g.size, chunk), g.bits // 2, c_index(s.terms, 4)
    busy, whole = threads > row.threads, simplify(s.terms % chunk) == Const(0)
    kind, tail = KIND[row.a], "k + %s < end"
    # rows of A that a lane has, of 16 terms that exist
    live = [] if s.rows is None else [f"lane / 4 + 8 * i < {c_index(s.rows, 11)}"]
    live += [] if whole else [tail % "at"]
    apart = c_index(s.a.strides[0], 14)
    return {"g": g, "chunk": chunk, "span": span, "groups": chunk // span, "blocks": chunk // 16,
            "own": own, "per_k": " / 2" if g.bits == 4 else "", "extra": g.zeros + g.planes,
            "block_row": f"n * {2 * g.bits}" if span == chunk else
            f"n * 16 / {span} * {g.rows} + n * 16 % {span} * {g.bits} / 8",
            "end": f"warp < TEAMS ? {end} : 0" if busy else end, "busy": busy,
            "exists": "" if whole else tail % "n * 16" + " ? ",
            "there": "" if whole else tail % f"n * {span}" + " ? ",
            "otherwise": "" if whole else " : 0", "live": "".join(
                f", {x}" for x in (" && ".join(live),) if x),
            "read": "load" if s.wide else "take", "row": f"(lane / 4 + 8 * i) * {apart} + ",
            "element": f"aotc_{kind}", "zeros": str(g.zeros).lower(),
            "scales": " + 1" if g.zeros else "", "mma": MMA["f32" + row.a]}


__all__ = ["few_group_names", "group_names"]
