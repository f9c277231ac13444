"""What is known of the rounds of a loop while its body is built: the symbol that counts them is
below their number, so that an index into a tensor, or an extent, that depends on it may be settled
for all rounds at once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aotc.frontend.building.extents import is_implied
from aotc.frontend.building.symbolic import remove_axes
from aotc.ir.expr import Axis, Binary, Const, Expr, Sym, Where, compare, leaves, substitute
from aotc.ir.simplify import proves, simplify, split_linear

TRUE = Const(True, "bool")


@dataclass(frozen=True)
class Turn:
    """The rounds of a loop: at most ``trip`` of them, an index expression; ``whole``: and no fewer,
    whatever data say."""

    trip: Expr
    whole: bool


def count_if_some(trip: Expr) -> Expr:
    """A number of rounds, for what is asked while one of them runs: it may be below 0 where there
    are none."""
    if isinstance(trip, Binary) and trip.op == "max" and Const(0) in (trip.a, trip.b):
        return trip.b if trip.a == Const(0) else trip.a
    return trip


Turns = Mapping[Sym, Turn]  # symbols that count rounds -> what is known of those


def counts_rounds(e: Expr, turns: Turns) -> bool:
    """True if a symbol that counts rounds occurs in an expression."""
    return any(n in turns for n in leaves(e))


def axes_for_turns(e: Expr, turns: Turns) -> Expr:
    """``e`` with the symbols that count rounds as axes, which are below their numbers."""
    axes: dict[Sym, Expr] = {}
    for sym, turn in turns.items():  # outer loops first: inner ones may run as often as they say
        axes[sym] = Axis(sym.name, simplify(substitute(turn.trip, axes)))
    return simplify(substitute(e, axes))


def simplify_in_rounds(e: Expr, turns: Turns) -> Expr:
    """``e`` in the simplest form that is equal in all rounds."""
    if not counts_rounds(e, turns):
        return e
    made = axes_for_turns(e, turns)
    axes: dict[Axis, Expr] = {}
    for sym, turn in turns.items():
        extent = simplify(substitute(turn.trip, {s: a for a, s in axes.items()}))
        axes[Axis(sym.name, extent)] = sym
    return simplify(substitute(made, axes))


def require_in_rounds(cond: Expr, turns: Turns) -> Expr | None:
    """A condition that holds in every round, as one on extents alone, which is true if no round
    runs; None if there is none."""
    of_all = axes_for_turns(cond, turns)
    if of_all == TRUE:
        return of_all
    stated = None if isinstance(of_all, Const) else remove_axes(of_all)
    if stated is None or isinstance(stated, Const):
        return stated if stated == TRUE else None
    if is_implied(stated, ()):
        return TRUE
    for turn in turns.values():
        none = simplify(compare("le", turn.trip, Const(0)))
        if counts_rounds(none, turns):
            return None
        if proves(_while_some(stated, turn.trip)):
            return TRUE
        stated = simplify(Binary("or", none, stated))
    return stated


def _while_some(cond: Expr, trip: Expr) -> Expr:
    """A condition on extents as it is while there are rounds: of one symbol, which is larger."""
    syms = {n for n in leaves(trip) if isinstance(n, Sym)}
    parts = split_linear(trip, *syms) if len(syms) == 1 else None
    if parts is None or parts[0] != Const(1) or not isinstance(parts[1], Const):
        return cond
    (sym,) = syms
    least = max(sym.lo, 1 - parts[1].value)
    return substitute(cond, {sym: replace(sym, lo=least)})


def wrap_index(i: Expr, n: Expr, turns: Turns) -> Expr:
    """An index that counts from the end of an extent where it is negative as one from the start."""
    negative = axes_for_turns(compare("lt", i, Const(0)), turns)
    if isinstance(negative, Const):
        return simplify(i + n) if negative.value else i
    return simplify(Where(compare("lt", i, Const(0)), i + n, i))


def require_inside(i: Expr, n: Expr, turns: Turns) -> tuple[Expr, ...] | None:
    """Conditions on extents alone for index ``i``, counted from the end where it is negative, to
    lie in an extent ``n`` in all rounds; None if there are none."""
    conds = [require_in_rounds(c, turns) for c in (compare("ge", i + n, Const(0)),
                                                   compare("lt", i, n))]
    found = tuple(c for c in conds if c is not None)
    return tuple(c for c in found if not proves(c)) if len(found) == len(conds) else None


__all__ = ["Turn", "Turns", "require_in_rounds", "counts_rounds", "axes_for_turns",
           "require_inside", "simplify_in_rounds", "count_if_some", "wrap_index"]
