"""``aotc verify``: does a compiled model compute what a reference computes?"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aotc.collector import free_dropped
from aotc.errors import AotcError
from aotc.ir.dtypes import CHARS, TEXT, Array, dtype_of
from aotc.ir.program import Program
from aotc.ir.schedule import PRECISION
from aotc.options import AUTO, ERROR, Dims, Options, measures
from aotc.oracle.quanta import Quanta, quanta
from aotc.oracle.shares import FLAT
from aotc.passes.precision.rounding_table import rounding_error
from aotc.pipeline import Work, run_pipeline
from aotc.runtime.compile_bundle import Progress, build
from aotc.runtime.cuda_model import require_device
from aotc.runtime.emulate import EmulatedModel, emulated_models
from aotc.runtime.feeds import machine
from aotc.runtime.list_arguments import put_lists_together
from aotc.runtime.loading import load
from aotc.runtime.model import Model
from aotc.runtime.tensor_info import stored_dtype
from aotc.runtime.texts import strings_of
from aotc.samples import (
    EXTENT_CAP,
    Box,
    Feeds,
    border_extents,
    extents,
    input_kinds,
    random_inputs,
    read_feeds,
)
from aotc.sched.shape_variants import boxes
from aotc.target import get_target, runs_here
from aotc.target.base import Target
from aotc.tools.as_exported import InPlace, refuse
from aotc.tools.exact import (
    BesideDouble,
    Double,
    ExactShare,
    exact_lines,
    exact_outputs,
    exact_program,
    exact_shares,
)
from aotc.tools.peer_ncnn import Run
from aotc.tools.peers import first_line, open_literal, open_reference

# The one table of tolerances: largest |a - b| as a share of the output's range (largest minus
# smallest finite reference value).  Sums in another order differ by a few roundings, which is
# what the float rows allow; integers and bools must be equal.  f16: stored tensors are rounded to
# 11 bits, 5e-4 of their magnitude each, where the reference rounds others; measured: 3e-3 of the
# range for a SqueezeNet.
TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 1e-2}
# Types that are stored only, by their names in numpy: bf16 has 8 bits; where two systems round to
# fewer differently, they are a step apart.
STORED_TOLERANCE, STEP = {"bfloat16": 5e-2}, 0.13
# Outputs behind a rounding to 8 bits.  What scales or moves such numbers may be one quantum off, as
# two systems round a tie differently; the slack is for the roundings of the scaling.
QUANTUM = 1.01
# What is computed from such numbers in another way; measured: 2.3e-2 of the range for a BERT.
ROUNDED = 3e-2
# Layer by layer such steps grow.  Then the reference's own modes differ, too, and outputs may be so
# many times as far from the optimised one as the literal one is (measured: 3.5, ResNet-50, s8).
SPREAD = 4
# Bytes of tensors, beside as many as the weights have, that a run may hold at once where there are
# smaller extents to choose.  A reference holds more of them, the model beside it its arena.
ROOM = 64 << 20


@dataclass(frozen=True)
class Match:
    """How one output of one run compares.  ``error``: max |a - b|; ``share``: of the range, or in
    quanta where ``unit`` says so; ``limit``: the share allowed; ``fault``: "" or why the arrays
    cannot be compared; ``exact``: of an output beyond the limit, where double precision was
    asked."""

    output: str
    error: float
    share: float
    limit: float
    fault: str = ""
    unit: str = "of the range"
    exact: BesideDouble | None = None

    @property
    def ok(self) -> bool:
        near = self.share <= self.limit or (
            self.exact is not None and self.exact.right(self.limit))
        return not self.fault and near


def compare(name: str, got: ArrayLike, want: ArrayLike, quantum: float | None = 0.0,
            low: float = 0.0) -> Match:
    """Match of an output array with its reference.  NaN matches NaN, an infinity matches the
    same infinity; shapes and dtypes must be equal.  quantum: of an output behind a rounding to 8
    bits (``aotc.oracle.quanta``; None: of no fixed size), 0.0 of others;
    low: what its products' precision may cost."""
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.kind in "OUS":  # strings
        error = 0.0 if got.shape == want.shape and got.tolist() == want.tolist() else np.inf
        return Match(name, error, error, 0.0, "" if not error else "other strings")
    limit = _limit(want, quantum)
    if limit:
        limit = max(limit, low)
    if got.shape != want.shape or got.dtype != want.dtype:
        return Match(name, np.inf, np.inf, limit,
                     f"is {got.dtype}{list(got.shape)}, reference {want.dtype}{list(want.shape)}")
    if not want.size:
        return Match(name, 0.0, 0.0, limit)
    with np.errstate(all="ignore"):
        return _compared(name, got, want, limit, quantum)


