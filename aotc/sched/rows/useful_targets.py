"""Which variants of a target a bundle is worth: those with rows that the Program can use."""

from aotc.ir.category import (
    BF16_PRODUCT,
    SIGNED_BYTES,
    Dtypes,
    category,
    dot_dtypes,
    grouped_dtypes,
)
from aotc.ir.dtypes import BF16, HALF
from aotc.ir.numbers.grouped import BITS, INTEGER_ROWS
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import MIXED, PRECISION, WEIGHT_BITS
from aotc.passes.regions import all_steps
from aotc.target.base import Target
from aotc.target.kernel_rows import KernelRow, ProductRow


def pick_targets(variants: tuple[Target, ...], program: Program,
                 precision: str = "f32") -> tuple[Target, ...]:
    """Of targets, the widest first, those that serve a Program at a ``precision``: one whose rows
    differ from the next one's only in what the Program has none of is left out."""
    found: set[str | Dtypes] = {BF16_PRODUCT} if precision in (BF16, MIXED) else set()
    if precision in (*WEIGHT_BITS, MIXED):
        found |= {grouped_dtypes(rows, bits) for rows in ("f32", *INTEGER_ROWS) for bits in BITS}
    for s in all_steps(program.steps):
        if isinstance(s, Compute):
            found.add(dot_dtypes(s.body) or category(s.axes, s.raxes, s.fold, s.body))
    kept = []
    for one, narrower in zip(variants, variants[1:] + (None,)):
        if narrower is None or one.lanes != narrower.lanes or _own(one, narrower) & found:
            kept.append(one)
    return tuple(kept)


def reads_groups(target: Target) -> bool:
    """True if a target has rows that read grouped weights."""
    return any(u.a == "f32" and u.grouped is not None for u in target.rows("dot"))


def reads_halves(target: Target, dtype: str) -> bool:
    """True if a target has rows for products of f16, or bf16, as they are stored, or of tf32."""
    return any(u.a == dtype for u in target.rows("contraction"))


def stores_halves(target: Target, dtype: str) -> bool:
    """True if a target stores numbers that a model declares f16, or bf16, as that: f16 with an
    instruction that converts, bf16 with rows of products that read it."""
    return target.halves if dtype == HALF else reads_halves(target, dtype)


def multiplies_bytes(target: Target) -> bool:
    """True if a target has rows for products of bytes of either sign, with computed columns."""
    return any(u.takes(SIGNED_BYTES) for u in target.rows("dot"))


def multiplies(target: Target, precision: str) -> bool:
    """True if a target has products of operands that are rounded to a precision: f16 with an
    instruction that converts it, bf16 and tf32 with rows of it.  Rounded weights any target
    reads."""
    if precision in (PRECISION[0], *WEIGHT_BITS):
        return True
    if precision == BF16:
        return any(isinstance(u, ProductRow) and u.takes(BF16_PRODUCT) for u in target.ukernels)
    return target.halves if precision == HALF else reads_halves(target, precision)


def _own(one: Target, other: Target) -> set[str | Dtypes]:
    """The categories in which two targets have different rows, of narrow products their dtypes."""
    return {kind for u in set(one.ukernels) ^ set(other.ukernels) for kind in _kinds(u)}


def _kinds(row: KernelRow) -> tuple[str | Dtypes, ...]:
    return row.products if isinstance(row, ProductRow) and row.category == "dot" else (
        row.category,)


__all__ = ["multiplies", "multiplies_bytes", "pick_targets", "reads_groups",
           "reads_halves", "stores_halves"]
