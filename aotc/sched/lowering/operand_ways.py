"""In which ways the threads of a block may bring the operands of a product to its memory, and fold
a row together: what a Schedule may choose from."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aotc.errors import ScheduleError
from aotc.ir.access import is_multiple, stride
from aotc.ir.block_statements import LEAST_COPY
from aotc.ir.category import copied_load
from aotc.ir.dtypes import DTYPES, HALVES, is_int
from aotc.ir.expr import Axis, Const, Expr, Load, axes_of, substitute, walk
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.kernel.plan_stages import Contract, Nest, points
from aotc.sched.model.lane_nests import picks_element
from aotc.sched.rows.placed_rows import placed_rows
from aotc.target.kernel_rows import ProductRow

# the choices of both operands
WAY_CHOICES = ("a_fetch", "a_width", "a_along", "b_fetch", "b_width", "b_along")
WIDE = 16  # bytes that are fetched at once where elements lie side by side


@dataclass(frozen=True)
class Way:
    """How one operand of a product is fetched, as three choices of a stage say it."""

    fetch: str
    width: int
    along: str

    def said(self, which: str) -> dict[str, int | str]:
        """As the choices of operand ``which``, "a" or "b"."""
        return {f"{which}_fetch": self.fetch, f"{which}_width": self.width,
                f"{which}_along": self.along}


def ways_left(c: Contract, which: str, row: ProductRow, scratch: Mapping[str, int],
              lined: Collection[str]) -> tuple[Way, ...]:
    """How operand ``which`` of a Contract, "a" or "b", may be fetched, the usual way first, of the
    ways that its ``writing`` leaves.  scratch: elements of buffers in the block's memory; lined:
    those that begin at a multiple of 16 bytes outside of it.  ScheduleError where none is left."""
    said, ways = c.writing.said, _ways(c, which, row, scratch, lined)
    left = tuple(w for w in ways if all(said.get(k, v) == v for k, v in w.said(which).items()))
    if not left:
        raise ScheduleError([f"{c.row}: {_text(said, which)}; choose " + " or ".join(
            _text(w.said(which), which) for w in ways)])
    return left


def _ways(c: Contract, which: str, row: ProductRow, scratch: Mapping[str, int],
          lined: Collection[str]) -> list[Way]:
    assert row.staging is not None, row.name
    o, other = (c.a if which == "a" else c.b), other_axis(which)
    if which == "b" and row.in_codes:  # panels of whole 16 bytes
        return [Way("copy", WIDE, other)]
    stored = _stored(c, which, scratch)
    own = row.stored if which == "a" else row.stored_b
    copied = "copy" in row.staging.ways and stored == own
    first = "sum" if o.mode in ("rows", "packed", "columns") else other
    best = first if o.mode != "packed" or _side_by_side(c, which, first) else other
    out = [Way("place", 1, "sum")] * (which == "a" and o.buffer in scratch and placed_rows(
        c, row, scratch[o.buffer]) is not None)
    for along in (best, *({"sum", other} - {best})):
        inside = runs_inside(c, which, along)
        # columns of a step may take the place of its rows, where a row's instructions read both
        turned = which == "b" and row.staging.swizzled and copied and not row.by_columns
        widths = _widths(c, which, along, lined) if inside or turned else (1,)
        out += [Way("copy", n, along) for n in widths
                if copied and n * DTYPES[own].size >= LEAST_COPY]
        # what is rounded goes by way of registers, which f32 comes to in fours
        rounded = stored == "f32" and own != stored
        out += [Way("value", n, along) for n in (widths if rounded and inside else (1,))]
    return out


def other_axis(which: str) -> str:
    """What an operand runs along beside the sum, as ``a_along`` and ``b_along`` have it."""
    return "rows" if which == "a" else "columns"


def runs_inside(c: Contract, which: str, along: str) -> bool:
    """True if neighbours along an axis usually are neighbours in the block's memory, too."""
    return along == ("sum" if which == "a" or is_int(c.micro.dtypes.sums) else "columns")


def scratch_room(kernel: LoweredKernel) -> dict[str, int]:
    """{scratch of a kernel: its elements, 0 where nobody knows}."""
    return {s.name: s.elements if isinstance(s.elements, int) else 0 for s in kernel.scratch}


def fetch_faults(c: Contract, scratch: Collection[str], lined: Collection[str],
                 sides: str = "ab") -> list[str]:
    """Operands ``sides`` of a Contract that cannot be fetched as its ``writing`` says."""
    said, faults = c.writing.said, list[str]()
    for which in sides:
        width, along = said.get(f"{which}_width", 1), said.get(f"{which}_along")
        wide = width in _widths(c, which, str(along), lined)
        copied = said.get(f"{which}_fetch") == "copy"
        if copied and _stored(c, which, scratch) is None or not wide:
            faults.append(f"{c.row}: cannot fetch with {_text(said, which)}")
    return faults


def may_team(nest: Nest) -> bool:
    """True for a fold that several threads can make together, or several times a warp's: one of
    which parts join as terms do, or that picks an element."""
    if not nest.vector or not nest.reduce:
        return False
    if not isinstance(nest.fold, str):
        return picks_element(nest.fold, [r.axis for r in nest.reduce])
    return nest.fold != "none" and nest.acc[0].dtype not in HALVES