def _limit(want: Array, quantum: float | None) -> float:
    """What may differ, as a share of the range."""
    try:
        dtype = dtype_of(want)
    except KeyError:
        return STORED_TOLERANCE.get(str(want.dtype), STEP)
    limit = TOLERANCE.get(dtype, 0.0)
    return max(limit, ROUNDED) if quantum is None and dtype in (*TOLERANCE, "i32") else limit


def _compared(name: str, got: Array, want: Array, limit: float, quantum: float | None) -> Match:
    """``compare`` of arrays of one shape and dtype that hold elements."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(
            a[finite]).all():
        return Match(name, np.inf, np.inf, limit, "NaN or infinity where the other has none")
    if not finite.any():
        return Match(name, 0.0, 0.0, limit)
    a, b = a[finite], b[finite]
    # float64 cannot tell neighbouring large integers apart, the integers themselves can
    error = float(np.max(np.abs(a - b))) or float(np.any(got[finite] != want[finite])
                                                  and limit == 0.0)
    if quantum:
        return Match(name, error, error / quantum, QUANTUM, unit="quanta")
    scale = max(float(np.ptp(b)), FLAT * float(np.max(np.abs(b))))
    return Match(name, error, error / scale if scale else (np.inf if error else 0.0), limit)


class _Judge:
    """Compares the outputs of one model with its reference.  quanta: of the outputs behind
    roundings to 8 bits, by ONNX name; low: what the precision of its products may cost."""

    def __init__(self, path: str | Path, threads: int, quanta: Quanta,
                 told: Callable[[str], object], low: float) -> None:
        self.name, self._run = open_reference(path, threads, told)
        self.quanta, self.source, self.low = quanta, (path, threads), low
        self.literal: Run | None = None
        self._told = told
        self._refused: tuple[str, ...] = ()

    def run(self, feeds: Feeds) -> Feeds:
        """{output: array} of the reference.  One that refuses the inputs gives way to the next:
        that is told; AotcError where there is none."""
        while True:
            try:
                return self._run(feeds)
            except Exception as err:  # references raise exceptions of their own making
                why = f"{self.name} refuses {_shapes(feeds)}: {first_line(err)}"
                self._told(why)
                self._refused += (self.name,)
                try:
                    self.name, self._run = open_reference(*self.source, self._told,
                                                          self._refused)
                except AotcError as none:
                    raise AotcError(f"{why}; {none}") from err
                self.literal = None

    def matches(self, feeds: Feeds, got: Feeds, want: Feeds) -> Iterator[Match]:
        """A Match per output of one run."""
        for n in got:
            match = compare(n, got[n], want[n], self.quanta.get(n, 0.0), self.low)
            spread = 0.0 if match.ok or match.fault or n not in self.quanta else self.spread(
                feeds, n, want)
            yield replace(match, limit=max(match.limit, SPREAD * spread))

    def spread(self, feeds: Feeds, name: str, want: Feeds) -> float:
        """How far the literal mode of the reference is from it, as a share; 0.0 without one."""
        self.literal = self.literal or open_literal(self.name, *self.source)
        if self.literal is None:
            return 0.0
        match = compare(name, self.literal(feeds)[name], want[name], self.quanta[name])
        return 0.0 if match.fault else match.share


def _shapes(feeds: Feeds) -> str:
    return ", ".join(f"{n} {list(np.shape(a))}" for n, a in feeds.items()) or "no inputs"


@dataclass(frozen=True)
class Case:
    """One set of inputs: a title for the report, the arrays by ONNX input name and, where they
    were chosen, the extents."""

    title: str
    feeds: Feeds
    syms: Mapping[str, int] = field(default_factory=dict)


def make_cases(program: Program, runs: int, cap: int = EXTENT_CAP,
               served: Sequence[Box] = (), room: int | None = None) -> Iterator[Case]:
    """``runs`` cases per choice of the dynamic dimensions (``extents``), at most ``cap``, and at
    both ends of each of the boxes ``served`` by a variant; of choices that may be smaller, those
    whose tensors take at most ``room`` bytes at once."""
    kinds = input_kinds(program)
    chosen = extents(program, cap, room)
    ends = border_extents(program, served, cap, room)
    for syms in (*chosen, *(s for s in ends if s not in chosen)):
        for seed in range(runs):
            dims = ", ".join(f"{n}={v}" for n, v in syms.items())
            yield Case(f"{dims or 'static'} run {seed}",
                       give_stored_types(program, random_inputs(program, syms, seed, kinds)), syms)


def give_stored_types(program: Program, feeds: Feeds) -> Feeds:
    """Arrays of bits of types that are stored only, as arrays of those types; places of texts as
    strings."""
    words = np.array([*program.texts, "a text that the model lacks"], object)
    text = {b.onnx for b in program.buffers.values() if b.stored == TEXT}
    kinds = {b.onnx: stored_dtype(b.stored) for b in map(program.buffers.__getitem__,
                                                         program.inputs) if b.stored}
    chars = {b.onnx for b in program.buffers.values() if b.stored == CHARS}
    return {n: strings_of(a) if n in chars else words[a] if n in text else
            a if (kind := kinds.get(n)) is None else a.view(kind) for n, a in feeds.items()}


def read_inputs(path: str | Path, fixed: Collection[str] = (),
                program: Program | None = None) -> Case:
    """The one Case held by an .npz file, as ``read_feeds``."""
    return Case(str(path), read_feeds(path, fixed, program))


def output_steps(program: Program) -> Quanta:
    """The quanta of outputs as the model has them, by ONNX name."""
    found, scales = quanta(program), program.scales
    names = {n: program.buffers[n].onnx or n for n in program.outputs if n in found}
    return {name: step * scales[name].scale if step and name in scales else step
            for n, name in names.items() for step in [found[n]]}


def _open(work: Work, target: Target, threads: int, build_progress: Progress | None,
          vlen: int | None, simulate: bool) -> dict[str, Model | EmulatedModel]:
    """{target: model} of the bundle just written, built: one for each set of kernels that this
    machine can run, or one for each emulated vector length of the bundle's machine."""
    if _for_gpu(target):
        ways: dict[str, bool | str] = {
            f"{target.name}, simulated": True,
            f"{target.name}, simulated in another order": "random:1"}
        if not simulate:
            ways = {target.name: False}
        return {name: load(work.path, simulate=way, progress=build_progress)
                for name, way in ways.items()}
    if target.arch not in ("", machine()):
        return {f"{target.name} vlen {v}" if v else target.name: model
                for v, model in emulated_models(work.path, vlen).items()}
    if vlen is not None:
        raise AotcError(f"vlen {vlen}: {target.name} runs on this machine as it is, nothing is "
                        "emulated; leave vlen out")
    build(work.path, progress=build_progress)
    if not target.variants:
        return {target.name: load(work.path, threads)}
    return {v.name: load(work.path, threads, variant=v.name)
            for v in work.variants if runs_here(v)}


