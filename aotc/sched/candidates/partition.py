"""States of the search for groups: which computes share a kernel, and what all kernels take.

Thousands of states differ in a few groups each, so a state is a few changes to what it came from,
and what a merge asks is found near the two groups: time and memory of a search grow with the edges
it tries, not with the program times those.
"""

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.judge.judge import Judge
from aotc.sched.model.tilegraph import order_groups

BEAM = 3
PASSES = 3  # over all edges
FEW = 64  # changes to a mapping that are kept beside it
MAX_COMPUTES = 128  # of one group
V = TypeVar("V")


class Changed(Generic[V]):
    """A mapping: ``base`` with ``changes``, which must not be written to."""

    def __init__(self, base: dict[str, V], changes: Mapping[str, V] | None = None) -> None:
        self.base, self.changes = base, dict(changes or {})

    def __getitem__(self, key: str) -> V:
        return self.changes[key] if key in self.changes else self.base[key]

    def changed(self, new: dict[str, V]) -> "Changed[V]":
        """The mapping with other values for the keys of ``new``."""
        changes = self.changes | new
        return Changed(self.base, changes) if len(changes) <= FEW else Changed(
            self.base | changes)

    def items(self) -> ItemsView[str, V]:
        return (self.base | self.changes).items()


@dataclass(frozen=True)
class Partition:
    """A state of the beam.  groups: {name: Group}, None for one that has joined another; owner:
    {compute: group name}; ranks: {group name: number}, larger than those of the groups it reads;
    key: the numbers of its merged groups, as bits: equal states have equal ones."""

    program: Program
    groups: Changed[Group | None]
    owner: Changed[str]
    ranks: Changed[int]
    seconds: float
    key: int

    @staticmethod
    def of(program: Program, groups: Sequence[Group], judge: Judge) -> "Partition":
        """The state of ``groups``, in any order."""
        owner = {c: g.name for g in groups for c in g.computes}
        ranks = {g.name: i for i, g in enumerate(order_groups(program, groups))}
        return Partition(program, Changed({g.name: g for g in groups}), Changed(owner),
                         Changed(ranks), sum(judge.verdict(g).seconds for g in groups), 0)

    def all_groups(self) -> list[Group]:
        """The Groups, in no particular order."""
        return [g for _, g in self.groups.items() if g is not None]

    def joined(self, source: str, sink: str, judge: Judge) -> "Partition | None":
        """The partition with the groups of two computes merged; None if they are one already or
        may not be."""
        a, b = self._group(source), self._group(sink)
        if a is b or len(a.computes) + len(b.computes) > MAX_COMPUTES or not (
                judge.own.isdisjoint(a.computes) and judge.own.isdisjoint(b.computes)):
            return None
        found = None if self._cycle(a, b) else judge.merge(a, b)
        if found is None:
            return None
        group, gain = found
        groups = self.groups.changed({a.name: None, b.name: None, group.name: group})
        owner = self.owner.changed(dict.fromkeys(group.computes, group.name))
        parts = [judge.number(g.computes) for g in (a, b)]
        key = (self.key | 1 << judge.number(group.computes)) & ~(1 << parts[0] | 1 << parts[1])
        ranks = self.ranks.changed(self._reranked(a, b, group.name))
        return Partition(self.program, groups, owner, ranks, self.seconds - gain, key)

    def _group(self, compute: str) -> Group:
        group = self.groups[self.owner[compute]]
        assert group is not None, compute  # one that has joined another owns nothing
        return group

    def _cycle(self, a: Group, b: Group) -> bool:
        """True if a group outside lies on a path from ``a``, which ``b`` reads, to ``b``: looked
        for from both ends at once, for often one of them has no other neighbour."""
        up, down = self._paths(b, a, self._sources), self._paths(a, b, self._sinks)
        return any(x is a or y is b for x, y in zip(up, down))

    def _paths(self, start: Group, end: Group,
               step: Callable[[Group], Iterator[Group]]) -> Iterator[Group | None]:
        """The groups on the far side of every edge that leads from ``start`` by other groups,
        between the two by rank; None in place of those that are not, and of ``end`` next to
        ``start``.  Positions of computes would not do: a group that is entered at a late compute
        is left at an early one."""
        low, high = sorted((self.ranks[start.name], self.ranks[end.name]))
        todo, seen = [start], {start.name}
        while todo:
            group = todo.pop()
            for other in step(group):
                between = low < self.ranks[other.name] < high
                yield other if between or other is end and group is not start else None
                if between and other.name not in seen:
                    seen.add(other.name)
                    todo.append(other)

    def _reranked(self, a: Group, b: Group, name: str) -> dict[str, int]:
        """Ranks where they change as ``a`` and ``b`` become the group ``name``: what reaches ``b``
        comes first, then the two, then what ``a`` reaches, all by the numbers that these had
        (Pearce and Kelly's way to keep an order of a graph that grows)."""
        def between(found: Iterator[Group | None]) -> list[str]:
            return sorted({g.name for g in found if g is not None}, key=self.ranks.__getitem__)

        up, down = between(self._paths(b, a, self._sources)), between(
            self._paths(a, b, self._sinks))
        numbers = sorted(map(self.ranks.__getitem__, (a.name, b.name, *up, *down)))
        return dict(zip((*up, name, *down), numbers))

    def _sources(self, group: Group) -> Iterator[Group]:
        """The groups that a group reads, once per edge."""
        for c in group.computes:
            for b in self.program.producer[c].inputs:
                maker = self.program.producer.get(b)
                if maker is not None and self.owner[maker.outs[0]] != group.name:
                    yield self._group(maker.outs[0])

    def _sinks(self, group: Group) -> Iterator[Group]:
        """The groups that read a group, once per edge."""
        for o in group.outputs:
            for s in self.program.consumers.get(o, ()):
                if self.owner[s.outs[0]] != group.name:
                    yield self._group(s.outs[0])


def search_merges(program: Program, judge: Judge, groups: Sequence[Group],
                  beam: int = BEAM) -> tuple[Group, ...]:
    """The groups as they are merged where that pays, each after those it reads from."""
    start = Partition.of(program, groups, judge)
    states, edges = [start], _edges(program, start)
    for _ in range(PASSES):  # a merge can open the way for an edge that was refused before
        best = states[0]
        for source, sink in edges:
            news = [s.joined(source, sink, judge) for s in states]
            grown = states + [s for s in news if s is not None]
            states = sorted({s.key: s for s in grown}.values(), key=lambda s: s.seconds)[:beam]
        if states[0] is best:
            break
    return order_groups(program, states[0].all_groups())


def _edges(program: Program, start: Partition) -> tuple[tuple[str, str], ...]:
    """(producer, consumer) pairs of the first compute's names, in order of production."""
    seen: dict[tuple[str, str], None] = {}
    for g in order_groups(program, start.all_groups()):
        for o in g.outputs:
            for s in program.consumers.get(o, ()):
                if start.owner[s.outs[0]] != g.name:
                    seen[g.computes[0], s.outs[0]] = None
    return tuple(seen)


__all__ = ["BEAM", "Changed", "Partition", "search_merges"]
