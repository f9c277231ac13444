"""Folds and maps of the same rows that threads hold in registers from one to the next: which nests
of a kernel may be so, and what their threads have then."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from aotc.errors import ScheduleError
from aotc.ir.access import is_multiple
from aotc.ir.contents import nodes, substitute_axes
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Binary, Const, Expr, Load, axes_of, loads, substitute
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.kernel.plan_stages import HeldRows, Nest, Stage, points
from aotc.ir.program import FOLD_STEP
from aotc.ir.simplify import are_equal, simplify
from aotc.ir.statements import Put, Range
from aotc.sched.expand.expansion import find_choice
from aotc.sched.lowering.neighbours import Lined, Lines, lines_of, sure_reads, wide_row
from aotc.sched.lowering.operand_ways import may_team
from aotc.sched.lowering.partial_sums import whole_range
from aotc.target.base import Target

WRITTEN_OUT = 8  # terms of an element's fold, at most, beside rows that are held


def with_held_rows(kernel: LoweredKernel, target: Target, lined: Lined) -> LoweredKernel:
    """The kernel with the HeldRows of its stages that say so in place of those.  ScheduleError
    where they cannot be."""
    said = [find_choice(s, "held_rows", f"kernel {kernel.about.title}") for s in kernel.stages
            if isinstance(s, Nest) and kernel.threads and target.row(s.row).category != "loops"]
    if not any(said):
        return kernel
    stages, lines = list[Stage](), lines_of(kernel, lined)
    says, end = [*kernel.about.says], 0
    for n, s in enumerate(kernel.stages):
        if n < end:
            continue
        end = n + 1
        if not isinstance(s, Nest) or not (_says(kernel, n) and _says(kernel, n + 1)):
            stages.append(s)
            continue
        found, length = longest_rows(kernel, n, lines, lambda s: bool(s.writing.held_rows))
        told = [x.writing for x in kernel.stages[n:n + length] if isinstance(x, Nest)]
        run = None
        if found is not None:
            teams = {x.team for x, nest in zip(told, found.nests) if nest.fold != "none"}
            widths = {x.neighbours for x in told}
            if len(teams) == len(widths) == 1:
                run = threads_of(found, teams.pop() or 1, widths.pop() or 1, kernel, target, lines)
        if run is None:
            raise ScheduleError([
                f"kernel {kernel.about.title}, {s.row}: held_rows 1; the stages behind it go over "
                "other rows or elements, more than registers hold, or by another team or number "
                "of neighbours: choose 0"])
        end, stages = n + length, [*stages, run]
        says[len(stages) - 1:len(stages) - 1 + length] = [tuple(
            x for own in says[len(stages) - 1:len(stages) - 1 + length] for x in own)]
    own = {b for s in stages if isinstance(s, HeldRows) for b, *_ in s.own}
    return replace(kernel, stages=tuple(stages), about=replace(
        kernel.about, says=tuple(says)), scratch=tuple(
            s for s in kernel.scratch if s.name not in own))


def _says(kernel: LoweredKernel, number: int) -> bool:
    """True for a stage that holds rows for the next one, if that does, too."""
    stage = kernel.stages[number] if number < len(kernel.stages) else None
    return isinstance(stage, Nest) and bool(stage.writing.held_rows)


def longest_rows(kernel: LoweredKernel, first: int, lines: Lines,
                 asked: Callable[[Nest], bool]) -> tuple[HeldRows | None, int]:
    """(HeldRows of the most stages of a kernel from number ``first`` on, those that ``asked`` is
    true of, how many they are); (None, 1) where there are none."""
    found: tuple[HeldRows | None, int] = None, 1
    for n in count(1):
        nests = [s for s in kernel.stages[first:first + n] if isinstance(s, Nest) and asked(s)]
        if len(nests) < n or first + n > len(kernel.stages):
            return found
        if n > 1 and any(x.folds_lanes for x in nests):
            run = _rows(nests, kernel, first, lines)
            if run is None:
                return found
            found = run, n
    raise AssertionError


def threads_of(run: HeldRows, team: int, width: int, kernel: LoweredKernel, target: Target,
               lines: Lines) -> HeldRows | None:
    """The HeldRows of teams of so many warps, of which a thread has so many neighbours at once;
    None where that cannot be."""
    size, rows = team * target.lanes, points(run.rows)
    if size > kernel.threads or team > 1 and (
            rows is None or rows > kernel.threads // size) or not is_multiple(
                simplify(run.lane.hi - run.lane.lo), width, lines.lets):
        return None
    tuning, run = target.tuning, replace(run, size=size, width=width)
    if count_registers(run) > min(tuning.row_registers,
                                  tuning.worker_registers // kernel.threads // 2):
        return None
    return replace(run, nests=tuple(replace(
        n, team=team, wide=wide_row(n, run.lane, width, lines) if width > 1 else None)
        for n in run.nests))


def count_registers(run: HeldRows) -> int:
    """Registers of a thread that what it holds of a row takes."""
    most = points((run.lane,))
    assert most is not None, run  # ``_rows`` asks for it
    turns = -(-most // (run.size * run.width))
    return turns * sum(-(-DTYPES[d].size * run.width // 4) for d in (
        *(x.dtype for x in run.loads), *(d for _, d in run.made)))


def _rows(nests: Sequence[Nest], kernel: LoweredKernel, first: int,
          lines: Lines) -> HeldRows | None:
    """What nests hold, those of a kernel from a number on; None where they do not go over the same
    rows, or one reads what another row's threads make."""
    fold = next(n for n in nests if n.folds_lanes)
    lane = _lane(fold)
    if lane is None or points((lane,)) is None:
        return None
    out: list[Nest] = []
    for n in nests:
        same = _along(n, fold.ranges, lane)
        if same is None:
            return None
        out.append(same)
    puts = {p.buffer: p for n in out for p in n.puts}
    if len(puts) < sum(len(n.puts) for n in out) or any(
            p.guard is not None or loads(p.offset) for p in puts.values()):
        return None
    read = [dict.fromkeys(_loads(n)) for n in out]
    if not _in_order(out, read, puts) or not _apart(kernel, read, puts, lines):
        return None
    later = {x.buffer for n, s in enumerate(kernel.stages) if not first <= n < first + len(nests)
             for x in _loads(s)}
    mine = tuple((s.name, s.dtype, int(s.elements)) for s in kernel.scratch
                if s.name in puts and s.name not in later and isinstance(s.elements, int))
    sure = [{x for x in sure_reads(n, lines) if lane.axis in axes_of(x.index[0])} for n in out]
    shared = tuple(x for x in dict.fromkeys(x for found in read for x in found)
                   if x.buffer not in puts and sum(x in found for found in sure) > 1)
    made = tuple((p.buffer, p.value.dtype) for n in out if n.fold == "none" for p in n.puts
                 if any(x.buffer == p.buffer for found in read for x in found))
    return HeldRows(tuple(out), fold.ranges, lane, shared, made, mine)


