"""``precision="auto"``: the products whose operands may be rounded within a budget of error.

    units      products that read one tensor are rounded together; neighbours are joined until as
               few are left as can be tried one by one
    trials     the evaluator runs the Program with some of them rounded, from the first one on
    choice     all of them if that keeps the budget; else those of most gain for their error, as
               many as keep it together: found by halving, each time measured

Errors are measured, gains are the cost model's.  Deterministic for given inputs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aotc.errors import AotcError
from aotc.ir.dtypes import Array, is_float
from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import infer_syms, input_arrays, run_step
from aotc.oracle.shares import share_of_range
from aotc.passes.precision import byte_rows, group_weights, half_columns, narrow_operands
from aotc.passes.rewrites import RULES, apply_rewrites
from aotc.passes.winograd import stages_of
from aotc.sched.dynamic.predict import group_seconds
from aotc.target.base import Target

# of the budget: what is measured on some inputs is more on others
MARGIN = 0.8
# units that are tried one by one, so many operations of the evaluator together: about a minute
LEAST_UNITS, MOST_UNITS, TRIED_FLOPS = 4, 32, 2.4e11
KEPT_BYTES = 1 << 30  # of a run's tensors, so that trials begin at the first rounded product

WEIGHTS = (group_weights.RULE, half_columns.RULE)  # rewrites that round weights alone
ROUNDING = (narrow_operands.RULE, byte_rows.RULE)  # rewrites that round what products read

Feeds = Mapping[str, Array]  # by ONNX name


@dataclass(frozen=True)
class Unit:
    """Products that are rounded together, by the computes they are.  gain: predicted seconds that
    it takes off a call; error: with no other one rounded, of the worst output's range (None: not
    measured, all of them kept the budget together); taken: rounded in the end."""

    computes: tuple[str, ...]
    gain: float
    error: float | None = None
    taken: bool = True

    def __str__(self) -> str:
        alone = "" if self.error is None else f", error {self.error:.2g} alone"
        names = self.computes[0] + (f" and {len(self.computes) - 1} more"
                                    if len(self.computes) > 1 else "")
        return (f"{'rounded' if self.taken else 'f32':8}{names}: saves {self.gain * 1e6:.1f} us"
                f"{alone}")


@dataclass(frozen=True)
class Narrowed:
    """What was found out: the units in program order, the budget, the error of the worst output
    with all of them rounded and with those that are taken, predicted seconds of a call in f32 and
    with those; level: of weights, if they have one of their own."""

    units: tuple[Unit, ...]
    budget: float
    whole: float
    error: float
    exact_seconds: float
    seconds: float
    level: str = ""

    @property
    def taken(self) -> frozenset[str]:
        """The products that are rounded."""
        return frozenset(c for u in self.units if u.taken for c in u.computes)

    @property
    def summary(self) -> str:
        """One line."""
        taken = sum(len(u.computes) for u in self.units if u.taken)
        head = f"weights in {self.level}, " if self.level else ""
        count = sum(len(u.computes) for u in self.units)
        return (f"{head}{taken} of {count} products rounded: error {self.error:.2g} of the range "
                f"(budget {self.budget:.2g}, all of them {self.whole:.2g}), predicted "
                f"{self.seconds * 1e6:.1f} us a call, f32 {self.exact_seconds * 1e6:.1f}")

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"  {u}" for u in self.units)])


class Trials:
    """Errors of a Program with some of its products rounded, against itself with none and f32
    weights.  rewrites: of a Schedule with all of them rounded; feeds: sets of inputs, of which the
    worst counts."""

    def __init__(self, program: Program, rewrites: Sequence[Rewrite],
                 feeds: Sequence[Feeds]) -> None:
        self.wanted = {c: (rule, p) for rule, c, p in rewrites if rule in ROUNDING}
        self.base = replace(apply_rewrites(program, [r for r in rewrites if r[0] not in ROUNDING]),
                            rewrites=())
        self.runs = [self._run(self.base, f, {}) for f in feeds]
        self.feeds = feeds
        exact = [r for r in rewrites if r[0] not in (*ROUNDING, *WEIGHTS)]
        self.exact = self.runs if len(exact) + len(self.wanted) == len(rewrites) else [
            self._run(apply_rewrites(program, exact), f, {}) for f in feeds]
        size = sum(a.nbytes for run in self.runs for a in run.values())
        if size > KEPT_BYTES:
            wanted, whole = self.base.outputs, self.exact is self.runs
            self.runs = [{n: run[n] for n in wanted} for run in self.runs]
            self.exact = self.runs if whole else self.exact

    def error(self, computes: Collection[str]) -> float:
        """Of the worst output's range, with these products rounded."""
        program = self.base
        for c, (rule, parameters) in self.wanted.items():
            if c in computes:
                program = RULES[rule][1](program, c, parameters)
        return max((self._share(self._run(program, f, run), exact)
                    for f, run, exact in zip(self.feeds, self.runs, self.exact)), default=0.0)

    @property
    def least(self) -> float:
        """With none of them: of weights in few bits alone."""
        return 0.0 if self.exact is self.runs else self.error(())

    def _share(self, got: Mapping[str, Array], run: Mapping[str, Array]) -> float:
        worst = 0.0
        for n in self.base.outputs:
            a, b = got[n], run[n]
            if is_float(self.base.dtype(n)):
                worst = max(worst, share_of_range(a, b))
            elif not np.array_equal(a, b):  # a number that is another one
                return float("inf")
        return worst

    def _run(self, program: Program, feeds: Feeds, known: Mapping[str, Array]) -> dict[str, Array]:
        """Every tensor of a run, or the outputs only where some are ``known``: of steps that
        neither are others than the base's nor read what one of those makes."""
        arrays = dict(input_arrays(program, feeds))
        syms = infer_syms(program, arrays, None)
        arrays |= program.consts
        same = set(map(id, self.base.steps)) if known else set()
        last = {b: s for s in program.steps for b in s.inputs}
        other: set[str] = set()
        for step in program.steps:
            if id(step) in same and not other.intersection(step.inputs) and all(
                    o in known for o in step.outs):
                arrays |= {o: known[o] for o in step.outs}
                continue
            other.update(step.outs)
            arrays |= zip(step.outs, run_step(program, step, arrays, syms, {}))
            for b in set(step.inputs) if known else ():
                if last[b] is step and b not in program.outputs:
                    del arrays[b]
        return arrays


