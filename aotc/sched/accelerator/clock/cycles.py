"""When everything of a Plan happens on a machine whose engines copy: a model, from its events.

A worker takes its work items in turn.  It starts engines, which copy one box after another while
it goes on, and waits for their tokens, and for products of its units, which take as long as a full
tile does.  What is copied together shares the outermost memory; the stages of an item share evenly
what else of its kernel's arithmetic there is.  Engines of clusters go on copying from kernel to
kernel, beside workers that reach the outermost memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aotc.ir.dtypes import DTYPES
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Plan
from aotc.oracle.eval_expr import index_value
from aotc.sched.accelerator.clock.item_events import ARRIVE, COMPUTE, WAIT, Event, Item, plan_events
from aotc.target.base import Machine


@dataclass(frozen=True)
class Span:
    """From ``start`` to ``end``, in seconds, ``what`` of worker ``worker`` is busy with ``bytes``
    (see ``Event``) of the kernel with number ``kernel``."""

    what: str
    worker: int
    kernel: int
    start: float
    end: float
    bytes: int


@dataclass(frozen=True)
class Timeline:
    """Of one call: its ``spans``; ``ends``: when each turn of a kernel ends; ``scratch``: bytes
    that each of those has of a worker's; ``names`` of their kernels; ``kept``: {memory: bytes that
    a cluster, or a worker, has there of tensors that stay while each turn runs}."""

    spans: tuple[Span, ...]
    ends: tuple[float, ...]
    scratch: tuple[int, ...]
    names: tuple[str, ...]
    workers: int
    kept: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of the whole call."""
        return self.ends[-1] if self.ends else 0.0

    def busy(self, what: str) -> float:
        """The share of the call in which ``what`` of a worker is busy, on average."""
        total = sum(s.end - s.start for s in self.spans if s.what == what)
        return total / (self.seconds * self.workers) if self.seconds else 0.0

    def moved(self, what: str) -> int:
        """Bytes that the engines of that name copy, or stages store in workers' memory."""
        return sum(s.bytes for s in self.spans if s.what == what)


def timeline(plan: Plan, machine: Machine, syms: Mapping[str, int]) -> Timeline:
    """The Timeline of one call.  UnsupportedError for a Plan with regions."""
    spans: list[Span] = []
    ends: list[float] = []
    turns: list[Kernel] = []
    now = 0.0
    far = _Far(machine)
    for number, items in plan_events(plan, syms, machine):
        kernel = plan.kernels[number]
        turns.append(kernel)
        if any(e.what in far.engines or e.what == ARRIVE for i in items for e in i.events):
            now = far.told(items, number, now)
        else:
            now += machine.launch
            units = sum(e.flops for i in items for e in i.events)
            count = max(1, index_value(kernel.tiles, syms))
            share = index_value(kernel.work.flops, syms) * len(items) / count  # of this turn
            work = max(0, share - units) / machine.flops / max(1, len(items))
            found, last = _kernel(items, number, now, machine, work, far)
            spans += found
            far.on(now, last - now, _outside(items, machine))
            now = last
        ends.append(now)
    return Timeline((*spans, *far.spans), tuple(ends), tuple(map(_scratch, turns)),
                    tuple(k.name for k in turns), machine.workers, _kept(plan, turns, syms))


def _kept(plan: Plan, turns: Sequence[Kernel], syms: Mapping[str, int]
          ) -> dict[str, tuple[int, ...]]:
    """{memory: bytes of what lies there in each turn, from the first that touches it on}."""
    out: dict[str, list[int]] = {}
    for p in plan.places:
        at = [n for n, k in enumerate(turns) if p.name in k.reads + k.writes] if p.memory else []
        found = out.setdefault(p.memory, [0] * len(turns)) if at else []
        for n in range(at[0], at[-1] + 1) if at else ():
            found[n] += index_value(p.room, syms) * DTYPES[p.dtype].size
    return {memory: tuple(found) for memory, found in out.items()}


def _kernel(items: Sequence[Item], number: int, now: float, machine: Machine, work: float,
            far: "_Far") -> tuple[list[Span], float]:
    """(spans of the workers in one kernel that begins ``now``, when the last of them ends)."""
    active = max(1, len({i.worker for i in items})) + len(far.queues)
    workers: dict[int, _Worker] = {}
    for item in items:
        if item.worker not in workers:
            workers[item.worker] = _Worker(item.worker, number, now, machine, active)
        workers[item.worker].run(item.events, work)
    return ([s for w in workers.values() for s in w.spans],
            max((w.now for w in workers.values()), default=now))


