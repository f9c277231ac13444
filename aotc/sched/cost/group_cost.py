"""What a group costs, in seconds: the one currency of every decider.

    seconds = max(traffic of each level / its bandwidth, arithmetic / peak) / utilisation + launch

plus the part of the shorter terms that the machine does not overlap with the longest, and what
starting every stage of every work item takes.
Traffic into a level depends on the tile in that level alone (Welder); halos and whatever else a
tile computes again are in the arithmetic; micro-kernel rows pad what they do not divide.  All
terms come from the ``Machine``: memories in order, nothing knows which kind of machine it is.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from aotc.ir.dtypes import DTYPES
from aotc.ir.program import Program
from aotc.sched.cost.block_waits import waiting_seconds
from aotc.sched.model.group_numbers import Boxes, GroupModel, Widths
from aotc.sched.model.size import estimate_volume
from aotc.target.base import Machine, Memory

# per memory but the outermost: buffers that need not come into it from outside
Free = Sequence[frozenset[str]]
Level = tuple[str, float, int]  # name of what is read from, seconds, bytes


@dataclass(frozen=True)
class Aligned:
    """A contraction stage on a micro-kernel row: its number, the positions of its row axes and of
    its lane axis, and the register tile they are padded to.  rate: products that the row does in
    the time of one in f32; tails: rows of the smaller tiles, ascending, that the last of them may
    be; deep: terms of a sum that are computed for each that is wanted, where rows take several at a
    time.  expand: multiply-adds of f32 that a stored weight takes to become what is multiplied, for
    every tile of rows or ``once`` for all of a work item; sizes: bytes of an element of its rows
    and of its columns, as the micro-kernel reads them."""

    stage: int
    rows: tuple[int, ...]
    lane: int
    mr: int
    nr: int
    rate: float = 1.0
    tails: tuple[int, ...] = ()
    deep: float = 1.0
    expand: float = 0.0
    once: bool = False
    sizes: tuple[int, int] = (4, 4)

    def padded(self, rows: int) -> int:
        """The rows that are computed where so many are wanted."""
        left = rows % self.mr
        last = next((t for t in self.tails if t >= left), self.mr) if left else 0
        return rows - left + last


@dataclass(frozen=True)
class RunSteps:
    """How a work item is computed along a run: ``tile`` is what is held at a time, ``boxes`` what
    one step more computes; ``live``: bytes of scratch at once; ``moved``: bytes that stages which
    slide move to its front, ``again``: bytes that its level has no room to keep for the next step,
    both in the whole group."""

    tile: Widths
    boxes: Boxes
    live: int
    moved: int
    again: int = 0


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of a group; ``levels``: (name of the level read from, seconds, bytes) from
    slowest to fastest; ``recompute``: operations done per operation needed."""

    seconds: float
    levels: tuple[Level, ...]
    compute: float
    util: float
    launch: float
    recompute: float

    @property
    def bound(self) -> str:
        """What takes longest: a level's name or ``compute``."""
        name, seconds, _ = max(self.levels, key=lambda x: x[1], default=("compute", 0.0, 0))
        return name if seconds > self.compute else "compute"

    def __str__(self) -> str:
        parts = [f"{n} {s * 1e6:.1f}" for n, s, _ in self.levels]
        return f"{self.seconds * 1e6:.1f} us ({self.bound}): " + ", ".join(
            parts + [f"compute {self.compute * 1e6:.1f}", f"util {self.util:.2f}"] + (
                [f"recompute {self.recompute:.2f}"] if self.recompute > 1.005 else []))


