"""Which products get smaller register tiles for their last rows, where nobody knows how many there
are: those that save more time than the code is worth.

    G = Perf * BinarySize^-alpha        of a group with them, by that of the group without

Sums that a micro-kernel leaves in memory share its functions with all products of these columns: a
smaller tile is a call more, and always worth it.  Sums that are written out where they are used
have their epilogue once more for each tile.

A call may have one row alone: one image of a free batch, whose recurrent layers and classifiers
then meet their weights with a single row.  Half a tile of rows would compute it several times, and
store it by the way that ragged tiles take; where that is worth the code, it has a tile of its own.
A quarter of a tile, which sums in memory have, is as short as the multipliers' own delay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.check.choices import choices_of
from aotc.sched.cost.decided import aligned_products
from aotc.sched.cost.predict import has_decided_stages, has_unknown_ends, may_write_out
from aotc.sched.model.group_model import group_model
from aotc.sched.model.size import row_tails
from aotc.sched.model.stages import group_stages
from aotc.sched.model.typical_calls import spread_calls
from aotc.sched.narrowed_program import restrict_to_box
from aotc.sched.shape_variants import ALPHA
from aotc.target.base import Target

CALLS = 3  # the smallest, one in the middle, the largest


def choose_row_ends(program: Program, target: Target,
                    groups: Sequence[Group]) -> tuple[Group, ...]:
    """Groups of a rewritten Program, decided, in whose ``choices`` stands which products do without
    smaller tiles for their last rows, and which have one for a single row; themselves where no
    extent is a symbol."""
    asked = {g.name: names for g in groups if (names := _asked(program, target, g))}
    if not asked:
        return tuple(groups)
    calls = sorted(spread_calls(program), key=lambda c: prod(c.extents.values()))
    numbers = dict.fromkeys(i * (len(calls) - 1) // (CALLS - 1) for i in range(CALLS))
    picked = [calls[i].extents for i in numbers] if calls else []
    inside = [restrict_to_box(program, {n: (v, v) for n, v in c.items()}) for c in picked]
    return tuple(_decided(inside, target, g, asked[g.name]) if g.name in asked else g
                 for g in groups)


def _asked(program: Program, target: Target, g: Group) -> dict[str, bool]:
    """{stage of a group that may have smaller tiles: whether they write it out once more}."""
    return {s.name: may_write_out(s, target) for s in group_stages(program, g)
            if has_unknown_ends(s, g, target) and "tails" in choices_of(target, g, s.name)}


def _decided(inside: Sequence[Program], target: Target, g: Group,
             asked: Mapping[str, bool]) -> Group:
    gains, alone = _gains(inside, target, g, asked)
    choices = dict(g.choices)
    for name, written_out in asked.items():
        mr = target.product_row(g.choices[name].row).tile.mr
        tails = row_tails(mr, 1, written_out)
        size = mr + sum(tails)
        if written_out and _too_little(gains[name], size / mr):
            choices[name] = replace(choices[name], tails=0)
        elif tails and not _too_little(alone[name], (size + 1) / size):
            choices[name] = replace(choices[name], tails=2)
    return replace(g, choices=choices)


def _too_little(gain: float, size: float) -> bool:
    """True if a share of the time does not pay for so many times the size."""
    return bool(1 / (1 - gain) * size ** -ALPHA < 1)


def _gains(inside: Sequence[Program], target: Target, g: Group,
           asked: Mapping[str, bool]) -> tuple[dict[str, float], dict[str, float]]:
    """{stage: the share of a group's time that smaller tiles save}: those for any last rows, and
    one for a single row beside them."""
    gains, alone = dict.fromkeys(asked, 0.0), dict.fromkeys(asked, 0.0)
    for program in (p for p in inside if has_decided_stages(p, g, target)):
        stages = group_stages(program, g)
        model = group_model(program, g, tuning=target.tuning)
        boxes = model.boxes(model.variables(g.tile))
        work = [prod(box) * m.per_point + prod(box[:m.rank]) * m.per_output
                for m, (box, _) in zip(model.stages, boxes)]
        for a in aligned_products(stages, g, target):
            name = stages[a.stage].name
            if name in asked:
                rows = prod(boxes[a.stage][0][p] for p in a.rows)
                share = work[a.stage] / max(1, sum(work)) / len(inside)
                gains[name] += share * _saved(rows, a.mr)
                if rows == 1:
                    alone[name] += share * _saved_alone(target, g.choices[name].row, asked[name])
    return gains, alone


def _saved_alone(target: Target, row: str, written_out: bool) -> float:
    """The share of a product's time that a tile for one row saves beside the smallest of the
    others: sums too few to keep the multipliers busy take as long as those that do."""
    tile, least = target.product_row(row).tile, target.tuning.chains
    tails = row_tails(tile.mr, 1, written_out) or (1,)
    return 1 - max(least, tile.nv) / max(least, tails[0] * tile.nv)


def _saved(rows: int, mr: int) -> float:
    """The share of a product's time that a smaller last tile saves, where its rows are about so
    many: any number of them may be left."""
    tails = row_tails(mr, 1, True)
    first = max(1, rows - mr // 2)
    around = range(first, first + mr)
    whole = sum(-(-n // mr) * mr for n in around)
    last = [n % mr for n in around]
    less = sum(mr - t for n in last if n for t in tails if n <= t)
    return less / whole


__all__ = ["choose_row_ends"]
