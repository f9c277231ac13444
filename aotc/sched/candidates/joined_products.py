"""Rewrites ``join_columns``: products of the same rows that are one where that is predicted to take
less time.

Where work items are single register tiles, of a block of threads each, a product of few rows and
columns has too few of them to keep all workers busy, and every kernel has to be started: one
product with the columns of all (``passes.sums.join_columns``) is better at both.
"""

from collections.abc import Collection

from aotc.ir.expr import Load
from aotc.ir.program import Compute, Program, Rewrite
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.sums.join_columns import RULE, join_alike, match_columns
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.precision.levels import Levels
from aotc.target.base import Target


def choose_joined(program: Program, target: Target, levels: Levels) -> tuple[Rewrite, ...]:
    """The rewrites ``join_columns`` of a Program, in program order; none where work items are not
    single tiles, shared by threads.  levels: of products that have one of their own; those that
    join have the same."""
    machine = target.machine
    if not machine.threads or machine.item_tiles != 1:
        return ()
    near = Neighbourhoods(program, target, machine.workers)
    alike = [names for names in join_alike(program)
             if len({levels.get(n) for n in names}) == 1 and _is_whole(near, names)]
    rewrites = [(RULE, first, {"with": list(others)}) for first, *others in alike]
    if not rewrites:
        return ()
    joined = apply_rewrites(program, rewrites)
    after = Neighbourhoods(joined, target, machine.workers)
    return tuple(r for r, names in zip(rewrites, alike) if _pays(near, after, names))


def _is_whole(near: Neighbourhoods, names: tuple[str, ...]) -> bool:
    """True if all that is computed in the kernels of some products joins with them, but for what
    only places elements otherwise: who reads that reads the columns where they lie."""
    found = match_columns(near.program, names)
    return found is not None and all(
        _only_moves(near.program, set(near.groups[chain[0].out].computes) - {c.out for c in chain})
        for chain in found.chains)


def _only_moves(program: Program, computes: Collection[str]) -> bool:
    steps = [program.producer[c] for c in computes]
    return all(isinstance(s, Compute) and s.fold == "none" and isinstance(s.body, Load)
               for s in steps)


def _pays(near: Neighbourhoods, after: Neighbourhoods, names: tuple[str, ...]) -> bool:
    """True if the product that some are now takes clearly less time than they did."""
    slack = near.target.tuning.slack
    apart = sum(near.asked(n).seconds for n in names)
    return after.asked(f"{names[0]}_joined").seconds * (1 + slack) < apart


__all__ = ["choose_joined"]
