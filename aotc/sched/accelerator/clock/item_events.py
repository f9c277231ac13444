"""What engines and units are told while a Plan's kernels run, from its statements alone: every
copy, wait and product of every work item, in order.  A machine that runs the Plan does the same, to
the byte."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np

from aotc.errors import UnsupportedError
from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.expr import Axis, Expr
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Plan, turn_items
from aotc.ir.statements import (
    OWN,
    STEP,
    TILE,
    Body,
    Copy,
    Declare,
    For,
    If,
    Let,
    Scope,
    Section,
    Update,
    Wait,
    walk_body,
)
from aotc.ir.tile_statements import RowTable, Tile
from aotc.oracle.eval_expr import EvalScope as Values
from aotc.oracle.eval_expr import Guard, index_value
from aotc.sched.accelerator.clock.item_stores import StoredBytes
from aotc.target.base import Machine

COMPUTE, WAIT = "compute", "wait"  # what an item does beside starting engines
ROW = f"{OWN}m0"  # the name of a register tile's first row
ARRIVE = "arrive"  # the wait for what engines of a cluster bring into its memory


@dataclass(frozen=True)
class Event:
    """``what``: an engine that begins to copy ``bytes`` under ``token``, the wait for a token (of a
    worker's copies, or of its cluster's), a unit, which reads ``bytes`` of operands for ``steps``
    of a sum and computes ``flops`` of those that the stages are made of, or the end of a stage,
    which has stored ``bytes`` in the worker's memory."""

    what: str
    token: int = 0
    bytes: int = 0
    steps: int = 0
    flops: int = 0


@dataclass(frozen=True)
class _Found:
    """An event of several work items: ``live`` ones; numbers of each item."""

    event: Event
    live: Array
    bytes: Array
    steps: Array
    flops: Array

    def of(self, item: int) -> Event:
        """The event of one item."""
        e = self.event
        return Event(e.what, e.token, *(int(x[item]) for x in (self.bytes, self.steps, self.flops)))


class Named(Values):
    """Values of names, those of all work items side by side."""

    def __init__(self, syms: Mapping[str, int], names: dict[str, Array]) -> None:
        super().__init__({}, None, syms)
        self.names = names

    def value(self, e: Expr, guard: Guard | None = None) -> Array:
        return self.names[e.name] if isinstance(e, Axis) else super().value(e, guard)


