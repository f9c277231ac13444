"""Paths along which a layout travels: elementwise computes between tensors of equal shape.

ALT's three constraints: a layout is copied only along such paths; one that repeats or adds
elements stops where it is; no path leads across a reduction, whose own layouts are its own choice.
"""

from collections.abc import Mapping

from aotc.ir.program import Compute, Program, Step
from aotc.ir.simplify import are_equal


def elementwise_inputs(program: Program, step: Step) -> Mapping[str, None]:
    """Buffers of the output's shape that a map reads at exactly the point it writes, as keys in
    order."""
    known: dict[tuple[str, ...], Mapping[str, None]] = program.known("elementwise inputs")
    if step.outs not in known:
        known[step.outs] = _elementwise_inputs(program, step)
    return known[step.outs]


def _elementwise_inputs(program: Program, step: Step) -> dict[str, None]:
    if not isinstance(step, Compute) or step.fold != "none" or len(step.outs) > 1:
        return {}
    at: dict[str, bool] = {}
    for n in step.loads:
        plain = len(n.index) == len(step.axes) and all(
            i == a or are_equal(a.extent, i * 0 + 1) for i, a in zip(n.index, step.axes)) and all(
            are_equal(d, e) for d, e in zip(program.shape(n.buffer), program.shape(step.out)))
        at[n.buffer] = at.get(n.buffer, True) and plain
    return {b: None for b, plain in at.items() if plain}


def elementwise_class(program: Program, buffer: str) -> tuple[str, ...]:
    """Names of the buffers that elementwise paths join with ``buffer`` (itself among them), in
    program order."""
    return _classes(program)[buffer]


def _classes(program: Program) -> dict[str, tuple[str, ...]]:
    """{buffer: its class}, kept with the Program."""
    known: dict[str, tuple[str, ...]] = program.known("elementwise")
    if known:
        return known
    parent = {b: b for b in program.buffers}

    def root(b: str) -> str:
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        return b

    for s in program.steps:
        for b in elementwise_inputs(program, s):
            parent[root(b)] = root(s.outs[0])
    members: dict[str, list[str]] = {}
    for b in program.buffers:
        members.setdefault(root(b), []).append(b)
    for group in map(tuple, members.values()):
        known.update(dict.fromkeys(group, group))
    return known
