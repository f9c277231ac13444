"""Work items that several threads share: who waits for whom, and the memory that they share.

The threads of a work item run its stages one after the other, each thread at its own pace.  A
barrier stands in front of a stage that touches bytes which an earlier stage has touched since the
last barrier, if one of the two writes them: bytes, not names, because scratch buffers whose lives
do not meet lie in the same place.  ``with_barriers`` decides, ``barrier_faults`` proves it of
a Plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aotc.errors import ScheduleError
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Expr, Load, substitute, walk
from aotc.ir.kernel.operands import Operand
from aotc.ir.kernel.plan_kernels import LoweredKernel, Scratch
from aotc.ir.kernel.plan_stages import Call, Contract, HeldRows, Nest, Stream, points
from aotc.ir.kernel.plan_stages import Stage as PlanStage
from aotc.ir.plan import Place, Plan
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import Range
from aotc.sched.expand.block.block_streams import stream_arrays, stream_steps
from aotc.sched.expand.block.few_rows import staged_row_bytes
from aotc.sched.expand.expansion import find_choice
from aotc.sched.lowering.held_rows import count_registers, with_held_rows
from aotc.sched.lowering.neighbours import (
    Lined,
    check_neighbours,
    lines_of,
    wide_of,
    wide_of_product,
)
from aotc.sched.lowering.operand_ways import (
    WAY_CHOICES,
    check_team,
    fetch_faults,
    may_team,
    scratch_room,
    ways_left,
)
from aotc.sched.rows.placed_rows import most_steps, placed_rows
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

_ANYWHERE = 1 << 62
Ends = dict[Expr, Expr]  # of variables that are the ends of tiles, what they are


@dataclass(frozen=True)
class MemoryAccess:
    """Bytes first .. end-1 of a ``memory``, touched by stage number ``stage``: ``offset`` is the
    element of ``buffer`` (None: any), of ``size`` bytes, ``ranges`` the loops around it."""

    stage: int
    buffer: str
    memory: tuple[str, int]
    first: int
    end: int
    writes: bool
    offset: Expr | None
    size: int
    ranges: tuple[Range, ...]


def share_by_threads(kernel: LoweredKernel, target: Target,
                     lined: Lined | None = None) -> LoweredKernel:
    """The kernel of a group whose work items threads share, with what they share written out:
    ``Nest.team``, ``Contract.again``, ``wide`` of both and ``staged``.  The same where a work item
    is one thread's.  lined: buffers that begin at a multiple of 16 bytes outside the work item's
    memory, with their elements.  ScheduleError where a stage cannot be written as it says."""
    kernel = with_held_rows(kernel, target, lined := lined or {})
    if kernel.block is None:
        return kernel
    lines, room = lines_of(kernel, lined), scratch_room(kernel)

    def shared(n: int, s: PlanStage) -> PlanStage:
        if isinstance(s, Nest):
            check_neighbours([x for x in kernel.stages if isinstance(x, Nest)
                              and x.puts[0].buffer == s.puts[0].buffer], lines)
            width = find_choice(s, "neighbours", f"kernel {kernel.about.title}")
            return replace(s, team=_team(s, kernel, target), wide=wide_of(s, width, lines))
        if isinstance(s, Stream):
            return shared_stream(s, kernel, target, lined)
        if not isinstance(s, Contract):
            return s
        row = target.product_row(s.row)
        for key in ("order", *(("stages", *WAY_CHOICES) if row.staging is not None else ())):
            find_choice(s, key, f"kernel {kernel.about.title}")
        for which in "ab" if row.staging is not None else "":
            ways_left(s, which, row, room, lined)
        placed = placed_rows(s, row, room[s.a.buffer]) if s.writing.a_fetch == "place" else None
        return replace(s, again=_used_again(kernel, n), wide=wide_of_product(s, row, lines),
                       placed=placed)

    stages = tuple(shared(n, s) for n, s in enumerate(kernel.stages))
    return replace(kernel, stages=stages, block=replace(
        kernel.block, held=_held(stages, target, kernel.threads), staged=max(
            _staged_bytes(s, target, kernel.threads, lined) for s in stages)))


def shared_stream(s: Stream, kernel: LoweredKernel, target: Target, lined: Lined) -> Stream:
    """The Stream, if its operands can be fetched as it says."""
    title = f"kernel {kernel.about.title}"
    for c, sides in zip(s.products, ("ab", "b")):
        row = target.product_row(c.row)
        for key in ("stages", *(k for k in WAY_CHOICES if k[0] in sides)):
            find_choice(c, key, title)
        for which in sides:
            ways_left(c, which, row, scratch_room(kernel), lined)
    if s.scores.writing.stages != s.values.writing.stages:
        raise ScheduleError([f"{title}: stages {s.scores.writing.stages} of {s.owner}, "
                             f"{s.values.writing.stages} of the other product of its stream; "
                             "blocks of both come together: choose one number"])
    last = s.values
    wide = wide_of_product(last, target.product_row(last.row), lines_of(kernel, lined))
    return replace(s, values=replace(
        last, again=not _one_tile(last, _ends(kernel)), wide=wide))


def _held(stages: Sequence[PlanStage], target: Target, threads: int) -> int:
    """Blocks that a worker's registers are to have room for: as many as the rows allow whose sums
    warps hold together, and what is held of rows; one where there is neither, so that a compiler
    may take what it wants."""
    rows = [target.row(s.row) for s in stages if not isinstance(s, Call)]
    most = [r.shared.registers for r in rows
            if isinstance(r, ProductRow) and r.shared and not r.per_thread]
    most += [target.tuning.nest_registers + count_registers(s) for s in stages
             if isinstance(s, HeldRows)]
    tuning = target.tuning
    return max(1, min(tuning.worker_registers // (threads * max(most)), tuning.worker_blocks,
                      tuning.worker_threads // threads)) if any(most) else 1


def _team(nest: Nest, kernel: LoweredKernel, target: Target) -> int:
    """How many threads, or times the target's lanes threads where those lie along it, fold a row of
    a Nest together.  ScheduleError where they cannot."""
    if may_team(nest):
        team: int = find_choice(nest, "team", f"kernel {kernel.about.title}")
        check_team(nest, team, kernel.threads, target.lanes)
        return team
    parts = [s for s in kernel.stages if isinstance(s, Nest) and s.puts[:1] == nest.puts[:1]]
    if (nest.writing.team or 1) != 1 and not any(map(may_team, parts)):
        raise ScheduleError([f"{nest.row}: team {nest.writing.team}; one thread makes a point of "
                             "a nest without a sum, product, minimum or maximum: remove team"])
    return 1


def _used_again(kernel: LoweredKernel, number: int) -> bool:
    """True if the memory of a Contract's steps may be used again with no barrier of its own in
    between: by its next register tile, or by a later stage of the work item."""
    c = kernel.stages[number]
    assert isinstance(c, Contract), c
    # where a tile has a table of its rows, all wait behind that, which no step before it reads
    return not (c.has_row_table or _one_tile(c, _ends(kernel))) or any(
        isinstance(s, (Contract, HeldRows)) or (isinstance(s, Nest) and may_team(s))
        for s in kernel.stages[number + 1:])


def _ends(kernel: LoweredKernel) -> Ends:
    return {v: e for v, e in kernel.let if v.name.endswith("_hi")}


def _one_tile(c: Contract, ends: Ends) -> bool:
    """True if a work item surely has no more than one register tile of the Contract."""
    rows = 1
    for r in c.own_rows:
        rows *= _most(r, ends)
    return rows <= c.micro.mr and _most(c.n, ends) <= c.micro.nr and all(
        _most(r, ends) == 1 for r in c.outer)


def _most(r: Range, ends: Ends) -> int:
    """Upper bound of a range's steps."""
    most = most_steps(replace(r, hi=substitute(r.hi, ends)))
    return _ANYWHERE if most is None else most


