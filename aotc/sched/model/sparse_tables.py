"""Constants of which a run reads a few places only: tables indexed by data, such as embeddings."""

from aotc.ir.expr import Load, axes_of, loads
from aotc.ir.program import Compute, Program
from aotc.sched.model.size import estimate_volume

TOUCHED = 1 << 16  # bytes around a place that become resident with it (Linux maps that many)
SPARSE = 0.5  # share of a table that may be touched


def sparse_constants(program: Program) -> frozenset[str]:
    """Names of constants whose every reader looks elements up by an index from the data, and so few
    of them that most of the constant is left untouched (for typical extents)."""
    touched = {}
    for step in program.steps:
        if not isinstance(step, Compute):
            touched.update(dict.fromkeys(step.inputs, float("inf")))
            continue
        for load in step.loads:
            touched[load.buffer] = touched.get(load.buffer, 0) + TOUCHED * _places(load)
    return frozenset(b for b, array in program.consts.items()
                     if touched.get(b, float("inf")) <= SPARSE * array.nbytes)


def _places(load: Load) -> float:
    """How many places of its buffer a load looks up; infinitely many without data in its index."""
    looked_up = [i for i in load.index if loads(i)]
    if not looked_up:
        return float("inf")
    return estimate_volume(a.extent for a in sorted(
        {a for i in looked_up for a in axes_of(i)}, key=lambda a: a.name))