Level = tuple[str, Callable[[Collection[str] | None], Schedule]]  # its name, as ``choose_within``


def best_within(program: Program, target: Target, feeds: Sequence[Feeds], budget: float,
                work: float, levels: Sequence[Level]) -> tuple[Schedule, Narrowed]:
    """``choose_within`` of the level that is predicted to take least time among those that keep
    the budget, the first one in any case.  Errors are measured of a level only if all of it would
    be faster than the best so far."""
    best = choose_within(program, target, feeds, budget, work, levels[0][1])
    syms = infer_syms(program, input_arrays(program, feeds[0]), None)
    for name, decided in levels[1:]:
        low = decided(None)
        rounds = any(rule in (*WEIGHTS, byte_rows.RULE) for rule, *_ in low.rewrites)
        if not rounds or sum(group_seconds(program, low, target, syms).values()) >= (
                best[1].seconds):
            continue
        found = choose_within(program, target, feeds, budget, work, decided)
        if found[1].error <= MARGIN * budget and found[1].seconds < best[1].seconds:
            best = found[0], replace(found[1], level=name, exact_seconds=best[1].exact_seconds)
    return best


def choose_within(program: Program, target: Target, feeds: Sequence[Feeds], budget: float,
                  work: float, decided: Callable[[Collection[str] | None], Schedule]
                  ) -> tuple[Schedule, Narrowed]:
    """The Schedule whose products are rounded as far as every output stays within ``budget`` of its
    range, and why.  feeds: sets of inputs to measure on; work: operations of the evaluator for one;
    decided(products): the Schedule with only these rounded, None: all that gain."""
    low, exact = decided(None), decided(())
    names = [c for rule, c, _ in low.rewrites if rule in ROUNDING]
    trials = Trials(program, low.rewrites, feeds)
    syms = infer_syms(program, input_arrays(program, feeds[0]), None)
    before = group_seconds(program, exact, target, syms)
    after = group_seconds(program, low, target, syms)
    units = _gains(program, _units(trials.base, names), exact, low, before, after)
    whole = error = trials.error(names)
    if whole > MARGIN * budget:
        most = int(min(MOST_UNITS, max(LEAST_UNITS, TRIED_FLOPS / max(1.0, work))))
        units = tuple(replace(u, error=trials.error(u.computes)) for u in _joined(units, most))
        units, error = _taken(units, trials, MARGIN * budget)
    kept = frozenset(c for u in units if u.taken for c in u.computes)
    schedule = low if len(kept) == len(names) else decided(kept)
    seconds = sum(group_seconds(program, schedule, target, syms).values())
    return schedule, Narrowed(units, budget, whole, error, sum(before.values()), seconds)


