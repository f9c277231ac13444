"""Predicted seconds of a candidate: analytic cost times a learned correction.

The correction is gradient boosting (scikit-learn) on log(measured / analytic), over features that
know no names: terms of the cost, padding, strides, operand modes, sizes of tiles.  It is fitted
anew from all records with a fixed seed, so the same records give the same predictions.  Without
records, or without scikit-learn, it is 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aotc.ir.access import layout_from_json, offset_of, stride
from aotc.ir.category import zero_filled
from aotc.ir.dtypes import Array
from aotc.ir.expr import Const, axes_of
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.cost.decided import decided_cost
from aotc.sched.cost.group_cost import Cost
from aotc.sched.judge.text_choice_cost import written_seconds
from aotc.sched.model.digit_stage import loop_stage
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import GroupModel
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage, factors_for, group_stages, stage_category
from aotc.target.base import Target
from aotc.target.kernel_rows import KernelRow, ProductRow
from aotc.tuner.measure.records import Record
from aotc.tuner.space.trial import Candidate

CATEGORIES = ("contraction", "window", "reduction", "map", "move", "transform", "loops")
LEAST = 24  # records before the correction says anything
TREES = {"n_estimators": 80, "max_depth": 4, "learning_rate": 0.1, "subsample": 0.7}


@dataclass(frozen=True)
class Estimate:
    """``seconds``: analytic; ``features``: a tuple of floats, the same length always."""

    seconds: float
    features: tuple[float, ...]


class Estimator:
    """Estimates of candidates on one target.  free: as for ``group_cost``, by buffer names of the
    whole model."""

    def __init__(self, target: Target, free: Sequence[frozenset[str]] = ()) -> None:
        self.target, self.free = target, free
        self.known: dict[Any, Any] = {}

    def estimate(self, candidate: Candidate) -> Estimate:
        """The Estimate of a Candidate: seconds of all its kernels, features of the longest."""
        parts = [self._group(candidate, g) for g in candidate.groups]
        longest = max(parts, key=lambda p: p.seconds)
        total = sum(p.seconds for p in parts)
        return Estimate(total, longest.features + (float(len(parts)), log(
            total / longest.seconds)))

    def _group(self, candidate: Candidate, g: Group) -> Estimate:
        key = id(candidate.program), g.computes, tuple(sorted(g.connect.items()))
        if key not in self.known:
            # the program stays alive with its key
            self.known[key] = (candidate.program, group_stages(candidate.program, g),
                               group_model(candidate.program, g, tuning=self.target.tuning))
        _, stages, model = self.known[key]
        item = model.variables(g.tile)
        cost = decided_cost(model, stages, g, self.target, self.free)
        cost = replace(cost, seconds=cost.seconds + written_seconds(
            candidate.program, self.target, g, candidate.layouts))
        heavy = max(stages, key=lambda s: estimate_volume(a.extent for a in s.axes + s.raxes))
        return Estimate(cost.seconds, (
            *_terms(cost), log(model.tiles(item)), float(len(stages)),
            log(1 + sum(n for b, n, _, _ in model.lifetimes(item) if b in model.scratch)),
            *self._tile(g, stages, model), *self._stage(candidate, g, heavy),
            *self._block(g, heavy)))

    def _tile(self, g: Group, stages: Sequence[Stage], model: GroupModel) -> tuple[float, ...]:
        """Extents of the work item: along the lanes, of everything else, and what comes first."""
        anchor = stages[model.anchor]
        lane = g.choice(anchor.name).lanes
        size = {a.name: min(g.tile.get(a.name, 1 << 60), estimate(a.extent)) for a in anchor.axes}
        others = prod(n for a, n in size.items() if a != lane)
        return (log(size.get(lane, 1)), log(others), float(bool(g.parallel[:1] == (lane,))),
                log(size[anchor.axes[-1].name]) if anchor.axes else 0.0)

    def _stage(self, candidate: Candidate, g: Group, s: Stage) -> tuple[float, ...]:
        """What the longest stage looks like to its micro-kernel."""
        row, choice = self.target.row(g.choices[s.name].row), g.choice(s.name)
        s = loop_stage(s, choice)
        lane = next((a for a in s.axes + s.raxes if a.name == choice.lanes), None)
        unit = far = 0
        for load in s.loads():
            step = None if lane is None else stride(offset_of(
                load.index, candidate.program.shape(load.buffer),
                layout_from_json(candidate.layouts.get(load.buffer))), lane)
            moving = lane is not None and lane in {x for i in load.index for x in axes_of(i)}
            unit += moving and step == Const(1)
            far += moving and step != Const(1)
        kind = row.category if row.category in ("transform", "loops") else stage_category(s)
        n = estimate(lane.extent) if lane is not None else 1
        lanes = row.tile.nr if isinstance(row, ProductRow) else self.target.lanes
        return (*(float(kind == c) for c in CATEGORIES), float(unit), float(far),
                -(-n // lanes) * lanes / n, log(n), float(bool(choice.block)),
                log(estimate_volume(a.extent for a in s.raxes)), *self._contraction(s, row, choice))

    def _block(self, g: Group, s: Stage) -> tuple[float, ...]:
        """How the threads of a block compute its longest stage; () on machines without blocks."""
        if not self.target.machine.threads:
            return ()
        row, said = self.target.row(g.choices[s.name].row), g.choice(s.name).said
        shared = row.shared if isinstance(row, ProductRow) else None
        usual = 0 if row.staging is None else row.staging.usual
        return (log(max(1, g.threads)), log(shared.teams if shared else 1),
                log((row.rate if isinstance(row, ProductRow) else None) or 1.0),
                float(said.get("stages", usual)),
                *(float(said.get(f"{x}_fetch") == "value") for x in "ab"),
                *(log(float(said.get(n, 1))) for n in (
                    "a_width", "b_width", "team", "neighbours")))

    def _contraction(self, s: Stage, row: KernelRow, choice: StageChoice) -> tuple[float, ...]:
        if not isinstance(row, ProductRow) or row.category != "contraction":
            return (0.0,) * 8
        f = factors_for(s, choice.lanes)
        m = estimate_volume(a.extent for a in f.m)
        k = next(estimate(r.extent) for r in f.k if r.name == choice.k)
        guard = zero_filled(f.a)[1]
        mr = row.tile.mr
        return (float(mr), float(row.tile.nr), -(-m // mr) * mr / m, log(m), log(k),
                float(choice.a == "rows"), float(choice.b == "panel"),
                float(guard is not None))


def _terms(cost: Cost) -> tuple[float, ...]:
    levels = [log(s + 1e-9) for _, s, _ in cost.levels[:2]]
    return (log(cost.seconds), log(cost.compute + 1e-9), *levels, *([0.0] * (2 - len(levels))),
            cost.util, cost.recompute, log(cost.launch + 1e-9))


# ---------------------------------------------------------------- the correction

class Correction:
    """Factor on analytic seconds, from records.  ``seed`` fixes the trees."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.trees = seed, None

    def fit(self, records: Iterable[Record]) -> None:
        """Fit to Records that have a time; nothing changes with fewer than LEAST of them."""
        rows = [(r.features, log(r.seconds / r.analytic)) for r in records
                if r.seconds and r.analytic]
        if len(rows) < LEAST:
            return
        try:
            from sklearn.ensemble import GradientBoostingRegressor
        except ImportError:
            return
        trees = GradientBoostingRegressor(random_state=self.seed, **TREES)
        self.trees = trees.fit(*(np.array(x) for x in zip(*rows)))

    def seconds(self, estimates: Sequence[Estimate | Record]) -> Array:
        """Predicted seconds of every Estimate (or Record)."""
        plain = np.array([getattr(e, "analytic", None) or e.seconds for e in estimates])
        if self.trees is None or not len(estimates):
            return plain
        return plain * np.exp(self.trees.predict(np.array([e.features for e in estimates])))


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation of two sequences, ties at their mean rank; 0 if one of them has
    no order."""
    a, b = _ranks(a), _ranks(b)
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: ArrayLike) -> Array:
    _, place, counts = np.unique(np.asarray(values, float), return_inverse=True,
                                 return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def correlate_held_back(records: Iterable[Record], seed: int = 0,
                        folds: int = 5) -> tuple[float, float, int]:
    """(before, after, sites): mean over sites of the rank correlation between predicted and
    measured seconds, without and with a correction that has never seen the site."""
    rows = [(r, r.seconds) for r in records if r.seconds and r.analytic]
    sites = sorted({r.site for r, _ in rows})
    order = np.random.default_rng(seed).permutation(len(sites))
    before, after = [], []
    for fold in range(folds):
        out = {sites[i] for i in order[fold::folds]}
        correction = Correction(seed)
        correction.fit([r for r, _ in rows if r.site not in out])
        for site in sorted(out):
            mine = [r for r, _ in rows if r.site == site]
            if len(mine) >= 4:
                measured = [seconds for r, seconds in rows if r.site == site]
                before.append(rank_correlation([r.analytic for r in mine], measured))
                after.append(rank_correlation(correction.seconds(mine), measured))
    if not before:
        return 0.0, 0.0, 0
    return float(np.mean(before)), float(np.mean(after)), len(before)


__all__ = ["Correction", "Estimate", "Estimator", "correlate_held_back", "rank_correlation"]
