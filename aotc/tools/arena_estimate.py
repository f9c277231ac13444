"""What arena a model's bundle needs, roughly, read off its Program: which tensors are stored
follows from how computes are usually connected, without deciding on kernels."""

import math
from collections.abc import Mapping

from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const
from aotc.ir.program import Branch, Compute, Loop, Program, Step
from aotc.oracle.evaluate import index_value
from aotc.passes.inline import is_free, is_move
from aotc.samples import Syms

_Readers = Mapping[str, list[Step]]


def arena_estimate(program: Program, syms: Syms) -> int:
    """Bytes of the temps that are stored and alive at once, at most: moves are part of their
    readers; a map is part of its only reader, if that is a map, too; what is folded is part of the
    map that alone reads it.  Scratch of kernels comes on top."""
    size = {n: DTYPES[b.dtype].size * math.prod(
        d.value if isinstance(d, Const) else index_value(d, syms) for d in b.shape)
        for n, b in program.buffers.items() if b.role == "temp"}
    readers: dict[str, list[Step]] = {}
    for step in program.steps:
        for b in dict.fromkeys(step.inputs):
            readers.setdefault(b, []).append(step)
    joined = [_joined(s, readers, size) for s in program.steps]
    last = _last_reads(program, joined)
    alive = most = 0
    ends: dict[int, int] = {}
    for at, step in enumerate(program.steps):
        kept = [] if joined[at] else [o for o in step.outs if o in size]
        for o in kept:
            alive += size[o]
            ends[last[o]] = ends.get(last[o], 0) + size[o]
        inner = {**syms, step.round.name: 0} if isinstance(step, Loop) else syms
        bodies = step.bodies if isinstance(step, (Loop, Branch)) else ()
        most = max(most, alive + max((arena_estimate(b, inner) for b in bodies), default=0))
        alive -= ends.pop(at, 0)
    return most


def _joined(step: Step, readers: _Readers, size: Mapping[str, int]) -> bool:
    """True if what a step makes stays inside the kernel of its reader."""
    if not isinstance(step, Compute) or step.out not in size or len(step.outs) > 1:
        return False
    if is_move(step) or is_free(step):
        return True
    found = readers.get(step.out, [])
    reader = found[0] if len(found) == 1 else None
    if not isinstance(reader, Compute) or reader.fold != "none" or is_move(reader):
        return False
    own = size[step.out]
    return step.fold == "none" or size.get(reader.out, own) >= own


def _last_reads(program: Program, joined: list[bool]) -> dict[str, int]:
    """{tensor: place of the last step that reads it, or what is part of its readers}."""
    last = {o: at for at, s in enumerate(program.steps) for o in s.outs}
    for at in range(len(program.steps) - 1, -1, -1):
        step = program.steps[at]
        to = last[step.outs[0]] if joined[at] else at
        for b in step.inputs:
            last[b] = max(last.get(b, at), to)
    return last
