"""The tables of GraphTurbo are made and say what they must; no time is asserted."""

from aotc.sched.instances.tensor_graph import batched
from benchmarks.graphturbo import cluster, measured, report, sensitivity
from benchmarks.graphturbo_models import CONFIGURATIONS, Configuration, encoder, read


def test_tables_of_a_small_encoder(tmp_path):
    graph = read(encoder(16, 2, 32, 4))
    assert sum(n.weights for n in graph.nodes) == 2 * 2 * (12 * 32 * 32 + 13 * 32)
    case = Configuration("Z", "small", 16, 1, 4, "sentences", 100, (9, None, 1), (None, 2),
                         (None, 3), lambda folder, n: batched(graph, n))
    on = cluster(2e-6, 1e12)
    row = measured(case, tmp_path, on)
    assert row["uses"][2] <= case.ddr[2] and row["ddr_share"] < 0.5
    assert row["spilled_share"] == 0 and row["tvm_uses"] == len(graph.computed) - 1
    assert all(rate > 0 for rate in row["rates"].values())
    text = report([row], [case], on, sensitivity([row], [case], tmp_path, on))
    assert "Z small" in text and "GB bandwidth / 2" in text and "Geometric mean" in text


def test_batches_per_cluster_are_those_of_the_table():
    assert [c.label for c in CONFIGURATIONS] == list("ABCDEFGHIJ")
    assert all(c.ours * 4 == c.batch for c in CONFIGURATIONS)
