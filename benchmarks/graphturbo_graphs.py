"""Clusters and graphs for the deciders of instances, made without a model's target."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from aotc.sched.accelerator.instances.cluster import Cluster, ComputeUnit
from aotc.sched.accelerator.instances.tensor_graph import INPUT, Read, ReadWindow, TensorGraph
from aotc.target.base import Machine


def cluster_of(machine: Machine, cores: int, clusters: int, units: tuple[ComputeUnit, ...],
               movers: tuple[str, ...], **more: float) -> Cluster:
    """The Cluster of a machine whose scratch is a core's own memory.  more: other fields of a
    Cluster.  ValueError if there is not one mover per memory further out."""
    outer = machine.memories[:machine.depth][::-1]
    if len(movers) != len(outer):
        raise ValueError(f"{len(outer)} memories further out than {machine.near.name} need as many "
                         f"engines that move data, not {len(movers)}")
    fields: Mapping[str, object] = {"launch": machine.launch, **more}
    return Cluster(machine.near, outer, cores, clusters, units, movers,
                   **fields)  # type: ignore[arg-type]


def along(dimension: int, step: int = 1, first: int = 0, last: int = 0,
          divisor: int = 1) -> ReadWindow:
    """The Window that moves with one dimension of the reader."""
    return ReadWindow(((dimension, step),), first, last, divisor)


def batched(graph: TensorGraph, n: int, names: Collection[str] | None = None) -> TensorGraph:
    """``n`` independent runs of the graph as one: every tensor that depends on an input (on one of
    ``names``, if given) has a new outermost dimension of that extent.  Weights stay as they are."""
    many: set[str] = set()
    out = []
    for node in graph.nodes:
        given = node.kind == INPUT and (names is None or node.name in names)
        if not (given or any(s in many for s in node.sources)):
            out.append(node)
            continue
        many.add(node.name)
        reads = tuple(Read(r.source, _shifted(r, r.source in many)) for r in node.reads)
        out.append(replace(node, shape=(n, *node.shape), reads=reads, flops=node.flops * n,
                           unbound=tuple(d + 1 for d in node.unbound),
                           shared=tuple(d + 1 for d in node.shared)))
    return TensorGraph(tuple(out))


def _shifted(read: Read, many: bool) -> tuple[ReadWindow, ...]:
    moved = tuple(replace(w, terms=tuple((d + 1, s) for d, s in w.terms)) for w in read.windows)
    return (along(0), *moved) if many else moved
