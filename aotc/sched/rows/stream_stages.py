"""Groups that go along a sum in blocks and carry what they have so far: attention stores no scores.

    x[m, j]  = f(sum over d of q[m, d] * k[d, j])        the scores of a row, of j along a stream
    y[m, n]  = sum over j of w(exp(x[m, j] - max over j of x[m, j])) * v[j, n]
    w(e)     = e, or times or over what a sum over j of the same exp makes of the row

A block of columns j of x is there at a time.  The greatest x so far, the sum and y are carried:
where a block has a greater one, exp of the difference corrects what was summed before (online
softmax: Milakov, Gimelshein 2018; FlashAttention: Dao et al. 2022).  Nothing but that algebra is
looked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aotc.ir.category import Factors, factor_pairs, is_zero
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    Where,
    axes_of,
    loads,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.numbers.narrow import is_tf32, stored_half
from aotc.ir.program import Program
from aotc.ir.schedule import STREAM, Group
from aotc.ir.simplify import are_equal, simplify
from aotc.sched.model.stages import Output, Stage, group_stages

SCORE, TOTAL = Var("score", "f32"), Var("total", "f32")


@dataclass(frozen=True)
class Streamed:
    """The stages of a group that streams, all on the axes of ``values``, whose sum runs along
    ``key``.

    scores: the product that makes ``SCORE``, which stores nothing; ``element``: x, of it;
    values: the last product, whose outputs are over the sums of exp times v, and over ``TOTAL``,
    the sums of exp; sorted: its factors, and those of the scores."""

    scores: Stage
    element: Expr
    values: Stage
    key: Axis
    scored: Factors
    valued: Factors
    names: tuple[str, ...]  # of all stages of the group


def is_stream(group: Group) -> bool:
    """True for a group that says it streams."""
    return STREAM in group.connect.values()


def find_stream(program: Program, group: Group) -> Streamed | None:
    """The stages of a group as a stream has them; None if it is none.  ScheduleError where they
    cannot be formed."""
    known: dict[tuple[object, ...], Streamed | None] = program.known("streams")
    key = group.computes, group.outputs, tuple(group.connect.items()), group.anchor
    if key not in known:
        known[key] = _matched(group, group_stages(program, group))
    return known[key]


def _matched(group: Group, stages: tuple[Stage, ...]) -> Streamed | None:
    made = {o.buffer: s for s in stages for o in s.outputs}
    values = next((s for s in stages if group.anchor in s.computes), None)
    if values is None or len(stages) not in (3, 4) or values.fold != "sum" or len(
            values.raxes) != 1 or any(v.dtype != "f32" for s in stages for v in s.acc):
        return None
    for valued in factor_pairs(values.axes, values.raxes, values.fold, values.body):
        found = _along(values, valued, made)
        if found is not None:
            return replace(found, names=tuple(s.name for s in stages))
    return None


def _along(values: Stage, valued: Factors, made: Mapping[str, Stage]) -> Streamed | None:
    """The stream that ends in one orientation of a product."""
    key, = values.raxes
    weights = _unrounded(valued.a)
    powers = dict.fromkeys(n for n in walk(weights) if isinstance(n, Unary) and n.op == "exp" and (
        key in axes_of(n)))
    if len(powers) != 1 or any(n.buffer in made for n in loads(valued.b)):
        return None
    power, = powers
    x, greatest = _difference(power)
    if x is None or greatest is None or greatest.buffer not in made or not _folds(
            made[greatest.buffer], "max", greatest, x, values):
        return None
    acc, = values.acc
    kept = _with_total(_with(weights, {power: acc}), acc, power, made, values)
    scored = [n for n in loads(x) if n.buffer in made]
    if kept is None or len(set(scored)) != 1:
        return None
    scores = _scores(made[scored[0].buffer], scored[0], values, valued)
    if scores is None:
        return None
    stage, value, factors = scores
    outputs = tuple(Output(o.buffer, o.index, simplify(substitute(o.value, {acc: kept})))
                    for o in values.outputs)
    return Streamed(stage, simplify(_with(x, {scored[0]: value})), replace(
        values, outputs=outputs), key, factors, valued, ())


def _with(e: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """An expression with others in place of parts of it."""
    return rewrite(e, lambda n: new.get(n)) if new else e


def _unrounded(e: Expr) -> Expr:
    """What an expression that is rounded to halves, or to tf32, was."""
    half = stored_half(e)
    while half is not None and isinstance(half, Cast) and half.x.dtype == "f32":
        e, half = half.x, stored_half(half.x)
    return e.a if isinstance(e, Where) and is_tf32(e) else e


def _difference(power: Unary) -> tuple[Expr | None, Load | None]:
    """(x, the Load of the greatest one) of exp(x - greatest)."""
    e = power.x
    if isinstance(e, Binary) and e.op == "sub" and isinstance(e.b, Load) and e.dtype == "f32":
        return e.a, e.b
    return None, None


def _folds(stage: Stage, fold: str, at: Load, x: Expr, values: Stage) -> bool:
    """True if a stage folds ``x`` along the stream, for the row of which ``at`` is the Load."""
    if stage.fold != fold or len(stage.raxes) != 1 or len(stage.outputs) != 1 or (
            stage.outputs[0].value != stage.acc[0]):
        return False
    own = _renamed(stage.outputs[0].index, at.index)
    if own is None:
        return False
    own[stage.raxes[0]] = values.raxes[0]
    return are_equal(stage.raxes[0].extent, values.raxes[0].extent) and simplify(
        substitute(stage.body, own)) == simplify(x)


def _renamed(own: tuple[Expr, ...], at: tuple[Expr, ...]) -> dict[Expr, Expr] | None:
    """{axis of a stage: what a reader reads there}; None where an index is no axis."""
    out: dict[Expr, Expr] = {}
    for i, j in zip(own, at, strict=True):
        if isinstance(i, Axis) and isinstance(j, (Axis, Const)):
            out[i] = j
        elif not is_zero(i):
            return None
    return out


def _with_total(weights: Expr, acc: Var, power: Expr, made: Mapping[str, Stage],
                values: Stage) -> Expr | None:
    """What becomes of a row's sums ``acc`` of exp times v, with ``TOTAL`` for its sum of exp: the
    weights, if they are linear in exp and what else they are is the row's."""
    key, = values.raxes
    rows = dict.fromkeys(n for n in loads(weights) if n.buffer in made)
    for n in rows:
        if not _folds(made[n.buffer], "sum", n, power, values):
            return None
    out = _with(weights, dict.fromkeys(rows, TOTAL))
    inner: Expr = out
    while isinstance(inner, Binary) and inner.op in ("mul", "div"):
        other = inner.b if acc in set(walk(inner.a)) else inner.a
        if acc in set(walk(other)) or inner.op == "div" and other is inner.a or key in axes_of(
                other):
            return None
        inner = inner.a if other is inner.b else inner.b
    return out if inner == acc else None


