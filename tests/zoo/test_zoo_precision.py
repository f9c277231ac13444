"""What a precision costs an architecture's outputs is what rounding operands of products costs."""

import os

import numpy as np
import onnx
import pytest
import suite
from zoo_files import OTHERS, SMALL

from aotc.ir.schedule import PRECISION
from aotc.options import Options
from aotc.oracle.shares import share_of_range
from aotc.passes.precision.rounding_table import ROUNDING
from aotc.pipeline import run_pipeline
from aotc.samples import infer_syms, input_arrays, measuring_feeds, random_inputs
from aotc.sched.precision.levels import Level
from benchmarks.precision_errors import chosen, outputs

TARGET = "x86-64-v4-bf16"  # rows for every precision
MORE = 1.2
SETS = 3  # of inputs: the largest error of one is a matter of chance
# of models that the evaluator takes long for: what is decided for the whole image holds for a part
PARTS = {"unet": (1, 3, 64, 64), "resnet3d18": (1, 3, 8, 56, 56)}


def read(model):
    return run_pipeline(Options(model, target=TARGET, stop_after="inline"))


def part_of(path, shape):
    """The Program of a model for an input of another shape."""
    model = onnx.load(path)
    for dim, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = extent
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return read(model).program


def inputs(program):
    (given, *_), _ = measuring_feeds(program)
    syms = infer_syms(program, input_arrays(program, given), None)
    return [random_inputs(program, syms, seed) for seed in range(SETS)]


def worst(program, rewrites, exact):
    """(the largest difference, the root of the mean square) of the worst output, as shares of its
    range; the mean over inputs, of which ``exact`` has (feeds, outputs without rounding)."""
    return np.mean([np.max([(share_of_range(got[n], a),
                             np.sqrt(np.mean((got[n] - a) ** 2)) / np.ptp(a))
                            for n, a in want.items()], axis=0)
                    for feeds, want in exact for got in [outputs(program, rewrites, feeds)]],
                   axis=0)


@pytest.mark.zoo
@pytest.mark.parametrize(
    "name", suite.shard(SMALL + OTHERS, os.environ.get("AOTC_SHARD", "0/1")))
def test_no_precision_loses_more_than_rounded_operands_do(zoo_model, name):
    """Winograd forms lose nothing to speak of: the error is that of the same products rounded
    beside direct convolutions, and on the whole no more than with every convolution direct and
    rounded."""
    path = zoo_model(name)
    work = read(path)
    program = part_of(path, PARTS[name]) if name in PARTS else work.program
    exact = []
    for precision in PRECISION[1:]:
        rewrites, direct = (chosen(work, Level(precision), w) for w in ("auto", "off"))
        assert any(r[0] in ROUNDING for r in rewrites)
        if rewrites == direct:
            continue
        assert any(r[0] == "winograd" for r in rewrites)
        same = tuple(r for r in direct if r in rewrites)
        exact = exact or [(f, outputs(program, (), f)) for f in inputs(program)]
        largest, mean = worst(program, rewrites, exact)
        assert largest <= MORE * worst(program, same, exact)[0], precision
        assert mean <= MORE * worst(program, direct, exact)[1], precision
