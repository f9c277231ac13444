"""Kernels that compute a tensor from tensors far behind it: what they take, by size of scratch.

Lumps are groups as the other deciders make them.  Of a set of lumps that store their outputs, every
other lump is computed where it is needed: the *cone* of a stored lump is itself and everything
between it and stored lumps or inputs.  Cones overlap; what two of them hold is computed in both.
A cone becomes one kernel, tile by tile, its intermediate tiles in the worker's slab.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aotc.errors import ScheduleError
from aotc.ir.access import volume
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import Group
from aotc.ir.simplify import upper
from aotc.sched.cost.decided import usual_product
from aotc.sched.cost.group_cost import Aligned, Free, group_cost
from aotc.sched.judge.judge import Judge
from aotc.sched.memory.scratch import round_up_bytes
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import GroupModel
from aotc.sched.model.stages import Stage, find_call, group_stages
from aotc.sched.model.tilegraph import best_fit
from aotc.target.base import Machine, Target

Cone = frozenset[int]  # numbers of lumps
MAX_STAGES = 96  # of one kernel: bounds generated code and deciding time
WORTH = 0.97  # of the scratch must be left for a halved tile to be worth the next
FINE = (1, 3)  # refined tiles are powers of two times one of these


@dataclass(frozen=True)
class Tiling:
    """A tile of a kernel's anchor, ((axis, extent), ...): bytes of scratch, predicted seconds."""

    tile: tuple[tuple[str, int], ...]
    slab: int
    seconds: float


@dataclass(frozen=True)
class Lump:
    """A group that is stored or recomputed as a whole.  reads: lumps it reads from; bytes: of its
    stored temps; fixed: it must be stored."""

    group: Group
    reads: frozenset[int]
    bytes: int
    fixed: bool


class Cones:
    """Lumps of a Program on a target, and the tilings of the cones asked for so far.  shares:
    {compute: part of the time it takes where it is a kernel by itself}."""

    def __init__(self, program: Program, target: Target, groups: Sequence[Group],
                 shares: Mapping[str, float] | None = None) -> None:
        self.shares = shares or {}
        self.program, self.target = program, target
        self.lumps = _lumps(program, groups)
        self.judge = Judge(program, target)
        self.found: dict[tuple[int, Cone], tuple[Tiling, ...]] = {}
        self.parts: dict[int, _Part] = {}
        self.refused: set[tuple[int, Cone]] = set()
        # of one work item: where it is no cache, micro-kernels may stage operands in it, too
        self.room = target.machine.near.capacity // 2 if target.machine.managed else 1 << 62

    def cone(self, sink: int, stored: Cone) -> Cone:
        """Lumps that the kernel of ``sink`` computes, ``sink`` included."""
        out, todo = {sink}, [sink]
        while todo:
            for u in self.lumps[todo.pop()].reads:
                if u not in stored and u not in out:
                    out.add(u)
                    todo.append(u)
        return frozenset(out)

    def sources(self, cone: Cone) -> Cone:
        """Stored lumps that a cone reads."""
        return frozenset(u for c in cone for u in self.lumps[c].reads) - cone

    def tilings(self, sink: int, cone: Cone) -> tuple[Tiling, ...]:
        """Tilings of a cone, largest slab first; () if it cannot be a kernel."""
        key = sink, cone
        if key not in self.found:
            self.found[key] = () if key in self.refused else self._tilings(sink, cone)
        return self.found[key]

    def least(self, sink: int, cone: Cone) -> int:
        """Bytes of scratch that a cone takes at least."""
        return min(t.slab for t in self.tilings(sink, cone))

    def refuse(self, sink: int, cone: Cone) -> None:
        """A cone that no legal kernel was found for."""
        self.refused.add((sink, cone))
        self.found.pop((sink, cone), None)

    def refined(self, sink: int, cone: Cone, budget: int) -> Tiling:
        """The cheapest Tiling in ``budget`` bytes of scratch near the best of ``tilings``."""
        fits = [t for t in self.tilings(sink, cone) if t.slab <= budget]
        best = min(fits, key=lambda t: t.seconds)
        if len(cone) == 1:
            return best
        kernel = self._kernel(sink, cone)
        while True:
            near = [kernel.tiling(t) for t in kernel.steps(dict(best.tile))]
            better = min((t for t in near if t.slab <= budget), default=best,
                         key=lambda t: t.seconds)
            if better.seconds >= best.seconds * (1 - 1e-9):
                return best
            best = better

    def _tilings(self, sink: int, cone: Cone) -> tuple[Tiling, ...]:
        group = self.lumps[sink].group
        calls = [u for u in cone if find_call(self.program, self.lumps[u].group) is not None]
        if len(cone) == 1:
            slab = 0
            if not calls and group.tile:
                slab = self._kernel(sink, cone).tiling(group.tile).slab
            share = prod(self.shares.get(c, 1.0) for c in group.computes)
            return (Tiling(tuple(group.tile.items()), slab,
                           share * self.judge.verdict(group).seconds),)
        if calls:
            return ()
        kernel = self._kernel(sink, cone)
        return kernel.path() if len(kernel.model.stages) <= MAX_STAGES else ()

    def _kernel(self, sink: int, cone: Cone) -> "_Kernel":
        """The cone's stages as one kernel: edges between lumps leave the stages as they are."""
        parts = [self._part(u) for u in sorted(cone)]
        own = self._part(sink)
        before = sum(len(p.model.stages) for u, p in zip(sorted(cone), parts) if u < sink)
        stages = tuple(s for p in parts for s in p.model.stages)
        read = {a.buffer for s in stages for a in s.reads}
        made = {a.buffer for s in stages for a in s.writes}
        model = replace(own.model, stages=stages, anchor=before + own.model.anchor,
                        axes=own.model.axes[:own.model.rank],
                        extents=own.model.extents[:own.model.rank],
                        scratch=frozenset(read & made), cut=())
        rows = [r for p in parts for r in p.rows]
        aligned = tuple(replace(r, stage=i) for i, r in enumerate(rows) if r is not None)
        return _Kernel(self.target.machine, self.judge.free, model, aligned, own.anchor)

    def _part(self, lump: int) -> "_Part":
        if lump not in self.parts:
            self.parts[lump] = _part(self.program, self.target, self.lumps[lump].group)
        return self.parts[lump]


