"""Tables that data looks up: one that is multiplied by as well is stored once, and the pages of a
large one that no lookup touches are left alone."""

import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.emit.bundle.variants import EMITTERS
from aotc.emit.bundle.weights import HEADER_BYTES, find_untouched
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import get_target

ENTRIES, WIDTH, TOKENS = 83, 40, 7  # no multiple of a register tile


def tied(transpose=True, copies=1):
    """ids i64[TOKENS] -> logits f32[TOKENS, ENTRIES]: the table's rows times the whole table."""
    node, value = helper.make_node, helper.make_tensor_value_info
    table = np.random.default_rng(0).standard_normal((ENTRIES, WIDTH)).astype(np.float32)
    second = "table" if copies == 1 else "again"
    nodes = [node("Gather", ["table", "ids"], ["rows"]), node("Tanh", ["rows"], ["h"])]
    if transpose:
        nodes += [node("Transpose", [second], ["turned"], perm=[1, 0]),
                  node("MatMul", ["h", "turned"], ["logits"])]
    else:
        nodes.append(node("Gemm", ["h", second], ["logits"], transB=1))
    names = ["table"] + ["again"] * (copies - 1)
    graph = helper.make_graph(
        nodes, "tied", [value("ids", TensorProto.INT64, [TOKENS])],
        [value("logits", TensorProto.FLOAT, [TOKENS, ENTRIES])],
        [numpy_helper.from_array(table, n) for n in names])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model, table


@pytest.mark.parametrize("target", [pytest.param("c", marks=pytest.mark.product), "native"])
@pytest.mark.parametrize("form", [{}, {"transpose": False}, {"copies": 2}],
                         ids=["transposed", "gemm", "two equal copies"])
def test_a_table_that_is_also_a_weight_is_stored_once(tmp_path, target, form):
    model, table = tied(**form)
    bundle = aotc.compile(model, out=tmp_path / "b", target=target, name="tied")
    size = (tmp_path / "b" / "tied_weights.bin").stat().st_size
    padded = 128 * WIDTH * 4  # the entries in whole panels
    assert size <= padded + 128 < 2 * table.nbytes
    ids = np.array([0, ENTRIES - 1, 64, 63, 48, 1, 0])
    got = bundle.load().run({"ids": ids})["logits"]
    np.testing.assert_allclose(got, np.tanh(table[ids].astype(np.float64)) @ table.T.astype(
        np.float64), rtol=1e-4, atol=1e-4)


def test_an_index_outside_the_packed_table_is_a_fault(tmp_path):
    """Packed, the table has rows of padding; they must not be reachable."""
    model, _ = tied()
    run = aotc.compile(model, out=tmp_path / "b", name="tied").load().run
    with pytest.raises(aotc.FaultError, match="Gather|index"):
        run({"ids": np.array([0, 1, 2, 3, 4, 5, ENTRIES])})


