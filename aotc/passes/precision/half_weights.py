"""Weights that stay f16 or bf16, Program -> Program: those of all products, or of such with so few
rows that reading them is what takes the time.  Columns are converted where they are multiplied."""

from dataclasses import replace
from math import prod

import numpy as np

from aotc.ir.category import factor_pairs
from aotc.ir.dtypes import BF16, holds, to_bf16
from aotc.ir.expr import Axis, Const, Load, loads, substitute
from aotc.ir.numbers.narrow import widen_half
from aotc.ir.program import Compute, Program, Step, update
from aotc.ir.simplify import upper

MOST_ROWS = 16  # of a product: with more, arithmetic decides
LEAST_BYTES = 1 << 20  # of weights in f32: fewer are in a core's cache after the first call


def keep_halves(program: Program, rows: int | None = MOST_ROWS) -> Program:
    """Program in which constants of f32 that the dtype ``program.halves`` of the model's weights
    holds exactly are of that, where a product of at most so many ``rows`` (None: any) is all that
    reads them."""
    half = program.halves
    buffers, consts = dict(program.buffers), dict(program.consts)
    steps: list[Step] = []
    for step in program.steps:
        load = _weights(program, step, rows) if isinstance(step, Compute) else None
        if isinstance(step, Compute) and load is not None:
            stored = Load(load.buffer, load.index, half)
            step = replace(step, body=substitute(step.body, {load: widen_half(stored)}))
            buffers[load.buffer] = replace(buffers[load.buffer], dtype=half)
            consts[load.buffer] = to_bf16(consts[load.buffer]) if half == BF16 else consts[
                load.buffer].astype(np.float16)
        steps.append(step)
    return update(program, steps=tuple(steps), buffers=buffers, consts=consts)


def _weights(program: Program, step: Compute, most: int | None) -> Load | None:
    """The Load of weights that ``step`` may read as f16; None if there is none."""
    for f in factor_pairs(step.axes, step.raxes, step.fold, step.body):
        load = f.b
        array = program.consts.get(load.buffer) if isinstance(load, Load) else None
        rows = [upper(a.extent) for a in f.m]
        if not isinstance(load, Load) or array is None or array.dtype != np.float32 or (
                most is not None and array.nbytes < LEAST_BYTES):
            continue
        plain = [i for i in load.index if isinstance(i, Axis)]
        known = [n for n in rows if n is not None]
        few = most is None or len(known) == len(rows) and prod(known) <= most
        if few and (len(set(plain)) == len(plain)) and all(
                isinstance(i, (Axis, Const)) for i in load.index) and (
                program.consumers[load.buffer] == (step,)) and len(
                [n for n in loads(step.body) if n.buffer == load.buffer]) == 1 and (
                holds(program.halves, array)):
            return load
    return None


__all__ = ["keep_halves"]
