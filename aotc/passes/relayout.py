"""Access rewriting: a Program whose buffers are stored in layouts (ALT, section 3.2).

For a compute Y = F(X) the loops over Y's points become loops over its stored places,
L' = S_Y(L), and every access X[g(L)] becomes X[S_X(g(S_Y^-1(L')))].  One pass over expressions
does it for any compute; no operator is written again.  The result is an ordinary Program in which
all buffers are row-major, so everything behind it works as it is:

    y[n, o, h, w]          = sum(i) x[n, i, h, w] * k[o, i]                x, y: N C/16 H W C%16
    y[n, o_0, h, w, o_1]   = sum(i_0, i_1) x[n, i_0, h, w, i_1] * k[o_0, o_1, i_0, i_1]

Places that hold no element hold zero (of a sum of products: zero times its other factor).  A
sliding window over an unfolded dimension reads the tile that belongs to its output; that is exact
only if stride = step * windows per tile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aotc.errors import ScheduleError
from aotc.ir.category import is_zero, zero_outside
from aotc.ir.conditions import conjuncts, same_condition
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Shape,
    Where,
    all_hold,
    axes_of,
    children,
    compare,
    substitute,
    with_children,
)
from aotc.ir.layout import Fuse, Layout, Pad, Primitive, Reorder, Split, Unfold
from aotc.ir.program import Compute, Program, free_name, make_const, update
from aotc.ir.read_boxes import interval
from aotc.ir.simplify import lower, simplify, split_linear, upper
from aotc.passes.digits import split_consts, split_reductions


@dataclass(frozen=True)
class LayoutAccess:
    """One access under a layout: ``index`` into the stored buffer; ``dropped``: guards that need
    not be asked, since outside of them the stored buffer holds zeros."""

    index: Shape
    dropped: tuple[Expr, ...]


def relayout(program: Program, layouts: Mapping[str, Layout]) -> Program:
    """``program`` with every buffer of ``layouts`` ({name: Layout}) stored that way: its shape is
    the layout's, its producer runs over stored places, its readers find their elements there.
    Inputs and outputs change shape too: the caller then gives and gets them in that layout.
    Constants are re-laid at once.  ScheduleError lists what cannot be, with the legal choices."""
    layouts = {b: lay for b, lay in layouts.items() if not lay.is_identity}
    faults = [f for b in layouts for f in _unfit(program, b, layouts)]
    if faults:
        raise ScheduleError(faults)
    if not layouts:
        return program
    buffers, consts = dict(program.buffers), dict(program.consts)
    for b, layout in layouts.items():
        buffers[b] = replace(buffers[b], shape=layout.shape(program.shape(b)))
        if b in consts:
            consts[b] = layout.apply(consts[b])
            buffers[b] = replace(make_const(b, consts[b]), onnx=buffers[b].onnx)
    touched = set(layouts)
    steps = tuple(_compute(program, s, layouts) if isinstance(s, Compute)
                  and touched & {*s.outs, *s.inputs} else s for s in program.steps)
    changed = {s.outs[0] for s, old in zip(steps, program.steps) if s is not old}
    program = update(program, steps=steps, buffers=buffers, consts=consts)
    return split_consts(program, changed)


def _unfit(program: Program, name: str, layouts: Mapping[str, Layout]) -> list[str]:
    """Faults of one buffer's layout."""
    if name not in program.buffers:
        return [f"layout: no buffer {name!r}"]
    layout = layouts[name]
    try:
        layout.shape(program.shape(name))
    except ScheduleError as err:
        return [f"layout of {name}: {f}" for f in err.faults]
    step = program.producer.get(name)
    users = [s for s in program.consumers.get(name, ()) if not isinstance(s, Compute)]
    if step is not None and not isinstance(step, Compute) or users:
        return [f"layout of {name}: a library call or a region works on it, so it stays row-major; "
                "lay out a copy of it"]
    if step is None:
        return []
    others = [o for o in step.outs if layouts.get(o) != layout]
    faults = [f"layout of {name}: {', '.join(others)} is computed in the same loops and must have "
              "the same layout"] if others else []
    filled = any(isinstance(p, (Pad, Unfold)) for p in layout.primitives)
    if filled and step.fold not in ("none", "sum"):
        faults.append(f"layout of {name}: its places without an element would hold the empty value "
                      "of its fold instead of zero; choose split, reorder and fuse, or lay out a "
                      "copy of it")
    return faults


# ---------------------------------------------------------------- one compute

def _compute(program: Program, c: Compute, layouts: Mapping[str, Layout]) -> Compute:
    """The compute with its accesses rewritten and, if its output is laid out, its loops."""
    body = _accesses(program, c, layouts)
    axes = c.axes
    layout = layouts.get(c.out)
    if layout is not None:
        shape = program.shape(c.out)
        axes = stored_axes(c, layout, shape)
        places = dict(zip(c.axes, layout.inverse_index(axes, shape)))
        body = _guarded(substitute(body, places), layout.inside(axes, shape), c)
    return split_reductions(replace(c, axes=axes, body=simplify(body)))


def stored_axes(c: Compute, layout: Layout, shape: Shape) -> tuple[Axis, ...]:
    """One Axis per stored dimension, named after the logical ones: oc -> oc_0, oc_1."""
    names = [a.name for a in c.axes]
    for p in layout.primitives:
        names = _names(p, names)
    taken = {r.name for r in c.raxes}
    out: list[Axis] = []
    for name, extent in zip(names, layout.shape(shape)):
        name = free_name(taken, name)
        taken.add(name)
        out.append(Axis(name, extent))
    return tuple(out)