def large(entries=6000, products=False):
    """ids i64[3] -> rows f32[3, 300] of a table; with ``products`` its sums as well."""
    node, value = helper.make_node, helper.make_tensor_value_info
    table = np.random.default_rng(1).standard_normal((entries, 300)).astype(np.float32)
    nodes = [node("Gather", ["table", "ids"], ["rows"]), node("Add", ["rows", "small"], ["y"])]
    outputs = [value("y", TensorProto.FLOAT, [3, 300])]
    if products:
        nodes.append(node("Add", ["table", "shift"], ["sums"]))
        outputs.append(value("sums", TensorProto.FLOAT, [entries, 300]))
    graph = helper.make_graph(
        nodes, "large", [value("ids", TensorProto.INT64, [3]), value("shift", TensorProto.FLOAT,
                                                                     [1])], outputs,
        [numpy_helper.from_array(table, "table"),
         numpy_helper.from_array(np.arange(300, dtype=np.float32), "small")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                             ir_version=8), table


def ranges(model, **options):
    return find_untouched([run_pipeline(Options(model, target="c", stop_after="plan",
                                                **options)).plan])


def test_a_large_table_is_told_to_the_system_by_its_place(tmp_path):
    model, table = large()
    (begin, end), = ranges(model)
    assert begin % 64 == 0 and end - begin == table.nbytes and begin >= HEADER_BYTES
    bundle = aotc.compile(model, out=tmp_path / "b", name="large")
    image = (tmp_path / "b" / "large_weights.bin").read_bytes()
    assert image[begin:end] == table.tobytes()
    ids, shift = np.array([0, 5999, 2500]), np.zeros(1, np.float32)
    got = bundle.load().run({"ids": ids, "shift": shift})["y"]
    np.testing.assert_array_equal(got, table[ids] + np.arange(300, dtype=np.float32))


def test_tables_that_are_read_whole_small_or_often_are_no_ranges():
    assert ranges(large(products=True)[0]) == []
    assert ranges(large(entries=400)[0]) == []
    assert ranges(tied()[0]) == []


def looked_up(width, tokens=30, entries=50):
    """ids i64[tokens] -> y f32[tokens, width]: a table's rows, each plus a small vector."""
    node, value = helper.make_node, helper.make_tensor_value_info
    table = np.random.default_rng(2).standard_normal((entries, width)).astype(np.float32)
    graph = helper.make_graph(
        [node("Gather", ["table", "ids"], ["rows"]), node("Add", ["rows", "small"], ["y"])],
        "looked_up", [value("ids", TensorProto.INT64, [tokens])],
        [value("y", TensorProto.FLOAT, [tokens, width])],
        [numpy_helper.from_array(table, "table"),
         numpy_helper.from_array(np.arange(width, dtype=np.float32), "small")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                             ir_version=8), table


@pytest.mark.parametrize("width, target", [
    *((w, "native") for w in (1, 17, 64)), (5, "c"), *(
        pytest.param(w, t, marks=pytest.mark.product) for w, t in (
            *((w, "native") for w in (5, 8, 300)), *((w, "c") for w in (1, 8, 17, 64, 300))))])
def test_rows_are_looked_up_wherever_they_lie(tmp_path, target, width):
    model, table = looked_up(width)
    run = aotc.compile(model, out=tmp_path / "b", target=target, name="looked_up").load().run
    ids = np.random.default_rng(3).integers(-50, 50, 30)
    np.testing.assert_array_equal(run({"ids": ids})["y"],
                                  table[ids] + np.arange(width, dtype=np.float32))
    for place, wrong in ((0, 50), (29, -51), (17, 2**63 - 1), (8, -2**63)):
        with pytest.raises(aotc.FaultError, match="index"):
            run({"ids": np.where(np.arange(30) == place, wrong, ids)})


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("width", [64, 300])
def test_a_row_is_found_once_and_fetched_before_it_is_read(target, width):
    plan = run_pipeline(Options(looked_up(width)[0], target=target, stop_after="plan"))
    text = "\n".join(EMITTERS[plan.target.emitter](plan.plan, plan.target).values())
    loops = re.search(r"( *)for \(int64_t i0 = 0.*\n((?:\1 .*\n)+)", text)[2]
    before, lanes = loops.split("int64_t i1 = ", 1)
    assert before.count("_checked(f, ") == 1 and "_checked(" not in lanes
    assert re.search(rf"line\d+ < {min(width, 256)}; line\d+ \+= 16", before)
    assert "AOTC_PREFETCH_FAR(t_table, " in before
    later = re.search(r"later\d+ = (.*);", before)[1]
    assert "49)" in later and "_checked" not in later  # no place outside of the table


@pytest.mark.parametrize("target", ["c", "native"])
def test_rows_that_another_table_names(tmp_path, target):
    """A place looked up by what another look-up gives: both bounded where they are only fetched."""
    model, table = looked_up(40)
    model.graph.node[0].input[1] = "named"
    model.graph.node.insert(0, helper.make_node("Gather", ["names", "ids"], ["named"]))
    places = np.random.default_rng(6).permutation(50)
    model.graph.initializer.append(numpy_helper.from_array(places, "names"))
    bundle = aotc.compile(model, out=tmp_path / "b", target=target, name="looked_up")
    for source in (tmp_path / "b").glob("*kernels*.c"):
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                        *get_target(target).cflags, source], check=True)
    run, ids = bundle.load().run, np.random.default_rng(7).integers(-50, 50, 30)
    np.testing.assert_array_equal(run({"ids": ids})["y"],
                                  table[places[ids]] + np.arange(40, dtype=np.float32))
    with pytest.raises(aotc.FaultError, match="index"):
        run({"ids": np.where(np.arange(30) == 20, 50, ids)})


def test_vectors_of_one_lane_fetch_no_rows():
    plan = run_pipeline(Options(looked_up(64)[0], target="c", stop_after="plan"))
    text = "\n".join(EMITTERS[plan.target.emitter](plan.plan, plan.target).values())
    assert "later" not in text and "AOTC_PREFETCH_FAR(t_" not in text
