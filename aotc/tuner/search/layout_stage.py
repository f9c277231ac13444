"""Stage 1: layouts of stored tensors, judged by all the sites they touch.

A layout helps one site and costs another, so a tensor's sites are measured together: each with the
layout on its border and a few rounds over its loops.  It is adopted where the sum of their times
falls.  Tensors between equal sites are one case; a case counts only if it holds every copy of its
sites, for a site's copies are tuned alike.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.json_text import freeze_json
from aotc.sched.choose.layout_choices import layout_choices
from aotc.target.base import Target
from aotc.tuner.search.learned_cost import Correction
from aotc.tuner.search.site_search import SiteSearch
from aotc.tuner.space.site_forms import layout_name
from aotc.tuner.space.sites import Site, number_buffers
from aotc.tuner.space.trial import Candidate

MOST = 4  # layouts of one tensor that are tried
PER_SITE = 3  # candidates of a site for one layout: its own decisions, and two more
LEAST_SHARE = 0.02  # of the searched time: what a tensor's sites must take
GAIN = 0.97  # of the sites' time: what a layout must leave


@dataclass(frozen=True)
class LayoutCase:
    """Tensors alike: ``ends``: (site key, number of the tensor in its piece) of the producer and
    the readers; ``copies`` of them; ``choices``: Layouts to try."""

    ends: tuple[tuple[str, int], ...]
    copies: int
    choices: tuple[Layout, ...]


class LayoutStage:
    """What stage 1 has asked and learnt.  program: with the untuned Schedule's rewrites."""

    def __init__(self, program: Program, schedule: Schedule, sites: Iterable[Site],
                 searches: Mapping[str, SiteSearch], target: Target) -> None:
        self.searches = searches
        total = sum(s.seconds for s in searches.values()) or 1.0
        found = _cases(program, schedule, sites, searches, target)
        cases = [c for c in found if self._seconds(c) >= LEAST_SHARE * total]
        cases.sort(key=lambda c: (-self._seconds(c), c.ends))
        self.todo = [(c, layout) for i in range(MOST) for c in cases
                     for layout in c.choices[i:i + 1]]
        self.asked: list[tuple[LayoutCase, dict[str, str]]] = []

    def _seconds(self, case: LayoutCase) -> float:
        return sum(self.searches[k].seconds for k in {k for k, _ in case.ends})

    def propose(self, size: int,
                correction: Correction) -> list[tuple[SiteSearch, list[Candidate]]]:
        """[(SiteSearch, [Candidate])] for the next layouts, about ``size`` candidates; [] when all
        have been asked."""
        out, count = [], 0
        while self.todo and count < size:
            case, layout = self.todo.pop(0)
            names = {k: layout_name(n, layout) for k, n in case.ends}
            if not all(self.searches[k].add_layout(n) for k, n in names.items()):
                continue
            found = [(self.searches[k], self.searches[k].propose(PER_SITE, correction, n))
                     for k, n in names.items()]
            found = [(search, some) for search, some in found if some]
            out += found
            count += sum(1 + len(some) for _, some in found)
            self.asked.append((case, names))
        return out

    def adopt(self) -> list[set[str]]:
        """Freeze the forms whose layouts pay, best first, each site at most once.  Returns the site
        keys of every adopted case, a list of sets: they change together or not at all."""
        gains = []
        for number, (_, names) in enumerate(self.asked):
            parts = [(self.searches[k], n) for k, n in names.items()]
            if any(not any(p[0] == n for p in s.logs) for s, n in parts):
                continue
            before = sum(s.seconds * min(1.0, s.best[1]) for s, _ in parts)
            after = sum(s.seconds * s.best_of([n])[1] for s, n in parts)
            if after < GAIN * before:
                gains.append((after - before, number))
        ties = []
        for _, number in sorted(gains):
            _, names = self.asked[number]
            if all(self.searches[k].frozen is None for k in names):
                for k, n in names.items():
                    self.searches[k].frozen = n
                ties.append(set(names))
        return ties


def _cases(program: Program, schedule: Schedule, sites: Iterable[Site],
           searches: Mapping[str, SiteSearch], target: Target) -> list[LayoutCase]:
    owner = {c: s for s in sites for g in s.groups for c in g.computes}
    found: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for g in schedule.groups:
        for b in g.outputs:
            near = [program.producer[b], *program.consumers.get(b, ())]
            around = dict.fromkeys(owner.get(s.outs[0]) for s in near)
            ends = [s for s in around if s is not None]
            if program.buffers[b].role != "temp" or len({s.key for s in ends}) < len(
                    around) or any(s.key not in searches or b not in s.fixed for s in ends):
                continue
            key = tuple((s.key, int(number_buffers(s.piece, "")[b])) for s in ends)
            found.setdefault(key, []).append(b)
    out = []
    for key, buffers in found.items():
        if any(searches[k].copies != len(buffers) for k, _ in key):
            continue
        b = buffers[0]
        now = schedule.layouts.get(b, ())
        choices = tuple(x for x in layout_choices(program, b, target) if str(
            freeze_json(x.to_json())) != str(freeze_json(now)))
        if choices:
            out.append(LayoutCase(key, len(buffers), choices[:MOST]))
    return out


__all__ = ["LayoutCase", "LayoutStage"]
