"""Rules between extents that no operator states: whatever is read of a tensor must lie inside it.

Operators ask for what the standard says of their inputs' extents, each in its own words.  Here the
steps that they made are gone through once more, so that a model whose extents contradict each other
in a way that nobody thought of is refused, or a call of it, and never reads what is not there."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from aotc.errors import ModelError
from aotc.frontend.building.symbolic import remove_axes
from aotc.frontend.graph import shorten
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Guarded,
    Load,
    Sym,
    Where,
    as_expr,
    axes_of,
    children,
    compare,
    int_of,
    leaves,
    show,
    substitute,
    walk,
)
from aotc.ir.indices.polynomial import p_const
from aotc.ir.program import Buffer, Compute, Step
from aotc.ir.simplify import simplify, to_poly, upper


def check_extents(steps: Iterable[Step], buffers: Mapping[str, Buffer],
                  checks: dict[Expr, str]) -> None:
    """Enter in ``checks`` ({condition: why}) what extents must be for all reads of the steps to lie
    inside their buffers, as far as no condition or data decides it.  ModelError where they are not,
    whatever the extents."""
    for step in steps:
        if not isinstance(step, Compute) or any(a.extent == Const(0) for a in step.axes):
            continue
        for load, guarded in reads(step.body, None):
            for i, extent in zip(load.index, buffers[load.buffer].shape):
                if not _plainly_inside(i, extent) and _free_of(i, guarded) and not any(
                        isinstance(n, (Load, Guarded)) for n in walk(i)):
                    _demand(compare("ge", i, Const(0)), step, load, checks)
                    _demand(compare("lt", i, extent), step, load, checks)


def _plainly_inside(i: Expr, extent: Expr) -> bool:
    if isinstance(i, Const) and isinstance(extent, Const):
        return 0 <= int_of(i) < int_of(extent)
    return isinstance(i, Axis) and i.extent == extent


def reads(e: Expr,
          guarded: frozenset[Axis] | None) -> Iterator[tuple[Load, frozenset[Axis] | None]]:
    """(Load, the axes that conditions around it look at; None: there are no conditions) pairs."""
    seen, todo = set(), [(e, guarded)]
    while todo:
        n, guarded = todo.pop()
        if (n, guarded) in seen:
            continue
        seen.add((n, guarded))
        if isinstance(n, Load):
            yield n, guarded
        if isinstance(n, Where):
            inner = (guarded or frozenset()) | _looked_at(n.cond)
            todo += [(n.cond, guarded), (n.a, inner), (n.b, inner)]
        else:
            todo += [(k, guarded) for k in children(n)]


def _looked_at(cond: Expr) -> frozenset[Axis]:
    """The axes that a condition looks at itself: what it reads of a tensor bounds no index."""
    if isinstance(cond, Axis):
        return frozenset((cond,))
    if isinstance(cond, Load):
        return frozenset()
    return frozenset().union(*map(_looked_at, children(cond)))


def _free_of(i: Expr, guarded: frozenset[Axis] | None) -> bool:
    """True for an index that no condition keeps inside: it moves along other axes."""
    axes = axes_of(i)
    return guarded is None or bool(axes) and not axes & guarded


def _demand(cond: Expr, step: Compute, load: Load, checks: dict[Expr, str]) -> None:
    cond = simplify(cond)
    stated = remove_axes(cond) if not isinstance(cond, Const) and axes_of(cond) else cond
    if stated is None:
        return
    cond = stated
    if cond == Const(True, "bool") or any(
            isinstance(n, (Where, Cast)) for n in walk(cond)):
        return  # also where extents are compared while running: broadcasting has its own rules
    nodes = ", ".join(map(shorten, step.origin)) or step.out
    if isinstance(cond, Const):
        raise ModelError(f"node {nodes!r}: the shapes of its inputs do not fit together, "
                         f"it reads {show(load)} outside of that tensor")
    if not is_implied(cond, checks):
        checks.setdefault(cond, f"{nodes}: the shapes of its inputs must fit together, "
                          f"{show(cond)}")


def is_implied(cond: Expr, checks: Iterable[Expr]) -> bool:
    """True if the equalities among ``checks`` imply the inequality ``cond``, or it always holds."""
    over = _excess(cond)
    # without ends parts of minima are looked at one by one
    for e in (over, substitute(over, {s: replace(s, hi=None) for s in leaves(over)
                                      if isinstance(s, Sym)})):
        most = upper(_with_rests(e))
        if most is not None and most <= 0:
            return True
    for known in checks:
        if isinstance(known, Binary) and known.op == "eq":
            for a, b in ((known.a, known.b), (known.b, known.a)):
                rest = p_const(to_poly(over - (a - b)))
                if rest is not None and rest <= 0:
                    return True
    return False


def _excess(cond: Expr) -> Expr:
    """What must not be above 0 for an inequality of extents to hold."""
    assert isinstance(cond, Binary), cond
    a, b = (cond.a, cond.b) if cond.op in ("lt", "le") else (cond.b, cond.a)
    return simplify(a - b + (1 if cond.op in ("lt", "gt") else 0))


def _with_rests(e: Expr) -> Expr:
    """``e`` with x // n * n as x - x % n."""
    out: Expr = Const(0)
    for atoms, factor in to_poly(e).items():
        found = next((a for a in atoms if isinstance(a, Binary) and a.op == "floordiv"
                      and isinstance(a.b, Const) and a.b.value and factor % a.b.value == 0), None)
        term = as_expr(factor) if found is None else (
            found.a - found.a % found.b) * (factor // int_of(found.b))
        for a in atoms:
            term, found = (term, None) if a is found else (term * a, found)
        out = out + term
    return simplify(out)
