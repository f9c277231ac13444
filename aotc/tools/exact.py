"""What a model computes in double precision, beside which the precision of its products is seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aotc.errors import AotcError
from aotc.ir.program import Program
from aotc.options import Options
from aotc.oracle.evaluate import evaluate, infer_syms, input_arrays
from aotc.oracle.shares import share_of_range
from aotc.passes.promote import promoted
from aotc.pipeline import run_pipeline
from aotc.samples import SAMPLE_FLOPS, Feeds, run_work


@dataclass(frozen=True)
class ExactShare:
    """How far one output of one run is from double precision, as a share of its range: ``ours``
    at a lower precision, ``theirs`` of the reference in f32."""

    output: str
    ours: float
    theirs: float


def exact_program(options: Options) -> Program | None:
    """The Program of a model in f64, before any rewrite; None if it has several data types to keep
    that f64 would change."""
    plain = replace(options, out=None, precision=None, error=None, inputs=None,
                    stop_after="inline", progress=None)
    try:
        return promoted(run_pipeline(plain).program)
    except AotcError:
        return None


def exact_outputs(program: Program, feeds: Feeds,
                  most: float = SAMPLE_FLOPS) -> Feeds | None:
    """{output: f64 array} of a Program of ``exact_program``; None where one run would take more
    than ``most`` operations of the evaluator, or a step has no form in f64."""
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in feeds.items()}
    try:
        syms = infer_syms(program, input_arrays(program, wide), None)
        if run_work(program, syms) > most:
            return None
        found = evaluate(program, wide)
    except (AotcError, ValueError):
        return None
    return {program.buffers[n].onnx or n: a for n, a in found.items()}


def exact_shares(exact: Feeds, got: Feeds, want: Feeds) -> list[ExactShare]:
    """An ExactShare per float output of one run: ``got`` ours, ``want`` the reference's."""
    return [ExactShare(n, share_of_range(got[n], a), share_of_range(want[n], a))
            for n, a in exact.items()
            if a.dtype == np.float64 and a.size and n in got and n in want]


def exact_lines(shares: Sequence[ExactShare], precision: str) -> list[str]:
    """A line per output with the largest shares of all runs."""
    lines = []
    for name in dict.fromkeys(s.output for s in shares):
        rows = [s for s in shares if s.output == name]
        ours, theirs = max(s.ours for s in rows), max(s.theirs for s in rows)
        lines.append(f"  {name}: against f64: {precision} {ours:.2g} of the range, "
                     f"f32 {theirs:.2g}")
    return lines


__all__ = ["ExactShare", "exact_lines", "exact_outputs", "exact_program", "exact_shares"]
