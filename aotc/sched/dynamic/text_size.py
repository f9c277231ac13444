"""How much C a group becomes, estimated from its decisions: lowering it would tell, but takes
longer than deciding.

    bytes = stage_text * stages + sum_text * sums

``sums``: those of register tiles that are written out where they are used, each with its epilogue,
in the whole tile and in the smaller ones for last rows.
"""

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.cost.predict import may_write_out, tails_of
from aotc.sched.model.stages import group_stages
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


def text_bytes(program: Program, group: Group, target: Target) -> int:
    """Bytes of C that a group takes, about; program: with its symbols, rewritten.  A library kernel
    counts as one stage."""
    stages, tails = group_stages(program, group), tails_of(program, group, target)
    sums = 0
    for s in stages:
        row = target.row(group.choices[s.name].row)
        if isinstance(row, ProductRow) and row.category == "contraction" and may_write_out(
                s, target):
            sums += (row.tile.mr + sum(tails.get(s.name, ()))) * row.tile.nv
    return target.tuning.stage_text * max(1, len(stages)) + target.tuning.sum_text * sums


__all__ = ["text_bytes"]
