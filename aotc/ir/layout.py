"""Layout: how a stored tensor's elements are placed, as a value.

A layout is a sequence of primitives over a tensor's dimensions (ALT's vocabulary); the stored
array is row-major over the dimensions that come out.  ``N C H W`` under ``Split(1, (4, 16)),
Reorder((0, 1, 3, 4, 2))`` prints as ``N C/16 H W C%16``.  The same value rewrites shapes, index
expressions and numpy arrays, so a schedule, the interpreter and the emitted code cannot disagree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import numpy as np

from aotc.errors import ScheduleError
from aotc.ir.dtypes import Array
from aotc.ir.expr import (
    Const,
    Expr,
    ExprLike,
    Shape,
    all_hold,
    as_expr,
    compare,
    minimum,
    show,
)
from aotc.ir.simplify import are_equal, lower, simplify

Dims = list[Expr]  # an expression per dimension
LayoutJson = tuple[tuple[Any, ...], ...]  # (kind, its fields in order) per primitive


def _dim(what: object, dim: int, rank: int) -> None:
    if not 0 <= dim < rank:
        raise ScheduleError(f"layout: {what}: dimension {dim}; legal: 0..{rank - 1}")


@dataclass(frozen=True)
class Split:
    """Dimension ``dim`` becomes ``len(factors)`` dimensions, outermost first.  One factor may be
    -1: what the others leave.  The product must be the extent exactly; Pad first if it is not."""

    dim: int
    factors: tuple[int, ...]

    def resolved(self, extent: Expr) -> Dims:
        known = prod(f for f in self.factors if f != -1)
        rest = simplify(extent // max(known, 1))
        bad = [f for f in self.factors if f < 1 and f != -1] or self.factors.count(-1) > 1
        whole = known > 0 and are_equal(rest * known, extent)
        if bad or not self.factors or not whole or (-1 not in self.factors
                                                    and not are_equal(rest, as_expr(1))):
            raise ScheduleError(f"layout: {self}: factors must multiply to {show(extent)}"
                                + _split_advice(extent, self.dim, known))
        return [rest if f == -1 else as_expr(f) for f in self.factors]

    def shape(self, shape: Dims) -> Dims:
        _dim(self, self.dim, len(shape))
        return shape[:self.dim] + self.resolved(shape[self.dim]) + shape[self.dim + 1:]

    def index(self, index: Dims, shape: Dims) -> Dims:
        factors, i, inner = self.resolved(shape[self.dim]), index[self.dim], as_expr(1)
        out: Dims = []
        for k in range(len(factors) - 1, -1, -1):
            at = i // inner
            out.insert(0, at % factors[k] if k else at)
            inner = inner * factors[k]
        return index[:self.dim] + out + index[self.dim + 1:]

    def inverse(self, index: Dims, shape: Dims) -> Dims:
        factors, at = self.resolved(shape[self.dim]), as_expr(0)
        end = self.dim + len(factors)
        for i, f in zip(index[self.dim:end], factors):
            at = at * f + i
        return index[:self.dim] + [at] + index[end:]

    def apply(self, array: Array) -> Array:
        return array.reshape(_ints(self.shape(list(map(as_expr, array.shape)))))

    def unapply(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape(shape)

    def names(self, names: list[str]) -> list[str]:
        name, out = names[self.dim], []
        for k in range(len(self.factors)):
            inner = prod(self.factors[k + 1:])
            at = f"{name}/{inner}" if inner != 1 else name
            out.append(at if k == 0 else f"{at}%{self.factors[k]}")
        return names[:self.dim] + out + names[self.dim + 1:]


def _split_advice(extent: Expr, dim: int, known: int) -> str:
    value = getattr(extent, "value", None)
    if value is None or known < 1:
        return "; a symbolic extent splits only by what provably divides it"
    legal = [d for d in range(1, min(value, 512) + 1) if value % d == 0]
    more = -value % known
    pad = f"; or Pad(dim={dim}, before=0, after={more}) first" if more else ""
    return f"; inner factors that divide it: {', '.join(map(str, legal))}{pad}"


@dataclass(frozen=True)
class Reorder:
    """New dimension q is old dimension ``perm[q]``, as in ``numpy.transpose``."""

    perm: tuple[int, ...]

    def check(self, rank: int) -> None:
        if sorted(self.perm) != list(range(rank)):
            raise ScheduleError(f"layout: {self}: must be a permutation of 0..{rank - 1}")

    def shape(self, shape: Dims) -> Dims:
        self.check(len(shape))
        return [shape[p] for p in self.perm]

    def index(self, index: Dims, shape: Dims) -> Dims:
        return [index[p] for p in self.perm]

    def inverse(self, index: Dims, shape: Dims) -> Dims:
        return [index[self.perm.index(d)] for d in range(len(self.perm))]

    def apply(self, array: Array) -> Array:
        self.check(array.ndim)
        return array.transpose(self.perm)

    def unapply(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.transpose(np.argsort(self.perm))

    def names(self, names: list[str]) -> list[str]:
        return [names[p] for p in self.perm]


@dataclass(frozen=True)
class Fuse:
    """``count`` dimensions from ``dim`` on become one, row-major."""

    dim: int
    count: int

    def shape(self, shape: Dims) -> Dims:
        _dim(self, self.dim, len(shape))
        if not 1 <= self.count <= len(shape) - self.dim:
            raise ScheduleError(f"layout: {self}: count must be in 1..{len(shape) - self.dim}")
        end, whole = self.dim + self.count, as_expr(1)
        for d in shape[self.dim:end]:
            whole = whole * d
        return shape[:self.dim] + [simplify(whole)] + shape[end:]

    def index(self, index: Dims, shape: Dims) -> Dims:
        end, at = self.dim + self.count, as_expr(0)
        for i, d in zip(index[self.dim:end], shape[self.dim:end]):
            at = at * d + i
        return index[:self.dim] + [at] + index[end:]

    def inverse(self, index: Dims, shape: Dims) -> Dims:
        i, inner = index[self.dim], as_expr(1)
        out: Dims = []
        for k in range(self.count - 1, -1, -1):
            at = i // inner
            out.insert(0, at % shape[self.dim + k] if k else at)
            inner = inner * shape[self.dim + k]
        return index[:self.dim] + out + index[self.dim + 1:]

    def apply(self, array: Array) -> Array:
        return array.reshape(_ints(self.shape(list(map(as_expr, array.shape)))))

    def unapply(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape(shape)

    def names(self, names: list[str]) -> list[str]:
        end = self.dim + self.count
        one = names[self.dim] if self.count == 1 else f"({'*'.join(names[self.dim:end])})"
        return names[:self.dim] + [one] + names[end:]


@dataclass(frozen=True)
class Unfold:
    """Overlapping tiles: a dimension becomes (tiles, size), tile t starts at ``stride*t``; the
    last tile's missing tail is zero.  Elements in an overlap are stored more than once."""

    dim: int
    size: int
    stride: int

    def tiles(self, extent: Expr) -> Expr:
        """Number of tiles; ScheduleError if the tiles do not cover the dimension."""
        fits = lower(extent - self.size)
        if not 1 <= self.stride <= self.size or fits is None or fits < 0:
            raise ScheduleError(f"layout: {self}: needs 1 <= stride <= size <= {show(extent)}")
        return simplify((extent - self.size + (self.stride - 1)) // self.stride + 1)

    def shape(self, shape: Dims) -> Dims:
        _dim(self, self.dim, len(shape))
        tiles = self.tiles(shape[self.dim])
        return shape[:self.dim] + [tiles, as_expr(self.size)] + shape[self.dim + 1:]

    def index(self, index: Dims, shape: Dims) -> Dims:
        i, tiles = index[self.dim], self.tiles(shape[self.dim])
        t = minimum(i // self.stride, tiles - 1)
        return index[:self.dim] + [t, i - t * self.stride] + index[self.dim + 1:]

    def inverse(self, index: Dims, shape: Dims) -> Dims:
        at = index[self.dim] * self.stride + index[self.dim + 1]
        return index[:self.dim] + [at] + index[self.dim + 2:]

    def apply(self, array: Array) -> Array:
        extent = array.shape[self.dim]
        tiles, = _ints([self.tiles(as_expr(extent))])
        tail = (tiles - 1) * self.stride + self.size - extent
        array = np.pad(array, [(0, tail if d == self.dim else 0) for d in range(array.ndim)])
        rows = np.arange(tiles)[:, None] * self.stride + np.arange(self.size)
        return np.take(array, rows, axis=self.dim)

    def unapply(self, array: Array, shape: tuple[int, ...]) -> Array:
        at = np.arange(shape[self.dim])
        t = np.minimum(at // self.stride, array.shape[self.dim] - 1)
        before = (slice(None),) * self.dim
        return array[before + (t, at - t * self.stride)]

    def names(self, names: list[str]) -> list[str]:
        name = f"{names[self.dim]}|{self.size}"
        return (names[:self.dim] + [f"{name}/{self.stride}", f"{name}%{self.stride}"]
                + names[self.dim + 1:])

    def window(self, i: ExprLike, r: ExprLike, length: int, step: int = 1) -> tuple[Expr, Expr]:
        """(tile, offset) of the sliding access ``T[step*i + r]``, 0 <= r < length, as index
        expressions.  Exact only if stride = step * windows per tile: ScheduleError otherwise."""
        per = (self.size - length) // step + 1
        if per < 1 or self.stride != step * per:
            raise ScheduleError(f"layout: {self}: windows of {length} with step {step} need "
                                f"stride {step * max(per, 1)} for size {max(self.size, length)}")
        tile = as_expr(i) // per
        return simplify(tile), simplify(as_expr(i) * step + r - tile * self.stride)


def unfold_for_tile(dim: int, tile: int, length: int, step: int = 1, dilation: int = 1) -> Unfold:
    """The Unfold of an input dimension whose tiles feed ``tile`` outputs of a sliding window each
    (``length`` taps, ``dilation`` apart, outputs ``step`` apart).  Windows shorter than their step
    leave elements that nobody reads; tiles hold those, too."""
    size = step * (tile - 1) + dilation * (length - 1) + 1
    return Unfold(dim, max(size, step * tile), step * tile)


@dataclass(frozen=True)
class Pad:
    """Zeros before and after; a logical index never names them."""

    dim: int
    before: int
    after: int

    def shape(self, shape: Dims) -> Dims:
        _dim(self, self.dim, len(shape))
        if self.before < 0 or self.after < 0:
            raise ScheduleError(f"layout: {self}: before and after must be >= 0")
        whole = simplify(shape[self.dim] + (self.before + self.after))
        return shape[:self.dim] + [whole] + shape[self.dim + 1:]

    def index(self, index: Dims, shape: Dims) -> Dims:
        return index[:self.dim] + [index[self.dim] + self.before] + index[self.dim + 1:]

    def inverse(self, index: Dims, shape: Dims) -> Dims:
        return index[:self.dim] + [index[self.dim] - self.before] + index[self.dim + 1:]

    def apply(self, array: Array) -> Array:
        self.shape(list(map(as_expr, array.shape)))
        width = (self.before, self.after)
        return np.pad(array, [width if d == self.dim else (0, 0) for d in range(array.ndim)])

    def unapply(self, array: Array, shape: tuple[int, ...]) -> Array:
        inside = slice(self.before, self.before + shape[self.dim])
        return array[(slice(None),) * self.dim + (inside,)]

    def names(self, names: list[str]) -> list[str]:
        grown = f"({self.before}+{names[self.dim]}+{self.after})"
        return names[:self.dim] + [grown] + names[self.dim + 1:]


@dataclass(frozen=True)
class StoreAt:
    """The tensor lives in a slot that dimension ``dim`` of another tensor ``host`` gains at its
    end: ``T[i]`` is ``host[.., slot, ..]``.  Must be the last primitive; its methods need the
    host, so ``Layout`` itself refuses it."""

    host: str
    dim: int

    def store(self, host: Array, array: Array) -> Array:
        """The host array with the tensor in its new slot."""
        if array.shape != host.shape[:self.dim] + host.shape[self.dim + 1:]:
            raise ScheduleError(f"layout: {self}: a tensor of shape {array.shape} does not fit a "
                                f"slot of {host.shape}; its shape must be the host's without "
                                f"dimension {self.dim}")
        return np.concatenate([host, np.expand_dims(array, self.dim)], self.dim)


Movement = Split | Reorder | Fuse | Unfold | Pad  # within the tensor
Primitive = Movement | StoreAt
_KINDS: dict[str, type[Primitive]] = {
    "split": Split, "reorder": Reorder, "fuse": Fuse, "unfold": Unfold, "pad": Pad,
    "store_at": StoreAt}


@dataclass(frozen=True)
class Layout:
    """A sequence of primitives, applied from left to right to the logical dimensions."""

    primitives: tuple[Primitive, ...] = ()

    def steps(self, shape: Sequence[ExprLike]) -> list[tuple[Movement, Dims]]:
        """Every primitive with the shape it is applied to."""
        return self._steps(shape)[0]

    def _steps(self, logical_shape: Sequence[ExprLike]) -> tuple[list[tuple[Movement, Dims]], Dims]:
        """(``steps``, the shape that comes out)."""
        shape = [as_expr(d) for d in logical_shape]
        out: list[tuple[Movement, Dims]] = []
        for p in self.primitives:
            if isinstance(p, StoreAt):
                raise ScheduleError(f"layout: {p} places a tensor inside {p.host}; use its own "
                                    "methods together with the host")
            out.append((p, shape))
            shape = p.shape(shape)
        return out, shape

    def shape(self, logical_shape: Sequence[ExprLike]) -> Shape:
        """Physical shape (tuple of expressions) of a logical shape (ints or expressions).
        ScheduleError names the primitive that does not fit and what would."""
        return tuple(self._steps(logical_shape)[1])

    def index(self, logical_index: Sequence[ExprLike], logical_shape: Sequence[ExprLike]) -> Shape:
        """Physical index expressions of a logical element (its first place under Unfold)."""
        index = [as_expr(i) for i in logical_index]
        for p, shape in self.steps(logical_shape):
            index = p.index(index, shape)
        return tuple(simplify(i) for i in index)

    def inverse_index(self, physical_index: Sequence[ExprLike],
                      logical_shape: Sequence[ExprLike]) -> Shape:
        """Logical index expressions of a physical place; meaningless where ``inside`` is false."""
        return self._inverse(physical_index, logical_shape)[0]

    def inside(self, physical_index: Sequence[ExprLike],
               logical_shape: Sequence[ExprLike]) -> Expr | None:
        """Condition under which a physical place holds an element and not padding; None if
        every place does.  A packing is ``Where(inside, Load(x, inverse_index), 0)``."""
        return all_hold(self._inverse(physical_index, logical_shape)[1])

    def _inverse(self, physical_index: Sequence[ExprLike],
                 logical_shape: Sequence[ExprLike]) -> tuple[Shape, list[Expr]]:
        index = [as_expr(i) for i in physical_index]
        conds: list[Expr] = []
        for p, shape in reversed(self.steps(logical_shape)):
            index = p.inverse(index, shape)
            if isinstance(p, (Pad, Unfold)):
                at = simplify(index[p.dim])
                both = (compare("ge", at, 0), compare("lt", at, shape[p.dim]))
                conds = [c for c in map(simplify, both) if c != Const(True, "bool")] + conds
        return tuple(simplify(i) for i in index), conds

    def apply(self, array: Array) -> Array:
        """The stored array of a logical numpy array (C-contiguous)."""
        for p, _ in self.steps(array.shape):
            array = p.apply(array)
        return np.asarray(array, order="C")  # keeps rank 0

    def unapply(self, array: Array, logical_shape: Sequence[ExprLike]) -> Array:
        """The logical array of a stored one; inverse of ``apply``."""
        steps, stored = self._steps(logical_shape)
        if array.shape != _ints(stored):
            raise ScheduleError(f"layout {self}: stored shape is {array.shape}, expected "
                                f"{_ints(stored)}")
        for p, shape in reversed(steps):
            array = p.unapply(array, _ints(shape))
        return np.asarray(array, order="C")  # keeps rank 0

    def then(self, other: "Layout") -> "Layout":
        """This layout followed by the primitives of another."""
        return Layout(self.primitives + other.primitives)

    @property
    def is_identity(self) -> bool:
        """True if no primitive moves anything."""
        return all(_idle(p) for p in self.primitives)

    def permutation(self, rank: int | None = None) -> tuple[int, ...] | None:
        """The transposition it amounts to, as in ``numpy.transpose``; None if it does more.
        The identity gives ``range(rank)``, or () if no rank is given."""
        moving = [p for p in self.primitives if not _idle(p)]
        live = [p for p in moving if isinstance(p, Reorder)]
        if len(live) < len(moving):
            return None
        perm = tuple(range(rank if rank is not None else len(live[0].perm) if live else 0))
        for p in live:
            perm = tuple(perm[q] for q in p.perm)
        return perm

    def text(self, names: Iterable[str]) -> str:
        """``N C/16 H W C%16`` for the given dimension names."""
        names = list(names)
        for p in self.primitives:
            if isinstance(p, StoreAt):
                return f"{' '.join(names)} in {p.host} at dimension {p.dim}"
            names = p.names(names)
        return " ".join(names)

    def __str__(self) -> str:
        return ", ".join(map(str, self.primitives)) or "row-major"

    def to_json(self) -> LayoutJson:
        """Plain data: ``(("split", 1, (4, 16)), ("reorder", (0, 1, 3, 4, 2)))``."""
        kinds = {cls: kind for kind, cls in _KINDS.items()}
        return tuple((kinds[type(p)],) + tuple(vars(p).values()) for p in self.primitives)

    @staticmethod
    def from_json(data: Iterable[object]) -> "Layout":
        """Inverse of ``to_json``; lists and tuples are alike.  ScheduleError on anything else."""
        return Layout(tuple(_primitive(row) for row in data))


def _primitive(row: object) -> Primitive:
    kind, *args = row if isinstance(row, (list, tuple)) and row else (row,)
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ScheduleError(f"layout: unknown primitive {kind!r}; known: {', '.join(_KINDS)}")
    names = [f.name for f in fields(cls)]
    args = [tuple(a) if isinstance(a, list) else a for a in args]
    wanted = {"factors": tuple, "perm": tuple, "host": str}
    flat = [x for a in args for x in (a if isinstance(a, tuple) else () if isinstance(a, str)
                                      else (a,))]
    if len(args) != len(names) or not all(type(x) is int for x in flat) or not all(
            isinstance(a, wanted.get(n, int)) for n, a in zip(names, args)):
        raise ScheduleError(f"layout: {kind} takes ({', '.join(names)}), got {args}")
    return cls(*args)


def _idle(p: Primitive) -> bool:
    return ((isinstance(p, Reorder) and list(p.perm) == sorted(p.perm))
            or (isinstance(p, Fuse) and p.count == 1)
            or (isinstance(p, Split) and len(p.factors) == 1)
            or (isinstance(p, Pad) and p.before == p.after == 0))


def _ints(shape: Iterable[Any]) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else d.value for d in shape)
