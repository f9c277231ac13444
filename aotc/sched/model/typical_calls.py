"""The calls that a bundle is decided for: spread over the ranges of symbols, or observed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.expr import Binary, Const, Expr, Sym, substitute, walk
from aotc.ir.program import Program
from aotc.ir.schedule import When
from aotc.ir.simplify import simplify
from aotc.json_text import read_json

POINTS = {1: 9, 2: 5, 3: 3}  # values of each symbol, by how many symbols there are
SHARE = "share"  # of a call that was seen: how often, beside the others
FEW = 2  # of each of more symbols
BETWEEN = 24  # calls between the others, at most
SPLIT, SPLIT_AGAIN = 4, 64  # of so large a factor a range has a small half, a third


@dataclass(frozen=True)
class TypicalCall:
    """``extents``: of every symbol of the Program; ``share``: how likely the call is, beside the
    others'."""

    extents: dict[str, int]
    share: float = 1.0

    def inside(self, when: When) -> bool:
        """True if a variant for these extents serves the call."""
        return all(lo <= self.extents[n] and (hi is None or self.extents[n] <= hi)
                   for n, (lo, hi) in when.items())


def is_allowed(program: Program, extents: Mapping[str, int]) -> bool:
    """True if a call with these extents passes the Program's checks."""
    values = {s: Const(extents[s.name]) for s in program.syms}
    return all(simplify(substitute(c.cond, values)) != Const(False, "bool")
               for c in program.checks)


def listed_extents(program: Program, sym: Sym) -> tuple[int, ...]:
    """The extents of a symbol if a check lists all that there are, else ()."""
    for check in program.checks:
        found = _listed(check.cond, sym)
        if len(found) > 1:
            return tuple(sorted(found))
    return ()


def _listed(cond: Expr, sym: Sym) -> list[int]:
    """The numbers of ``sym == a or sym == b or ..``; [] for other conditions."""
    if isinstance(cond, Binary) and cond.op == "or":
        a, b = _listed(cond.a, sym), _listed(cond.b, sym)
        return a + b if a and b else []
    if isinstance(cond, Binary) and cond.op == "eq" and cond.a == sym and isinstance(
            cond.b, Const):
        return [cond.b.value]
    return []


def ladder(sym: Sym, count: int) -> tuple[int, ...]:
    """At most ``count`` values of a symbol, from one end of its range to the other, each about the
    same factor larger than the one before."""
    lo, hi = max(sym.lo, 1), max(sym.reach, sym.lo, 1)
    steps = max(1, count - 1)
    return tuple(sorted({round(lo * (hi / lo) ** (i / steps)) for i in range(steps + 1)}))


def spread_calls(program: Program) -> tuple[TypicalCall, ...]:
    """Calls spread over the ranges of all symbols, those that the Program's checks let in; all are
    as likely."""
    count = POINTS.get(len(program.syms), FEW)
    rows = product(*(listed_extents(program, s) or ladder(s, count) for s in program.syms))
    found = (dict(zip((s.name for s in program.syms), row)) for row in rows)
    return tuple(TypicalCall(extents) for extents in found if is_allowed(program, extents))


