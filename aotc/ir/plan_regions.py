"""Regions of a Plan: which of its kernels run round after round, or only where data say so.

    region = Rounds(first, end, ...) | Choice(first, middle, end, cond)

Kernels are numbered in call order; a region inside another lies inside its range.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from aotc.ir.expr import Expr, Sym, show
from aotc.ir.program import Entry, State


@dataclass(frozen=True)
class Rounds:
    """Kernels ``first`` .. ``end`` - 1 run round after round, as of ``Loop``; all names are places.
    ``before`` of states and ``part`` of slices lie where the frame says in a round (storage
    "round_in"), ``after`` and ``part`` of stacks likewise ("round_out")."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("count", "going", "again", "ran")
    name: str
    first: int
    end: int
    trip: Expr
    round: Sym
    states: tuple[State, ...] = ()
    slices: tuple[Entry, ...] = ()
    stacks: tuple[Entry, ...] = ()
    count: str = ""
    going: str = ""
    again: str = ""
    ran: str = ""

    def __str__(self) -> str:
        asks = [f"at most {self.count}"] * bool(self.count)
        asks += [f"if {self.going}"] * bool(self.going) + [f"while {self.again}"] * bool(self.again)
        lines = [", ".join([f"loop {self.name}: {self.round.name} in 0..{show(self.trip)}", *asks])]
        lines += [f"  {s.before} = {s.start}, then {s.after}, which is {s.spare} and {s.last} in "
                  "turns" for s in self.states]
        lines += [f"  {s.part} = an entry of {s.whole}" + ", from the last on" * s.backward
                  for s in (*self.slices, *self.stacks)]
        return "\n".join([*lines, *([f"  {self.ran} = rounds that ran"] if self.ran else [])])


@dataclass(frozen=True)
class Choice:
    """Kernels ``first`` .. ``middle`` - 1 run where the bool in the place ``cond`` is true, else
    ``middle`` .. ``end`` - 1."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("cond",)
    name: str
    first: int
    middle: int
    end: int
    cond: str

    def __str__(self) -> str:
        return f"branch {self.name}: by {self.cond}"


PlanRegion = Rounds | Choice


def move_region(region: PlanRegion, by: int) -> PlanRegion:
    """The region with all kernels so many places later."""
    if isinstance(region, Rounds):
        return replace(region, first=region.first + by, end=region.end + by)
    return replace(region, first=region.first + by, middle=region.middle + by, end=region.end + by)
