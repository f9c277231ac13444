"""Moves that exchange the innermost axis: which two axes the blocks of a transposition run over."""

from aotc.ir.access import is_unit, is_woven, offset_of, stride
from aotc.ir.expr import Load, walk
from aotc.ir.stage_choice import StageChoice
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage
from aotc.sched.rows.settled_choices import Settled
from aotc.target.base import Target
from aotc.target.kernel_rows import NestRow


def exchange_row(target: Target) -> NestRow | None:
    """The row that transposes blocks, or None."""
    return next((u for u in target.rows("move") if u.exchanges), None)


def exchange_choice(c: Settled, stage: Stage, weave: bool = False) -> StageChoice | None:
    """The choice of a move that reads neighbours along one axis and writes neighbours along
    another: ``lanes`` is the first, ``block`` the second.  None if the target has no such row, or
    the move is none.  c: what is settled so far, with layouts of what the stage reads and writes.
    weave: ``block`` may have 2 or 3 points, if they are all that lies between ``lanes``."""
    row = exchange_row(c.target)
    if row is None or len(stage.outputs) != 1 or stage.body.dtype != "f32":
        return None
    o = stage.outputs[0]
    found = {n for n in walk(o.value) if isinstance(n, Load)}  # loads in indices count, too
    if len(found) != 1 or o.value.dtype != "f32":
        return None
    source = c.offset(found.pop())
    target = offset_of(o.index, c.program.shape(o.buffer), c.layouts.get(o.buffer))
    wide = [a for a in stage.axes if estimate(a.extent) >= c.target.tuning.exchange_least]
    lane = next((a for a in wide if is_unit(source, a)), None)
    block = next((a for a in stage.axes if is_unit(target, a) and (
        a in wide or weave and lane is not None and is_woven(target, lane, a))), None)
    if lane is None or block is None or lane == block or any(
            stride(at, a) is None for at in (source, target) for a in (lane, block)):
        return None
    return StageChoice(row.name, lane.name, block=block.name)
