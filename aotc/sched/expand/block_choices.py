"""How stages are written that the threads of a block share: what a Schedule leaves out of its
choices, as the cost compares them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aotc.errors import ScheduleError
from aotc.ir.access import stride
from aotc.ir.category import zero_filled
from aotc.ir.expr import Axis, Const, Expr, Load, walk
from aotc.ir.plan import Contract, Kernel, Nest, Stage, points
from aotc.ir.schedule import CHOICES, Writing, writing_of
from aotc.ir.simplify import same, simplify, upper
from aotc.sched.cost.block_cost import (
    Fetch,
    cheapest,
    fetch_cost,
    fold_cost,
    order_cost,
    product_step,
)
from aotc.target.base import Machine, Target, Ukernel

WIDE = 4  # elements of f32 that are fetched at once where they lie side by side: 16 bytes
ENDLESS = 1 << 20  # elements of a fold without a bound


@dataclass(frozen=True)
class Way:
    """How one operand of a product is fetched, as ``CHOICES`` says it."""

    fetch: str
    width: int
    along: str

    def said(self, which: str) -> dict[str, int | str]:
        """As the choices of operand ``which``, "a" or "b"."""
        return {f"{which}_fetch": self.fetch, f"{which}_width": self.width,
                f"{which}_along": self.along}


def block_writing(stage: Stage, kernel: Kernel, target: Target, lined: Collection[str]) -> Writing:
    """All choices of a stage of a kernel whose work items threads share: those that its ``writing``
    has, and the cheapest of the others.  lined: buffers that begin at a multiple of 16 bytes
    outside the block's memory.  ScheduleError where the stage cannot be written as it says."""
    if isinstance(stage, Nest):
        return writing_of(dict(stage.writing) | {"team": fold_team(
            stage, kernel.threads, target)}) if stage.folds_lanes else stage.writing
    if not isinstance(stage, Contract):
        return ()
    said, row = dict(stage.writing), target.row(stage.row)
    found: dict[str, int | str] = {"order": _order(stage, target.machine)}
    if "fetch" in row.tile:
        accesses = 0.0
        for which in "ab":
            way, cost = _fetched(stage, which, kernel, target, lined)
            accesses += cost
            found |= way.said(which)
        found["stages"] = _stages(row, kernel, target, accesses)
    return writing_of(found | said)


