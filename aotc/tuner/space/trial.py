"""Several candidates in one Program, to be built and timed together.

    program, schedule, owners = trial_program(candidates, target)

Every candidate's stored inputs are written by a small kernel of its own right before it runs, as
another kernel would have done in the model, in the layouts it wants; what it stores nobody reads.
Every candidate has weights of its own: what the one before has left in the caches must not help
the next.  Where that would take too much memory they share those of equal contents and layout; the
executor orders them so that equal ones lie far apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aotc.ir.access import layout_from_json
from aotc.ir.dtypes import Array, is_float
from aotc.ir.expr import Axis, Cast, Const, Load, Sym
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Buffer, Compute, Program, Step
from aotc.ir.schedule import Group, Schedule
from aotc.ir.stage_choice import StageChoice
from aotc.samples import Feeds, Syms
from aotc.sched.choose.tile import choose_tiles
from aotc.sched.memory.allocate import allocate
from aotc.target.base import Target
from aotc.tuner.space.sites import number_buffers, rename_buffers, rename_group

OWN_BYTES = 160 << 20  # of weights in one Program; further candidates share them
SEED = "seed"  # one number, the value of every float that a candidate reads


Values = Mapping[str, Any]  # {knob name: choice}, names and numbers as JSON has them
Point = tuple[str, tuple[tuple[str, Any], ...]]  # (form, ((knob name, choice), ...))


@dataclass(frozen=True)
class Candidate:
    """One way to run a site: its (rewritten) Program, groups and layouts.  ``site``: the site's
    key; ``point``: what was chosen, as JSON values, the same for equal sites."""

    site: str
    point: Point
    program: Program = field(repr=False)
    groups: tuple[Group, ...] = field(repr=False)
    layouts: dict[str, LayoutJson] = field(hash=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        # a fresh Program leaves behind what functions have remembered of it
        return self.__dict__ | {"program": replace(self.program)}


def trial_program(candidates: Sequence[Candidate], target: Target,
                  math: str = "fast") -> tuple[Program, Schedule, tuple[int | None, ...]]:
    """(Program, Schedule, owners): ``owners[i]`` is the number of the candidate whose kernel is
    the i-th group of the Schedule, or None for one that only writes an input."""
    b = _Builder(target)
    for number, c in enumerate(candidates):
        b.add(number, c)
    program = Program("trial", tuple(b.inputs), (b.done,), b.buffers, b.consts, tuple(b.steps),
                      tuple(b.syms))
    groups = tuple(b.groups)
    if target.machine.threads:  # what writes inputs has many blocks, too
        layouts = {n: layout_from_json(x) for n, x in b.layouts.items()}
        groups = tuple(g if owner is not None else choose_tiles(program, target, (g,), layouts)[0]
                       for g, owner in zip(groups, b.owners))
    schedule = Schedule(target.name, groups, b.layouts, math=math)
    return program, replace(schedule, buffers=allocate(program, schedule)), tuple(b.owners)


class _Builder:
    """The union of candidates under construction."""

    def __init__(self, target: Target) -> None:
        self.target, self.done = target, "done"
        self.inputs = [SEED]
        self.consts: dict[str, Array] = {}
        self.steps: list[Step] = []
        self.buffers = {SEED: Buffer(SEED, (Const(1),), "f32", "input", SEED),
                        self.done: Buffer(self.done, (Const(1),), "f32", "output", "done")}
        self.groups: list[Group] = []
        self.layouts: dict[str, LayoutJson] = {}
        self.owners: list[int | None] = []
        self.syms: dict[Sym, None] = {}
        # (id of the array, layout) -> name of the const that holds it
        self.weights: dict[tuple[int, str], str] = {}
        self.bytes = 0  # of all weights
        one = Axis("i", Const(1))
        self._group(Compute((self.done,), (one,), (), "none", Load(SEED, (one,), "f32")), None)

    def _group(self, step: Compute, owner: int | None) -> None:
        self.steps.append(step)
        choice = _fill_choice(self.target, step, self.layouts.get(step.out))
        self.groups.append(Group(f"g{len(self.groups)}", (step.out,), (step.out,), step.out,
                                 choices={step.out: choice}))
        self.owners.append(owner)

    def add(self, number: int, candidate: Candidate) -> None:
        """Append a candidate's kernels, and those that write what it reads."""
        source = candidate.program
        names = number_buffers(source, f"v{number}_")
        for c, array in source.consts.items():
            key = id(array), str(candidate.layouts.get(c))
            if self.bytes + array.nbytes > OWN_BYTES:
                names[c] = self.weights.get(key, names[c])
            self.bytes += 0 if names[c] == self.weights.get(key) else array.nbytes
            self.weights.setdefault(key, names[c])
        plain = rename_buffers(source, names)
        self._symbols(source.syms)
        for b in plain.buffers.values():
            role = "temp" if b.role == "output" else b.role
            self.buffers.setdefault(b.name, replace(b, role=role))
        self.consts.update(plain.consts)
        self.layouts.update({names[b]: x for b, x in candidate.layouts.items() if b in names})
        for name in plain.inputs:
            self._input(name)
        self.steps += plain.steps
        self.groups += [rename_group(g, names, f"g{len(self.groups) + i}")
                        for i, g in enumerate(candidate.groups)]
        self.owners += [number] * len(candidate.groups)

    def _symbols(self, syms: Iterable[Sym]) -> None:
        """Inputs whose shapes tell the symbols."""
        for s in syms:
            if s not in self.syms:
                name = f"extent_{len(self.syms)}"
                self.syms[s] = None
                self.inputs.append(name)
                self.buffers[name] = Buffer(name, (s,), "f32", "input", name)

    def _input(self, name: str) -> None:
        b = self.buffers[name]
        if b.role == "temp" and is_float(b.dtype):
            axes = tuple(Axis(f"i{d}", n) for d, n in enumerate(b.shape))
            one = Load(SEED, (Const(0),), "f32")
            value = one if b.dtype == "f32" else Cast(b.dtype, one)
            self._group(Compute((name,), axes, (), "none", value), None)
            return
        # data that may become an index, and the caller's own tensors: real inputs, row-major
        self.buffers[name] = replace(b, role="input", onnx=name)
        self.layouts.pop(name, None)
        self.inputs.append(name)


def _fill_choice(target: Target, step: Compute, layout: LayoutJson | None) -> StageChoice:
    """The choice of a map that writes one value everywhere: lanes over the innermost dim."""
    rows = target.rows("map")
    if not rows or not step.axes or step.body.dtype != "f32":
        return StageChoice("loops")
    lane: Axis | None = step.axes[-1]
    if layout:
        index = layout_from_json(layout).index(step.axes, tuple(a.extent for a in step.axes))
        last = index[-1]
        lane = last if isinstance(last, Axis) else None
    return StageChoice("loops") if lane is None else StageChoice(rows[0].name, lane.name)


def trial_feeds(program: Program, values: Syms) -> Feeds:
    """{input: array} of a trial's Program.  values: {symbol name: extent}; {} without symbols."""
    from aotc.samples import random_inputs
    feeds = random_inputs(program, values)
    feeds[SEED] = np.full(1, 0.5, np.float32)
    return feeds


__all__ = ["Candidate", "trial_feeds", "trial_program"]
