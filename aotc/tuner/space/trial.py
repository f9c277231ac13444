"""Several candidates in one Program, to be built and timed together.

    program, schedule, owners = trial_program(candidates, target)

Every candidate's stored inputs are written by a small kernel of its own right before it runs, as
another kernel would have done in the model, in the layouts it wants; what it stores nobody reads.
Every candidate has weights of its own: what the one before has left in the caches must not help
the next.  Where that would take too much memory they share those of equal contents and layout; the
executor orders them so that equal ones lie far apart.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from aotc.ir.access import layout_from_json
from aotc.ir.dtypes import is_float
from aotc.ir.expr import Axis, Cast, Const, Load
from aotc.ir.program import Buffer, Compute, Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.memory.allocate import allocate
from aotc.tuner.space.sites import canonical, renamed, renamed_group

OWN_BYTES = 160 << 20  # of weights in one Program; further candidates share them
SEED = "seed"  # one number, the value of every float that a candidate reads


@dataclass(frozen=True)
class Candidate:
    """One way to run a site: its (rewritten) Program, groups and layouts.  ``site``: the site's
    key; ``point``: what was chosen, as JSON values, the same for equal sites."""

    site: str
    point: tuple
    program: Program = field(repr=False)
    groups: tuple = field(repr=False)
    layouts: dict = field(hash=False, repr=False)

    def __getstate__(self):
        # a fresh Program leaves behind what functions have remembered of it
        return self.__dict__ | {"program": replace(self.program)}


def trial_program(candidates, target, math="fast"):
    """(Program, Schedule, owners): ``owners[i]`` is the number of the candidate whose kernel is
    the i-th group of the Schedule, or None for one that only writes an input."""
    b = _Builder(target)
    for number, c in enumerate(candidates):
        b.add(number, c)
    program = Program("trial", tuple(b.inputs), (b.done,), b.buffers, b.consts, tuple(b.steps),
                      tuple(b.syms))
    schedule = Schedule(target.name, tuple(b.groups), b.layouts, math=math)
    return program, replace(schedule, buffers=allocate(program, schedule)), tuple(b.owners)


class _Builder:
    """The union of candidates under construction."""

    def __init__(self, target):
        self.target, self.done = target, "done"
        self.inputs, self.consts, self.steps = [SEED], {}, []
        self.buffers = {SEED: Buffer(SEED, (Const(1),), "f32", "input", SEED),
                        self.done: Buffer(self.done, (Const(1),), "f32", "output", "done")}
        self.groups, self.layouts, self.owners, self.syms = [], {}, [], {}
        self.weights = {}  # (id of the array, layout) -> name of the const that holds it
        self.bytes = 0  # of all weights
        one = Axis("i", Const(1))
        self._group(Compute((self.done,), (one,), (), "none", Load(SEED, (one,), "f32")), None)

    def _group(self, step, owner):
        self.steps.append(step)
        row, loops = _fill_row(self.target, step, self.layouts.get(step.out))
        self.groups.append(Group(f"g{len(self.groups)}", (step.out,), (step.out,), step.out, {},
                                 {}, {step.out: row}, {step.out: loops} if loops else {}))
        self.owners.append(owner)

    def add(self, number, candidate):
        """Append a candidate's kernels, and those that write what it reads."""
        source = candidate.program
        names = canonical(source, f"v{number}_")
        for c, array in source.consts.items():
            key = id(array), str(candidate.layouts.get(c))
            if self.bytes + array.nbytes > OWN_BYTES:
                names[c] = self.weights.get(key, names[c])
            self.bytes += 0 if names[c] == self.weights.get(key) else array.nbytes
            self.weights.setdefault(key, names[c])
        plain = renamed(source, names)
        self._symbols(source.syms)
        for b in plain.buffers.values():
            role = "temp" if b.role == "output" else b.role
            self.buffers.setdefault(b.name, replace(b, role=role))
        self.consts.update(plain.consts)
        self.layouts.update({names[b]: x for b, x in candidate.layouts.items() if b in names})
        for b in plain.inputs:
            self._input(b)
        self.steps += plain.steps
        self.groups += [renamed_group(g, names, f"g{len(self.groups) + i}")
                        for i, g in enumerate(candidate.groups)]
        self.owners += [number] * len(candidate.groups)

    def _symbols(self, syms):
        """Inputs whose shapes tell the symbols."""
        for s in syms:
            if s not in self.syms:
                name = f"extent_{len(self.syms)}"
                self.syms[s] = None
                self.inputs.append(name)
                self.buffers[name] = Buffer(name, (s,), "f32", "input", name)

    def _input(self, name):
        b = self.buffers[name]
        if b.role == "temp" and is_float(b.dtype):
            axes = tuple(Axis(f"i{d}", n) for d, n in enumerate(b.shape))
            value = Load(SEED, (Const(0),), "f32")
            value = value if b.dtype == "f32" else Cast(b.dtype, value)
            self._group(Compute((name,), axes, (), "none", value), None)
            return
        # data that may become an index, and the caller's own tensors: real inputs, row-major
        self.buffers[name] = replace(b, role="input", onnx=name)
        self.layouts.pop(name, None)
        self.inputs.append(name)


def _fill_row(target, step, layout):
    """(row, loops) of a map that writes one value everywhere: lanes over the innermost dim."""
    rows = target.rows("map")
    if not rows or not step.axes or step.body.dtype != "f32":
        return "loops", {}
    lane = step.axes[-1]
    if layout:
        index = layout_from_json(layout).index(step.axes, tuple(a.extent for a in step.axes))
        lane = index[-1] if isinstance(index[-1], Axis) else None
    return (rows[0].name, {"lanes": lane.name}) if lane is not None else ("loops", {})


def trial_feeds(program, values):
    """{input: array} of a trial's Program.  values: {symbol name: extent}; {} without symbols."""
    from aotc.samples import random_inputs
    feeds = random_inputs(program, values)
    feeds[SEED] = np.full(1, 0.5, np.float32)
    return feeds


__all__ = ["Candidate", "trial_feeds", "trial_program"]
