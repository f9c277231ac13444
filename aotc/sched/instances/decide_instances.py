"""The deciders of instances in order: a Graph and a Cluster to an InstancePlan."""

from collections.abc import Hashable, Mapping, Sequence
from math import prod

from aotc.sched.instances.binding import Bound, bind_instances, carried, plain
from aotc.sched.instances.cluster import Cluster
from aotc.sched.instances.cost import LOOKUP, Judge, weights_of
from aotc.sched.instances.grouping import BY_COST, PAPER, Rules, group
from aotc.sched.instances.instance_order import WAYS, Ordered, Tasks, moved_bytes, orders, peak_live
from aotc.sched.instances.instance_plan import Held, InstancePlan, Weights
from aotc.sched.instances.instances import InstanceGraph, SubGraph, instances, matches
from aotc.sched.instances.moves import moves
from aotc.sched.instances.segments import SEGMENTED, SHARES, segmented, segments, stages
from aotc.sched.instances.spill import LONGEST, Homes, Lifetime, pinned, placed, spilled
from aotc.sched.instances.split import middle, peak
from aotc.sched.instances.steps import seconds, steps_of_plan
from aotc.sched.instances.tensor_graph import Box, Graph, regions, volume

ALL_WAYS = (*WAYS, SEGMENTED)
PAPER_WAYS = ("breadth first", "depth first")

SHARES_OF_SPLITS = (0.5, 0.125)  # of the next memory out that pieces of the batch may fill
ROUNDS = 6  # of spilling, each with the copies that the one before made necessary


def decide_instances(graph: Graph, cluster: Cluster, rules: Rules = BY_COST,
                     ways: Sequence[str] | None = None, spill: str = LONGEST,
                     judge: Judge | None = None) -> InstancePlan:
    """All decisions for one cluster; deterministic, measures nothing.  ways: to find an order,
    names of ``ALL_WAYS`` (None: as the rules have them).  spill: ``LONGEST`` or ``LARGEST``.
    judge: of the same graph and cluster."""
    if judge is not None or rules.accept == PAPER:
        subgraphs = group(graph, judge or Judge(graph, cluster), rules)
        return decide_parts(graph, cluster, rules, subgraphs, ways, spill)
    found = {}
    for share in SHARES_OF_SPLITS:
        subgraphs = group(graph, Judge(graph, cluster, share=share), rules)
        found[subgraphs] = share
    plans = [decide_parts(graph, cluster, rules, s, ways, spill) for s in found]
    return min(plans, key=lambda p: predicted(p, cluster))


def predicted(plan: InstancePlan, cluster: Cluster) -> tuple[int, float]:
    """What plans are compared by: outputs in the outermost memory, which all clusters share, then
    seconds without overlap between steps."""
    return plan.uses()[-1], seconds(steps_of_plan(plan, cluster), cluster)


def decide_parts(graph: Graph, cluster: Cluster, rules: Rules, subgraphs: Sequence[SubGraph],
                 ways: Sequence[str] | None = None, spill: str = LONGEST) -> InstancePlan:
    """The rest of the decisions for settled sub-graphs."""
    ways = ways or (PAPER_WAYS if rules.accept == PAPER else ALL_WAYS)
    split = instances(graph, subgraphs)
    parts = {s.name: s for s in subgraphs}
    boxes = {x.name: regions(graph, parts[x.subgraph].members, x.box) for x in split.instances}
    tasks = _tasks(graph, split, parts)
    shapes = {x.name: [b - a for a, b in x.box] for x in split.instances}
    wanted = _carries(graph, split, parts)
    unbound = {x.name: graph.node[parts[x.subgraph].out].unbound for x in split.instances}
    found = orders(tasks, cluster.budget, [w for w in ways if w in WAYS])
    if SEGMENTED in ways:
        found = (*found, *_in_segments(graph, cluster, subgraphs, split, tasks))
    best = None
    for o in found if rules.accept != PAPER else found[:1]:
        bound = bind_instances(o.order, shapes, split.producers, wanted, cluster.cores, unbound)
        lives = _lifetimes(graph, split, parts, tasks, o.order, bound, cluster)
        homes = _homes(graph, split, parts, boxes, lives, o.order, cluster, spill)
        held = _held(graph, split, parts, boxes, homes, o.order, cluster)
        weights = _weights(graph, held, _rooms(lives, homes, o.order, cluster.capacity(1)))
        price = homes.moved[-2], _moving(cluster, homes, weights)
        if best is None or price < best[0]:
            best = price, o, bound, lives, homes, held, weights
    assert best is not None
    _, chosen, bound, lives, homes, held, weights = best
    read_as = {(x, p): carried(bound.bind[x], shapes[p], m, unbound[p])
               for (x, p), m in wanted.items()}
    found = (chosen, *(o for o in found if o is not chosen))
    return InstancePlan(
        graph, rules, tuple(subgraphs), split, found, bound,
        moves(split, chosen.order, homes.level, bound.bind, read_as), lives, homes,
        placed(lives, homes), held, weights)


