"""The Python API: ``compile`` a model into a bundle, ``load`` a bundle that is there.

The compiler itself is imported on first use, so that loading a finished bundle needs neither
ONNX nor the template engine.
"""

import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aotc.errors import AotcError


@dataclass(frozen=True)
class CompiledBundle:
    """A bundle on disk.  ``path``: its folder; ``seconds``: time spent per compiler stage."""

    path: Path
    seconds: dict

    @cached_property
    def manifest(self):
        """The bundle's manifest.json as a dict."""
        return json.loads((self.path / "manifest.json").read_text())

    def load(self, threads=1, variant=None, simulate=False):
        """Build with the C compiler (nvcc) if needed and open it: an
        ``aotc.runtime.model.Model``.  ToolchainError if there is no compiler or it fails."""
        return load(self.path, threads, variant, simulate)


def compile(model, out, target="native", name=None, dims=None, schedule=None,
            schedule_out=None, dump=None, progress=None, weights="file", profile=False,
            winograd="auto", connect="all", math=None, optimize=None, machine=None, arena=None,
            fix=None, input_default=()):
    """Compile an ONNX model into a self-contained C bundle and return a CompiledBundle.

    model: path of a .onnx file, its bytes, or an ``onnx.ModelProto``.
    out: folder of the bundle; an earlier bundle there is replaced, any other non-empty folder is
        refused.
    target: c, x86-64-v1, x86-64-v3, x86-64-v4, x86-64 (those three in one bundle, chosen at run
        time), aarch64 or native (this machine).
    name: prefix of everything the bundle exports; the model file's stem if None.
    dims: {"seq": (1, 512)} gives a dynamic dimension its range, {"batch": 4} pins it, {"x:3": 48}
        means the axis 3 of input x alone.  Ranges that are not given come from the tables they
        index, else they have no upper bound, and are printed.
    schedule: a Schedule or the path of its JSON, instead of the scheduler's own decisions.
    schedule_out: path to write the Schedule used to.
    dump: folder for the text form of every stage.
    progress: called as ``progress(number, of, stage)``.
    weights: "file" (mapped at run time) or "embed" (linked into the library).
    profile: the bundle counts what every kernel costs (``Model.profile()``, NAME_profile).
    winograd: "auto" gives convolutions a form with fewer multiplications where estimates of cost
        and rounding errors allow it, "off" none, 2, 4 or 6 at most so many outputs per tile.
    connect: which intermediate tensors stay inside a kernel: "none", "register" those that fit
        registers, "all" that pay by the cost model.
    math: "fast" (the default) has polynomials for exp, erf, tanh and the like, "exact" calls libm
        for them and makes "auto" no forms with fewer multiplications.
    optimize: "speed" (the default), or "size": less code and smaller weights.
    machine: path of a machine file (``aotc targets --probe``) to decide for.
    arena: the most that NAME_arena_size may be, bytes or text such as "64M" ("64M:4": with four
        workers); what does not fit is computed tile by tile in fewer kernels, again where needed.
    fix: {"sr": 16000} makes an input a constant: a number, list, array or path of a .npy file;
        branches of an If that then cannot run disappear.  None: an initializer's own value.
    input_default: initializers that are also inputs and shall be inputs that may be left out.
        Small ones are in any case, unless the model lists every one of many as an input.

    Raises ModelError (wrong model or dims), UnsupportedError (also a NotImplementedError),
    ScheduleError (every fault with the legal choices), AotcError (folder, target).
    """
    from aotc.pipeline import Options, run_pipeline
    work = run_pipeline(Options(model, out, target, name, dims, schedule, schedule_out, dump,
                                progress=progress, weights=weights, profile=profile,
                                winograd=winograd, connect=connect, math=math,
                                optimize=optimize, machine=machine, arena=arena, fix=fix,
                                input_default=input_default))
    print_notes(work)
    return CompiledBundle(Path(out), work.seconds)


def tune(model, out=None, budget=120.0, target="native", dims=None, records=None, seed=0,
         threads=1, plot=None, progress=None, **decisions):
    """Search a faster Schedule of a model by building and measuring candidates on this machine.
    Returns an ``aotc.tuner.session.Tuned``: its ``schedule`` is for ``compile(schedule=...)``.

    model: as for ``compile``.  out: path for the Schedule's JSON.
    budget: seconds to compile and search; the check of the whole model at the end comes on top.
    records: path of a file of measurements, read first and appended to, so that a later run goes
        on where this one ended, also if it was killed.
    threads: workers that kernels are measured with.  plot: path for a picture (SVG) of the search.
    progress: called with a line of text now and then.
    decisions: as ``compile``'s (winograd, connect, math, ..): what the search starts from.

    The Schedule found is never slower than the untuned one as measured in turns: else it is the
    untuned one.  Raises UnsupportedError for a target that this machine does not run, AotcError for
    a records file that is none and for places that cannot be written, and what compiling raises.
    """
    for place in (out, records, plot):  # before the time is spent
        if place is not None and not Path(place).absolute().parent.is_dir():
            raise AotcError(f"tune: {place} cannot be written: its folder does not exist")
    from aotc.pipeline import Options
    from aotc.tuner.plot import plot as picture
    from aotc.tuner.session import tune as run
    found = run(model, Options(model, None, target, None, dims, **decisions), budget, records,
                seed, threads, progress=progress)
    if out is not None:
        Path(out).write_text(found.schedule.to_json())
    if plot is not None:
        name = Path(model).name if isinstance(model, (str, Path)) else "model"
        Path(plot).write_text(picture(found, name))
    return found


def print_notes(work, stream=None):
    """One line for every dynamic dimension whose range the user did not give, and one for an arena
    that may become large: of a finished ``pipeline.Work``."""
    names = {r.sym.name: r.onnx or r.sym.name for r in work.ranges}
    if work.large is not None:
        name = names[work.large.symbol]
        print(f"aotc: the largest extents need {work.large.bytes / 1e9:.1f} GB of arena; bound "
              f"dimension {name!r} (at its least {work.large.least / 1e9:.1f} GB are left) with "
              f"dims={{{name!r}: (lo, hi)}} or --dim {name}=lo..hi", file=stream or sys.stderr)
    for r in work.ranges:
        if r.source != "given":
            name, why = r.onnx or r.sym.name, f": {r.why}" if r.why else ""
            extent = f"of any extent from {r.sym.lo}" if r.sym.hi is None else f"in {r.sym.range}"
            print(f"aotc: dimension {name!r} {extent} ({r.source}{why}); change "
                  f"it with dims={{{name!r}: (lo, hi)}} or --dim {name}=lo..hi",
                  file=stream or sys.stderr)


def load(path, threads=1, variant=None, simulate=False):
    """Open a bundle built earlier; its library is built first if it is missing or out of date.

    path: the bundle's folder.  threads: workers of its pool, at least 1.  variant: name of the
    target whose kernels shall run, where a bundle has several; None = the widest possible.
    simulate: run a CUDA bundle on the CPU instead of a GPU, to check it; True, or the order in
    which threads take turns: "forward", "reverse", "random:SEED".
    Raises AotcError if the folder is no bundle or there is no GPU for it, ToolchainError if the
    compiler fails.
    """
    from aotc.runtime.model import load as open_model
    return open_model(path, threads=threads, variant=variant, simulate=simulate)
