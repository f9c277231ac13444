"""What rounding a model's products offers: of every lot of products, by level, the predicted gain
and the measured error."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aotc.ir.program import Program, Rewrite
from aotc.ir.schedule import Schedule
from aotc.passes.precision import integer_rows
from aotc.passes.sums import join_columns, split_k, split_keys
from aotc.passes.winograd import stages_of
from aotc.sched.precision.levels import LEVELS, Level, Levels


@dataclass(frozen=True)
class Offer:
    """What a Level gives the products of a lot that it is for: the rewrites, predicted seconds
    that they take off a call, and the error with nothing else rounded, of the worst output's range
    (None: not measured, all of them kept the budget together)."""

    level: Level
    rewrites: tuple[Rewrite, ...]
    gain: float
    error: float | None = None

    def __str__(self) -> str:
        alone = "" if self.error is None else f", error {self.error:.2g} alone"
        return f"{self.level} saves {self.gain * 1e6:.1f} us{alone}"

    @property
    def computes(self) -> frozenset[str]:
        """The products that are rounded."""
        return frozenset(c for _, c, _ in self.rewrites)


@dataclass(frozen=True)
class Lot:
    """Products that are rounded together, by the computes they are, in program order, with their
    seconds in f32, what they are offered, the least rounded first, and what is ``taken`` of it."""

    computes: tuple[str, ...]
    seconds: float
    offers: tuple[Offer, ...]
    taken: Offer | None = None

    @property
    def levels(self) -> Levels:
        """Of the products that are rounded."""
        return {} if self.taken is None else dict.fromkeys(
            sorted(self.taken.computes), self.taken.level)

    def __str__(self) -> str:
        more = f" and {len(self.computes) - 1} more" if len(self.computes) > 1 else ""
        level = "f32" if self.taken is None else str(self.taken.level)
        offers = "; ".join(map(str, self.offers)) or "nothing is gained"
        return f"{level:14} {self.computes[0]}{more}: f32 {self.seconds * 1e6:.1f} us; {offers}"


def lots_of(rows: Mapping[str, str], before: Mapping[str, float],
             offers: Iterable[Mapping[str, Offer]]) -> tuple[Lot, ...]:
    """Products by the tensor that they read as ``rows``, in its order.  before: seconds of each in
    f32; offers: of each level, of single products."""
    found: dict[str, list[str]] = {}
    for name, buffer in rows.items():
        found.setdefault(buffer, []).append(name)
    levels = list(offers)
    return tuple(Lot(tuple(names), sum(before[n] for n in names), _worthwhile(
        _together([level[n] for n in names if n in level]) for level in levels
        if not level.keys().isdisjoint(names))) for names in found.values())


def join_lots(lots: Sequence[Lot], least: int, most: int) -> tuple[Lot, ...]:
    """Lots of at most so many offers together, but not fewer than ``least``: the two neighbours
    that gain least are joined first."""
    out = list(lots)
    while len(out) > least and sum(len(u.offers) for u in out) > most:
        gains = [max((o.gain for o in u.offers), default=0.0) for u in out]
        i = min(range(len(out) - 1), key=lambda i: gains[i] + gains[i + 1])
        a, b = out[i:i + 2]
        levels = sorted({o.level for o in (*a.offers, *b.offers)}, key=LEVELS.index)
        out[i:i + 2] = [Lot(a.computes + b.computes, a.seconds + b.seconds, _worthwhile(
            _together([o for o in (*a.offers, *b.offers) if o.level == level])
            for level in levels))]
    return tuple(out)


def seconds_of(names: Iterable[str], schedule: Schedule, made: Program,
               by_group: Mapping[str, float]) -> dict[str, float]:
    """Seconds of computes by those of the groups that hold them or what they became; a group that
    holds several counts for each in equal parts.  made: the Program with the Schedule's
    rewrites."""
    became = _made_of(schedule, made)
    found = dict.fromkeys(names, 0.0)
    for g in schedule.groups:
        here = [c for c in found if became.get(c, {c}).intersection(g.computes)]
        for c in here:
            found[c] += by_group[g.name] / len(here)
    return found


def _made_of(schedule: Schedule, made: Program) -> dict[str, set[str]]:
    """{compute: the computes that the rewrites of a Schedule made of it}, where there are several,
    or it is part of another."""
    found: dict[str, set[str]] = {}
    for rule, c, p in reversed(schedule.rewrites):  # what is made of a part first
        if rule == "winograd":
            found[c] = {s.out for s in stages_of(made, c)}
        elif rule == join_columns.RULE:
            whole = f"{c}_joined"
            found |= dict.fromkeys((c, *p["with"]), found.get(whole, {whole}))
        elif rule in (integer_rows.RULE, split_k.RULE):
            parts = set(made.producer[c].inputs)
            found[c] = {c}.union(found.get(c, ()), parts, *(found.get(b, ()) for b in parts))
        elif rule == split_keys.RULE:  # and what is made in parts
            parts = set(made.producer[c].inputs)
            found[c] = {c}.union(parts, *(made.producer[b].inputs for b in parts))
    return found


def _together(offers: Sequence[Offer]) -> Offer:
    """Several offers of one level as one."""
    return Offer(offers[0].level, tuple(r for o in offers for r in o.rewrites),
                 sum(o.gain for o in offers))


def _worthwhile(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Those that gain more than f32 and all before them, which are rounded less."""
    out: list[Offer] = []
    for o in offers:
        if o.gain > max((x.gain for x in out), default=0.0):
            out.append(o)
    return tuple(out)


__all__ = ["Offer", "Lot", "join_lots", "seconds_of", "lots_of"]