def _outside(items: Sequence[Item], machine: Machine) -> int:
    """Bytes that workers copy from or to the outermost memory."""
    outside = {e.name for e in machine.engines if machine.memory.name in (e.source, e.target)}
    return sum(e.bytes for i in items for e in i.events if e.what in outside)


@dataclass
class _Bringing:
    """One copy of a cluster's engine: ``left`` of its bytes (with those that its latency stands
    for) have not arrived; it began at ``start`` (negative: not yet)."""

    what: str
    token: int
    bytes: int
    left: float
    kernel: int
    start: float = -1.0


class _Far:
    """Copies of clusters' engines that go on from kernel to kernel: of each cluster those that
    have not arrived, one after the other.  They have what workers leave of the outermost memory's
    bandwidth."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        near = machine.near.name
        self.engines = {e.name: e for e in machine.engines if near not in (e.source, e.target)}
        self.queues: dict[int, list[_Bringing]] = {}
        self.spans: list[Span] = []

    def on(self, now: float, seconds: float, others: int) -> None:
        """So much time passes from ``now`` while workers copy ``others`` bytes from or to the
        outermost memory."""
        if not self.queues or not seconds:
            return
        left = self.machine.memory.bandwidth - others / seconds
        rate = max(left, 1.0) / self.machine.clusters
        for cluster, queue in self.queues.items():
            at = now
            while queue and at < now + seconds:
                one = queue[0]
                one.start = at if one.start < 0 else one.start
                end = min(now + seconds, at + one.left / rate)
                one.left -= (end - at) * rate
                at = end
                if one.left < 1:  # of a byte: what rounding leaves
                    self.spans.append(Span(one.what, cluster * self.machine.cores, one.kernel,
                                           one.start, at, one.bytes))
                    queue.pop(0)
        self.queues = {c: q for c, q in self.queues.items() if q}

    def told(self, items: Sequence[Item], kernel: int, now: float) -> float:
        """When all goes on behind work items that begin such copies and wait for them."""
        rate = self.machine.memory.bandwidth / self.machine.clusters
        wait = 0.0
        for item in items:
            queue = self.queues.setdefault(item.worker // self.machine.cores, [])
            for e in item.events:
                if e.what in self.engines:
                    late = self.engines[e.what].latency * rate  # until the first byte arrives
                    queue.append(_Bringing(e.what, e.token, e.bytes, e.bytes + late, kernel))
                elif any(x.token == e.token for x in queue):
                    last = max(n for n, x in enumerate(queue) if x.token == e.token)
                    wait = max(wait, sum(x.left for x in queue[:last + 1]) / rate)
        self.on(now, wait, 0)
        return now + wait


def _scratch(kernel: Kernel) -> int:
    size = kernel.slab_bytes
    return size if isinstance(size, int) else 0


class _Worker:
    """One worker in one kernel, from ``now`` on; ``active`` of them share the outermost memory."""

    def __init__(self, number: int, kernel: int, now: float, machine: Machine,
                 active: int) -> None:
        self.number, self.kernel, self.now = number, kernel, now
        far = machine.memory.name
        self.rate = {e.name: machine.memory.bandwidth / active if far in (e.source, e.target)
                     else e.bandwidth for e in machine.engines}
        self.latency = {e.name: e.latency for e in machine.engines}
        self.step = {u.name: 2 * u.rows * u.columns / u.flops for u in machine.units}
        self.free = dict.fromkeys(self.latency, now)  # when each engine is
        self.arrives: dict[int, float] = {}  # token -> when all under it is there
        self.spans: list[Span] = []

    def run(self, events: tuple[Event, ...], work: float) -> None:
        """One work item; ``work``: seconds of its arithmetic."""
        stages = sum(e.what == COMPUTE for e in events)
        for e in events:
            if e.what == WAIT:
                self.now = max(self.now, self.arrives.pop(e.token, self.now))
            elif e.what == COMPUTE:
                self.now = self._busy(COMPUTE, self.now, work / stages, e.bytes)
            elif e.what in self.step:
                self.now = self._busy(e.what, self.now, e.steps * self.step[e.what], e.bytes)
            else:
                start = max(self.now, self.free[e.what])
                self.free[e.what] = self._busy(
                    e.what, start, self.latency[e.what] + e.bytes / self.rate[e.what], e.bytes)
                self.arrives[e.token] = max(self.arrives.get(e.token, 0.0), self.free[e.what])

    def _busy(self, what: str, start: float, seconds: float, moved: int) -> float:
        self.spans.append(Span(what, self.number, self.kernel, start, start + seconds, moved))
        return start + seconds


__all__ = ["Span", "Timeline", "timeline"]
