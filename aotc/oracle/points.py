"""Points that the loops around an expression come to: where one of them gives a negative value, no
proof that there is none need be looked for."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from aotc.errors import FaultError
from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, E, Expr, Load, Sym, Var, leaves
from aotc.ir.indices.polynomial import Poly
from aotc.ir.simplify import from_poly
from aotc.oracle.eval_expr import EvalScope

COUNT = 256  # points of a scope: ends of ranges and some inside
How = tuple[Any, ...]  # how a name is bound, as of ``aotc.oracle.prove.ProofScope``
FARTHEST = 64  # above the least value of a symbol


class Points:
    """Values of every name of ``names`` (as of ``aotc.oracle.prove.ProofScope``) at COUNT points;
    those at which a loop runs not at all, or one of ``checks`` fails, are left out."""

    def __init__(self, names: Mapping[E, How], checks: Iterable[Expr] = ()) -> None:
        self.names, self.rng = names, np.random.default_rng(0)
        self.syms = _Symbols(self.rng)
        self.scope = EvalScope({}, None, self.syms)
        self.live, self.first = np.ones(COUNT, bool), self.rng.random(COUNT) < 0.5
        with np.errstate(all="ignore"):
            for name, how in names.items():
                self.scope.grid[name] = self.value_of(name, how)
            for c in checks:
                self.live &= self.value(c)

    def value_of(self, axis: Expr, how: How) -> Array:
        if how[0] == "value":
            return self.value(how[1])
        if how[0] == "before":
            return np.where(self.first, 0, self.value(how[1][axis]))
        lo, last = (np.broadcast_to(self.value(e), COUNT) for e in how[1:])
        self.live &= lo <= last
        inside = self.rng.integers(lo, np.maximum(lo, last), endpoint=True)
        return np.choose(self.rng.integers(0, 3, COUNT), (lo, np.maximum(lo, last), inside))

    def value(self, e: Expr) -> Array:
        for n in leaves(e):
            if isinstance(n, (Load, Var)) or isinstance(n, Axis) and n not in self.scope.grid:
                raise UnknownValue
        for s in sorted((n for n in leaves(e) if isinstance(n, Sym)), key=lambda s: s.name):
            self.syms.add(s)
        return self.scope.value(e)

    def refute(self, p: Poly, facts: Iterable[Expr]) -> bool | None:
        """True if a polynomial is below zero at one of the points at which ``facts`` hold;
        None where data decides, or numbers beyond 64 bits."""
        try:
            with np.errstate(all="ignore"):
                low = self.live & (self.value(from_poly(p)) < 0)
                for f in facts if low.any() else ():
                    low = low & (self.value(f) >= 0)
        except (UnknownValue, FaultError, OverflowError):  # what breaks a rule is in no call
            return None
        return bool(low.any())


class UnknownValue(Exception):
    """A value that data decides."""


class _Symbols(dict[str, Array]):
    """Values of the symbols by name; each gets its own when it is first met."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.rng = rng

    def add(self, sym: Sym) -> None:
        if sym.name not in self:
            most = sym.lo + FARTHEST if sym.hi is None else min(sym.hi, sym.lo + FARTHEST)
            self[sym.name] = self.rng.integers(sym.lo, most, COUNT, endpoint=True)
