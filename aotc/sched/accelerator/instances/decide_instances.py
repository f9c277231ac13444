"""The deciders of instances in order: a Graph and a Cluster to an InstancePlan."""

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.sched.accelerator.instances.binding import BoundInstances, bind_instances, carry_binding
from aotc.sched.accelerator.instances.cluster import Cluster
from aotc.sched.accelerator.instances.cost import SplitJudge, weights_of
from aotc.sched.accelerator.instances.cut_graph import CutGraph, cut_graph
from aotc.sched.accelerator.instances.grouping import BY_COST, PAPER, MergeRules, group
from aotc.sched.accelerator.instances.instance_order import (
    WAYS,
    Ordered,
    moved_bytes,
    orders,
    peak_live,
)
from aotc.sched.accelerator.instances.instance_plan import Held, InstancePlan, Weights
from aotc.sched.accelerator.instances.instances import SubGraph
from aotc.sched.accelerator.instances.moves import moves
from aotc.sched.accelerator.instances.residence import find_held, homes, lifetimes, weights
from aotc.sched.accelerator.instances.segments import (
    SEGMENTED,
    SHARES,
    order_segments,
    segments,
    stages,
)
from aotc.sched.accelerator.instances.spill import LONGEST, Homes, Lifetime, place_outputs
from aotc.sched.accelerator.instances.split import middle_piece
from aotc.sched.accelerator.instances.steps import seconds, steps_of_plan
from aotc.sched.accelerator.instances.tensor_graph import TensorGraph, regions

ALL_WAYS = (*WAYS, SEGMENTED)
PAPER_WAYS = ("breadth first", "depth first")

# of the next memory out that pieces of the first cut may fill, and whether that may be of any
# dimension
FIRST_CUTS = ((0.5, False), (0.125, True))
HELD_BACK = (0.0, 0.25, 0.5)  # of the next memory out that outputs leave to weights


def decide_instances(graph: TensorGraph, cluster: Cluster, rules: MergeRules = BY_COST,
                     ways: Sequence[str] | None = None, spill: str = LONGEST,
                     judge: SplitJudge | None = None) -> InstancePlan:
    """All decisions for one cluster; deterministic, measures nothing.  ways: to find an order,
    names of ``ALL_WAYS`` (None: as the rules have them).  spill: ``LONGEST`` or ``LARGEST``.
    judge: of the same graph and cluster."""
    if judge is not None or rules.accept == PAPER:
        subgraphs = group(graph, judge or SplitJudge(graph, cluster), rules)
        return decide_parts(graph, cluster, rules, subgraphs, ways, spill)
    found = dict.fromkeys(group(graph, SplitJudge(graph, cluster, None, *first), rules)
                          for first in FIRST_CUTS)
    plans = [decide_parts(graph, cluster, rules, s, ways, spill) for s in found]
    return min(plans, key=lambda p: predict_plan(p, cluster))


def predict_plan(plan: InstancePlan, cluster: Cluster) -> tuple[bool, float]:
    """What plans are compared by: seconds without overlap between steps, of those that leave no
    output in the outermost memory, which all clusters share, if there are any."""
    return plan.uses()[-1] > 0, seconds(steps_of_plan(plan, cluster), cluster)


@dataclass(frozen=True)
class _Settled:
    """An order with all that follows from it; price: whether outputs reach the outermost memory,
    which all clusters share, then seconds of moves beyond the cores' own memories."""

    ordered: Ordered
    bound: BoundInstances
    lives: tuple[Lifetime, ...]
    homes: Homes
    held: tuple[Held, ...]
    weights: tuple[Weights, ...]
    price: tuple[bool, float]


def decide_parts(graph: TensorGraph, cluster: Cluster, rules: MergeRules,
                 subgraphs: Sequence[SubGraph], ways: Sequence[str] | None = None,
                 spill: str = LONGEST) -> InstancePlan:
    """The rest of the decisions for settled sub-graphs: of the orders found, and of the parts of
    the next memory out that outputs leave to weights, the best by ``_Settled.price``; by the
    paper's rules, the first order and no such part."""
    ways = ways or (PAPER_WAYS if rules.accept == PAPER else ALL_WAYS)
    of = cut_graph(graph, cluster, subgraphs)
    found = orders(of.tasks, cluster.budget, [w for w in ways if w in WAYS])
    if SEGMENTED in ways:
        found = (*found, *_in_segments(of))
    parts = (0.0,) if rules.accept == PAPER else HELD_BACK
    tried = found[:1] if rules.accept == PAPER else found
    best = min((s for o in tried for s in _settled(of, o, spill, parts)), key=lambda s: s.price)
    chosen, bound = best.ordered, best.bound
    # what a consumer cannot read in parts that match its own, it reads as a whole
    read_as = {(x, p): carry_binding(bound.bind[x], of.shapes[p], m, of.unbound[p])
               or (1,) * len(of.shapes[p]) for (x, p), m in of.carries.items()}
    found = (chosen, *(o for o in found if o is not chosen))
    return InstancePlan(
        graph, rules, of.subgraphs, of.split, found, bound,
        moves(of.split, chosen.order, best.homes.level, bound.bind, read_as), best.lives,
        best.homes, place_outputs(best.lives, best.homes), best.held, best.weights)


def _settled(of: CutGraph, o: Ordered, spill: str, parts: Sequence[float]) -> list[_Settled]:
    """All that follows from an order, for each part of the next memory that is held back."""
    bound = bind_instances(o.order, of.shapes, of.split.producers, of.carries, of.cluster.cores,
                           of.unbound)
    lives = lifetimes(of, o.order, bound)
    out: list[_Settled] = []
    for part in parts:
        levels = homes(of, o.order, lives, spill, part)
        if out and levels.level == out[-1].homes.level:
            continue
        inside = find_held(of, o.order, levels)
        read = weights(of, o.order, inside, lives, levels)
        far = any(h.level == len(of.cluster.outer) and not of.graph.node[h.node].output
                  for h in inside)
        out.append(_Settled(o, bound, lives, levels, inside, read,
                            (far, _moving(of.cluster, levels, read))))
    return out


def _moving(cluster: Cluster, levels: Homes, read: Sequence[Weights]) -> float:
    """Seconds of moves beyond the cores' own memories that an order makes necessary."""
    taken = sum(w.fetched for w in read) / cluster.bandwidth(len(cluster.outer))
    return taken + sum(n / cluster.bandwidth(k + 1) for k, n in enumerate(levels.moved[:-1]))


def _in_segments(of: CutGraph) -> tuple[Ordered, ...]:
    graph, cluster, tasks = of.graph, of.cluster, of.tasks
    names = [[x.name for x in of.split.instances if x.subgraph == s.name] for s in of.subgraphs]
    sizes = [sum(graph.node[m].weights for m in s.members) for s in of.subgraphs]
    piece = [_piece_weights(graph, s) for s in of.subgraphs]
    turns = [dict(s.split.cuts).get(1, 1) for s in of.subgraphs]
    found = stages(tasks, names, sizes, piece, turns)
    cuts = dict.fromkeys(segments(found, cluster, share) for share in SHARES)
    made = (order_segments(tasks, found, c) for c in cuts)
    return tuple(Ordered(SEGMENTED, order, peak_live(tasks, order),
                         moved_bytes(tasks, order, cluster.budget)) for order in made)


def _piece_weights(graph: TensorGraph, part: SubGraph) -> int:
    boxes = regions(graph, part.members, middle_piece(graph.node[part.out].shape, part.split.cuts))
    return sum(weights_of(graph.node[m], boxes[m]) for m in part.members if m in boxes)
