"""Elements and bytes that stored tensors take, as expressions over symbols."""

from collections.abc import Sequence
from math import prod

from aotc.ir.access import dim_order, layout_from_json, volume
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Expr, as_expr
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Schedule, Slot
from aotc.ir.simplify import simplify, upper

ALIGN = 64  # bytes: of every buffer


def physical_elements(program: Program, schedule: Schedule, name: str) -> Expr:
    """Elements that a buffer has room for, with what its layout pads."""
    layout = layout_from_json(schedule.layouts.get(name))
    shape = program.shape(name)
    return volume(layout.shape(shape) if not layout.is_identity else shape)


def buffer_bytes(program: Program, schedule: Schedule, name: str) -> Expr:
    """Bytes of a stored buffer, rounded up to 64, as an expression."""
    key = "buffer_bytes", name
    plain = not schedule.layouts.get(name)  # the checker asks for pairs of buffers: that is often
    known: Expr | None = program.memo.get(key) if plain else None
    if known is not None:
        return known
    size = physical_elements(program, schedule, name) * DTYPES[program.dtype(name)].size
    size = simplify((size + (ALIGN - 1)) // ALIGN * ALIGN)
    if plain:
        program.memo[key] = size
    return size


def part_bytes(program: Program, schedule: Schedule, name: str) -> Expr:
    """Bytes that one cluster or worker has room for of a stored buffer, rounded up to 64."""
    slot = schedule.buffers.get(name, Slot(0))
    count = as_expr(ring_elements(program, schedule, name)) if slot.ring else (
        physical_elements(program, schedule, name) // slot.parts)
    size = count * DTYPES[program.dtype(name)].size
    return simplify((size + (ALIGN - 1)) // ALIGN * ALIGN)


def ring_elements(program: Program, schedule: Schedule, name: str) -> int:
    """Elements that a cluster has room for at a time of a buffer in a ring; 0 if it has none."""
    slot, found = schedule.buffers.get(name, Slot(0)), find_outermost(program, schedule, name)
    return prod(found[1]) // found[1][found[0]] * slot.ring if found and slot.ring else 0


def find_outermost(program: Program, schedule: Schedule,
                   name: str) -> tuple[int, Sequence[int]] | None:
    """(dimension of a stored buffer that is outermost in memory among those of more than one index,
    its shape); None without fixed extents, or for layouts that are no order of dimensions."""
    shape = static_shape(program.shape(name))
    order = dim_order(layout_from_json(schedule.layouts.get(name)), len(shape)) if shape else None
    return (next((d for d in order if shape[d] > 1), order[0]), shape) if shape and order else None


def store_strides(program: Program, schedule: Schedule) -> dict[int, int]:
    """{slot that stands for a memory of clusters or workers: bytes of it that one of them has}."""
    out: dict[int, int] = {}
    for b, s in schedule.buffers.items():
        if s.memory:
            size = upper(part_bytes(program, schedule, b)) or 0  # ``store_faults``: it is a number
            out[s.slot] = max(out.get(s.slot, 0), s.offset + size)
    return out
