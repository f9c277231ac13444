"""Proofs that an index expression is never negative, wherever its loops are and whatever the data.

``lower`` (``simplify.py``) bounds every atom by itself.  Here the names of a kernel keep what ties
them together: the end of a tile is the smaller of two, the first row of a halo moves with the tile.
Names are taken away one by one, the innermost first: a bound name becomes its value, a loop's axis
the end of its range that makes the expression smallest, a minimum either of its parts.  What cannot
be proved is not; no answer is ever a guess.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import gcd

from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    E,
    Expr,
    Load,
    Sym,
    Var,
    Where,
    contains,
    leaves,
    substitute,
    walk,
)
from aotc.ir.indices.polynomial import (
    ONE,
    Monomial,
    Poly,
    divide_monomial,
    drop_atom,
    p_add,
    p_const,
    p_mul,
)
from aotc.ir.read_boxes import Facts, conditions
from aotc.ir.simplify import (
    from_poly,
    lower,
    p_lower,
    p_upper,
    recombine,
    simplify,
    to_poly,
    upper,
)
from aotc.oracle.points import How, Points, UnknownValue

FUEL = 600  # polynomials looked at for one proof: far above what any has needed
SHORT = 6  # polynomials of a proof for which no point is looked at
DATA = 1 << 30  # depth of what no loop decides


class ProofScope:
    """What is bound where an expression stands, outermost first: {Axis: how}, ``how`` one of
    ("value", expression), ("range", first, last) with both ends inclusive, and
    ("before", {Axis: expression}) for what the step before has left in all such names, which are 0
    in a first step.  ``facts``: index expressions that are >= 0.  ``tables``: {buffer of constant
    integers: (least, greatest) of them}.  ``checks``: conditions that hold at entry."""

    def __init__(self, names: Mapping[E, How] | None = None, facts: Iterable[Expr] = (),
                 tables: Mapping[str, tuple[int, int]] | None = None,
                 checks: tuple[Expr, ...] = ()) -> None:
        self.names: dict[Expr, How] = dict(names.items() if names else ())
        self.facts, self.tables = tuple(facts), tables or {}
        self.checks = checks
        self.points: Points | bool | None = None  # False: data decides
        self.depth = {a: i for i, a in enumerate(self.names)}

    def inside(self, names: Mapping[E, How], facts: Iterable[Expr] = ()) -> "ProofScope":
        """The Scope with further names and facts."""
        return ProofScope(self.names | dict(names.items()), self.facts + tuple(facts), self.tables,
                          self.checks)

    def about(self, *found: Expr) -> dict[Expr, How]:
        """The names in expressions and those that these stand for, as this binds them."""
        used: set[Expr] = set()
        todo = [x for e in found for x in leaves(e)]
        while todo:
            x = todo.pop()
            if x in self.names and x not in used:
                used.add(x)
                kind, *how = self.names[x]
                todo += [y for e in (how[0].values() if kind == "before" else how)
                         for y in leaves(e)]
        return {x: how for x, how in self.names.items() if x in used}

    def how(self, leaf: Expr) -> How:
        """How a name or a datum is bound; ("",) for what data decides, and symbols."""
        if isinstance(leaf, Load) and leaf.buffer in self.tables:
            return "range", *map(Const, self.tables[leaf.buffer])
        return self.names.get(leaf, ("",))

    def symbolic(self, e: Expr) -> bool:
        """True if symbols decide an expression, also by the names in it."""
        todo = [e]
        seen: set[Expr] = set()
        while todo:
            for x in leaves(todo.pop()) - seen:
                seen.add(x)
                kind, *how = self.how(x)
                if isinstance(x, Sym):
                    return True
                todo += how[0].values() if kind == "before" else how
        return False

    def refutes(self, p: Poly, facts: Facts) -> bool | None:
        """True if a polynomial is below zero somewhere, as far as that was looked for."""
        if self.points is None:
            try:
                self.points = Points(self.names, self.checks)
            except UnknownValue:
                self.points = False
        return self.points.refute(p, facts) if isinstance(self.points, Points) else None

    def unknown(self, e: Expr, also: Collection[Expr] = ()) -> list[str]:
        """Names in an expression that neither this nor ``also`` binds."""
        return sorted({x.name for x in walk(e) if isinstance(x, (Axis, Var))
                       and x not in self.names and x not in also})


def is_never_negative(e: Expr, scope: ProofScope, facts: Facts = ()) -> bool:
    """True if index expression ``e`` is proved to be >= 0 in a Scope, wherever ``facts`` (further
    expressions) are >= 0 too."""
    p, facts = to_poly(e), _known(*scope.facts, *facts)
    return not facts and _Proof(scope, False).holds(p, facts) or _Proof(scope, True).holds(p, facts)


def may_be_negative(e: Expr, scope: ProofScope, facts: Facts = (), read: bool = False) -> bool:
    """True if ``e`` may be below 0: it is not proved to be ``is_never_negative``, and it holds no
    symbol.  Of what symbols decide not all that is true is proved: there, True only if it is below
    0 at a point that the loops come to; so of what is only ``read``, unless data decides it and
    nothing guards it (a Pad by amounts from data is guarded dimension by dimension)."""
    if is_never_negative(e, scope, facts):
        return False
    known = _known(*scope.facts, *facts)
    below = scope.refutes(to_poly(e), known)
    if scope.symbolic(e) or read and known:
        return bool(below)
    return not read or below is not False


def _known(*facts: Expr) -> Facts:
    """The facts in normal form, without those that hold anyway."""
    out = dict.fromkeys(map(simplify, facts))
    return tuple(f for f in out if not (isinstance(f, Const) and f.value >= 0))


def _put(p: Poly, node: Expr, e: Expr) -> Poly:
    """Polynomial ``p`` with ``node`` replaced by the expression ``e`` everywhere, in normal form: a
    remainder in ``e`` joins its quotient in ``p``, since apart both are bounded by themselves."""
    out: Poly = {}
    value = to_poly(e)
    for mono, c in p.items():
        term = {ONE: c}
        for a in mono:
            if a == node:
                term = p_mul(term, value)
            elif contains(a, node):
                term = p_mul(term, to_poly(substitute(a, {node: e})))
            else:
                term = p_mul(term, {(a,): 1})
        out = p_add(out, term)
    return recombine(out)


def _replaced(p: Poly, facts: Facts, mapping: Mapping[E, Expr]) -> tuple[Poly, Facts]:
    """(polynomial, facts) with all names of ``mapping`` replaced."""
    for name, e in mapping.items():
        p = _put(p, name, e)
    return p, _known(*(substitute(f, mapping) for f in facts))


def _sign(p: Poly, atom: Expr) -> int | None:
    """1 or -1 if ``p`` grows or falls with ``atom``, which stands nowhere but in monomials of their
    own whose other factors are not negative; else None."""
    signs = set()
    for mono, c in p.items():
        if any(a != atom and contains(a, atom) for a in mono):
            return None
        if atom in mono:
            rest = drop_atom(mono, atom)
            if atom in rest or not _not_negative(rest):
                return None
            signs.add(c > 0)
    return None if len(signs) != 1 else 1 if signs == {True} else -1


def _not_negative(mono: Monomial) -> bool:
    """True if no factor of a monomial is ever below zero."""
    return all(isinstance(a, (Axis, Sym)) or _at_least(a, 0) for a in mono)


def _at_least(e: Expr, n: int) -> bool:
    least = lower(e)
    return least is not None and least >= n


@lru_cache(maxsize=1 << 16)
def _grows(e: Expr, leaf: Expr) -> int | None:
    """1, -1: ``e`` never falls, or never grows, while ``leaf`` grows; None: not known."""
    return _direction(to_poly(e), leaf)


def _direction(p: Poly, leaf: Expr) -> int | None:
    found = set()
    for mono, c in p.items():
        inside = [a for a in mono if contains(a, leaf)]
        if not inside:
            continue
        if len(inside) > 1 or not _not_negative(drop_atom(mono, inside[0])):
            return None
        way = _atom_grows(inside[0], leaf)
        if way is None:
            return None
        found.add(way if c > 0 else -way)
    return found.pop() if len(found) == 1 else None


def _atom_grows(a: Expr, leaf: Expr) -> int | None:
    if a == leaf:
        return 1
    if not isinstance(a, Binary):
        return None
    if a.op == "floordiv":
        return None if contains(a.b, leaf) or not _at_least(a.b, 1) else _grows(a.a, leaf)
    if a.op in ("min", "max"):
        ways = {_grows(x, leaf) for x in (a.a, a.b) if contains(x, leaf)}
        return ways.pop() if len(ways) == 1 else None
    return None


class _Proof:
    """``parts``: minima and maxima whose parts must both be looked at are taken apart first, which
    takes longer and loses nothing of what ties the parts to other names."""

    def __init__(self, scope: ProofScope, parts: bool) -> None:
        self.scope, self.parts, self.looked = scope, parts, 0
        self.known: dict[object, bool] = {}
        self.fuel = FUEL if parts else FUEL // 10

    def holds(self, p: Poly, facts: Facts) -> bool:
        """True if the polynomial is proved >= 0."""
        const = p_const(p)
        if const is not None and (const >= 0 or not facts):
            return const >= 0
        if any(isinstance(f, Const) for f in facts):
            return True  # below zero: this is never reached
        if const is not None:
            return any(self.holds(p_add({ONE: -1}, to_poly(f), -1), ()) for f in facts)
        key = frozenset(p.items()), facts
        if key not in self.known:
            if self.fuel <= 0:
                return False
            self.fuel -= 1
            self.known[key] = False
            self.known[key] = self.search(p, facts)
        return self.known[key]

    def search(self, p: Poly, facts: Facts) -> bool:
        least = p_lower(p)
        if least is not None and least >= 0:
            return True
        if self.refuted(p, facts):
            return False
        most = p_upper(p)
        if most is not None and most < 0:
            return self.holds({ONE: -1}, facts)  # unless the facts cannot be
        leaf = self.innermost(p)
        if leaf is None:
            return False
        if self.parts:
            end, worse = self.end_of_box(p), self.worse(p)
            if end is not None:
                return self.holds(*_replaced(p, facts, {end: self.scope.names[end][1]}))
            if worse is not None:
                return self.resolved(p, worse, leaf, (), facts)
        kind, *how = self.scope.how(leaf)
        if kind == "value":
            return self.holds(*_replaced(p, facts, {leaf: how[0]}))
        if kind == "before":
            return all(self.holds(*_replaced(p, facts, mapping)) for mapping in (
                dict.fromkeys(how[0], Const(0)), how[0]))
        counts = kind == "range" and (isinstance(leaf, Axis) or _at_least(how[0], 0))
        by = _divisor(leaf, facts) if counts else None
        if by is not None:
            return self.in_digits(p, leaf, how, facts, by)
        return self.bounded(p, leaf, facts) or (
            kind == "range" and self.at_ends(p, leaf, how, facts)) or any(
            self.resolved(p, a, leaf, how, facts)
            for a in self.compound(p, leaf)[:1])

    def end_of_box(self, p: Poly) -> Expr | None:
        """The innermost name in ``p`` that stands for a minimum or maximum; None without one."""
        found = {x for mono in p for a in mono for x in leaves(a)
                 if self.scope.names.get(x, ("",))[0] == "value" and any(
                     getattr(n, "op", "") in ("min", "max") for n in walk(self.scope.names[x][1]))}
        return max(found, key=self.order, default=None)

    def refuted(self, p: Poly, facts: Facts) -> bool:
        """True if ``p`` is below zero somewhere; looked for where the proof is not a short one."""
        self.looked += 1
        return self.looked >= SHORT and bool(self.scope.refutes(p, facts))

    def worse(self, p: Poly) -> Expr | None:
        """A minimum or maximum of ``p`` whose parts must both be looked at; None without one."""
        found = {a for m in p for a in m if isinstance(a, Binary) and a.op in ("min", "max")}
        for a in sorted(found, key=str):
            if _sign(p, a) == (-1 if a.op == "max" else 1):
                return a
        return None

    def innermost(self, p: Poly) -> Expr | None:
        """The name or datum of ``p`` that is bound last."""
        found = {x for mono in p for a in mono for x in leaves(a)}
        return max(found, key=self.order, default=None)

    def order(self, leaf: Expr) -> tuple[int, str]:
        if isinstance(leaf, Sym):
            return -2, leaf.name
        if isinstance(leaf, Axis):
            return self.scope.depth.get(leaf, -1), leaf.name
        return DATA, str(leaf)

    def bounded(self, p: Poly, leaf: Expr, facts: Facts) -> bool:
        """Proved by a fact that bounds ``leaf``."""
        way = _direction(p, leaf)
        for f in facts:
            left = _bounded(p, way, leaf, to_poly(f))
            if left is not None and self.holds(left, tuple(x for x in facts if x != f)):
                return True
        return False

    def in_digits(self, p: Poly, leaf: Expr, ends: Sequence[Expr], facts: Facts, by: int) -> bool:
        """Proved with ``leaf`` as the number of two digits, of one of which a fact knows."""
        extent = leaf.extent if isinstance(leaf, Axis) else ends[1] + 1
        upper_digit = Axis(f"{leaf}_quotient", simplify(extent // by + 1))
        digit = Axis(f"{leaf}_rest", Const(by))
        scope = self.scope.inside({
            upper_digit: ("range", *(simplify(e // by) for e in ends)),
            digit: ("range", Const(0), Const(by - 1))})
        p, facts = _replaced(p, (*facts, leaf - ends[0], ends[1] - leaf),
                             {leaf: upper_digit * by + digit})
        return _Proof(scope, True).holds(p, facts)

    def at_ends(self, p: Poly, leaf: Expr, ends: Sequence[Expr], facts: Facts) -> bool:
        """Proved at the end, or both ends, of the range of ``leaf``."""
        way = _direction(p, leaf)
        facts = tuple(f for f in facts if not contains(f, leaf))
        if way is not None:
            return self.holds(_put(p, leaf, ends[0 if way > 0 else 1]), facts)
        linear = not self.compound(p, leaf) and all(m.count(leaf) < 2 for m in p)
        return linear and all(self.holds(_put(p, leaf, e), facts) for e in ends)

    def compound(self, p: Poly, leaf: Expr) -> list[Expr]:
        """Atoms of ``p`` that hold ``leaf`` inside."""
        return sorted({a for m in p for a in m if a != leaf and contains(a, leaf)},
                      key=lambda a: (getattr(a, "op", "") in ("floordiv", "mod"), str(a)))

    def resolved(self, p: Poly, a: Expr, leaf: Expr, ends: Sequence[Expr], facts: Facts) -> bool:
        """Proved with the atom ``a``, which holds ``leaf``, replaced by what bounds it."""
        sign = _sign(p, a)

        def swap(e: Expr, *more: Expr) -> bool:
            """For ``a`` where it is ``e``."""
            return self.holds(_put(p, a, e), _known(*(substitute(f, {a: e}) for f in facts), *more))

        def bound(e: Expr) -> bool:
            """For ``e`` on that side of ``a`` on which ``p`` is smaller: of it holds what facts say
            of ``a`` only if they grow as ``p`` falls."""
            return self.holds(_put(p, a, e), _known(
                *(substitute(f, {a: e}) if _sign(to_poly(f), a) == -(sign or 0) else f
                  for f in facts)))

        if isinstance(a, Where):
            return (swap(a.a, *conditions(a.cond, True)) and swap(a.b, *conditions(a.cond, False)))
        if isinstance(a, Cast) and a.x.dtype == "bool":
            return swap(Const(0)) and swap(Const(1))
        if isinstance(a, Cast) and self.scope.how(a.x) != ("",):  # of a table of narrow integers
            return self.at_ends(p, a, self.scope.how(a.x)[1:], facts)
        if not isinstance(a, Binary):
            return False
        if a.op in ("min", "max"):
            if sign == (1 if a.op == "max" else -1) and (bound(a.a) or bound(a.b)):
                return True
            gap = a.b - a.a if a.op == "min" else a.a - a.b
            return swap(a.a, gap) and swap(a.b, -gap)
        if a.op == "checked":  # the index, or 0 and a fault
            return (sign == 1 and bound(Const(0))
                    or sign == -1 and _at_least(a.b, 1) and bound(a.b - 1)
                    or swap(a.a, a.a, a.b - a.a - 1) and swap(Const(0)))
        if a.op == "mod" and _at_least(a.b, 1):
            return (sign is not None and bound(Const(0) if sign > 0 else a.b - 1)
                    or swap(a.a - Binary("floordiv", a.a, a.b) * a.b))
        if a.op == "floordiv" and _at_least(a.b, 1):
            return self.divided(p, a, sign, leaf, ends, facts)
        return False

    def divided(self, p: Poly, a: Binary, sign: int | None, leaf: Expr, ends: Sequence[Expr],
                facts: Facts) -> bool:
        """Proved with the quotient ``a`` at an end of its range, or as the fraction that it is the
        floor of."""
        parts = _of_parts(a)
        if parts is not None:
            return self.holds(_put(p, a, parts), facts)
        if sign is None:
            return False
        most = lower(a) if sign > 0 else upper(a)
        if most is not None and self.holds(_put(p, a, Const(most)), facts):
            return True
        way = _grows(a.a, leaf)
        if way is not None and len(ends) == 2:
            e = ends[0 if way * sign > 0 else 1]
            if self.holds(_put(p, a, substitute(a, {leaf: e})), facts):
                return True
        # the divisor times the quotient is between these and nothing else
        x = to_poly(a.a - (a.b - 1) if sign > 0 else a.a)
        d = to_poly(a.b)
        out: Poly = {}
        for mono, c in p.items():
            rest = divide_monomial(mono, (a,))
            out = p_add(out, p_mul({mono: c}, d) if rest is None else p_mul({rest: c}, x))
        return self.holds(_primitive(out), facts)


def _of_parts(a: Binary) -> Expr | None:
    """A quotient of a minimum or maximum and a rest as the minimum or maximum of quotients; None
    for others."""
    for mono, c in to_poly(a.a).items():
        one = mono[0] if len(mono) == 1 else None
        if isinstance(one, Binary) and one.op in ("min", "max"):
            op = one.op if c > 0 else "max" if one.op == "min" else "min"
            return Binary(op, *(simplify(substitute(a, {one: x})) for x in (one.a, one.b)))
    return None


def _primitive(p: Poly) -> Poly:
    """The polynomial without the number that divides all its coefficients."""
    by = gcd(*p.values()) or 1
    return {m: c // by for m, c in p.items()}


def _divisor(leaf: Expr, facts: Facts) -> int | None:
    """The number by which a fact divides ``leaf`` itself; None without one."""
    return next((n.b.value for f in facts for n in walk(f) if isinstance(n, Binary)
                 and n.op in ("floordiv", "mod") and n.a == leaf and isinstance(n.b, Const)
                 and n.b.value > 1), None)


def _bounded(p: Poly, way: int | None, leaf: Expr, fact: Poly) -> Poly | None:
    """A polynomial below a positive multiple of p, without ``leaf``, which the fact bounds; None
    where it does not bound p.  way: as of ``_direction``."""
    a = fact.get((leaf,), 0)
    if way is None or a * way <= 0 or sum(any(contains(x, leaf) for x in m) for m in fact) != 1:
        return None
    rest = {m: c for m, c in fact.items() if m != (leaf,)}
    if abs(a) == 1:  # leaf is at least, or at most
        return _put(p, leaf, from_poly({m: -c * a for m, c in rest.items()}))
    if any(leaf not in m and contains(x, leaf) for m in p for x in m):
        return None
    many = {drop_atom(m, leaf): abs(c) for m, c in p.items() if leaf in m}
    return p_add(p_mul(p, {ONE: abs(a)}), p_mul(many, fact), -1)


__all__ = ["ProofScope", "may_be_negative", "is_never_negative"]
