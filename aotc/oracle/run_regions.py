"""The order of a Plan's kernels: loops round after round, branches by what data say."""

from collections.abc import Callable, Sequence

import numpy as np

from aotc.ir.expr import Expr
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Plan
from aotc.ir.plan_regions import Choice, PlanRegion, Rounds
from aotc.ir.program import Entry
from aotc.oracle.plan_memory import PlanMemory, Region


class Calls:
    """The calls of one run of a Plan.  ``run``: runs one kernel; ``number``: the value of an
    expression over symbols, those in ``known`` and the rounds that this sets there."""

    def __init__(self, plan: Plan, memory: PlanMemory, known: dict[str, int],
                 number: Callable[[Expr], int], run: Callable[[Kernel], None]) -> None:
        self.plan, self.memory, self.known, self.number = plan, memory, known, number
        self.run = run

    def all(self) -> None:
        """Every kernel, as often as its regions say."""
        self._range(0, len(self.plan.kernels), self.plan.regions)

    def _range(self, first: int, end: int, regions: Sequence[PlanRegion]) -> None:
        """Kernels first .. end - 1 with the regions among them, outer ones first."""
        at, rest = first, list(regions)
        while rest:
            region = rest.pop(0)
            inner = [r for r in rest if r.end <= region.end]
            rest = rest[len(inner):]
            self._kernels(at, region.first)
            if isinstance(region, Rounds):
                self._rounds(region, inner)
            else:
                self._choice(region, inner)
            at = region.end
        self._kernels(at, end)

    def _kernels(self, first: int, end: int) -> None:
        for kernel in self.plan.kernels[first:end]:
            self.run(kernel)

    def _one(self, name: str) -> int:
        """What a buffer of one element says."""
        self.memory.at = f"the count or condition {name}"
        return int(self.memory.read(name, np.zeros((), np.int64), None))

    def _choice(self, region: Choice, inner: Sequence[PlanRegion]) -> None:
        if self._one(region.cond):
            first, end = region.first, region.middle
        else:
            first, end = region.middle, region.end
        self._range(first, end, [r for r in inner if first <= r.first and r.end <= end])

    def _rounds(self, region: Rounds, inner: Sequence[PlanRegion]) -> None:
        trip = self.number(region.trip)
        wanted = self._one(region.count) if region.count else trip + bool(region.again)
        rounds = min(trip, wanted) if region.count else trip
        where = self.memory.regions
        for s in region.states:
            where[s.before] = where[s.start]
        again = next((s for s in region.states if s.after == region.again), None)
        done, more = 0, not region.going or bool(self._one(region.going))
        while more and done < rounds:
            self.known[region.round.name] = done
            for s in region.states:
                where[s.after] = where[s.last if (rounds - done) % 2 else s.spare]
            for e in (*region.slices, *region.stacks):
                where[e.part] = self._entry(e, trip - 1 - done if e.backward else done)
            self._range(region.first, region.end, inner)
            for s in region.states:
                where[s.before] = where[s.after]
            done += 1
            more = again is None or bool(self._one(again.before))
        if region.ran:
            more = bool(self._one(again.before)) if again is not None else more
            self.memory.at = f"loop {region.name}"
            self.memory.write(region.ran, np.zeros((), np.int64), np.asarray(
                done + (more and wanted > trip and done == trip)), None)
        for s in region.states:
            self._left(s.before, s.last)

    def _entry(self, entry: Entry, number: int) -> Region:
        """One entry of the first axis of a buffer as a buffer."""
        whole, place = self.memory.regions[entry.whole], self.plan.place(entry.part)
        size = self.number(place.elements)
        part = slice(number * size, (number + 1) * size)
        return Region(entry.part, whole.values[part],
                      None if whole.owner is None else whole.owner[part], whole.number)

    def _left(self, state: str, last: str) -> None:
        """What the last round has made goes where it is wanted, if it is not there."""
        source, target = self.memory.regions[state], self.memory.regions[last]
        if source is not target:
            self.memory.at = f"the last round's {last}"
            index = np.arange(source.values.size)
            self.memory.write(last, index, self.memory.read(state, index, None), None)


__all__ = ["Calls"]
