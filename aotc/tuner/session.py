"""``tune``: the two stages, the records, and the check that it paid.

    start    the Schedules of all deciders, in turns, and the fastest parts of each
    stage 1  layouts of stored tensors, each with a few rounds over the loops of its neighbours
    stage 2  the loops of every site with layouts frozen
    check    the whole model against the untuned one, in turns; what is not faster goes back
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

from aotc.errors import AotcError, ScheduleError, UnsupportedError
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import Work, options_target, run_pipeline
from aotc.sched.cost.group_cost import resident_buffers
from aotc.sched.dynamic.small_calls import pick
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.sched.text_choices.keep_said import keep_said
from aotc.tuner.measure.executor import Executor, LocalExecutor, Result
from aotc.tuner.measure.inside import ModelExecutor
from aotc.tuner.measure.records import Record, Records
from aotc.tuner.measure.rigs import Rig, find_rig
from aotc.tuner.measure.whole_model import Checker
from aotc.tuner.search.layout_stage import LayoutStage
from aotc.tuner.search.learned_cost import Correction, Estimator, correlate_held_back
from aotc.tuner.search.site_search import SiteSearch
from aotc.tuner.shape_ranges import measured_ranges
from aotc.tuner.space.assemble import Choices, Tie, assemble_schedule
from aotc.tuner.space.copies import Copies
from aotc.tuner.space.seeds import seed_schedule
from aotc.tuner.space.sites import Site, sites
from aotc.tuner.space.trial import Candidate, Point

SEEDS_COST = 0.06  # of the budget that deciding may have taken, for other deciders to be asked
SEEDS_SHARE = 0.25  # of the budget: after that, no further decider is asked
PER_SITE = 3  # new candidates of a site in one round, for each of its copies
SPREAD = 3  # of them at most: candidates of one site may stand in for different copies at once
LEAST_SHARE = 0.002  # of the model's time: sites below are left alone
ROUND_SHARE = 0.15  # of the budget that a round should take
FIRST_ROUND = 48  # candidates
LAYOUT_SHARE = 0.12  # of the search that stage 1 may take
ATTEMPTS = 3  # to leave out of the tuned model what is not faster inside it
OPTIONS = 2  # points of a site that the whole model tries
WORTH = 0.985  # a point is taken into the model if it has at most this share of the untuned time
KEPT = 0.99  # and stays there
CONFIRM_FROM = 0.75  # of the budget: from then on, what seems fastest is measured again


Asked = list[tuple[SiteSearch, list[Candidate]]]  # what to measure, by site
# a Schedule, names of the sites that changed, (untuned, tuned) seconds
Best = tuple[Schedule, set[str], tuple[float, float]]


@dataclass(frozen=True)
class Tuned:
    """What tuning found.  ``schedule``; ``untuned_ms``, ``tuned_ms``: of the whole model, measured
    in turns (equal if the untuned Schedule was kept); ``trials``; ``history``: (seconds, trials,
    predicted milliseconds of the model); ``changed``: names of the groups that changed;
    ``correlation``: ``correlate_held_back`` of the records."""

    schedule: Schedule
    untuned_ms: float
    tuned_ms: float
    trials: int
    history: tuple[tuple[float, int, float], ...]
    changed: tuple[str, ...]
    correlation: tuple[float, float, int]


def tune(source: Any, options: Options | None = None, budget: float = 120.0,
         records: str | Path | None = None, seed: int = 0, threads: int = 1, executor: Any = None,
         checker: Any = None, progress: Callable[[str], object] | None = None,
         clock: Callable[[], float] = time.monotonic, simulate: bool = False) -> Tuned:
    """Search a faster Schedule of a model by measuring.  Returns a Tuned.

    source: as for ``aotc.compile``; options: Options with its target and decisions;
    budget: seconds for compiling and searching, the check of the whole model at the end comes on
    top; records: path of a file of earlier and new measurements; executor, checker, clock: for
    other machines and for tests; progress: called with a line of text; simulate: a target for GPUs
    is measured on the simulator, whose times say nothing of a GPU's.
    UnsupportedError for a target that does not run here, and what compiling raises."""
    if options is not None and options.alias:
        raise UnsupportedError("tune: candidates run the model as it was exported; leave alias "
                               "out")
    start, say = clock(), progress or (lambda text: None)
    options = replace(options or Options(source), source=source, stop_after="schedule")
    rig = find_rig(options_target(options), threads, simulate)
    say("compiling the untuned model")
    work = run_pipeline(options)
    return tune_work(work, budget, records, seed, rig, executor, checker, say, clock, start)


def tune_work(work: Work, budget: float = 120.0, records: str | Path | None = None, seed: int = 0,
              rig: Rig | None = None, executor: Any = None, checker: Any = None,
              progress: Callable[[str], object] | None = None,
              clock: Callable[[], float] = time.monotonic, start: float | None = None) -> Tuned:
    """The same of a pipeline's Work whose schedule stage has run: its Program may be any.  rig:
    where it is measured, by default on one thread of this machine.  start: of the budget, now if
    None.  How statements are written is chosen again for what has been moved."""
    rig = rig or find_rig(work.target)
    found = _tuned(work, budget, records, seed, rig, executor, checker, progress, clock, start)
    return replace(found, schedule=choose_writing(work.program, found.schedule, work.target))


def _tuned(work: Work, budget: float, records: str | Path | None, seed: int, rig: Rig,
           executor: Any, checker: Any, progress: Callable[[str], object] | None,
           clock: Callable[[], float], start: float | None) -> Tuned:
    """``tune_work``, but what is left to the rules of writing is left out of the Schedule."""
    start, say = clock() if start is None else start, progress or (lambda text: None)
    options, kept = work.options, Records(records)
    if work.schedule.variants and work.found is None:
        raise UnsupportedError("tune: a schedule with variants; tune each of them for its own "
                               "range (--dim NAME=LO..HI) and put the schedules together")
    with tempfile.TemporaryDirectory(prefix="aotc-tune-") as scratch:
        if work.found is not None:
            untimed = replace(work, schedule=work.schedule.base)
            return _of_ranges(work, checker or Checker(untimed, scratch, rig), say,
                              lambda: clock() < start + budget)
        work = replace(work, schedule=keep_said(
            work.program, work.schedule, work.target))
        checker = checker or Checker(work, scratch, rig)
        settled = any(x is not None for x in (options.schedule, options.arena, work.narrowed))
        slow = clock() - start > SEEDS_COST * budget
        begun = work.schedule if settled or slow else seed_schedule(
            work, options, checker, say, lambda: clock() < start + SEEDS_SHARE * budget)
        session = Session(replace(work, schedule=begun), rig, kept, Random(seed), seed,
                          executor, checker, say, clock, start, budget)
        return session.against(work.schedule, session.run())


def _of_ranges(work: Work, checker: Checker, say: Callable[[str], object],
               in_time: Callable[[], bool]) -> Tuned:
    """The Tuned of a Work whose ranges were chosen by cost.  Milliseconds are of a call on average,
    as predicted with what was measured."""
    schedule, found, count = measured_ranges(work, checker, say, in_time)
    before, after = work.found, found
    assert before is not None, "no ranges were looked for"
    shares = [c.share for c in after.calls]
    ms = [sum(share * after.seconds[pick(leaves, c)][i] for i, (c, share) in enumerate(
        zip(after.calls, shares))) / sum(shares) * 1e3 for leaves in (before.leaves, after.leaves)]
    changed = sorted({after.labels[c] for _, c in after.leaves} - {
        before.labels[c] for _, c in before.leaves})
    return Tuned(schedule, ms[0], ms[1], count, (), tuple(changed), (0.0, 0.0, 0))


class Session:
    """State of one tuning run.  executor: None for measuring inside the model, on the rig."""

    def __init__(self, work: Work, rig: Rig, records: Records, rng: Random, seed: int,
                 executor: Executor | None, checker: Checker, say: Callable[[str], object],
                 clock: Callable[[], float], start: float, budget: float) -> None:
        self.program, self.untuned, self.target = work.program, work.schedule, rig.target
        target, self.records, self.rng = rig.target, records, rng
        self.executor = executor or ModelExecutor(self, LocalExecutor(
            rig, math=work.schedule.math))
        self.checker, self.say, self.clock = checker, say, clock
        self.start, self.budget = start, budget
        self.correction = Correction(seed)
        self.machine = rig.machine
        self.settled, self.sites = sites(work.program, work.schedule, target)
        self.computes: dict[str, set[str]] = {}
        for s in self.sites:
            self.computes.setdefault(s.key, set()).update(c for g in s.groups for c in g.computes)
        self.rewritten = apply_rewrites(work.program, work.schedule.rewrites)
        self.estimator = Estimator(target, resident_buffers(self.rewritten, target.machine))
        self.trials, self.size = 0, FIRST_ROUND
        self.history: list[tuple[float, int, float]] = []
        self.lock = Lock()  # of the searches: a round is measured while the next is proposed

    def run(self) -> Tuned:
        """The Tuned of the whole session."""
        self.say("measuring the untuned model")
        kernels, self.whole = self.checker.untuned()
        owner = {c: s.name for s in self.sites for g in s.groups for c in g.computes}
        seconds: dict[str | None, list[float]] = {}
        for g, s in zip(self.untuned.groups, kernels):
            seconds.setdefault(owner.get(g.computes[0]), []).append(s)
        self._open({n: sum(s) for n, s in seconds.items()})
        self._resume()
        end, begun = self.start + self.budget, self.clock()
        stage = LayoutStage(self.rewritten, self.untuned, self.sites, self.searches, self.target)
        while self.clock() < begun + LAYOUT_SHARE * (end - begun) and self._measure(
                stage.propose(self.size // 8, self.correction)):
            self._note()
        self.ties = stage.adopt()
        self._loop_rounds(end)
        return self._finish()

    # ------------------------------------------------------------ the search

    def _open(self, seconds: Mapping[str | None, float]) -> None:
        """A SiteSearch for every distinct site that takes a noticeable share of the time."""
        total = sum(seconds.values()) or 1.0
        keys: dict[str, list[Site]] = {}
        for site in self.sites:
            keys.setdefault(site.key, []).append(site)
        self.searches = {}
        for key, equal in keys.items():
            mine = sum(seconds.get(s.name, 0.0) for s in equal)
            if mine >= LEAST_SHARE * total:
                self.searches[key] = SiteSearch(
                    equal[0], len(equal), mine, self.target, self.estimator,
                    Random(self.rng.getrandbits(64)))
        self.copies = Copies(self.sites, self.searches)

    def _resume(self) -> None:
        """Take in what the records know of these sites on this machine."""
        known = [r for r in self.records.all if r.target == self.target.name
                 and r.machine == self.machine]
        for key, search in self.searches.items():
            search.learn([r for r in known if r.site == key])
        self.correction.fit(known)

    def _loop_rounds(self, end: float) -> None:
        """Rounds over the loops until the time ``end``, or until there is nothing left to measure.
        The next round is proposed while one is measured, one at least."""
        with ThreadPoolExecutor(1) as pool:
            running = None
            while True:
                asked = [] if running and self.clock() >= end else self._proposed()
                if running is not None:
                    self._take(*running)
                    self._note()
                    asked = asked or self._proposed()
                if not asked or running is not None and self.clock() >= end:
                    return
                running = asked, self.clock(), pool.submit(self._results, asked)

    def _proposed(self) -> Asked:
        """[(SiteSearch, [Candidate])] to measure next: new ones, and at the end those that seem
        fastest once more, until they are believed."""
        late = self.clock() > self.start + CONFIRM_FROM * self.budget
        return late and self._asked(lambda s: s.unsure(PER_SITE)) or self._asked(
            lambda s: s.propose(PER_SITE * min(s.copies, SPREAD), self.correction))

    def _asked(self, what: Callable[[SiteSearch], list[Candidate]]) -> Asked:
        """The same for ``what``, a function from SiteSearch to Candidates: of the sites where that
        promises most."""
        order = sorted(self.searches.values(), key=lambda s: -s.seconds / (
            1 + s.measured / (2 * PER_SITE)))
        asked, count = [], 0
        for s in order:
            if count >= self.size:
                break
            with self.lock:
                found = what(s)
            if found:
                asked.append((s, found))
                count += 1 + len(found)
        return asked

    def _measure(self, asked: Asked) -> bool:
        """Build and time what is asked.  False if that is nothing."""
        if asked:
            begun = self.clock()
            self._take(asked, begun, self._results(asked))
        return bool(asked)

    def _results(self, asked: Asked) -> list[Result]:
        """A Result for each of [(SiteSearch, [Candidate])], the untuned one of its site first."""
        return self.executor.build_and_measure([
            c for s, found in asked for c in (s.base, *found)])

    def _take(self, asked: Asked, begun: float,
              results: list[Result] | Future[list[Result]]) -> None:
        """Learn from the results (or the future of them) of a round begun at a time."""
        found = iter(results.result() if isinstance(results, Future) else results)
        done = []
        for _, some in asked:
            base = next(found).seconds
            done.append([self._record(c, next(found), base) for c in some])
        new = [r for rows in done for r in rows]
        self.records.add(new)
        with self.lock:
            for (search, _), rows in zip(asked, done):
                search.learn(rows)
        self.trials += len(new)
        self.correction.fit([r for r in self.records.all if r.machine == self.machine])
        took, left = self.clock() - begun, self.start + self.budget - self.clock()
        wish = self.size * min(ROUND_SHARE * self.budget, left) / max(took, 1e-3)
        self.size = int(min(2 * self.size, max(self.size / 2, 8, wish)))

    def _record(self, candidate: Candidate, result: Result, base: float | None) -> Record:
        e = self.estimator.estimate(candidate)
        error = result.error or ("" if base else "the untuned candidate failed")
        return Record(candidate.site, self.target.name, self.machine, candidate.point,
                      result.seconds, base, e.seconds, e.features, error)

    def predicted(self) -> float:
        """Seconds of the model if every site ran at its best ratio."""
        return self.whole - sum(s.seconds * (1 - s.best[1]) for s in self.searches.values()
                                if s.best[1] < 1)

    def _note(self) -> None:
        now = self.clock() - self.start
        self.history.append((now, self.trials, self.predicted() * 1e3))
        better = sum(s.best[1] < WORTH for s in self.searches.values())
        self.say(f"[{now:.0f}/{self.budget:.0f} s] {self.trials} trials, {better} of "
                 f"{len(self.searches)} kinds of groups better; model {self.whole * 1e3:.3f} ms, "
                 f"about {self.predicted() * 1e3:.3f} ms now")

    # ------------------------------------------------------------ the end

    def _finish(self) -> Tuned:
        options: dict[Tie, list[Choices]] = {}  # what was fastest first
        for key, search in self.searches.items():
            tie = next((i for i, keys in enumerate(self.ties) if key in keys), None)
            if tie is not None:
                found = self._choices(key, search, *search.best, tie)
                options.setdefault(tie, [{}])[0].update(found)
                continue
            worth = [x for x in search.ranked(search.names) if x[1] <= WORTH][:OPTIONS]
            options[key] = [self._choices(key, search, *x, key) for x in worth]
        schedule, kept, times = self._checked(options)
        return Tuned(schedule, times[0] * 1e3, times[1] * 1e3, self.trials, tuple(self.history),
                     tuple(sorted(kept)), correlate_held_back(
                         [r for r in self.records.all if r.machine == self.machine]))

    def _choices(self, key: str, search: SiteSearch, point: Point, ratio: float,
                 tie: Tie) -> Choices:
        """{name: Choice} of all equal sites at a point."""
        return self.copies.choices(key, point, tie, f"tuned: {ratio:.2f} of the time untuned in "
                                   f"{search.measured} trials")

    def against(self, first: Schedule, tuned: Tuned) -> Tuned:
        """The Tuned beside the Schedule ``first`` that it did not start from: what is not faster
        than that is not kept."""
        if first.hash == self.untuned.hash:
            return tuned
        self.say("checking beside the untuned model")
        verdict = self.checker.compare(tuned.schedule, {}, first)
        if verdict.ratio > self.checker.faster:
            ms = verdict.seconds[0] * 1e3
            return replace(tuned, schedule=first, untuned_ms=ms, tuned_ms=ms, changed=())
        return replace(tuned, untuned_ms=verdict.seconds[0] * 1e3,
                       tuned_ms=verdict.seconds[1] * 1e3)

    def _assembled(self, chosen: Choices) -> Schedule:
        return assemble_schedule(self.program, self.untuned, self.settled, self.sites, chosen,
                                 self.target)

    def _checked(self, options: dict[Tie, list[Choices]]) -> Best:
        """(Schedule, names of the sites that changed, (untuned, tuned) seconds): the fastest of
        what was tried in the whole model, the untuned Schedule if nothing is faster.  Of equal
        sites that are not faster by all that was measured of them, there too, the next option is
        tried, then none."""
        best: Best = self.untuned, set(), (self.whole, self.whole)
        ratio = self.checker.faster
        for attempt in range(ATTEMPTS):
            chosen = {n: c for found in options.values() if found for n, c in found[0].items()}
            if not chosen:
                break
            self.say(f"checking {len(chosen)} changed groups in the whole model")
            try:
                schedule = self._assembled(chosen)
            except ScheduleError as err:
                raise AotcError("the tuned schedule is malformed (a defect of aotc, please report "
                                f"it with the model):\n{err}") from None
            verdict = self.checker.compare(schedule, chosen)
            if verdict.why:
                self.say(f"the tuned schedule is not taken: {verdict.why}")
            if verdict.ratio <= ratio:
                best, ratio = (schedule, set(chosen), verdict.seconds), verdict.ratio
            slow = {} if verdict.wrong else self._slower(chosen, verdict.ratios)
            if not slow:
                break
            last = attempt == ATTEMPTS - 2  # then only what is known to be faster is left
            options = {tie: found if tie not in slow else [] if last else found[1:]
                       for tie, found in options.items()}
        return best

    def _slower(self, chosen: Choices, ratios: Mapping[Tie, float]) -> set[Tie]:
        """The ties of ``chosen`` that are not worth it; what the check has measured counts like
        any other measurement."""
        slow = set()
        for tie, point in {c.tie: c.candidate.point for c in chosen.values()}.items():
            search = self.searches.get(tie) if isinstance(tie, str) else None
            if search is not None:
                search.logs[point].append(log(ratios[tie]))
            if (ratios[tie] if search is None else search.ratio(point)) > KEPT:
                slow.add(tie)
        return slow


__all__ = ["Session", "Tuned", "tune", "tune_work"]
