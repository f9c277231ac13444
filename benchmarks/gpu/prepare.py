"""Bundles of many models, compiled and built by processes of their own meanwhile."""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import onnx
from onnx import helper

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.sched.cost.predict import group_seconds


@dataclass(frozen=True)
class Prepared:
    """A model in ``path`` whose bundle is in ``folder``; ``fault``: "", or why there is none.
    seconds: of compiling and of building; predicted: of each kernel, by the cost, () where extents
    are free; ``kernels``: how many are launched; inputs: (name, numpy's dtype, shape) of each,
    free extents by name."""

    path: Path
    folder: Path
    fault: str = ""
    seconds: tuple[float, float] = (0.0, 0.0)
    predicted: tuple[float, ...] = ()
    kernels: int = 0
    inputs: tuple[tuple[str, str, tuple[int | str, ...]], ...] = ()


def prepare(make, path, target, machine, options, simulate):
    """The Prepared of the model that ``make()`` returns."""
    folder, clock = path.with_suffix(".bundle"), time.perf_counter
    start = clock()
    try:
        model = make()
        onnx.save(model, path)
        given = partial(Options, path, folder, target, path.stem, machine=machine, **options)
        decided = run_pipeline(given(stop_after="schedule"))
        work = run_pipeline(given(schedule=decided.schedule))
        middle = clock()
        build(folder, jobs=2, simulate=simulate)
        predicted = () if decided.program.syms else tuple(group_seconds(
            decided.program, decided.schedule, decided.target, {}).values())
        return Prepared(path, folder, "", (middle - start, clock() - middle), predicted,
                        len(work.plan.kernels), tuple(map(_described, model.graph.input)))
    except Exception as err:  # refusals and faults alike are what the record says of a case
        return Prepared(path, folder, f"{type(err).__name__}: {err}".splitlines()[0])


def _described(value):
    tensor = value.type.tensor_type
    return (value.name, str(helper.tensor_dtype_to_np_dtype(tensor.elem_type)),
            tuple(d.dim_param or d.dim_value for d in tensor.shape.dim))


class Pool:
    """Prepares models in the order in which ``ask`` names them; ``get`` waits for one."""

    def __init__(self, folder, target, machine, simulate, jobs=None):
        self.folder, self.given = Path(folder), (target, machine)
        self.simulate, self.asked = simulate, {}
        self.pool = ProcessPoolExecutor(jobs or os.cpu_count(), get_context("spawn"))

    def ask(self, stem, make, options):
        """make: a function of a module, or a method of a value, that another process can call."""
        self.asked[stem] = self.pool.submit(
            prepare, make, self.folder / f"{stem}.onnx", *self.given, options, self.simulate)

    def get(self, stem, seconds):
        """The Prepared of a name that was asked for; TimeoutError after so many seconds."""
        return self.asked[stem].result(max(seconds, 0.1))

    def close(self):
        """What has not begun is left undone."""
        self.pool.shutdown(wait=True, cancel_futures=True)


__all__ = ["Pool", "Prepared", "prepare"]