def fold_team(nest: Nest, threads: int, target: Target) -> int:
    """How many times the target's lanes threads fold a row of a Nest together, of so many."""
    asked, lanes = dict(nest.writing).get("team"), target.lanes
    if not nest.folds_lanes:
        if asked not in (None, 1):
            raise ScheduleError([f"{nest.row}: team {asked}; a fold without lanes along it has a "
                                 "thread for each row, remove team"])
        return 1
    rows, length = points(nest.ranges), points(nest.reduce)
    most = max(1, threads // (lanes * rows)) if rows else 1
    if asked is not None:
        if not isinstance(asked, int) or asked & asked - 1 or asked > most:
            raise ScheduleError([f"{nest.row}: team {asked}; choose a power of two, at most {most}"
                                 f" ({rows or 'any number of'} rows, {threads} threads)"])
        return asked
    ways = [1 << n for n in range(most.bit_length())]
    return cheapest(ways, [fold_cost(rows or 1, ENDLESS if length is None else length, threads,
                                     lanes, n, target.tuning) for n in ways], 0)


def _operand_ways(c: Contract, which: str, row: Ukernel, scratch: Collection[str],
                 lined: Collection[str]) -> dict[Way, Fetch]:
    """How the threads of a block may fetch operand ``which`` of a Contract, the usual way first, as
    the cost asks for it.  scratch: buffers in the block's memory; lined: as of
    ``block_writing``."""
    o, other = (c.a, "rows") if which == "a" else (c.b, "columns")
    axis = c.n.axis if which == "b" else c.m[-1].axis if c.m else None
    bk, count = row.tile["bk"], row.tile["mr" if which == "a" else "nr"]
    steps = {along: _steps(c, which, along, axis) for along in ("sum", other)}
    copied = "copy" in row.tile["fetch"] and _plain(c, which, scratch)
    wide = _wide(c, which, lined) and (copied or "copy" not in row.tile["fetch"])
    first = "sum" if o.mode in ("rows", "packed") else other
    best = first if o.mode != "packed" or _side_by_side(steps, first) else other
    near = row.tile["places"][which == "b"]
    out = {}
    for along in (best, *({"sum", other} - {best})):
        inner = along == ("sum" if which == "a" else "columns")
        for width in ((WIDE, 1) if wide and inner else (1,)):
            run = bk if along == "sum" else min(count, _known(axis, count))
            for fetch in ("copy", "value") if copied and width == 1 else (
                    ("copy",) if copied else ("value",)):
                out[Way(fetch, width, along)] = Fetch(
                    count * bk, width, -(-run // width), tuple(
                        s if s is None else s * width for s in steps[along]),
                    width if inner else near, fetch == "copy")
    return out


def fetch_faults(c: Contract, scratch: Collection[str], lined: Collection[str]) -> list[str]:
    """Operands of a Contract that cannot be fetched as its ``writing`` says."""
    said, faults = dict(c.writing), []
    for which, inner in (("a", "sum"), ("b", "columns")):
        wide = _wide(c, which, lined) and said.get(f"{which}_along") == inner
        if said.get(f"{which}_fetch") == "copy" and not _plain(c, which, scratch) or (
                said.get(f"{which}_width", 1) != 1 and not wide):
            faults.append(f"{c.row}: cannot fetch with {_text(said, which)}")
    return faults


def _side_by_side(steps: Mapping[str, tuple[int | None, ...]], along: str) -> bool:
    """True unless loads are of neighbours along the other axis and not along this one."""
    other, = set(steps) - {along}
    return not any(o == 1 and s != 1 for s, o in zip(steps[along], steps[other]))


def _order(c: Contract, machine: Machine) -> str:
    """Which loop over a work item's register tiles is the outermost."""
    sizes, ways = tuple(map(points, (c.m, (c.n,), (*c.taps, c.k)))), [
        str(w) for w in CHOICES["order"]]
    rows, columns, terms = sizes
    if rows is None or columns is None or terms is None:
        return ways[0]
    return cheapest(ways, [order_cost(machine, (rows, columns, terms), c.mr, c.nv * c.lanes, w)
                           for w in ways], machine.tuning.same_order - 1)


def _stages(row: Ukernel, kernel: Kernel, target: Target, accesses: float) -> int:
    """Steps of a product's sum in the block's memory: as usual for the row, or so many as save
    time and fit."""
    (low, high), usual = row.tile["stages_range"], row.tile["stages"]
    room, slab = target.machine.near.capacity, kernel.slab_bytes
    assert isinstance(slab, int), slab
    ways = [usual, *(n for n in range(low, high + 1) if n != usual
                     and slab + n * row.tile["stage_bytes"] <= room)]
    return cheapest(ways, [product_step(target.machine, row, target.lanes, n, accesses)
                           for n in ways], target.tuning.slack)


def fetched_cost(c: Contract, which: str, row: Ukernel, kernel: Kernel, target: Target) -> float:
    """``fetch_cost`` of an operand of a Contract, all of whose choices are made."""
    said, o = dict(c.writing), c.a if which == "a" else c.b
    lined = {o.buffer} if said[f"{which}_width"] != 1 else ()
    ways = _operand_ways(c, which, row, {s.name for s in kernel.scratch}, lined)
    return next(fetch_cost(f, target.lanes, target.tuning) for w, f in ways.items()
                if _fits(w, which, said))


def _fetched(c: Contract, which: str, kernel: Kernel, target: Target,
             lined: Collection[str]) -> tuple[Way, float]:
    """The Way of an operand that costs least of those that the Schedule leaves, and its cost."""
    row, said = target.row(c.row), dict(c.writing)
    ways = _operand_ways(c, which, row, {s.name for s in kernel.scratch}, lined)
    left = {w: f for w, f in ways.items() if _fits(w, which, said)}
    if not left:
        raise ScheduleError([f"{c.row}: {_text(said, which)}; choose " + " or ".join(
            _text(w.said(which), which) for w in ways)])
    costs = [fetch_cost(f, target.lanes, target.tuning) for f in left.values()]
    best = cheapest([*left], costs, 0)
    return best, fetch_cost(left[best], target.lanes, target.tuning)


def _fits(way: Way, which: str, said: Mapping[str, int | str]) -> bool:
    return all(said.get(k, v) == v for k, v in way.said(which).items())


def _text(said: Mapping[str, int | str], which: str) -> str:
    return ", ".join(f"{k} {v}" for k, v in said.items() if k.startswith(f"{which}_"))


def _steps(c: Contract, which: str, along: str, axis: Axis | None) -> tuple[int | None, ...]:
    """Elements between neighbours of an operand, for every load that it is made of."""
    o, over = (c.a if which == "a" else c.b), c.k.axis if along == "sum" else axis
    if o.mode == "packed":
        return tuple(None if over is None else _number(stride(n.index[0], over))
                     for n in walk(o.packed) if isinstance(n, Load))
    if along == "sum":
        return (_number(o.stride),)
    if which == "b":  # a panel's columns lie side by side, and so do those in place
        return (1,)
    return (None if over is None else _number(stride(o.offset, over)),)


def _number(e: Expr | None) -> int | None:
    return e.value if isinstance(e, Const) else None


def _known(axis: Axis | None, most: int) -> int:
    """The extent of an axis, ``most`` where it may have any."""
    return most if axis is None else upper(axis.extent) or most


def _plain(c: Contract, which: str, scratch: Collection[str]) -> bool:
    """True if an operand's elements are f32 as they lie outside the block's memory, or zeros."""
    o = c.a if which == "a" else c.b
    if o.mode != "packed":
        return o.buffer not in scratch
    load, _ = zero_filled(o.packed)
    return isinstance(load, Load) and load.dtype == "f32" and load.buffer not in scratch


def _wide(c: Contract, which: str, lined: Collection[str]) -> bool:
    """True if an operand's elements come in fours that lie side by side, at multiples of 16
    bytes."""
    o = c.a if which == "a" else c.b
    if o.mode == "panel":
        return True
    if o.mode == "packed" or o.buffer not in lined or which == "a" and o.stride != Const(1):
        return False
    counted = (o.offset, c.k.axis.extent) if which == "a" else (
        o.offset, o.stride, c.n.hi, c.n.lo)
    return all(same(simplify(e % WIDE), Const(0)) for e in counted)


__all__ = ["block_writing", "fetch_faults", "fetched_cost", "fold_team"]
