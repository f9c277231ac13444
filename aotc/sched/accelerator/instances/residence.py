"""Where everything is while instances run in an order: outputs, intermediates and weights.

    lifetimes(of, order, bound)             of all outputs, in steps of the order
    homes(of, order, lifetimes, ..)         their memories, with room for what instances hold
    held(of, order, homes)                  memories of all that is computed
    weights(of, held, lifetimes, homes)     which come from the outermost memory, and when
"""

from collections.abc import Hashable, Mapping, Sequence
from math import prod

from aotc.sched.accelerator.instances.binding import BoundInstances, bind_outermost_first
from aotc.sched.accelerator.instances.cost import LOOKUP, weights_of
from aotc.sched.accelerator.instances.cut_graph import CutGraph
from aotc.sched.accelerator.instances.instance_plan import Held, Weights
from aotc.sched.accelerator.instances.spill import (
    LONGEST,
    Homes,
    Lifetime,
    pin_lifetime,
    spill_outputs,
)
from aotc.sched.accelerator.instances.split import peak

ROUNDS = 6  # of spilling, each with the copies that the one before made necessary


def lifetimes(of: CutGraph, order: Sequence[str], bound: BoundInstances) -> tuple[Lifetime, ...]:
    """Of every output of every instance; what the caller reads goes to the outermost memory."""
    at = {x: i for i, x in enumerate(order)}
    out = []
    for x in map(of.split.instance.__getitem__, order):
        first = at[x.name]
        for o in of.outs[x.subgraph]:
            reads = tuple(sorted(at[c] for c in of.readers.get((x.name, o), ())))
            level = len(of.cluster.outer) if of.graph.node[o].output else bound.scope[x.name]
            out.append(Lifetime(x.output(o), of.bytes(x, o), first, max((first, *reads)), reads,
                                level))
    return tuple(out)


def homes(of: CutGraph, order: Sequence[str], lives: Sequence[Lifetime], by: str = LONGEST,
          held_back: float = 0.0) -> Homes:
    """Levels of outputs, with room for what instances hold inside and for copies of what they read
    from further out.  held_back: the part of the next memory out that outputs leave to weights."""
    capacities = [of.cluster.capacity(k) for k in range(len(of.cluster.memories))]
    capacities[1:-1] = [int(n * (1 - held_back)) for n in capacities[1:-1]]
    found = None
    for _ in range(ROUNDS):
        level = {x.name: x.level for x in lives} if found is None else found.level
        work = [min(capacities[0], _work(of, x, level)) for x in order]
        new = spill_outputs([pin_lifetime(x, level[x.name]) for x in lives], capacities, work, by)
        why = {**found.why, **new.why} if found is not None else new.why
        done = found is not None and new.level == found.level
        found = Homes(new.level, new.moved, new.peak, why)
        if done:
            break
    assert found is not None
    return found


def _work(of: CutGraph, name: str, level: Mapping[str, int]) -> int:
    """The most bytes that an instance has in the cores' own memories beside outputs that live
    there: its intermediates, and copies of what it reads from further out or writes there."""
    x = of.split.instance[name]
    near = {o for o in of.outs[x.subgraph] if not level[x.output(o)]}
    source: dict[str, int] = {}
    for p in map(of.split.instance.__getitem__, of.split.producers[name]):
        for o in of.outs[p.subgraph]:
            source[o] = max(source.get(o, 0), level[p.output(o)])
    near |= {b for b, n in source.items() if not n}
    return peak(of.graph, of.part(x).members,
                {b: box for b, box in of.boxes[name].items() if b not in near})


def find_held(of: CutGraph, order: Sequence[str], found: Homes) -> tuple[Held, ...]:
    """Where the results of all nodes of all instances are: inside an instance that fits, in the
    cores' own memories; else in the next memory that has the room."""
    out = []
    cluster = of.cluster
    for x in map(of.split.instance.__getitem__, order):
        part = of.part(x)
        need = 0 if part.split.fits else part.split.bytes
        inner = next((k for k in range(len(cluster.memories)) if need <= cluster.capacity(k)),
                     len(cluster.outer))
        for m in part.members:
            if m in of.boxes[x.name]:
                box = of.boxes[x.name][m]
                cores = prod(bind_outermost_first([b - a for a, b in box], cluster.cores,
                                                  of.graph.node[m].unbound))
                level = found.level[x.output(m)] if m in of.outs[x.subgraph] else inner
                out.append(Held(x.name, m, box, level, cores))
    return tuple(out)


def weights(of: CutGraph, order: Sequence[str], found: Sequence[Held], lives: Sequence[Lifetime],
            levels: Homes) -> tuple[Weights, ...]:
    """Which weights come from the outermost memory for each instance: what is still in the next
    one, where outputs leave room for it, does not.  What is needed last makes room first, as much
    of it as is wanted."""
    rooms = _rooms(lives, levels, order, of.cluster.capacity(1))
    uses = [(h, _weights_read(of, h)) for h in found if of.graph.node[h.node].weights]
    later: list[int] = [0] * len(uses)
    seen: dict[Hashable, int] = {}
    for i in range(len(uses) - 1, -1, -1):
        later[i] = seen.get(uses[i][1], len(uses))
        seen[uses[i][1]] = i
    there: dict[Hashable, int] = {}  # bytes of what is read
    next_use: dict[Hashable, tuple[int, str]] = {}
    total, out = 0, []
    for (h, key), then in zip(uses, later):
        size = weights_of(of.graph.node[h.node], h.box)
        kept = there.get(key, 0)
        there[key] = size
        total += size - kept
        next_use[key] = then, h.node
        while total > rooms[h.instance]:
            last = max(there, key=next_use.__getitem__)
            gone = min(there[last], total - rooms[h.instance])
            total -= gone
            there[last] -= gone
            if not there[last]:
                del there[last]
        out.append(Weights(h.instance, h.node, size, size - kept))
    return tuple(out)


def _rooms(lives: Sequence[Lifetime], levels: Homes, order: Sequence[str], capacity: int
           ) -> dict[str, int]:
    """Instance -> bytes of the next memory out that no output takes while it runs."""
    change = [0] * (len(order) + 1)
    for x in lives:
        if levels.level[x.name] == 1:
            change[x.first] += x.size
            change[x.last + 1] -= x.size
    out, live = {}, 0
    for name, n in zip(order, change):
        live += n
        out[name] = max(0, capacity - live)
    return out


def _weights_read(of: CutGraph, h: Held) -> Hashable:
    """Names the weights that one box of a node reads: equal for boxes that read the same."""
    node = of.graph.node[h.node]
    return h.node, h.box if node.kind == LOOKUP else tuple(h.box[d] for d in node.shared)
