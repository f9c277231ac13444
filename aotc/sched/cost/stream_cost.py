"""Time and rows of groups that stream (``rows/stream_stages.py``): each work item has the rows of
one tile and goes along all columns of the stream, which come from the memory behind a block's; or
along a part of them, whose sums a kernel more joins (the rewrite ``split_keys``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from aotc.ir.dtypes import DTYPES, HALVES
from aotc.ir.expr import Binary, Cast, Expr, Load, Unary, Where, loads, substitute, walk
from aotc.ir.numbers.narrow import stored_half
from aotc.ir.program import Program
from aotc.ir.simplify import upper
from aotc.passes.sums.split_keys import GRAIN
from aotc.sched.cost.block_figures import block_figures, tile_reach
from aotc.sched.cost.group_cost import memory_rate
from aotc.sched.cost.row_cost import row_rate
from aotc.sched.model.held_numbers import is_held
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.rows.stream_stages import Streamed
from aotc.target.base import Machine, Target
from aotc.target.kernel_rows import ProductRow

Rows = tuple[ProductRow, ProductRow]  # of the scores, and of the values

_STATE = DTYPES["f32"].size  # of what parts leave
Call = Mapping[Expr, Expr]  # extents of symbols; of others that is usual
_USUAL: Call = {}

OPERATIONS = ("exp", "mul", "max", "sub", "add", "add")  # of a score, beside what makes it


@dataclass(frozen=True)
class KeyParts:
    """How many ``parts`` the keys of a stream are in, and how many of its streams, which read the
    same keys, are rows of one."""

    parts: int = 1
    shared: int = 1


def stream_seconds(machine: Machine, found: Streamed, rows: Rows, split: KeyParts = KeyParts(),
                   call: Call = _USUAL) -> float:
    """Seconds of a call on the two rows."""
    scores, values = rows
    depth = rows_up(estimate(found.scores.raxes[0].extent), scores.steps)
    each = -(-_size(found.key.extent, call) // split.parts)
    keys = rows_up(each, scores.tile.nr if split.parts == 1 else GRAIN)
    batch, count = _rows(found, call)
    batch, count = batch // split.shared * split.parts, count * split.shared
    items = batch * -(-count // scores.tile.mr)
    waves = -(-items // machine.workers)
    tuning = machine.tuning
    mr, columns = scores.tile.mr, values.tile.nr
    products = 2.0 * mr * keys * (depth + columns) / row_rate(scores, tuning)
    others = mr * keys * sum(tuning.op_cost.get(n, 1) for n in OPERATIONS) * tuning.other_flops
    size = DTYPES[scores.stored].size
    busy = waves * (products + others) / (machine.flops * _reach(machine, rows, waves))
    fetched = items * keys * (depth + columns) * size
    stored = _STATE if split.parts > 1 or found.states else size
    rest = batch * count * (depth * size + columns * stored)
    return max(busy, fetched / memory_rate(machine, machine.outside(machine.near)),
               (rest + batch * keys * (depth + columns) * size) / machine.memory.bandwidth
               ) + machine.launch


def join_seconds(machine: Machine, found: Streamed, split: KeyParts, call: Call = _USUAL) -> float:
    """Seconds of the kernel that joins the parts of a call: each thread goes through all of them
    for the greatest, for the total and for a sum."""
    if split.parts == 1:
        return 0.0
    moved = state_bytes(found, split, call)
    return max(moved / machine.memory.bandwidth,
               3 * split.parts * machine.tuning.fold_step) + machine.launch


def state_bytes(found: Streamed, split: KeyParts, call: Call) -> int:
    """Bytes that the parts of a call leave."""
    batch, count = _rows(found, call)
    columns = estimate_volume(a.extent for a in found.valued.n)
    return split.parts * batch * count * (columns + 2) * _STATE


def key_bytes(found: Streamed, rows: Rows, split: KeyParts, call: Call) -> int:
    """Bytes of the keys and values of a call."""
    batch, _ = _rows(found, call)
    return batch // split.shared * _size(found.key.extent, call) * DTYPES[rows[0].stored].size * (
        estimate(found.scores.raxes[0].extent) + estimate_volume(
            a.extent for a in found.valued.n))


def element_seconds(machine: Machine, found: Streamed, rows: Rows, bodies: Sequence[Expr],
                    more: int) -> float:
    """Seconds that a call of usual extents takes longer if it computes ``bodies`` for every score,
    and reads so many bytes more."""
    scores, _ = rows
    mr, (batch, count) = scores.tile.mr, _rows(found)
    waves, cost = -(-(batch * -(-count // mr)) // machine.workers), machine.tuning.op_cost
    operations = sum(cost.get(getattr(n, "op", ""), 1) for e in bodies for n in walk(e)
                     if isinstance(n, (Binary, Unary, Cast, Where)))
    others = mr * rows_up(estimate(found.key.extent), scores.tile.nr) * operations
    # none is part of a multiply-add, of which the peak counts two
    return 2 * waves * others / (
        machine.flops * _reach(machine, rows, waves)) + more / machine.memory.bandwidth


def _rows(found: Streamed, call: Call = _USUAL) -> tuple[int, int]:
    """(How many streams there are, rows of each) in a call."""
    inside = (*found.valued.m, *found.valued.n)
    return (prod(_size(a.extent, call) for a in found.values.axes if a not in inside),
            prod(_size(a.extent, call) for a in found.valued.m))


def _size(extent: Expr, call: Call) -> int:
    """An extent in a call."""
    return estimate(substitute(extent, call) if call else extent)


def _reach(machine: Machine, rows: Rows, waves: int) -> float:
    """The part of its arithmetic that a worker reaches with the blocks that it holds at a time."""
    shared = stream_bytes(rows)
    held = min(waves, *(block_figures(machine, r, r.threads, shared).blocks for r in rows))
    return tile_reach(machine, rows[0], held)


def stream_bytes(rows: Rows) -> int:
    """Bytes of a block's memory: rows of the first product, and the usual stages of the columns of
    both."""
    scores, values = rows
    assert scores.staging is not None, scores.name
    columns = scores.staging.usual * scores.tile.nr * (scores.steps + values.tile.nr)
    return DTYPES[scores.stored].size * (scores.tile.mr * scores.steps + columns)


def rows_up(count: int, unit: int) -> int:
    """The next multiple of ``unit``."""
    return -(-count // unit) * unit


def stream_rows(program: Program, target: Target, found: Streamed,
                split: KeyParts = KeyParts()) -> Rows | None:
    """The rows of the scores and of the values of a stream, those that are predicted to take the
    least time; None where the target has none for what both products multiply."""
    depth, columns = upper(found.scores.raxes[0].extent), upper(found.valued.n[0].extent)
    if depth is None or columns is None or len(found.valued.n) != 1:
        return None
    rows = [r for r in target.rows("stream") if isinstance(r, ProductRow) and all(
        _is_of(program, e, r.a) for e in (found.scored.a, found.scored.b, found.valued.b))]
    pairs = [(s, v) for s in rows for v in rows if s.steps >= depth and v.tile.nr >= columns
             and v.steps == s.tile.nr and v.tile.mr == s.tile.mr and v.a == s.a
             and v.threads == s.threads]
    pairs = [p for p in pairs if stream_bytes(p) <= target.machine.near.capacity]
    return min(pairs, key=lambda p: (
        stream_seconds(target.machine, found, p, split), p[0].tile.nr), default=None)


def _is_of(program: Program, e: Expr, dtype: str) -> bool:
    """True if an operand surely is of a dtype, or the model declares it so."""
    half = stored_half(e)
    if is_held(program, e, dtype) or half is not None and half.dtype == dtype:
        return True
    found = loads(e)
    return dtype in HALVES and isinstance(e, Load) and len(found) == 1 and (
        program.buffers[e.buffer].declared == dtype)


__all__ = ["KeyParts", "element_seconds", "join_seconds", "key_bytes", "rows_up", "state_bytes",
           "stream_rows", "stream_seconds"]
