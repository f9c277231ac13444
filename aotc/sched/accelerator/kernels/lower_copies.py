"""Copies of a work item: what its group copies comes into scratch, and goes back from there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import cast

from aotc.errors import ScheduleError
from aotc.ir.access import row_major
from aotc.ir.contents import names_in, with_buffers
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    as_expr,
    maximum,
    minimum,
    substitute,
    walk,
)
from aotc.ir.kernel.plan_kernels import Ahead, Dealt, LoweredKernel
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.kernel.plan_stages import Stage as PlanStage
from aotc.ir.schedule import Schedule
from aotc.ir.simplify import are_equal, simplify
from aotc.ir.statements import NEXT, OWN, SLOT, STEP, Body, Copy, If, Wait
from aotc.ir.statements import Box as Place
from aotc.ir.tile_statements import slice_start
from aotc.sched.accelerator.items.item_boxes import Copied, item_boxes, moves, slices_of
from aotc.sched.accelerator.items.own_parts import count_clusters
from aotc.sched.items.context import Context, scratch_order, scratch_strides
from aotc.sched.items.group_context import Opened
from aotc.sched.model.stages import Stage
from aotc.target.base import Machine


@dataclass(frozen=True)
class ItemCopies:
    """What a work item copies: ``loads`` to scratch, under the token of the first stage that reads
    it, its number, and ``stores`` from there, under the number of the stage that makes it, all in
    the order of the stages.  ``names``: {buffer: the one in scratch that stands for it}.
    ``ahead``: the loads instead, where those of the next step come while one is computed; ``fed``:
    the loads of each slice of a sum, and the wait for them."""

    loads: tuple[Copy, ...] = ()
    stores: tuple[Copy, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    ahead: Ahead | None = None
    fed: Body = ()

    def told(self, kernel: LoweredKernel, at: Opened, starts: Sequence[int]) -> LoweredKernel:
        """The Kernel of an opened group, whose stages are lowered to those that begin at
        ``starts``, with what engines are told around them and the clusters that it is dealt to."""
        machine, group = at.ctx.target.machine, at.ctx.group
        if not machine.on_copies:
            return kernel
        around = self._around(at.stages, (*starts, len(kernel.stages)))
        clusters, steps = count_clusters(machine, group) if machine.stores else 0, kernel.steps
        if steps is not None and self.ahead is not None:
            steps = replace(steps, let=(*steps.let, (SLOT, STEP % 2)), ahead=self.ahead)
        return replace(kernel, stages=self._renamed(kernel.stages), steps=steps,
                       dealt=Dealt(clusters, around) if clusters or around else None)

    def _around(self, stages: Sequence[Stage],
                starts: Sequence[int]) -> tuple[tuple[int, Body], ...]:
        """``Dealt.around`` of stages that are lowered to what begins at ``starts``, whose last is
        the end.  All loads begin at once and are waited for by the stage that reads them; a store
        begins behind the stage that makes it, and all are waited for in the end."""
        found: dict[int, Body] = {0: self.loads} if self.loads else {}
        even = {c.token for c in self.ahead.copies[0] if isinstance(c, Copy)} if self.ahead else ()
        for n, (start, end) in enumerate(zip(starts, starts[1:])):
            if any(c.token == n for c in self.loads):
                found[start] = (*found.get(start, ()), Wait(n))
            if n in even:
                wait = If(Binary("eq", SLOT, Const(0)), (Wait(n),), (Wait(_odd(stages, n)),))
                found[start] = (*found.get(start, ()), wait)
            made = tuple(replace(c, token=len(stages)) for c in self.stores if c.token == n)
            if made:
                found[end] = (*found.get(end, ()), *made)
        if self.stores:
            found[starts[-1]] = (*found.get(starts[-1], ()), Wait(len(stages)))
        return tuple(found.items())

    def _renamed(self, stages: Iterable[PlanStage]) -> tuple[PlanStage, ...]:
        """The stages with what has been copied in place of what lies outside, and what is copied
        for slices of a sum."""
        found = (with_buffers(s, self.names) if self.names else s for s in stages)
        return tuple(replace(s, slices=replace(s.slices, fed=self.fed)) if isinstance(
            s, Contract) and s.slices and s.micro.unit else s for s in found)


def place_copies(at: Opened) -> ItemCopies:
    """Scratch for what a work item copies, as ``Group.copies`` says, placed behind what its stages
    hand each other.  ScheduleError for a buffer without a box to copy."""
    ctx, stages = at.ctx, at.stages
    machine, program, group = ctx.target.machine, ctx.program, ctx.group
    wanted = {b for b, memory in group.copies.items() if memory == machine.scratch}
    wanted -= held_temps(ctx.schedule, machine)
    if not wanted:
        return ItemCopies()
    found = [c for c in item_boxes(at) if c.buffer in wanted]
    missing = sorted(wanted - {c.buffer for c in found})
    if missing:
        raise ScheduleError([
            f"group {group.name}: copies {b} to {machine.scratch}; what a work item touches of it "
            f"is no box with a bound, leave it in {machine.memory.name}" for b in missing])
    ahead = group.pipeline > 0 and at.tile.steps is not None and not slices_of(at)
    loads: list[Copy] = []
    stores: list[Copy] = []
    names: dict[str, str] = {}
    for c in found:
        name = f"{c.buffer}_near"
        while name in program.buffers:
            name += "_"
        twice = ahead and not c.written and moves(at, c)
        names[c.buffer] = ctx.add_scratch(name, program.dtype(c.buffer),
                                          c.elements * (2 if twice else 1))
        if twice:
            ctx.bases[c.buffer] = SLOT * c.elements
        ctx.local = {**ctx.local, c.buffer: c.dims}
        slot = ctx.schedule.buffers.get(c.buffer)
        home = machine.store(slot.memory if slot is not None else "")
        ends = (machine.near, home) if c.written else (home, machine.near)
        engine = machine.engine(*ends)
        assert engine is not None, ends  # ``copy_faults`` and ``store_faults`` have asked
        (stores if c.written else loads).append(_copy(
            ctx, c, names[c.buffer], engine.name, _first(stages, c)))
    loads.sort(key=attrgetter("token"))
    starts = {slice_start(k).name for k, _ in slices_of(at).values()}
    fed = [c for c in loads if starts & names_in(c)]  # boxes that differ from slice to slice
    if fed:
        loads = [c for c in loads if c not in fed]
        wait = 2 * len(stages) + 2
        found_fed = (*(replace(c, token=wait) for c in fed), Wait(wait))
        return ItemCopies(tuple(loads), tuple(stores), names, fed=found_fed)
    if not ahead:
        return ItemCopies(tuple(loads), tuple(stores), names)
    sizes = {names[c.buffer]: c.elements for c in found if c.buffer in ctx.bases}
    return ItemCopies((), tuple(stores), names, _ahead(at, loads, sizes))


def _ahead(at: Opened, loads: Sequence[Copy], sizes: Mapping[str, int]) -> Ahead:
    """The loads of a work item in steps, each box that differs from step to step in one of two
    places, of as many elements as ``sizes`` says of its scratch."""
    stages = at.stages
    lets = (*at.tile.step_let, *at.step.lets, *at.lets)
    later: dict[Expr, Expr] = {v: Axis(f"{OWN}{v.name}_next", v.extent) for v, _ in lets}
    later[STEP] = NEXT
    copies: tuple[list[Copy], list[Copy]] = [], []
    whole = []
    for c in loads:
        size = sizes.get(c.to.buffer)
        if size is None:
            whole.append(replace(c, token=2 * len(stages) + 1))
            continue
        source = replace(c.source, offset=substitute(c.source.offset, later))
        extents = tuple(substitute(n, later) for n in c.extents)
        for place, found in enumerate(copies):
            to = replace(c.to, offset=simplify(c.to.offset + place * size))
            found.append(replace(c, to=to, source=source, extents=extents,
                                 token=c.token if place == 0 else _odd(stages, c.token)))
    return Ahead((*whole, Wait(2 * len(stages) + 1)) if whole else (), tuple(
        (cast(Axis, later[v]), substitute(e, later)) for v, e in lets), (
            tuple(copies[0]), tuple(copies[1])))


def held_temps(schedule: Schedule, machine: Machine) -> set[str]:
    """Temps that stay in the workers' own memories from kernel to kernel."""
    return {b for b, s in schedule.buffers.items() if s.memory == machine.scratch}


