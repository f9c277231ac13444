"""The tables of GraphTurbo are made and say what they must; no time is asserted."""

from benchmarks.graphturbo import cluster, measured, report
from benchmarks.graphturbo_graphs import batched
from benchmarks.graphturbo_models import CONFIGURATIONS, Configuration, encoder, read
from benchmarks.graphturbo_tables import (
    OUR_ROWS,
    TVM_ROWS,
    batch_row,
    batch_sweep,
    examples,
    grouping_rules,
    order_quality,
)


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
    row["batches"] = batch_row("Z", row.pop("found"), row.pop("swept"))
    text = report([row], [case], on)
    assert "Z small" in text and "GB bandwidth / 2" in text and "Geometric mean" in text


def test_batches_per_cluster_are_those_of_the_table():
    assert [c.label for c in CONFIGURATIONS] == list("ABCDEFGHIJ")
    assert all(c.ours * 4 == c.batch for c in CONFIGURATIONS)


def test_smaller_tables_say_what_is_published():
    runs = {r[2]: 1e-3 * r[2] for r in (*TVM_ROWS, *OUR_ROWS)}
    sweep = batch_sweep(runs, runs)
    assert "| instances | 64 | 1 | 16 |" in sweep and len(sweep.splitlines()) == 2 + 4 + 5
    found = examples()
    assert "out1 goes out | 24 bytes" in found and "out4 goes out | 32 bytes" in found
    assert "one by one 33 | overlapped 21" in found
    assert "| 6 | 2 of 2 |" in order_quality((6,), 2)
    graph = read(encoder(16, 1, 32, 4))
    assert "by cost, several outputs" in grouping_rules(batched(graph, 2), cluster(2e-6, 1e12))
