"""The Python API: ``compile`` a model into a bundle, ``load`` a bundle that is there.

The compiler itself is imported on first use, so that loading a finished bundle needs neither
ONNX nor the template engine.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from aotc.errors import AotcError
from aotc.options import Options

if TYPE_CHECKING:
    from aotc.pipeline import Work
    from aotc.runtime.cuda_model import CudaModel
    from aotc.runtime.model import Model
    from aotc.tuner.session import Tuned

    OpenModel = Model | CudaModel


@dataclass(frozen=True)
class CompiledBundle:
    """A bundle on disk.  ``path``: its folder; ``seconds``: time spent per compiler stage;
    ``refused``: the error of a decision that had to be made again (a defect of aotc that may cost
    speed), None if there was none."""

    path: Path
    seconds: dict[str, float]
    refused: Exception | None = None

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The bundle's manifest.json as a dict."""
        manifest: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        return manifest

    def load(self, threads: int = 1, variant: str | None = None,
             simulate: bool | str = False, device: Any = None) -> "OpenModel":
        """Build with the C compiler (nvcc) if needed and open it: an
        ``aotc.runtime.model.Model``.  ToolchainError if there is no compiler or it fails."""
        return load(self.path, threads, variant, simulate, device)


def compile(model: Any, out: str | Path, target: str = "native", **options: Any) -> CompiledBundle:
    """Compile an ONNX model into a self-contained C bundle and return a CompiledBundle.

    model: path of a .onnx file, its bytes, or an ``onnx.ModelProto``.  out: folder of the bundle.
    target, options: the fields of ``aotc.Options``, explained there.

    Raises ModelError (wrong model or dims), UnsupportedError (also a NotImplementedError),
    ScheduleError (every fault with the legal choices), AotcError (folder, target, choices),
    TypeError (no such option).
    """
    work = run_compiler(Options(model, out, target, **options))
    print_notes(work)
    return CompiledBundle(Path(out), work.seconds, work.refused)


def run_compiler(options: Options) -> "Work":
    """The finished Work of ``options``.  LimitError if the bundle takes more flash or RAM than they
    allow; nothing is written then."""
    from aotc.pipeline import run_pipeline
    if options.flash is None and options.ram is None:
        return run_pipeline(options)
    from aotc.footprint.bundle_size import check_work, limits_of
    limits_of(options)  # says what is wrong with them before any work is done
    return run_pipeline(options, check_work)


def tune(model: Any, out: str | Path | None = None, budget: float = 120.0, target: str = "native",
         dims: Mapping[str, Any] | None = None, records: str | Path | None = None, seed: int = 0,
         threads: int = 1, plot: str | Path | None = None,
         progress: Callable[[str], object] | None = None, simulate: bool = False,
         **decisions: Any) -> "Tuned":
    """Search a faster Schedule of a model by building and measuring candidates on this machine.
    Returns an ``aotc.tuner.session.Tuned``: its ``schedule`` is for ``compile(schedule=...)``.

    model: as for ``compile``.  out: path for the Schedule's JSON.
    budget: seconds to compile and search; the check of the whole model at the end comes on top.
    records: path of a file of measurements, read first and appended to, so that a later run goes
        on where this one ended, also if it was killed.
    threads: workers that kernels are measured with.  plot: path for a picture (SVG) of the search.
    progress: called with a line of text now and then.
    simulate: a dry run for a CUDA target without a GPU: kernels run on the simulator, whose times
        say nothing of a GPU's; what comes out is right, but no faster for it.
    decisions: as ``compile``'s (winograd, connect, math, ..): what the search starts from.

    The Schedule found is never slower than the untuned one as measured in turns: else it is the
    untuned one.  Raises UnsupportedError for a target that this machine does not run, AotcError for
    a records file that is none and for places that cannot be written, and what compiling raises.
    """
    for place in (out, records, plot):  # before the time is spent
        if place is not None and not Path(place).absolute().parent.is_dir():
            raise AotcError(f"tune: {place} cannot be written: its folder does not exist")
    from aotc.tuner.plot import plot as picture
    from aotc.tuner.session import tune as run
    found = run(model, Options(model, target=target, dims=dims, **decisions), budget, records,
                seed, threads, progress=progress, simulate=simulate)
    if out is not None:
        Path(out).write_text(found.schedule.to_json())
    if plot is not None:
        name = Path(model).name if isinstance(model, (str, Path)) else "model"
        Path(plot).write_text(picture(found, name))
    return found


def print_notes(work: "Work", stream: TextIO | None = None) -> None:
    """One line for every output that lies in the buffer of an input, one for every dynamic
    dimension whose range the user did not give, one for an arena that may become large, one for
    products that a budget of error chose, and one for a decision that was refused: of a finished
    ``pipeline.Work``."""
    from aotc.frontend.aliases import alias_notes
    names = {r.sym.name: r.onnx or r.sym.name for r in work.ranges}
    for line in alias_notes(work.program):
        print(f"aotc: {line}", file=stream or sys.stderr)
    if work.narrowed is not None:
        print(f"aotc: {work.narrowed.summary}", file=stream or sys.stderr)
    if work.refused is not None:
        why = f"{type(work.refused).__name__}: {work.refused}".splitlines()[-1]
        print("aotc: warning: a decision was refused by its own check and made again without "
              "merging what is involved, which may be slower; please report it with the model: "
              + why, file=stream or sys.stderr)
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


def load(path: str | Path, threads: int = 1, variant: str | None = None,
         simulate: bool | str = False, device: Any = None) -> "OpenModel":
    """Open a bundle built earlier; its library is built first if it is missing or out of date.

    path: the bundle's folder.  threads: workers of its pool, at least 1.  variant: name of the
    target whose kernels shall run, where a bundle has several; None = the widest possible.
    simulate: run a CUDA bundle on the CPU instead of a GPU, to check it; True, or the order in
    which threads take turns: "forward", "reverse", "random:SEED".  device: the GPU that a CUDA
    bundle runs on: its number, "cuda:1", or torch's or CuPy's object; None = the first one.
    Raises AotcError if the folder is no bundle or there is no GPU for it, ToolchainError if the
    compiler fails.
    """
    from aotc.runtime.loading import load as open_model
    return open_model(path, threads=threads, variant=variant, simulate=simulate,
                      device=device)
