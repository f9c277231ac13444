"""Rewrite rule ``halve``: the constant columns of a product are stored as f16, its sums stay f32.

    ["halve", "matmul_sum", {"stored": "f16"}]

    c[m, n] = sum(k) x[m, k] * w[k, n]

becomes, with the weights rounded while compiling,

    c[m, n] = sum(k) x[m, k] * f32(w_f16[k, n])

Rows stay f32: a product converts its columns as it multiplies.  With "stored": "f32" the constant
holds the rounded numbers as f32, for a target whose products read no f16.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aotc.ir.category import dot_dtypes, factor_pairs
from aotc.ir.dtypes import HALF, exceeds_half
from aotc.ir.expr import Axis, Cast, Const, Load, loads, substitute
from aotc.ir.program import Compute, Program, update, with_constant
from aotc.passes.compute_rule import ComputeRule

RULE = "halve"
STORED = (HALF, "f32")


def match_columns(program: Program, c: Compute) -> Load | None:
    """The Load of the constant columns of a product of f32 that f16 can hold, or None."""
    if dot_dtypes(c.body) is not None or c.body.dtype != "f32":
        return None
    for f in factor_pairs(c.axes, c.raxes, c.fold, c.body):
        load = f.b
        array = program.consts.get(load.buffer) if isinstance(load, Load) else None
        if not isinstance(load, Load) or array is None or load.dtype != "f32":
            continue
        plain = [i for i in load.index if isinstance(i, Axis)]
        once = len([n for n in loads(c.body) if n.buffer == load.buffer]) == 1
        if once and len(set(plain)) == len(plain) and all(
                isinstance(i, (Axis, Const)) for i in load.index) and not exceeds_half(array):
            return load
    return None


FITS = ComputeRule(RULE, match_columns,
                   "product with constant columns that f16 can hold",
                   {"stored": STORED})
candidates, faults_of = FITS.candidates, FITS.faults_of


def rewrite(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the rule applied to the compute that writes ``name``.  ScheduleError if it
    does not match."""
    c, load = FITS.matched(program, name, parameters)
    stored = parameters["stored"]
    with np.errstate(all="ignore"):
        array = program.consts[load.buffer].astype(np.float16)
    if stored != HALF:
        array = array.astype(np.float32)
    program, name = with_constant(program, f"{load.buffer}_{HALF}", array)
    at = Load(name, load.index, stored)
    body = substitute(c.body, {load: at if stored == "f32" else Cast("f32", at)})
    return update(program, steps=tuple(replace(c, body=body) if s is c else s
                                       for s in program.steps))


__all__ = ["RULE", "candidates", "faults_of", "match_columns", "rewrite"]
