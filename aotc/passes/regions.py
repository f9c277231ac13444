"""Passes over the bodies of regions: each is a Program of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from aotc.ir.dtypes import Array
from aotc.ir.program import Branch, Loop, Program, Region, Step, make_const, update

Pass = Callable[[Program], Program]


def apply_in_bodies(run: Pass, program: Program) -> Program:
    """``run(program)``, and then the same of the bodies of its regions; what no body reads any
    more, nothing outside computes for it."""
    program = run(program)
    if not any(isinstance(s, (Loop, Branch)) for s in program.steps):
        return program
    steps = tuple(with_bodies(s, [apply_in_bodies(run, b) for b in s.bodies])
                  if isinstance(s, (Loop, Branch)) else s for s in program.steps)
    return update(program, steps=steps)


def with_bodies(region: Region, bodies: Sequence[Program]) -> Region:
    """The region with other bodies, without inputs that they do not read."""
    own = {s.before for s in region.states} | {s.part for s in region.slices} if isinstance(
        region, Loop) else set()
    read = [{i for s in b.steps for i in s.inputs} for b in bodies]
    bodies = [update(b, inputs=tuple(i for i in b.inputs if i in own or i in names))
              for b, names in zip(bodies, read)]
    if isinstance(region, Loop):
        body, = bodies
        return replace(region, body=body)
    one, two = bodies
    return replace(region, bodies=(one, two))


def rename_inputs(region: Region, names: Mapping[str, str], consts: Mapping[str, Array]) -> Region:
    """The region where what it reads has other ``names``; ``consts`` that bodies read become
    constants of their own: there they can be folded and packed."""
    if isinstance(region, Loop):
        region = replace(
            region, count=names.get(region.count, region.count),
            going=names.get(region.going, region.going),
            states=tuple(replace(s, start=names.get(s.start, s.start)) for s in region.states),
            slices=tuple(replace(s, whole=names.get(s.whole, s.whole)) for s in region.slices))
    else:
        region = replace(region, cond=names.get(region.cond, region.cond))
    captured, bodies = set(region.captured), []
    for body in region.bodies:
        found = {i: consts[names.get(i, i)] for i in body.inputs
                 if i in captured and names.get(i, i) in consts}
        bodies.append(replace(
            body, inputs=tuple(i for i in body.inputs if i not in found),
            consts=body.consts | found,
            buffers=body.buffers | {n: make_const(n, a) for n, a in found.items()}))
    return with_bodies(region, bodies)


def all_steps(steps: Iterable[Step]) -> list[Step]:
    """The steps and those of all bodies in them, in order; a region before its bodies."""
    out: list[Step] = []
    for s in steps:
        out.append(s)
        for body in s.bodies if isinstance(s, (Loop, Branch)) else ():
            out += all_steps(body.steps)
    return out
