"""Rewrite rule ``store``: a tensor that the model declares f16, or bf16, is stored so.

    ["store", "relu_1", {"dtype": "f16", "copies": [["conv_2_sum"], ["conv_3_sum", "conv_4_sum"]]}]

    x[i] = f(..)    becomes    x[i] = f16(f(..))

The result of a fold stays f32, and a map behind it rounds it.  Who reads the tensor computes in f32
as before and converts what it loads.  Readers that are named together in ``copies`` share a copy of
it in f32 instead, for their kernel to make of what it needs: a product converts no element twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aotc.ir.dtypes import HALF, HALVES
from aotc.ir.expr import Cast, Expr, Load
from aotc.ir.expr import rewrite as rewrite_expr
from aotc.ir.numbers.narrow import stored_half, widen_half
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, update
from aotc.passes.compute_rule import ComputeRule

RULE = "store"
WIDE = "f32"  # what is computed in


def match_declared(program: Program, c: Compute) -> str | None:
    """The dtype that the model declares of what a compute makes, where it is computed in f32, is no
    result, and computes alone read it; None for others."""
    made, readers = program.buffers[c.out], program.consumers.get(c.out, ())
    narrowed = made.dtype == WIDE and made.declared in HALVES and isinstance(c.fold, str)
    return made.declared if narrowed and readers and c.out not in program.results and all(
        isinstance(s, Compute) for s in readers) else None


FITS = ComputeRule(RULE, match_declared,
                   "tensor between computes that the model declares f16 or bf16",
                   {"dtype": HALVES})
candidates = FITS.candidates


def store_rewrite(name: str, copies: Sequence[Sequence[str]],
                  dtype: str = HALF) -> tuple[str, str, dict[str, Any]]:
    """The rewrite that stores tensor ``name`` as a dtype, as a Schedule holds it."""
    return RULE, name, {"dtype": dtype, "copies": tuple(map(tuple, copies))}


def faults_of(program: Program, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """What speaks against the rule for the compute that writes ``name``."""
    where, copies = f"rewrites: {RULE} {name}", parameters.get("copies")
    if not isinstance(copies, (list, tuple)) or not all(
            isinstance(own, (list, tuple)) and own for own in copies):
        return [f"{where}: copies is a list of lists of the computes that share one, got "
                f"{copies!r}"]
    faults = FITS.faults_of(program, name, {k: v for k, v in parameters.items() if k != "copies"})
    if faults:
        return faults
    declared = program.buffers[name].declared
    if parameters["dtype"] != declared:
        return [f"{where}: dtype {parameters['dtype']!r}; the model declares it {declared}"]
    readers, named = [s.outs[0] for s in program.consumers[name]], sum(map(list, copies), [])
    return [f"{where}: {r!r} does not read it, or has two copies; choose from {', '.join(readers)}"
            for r in dict.fromkeys(named) if r not in readers or named.count(r) > 1]


def rewrite(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the rule applied to the compute that writes ``name``.  ScheduleError if it
    does not match."""
    c, dtype = FITS.matched(program, name, parameters)
    old, buffers = program.buffers[name], dict(program.buffers)
    buffers[name] = replace(old, declared="")
    half = name if c.fold == "none" else free_name(buffers, f"{name}_{dtype}")
    buffers[half] = replace(buffers.get(half, Buffer(half, old.shape, dtype)), dtype=dtype)
    made = (replace(c, body=_narrowed(c.body, dtype)),) if half == name else (
        c, replace(c, outs=(half,), raxes=(), fold="none", acc="",
                   body=Cast(dtype, Load(name, c.axes, WIDE))))
    copy_of: dict[str, str] = {}
    for own in parameters["copies"]:
        copy = free_name(buffers, f"{name}_{WIDE}")
        buffers[copy] = Buffer(copy, old.shape, WIDE)
        copy_of |= dict.fromkeys(own, copy)
    steps: list[Step] = []
    for s in program.steps:
        if s is c:
            steps += made
        elif isinstance(s, Compute) and name in s.inputs:
            copy = copy_of.get(s.outs[0], "")
            if copy and not any(copy in x.outs for x in steps):
                steps.append(Compute((copy,), c.axes, (), "none", widen_half(
                    Load(half, c.axes, dtype)), origin=s.origin))
            steps.append(replace(s, body=_reading(
                s.body, name, Load(half, (), dtype), copy)))
        else:
            steps.append(s)
    return update(program, steps=tuple(steps), buffers=buffers)


def _narrowed(e: Expr, dtype: str) -> Expr:
    """``e`` as a dtype; what it was converted from, where that is of it."""
    same = stored_half(e)
    return same if same is not None and same.dtype == dtype else Cast(dtype, e)


def _reading(body: Expr, name: str, half: Load, copy: str) -> Expr:
    """A body that reads the buffer and dtype of ``half`` for ``name``, or its ``copy``, if there is
    one."""
    def visit(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == name:
            return Load(copy, e.index, WIDE) if copy else widen_half(replace(
                half, index=e.index))
        same = stored_half(e.x) if isinstance(e, Cast) and e.dtype == half.dtype else None
        return same if isinstance(same, Load) and same.buffer == half.buffer else None

    return rewrite_expr(body, visit)


__all__ = ["RULE", "candidates", "faults_of", "match_declared", "rewrite", "store_rewrite"]