def _compiled(options: Options) -> tuple[Work, int]:
    """The Work of a bundle in its folder, and the bytes of its weights, which are in the file: the
    Work has them no longer."""
    work = run_pipeline(options)
    return work.written(), work.weight_bytes


def _low_limit(options: Options, precision: str) -> float:
    """What the precision of products may cost, as a share of an output's range: the budget that was
    declared, else what is usual."""
    if precision == PRECISION[0]:
        return 0.0
    budget = options.error or (ERROR if options.precision == AUTO else None)
    return rounding_error(precision) if budget is None else budget


def _measured(inputs: str | Path | None, decisions: Mapping[str, Any]) -> str | Path | None:
    """The inputs that decide what is rounded, if errors do."""
    return inputs if measures(decisions.get("precision"), decisions.get("error")) else None


def _for_gpu(target: Target) -> bool:
    return target.emitter == "simt"


def _check_place(target: Target, vlen: int | None, simulate: bool) -> None:
    """Say before the work begins that a target cannot be run as asked."""
    if simulate and not _for_gpu(target):
        raise AotcError(f"simulate: {target.name} is no GPU; leave simulate out")
    if vlen is not None and _for_gpu(target):
        raise AotcError(f"vlen {vlen}: {target.name} has no vectors of that kind; leave vlen out")
    if _for_gpu(target) and not simulate:
        require_device(target.name)