def with_ends(kernel: LoweredKernel) -> LoweredKernel:
    """The kernel with the ends of tiles written out in the ranges that threads share, so that their
    extents are known: lo + 1 - lo is one."""
    ends = _ends(kernel)

    def closed(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        return tuple(replace(r, hi=simplify(substitute(r.hi, ends))) for r in ranges)

    return replace(kernel, stages=tuple(
        replace(s, ranges=closed(s.ranges), reduce=closed(s.reduce)) if isinstance(s, Nest) else
        replace(s, m=closed(s.m), part=None if s.part is None else closed((s.part,))[0])
        if isinstance(s, Contract) else replace(
            s, scores=replace(s.scores, m=closed(s.scores.m)),
            values=replace(s.values, m=closed(s.values.m)))
        if isinstance(s, Stream) else s for s in kernel.stages))


def _staged_bytes(stage: PlanStage, target: Target, threads: int, lined: Lined) -> int:
    """Bytes behind its scratch in which the threads of a work item keep parts of one stage: the
    partial sums of a team, a product's next steps and where its rows start, for every tap."""
    if isinstance(stage, HeldRows):
        return 2 * 8 * (threads // target.lanes) if stage.size > target.lanes else 0
    if isinstance(stage, Nest):
        if stage.team == 1:
            return 0
        parts = threads // target.lanes if stage.folds_lanes else stage.team * (
            points(stage.ranges) or 1)
        return sum(DTYPES[v.dtype].size for v in stage.acc) * parts
    row = target.product_row(stage.row)
    if isinstance(stage, Stream):
        steps = stream_steps(stage, (row, target.product_row(stage.values.row)), threads, 0)
        return max(a.offset + DTYPES[a.dtype].size * a.elements for a in stream_arrays(*steps))
    assert isinstance(stage, Contract) and row.shared is not None, stage.row
    if row.staging is None:
        return row.shared.sum_bytes + staged_row_bytes(stage, row, lined)
    step = row.bytes_of_step(stage.micro.grouping) - (row.rows_bytes if stage.placed else 0)
    shared = max(row.shared.sum_bytes, step * (stage.writing.stages or 1))
    taps = 1
    for t in stage.taps:
        most = upper(t.axis.extent)
        if most is None:
            raise ScheduleError([f"{stage.row}: taps over {t.axis.name}, which has no bound; give "
                                 "the dimension a range (--dim NAME=LO..HI)"])
        taps *= most
    return shared + (row.tap_bytes * taps if stage.has_row_table else 0)


def with_barriers(kernel: LoweredKernel, places: Mapping[str, Place]) -> LoweredKernel:
    """The kernel with the numbers of the stages in front of which all threads of a work item wait
    for each other.  places: {buffer: Place} of what lies outside the work item's scratch."""
    if kernel.block is None:
        return kernel
    out: list[int] = []
    since: list[MemoryAccess] = []
    for n, stage in enumerate(kernel.stages):
        mine = _accesses(kernel, places, n)
        if any(_meet(x, y) for x in since for y in _early(stage, mine)):
            out.append(n)
            since = []
        since = [] if _ends_with_barrier(stage) else [*(() if _waits(stage) else since), *mine]
    return replace(kernel, block=replace(kernel.block, barriers=tuple(out)))


def barrier_faults(plan: Plan) -> list[str]:
    """Faults of a Plan: bytes that one thread of a work item writes and another touches with no
    barrier between, each with the kernel, both stages and both buffers; products that do not wait
    behind their tiles, although the memory of their steps is used again, and whose operands cannot
    be fetched as it says."""
    faults, places = [], {p.name: p for p in plan.places}
    lined = {p.name for p in plan.places if p.storage in ("arena", "weights", "input", "output")}
    for kernel in (k.lowered for k in plan.kernels):
        if kernel.block is None:
            continue
        since: list[MemoryAccess] = []
        for n, stage in enumerate(kernel.stages):
            since = [] if n in kernel.block.barriers else since
            mine = _accesses(kernel, places, n)
            early = _early(stage, mine)
            clash = next(((x, y) for x in since + mine for y in mine if (
                y in early if x.stage < n else x.buffer != y.buffer) and _meet(x, y)), None)
            if clash is not None:
                x, y = clash
                faults.append(
                    f"kernel {kernel.name}, stage {n} ({stage.row}): {_verb(y)} {y.buffer} where "
                    f"stage {x.stage} {_verb(x)} {x.buffer}, without a barrier between them")
            since = [] if _ends_with_barrier(stage) else [
                *(() if _waits(stage) else since), *mine]
            if isinstance(stage, Contract) and not stage.again and _used_again(kernel, n):
                faults.append(f"kernel {kernel.name}, stage {n} ({stage.row}): the memory of its "
                              "steps is used again, without a barrier behind a tile")
            for c, sides in _fetched(stage):
                faults += [f"kernel {kernel.name}, stage {n}: {f}" for f in fetch_faults(
                    c, {s.name for s in kernel.scratch}, lined, sides)]
    return faults


def _fetched(stage: PlanStage) -> tuple[tuple[Contract, str], ...]:
    """The products of a stage, with their operands that are fetched."""
    if isinstance(stage, Stream):
        return (stage.scores, "ab"), (stage.values, "b")
    return ((stage, "ab"),) if isinstance(stage, Contract) else ()


def _verb(access: MemoryAccess) -> str:
    return "writes" if access.writes else "reads"


def _ends_with_barrier(stage: PlanStage) -> bool:
    """True if no thread is still busy with a stage when another goes on behind it."""
    return isinstance(stage, (Nest, HeldRows)) and stage.team > 1


def _waits(stage: PlanStage) -> bool:
    """True for a product whose threads have all come to its first step before it touches what
    other stages do: rows that it multiplies where they lie, and its results."""
    return isinstance(stage, Contract) and stage.placed is not None


def _early(stage: PlanStage, mine: Sequence[MemoryAccess]) -> Sequence[MemoryAccess]:
    """What a stage touches before any barrier of its own: of a product that ``_waits`` its columns
    alone, and zeros that nobody else writes or reads as anything else."""
    if not _waits(stage):
        return mine
    assert isinstance(stage, Contract), stage
    columns = {b for b, _ in _operand_reads(stage.b)}
    return [x for x in mine if not x.writes and x.buffer in columns]


def _accesses(kernel: LoweredKernel, places: Mapping[str, Place],
              number: int) -> list[MemoryAccess]:
    """Every Access of one stage of a kernel, each kind once."""
    stage = kernel.stages[number]
    if isinstance(stage, Call):  # alone in its kernel, and its function has barriers of its own
        return []
    assert isinstance(stage, (Nest, HeldRows, Contract, Stream)), stage  # threads have no others
    scratch = {s.name: s for s in kernel.scratch}
    last = stage.values if isinstance(stage, Stream) else stage
    loops = last.ranges if isinstance(last, Nest) else (
        *last.rows, last.lane) if isinstance(last, HeldRows) else (*last.outer, *last.m, last.n)
    found: dict[tuple[str, bool, Expr | None, tuple[Range, ...]], None] = dict.fromkeys(
        (p.buffer, True, p.offset, loops) for p in stage.puts)
    found |= dict.fromkeys((b, False, at, ()) for b, at in _reads(stage))
    out = []
    for buffer, writes, offset, ranges in found:
        memory, first, count, dtype = _memory(scratch.get(buffer), places.get(buffer))
        size = DTYPES[dtype].size
        end = _ANYWHERE if count is None else first + count * size
        out.append(MemoryAccess(number, buffer, memory, first, end, writes, offset, size, ranges))
    return out


def _memory(scratch: Scratch | None,
            place: Place | None) -> tuple[tuple[str, int], int, int | None, str]:
    """(memory, first byte in it, elements or None where they have no bound, dtype) of a buffer that
    is scratch or has a place."""
    if scratch is not None:
        assert isinstance(scratch.offset, int), scratch  # a block's memory is no slab
        count = scratch.elements if isinstance(scratch.elements, int) else upper(scratch.elements)
        return ("scratch", 0), scratch.offset, count, scratch.dtype
    assert place is not None  # what is no scratch is stored
    number = place.slot if place.storage == "arena" else place.index
    return (place.storage, number), place.offset, upper(place.elements), place.dtype


def _reads(stage: Nest | HeldRows | Contract | Stream) -> Iterator[tuple[str, Expr | None]]:
    """(buffer, element offset or None) of all that a stage reads."""
    if isinstance(stage, HeldRows):
        made = {p.buffer for n in stage.nests for p in n.puts}  # what is held, once it is made
        yield from (x for n in stage.nests for x in _reads(n) if x[0] not in made)
        return
    if isinstance(stage, Stream):
        for c in stage.products:
            yield from _reads(c)
        yield from ((n.buffer, n.index[0]) for n in walk(stage.element) if isinstance(n, Load))
        return
    exprs = [p.value for p in stage.puts] + [p.offset for p in stage.puts]
    exprs += [p.guard for p in stage.puts if p.guard is not None]
    if isinstance(stage, Nest):
        exprs += [stage.body, *(e for _, e in stage.ends)]
        exprs += [] if isinstance(stage.fold, str) else stage.fold.update
    else:
        for o in (stage.a, stage.b):
            yield from _operand_reads(o)
    yield from _loads_of(exprs)


def _operand_reads(o: Operand) -> Iterator[tuple[str, Expr | None]]:
    """The same of an operand of a product."""
    if o.mode not in ("packed", "held"):
        yield o.buffer, None
    yield from _loads_of([e for e in (o.offset, o.stride, o.guard, o.value) if isinstance(e, Expr)])


def _loads_of(exprs: Sequence[Expr]) -> Iterator[tuple[str, Expr | None]]:
    for e in exprs:
        for n in walk(e):
            if isinstance(n, Load):
                yield n.buffer, n.index[0]


def _meet(x: MemoryAccess, y: MemoryAccess) -> bool:
    """True if two accesses may be of the same bytes, one of them writes, and different threads may
    make them."""
    if not (x.writes or y.writes) or x.memory != y.memory or x.end <= y.first or y.end <= x.first:
        return False
    if x.stage == y.stage and not (x.writes and y.writes):
        # what is read at the very element that is written: by the thread that writes it
        return (x.first, x.size) != (y.first, y.size) or x.offset is None or x.offset != y.offset
    return not (x.buffer == y.buffer and x.writes and y.writes and _apart(x, y))


def _apart(x: MemoryAccess, y: MemoryAccess) -> bool:
    """True if two writes into a buffer are of different elements: pieces of one stage, which stores
    every element once, that some loop takes different parts of."""
    if x.offset != y.offset:
        return False
    ends = {r.axis: r for r in y.ranges}
    return any(_before(r, ends[r.axis]) or _before(ends[r.axis], r)
               for r in x.ranges if r.axis in ends)


def _before(a: Range, b: Range) -> bool:
    """True if the range ``a`` surely ends where ``b`` begins, or sooner."""
    left = upper(simplify(a.hi - b.lo))
    return left is not None and left <= 0


__all__ = ["barrier_faults", "share_by_threads", "with_barriers", "with_ends"]
