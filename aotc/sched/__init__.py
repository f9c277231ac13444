"""Deciders (Program -> Schedule) and lowering (Program, Schedule -> Plan)."""

from aotc.sched.check import check_schedule
from aotc.sched.decide import CONNECT, complete, decide
from aotc.sched.lower import lower
from aotc.sched.winograd_choice import WINOGRAD

__all__ = ["CONNECT", "WINOGRAD", "check_schedule", "complete", "decide", "lower"]