def _lane(nest: Nest) -> Range | None:
    """The range along which the elements of a row lie; None of other nests."""
    if nest.block > 1 or not nest.vector:
        return None
    if nest.fold != "none":
        whole = nest.folds_lanes and may_team(nest) and isinstance(nest.fold, str)
        return whole_range(nest) if whole and not nest.ends else None
    return nest.ranges[-1] if nest.ranges and nest.ranges[-1].axis.name == nest.vector else None


def _along(nest: Nest, rows: tuple[Range, ...], lane: Range) -> Nest | None:
    """A nest by the names of ``rows`` and ``lane``; None where it goes over others."""
    nest = _written_out(nest)
    own = _lane(nest)
    if own is None:
        return None
    outer = nest.ranges if nest.fold != "none" else nest.ranges[:-1]
    beside = rows[:len(outer)]
    if len(outer) > len(rows) or not all(are_equal(a.lo, b.lo) and are_equal(a.hi, b.hi)
                                         for a, b in zip(outer, beside)):
        return None
    # neighbouring elements of all rows may be counted by one axis, behind the other rows' axes
    number, lo, hi = _counted(rows[len(outer):], lane)
    if nest.fold != "none" and len(outer) < len(rows) or not (
            are_equal(lo, own.lo) and are_equal(hi, own.hi)):
        return None
    names: dict[Expr, Expr] = {a.axis: b.axis for a, b in zip(outer, beside)}
    found: Nest = substitute_axes(replace(nest, ranges=(), reduce=()), names | {own.axis: number})
    return replace(found, vector=lane.axis.name, parts=0, ranges=rows if nest.fold != "none" else (
        *rows, lane), reduce=(lane,) if nest.fold != "none" else ())


