"""Small graphs and a cluster for tests of instances."""

from aotc.sched.accelerator.instances.cluster import ComputeUnit
from aotc.sched.accelerator.instances.instances import SubGraph
from aotc.sched.accelerator.instances.split import SplitInfo
from aotc.sched.accelerator.instances.tensor_graph import (
    INPUT,
    Read,
    TensorGraph,
    TensorNode,
    whole_window,
)
from aotc.target.base import Machine, Memory
from benchmarks.graphturbo_graphs import along, cluster_of

KIB = 1024
UNITS = (ComputeUnit("matrix", 2e12, ("contraction", "dot")),
           ComputeUnit("vector", 2e11, ("window", "reduction", "map")), ComputeUnit("core", 5e10))
MACHINE = Machine((Memory("ddr", 16 << 30, 136e9, "device", kind="managed", latency=1e-6),
                   Memory("gb", 8 << 20, 256e9, "cluster", kind="managed", latency=2e-7),
                   Memory("lb", 64 * KIB, 200e9, "core", kind="managed"),
                   Memory("register", 4 * KIB, 1e12, "thread")), 32, 1e12, 1, launch=1e-6,
                  scratch="lb")
CLUSTER = cluster_of(MACHINE, 8, 4, UNITS, ("dma0", "dma1"))


def same(source, rank):
    """A Read of the same point."""
    return Read(source, tuple(along(d) for d in range(rank)))


def image(source, shape, step=1, pad=1, channels=True):
    """A Read of a window of 3 x 3 points (``pad`` 1; 1 x 1 where it is 0) of a source of ``shape``
    (n, c, h, w): of all its channels, or of the same one."""
    window = [along(d, step, -pad, pad) for d in (2, 3)]
    return Read(source, (along(0), whole_window(shape[1]) if channels else along(1), *window))


def stage(shape, element):
    """A stage's graph whose output and input have one shape: a window in every channel."""
    return TensorGraph((TensorNode("in", shape, element, kind=INPUT),
                        TensorNode("out", shape, element, (image("in", shape, channels=False),))))


STAGES = ((8, 64, 56, 56), (8, 128, 28, 28), (8, 256, 14, 14), (8, 512, 7, 7))


def network():
    """The four stages one after the other, each reading all channels of twice as many points."""
    nodes = [TensorNode("image", (8, 3, 112, 112), kind=INPUT)]
    for i, shape in enumerate(STAGES):
        before = nodes[-1]
        nodes.append(TensorNode(f"stage{i + 1}", shape, 1, (image(before.name, before.shape, 2),),
                                output=i == 3))
    return TensorGraph(tuple(nodes))


def split_stages(pieces=(8, 4, 2, 1)):
    """The stages as sub-graphs, split on the batch."""
    return tuple(SubGraph(f"s{i}", (f"stage{i + 1}",), SplitInfo(1, f, 1))
                 for i, f in enumerate(pieces))
