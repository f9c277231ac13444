"""From a Program to a Schedule, in one walk; each step fills more of it and asks what it needs to
know of the cost.

    rewrites    candidates of each kind, asked; layouts that go with them     ``candidates``
    groups      candidates of merges, asked; what is stored as f16 between,   ``candidates``
                products in a block's memory
    kernels     layouts and rows, tiles, copies                               ``choose``
    calls       new entries in fewer kernels; work items, last rows           ``candidates``
    regions     the bodies of loops and branches: this walk for each
    places      memories of clusters and workers, turns                       ``accelerator``
    buffers     slots of the arena                                            ``memory``
    writing     how the statements of every stage are written                 ``text_choices``
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from aotc.ir.layout import Layout
from aotc.ir.program import Branch, Loop, Program
from aotc.ir.schedule import CONNECT, GRAPHTURBO, PRECISION, Group, Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.accelerator.places import places, target_for_tiles
from aotc.sched.candidates.call_tiles import choose_call_tiles
from aotc.sched.candidates.choose_groups import choose_groups
from aotc.sched.candidates.choose_rewrites import choose_rewrites
from aotc.sched.candidates.choose_stored import choose_stored
from aotc.sched.candidates.join_products import join_products
from aotc.sched.candidates.joined_entries import join_new_entries
from aotc.sched.candidates.row_ends import choose_row_ends
from aotc.sched.candidates.winograd_choice import Winograd
from aotc.sched.choose.choose_kernels import choose_kernels
from aotc.sched.choose.precision import precision_of
from aotc.sched.choose.winograd_kernels import join_transforms
from aotc.sched.memory.allocate import allocate
from aotc.sched.precision.levels import Levels
from aotc.sched.rows.settled_choices import inherit
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target.base import Target


def decide(program: Program, target: Target, how: str = "all", winograd: Winograd = "off",
           unfold: bool = False, layouts: Mapping[str, Layout] | None = None,
           groups: Sequence[Group] | None = None, precision: str = PRECISION[0],
           levels: Levels | None = None, inner: bool = False,
           written: bool = True, apart: Collection[str] = ()) -> Schedule:
    """Schedule of ``program`` for ``target``; deterministic, measures nothing.  how: a name of
    ``CONNECT``, or ``GRAPHTURBO``.  winograd: one of ``WINOGRAD``, which forms convolutions may
    get, or the rewrites themselves (a tuple).  unfold: rewrite first layers, too.  layouts: {stored
    buffer: Layout} that are settled (an empty Layout: row-major), where the rewritten program has
    them.  groups: those of the rewritten program, if they are settled.  precision: one of
    ``PRECISION``, of the operands of products that are left to choose rewrites for, in regions too;
    levels: of computes that have one of their own.  inner: of a body, which runs in rounds.
    written: False leaves how statements are written to a later ``choose_writing``, in Schedules
    that are compared or moved to other extents.  apart: computes that are merged with no others."""
    rewrites, given = (winograd, dict(layouts or {})) if isinstance(winograd, tuple) else (
        choose_rewrites(program, target, winograd, unfold, layouts or {}, groups is None,
                        precision, levels))
    program, before = apply_rewrites(program, rewrites), program
    inherit(program, before, target)

    asked = groups is None
    free = asked and not isinstance(winograd, tuple)
    groups = choose_groups(program, target, how, apart) if groups is None else groups
    groups = join_transforms(program, target.machine, groups)
    if free and how == CONNECT[-1]:
        halves, groups = choose_stored(program, target, groups, rewrites)
        rewrites, before = (*rewrites, *halves), program
        program = apply_rewrites(program, rewrites)
        inherit(program, before, target)
    if asked and how == CONNECT[-1]:
        groups = join_products(program, target, groups, apart)
    schedule = choose_kernels(
        program, target, groups, {b: x for b, x in given.items() if b in program.buffers},
        target_for_tiles(program, target) if how == GRAPHTURBO else None)
    schedule = replace(schedule, rewrites=rewrites, precision=precision_of(rewrites, precision))
    if asked and how == CONNECT[-1]:
        schedule = replace(schedule, groups=join_new_entries(program, target, schedule.groups))
        schedule = replace(schedule, groups=choose_call_tiles(program, target, schedule))
    schedule = replace(schedule, groups=choose_row_ends(program, target, schedule.groups))
    forms = winograd if isinstance(winograd, (str, int)) else "off"
    schedule = replace(schedule, regions=decide_regions(
        program, target, how, forms, unfold, precision=precision))
    schedule = places(program, schedule, target, how, inner)
    schedule = replace(schedule, buffers=allocate(program, schedule))
    return choose_writing(program, schedule, target) if written else schedule


def decide_regions(program: Program, target: Target, how: str, winograd: str | int, unfold: bool,
                   given: Collection[str] = (), precision: str = PRECISION[0]
                   ) -> dict[str, tuple[Schedule, ...]]:
    """{region: Schedules of its bodies} of regions that are not ``given``: each body is decided
    like a Program of its own, once."""
    def decided(body: Program) -> Schedule:
        known: dict[Target, Schedule] = body.known(
            "decided", target.name, how, winograd, unfold, precision)
        if target not in known:
            known[target] = decide(body, target, how, winograd, unfold, precision=precision,
                                   inner=True, written=False)
        return known[target]
    return {s.name: tuple(map(decided, s.bodies)) for s in program.steps
            if isinstance(s, (Loop, Branch)) and s.name not in given}


__all__ = ["decide", "decide_regions"]
