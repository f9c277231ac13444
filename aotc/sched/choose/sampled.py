"""Inputs that are read at places from data along their innermost dimensions, such as an image that
a flow field warps: a copy has the channels side by side.

The caller's channels lie outermost, so that a vector of neighbours would gather every lane by
itself; in the copy a place is found once, and whole vectors of channels lie there.
"""

from aotc.ir.expr import Axis, loads
from aotc.ir.program import Compute, Program, Rewrite
from aotc.passes.layout_rule import layout_rewrite
from aotc.sched.choose.layout_choices import channels_last
from aotc.sched.model.size import estimate, estimate_volume
from aotc.target.base import Target


def sampled_inputs(program: Program, target: Target) -> tuple[Rewrite, ...]:
    """Layout rewrites of the f32 inputs all of whose readers look pixels up (two places from data
    innermost, as often as the input has elements) and run over one other dimension of at least a
    vector's lanes; none where the target has no vectors, or its lanes are threads."""
    if target.lanes < 2 or target.machine.threads:
        return ()
    found = ((b, _channels(program, target, b)) for b in program.inputs)
    return tuple(layout_rewrite(b, channels_last(len(program.shape(b)), d))
                 for b, d in found if d is not None)


def _channels(program, target, buffer):
    """The dimension that becomes the innermost; None if the input stays as it is."""
    steps = program.consumers.get(buffer, ())
    if program.dtype(buffer) != "f32" or not all(
            isinstance(s, Compute) and s.fold == "none" for s in steps):
        return None
    reads = [(s, n) for s in steps for n in s.loads if n.buffer == buffer]
    if not reads or not all(len(n.index) > 2 and all(map(loads, n.index[-2:])) for _, n in reads):
        return None
    dims = {frozenset(d for d, i in enumerate(n.index) if isinstance(i, Axis)
                      and estimate(i.extent) >= target.lanes) for _, n in reads}
    taken = sum(estimate_volume(a.extent for a in s.axes) for s, _ in reads)
    if len(dims) > 1 or taken < estimate_volume(program.shape(buffer)):
        return None
    (found,) = dims
    return next(iter(found)) if len(found) == 1 else None


__all__ = ["sampled_inputs"]
