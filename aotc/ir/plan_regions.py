"""Regions of a Plan: which of its kernels run round after round, or only where data say so.

    region = Rounds(first, end, ...) | Choice(first, middle, end, cond)

Kernels are numbered in call order; a region inside another lies inside its range.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from aotc.ir.expr import Expr, Load, Sym, rewrite, show
from aotc.ir.program import Entry, State


@dataclass(frozen=True)
class Rounds:
    """Kernels ``first`` .. ``end`` - 1 run round after round, as of ``Loop``; all names are places.
    ``before`` of states and ``part`` of slices lie where the frame says in a round (storage
    "round_in"), ``after`` and ``part`` of stacks likewise ("round_out")."""

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

    name: str
    first: int
    middle: int
    end: int
    cond: str

    def __str__(self) -> str:
        return f"branch {self.name}: by {self.cond}"


PlanRegion = Rounds | Choice


def moved(region: PlanRegion, by: int) -> PlanRegion:
    """The region with all kernels so many places later."""
    if isinstance(region, Rounds):
        return replace(region, first=region.first + by, end=region.end + by)
    return replace(region, first=region.first + by, middle=region.middle + by, end=region.end + by)


# fields that name buffers, by the class that has them
_NAMES = {"Put": ("buffer",), "Operand": ("buffer", "pad"), "Kernel": ("reads", "writes"),
          "Place": ("name",), "State": ("start", "before", "after", "last", "spare"),
          "Entry": ("whole", "part"), "Rounds": ("count", "going", "again", "ran"),
          "Choice": ("cond",)}


def with_buffers(value: Any, names: Mapping[str, str]) -> Any:
    """A value of a Plan, made of dataclasses, tuples and expressions, with buffers renamed."""
    if isinstance(value, Expr):
        return rewrite(value, lambda e: Load(names[e.buffer], tuple(
            with_buffers(i, names) for i in e.index), e.dtype) if isinstance(
                e, Load) and e.buffer in names else None)
    if isinstance(value, tuple):
        if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], Expr):
            return names.get(value[0], value[0]), with_buffers(value[1], names)  # of a Call
        return tuple(with_buffers(v, names) for v in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {f.name: with_buffers(getattr(value, f.name), names) for f in fields(value) if f.init}
    for name in _NAMES.get(type(value).__name__, ()):
        own = getattr(value, name)
        changes[name] = names.get(own, own) if isinstance(own, str) else tuple(
            names.get(n, n) for n in own)
    return replace(value, **changes)