def _moving(cluster: Cluster, homes: Homes, weights: Sequence[Weights]) -> float:
    """Seconds of moves beyond the cores' own memories that an order makes necessary."""
    taken = sum(w.bytes for w in weights if w.fetched) / cluster.bandwidth(len(cluster.outer))
    return taken + sum(n / cluster.bandwidth(k + 1) for k, n in enumerate(homes.moved[:-1]))


def _in_segments(graph, cluster, subgraphs, split, tasks) -> tuple[Ordered, ...]:
    names = [[x.name for x in split.instances if x.subgraph == s.name] for s in subgraphs]
    weights = [sum(graph.node[m].weights for m in s.members) for s in subgraphs]
    piece = [_piece_weights(graph, s) for s in subgraphs]
    turns = [dict(s.split.cuts).get(1, 1) for s in subgraphs]
    found = stages(tasks, names, weights, piece, turns)
    cuts = dict.fromkeys(segments(found, cluster, share) for share in SHARES)
    made = (segmented(tasks, found, c) for c in cuts)
    return tuple(Ordered(SEGMENTED, order, peak_live(tasks, order),
                         moved_bytes(tasks, order, cluster.budget)) for order in made)


def _piece_weights(graph: Graph, part: SubGraph) -> int:
    boxes = regions(graph, part.members, middle(graph.node[part.out].shape, part.split.cuts))
    return sum(weights_of(graph.node[m], boxes[m]) for m in part.members if m in boxes)


def _tasks(graph: Graph, split: InstanceGraph, parts: Mapping[str, SubGraph]) -> Tasks:
    size, kept = {}, set()
    for x in split.instances:
        out = graph.node[parts[x.subgraph].out]
        size[x.name] = volume(x.box) * out.element
        if out.output:
            kept.add(x.name)
    # what the caller reads is written out piece by piece and fills no memory of the cluster
    return Tasks({x: 0 if x in kept else n for x, n in size.items()}, split.producers,
                 frozenset(kept))


def _carries(graph, split, parts):
    """(consumer, producer) -> matching dimensions, for every edge."""
    known: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
    out = {}
    for e in split.edges:
        pair = split.instance[e.consumer].subgraph, split.instance[e.producer].subgraph
        if pair not in known:
            known[pair] = matches(graph, parts[pair[0]], parts[pair[1]])
        out[e.consumer, e.producer] = known[pair]
    return out


def _lifetimes(graph, split, parts, tasks, order, bound: Bound, cluster) -> tuple[Lifetime, ...]:
    """Of every instance's output; what the caller reads goes to the outermost memory."""
    at = {x: i for i, x in enumerate(order)}
    outermost = len(cluster.outer)
    out = []
    for x in order:
        reads = tuple(sorted(at[c] for c in tasks.consumers[x]))
        node = graph.node[parts[split.instance[x].subgraph].out]
        level = outermost if node.output else bound.scope[x]
        size = volume(split.instance[x].box) * node.element
        out.append(Lifetime(x, size, at[x], max((at[x], *reads)), reads, level))
    return tuple(out)