def _lumps(program: Program, groups: Sequence[Group]) -> tuple[Lump, ...]:
    owner = {o: i for i, g in enumerate(groups) for c in g.computes
             for o in program.producer[c].outs}
    called = {b for s in program.steps if not isinstance(s, Compute) for b in s.inputs}
    out = []
    for i, g in enumerate(groups):
        inputs = {b for c in g.computes for b in program.producer[c].inputs}
        reads = frozenset(owner[b] for b in inputs if b in owner) - {i}
        temps = [o for o in g.outputs if program.buffers[o].role == "temp"]
        fixed = not program.results.isdisjoint(g.outputs) or bool(called & set(temps)) or (
            find_call(program, g) is not None)
        out.append(Lump(g, reads, sum(_bytes(program, o) for o in temps), fixed))
    return tuple(out)


def _bytes(program: Program, name: str) -> int:
    """Bytes of a stored temp for the largest extents, its layout aside."""
    n = upper(volume(program.shape(name)))
    if n is None:
        raise ScheduleError([f"arena limit: {name} has no largest size; give every dynamic "
                             "dimension a range (--dim NAME=LO..HI)"])
    return round_up_bytes(n * DTYPES[program.dtype(name)].size)


@dataclass(frozen=True)
class _Part:
    """What a lump adds to a kernel: its GroupModel, the micro-kernel row of each stage (an Aligned
    or None), the stage that a tile of the lump cuts."""

    model: GroupModel
    rows: tuple[Aligned | None, ...]
    anchor: Stage


def _part(program: Program, target: Target, group: Group) -> _Part:
    model, stages = group_model(program, group, tuning=target.tuning), group_stages(program, group)
    rows = tuple(usual_product(program, target, n, s) for n, s in enumerate(stages))
    return _Part(model, rows, stages[model.anchor])


class _Kernel:
    """Stages as numbers: scratch and seconds of any tile of the anchor."""

    def __init__(self, machine: Machine, free: Free, model: GroupModel,
                 aligned: tuple[Aligned, ...], anchor: Stage) -> None:
        self.machine, self.free, self.model, self.aligned = machine, free, model, aligned
        lane = [a.lane for a in aligned if a.stage == model.anchor] or (
            [len(anchor.axes) - 1] if len(anchor.axes) > 1 and anchor.fold == "none" else [])
        self.extents = {a.name: n for k, (a, n) in enumerate(zip(anchor.axes, model.extents))
                        if k not in lane and n > 1}
        # scratch of a dynamic axis has a bound only where the axis is tiled
        self.named = {a.name for a in anchor.axes if not isinstance(a.extent, Const)}

    def tiling(self, tile: Mapping[str, int]) -> Tiling:
        """Tiling of {axis: extent}."""
        item = self.model.variables(tile)
        boxes = self.model.boxes(item)
        size: dict[str, int] = {}
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for i, (s, (whole, _)) in enumerate(zip(self.model.stages, boxes)):
            for a in s.reads + s.writes:
                if a.buffer in self.model.scratch:
                    n = a.size * prod(a.shape(whole))
                    size[a.buffer] = max(size.get(a.buffer, 0), n)
                    first.setdefault(a.buffer, i)
                    last[a.buffer] = i
        slab = best_fit([(round_up_bytes(n), first[b], last[b]) for b, n in size.items()])
        cost = group_cost(self.model, self.machine, (item,), aligned=self.aligned, free=self.free)
        return Tiling(tuple((a, n) for a, n in tile.items()
                            if n < self.extents.get(a, n + 1) or a in self.named),
                      slab, cost.seconds)

    def path(self) -> tuple[Tiling, ...]:
        """Tilings from the whole output down to single elements: each halves the axis that saves
        most scratch for the time it adds, until nothing but the halo is left."""
        tile = dict(self.extents)
        out = [self.tiling(tile)]
        while max(tile.values(), default=1) > 1 and (
                len(out) < 3 or out[-1].slab < WORTH * out[-3].slab):
            steps = [tile | {a: -(-n // 2)} for a, n in tile.items() if n > 1]
            made = [(self.tiling(t), t) for t in steps]
            best, tile = min(made, key=lambda x: x[0].slab * x[0].seconds ** 2)
            out.append(best)
        return tuple(out)

    def steps(self, tile: dict[str, int]) -> Iterator[dict[str, int]]:
        """Tiles near a tile: one axis longer or shorter, or one longer and another shorter."""
        full = self.extents | tile
        moves = {a: _neighbours(n, self.extents[a]) for a, n in full.items()}
        for a, ns in moves.items():
            for n in ns:
                yield full | {a: n}
                for b, ms in moves.items():
                    if b != a and n > full[a]:
                        yield from (full | {a: n, b: m} for m in ms if m < full[b])


def _neighbours(n: int, extent: int) -> list[int]:
    """Extents to try beside ``n``: the nearest rungs below and above it."""
    rungs = sorted({min(f << i, extent) for f in FINE for i in range(extent.bit_length())}
                   | {extent})
    return [r for r in rungs if r < n][-2:] + [r for r in rungs if r > n][:2]


__all__ = ["Cones", "Lump", "Tiling"]
