"""Lowering of library calls: a kernel whose work items are the call's independent items, or as
many of them as the library kernel takes at a time, or slices of one."""

from collections.abc import Callable

from aotc.errors import ScheduleError
from aotc.ir.access import layout_from_json, linearise, offset_of, volume
from aotc.ir.expr import Axis, Const, Expr, Load, Shape, loads, maximum, minimum
from aotc.ir.kernel.plan_kernels import About, Block, LoweredKernel, WorkEstimate
from aotc.ir.kernel.plan_stages import Call, Nest
from aotc.ir.library import LIBRARY, item
from aotc.ir.program import LibCall, Program
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import simplify
from aotc.ir.stage_choice import UNSAID
from aotc.ir.statements import TILE, Box, Put, Range
from aotc.sched.items.new_entries import NewEntries, find_new_entries, stored_entries
from aotc.sched.lowering.threads import share_by_threads
from aotc.sched.model.flops_and_bytes import group_bytes
from aotc.target.base import Target


def lower_call(program: Program, schedule: Schedule, target: Target, group: Group, call: LibCall,
               name: str) -> LoweredKernel:
    """The kernel of a group that is the LibCall ``call``, a work item of which is one call of the C
    function.  Every tensor it touches is row-major."""
    row = LIBRARY.get(call.kernel)
    if row is not None and row.grows and target.machine.threads:
        return _by_threads(program, schedule, target, group, name)
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


def _by_threads(program: Program, schedule: Schedule, target: Target, group: Group,
                name: str) -> LoweredKernel:
    """The kernel of new entries that threads put behind the old ones, in place: a work item copies
    a piece of what belongs to one row, so that a few long rows have blocks enough, or computes it.
    ScheduleError where calls of one group have other rows."""
    found = find_new_entries(program, group)
    made = [_entries(program, schedule, target, n) for n in found]
    nests, counts = tuple(nest for nest, _ in made), {count for _, count in made}
    if len(counts) > 1:
        raise ScheduleError([f"group {group.name}: its library calls store new entries of other "
                             "shapes; give each a group of its own"])
    reads = tuple(dict.fromkeys(x.buffer for n in nests for x in loads(n.body)))
    work = WorkEstimate(bytes=group_bytes(program, schedule, (), reads, [
        n.call.inputs[1] for n in found]))
    return share_by_threads(LoweredKernel(
        name, _about(program, *(n.call for n in found)), made[0][1], (), (), nests, reads,
        stored_entries(found), work, block=Block(group.threads)), target)


def _entries(program: Program, schedule: Schedule, target: Target,
             n: NewEntries) -> tuple[Nest, Expr]:
    """(how a work item stores its piece of the new entries, how many pieces there are)."""
    alias = next(a for a in program.aliases if a.present == n.call.outs[0])
    added, start = n.call.inputs[1], n.call.numbers[1]
    shape = program.shape(added)
    outer, new, whole = shape[:alias.axis], shape[alias.axis:], program.shape(alias.present)
    width, room = volume(new), volume(whole[alias.axis:])
    step = target.machine.threads * target.lanes
    pieces = simplify((width + (step - 1)) // step)
    row, first = TILE // pieces, TILE % pieces * step
    at = Axis("at", Const(step))
    left = simplify(minimum(Const(step), width - first))
    value: Expr = Load(added, (simplify(row * width + first + at),), program.dtype(added))
    if added in n.inside:
        def place(buffer: str) -> Callable[[Shape], Expr]:
            layout = layout_from_json(schedule.layouts.get(buffer))
            return lambda index: offset_of(index, program.shape(buffer), layout)
        index = (*_digits(row, outer), *_digits(first + at, new))
        value = simplify(linearise(n.value(index, program.dtype(added)), place))
    put = Put(alias.present, simplify(row * room + start + first + at), value)
    nest = Nest(target.rows("move")[0].name, (Range(at, Const(0), left),), (), "none", (), value,
                (put,), "at", target.lanes,
                writing=UNSAID.with_said({"neighbours": 1, "held_rows": 0}))
    return nest, simplify(n.call.numbers[0] * pieces)


def _digits(number: Expr, shape: Shape) -> list[Expr]:
    """The index of an element by its number among those of a shape."""
    out = list[Expr]()
    at: Expr = Const(1)
    for d, extent in reversed(list(enumerate(shape))):
        digit = number // at
        out.insert(0, simplify(digit % extent if d else digit))
        at = simplify(at * extent)
    return out


def _about(program: Program, *calls: LibCall) -> About:
    return About("; ".join(f"{b} {program.dtype(b)}[{', '.join(map(str, program.shape(b)))}]"
                           for c in calls for b in c.outs),
                 tuple(dict.fromkeys(o for c in calls for o in c.origin)))
