"""``aotc bench``: median times on this machine, systems taking turns in the same run, and where
the time of one model goes, kernel by kernel."""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from aotc.api import load
from aotc.errors import AotcError
from aotc.options import Dims, Options
from aotc.oracle.quanta import Quanta
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import Progress, build
from aotc.runtime.model import KernelCost, Model
from aotc.runtime.processors import stay_on, usable_processors
from aotc.samples import EXTENT_CAP, Feeds, extents, random_inputs
from aotc.target import get_target
from aotc.target.base import Target
from aotc.tools.as_exported import InPlace
from aotc.tools.peers import check_peer, open_peer
from aotc.tools.probe import MEMORY_BYTES, peak_functions
from aotc.tools.verify import compare as compare_arrays
from aotc.tools.verify import output_steps

ROUNDS = 5  # every system runs once per round, so a change of the machine's load meets all
WARM_UP = 3
PLAIN = 0.05  # of a model's time, from which plain loops are worth a warning


@dataclass(frozen=True)
class Timing:
    """Times of one system in milliseconds per call; ``calls`` that were measured.  ``fault``: ""
    or why the system does not count (it lacks, refuses or miscomputes the model): then no times."""

    name: str
    median_ms: float
    min_ms: float
    calls: int
    fault: str = ""


def pin(threads: int) -> set[int]:
    """Bind this process (and the threads it starts from now on) to ``threads`` of the CPUs it
    may use; returns the set it could use before.  AotcError if there are fewer."""
    before = usable_processors()
    if threads > len(before):
        raise AotcError(f"bench: {threads} threads need {threads} CPUs, this process may use "
                        f"{len(before)}")
    stay_on(before[:threads])
    return set(before)