def _names(p: Primitive, names: list[str]) -> list[str]:
    """Axis names after one primitive."""
    if isinstance(p, Reorder):
        return [names[d] for d in p.perm]
    before, name, after = names[:p.dim], names[p.dim], names[p.dim + 1:]
    if isinstance(p, Split) and len(p.factors) > 1:
        return before + [f"{name}_{k}" for k in range(len(p.factors))] + after
    if isinstance(p, Unfold):
        return before + [f"{name}_tile", f"{name}_in"] + after
    if isinstance(p, Fuse) and p.count > 1:
        end = p.dim + p.count
        return before + ["_".join(names[p.dim:end])] + names[end:]
    return names


def _guarded(body: Expr, inside: Expr | None, c: Compute) -> Expr:
    """The body where a place holds an element, else what makes the result zero.  A sum of products
    keeps its form if each condition belongs to whole factors: those become zero."""
    if inside is None:
        return body
    if c.fold == "sum" and isinstance(body, Binary) and body.op == "mul" and all(
            isinstance(f, Load) for f in (body.a, body.b)):
        conds = conjuncts(inside)
        parts = [[k for k in conds if axes_of(k) <= axes_of(f)] for f in (body.a, body.b)]
        torn = any(axes_of(k) & axes_of(f) for k in conds
                   for f, own in zip((body.a, body.b), parts) if k not in own)
        if not torn and all(k in parts[0] + parts[1] for k in conds):
            return Binary("mul", *(zero_outside(f, all_hold(own))
                                   for f, own in zip((body.a, body.b), parts)))
    return zero_outside(body, inside)


# ---------------------------------------------------------------- accesses

def _accesses(program: Program, c: Compute, layouts: Mapping[str, Layout]) -> Expr:
    """The body with every Load of a laid-out buffer at its stored place."""
    memo: dict[Expr, Expr] = {}

    def place(load: Load) -> tuple[Load, Shape]:
        index = tuple(down(i) for i in load.index)
        if load.buffer not in layouts:
            return Load(load.buffer, index, load.dtype), ()
        at = access(layouts[load.buffer], index, program.shape(load.buffer), c, load.buffer)
        step = program.producer.get(load.buffer)
        # a product may have made NaN of 0 * inf
        zeros = not isinstance(step, Compute) or step.fold == "none"
        return Load(load.buffer, at.index, load.dtype), at.dropped if zeros else ()

    def guarded(node: Where, load: Load) -> Expr:
        found, dropped = place(load)
        left = [down(k) for k in conjuncts(node.cond)
                if not any(same_condition(k, d) for d in dropped)]
        cond = all_hold(left)
        return found if cond is None else Where(cond, found, node.b)

    def down(node: Expr) -> Expr:  # parents first: a guard belongs to the access as it was
        if node not in memo:
            if isinstance(node, Where) and is_zero(node.b) and isinstance(node.a, Load):
                memo[node] = guarded(node, node.a)
            elif isinstance(node, Load):
                memo[node] = place(node)[0]
            else:
                memo[node] = with_children(node, [down(k) for k in children(node)])
        return memo[node]

    return down(c.body)


def access(layout: Layout, index: Shape, shape: Shape, c: Compute, name: str) -> LayoutAccess:
    """The Access of a Load of buffer ``name`` (logical ``index`` and ``shape``) in the compute
    ``c``.  ScheduleError if it slides over an unfolded dimension whose tiles do not fit."""
    dropped, room = [], dict.fromkeys(range(len(shape)), (0, 0))
    for p in layout.primitives:
        if not isinstance(p, Pad):
            break
        before, after = room[p.dim]
        room[p.dim] = (before + p.before, after + p.after)
    for d, (before, after) in room.items():
        lo, hi = interval(index[d], {}) if before or after else (None, None)
        least = lower(simplify(lo)) if lo is not None else None
        if least is not None and least + before >= 0:
            dropped.append(compare("ge", index[d], Const(0)))
        over = upper(simplify(hi - shape[d] + 1)) if hi is not None else None
        if over is not None and over <= after:
            dropped.append(compare("lt", index[d], shape[d]))
    at = list(index)
    for p, extents in layout.steps(shape):
        tile = match_sliding(p, at, c, name) if isinstance(p, Unfold) else None
        at = p.index(at, extents) if tile is None or isinstance(p, Reorder) else (
            at[:p.dim] + list(tile) + at[p.dim + 1:])
    return LayoutAccess(tuple(simplify(i) for i in at), tuple(simplify(d) for d in dropped))


def match_sliding(unfold: Unfold, index: Sequence[Expr], c: Compute,
                  name: str) -> tuple[Expr, Expr] | None:
    """(tile, offset) of a sliding access ``step*i + r`` (i: a loop, r: reduction axes) along the
    unfolded dimension; None if it is none and any tile that holds the element will do."""
    at = simplify(index[unfold.dim])
    own, reduced = axes_of(at) & set(c.axes), axes_of(at) & set(c.raxes)
    if len(own) != 1 or not reduced:
        return None
    axis = next(iter(own))
    parts = split_linear(at, axis)
    if parts is None or not isinstance(parts[0], Const) or parts[0].value < 1:
        return None
    step, r = parts[0].value, parts[1]
    lo, hi = (simplify(e) for e in interval(r, {}))
    if not isinstance(lo, Const) or not isinstance(hi, Const):
        return None
    if lo.value < 0:
        raise ScheduleError(f"layout of {name}: {c.out} reads up to {-lo.value} before dimension "
                            f"{unfold.dim}; Pad(dim={unfold.dim}, before={-lo.value}, ...) first")
    try:
        return unfold.window(axis, r, hi.value + 1, step)
    except ScheduleError as err:
        raise ScheduleError([f"layout of {name}, read by {c.out}: {f}"
                             for f in err.faults]) from None


__all__ = ["LayoutAccess", "access", "relayout", "match_sliding", "stored_axes"]
