"""Which variants of a target a bundle is worth: those with rows that the Program can use."""

from aotc.ir.category import (
    BF16_PRODUCT,
    GROUPED_INTEGERS,
    GROUPED_PRODUCT,
    SIGNED_BYTES,
    category,
    dot_dtypes,
)
from aotc.ir.dtypes import BF16
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import MIXED, WEIGHT_BITS
from aotc.passes.regions import all_steps
from aotc.target.base import Target


def serving(variants: tuple[Target, ...], program: Program,
            precision: str = "f32") -> tuple[Target, ...]:
    """Of targets, the widest first, those that serve a Program at a ``precision``: one whose rows
    differ from the next one's only in what the Program has none of is left out."""
    found: set[tuple[str, tuple[str, ...] | None]]
    found = {("dot", BF16_PRODUCT)} if precision in (BF16, MIXED) else set()
    if precision in (*WEIGHT_BITS, MIXED):
        found |= {("dot", d) for d in (GROUPED_PRODUCT, *GROUPED_INTEGERS.values())}
    for s in all_steps(program.steps):
        if isinstance(s, Compute):
            kind = category(s.axes, s.raxes, s.fold, s.body)
            found.add((kind, dot_dtypes(s.body) if kind == "dot" else None))
    kept = []
    for one, narrower in zip(variants, variants[1:] + (None,)):
        if narrower is None or one.lanes != narrower.lanes or _own(one, narrower) & found:
            kept.append(one)
    return tuple(kept)


def reads_groups(target: Target) -> bool:
    """True if a target has rows that read grouped weights."""
    return any(u.dtypes == GROUPED_PRODUCT for u in target.rows("dot"))


def multiplies_bytes(target: Target) -> bool:
    """True if a target has rows for products of bytes of either sign, with computed columns."""
    return any(u.dtypes == SIGNED_BYTES for u in target.rows("dot"))


def _own(one, other):
    """The categories in which two targets have different rows, of narrow products with their
    dtypes."""
    return {(u.category, u.dtypes if u.category == "dot" else None)
            for u in set(one.ukernels) ^ set(other.ukernels)}


__all__ = ["multiplies_bytes", "reads_groups", "serving"]
