"""Groups that several parts of a Schedule have with the same decisions.

Narrower ranges leave other bounds and fewer tails, so every part would write such a group in a way
of its own.  How its statements are written is chosen for the calls of all (``sched.text_choices``),
and it is lowered once for them (``sched.common_kernels``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule, When, code_of
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.model.stages import find_call, touched_buffers
from aotc.sched.shape_variants import Part, hulls, restrict_once
from aotc.target.base import Target

Member = tuple[int, int]  # number of a part, number of a group of it


@dataclass(frozen=True)
class CommonGroup:
    """``group``: one of ``schedule``, the Schedule of the last part that has it; ``program``: what
    that may assume of the calls of all parts that have the group, its rewrites applied;
    ``members``: where they have it."""

    program: Program
    schedule: Schedule
    group: Group
    members: tuple[Member, ...]


def common_groups(program: Program, parts: Sequence[Part], target: Target) -> list[CommonGroup]:
    """Groups of stages that several of ``parts`` have, those of the last part first; none where
    what they copy lies elsewhere in every part.  program: of all calls,
    before rewrites.  Whether a group is legal for the calls of all is not looked at."""
    if len(parts) == 1 or target.machine.on_copies:
        return []
    found: dict[object, list[Member]] = {}
    for i, part in reversed(list(enumerate(parts))):
        whole = apply_rewrites(program, part.schedule.rewrites)
        for at, g in enumerate(part.schedule.groups):
            if find_call(whole, g) is None:
                found.setdefault(_meaning(whole, part.schedule, g), []).append((i, at))
    return [c for members in found.values() if len(members) > 1
            for c in _for_all_calls(program, parts, members)]


def _meaning(whole: Program, schedule: Schedule, group: Group) -> object:
    """What a group computes of a rewritten Program and every decision of it."""
    return (code_of(group), tuple(whole.producer[c] for c in group.computes), tuple(
        (whole.buffers[b], str(schedule.layouts.get(b))) for b in touched_buffers(whole, group)))


def _for_all_calls(program: Program, parts: Sequence[Part],
                   members: Sequence[Member]) -> list[CommonGroup]:
    """The CommonGroup of members; none where rewrites cannot be applied for the calls of all."""
    (first, at), schedule = members[0], parts[members[0][0]].schedule
    ranges: list[When] = [{s.name: (s.lo, s.hi) for s in parts[i].program.syms}
                          for i, _ in members]
    box = hulls([0] * len(members), ranges)[0]
    try:
        inside = apply_rewrites(restrict_once(program, box), schedule.rewrites)
    except ScheduleError:
        return []
    return [CommonGroup(inside, schedule, parts[first].schedule.groups[at], tuple(members))]


__all__ = ["CommonGroup", "common_groups"]
