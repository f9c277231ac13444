"""A Nest as statements of a block of threads that share a work item."""

from aotc.ir.kernel.plan_stages import Nest
from aotc.ir.program import Fold
from aotc.ir.statements import Accumulate, Body, First, Range, Spread, Store, Total
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.nests import fold_in_loops, scalar_fold


def shared_nest(nest: Nest, expansion: Expansion, lanes: int) -> Body:
    """The statements of a Nest whose points threads share; a row whose lanes lie along the reduced
    axis is folded by ``nest.team`` times ``lanes`` threads."""
    if not nest.folds_lanes or isinstance(nest.fold, Fold):
        point = (*scalar_fold(nest, expansion), Store(nest.puts))
        return (_spread(nest.ranges, "threads", 1, point),)
    size, acc, fold = lanes * nest.team, nest.acc[0], nest.fold_name
    share = fold_in_loops(nest, nest.acc, expansion, lambda accs: (
        Accumulate(fold, ((accs[0], nest.body),)),),
        lambda ranges, body: (_spread(ranges, "group", size, tuple(body)),))
    row = (*share, Total(acc, fold, acc, threads=size), First(size, (Store(nest.puts),)))
    return (_spread(nest.ranges, "groups", size, row),)


def _spread(ranges: tuple[Range, ...], over: str, size: int, body: Body) -> Spread:
    return Spread(ranges, over, size, body)


__all__ = ["shared_nest"]