def _units(program: Program, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Products by the tensor they read, in program order."""
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        c = program.producer[name]
        buffer = _rows_of(program, c) if isinstance(c, Compute) else None
        if buffer is None:
            raise AotcError(f"precision auto: {name} is no product of the rewritten program")
        found[buffer] = (*found.get(buffer, ()), name)
    return tuple(found.values())


def _rows_of(program: Program, c: Compute) -> str | None:
    """The tensor that a product reads as rows; None if it is none that may be rounded."""
    grouped = byte_rows.match_rows(program, c)
    if grouped is not None:
        return grouped[0].buffer
    m = narrow_operands.match_product(program, c)
    return None if m is None else m.rows.buffer


def _gains(program: Program, units: Sequence[tuple[str, ...]], exact: Schedule, low: Schedule,
           before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Unit, ...]:
    """Units with the seconds by which the groups that hold their products differ; a group that
    holds several counts for each in equal parts.  program: without rewrites."""
    wanted = [c for u in units for c in u]

    def seconds(schedule: Schedule, by_group: Mapping[str, float]) -> dict[str, float]:
        made = apply_rewrites(program, schedule.rewrites)
        forms = {c: {s.out for s in stages_of(made, c)} for rule, c, _ in schedule.rewrites
                 if rule == "winograd"}
        found = dict.fromkeys(wanted, 0.0)
        for g in schedule.groups:
            here = [c for c in wanted if forms.get(c, {c}).intersection(g.computes)]
            for c in here:
                found[c] += by_group[g.name] / len(here)
        return found

    slow, fast = seconds(exact, before), seconds(low, after)
    return tuple(Unit(u, sum(slow[c] - fast[c] for c in u)) for u in units)


def _joined(units: Sequence[Unit], most: int) -> tuple[Unit, ...]:
    """At most so many units: the two neighbours that gain least are joined first."""
    out = list(units)
    while len(out) > most:
        i = min(range(len(out) - 1), key=lambda i: out[i].gain + out[i + 1].gain)
        a, b = out[i:i + 2]
        out[i:i + 2] = [Unit(a.computes + b.computes, a.gain + b.gain)]
    return tuple(out)


def _taken(units: Sequence[Unit], trials: Trials, budget: float) -> tuple[tuple[Unit, ...], float]:
    """(units with those taken that gain most for their error and keep the budget together, the
    error of those)."""
    order = sorted((i for i, u in enumerate(units) if u.gain > 0 and (u.error or 0.0) <= budget),
                   key=lambda i: (units[i].error or 0.0) / units[i].gain)
    low, high, error = 0, len(order) + 1, trials.least  # so many keep it; so many are too many
    while high - low > 1:
        middle = (low + high) // 2
        found = trials.error([c for i in order[:middle] for c in units[i].computes])
        low, high, error = (middle, high, found) if found <= budget else (low, middle, error)
    kept = set(order[:low])
    return tuple(replace(u, taken=i in kept) for i, u in enumerate(units)), error


__all__ = ["MARGIN", "Narrowed", "Trials", "Unit", "best_within", "choose_within"]