def _written_out(nest: Nest) -> Nest:
    """A nest that folds a few terms of each element as a map of those; others as they are."""
    terms = points(nest.reduce)
    if nest.fold == "none" or nest.folds_lanes or not isinstance(nest.fold, str) or nest.ends or (
            len(nest.reduce) != 1 or nest.parts or terms is None or terms > WRITTEN_OUT
            or nest.body.dtype != nest.acc[0].dtype):
        return nest
    (r,) = nest.reduce
    if not isinstance(r.lo, Const) or simplify(r.hi - r.lo) != Const(terms):
        return nest
    each = [simplify(substitute(nest.body, {r.axis: Const(r.lo.value + n)})) for n in range(terms)]
    total, step = each[0], FOLD_STEP[nest.fold]
    for x in each[1:]:
        total = Binary(step, total, x)
    return replace(nest, fold="none", acc=(), reduce=(), body=Const(0, nest.body.dtype), puts=tuple(
        replace(p, value=substitute(p.value, {nest.acc[0]: total})) for p in nest.puts))


def _counted(rows: Sequence[Range], lane: Range) -> tuple[Expr, Expr, Expr]:
    """(number of an element, counted through rows, the first one's, that behind the last)."""
    number: Expr = lane.axis
    lo, hi, size = lane.lo, lane.hi, lane.axis.extent
    for r in reversed(rows):
        number = number + r.axis * size
        whole = are_equal(lo, Const(0)) and are_equal(hi, size)
        lo, hi = (r.lo * size, r.hi * size) if whole else (Const(-1), Const(-1))
        size = simplify(size * r.axis.extent)
    return simplify(number), simplify(lo), simplify(hi)


def _in_order(nests: Sequence[Nest], read: Sequence[Mapping[Load, None]],
              puts: Mapping[str, Put]) -> bool:
    """True if what nests read of each other is what earlier ones make at the same element, or of
    the same row."""
    made: set[str] = set()
    for n, found in zip(nests, read):
        if any(x.buffer in puts and (x.buffer not in made or not are_equal(
                x.index[0], puts[x.buffer].offset) or x.dtype != puts[x.buffer].value.dtype)
               for x in found):
            return False
        made |= {p.buffer for p in n.puts}
    return True


def _apart(kernel: LoweredKernel, read: Sequence[Mapping[Load, None]], puts: Mapping[str, Put],
           lines: Lines) -> bool:
    """True if no element that a row's threads store lies where another's may still read one: a
    stored tensor may take the place of one of its size, and scratch that of other scratch."""
    scratch = {s.name: (s.offset, s.offset + s.elements * DTYPES[s.dtype].size)
               for s in kernel.scratch
               if isinstance(s.offset, int) and isinstance(s.elements, int)}
    for x in (x for found in read for x in found if x.buffer not in puts):
        for b, p in puts.items():
            if x.buffer in scratch and b in scratch:
                if scratch[x.buffer][0] < scratch[b][1] and scratch[b][0] < scratch[x.buffer][1]:
                    return False
            elif x.buffer not in scratch and b not in scratch and not are_equal(
                    x.index[0], p.offset) and x.dtype == p.value.dtype and (
                        {x.buffer, b} <= lines.lined.keys()) and are_equal(
                            lines.lined[x.buffer], lines.lined[b]):
                return False
    return True


def _loads(value: object) -> list[Load]:
    """The loads in a stage."""
    return [x for x in nodes(value) if isinstance(x, Load)]


__all__ = ["count_registers", "longest_rows", "threads_of", "with_held_rows"]
