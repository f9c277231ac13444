"""How many bytes statements store in workers' own memory, of all work items of a kernel side by
side: a number that follows from loops and stores alone.  (How many they load does not: a vector
keeps in registers what it needs again, and data may decide a branch.)"""

from collections.abc import Callable, Set

import numpy as np

from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES, INDEX, Array
from aotc.ir.expr import Expr, Load, Var, walk
from aotc.ir.statements import (
    OWN,
    Body,
    Copy,
    Fill,
    For,
    If,
    Let,
    Put,
    Stmt,
    Store,
    bodies,
    walk_body,
)
from aotc.ir.tile_statements import Pack, Vector

_STORES = (Store, Fill, Copy, Pack)


class StoredBytes:
    """``of`` a body: the bytes that live work items store to buffers of ``near``.  ``by``: the
    value of an expression by ``names``, which loops and Lets in the body change."""

    def __init__(self, near: Set[str], names: dict[str, Array],
                 by: Callable[[dict[str, Array], Expr], Array]) -> None:
        self.near, self.names, self.by = near, names, by

    def now(self, e: Expr) -> Array:
        return self.by(self.names, e)

    def of(self, body: Body, live: Array, each: Array | int = 1) -> Array:
        """``each``: elements of a store, a vector's."""
        total = np.zeros(len(live), np.int64)
        for n, s in enumerate(body):
            if not any(isinstance(x, _STORES) for x in walk_body(body[n:])):
                break
            if isinstance(s, Let):
                if s.var.dtype == INDEX and not _by_data(s.value):
                    self.names[s.var.name] = self.now(s.value)
            elif isinstance(s, For):
                total += self._loop(s, live, each)
            elif isinstance(s, If):
                holds = self.now(s.cond).astype(bool)
                total += self.of(s.body, live & holds, each)
                total += self.of(s.other, live & ~holds, each)
            elif isinstance(s, _STORES):
                total += np.where(live, self._stored(s, each), 0)
            else:
                width = self._width(s) if isinstance(s, Vector) else each
                for _, inner in bodies(s):
                    total += self.of(inner, live, width)
        return total

    def _width(self, s: Vector) -> Array | int:
        return s.lanes if s.live is None else np.clip(self.now(s.live), 0, s.lanes)

    def _stored(self, s: Stmt, each: Array | int) -> Array | int:
        """What one statement stores."""
        if isinstance(s, Store):
            return sum(self._put(p) * each for p in s.puts)
        if isinstance(s, Pack):
            elements: Array = self.now(s.depth) * self.now(s.columns)
            return self._size(s.to, s.dtype) * np.maximum(elements, 0)
        if isinstance(s, Fill):
            return self._size(s.buffer, s.value.dtype) * np.maximum(self.now(s.count), 0)
        assert isinstance(s, Copy), s
        size = 0 if s.engine else self._size(s.to.buffer, s.dtype)
        return size * np.maximum(self.now(s.extents[0]), 0)

    def _put(self, p: Put) -> Array | int:
        size = self._size(p.buffer, p.value.dtype)
        return size if p.guard is None else size * self.now(p.guard).astype(bool)

    def _size(self, buffer: str, dtype: str) -> int:
        """Bytes of an element, where it is stored in workers' own memory."""
        near = buffer in self.near and not buffer.startswith(OWN)
        return DTYPES[dtype].size if near else 0

    def _loop(self, s: For, live: Array, each: Array | int) -> Array:
        lo, hi = self.now(s.lo), self.now(s.hi)
        span = np.where(live, np.maximum(hi - lo, 0), 0)
        turns, width = -(-span // s.step), s.width if s.kind == "lanes" and s.step > 1 else each
        rest = span % s.step if s.rest else np.zeros_like(span)
        turns = np.where(rest > 0, turns - 1, turns)
        total = np.zeros(len(live), np.int64)
        for body, first, count, step in ((s.body, lo, turns, s.step),
                                         (s.rest, lo + turns * s.step, rest, 1)):
            if s.axis.name in _deciding(body):
                for turn in range(int(count.max(initial=0))):
                    self.names[s.axis.name] = first + turn * step
                    total += self.of(body, live & (turn < count), width)
            elif body:
                self.names[s.axis.name] = first
                total += count * self.of(body, live & (count > 0), width)
        return total


def _by_data(e: Expr) -> bool:
    return any(isinstance(x, (Load, Var)) for x in walk(e))


def _deciding(body: Body) -> frozenset[str]:
    """The names that decide how often a body's statements run, and how much they store."""
    found: set[str] = set()
    lets: dict[str, Expr] = {}
    for s in walk_body(body):
        if isinstance(s, Let):
            lets[s.var.name] = s.value
        asked: tuple[Expr | None, ...] = ()
        if isinstance(s, For):
            asked = s.lo, s.hi
        elif isinstance(s, If):
            asked = s.cond,
        elif isinstance(s, Store):
            asked = tuple(p.guard for p in s.puts)
        elif isinstance(s, Pack):
            asked = s.depth, s.columns
        elif isinstance(s, Fill):
            asked = s.count,
        elif isinstance(s, Copy):
            asked = s.extents
        for e in asked:
            found |= set(names_in(e)) if e is not None else set()
    todo = list(found)
    while todo:
        name = todo.pop()
        new = set(names_in(lets[name])) - found if name in lets else set()
        found |= new
        todo += new
    return frozenset(found)


__all__ = ["StoredBytes"]
