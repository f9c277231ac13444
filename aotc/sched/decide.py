"""The deciders in order.  Each is a function that fills more of the Schedule."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.access import layout_from_json
from aotc.ir.layout import Layout
from aotc.ir.program import Branch, Loop, Program, Rewrite
from aotc.ir.schedule import CONNECT, GRAPHTURBO, PRECISION, WEIGHT_BITS, Group, Schedule
from aotc.ir.simplify import upper
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.check import check_kernels, layout_faults
from aotc.sched.choose.connect_cost import (
    connect_by_cost,
    part_groups,
    register_groups,
    separate_groups,
)
from aotc.sched.choose.copy_choice import choose_copies
from aotc.sched.choose.image_inputs import choose_phases, choose_sampled, choose_unfolds
from aotc.sched.choose.layout_rules import settle_layouts, split_settled
from aotc.sched.choose.loops import choose_loops
from aotc.sched.choose.precision import choose_precision, precision_of
from aotc.sched.choose.slices import choose_split_k
from aotc.sched.choose.tile import choose_threads, choose_tiles
from aotc.sched.choose.winograd_choice import Winograd, choose_winograd
from aotc.sched.choose.winograd_kernels import join_transforms
from aotc.sched.clusters.choose_held import choose_held
from aotc.sched.clusters.choose_order import choose_order
from aotc.sched.clusters.choose_pipeline import choose_pipelines
from aotc.sched.clusters.choose_stores import choose_stores
from aotc.sched.clusters.choose_weights import choose_weights
from aotc.sched.clusters.instance_groups import InstanceGroups, instance_groups, tiled_for
from aotc.sched.dynamic.row_ends import choose_row_ends
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.lowering.lower import kernel_faults
from aotc.sched.memory.allocate import allocate, buffer_bytes, liveness
from aotc.sched.model.stages import group_stages, inherit
from aotc.sched.shape_variants import boxes, parts, within_once
from aotc.target.base import Target

# which edges stay inside a kernel: none, those at register level, all that pay
_CONNECTED = dict(zip(CONNECT, (lambda program, target: separate_groups(program),
                               lambda program, target: register_groups(program),
                               connect_by_cost)))


def connected(program: Program, target: Target, how: str) -> tuple[Group, ...]:
    """The groups of a Program by a way of ``CONNECT``, or ``GRAPHTURBO``."""
    if how == GRAPHTURBO:
        return instance_groups(program, target).groups
    return _CONNECTED[how](program, target)


def decide(program: Program, target: Target, how: str = "all", winograd: Winograd = "off",
           unfold: bool = False, layouts: Mapping[str, Layout] | None = None,
           groups: Sequence[Group] | None = None, precision: str = PRECISION[0],
           only: Collection[str] | None = None, stores: bool = True) -> Schedule:
    """Schedule of ``program`` for ``target``; deterministic, measures nothing.  how: a name of
    ``CONNECT``, or ``GRAPHTURBO``.  winograd: one of ``WINOGRAD``, which forms convolutions may
    get, or the rewrites themselves (a tuple).  unfold: rewrite first layers, too.  layouts: {stored
    buffer: Layout} that are settled (an empty Layout: row-major), where the rewritten program has
    them.  groups: those of the rewritten program, if they are settled.  precision: one of
    ``PRECISION``, of the operands of products that are left to choose rewrites for; only: of these
    computes (None: of all that gain, in regions too).  stores: temps may lie in the memories of
    clusters; not those of a body, which runs in rounds."""
    rewrites, given = (winograd, dict(layouts or {})) if isinstance(winograd, tuple) else (
        _rewrites(program, target, winograd, unfold, layouts or {}, groups is None, precision,
                  only))
    usual = precision if only is None or precision in WEIGHT_BITS else PRECISION[0]
    precision = precision_of(rewrites, usual)
    program, before = apply_rewrites(program, rewrites), program
    inherit(program, before, target)
    given = {b: x for b, x in given.items() if b in program.buffers}
    groups = connected(program, target, how) if groups is None else groups
    groups = join_transforms(program, target.machine, groups)
    tiled = tiled_for(program, target) if how == GRAPHTURBO else target
    while True:
        schedule = replace(_decided(program, tiled, groups, given), rewrites=rewrites,
                           precision=precision)
        refused = {g.name for g in schedule.groups if g.why and kernel_faults(
            program, schedule, target, g)}
        if not refused:
            schedule = replace(schedule, groups=choose_row_ends(program, target, schedule.groups))
            schedule = replace(schedule, regions=_regions(
                program, target, how, winograd if isinstance(winograd, (str, int)) else "off",
                unfold, precision=usual))
            schedule = _placed(program, schedule, target, how) if stores else choose_pipelines(
                program, schedule, target)
            return replace(schedule, buffers=allocate(program, schedule))
        # layouts that other groups wanted can make a group illegal that was legal by itself
        groups = part_groups(program, groups, refused)


def _placed(program: Program, schedule: Schedule, target: Target, how: str) -> Schedule:
    """What lies in the memories of clusters and workers, what is copied ahead, and turns.  Where
    turns leave room for more, that is stored with clusters which whole tensors do not fit into."""
    found = instance_groups(program, target) if how == GRAPHTURBO else None
    first = _placed_by(program, schedule, target, found, True)
    if not first.order or not _outside(program, first):
        return first
    more = _placed_by(program, schedule, target, found, False)
    return min((first, more), key=lambda s: _outside(program, s))


def _outside(program: Program, schedule: Schedule) -> int:
    """Bytes of the temps in the outermost memory."""
    return sum(upper(buffer_bytes(program, schedule, b)) or 0
               for b in liveness(program, schedule.groups)
               if b not in schedule.buffers or not schedule.buffers[b].memory)


def _placed_by(program: Program, schedule: Schedule, target: Target,
               found: InstanceGroups | None, fits: bool) -> Schedule:
    """``_placed``; fits: of the temps that fit into clusters' memories while they are whole."""
    schedule = choose_stores(program, schedule, target, found is not None,
                             found.outside if found else (), fits)
    schedule = choose_weights(program, schedule, target)
    schedule = choose_pipelines(program, schedule, target)
    instances = found.instances if found else ()
    if not choose_order(program, schedule, target, instances).order:
        schedule = choose_held(program, schedule, target)
    # once more: what kernels take says when copies must begin
    schedule = choose_weights(program, schedule, target)
    return schedule if any(s.memory == target.machine.scratch for s in schedule.buffers.values()
                           ) else choose_order(program, schedule, target, instances)


