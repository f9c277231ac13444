"""New entries of tensors that grow where they lie, as few kernels: the last thing that is decided
of groups.

Where threads share a work item, what puts new entries behind old ones is a kernel that copies.  It
computes them, too, where maps make them that nothing else reads, and those of several tensors of
one shape, such as a layer's keys and values, are one kernel.  Both only take kernels away.
"""

from collections.abc import Sequence
from dataclasses import replace

from aotc.ir.library import grows
from aotc.ir.program import Compute, LibCall, Program
from aotc.ir.schedule import REGISTER, Group
from aotc.target.base import Target


def join_new_entries(program: Program, target: Target,
                     groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups with kernels of new entries joined; as they are where a work item is one
    thread's."""
    if not target.machine.threads or not any(map(grows, program.steps)):
        return tuple(groups)
    out = list(groups)
    for g in groups:
        if grows(program.producer[g.anchor]):
            _take_maps(program, out, g)
    for g in list(out):
        if g in out and grows(program.producer[g.anchor]):
            _take_twin(program, out, g)
    return tuple(out)


def _take_maps(program: Program, groups: list[Group], own: Group) -> None:
    """Replaces a group of new entries by one with the maps that make them, in place."""
    added = program.producer[own.anchor].inputs[1]
    made = next((g for g in groups if g.outputs == (added,)), None)
    if made is None or added in program.results or program.consumers[added] != (
            program.producer[own.anchor],):
        return
    steps = [program.producer[c] for c in made.computes]
    if all(isinstance(s, Compute) and s.fold == "none" for s in steps):
        groups[groups.index(own)] = _joined(program, (made, own), added)
        groups.remove(made)


def _take_twin(program: Program, groups: list[Group], own: Group) -> None:
    """Joins a group of new entries with the next one of as many that may run at its place, or at
    whose place it may run."""
    at = groups.index(own)
    for n, other in enumerate(groups[at + 1:], at + 1):
        if not grows(program.producer[other.anchor]) or not _alike(program, own, other):
            continue
        between = groups[at + 1:n]
        if not any(_reads(program, g, own) for g in (*between, other)):  # at the later place
            groups[n] = _joined(program, (own, other))
            groups.remove(own)
        elif not any(_reads(program, other, g) for g in (own, *between)):  # at the earlier one
            groups[at] = _joined(program, (own, other))
            groups.remove(other)
        return


def _alike(program: Program, a: Group, b: Group) -> bool:
    """True if two groups put as many new entries into tensors of one shape, along one axis."""
    one, two = (program.producer[g.anchor] for g in (a, b))
    if not isinstance(one, LibCall) or not isinstance(two, LibCall):
        return False
    axis = {x.present: x.axis for x in program.aliases}
    same = one.numbers == two.numbers and axis[one.outs[0]] == axis[two.outs[0]]
    return same and all(program.shape(x) == program.shape(y) for x, y in (
        (one.outs[0], two.outs[0]), (one.inputs[1], two.inputs[1])))


def _reads(program: Program, reader: Group, made: Group) -> bool:
    outs = {o for c in made.computes for o in program.producer[c].outs}
    return any(not outs.isdisjoint(program.producer[c].inputs) for c in reader.computes)


def _joined(program: Program, groups: Sequence[Group], inside: str = "") -> Group:
    """The last of some groups with the computes of all; inside: what they hand on."""
    last = groups[-1]
    computes = sorted((c for g in groups for c in g.computes), key=program.position.__getitem__)
    connect = {b: level for g in groups for b, level in g.connect.items()}
    connect |= {inside: REGISTER} if inside else {}
    outputs = tuple(c for c in computes if grows(program.producer[c]))
    return replace(last, computes=tuple(computes), outputs=outputs, connect=connect)


__all__ = ["join_new_entries"]
