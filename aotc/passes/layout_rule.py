"""Rewrite rule ``layout``: a buffer is stored in a layout, or its readers get a copy that is.

    ("layout", "relu_1", {"primitives": (("split", 1, (4, 16)), ("reorder", (0, 1, 3, 4, 2)))})

A temp or a constant changes its form where it is.  The caller's memory stays row-major: an input
is copied for its readers, and an output is copied from a temp that has the layout.  With
``"copy": 1`` a temp keeps its form, too, and its readers get the copy: for layouts that repeat
elements, which its own producer would compute again.  The copies are ordinary computes: what is
elementwise around them can take them in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Expr, Load, rewrite
from aotc.ir.layout import Layout
from aotc.ir.program import Buffer, Compute, Program, Rewrite, Step, free_name, update
from aotc.passes.relayout import relayout

RULE = "layout"


def layout_rewrite(name: str, layout: Layout,
                   copy: bool = False) -> tuple[str, str, dict[str, Any]]:
    """The rewrite that stores buffer ``name`` in ``layout``, as a Schedule holds it."""
    parameters: dict[str, Any] = {"primitives": layout.to_json()} | ({"copy": 1} if copy else {})
    return RULE, name, parameters


def list_laid_out(rewrites: Iterable[Rewrite]) -> frozenset[str]:
    """Names of the buffers whose storage the rewrites of this rule have settled."""
    out: list[str] = []
    for rule, name, parameters in rewrites:
        if rule == RULE:
            own = () if dict(parameters).get("copy") else (name,)
            out += [*own, f"{name}_stored"]
    return frozenset(out)


def faults_of(program: Program, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """What speaks against the rule for buffer ``name``."""
    if not set(parameters) <= {"primitives", "copy"} or "primitives" not in parameters:
        return [f"rewrites: layout {name}: parameters are primitives and copy, got "
                + (", ".join(sorted(map(str, parameters))) or "none")]
    if name not in program.buffers:
        return [f"rewrites: layout {name}: no such buffer; choose from "
                + ", ".join(sorted(program.buffers)[:12])]
    if parameters.get("copy", 0) not in (0, 1):
        return [f"rewrites: layout {name}: copy is 0 or 1, got {parameters['copy']!r}"]
    try:
        rewrite_layout(program, name, parameters)
    except ScheduleError as err:
        return [f"rewrites: {f}" for f in err.faults]
    return []


def rewrite_layout(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with ``name`` stored as ``parameters`` say.  ScheduleError if it cannot be."""
    layout = Layout.from_json(parameters["primitives"])
    role = program.buffers[name].role
    if layout.is_identity:
        return program
    if role == "input" or role == "temp" and parameters.get("copy"):
        return _copied_in(program, name, layout)
    if role == "output":
        return _copied_out(program, name, layout)
    return relayout(program, {name: layout})


def _new_name(program: Program, name: str) -> str:
    return free_name(program.buffers, f"{name}_stored")


def _reading(step: Compute, old: str, new: str) -> Compute:
    """A compute with its Loads of ``old`` reading ``new``."""
    def visit(n: Expr) -> Expr | None:
        return replace(n, buffer=new) if isinstance(n, Load) and n.buffer == old else None

    return replace(step, body=rewrite(step.body, visit))


def _copied_in(program: Program, name: str, layout: Layout) -> Program:
    """Readers get the copy ``NAME_stored``; library calls go on reading the buffer itself."""
    new, old = _new_name(program, name), program.buffers[name]
    axes = tuple(Axis(f"i{d}", e) for d, e in enumerate(old.shape))
    origin = tuple(dict.fromkeys(o for s in program.consumers.get(name, ()) for o in s.origin))[:1]
    copy = Compute((new,), axes, (), "none", Load(name, axes, old.dtype), origin=origin)
    steps: list[Step] = []
    placed = name in program.inputs
    if placed:
        steps.append(copy)
    for s in program.steps:
        steps.append(_reading(s, name, new) if isinstance(s, Compute) and name in s.inputs else s)
        if not placed and name in s.outs:
            steps.append(copy)
            placed = True
    buffers = {**program.buffers, new: Buffer(new, old.shape, old.dtype)}
    return relayout(update(program, steps=tuple(steps), buffers=buffers), {new: layout})


def _copied_out(program: Program, name: str, layout: Layout) -> Program:
    """The output is computed into the temp ``NAME_stored`` and copied from it at the end."""
    new, old = _new_name(program, name), program.buffers[name]
    axes = tuple(Axis(f"i{d}", e) for d, e in enumerate(old.shape))
    steps: list[Step] = []
    for s in program.steps:
        if isinstance(s, Compute) and name in s.inputs:
            s = _reading(s, name, new)
        if name in s.outs:
            if not isinstance(s, Compute):
                raise ScheduleError(f"layout of {name}: a library call writes it, so it stays "
                                    "row-major")
            s = replace(s, outs=tuple(new if o == name else o for o in s.outs))
            steps += [s, Compute((name,), axes, (), "none", Load(new, axes, old.dtype),
                                 origin=s.origin)]
        else:
            steps.append(s)
    if not any(name in s.outs for s in steps):
        raise ScheduleError(f"layout of {name}: it is an input or a constant handed out, so it "
                            "stays row-major")
    buffers = {**program.buffers, new: Buffer(new, old.shape, old.dtype)}
    return relayout(update(program, steps=tuple(steps), buffers=buffers), {new: layout})


__all__ = ["RULE", "faults_of", "list_laid_out", "layout_rewrite", "rewrite_layout"]
