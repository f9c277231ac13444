"""Deciders (Program -> Schedule) and lowering (Program, Schedule -> Plan)."""

from aotc.ir.schedule import CONNECT, WINOGRAD
from aotc.sched.check.check_schedule import check_schedule
from aotc.sched.complete import complete
from aotc.sched.decide import decide
from aotc.sched.limit.arena import check_arena, large_arena, parse_limit
from aotc.sched.limit.arena_limit import decide_within
from aotc.sched.lowering.lower import lower

__all__ = ["CONNECT", "WINOGRAD", "check_arena", "check_schedule", "complete", "decide",
           "decide_within", "large_arena", "lower", "parse_limit"]
