"""An order between breadth first and depth first: segments of sub-graphs one after the other, each
depth first.

Depth first through everything keeps few outputs live and reads all weights again for every piece;
breadth first reads them once and keeps all pieces live.  Where to cut follows from the bytes that
the next memory out can hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotc.sched.accelerator.instances.cluster import Cluster
from aotc.sched.accelerator.instances.instance_order import Order, Tasks, heavy_first

SEGMENTED = "segmented"
SHARES = (0.9, 0.75, 0.5)  # of a memory that outputs which cross the ends of segments may fill


@dataclass(frozen=True)
class Stages:
    """Sub-graphs in order: the instances of each, the bytes of weights that they read,
    ``piece``: those of one instance, ``turns``: how often a depth-first order comes back to it, and
    ``crossing[j]``: bytes of all outputs that are made before sub-graph j and read from there on.
    """

    names: tuple[tuple[str, ...], ...]
    weights: tuple[int, ...]
    piece: tuple[int, ...]
    turns: tuple[int, ...]
    crossing: tuple[int, ...]


def stages(tasks: Tasks, names: Sequence[Sequence[str]], weights: Sequence[int],
           piece: Sequence[int], turns: Sequence[int]) -> Stages:
    """Stages of the instances ``names`` of every sub-graph."""
    number = {x: i for i, found in enumerate(names) for x in found}
    change = [0] * (len(names) + 1)
    for x, i in number.items():
        last = max((number[c] for c in tasks.consumers[x]), default=i)
        if last > i and x not in tasks.kept:
            change[i + 1] += tasks.size[x]
            if last + 1 < len(change):
                change[last + 1] -= tasks.size[x]
    crossing, live = [], 0
    for n in change:
        live += n
        crossing.append(live)
    return Stages(tuple(map(tuple, names)), tuple(weights), tuple(piece), tuple(turns),
                  tuple(crossing))


def segments(found: Stages, cluster: Cluster, share: float = 1.0) -> tuple[tuple[int, int], ...]:
    """(first sub-graph, end) of segments for which moves beyond the cores' own memories are
    estimated to take the least time.  share: of each memory that what crosses the ends may fill;
    the rest is for what is live in between."""
    n = len(found.names)
    best: list[tuple[float, int]] = [(0.0, 0)] + [(float("inf"), 0)] * n
    for j in range(1, n + 1):
        weights = again = 0
        for i in range(j - 1, -1, -1):
            weights += found.weights[i]
            again += found.weights[i] * (found.turns[i] - 1)
            cost = best[i][0] + _seconds(found, cluster, i, j, weights, again, share)
            if cost < best[j][0]:
                best[j] = cost, i
    cuts, j = [], n
    while j:
        cuts.append((best[j][1], j))
        j = best[j][1]
    return tuple(reversed(cuts))


def _seconds(found: Stages, cluster: Cluster, i: int, j: int, weights: int, again: int,
             share: float) -> float:
    """Of the moves of one segment: weights that the next memory out cannot keep, and outputs that
    cross its end and do not fit where they are wanted."""
    crossing = max(found.crossing[i], found.crossing[j])
    room = max(0, int(cluster.capacity(1) * share) - crossing)
    if j - i == 1:  # one piece after the other, with what has no room once more for each
        pieces = len(found.names[i])
        again = max(0, found.piece[i] - room) * (pieces - 1)
        fetched = float(min(found.piece[i] * pieces, weights + again))
    else:
        fetched = weights + again * max(0, weights - room) / max(1, weights)
    last = len(cluster.outer)
    taken = fetched / cluster.bandwidth(last)
    for level in range(1, last + 1):
        over = max(0, found.crossing[j] - int(cluster.capacity(level - 1) * share))
        taken += 2 * over / cluster.bandwidth(level)
    return taken


def order_segments(tasks: Tasks, found: Stages, cuts: Sequence[tuple[int, int]]) -> Order:
    """The order of segments one after the other, in each the heaviest instances first; those of one
    sub-graph as they are, which keeps instances with the same weights together."""
    order: list[str] = []
    done: set[str] = set()
    for i, j in cuts:
        inside = [x for names in found.names[i:j] for x in names]
        order += inside if j - i == 1 else heavy_first(_restricted(tasks, inside, done))
        done.update(inside)
    return tuple(order)


def _restricted(tasks: Tasks, inside: Sequence[str], done: set[str]) -> Tasks:
    """The tasks of a segment: what is read from before it is there."""
    here: Mapping[str, None] = dict.fromkeys(inside)
    kept = frozenset(x for x in inside if x in tasks.kept
                     or any(c not in here for c in tasks.consumers[x]))
    producers = {x: tuple(p for p in tasks.producers.get(x, ()) if p not in done) for x in inside}
    return Tasks({x: tasks.size[x] for x in inside}, producers, kept)