def _odd(stages: Sequence[Stage], token: int) -> int:
    """The token of odd steps beside that of even ones."""
    return len(stages) + 1 + token


def _first(stages: Sequence[Stage], c: Copied) -> int:
    """The number of the stage that makes a buffer, or of the first that reads it."""
    return next(n for n, s in enumerate(stages) if (
        any(o.buffer == c.buffer for o in s.outputs) if c.written else c.buffer in s.reads))


def _copy(ctx: Context, c: Copied, name: str, engine: str, token: int) -> Copy:
    """The copy of one box, neighbouring dimensions as one where they lie so on both sides."""
    layout = ctx.schedule.layouts.get(c.buffer)
    order = scratch_order(layout, len(c.dims))
    shape = ctx.program.shape(c.buffer)
    steps = row_major([shape[d] for d in order])
    far = [steps[order.index(d)] for d in range(len(order))]
    near = scratch_strides(c.dims, layout)
    first: Expr = Const(0)
    for (lo, _), extent, step in zip(c.dims, shape, far):
        # engines are told a place also of an empty box, which may begin behind all there is
        first = first + simplify(maximum(minimum(lo, extent - 1), Const(0))) * step
    runs: list[tuple[Expr, Expr, Expr]] = []  # extent, step near, step far
    for d in order:
        size, n = c.dims[d][1], simplify(maximum(c.last[d] - c.dims[d][0] + 1, Const(0)))
        if any(isinstance(x, Binary) and x.op == "floordiv" for x in walk(n)):
            n = simplify(minimum(n, as_expr(size)))  # which knows where tiles begin
        if n == Const(1):
            continue
        if runs and all(are_equal(runs[-1][k], s * n) for k, s in ((1, near[d]), (2, far[d]))):
            runs[-1] = simplify(runs[-1][0] * n), near[d], far[d]
        else:
            runs.append((n, near[d], far[d]))
    extents, inner, outer = zip(*(runs or [(Const(1), Const(1), Const(1))]))
    there = Place(c.buffer, simplify(first), outer)
    here = Place(name, Const(0), inner)
    dtype = ctx.program.dtype(c.buffer)
    return Copy(there, here, extents, dtype, "box", engine, token) if c.written else Copy(
        here, there, extents, dtype, "box", engine, token)


__all__ = ["ItemCopies", "held_temps", "place_copies"]