def most_threads_together(nest: Nest, threads: int, lanes: int) -> int:
    """How many threads, or times ``lanes`` threads where those lie along it, may fold a row of a
    Nest together, of so many."""
    rows = points(nest.ranges)
    return max(1, threads // ((lanes if nest.folds_lanes else 1) * rows)) if rows else 1


def check_team(nest: Nest, team: int, threads: int, lanes: int) -> None:
    """ScheduleError where a team of so many cannot fold a row of a Nest together."""
    most = most_threads_together(nest, threads, lanes)
    if team & team - 1 or team > most:
        raise ScheduleError([f"{nest.row}: team {team}; choose a power of two, at most {most} "
                             f"({points(nest.ranges) or 'any number of'} rows, {threads} threads)"])


def steps_between(c: Contract, which: str, along: str) -> tuple[int | None, ...]:
    """Elements between neighbours of an operand along the sum or its other axis, for every load
    that it is made of; None: anywhere."""
    o, over = (c.a if which == "a" else c.b), c.k.axis if along == "sum" else own_axis(c, which)
    if o.mode == "packed":
        return tuple(None if over is None else _number(stride(n.index[0], over))
                     for n in walk(o.packed) if isinstance(n, Load))
    if o.mode == "columns":
        return (1 if along == "sum" else _number(o.stride),)
    if along == "sum":
        return (_number(o.stride),)
    if which == "b":  # a panel's columns lie side by side, and so do those in place
        return (1,)
    return (None if over is None else _number(stride(o.offset, over)),)


def own_axis(c: Contract, which: str) -> Axis | None:
    """The innermost axis of an operand beside the sum; None for A of a single row."""
    return c.n.axis if which == "b" else c.m[-1].axis if c.m else None


def _side_by_side(c: Contract, which: str, along: str) -> bool:
    """True unless loads are of neighbours along the other axis and not along this one."""
    other, = {"sum", other_axis(which)} - {along}
    return not any(o == 1 and s != 1 for s, o in zip(
        steps_between(c, which, along), steps_between(c, which, other)))


def _text(said: Mapping[str, int | str], which: str) -> str:
    return ", ".join(f"{k} {v}" for k, v in said.items() if k.startswith(f"{which}_"))


def _number(e: Expr | None) -> int | None:
    return e.value if isinstance(e, Const) else None


def _stored(c: Contract, which: str, scratch: Collection[str]) -> str | None:
    """Dtype of an operand's elements as they lie outside the block's memory, zeros among them; None
    where they are computed, or lie inside."""
    o = c.a if which == "a" else c.b
    if o.mode != "packed":
        return None if o.buffer in scratch else _dtype(c, which)
    load, _, _ = copied_load(o.packed)
    return None if load is None or load.buffer in scratch else load.dtype


def _dtype(c: Contract, which: str) -> str:
    """Of an operand that is read in place."""
    return c.micro.dtypes.a if which == "a" else c.micro.dtypes.b


def _widths(c: Contract, which: str, along: str, lined: Collection[str]) -> tuple[int, ...]:
    """How many of an operand's elements along the sum, or its other axis, may be fetched at once,
    the most first, 1 last: those of 16 bytes, of bytes fewer, too, that lie side by side at
    multiples of as many bytes."""
    o = c.a if which == "a" else c.b
    counted = (_counted_computed if o.mode == "packed" else _counted)(c, which, along, lined)
    if counted is None:
        return (1,)
    dtype, numbers = counted
    size = DTYPES[dtype].size
    ways = [WIDE // size, *((WIDE // 2, LEAST_COPY) if size == 1 else ())]
    return (*(n for n in ways if all(is_multiple(e, n) for e in numbers)), 1)


def _counted(c: Contract, which: str, along: str,
             lined: Collection[str]) -> tuple[str, tuple[Expr, ...]] | None:
    """(dtype, numbers of elements that say where runs of neighbours of an operand begin and end);
    None where none are neighbours, or may lie anywhere."""
    o, dtype = (c.a if which == "a" else c.b), _dtype(c, which)
    if not runs_inside(c, which, along):
        return None
    if o.mode == "panel":
        return dtype, ()
    if o.buffer not in lined or which == "a" and o.stride != Const(1):
        return None
    if which == "a":
        return dtype, (o.offset, c.k.axis.extent)
    if o.mode == "columns":  # zeros follow the last term
        return dtype, (o.offset, o.stride, *((c.k.axis.extent,) if c.taps and (
            c.a.mode == "rows") else ()))
    return dtype, (o.offset, o.stride, Const(c.grain))


def _counted_computed(c: Contract, which: str, along: str,
                      lined: Collection[str]) -> tuple[str, tuple[Expr, ...]] | None:
    """The same of an operand of elements that have a condition, or at places that do not only count
    the sum."""
    load, guard, _ = copied_load((c.a if which == "a" else c.b).packed)
    axis = c.k.axis if along == "sum" else own_axis(c, which)
    if load is None or axis is None or load.buffer not in lined or (
            guard is not None and axis in axes_of(guard)) or stride(
                load.index[0], axis) != Const(1):
        return None
    return load.dtype, (substitute(load.index[0], {axis: Const(0)}),
                        axis.extent if along == "sum" else Const(c.grain))


__all__ = ["Way", "check_team", "fetch_faults", "may_team", "most_threads_together", "other_axis",
           "own_axis", "runs_inside", "scratch_room", "steps_between", "ways_left"]
