"""Lowering of regions: the kernels of a body, called round after round or where data say so.

What a body reads of the Program around it are that Program's places.  What changes from round to
round lies where a pointer of the frame leads.  Temps of bodies lie in slots behind all others,
which every region uses in its turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aotc.ir.contents import with_buffers
from aotc.ir.dtypes import Array
from aotc.ir.expr import Expr, maximum
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.plan import Place, Plan
from aotc.ir.plan_regions import Choice, PlanRegion, Rounds, move_region
from aotc.ir.program import Branch, Loop, Region
from aotc.ir.simplify import simplify
from aotc.sched.model.stored_sizes import ALIGN

ROUND = ("round_in", "round_out")


@dataclass
class Bodies:
    """The lowered bodies of a Program's regions, gathered.  ``taken``: names of places;
    ``first_slot``: of theirs; ``end``: bytes of their weights, the first at 0."""

    taken: set[str]
    first_slot: int
    end: int = 0
    places: list[Place] = field(default_factory=list)
    weights: list[tuple[str, Array]] = field(default_factory=list)
    slots: list[Expr] = field(default_factory=list)
    regions: list[PlanRegion] = field(default_factory=list)

    def enter(self, region: Region, plans: Sequence[Plan], label: str,
              first: int) -> tuple[LoweredKernel, ...]:
        """The kernels of a region whose bodies are ``plans``, which are called from number
        ``first`` on; ``label``: how their names begin."""
        kernels: list[LoweredKernel] = []
        ends, names = [first], dict[str, str]()
        inner: list[PlanRegion] = []
        for k, (body, plan) in enumerate(zip(region.bodies, plans)):
            tag = ("then_", "else_")[k] if isinstance(region, Branch) else ""
            outer = {i: i for i in region.captured}
            if isinstance(region, Branch):
                outer |= dict(zip(body.outputs, region.outs))
            names = outer | self._adopted(plan, outer)
            kernels += [replace(with_buffers(k.lowered, names), name=f"{label}_{tag}{k.name[1:]}")
                        for k in plan.kernels]
            inner += [with_buffers(move_region(r, ends[-1]), names) for r in plan.regions]
            ends.append(first + len(kernels))
        if isinstance(region, Loop):
            whole: PlanRegion = _rounds(region, ends, names)
        else:
            whole = Choice(region.name, ends[0], ends[1], ends[2], region.cond)
        self.regions += [whole, *inner]
        return tuple(kernels)

    def _adopted(self, plan: Plan, outer: Mapping[str, str]) -> dict[str, str]:
        """{name in a body: in the whole} of the places of the body's own, which are entered."""
        names, base = {}, self.end
        for p in plan.places:
            if p.name in outer:
                continue
            name = p.name
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            names[p.name] = name
            p = replace(p, name=name, onnx="")
            if p.storage == "weights":
                p = replace(p, offset=p.offset + base)
            elif p.storage == "arena":
                p = replace(p, slot=p.slot + self.first_slot)
            else:
                kind = ROUND[p.storage in ("output", "round_out")]
                p = replace(p, storage=kind, index=sum(q.storage == kind for q in self.places))
            self.places.append(p)
        self.weights += [(names[n], a) for n, a in plan.weights]
        self.end += -(-plan.weights_bytes // ALIGN) * ALIGN
        for i, size in enumerate(plan.slots):
            if i < len(self.slots):
                self.slots[i] = simplify(maximum(self.slots[i], size))
            else:
                self.slots.append(size)
        return names


    def placed(self, offset: int) -> tuple[Place, ...]:
        """The places, weights ``offset`` bytes into the image."""
        return tuple(replace(p, offset=p.offset + offset) if p.storage == "weights" else p
                     for p in self.places)


def _rounds(loop: Loop, ends: Sequence[int], names: Mapping[str, str]) -> Rounds:
    return Rounds(
        loop.name, ends[0], ends[1], loop.trip, loop.round,
        tuple(replace(s, before=names[s.before], after=names[s.after]) for s in loop.states),
        tuple(replace(s, part=names[s.part]) for s in loop.slices),
        tuple(replace(s, part=names[s.part]) for s in loop.stacks), loop.count, loop.going,
        names[loop.again] if loop.again else "", loop.ran)


def region_buffers(regions: Iterable[PlanRegion]) -> set[str]:
    """Places that regions themselves read or write."""
    out: set[str] = set()
    for r in regions:
        if isinstance(r, Choice):
            out.add(r.cond)
            continue
        out |= {n for s in r.states for n in (s.start, s.last, s.spare)}
        out |= {s.whole for s in (*r.slices, *r.stacks)}
        out |= {n for n in (r.count, r.going, r.ran) if n}
    return out


__all__ = ["Bodies", "region_buffers"]
