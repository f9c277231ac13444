"""The arena limit: what a user may ask for, and what a Schedule needs.

A call needs its stored temps and one slab of scratch per worker; inputs, outputs and weights are
the caller's memory.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aotc.errors import AotcError, LimitError
from aotc.ir.expr import Const, Expr, Sym, as_expr, substitute
from aotc.ir.plan import Plan
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.ir.simplify import upper
from aotc.sched.memory.allocate import slot_sizes
from aotc.sched.model.stages import group_stages
from aotc.sched.model.stored_sizes import ALIGN
from aotc.sched.text_choices.choose_writing import chosen_kernel
from aotc.target.base import Target

LARGE = 1 << 30  # bytes of arena that a user should know of
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class ArenaLimit:
    """At most ``bytes`` of arena for a call that ``workers`` run."""

    bytes: int
    workers: int = 1

    def __str__(self) -> str:
        return f"{self.bytes} bytes" + (f" for {self.workers} workers" if self.workers > 1 else "")


def parse_bytes(value: int | str | None, what: str) -> int | None:
    """The bytes of an option: None, an int, or text: ``64M``, ``1.5G``, ``800K``.  AotcError, which
    says ``what`` it is of, on anything else."""
    if value is None or isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", value if isinstance(value, str) else "")
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise AotcError(f"{what} {value!r}: write bytes as 64M, 1.5G, 800K or 65536")
    return size


def parse_limit(value: ArenaLimit | int | str | None) -> ArenaLimit | None:
    """The ArenaLimit of an option: None, an int (bytes), or text: ``64M``, ``1.5G``, ``800K``,
    ``64M:4`` (for calls with four workers).  AotcError on anything else."""
    if value is None or isinstance(value, ArenaLimit):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return ArenaLimit(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?::([1-9]\d*))?",
                         value if isinstance(value, str) else "")
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if match is None or size < 1:
        raise AotcError(f"arena limit {value!r}: write bytes as 64M, 1.5G, 800K or 65536, and "
                        "64M:4 for calls with four workers")
    return ArenaLimit(size, int(match[3] or 1))


def arena_need(program: Program, schedule: Schedule, target: Target) -> tuple[int, tuple[int, ...]]:
    """(bytes of stored temps, bytes of one worker's slab for each group) of a decided Schedule for
    the largest extents; ``program`` has its rewrites applied.  LimitError if a size has no
    bound."""
    stored = _arena(slot_sizes(program, schedule), {})
    if stored is None:
        raise LimitError(["arena limit: the size of stored tensors has no bound; give every "
                          "dynamic dimension a range (--dim NAME=LO..HI)"])
    slabs = []
    for g in schedule.groups:
        if not group_stages(program, g):  # a library kernel has no scratch
            slabs.append(0)
            continue
        slab = chosen_kernel(program, schedule, target, g).slab_bytes
        if not isinstance(slab, int):
            raise LimitError(["arena limit: scratch has no bound; give every dynamic dimension "
                              "a range (--dim NAME=LO..HI)"])
        slabs.append(slab)
    return stored, tuple(slabs)


@dataclass(frozen=True)
class LargeArena:
    """A call at the largest extents needs ``bytes`` of arena with one worker; a bound of the
    dimension ``symbol`` (named as in the Program) would lower that most, to ``least``."""

    bytes: int
    symbol: str
    least: int


def large_arena(plan: Plan, target: Target, limit: int = LARGE) -> LargeArena | None:
    """The LargeArena of a Plan that may need more than ``limit`` bytes; None if it does not, or if
    no extent has a bound: then only a call's own extents say what it needs."""
    slabs = 0 if target.machine.threads else plan.slab_bytes
    syms = [s for s in plan.syms if s.hi is not None and s.hi > s.lo]
    sizes = [*plan.slots, as_expr(slabs)]
    need = _arena(sizes, {})
    if not syms or need is None or need <= limit:
        return None
    left = [(n, s.name) for s in syms
            if (n := _arena(sizes, {s: Const(s.lo)})) is not None]
    least, best = min(left)
    return LargeArena(need, best, least)


def _arena(sizes: Iterable[Expr], values: Mapping[Sym, Expr]) -> int | None:
    """Bytes of slots of those sizes; None if one has no bound."""
    total = 0
    for e in sizes:
        top = upper(substitute(e, values))
        if top is None:
            return None
        total += -(-top // ALIGN) * ALIGN
    return total


def check_arena(plan: Plan, limit: ArenaLimit | None, target: Target) -> None:
    """LimitError if a call of a Plan may need more than an ArenaLimit (None: any is fine)."""
    if limit is None:
        return
    stored = _arena(plan.slots, {})
    slabs = 0 if target.machine.threads else upper(as_expr(limit.workers * plan.slab_bytes))
    if stored is None or slabs is None or stored + slabs > limit.bytes:
        raise LimitError([
            f"arena limit: this schedule needs {'unbounded' if stored is None else stored} bytes "
            f"of stored tensors and {'unbounded bytes' if slabs is None else slabs} of scratch, "
            f"the limit is {limit}; " + (
                "a model with loops or branches has no other" if plan.regions else
                "leave the schedule out to have one decided that keeps it")])


__all__ = ["ArenaLimit", "LargeArena", "arena_need", "check_arena", "large_arena", "parse_bytes",
           "parse_limit"]
