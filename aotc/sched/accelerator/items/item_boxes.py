"""What a work item of an opened group touches outside of its scratch, as boxes, which can lie in
scratch while it computes."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from aotc.ir.access import dim_order, layout_from_json
from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Expr, axes_of, maximum, minimum
from aotc.ir.program import Program
from aotc.ir.read_boxes import Bound, Ranges, boxes_read, interval
from aotc.ir.schedule import Group
from aotc.ir.simplify import are_equal, lower, simplify, upper
from aotc.ir.statements import STEP
from aotc.ir.tile_statements import slice_start
from aotc.sched.accelerator.items.unit_operands import slice_of
from aotc.sched.items.group_context import Opened
from aotc.sched.model.boxes import AnchorTile, Box, Dims, whole_tiles
from aotc.sched.model.stages import Stage

WHOLE = 1 << 60  # of a dimension without a bound: it fits nowhere


@dataclass(frozen=True)
class Copied:
    """A box of ``buffer``: (first, size) per dimension as of a buffer in scratch, and the last
    index of each.  ``written``: it is made there and copied out, else copied in."""

    buffer: str
    dims: Dims
    last: tuple[Expr, ...]
    written: bool

    @property
    def elements(self) -> int:
        """That scratch holds."""
        n = 1
        for _, size in self.dims:
            assert isinstance(size, int), self
            n *= size
        return n

    def bytes(self, program: Program) -> int:
        """That scratch holds."""
        return self.elements * DTYPES[program.dtype(self.buffer)].size


def moves(at: Opened, what: object) -> bool:
    """True if a value in statements differs from step to step of a work item."""
    names = {STEP.name, *(v.name for v, _ in (*at.tile.step_let, *at.step.lets, *at.lets))}
    return bool(names & names_in(what))


def slices_of(at: Opened) -> dict[str, tuple[Axis, int]]:
    """{stage: (axis of its sum, steps of a slice)} of those whose operands come slice by slice."""
    return {s.name: found for s in at.stages
            if (found := slice_of(at.ctx.target, at.ctx.group, s)) is not None}


def item_boxes(at: Opened) -> tuple[Copied, ...]:
    """The boxes of a work item that can be copied."""
    ctx = at.ctx
    if not isinstance(ctx.slab, int):
        return ()
    layouts = ctx.schedule.layouts
    slices = slices_of(at)
    # deciders ask of one group again and again, with its tensors at other places
    known: dict[Hashable, tuple[Copied, ...]] = ctx.program.known("copied boxes")
    key = ctx.group, tuple(ctx.group.tile.items()), tuple(slices.items())
    if key not in known:
        known[key] = _copied_boxes(ctx.program, ctx.group, at.stages, at.tile, at.boxes, ctx.local,
                                  slices)
    return tuple(c for c in known[key] if dim_order(
        layout_from_json(layouts.get(c.buffer)), len(c.dims)) is not None)


def _copied_boxes(program: Program, group: Group, stages: Sequence[Stage], tile: AnchorTile,
                 boxes: Mapping[str, Box], inside: Mapping[str, Dims],
                 slices: Mapping[str, tuple[Axis, int]] | None = None) -> tuple[Copied, ...]:
    """The boxes of all buffers outside of scratch (``inside``) that a work item reads or makes and
    that have a bound, in the order in which its stages touch them.

    boxes: of the stages, {stage name: {axis: (first, last)}}; slices: {stage: (axis of its sum,
    steps)} of those whose operands come slice by slice."""
    whole, _ = whole_tiles(program, group, stages, tile)
    for name, (k, steps) in (slices or {}).items():
        first = slice_start(k)
        end = simplify(minimum(first + steps, k.extent) - 1)
        boxes = {**boxes, name: {**boxes[name], k: (first, end)}}
        whole = {**whole, name: {**whole[name], k: (first, simplify(first + steps - 1))}}
    made = {o.buffer for s in stages for o in s.outputs}
    now, most = (_touched(program, stages, b) for b in (boxes, whole))
    out = []
    for b, part in now.items():
        widest = most[b]
        if b in inside or part is None or widest is None:
            continue
        dims, last = [], []
        for (lo, hi, _), (_, _, width), extent in zip(part, widest, program.shape(b)):
            known = [n for n in (upper(simplify(width + 1)), upper(extent)) if n is not None]
            if not known:
                break
            if len(axes_of(lo)) > 1 and not _inside(lo, min(known), extent):
                # of tiles and places in them: nobody proves what is inside
                lo, hi, known = Const(0), simplify(extent - 1), [upper(extent) or WHOLE]
            exact = simplify(hi - lo + 1)  # what is copied, whatever a tile would ask for
            dims.append((lo, max(min(known), exact.value if isinstance(exact, Const) else 1, 1)))
            last.append(hi)
        else:
            out.append(Copied(b, tuple(dims), tuple(last), b in made))
    return tuple(out)


def _inside(lo: Expr, size: int, extent: Expr) -> bool:
    """True if all of a box's indices are proved to be some of its dimension."""
    first, left = lower(lo), lower(simplify(extent - lo - size))
    return first is not None and first >= 0 and left is not None and left >= 0


def _touched(program: Program, stages: Sequence[Stage],
             boxes: Mapping[str, Box]) -> dict[str, tuple[Bound, ...] | None]:
    """{buffer: (first, last, bound of their distance) per dimension of what stages touch}; None
    where no box holds exactly what is made of it."""
    found: dict[str, tuple[Bound, ...] | None] = {}
    made: set[str] = set()
    for s in stages:
        box: Ranges = boxes[s.name]
        for o in s.outputs:
            made.add(o.buffer)
            found[o.buffer] = _made(o.index, box)
        for b, part in boxes_read(s.exprs(), box, program.shape).items():
            if b not in made:
                old = found.get(b)
                found[b] = part if old is None else _hull(old, part)
    return found


def _made(index: Sequence[Expr], box: Ranges) -> tuple[Bound, ...] | None:
    """What a stage makes of an output, if that is a box: each dimension is an axis of its own."""
    axes = [i for i in index if isinstance(i, Axis)]
    if len(set(axes)) != len(axes) or not all(isinstance(i, (Axis, Const)) for i in index):
        return None
    out: list[Bound] = []
    for i in index:
        lo, last = interval(i, box)
        assert lo is not None and last is not None, i  # an axis or a constant
        out.append((lo, last, simplify(last - lo)))
    return tuple(out)


def _hull(a: tuple[Bound, ...], b: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """Of what two stages read.  A bound of both is that of their ends, or the larger one's where
    both begin at one place."""
    out: list[Bound] = []
    for x, y in zip(a, b):
        lo, last = simplify(minimum(x[0], y[0])), simplify(maximum(x[1], y[1]))
        width = simplify(maximum(x[2], y[2])) if are_equal(x[0], y[0]) else simplify(last - lo)
        out.append((lo, last, width))
    return tuple(out)


__all__ = ["Copied", "item_boxes", "moves", "slices_of"]
