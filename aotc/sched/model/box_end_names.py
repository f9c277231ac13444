"""Names for the ends of boxes that follow from other boxes, so that code says each of them once.

The box of a stage far from the anchor is a chain of clamps, one per stage between:
max(max(max(oh_lo - 1, 0) * 2 - 1, 0) - 1, 0).  With every end named, each is a step from the next.
"""

from collections.abc import Sequence

from aotc.ir.expr import Axis, Binary, Const, Expr, substitute, walk
from aotc.ir.kernel.plan_stages import Bindings
from aotc.ir.program import Program
from aotc.ir.simplify import lower, simplify, upper
from aotc.sched.model.boxes import Box, Places
from aotc.sched.model.stages import Stage

CLAMPS = 2  # an end with so many minima and maxima gets a name


def name_bounds(program: Program, stages: Sequence[Stage], boxes: dict[str, Box],
                places: Places) -> tuple[Bindings, dict[str, Box], Places]:
    """(lets, boxes, places) of a group with long ends of boxes replaced by names.

    stages: in execution order; boxes: {stage name: {axis: (first, last)}}; places: {scratch buffer:
    ((first, size) per dimension)}; lets: ((Axis, expression) ...), each after those it uses.
    """
    names: dict[Expr, Expr] = {}
    lets: list[tuple[Axis, Expr]] = []
    taken: set[str] = set()

    def short(e: Expr) -> Expr:
        return substitute(e, names)

    for s in reversed(stages):
        for a, ends in boxes[s.name].items():
            for e, end in zip(ends, ("lo", "last")):
                if e in names or sum(map(_clamp, walk(e))) < CLAMPS:
                    continue
                name = f"{s.name}_{a.name}_{end}"
                while name in taken or name in program.buffers:
                    name += "_"
                taken.add(name)
                inner = short(e)  # what of it has names already: other chains meet it in this form
                below, extent = _room(e, a)
                bound = Axis(name, extent)
                names[e] = names[inner] = simplify(bound - below)
                lets.append((bound, simplify(inner + below)))
    if not lets:
        return (), boxes, places
    boxes = {s: {a: (simplify(short(lo)), simplify(short(last)))
                 for a, (lo, last) in box.items()} for s, box in boxes.items()}
    places = {b: tuple((simplify(short(lo)), n) for lo, n in dims) for b, dims in places.items()}
    return tuple(lets), boxes, places


def _room(end: Expr, a: Axis) -> tuple[int, Expr]:
    """(what is added to the end of a box of ``a``, extent of its name): a box that may be empty,
    because nobody reads of the stage what a tile has of others, may begin behind the last point,
    and may end before the first."""
    least, most, extent = lower(end), upper(end), a.extent
    if not isinstance(extent, Const) or least is None or most is None:
        return 0, extent  # with symbols, nothing is said of empty boxes
    below = max(0, -least)
    return below, Const(max(int(extent.value), most + 1) + below)


def _clamp(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("min", "max")


__all__ = ["name_bounds"]
