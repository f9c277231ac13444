"""Inline what costs nothing: moves (one Load under new indices) and values that need no memory.

A reshape, transpose, slice or broadcast disappears into the index expressions of its consumers,
unless a sliding window would pay for it at every tap (``unfused_moves.py``). So do integer and
boolean expressions of axes and symbols only (position ids, causal masks), but for those that
compute in floats on the way (places of a resized image): a division for every reader costs more
than a load.

A fold of what a mask chooses (rows below a length from data) takes the mask and the choice, where
they then say where its loops begin and end.
"""

from collections.abc import Mapping
from dataclasses import replace

from aotc.ir.category import category
from aotc.ir.conditions import bounds_from_data, conjuncts, ends_from_data
from aotc.ir.dtypes import is_float
from aotc.ir.expr import Cast, Const, Expr, Load, Where, rewrite, substitute, walk
from aotc.ir.program import Compute, Program, Step, update
from aotc.ir.simplify import simplify
from aotc.passes.unfused_moves import stands_apart


def is_move(compute: Compute) -> bool:
    """One Load whose indices hold no other Load: data changes place, nothing is computed."""
    if compute.fold != "none" or len(compute.outs) != 1:
        return False
    body = compute.body
    return isinstance(body, Load) and len(compute.loads) == 1


def is_free(compute: Compute) -> bool:
    """No fold and no Load: an expression of axes and symbols; floats only if constant."""
    return compute.fold == "none" and not compute.loads and len(compute.outs) == 1 and not any(
        isinstance(n, Cast) and (is_float(n.dtype) or is_float(n.x.dtype))
        for n in walk(compute.body))


def is_widening(compute: Compute) -> bool:
    """A move that converts from f16: part of a load for lanes of floats, where that happens once
    per element or so."""
    return compute.fold == "none" and len(compute.outs) == 1 and isinstance(
        compute.body, Cast) and compute.body.dtype == "f32" and (
        compute.body.x.dtype == "f16" and is_move(replace(compute, body=compute.body.x)))


def _reads_once(step: Compute) -> bool:
    """True for what reads no element again and again, as products and sliding windows do."""
    return category(step.axes, step.raxes, step.fold, step.body) in ("map", "move", "reduction")


def inline_all(expr: Expr, producers: Mapping[str, Compute]) -> Expr:
    """Replace every Load of a buffer in ``producers`` ({buffer: the Compute that writes it}) in
    ``expr`` by that Compute's body at those indices.  One pass: bodies of ``producers`` read
    none of these buffers themselves."""
    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in producers:
            return None
        p = producers[node.buffer]
        return substitute(p.body, dict(zip(p.axes, node.index)))

    return rewrite(expr, visit)


def is_mask(compute: Compute) -> bool:
    """True for comparisons of an axis with numbers from data."""
    return compute.fold == "none" and len(compute.outs) == 1 and any(
        bounds_from_data(c, a) for c in conjuncts(compute.body) for a in compute.axes)


def is_choice(compute: Compute) -> bool:
    """True for elements of a tensor where a condition holds, a constant elsewhere."""
    body = compute.body
    return compute.fold == "none" and len(compute.outs) == 1 and isinstance(
        body, Where) and isinstance(body.a, Load) and isinstance(body.b, Const)


def inline_ends(step: Compute, masks: Mapping[str, Compute],
                chosen: Mapping[str, Compute]) -> Compute:
    """A fold with masks and choices inlined where its loops get ends from data by that; the same
    Compute where they do not, and for products, which look at everything."""
    if step.fold == "none" or masks.keys().isdisjoint(step.inputs) and chosen.keys().isdisjoint(
            step.inputs):
        return step
    body = simplify(inline_all(simplify(inline_all(step.body, chosen)), masks))
    bounded = ends_from_data(body, step.fold, step.raxes) and category(
        step.axes, step.raxes, step.fold, body) == "reduction"
    return replace(step, body=body) if bounded else step


def inline_moves(program: Program) -> Program:
    """Program with moves and free expressions inlined where that costs nothing, conversions from
    f16 where they happen once, and masks where they are ends of a fold's loops; outputs keep their
    Computes.  Bodies come out simplified."""
    ready: dict[str, Compute] = {}
    masks: dict[str, Compute] = {}
    chosen: dict[str, Compute] = {}
    widening: dict[str, Compute] = {}
    steps: list[Step] = []
    for step in program.steps:
        if not isinstance(step, Compute):
            steps.append(step)
            continue
        found = {b: ready[b] for b in step.inputs
                 if b in ready and not stands_apart(program, step, ready[b])}
        step = replace(step, body=simplify(inline_all(step.body, found)))
        if any(b in widening for b in step.inputs) and _reads_once(step):
            step = replace(step, body=simplify(inline_all(step.body, widening)))
        step = inline_ends(step, masks, chosen)
        steps.append(step)
        if is_mask(step):
            masks[step.out] = step
        elif is_choice(step) and not masks.keys().isdisjoint(step.inputs) and (
                step.out not in program.results and len(program.consumers[step.out]) == 1):
            chosen[step.out] = step  # others would make it all the same
        if step.out not in program.results and is_widening(step):
            widening[step.out] = step
        if step.out not in program.results and (is_move(step) or is_free(step)):
            ready[step.out] = step
    return update(program, steps=tuple(steps))
