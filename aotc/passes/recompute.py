"""Rewrite rule ``recompute``: some readers of a tensor compute it anew instead of loading it.

    ["recompute", "relu_1", {"readers": ["cat_3"]}]

The compute that makes ``relu_1`` gets a twin, ``relu_1_again``, that reads what it reads and that
the named readers use; everybody else keeps the original.  Both compute the same values, so a
tensor need not be kept from its first reader to its last, nor shared by two kernels.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aotc.ir.expr import Expr, Load, rewrite
from aotc.ir.program import Compute, Program, Step, update


def faults_of(program: Program, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """What speaks against the rule for the compute that writes ``name``."""
    where = f"rewrites: recompute {name}"
    c = program.producer.get(name)
    if not isinstance(c, Compute) or c.out != name:
        return [f"{where}: no compute of that name (the first tensor it writes)"]
    users = dict.fromkeys(s.outs[0] for o in c.outs for s in program.consumers.get(o, ())
                          if isinstance(s, Compute))
    readers = parameters.get("readers")
    if set(parameters) != {"readers"} or not isinstance(readers, (list, tuple)) or not readers:
        return [f"{where}: parameters are {{\"readers\": [computes]}}; choose from "
                + (", ".join(users) or "none: no compute reads it")]
    faults = [f"{where}: {r!r} does not read it; choose from {', '.join(users) or 'none'}"
              for r in readers if r not in users]
    kept = [s for o in c.outs for s in program.consumers.get(o, ()) if s.outs[0] not in readers]
    if not faults and not kept and not set(c.outs) & program.results:
        faults.append(f"{where}: these are all of its readers, nothing would use the original; "
                      "leave one out or remove the rewrite")
    return faults


def rewrite_readers(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with a twin of the compute that writes ``name`` for the named readers."""
    c = program.producer[name]
    assert isinstance(c, Compute), c
    names = twin_names(program, name)
    twin = replace(c, outs=tuple(names[o] for o in c.outs))

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer in names:
            return Load(names[node.buffer], node.index, node.dtype)
        return None

    steps: list[Step] = []
    for s in program.steps:
        if isinstance(s, Compute) and s.outs[0] in parameters["readers"]:
            s = replace(s, body=rewrite(s.body, visit))
        steps += [s, twin] if s is c else [s]
    buffers = {names[o]: replace(program.buffers[o], name=names[o], role="temp", onnx="")
               for o in c.outs}
    return update(program, steps=tuple(steps), buffers={**program.buffers, **buffers})


def twin_names(program: Program, name: str) -> dict[str, str]:
    """{tensor: its twin's name} of the compute that writes ``name``: the first free ones."""
    out = {}
    for o in program.producer[name].outs:
        twin, number = f"{o}_again", 1
        while twin in program.buffers:
            number += 1
            twin = f"{o}_again{number}"
        out[o] = twin
    return out


__all__ = ["faults_of", "rewrite_readers", "twin_names"]