def _rewrites(program: Program, target: Target, winograd: str | int, unfold: bool,
              layouts: Mapping[str, Layout], free: bool, precision: str,
              only: Collection[str] | None) -> tuple[tuple[Rewrite, ...], dict[str, Layout]]:
    """(rewrites, layouts) of a Program, the latter with those given.  Forms and copies are asked of
    the cost, layouts follow from what is around a tensor; free: what is stored may be chosen."""
    near = Neighbourhoods(program, target)
    rewrites = choose_winograd(near, winograd, precision, only)
    if unfold:
        rewrites += choose_unfolds(near, {r[1] for r in rewrites})
    if precision == PRECISION[0]:
        rewrites += choose_split_k(program, target, {r[1] for r in rewrites})
    given = dict(layouts)
    if free:
        rewrites += choose_phases(near)
        copied = choose_sampled(near)
        program = apply_rewrites(program, rewrites)
        found = settle_layouts(Neighbourhoods(program, target))
        more, settled = split_settled({b: x for b, x in found.items() if b not in given})
        copies = tuple(r for r in copied if r[1] not in given)
        rewrites, given = rewrites + more + copies, settled | given
    program = apply_rewrites(program, rewrites)
    rewrites += choose_precision(program, target, precision, only)
    return rewrites, given


def _regions(program: Program, target: Target, how: str, winograd: str | int, unfold: bool,
             given: Collection[str] = (),
             precision: str = PRECISION[0]) -> dict[str, tuple[Schedule, ...]]:
    """{region: Schedules of its bodies} of regions that are not ``given``: each body is decided
    like a Program of its own, once."""
    def decided(body: Program) -> Schedule:
        known = body.known("decided", target.name, how, winograd, unfold, precision)
        if target not in known:
            known[target] = decide(body, target, how, winograd, unfold, precision=precision,
                                   stores=False)
        return known[target]
    return {s.name: tuple(map(decided, s.bodies)) for s in program.steps
            if isinstance(s, (Loop, Branch)) and s.name not in given}