class _Items:
    """The work items of one kernel side by side; ``found``: their events; ``rows``: how many a
    register tile has that is next; ``near``: buffers in workers' own memory."""

    def __init__(self, kernel: Kernel, syms: Mapping[str, int], near: Set[str]) -> None:
        self.syms, self.count, self.near = syms, index_value(kernel.tiles, syms), near
        self.names: dict[str, Array] = {TILE.name: np.arange(self.count)}
        self.found: list[_Found] = []
        self.none = self.rows = np.zeros(self.count, np.int64)
        if not kernel.lowered.calls_library:  # the host's own processor runs that
            self.run(kernel.body, np.ones(self.count, bool))

    def now(self, e: Expr) -> Array:
        return self.by(self.names, e)

    def by(self, names: dict[str, Array], e: Expr) -> Array:
        return np.broadcast_to(Named(self.syms, names).value(e), self.count)

    def run(self, body: Body, live: Array) -> None:
        for s in body:
            if isinstance(s, (Let, Declare)):
                self.names[s.var.name] = self.now(s.value)
            elif isinstance(s, Update):
                new = [np.where(live, self.now(e), self.names[v.name])
                       for v, e in zip(s.vars, s.values)]
                self.names |= {v.name: x for v, x in zip(s.vars, new)}
            elif isinstance(s, If):
                holds = self.now(s.cond).astype(bool)
                self.run(s.body, live & holds)
                self.run(s.other, live & ~holds)
            elif isinstance(s, Scope):
                self.run(s.body, live)
            elif isinstance(s, For) and s.axis == STEP:
                steps = self.now(s.hi)
                for step in range(int(steps.max(initial=0))):
                    self.names[STEP.name] = np.full(self.count, step)
                    self.run(s.body, live & (step < steps))
            elif isinstance(s, (Copy, Wait)):
                self.moved(s, live)
            elif isinstance(s, Section):
                stored = StoredBytes(self.near, dict(self.names), self.by).of(s.body, live)
                self.products(s.body, live)
                self.add(Event(COMPUTE), live, stored)

    def add(self, event: Event, live: Array, *numbers: Array) -> None:
        """One more event of live items."""
        none = (self.none,) * (3 - len(numbers))
        self.found.append(_Found(event, live, *numbers, *none))

    def moved(self, s: Copy | Wait, live: Array) -> None:
        """What an engine copies, or the wait for it."""
        if isinstance(s, Wait):
            self.add(Event(ARRIVE if s.memory else WAIT, s.token), live)
        elif s.engine:
            n = np.full(self.count, DTYPES[s.dtype].size)
            for extent in s.extents:
                n = n * np.maximum(self.now(extent), 0)
            self.add(Event(s.engine, s.token), live, n)

    def products(self, body: Body, live: Array) -> None:
        """The products of units in a stage's statements."""
        for n, s in enumerate(body):
            if not any(isinstance(x, Tile) and x.micro.unit for x in walk_body(body[n:])):
                return
            if isinstance(s, Let):
                self.names[s.var.name] = self.now(s.value)
            elif isinstance(s, For):
                lo, hi = self.now(s.lo), self.now(s.hi)
                for turn in range(int(np.max(-(-(hi - lo) // s.step), initial=0))):
                    self.names[s.axis.name] = lo + turn * s.step
                    self.products(s.body, live & (lo + turn * s.step < hi))
            elif isinstance(s, If):
                holds = self.now(s.cond).astype(bool)
                self.products(s.body, live & holds)
                self.products(s.other, live & ~holds)
            elif isinstance(s, (Scope, Section)):
                self.products(s.body, live)
            elif isinstance(s, (Copy, Wait)):
                self.moved(s, live)
            elif isinstance(s, RowTable):
                self.rows = np.minimum(self.now(s.count) - self.names[ROW], s.mr)
            elif isinstance(s, Tile) and s.micro.unit:
                self.product(s, live)

    def product(self, s: Tile, live: Array) -> None:
        """One product of a unit."""
        steps = self.now(s.taps) * self.now(s.kc)
        columns = np.minimum(self.now(s.b.left), s.micro.nr)
        a, b, _ = (DTYPES[t].size for t in s.micro.dtypes)
        self.add(Event(s.micro.unit), live, steps * (a * s.summed + b * columns), steps,
                 2 * steps * self.rows * columns)


@dataclass(frozen=True)
class Item:
    """Work item ``number`` of a kernel: the worker that it runs on, and its events."""

    number: int
    worker: int
    events: tuple[Event, ...]


def kernel_events(kernel: Kernel, syms: Mapping[str, int], held: Set[str] = frozenset()
                  ) -> Iterator[tuple[Event, ...]]:
    """The events of every work item of a kernel, in order; ``held``: tensors that stay in workers'
    own memory."""
    items = _Items(kernel, syms, held | {s.name for s in kernel.scratch})
    for i in range(items.count):
        yield tuple(found.of(i) for found in items.found if found.live[i])


def workers_of(kernel: Kernel, count: int, machine: Machine) -> list[int]:
    """The worker that each of ``count`` work items runs on: clusters have equal runs of them, which
    they deal to their own workers in turn."""
    if not kernel.clusters:
        return [i % machine.workers for i in range(count)]
    own, out = machine.cores, []
    for i in range(count):
        cluster = i * kernel.clusters // count
        first = -(-cluster * count // kernel.clusters)
        out.append(cluster * own + (i - first) % own)
    return out


def plan_events(plan: Plan, syms: Mapping[str, int], machine: Machine
                ) -> Iterator[tuple[int, tuple[Item, ...]]]:
    """(number of a kernel, its work items) of every turn, in call order.  UnsupportedError for a
    Plan with regions, whose rounds data may decide."""
    if plan.regions:
        raise UnsupportedError(f"plan {plan.name}: has regions; how often they run is not known")
    held = {p.name for p in plan.places if p.memory == machine.near.name}
    known: dict[int, tuple[Item, ...]] = {}
    for k, first, end in plan.turns or tuple((k, 0, 0) for k in range(len(plan.kernels))):
        kernel = plan.kernels[k]
        if k not in known:
            found = tuple(kernel_events(kernel, syms, held))
            where = workers_of(kernel, len(found), machine)
            known[k] = tuple(map(Item, range(len(found)), where, found))
        items = known[k] if plan.turns else known.pop(k)
        yield k, tuple(items[i] for i in turn_items(kernel, len(items), first, end))


__all__ = ["ARRIVE", "COMPUTE", "WAIT", "Event", "Item", "Named", "kernel_events", "plan_events",
           "workers_of"]
