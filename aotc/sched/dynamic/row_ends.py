"""Which products get smaller register tiles for their last rows, where nobody knows how many there
are: those that save more time than the code is worth.

    G = Perf * BinarySize^-alpha        of a group with them, by that of the group without

Sums that a micro-kernel leaves in memory share its functions with all products of these columns: a
smaller tile is a call more, and always worth it.  Sums that are written out where they are used
have their epilogue once more for each tile.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.cost.decided import aligned_products
from aotc.sched.dynamic.predict import as_decided, ends_unknown, in_registers
from aotc.sched.dynamic.typical_calls import spread_calls
from aotc.sched.dynamic.vote import ALPHA
from aotc.sched.model.size import row_tails
from aotc.sched.model.stages import group_stages
from aotc.sched.model.widths import group_model
from aotc.sched.within import within
from aotc.target.base import Target

CALLS = 3  # the smallest, one in the middle, the largest


def choose_row_ends(program: Program, target: Target,
                    groups: Sequence[Group]) -> tuple[Group, ...]:
    """Groups of a rewritten Program, decided, in whose ``loops`` stands which products do without
    smaller tiles for their last rows; themselves where no extent is a symbol."""
    asked = {g.name: names for g in groups if (names := _asked(program, target, g))}
    if not asked:
        return tuple(groups)
    calls = sorted(spread_calls(program), key=lambda c: prod(c.extents.values()))
    numbers = dict.fromkeys(i * (len(calls) - 1) // (CALLS - 1) for i in range(CALLS))
    picked = [calls[i].extents for i in numbers] if calls else []
    inside = [within(program, {n: (v, v) for n, v in c.items()}) for c in picked]
    return tuple(_decided(inside, target, g, asked[g.name]) if g.name in asked else g
                 for g in groups)


def _asked(program: Program, target: Target, g: Group) -> tuple[str, ...]:
    """The stages of a group that smaller tiles would write out once more."""
    return tuple(s.name for s in group_stages(program, g) if ends_unknown(s, g, target)
                 and in_registers(s, target))


def _decided(inside: Sequence[Program], target: Target, g: Group,
             asked: Sequence[str]) -> Group:
    gains = dict.fromkeys(asked, 0.0)
    for program in (p for p in inside if as_decided(p, g, target)):
        stages = group_stages(program, g)
        model = group_model(program, g, tuning=target.tuning)
        boxes = model.boxes(model.variables(g.tile))
        work = [prod(box) * m.per_point + prod(box[:m.rank]) * m.per_output
                for m, (box, _) in zip(model.stages, boxes)]
        for a in aligned_products(stages, g, target):
            if stages[a.stage].name in gains:
                rows = prod(boxes[a.stage][0][p] for p in a.rows)
                share = work[a.stage] / max(1, sum(work))
                gains[stages[a.stage].name] += share * _saved(rows, a.mr) / len(inside)
    loops = dict(g.loops)
    for name, gain in gains.items():
        mr = target.row(g.ukernel[name]).tile["mr"]
        size = (mr + sum(row_tails(mr)[-1:])) / mr
        if 1 / (1 - gain) * size ** -ALPHA < 1:
            loops[name] = {**loops[name], "tails": 0}
    return replace(g, loops=loops)


def _saved(rows: int, mr: int) -> float:
    """The share of a product's time that a smaller last tile saves, where its rows are about so
    many: any number of them may be left."""
    tails = row_tails(mr)[-1:]
    first = max(1, rows - mr // 2)
    around = range(first, first + mr)
    whole = sum(-(-n // mr) * mr for n in around)
    last = [n % mr for n in around]
    less = sum(mr - t for n in last if n for t in tails if n <= t)
    return less / whole


__all__ = ["choose_row_ends"]