def verify(path: str | Path, target: str = "native", runs: int = 1, dims: Dims = None,
           inputs: str | Path | None = None, threads: int = 1, out: str | Path | None = None,
           report: Callable[[str], object] = print, progress: Progress | None = None,
           build_progress: Progress | None = None, vlen: int | None = None, simulate: bool = False,
           **decisions: Any) -> list[tuple[str, Match]]:
    """Compile, build and run a model and compare every output with a reference.

    path: the .onnx file.  inputs: path of an .npz to use instead of random inputs.
    out: folder to keep the bundle in; a temporary one if None.
    report: called with each line; progress, build_progress: as ``progress`` of ``aotc.compile``
    and of ``aotc.runtime.compile_bundle.build``.  Returns the list of (Case title, Match).  A
    target for another machine runs under its emulator, with vectors of ``vlen`` bits, or of each
    length that the target lists; of a bundle with several sets of kernels each one that this
    machine can run is compared. A CUDA target runs on this machine's GPU, or with ``simulate`` its
    sources run on the CPU, in two orders of their threads, with memory accesses and barriers
    checked. decisions: as ``aotc.compile``'s (``aotc.options.decisions``). A reference that
    refuses the model or its inputs gives way to the other, which the report says. Of an f32 output
    beyond its limit, double precision says which is nearer (``BesideDouble``). Raises what
    ``aotc.compile`` and ``aotc.load`` raise, AotcError if no reference is left. At lower precision
    of products each output's error against f64 is reported, beside that of the reference."""
    _check_place(get_target(target), vlen, simulate)
    if inputs is not None:
        refuse("verify with inputs of a file", decisions.get("alias"))
    with tempfile.TemporaryDirectory(prefix="aotc-verify-") as scratch:
        folder = Path(out) if out is not None else Path(scratch) / "bundle"
        options = Options(path, folder, target, Path(path).stem, dims, progress=progress,
                          inputs=_measured(inputs, decisions), **decisions)
        work, weights = _compiled(options)
        free_dropped(weights)
        fixed = work.settings.fixed
        steps = output_steps(work.program)
        models = _open(work, get_target(target, work.schedule.precision), threads,
                       build_progress, vlen, simulate)
        judge = _Judge(path, threads, steps, lambda why: report(f"  {why}"),
                       _low_limit(options, work.schedule.precision))
        report(f"{Path(path).name}: target {', '.join(models)}, reference {judge.name}")
        cases = [read_inputs(inputs, fixed, work.program)] if inputs else make_cases(
            work.program, runs, served=boxes(work.program, work.schedule), room=ROOM + weights)
        precision, shares = work.schedule.precision, list[ExactShare]()
        exact = None if precision == PRECISION[0] else exact_program(options)
        results, double = [], Double(options)
        if work.narrowed is not None:
            report(f"  {work.narrowed.summary}")
        for case in cases:
            call = InPlace(work.program, case.syms)
            given = put_lists_together(work.settings.given, call.model_feeds(case.feeds) | fixed)
            want = _each_tensor(judge.run(given))
            for name, model in models.items():
                got = _each_tensor(model.run(call.fresh(case.feeds), call.dims))
                title = f"{case.title} on {name}" if len(models) > 1 else case.title
                got = call.model_outputs(got)
                results += [(title, _settled(m, double, case.feeds, got, want))
                            for m in judge.matches(given, got, want)]
                wide = None if exact is None else exact_outputs(exact, case.feeds)
                shares += exact_shares(wide, got, want) if wide is not None else []
    for line in (*summary(results), *exact_lines(shares, precision)):
        report(line)
    return results


def _settled(match: Match, double: Double, feeds: Feeds, got: Feeds, want: Feeds) -> Match:
    """The Match of an output; of one that rounding to f32 alone may have taken beyond its limit,
    with what double precision says."""
    if match.ok or match.fault or match.limit != TOLERANCE["f32"]:
        return match
    name = match.output
    return replace(match, exact=double.between(name, feeds, np.asarray(got[name]),
                                               np.asarray(want[name])))


def _each_tensor(outputs: Feeds) -> Feeds:
    """Outputs by name, those that are lists tensor by tensor."""
    lists = {n: v for n, v in outputs.items() if isinstance(v, list)}
    return {n: v for n, v in outputs.items() if n not in lists} | {
        f"{n}[{k}]": a for n, v in lists.items() for k, a in enumerate(v)}


def summary(results: Sequence[tuple[str, Match]]) -> list[str]:
    """Lines with the worst error of every output over all cases."""
    lines = []
    for output in dict.fromkeys(m.output for _, m in results):
        rows = [(t, m) for t, m in results if m.output == output]
        title, worst = max(rows, key=lambda row: (not row[1].ok, row[1].share))
        word = "ok" if worst.ok else "MISMATCH"
        text = worst.fault or (f"max |a-b| {worst.error:.3g}, {worst.share:.2g} {worst.unit} "
                               f"(limit {worst.limit:g})")
        text += "" if worst.exact is None else f"; {worst.exact}"
        lines.append(f"  {output}: {word}  {text}  [{len(rows)} runs, worst: {title}]")
    return lines
