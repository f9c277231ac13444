"""``precision="auto"``: how far the operands of products may be rounded within a budget of error.

    lots       products that read one tensor are rounded together; neighbours are joined until as
               few are left as can be tried one by one
    offers     of a lot, by level: the predicted gain; what gains no more than a level that rounds
               less is none
    trials     the evaluator runs the Program with some of them, from the first rounded product on
    choice     what gains most if that keeps the budget; else a price of errors: every lot takes
               what gains most beyond the price of its error, at the least price at which all
               together keep the budget, found by halving, each time measured

Errors are measured, gains are the cost model's.  Deterministic for given inputs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import infer_syms, input_arrays
from aotc.passes.precision import integer_rows, narrow_operands
from aotc.passes.precision.rounding_table import ROUNDING
from aotc.passes.rewrites import RULES, apply_rewrites
from aotc.passes.sums import join_columns
from aotc.sched.cost.predict import group_seconds
from aotc.sched.precision.levels import ROUNDS, Level, Levels, uniform_levels
from aotc.sched.precision.offers import Lot, Offer, join_lots, lots_of, seconds_of
from aotc.sched.precision.trials import Feeds, Trials
from aotc.target.base import Target

# of the budget: what is measured on some inputs is more on others
MARGIN = 0.8
# lots that are left at least, and trials of single offers, so many operations of the evaluator
# together at most: about a minute
LEAST_LOTS, MOST_TRIALS, TRIED_FLOPS = 4, 32, 2.4e11

Decided = Callable[[Levels], Schedule]  # with these products rounded
Offers = Mapping[str, Offer]  # of single products


@dataclass(frozen=True)
class Narrowed:
    """What was found out: the lots in program order, the budget, the error of the worst output
    with all that gains most and with what is taken, predicted seconds of a call in f32 (of weights
    of few bits: with all rows in f32) and with that, the products that one product joins."""

    lots: tuple[Lot, ...]
    budget: float
    whole: float
    error: float
    exact_seconds: float
    seconds: float
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def levels(self) -> Levels:
        """Of the products that are rounded."""
        return {c: level for u in self.lots for one, level in u.levels.items()
                for c in self._products(one)}

    def _products(self, one: str) -> tuple[str, ...]:
        return self.joined.get(one, (one,))

    @property
    def summary(self) -> str:
        """One line."""
        found = Counter(map(str, self.levels.values()))
        each = ", ".join(f"{n} {level}" for level, n in found.items())
        count = sum(len(self._products(c)) for u in self.lots for c in u.computes)
        return (f"{found.total()} of {count} products rounded" + (f" ({each})" if each else "")
                + f": error {self.error:.2g} of the range (budget {self.budget:.2g}, all that "
                f"gains {self.whole:.2g}), predicted {self.seconds * 1e6:.1f} us a call, f32 "
                f"{self.exact_seconds * 1e6:.1f}")

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"  {u}" for u in self.lots)])


def choose_within(program: Program, target: Target, feeds: Sequence[Feeds], budget: float,
                  work: float, levels: Sequence[Level], decided: Decided
                  ) -> tuple[Schedule, Narrowed]:
    """The Schedule whose products are rounded as far as every output stays within ``budget`` of its
    range, and why.  feeds: sets of inputs to measure on; work: operations of the evaluator for one;
    levels: what is offered, the least rounded first; decided({}): the Schedule with nothing taken
    of that, whose own roundings count as errors."""
    plain = decided({})
    lows = {level: decided(uniform_levels(program, level)) for level in levels}
    trials = _trials(program, plain, list(lows.values()), feeds)
    syms = infer_syms(program, input_arrays(program, feeds[0]), None)
    more = {level: _more(low, plain) for level, low in lows.items()}
    names = {name for rewrites in more.values() for name in rewrites}

    def seconds(schedule: Schedule) -> tuple[dict[str, float], float]:
        """(predicted seconds of every product, of a call)."""
        by_group = group_seconds(program, schedule, target, syms)
        made = apply_rewrites(program, schedule.rewrites)
        return seconds_of(names, schedule, made, by_group), sum(by_group.values())

    before, exact_seconds = seconds(plain)
    offers = [_offers(trials.base, level, more[level], before, seconds(low)[0])
              for level, low in lows.items()]
    lots = lots_of(_rows(trials.base, offers), before, offers)
    lots, whole, error = _taken(lots, trials, MARGIN * budget, TRIED_FLOPS / max(1.0, work))
    joined = {f"{c}_joined": (c, *p["with"]) for rule, c, p in plain.rewrites
              if rule == join_columns.RULE}
    found = Narrowed(lots, budget, whole, error, exact_seconds, 0.0, joined)
    schedule = decided(found.levels)
    taken = seconds(schedule)[1]
    if taken > exact_seconds:  # copies that round cost more than products gain
        lots = tuple(replace(u, taken=None) for u in lots)
        return plain, replace(found, lots=lots, error=trials.error(()), seconds=exact_seconds)
    return schedule, replace(found, seconds=taken)


def _trials(program: Program, plain: Schedule, lows: Sequence[Schedule],
            feeds: Sequence[Feeds]) -> Trials:
    """Trials on the form of the Program that most products may be rounded in: with the fewest
    Winograd forms, which are f32."""
    def offered(low: Schedule) -> tuple[int, int]:
        rules = [rule for rule, *_ in low.rewrites]
        return -rules.count("winograd"), sum(rule in ROUNDING for rule in rules)

    widest = max(lows, key=offered)
    form = [r for r in widest.rewrites if r[0] not in ROUNDS]
    own = [r for r in plain.rewrites if r[0] in ROUNDING]
    exact = replace(apply_rewrites(program, form), rewrites=())
    base = replace(apply_rewrites(program, [*form, *own]), rewrites=()) if own else exact
    return Trials(base, exact, feeds)


def _more(low: Schedule, plain: Schedule) -> dict[str, tuple[Rewrite, ...]]:
    """{product: the rewrites that round it in one Schedule and are not in the other}."""
    found: dict[str, tuple[Rewrite, ...]] = {}
    for r in low.rewrites:
        if r[0] in ROUNDING and r not in plain.rewrites:
            found[r[1]] = (*found.get(r[1], ()), r)
    return found


def _offers(base: Program, level: Level, rewrites: Mapping[str, tuple[Rewrite, ...]],
            before: Mapping[str, float], after: Mapping[str, float]) -> Offers:
    """Of the products that the Program of the trials has in a form to be rounded."""
    def fits(name: str, first: Rewrite) -> bool:
        return name in base.producer and not RULES[first[0]][0](base, name, first[2])

    return {name: Offer(level, found, before[name] - after[name])
            for name, found in rewrites.items() if fits(name, found[0])}


def _rows(base: Program, offers: Iterable[Offers]) -> dict[str, str]:
    """{product that may be rounded: the tensor that it reads as rows}, in program order; itself, if
    its rows are no tensor."""
    names = frozenset(name for level in offers for name in level)
    return {s.outs[0]: _rows_of(base, s) or s.outs[0] for s in base.steps
            if isinstance(s, Compute) and s.outs[0] in names}


def _rows_of(program: Program, c: Compute) -> str | None:
    grouped = integer_rows.match_rows(program, c)
    if grouped is not None:
        return grouped[0].buffer
    m = narrow_operands.match_product(program, c)
    return None if m is None else m.rows.buffer


def _taken(lots: tuple[Lot, ...], trials: Trials, budget: float,
           most: float) -> tuple[tuple[Lot, ...], float, float]:
    """(lots with what is taken, the error of all that gains most, that of what is taken).
    most: trials of single offers."""
    best = tuple(replace(u, taken=u.offers[-1]) if u.offers else u for u in lots)
    whole = trials.error(_rewrites(best))
    if whole <= budget:
        return best, whole, whole
    lots = tuple(replace(u, offers=tuple(
        replace(o, error=trials.error(o.rewrites)) for o in u.offers))
        for u in join_lots(lots, LEAST_LOTS, int(min(MOST_TRIALS, most))))
    choices = list(dict.fromkeys(
        tuple(_at_price(u, price, budget) for u in lots) for price in _prices(lots)))
    low, high, error = -1, len(choices), trials.error(())  # this one keeps it; that is too much
    while high - low > 1:
        middle = (low + high) // 2
        found = trials.error(_rewrites(_with(lots, choices[middle])))
        low, high, error = (middle, high, found) if found <= budget else (low, middle, error)
    return _with(lots, choices[low]) if low >= 0 else lots, whole, error


def _prices(lots: Sequence[Lot]) -> list[float]:
    """Prices of errors, in seconds, at which some lot takes another offer, the highest first: just
    below those at which two of its choices are worth the same."""
    found = set()
    for u in lots:
        points = [(0.0, 0.0), *((o.gain, o.error or 0.0) for o in u.offers)]
        found |= {(a[0] - b[0]) / (a[1] - b[1]) for a, b in combinations(points, 2)
                  if a[1] != b[1]}
    top = max(found, default=0.0)
    return [2 * top + 1.0, *(p * (1 - 1e-9) for p in sorted(found, reverse=True) if p > 0)]


def _at_price(u: Lot, price: float, budget: float) -> Level | None:
    """The level that a lot takes at a price: what gains most beyond it, if anything does."""
    def worth(o: Offer) -> float:
        return o.gain - price * (o.error or 0.0)

    best = max((o for o in u.offers if (o.error or 0.0) <= budget), key=worth, default=None)
    return best.level if best is not None and worth(best) > 0 else None


def _with(lots: Sequence[Lot], levels: Sequence[Level | None]) -> tuple[Lot, ...]:
    """Lots that take these levels."""
    return tuple(replace(u, taken=next((o for o in u.offers if o.level == level), None))
                 for u, level in zip(lots, levels, strict=True))


def _rewrites(lots: Sequence[Lot]) -> list[Rewrite]:
    return [r for u in lots if u.taken is not None for r in u.taken.rewrites]


__all__ = ["MARGIN", "Narrowed", "choose_within"]
