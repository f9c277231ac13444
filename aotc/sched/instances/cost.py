"""What a sub-graph takes in seconds: the price that merges are accepted by."""

from dataclasses import dataclass
from math import prod

from aotc.sched.instances.binding import plain
from aotc.sched.instances.cluster import Cluster
from aotc.sched.instances.split import Members, SplitInfo, best_split, pieces_of, sources_of
from aotc.sched.instances.tensor_graph import Box, Graph, Node, regions, volume

LOOKUP = "lookup"  # kind of nodes that read only the rows of their constants that data name


@dataclass(frozen=True)
class Price:
    """Seconds of all instances of a sub-graph: ``computing``, ``moving`` between the cores' own
    memories and the next one out, ``starting`` its kernels; ``recompute``: how many times more
    operations its instances do than the nodes have."""

    computing: float
    moving: float
    starting: float
    recompute: float

    @property
    def seconds(self) -> float:
        """With data moved while others are computed on."""
        return max(self.computing, self.moving) + self.starting


def part_of(node: Node, box: Box) -> float:
    """Which part of a node's points a box is."""
    return volume(box) / max(1, volume(node.box))


def node_seconds(graph: Graph, cluster: Cluster, node: Node, boxes: dict[str, Box]) -> float:
    """Seconds of computing one node's box, with what it reads in the cores' own memories."""
    box = boxes[node.name]
    touched = volume(box) * node.element + sum(
        volume(boxes[s]) * graph.node[s].element for s in node.sources if s in boxes)
    cores = prod(plain([b - a for a, b in box], cluster.cores, node.unbound))
    return cluster.computing(node.kind, node.flops * part_of(node, box), touched, cores)


def weights_of(node: Node, box: Box) -> int:
    """Bytes of constants that one box of a node reads: all, unless data name the rows."""
    return int(node.weights * part_of(node, box)) if node.kind == LOOKUP else node.weights


class Judge:
    """Splits and prices of sub-graphs of one Graph on one Cluster, each found once."""

    def __init__(self, graph: Graph, cluster: Cluster, budget: int | None = None) -> None:
        self.graph, self.cluster = graph, cluster
        self.budget = cluster.budget if budget is None else budget
        self._splits: dict[Members, SplitInfo] = {}
        self._prices: dict[Members, Price] = {}

    def split(self, members: Members) -> SplitInfo:
        """The best split to fit the cores' own memories."""
        if members not in self._splits:
            self._splits[members] = best_split(self.graph, members, self.budget)
        return self._splits[members]

    def price(self, members: Members) -> Price:
        """Of a sub-graph at its best split, by its piece in the middle."""
        if members not in self._prices:
            self._prices[members] = self._price(members, self.split(members))
        return self._prices[members]

    def _price(self, members: Members, split: SplitInfo) -> Price:
        graph, cluster = self.graph, self.cluster
        pieces = pieces_of(graph.node[members[-1]].shape, split.cuts)
        boxes = regions(graph, members, pieces[len(pieces) // 2])
        nodes = [graph.node[m] for m in members if m in boxes]
        computing = sum(node_seconds(graph, cluster, n, boxes) for n in nodes)
        outside = [b for b in (*sources_of(graph, members), members[-1]) if b in boxes]
        crossing = sum(volume(boxes[b]) * graph.node[b].element for b in outside)
        if not split.fits:
            crossing += 2 * sum(volume(boxes[n.name]) * n.element for n in nodes[:-1])
        crossing += sum(weights_of(n, boxes[n.name]) for n in nodes)
        done = sum(n.flops * part_of(n, boxes[n.name]) for n in nodes) * len(pieces)
        needed = sum(graph.node[m].flops for m in members)
        return Price(computing * len(pieces), cluster.moving(1, crossing) * len(pieces),
                     cluster.launch * len(pieces), done / needed if needed else 1.0)
