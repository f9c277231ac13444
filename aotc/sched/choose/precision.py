"""Which products have their operands rounded, by the precision that was asked for."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from aotc.ir.category import BF16_PRODUCT, dot_dtypes, grouped_dtypes
from aotc.ir.dtypes import BF16, HALF, HALVES
from aotc.ir.expr import Binary
from aotc.ir.numbers.byte_panels import panel_fault
from aotc.ir.numbers.grouped import grouped_weights
from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import MIXED, PRECISION, WEIGHT_BITS
from aotc.ir.tile_statements import dot_step
from aotc.passes.precision import group_weights, half_columns, integer_rows, narrow_operands
from aotc.passes.precision.rounding_table import ROUNDINGS, rewrite_precision
from aotc.passes.sums.split_keys import weighed_products
from aotc.passes.winograd import stages_of_forms
from aotc.sched.cost.row_cost import saves_packing
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.precision.levels import Level, Levels, computes_by_level
from aotc.sched.rows.useful_targets import reads_groups, reads_halves
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


def choose_precision(program: Program, target: Target, precision: str,
                     levels: Levels | None = None) -> tuple[Rewrite, ...]:
    """The rewrites of a Schedule for ``precision``, one of ``PRECISION``: ((rule, compute,
    parameters), ..), in program order.  Which products they are follows from the Program alone.
    levels: of computes that have one of their own.  Stages of Winograd forms are f32: the last
    transform would magnify the roundings.  A target without rows for a precision, or with slow
    ones, stores the rounded numbers as f32."""
    own, exact = levels or {}, stages_of_forms(program).keys()
    others = {o: Level(precision) for s in program.steps for o in s.outs if o not in own}
    return tuple(r for level, only in computes_by_level({**others, **own})
                 for r in _at(program, target, level, only - exact))


def _at(program: Program, target: Target, level: Level,
        only: Collection[str]) -> tuple[Rewrite, ...]:
    """The rewrites that give computes a Level."""
    if level.precision not in ROUNDINGS:
        return ()
    precision = level.precision
    steps = [s for s in program.steps if isinstance(s, Compute) and len(s.outs) == 1
             and s.out in only]
    rounded = {s: r for s in steps for r in reversed(ROUNDINGS[precision].rules)
               if _RULES[r.rule][1](program, target, precision, s)}  # the first of them is the last
    return (*((r.rule, s.out, {**r.said, **_RULES[r.rule][0](target, precision)})
              for s, r in rounded.items()),
            *((integer_rows.RULE, name, {"bits": level.row_bits}) for name in
              _integer_rows(program, target, level, steps, rounded)))


def precision_of(rewrites: Iterable[Rewrite], usual: str) -> str:
    """The precision of a Schedule by the rewrites that round operands; ``usual`` if none does,
    ``MIXED`` if they round to several, or only rows of weights that the model brought."""
    rewrites = tuple(rewrites)
    found = {rewrite_precision(rule, p) for rule, _, p in rewrites} - {None}
    if not found and usual == PRECISION[0] and any(
            rule == integer_rows.RULE for rule, *_ in rewrites):
        return MIXED
    return MIXED if len(found) > 1 else next(iter(found), None) or usual


def _narrow(target: Target, precision: str) -> dict[str, Any]:
    if precision == HALF:
        return {"stored": HALF}
    rows = any(u.takes(BF16_PRODUCT) for u in target.rows("dot"))
    if precision == BF16 and reads_halves(target, BF16):
        return {"stored": narrow_operands.BITS}
    return {"stored": BF16 if precision == BF16 and rows and (
        target.tuning.narrow_rate >= 1) else "f32"}


def _narrow_pays(program: Program, target: Target, precision: str, c: Compute) -> bool:
    """True for a product with work enough for each element of its rows, and for each of columns
    that every work item packs, as rows in pairs want them: what its rows of fewer bits save there
    is more than that takes.  Of f16 where rows multiply it, and numbers are not of it anyway.  A
    single row reads each column once: computed ones are not rounded for it, unless it may stream,
    and beside weights of f16 or in groups it stays as it is; several rows by those are rounded for
    rows of the target that multiply them."""
    m, tuning = narrow_operands.match_product(program, c), target.tuning
    if m is None or _reads_halves_anyway(program, target, m) or precision == HALF and (
            not reads_halves(target, HALF) or narrow_operands.exceeds(program, m, HALF)
            or program.buffers[m.rows.buffer].declared == HALF):
        return False
    rows = estimate_volume(a.extent for a in m.factors.m)
    kinds = dot_dtypes(c.body)
    if kinds is not None:  # of weights in groups
        return rows > 1 and any(u.takes(replace(kinds, a=precision)) for u in target.rows("dot"))
    said = {"dtype": precision, **_narrow(target, precision)}
    if not m.paired and narrow_operands.multiplies_pairs(said):
        return False
    depth = estimate_volume(r.extent for r in m.factors.k)
    if estimate(m.factors.lane.extent) < tuning.narrow_columns or depth < tuning.narrow_depth:
        return False
    if not m.computed:
        return precision != HALF or rows > 1
    if not reads_halves(target, BF16):
        return saves_packing(rows, tuning)
    streams = any(isinstance(u, ProductRow) and u.a == precision for u in target.rows("stream"))
    return rows > 1 or streams and c.out in weighed_products(program)


def _reads_halves_anyway(program: Program, target: Target,
                         m: narrow_operands.SumOfProducts) -> bool:
    """True for a product of two tensors that the model has in a type of 16 bits which rows
    multiply: they are stored so, or in the kernel that multiplies them."""
    declared = {program.buffers[b.buffer].declared for b in (m.rows, m.weights)}
    return m.computed and len(declared) == 1 and any(
        d in HALVES and reads_halves(target, d) for d in declared)


def _halve(target: Target, precision: str) -> dict[str, Any]:
    return {"stored": HALF if target.halves else "f32"}


def _halve_pays(program: Program, target: Target, precision: str, c: Compute) -> bool:
    """True for a product with a vector of constant columns at least."""
    load, tuning = half_columns.match_columns(program, c), target.tuning
    return load is not None and (
        program.consts[load.buffer].size >= tuning.narrow_columns * tuning.narrow_depth)


def _group(target: Target, precision: str) -> dict[str, Any]:
    return {"size": group_weights.SIZES[0], "stored": "bytes" if reads_groups(target) else "f32"}


def _group_pays(program: Program, target: Target, precision: str, c: Compute) -> bool:
    """True for a product of a constant matrix with a vector of columns at least."""
    m = group_weights.match_weights(program, c)
    return m is not None and (
        estimate_volume(a.extent for a in m[0].n) >= target.tuning.narrow_columns)


# rule -> (parameters that a target asks for, what it pays for)
_RULES: Mapping[str, tuple[Callable[[Target, str], dict[str, Any]],
                           Callable[[Program, Target, str, Compute], bool]]] = {
    narrow_operands.RULE: (_narrow, _narrow_pays), half_columns.RULE: (_halve, _halve_pays),
    group_weights.RULE: (_group, _group_pays)}


def _integer_rows(program: Program, target: Target, level: Level, steps: Iterable[Compute],
                  grouped: Iterable[Compute]) -> list[str]:
    """The products of several rows whose rows become integers, if the level says so and the target
    has rows for them: of weights that the model brought in groups, and of those that are grouped
    now.  A single row waits for memory anyway."""
    dtype = integer_rows.BITS[level.row_bits] if level.rows else None
    if dtype is None or not reads_groups(target) or not any(
            u.takes(grouped_dtypes(dtype, WEIGHT_BITS[level.precision]))
            for u in target.rows("dot")):
        return []
    several = [s.out for s in steps if _brought(program, s, dtype)]
    for s in grouped:
        m = group_weights.match_weights(program, s)
        if m is not None and estimate_volume(a.extent for a in m[0].m) > 1 and (
                integer_rows.whole_rows(program, m[0])):
            several.append(s.out)
    return several


def _brought(program: Program, c: Compute, dtype: str) -> bool:
    """True for a product of several rows by weights that came in groups, which rows for integers
    of a dtype may read."""
    if integer_rows.match_rows(program, c) is None:
        return False
    assert isinstance(c.body, Binary), c  # of rows and weights
    found = grouped_weights(c.body.a) or grouped_weights(c.body.b)
    rows = estimate_volume(a.extent for a in c.axes if found is None or a != found.n)
    return found is not None and panel_fault(found.grouping, dot_step(dtype)) is None and rows > 1


__all__ = ["choose_precision", "precision_of"]