def interleave(calls: Mapping[str, Callable[[], object]], seconds: float,
               rounds: int = ROUNDS) -> list[Timing]:
    """Time ``{name: function}`` in turns: warm-up, then ``rounds`` rounds in which each runs
    for ``seconds / rounds`` (at least once).  Returns a list of Timing in the given order."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            end = time.perf_counter() + seconds / rounds
            while True:
                start = time.perf_counter()
                call()
                stop = time.perf_counter()
                times[name].append((stop - start) * 1e3)
                if stop >= end:
                    break
    return [Timing(n, statistics.median(t), min(t), len(t)) for n, t in times.items()]


def bench(path: str | Path, threads: int = 1, compare: Sequence[str] = (), target: str = "native",
          dims: Dims = None, seconds: float = 3.0, progress: Progress | None = None,
          build_progress: Progress | None = None, **decisions: Any) -> list[Timing]:
    """Time a model (compiled into a temporary bundle) or a bundle's folder, and peers.

    compare: names from ``aotc.tools.peers.PEERS``; they need the .onnx file.  One that is not
    installed, refuses the model or computes something else has a fault in its Timing and no times.
    Dynamic dimensions take the middle of their (capped) range, inputs are random.
    decisions: as ``aotc.compile``'s (``aotc.options.decisions``).
    Returns a list of Timing, aotc first.  Raises AotcError and what compiling raises.
    """
    path = Path(path)
    for name in compare:
        check_peer(name)
    if path.is_dir():
        if compare:
            raise AotcError("bench: peers need the model; give the .onnx file instead of the "
                            "bundle's folder")
        return _timings(lambda: _bound_folder(path, threads), threads, seconds)
    with tempfile.TemporaryDirectory(prefix="aotc-bench-") as scratch:
        return measure(path, Path(scratch) / "bundle", None, threads, compare, target, seconds,
                       dims, progress, build_progress, **decisions)


def measure(path: str | Path, out: str | Path, feeds: Feeds | None, threads: int,
            compare: Sequence[str], target: str, seconds: float, dims: Dims = None,
            progress: Progress | None = None, build_progress: Progress | None = None,
            **decisions: Any) -> list[Timing]:
    """Compile a model into ``out``, build it, and time it and its peers on ``feeds`` (arrays by
    input name; None: random ones).  The compiler has finished before anything is pinned or
    timed.  Returns a list of Timing, aotc first."""
    work = run_pipeline(Options(path, out, target, Path(path).stem, dims, progress=progress,
                                **decisions))
    build(work.path, progress=build_progress)
    call = InPlace(work.program, extents(work.program)[0] if feeds is None else {})
    if feeds is None:
        feeds = random_inputs(work.program, call.syms)
    theirs = call.model_feeds(feeds) | work.settings.fixed
    peers = {name: lambda name=name: _bound_peer(name, path, threads, theirs) for name in compare}
    return _timings(lambda: load(out, threads=threads).bind(feeds, call.dims), threads, seconds,
                    peers, _Outputs(call.model_outputs, output_steps(work.program)))


def _bound_peer(name: str, path: str | Path, threads: int, feeds: Feeds) -> Callable[[], Feeds]:
    run = open_peer(name, path, threads, feeds)
    return lambda: run(feeds)


def _bound_folder(folder: Path, threads: int) -> Callable[[], Feeds]:
    model = load(folder, threads=threads)
    return model.bind(folder_inputs(model))


def folder_inputs(model: Model) -> Feeds:
    """{name: array} that suit any bundle: floats normal, integers zero (an index into any table),
    dynamic dimensions in the middle of their capped range.  AotcError if an extent is computed
    from several dimensions: only the model knows which values fit together."""
    rng, feeds = np.random.default_rng(0), {}
    for info in model.inputs:
        shape = []
        for d in info.shape:
            if not isinstance(d, int) and not d.symbol:
                raise AotcError(f"bench: extent {d.text} of input {info.name} depends on others; "
                                "give the .onnx file instead of the bundle's folder")
            shape.append(d if isinstance(d, int) else (
                d.lo + max(d.lo, min(d.hi or EXTENT_CAP, EXTENT_CAP))) // 2)
        values = rng.standard_normal(shape) if info.dtype.kind == "f" else np.zeros(shape)
        feeds[info.name] = values.astype(info.dtype)
    return feeds


# ---------------------------------------------------------------- profiles

@dataclass(frozen=True)
class Peak:
    """What one core, or a whole GPU (``of``) reaches: multiply-adds in registers (flops/s), reads
    from memory (bytes/s)."""

    flops: float
    read: float
    of: str = "one core"


@dataclass(frozen=True)
class Profile:
    """``costs``: a KernelCost per kernel in call order, medians of ``calls`` runs, which one slow
    run does not change; ``peak`` of one core."""

    costs: tuple[KernelCost, ...]
    calls: int
    threads: int
    peak: Peak


def profile(path: str | Path, threads: int = 1, target: str = "native", dims: Dims = None,
            seconds: float = 3.0, progress: Progress | None = None,
            build_progress: Progress | None = None, **decisions: Any) -> Profile:
    """The Profile of a model (compiled into a temporary bundle that counts), or of the folder of a
    bundle compiled with ``--profile``.  Raises AotcError and what compiling raises."""
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix="aotc-bench-") as scratch:
        folder, feeds, dims_told = path, None, None
        if not path.is_dir():
            folder = Path(scratch) / "bundle"
            work = run_pipeline(Options(path, folder, target, path.stem, dims, progress=progress,
                                        profile=True, **decisions))
            syms = extents(work.program)[0]
            feeds, dims_told = random_inputs(work.program, syms), InPlace(work.program, syms).dims
        build(folder, progress=build_progress)
        before = pin(threads)
        try:
            model = load(folder, threads=threads)
            call = model.bind(folder_inputs(model) if feeds is None else feeds, dims_told)
            for _ in range(WARM_UP):
                call()
            model.profile(reset=True)
            runs: list[list[KernelCost]] = []
            end = time.perf_counter() + seconds
            while not runs or time.perf_counter() < end:
                call()
                runs.append(model.profile(reset=True))
            costs = tuple(replace(c[0], seconds=statistics.median(x.seconds for x in c))
                          for c in zip(*runs) if c[0].calls)  # others are of other variants
            peak = measure_peak(get_target(model.variant), scratch)
        finally:
            stay_on(sorted(before))
    return Profile(costs, len(runs), threads, peak)


def measure_peak(target: Target, folder: str | Path) -> Peak:
    """The Peak of this machine with the instructions of ``target``, from a small C program that is
    compiled into ``folder``; of a device that of its Machine.  ToolchainError if the compiler
    fails."""
    if target.timed == "events":
        machine = target.machine
        return Peak(machine.flops * machine.workers, machine.memory.bandwidth,
                    f"{target.name} by its data sheet")
    read, flops, _ = peak_functions(target, folder)
    return Peak(flops(), read(MEMORY_BYTES))


def profile_lines(p: Profile) -> list[str]:
    """A Profile as text: per kernel milliseconds a call, share of the whole, GFLOP/s, per cent of
    the machine's peak (of all threads), GB/s, micro-kernel rows and ONNX nodes; longest first."""
    whole = sum(c.seconds for c in p.costs) or 1e-9
    lines = [f"median of {p.calls} calls, {whole * 1e3:.3f} ms in {len(p.costs)} kernels; "
             f"{p.threads} thread(s); {p.peak.of}: {p.peak.flops * 1e-9:.0f} GFLOP/s, "
             f"{p.peak.read * 1e-9:.0f} GB/s from memory",
             f"{'ms':>9} {'share':>6} {'GFLOP/s':>8} {'peak':>5} {'GB/s':>6}  kernel"]
    for c in sorted(p.costs, key=lambda c: -c.seconds):
        rate = c.flops / max(c.seconds, 1e-9)
        lines.append(f"{c.seconds * 1e3:9.4f} {c.seconds / whole:6.1%} "
                     f"{rate * 1e-9:8.1f} {rate / (p.peak.flops * p.threads):5.0%} "
                     f"{c.bytes / max(c.seconds, 1e-9) * 1e-9:6.1f}  {c.kernel}: "
                     f"{', '.join(c.rows)}: {_node_list(c.nodes)}")
    total = sum(c.flops for c in p.costs) / whole
    lines.append(f"{whole * 1e3:9.4f} 100.0% {total * 1e-9:8.1f} "
                 f"{total / (p.peak.flops * p.threads):5.0%} "
                 f"{sum(c.bytes for c in p.costs) / whole * 1e-9:6.1f}  all kernels")
    return lines + plain_warnings(p)


