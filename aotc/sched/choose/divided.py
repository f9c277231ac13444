"""Loops of a map whose loads take an axis apart: those that load and store the fewest elements by
themselves, by the cost model.

Neighbours along such an axis lie far apart on one side at least.  Lanes may run along another axis,
along a digit of this one, or blocks exchange two.  At most one axis is split; it stays whole in
every work item, so that where the others have too few points for all workers none is.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from aotc.ir.access import is_woven, offset_of
from aotc.ir.expr import Axis
from aotc.ir.stage_choice import StageChoice
from aotc.sched.cost.accesses import nest_cost, stage_kind
from aotc.sched.model.digit_stage import digit_axes, split_axis
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage
from aotc.sched.rows.exchange import exchange_choice
from aotc.sched.rows.settled_choices import Settled


def digit_choice(c: Settled, s: Stage, plain: StageChoice) -> StageChoice:
    """The choice of a stage: ``plain``, what was chosen without a look at digits, or of a map what
    costs less.  c: what is settled so far, with layouts of what the stage reads and writes."""
    target, axes = c.target, digit_axes(s)
    if not axes or target.lanes < 2 or target.machine.threads or s.body.dtype != "f32":
        return plain
    best, least = plain, nest_cost(c.program, target, s, plain, c.layouts)
    found: list[tuple[Stage, StageChoice, str]] = [
        (s, x, "") for x in _choices(c, s, s.axes)]
    for name in reversed(axes):  # of equals the innermost
        others = estimate_volume(a.extent for a in s.axes if a.name != name)
        if others >= target.machine.workers:
            new = split_axis(s, name)
            own = [a for a in new.axes if a not in s.axes]
            found += [(new, x, name) for x in _choices(c, new, own)]
    for stage, choice, digits in found:
        cost = nest_cost(c.program, target, stage, choice, c.layouts)
        if cost < least:
            best, least = replace(choice, digits=digits), cost
    return best


def _choices(c: Settled, s: Stage, axes: Iterable[Axis]) -> Iterator[StageChoice]:
    """Choices of a map that has its lanes along one of ``axes``, or exchanges one of them with
    another, where they fill lanes."""
    kind = stage_kind(s)
    wide = {a.name for a in s.axes if estimate(a.extent) >= c.target.lanes}
    exchanged = exchange_choice(c, s, weave=True) if kind == "move" else None
    if exchanged is not None and any(
            a.name in (exchanged.lanes, exchanged.block) for a in axes) and (
            exchanged.lanes in wide and (exchanged.block in wide or _weaves(c, s, exchanged))):
        yield exchanged
    rows = c.target.rows(kind)
    for a in reversed(tuple(axes)) if rows else ():
        if a.name in wide:
            yield StageChoice(rows[0].name, a.name)


def _weaves(c: Settled, s: Stage, choice: StageChoice) -> bool:
    """True for an exchange whose few blocks lie between the lanes of what is stored."""
    lane, block = (next(a for a in s.axes if a.name == n) for n in (choice.lanes, choice.block))
    (o,) = s.outputs
    return is_woven(offset_of(o.index, c.program.shape(o.buffer), c.layouts.get(o.buffer)), lane,
                    block)


__all__ = ["digit_choice"]
