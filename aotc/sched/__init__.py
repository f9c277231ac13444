"""Deciders (Program -> Schedule) and lowering (Program, Schedule -> Plan)."""

from aotc.sched.arena import check_arena, large_arena, parse_limit
from aotc.sched.arena_limit import decide_within
from aotc.sched.check import check_schedule
from aotc.sched.decide import CONNECT, complete, decide
from aotc.sched.lower import lower
from aotc.sched.winograd_choice import WINOGRAD

__all__ = ["CONNECT", "WINOGRAD", "check_arena", "check_schedule", "complete", "decide",
           "decide_within", "large_arena", "lower", "parse_limit"]
