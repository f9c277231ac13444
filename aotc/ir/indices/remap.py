"""Invert index maps: from ``T[f(axes)]`` to axes as expressions in T's dimensions.

A reshape, transpose or pixel shuffle between a producer and an elementwise consumer is such a
map; inverting it lets the consumer run inside the producer's loops.
"""

from collections.abc import Sequence

from aotc.ir.expr import Axis, Binary, Const, Expr, substitute
from aotc.ir.simplify import are_equal, simplify, to_poly


def invert_map(index: Sequence[Expr], axes: Sequence[Axis],
               targets: Sequence[Axis]) -> dict[Axis, Expr] | None:
    """Find h with ``axes[i] = h[axes[i]](targets)`` given ``targets[j] = index[j](axes)``.

    index: expressions over ``axes``; targets: Axis per index position.  Returns a dict
    axis -> expression, verified both ways to be a bijection of the whole domains; else None.
    """
    volume: Expr = Const(1)
    for a in axes:
        volume = volume * a.extent
    other: Expr = Const(1)
    for t in targets:
        other = other * t.extent
    if not are_equal(volume, other):
        return None
    found: dict[Axis, Expr] = {a: Const(0) for a in axes if are_equal(a.extent, Const(1))}
    digits: dict[Axis, list[tuple[Expr, Axis]]] = {}
    for expr, t in zip(index, targets):
        expr = simplify(expr)
        if isinstance(expr, Axis):
            found[expr] = t
        elif not _mixed_radix(expr, t, found):
            _digit(expr, t, digits)
    for a, parts in digits.items():
        if a not in found:
            total: Expr = Const(0)
            for divisor, t in parts:
                total = total + t * divisor
            found[a] = total
    if set(found) != set(axes):
        return None
    for expr, t in zip(index, targets):
        if not are_equal(substitute(expr, found), t) and not are_equal(t.extent, Const(1)):
            return None
    return {a: simplify(found[a]) for a in axes}


def _mixed_radix(expr: Expr, t: Axis, found: dict[Axis, Expr]) -> bool:
    """t = e1*c1 + e2*c2 + ... with each coefficient the extent product of the later ones."""
    poly = to_poly(expr)
    terms: list[tuple[Axis, Expr]] = []
    for mono, c in poly.items():
        own = [a for a in mono if isinstance(a, Axis)]
        if len(own) != 1 or any(isinstance(a, Binary) for a in mono):
            return False
        coeff: Expr = Const(c)
        for a in mono:
            if a is not own[0]:
                coeff = coeff * a
        terms.append((own[0], simplify(coeff)))
    if len(terms) < 2:
        return False
    for axis, coeff in terms:
        found[axis] = (t // coeff) % axis.extent
    return True


def _digit(expr: Expr, t: Axis, digits: dict[Axis, list[tuple[Expr, Axis]]]) -> None:
    """expr = (e // d) % m, e // d or e % m: one digit of e with weight d."""
    modless = expr.a if isinstance(expr, Binary) and expr.op == "mod" else expr
    if isinstance(modless, Binary) and modless.op == "floordiv" and isinstance(modless.a, Axis):
        digits.setdefault(modless.a, []).append((modless.b, t))
    elif isinstance(modless, Axis):
        digits.setdefault(modless, []).append((Const(1), t))
