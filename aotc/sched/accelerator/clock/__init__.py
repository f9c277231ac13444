"""When everything of a Plan happens: what engines are told, and the seconds of that.

Read from a Plan's statements alone, beside ``cost``.

Imports of ``sched``: nothing.
"""

from aotc.sched.accelerator.clock.cycles import Span, Timeline, timeline
from aotc.sched.accelerator.clock.item_events import COMPUTE

__all__ = ["COMPUTE", "Span", "Timeline", "timeline"]
