"""Inline what costs nothing: moves (one Load under new indices) and values that need no memory.

A reshape, transpose, slice or broadcast disappears into the index expressions of its consumers.
So do integer and boolean expressions of axes and symbols only (position ids, causal masks).
"""

from dataclasses import replace

from aotc.ir.expr import Cast, Load, rewrite, substitute, walk
from aotc.ir.program import Compute, update
from aotc.ir.simplify import simplify


def is_move(compute):
    """One Load whose indices hold no other Load: data changes place, nothing is computed."""
    if compute.fold != "none" or len(compute.outs) != 1:
        return False
    body = compute.body
    return isinstance(body, Load) and len(compute.loads) == 1


def is_free(compute):
    """No fold and no Load: an expression of axes and symbols; floats only if constant."""
    return compute.fold == "none" and not compute.loads and len(compute.outs) == 1 and (
        compute.body.dtype[0] != "f" or not any(isinstance(n, Cast) for n in walk(compute.body)))


def inline_compute(expr, producer):
    """Replace every Load of ``producer``'s output in ``expr`` by its body at those indices."""
    name = producer.out

    def visit(node):
        if isinstance(node, Load) and node.buffer == name:
            return substitute(producer.body, dict(zip(producer.axes, node.index)))
        return None

    return rewrite(expr, visit)


def inline_moves(program):
    """Program with moves and free expressions inlined everywhere; outputs keep their Computes.
    Bodies come out simplified."""
    ready, steps = {}, []
    for step in program.steps:
        if not isinstance(step, Compute):
            steps.append(step)
            continue
        body = step.body
        while True:
            hit = next((b for b in dict.fromkeys(n.buffer for n in walk(body)
                                                 if isinstance(n, Load)) if b in ready), None)
            if hit is None:
                break
            body = inline_compute(body, ready[hit])
        step = replace(step, body=simplify(body))
        steps.append(step)
        if step.out not in program.outputs and (is_move(step) or is_free(step)):
            ready[step.out] = step
    return update(program, steps=tuple(steps))