def _homes(graph, split, parts, boxes, lifetimes, order, cluster, by) -> Homes:
    """Levels of outputs, with room for what instances hold inside and for copies of what they read
    from further out."""
    capacities = [cluster.capacity(k) for k in range(len(cluster.memories))]
    homes = None
    for _ in range(ROUNDS):
        level = {x.name: x.level for x in lifetimes} if homes is None else homes.level
        work = [min(capacities[0], _work(graph, split, parts, boxes[x], x, level)) for x in order]
        new = spilled([pinned(x, level[x.name]) for x in lifetimes], capacities, work, by)
        why = {**homes.why, **new.why} if homes is not None else new.why
        done = homes is not None and new.level == homes.level
        homes = Homes(new.level, new.moved, new.peak, why)
        if done:
            break
    assert homes is not None
    return homes


def _work(graph: Graph, split: InstanceGraph, parts: Mapping[str, SubGraph],
          boxes: Mapping[str, Box], x: str, level: Mapping[str, int]) -> int:
    """The most bytes that an instance has in the cores' own memories beside outputs that live
    there: its intermediates, and copies of what it reads from further out or writes there."""
    part = parts[split.instance[x].subgraph]
    source: dict[str, int] = {}
    for p in split.producers[x]:
        out = parts[split.instance[p].subgraph].out
        source[out] = max(source.get(out, 0), level[p])
    return peak(graph, part.members, {
        b: box for b, box in boxes.items()
        if (level[x] if b == part.out else source.get(b, 1))})


def _held(graph, split, parts, boxes, homes, order, cluster) -> tuple[Held, ...]:
    """Where the outputs of all nodes of all instances are: inside an instance that fits, in the
    cores' own memories; else in the next memory that has the room."""
    out = []
    for x in order:
        part = parts[split.instance[x].subgraph]
        need = 0 if part.split.fits else part.split.bytes
        inner = next((k for k in range(len(cluster.memories)) if need <= cluster.capacity(k)),
                     len(cluster.outer))
        for m in part.members:
            if m in boxes[x]:
                box = boxes[x][m]
                cores = prod(plain([b - a for a, b in box], cluster.cores,
                                   graph.node[m].unbound))
                out.append(Held(x, m, box, homes.level[x] if m == part.out else inner, cores))
    return tuple(out)


def _rooms(lives: Sequence[Lifetime], homes: Homes, order: Sequence[str], capacity: int
           ) -> dict[str, int]:
    """Instance -> bytes of the next memory out that no output takes while it runs."""
    change = [0] * (len(order) + 1)
    for x in lives:
        if homes.level[x.name] == 1:
            change[x.first] += x.size
            change[x.last + 1] -= x.size
    out, live = {}, 0
    for name, n in zip(order, change):
        live += n
        out[name] = max(0, capacity - live)
    return out


def _weights(graph: Graph, held: Sequence[Held], rooms: Mapping[str, int]) -> tuple[Weights, ...]:
    """Which weights come from the outermost memory for each instance: what is still in the next
    one, where ``rooms`` (of each instance) are free for them, does not.  Those that are needed last
    make room first."""
    uses = [(h, _weights_read(graph, h)) for h in held if graph.node[h.node].weights]
    later: list[int] = [0] * len(uses)
    seen: dict[Hashable, int] = {}
    for i in range(len(uses) - 1, -1, -1):
        later[i] = seen.get(uses[i][1], len(uses))
        seen[uses[i][1]] = i
    there: dict[Hashable, int] = {}
    next_use: dict[Hashable, tuple[int, str]] = {}
    total, out = 0, []
    for (h, key), then in zip(uses, later):
        size = weights_of(graph.node[h.node], h.box)
        missing = key not in there
        if missing:
            there[key] = size
            total += size
        next_use[key] = then, h.node
        while total > rooms[h.instance] and there:
            total -= there.pop(max(there, key=next_use.__getitem__))
        out.append(Weights(h.instance, h.node, size, missing))
    return tuple(out)


def _weights_read(graph: Graph, h: Held) -> Hashable:
    """Names the weights that one box of a node reads: equal for boxes that read the same."""
    node = graph.node[h.node]
    return h.node, h.box if node.kind == LOOKUP else tuple(h.box[d] for d in node.shared)
