"""Which nodes become one sub-graph: Algorithm 2, its patterns and both rules, to a fixed point.

Patterns propose merges.  By the paper's rules the numbers of pieces decide; by cost, seconds do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from aotc.sched.accelerator.instances.cost import SplitJudge
from aotc.sched.accelerator.instances.instances import SubGraph
from aotc.sched.accelerator.instances.split import Members, outs_of
from aotc.sched.accelerator.instances.tensor_graph import INPUT, TensorGraph

PAPER, COST = "paper", "cost"


@dataclass(frozen=True)
class MergeRules:
    """What accepts a merge.  accept: ``PAPER``: rules (i) and (ii); ``COST``: the merged sub-graph
    takes fewer seconds than its parts.  growth: rule (i) besides wants no more pieces than so many
    times the fewest of its parts, for networks that up-sample (None: as printed, that is not
    asked).  several: sub-graphs may have several outputs (the paper's have one)."""

    accept: str = COST
    growth: float | None = None
    several: bool = False

    def __str__(self) -> str:
        rest = ("" if self.growth is None else f", growth {self.growth}",
                ", several outputs" if self.several else "")
        return self.accept + "".join(rest)


BY_COST = MergeRules()


@dataclass(frozen=True)
class Merge:
    """A proposed merge: ``parts`` become one, by ``pattern``."""

    pattern: str
    parts: tuple[Members, ...]


class MergedSubGraphs:
    """Sub-graphs of a Graph while they are merged, each named by its last member."""

    def __init__(self, graph: TensorGraph) -> None:
        self.graph = graph
        self.members: dict[str, Members] = {n.name: (n.name,) for n in graph.computed}
        self.owner = {n.name: n.name for n in graph.computed}

    def producers(self, out: str) -> tuple[str, ...]:
        """Sub-graphs that one reads."""
        inside = set(self.members[out])
        return tuple(dict.fromkeys(
            self.owner[s] for m in self.members[out] for s in self.graph.node[m].sources
            if s not in inside and self.graph.node[s].kind != INPUT))

    def consumers(self, out: str) -> tuple[str, ...]:
        """Sub-graphs that read outputs of one."""
        inside = set(self.members[out])
        return tuple(dict.fromkeys(self.owner[c] for m in outs_of(self.graph, self.members[out])
                                   for c in self.graph.consumers[m] if c not in inside))

    def only(self, out: str) -> str | None:
        """The one sub-graph that reads one's outputs, None if others or the caller do."""
        found = self.consumers(out)
        read = any(self.graph.node[m].output for m in self.members[out])
        return found[0] if len(found) == 1 and not read else None

    def merge(self, parts: tuple[str, ...]) -> None:
        """Sub-graphs, the last of which reads all others, become one."""
        joined = self.joined(tuple(self.members[p] for p in parts))
        for p in parts:
            del self.members[p]
        self.members[joined[-1]] = joined
        self.owner.update(dict.fromkeys(joined, joined[-1]))

    def joined(self, parts: tuple[Members, ...]) -> Members:
        """Members of several sub-graphs in topological order."""
        return tuple(sorted((m for p in parts for m in p), key=self.graph.position.__getitem__))

    def outs(self) -> tuple[str, ...]:
        """All sub-graphs in topological order: of those that could be next, the one whose last
        member comes first."""
        left = {out: len(self.producers(out)) for out in self.members}
        ready = [(self.graph.position[out], out) for out, n in left.items() if not n]
        heapify(ready)
        found = []
        while ready:
            _, out = heappop(ready)
            found.append(out)
            for c in self.consumers(out):
                left[c] -= 1
                if not left[c]:
                    heappush(ready, (self.graph.position[c], c))
        return tuple(found)


def straight_merges(now: MergedSubGraphs, out: str) -> Iterator[tuple[str, ...]]:
    """(SG1, SG2): SG1 is the only producer of SG2, SG2 the only consumer of SG1."""
    found = now.producers(out)
    if len(found) == 1 and now.only(found[0]) == out:
        yield found[0], out


def diamond_merges(now: MergedSubGraphs, out: str) -> Iterator[tuple[str, ...]]:
    """(SG2, SG3, .., SG4): all on the paths from one entry to the exit SG4."""
    between: dict[str, list[str]] = {}
    for p in now.producers(out):
        entry = now.producers(p)
        if len(entry) == 1 and now.only(p) == out:
            between.setdefault(entry[0], []).append(p)
    for found in between.values():
        if len(found) > 1:
            yield (*found, out)


def branch_merges(now: MergedSubGraphs, out: str) -> Iterator[tuple[str, ...]]:
    """(SG2, SG3): SG3 is an exit that several paths reach, SG2 the end of one of them."""
    found = now.producers(out)
    for p in found if len(found) > 1 else ():
        if now.only(p) == out:
            yield p, out


def fork_merges(now: MergedSubGraphs, out: str) -> Iterator[tuple[str, ...]]:
    """(SG1, SG2): SG1 is the only producer of SG2, and others read SG1, too: both are outputs."""
    found = now.producers(out)
    if len(found) == 1 and now.only(found[0]) is None:
        yield found[0], out


Pattern = Callable[[MergedSubGraphs, str], Iterator[tuple[str, ...]]]
PATTERNS: dict[str, Pattern] = {"straight": straight_merges, "diamond": diamond_merges,
                                "branch": branch_merges}
SEVERAL: dict[str, Pattern] = {**PATTERNS, "fork": fork_merges}  # for several outputs


def group(graph: TensorGraph, judge: SplitJudge,
          rules: MergeRules = BY_COST) -> tuple[SubGraph, ...]:
    """Sub-graphs of the graph in topological order, merged until no pattern merges any more."""
    now, why = MergedSubGraphs(graph), dict[str, str]()
    refused: set[tuple[Members, ...]] = set()
    while True:
        before = len(now.members)
        for pattern, propose in (SEVERAL if rules.several else PATTERNS).items():
            for out in now.outs():
                _merge_at(now, out, pattern, propose, judge, rules, refused, why)
        if len(now.members) == before:
            break
    return tuple(SubGraph(f"s{i:03d}", now.members[out], judge.split(now.members[out]),
                          why.get(out, "")) for i, out in enumerate(now.outs()))


def _merge_at(now: MergedSubGraphs, out: str, pattern: str, propose: Pattern, judge: SplitJudge,
              rules: MergeRules, refused: set[tuple[Members, ...]], why: dict[str, str]) -> None:
    """Merges that a pattern proposes with one exit, one after the other."""
    again = out in now.members
    while again:
        again = False
        for parts in tuple(propose(now, out)):
            merge = Merge(pattern, tuple(now.members[p] for p in parts))
            if merge.parts in refused:
                continue
            reason = accept_merge(now, merge, judge, rules)
            if reason is None:
                refused.add(merge.parts)
                continue
            now.merge(parts)
            out = now.owner[out]
            known = dict.fromkeys(why.pop(p, "") for p in parts)
            why[out] = "; ".join([*filter(None, known), reason])
            again = True
            break


def accept_merge(now: MergedSubGraphs, merge: Merge, judge: SplitJudge,
                 rules: MergeRules) -> str | None:
    """Why a merge is made, None if it is not."""
    whole = now.joined(merge.parts)
    split = judge.split(whole)
    if not split.fits:
        return None
    if rules.accept == PAPER:
        return _by_rules(merge, whole, judge, rules)
    parts = sum(judge.price(p).seconds for p in merge.parts)
    together = judge.price(whole).seconds
    if together >= parts:
        return None
    return f"{merge.pattern}: {together * 1e6:.2f} us instead of {parts * 1e6:.2f}"


def _by_rules(merge: Merge, whole: Members, judge: SplitJudge, rules: MergeRules) -> str | None:
    """Rules (i) and (ii); one that computes anything again must save time by it."""
    f = judge.split(whole).pieces
    parts = [judge.split(p).pieces for p in merge.parts]
    if merge.pattern == "diamond":
        good, said = f <= max(parts), f"{f} pieces, at most {max(parts)} before"
    else:
        good = parts[-1] >= parts[0] and f <= parts[-1]
        if rules.growth is not None:
            good = good and f <= rules.growth * min(parts)
        said = f"{f} pieces, {parts[0]} and {parts[-1]} before"
    if good and judge.price(whole).recompute > 1 + 1e-9:
        good = judge.price(whole).seconds < sum(judge.price(p).seconds for p in merge.parts)
    return f"{merge.pattern}: {said}" if good else None
