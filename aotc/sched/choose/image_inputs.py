"""Images of the caller's, and what reads them: rewrites of first layers.

Convolutions over few channels, or over inputs, may read an unfolded copy: those that cost less so.

Images that are resized along the columns of the caller's memory go by phase, by structure alone:
the columns lie innermost in what is the caller's, and in what maps make of it, where lanes would
look every element up by itself; there are few channels, or a layout that is not ours to choose.

Inputs that are read at places from data along their innermost dimensions, such as an image that a
flow field warps, get a copy with the channels side by side: a place is found once, and whole
vectors of channels lie there.
"""

from collections.abc import Collection

from aotc.ir.expr import Axis, loads
from aotc.ir.program import Compute, Program, Rewrite
from aotc.passes.layout_rule import layout_rewrite
from aotc.passes.polyphase import resamplings
from aotc.passes.unfold import unfold_candidates
from aotc.sched.choose.layout_choices import channels_last
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.model.elementwise import elementwise_class
from aotc.sched.model.size import estimate, estimate_volume
from aotc.target.base import Target

POLYPHASE = "polyphase"


def choose_unfolds(near: Neighbourhoods, taken: Collection[str]) -> tuple[Rewrite, ...]:
    """Rewrites ``unfold`` of the computes that take less time with one, the copy included.  taken:
    computes that have another rewrite."""
    rewrites: list[Rewrite] = [("unfold", c, {}) for c in unfold_candidates(near.program)
                               if c not in taken]
    return tuple(r for r in rewrites
                 if near.asked(r[1], (r,)).seconds < near.asked(r[1]).seconds)


def phased(program: Program, target: Target) -> tuple[tuple[str, str, dict[str, object]], ...]:
    """Rewrites ``polyphase`` of the maps that resize what maps have made of inputs, or that make
    an output; none where the target has no vectors, or its lanes are threads."""
    if target.lanes < 2 or target.machine.threads:
        return ()
    given = _given(program)
    return tuple((POLYPHASE, name, {}) for name, found in resamplings(program)
                 if found.source in given or _is_handed_out(program, name))


def _given(program: Program) -> set[str]:
    """Inputs, constants, and what maps make of nothing else."""
    out = {*program.inputs, *program.consts}
    for s in program.steps:
        if isinstance(s, Compute) and s.fold == "none" and out.issuperset(s.inputs):
            out.update(s.outs)
    return out


def _is_handed_out(program: Program, buffer: str) -> bool:
    return not program.results.isdisjoint(elementwise_class(program, buffer))


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


__all__ = ["choose_unfolds", "phased", "sampled_inputs"]
