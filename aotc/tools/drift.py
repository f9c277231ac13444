"""How errors of products of few bits add up from kernel to kernel, beside those of f32."""

from collections.abc import Mapping, Sequence

import numpy as np

from aotc.errors import AotcError
from aotc.ir.dtypes import Array
from aotc.ir.expr import Cast, Load
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import infer_syms, input_arrays, run_step
from aotc.oracle.shares import share_of_range
from aotc.passes.double_precision import promote_to_f64
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.precision.levels import ROUNDS


def drift_lines(program: Program, schedule: Schedule, feeds: Mapping[str, Array],
                seen: Mapping[str, Array]) -> list[str]:
    """A line per stored tensor that the Program without roundings of operands has as well, rounded
    or not: how far what was ``seen`` is from double precision, of its range, and how far f32 is.
    program: without rewrites."""
    others = [r for r in schedule.rewrites if r[0] not in ROUNDS]
    base = apply_rewrites(program, others)
    try:
        exact, plain = _run(promote_to_f64(base), feeds), _run(base, feeds)
    except (AotcError, ValueError):
        return []  # a step has no form in f64
    made = apply_rewrites(program, schedule.rewrites)
    copies = _copies(made)
    pairs = [(o, o if o in exact else copies.get(o, ""))
             for s in made.steps for o in s.outs if o in seen]
    return [f"  {n}: {schedule.precision} {share_of_range(seen[n], exact[of]):.2g} of its range "
            f"from f64, f32 {share_of_range(plain[of], exact[of]):.2g}"
            for n, of in pairs if of in exact and exact[of].dtype == np.float64]


def _copies(program: Program) -> dict[str, str]:
    """{tensor: the one that it is a converted copy of}."""
    found = {}
    for s in program.steps:
        e = s.body if isinstance(s, Compute) and not s.raxes and len(s.outs) == 1 else None
        while isinstance(e, Cast):
            e = e.x
        if isinstance(e, Load) and isinstance(s, Compute) and e.index == s.axes:
            found[s.outs[0]] = e.buffer
    return found


def _run(program: Program, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of a run of the evaluator."""
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 and _wants(program, n) else a
            for n, a in feeds.items()}
    arrays = dict(input_arrays(program, wide))
    syms = infer_syms(program, arrays, None)
    arrays |= program.consts
    for step in program.steps:
        arrays |= zip(step.outs, run_step(program, step, arrays, syms, {}))
    return arrays


def _wants(program: Program, onnx: str) -> bool:
    """True if the input of that name is f64."""
    names: Sequence[str] = [n for n in program.inputs if onnx in (n, program.buffers[n].onnx)]
    return any(program.dtype(n) == "f64" for n in names)


__all__ = ["drift_lines"]
