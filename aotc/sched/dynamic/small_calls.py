"""Which calls a variant for small extents serves: one box, from the least extents up."""

from collections.abc import Sequence

from aotc.ir.program import Program
from aotc.ir.schedule import When
from aotc.sched.model.typical_calls import TypicalCall

Leaf = tuple[When, int]  # extents, number of the variant


def lowest_box(program: Program, calls: Sequence[TypicalCall], gains: Sequence[float],
               least: float) -> When | None:
    """The extents up to which a variant gains.  ``gains``: what every call gains by it, as a share
    of its time; no call in the box gains less than ``least`` (below 0: loses more).  The box grows
    from the smallest extents of all, one extent of one symbol at a time to where most is gained, as
    long as anything is, and ends halfway between the calls that are inside and the next ones.
    None: nothing is gained."""
    values = {s.name: sorted({c.extents[s.name] for c in calls}) for s in program.syms}
    at = dict.fromkeys(values, 0)

    def gained(ends: dict[str, int]) -> float:
        inside = [i for i, c in enumerate(calls) if all(
            c.extents[n] <= values[n][k] for n, k in ends.items())]
        if any(gains[i] < least for i in inside):
            return float("-inf")
        return sum(calls[i].share * gains[i] for i in inside)

    total = gained(at)
    while True:
        steps = [at | {n: k + 1} for n, k in at.items() if k + 1 < len(values[n])]
        better = max(steps, key=gained, default=at)
        if gained(better) <= total:
            break
        at, total = better, gained(better)
    if total <= 0:
        return None
    return {s.name: (s.lo, (values[s.name][k] + values[s.name][k + 1]) // 2)
            for s in program.syms if (k := at[s.name]) + 1 < len(values[s.name])}


def pick(leaves: Sequence[Leaf], call: TypicalCall) -> int:
    """The variant that a call gets: that of the first box which holds it."""
    return next(variant for when, variant in leaves if call.inside(when))


__all__ = ["Leaf", "lowest_box", "pick"]
