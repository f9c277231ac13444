"""Which stages have a form over lanes, and along which axes."""

from collections.abc import Sequence

from aotc.ir.dtypes import HALVES
from aotc.ir.expr import Axis, Binary, Const, Expr, Var, Where
from aotc.ir.numbers.narrow import is_lane_value
from aotc.ir.program import Fold
from aotc.sched.model.stages import Stage, stage_category
from aotc.target.kernel_rows import KernelRow, NestRow

FOLDED = ("sum", "max", "min")  # folds that vectors have
_BETTER = (("gt", "ge"), ("lt", "le"))


def nest_kind(s: Stage) -> str:
    """The category of a stage, of a product the one that it has as a nest of loops."""
    kind = stage_category(s)
    return {"contraction": "window", "dot": "reduction"}.get(kind, kind)


def picks_element(fold: str | Fold, axes: Sequence[Axis]) -> bool:
    """True for a fold that keeps the best of its elements and where along its one axis it stands,
    by comparing an element with the best so far: the best of slices is the best of all."""
    if isinstance(fold, str) or len(fold.states) != 2 or len(axes) != 1:
        return False
    (best, at), x = (Var(n, t) for n, t in fold.states), Var("x", fold.states[0][1])
    value, place = fold.update
    return (isinstance(value, Where) and isinstance(place, Where) and value.cond == place.cond
            and (value.a, value.b, place.a, place.b) == (x, best, axes[0], at)
            and fold.init[1] == Const(0) and x.dtype not in HALVES
            and any(_orders(value.cond, x, best, axes[0], better) for better in _BETTER))


def _orders(cond: Expr, x: Var, best: Var, axis: Axis, better: Sequence[str]) -> bool:
    """True if a condition says that an element is better than the best so far, one way: of a first
    element and of NaNs (what is not itself) it may say more."""
    if not isinstance(cond, Binary):
        return False
    if cond.op in ("and", "or"):
        return all(_orders(e, x, best, axis, better) for e in (cond.a, cond.b))
    return (cond.op in better and (cond.a, cond.b) == (x, best)
            or (cond.op, cond.a, cond.b) == ("eq", axis, Const(0))
            or cond.op in ("eq", "ne") and cond.a == cond.b and cond.a in (x, best))


def lane_nest(rows: Sequence[KernelRow], s: Stage) -> bool:
    """True if lanes can compute and store what the stage does, and the category's rows say so."""
    nests = [u for u in rows if isinstance(u, NestRow)]
    if any(u.scalar for u in nests):
        return True
    stored = {t for u in nests for t in u.stored}
    return (s.fold == "none" or s.fold in FOLDED and s.body.dtype == "f32") and all(
        o.value.dtype in stored and is_lane_value(o.value) for o in s.outputs)


def lanes_fold(rows: Sequence[KernelRow], s: Stage) -> bool:
    """True if lanes can have a share each of the terms that the stage folds: of folds that join
    their results as they join terms."""
    return lane_nest(rows, s) and isinstance(s.fold, str) and s.fold != "none" and (
        s.acc[0].dtype not in HALVES)


__all__ = ["FOLDED", "lane_nest", "lanes_fold", "nest_kind", "picks_element"]
