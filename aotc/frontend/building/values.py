"""Val: a tensor while a Program is built.  It is a numpy constant, a shape value computed from
symbols and axes (no memory behind it), or a buffer."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aotc.ir.dtypes import DTYPES, INDEX, Array
from aotc.ir.expr import Cast, Const, Expr, Shape
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify

SMALL = 64  # elements up to which integer constants are known element by element
_AFFINE_MAX = 1 << 20

Index = tuple[Expr, ...]  # of an element: one expression per dimension
Element = Callable[[Index], Expr]  # what an element is
Inner = Callable[[Expr, Index], Expr]  # what becomes of an element
At = Callable[[Expr], Expr]  # what the element of a list is
Extents = tuple[int, ...]
Row = tuple[int, tuple[int, ...]]  # (base, steps) of an affine array


@dataclass(frozen=True, eq=False)
class Val:
    """Exactly one of ``array`` (constant), ``fn`` (index tuple -> expression) and ``buffer`` (name)
    is set.  ``shape`` has one index expression per dimension; ``name`` is the ONNX tensor name;
    ``stored``: the elements are the bits of this type (``building.stored``)."""

    shape: Shape
    dtype: str
    array: Array | None = None
    fn: Element | None = None
    buffer: str = ""
    name: str = ""
    stored: str = ""

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int | None:
        """Number of elements, or None if the shape is symbolic."""
        dims = static_shape(self.shape)
        return None if dims is None else math.prod(dims)

    def __str__(self) -> str:
        from aotc.frontend.graph import show_type
        return show_type((self.stored or self.dtype, self.shape))


@dataclass(frozen=True, eq=False)
class Sequence:
    """A list of Vals in the place of a Val; only operators on sequences take it."""

    vals: tuple[Val, ...]
    shape: ClassVar[Shape] = ()
    dtype: ClassVar[str] = "sequence"
    array: ClassVar[None] = None
    fn: ClassVar[None] = None
    size: ClassVar[None] = None
    rank: ClassVar[int] = 0
    buffer: ClassVar[str] = ""
    name: ClassVar[str] = ""

    @property
    def stored(self) -> str:
        """The type that elements of any of its tensors are the bits of, "" for numbers."""
        return next((v.stored for v in self.vals if v.stored), "")

    def __str__(self) -> str:
        return f"sequence of {len(self.vals)}"


class Entries(Sequence):
    """A list of tensors of one shape: the entries of ``whole`` along its first axis, of which there
    may be any number.  ``opened``: the list of a known number of them; UnsupportedError of
    others."""

    def __init__(self, whole: Val, opened: Callable[[Val], tuple[Val, ...]]) -> None:
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "opened", opened)

    whole: Val
    opened: Callable[[Val], tuple[Val, ...]]

    @property
    def vals(self) -> tuple[Val, ...]:
        return self.opened(self.whole)

    @property
    def stored(self) -> str:
        return self.whole.stored

    def __str__(self) -> str:
        return f"sequence of {self.whole.shape[0]}"


@dataclass(frozen=True, eq=False)
class Absent(Sequence):
    """An optional without an element."""

    vals: tuple[Val, ...] = ()

    def __str__(self) -> str:
        return "optional without an element"


Value = Val | Sequence
Result = Value | tuple[Value | None, ...]  # of a node: its output, or one per output


def is_one(dim: Expr) -> bool:
    """True if an extent is the constant 1."""
    return isinstance(dim, Const) and dim.value == 1


class Affine:
    """Integer (or uniform bool) arrays that are ``base + sum(step_k * i_k)``, recognised once."""

    def __init__(self) -> None:
        # id(array) -> (array, {fixed indices: row or None})
        self.memo: dict[int, tuple[Array, dict[tuple[int | None, ...], Row | None]]] = {}

    def row(self, array: Array, fixed: tuple[int | slice, ...]) -> Row | None:
        """(base, steps of the dimensions not fixed) of ``array[fixed]``, or None."""
        rows = self.memo.setdefault(id(array), (array, {}))[1]  # holding it keeps its id its own
        key = tuple(None if isinstance(f, slice) else f for f in fixed)
        if key not in rows:
            rows[key] = _affine(array[fixed])
        return rows[key]


def _affine(a: Array) -> Row | None:
    if a.size == 0 or a.size > _AFFINE_MAX:
        return None
    base = a[(0,) * a.ndim]
    if a.dtype.kind == "b":
        return (bool(base), (0,) * a.ndim) if (a == base).all() else None
    model, steps = np.full(a.shape, base, np.int64), []
    for k, d in enumerate(a.shape):
        second = tuple(1 if j == k else 0 for j in range(a.ndim))
        step = int(a[second]) - int(base) if d > 1 else 0
        if abs(step) >= 1 << 40:  # no index: sentinels such as INT64_MAX
            return None
        steps.append(step)
        model += (np.arange(d, dtype=np.int64) * step).reshape([-1 if j == k else 1
                                                                for j in range(a.ndim)])
    return (int(base), tuple(steps)) if np.array_equal(model, a) else None


def const_at(affine: Affine, array: Array, dtype: str, index: Index) -> Expr | None:
    """Element ``index`` of a constant as an expression without a load, or None if it has none.
    Floats only when the element itself is known; NaN never, since it does not equal itself."""
    fixed = tuple(i.value if isinstance(i, Const) else 0 if d == 1 else slice(None)
                  for i, d in zip(index, array.shape))
    if not any(isinstance(f, slice) for f in fixed):
        value = array[fixed].item()
        return None if value != value else Const(value, dtype)
    if DTYPES[dtype].kind == "f" or dtype == "u64":
        return None
    row = affine.row(array, fixed)
    if row is None:
        return None
    base, steps = row
    if not any(steps):
        return Const(base, dtype)
    free = [i for i, f in zip(index, fixed) if isinstance(f, slice)]
    e: Expr = Const(base)
    for i, s in zip(free, steps):
        e = e + i * s
    e = simplify(e)
    return e if dtype == INDEX else Cast(dtype, e)

