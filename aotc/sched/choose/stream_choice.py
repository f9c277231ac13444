"""Choices and tiles of groups that stream (``rows/stream_stages.py``)."""

from dataclasses import replace

from aotc.ir.category import Factors
from aotc.ir.expr import Const
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.cost.stream_cost import stream_rows
from aotc.sched.rows.row_blocks import row_block
from aotc.sched.rows.stream_stages import find_stream
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


def stream_choices(program: Program, target: Target, group: Group) -> dict[str, StageChoice]:
    """{stage: its choices}, of both products of a group that streams; its other stages have the
    row of the scores."""
    found = find_stream(program, group)
    assert found is not None, group.name
    rows = stream_rows(program, target, found)
    assert rows is not None, group.name
    scores, values = rows
    out = {n: StageChoice(scores.name) for n in found.names}
    out[found.scores.name] = _choice(scores, found.scored, "packed")
    out[found.values.name] = replace(_choice(values, found.valued, "held"), row=values.name)
    return out


def _choice(row: ProductRow, f: Factors, a: str) -> StageChoice:
    return StageChoice(row.name, f.n[0].name, f.k[0].name, a, "packed")


def stream_tile(program: Program, target: Target, group: Group) -> dict[str, int]:
    """{axis: extent} of the work items of a group that streams: the rows of one tile."""
    found = find_stream(program, group)
    assert found is not None, group.name
    row = target.product_row(group.choices[found.scores.name].row)
    inside = (*found.valued.m, *found.valued.n)
    single = {a.name: 1 for a in found.values.axes if a not in inside and a.extent != Const(1)}
    return single | row_block(found.valued.m, row.tile.mr, row.tile.mr, target.tuning.symbols_grow)


__all__ = ["stream_choices", "stream_tile"]
