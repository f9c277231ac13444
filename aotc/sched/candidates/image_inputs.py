"""Rewrites of images, each taken where it is predicted to take less time, copies included.

Convolutions over few channels, or over inputs, may read an unfolded copy.

Maps that resize along the columns of a tensor may go by phase: where columns lie innermost, as in
the caller's memory, lanes would look every element up by itself.

Inputs that are read at places from data along their innermost dimensions, such as an image that a
flow field warps, may get a copy with the channels side by side: a place is found once, and whole
vectors of channels lie there.
"""

from collections.abc import Collection, Iterator

from aotc.ir.expr import Axis, loads
from aotc.ir.program import Compute, Program, Rewrite
from aotc.passes.images.polyphase import resamplings
from aotc.passes.images.unfold import unfold_candidates
from aotc.passes.layout_rule import layout_rewrite
from aotc.sched.choose.layout_choices import channels_last
from aotc.sched.judge.neighbourhood import Neighbourhoods

POLYPHASE = "polyphase"


def choose_unfolds(near: Neighbourhoods, taken: Collection[str]) -> tuple[Rewrite, ...]:
    """Rewrites ``unfold`` of the computes that take less time with one.  taken: computes that have
    another rewrite."""
    rewrites: list[Rewrite] = [("unfold", c, {}) for c in unfold_candidates(near.program)
                               if c not in taken]
    return tuple(r for r in rewrites if near.saved((r[1],), r) > 0)


def choose_phases(near: Neighbourhoods) -> tuple[Rewrite, ...]:
    """Rewrites ``polyphase`` of the maps that take less time with one; none where the target has no
    vectors, or its lanes are threads, which look elements up alike."""
    if near.target.lanes < 2 or near.target.machine.threads:
        return ()
    rewrites: list[Rewrite] = [(POLYPHASE, c, {}) for c, _ in resamplings(near.program)]
    return tuple(r for r in rewrites if near.saved((r[1],), r) > 0)


def choose_sampled(near: Neighbourhoods) -> tuple[Rewrite, ...]:
    """Layout rewrites of the f32 inputs all of whose readers look pixels up, two places from data
    innermost, and take less time with a dimension that they run over side by side; none where the
    target has no vectors, or its lanes are threads."""
    if near.target.lanes < 2 or near.target.machine.threads:
        return ()
    out = []
    for b in near.program.inputs:
        readers = [s.outs[0] for s in near.program.consumers.get(b, ())]
        found = [(near.saved(readers, r), -i, r) for i, r in enumerate(_copies(near.program, b))]
        out += [r for gain, _, r in sorted(found, key=lambda x: x[:2])[-1:] if gain > 0]
    return tuple(out)


def _copies(program: Program, buffer: str) -> Iterator[Rewrite]:
    """The copies that an input may get, one for each dimension that all its readers run over."""
    steps = program.consumers.get(buffer, ())
    if program.dtype(buffer) != "f32" or not all(
            isinstance(s, Compute) and s.fold == "none" for s in steps):
        return
    reads = [n for s in steps if isinstance(s, Compute) for n in s.loads if n.buffer == buffer]
    if not reads or not all(len(n.index) > 2 and all(map(loads, n.index[-2:])) for n in reads):
        return
    rank = len(program.shape(buffer))
    for d in range(rank):
        if all(isinstance(n.index[d], Axis) for n in reads):
            yield layout_rewrite(buffer, channels_last(rank, d))


__all__ = ["choose_phases", "choose_sampled", "choose_unfolds"]
