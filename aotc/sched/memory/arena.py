"""The arena limit: what a user may ask for, and what a Schedule needs.

A call needs its stored temps and one slab of scratch per worker; inputs, outputs and weights are
the caller's memory.
"""

import re
from dataclasses import dataclass

from aotc.errors import AotcError, ScheduleError
from aotc.ir.expr import Const, as_expr, substitute
from aotc.ir.simplify import upper
from aotc.sched.lowering.lower import lower_group
from aotc.sched.memory.allocate import ALIGN, slot_sizes

LARGE = 1 << 30  # bytes of arena that a user should know of
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class ArenaLimit:
    """At most ``bytes`` of arena for a call that ``workers`` run."""

    bytes: int
    workers: int = 1

    def __str__(self):
        return f"{self.bytes} bytes" + (f" for {self.workers} workers" if self.workers > 1 else "")


def parse_limit(value):
    """The ArenaLimit of an option: None, an int (bytes), or text: ``64M``, ``1.5G``, ``800K``,
    ``64M:4`` (for calls with four workers).  AotcError on anything else."""
    if value is None or isinstance(value, ArenaLimit):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return ArenaLimit(value)
    match = isinstance(value, str) and re.fullmatch(
        r"(\d+(?:\.\d+)?)([KMG]?)(?::([1-9]\d*))?", value)
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise AotcError(f"arena limit {value!r}: write bytes as 64M, 1.5G, 800K or 65536, and "
                        "64M:4 for calls with four workers")
    return ArenaLimit(size, int(match[3] or 1))


def arena_need(program, schedule, target):
    """(bytes of stored temps, bytes of one worker's slab for each group) of a decided Schedule for
    the largest extents; ``program`` has its rewrites applied.  ScheduleError if a size has no
    bound."""
    sizes = [upper(s) for s in slot_sizes(program, schedule)]
    if None in sizes:
        raise ScheduleError(["arena limit: the size of stored tensors has no bound; give every "
                             "dynamic dimension a range (--dim NAME=LO..HI)"])
    slabs = tuple(lower_group(program, schedule, target, g, i).slab_bytes
                  for i, g in enumerate(schedule.groups))
    if not all(isinstance(n, int) for n in slabs):
        raise ScheduleError(["arena limit: scratch has no bound; give every dynamic dimension a "
                             "range (--dim NAME=LO..HI)"])
    return sum(-(-s // ALIGN) * ALIGN for s in sizes), slabs


@dataclass(frozen=True)
class LargeArena:
    """A call at the largest extents needs ``bytes`` of arena with one worker; a bound of the
    dimension ``symbol`` (named as in the Program) would lower that most, to ``least``."""

    bytes: int
    symbol: str
    least: int


def large_arena(plan, target, limit=LARGE):
    """The LargeArena of a Plan that may need more than ``limit`` bytes; None if it does not, or if
    no extent has a bound: then only a call's own extents say what it needs."""
    slabs = 0 if target.machine.threads else plan.slab_bytes
    syms = [s for s in plan.syms if s.hi is not None and s.hi > s.lo]
    sizes = [*plan.slots, as_expr(slabs)]
    need = _bytes(sizes, {})
    if not syms or need is None or need <= limit:
        return None
    left = {s: _bytes(sizes, {s: Const(s.lo)}) for s in syms}
    best = min(syms, key=lambda s: (left[s], s.name))
    return LargeArena(need, best.name, left[best])


def _bytes(sizes, values):
    tops = [upper(substitute(e, values)) for e in sizes]
    return None if None in tops else sum(-(-t // ALIGN) * ALIGN for t in tops)


def check_arena(plan, limit, target):
    """ScheduleError if a call of a Plan may need more than an ArenaLimit (None: any is fine)."""
    if limit is None:
        return
    slots = [upper(s) for s in plan.slots]
    stored = None if None in slots else sum(-(-s // ALIGN) * ALIGN for s in slots)
    slabs = 0 if target.machine.threads else upper(as_expr(limit.workers * plan.slab_bytes))
    stored, slabs = (None, "unbounded bytes") if slabs is None else (stored, slabs)
    if stored is None or stored + slabs > limit.bytes:
        raise ScheduleError([
            f"arena limit: this schedule needs {'unbounded' if stored is None else stored} bytes "
            f"of stored tensors and {slabs} of scratch, the limit is {limit}; leave the schedule "
            "out to have one decided that keeps it"])


__all__ = ["ArenaLimit", "LargeArena", "arena_need", "check_arena", "large_arena", "parse_limit"]
