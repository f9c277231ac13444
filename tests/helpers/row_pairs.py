"""A Program forced onto a micro-kernel row, beside the same on the plain nest."""

from dataclasses import dataclass

from edits import with_tables
from harness import Case

from aotc.ir.schedule import Group, Schedule


@dataclass(frozen=True)
class Pair:
    fast: Case
    slow: Case


def one_group(program, outputs, rows, loops, tile=(), layouts=(), target="c"):
    """A Schedule of one group; everything not stored is connected at register level."""
    names = tuple(s.outs[0] for s in program.steps)
    folds = [s.out for s in program.steps if s.fold != "none"]
    inner = {o: "register" for s in program.steps for o in s.outs
             if o not in program.outputs and any(o in t.inputs for t in program.steps)}
    g = Group("g", names, tuple(outputs), folds[-1] if folds else names[-1], inner, dict(tile),
              parallel=tuple(dict(tile)))
    return Schedule(target, (with_tables(g, ukernel=rows, loops=loops),), dict(layouts))


def pair(name, program, stage, row, loops, target, tile=(), layouts=(), **fields):
    """The program forced onto ``row`` and onto the plain nest."""
    fast = one_group(program, program.outputs, {stage: row.name}, {stage: loops}, tile, layouts,
                     target.name)
    slow = one_group(program, program.outputs, {stage: "loops"}, {}, tile, target=target.name)
    return Pair(Case(name, program, fast, **fields), Case(f"{name} twin", program, slow, **fields))
