"""Products of one row: lanes along the sum, where the other factor lies that way in memory."""

from aotc.ir.access import is_unit
from aotc.ir.category import Factors
from aotc.ir.expr import Const, Load
from aotc.ir.stage_choice import StageChoice
from aotc.sched.model.stages import Stage
from aotc.sched.rows.settled_choices import Settled


def single_row_choice(c: Settled, s: Stage, f: Factors) -> StageChoice | None:
    """The choice of a contraction whose lane operand would be packed for one row of the other: a
    fold with lanes along the sum reads both where they lie, once, as a query does with a cache of
    keys.  None where packing may serve several rows, or lanes would not fill."""
    rows = c.target.rows("window")
    if not rows or c.target.machine.threads or any(a.extent != Const(1) for a in f.m):
        return None
    sums = [r for r in f.k if r.extent != Const(1)]
    if len(sums) != 1 or s.body.dtype != "f32" or len(s.outputs) != 1:
        return None
    k, whole = sums[0], sums[0].extent
    if not isinstance(whole, Const) or whole.value < c.target.lanes:
        return None
    for factor in (f.a, f.b):
        if not isinstance(factor, Load) or factor.dtype != "f32" or not is_unit(
                c.offset(factor), k):
            return None
    return StageChoice(rows[-1].name, k.name)
