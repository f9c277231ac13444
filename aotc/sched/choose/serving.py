"""Which variants of a target a bundle is worth: those with rows that the Program can use."""

from aotc.ir.category import category
from aotc.ir.program import Compute, Program
from aotc.passes.regions import all_steps
from aotc.target.base import Target


def serving(variants: tuple[Target, ...], program: Program) -> tuple[Target, ...]:
    """Of targets, the widest first, those that serve a Program: one whose rows differ from the next
    one's only in categories that the Program has none of is left out."""
    found = {category(s.axes, s.raxes, s.fold, s.body) for s in all_steps(program.steps)
             if isinstance(s, Compute)}
    kept = []
    for one, narrower in zip(variants, variants[1:] + (None,)):
        if narrower is None or one.lanes != narrower.lanes or _own(one, narrower) & found:
            kept.append(one)
    return tuple(kept)


def _own(one, other):
    """The categories in which two targets have different rows."""
    return {u.category for u in set(one.ukernels) ^ set(other.ukernels)}


__all__ = ["serving"]
