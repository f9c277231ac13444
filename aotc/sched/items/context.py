"""Where every buffer of one group lives, and the scratch reserved so far."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from aotc.errors import ScheduleError
from aotc.ir.access import ArrayForm, dim_order, layout_from_json, offset_of, row_major
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Shape,
    as_expr,
    depends_on_data,
    maximum,
    minimum,
    substitute,
)
from aotc.ir.kernel.plan_kernels import Scratch, Size
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import simplify
from aotc.sched.model.boxes import Dims, Places
from aotc.sched.model.stored_sizes import ALIGN
from aotc.sched.rows.placed_rows import PlacedRows
from aotc.target.base import Machine, Target


@dataclass
class Context:
    """What lowering one group needs: where every buffer lives and the slab filled so far."""

    program: Program
    schedule: Schedule
    target: Target
    group: Group
    local: Places
    scratch: list[Scratch]
    slab: Size = 0  # bytes
    values: dict[Expr, Expr] = field(default_factory=dict)  # Axis bound by the kernel -> its value
    bases: dict[str, Expr] = field(default_factory=dict)  # buffer -> where its box begins
    placed: dict[str, PlacedRows] = field(default_factory=dict)  # scratch that lies for products

    def place(self, buffer: str) -> Callable[[Shape], Expr]:
        """Function from logical index to element offset in the buffer's memory."""
        if buffer in self.local:
            dims = self.local[buffer]
            strides = scratch_strides(dims, self.schedule.layouts.get(buffer),
                                      self.placed.get(buffer))

            def relative(index: Shape) -> Expr:
                total = self.bases.get(buffer, Const(0))
                for i, (lo, n), s in zip(index, dims, strides):
                    at = i - lo
                    if depends_on_data(i):  # 0, where a check fails, may lie outside of the box
                        at = minimum(maximum(at, Const(0)), as_expr(n - 1))
                    total = total + at * s
                return simplify(total)
            return relative
        layout = layout_from_json(self.schedule.layouts.get(buffer))
        return lambda index: offset_of(index, self.program.shape(buffer), layout)

    def add_local(self, buffer: str, elements: Size) -> str:
        """``add_scratch`` for the part of a tensor that is in ``local``."""
        dims = self.local[buffer]
        order = scratch_order(self.schedule.layouts.get(buffer), len(dims))
        # a name of a name becomes that, with its own bounds (``expand/prune.py``)
        same: dict[Expr, Expr] = {a: replace(a, name=e.name) for a, e in self.values.items()
                                  if isinstance(a, Axis) and isinstance(e, Axis)}
        origins = tuple(substitute(as_expr(dims[d][0]), same) for d in order)
        form = ArrayForm(tuple(as_expr(dims[d][1]) for d in order), origins)
        return self.add_scratch(buffer, self.program.dtype(buffer), elements, form)

    def add_scratch(self, name: str, dtype: str, elements: Size,
                    form: ArrayForm | None = None) -> str:
        """Reserve ``elements`` (an int, or an expression over symbols) in the worker's slab; the
        name is made unique.  form: how they lie, of a tensor's.  ScheduleError where scratch is no
        cache and it has no bound."""
        if not isinstance(elements, int) and self.target.machine.managed:
            raise ScheduleError([f"group {self.group.name}: scratch {name} has no constant bound; "
                                 "tile the axis or store the tensor"])
        made = scratch_behind(self.target.machine, self.scratch, self.slab, name, dtype, elements,
                              form)
        self.scratch.append(made)
        self.slab = end_of(made)
        return made.name


def scratch_behind(machine: Machine, others: Collection[Scratch], slab: Size, name: str, dtype: str,
                   elements: Size, form: ArrayForm | None = None) -> Scratch:
    """A buffer of ``elements`` from byte ``slab`` on, with a name that no other has."""
    while any(s.name == name for s in others):
        name += "_"
    memory = machine.near.name if machine.on_copies else ""
    return Scratch(name, dtype, elements, slab, memory, form)


def end_of(scratch: Scratch) -> Size:
    """The byte from which on there may be other scratch."""
    size = scratch.elements * DTYPES[scratch.dtype].size
    return scratch.offset + (size + ALIGN - 1) // ALIGN * ALIGN


def scratch_strides(dims: Dims, layout: LayoutJson | None,
                    placed: PlacedRows | None = None) -> list[Expr]:
    """Strides of a scratch buffer's dims ((lo, size) each), ordered as its layout says, with room
    behind the last one where it is ``placed``."""
    order = scratch_order(layout, len(dims))
    sizes = [as_expr(dims[d][1]) for d in order]
    strides = row_major(sizes if placed is None else [*sizes[:-1], Const(placed.pitch)])
    return [strides[order.index(d)] for d in range(len(dims))]


def scratch_order(layout: LayoutJson | None, rank: int) -> tuple[int, ...]:
    """Dimensions of a scratch buffer from outermost to innermost in memory."""
    order = dim_order(layout_from_json(layout), rank)
    assert order is not None, layout  # ``check_schedule`` refuses all but those that reorder
    return order


__all__ = ["Context", "end_of", "scratch_behind", "scratch_order", "scratch_strides"]
