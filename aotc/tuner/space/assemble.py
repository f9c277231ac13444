"""One Schedule of the whole model from what is best for its sites."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from aotc.errors import ScheduleError
from aotc.ir.program import Program, Rewrite
from aotc.ir.schedule import Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.check.check_schedule import check_schedule
from aotc.sched.memory.allocate import allocate
from aotc.sched.model.tilegraph import order_groups
from aotc.target.base import Target
from aotc.tuner.space.sites import Site
from aotc.tuner.space.trial import Candidate

Tie = str | int  # a key of equal sites, or a number of others that go together


@dataclass(frozen=True)
class SiteChoice:
    """What one site becomes: a Candidate and the rewrites of its form.  Choices of one ``tie``
    (sites that share a changed layout) are taken together or not at all."""

    site: Site
    candidate: Candidate
    rewrites: tuple[Rewrite, ...]
    tie: Tie


Choices = dict[str, SiteChoice]  # by the site's name


def assemble_schedule(program: Program, untuned: Schedule, settled: Iterable[Rewrite],
                      sites: Iterable[Site], chosen: Choices, target: Target,
                      check: bool = True) -> Schedule:
    """The Schedule with some sites' Candidates in place of their untuned groups.

    program: before any rewrite; settled: rewrites that reach across sites; chosen: {site name:
    Choice}; check: False leaves it to who lowers it.  ScheduleError if it is not legal."""
    rewrites = tuple(settled) + tuple(r for s in sites for r in (
        chosen[s.name].rewrites if s.name in chosen else s.rewrites))
    program = apply_rewrites(program, rewrites)
    gone = {g.name for c in chosen.values() for g in c.site.groups}
    kept = [g for g in untuned.groups if g.name not in gone]
    layouts = dict(untuned.layouts)
    for name, c in chosen.items():
        kept += [replace(g, name=f"{name}_{i}") for i, g in enumerate(c.candidate.groups)]
        for b in c.site.layouts:
            layouts.pop(b, None)
    for c in chosen.values():
        layouts |= c.candidate.layouts
    groups = tuple(replace(g, name=f"g{i:03d}")
                   for i, g in enumerate(order_groups(program, kept)))
    layouts = {b: x for b, x in layouts.items() if b in program.buffers and x}
    schedule = replace(untuned, groups=groups, layouts=layouts, buffers={}, rewrites=rewrites)
    schedule = replace(schedule, buffers=allocate(program, schedule))
    faults = check_schedule(program, schedule, target) if check else ()
    if faults:
        raise ScheduleError(faults)
    return schedule


__all__ = ["SiteChoice", "assemble_schedule"]
