"""What arena a model's bundle needs: off its Plans; roughly, off its Program: which tensors are
stored follows from how computes are usually connected, without deciding on kernels."""

import math
from collections.abc import Mapping

from aotc.emit.dsa.device_text import arena_slots
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const, as_expr
from aotc.ir.plan import Plan
from aotc.ir.plans import Plans
from aotc.ir.program import Branch, Compute, Loop, Program, Step
from aotc.oracle.eval_expr import index_value
from aotc.passes.inline import is_free, is_move
from aotc.samples import Syms
from aotc.sched.model.stored_sizes import ALIGN
from aotc.target.base import Target

_Readers = Mapping[str, list[Step]]


def plans_arena(plans: Plans, target: Target, syms: Syms) -> int:
    """Bytes of the arena of a call with these extents on one worker, of the variant that needs the
    most of those that serve it; no bundle takes less than one line of the arena."""
    return max(ALIGN, *(_plan_arena(a.plan, target, syms) for a in plans.alternatives
                        if a.condition.holds(dict(syms))))


def _plan_arena(plan: Plan, target: Target, syms: Syms) -> int:
    """Its slots, and a worker's slab where that is no memory of the machine's own."""
    sizes = [*arena_slots(plan), *([] if target.machine.threads else [as_expr(plan.slab_bytes)])]
    return sum(-(-index_value(e, syms) // ALIGN) * ALIGN for e in sizes)


def arena_estimate(program: Program, syms: Syms) -> int:
    """Bytes of the temps that are stored and alive at once, at most: moves are part of their
    readers; a map is part of its only reader, if that is a map, too; what is folded is part of the
    map that alone reads it; what constants alone make is a constant.  Scratch of kernels comes on
    top."""
    size = {n: DTYPES[b.dtype].size * math.prod(
        d.value if isinstance(d, Const) else index_value(d, syms) for d in b.shape)
        for n, b in program.buffers.items() if b.role == "temp"}
    for name in _made_of_constants(program):
        size.pop(name, None)
    readers: dict[str, list[Step]] = {}
    for step in program.steps:
        for b in dict.fromkeys(step.inputs):
            readers.setdefault(b, []).append(step)
    joined = [_joined(program, s, readers, size) for s in program.steps]
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


def _made_of_constants(program: Program) -> set[str]:
    """Temps that no input goes into."""
    known = set(program.consts)
    for s in program.steps:
        if isinstance(s, Compute) and known.issuperset(s.inputs):
            known.update(s.outs)
    return known.difference(program.consts)


def _joined(program: Program, step: Step, readers: _Readers, size: Mapping[str, int]) -> bool:
    """True if what a step makes stays inside the kernel of its reader."""
    if not isinstance(step, Compute) or step.out not in size or len(step.outs) > 1:
        return False
    change = _width_change(program, step)
    if is_move(step) or is_free(step) or change > 0:
        return True
    if change < 0:
        return False
    found = readers.get(step.out, [])
    reader = found[0] if len(found) == 1 else None
    if not isinstance(reader, Compute) or reader.fold != "none" or is_move(reader):
        return False
    own = size[step.out] // DTYPES[program.dtype(step.out)].size
    return step.fold == "none" or reader.out not in size or (
        size[reader.out] // DTYPES[program.dtype(reader.out)].size >= own)


def _width_change(program: Program, step: Compute) -> int:
    """1 for a map that makes wider numbers of what it reads, such as floats of bytes: who reads
    them reads the bytes; -1 for one that makes bytes of wider ones, which are stored; else 0."""
    own = DTYPES[program.dtype(step.out)].size
    read = {DTYPES[program.dtype(b)].size for b in step.inputs if b not in program.consts}
    if step.fold != "none" or not read:
        return 0
    return 1 if max(read) < own else -1 if own == 1 < min(read) else 0


def _last_reads(program: Program, joined: list[bool]) -> dict[str, int]:
    """{tensor: place of the last step that reads it, or what is part of its readers}."""
    last = {o: at for at, s in enumerate(program.steps) for o in s.outs}
    for at in range(len(program.steps) - 1, -1, -1):
        step = program.steps[at]
        to = last[step.outs[0]] if joined[at] else at
        for b in step.inputs:
            last[b] = max(last.get(b, at), to)
    return last
