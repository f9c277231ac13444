"""What a model computes in double precision, beside which the precision of its products is seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from aotc.errors import AotcError
from aotc.ir.dtypes import Array
from aotc.ir.program import Program
from aotc.options import Options
from aotc.oracle.evaluate import evaluate, infer_syms, input_arrays
from aotc.oracle.shares import share_of_range
from aotc.passes.double_precision import promote_to_f64
from aotc.pipeline import run_pipeline
from aotc.samples import SAMPLE_FLOPS, Feeds, run_work

# So many times as far as by rounding every tensor once a sum of f32 may be off, whose terms are
# rounded, too; measured: 5 to 19 for chains of products of 64 terms, 12 for convolutions of 576.
# Models of usual depth move by less than 5e-6: there it explains nothing beyond the limit.
ROUNDINGS = 32
# So many times as far as the reference ours may be: sums in another order, Winograd forms.
FARTHER = 4


@dataclass(frozen=True)
class ExactShare:
    """How far one output of one run is from double precision, as a share of its range: ``ours``
    at a lower precision, ``theirs`` of the reference in f32."""

    output: str
    ours: float
    theirs: float


@dataclass(frozen=True)
class BesideDouble:
    """How far both arrays of an output are from double precision, as shares of its range: ``ours``,
    and ``theirs`` of the reference; ``rounding``: how far it moves if the evaluator rounds every
    tensor to f32 once."""

    ours: float
    theirs: float
    rounding: float

    @property
    def explained(self) -> bool:
        """True if the reference is no farther than roundings of f32 take it; one that computes
        something else is."""
        return self.theirs <= ROUNDINGS * self.rounding

    def right(self, limit: float) -> bool:
        """True if both are within a limit of double precision, or ours is nearer, or not much
        farther, and rounding alone takes the reference as far as it is."""
        return max(self.ours, self.theirs) <= limit or (
            self.ours <= FARTHER * self.theirs and self.explained)

    def __str__(self) -> str:
        who = "ours" if self.ours <= self.theirs else "the reference"
        why = "" if self.explained else ", more than rounding explains"
        return (f"double precision is nearer to {who}: {self.ours:.2g} of the range from ours, "
                f"{self.theirs:.2g} from the reference{why}")


class Double:
    """Double precision as the arbiter between a bundle and its reference, asked for one run after
    the other; its Programs are made when it is first asked."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.run: tuple[Feeds, Feeds | None, Feeds] | None = None  # feeds, exact and rounded

    @cached_property
    def _programs(self) -> tuple[Program, Program] | None:
        """(the Program of the model in f32, in f64)."""
        found = _plain_program(self.options)
        return None if found is None else (found, promote_to_f64(found))

    def between(self, output: str, feeds: Feeds, got: Array, want: Array) -> BesideDouble | None:
        """Of one f32 output of a run; None where the evaluator cannot run the model in f64, or
        would take too long."""
        if want.dtype != np.float32:
            return None
        if self.run is None or self.run[0] is not feeds:
            self.run = self._ran(feeds)
        _, exact, rounded = self.run
        if exact is None or output not in exact or exact[output].dtype != np.float64:
            return None
        return BesideDouble(*(share_of_range(a, exact[output])
                              for a in (got, want, rounded[output])))

    def _ran(self, feeds: Feeds) -> tuple[Feeds, Feeds | None, Feeds]:
        if self._programs is None:
            return feeds, None, {}
        plain, wide = self._programs
        exact = exact_outputs(wide, feeds)
        return feeds, exact, {} if exact is None else _outputs(plain, feeds)


def exact_program(options: Options) -> Program | None:
    """The Program of a model in f64, before any rewrite; None if it has several data types to keep
    that f64 would change."""
    found = _plain_program(options)
    return None if found is None else promote_to_f64(found)


def _plain_program(options: Options) -> Program | None:
    plain = replace(options, out=None, precision=None, error=None, inputs=None,
                    stop_after="inline", progress=None)
    try:
        return run_pipeline(plain).program
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
        return _outputs(program, wide)
    except (AotcError, ValueError):
        return None


def _outputs(program: Program, feeds: Feeds) -> Feeds:
    """What the evaluator finds, by ONNX name."""
    return {program.buffers[n].onnx or n: a for n, a in evaluate(program, feeds).items()}


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


__all__ = ["BesideDouble", "Double", "ExactShare", "exact_lines", "exact_outputs",
           "exact_program", "exact_shares"]
