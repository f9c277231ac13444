"""Candidates timed inside the whole model, where they will run.

What a kernel takes by itself is not what it takes between its neighbours: caches hold other
things.  So a round's candidates become a few variants of the model, each with other candidates
for many sites at once, and the model runs in turns as it is and in these variants.  Sites that are
equal get different candidates in one variant.  A candidate's time is that of its sites' kernels in
its variant, compared with the same kernels of the unchanged model.  Layouts that two sites share
are timed with these sites alone, by another executor.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from aotc.errors import AotcError
from aotc.ir.schedule import Schedule
from aotc.tuner.measure.executor import Executor, Result
from aotc.tuner.measure.whole_model import site_ratios
from aotc.tuner.space.assemble import Choices, assemble_schedule
from aotc.tuner.space.site_forms import LAYOUT
from aotc.tuner.space.trial import Candidate

if TYPE_CHECKING:
    from aotc.tuner.session import Session

SECONDS = 0.5  # CPU time of measuring, for every variant
TRIES = 8  # measurements of one round, where candidates crash
BASE = ("", ())

Parts = list[tuple[int, list[str]]]  # (number of a candidate, names of the sites that become it)


class ModelExecutor:
    """``session``: whose sites the candidates are of; ``alone``: the executor for candidates that
    cannot be inside the model by themselves."""

    def __init__(self, session: "Session", alone: Executor) -> None:
        self.session, self.alone = session, alone

    def build_and_measure(self, candidates: Sequence[Candidate]) -> list[Result]:
        """A Result per candidate, in order; the untuned one of a site stands among them."""
        results: list[Result | None] = [None] * len(candidates)
        apart = {c.site for c in candidates if c.point[0].startswith(LAYOUT)}
        outside = [n for n, c in enumerate(candidates) if c.site in apart]
        for n, r in zip(outside, self.alone.build_and_measure(
                [candidates[n] for n in outside])) if outside else ():
            results[n] = r
        inside: dict[str, list[int]] = {}
        for n, c in enumerate(candidates):
            if c.site not in apart and c.point != BASE:
                inside.setdefault(c.site, []).append(n)
        bases = self._measured(candidates, self._variants(inside), results)
        return [r or (Result(bases.get(c.site)) if c.point == BASE else Result(
            None, "it was not measured")) for c, r in zip(candidates, results)]

    def _variants(self, inside: Mapping[str, Sequence[int]]) -> list[Parts]:
        """What the variants hold: lists of (number of a candidate, names of the sites that become
        it).  inside: {site key: numbers}."""
        out: list[Parts] = []
        for key, numbers in inside.items():
            names = self.session.copies.names(key)
            for v, at in enumerate(range(0, len(numbers), len(names))):
                if v == len(out):
                    out.append([])
                some = numbers[at:at + len(names)]
                out[v] += [(n, names[i::len(some)]) for i, n in enumerate(some)]
        return out

    def _measured(self, candidates: Sequence[Candidate], todo: list[Parts],
                  results: list[Result | None]) -> dict[str, float]:
        """{site: untuned seconds}; fills ``results`` of the candidates of every variant.  A variant
        that fails is tried in halves."""
        bases: dict[str, float] = {}
        left = TRIES
        while todo and left:
            left -= 1
            made, again = [], []
            for parts in todo:
                found = self._variant(candidates, parts)
                if isinstance(found, str):
                    again += self._halves(parts, results, found)
                else:
                    made.append((parts, *found))
            built = self.session.checker.built([m[1] for m in made])
            again += [h for m, b in zip(made, built) if b.error
                      for h in self._halves(m[0], results, b.error)]
            made = [m for m, b in zip(made, built) if not b.error]
            again += self._timed(candidates, made, results, bases)
            self.session.checker.forget([m[1] for m in made])
            todo = again
        return bases

    def _variant(self, candidates: Sequence[Candidate],
                 parts: Parts) -> tuple[Schedule, Choices] | str:
        """(Schedule, {site name: Choice}) with these candidates, or what is wrong with it; whether
        it is legal is seen when it is built."""
        s = self.session
        chosen: Choices = {}
        for n, names in parts:
            c = candidates[n]
            with s.lock:
                chosen |= s.copies.choices(c.site, c.point, n, names=names)
        try:
            return assemble_schedule(s.program, s.untuned, s.settled, s.sites, chosen, s.target,
                                     check=False), chosen
        except AotcError as err:
            return str(err)

    def _timed(self, candidates: Sequence[Candidate],
               made: list[tuple[Parts, Schedule, Choices]], results: list[Result | None],
               bases: dict[str, float]) -> list[Parts]:
        """Run variants beside the untuned model; returns those that have to be tried again."""
        if not made:
            return []
        s = self.session
        try:
            kernels = s.checker.times([s.untuned, *(m[1] for m in made)],
                                      SECONDS * (1 + len(made)))["kernels"]
        except AotcError as err:
            if len(made) == 1:
                return self._halves(made[0][0], results, str(err))
            return [h for m in made for h in self._timed(candidates, [m], results, bases)]
        spent = {c: sum(median(k) for g, k in zip(s.untuned.groups, zip(*kernels[0]))
                        if g.computes[0] in c) for c in map(frozenset, s.computes.values())}
        for (parts, schedule, chosen), mine in zip(made, kernels[1:]):
            ratios = site_ratios(s.untuned, schedule, chosen, (kernels[0], mine))
            for n, _ in parts:
                site = candidates[n].site
                bases[site] = spent[frozenset(s.computes[site])]
                results[n] = Result(bases[site] * ratios[n]) if n in ratios else Result(
                    None, "not legal for any of the sites")
        return []

    def _halves(self, parts: Parts, results: list[Result | None], error: str) -> list[Parts]:
        """Both halves of a variant that failed; the only candidate of one is at fault."""
        if len(parts) == 1:
            results[parts[0][0]] = Result(None, error)
            return []
        half = len(parts) // 2
        return [parts[:half], parts[half:]]


__all__ = ["ModelExecutor"]
