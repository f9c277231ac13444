"""SplitInfo, BestSplit and grouping: the published example, and what it leaves out."""

import pytest

from aotc.sched.accelerator.instances.cost import SplitJudge
from aotc.sched.accelerator.instances.grouping import PAPER, MergeRules, group
from aotc.sched.accelerator.instances.split import (
    SplitInfo,
    best_split,
    peak,
    piece_peak,
    pieces_of,
    split_info,
)
from aotc.sched.accelerator.instances.tensor_graph import (
    INPUT,
    Read,
    TensorGraph,
    TensorNode,
    regions,
    volume,
    whole_window,
)
from benchmarks.graphturbo_graphs import along
from tests.helpers.instances import CLUSTER, KIB, STAGES, image, network, same, stage

BUDGET = 512 * KIB
PEAKS = list(zip(STAGES, (3136, 1568, 784, 392), (8, 4, 2, 1)))
WIDER = list(zip(STAGES, ((16, 2), (8, 1), (4, 1), (2, 1))))


@pytest.mark.parametrize("shape, kib, pieces", PEAKS)
def test_stages_are_split_on_the_batch(shape, kib, pieces):
    graph = stage(shape, 1)
    assert piece_peak(graph, ("out",), ()) == kib * KIB
    best = best_split(graph, ("out",), BUDGET)
    assert (best.f, best.d, best.outer, best.fits) == (pieces, 1, (), True)


@pytest.mark.parametrize("shape, split", WIDER)
def test_two_bytes_per_element_leave_the_batch_of_the_first_stage(shape, split):
    graph = stage(shape, 2)
    assert (best_split(graph, ("out",), BUDGET).f, best_split(graph, ("out",), BUDGET).d) == split
    assert shape[1] != 64 or piece_peak(graph, ("out",), ((1, 8),)) == 784 * KIB


def test_halos_grow_and_tensors_without_the_dimension_do_not_shrink():
    graph = stage((1, 4, 16, 16), 1)
    assert piece_peak(graph, ("out",), ((3, 4),)) == 4 * 16 * (4 + 6)
    graph = TensorGraph((TensorNode("in", (1, 4, 16, 16), kind=INPUT),
                         TensorNode("out", (1, 4, 16, 16), 1, (image("in", (1, 4, 16, 16)),))))
    assert piece_peak(graph, ("out",), ((2, 4),)) == 4 * 256 + 256


def test_ops_are_counted_that_the_dimension_splits():
    shape = (4, 8, 10)
    graph = TensorGraph((TensorNode("in", shape, kind=INPUT),
                         TensorNode("a", shape, 1, (same("in", 3),), ops=3),
                         TensorNode("b", shape, 1,
                                    (Read("a", (along(0), along(1), whole_window(10))),), ops=2),
                         TensorNode("c", shape, 1, (same("b", 3),))))
    found = {s.d: s.n for s in split_info(graph, ("a", "b", "c"), 10**6)}
    assert found == {1: 6, 2: 6, 3: 3}
    assert best_split(graph, ("a", "b", "c"), 10**6).d == 1


def test_outer_dimensions_are_cut_first_where_no_single_one_fits():
    graph = stage((4, 2, 64, 64), 1)
    best = best_split(graph, ("out",), 1024)
    assert best.outer and best.fits and best.pieces > 4 and best.bytes <= 1024
    assert not best_split(graph, ("out",), 4).fits


class Given(SplitJudge):
    """Splits as the published figure has them: a merged sub-graph takes the most pieces."""

    def split(self, members):
        return SplitInfo(1, max(8 >> int(m[-1]) - 1 for m in members), 1)


def test_down_sampling_stages_stay_apart_by_the_rules():
    """With 8, 4, 2 and 1 pieces, both preconditions of rule (i) fail."""
    graph = network()
    judge = Given(graph, CLUSTER)
    assert [s.members for s in group(graph, judge, MergeRules(PAPER))] == [
        (f"stage{i}",) for i in (1, 2, 3, 4)]
    for a, b in ((1, 2), (2, 3), (3, 4)):
        first, second = judge.split((f"stage{a}",)).f, judge.split((f"stage{b}",)).f
        assert not second >= first
        assert not judge.split((f"stage{a}", f"stage{b}")).f <= second


def block(shape, blocks=1):
    """Residual blocks: two products and a sum with the block's input."""
    nodes = [TensorNode("x", shape, 1, kind=INPUT), TensorNode("b0", shape, 1, (same("x", 4),),
                                                               flops=100)]
    for i in range(blocks):
        a, b, c = f"p{i}", f"q{i}", f"b{i + 1}"
        nodes += [TensorNode(a, shape, 1, (image(f"b{i}", shape, pad=0),), 64, 10**6,
                             "contraction"),
                  TensorNode(b, shape, 1, (image(a, shape, pad=0),), 64, 10**6, "contraction"),
                  TensorNode(c, shape, 1, (same(b, 4), same(f"b{i}", 4)), flops=1000)]
    return TensorGraph(tuple(nodes))


