"""The third oracle: a Plan's statements executed in numpy.

    run_plan(plan, feeds) -> {output buffer: array}

Statements mean what ``ir/statements.py`` says, work item after work item.  Loops whose iterations
do not depend on each other run side by side, a dimension of the arrays each (that of the innermost
loop comes first), and folds over such a dimension are reductions; others run one iteration after
the other.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.expr import Axis, Expr, Load, Var
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.kernel.plan_stages import Call
from aotc.ir.library import LIBRARY, item
from aotc.ir.numbers.byte_panels import HEAD, LANE, group_room
from aotc.ir.numbers.group_bytes import numbers_at, weights_at
from aotc.ir.numbers.grouped import MIDDLE
from aotc.ir.plan import Plan, turn_items
from aotc.ir.program import neutral_value
from aotc.ir.statements import (
    OWN,
    TILE,
    WORKERS,
    Accumulate,
    Body,
    Copy,
    Declare,
    Fill,
    First,
    For,
    If,
    Let,
    Prefetch,
    Scope,
    Section,
    Spread,
    Start,
    Stmt,
    Store,
    Total,
    Update,
    Wait,
)
from aotc.ir.tile_statements import (
    Expand,
    Pack,
    RowCounters,
    Vector,
    dot_step,
)
from aotc.oracle.eval_expr import Guard, index_value
from aotc.oracle.evaluate import COMBINE
from aotc.oracle.plan_memory import PlanMemory
from aotc.oracle.row_runs import RowRuns
from aotc.oracle.run_regions import Calls
from aotc.oracle.side_by_side import may_run_at_once

CALLED_WITH = 3  # workers: odd, so that work items are made more and smaller


def run_plan(plan: Plan, feeds: Mapping[str, Array],
             syms: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Outputs ``{buffer name: array}`` of a Plan.

    feeds: array per input, by the name of its place.  syms: values of symbols by name.
    InterpreterError, naming kernel and statement, for an access outside of a buffer and a read of
    what nothing stored, or what another buffer's stores went over; FaultError for values from data
    that break a rule."""
    known = {WORKERS.name: CALLED_WITH, **(syms or {})}

    def number(e: object) -> int:
        return int(e) if isinstance(e, int) else index_value(e, known)  # type: ignore[arg-type]

    memory = PlanMemory(plan, feeds, number)

    def run(kernel: Kernel, first: int = 0, end: int = 0) -> None:
        count = number(kernel.tiles)
        _Run(plan, kernel, memory, known).run(count, turn_items(kernel, count, first, end))

    with np.errstate(all="ignore"):
        for k, *own in plan.turns:
            run(plan.kernels[k], *own)
        if not plan.turns:
            Calls(plan, memory, known, number, run).all()
    memory.end()
    return {p.name: memory.regions[p.name].values.reshape([number(d) for d in p.shape])
            for p in plan.places if p.storage == "output"}


