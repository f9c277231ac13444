"""When everything of a Plan happens on a machine whose engines copy: a model, from its events.

A worker takes its work items in turn.  It starts engines, which copy one box after another while
it goes on, and waits for their tokens, and for products of its units, which take as long as a full
tile does.  What is copied together shares the outermost memory; the stages of an item share evenly
what else of its kernel's arithmetic there is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aotc.ir.plan import Kernel, Plan
from aotc.oracle.eval_expr import index_value
from aotc.sched.cost.item_events import COMPUTE, WAIT, Event, plan_events, workers_of
from aotc.target.base import Machine


@dataclass(frozen=True)
class Span:
    """From ``start`` to ``end``, in seconds, ``what`` of worker ``worker`` is busy with ``bytes``
    (of an engine) of the kernel with number ``kernel``."""

    what: str
    worker: int
    kernel: int
    start: float
    end: float
    bytes: int


@dataclass(frozen=True)
class Timeline:
    """Of one call: its ``spans``; ``ends``: when each kernel ends; ``scratch``: bytes that each
    kernel has of a worker's; ``names`` of the kernels."""

    spans: tuple[Span, ...]
    ends: tuple[float, ...]
    scratch: tuple[int, ...]
    names: tuple[str, ...]
    workers: int

    @property
    def seconds(self) -> float:
        """Of the whole call."""
        return self.ends[-1] if self.ends else 0.0

    def busy(self, what: str) -> float:
        """The share of the call in which ``what`` of a worker is busy, on average."""
        total = sum(s.end - s.start for s in self.spans if s.what == what)
        return total / (self.seconds * self.workers) if self.seconds else 0.0

    def moved(self, engine: str) -> int:
        """Bytes that the engines of that name copy."""
        return sum(s.bytes for s in self.spans if s.what == engine)


def timeline(plan: Plan, machine: Machine, syms: Mapping[str, int]) -> Timeline:
    """The Timeline of one call.  UnsupportedError for a Plan with regions."""
    spans: list[Span] = []
    ends: list[float] = []
    now = 0.0
    for number, (kernel, items) in enumerate(plan_events(plan, syms)):
        now += machine.launch
        where = workers_of(kernel, len(items), machine)
        active = max(1, len(set(where)))
        others = index_value(kernel.flops, syms) - sum(e.flops for x in items for e in x)
        work = max(0, others) / machine.flops / max(1, len(items))
        last = now
        workers: dict[int, _Worker] = {}
        for worker, events in zip(where, items):
            if worker not in workers:
                workers[worker] = _Worker(worker, number, now, machine, active)
            workers[worker].run(events, work)
        for at in workers.values():
            spans += at.spans
            last = max(last, at.now)
        now = last
        ends.append(now)
    sizes = tuple(_scratch(k) for k in plan.kernels)
    return Timeline(tuple(spans), tuple(ends), sizes, tuple(k.name for k in plan.kernels),
                    machine.workers)


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
                self.now = self._busy(COMPUTE, self.now, work / stages, 0)
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