def plain_warnings(p: Profile) -> list[str]:
    """A line for every kernel whose plain loops, which no lanes compute, take more than ``PLAIN``
    of a Profile's time."""
    whole = sum(c.seconds for c in p.costs) or 1e-9
    return [f"warning: plain loops take about {c.seconds * c.plain / whole:.0%} of the time in "
            f"{c.kernel} ({_node_list(c.nodes)}): no row of the target computes them in lanes"
            for c in sorted(p.costs, key=lambda c: -c.seconds * c.plain)
            if c.seconds * c.plain > PLAIN * whole]


def _node_list(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")


@dataclass(frozen=True)
class _Outputs:
    """How our outputs are compared with peers': as ``shown``, with the quanta ``steps``."""

    shown: Callable[[Feeds], Feeds] = dict
    steps: Quanta = field(default_factory=dict)


def _timings(own: Callable[[], Callable[[], Feeds]], threads: int, seconds: float,
             peers: Mapping[str, Callable[[], Callable[[], Feeds]]] | None = None,
             outputs: _Outputs | None = None) -> list[Timing]:
    """Timing of ``own()`` and of every peer; all are opened pinned, so that the threads they
    create inherit the CPUs.  A peer that cannot be opened or computes something else has a fault
    in place of times.  outputs: how ours are compared with peers'."""
    before = pin(threads)
    try:
        calls, faults = {"aotc": own()}, {}
        for name, open_ in (peers or {}).items():
            try:
                calls[name] = open_()
            except AotcError as err:
                faults[name] = str(err)
        ours, outputs = calls["aotc"], outputs or _Outputs()
        faults.update(wrong_results(calls | {"aotc": lambda: outputs.shown(ours())},
                                    outputs.steps))
        rows = interleave({n: c for n, c in calls.items() if n not in faults}, seconds)
    finally:
        stay_on(sorted(before))
    return rows + [Timing(n, float("nan"), float("nan"), 0, why) for n, why in faults.items()]


def wrong_results(calls: Mapping[str, Callable[[], Feeds]],
                  steps: Quanta | None = None) -> dict[str, str]:
    """{name: what is wrong} of the systems whose outputs are not those of the reference: ONNX
    Runtime, or aotc where that takes no part.  steps: the quanta of those behind a rounding to 8
    bits.  AotcError if aotc itself is wrong: its times would mean nothing."""
    judge = "onnxruntime" if "onnxruntime" in calls else "aotc"
    wanted, faults = calls[judge](), {}
    for name, call in calls.items():
        matches = [compare_arrays(n, got, want, (steps or {}).get(n, 0.0))
                   for (n, want), got in zip(wanted.items(), call().values())]
        bad = next((m for m in matches if not m.ok), None)
        if bad is not None:
            faults[name] = (f"wrong results: output {bad.output} " + (
                bad.fault or f"is off by {bad.share:.1e} {bad.unit} from {judge}'s"))
    if "aotc" in faults:
        raise AotcError(f"bench: aotc has {faults['aotc']}")
    return faults
