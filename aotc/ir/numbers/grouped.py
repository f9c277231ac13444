"""Weights of 8 or 4 bits with a scale for every group of neighbours along the sum.

    w[k, n] = (code[k, n] - zero[k // size, n]) * scale[k // size, n]

They lie in one constant of bytes, u8[groups, rows, N]: of every group first the codes (of 4 bits
two neighbours along the sum in a byte, the first one in its lower half), then one row of zero
points if there are any, then the upper bytes of the scales, f32, from their lowest on, as many as
hold them exactly.  So a product reads one run of memory, and what a weight is, is an expression
like any other: rows of grouped weights recognise it, everything else computes it.
"""

from dataclasses import dataclass
from functools import lru_cache

from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, Unary, axes_of, loads
from aotc.ir.simplify import simplify

BITS = (8, 4)  # of a code
LEAST = 16  # steps of the sum in a group: of shorter ones the scales weigh more than the codes
WHOLE = 64  # of which a multiple is the size of long groups, for rows that take so many at a time
_PLANES = (2, 3, 4)  # bytes of a scale
MIDDLE = 128  # by which signed rows of bytes are stored larger
INTEGER_ROWS = ("u8", "i16")  # dtypes of rows that are summed group by group in integers


@dataclass(frozen=True)
class Grouping:
    """bits: of a code; size: steps of the sum in a group, even; planes: bytes of a scale; zeros:
    groups have zero points."""

    bits: int
    size: int
    planes: int
    zeros: bool = False

    @property
    def codes(self) -> int:
        """Rows of codes in a group."""
        return self.size * self.bits // 8

    @property
    def rows(self) -> int:
        """Rows of bytes in a group."""
        return self.codes + self.zeros + self.planes

    def __str__(self) -> str:
        return f"{self.bits} bits in groups of {self.size}" + (
            " with zero points" if self.zeros else "")


@dataclass(frozen=True)
class Grouped:
    """Weights that an expression reads: their Grouping, the Load of the byte with the code, axes
    along the sum and along the columns."""

    grouping: Grouping
    codes: Load
    k: Axis
    n: Axis


def staged_rows(g: Grouping, steps: int) -> int:
    """Rows of bytes that ``steps`` neighbours of the sum read, which are whole groups or a part of
    one: codes, and zero points and scales of each."""
    return steps * g.bits // 8 + max(1, steps // g.size) * (g.zeros + g.planes)


def grouped_value(g: Grouping, buffer: str, k: Axis, n: Expr) -> Expr:
    """f32: weight [k, n] of a constant of bytes."""
    def byte(row: Expr) -> Expr:
        return Cast("u32", Load(buffer, (simplify(k // g.size), simplify(row), n), "u8"))

    def signed(e: Expr) -> Expr:
        half = 1 << g.bits - 1
        return Cast("i32", Binary("xor", e, Const(half, "u32"))) - Const(half, "i32")

    def code(row: Expr, at: Expr) -> Expr:
        """A number in two's complement, of 4 bits in the half ``at`` of its byte."""
        if g.bits == 8:
            return signed(byte(row))
        shift = Cast("u32", simplify(at * g.bits))
        return signed(Binary("and", Binary("shr", byte(row), shift), Const(15, "u32")))
    inside = k % g.size
    value = code(inside // (8 // g.bits), k % (8 // g.bits))
    if g.zeros:
        zero = Binary("xor", byte(Const(g.codes)), Const(128, "u32"))
        value = value - (Cast("i32", zero) - Const(128, "i32"))
    bits: Expr | None = None
    for plane in range(g.planes):
        at = Const(8 * (4 - g.planes + plane), "u32")
        part = Binary("shl", byte(Const(g.codes + g.zeros + plane)), at)
        bits = part if bits is None else Binary("or", bits, part)
    assert bits is not None, g
    return Binary("mul", Cast("f32", value), Unary("float", bits))


def integer_value(load: Load) -> Expr:
    """f32: a signed number of 16 bits, or one of 8 bits that is stored 128 larger, as a u8."""
    return Cast("f32", load if load.dtype == "i16" else (
        Cast("i32", load) - Const(MIDDLE, "i32")))


def integer_row(e: Expr) -> Load | None:
    """The Load of u8 or i16 whose ``integer_value`` an expression is; None if it is no such."""
    found = loads(e)
    return found[0] if len(found) == 1 and found[0].dtype in INTEGER_ROWS and isinstance(
        e, Cast) and e == integer_value(found[0]) else None


@lru_cache(maxsize=1 << 12)
def grouped_weights(e: Expr) -> Grouped | None:
    """The Grouped weights that an expression is the value of; None if it is no such."""
    if not isinstance(e, Binary) or e.op != "mul" or e.dtype != "f32" or not isinstance(
            e.b, Unary) or e.b.op != "float":
        return None
    found = loads(e)
    codes = [x for x in found if len(x.index) == 3 and axes_of(x.index[1])]
    fixed = {x.index[1].value for x in found if len(x.index) == 3
             and isinstance(x.index[1], Const)}
    if len(codes) != 1 or not fixed or len({x.buffer for x in found}) != 1 or codes[0].dtype != (
            "u8"):
        return None
    load, = codes
    k, n = next(iter(axes_of(load.index[1]))), load.index[2]
    if not isinstance(n, Axis):
        return None
    for bits in BITS:
        for zeros in (False, True):
            g = Grouping(bits, int(min(fixed)) * 8 // bits, len(fixed) - zeros, zeros)
            if g.planes in _PLANES and simplify(grouped_value(g, load.buffer, k, n)) == simplify(e):
                return Grouped(g, load, k, n)
    return None


__all__ = ["BITS", "INTEGER_ROWS", "LEAST", "MIDDLE", "WHOLE", "Grouped", "Grouping",
           "grouped_value", "grouped_weights", "integer_row", "integer_value", "staged_rows"]