def _scores(stage: Stage, at: Load, values: Stage,
            valued: Factors) -> tuple[Stage, Expr, Factors] | None:
    """(The product that makes scores, on the axes of ``values``; what a Load of one is of
    ``SCORE``; its factors)."""
    key, = values.raxes
    if stage.fold != "sum" or len(stage.outputs) != 1 or len(stage.raxes) != 1:
        return None
    own = _renamed(stage.outputs[0].index, at.index)
    if own is None or key not in own.values():
        return None
    depth, = stage.raxes
    taken = {a.name for a in (*values.axes, key)}
    name = depth.name
    while name in taken:
        name += "d"
    own[depth] = terms = Axis(name, depth.extent)
    own |= {a: Const(0) for a in stage.axes if a not in own}

    def here(e: Expr) -> Expr:
        return simplify(substitute(e, own))
    axes = tuple(a for a in map(here, stage.axes) if isinstance(a, Axis))
    value = here(substitute(stage.outputs[0].value, {stage.acc[0]: SCORE}))
    moved = replace(stage, axes=axes, raxes=(terms,), body=here(stage.body), acc=(SCORE,),
                    outputs=())
    for f in factor_pairs(moved.axes, moved.raxes, "sum", moved.body):
        if f.n == (key,) and _long(f.m) == _long(valued.m) and set(_long(f.batch)) <= set(
                valued.batch):
            return moved, value, f
    return None


def _long(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of more than one value."""
    return tuple(a for a in axes if a.extent != Const(1))


__all__ = ["SCORE", "TOTAL", "Streamed", "find_stream", "is_stream"]
