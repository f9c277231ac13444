"""Tensors that depend on nothing but constants and extents: what they hold is known while
compiling, however many computes made them.

Constants alone are evaluated in numpy.  With symbols in it, an element becomes an expression of
them: computes are put into one another and their folds are unrolled."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from aotc.errors import FaultError
from aotc.frontend.building import symbolic
from aotc.frontend.building.values import Index, Val, const_at
from aotc.ir.dtypes import DTYPES, INDEX, Array, is_float
from aotc.ir.expr import (
    Axis,
    Cast,
    Const,
    Expr,
    Guarded,
    Load,
    Sym,
    Var,
    Where,
    binary,
    children,
    compare,
    int_of,
    loads,
    substitute,
    walk,
    with_children,
)
from aotc.ir.program import FOLD_STEP, Compute, Program, Step, static_shape
from aotc.ir.simplify import lower, proves, simplify, split_linear
from aotc.oracle.eval_expr import EvalScope
from aotc.oracle.evaluate import evaluate

if TYPE_CHECKING:  # which needs this module
    from aotc.frontend.building.builder import Builder

MOST_POINTS = 1 << 26  # elements and terms that are evaluated for one tensor
MOST_NODES = 1 << 14  # nodes of expressions that are looked at for one tensor
MOST_ELEMENTS = 64  # of a tensor whose elements are looked at one by one
MOST_DEPTH = 40  # computes that are put into one another
MOST_FOLLOWED = 8  # computes that are followed to where an element comes from
MOST_TERMS = 256  # of a fold that is unrolled
SMALL_TABLE = 64  # elements of a constant that is looked up at a symbolic place


class TooInvolved(Exception):
    """An element is no expression worth having."""


class Known:
    """``known(v)`` is ``v``; for a buffer that is computed from constants and extents alone, a
    constant or a shape value, if that is worth having.  ``maker``: the step of every buffer that
    has one."""

    def __init__(self, b: "Builder") -> None:
        self.b = b
        self.maker: dict[str, Step] = {}
        self._data: set[str] = set()  # buffers that depend on inputs
        self._vals: dict[str, Val | None] = {}  # what has been found

    def enter(self, step: Step) -> None:
        """A step that has been appended."""
        self.maker.update(dict.fromkeys(step.outs, step))
        if any(i in self._data or self.b.buffers[i].role == "input" for i in step.inputs):
            self._data.update(step.outs)

    def is_data(self, v: Val) -> bool:
        return bool(v.buffer) and (v.buffer in self._data or v.buffer not in self.maker)

    def reason(self, vals: Iterable[Val | None], declare: bool = False) -> tuple[str, str]:
        """(what, instead) for a message about parameters ``vals`` that are needed and not known.
        ``declare``: a declared shape of the result would do."""
        what = "a shape, axis or size that "
        if any(v is not None and self.is_data(v) for v in vals):
            instead = ("make it a constant, compute it from input shapes, or declare the shape of "
                       "the result" if declare else "make it a constant or compute it from input "
                       "shapes")
            return what + "depends on data", instead + (
                self.b.asked.get(self.b.node.label, "") if declare else "")
        return (what + "extents decide in a way that is not followed",
                "pin the dimensions that it depends on")

    def __call__(self, v: Val) -> Val:
        if not v.buffer or self.is_data(v):
            return v
        if v.buffer not in self._vals:
            self._vals[v.buffer] = evaluate_buffer(self.b, v) or express_buffer(self.b, v)
        found = self._vals[v.buffer] or v
        return found if found.stored == v.stored else replace(found, stored=v.stored)


def evaluate_buffer(b: "Builder", v: Val) -> Val | None:
    """A constant Val for a buffer that is computed from constants alone; None if it is not, or if
    that is more than MOST_POINTS.  ModelError for an index out of range."""
    steps = _cone(b, v.buffer)
    if any(isinstance(n, Sym) for s in steps for e in _exprs(b, s) for n in walk(e)):
        return None
    if sum(_points(s) for s in steps) > MOST_POINTS:
        return None
    program = Program("known", (), (v.buffer,), b.buffers, b.consts, steps)
    try:
        array = evaluate(program, {})[v.buffer]
    except FaultError as err:
        raise b.bad(f"its parameters cannot be computed: {err}") from None
    return b.const(array, v.name)


def express_buffer(b: "Builder", v: Val) -> Val | None:
    """A shape value for a buffer that is computed from constants and extents; None if an element
    is no expression worth having."""
    dims, elements = static_shape(v.shape), _Elements(b)
    try:
        if dims is None or np.prod(dims, dtype=object) > MOST_ELEMENTS:
            axes = b.axes(v.shape)
            body = elements.element(v.buffer, axes)
            return Val(v.shape, v.dtype, name=v.name, fn=lru_cache(maxsize=None)(
                lambda index: symbolic.tidy(substitute(body, dict(zip(axes, index))))))
        table = [elements.element(v.buffer, tuple(map(Const, p))) for p in np.ndindex(*dims)]
    except TooInvolved:
        return None
    return Val(v.shape, v.dtype, name=v.name,
               fn=lambda index: choose_element(table, place_of(index, dims)))


def without_loads(b: "Builder", e: Expr) -> Expr:
    """A shape value's element without loads of what is known, if they can be had."""
    buffers = [n.buffer for n in walk(e) if isinstance(n, Load)]
    if not buffers or any(i not in b.consts and i not in b.known.maker for i in buffers):
        return e
    try:
        return symbolic.cast(e.dtype, _Elements(b).resolved(e))
    except TooInvolved:
        return e