def cut_utilisation(parts: Sequence[tuple[int, float]], places: int, k: float = 1.0) -> float:
    """Part of ``places`` busy while tiles run in waves, given as (number, work), for some are cut:
    the largest run first, and a wave takes as long as the first of its tiles.  ``k``: the part of
    the time that waits for whole waves (1: all of it)."""
    at, waves = 0, 0.0
    for number, work in sorted(parts, key=lambda x: -x[1]):
        starts = -(-(at + number) // places) - -(-at // places)
        waves, at = waves + starts * places * work, at + number
    total = sum(n * w for n, w in parts)
    return 1.0 / (k * waves / total + 1.0 - k) if total else 1.0


def bank_passes(width: int, banks: int, vthreads: int = 1) -> int:
    """Passes that a row of ``width`` words takes over ``banks``, shared by virtual threads that
    interleave; 1 without banks."""
    return -(-width // (vthreads * banks)) if banks else 1


def work_item(machine: Machine, count: int) -> int:
    """Which of ``count`` tiles is the one that workers take: that in the memory of scratch, else
    the last."""
    return min(count, machine.depth) - 1


def group_cost(model: GroupModel, machine: Machine, tiles: Sequence[Widths], vthreads: int = 1,
               aligned: Sequence[Aligned] = (), free: Free = (),
               steps: RunSteps | None = None, more: Sequence[Level] = ()) -> Cost:
    """Cost of a group whose tile in ``machine.memories[1 + i]`` is ``tiles[i]`` (tuples along
    ``model.axes``, each inside the one before; at least one).

    vthreads: virtual threads of the last tile; aligned: Aligned of contraction stages; free: per
    boundary, the buffers that need not cross it (they are already in the faster level); steps:
    ``RunSteps`` in which a work item is computed; more: levels that the caller knows of.
    """
    item = work_item(machine, len(tiles))
    boxes = [model.boxes(t) for t in tiles]
    util, compute = compute_seconds(model, machine, tiles[item], aligned, boxes[item],
                                    buffers_at_hand(machine, free), steps.boxes if steps else None)
    levels = []
    for i, tile in enumerate(tiles):
        moved = model.traffic(tile, free[i] if i < len(free) else frozenset(), boxes[i],
                              machine.memories[i].transaction, fetches(machine, i),
                              not machine.managed)
        moved += steps.again if steps and i == len(tiles) - 1 else 0
        levels.append((machine.memories[i].name,
                       level_seconds(model, machine, i, tile, moved,
                                     vthreads if i == len(tiles) - 1 else 1), moved))
    kept = kept_bytes(model, free, len(tiles))
    if len(model.stages) > 1 or kept:
        levels.append(scratch_seconds(model, machine, tiles[item], boxes[item], kept, steps))
    levels += more
    busy = overlap_seconds(machine, [compute] + [s for _, s, _ in levels])
    launch = launch_seconds(model, machine, steps.tile if steps else tiles[item])
    if steps:  # loops of their own, beside which nothing is computed
        launch += steps.moved / memory_rate(machine, home(machine, steps.live))
    return Cost(busy / util + launch, tuple(levels), compute, util, launch,
                done_work(model, tiles[item], boxes[item]) / max(1, needed_work(model)))


def launch_seconds(model: GroupModel, machine: Machine, tile: Widths) -> float:
    """Seconds to start a kernel and every stage of its work items."""
    stages = len(model.stages) * model.tiles(tile)
    return machine.launch + machine.step * stages / machine.workers


def fork_join_seconds(machine: Machine, items: int) -> float:
    """Seconds that a kernel's work items take beside their own time for being several workers'."""
    return machine.fork_join if min(items, machine.workers) > 1 else 0.0


def overlap_seconds(machine: Machine, terms: Sequence[float]) -> float:
    """Seconds of terms that run at the same time, as far as the machine overlaps them."""
    worst = max(terms)
    return worst + (1.0 - machine.overlap) * (sum(terms) - worst)


def level_seconds(model: GroupModel, machine: Machine, number: int, tile: Widths, moved: int,
                  vthreads: int = 1) -> float:
    """Seconds that ``moved`` bytes take from ``machine.memories[number]`` into the next one, which
    holds ``tile``."""
    source = machine.memories[number]
    width = tile[model.rank - 1] if model.rank else 1
    return moved * bank_passes(width, source.banks, vthreads) / memory_rate(machine, source)


def fetches(machine: Machine, number: int) -> bool:
    """True if what is stored must first come from ``machine.memories[number]``: the next one is a
    worker's own cache, which takes whole lines in and has given away what was there."""
    return not machine.memories[number + 1].shared and not machine.managed


def buffers_at_hand(machine: Machine, free: Free) -> frozenset[str]:
    """Buffers that the registers have anyway, as far as ``free`` says it of them."""
    last = machine.position(machine.registers.name)
    return free[min(last, len(free)) - 1] if free else frozenset()


def kept_bytes(model: GroupModel, free: Free, depth: int) -> int:
    """Bytes that a group reads of tensors that are in the level of the last of ``depth`` tiles
    anyway."""
    return model.touched(free[depth - 1]) if depth <= len(free) else 0


def scratch_seconds(model: GroupModel, machine: Machine, tile: Widths, boxes: Boxes | None = None,
                    kept: int = 0, steps: RunSteps | None = None) -> tuple[str, float, int]:
    """(name, seconds, bytes) of what stages hand each other: how much longer it takes from the
    fastest memory that holds all of it than from the one beside the registers, which every kernel's
    operands pass.  kept: bytes of tensors that other kernels left in the memory that fills that
    one; steps: in which a work item is computed, whose tiles are what must fit."""
    moved, live = model.inner(tile, boxes)
    nearest = machine.outside(machine.registers)
    before = machine.outside(nearest)
    where = home(machine, steps.live if steps else live)
    later = moved / memory_rate(machine, where) + kept / memory_rate(machine, before) - (
        moved + kept) / memory_rate(machine, nearest)
    return f"scratch in {where.name}", max(0.0, later), moved + kept


def home(machine: Machine, live: int) -> Memory:
    """The fastest memory that holds so many bytes of scratch."""
    inner = machine.memories[1:machine.position(machine.registers.name)]
    return next((x for x in reversed(inner) if live <= x.capacity * x.usable), machine.memory)


def scattered_seconds(model: GroupModel, machine: Machine, boxes: Boxes, aligned: Sequence[Aligned],
                      near: Collection[str] = ()) -> float:
    """Seconds that products lose where the rows they store end inside cache lines, which they have
    half written, and are too many for those to stay at hand until the next panel; stores to buffers
    in ``near`` do not."""
    total, nearest, tuning = 0.0, machine.outside(machine.registers), machine.tuning
    room = tuning.kept_lines * nearest.capacity * nearest.usable
    for a in () if machine.managed else aligned:
        s, widths = model.stages[a.stage], boxes[a.stage][0]
        rows = prod(widths[p] for p in a.rows)
        for w in s.writes:
            if w.buffer in model.outputs and w.buffer not in near and (
                    s.extents[a.lane] > a.nr and s.extents[a.lane] * w.size % tuning.line):
                if rows * (a.nr * w.size + tuning.line) > room:
                    total += prod(w.extents) * w.size / machine.memory.bandwidth
    return total


def memory_rate(machine: Machine, memory: Memory) -> float:
    """Bytes/s of a memory for all workers together."""
    return memory.bandwidth if memory.shared else memory.bandwidth * machine.workers


def compute_seconds(model: GroupModel, machine: Machine, tile: Widths,
                    aligned: Sequence[Aligned] = (), boxes: Boxes | None = None,
                    near: Collection[str] = (), step: Boxes | None = None) -> tuple[float, float]:
    """(utilisation, seconds of arithmetic at full utilisation) for the tile of a work item.  Tiles
    at the far ends of the output do what is left for them.  near: buffers that are in a worker's
    cache anyway; step: boxes that are computed at a time, if that is not the whole tile."""
    work = []
    for number, part in model.parts(tile):
        at = boxes if boxes and part == tile else model.boxes(part)
        fast, slow = model.work(part, at)
        work.append((number, fast * padding(model, aligned, step or at)
                     + machine.tuning.other_flops * slow))
    total = sum(n * w for n, w in work)
    util, boxes = cut_utilisation(work, machine.workers, machine.tuning.wave), boxes or model.boxes(
        tile)
    return util, max(util * waiting_seconds(model, machine, tile, boxes), total / (
        machine.flops * machine.workers) + scattered_seconds(model, machine, boxes, aligned, near))


def done_work(model: GroupModel, tile: Widths, boxes: Boxes | None = None) -> int:
    """Operations of the group in tiles, those computed twice included."""
    return sum(number * sum(model.work(part, boxes if part == tile else None))
               for number, part in model.parts(tile))


def needed_work(model: GroupModel) -> int:
    """Operations of the group if nothing is computed twice."""
    return sum(prod(s.extents[:s.rank]) * (prod(s.extents[s.rank:]) * s.per_point + s.per_output)
               + sum(n * prod(s.extents[p] for p in packed) for n, packed in s.packs)
               for s in model.stages)


def padding(model: GroupModel, aligned: Sequence[Aligned], boxes: Boxes) -> float:
    """Work of the contractions on their rows, weights that are expanded for them included, per unit
    of work without padding, in f32."""
    done, total = 0.0, 0
    for a in aligned:
        widths = boxes[a.stage][0]
        work = prod(widths) * model.stages[a.stage].per_point
        m, n = max(1, prod(widths[p] for p in a.rows)), widths[a.lane]
        times = 1 if a.once else -(-m // a.mr)  # that every weight is expanded
        total += work
        done += work * (-(-n // a.nr) * a.nr / n) * (
            a.padded(m) / m / a.rate + a.expand * times / m)
    return done / total if total else 1.0


def pressure_seconds(program: Program, machine: Machine, stored: Iterable[str]) -> float:
    """Seconds that tensors cost the rest of the model by lying in memory until they are read."""
    size = sum(DTYPES[program.dtype(b)].size * estimate_volume(program.shape(b)) for b in stored)
    return machine.tuning.pressure * size / machine.memory.bandwidth


def resident_buffers(program: Program, machine: Machine,
                     weights: int | None = None) -> tuple[frozenset[str], ...]:
    """Per memory but the outermost, the buffers that are in it already when a kernel starts: temps
    that fit in a cache, or in registers beside one, and the weights if all of them fit in a shared
    cache.  Nothing stays by itself in what the program fills.  weights: bytes of all that a call
    reads, if the Program is a part."""
    if weights is None:
        weights = sum(a.nbytes for a in program.consts.values())
    copies, out = machine.tuning.resident_copies, []
    for memory in machine.memories[1:]:
        keeps = memory.kind == "cache" or memory == machine.registers and not machine.managed
        room = memory.capacity * memory.usable if keeps else 0
        stay = {b for b, buf in program.buffers.items() if buf.role == "temp"
                and copies * DTYPES[buf.dtype].size * estimate_volume(buf.shape) <= room}
        kept = set(program.consts) if memory.shared and weights <= room else set()
        out.append(frozenset(stay | kept))
    return tuple(out)


__all__ = ["Aligned", "Cost", "Level", "RunSteps", "buffers_at_hand", "bank_passes",
           "compute_seconds", "cut_utilisation", "fetches", "fork_join_seconds", "group_cost",
           "home", "kept_bytes", "launch_seconds", "level_seconds", "memory_rate", "needed_work",
           "padding", "pressure_seconds", "resident_buffers", "scratch_seconds", "overlap_seconds",
           "work_item"]
