"""Which products have their operands rounded, by the precision that was asked for."""

from collections.abc import Collection, Iterable

from aotc.ir.category import BF16_PRODUCT
from aotc.ir.dtypes import HALF
from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import MIXED, PRECISION, WEIGHT_BITS
from aotc.passes.precision.group_weights import RULE as GROUP
from aotc.passes.precision.half_columns import RULE as HALVE
from aotc.passes.precision.half_columns import match_columns
from aotc.passes.precision.integer_rows import RULE as INTEGER_ROWS
from aotc.passes.precision.narrow_operands import RULE, match_product
from aotc.passes.winograd import staged
from aotc.sched.cost.row_cost import saves_packing
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.precision.levels import Level, Levels, at_level
from aotc.sched.precision.weight_bits import choose_groups
from aotc.target.base import Target


def choose_precision(program: Program, target: Target, precision: str,
                     levels: Levels | None = None) -> tuple[Rewrite, ...]:
    """The rewrites of a Schedule for ``precision``, one of ``PRECISION``: (("narrow", compute,
    {"dtype": .., "stored": ..}), ..), in program order.  Which products they are follows from the
    Program alone.  levels: of computes that have one of their own.  Stages of Winograd forms are
    f32: the last transform would magnify the roundings.  A target without rows for bf16 or f16, or
    with slow ones, stores the rounded numbers as f32."""
    own, exact = levels or {}, staged(program).keys()
    others = {o: Level(precision) for s in program.steps for o in s.outs if o not in own}
    return tuple(r for level, only in at_level({**others, **own})
                 for r in _at(program, target, level, only - exact))


def _at(program: Program, target: Target, level: Level,
        only: Collection[str]) -> tuple[Rewrite, ...]:
    """The rewrites that give computes a Level."""
    if level.precision == PRECISION[0]:
        return ()
    if level.precision in WEIGHT_BITS:
        return choose_groups(program, target, level, only)
    if level.precision == HALF:
        return _halved(program, target, only)
    rows = any(u.takes(BF16_PRODUCT) for u in target.rows("dot"))
    stored = level.precision if rows and target.tuning.narrow_rate >= 1 else "f32"
    return tuple((RULE, s.out, {"dtype": level.precision, "stored": stored}) for s in program.steps
                 if isinstance(s, Compute) and len(s.outs) == 1 and s.out in only
                 and _gains(program, target, s))


def precision_of(rewrites: Iterable[Rewrite], usual: str) -> str:
    """The precision of a Schedule by the rewrites that round operands; ``usual`` if none does,
    ``MIXED`` if they round to several, or only rows of weights that the model brought."""
    names = {bits: name for name, bits in WEIGHT_BITS.items()}
    found = {p["dtype"] if rule == RULE else HALF if rule == HALVE else names[p["bits"]]
             for rule, _, p in rewrites if rule in (RULE, HALVE, GROUP)}
    if not found and usual == PRECISION[0] and any(rule == INTEGER_ROWS for rule, *_ in rewrites):
        return MIXED
    return MIXED if len(found) > 1 else next(iter(found), usual)


def _halved(program: Program, target: Target, only: Collection[str]) -> tuple[Rewrite, ...]:
    """The products of ``only`` whose constant columns become f16: those with a vector of them at
    least."""
    stored = {"stored": HALF if target.halves else "f32"}
    return tuple((HALVE, s.out, stored) for s in program.steps if isinstance(s, Compute)
                 and s.outs[0] in only and len(s.outs) == 1
                 and (load := match_columns(program, s)) is not None
                 and program.consts[load.buffer].size >= target.tuning.narrow_columns
                 * target.tuning.narrow_depth)


def _gains(program: Program, target: Target, c: Compute) -> bool:
    """True for a product with work enough for each element of its rows, and for each of columns
    that every work item packs: what its rows of fewer bits save there is more than that takes."""
    m, tuning = match_product(program, c), target.tuning
    if m is None:
        return False
    depth = estimate_volume(r.extent for r in m.factors.k)
    if estimate(m.factors.lane.extent) < tuning.narrow_columns or depth < tuning.narrow_depth:
        return False
    rows = estimate_volume(a.extent for a in m.factors.m)
    return not m.computed or saves_packing(rows, tuning)


__all__ = ["choose_precision", "precision_of"]