def follow_loads(b: "Builder", e: Expr) -> Expr:
    """An element with what computes its parts in the place of loads, down to what is given."""
    for _ in range(MOST_FOLLOWED):
        makers = {n: s for n in loads(e) if isinstance(s := b.known.maker.get(n.buffer), Compute)
                  and s.fold == "none" and len(s.outs) == 1}
        if not makers:
            break
        e = symbolic.tidy(substitute(e, {n: substitute(s.body, dict(zip(s.axes, n.index)))
                                         for n, s in makers.items()}))
    return e


def whole_of(e: Expr) -> Expr:
    """An integer that another number is by another type."""
    while isinstance(e, Cast) and not is_float(e.x.dtype) and e.x.dtype != "bool":
        e = e.x
    return e


def place_of(index: Sequence[Expr], dims: Sequence[int]) -> Expr:
    """The row-major place of an index."""
    place: Expr = Const(0)
    for i, d in zip(index, dims):
        place = place * d + i
    return simplify(place)


def choose_element(values: Sequence[Expr], place: Expr) -> Expr:
    """``values[place]``, a choice among expressions where the place is none that is known."""
    if isinstance(place, Const):
        return values[int_of(place)]
    out = values[-1]
    for k in reversed(range(len(values) - 1)):
        out = out if values[k] == out else Where(simplify(compare("le", place, Const(k))),
                                                 values[k], out)
    return out


def _cone(b: "Builder", buffer: str) -> tuple[Step, ...]:
    """The steps that a buffer depends on, in order."""
    needed, todo = set(), [buffer]
    while todo:
        step = b.known.maker.get(todo.pop())
        if step is not None and id(step) not in needed:
            needed.add(id(step))
            todo.extend(step.inputs)
    return tuple(s for s in (*b.outside, *b.steps) if id(s) in needed)


def _exprs(b: "Builder", step: Step) -> Iterator[Expr]:
    yield from (d for o in step.outs for d in b.buffers[o].shape)
    if isinstance(step, Compute):
        yield step.body
        yield from (a.extent for a in step.raxes)


def _points(step: Step) -> int:
    axes = (*step.axes, *step.raxes) if isinstance(step, Compute) else ()
    return prod(int_of(a.extent) for a in axes)


