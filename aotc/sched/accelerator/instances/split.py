"""How a sub-graph is split into instances: GraphTurbo's SplitInfo and BestSplit.

A sub-graph is a tuple of node names in topological order, the last one an output, which the split
cuts: one dimension into equal pieces, so that what one piece takes fits a budget of bytes.  Where
no single dimension does, outer ones are cut as far as they go first (``outer``).  Other outputs are
cut along with it (``shares``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from aotc.sched.accelerator.instances.tensor_graph import (
    Box,
    TensorGraph,
    follow_dimensions,
    regions,
    volume,
)

Members = tuple[str, ...]
CORES_FIRST = (1, 2, 4)  # pieces that leave an even part of the dimension to every core
FIRST_TRIED = 4  # numbers of pieces of the first of two dimensions


@dataclass(frozen=True)
class SplitInfo:
    """One way to split: dimension ``d`` (1 is the outermost) into ``f`` pieces, which splits ``n``
    ops.  outer: (dimension, pieces) that are cut before.  bytes: the most that one piece takes.
    fits: that is within the budget."""

    n: int
    f: int
    d: int
    outer: tuple[tuple[int, int], ...] = ()
    bytes: int = 0
    fits: bool = True

    @property
    def pieces(self) -> int:
        """How many instances there are."""
        return self.f * prod(f for _, f in self.outer)

    @property
    def cuts(self) -> tuple[tuple[int, int], ...]:
        """(dimension from 1, pieces), outermost first."""
        return (*self.outer, (self.d, self.f))

    def __str__(self) -> str:
        cuts = " x ".join(f"{f} on dimension {d}" for d, f in self.cuts)
        return f"{cuts}: {self.n} ops, {self.bytes} bytes{'' if self.fits else ', too many'}"


def sources_of(graph: TensorGraph, members: Members) -> tuple[str, ...]:
    """Tensors that a sub-graph reads from outside."""
    inside = set(members)
    return tuple(dict.fromkeys(s for m in members for s in graph.node[m].sources
                               if s not in inside))


def outs_of(graph: TensorGraph, members: Members) -> tuple[str, ...]:
    """Outputs of a sub-graph, in order: the last member, and those that anything else reads."""
    inside = set(members)
    return tuple(m for m in members if m == members[-1] or graph.node[m].output
                 or any(c not in inside for c in graph.consumers[m]))


def shares(graph: TensorGraph, members: Members, box: Box) -> dict[str, Box] | None:
    """{output: box} that a piece has of every output but the last one, of which it has ``box``: the
    same part of the dimension that moves with each that is cut.  So the pieces of every output
    are all of it, each point once.  None if a dimension that is cut moves none of an output."""
    outs, out = outs_of(graph, members)[:-1], {}
    dims = follow_dimensions(graph, members) if outs else {}
    whole = graph.node[members[-1]].box
    for o in outs:
        ranges = list(graph.node[o].box)
        for d, (a, b) in enumerate(box):
            n = whole[d][1]
            if (a, b) == (0, n):
                continue
            e = dims.get(o, {}).get(d)
            if e is None:
                return None
            extent = graph.node[o].shape[e]
            ranges[e] = (a * extent // n, b * extent // n)
            if ranges[e][0] == ranges[e][1]:
                return None
        out[o] = tuple(ranges)
    return out


def piece_boxes(graph: TensorGraph, members: Members, box: Box) -> dict[str, Box] | None:
    """{tensor: box} of all that computing one piece takes, whose box of the last output is
    ``box``; None if the outputs cannot be cut so."""
    more = shares(graph, members, box)
    return None if more is None else regions(graph, members, box, more)


def pieces_of(shape: Sequence[int], cuts: Sequence[tuple[int, int]]) -> tuple[Box, ...]:
    """Boxes of an output of ``shape`` cut as (dimension from 1, pieces) say, outermost first."""
    count = dict(cuts)
    ranges = []
    for d, extent in enumerate(shape, 1):
        f = count.get(d, 1)
        ranges.append([(extent * k // f, extent * (k + 1) // f) for k in range(f)])
    return tuple(product(*ranges))


def peak(graph: TensorGraph, members: Members, boxes: dict[str, Box]) -> int:
    """The most bytes live at once while the members run in order on ``boxes``: what they read from
    outside from the start to its last reader, each result to its last reader, outputs to the end.
    Weights have slots of their own."""
    size = {b: volume(box) * graph.node[b].element for b, box in boxes.items()}
    last = dict.fromkeys(outs_of(graph, members), len(members))
    for i, m in enumerate(members):
        for s in graph.node[m].sources:
            if s in size:
                last[s] = max(last.get(s, 0), i)
    inside = set(members)
    live = sum(n for b, n in size.items() if b not in inside)
    ends: dict[int, list[str]] = {}
    for b, i in last.items():
        ends.setdefault(i, []).append(b)
    most = live
    for i, m in enumerate(members):
        live += size.get(m, 0)
        most = max(most, live)
        live -= sum(size.get(b, 0) for b in ends.get(i, ()))
    return most


def piece_peak(graph: TensorGraph, members: Members, cuts: Sequence[tuple[int, int]]) -> int | None:
    """The most bytes that a piece in the middle of the output takes, where halos are widest; None
    if the outputs cannot be cut so."""
    boxes = piece_boxes(graph, members, middle_piece(graph.node[members[-1]].shape, cuts))
    return None if boxes is None else peak(graph, members, boxes)


def middle_piece(shape: Sequence[int], cuts: Sequence[tuple[int, int]]) -> Box:
    """A largest piece in the middle of an output of ``shape``."""
    count = dict(cuts)
    box = []
    for d, n in enumerate(shape, 1):
        f = count.get(d, 1)
        size = -(-n // f)
        first = min(n * (f // 2) // f, n - size)
        box.append((first, first + size))
    return tuple(box)


def split_info(graph: TensorGraph, members: Members, budget: int,
               outer: tuple[tuple[int, int], ...] = (),
               tried: Callable[[int], Sequence[int]] | None = None) -> tuple[SplitInfo, ...]:
    """One SplitInfo per dimension of the output that can be split to fit ``budget``; () if none.

    The pieces tried are those that divide the extent, fewest first (Algorithm 1, with what is
    split and whether a tensor shrinks taken from region analysis).  outer: cuts made before;
    tried: extent -> numbers of pieces."""
    tried = tried or _tried
    found = []
    shape = graph.node[members[-1]].shape
    taken = {d for d, _ in outer}
    for d, extent in enumerate(shape, 1):
        if d in taken or (outer and extent == 1):
            continue
        for v in tried(extent):
            need = piece_peak(graph, members, (*outer, (d, v)))
            if need is not None and need <= budget:
                found.append(SplitInfo(_ops_split(graph, members, d, v), v, d, outer, need))
                break
    return tuple(found)


def _tried(extent: int) -> list[int]:
    """Numbers of pieces: 1, 2, 4, then 8 and more, that divide the extent."""
    return [v for v in (*CORES_FIRST, *range(8, extent + 1)) if v <= extent and extent % v == 0]


def _uneven(extent: int) -> list[int]:
    """Divisors and powers of two: pieces that differ by one element in size are better than ever
    so many small ones."""
    powers = {1 << k for k in range(extent.bit_length()) if 1 << k <= extent}
    return sorted(powers.union(_tried(extent)))


def _ops_split(graph: TensorGraph, members: Members, d: int, f: int) -> int:
    """1 and the ops of the intermediates that have the dimension, divided by f."""
    dims, count = follow_dimensions(graph, members), 1
    for m in members[:-1]:
        e = dims.get(m, {}).get(d - 1)
        if e is not None and graph.node[m].shape[e] % f == 0:
            count += graph.node[m].ops
    return count


def choose_split(infos: Sequence[SplitInfo]) -> SplitInfo | None:
    """Equation 1: splits most ops, then into fewest pieces, then along the outermost dimension."""
    return max(infos, key=lambda s: (s.n, -s.f, -s.d), default=None)


def best_split(graph: TensorGraph, members: Members, budget: int) -> SplitInfo:
    """The best split of a sub-graph.  Where no single dimension fits, outer dimensions are cut
    into single elements first, one after the other; where even that does not, the cut
    beyond which little is won."""
    outer: tuple[tuple[int, int], ...] = ()
    shape = graph.node[members[-1]].shape
    for d, extent in enumerate(shape, 1):
        found = choose_split(split_info(graph, members, budget, outer))
        if found is not None:
            return found
        if extent > 1:
            outer = (*outer, (d, extent))
    return _finest(graph, members, outer)


def two_cuts(graph: TensorGraph, members: Members, budget: int, least: float,
             first: int | None = None) -> tuple[SplitInfo, ...]:
    """Splits that fit, of one dimension and of one more: for the fewest numbers of pieces of the
    first one, ``least`` or more if there are so many, the fewest of each other dimension.
    first: tried as the first one (None: every dimension)."""
    found: list[SplitInfo] = []
    shape = graph.node[members[-1]].shape
    for d, n in enumerate(shape, 1) if first is None else ((first, shape[first - 1]),):
        pieces = [v for v in range(1, n + 1) if n % v == 0 and v >= min(least, n)]
        for v in pieces[:FIRST_TRIED] if n > 1 or first else ():
            found += split_info(graph, members, budget, ((d, v),), _uneven)
    return tuple(found)


def outermost_dimension(shape: Sequence[int]) -> int:
    """The first dimension, from 1, that can be cut."""
    return next((d for d, n in enumerate(shape, 1) if n > 1), 1)


def _finest(graph: TensorGraph, members: Members, outer: tuple[tuple[int, int], ...]) -> SplitInfo:
    """The coarsest prefix of ``outer`` that no finer one improves on by more than a tenth: pieces
    that read a whole tensor, whatever they make of it, would only be many."""
    best = SplitInfo(1, 1, 1, (), piece_peak(graph, members, ()) or 0, False)
    for i, (d, f) in enumerate(outer):
        need = piece_peak(graph, members, outer[:i + 1])
        if need is not None and 10 * need < 9 * best.bytes:
            best = SplitInfo(1, f, d, outer[:i], need, False)
    return best
