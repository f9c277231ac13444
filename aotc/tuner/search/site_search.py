"""The search inside one site: which candidates to measure next, and what is best so far."""

from collections.abc import Collection, Iterable, Sequence
from math import exp, log
from random import Random
from typing import Any

from aotc.target.base import Target
from aotc.tuner.measure.records import Record
from aotc.tuner.search.cross_entropy import CrossEntropy, neighbours
from aotc.tuner.search.learned_cost import Correction, Estimator
from aotc.tuner.space.knobs import Space, untuned_form
from aotc.tuner.space.site_forms import LAYOUT, forms, layout_form
from aotc.tuner.space.sites import Site
from aotc.tuner.space.trial import Candidate, Point

POOL = 8  # points drawn for every one that is measured
TRUST = 3  # measurements after which a point is believed
FASTER = log(0.99)  # what seems slower than that is not measured again
SLOW = 1.5  # times the least predicted seconds: a form beyond is not measured
CLOSE = 0.08  # how much slower (log) a form's best may be and still be drawn half as often
STEPS = 0.5  # part of the points drawn that are one step away from the best
UNSEEN = -0.02  # log ratio that a form has before anything of it is measured


class SiteSearch:
    """State of one site's search.  ``copies``: equal sites of the model; ``seconds``: what all of
    them take untuned; rng: a ``random.Random``."""

    def __init__(self, site: Site, copies: int, seconds: float, target: Target,
                 estimator: Estimator, rng: Random) -> None:
        self.site, self.copies, self.seconds = site, copies, seconds
        self.target, self.estimator, self.rng = target, estimator, rng
        self.forms = {"": untuned_form(site)}
        self.spaces: dict[str, Space] = {}
        self.searches: dict[str, CrossEntropy] = {}
        self.opened = False  # whether the forms of other rewrites have been made
        self.frozen: str | None = None  # the form that a layout has settled
        self.logs: dict[Point, list[float]] = {}  # of measured ratios
        self.tried: set[Point] = set()  # failed or measured
        self.made: dict[Point, Candidate | None] = {}  # legal ones, or None

    def space(self, form: str) -> Space:
        """The Space of a form by name."""
        if form not in self.spaces:
            self.spaces[form] = Space(self.site, self.forms[form], self.target)
            self.searches[form] = CrossEntropy(self.spaces[form].knobs, self.rng)
        return self.spaces[form]

    @property
    def measured(self) -> int:
        return len(self.tried)

    @property
    def base(self) -> Candidate:
        """The untuned Candidate."""
        found = self.space("").unchecked({})
        assert found is not None  # choices that are not turned contradict nothing
        return found

    @property
    def names(self) -> list[str]:
        """Names of the forms to choose from, as far as they have been made; those with other
        layouts on the site's border count only once its neighbours have agreed."""
        return [self.frozen] if self.frozen is not None else [
            n for n in self.forms if not n.startswith(LAYOUT)]

    @property
    def best(self) -> tuple[Point, float]:
        """(point, ratio): the best point, the untuned one if none is better."""
        found = self.best_of(self.names)
        return found if found[1] <= 1.0 else (("", ()), 1.0)

    def ratio(self, point: Point) -> float:
        """What a point takes by what the untuned one does: from the mean logarithm of its
        measurements and one that showed no difference, for the best of many that were measured
        once was lucky."""
        found = self.logs[point]
        return exp(sum(found) / (len(found) + 1))

    def best_of(self, names: Sequence[str]) -> tuple[Point, float]:
        """The same among the forms of ``names``."""
        return next(iter(self.ranked(names)), ((names[0], ()), 1.0))

    def ranked(self, names: Collection[str]) -> list[tuple[Point, float]]:
        """[(point, ratio)] of what was measured of some forms, fastest first."""
        return sorted(((p, self.ratio(p)) for p in self.logs if p[0] in names),
                      key=lambda x: x[1])

    def candidate(self, point: Point) -> Candidate | None:
        """The Candidate of a point of this site or an equal one; None if there is none here."""
        form, values = point
        if form.startswith(LAYOUT):
            self.add_layout(form)
        elif form not in self.forms:
            self._open_forms()
        if point not in self.made and form in self.forms:
            self.made[point] = self.space(form).candidate(dict(values))
        return self.made.get(point)

    def unsure(self, count: int, names: Collection[str] | None = None) -> list[Candidate]:
        """Candidates to measure again: those of the ``count`` that seem fastest which are not yet
        believed."""
        names = self.names if names is None else names
        mean = {p: sum(x) / len(x) for p, x in self.logs.items() if p[0] in names}
        top = [p for p in sorted(mean, key=mean.__getitem__)[:count]
               if mean[p] < FASTER and len(self.logs[p]) < TRUST]
        return [c for c in map(self.candidate, top) if c is not None]

    def add_layout(self, name: str) -> bool:
        """The form in which a tensor on the border has another layout, by its name; False if the
        deciders refuse it."""
        if name not in self.forms:
            form = layout_form(self.site, self.target, name)
            if form is None:
                return False
            self.forms[name] = form
        return True

    def _open_forms(self) -> None:
        if not self.opened:
            self.opened = True
            self.forms |= {f.name: f for f in forms(self.site, self.target)}

    def propose(self, count: int, correction: Correction,
                form: str | None = None) -> list[Candidate]:
        """At most ``count`` Candidates to measure beside the untuned one: the best so far until
        they are believed, forms never tried, then the points predicted to be fastest.  form: this
        one only."""
        if form is None and self.frozen is None:
            self._open_forms()
        names = self.names if form is None else [form]
        out = self.unsure(max(1, count // 3), names)
        for found in self._fresh(names, correction)[:max(1, count - len(out) - 1)]:
            self.tried.add(found.point)
            out.append(found)
        names = [n for n in names if n in ("", form, self.frozen) or (n, ()) in self.logs]
        return out[:count] + self._drawn(max(0, count - len(out)), correction, names)

    def _fresh(self, names: Sequence[str], correction: Correction) -> list[Candidate]:
        """Legal Candidates that come before any drawn one: seeds of the first form, and the other
        forms as they are, those predicted to be fastest first.  What is predicted to be far slower
        than the best of them is left out."""
        seeds = [self.space(names[0]).candidate(v) for v in self.space(names[0]).seeds()]
        fresh = [c for c in seeds if c is not None and c.point not in self.tried]
        others = [self.space(n).candidate({}) for n in names if n and (n, ()) not in self.tried]
        plain = [c for c in others if c is not None]
        guess = correction.seconds([self.estimator.estimate(c) for c in (self.base, *plain)])
        order = sorted(range(len(plain)), key=lambda i: guess[i + 1])
        if names[0].startswith(LAYOUT):  # asked for, however slow it seems
            return plain + fresh
        return fresh + [plain[i] for i in order if guess[i + 1] <= SLOW * min(guess)]

    def _drawn(self, count: int, correction: Correction, names: Sequence[str]) -> list[Candidate]:
        worth = {n: min((sum(x) / len(x) for (f, _), x in self.logs.items() if f == n),
                        default=UNSEEN) for n in names}
        chance = [0.5 ** ((worth[n] - min(worth.values())) / CLOSE) for n in names]
        pool: dict[Point, tuple[Space, Candidate]] = {}
        near: dict[str, list[dict[str, Any]]] = {}
        for _ in range(POOL * count):
            space = self.space(self.rng.choices(names, chance)[0])
            found = space.unchecked(self._point(space, near))
            if found is None or found.point in self.tried or found.point in pool:
                continue
            # what does not fit has no cost where scratch is no cache
            if found.point[1] and (not self.target.machine.managed or space.legal(found)):
                pool.setdefault(found.point, (space, found))
        guess = correction.seconds([self.estimator.estimate(c) for _, c in pool.values()])
        out: list[Candidate] = []
        for _, (space, found) in sorted(zip(guess, pool.values()), key=lambda x: x[0]):
            if len(out) == count:
                break
            self.tried.add(found.point)
            if space.legal(found):
                out.append(found)
        return out

    def _point(self, space: Space, near: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
        """A point of a form: drawn, or as often one step away from its best.  near: of the forms
        that have been asked before, the steps that are left."""
        name = space.form.name
        if name not in near:
            (_, values), _ = self.best_of([name])
            near[name] = neighbours(space.knobs, dict(values))
            self.rng.shuffle(near[name])
        if near[name] and self.rng.random() < STEPS:
            return near[name].pop()
        return self.searches[name].draw()

    def learn(self, records: Iterable[Record]) -> None:
        """Take in Records of this site, its own or earlier ones."""
        for r in records:
            self.tried.add(r.point)
            if not r.point[0].startswith(LAYOUT) and r.point[0] not in self.forms:
                self._open_forms()
            if r.seconds and r.base and r.point != ("", ()):
                self.logs.setdefault(r.point, []).append(log(r.ratio))
        for name, search in self.searches.items():
            search.update([(dict(values), sum(x) / len(x))
                           for (form, values), x in self.logs.items() if form == name])


__all__ = ["SiteSearch"]
