"""Categories, recognised from the structure of index expressions (never from an operator).

map: no fold.  move: a map that only loads.  contraction: sum of a product of two f32 factors with
an axis that only one of them has.  dot: the same of integers of 8 or of 16 bits, converted to i32,
of two bf16, converted to f32, or of an f32 and grouped weights.  window: a fold whose loads mix
output and reduction axes in one index.  reduction: every other fold.  ``loops`` is not a category
of programs but the row that runs anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from aotc.ir.dtypes import BF16, DTYPES, is_int
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, Where, axes_of, walk
from aotc.ir.numbers.grouped import grouped_weights, integer_row
from aotc.ir.numbers.narrow import stored_half
from aotc.ir.program import Fold
from aotc.ir.simplify import upper

Axes = tuple[Axis, ...]
PRODUCTS = ("contraction", "dot")  # whose sums stand in register tiles


@dataclass(frozen=True)
class Factors:
    """The two factors of a sum of products, sorted by which axes they hold.

    a, b: the factors (``b`` is the one the lane axis belongs to); batch: output axes in both;
    m: only in ``a``; n: only in ``b``; idle: output axes in neither; k: all reduction axes.
    """

    a: Expr
    b: Expr
    batch: Axes
    m: Axes
    n: Axes
    k: Axes

    @property
    def lane(self) -> Axis:
        """The axis of ``n`` whose neighbours are a panel's columns: the longest."""
        return max(self.n, key=lambda a: upper(a.extent) or 0) if len(self.n) > 1 else self.n[0]


@dataclass(frozen=True)
class Dtypes:
    """Of a product: of its operands A and B, and of its sums."""

    a: str
    b: str
    sums: str

    def __iter__(self) -> Iterator[str]:
        return iter((self.a, self.b, self.sums))


# operands and sum of a contraction on narrower numbers, several of which one lane multiplies
BYTES = Dtypes("u8", "i8", "i32")
SIGNED_BYTES = Dtypes("i8", "i8", "i32")
BF16_PRODUCT = Dtypes(BF16, BF16, "f32")


def grouped_dtypes(rows: str, bits: int) -> Dtypes:
    """Dtypes of a product by grouped weights of 8 or 4 bits (``numbers/grouped.py``), signed
    numbers whatever bytes hold them.  rows: dtype of A, f32 or one of ``INTEGER_ROWS``: numbers of
    8 bits, stored 128 larger, and of 16 bits."""
    return Dtypes(rows, f"i{bits}", "f32")


def is_grouped(dtypes: Dtypes | None) -> bool:
    """True for the Dtypes of a product by grouped weights."""
    return dtypes is not None and is_int(dtypes.b) and dtypes.sums == "f32"


def dot_dtypes(body: Expr) -> Dtypes | None:
    """Dtypes of a product of two integers of 8 or of 16 bits, both converted to i32 (the signed one
    is B, as in ``BYTES``), ``BF16_PRODUCT`` for one of two bf16, both converted to f32,
    ``grouped_dtypes`` for one of an f32 and ``grouped_weights``, of the integers behind that f32 if
    it is an ``integer_value``; None for others."""
    if not isinstance(body, Binary) or body.op != "mul":
        return None
    for a, b in ((body.a, body.b), (body.b, body.a)):
        weights = grouped_weights(b) if body.dtype == "f32" else None
        if weights is not None:
            row = integer_row(a)
            return grouped_dtypes("f32" if row is None else row.dtype, weights.grouping.bits)
    if not isinstance(body.a, Cast) or not isinstance(body.b, Cast):
        return None
    signed, other = sorted((body.a.x.dtype, body.b.x.dtype))  # "i8" before "u8"
    if body.dtype == "f32":
        return BF16_PRODUCT if signed == other == BF16 else None
    narrow = body.dtype == "i32" and is_int(signed) and is_int(other) and (
        DTYPES[signed].size == DTYPES[other].size <= 2)
    return Dtypes(other, signed, body.dtype) if narrow else None


def is_dot(body: Binary) -> bool:
    """True for a product of 8-bit integers that rows take."""
    return dot_dtypes(body) in (BYTES, SIGNED_BYTES)


