"""Which products have their weights stored as 8 or 4 bits, by the precision that was asked for."""

from collections.abc import Collection

from aotc.ir.category import grouped_dtypes
from aotc.ir.expr import Binary
from aotc.ir.numbers.byte_panels import panel_fault
from aotc.ir.numbers.grouped import grouped_weights
from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import WEIGHT_BITS
from aotc.ir.tile_statements import dot_step
from aotc.passes.precision import integer_rows
from aotc.passes.precision.group_weights import RULE, SIZES, match_weights
from aotc.passes.precision.integer_rows import match_rows, whole_rows
from aotc.sched.model.size import estimate_volume
from aotc.sched.precision.levels import Level
from aotc.sched.rows.serving import reads_groups
from aotc.target.base import Target


def choose_groups(program: Program, target: Target, level: Level,
                  only: Collection[str] | None = None) -> tuple[Rewrite, ...]:
    """The rewrites of a Schedule for a Level of ``WEIGHT_BITS``: (("group", compute, {"bits": ..,
    "size": .., "stored": ..}), ..), in program order: every product of a constant matrix, or those
    of the computes ``only``.  A target without rows for them stores the rounded numbers as f32.
    Where the level's rows become integers and the target has rows for those, (("integer_rows",
    compute, {"bits": ..}), ..) behind them: the model may have brought such weights in groups."""
    stored = "bytes" if reads_groups(target) else "f32"
    bits = WEIGHT_BITS[level.precision]
    found = {"bits": bits, "size": SIZES[0], "stored": stored}
    steps = [s for s in program.steps if isinstance(s, Compute) and (
        only is None or s.outs[0] in only)]
    rows = integer_rows.BITS[level.row_bits] if level.rows else None
    out, several = [], [s.out for s in steps if rows and _brought(program, s, rows)]
    for s in steps:
        m = match_weights(program, s)
        if m is not None and (
                estimate_volume(a.extent for a in m[0].n) >= target.tuning.narrow_columns):
            out.append((RULE, s.outs[0], found))
            if estimate_volume(a.extent for a in m[0].m) > 1 and (  # one waits for memory anyway
                    whole_rows(program, m[0])):
                several.append(s.outs[0])
    if rows is None or stored != "bytes" or not any(
            u.takes(grouped_dtypes(rows, bits)) for u in target.rows("dot")):
        return tuple(out)
    return (*out, *((integer_rows.RULE, name, {"bits": level.row_bits}) for name in several))


def _brought(program: Program, c: Compute, dtype: str) -> bool:
    """True for a product of several rows by weights that came in groups, which rows for integers
    of a dtype may read."""
    if match_rows(program, c) is None:
        return False
    assert isinstance(c.body, Binary), c  # of rows and weights
    found = grouped_weights(c.body.a) or grouped_weights(c.body.b)
    rows = estimate_volume(a.extent for a in c.axes if found is None or a != found.n)
    return found is not None and panel_fault(found.grouping, dot_step(dtype)) is None and rows > 1


__all__ = ["choose_groups"]
