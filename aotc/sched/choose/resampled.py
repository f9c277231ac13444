"""Images that are resized along the columns of the caller's memory: by phase, where lanes run
along columns and would look every element up by itself.

The columns lie innermost in what is the caller's, and in what maps make of it; there are few
channels, or a layout that is not ours to choose.
"""

from aotc.ir.program import Compute, Program
from aotc.passes.polyphase import resamplings
from aotc.sched.model.elementwise import elementwise_class
from aotc.target.base import Target

POLYPHASE = "polyphase"


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


__all__ = ["phased"]