@lru_cache(maxsize=1 << 14)
def factor_pairs(axes: Axes, raxes: Axes, fold: str | Fold, body: Expr) -> tuple[Factors, ...]:
    """Both orientations of a sum of products in which the lane operand has axes of its own and
    every reduction axis occurs in both factors.  Empty if it is none.  Of narrower numbers
    (``dot_dtypes``) the factors are given without their conversion, and the lane operand of 8-bit
    integers is the i8, that of grouped weights the Load of their codes; so is a lane operand that
    is loaded as f16."""
    if fold != "sum" or not (isinstance(body, Binary) and body.op == "mul"):
        return ()
    narrow = dot_dtypes(body)
    if body.dtype != "f32" and narrow is None:
        return ()
    out = []
    for a, b in ((body.a, body.b), (body.b, body.a)):
        if is_grouped(narrow):
            weights = grouped_weights(b)
            if weights is None:
                continue
            a, b = integer_row(a) or a, weights.codes
        elif narrow is not None and isinstance(a, Cast) and isinstance(b, Cast):
            a, b = a.x, b.x
            if (a.dtype, b.dtype) != (narrow.a, narrow.b):
                continue
        in_a, in_b = axes_of(a), axes_of(b)
        if not all(r in in_a and r in in_b or r.extent == Const(1) for r in raxes):
            continue
        n = tuple(x for x in axes if x in in_b and x not in in_a)
        if not n or not isinstance(_core(_stored(b)), Load):
            continue
        m = tuple(x for x in axes if x in in_a and x not in in_b)
        batch = tuple(x for x in axes if x not in n and x not in m)
        if not m and any(x.extent != Const(1) for x in batch):
            continue  # no reuse of the lane operand: depthwise is a window, a dot a reduction
        out.append(Factors(a, _stored(b), batch, m, n, tuple(raxes)))
    return tuple(out)


def _stored(e: Expr) -> Expr:
    """The element of 16 bits behind its conversion, which products do themselves."""
    half = stored_half(e)
    return half if isinstance(half, Load) else e


def _core(e: Expr) -> Expr:
    """The Load below a zero-filling guard."""
    return e.a if isinstance(e, Where) and is_zero(e.b) else e


def is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


@lru_cache(maxsize=1 << 14)
def category(axes: Axes, raxes: Axes, fold: str | Fold, body: Expr,
             values: tuple[Expr, ...] = ()) -> str:
    """Category name of a stage; ``values`` are its outputs' expressions."""
    if fold == "none":
        return "move" if all(_is_move(v) for v in values or (body,)) else "map"
    if factor_pairs(axes, raxes, fold, body):
        return "contraction" if dot_dtypes(body) is None else "dot"
    red = set(raxes)
    for n in walk(body):
        if isinstance(n, Load):
            for i in n.index:
                found = axes_of(i)
                if found & red and found - red:
                    return "window"
    return "reduction"


def _is_move(e: Expr) -> bool:
    if isinstance(e, Where):
        return _is_move(e.a) and _is_move(e.b)
    return isinstance(e, (Load, Const))


# ---------------------------------------------------------------- row operands of products

def row_source(a: Expr) -> tuple[Load | None, Expr | None, float]:
    """(Load, guard, value outside the guard) of a row operand; no Load if it is computed."""
    if isinstance(a, Where) and isinstance(a.b, Const) and isinstance(a.a, Load):
        return a.a, a.cond, a.b.value
    return (a, None, 0) if isinstance(a, Load) else (None, None, 0)


def zero_filled(a: Expr) -> tuple[Load | None, Expr | None]:
    """(Load, guard) of a row operand that is zero outside its guard; no Load for others."""
    load, guard, fill = row_source(a)
    return (load, guard) if fill == 0 else (None, None)


def zero_filled_load(a: Expr) -> tuple[Load | None, Expr | None]:
    """``zero_filled`` of what a row operand of f32 is made of by conversions that lose nothing: its
    Load may be of a narrower float."""
    half = stored_half(a)
    if half is not None:
        return zero_filled(half)
    if isinstance(a, Where) and is_zero(a.b) and stored_half(a.a) is not None:
        load, guard = zero_filled_load(a.a)
        return (load, a.cond) if guard is None else (None, None)
    return zero_filled(a)


def copied_load(a: Expr) -> tuple[Load | None, Expr | None, float]:
    """(Load, guard, value outside the guard) of an operand whose elements can be copied as they
    lie: of floats that value is zero, as of ``zero_filled_load``; no Load for others."""
    load, guard = zero_filled_load(a)
    if load is not None:
        return load, guard, 0
    return row_source(a) if is_int(a.dtype) else (None, None, 0)


def zero_outside(e: Expr, cond: Expr | None) -> Expr:
    """``e`` where a condition holds (None: everywhere), else zero."""
    return e if cond is None else Where(cond, e, Const(0, e.dtype))



def is_endless(guard: Expr | None, k: Axis) -> bool:
    """True for a row operand with padding along a sum without a bound: there are no zeros that it
    could read in its place."""
    return guard is not None and upper(k.extent) is None
