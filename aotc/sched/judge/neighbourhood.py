"""What a rewrite of one compute costs, or a layout of a tensor: what is around it as a Program,
decided and asked.

The neighbourhood of a compute is the kernel that it is in when maps have joined it, that of a
tensor the kernels that make and read it.  A candidate is that small Program with a rewrite: its
groups get rows, loops and tiles as the whole Program's do, between tensors that lie as they do in
the whole, and its seconds are those of its groups in a call on one thread: a Program says nothing
of how many there will be, and what pays there pays most.  What is asked for the sake of workers is
asked of all of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from aotc.errors import ScheduleError
from aotc.ir.layout import Layout
from aotc.ir.program import Program, Rewrite
from aotc.ir.schedule import Group
from aotc.passes.layout_rule import layout_rewrite
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.choose.connect import connect
from aotc.sched.choose.loops import choose_loops
from aotc.sched.choose.tile import choose_tiles
from aotc.sched.choose.winograd_kernels import join_transforms
from aotc.sched.cost.decided import Decided
from aotc.sched.cost.group_cost import resident_buffers
from aotc.sched.judge.judge import Judge
from aotc.sched.narrowed_program import outline_constants
from aotc.target.base import Target


@dataclass(frozen=True)
class Asked:
    """Of a neighbourhood: predicted seconds of its groups, bytes of the weights they read."""

    seconds: float
    weights: int


class Neighbourhoods:
    """Those of one Program on one target, in calls on so many workers; equal ones are asked
    once."""

    def __init__(self, program: Program, target: Target, workers: int = 1) -> None:
        self.program, self.target = program, target
        self.called = replace(target, machine=replace(target.machine, workers=workers))
        self.weights = sum(a.nbytes for a in program.consts.values())
        self.known: dict[object, Asked] = {}

    @cached_property
    def groups(self) -> dict[str, Group]:
        """{compute: its group once maps have joined}."""
        start = join_transforms(self.program, self.target.machine, self.judge.start)
        return {c: g for g in start for c in g.computes}

    @cached_property
    def judge(self) -> Judge:
        """Of the Program as it is: how its tensors lie, and which of its groups are equal."""
        return Judge(self.program, self.target)

    def asked(self, compute: str, rewrites: Sequence[Rewrite] = ()) -> Asked:
        """What the neighbourhood of ``compute`` costs with ``rewrites`` of it, or of what it reads
        or makes."""
        group = self.groups[compute]
        steps = [self.program.producer[c] for c in group.computes]
        named = list(dict.fromkeys(b for s in steps for b in (*s.inputs, *s.outs)))
        key = self.judge.signature(group), tuple(
            (rule, named.index(b), tuple(sorted(how.items()))) for rule, b, how in rewrites)
        if key not in self.known:
            self.known[key] = self._asked(compute, rewrites)
        return self.known[key]

    def saved(self, computes: Sequence[str], rewrite: Rewrite) -> float:
        """Seconds by which the neighbourhoods of ``computes`` take less with a rewrite, of one of
        them or of what all of them read; what a rewrite adds counts in each."""
        firsts = {id(g): c for c in computes for g in (self.groups[c],)}
        return sum(self.asked(c).seconds - self.asked(c, (rewrite,)).seconds
                   for c in firsts.values())

    def seconds_around(self, buffers: Sequence[str], layout: Layout | None) -> float:
        """Seconds of the kernels that make or read ``buffers``, tensors of one shape that
        elementwise paths join, if they lie in ``layout`` (None: as the rows and lanes around them
        want); inf if they cannot."""
        at = set(buffers)
        groups = dict.fromkeys(self.groups[s.outs[0]] for s in self.program.steps
                               if not at.isdisjoint((*s.inputs, *s.outs)))
        return sum(self._laid_out(g, at, layout).seconds for g in groups)

    def _laid_out(self, group: Group, at: Collection[str], layout: Layout | None) -> Asked:
        """Asked of a kernel that works on buffers ``at`` if those lie in ``layout``."""
        part = _part(self.program, group)
        places = tuple(b in at for s in part.steps for b in (*s.inputs, *s.outs))
        key = self.judge.signature(group), places, layout
        if key not in self.known:
            here = [b for b in part.buffers if b in at]
            self.known[key] = self._with_layout(part, here, layout)
        return self.known[key]

    def _with_layout(self, part: Program, buffers: Sequence[str], layout: Layout | None) -> Asked:
        near = self.judge.layouts
        if layout is None:
            return self._decided(part, (), near)
        part = replace(part, inputs=tuple(b for b in part.inputs if b not in buffers), buffers={
            b: replace(x, role="temp") if b in buffers else x for b, x in part.buffers.items()})
        # weights follow the loops that read them
        near = {b: x for b, x in near.items() if b not in buffers and b not in part.consts}
        plain = layout.permutation() is not None
        moved = () if plain else [layout_rewrite(b, layout) for b in buffers]
        try:
            return self._decided(part, moved, near | (dict.fromkeys(buffers, layout) if plain
                                                      else {}))
        except ScheduleError:  # a form, say, needs its channels in one dimension
            return Asked(inf, 0)

    def part(self, compute: str) -> Program:
        """The neighbourhood of ``compute`` as it is."""
        return _part(self.program, self.groups[compute])

    def _asked(self, compute: str, rewrites: Sequence[Rewrite]) -> Asked:
        near: Mapping[str, Layout] = self.judge.layouts
        if self.target.machine.threads:  # weights follow the rows that are asked for
            near = {b: x for b, x in near.items() if b not in self.program.consts}
        return self._decided(self.part(compute), rewrites, near)

    def _decided(self, program: Program, rewrites: Sequence[Rewrite],
                 near: Mapping[str, Layout]) -> Asked:
        """Asked of a part of the Program with ``rewrites``, between tensors that lie ``near``."""
        machine = self.target.machine
        done, program = program.rewrites, apply_rewrites(replace(program, rewrites=()), rewrites)
        program = replace(program, rewrites=done + program.rewrites)
        present = resident_buffers(program, machine, self.weights)
        near = {b: x for b, x in near.items() if b in program.buffers}
        groups = join_transforms(program, machine, connect(program))
        groups, layouts = choose_loops(program, self.target, groups, near)
        groups = choose_tiles(program, self.target, groups, layouts)
        seconds = sum(Decided(program, self.called, g, layouts, present).cost(g.tile).seconds
                      for g in groups)
        return Asked(seconds, sum(a.nbytes for a in program.consts.values()))


def _part(program: Program, group: Group) -> Program:
    """The computes of a group as a Program: what it reads and stores has the role it had; of large
    constants only the shape is known."""
    steps = tuple(s for s in program.steps if s.outs[0] in group.computes)
    near = {b for s in steps for b in (*s.inputs, *s.outs)}
    named = {o for s in steps for o in s.outs}.union(program.inputs)
    return replace(
        program, inputs=tuple(b for b in program.inputs if b in near), outputs=group.outputs,
        steps=steps, buffers={b: x for b, x in program.buffers.items() if b in near},
        consts=outline_constants({b: a for b, a in program.consts.items() if b in near}),
        rewrites=tuple(r for r in program.rewrites if r[1] in named), checks=(), lists=(),
        aliases=())


__all__ = ["Asked", "Neighbourhoods"]
