"""Groups that go along a sum in blocks and carry what they have so far: attention stores no scores.

    x[m, j]  = f(sum over d of q[m, d] * k[d, j])        the scores of a row, of j along a stream
    y[m, n]  = sum over j of w(exp(x[m, j] - max over j of x[m, j])) * v[j, n]
    w(e)     = e, or times or over what a sum over j of the same exp makes of the row

A block of columns j of x is there at a time.  The greatest x so far, the sum and y are carried:
where a block has a greater one, exp of the difference corrects what was summed before (online
softmax: Milakov, Gimelshein 2018; FlashAttention: Dao et al. 2022).  Nothing but that algebra is
looked for.

Of a part of the keys (the rewrite ``split_keys``) y is the sums alone, j begins somewhere and may
end before the others do, and what is carried is stored beside y.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from aotc.ir.category import Factors, factor_pairs, is_zero
from aotc.ir.expr import (
    Axis,
    Binary,
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
from aotc.ir.numbers.narrow import strip_rounding
from aotc.ir.program import Compute, Program
from aotc.ir.read_boxes import conditions
from aotc.ir.schedule import STREAM, Group
from aotc.ir.simplify import are_equal, simplify, split_linear
from aotc.passes.sums.split_keys import find_base, is_scaled
from aotc.sched.model.stages import Output, Stage, contraction_factors, group_stages

SCORE, TOTAL, GREATEST = Var("score", "f32"), Var("total", "f32"), Var("greatest", "f32")


@dataclass(frozen=True)
class Streamed:
    """The stages of a group that streams, all on the axes of ``values``, whose sum runs along
    ``key``.

    scores: the product that makes ``SCORE``, which stores nothing; ``element``: x, of it;
    values: the last product, whose outputs are over the sums of exp times v, and over ``TOTAL``,
    the sums of exp; sorted: its factors, and those of the scores.  end: of the key, where that is
    before its extent; start: the number of the first key among those that masks count; states:
    outputs for each row, of ``TOTAL`` and ``GREATEST``."""

    scores: Stage
    element: Expr
    values: Stage
    key: Axis
    scored: Factors
    valued: Factors
    names: tuple[str, ...]  # of all stages of the group
    end: Expr | None = None
    start: Expr = Const(0)
    states: tuple[Output, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The buffers that are stored."""
        return tuple(o.buffer for o in (*self.values.outputs, *self.states))


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


def stream_factors(program: Program, c: Compute) -> Factors | None:
    """The factors of a product that may end a stream, if a compute is one."""
    end = _key_end(c.body, c.raxes[0]) if len(c.raxes) == 1 else None
    return contraction_factors(program, c if end is None else replace(
        c, body=_without(c.body, end[0], 0.0)))


def _matched(group: Group, stages: tuple[Stage, ...]) -> Streamed | None:
    made = {o.buffer: s for s in stages for o in s.outputs}
    values = next((s for s in stages if group.anchor in s.computes), None)
    if values is None or len(stages) not in (3, 4) or values.fold != "sum" or len(
            values.raxes) != 1 or any(v.dtype != "f32" for s in stages for v in s.acc):
        return None
    for end in dict.fromkeys((_key_end(values.body, values.raxes[0]), None)):
        body = values.body if end is None else _without(values.body, end[0], 0.0)
        for valued in _factor_pairs(values, body):
            found = _along(values, valued, made, end)
            states = None if found is None else _states(stages, found[0].values, found[1], group)
            if found is not None and states is not None:
                return replace(found[0], names=tuple(s.name for s in stages), states=states)
    return None


def _factor_pairs(stage: Stage, body: Expr) -> Iterator[Factors]:
    """``factor_pairs``, whatever rounds the elements of both factors."""
    if not isinstance(body, Binary) or body.op != "mul":
        return
    a, b = strip_factor(body.a), strip_factor(body.b)
    whole = {a: body.a, b: body.b}
    for f in factor_pairs(stage.axes, stage.raxes, stage.fold, a * b):
        yield replace(f, a=whole.get(f.a, f.a), b=whole.get(f.b, f.b))


def strip_factor(e: Expr) -> Expr:
    """The Load that a factor rounds; others as they are."""
    inner = strip_rounding(e)
    return inner if isinstance(inner, Load) and inner.dtype == "f32" else e


def _key_end(body: Expr, key: Axis) -> tuple[Expr, Expr] | None:
    """(condition that a sum has for its terms to be there, the number of those that obey it)."""
    for n in walk(body):
        if isinstance(n, Where) and n.b == Const(0.0, "f32") and n.dtype == "f32":
            facts = conditions(n.cond, True)
            of_key = split_linear(simplify(facts[0]), key) if len(facts) == 1 else None
            if of_key is not None and of_key[0] == Const(-1) and not loads(of_key[1]):
                return n.cond, simplify(of_key[1] + 1)
    return None