def _decided(program, target, groups, given):
    """Rows, loops, layouts and tiles; a group that comes with its work items keeps them."""
    groups, layouts = choose_loops(program, target, groups, given)
    tiled = choose_tiles(program, target, groups, layouts)
    groups = tuple(replace(t, tile=g.tile, parallel=g.parallel) if g.parallel else t
                   for g, t in zip(groups, tiled))
    stored = {b: x.to_json() for b, x in layouts.items()}
    return Schedule(target.name, choose_copies(program, target, groups, stored), stored)


def _anchor_inlined(program, group):
    """True if no stage of the group is named by its anchor."""
    stages = group_stages(program, group)
    return bool(stages) and not any(group.anchor in s.computes for s in stages)


def complete(program: Program, schedule: Schedule, target: Target,
             stores: bool = True) -> Schedule:
    """A hand-written Schedule with what it leaves out decided: rows, loops and layouts (all of
    them, if any stage lacks its row), tiles of groups without one, buffers if there are none; all
    of a variant without groups.  stores: as of ``decide``."""
    if schedule.variants:
        return _with_variants_completed(program, schedule, target)
    try:
        program = apply_rewrites(program, schedule.rewrites)
    except ScheduleError:
        return schedule  # check_schedule lists why
    made = {o for s in program.steps for o in s.outs}
    if any(not made.issuperset(g.computes + g.outputs) for g in schedule.groups):
        return schedule  # check_schedule lists what is unknown
    if layout_faults(program, schedule):
        return schedule
    groups, layouts = schedule.groups, schedule.layouts
    bare = [g for g in groups if not g.ukernel]
    if bare and any(_anchor_inlined(program, g) for g in groups):
        return schedule  # this, too
    if bare:
        given = {b: layout_from_json(x) for b, x in layouts.items()}
        chosen, found = choose_loops(program, target, groups, given)
        groups = tuple(c if not g.ukernel else g for g, c in zip(groups, chosen))
        layouts = {b: x.to_json() for b, x in found.items()} | layouts
        groups = tuple(
            choose_tiles(program, target, (c,), found)[0] if not (g.ukernel or g.tile) else
            replace(c, parallel=c.parallel or tuple(c.tile))
            for g, c in zip(schedule.groups, groups))
    groups = choose_threads(target, groups)
    groups = choose_copies(program, target, groups, layouts)
    schedule = replace(schedule, target=target.name, groups=groups, layouts=layouts,
                       regions=_completed(program, schedule, target))
    if schedule.buffers or check_kernels(program, schedule, target):
        return schedule  # what is wrong with a kernel, check_schedule lists
    if stores:
        schedule = choose_stores(program, schedule, target)
    return replace(schedule, buffers=allocate(program, schedule))


def _with_variants_completed(program: Program, schedule: Schedule, target: Target) -> Schedule:
    try:
        *found, base = parts(program, schedule)
    except ScheduleError:
        return schedule  # check_schedule lists why
    made = tuple(replace(v, schedule=complete(p.program, p.schedule, target) if p.schedule.groups
                         else decide(within_once(program, box), target,
                                     winograd=p.schedule.rewrites or "off",
                                     precision=p.schedule.precision))
                 for v, p, box in zip(schedule.variants, found, boxes(program, schedule)))
    return replace(complete(base.program, base.schedule, target), variants=made)


def _completed(program: Program, schedule: Schedule,
               target: Target) -> dict[str, tuple[Schedule, ...]]:
    """The Schedules of regions' bodies, those that are given completed."""
    regions = {s.name: s for s in program.steps if isinstance(s, (Loop, Branch))}
    given = {name: tuple(complete(b, s, target, False) for b, s in zip(regions[name].bodies, own))
             for name, own in schedule.regions.items()
             if name in regions and len(own) == len(regions[name].bodies)}
    made = _regions(program, target, "all", "off", False, given, schedule.precision)
    return {**made, **schedule.regions, **given}
