"""One group as a LoweredKernel, before it is said how their statements are written: what
that is chosen by, and what it is added to."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from aotc.ir.kernel.plan_kernels import (
    About,
    Block,
    LoweredKernel,
    Size,
    Steps,
    WorkEstimate,
    largest_size,
)
from aotc.ir.kernel.plan_stages import Stage as PlanStage
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import STREAM, Group, Schedule
from aotc.sched.accelerator.kernels import place_copies
from aotc.sched.items.context import Context
from aotc.sched.items.group_context import Opened, open_group
from aotc.sched.lowering.lower_contract import lower_contract
from aotc.sched.lowering.lower_dot import lower_dot
from aotc.sched.lowering.lower_flat import lower_flat
from aotc.sched.lowering.lower_nest import lower_kept, lower_nest
from aotc.sched.lowering.lower_stream import lower_stream
from aotc.sched.lowering.program_lines import program_lines
from aotc.sched.lowering.threads import with_ends
from aotc.sched.lowering.unroll import lower_unrolled
from aotc.sched.model.boxes import Box
from aotc.sched.model.flops_and_bytes import group_bytes, group_flops, plain_part
from aotc.sched.model.stages import Stage
from aotc.sched.rows.stream_stages import is_stream
from aotc.sched.rows.transforms import data_loads
from aotc.target.base import Target
from aotc.target.kernel_rows import KernelRow, NestRow, ProductRow


@dataclass(frozen=True)
class Staged:
    """``kernel``: without a name, and without what threads of a work item share; ``owners``: of its
    stages, the stages of the group that they are of; ``packed``: (number of the kernel's buffers of
    scratch up to what each of them packs, bytes where that ends); ``end``: bytes of scratch with
    what all of them pack."""

    kernel: LoweredKernel
    owners: tuple[str, ...]
    packed: tuple[tuple[int, Size], ...]
    end: Size


def kept_stages(program: Program, schedule: Schedule, target: Target, group: Group) -> Staged:
    """``stage_group``, kept with the Program: what its writing was chosen by is what is lowered.
    Not where the places that it copies from are part of it."""
    if target.machine.on_copies:
        return stage_group(program, schedule, target, group)
    found: dict[Hashable, Staged] = program.known("staged")
    key = _key(program, schedule, target, group)
    if key not in found:
        found[key] = stage_group(program, schedule, target, group)
    return found[key]


def _key(program: Program, schedule: Schedule, target: Target, group: Group) -> Hashable:
    """All that ``stage_group`` looks at, beside the Program."""
    buffers = dict.fromkeys(b for c in group.computes for s in (program.producer[c],)
                            for b in (*s.inputs, *s.outs))
    return target, replace(_unwritten(group), why=""), tuple(
        (b, schedule.layouts[b]) for b in buffers if b in schedule.layouts)


def _unwritten(group: Group) -> Group:
    """The group without choices of how statements are written."""
    return group.saying(lambda c: c.bare)


def stage_group(program: Program, schedule: Schedule, target: Target, group: Group) -> Staged:
    """The stages of a group of computes.  ScheduleError where its boxes cannot be formed."""
    group = _unwritten(group)
    at = open_group(program, schedule, target, group)
    ctx, stages, tile, step = at.ctx, at.stages, at.tile, at.step
    copies = place_copies(at)
    found = _in_order(at)
    passing = {b for b, level in group.connect.items() if level == STREAM}
    inside = {*step.places, *(passing - {*group.outputs})}
    read = dict.fromkeys(b for s in stages for b in _read(target, group, s) if b not in inside)
    writes = tuple(dict.fromkeys(
        o.buffer for s in stages for o in s.outputs if o.buffer not in inside))
    origin = tuple(dict.fromkeys(n for c in group.computes for n in program.producer[c].origin))
    reads = tuple(b for b in read if b not in writes)
    let, step_let = tile.let, tile.step_let + step.lets + at.lets
    steps = None
    if tile.steps is None:
        let += step_let
    else:
        steps = Steps(tile.steps, step_let, step.carried, tile.start if step.carried
                      and target.machine.in_order else None)
    kernel = LoweredKernel(
        "", About(_title(program, group), origin, tuple(found.says)), tile.count, let,
        tuple(ctx.scratch), tuple(found.stages), reads, writes,
        WorkEstimate(group_flops(stages), group_bytes(program, schedule, stages, reads, writes),
                     plain_part(stages, group.rows, target)),
        steps, Block(group.threads) if group.threads else None)
    kernel = copies.told(kernel, at, found.starts)
    return Staged(with_ends(kernel) if kernel.threads else kernel, tuple(found.owners),
                  tuple(found.packed), found.end)


@dataclass
class _Lowered:
    """Stages of the kernel in order: ``owners`` and ``says`` of each, ``starts``: where those of
    each stage of the group begin; ``end``: bytes of scratch with what they pack; ``packed``: of
    each, as of ``Staged``."""

    end: Size
    stages: list[PlanStage] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    says: list[tuple[str, ...]] = field(default_factory=list)
    packed: list[tuple[int, Size]] = field(default_factory=list)

    def add(self, stages: Iterable[PlanStage], owner: str) -> None:
        for s in stages:
            self.stages.append(s)
            self.owners.append(owner)
            self.says.append(())


def _in_order(at: Opened) -> _Lowered:
    """The stages of an opened group, each as its row has it, behind what it keeps for later
    steps."""
    ctx = at.ctx
    lines, base = program_lines(ctx.program, ctx.group, at.stages), ctx.slab
    out = _Lowered(base)
    if is_stream(ctx.group):
        out.add((lower_stream(ctx, at.boxes),), next(
            s.name for s in at.stages if ctx.group.anchor in s.computes))
        out.says[0] = tuple(line for s in at.stages for line in lines[s.name])
        out.packed.append((len(ctx.scratch), ctx.slab))
        return out
    for s in at.stages:
        out.starts.append(len(out.stages))
        ctx.slab = base  # what a stage packs is dead after it
        row, box = ctx.target.row(ctx.group.choices[s.name].row), at.boxes[s.name]
        out.add(lower_kept(ctx, at.step.kept.get(s.name, ())), s.name)
        first = len(out.stages)
        out.add(_on_row(ctx, s, row, box), s.name)
        out.says[first:first + 1] = [lines[s.name]]
        out.packed += [(len(ctx.scratch), ctx.slab)] * (len(out.stages) - len(out.packed))
        out.end = largest_size([out.end, ctx.slab])
    return out


def _on_row(ctx: Context, s: Stage, row: KernelRow, box: Box) -> Sequence[PlanStage]:
    """A stage over its box as a row computes it."""
    if isinstance(row, ProductRow):
        if ctx.group.flat:
            return (lower_flat(ctx, row, box),)
        return ((lower_dot if row.category == "dot" else lower_contract)(ctx, s, row, box),)
    assert isinstance(row, NestRow), row
    return (lower_unrolled(ctx, s, row, box),) if row.category == "transform" else lower_nest(
        ctx, s, row, box)


def _read(target: Target, group: Group, stage: Stage) -> list[str]:
    """Buffers a stage reads; the numbers of small matrices stand in its code."""
    kind = target.row(group.choices[stage.name].row).category
    return [n.buffer for n in (data_loads(stage) if kind == "transform" else stage.loads())]


def _title(program: Program, group: Group) -> str:
    shapes = []
    for b in group.outputs:
        dims = map(str, static_shape(program.shape(b)) or program.shape(b))
        shapes.append(f"{b} {program.dtype(b)}[{', '.join(dims)}]")
    return "; ".join(shapes)


__all__ = ["Staged", "kept_stages", "stage_group"]
