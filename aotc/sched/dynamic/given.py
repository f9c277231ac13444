"""Variants for boxes of extents that the user asks for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule, Variant, When
from aotc.sched.choose.precision import precision_of
from aotc.sched.dynamic.moved import move_to_extents
from aotc.sched.shape_variants import (
    Decide,
    Range,
    hulls,
    restrict_once,
    served_extents,
    weight_layouts,
    when_faults,
)
from aotc.target.base import Target


def with_variants(program: Program, target: Target, boxes: Sequence[Mapping[str, Range]],
                  decide: Decide) -> Schedule:
    """A Schedule with a variant for each of ``boxes`` ({symbol: (lowest, highest extent)}), in
    that order, ``decide``d for a Program of those extents, and for the calls that are left; where
    none are, the last box becomes the base.  All have the weights as the base has them.
    ScheduleError lists what is wrong with the boxes."""
    whens = [dict(box) for box in boxes]
    known = all({s.name for s in program.syms}.issuperset(w) for w in whens)
    if len(whens) > 1 and known and len(whens) not in served_extents(program, whens):
        whens.pop()
    none = Schedule(target.name, ())
    faults = when_faults(program, replace(none, variants=tuple(Variant(w, none) for w in whens)))
    if faults:
        raise ScheduleError(faults)
    found = served_extents(program, whens)
    each = [found[i] for i in sorted(found)]
    *others, last = (restrict_once(program, box) for box in each)
    base = decide(last, target, {})
    weights = weight_layouts(last, base) if others else {}
    *made, base = _shared(program, target, each, [*(decide(p, target, weights) for p in others),
                                                  base], lambda p: decide(p, target, weights))
    rewrites = [r for s in (base, *made) for r in s.rewrites]
    return replace(base, variants=tuple(map(Variant, whens, made)),
                   precision=precision_of(rewrites, base.precision))


def _shared(program: Program, target: Target, each: Sequence[When], made: Sequence[Schedule],
            decide: Callable[[Program], Schedule]) -> list[Schedule]:
    """The Schedules made for boxes ``each``, those that several of them have legal for the calls
    of all: what is decided for one extent may not hold of a symbol."""
    for _ in each:
        around = hulls([s.hash for s in made], each)
        common = {s.hash: s for s, own in zip(made, each) if around[s.hash] != own}
        fitted = {key: move_to_extents(inside, s, target) or decide(inside) for key,
                  s in common.items() for inside in [restrict_once(program, around[key])]}
        if all(key == s.hash for key, s in fitted.items()):
            break
        made = [fitted.get(s.hash, s) for s in made]
    return [*made]


__all__ = ["with_variants"]
