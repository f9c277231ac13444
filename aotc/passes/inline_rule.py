"""Rewrite rule ``inline``: who reads a map computes its elements itself, and the map is no more.

    ["inline", "mask", {}]

A kernel less is started and nothing is stored, for operations that each reader repeats.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aotc.ir.expr import Guarded, walk
from aotc.ir.program import Compute, Program, Step, update
from aotc.ir.simplify import simplify
from aotc.passes.compute_rule import ComputeRule
from aotc.passes.inline import inline_all

RULE = "inline"


def match_inlined(program: Program, c: Compute) -> tuple[Compute, ...] | None:
    """Those that read a map which none but computes read and which breaks no rule of data, which
    each reader would tell of; None for others."""
    readers = program.consumers.get(c.out, ())
    alone = c.fold == "none" and c.out not in program.results and not any(
        isinstance(n, Guarded) for n in walk(c.body))
    found = tuple(s for s in readers if isinstance(s, Compute))
    return found if alone and readers and len(found) == len(readers) else None


FITS = ComputeRule(RULE, match_inlined, "map that computes alone read", {})
faults_of = FITS.faults_of


def rewrite(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the rule applied to the compute that writes ``name``.  ScheduleError if it
    does not match."""
    c, readers = FITS.matched(program, name, parameters)
    reading = {s.outs[0] for s in readers}
    steps: list[Step] = [
        replace(s, body=simplify(inline_all(s.body, {name: c})))
        if isinstance(s, Compute) and s.outs[0] in reading else s
        for s in program.steps if s is not c]
    buffers = {b: x for b, x in program.buffers.items() if b != name}
    return update(program, steps=tuple(steps), buffers=buffers)


__all__ = ["RULE", "faults_of", "match_inlined", "rewrite"]
