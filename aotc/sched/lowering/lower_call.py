"""Lowering of library calls: a kernel whose work items are the call's independent items, or as
many of them as the library kernel takes at a time, or slices of one."""

from aotc.errors import ScheduleError
from aotc.ir.access import volume
from aotc.ir.expr import Axis, Const, Expr, Load, Shape, maximum, minimum
from aotc.ir.kernel.plan_kernels import About, Block, LoweredKernel, WorkEstimate
from aotc.ir.kernel.plan_stages import Call, Nest
from aotc.ir.library import LIBRARY, item
from aotc.ir.program import LibCall, Program
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import simplify
from aotc.ir.stage_choice import UNSAID
from aotc.ir.statements import TILE, Box, Put, Range
from aotc.sched.lowering.threads import share_by_threads
from aotc.sched.model.flops_and_bytes import group_bytes
from aotc.target.base import Target


def lower_call(program: Program, schedule: Schedule, target: Target, group: Group, call: LibCall,
               name: str) -> LoweredKernel:
    """The kernel of a group that is the LibCall ``call``, a work item of which is one call of the C
    function.  Every tensor it touches is row-major."""
    row = LIBRARY.get(call.kernel)
    if row is not None and row.grows and target.machine.threads:
        return _by_threads(program, schedule, target, group, call, name)
    if row is None or call.kernel not in target.library:
        raise ScheduleError([f"group {group.name}: library kernel {call.kernel!r}; {target.name} "
                             f"has {', '.join(target.library) or 'none'}"])
    names = call.inputs + call.outs
    shapes = [item(program.shape(b), inner) for b, inner in zip(names, row.inner)]
    operands = tuple(Box(b, simplify(TILE * row.rows * volume(one) if many else Const(0)))
                     for b, (many, one) in zip(names, shapes))
    items = simplify(volume(shapes[0][0]))
    here = minimum(Const(row.rows), items - TILE * row.rows)
    numbers: Shape = (simplify(here),) if row.rows > 1 else ()
    numbers += row.extents([program.shape(b) for b in names])
    numbers += tuple(Const(v) for _, v in call.attrs) + tuple(map(simplify, call.numbers))
    count, block = simplify((items + (row.rows - 1)) // row.rows), None
    if target.machine.threads:
        block = Block(group.threads)
        if row.sliced:
            count = _slices(target, volume(program.shape(call.outs[0])), group.threads)
            numbers += (TILE, count)
    stage = Call(call.kernel, program.dtype(names[0]), operands, numbers)
    reads = tuple(dict.fromkeys(call.inputs))
    work = WorkEstimate(bytes=group_bytes(program, schedule, (), reads, call.outs))
    return LoweredKernel(name, _about(program, call), count, (), (), (stage,), reads, call.outs,
                         work, block=block)


def _slices(target: Target, elements: Expr, threads: int) -> Expr:
    """Work items that share an item of so many elements: one for every worker, as long as each of
    its threads has one."""
    return simplify(maximum(minimum(Const(target.machine.workers), elements // threads), Const(1)))


def _by_threads(program: Program, schedule: Schedule, target: Target, group: Group, call: LibCall,
                name: str) -> LoweredKernel:
    """The kernel of new entries that threads put behind the old ones, in place: a work item copies
    a piece of what belongs to one row, so that a few long rows have blocks enough."""
    alias = next(a for a in program.aliases if a.present == call.outs[0])
    _, added = call.inputs
    new, whole = (program.shape(b)[alias.axis:] for b in (added, alias.present))
    width, room, step = volume(new), volume(whole), target.machine.threads * target.lanes
    pieces = simplify((width + (step - 1)) // step)
    row, first = TILE // pieces, TILE % pieces * step
    at = Axis("at", Const(step))
    left = simplify(minimum(Const(step), width - first))
    value = Load(added, (simplify(row * width + first + at),), program.dtype(added))
    put = Put(alias.present, simplify(row * room + call.numbers[1] + first + at), value)
    nest = Nest(target.rows("move")[0].name, (Range(at, Const(0), left),), (), "none", (), value,
                (put,), "at", target.lanes, writing=UNSAID.with_said({"neighbours": 1}))
    work = WorkEstimate(bytes=group_bytes(program, schedule, (), (added,), (added,)))
    return share_by_threads(LoweredKernel(
        name, _about(program, call), simplify(call.numbers[0] * pieces), (), (), (nest,), (added,),
        call.outs, work, block=Block(group.threads)), target)


def _about(program: Program, call: LibCall) -> About:
    return About("; ".join(f"{b} {program.dtype(b)}[{', '.join(map(str, program.shape(b)))}]"
                           for b in call.outs), call.origin)