class _Elements:
    """Elements of buffers as expressions of symbols; the work of one object is bounded."""

    def __init__(self, b: "Builder") -> None:
        self.b, self.left, self.depth = b, MOST_NODES, 0
        self.memo: dict[tuple[str, Index], Expr] = {}
        self.unsure = 0  # branches around that may not be taken
        self.kept: set[Expr] = set()  # rules that are checked at entry

    def element(self, buffer: str, index: Index) -> Expr:
        if buffer in self.b.consts:
            return self.looked_up(self.b.consts[buffer], self.b.buffers[buffer].dtype, index)
        step = self.b.known.maker.get(buffer)
        if not isinstance(step, Compute) or self.depth > MOST_DEPTH:
            raise TooInvolved
        key = (buffer, index)
        if key not in self.memo:
            at: dict[Expr, Expr] = dict(zip(step.axes, index, strict=True))
            self.depth += 1
            self.memo[key] = self.folded(step, at, step.outs.index(buffer))
            self.depth -= 1
        return self.memo[key]

    def looked_up(self, array: Array, dtype: str, index: Index) -> Expr:
        """An element of a constant: itself, arithmetic where it is regular, else a choice."""
        index = tuple(simplify(i) for i in index)
        if any(isinstance(i, Const) and not 0 <= i.value < d for i, d in zip(index, array.shape)):
            raise TooInvolved
        known = const_at(self.b.affine, array, dtype, index)
        if known is not None:
            return known
        fixed = tuple(i.value if isinstance(i, Const) else slice(None) for i in index)
        row, free = array[fixed], [i for i in index if not isinstance(i, Const)]
        if row.size > SMALL_TABLE or not row.size:
            raise TooInvolved
        values = [Const(x, dtype) for x in row.reshape(-1).tolist()]
        return choose_element(values, place_of(free, row.shape))

    def folded(self, step: Compute, at: Mapping[Expr, Expr], number: int) -> Expr:
        """Output ``number`` of a compute at a point."""
        if step.fold == "none":
            return self.resolved(substitute(step.body, at))
        extents = [self.resolved(substitute(a.extent, at)) for a in step.raxes]
        states: dict[Expr, Expr] | None = None if isinstance(step.fold, str) else dict(zip(
            (Var(*s) for s in step.fold.states), map(self.resolved, step.fold.init)))
        dims = static_shape(tuple(extents))
        if dims is None:
            return self.repeated(step, at, extents)
        if np.prod(dims, dtype=object) > MOST_TERMS:
            raise TooInvolved
        total = None
        for point in np.ndindex(*dims):
            here: dict[Expr, Expr] = {**at, **{a: Const(k) for a, k in zip(step.raxes, point)}}
            term = self.resolved(substitute(step.body, here))
            if isinstance(step.fold, str):
                total = term if total is None else self.made(
                    binary(FOLD_STEP[step.fold], total, term))
                continue
            assert states is not None, step
            known: dict[Expr, Expr] = {**states, **here, Var("x", term.dtype): term}
            states = dict(zip(states, [self.resolved(substitute(e, known))
                                       for e in step.fold.update]))
        if states is not None:
            return list(states.values())[number]
        return self.neutral(step) if total is None else total

    def repeated(self, step: Compute, at: Mapping[Expr, Expr], extents: Sequence[Expr]) -> Expr:
        """A fold over extents that are symbols: of a term that is the same everywhere, or the
        largest or smallest of one that grows with its axes."""
        if not isinstance(step.fold, str) or step.fold == "prod":
            raise TooInvolved
        term = self.resolved(substitute(step.body, at))
        ends: dict[Expr, Expr] = dict(zip(step.raxes, extents))
        if step.fold != "sum":
            if any((lower(n) or 0) < 1 for n in extents):
                raise TooInvolved
            return self.extreme(term, ends, 1 if step.fold == "max" else -1)
        if is_float(term.dtype) or any(a in ends for a in walk(term)):
            raise TooInvolved
        for n in extents:
            term = self.made(binary("mul", term, symbolic.cast(term.dtype, n)))
        return term

    def extreme(self, term: Expr, ends: Mapping[Expr, Expr], sign: int) -> Expr:
        if isinstance(term, Cast) and DTYPES[term.x.dtype].kind == "i":
            return symbolic.cast(term.dtype, self.extreme(term.x, ends, sign))
        for axis in [a for a in walk(term) if a in ends]:
            parts = split_linear(term, axis) if term.dtype == INDEX else None
            if parts is None or not isinstance(parts[0], Const):
                raise TooInvolved
            last = simplify(ends[axis] - 1) if parts[0].value * sign > 0 else Const(0)
            term = simplify(substitute(term, {axis: last}))
        return term

    def neutral(self, step: Compute) -> Const:
        """What a fold of nothing gives, as the evaluator has it."""
        empty = Compute(step.outs, (), (Axis("none", Const(0)),), step.fold, Const(
            0, step.body.dtype))
        program = Program("known", (), step.outs, {step.outs[0]: self.b.buffers[step.outs[0]]}, {},
                          (empty,))
        return Const(evaluate(program, {})[step.outs[0]].item(), step.body.dtype)

    def resolved(self, e: Expr) -> Expr:
        """``e`` without loads; a branch that is not taken is not looked at."""
        self.left -= 1
        if self.left < 0:
            raise TooInvolved
        if isinstance(e, (Axis, Var)):
            return e
        if isinstance(e, Where):
            cond = self.resolved(e.cond)
            if isinstance(cond, Const):
                return self.resolved(e.a if cond.value else e.b)
            self.unsure += 1
            branches = self.resolved(e.a), self.resolved(e.b)
            self.unsure -= 1
            return self.made(Where(cond, *branches))
        kids = tuple(map(self.resolved, children(e)))
        if isinstance(e, Load):
            return self.element(e.buffer, kids)
        return self.made(with_children(e, kids)) if kids else e

    def made(self, e: Expr) -> Expr:
        """A node over resolved children, in its simplest form."""
        kids = children(e)
        if isinstance(e, Guarded):
            return self.guarded(e.op, e.a, e.b)
        if kids and all(isinstance(k, Const) for k in kids):
            with np.errstate(all="ignore"):
                return Const(EvalScope({}, None, {}).value(e).item(), e.dtype)
        if isinstance(e, Cast):
            return symbolic.cast(e.dtype, e.x)
        return symbolic.tidy(e)

    def guarded(self, op: str, i: Expr, n: Expr) -> Expr:
        """A value whose rule is proved or checked at entry."""
        rules = ([("eq", i, n)] if op == "expected" else [("ge", i, Const(0)), ("lt", i, n)])
        for how, a, b in rules:
            rule = compare(how, a, b)
            if proves(rule) or rule in self.kept:
                continue
            if self.unsure or any(isinstance(x, Axis) for x in walk(rule)):
                raise TooInvolved
            self.b.require(how, a, b, "an index must lie inside")
            self.kept.add(rule)
        return i
