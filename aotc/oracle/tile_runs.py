"""Register tiles executed in numpy: tables of rows, points, and the sums of one tile."""

from collections.abc import Callable, Sequence

import numpy as np

from aotc.ir.dtypes import BF16, DTYPES, Array, from_bf16
from aotc.ir.expr import Expr, Var
from aotc.ir.numbers.byte_panels import HEAD, LANE, group_room
from aotc.ir.numbers.group_bytes import weights_at
from aotc.ir.numbers.grouped import MIDDLE, Grouping
from aotc.ir.statements import ACC_TILE, OWN, SUMS, Alloc, Body, Range
from aotc.ir.tile_statements import Point, RowTable, Tile, dot_step
from aotc.oracle.eval_expr import EvalScope as Values
from aotc.oracle.plan_memory import PlanMemory

CHUNK = 1 << 22  # elements of one operand that are gathered at once
Place = tuple[str, Array]  # (buffer, element offset)


class TileRuns(Values):
    """The statements of ``tile_statements.py``.  ``locals``: arrays of a work item by name, their
    elements in the first dimension; ``points``: places by name; ``table``: (buffer, its offsets,
    where a row is not, what is read there) of every tap and row."""

    memory: PlanMemory
    shape: tuple[int, ...]
    mask: Array | None
    names: dict[str, Array]
    now: Callable[[Expr], Array]
    full: Callable[[Array], Array]
    body: Callable[[Body], None]
    inside: Callable[[tuple[int, ...], Array | None, Callable[[], None]], None]

    def __init__(self, *args: object, **fields: object) -> None:
        super().__init__(*args, **fields)  # type: ignore[arg-type]
        self.locals: dict[str, Array] = {}
        self.points: dict[str, Place] = {}
        self.table: tuple[str, Array, Array | None, str] | None = None

    def alloc(self, s: Alloc) -> None:
        """An array of which nothing is known yet."""
        self.locals[s.name] = np.zeros((s.elements, *self.shape), DTYPES[s.dtype].numpy)

    def local_read(self, name: str, index: Array) -> Array:
        """Elements of a local array, each of what runs side by side from its own."""
        array = self.locals[name]
        inner = np.ogrid[tuple(slice(n) for n in array.shape[1:])]
        if np.any(index < 0) or np.any(index >= array.shape[0]):
            index = np.clip(index, 0, array.shape[0] - 1)  # lanes that do not exist
        found: Array = array[(index, *inner)]
        return found

    def local_write(self, name: str, index: Array, x: Array) -> None:
        """Store elements of a local array, those of what runs side by side in its own."""
        array = self.locals[name]
        inner = np.ogrid[tuple(slice(n) for n in array.shape[1:])]
        at: Sequence[Array] = np.broadcast_arrays(index, *inner)
        if self.mask is not None:
            live = np.broadcast_to(self.mask, self.shape)
            at, x = [i[live] for i in at], x[live]
        array[tuple(at)] = x

    def point(self, s: Point) -> None:
        buffer, offset = "", np.asarray(0)
        for cond, at in reversed(s.ways):
            base, first = self.points.get(at.buffer, (at.buffer, np.asarray(0)))
            place = first + self.now(at.offset)
            offset = place if cond is None else np.where(self.now(cond), place, offset)
            buffer = buffer or base
        self.points[s.name] = buffer, offset

    # ------------------------------------------------------------ rows

    def row_table(self, s: RowTable) -> None:
        lanes = [1] * len(self.shape)
        i = np.arange(s.mr, dtype=np.int64).reshape(-1, *lanes)
        count = self.now(s.count)
        number = np.minimum(self.now(Var(f"{OWN}m0")) + i, count - 1)
        axes: dict[str, Array] = {}
        for r in reversed(s.rows):
            lo, hi = self.now(r.lo), self.now(r.hi)
            size = np.maximum(hi - lo, 1)
            axes[r.axis.name] = lo + number % size if r is not s.rows[0] else lo + number
            number = number // size
        self.names |= {f"{OWN}i": i, **axes}
        if s.body:
            self.inside((s.mr,), None, lambda: self.body(s.body))
        offsets, holes = [], []

        def one() -> None:
            offsets.append(self.full(self.now(s.offset)))
            if s.guard is not None:
                holes.append(~self.full(self.now(s.guard)))

        self._each(s.taps, lambda: self.inside((s.mr,), None, one))
        self.table = (s.buffer, np.stack(offsets), np.stack(holes) if holes else None, s.outside)
        for a in s.values:
            self.locals[f"{OWN}{a.name}_at"] = np.array(np.broadcast_to(
                axes[a.name], (s.mr, *self.shape)))

    def _each(self, ranges: tuple[Range, ...], run: Callable[[], None]) -> None:
        """``run`` for every point of constant ranges, in order."""
        if not ranges:
            run()
            return
        first, *rest = ranges
        for v in range(int(self.now(first.lo)), int(self.now(first.hi))):
            self.names[first.axis.name] = np.asarray(v, np.int64)
            self._each(tuple(rest), run)

    # ------------------------------------------------------------ sums

    def tile(self, s: Tile) -> None:
        if s.micro.unit:
            assert self.table is not None, s
            self.memory.at_unit(s.micro.unit, (self.table[0], self.points[s.b.point][0]))
        kind = DTYPES[s.micro.dtypes.sums].numpy
        taps, kc = int(self.now(s.taps)), self.now(s.kc)
        steps = dot_step(s.micro.dtypes.a)
        most = int(np.max(kc)) * steps
        shape = (s.micro.mr, s.micro.nr, *self.shape)
        sums = np.zeros(shape, kind)
        if s.start is not None:
            j = self._columns(s)
            sums += self._live(s.start.buffer, self.now(s.start.offset) + j, self._there(s, j))
        piece = max(1, CHUNK // max(int(np.prod(shape[1:])), 1))
        for tap in range(taps):
            for first in range(0, most, piece):
                k = np.arange(first, min(first + piece, most)).reshape(
                    -1, *[1] * (len(self.shape) + 1))
                live = k < kc * steps
                a, b = self._a(s, tap, k, live), self._b(s, tap, k, live, kc * steps)
                if s.micro.grouping is not None and s.micro.dtypes.a == "u8":  # a row of bytes
                    a = np.where(live, a.astype(np.int32) - MIDDLE, 0)
                sums[:a.shape[1]] += np.einsum("km...,kn...->mn...", *(
                    from_bf16(x) if t == BF16 else x.astype(kind)
                    for x, t in zip((a, b), s.micro.dtypes)))
        if s.live:
            sums[s.live:] = np.nan if kind == np.float32 else -1  # nobody may look at them
        found = sums.reshape(-1, *self.shape)
        if s.in_place:
            self.locals[SUMS] = found
            return
        array = self.locals[ACC_TILE]  # of several tiles of which one runs: the others' stay
        array[...] = found if self.mask is None else np.where(self.mask, found, array)

    def _live(self, buffer: str, at: Array, live: Array | None) -> Array:
        """Elements of a buffer where they are live, zero elsewhere."""
        if self.mask is not None:
            live = self.mask if live is None else live & self.mask
        found = self.memory.read(buffer, at, live)
        return found if live is None else np.where(live, found, 0)

    def _a(self, s: Tile, tap: int, k: Array, live: Array) -> Array:
        """A of every step and row: (steps, rows, ...)."""
        at = self.now(s.a.first) + k * self.now(s.a.step)
        if s.a.places:
            rows = [self._live(r.buffer, self.now(r.offset) + at[:, 0], live[:, 0])
                    for r in s.a.places]
            return np.stack([np.broadcast_to(r, (len(k), *self.shape)) for r in rows], axis=1)
        assert self.table is not None, s
        buffer, offsets, holes, outside = self.table
        here = self._deeper(offsets[tap])
        full = (len(k), s.micro.mr, *self.shape)
        there = np.broadcast_to(live, full)
        if holes is None:
            return np.broadcast_to(self._live(buffer, here + at, there), full)
        hole = np.broadcast_to(self._deeper(holes[tap]), full)
        found = self._live(buffer, here + at, there & ~hole)
        if not outside:
            return np.broadcast_to(found, full)
        return np.where(hole, self._live(outside, np.broadcast_to(at, full), there & hole), found)

    def _deeper(self, x: Array) -> Array:
        """What is known per row where less runs side by side than by now."""
        more = [1] * (len(self.shape) + 1 - x.ndim)
        return x.reshape(x.shape[0], *more, *x.shape[1:])

    def _columns(self, s: Tile) -> Array:
        return np.arange(s.micro.nr).reshape(-1, *[1] * len(self.shape))

    def _there(self, s: Tile, j: Array) -> Array | None:
        return j < self.now(s.b.left)

    def _b(self, s: Tile, tap: int, k: Array, live: Array, depth: Array) -> Array:
        """B of every step and column: (steps, columns, ...)."""
        buffer, first = self.points[s.b.point]
        j = self._columns(s)
        if s.micro.grouping is not None:
            own = self._grouped if s.micro.dtypes.a == "f32" else self._expanded
            return own(s, s.micro.grouping, k, live)
        step = dot_step(s.micro.dtypes.a)
        if step > 1:
            k = k + tap * depth
            at = (k // step * (s.micro.nr) + j) * step + k % step
        else:
            at = tap * self.now(s.b.tap_step) + k * self.now(s.b.step) + j
        live = live & (j < self.now(s.b.left)) if s.b.masked else live
        found = self._live(buffer, first + at, np.broadcast_to(
            live, np.broadcast_shapes(live.shape, at.shape, self.shape)))
        return np.broadcast_to(found, (len(k), s.micro.nr, *self.shape))

    def _expanded(self, s: Tile, g: Grouping, k: Array, live: Array) -> Array:
        """B of grouped weights in a panel of bytes: (steps, columns, ...)."""
        buffer, first = self.points[s.b.point]
        j, nr = self._columns(s), s.micro.nr
        step = dot_step(s.micro.dtypes.a)
        width = LANE // step
        group = first + k // g.size * (group_room(g, step) * nr)

        def byte(at: Array) -> Array:
            there = np.broadcast_to(live, np.broadcast_shapes(live.shape, at.shape, self.shape))
            return self._live(buffer, at, there)
        at = group + HEAD * nr + (k % g.size // step * nr + j) * LANE + k % step * width
        number = np.stack([byte(at + i).astype(np.uint8) for i in range(width)], axis=-1)
        bits = sum((byte(group + 4 * (nr + j) + i).astype(np.uint32) << np.uint32(8 * i)
                    for i in range(4)), np.zeros((), np.uint32))
        scale = np.ascontiguousarray(bits).view(np.float32)
        found = number.view(f"i{width}")[..., 0].astype(np.float32) * scale
        return np.broadcast_to(found, (len(k), nr, *self.shape))

    def _grouped(self, s: Tile, g: Grouping, k: Array, live: Array) -> Array:
        """B of grouped weights: (steps, columns, ...)."""
        buffer, first = self.points[s.b.point]
        nr = s.micro.nr

        def row(number: Array | int) -> Array:
            at = first + (k // g.size * g.rows + number) * nr + self._columns(s)
            there = np.broadcast_to(live, np.broadcast_shapes(live.shape, at.shape, self.shape))
            return self._live(buffer, at, there)
        found = weights_at(g, k, row)
        return np.broadcast_to(found, (len(k), nr, *self.shape))


__all__ = ["TileRuns"]
