"""What a rewrite of one compute costs: its neighbourhood as a Program, decided and asked.

The neighbourhood of a compute is the kernel that it is in when maps have joined it.  A candidate is
that small Program with a rewrite: its groups get rows, loops and tiles as the whole Program's do,
between tensors that lie as they do in the whole, and its seconds are those of its groups in a call
on one thread: a Program says nothing of how many there will be, and what pays there pays most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.program import Program, Rewrite
from aotc.ir.schedule import Group
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.choose.connect import connect
from aotc.sched.choose.loops import choose_loops
from aotc.sched.choose.tile import choose_tiles
from aotc.sched.choose.winograd_kernels import join_transforms
from aotc.sched.cost.group_cost import resident
from aotc.sched.judge.decided import Decided
from aotc.sched.judge.judge import Judge
from aotc.target.base import Target

SMALL = 4096  # bytes of constants that are kept as they are


@dataclass(frozen=True)
class Asked:
    """Of a neighbourhood: predicted seconds of its groups, bytes of the weights they read."""

    seconds: float
    weights: int


class Neighbourhoods:
    """Those of one Program on one target; equal ones are asked once."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program, self.target = program, target
        self.alone = replace(target, machine=replace(target.machine, workers=1))
        self.weights = sum(a.nbytes for a in program.consts.values())
        self.known: dict[object, Asked] = {}

    @cached_property
    def groups(self) -> dict[str, Group]:
        """{compute: its group once maps have joined}."""
        return {c: g for g in self.judge.start for c in g.computes}

    @cached_property
    def judge(self) -> Judge:
        """Of the Program as it is: how its tensors lie, and which of its groups are equal."""
        return Judge(self.program, self.target)

    def asked(self, compute: str, rewrites: Sequence[Rewrite] = ()) -> Asked:
        """What the neighbourhood of ``compute`` costs with ``rewrites`` of it."""
        group = self.groups[compute]
        key = (self.judge.signature(group), group.computes.index(compute),
               tuple((rule, tuple(sorted(how.items()))) for rule, _, how in rewrites))
        if key not in self.known:
            self.known[key] = self._asked(compute, rewrites)
        return self.known[key]

    def part(self, compute: str) -> Program:
        """The neighbourhood of ``compute`` as it is."""
        return _part(self.program, self.groups[compute])

    def _asked(self, compute: str, rewrites: Sequence[Rewrite]) -> Asked:
        machine = self.target.machine
        program = apply_rewrites(self.part(compute), rewrites)
        free = resident(program, machine, self.weights)
        near = {b: x for b, x in self.judge.layouts.items() if b in program.buffers}
        groups = join_transforms(program, machine, connect(program))
        groups, layouts = choose_loops(program, self.target, groups, near)
        groups = choose_tiles(program, self.target, groups, layouts)
        seconds = sum(Decided(program, self.alone, g, layouts, free).cost(g.tile).seconds
                      for g in groups)
        return Asked(seconds, sum(a.nbytes for a in program.consts.values()))


def _part(program: Program, group: Group) -> Program:
    """The computes of a group as a Program: what it reads and stores has the role it had; of large
    constants only the shape is known."""
    steps = tuple(s for s in program.steps if s.outs[0] in group.computes)
    near = {b for s in steps for b in (*s.inputs, *s.outs)}
    return replace(
        program, inputs=tuple(b for b in program.inputs if b in near), outputs=group.outputs,
        steps=steps, buffers={b: x for b, x in program.buffers.items() if b in near},
        consts={b: _outline(a) for b, a in program.consts.items() if b in near},
        rewrites=(), checks=(), lists=(), aliases=())


def _outline(array: Array) -> Array:
    """Zeros of a large f32 array's shape that take no memory."""
    if array.dtype != np.float32 or array.nbytes <= SMALL:
        return array
    return np.broadcast_to(np.float32(0), array.shape)


__all__ = ["Asked", "Neighbourhoods"]
