"""What a Schedule amounts to, in a few numbers: kernels, stored bytes, traffic, patterns."""

from collections import Counter
from typing import Any

from aotc.ir.dtypes import DTYPES
from aotc.ir.program import LibCall, Program
from aotc.ir.schedule import Group, Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.judge.judge import Judge
from aotc.sched.lowering.lower import lower
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import find_call, group_stages, stage_category
from aotc.target.base import Target


def summarise(program: Program, schedule: Schedule, target: Target) -> dict[str, Any]:
    """Plain data: ``kernels``; ``stored_bytes``: of all intermediate buffers together, recomputed
    from the Plan's places; ``arena_bytes``: what they share; ``memory_bytes`` (moved) and
    ``seconds`` by the cost model; ``patterns``: [{pattern, reductions, groups}], a pattern being
    the graph of a group's stages by category and fold, without extents and dtypes.  Symbols count
    at their typical value."""
    program = apply_rewrites(program, schedule.rewrites)
    plan = lower(program, schedule, target)
    stored = sum(estimate(p.elements) * DTYPES[p.dtype].size for p in plan.places
                 if p.storage == "arena")
    judge = Judge(program, target)
    costs = [judge.priced(g) for g in schedule.groups if group_stages(program, g)]
    found = Counter(pattern(program, g) for g in schedule.groups)
    return {"kernels": len(plan.kernels), "stored_bytes": stored,
            "arena_bytes": sum(estimate(s) for s in plan.slots),
            "memory_bytes": sum(c.levels[0][2] for c in costs),
            "seconds": sum(c.seconds for c in costs),
            "patterns": [{"pattern": text, "reductions": folds, "groups": n}
                         for (text, folds), n in sorted(found.items())]}


def pattern(program: Program, group: Group) -> tuple[str, int]:
    """(text, number of reductions) of a group: its stages in order as ``category fold`` with the
    numbers of the stages they read, e.g. ``0:contraction sum | 1:reduction max(0) | ...``."""
    call = find_call(program, group)
    if call is not None:
        return (f"library {call.kernel}" if isinstance(call, LibCall) else "region"), 0
    stages = group_stages(program, group)
    maker: dict[str, int] = {}
    parts, folds = [], 0
    for i, s in enumerate(stages):
        sources = sorted({maker[n.buffer] for n in s.loads() if n.buffer in maker})
        fold = s.fold if isinstance(s.fold, str) else "states"
        folds += fold != "none"
        parts.append(f"{i}:{stage_category(s)}" + (f" {fold}" if fold != "none" else "") + (
            f"({','.join(map(str, sources))})" if sources else ""))
        maker |= {o.buffer: i for o in s.outputs}
    return " | ".join(parts), folds


__all__ = ["pattern", "summarise"]
