"""What a Plan's kernels read and write when it is run literally: every byte knows whose it is.

Memory starts poisoned.  A byte of the arena or of a worker's scratch belongs to the buffer that was
stored there last: reading it as another buffer, or before anything was stored, is a fault, as is
every access outside of a buffer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from aotc.errors import InterpreterError
from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.kernel.plan_kernels import Kernel, Scratch
from aotc.ir.plan import Place, Plan

_POISON = 0xFF  # of every byte: NaN as a float
_NOBODY = 0  # whose a byte is before anything was stored
_MOVING = -1  # of what an engine fills


@dataclass(frozen=True)
class Moving:
    """A copy under way: elements ``at`` of ``to`` get those ``source_at`` of ``source``, which were
    ``values`` when it began; ``live``: which of them."""

    to: str
    at: Array
    source: str
    source_at: Array
    values: Array
    live: Array | None
    statement: str


@dataclass(frozen=True)
class Fetched:
    """A copy under way to elements ``at`` of an array of the block."""

    to: str
    at: Array
    values: Array


@dataclass
class Region:
    """The elements of one buffer, ``values``, in memory that others may use, too: ``owner``, of
    every byte of every element, says whose it is (``number`` is this buffer's); None: memory of
    its own, which is all written.  ``part``: elements that each of several clusters or workers has
    of it, in its own memory, ``step`` elements further on than the one before (0: it lies
    together).  ``deal``: (work items of a cluster, workers of a cluster) of parts that lie with
    workers, whose ``number`` counts on from part to part; ``every``: each cluster has all of it;
    ``ring``: there is room for so many elements of a part at a time, whose ``number`` counts on,
    too."""

    name: str
    values: Array
    owner: Array | None
    number: int
    count: int = 0
    part: int = 0
    step: int = 0
    deal: tuple[int, int] = (0, 0)
    every: bool = False
    ring: int = 0

    def place(self, index: Array, here: int = 0) -> Array:
        """Where in ``values`` elements are; here: the cluster that asks."""
        if not self.part:
            return index
        inside = index % self.ring if self.ring else index % self.part
        return np.asarray(self.holder(index, here) * self.step + inside)

    def holder(self, index: Array, here: int) -> Array:
        """Which cluster or worker has elements."""
        if self.every:
            return np.full_like(index, here)
        part, (items, workers) = index // self.part, self.deal
        return part // items * workers + part % items % workers if items else part

    def whose(self, index: Array) -> Array | int:
        """What ``owner`` says of elements that are this buffer's."""
        each = self.ring or (self.part if self.deal[0] else 0)
        return self.number + index // each if each else self.number


class PlanMemory:
    """Memory of one run of a Plan.  ``at``: says which statement is at work, for faults;
    ``cluster``, ``worker``: where."""

    def __init__(self, plan: Plan, inputs: Mapping[str, Array],
                 value: Callable[[object], int]) -> None:
        self.plan, self.value = plan, value
        self.at, self.cluster, self.worker = "", 0, 0
        self.numbers: dict[str, int] = {}
        # slots lie one behind the other: a buffer may take several
        self.starts = tuple(accumulate(map(value, plan.slots), initial=0))
        self.arena = np.full(self.starts[-1], _POISON, np.uint8)
        self.owners = np.full(self.starts[-1], _NOBODY, np.int32)
        weights = dict(plan.weights)
        self.regions: dict[str, Region] = {}
        for p in plan.places:
            if p.storage == "arena":
                self.regions[p.name] = self._in_slots(p)
                continue
            known = inputs.get(p.name) if p.storage == "input" else weights.get(p.name)
            count = value(p.elements)
            if known is not None:
                values = np.ascontiguousarray(known).reshape(-1)
                self.regions[p.name] = Region(p.name, values, None, 0)
            elif p.storage == "output":
                raw = np.full(count * DTYPES[p.dtype].size, _POISON, np.uint8)
                self.regions[p.name] = self._typed(p.name, p.dtype, raw, np.full(
                    raw.size, _NOBODY, np.int32))
        for a in plan.aliases:
            self._share(a.present, a.past)
        self.scratch: dict[str, Region] = {}
        self.near: dict[str, str] = {}  # the memory that scratch is in
        self.homes = {p.name: p.memory for p in plan.places}
        near = plan.memories[0][0] if plan.memories else ""
        self.held = {(p.slot, p.stride, p.holders) for p in plan.places
                     if near and p.memory == near}
        self.taken: list[tuple[int, int]] = []  # bytes of scratch, each buffer's first and end
        self.raw, self.owner = np.zeros(0, np.uint8), np.zeros(0, np.int32)  # of scratch
        self.block_arrays: dict[str, int] = {}  # where a product's begin in it
        self.stored = self.seen = np.zeros(0, bool)  # its bytes, since the last barrier
        self.groups: list[list[Fetched]] = [[]]  # of fetches, the last one still open
        self.moving: dict[int, list[Moving]] = {}
        self.bringing: dict[tuple[int, int], list[Moving]] = {}  # of (cluster, token)

    def _typed(self, name: str, dtype: str, raw: Array, owner: Array, parts: int = 1) -> Region:
        kind = DTYPES[dtype].numpy
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        for n in range(1, parts):
            self.numbers[f"part {n} of {name}"] = number + n
        return Region(name, raw.view(kind), owner.reshape(-1, kind.itemsize), number)

    def _share(self, present: str, past: str) -> None:
        """An output in the buffer of an input: all that is there may be read as either, and is
        changed as the output only.  The caller's array stays as it is."""
        before = self.regions[past]
        raw = before.values.copy().view(np.uint8)
        own = self._typed(present, self.plan.place(present).dtype, raw,
                          np.zeros(raw.size, np.int32))
        assert own.owner is not None
        own.owner[:] = own.number
        self.regions[present] = own
        self.regions[past] = Region(past, own.values, None, 0)

    def _in_slots(self, p: Place) -> Region:
        first, size = self.starts[p.slot] + p.offset, DTYPES[p.dtype].size
        part, room = self.value(p.part) * size, self.value(p.room) * size
        end = first + (p.holders - 1) * p.stride + room
        if not p.memory:
            end = first + self.value(p.elements) * size
        if end > self.arena.size:
            raise InterpreterError(f"{p}: ends at byte {end}, behind the arena")
        near = bool(p.memory) and p.memory == self.plan.memories[0][0]
        region = self._typed(p.name, p.dtype, self.arena[first:end], self.owners[first:end],
                             p.parts if near else self.value(p.elements) // p.ring if p.ring
                             else 1)
        if not p.memory:
            return region
        most = dict(self.plan.memories)[p.memory]
        if p.offset + room > most:
            raise InterpreterError(f"{p}: ends at byte {p.offset + room} of {p.memory}, which has "
                                   f"{most}")
        clusters = max(1, p.holders // self.plan.cores)
        return replace(region, count=self.value(p.elements), part=max(1, part // size),
                       step=p.stride // size, every=p.each > 0 and not near, ring=p.ring,
                       deal=(p.parts // clusters, self.plan.cores) if near else (0, 0))

    def enter(self, kernel: Kernel) -> None:
        """Poisoned scratch for the work items of a kernel."""
        end = max((self._end(s) for s in kernel.scratch), default=0)
        if kernel.threads:
            end = self.value(kernel.slab_bytes) + kernel.lowered.staged
        raw = self.raw = np.full(end, _POISON, np.uint8)
        owner = self.owner = np.full(end, _NOBODY, np.int32)
        self.block_arrays, self.groups = {}, [[]]
        self.barrier()
        self.scratch, self.near = {}, {s.name: s.memory for s in kernel.scratch}
        capacity = dict(self.plan.memories)
        self.taken = [(self.value(s.offset), self._end(s)) for s in kernel.scratch]
        for s in kernel.scratch:
            room = capacity.get(s.memory)
            if room is not None and self._end(s) > room:
                raise InterpreterError(f"kernel {kernel.name}: {s.name} ends at byte {self._end(s)}"
                                       f" of {s.memory}, which has {room}")
            first, last = self.value(s.offset), self._end(s)
            self.scratch[s.name] = self._typed(s.name, s.dtype, raw[first:last], owner[first:last])

    def begin(self, cluster: int, worker: int) -> None:
        """A work item begins there: what its scratch goes over is nobody's."""
        self.cluster, self.worker = cluster, worker
        for slot, stride, workers in self.held:
            first = self.starts[slot] + worker * stride
            for low, end in self.taken if worker < workers else ():
                self.owners[first + low:first + max(low, min(end, stride))] = _NOBODY

    def _end(self, s: Scratch) -> int:
        return self.value(s.offset) + self.value(s.elements) * DTYPES[s.dtype].size

    def memory_of(self, name: str) -> str:
        """The memory that a buffer is in, "" for what holds everything."""
        return self.near.get(name) or self.homes.get(name, "")

    def region(self, name: str) -> Region:
        """The buffer of that name, in scratch or outside."""
        found = self.scratch.get(name) or self.regions.get(name)
        if found is None:
            raise self.fault(f"there is no buffer {name}")
        return found

    def fault(self, what: str) -> InterpreterError:
        return InterpreterError(f"{self.at}: {what}")

    def _checked(self, r: Region, index: Array, live: Array | None, what: str) -> Array:
        """Where in ``r.values`` the index is, a legal place where it is not live."""
        count = r.count if r.part else r.values.size

        def first(bad: Array) -> Any:
            bad = bad if live is None else bad & live
            return np.broadcast_to(index, bad.shape)[bad].flat[0] if np.any(bad) else None

        seen = first((index < 0) | (index >= count))
        if seen is not None:
            raise self.fault(f"{what} {r.name}[{seen}], which has {count} elements")
        if r.part:
            kind, here = ("worker", self.worker) if r.deal[0] else ("cluster", self.cluster)
            seen = first(r.holder(index, self.cluster) != here)
            if seen is not None:
                whose = int(r.holder(np.asarray(seen), self.cluster))
                raise self.fault(f"{what} {r.name}[{seen}], which {kind} {whose} has, on "
                                 f"{kind} {here}")
        return r.place(index if live is None else np.clip(index, 0, max(count - 1, 0)),
                       self.cluster)

    def read(self, name: str, index: Array, live: Array | None) -> Array:
        """Elements of a buffer; ``live``: which of them are really read (None: all)."""
        r = self.region(name)
        own = r.whose(index)
        index = self._checked(r, index, live, "reads")
        if r.values.size == 0:
            return np.zeros(index.shape, r.values.dtype)
        if name in self.block_arrays:
            self._in_turn(r, index, live, "reads", self.stored, self.seen)
        if r.owner is not None:
            owners = r.owner[index]
            bad = np.any(owners != np.asarray(own)[..., None], axis=-1)
            if live is not None:
                bad = bad & live
            if np.any(bad):
                where = np.broadcast_to(index, bad.shape)[bad].flat[0]
                whose = int(np.broadcast_to(owners[..., 0], bad.shape)[bad].flat[0])
                what = "before it is stored" if whose == _NOBODY else \
                    "before the wait for its copy" if whose == _MOVING else \
                    f"where {next(n for n, k in self.numbers.items() if k == whose)} is by now"
                raise self.fault(f"reads {name}[{where}] {what}")
        return r.values[index]

    def write(self, name: str, index: Array, values: Array, live: Array | None) -> None:
        """Store elements of a buffer, those that are live."""
        r = self.region(name)
        own = r.whose(index)
        index = self._checked(r, index, live, "stores")
        shape = np.broadcast_shapes(index.shape, values.shape,
                                    () if live is None else live.shape)
        index, values, own = (np.broadcast_to(x, shape) for x in (index, values, own))
        if live is not None:
            chosen = np.broadcast_to(live, shape)
            index, values, own = index[chosen], values[chosen], own[chosen]
        if r.owner is None:
            raise self.fault(f"stores into {name}, which is nobody's to change")
        if np.any(r.owner[index] == _MOVING):
            raise self.fault(f"stores into {name} before the wait for the copy that fills it")
        if name in self.block_arrays:
            self._in_turn(r, index, None, "stores", self.stored | self.seen, self.stored)
        r.values[index] = values
        r.owner[index] = own[..., None]

    def start(self, engine: str, token: int, to: tuple[str, Array], source: tuple[str, Array],
              live: Array | None) -> None:
        """An engine begins to copy; nothing is there before ``wait`` for the token."""
        ends = next((x[1:] for x in self.plan.engines if x[0] == engine), None)
        found = self.memory_of(source[0]), self.memory_of(to[0])
        if ends != found:
            raise self.fault(f"{engine} does not copy from {found[0] or 'the outermost memory'} to "
                             f"{found[1] or 'the outermost memory'}")
        values = self.read(*source, live)
        region = self.region(to[0])
        index = self._checked(region, to[1], live, "stores")
        if region.owner is None:
            raise self.fault(f"stores into {to[0]}, which is nobody's to change")
        shape = np.broadcast_shapes(index.shape, values.shape, () if live is None else live.shape)
        chosen = np.broadcast_to(index, shape)
        chosen = chosen if live is None else chosen[np.broadcast_to(live, shape)]
        region.owner[chosen] = _MOVING
        m = Moving(to[0], to[1], *source, values, live, self.at)
        near = self.plan.memories[0][0]
        if near in found:
            self.moving.setdefault(token, []).append(m)
        else:
            self.bringing.setdefault((self.cluster, token), []).append(m)

    def at_unit(self, unit: str, operands: tuple[str, ...]) -> None:
        """A unit reads ``operands``, which have to be in its memory."""
        memory = dict(self.plan.units)[unit]
        for name in operands:
            found = self.memory_of(name)
            if found != memory:
                raise self.fault(f"{unit} has its operands in {memory}; {name} is in "
                                 f"{found or 'the outermost memory'}")

    def wait(self, token: int, memory: str = "") -> None:
        """What moves under the token, to ``memory`` if it goes on from kernel to kernel, has
        arrived."""
        arrived = self.bringing.pop((self.cluster, token), ()) if memory else \
            self.moving.pop(token, ())
        for m in arrived:
            now = self.read(m.source, m.source_at, m.live)
            same = (now == m.values) | ((now != now) & (m.values != m.values))
            if not np.all(same if m.live is None else same | ~m.live):
                raise self.fault(f"{m.source} has changed while {m.statement} copied it")
            region = self.region(m.to)
            assert region.owner is not None, m  # as ``start`` asked
            shape = np.broadcast_shapes(m.at.shape, now.shape,
                                        () if m.live is None else m.live.shape)
            index = np.broadcast_to(m.at, shape)
            index = index if m.live is None else index[np.broadcast_to(m.live, shape)]
            region.owner[region.place(index, self.cluster)] = _NOBODY
            self.write(m.to, m.at, now, m.live)

    # ------------------------------------------------------------ what a block of threads shares

    def block_array(self, name: str, dtype: str, elements: int, first: int) -> None:
        """A part of a block's memory, of which nothing is known yet."""
        end = first + elements * DTYPES[dtype].size
        if end > self.raw.size:
            raise self.fault(f"{name} ends at byte {end} of the block's {self.raw.size}")
        self.owner[first:end] = _NOBODY
        self.block_arrays[name] = first
        self.scratch[name] = self._typed(name, dtype, self.raw[first:end], self.owner[first:end])

    def barrier(self) -> None:
        """All threads have come so far."""
        self.stored, self.seen = (np.zeros(self.raw.size, bool) for _ in range(2))

    def _in_turn(self, r: Region, index: Array, live: Array | None, verb: str, before: Array,
                 after: Array) -> None:
        """Elements of a block's array are touched: no other thread may have done so ``before``."""
        chosen = index
        if live is not None:
            shape = np.broadcast_shapes(index.shape, live.shape)
            chosen = np.broadcast_to(index, shape)[np.broadcast_to(live, shape)]
        first = self.block_arrays[r.name]
        at = first + chosen * r.values.itemsize  # one byte stands for an element
        if np.any(before[at]):
            raise self.fault(f"{verb} {r.name}[{chosen[before[at]].flat[0]}] without a barrier "
                             "since another thread touched it")
        after[at] = True

    def fetch(self, to: str, at: Array, values: Array, live: Array | None) -> None:
        """A copy into an array of the block begins."""
        r = self.region(to)
        assert r.owner is not None, to
        index = self._checked(r, at, live, "stores")
        shape = np.broadcast_shapes(index.shape, () if live is None else live.shape)
        index, values = np.broadcast_to(index, shape), np.broadcast_to(values, shape)
        if live is not None:
            chosen = np.broadcast_to(live, shape)
            index, values = index[chosen], values[chosen]
        self._in_turn(r, index, None, "fetches", self.stored | self.seen, self.stored)
        r.owner[index] = _MOVING
        self.groups[-1].append(Fetched(to, index, values))

    def commit(self) -> None:
        """What was fetched is a group."""
        self.groups.append([])

    def arrived(self, but: int) -> None:
        """All groups but the last ones are there."""
        count = max(len(self.groups) - 1 - but, 0)
        for f in (f for group in self.groups[:count] for f in group):
            r = self.region(f.to)
            assert r.owner is not None, f.to
            r.values[f.at], r.owner[f.at] = f.values, r.number
            self.stored[self.block_arrays[f.to] + f.at * r.values.itemsize] = True
        self.groups = self.groups[count:]

    def leave(self) -> None:
        """A work item ends: nothing moves any more."""
        for f in (f for group in self.groups for f in group):
            raise self.fault(f"the work item ends before {f.to} has arrived")
        for m in (m for found in self.moving.values() for m in found):
            raise self.fault(f"the work item ends before the wait for {m.statement}")

    def end(self) -> None:
        """The call ends: nothing is on its way to a cluster's memory any more."""
        for m in (m for found in self.bringing.values() for m in found):
            raise self.fault(f"the call ends before the wait for {m.statement}")


__all__ = ["PlanMemory"]
