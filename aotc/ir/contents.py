"""What values made of statements, tuples and expressions consist of: their expressions, the
buffers and names they use, and the same values with others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from aotc.ir.expr import (
    Axis,
    Expr,
    Guarded,
    Load,
    Sym,
    Var,
    keep_result,
    leaves,
    loads,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.simplify import simplify

V = TypeVar("V")


def buffers_in(value: object) -> Mapping[str, None]:
    """The buffers that a value made of statements and expressions touches, in order."""
    if isinstance(value, Expr):
        return dict.fromkeys(n.buffer for n in loads(value))
    if isinstance(value, tuple):
        return {b: None for v in value for b in buffers_in(v)}
    return _buffers(value) if _fields_of(type(value)) else {}


@keep_result
def _buffers(value: Any) -> dict[str, None]:
    found: dict[str, None] = {}
    for name in _buffer_fields(value):
        named = getattr(value, name)
        found |= dict.fromkeys((named,) if isinstance(named, str) else named)
    for name in _fields_of(type(value)):
        found |= buffers_in(getattr(value, name))
    return found


# of a type; () of one that is no dataclass
_fields_of: Callable[[Any], tuple[str, ...]] = cache(lambda kind: tuple(
    f.name for f in fields(kind)) if is_dataclass(kind) else ())


def with_buffers(value: Any, names: Mapping[str, str]) -> Any:
    """A value made of dataclasses, tuples and expressions, with buffers renamed."""
    if names.keys().isdisjoint(buffers_in(value)):
        return value
    if isinstance(value, Expr):
        return rewrite(value, lambda e: Load(names[e.buffer], tuple(
            with_buffers(i, names) for i in e.index), e.dtype) if isinstance(
                e, Load) and e.buffer in names else None)
    if isinstance(value, tuple):
        return tuple(with_buffers(v, names) for v in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {f.name: with_buffers(getattr(value, f.name), names) for f in fields(value) if f.init}
    for name in _buffer_fields(value):
        own = getattr(value, name)
        changes[name] = names.get(own, own) if isinstance(own, str) else tuple(
            names.get(n, n) for n in own)
    return replace(value, **changes)


def _buffer_fields(value: object) -> tuple[str, ...]:
    return getattr(type(value), "BUFFERS", ())


def substitute_axes(value: Any, new: Mapping[Expr, Expr]) -> Any:
    """Statements with expressions in place of axes."""
    def instead(e: Expr) -> Expr:
        out = substitute(e, new)
        return e if out == e else simplify(out)
    return with_expressions(value, instead)


def with_expressions(value: Any, new: Callable[[Expr], Expr]) -> Any:
    """A value made of dataclasses, tuples and expressions, with ``new`` of each expression."""
    if isinstance(value, Expr):
        return new(value)
    if isinstance(value, tuple):
        return tuple(with_expressions(v, new) for v in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(value, **{f.name: with_expressions(getattr(value, f.name), new)
                             for f in fields(value) if f.init})


def with_symbols(value: Any, new: Callable[[Sym], Sym]) -> Any:
    """A value of dataclasses, tuples and expressions with other symbols."""
    found: dict[Expr, Expr] = {}

    def node(e: Expr) -> Expr | None:
        if isinstance(e, Axis):
            return replace(e, extent=rewrite(e.extent, node, found))
        return new(e) if isinstance(e, Sym) else None

    return with_expressions(value, lambda e: rewrite(e, node, found))


def symbols(e: Expr) -> Iterator[Sym]:
    """The symbols of an expression, in the extents of its axes too."""
    for n in walk(e):
        if isinstance(n, Sym):
            yield n
        elif isinstance(n, Axis):
            yield from symbols(n.extent)


def join_ranges(values: Sequence[V]) -> V:
    """The first of values that differ in the ranges of symbols only, right for all of them."""
    if len(values) == 1:
        return values[0]
    found = [dict.fromkeys(s for e in expressions(v) for s in symbols(e)) for v in values]
    if all(f == found[0] for f in found):
        return values[0]
    hull: dict[str, Sym] = {}
    for s in (s for f in found for s in f):
        t = hull.get(s.name, s)
        ends = None if s.hi is None or t.hi is None else max(s.hi, t.hi)
        hull[s.name] = replace(t, lo=min(s.lo, t.lo), hi=ends)
    value: V = with_symbols(values[0], lambda s: hull[s.name])
    return value


def expressions(value: object) -> tuple[Expr, ...]:
    """All expressions in a value made of dataclasses and tuples, such as a statement."""
    if isinstance(value, Expr):
        return (value,)
    if isinstance(value, tuple):
        return tuple([e for v in value for e in expressions(v)])
    return _expressions(value) if _fields_of(type(value)) else ()


@keep_result
def _expressions(value: Any) -> tuple[Expr, ...]:
    return expressions(tuple([getattr(value, name) for name in _fields_of(type(value))]))


def nodes(value: object) -> Iterator[Expr]:
    """Every distinct node of a value's expressions."""
    return walk(*expressions(value))


@keep_result
def guards(value: Any) -> tuple[Guarded, ...]:
    """The distinct values from data with a rule in a statement or kernel, in order."""
    return tuple(n for n in nodes(value) if isinstance(n, Guarded))


def names_in(value: object) -> frozenset[str]:
    """Names of the axes and variables that a value's expressions use."""
    if isinstance(value, Expr):
        return frozenset(e.name for e in leaves(value) if isinstance(e, (Axis, Var)))
    if isinstance(value, tuple):
        return frozenset().union(*map(names_in, value))
    return _names(value) if _fields_of(type(value)) else frozenset()


@keep_result
def _names(value: Any) -> frozenset[str]:
    return names_in(tuple(getattr(value, name) for name in _fields_of(type(value))))


__all__ = ["buffers_in", "expressions", "join_ranges", "guards", "names_in", "nodes",
           "substitute_axes", "symbols", "with_buffers", "with_expressions", "with_symbols"]