@pytest.mark.parametrize("rules", [MergeRules(PAPER), MergeRules()])
def test_residual_blocks_become_one_sub_graph(rules):
    graph = block((8, 16, 8, 8), 3)
    found = group(graph, SplitJudge(graph, CLUSTER), rules)
    assert [len(s.members) for s in found] == [10] and found[0].why


def test_branches_of_one_entry_are_joined_with_their_exit():
    """The entry stays outside as long as something else reads it."""
    shape = (8, 16)
    graph = TensorGraph((TensorNode("x", shape, kind=INPUT),
                         TensorNode("entry", shape, 1, (same("x", 2),), flops=99),
                         TensorNode("a", shape, 1, (same("entry", 2),)),
                         TensorNode("b", shape, 1, (same("entry", 2),)),
                         TensorNode("exit", shape, 1, (same("a", 2), same("b", 2))),
                         TensorNode("other", shape, 1, (same("entry", 2),), output=True)))
    for rules in (MergeRules(PAPER), MergeRules()):
        found = group(graph, SplitJudge(graph, CLUSTER), rules)
        assert [s.members for s in found] == [("entry",), ("a", "b", "exit"), ("other",)]


def up_sampled():
    """The second node has eight times the points of the first: it needs eight pieces."""
    small, large = (1, 64, 28, 28), (1, 64, 112, 56)
    read = Read("a", (along(0), along(1), along(2, divisor=4), along(3, divisor=2)))
    return TensorGraph((TensorNode("x", small, kind=INPUT),
                        TensorNode("a", small, 1, (same("x", 4),), flops=10),
                        TensorNode("b", large, 1, (read,), flops=10)))


def test_up_sampling_drags_the_first_one_along_as_printed_and_not_by_growth():
    graph = up_sampled()
    judge = SplitJudge(graph, CLUSTER, 128 * KIB)
    assert judge.split(("a",)).pieces == 1 and judge.split(("b",)).pieces >= 4
    assert len(group(graph, judge, MergeRules(PAPER))) == 1
    assert len(group(graph, judge, MergeRules(PAPER, growth=1))) == 2


def test_what_reads_too_much_to_be_split_is_not_merged():
    graph = block((1, 1024, 8, 8))
    judge = SplitJudge(graph, CLUSTER, 16 * KIB)
    found = group(graph, judge, MergeRules())
    assert len(found) > 1 and all(s.split.fits or len(s.members) == 1 for s in found)


def test_an_instance_of_the_second_stage_of_a_residual_network():
    """A convolutional block and three identity blocks, as layers with their ops: one kernel."""
    shape, before = (8, 16, 8, 8), (8, 16, 16, 16)

    def conv(name, source, n, step=1):
        of = before if source == "x" else shape
        return TensorNode(name, shape, 1, (image(source, of, step, 0),), 64, 10**6, "contraction",
                          n, 1)

    nodes = [TensorNode("x", before, kind=INPUT), conv("c1", "x", 3, 2), conv("c2", "c1", 3),
             conv("c3", "c2", 2), conv("c4", "x", 2, 2),
             TensorNode("r0", shape, 1, (same("c3", 4), same("c4", 4)))]
    for i in range(3):
        nodes += [conv(f"p{i}", f"r{i}", 3), conv(f"q{i}", f"p{i}", 3), conv(f"s{i}", f"q{i}", 2),
                  TensorNode(f"r{i + 1}", shape, 1, (same(f"s{i}", 4), same(f"r{i}", 4)))]
    graph = TensorGraph(tuple(nodes))
    found, = group(graph, SplitJudge(graph, CLUSTER), MergeRules(PAPER))
    assert sum(graph.node[m].ops for m in found.members) == 38
    assert sum(graph.node[m].products for m in found.members) == 13


def test_extents_without_divisors_are_cut_unevenly_by_price():
    shape = (2, 197, 64)
    graph = TensorGraph((TensorNode("x", shape, kind=INPUT),
                         TensorNode("a", shape, 1, (same("x", 3),), flops=99)))
    split = SplitJudge(graph, CLUSTER, 8000, share=0.5).split(("a",))
    assert split.fits and split.pieces < 197
    boxes = pieces_of(shape, split.cuts)
    assert sum(map(volume, boxes)) == 2 * 197 * 64
    assert all(peak(graph, ("a",), regions(graph, ("a",), b)) <= 8000 for b in boxes)
