"""Step ``rewrites`` of ``decide``: which rewrites a Program gets, and layouts that are
settled with them.

Each kind makes candidates and asks what they cost; the first that takes a compute keeps it."""

from collections.abc import Mapping

from aotc.ir.layout import Layout
from aotc.ir.program import Program, Rewrite
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.candidates.image_inputs import choose_phases, choose_sampled, choose_unfolds
from aotc.sched.candidates.joined_products import choose_joined
from aotc.sched.candidates.layout_rules import settle_layouts, split_settled
from aotc.sched.candidates.long_sums import choose_split_k
from aotc.sched.candidates.split_streams import choose_split_keys
from aotc.sched.candidates.stream_masks import choose_inlined
from aotc.sched.candidates.winograd_choice import choose_winograd
from aotc.sched.choose.precision import choose_precision
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.precision.levels import Levels
from aotc.target.base import Target


def choose_rewrites(program: Program, target: Target, winograd: str | int, unfold: bool,
                    layouts: Mapping[str, Layout], free: bool, precision: str,
                    levels: Levels | None) -> tuple[
                        tuple[Rewrite, ...], dict[str, Layout]]:
    """(rewrites, layouts) of a Program, the latter with those given.  free: what is stored may be
    chosen, as groups are; the others as of ``decide``."""
    joined = choose_joined(program, target, levels or {})
    program = apply_rewrites(program, joined)
    if levels:
        levels = {f"{c}_joined": levels[c] for _, c, _ in joined if c in levels} | {**levels}
    near = Neighbourhoods(program, target)
    rewrites = joined + choose_winograd(near, winograd, precision, levels)
    if unfold:
        rewrites += choose_unfolds(near, {r[1] for r in rewrites})
    given = dict(layouts)
    if free:
        rewrites += choose_phases(near)
        copied = choose_sampled(near)
        program = apply_rewrites(program, rewrites)
        found = settle_layouts(Neighbourhoods(program, target))
        more, settled = split_settled({b: x for b, x in found.items() if b not in given})
        copies = tuple(r for r in copied if r[1] not in given)
        rewrites, given = rewrites + more + copies, settled | given
    formed = {r[1] for r in rewrites}
    program = apply_rewrites(program, rewrites)
    rewrites += choose_precision(program, target, precision, levels)
    rewrites += (keys := choose_split_keys(apply_rewrites(program, rewrites), target))
    formed |= {r[1] for r in keys}
    # what products cost in parts depends on what their operands are rounded to
    rewrites += choose_split_k(apply_rewrites(program, rewrites), target, formed)
    rewrites += choose_inlined(program, target, rewrites)
    return rewrites, given


__all__ = ["choose_rewrites"]