class _Run(RowRuns):
    """One kernel at work.  ``shape``: of what runs side by side; ``mask``: which of that really
    does (None: all); ``cells``: names that statements change."""

    def __init__(self, plan: Plan, kernel: Kernel, memory: PlanMemory,
                 syms: Mapping[str, int]) -> None:
        super().__init__({}, None, syms, origin=kernel.origin)
        self.plan, self.kernel, self.memory = plan, kernel, memory
        self.shape: tuple[int, ...] = ()
        self.mask: Array | None = None
        self.names: dict[str, Array] = {}
        self.cells: dict[str, Array] = {}

    def run(self, tiles: int, items: Sequence[int]) -> None:
        """Work items of ``tiles``, one after the other."""
        self.memory.enter(self.kernel)
        self.cells = {a.name: np.zeros((), np.int64) for a in self.kernel.kept}
        clusters = max(1, self.kernel.clusters)
        for tile in items:
            if not self.kernel.kept:
                self.memory.enter(self.kernel)
            cluster, workers = tile * clusters // tiles, max(1, self.plan.cores)
            first = -(-cluster * tiles // clusters)
            self.memory.begin(cluster, cluster * workers + (tile - first) % workers)
            self.names = {TILE.name: np.asarray(tile, np.int64)}
            self.body(self.kernel.body)
            self.memory.leave()

    # ------------------------------------------------------------ values

    def value(self, e: Expr, guard: Guard | None = None) -> Array:
        """Array of ``e``, broadcastable to ``shape``."""
        guard = guard or self.top
        found = guard.find(e)
        if found is None:
            found = guard.memo[e] = self._own(e, guard) if isinstance(
                e, (Axis, Var, Load)) else super().value(e, guard)
        return found

    def _own(self, e: Axis | Var | Load, guard: Guard) -> Array:
        if isinstance(e, Load):
            index = self.value(e.index[0], guard)
            if e.buffer.startswith(OWN) and e.buffer not in self.memory.block_arrays:
                return self.local_read(e.buffer, index)
            return self.memory.read(e.buffer, index, guard.mask)
        name = e.name.removeprefix(OWN) if e.name.startswith(2 * OWN) else e.name
        name = name.removeprefix(OWN) if e.name.startswith(2 * OWN) else name
        found = self.cells.get(name)
        found = self.names.get(name) if found is None else found
        if found is None:
            raise self.memory.fault(f"{e.name} is not bound")
        return found

    def now(self, e: Expr) -> Array:
        """The value of an expression as things stand."""
        self.top = Guard(self.mask)
        return self.value(e)

    def full(self, x: Array) -> Array:
        return np.broadcast_to(x, self.shape)

    # ------------------------------------------------------------ control

    def body(self, body: Body) -> None:
        """The statements of a body; the names that they bind end with it."""
        names, locals_ = dict(self.names), dict(self.locals)
        cells = set(self.cells)
        for s in body:
            self.memory.at = f"kernel {self.kernel.name}, {s.lines()[0]}"
            run: Callable[[Stmt], None] = getattr(self, s.METHOD)
            run(s)
        self.names, self.locals = names, locals_
        for name in set(self.cells) - cells:
            del self.cells[name]

    def inside(self, shape: tuple[int, ...], mask: Array | None, run: Callable[[], None]) -> None:
        """``run`` with more running side by side, and where ``mask`` holds only."""
        outer = self.shape, self.mask
        self.shape = (*shape, *self.shape)
        if mask is not None:
            self.mask = mask if self.mask is None else self.mask & mask
        if self.mask is None or np.any(self.mask):
            run()
        self.shape, self.mask = outer

    def loop(self, s: For) -> None:
        lo, hi = self.now(s.lo), self.now(s.hi)
        count = int(np.max(-(-(hi - lo) // s.step), initial=0)) if not s.rest else int(
            np.max((hi - lo) // s.step, initial=0))
        whole = lo + np.maximum(hi - lo, 0) // s.step * s.step
        end = whole if s.rest else hi
        self._turns(s, s.body, lo, end, s.step, count)
        if s.rest:
            self._turns(s, s.rest, whole, hi, 1, int(np.max(hi - whole, initial=0)))

    def _turns(self, s: For, body: Body, lo: Array, hi: Array, step: int, count: int) -> None:
        if count <= 0:
            return
        if may_run_at_once(s, body, count * max(int(np.prod(self.shape)), 1)):
            turns = [np.arange(count, dtype=np.int64).reshape(-1, *[1] * len(self.shape))]
            shape: tuple[int, ...] = (count,)
        else:
            turns, shape = [np.asarray(t, np.int64) for t in range(count)], ()
        for t in turns:
            at = lo + t * step
            mask = None if np.all(at < hi) else at < hi
            if s.kind == "lanes" and s.step > 1:  # vectors, from their first lanes on
                at = at + np.arange(s.width).reshape(-1, *[1] * (len(self.shape) + len(shape)))
                shape = (s.width, *shape)
            self.inside(shape, mask, partial(self._bound, s.axis, at, body))

    def _bound(self, axis: Axis, at: Array, body: Body) -> None:
        before = self.names.get(axis.name)
        self.names[axis.name] = at
        self.body(body)
        if before is not None:
            self.names[axis.name] = before

    def spread(self, s: Spread) -> None:
        body: Body = s.body
        for r in reversed(s.ranges):
            body = (For(r.axis, r.lo, r.hi, body),)
        self.body(body)

    def condition(self, s: If) -> None:
        cond = self.full(self.now(s.cond))
        self.inside((), cond, lambda: self.body(s.body))
        if s.other:
            self.inside((), ~cond, lambda: self.body(s.other))

    def section(self, s: Section | Scope | First) -> None:
        self.body(s.body)

    scope = first = section

    def prefetch(self, s: Prefetch) -> None:
        """Changes nothing."""

    def row_counters(self, s: RowCounters) -> None:
        """A ``RowTable`` counts its rows by itself."""

    def vector(self, s: Vector) -> None:
        lane = np.arange(s.lanes).reshape(-1, *[1] * len(self.shape))
        live = None if s.live is None else np.broadcast_to(
            lane < self.now(s.live), (s.lanes, *self.shape))
        at = self.now(s.first) + lane
        self.inside((s.lanes,), live, lambda: self._bound(s.axis, at, s.body))

    # ------------------------------------------------------------ names and folds

    def let(self, s: Let) -> None:
        self.names[s.var.name] = self.now(s.value)

    def start(self, s: Start) -> None:
        self.cells[s.var.name] = np.full(self.shape, neutral_value(s.fold, s.var.dtype).value,
                                         DTYPES[s.var.dtype].numpy)

    def declare(self, s: Declare) -> None:
        self.cells[s.var.name] = np.array(self.full(self.now(s.value)))

    def accumulate(self, s: Accumulate) -> None:
        for v, e in s.steps:
            self._join(s.fold, v, self.now(e))

    def total(self, s: Total) -> None:
        if s.threads:
            return  # one thread stands for all of them here
        if s.joins:
            self._join("sum", s.var, self.now(s.source))
        else:
            self.names[s.var.name] = self.now(s.source)

    def _join(self, fold: str, var: Var, x: Array) -> None:
        """Fold ``x`` into a cell, over all that runs side by side within its shape."""
        cell = self.cells[var.name]
        x = np.broadcast_to(x.astype(cell.dtype), self.shape)
        if self.mask is not None:
            x = np.where(self.mask, x, neutral_value(fold, var.dtype).value).astype(cell.dtype)
        inner = tuple(range(len(self.shape) - cell.ndim))
        ufunc = COMBINE[fold]
        x = ufunc.reduce(x, axis=inner, dtype=cell.dtype) if inner else x
        self.cells[var.name] = ufunc(cell, x).astype(cell.dtype)

    def update(self, s: Update) -> None:
        new = [np.array(self.full(self.now(e))) for e in s.values]
        for v, x in zip(s.vars, new):
            old = self.cells[v.name]
            self.cells[v.name] = (x if self.mask is None else np.where(
                self.mask, x, old)).astype(old.dtype)

    # ------------------------------------------------------------ memory

    def store(self, s: Store) -> None:
        found = [(p, self.full(self.now(p.offset)), self.full(self.now(p.value))) for p in s.puts]
        for p, at, x in found:
            if p.buffer in self.locals:
                self.local_write(p.buffer, at, x)
            else:
                self.memory.write(p.buffer, at, x, self.mask)

    def _grid(self, extents: tuple[Array, ...]) -> tuple[list[Array], Array | None]:
        """Indices of a box of extents, which may differ between what runs side by side, each with
        a dimension in front, and where they are in the box."""
        most = [int(np.max(n, initial=0)) for n in extents]
        index: list[Array] = []
        live: Array | None = None
        for d, n in enumerate(extents):
            shape = [1] * len(extents)
            shape[d] = most[d]
            i = np.arange(most[d]).reshape(*shape, *[1] * len(self.shape))
            index.append(i)
            inside = i < n
            live = inside if live is None else live & inside
        return index, live

    def copy(self, s: Copy) -> None:
        index, live = self._grid(tuple(self.now(n) for n in s.extents))
        at = []
        for box in (s.to, s.source):
            place = self.now(box.offset)
            for i, step in zip(index, box.strides):
                place = place + i * self.now(step)
            at.append(place)
        live = live if self.mask is None else live & self.mask
        if s.engine:
            self.memory.start(s.engine, s.token, (s.to.buffer, at[0]),
                              (s.source.buffer, at[1]), live)
            return
        self.memory.write(s.to.buffer, at[0], self.memory.read(s.source.buffer, at[1], live), live)

    def wait(self, s: Wait) -> None:
        self.memory.wait(s.token, s.memory)

    def fill(self, s: Fill) -> None:
        (i,), live = self._grid((self.now(s.count),))
        live = live if self.mask is None else live & self.mask
        self.memory.write(s.buffer, self.now(s.offset) + i, self.now(s.value), live)

    def pack(self, s: Pack) -> None:
        width, depth, g = np.asarray(s.width), self.now(s.depth), s.group
        (k, j), live = self._grid((-(-depth // g) * g, width))
        live = live if self.mask is None else live & self.mask
        there = (j < self.now(s.columns)) & (k < depth)
        there = there if live is None else there & live
        fast, slow = (j, k) if s.across else (k, j)
        at = self.now(s.offset) + slow * self.now(s.step) + fast
        x = np.where(there, self.memory.read(s.source, at, there), 0)
        x = x.astype(np.float32) if g == 1 else x
        self.memory.write(s.to, k // g * g * s.width + j * g + k % g, x, live)

    def expand(self, s: Expand) -> None:
        if s.dtype != "f32":
            self.expand_integers(s)
            return
        (k, j), live = self._grid((self.now(s.depth), np.asarray(s.width)))
        live = live if self.mask is None else live & self.mask
        first = self.now(s.offset) + j

        def row(number: Array | int) -> Array:
            at = first + (k // s.grouping.size * s.grouping.rows + number) * s.width
            return np.asarray(self.memory.read(s.source, at, live))
        self.memory.write(s.to, k * s.width + j, weights_at(s.grouping, k, row), live)

    def expand_integers(self, s: Expand) -> None:
        """Group by group, all groups and columns side by side."""
        g, nr = s.grouping, s.width
        depth, step = self.now(s.depth), dot_step(s.dtype)
        kind = np.dtype(f"i{LANE // step}")
        (group, j), live = self._grid(((depth + g.size - 1) // g.size, np.asarray(nr)))
        live = live if self.mask is None else live & self.mask
        source = self.now(s.offset) + group * (g.rows * nr) + j
        to = group * (group_room(g, step) * nr)

        def row(number: Array | int) -> Array:
            return np.asarray(self.memory.read(s.source, source + number * nr, live))

        def put(first: int, values: Array) -> None:
            """Four bytes a column each, from a byte of a group on."""
            bytes_of = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, 4)
            for i in range(4):
                self.memory.write(s.to, to + first + 4 * j + i, bytes_of[..., i], live)
        total = np.zeros(1, np.int32)
        for first in range(0, g.size, step):
            side = []
            for k in range(first, first + step):
                number, scale = numbers_at(g, np.asarray(k), row)
                side.append(np.where(group * g.size + k < depth, number, 0).astype(kind))
            total = total + sum(x.astype(np.int32) for x in side)
            put((HEAD + first * LANE // step) * nr, np.stack(side, axis=-1).view(np.int32)[..., 0])
        put(0, (-MIDDLE * total * (s.dtype == "u8")).astype(np.int32))
        put(4 * nr, np.broadcast_to(scale, total.shape))

    # ------------------------------------------------------------ whole kernels

    def call(self, s: Call) -> None:
        row = LIBRARY[s.kernel]
        numbers = [int(self.now(e)) for e in s.numbers]
        arrays, items = [], [numbers.pop(0)] if row.rows > 1 else []
        for box, inner in zip(s.operands, row.inner):
            many, one = item(self.plan.place(box.buffer).shape, inner)
            shape = (items if many else []) + [index_value(d, self.syms) for d in one]
            first, size = int(self.now(box.offset)), int(np.prod(shape, dtype=np.int64))
            arrays.append((box.buffer, first + np.arange(size), shape))
        outs = len(row.outs)
        inputs = [self.memory.read(b, places, None).reshape(n) for b, places, n in arrays[:-outs]]
        attrs = dict(zip(row.attrs + row.numbers, numbers[len(row.sizes):]))
        made = row.run(attrs, inputs, [tuple(n) for _, _, n in arrays[-outs:]])
        for (b, places, _), x in zip(arrays[-outs:], made):
            self.memory.write(b, places, np.asarray(x).reshape(-1), None)
