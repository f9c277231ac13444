"""What is settled of the stages of groups while rows are chosen: layouts of buffers, and how
products want to read them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import prod
from typing import TypeVar

from aotc.ir.access import offset_of
from aotc.ir.expr import Axis, Expr, Load
from aotc.ir.layout import Layout
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import Group
from aotc.passes.layout_rule import list_laid_out
from aotc.sched.model.stages import Stage, group_stages, target_memo
from aotc.sched.rows.winograd_stages import transform_lanes
from aotc.target.base import Target

R = TypeVar("R")
Wanted = tuple[Load, tuple[int, ...], frozenset[int]]  # as ``Settled.wanted`` says


class Settled:
    """What has been decided so far: layouts by buffer and the stages of every group."""

    def __init__(self, program: Program, target: Target, groups: Sequence[Group],
                 given: Mapping[str, Layout]) -> None:
        self.program, self.target, self.groups = program, target, groups
        self.stages = {g.name: group_stages(program, g) for g in groups}
        # stored as a rewrite says, or as the schedule does: nothing is left to choose
        self.given = {b: Layout(()) for b in list_laid_out(program.rewrites)} | dict(given)
        self.layouts = dict(self.given)
        about = program.known("loops")
        if not about:
            about |= {"lanes": transform_lanes(program), "plain": called_buffers(program)}
        self.lanes: dict[str, Axis] = about["lanes"]  # of the stages of Winograd forms
        self.plain: set[str] = about["plain"]
        self.known = target_memo(program, target)
        # how contractions read their rows: (load, the dims that the sum runs over, those of rows)
        self.wanted: dict[str, Wanted] = {}
        self.rows = 0  # of the work items of the group at hand, where those bound register tiles

    def offset(self, load: Load) -> Expr:
        """Element offset of a Load under the layouts chosen so far."""
        layout = self.layouts.get(load.buffer)
        return offset_of(load.index, self.program.shape(load.buffer), layout)

    def rows_of_items(self, group: Group) -> int:
        """Rows of the work items of a group of several stages that threads share, which bound the
        register tiles of its products; 0 of others."""
        together = self.target.machine.threads and len(self.stages[group.name]) > 1
        return prod(group.tile.values()) if together and group.tile else 0

    def once(self, what: str, s: Stage, find: Callable[[], R]) -> R:
        """``find()``, which decides something of a stage from what is known of its buffers, and
        whose layouts it may settle: done once for equal stages in equal surroundings."""
        key = what, s, tuple([(self.layouts.get(b), b in self.given, self.wanted.get(b))
                              for b in s.buffers])
        if key not in self.known:
            had = len(self.layouts)
            found = find()
            new = dict(islice(self.layouts.items(), had, None))  # in the order they were settled
            self.known[key] = found, new | {b: self.layouts[b] for b in s.buffers
                                            if b in self.layouts}
        found, settled = self.known[key]
        self.layouts |= settled
        return found


def called_buffers(program: Program) -> set[str]:
    """Buffers that library calls touch: those are row-major."""
    return {b for s in program.steps if not isinstance(s, Compute) for b in s.inputs + s.outs}


def inherit(program: Program, old: Program, target: Target) -> None:
    """Keep for a Program what has been found for stages of ``old``, which a rewrite has made it
    from, where all their buffers are the same in both."""
    if program is old:
        return
    same = {b for b, x in program.buffers.items() if old.buffers.get(b) == x
            and old.consts.get(b) is program.consts.get(b)}
    known = target_memo(program, target)
    known |= {key: found for key, found in target_memo(old, target).items()
              if isinstance(key, tuple) and same.issuperset(key[1].buffers)}


__all__ = ["Settled", "Wanted", "called_buffers"]