def _without(e: Expr, cond: Expr, missing: float) -> Expr:
    """An expression of terms that obey a condition; others are a number."""
    return rewrite(e, lambda n: n.a if isinstance(n, Where) and n.cond == cond and n.b == Const(
        missing, "f32") else None)


def _along(values: Stage, valued: Factors, made: Mapping[str, Stage],
           end: tuple[Expr, Expr] | None) -> tuple[Streamed, tuple[Expr, Expr]] | None:
    """The stream that ends in one orientation of a product, and (x, exp) as its stages say
    them."""
    key, = values.raxes
    weights = strip_rounding(valued.a)
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
    element = x if end is None else _without(x, end[0], -inf)
    scored = dict.fromkeys(n for n in loads(element) if n.buffer in made)
    if kept is None or len(scored) != 1 or end is not None and element == x:
        return None
    at, = scored
    scores = _scores(made[at.buffer], at, values, valued)
    if scores is None:
        return None
    stage, value, factors, start = scores
    outputs = tuple(Output(o.buffer, o.index, simplify(substitute(o.value, {acc: kept})))
                    for o in values.outputs)
    return Streamed(stage, simplify(_with(element, {at: value})), replace(
        values, outputs=outputs), key, factors, valued, (), end and end[1], start), (x, power)


def _states(stages: Sequence[Stage], values: Stage, of: tuple[Expr, Expr],
            group: Group) -> tuple[Output, ...] | None:
    """What a group stores of what is carried; None if it stores something else."""
    out = []
    for s in stages:
        for o in s.outputs if s.name != values.name else ():
            at = Load(o.buffer, o.index, o.value.dtype)
            if o.buffer not in group.outputs:
                continue
            what = next((var for fold, e, var in (("max", of[0], GREATEST), ("sum", of[1], TOTAL))
                         if _folds(s, fold, at, e, values)), None)
            if what is None or not set(s.axes) <= set(values.axes):
                return None
            out.append(Output(o.buffer, o.index, what))
    return tuple(out)


def _with(e: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """An expression with others in place of parts of it."""
    return rewrite(e, lambda n: new.get(n)) if new else e


def _difference(power: Unary) -> tuple[Expr | None, Load | None]:
    """(x, the Load of the greatest one) of exp(x - greatest)."""
    e = power.x
    if not isinstance(e, Binary) or e.op != "sub" or e.dtype != "f32":
        return None, None
    greatest = e.b.b if isinstance(e.b, Where) else e.b
    known = isinstance(greatest, Load) and e.b in (greatest, simplify(find_base(greatest)))
    return (e.a, greatest) if known and isinstance(greatest, Load) else (None, None)


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
    return out if is_scaled(out, acc, key) else None


def _scores(stage: Stage, at: Load, values: Stage,
            valued: Factors) -> tuple[Stage, Expr, Factors, Expr] | None:
    """(The product that makes scores, on the axes of ``values``; what a Load of one is of
    ``SCORE``; its factors; the number of the first key)."""
    key, = values.raxes
    if stage.fold != "sum" or len(stage.outputs) != 1 or len(stage.raxes) != 1:
        return None
    index = stage.outputs[0].index
    starts = [x for j in at.index if key in axes_of(j) and (x := split_linear(j, key)) is not None]
    if not all(isinstance(i, Axis) or is_zero(i) for i in index) or len(starts) != 1 or (
            starts[0][0] != Const(1)):
        return None
    own: dict[Expr, Expr] = {i: j for i, j in zip(index, at.index) if isinstance(i, Axis)}
    used = {a for j in own.values() for a in axes_of(j)}
    depth, = stage.raxes
    taken = {a.name for a in (*values.axes, key)}
    name = depth.name
    while name in taken:
        name += "d"
    own[depth] = terms = Axis(name, depth.extent)
    own |= {a: Const(0) for a in stage.axes if a not in own}

    def here(e: Expr) -> Expr:
        return simplify(substitute(e, own))
    value = here(substitute(stage.outputs[0].value, {stage.acc[0]: SCORE}))
    moved = replace(stage, axes=tuple(a for a in (*values.axes, key) if a in used), raxes=(terms,),
                    body=here(stage.body), acc=(SCORE,), outputs=())
    for f in _factor_pairs(moved, moved.body):
        outer = set(_long((*f.batch, *f.n))) - {key}  # what counts parts is in the keys alone
        if key in f.n and _long(f.m) == _long(valued.m) and outer <= set(valued.batch):
            batch = tuple(a for a in moved.axes if a != key and a not in f.m)
            return moved, value, replace(f, batch=batch, n=(key,)), starts[0][1]
    return None


def _long(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of more than one value."""
    return tuple(a for a in axes if a.extent != Const(1))


__all__ = ["GREATEST", "SCORE", "TOTAL", "Streamed", "find_stream", "is_stream", "stream_factors",
           "strip_factor"]
