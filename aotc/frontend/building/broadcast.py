"""Broadcasting: extents that are equal, or 1.  Where only a call can tell which, it decides.

An extent that may be 1 or equal to others is read at ``index * (extent != 1)``: a stride of 0 or
1.  The joint extent of several is the first of them that is not 1.  What the model demands
elsewhere may rule that out: extents that some operator requires to be equal are equal, and a joint
extent that must be one of its members is that member (``Learnt``, learnt in the trial builds).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from aotc.frontend.building.values import is_one
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Binary, Cast, Const, Expr, ExprLike, Where, as_expr, compare, show
from aotc.ir.simplify import are_equal, proves, simplify

if TYPE_CHECKING:  # which have a Joins
    from aotc.frontend.building.rules import Rules

WHY = "shapes must broadcast"


@dataclass(frozen=True)
class Learnt:
    """What a build has learnt: ``equal``: {pair of extents that are the same}, ``settled``:
    {members of a joint extent: which of them it is}, all as texts, which outlive a change of
    ranges."""

    equal: frozenset[frozenset[str]] = frozenset()
    settled: dict[frozenset[str], str] = field(default_factory=dict, hash=False)


class Joins:
    """Joint extents of one build, of its Rules ``b``.  ``known``: what earlier ones have learnt."""

    def __init__(self, b: "Rules", known: Learnt | None) -> None:
        self.b, self.known = b, known or Learnt()
        self.members: dict[Expr, tuple[Expr, ...]] = {}  # of a joint extent
        self.equal: set[frozenset[str]] = set()
        self.settled: dict[frozenset[str], str] = {}
        self.unequal: set[frozenset[str]] = set()  # pairs asked for and not known to be equal
        self.unsettled: set[frozenset[str]] = set()  # members asked for

    def learnt(self) -> Learnt:
        """The Learnt after a build."""
        return Learnt(self.known.equal | self.equal, {**self.known.settled, **self.settled})

    def would_tell(self, new: Learnt) -> bool:
        """True if a build with what ``new`` knows more could differ from this one: a question was
        asked that it answers in another way."""
        old, now = self.known.settled, new.settled
        return not self.unequal.isdisjoint(new.equal) or any(
            old.get(k) != now.get(k) for k in self.unsettled)

    def note_equal(self, a: Expr, b: Expr) -> None:
        """Some operator demands that two extents are equal."""
        self.equal.add(frozenset((show(a), show(b))))
        for joint, other in ((a, b), (b, a)):
            members = self.members.get(joint)
            if members is not None:
                self.settled.setdefault(_names(members), show(other))

    def extent(self, dims: Iterable[ExprLike]) -> Expr:
        """The joint extent of dims that broadcast together."""
        extents: list[Expr] = [simplify(as_expr(d)) for d in dims]
        members: list[Expr] = []
        for d in (m for e in extents for m in self.members.get(e, (e,))):
            if not is_one(d) and not any(self._equal(d, m) for m in members):
                members.append(d)
        fixed = next((m for m in members if isinstance(m, Const)), None) or next(
            (m for m in members if _never_one(m)), None)
        if len(members) < 2:
            return members[0] if members else Const(1)
        out = fixed or self._settled(members, extents) or _first_of(members)
        if fixed is None and out not in members and not any(are_equal(out, d) for d in extents):
            self.members.setdefault(out, tuple(members))
            for a, b in combinations(members, 2):
                self.b.check(_any_of(a, b), WHY)
            return out
        for d in members:
            self.fits(d, out)
        return out

    def fits(self, d: Expr, out: Expr) -> None:
        """Demand that an extent broadcasts to ``out``: equal, or 1."""
        if are_equal(d, out) or is_one(d) or self._equal(d, out):
            return
        if _never_one(d):
            self.b.require("eq", d, out, WHY)
            return
        self.b.check(_either(compare("eq", d, out), compare("eq", d, Const(1))), WHY)

    def at(self, d: Expr, out: Expr, i: Expr) -> Expr:
        """Index into an extent for index ``i`` of the joint extent ``out``."""
        if is_one(d):
            return i if is_one(out) else Const(0)
        if are_equal(d, out) or _never_one(d) or self._equal(d, out):
            return i
        return i * Cast(INDEX, compare("ne", d, Const(1)))

    def _equal(self, a: Expr, b: Expr) -> bool:
        if are_equal(a, b):
            return True
        pair = frozenset((show(a), show(b)))
        if pair not in self.known.equal:
            self.unequal.add(pair)
        return pair in self.known.equal

    def _settled(self, members: Sequence[Expr], dims: Sequence[Expr]) -> Expr | None:
        names = _names(members)
        self.unsettled.add(names)
        text = self.known.settled.get(names)
        return next((d for d in (*members, *dims) if show(d) == text), None)


def _names(members: Iterable[Expr]) -> frozenset[str]:
    return frozenset(map(show, members))


def _never_one(d: Expr) -> bool:
    return not is_one(d) and proves(compare("ne", d, Const(1)))


def _first_of(members: Sequence[Expr]) -> Expr:
    """The first of them that is not 1, else the last."""
    out = members[-1]
    for m in reversed(members[:-1]):
        out = Where(compare("eq", m, Const(1)), out, m)
    return simplify(out)


def _any_of(a: Expr, b: Expr) -> Expr:
    """Two extents are equal, or one of them is 1."""
    return _either(compare("eq", a, b), _either(compare("eq", a, Const(1)),
                                                compare("eq", b, Const(1))))


def _either(a: Expr, b: Expr) -> Expr:
    return Binary("or", a, b)


__all__ = ["Joins", "Learnt", "WHY"]
