"""Errors of a Program with some of its products rounded, measured on the evaluator."""

from collections.abc import Mapping, Sequence

import numpy as np

from aotc.ir.dtypes import BF16, Array, from_bf16, is_float
from aotc.ir.program import Program, Rewrite
from aotc.oracle.evaluate import infer_syms, input_arrays, run_step
from aotc.oracle.shares import share_of_range
from aotc.passes.rewrites import RULES

KEPT_BYTES = 1 << 30  # of a run's tensors, so that trials begin at the first rounded product

Feeds = Mapping[str, Array]  # by ONNX name


class Trials:
    """Of ``base``, with some rewrites more, against ``exact`` (itself, if nothing of it is rounded
    by itself).  feeds: sets of inputs, of which the worst counts."""

    def __init__(self, base: Program, exact: Program, feeds: Sequence[Feeds]) -> None:
        self.base, self.feeds = base, feeds
        self.runs = [self._run(base, f, {}) for f in feeds]
        outputs = [{n: run[n] for n in base.outputs} for run in self.runs]
        self.exact = outputs if exact is base else [self._run(exact, f, {}) for f in feeds]
        if sum(a.nbytes for run in self.runs for a in run.values()) > KEPT_BYTES:
            self.runs = outputs

    def error(self, rewrites: Sequence[Rewrite]) -> float:
        """Of the worst output's range, with these rewrites of the base."""
        program = self.base
        for rule, compute, parameters in rewrites:
            program = RULES[rule][1](program, compute, parameters)
        return max((self._share(self._run(program, f, run), exact)
                    for f, run, exact in zip(self.feeds, self.runs, self.exact)), default=0.0)

    def _share(self, got: Mapping[str, Array], want: Mapping[str, Array]) -> float:
        worst = 0.0
        for n in self.base.outputs:
            a, b = got[n], want[n]
            if BF16 in (self.base.dtype(n), self.base.buffers[n].stored):
                worst = max(worst, share_of_range(from_bf16(a), from_bf16(b)))
            elif is_float(self.base.dtype(n)):
                worst = max(worst, share_of_range(a, b))
            elif not np.array_equal(a, b):  # a number that is another one
                return float("inf")
        return worst

    def _run(self, program: Program, feeds: Feeds, known: Mapping[str, Array]) -> dict[str, Array]:
        """Every tensor of a run, or the outputs only where some are ``known``: of steps that
        neither are others than the base's nor read what one of those makes."""
        arrays = dict(input_arrays(program, feeds))
        syms = infer_syms(program, arrays, None)
        arrays |= program.consts
        same = set(map(id, self.base.steps)) if known else set()
        last = {b: s for s in program.steps for b in s.inputs}
        other: set[str] = set()
        for step in program.steps:
            if id(step) in same and not other.intersection(step.inputs) and all(
                    o in known for o in step.outs):
                arrays |= {o: known[o] for o in step.outs}
                continue
            other.update(step.outs)
            arrays |= zip(step.outs, run_step(program, step, arrays, syms, {}))
            for b in set(step.inputs) if known else ():
                if last[b] is step and b not in program.outputs:
                    del arrays[b]
        return arrays


__all__ = ["Feeds", "Trials"]
