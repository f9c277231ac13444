"""What a sub-graph takes in seconds: the price that merges are accepted by."""

from dataclasses import dataclass
from math import prod

from aotc.sched.accelerator.instances.binding import bind_outermost_first
from aotc.sched.accelerator.instances.cluster import Cluster
from aotc.sched.accelerator.instances.split import (
    Members,
    SplitInfo,
    best_split,
    middle_piece,
    outermost_dimension,
    outs_of,
    shares,
    sources_of,
    two_cuts,
)
from aotc.sched.accelerator.instances.tensor_graph import (
    Box,
    TensorGraph,
    TensorNode,
    regions,
    volume,
)

LOOKUP = "lookup"  # kind of nodes that read only the rows of their constants that data name


@dataclass(frozen=True)
class Price:
    """Seconds of all instances of a sub-graph: ``computing``, ``moving`` between the cores' own
    memories and the next one out, ``fetching`` weights from the outermost, ``starting`` its
    kernels; ``recompute``: how many times more operations its instances do than the nodes have."""

    computing: float
    moving: float
    fetching: float
    starting: float
    recompute: float

    @property
    def seconds(self) -> float:
        """With data moved while others are computed on."""
        return max(self.computing, self.moving, self.fetching) + self.starting


def part_of(node: TensorNode, box: Box) -> float:
    """Which part of a node's points a box is."""
    return volume(box) / max(1, volume(node.box))


def node_seconds(graph: TensorGraph, cluster: Cluster, node: TensorNode,
                 boxes: dict[str, Box]) -> float:
    """Seconds of computing one node's box, with what it reads in the cores' own memories."""
    box = boxes[node.name]
    touched = volume(box) * node.element + sum(
        volume(boxes[s]) * graph.node[s].element for s in node.sources if s in boxes)
    cores = prod(bind_outermost_first([b - a for a, b in box], cluster.cores, node.unbound))
    return cluster.computing(node.kind, node.flops * part_of(node, box), touched, cores)


def weights_of(node: TensorNode, box: Box) -> int:
    """Bytes of constants that one box of a node reads."""
    if node.kind == LOOKUP:
        return int(node.weights * part_of(node, box))
    size = node.weights
    for d in node.shared:
        size = size * (box[d][1] - box[d][0]) // node.shape[d]
    return size


class SplitJudge:
    """Splits and prices of sub-graphs of one Graph on one Cluster, each found once.

    share: of the splits that fit, the one that takes the fewest seconds, of those whose first cut
    leaves pieces of all that is read and written that fill no more than such a share of the next
    memory out, so that few of them are live at once; None: that of Equation 1.  anywhere: the first
    cut may be of any dimension, not of the outermost one alone."""

    def __init__(self, graph: TensorGraph, cluster: Cluster, budget: int | None = None,
                 share: float | None = None, anywhere: bool = False) -> None:
        self.graph, self.cluster, self.share = graph, cluster, share
        self.anywhere = anywhere
        self.budget = cluster.budget if budget is None else budget
        self._splits: dict[Members, SplitInfo] = {}
        self._prices: dict[Members, Price] = {}

    def split(self, members: Members) -> SplitInfo:
        """The best split to fit the cores' own memories."""
        if members not in self._splits:
            best = best_split(self.graph, members, self.budget)
            if self.share is not None and best.fits and best.pieces > 1:
                most = self.share * self.cluster.capacity(1)
                crossing = sum(self.graph.node[b].bytes for b in (
                    *sources_of(self.graph, members), *outs_of(self.graph, members)))
                first = outermost_dimension(self.graph.node[members[-1]].shape)
                found = two_cuts(self.graph, members, self.budget, crossing / most,
                                 None if self.anywhere else first) or (best,)
                best = min(found, key=lambda s: (self._price(members, s).seconds, s.pieces))
            self._splits[members] = best
        return self._splits[members]

    def price(self, members: Members) -> Price:
        """Of a sub-graph at its best split, by its piece in the middle."""
        if members not in self._prices:
            self._prices[members] = self._price(members, self.split(members))
        return self._prices[members]

    def _price(self, members: Members, split: SplitInfo) -> Price:
        graph, cluster = self.graph, self.cluster
        box = middle_piece(graph.node[members[-1]].shape, split.cuts)
        more = shares(graph, members, box)
        assert more is not None  # such splits are not found
        boxes = regions(graph, members, box, more)
        nodes = [graph.node[m] for m in members if m in boxes]
        computing = sum(node_seconds(graph, cluster, n, boxes) for n in nodes)
        stored = {members[-1]: box, **more}
        outside = {**{s: boxes[s] for s in sources_of(graph, members) if s in boxes}, **stored}
        crossing = sum(volume(b) * graph.node[s].element for s, b in outside.items())
        if not split.fits:
            crossing += 2 * sum(volume(boxes[n.name]) * n.element for n in nodes[:-1])
        weights = sum(weights_of(n, boxes[n.name]) for n in nodes)
        # what fills half of the next memory out is there for the next piece, too
        again = max(0, weights - cluster.capacity(1) // 2) * (split.pieces - 1)
        fetched = min(weights * split.pieces, sum(n.weights for n in nodes) + again)
        done = sum(n.flops * part_of(n, boxes[n.name]) for n in nodes) * split.pieces
        needed = sum(graph.node[m].flops for m in members)
        return Price(computing * split.pieces,
                     cluster.moving(1, crossing + weights) * split.pieces,
                     fetched / cluster.bandwidth(len(cluster.outer)),
                     cluster.launch * split.pieces, done / needed if needed else 1.0)