def calls_between(program: Program) -> tuple[TypicalCall, ...]:
    """A few calls between those of ``spread_calls``, to see what holds there, too."""
    count = 2 * POINTS.get(len(program.syms), FEW) - 1
    rows = product(*(listed_extents(program, s) or ladder(s, count) for s in program.syms))
    known = [c.extents for c in spread_calls(program)]
    found = [e for row in rows if (e := dict(zip((s.name for s in program.syms), row))) not in known
             and is_allowed(program, e)]
    return tuple(TypicalCall(e) for e in found[::max(1, -(-len(found) // BETWEEN))])


def read_samples(given: Any, names: Mapping[str, str]) -> list[tuple[dict[str, int], float]]:
    """[({symbol: extent}, share)] of what was seen: a list of {dimension: extent}, with a "share"
    if they differ in how often they come, or the path of a JSON file with such a list; None is
    none.  ``names``: the symbols of the model's dimensions.  ScheduleError for anything else."""
    if isinstance(given, (str, Path)):
        try:
            given = read_json(Path(given).read_text())
        except (OSError, ValueError) as err:
            raise ScheduleError(f"observed shapes {given}: cannot be read: {err}") from None
    if given is None:
        return []
    rows = given
    if isinstance(rows, (list, tuple)) and not rows:
        raise ScheduleError("observed shapes: none are given; leave them out to spread calls")
    out = []
    for row in rows if isinstance(rows, (list, tuple)) else [rows]:
        if not isinstance(row, Mapping) or not all(
                isinstance(v, int | float if n == SHARE else int) and not isinstance(v, bool)
                for n, v in row.items()):
            raise ScheduleError(f"observed shapes: {str(row)[:80]}; write a list of "
                                '{"dimension": extent}, with a "share" if some come more often')
        share = float(row.get(SHARE, 1.0))
        if not 0 < share < float("inf"):
            raise ScheduleError(f"observed shapes: a share of {share}; it is above 0")
        out.append(({names.get(n, n): v for n, v in row.items() if n != SHARE}, share))
    return out


def observed_calls(program: Program,
                   samples: Sequence[tuple[Mapping[str, int], float]]) -> tuple[TypicalCall, ...]:
    """Calls with the extents that were seen, and how often.  ScheduleError for extents that the
    Program does not allow, or that leave a symbol out."""
    out, faults = [], []
    for extents, share in samples:
        for s in program.syms:
            n = extents.get(s.name)
            if n is None or n < s.lo or s.hi is not None and n > s.hi:
                faults.append(f"observed shapes: {s.name} = {n}; it has {s.range}")
        unknown = sorted(set(extents) - {s.name for s in program.syms})
        faults += [f"observed shapes: no dimension {n!r}; choose from "
                   + ", ".join(s.name for s in program.syms) for n in unknown]
        out.append(TypicalCall(dict(extents), share))
    if not faults:
        rules = "; ".join(k.why for k in program.checks)
        faults = [f"observed shapes: {c.extents}: no call of this model has them: {rules}"
                  for c in out if not is_allowed(program, c.extents)]
    if faults:
        raise ScheduleError(list(dict.fromkeys(faults)))
    return tuple(out)


def usual_extents(program: Program, calls: Sequence[TypicalCall]) -> dict[str, int]:
    """{symbol: the extent that half of the calls do not exceed}, by their shares."""
    half, out = sum(c.share for c in calls) / 2, {}
    for s in program.syms:
        below = 0.0
        for n, share in sorted((c.extents[s.name], c.share) for c in calls):
            below += share
            if below >= half:
                out[s.name] = n
                break
    return out


def small_regime(program: Program) -> When | None:
    """The extents that may want a Schedule of their own: the small ones of those symbols whose
    range is largest, by its factor, together; where buffers grow, calls that put one entry into
    one.  What lies there may be long or short.  None: no range is wide."""
    grown = {n.name for a in program.aliases for n in walk(a.kept + program.shape(a.past)[a.axis])
             if isinstance(n, Sym)}
    new = {simplify(a.filled - a.kept) for a in program.aliases}
    single: When = {s.name: (1, 1) for s in program.syms if s in new and s.lo <= 1}
    return single or _small_extents([s for s in program.syms if s.name not in grown])


def _small_extents(syms: Sequence[Sym]) -> When | None:
    factor = {s.name: max(s.reach, 1) / max(s.lo, 1) for s in syms}
    largest = max(factor.values(), default=1.0)
    if largest < SPLIT:
        return None
    count = 3 if largest >= SPLIT_AGAIN else 2
    ends = {s.name: ladder(s, count + 1) for s in syms if factor[s.name] ** 2 >= largest}
    return {n: (e[0], e[1]) for n, e in ends.items() if len(e) == count + 1} or None


__all__ = ["TypicalCall", "is_allowed", "calls_between", "ladder", "observed_calls", "read_samples",
           "small_regime", "spread_calls", "usual_extents"]
