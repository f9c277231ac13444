"""Lowering of library calls: a kernel whose work items are the call's independent items, or as
many of them as the library kernel takes at a time."""

from aotc.errors import ScheduleError
from aotc.ir.access import volume
from aotc.ir.expr import Const, Shape, minimum
from aotc.ir.library import LIBRARY, item
from aotc.ir.plan import Call, Kernel
from aotc.ir.program import LibCall, Program
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import simplify
from aotc.ir.statements import TILE, Box
from aotc.sched.model.work import group_bytes
from aotc.target.base import Target


def lower_call(program: Program, schedule: Schedule, target: Target, group: Group, call: LibCall,
               number: int) -> Kernel:
    """The Kernel of a group that is the LibCall ``call``, a work item of which is one call of the C
    function.  Every tensor it touches is row-major."""
    row = LIBRARY.get(call.kernel)
    if row is None or not target.library:
        known = ", ".join(LIBRARY) if target.library else "none"
        raise ScheduleError([f"group {group.name}: library kernel {call.kernel!r}; {target.name} "
                             f"has {known}"])
    names = call.inputs + call.outs
    shapes = [item(program.shape(b), inner) for b, inner in zip(names, row.inner)]
    operands = tuple(Box(b, simplify(TILE * row.rows * volume(one) if many else Const(0)))
                     for b, (many, one) in zip(names, shapes))
    items = simplify(volume(shapes[0][0]))
    here = minimum(Const(row.rows), items - TILE * row.rows)
    numbers: Shape = (simplify(here),) if row.rows > 1 else ()
    numbers += row.extents([program.shape(b) for b in names])
    numbers += tuple(Const(v) for _, v in call.attrs) + tuple(map(simplify, call.numbers))
    stage = Call(call.kernel, program.dtype(names[0]), operands, numbers)
    what = [f"{b} {program.dtype(b)}[{', '.join(map(str, program.shape(b)))}]"
            for b in call.outs]
    reads = tuple(dict.fromkeys(call.inputs))
    count = simplify((items + (row.rows - 1)) // row.rows)
    return Kernel(f"k{number:03d}", "; ".join(what), call.origin, count, (), (), (stage,), reads,
                  call.outs, Const(0), group_bytes(program, schedule, (), reads, call.outs))

