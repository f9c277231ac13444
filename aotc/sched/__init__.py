"""Deciders (Program -> Schedule) and lowering (Program, Schedule -> Plan), in storeys.

    whole Schedules   ``dynamic``, ``limit``, ``report``
    deciders          ``text_choices`` < ``choose`` < ``judge`` < ``candidates`` < ``decide.py``
                      < ``complete.py``
    lowering          ``expand`` < ``lowering``
    legality          ``precision`` < ``check``
    seconds           ``cost`` < ``items`` (what a work item is)
    storage           ``memory``
    facts             ``model`` < ``rows``

Each imports from those below it alone: read upwards, and stop where your question ends.  What
machines with clusters and engines need alone is in ``accelerator``, whose folders stand between
these.  A folder's docstring says what it is built on, and tests/test_layers.py has the order.
"""

from aotc.ir.schedule import CONNECT, WINOGRAD
from aotc.sched.check.check_schedule import check_schedule
from aotc.sched.complete import complete
from aotc.sched.decide import decide
from aotc.sched.limit.arena import check_arena, large_arena, parse_bytes, parse_limit
from aotc.sched.limit.arena_limit import decide_within
from aotc.sched.lowering.lower import lower

__all__ = ["CONNECT", "WINOGRAD", "check_arena", "check_schedule", "complete", "decide",
           "decide_within", "large_arena", "lower", "parse_bytes", "parse_limit"]
