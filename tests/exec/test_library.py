"""Library kernels (TopK, Unique, NonZero, Compress, NonMaxSuppression on long rows): the C, the
evaluator's numpy and the interpreter against ONNX's reference evaluator."""

import os

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from quick_builds import KEPT, LEVEL
from small_models import together

import aotc
from aotc.errors import AotcError, FaultError, ModelError, ScheduleError, UnsupportedError
from aotc.frontend.building import calls
from aotc.ir.expr import Sym, walk
from aotc.ir.library import JOINS
from aotc.ir.program import LibCall
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule, decide, lower
from aotc.target import get_target

FLAGS = f"{LEVEL} -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror "\
        f"{os.environ.get(KEPT, '')}"
FLOATS = (np.float16, np.float32, np.float64)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


@pytest.fixture(autouse=True)
def _strict(monkeypatch):
    monkeypatch.setenv("CFLAGS", FLAGS)


def model_of(op, feeds, outs, constants=(), **attributes):
    """A model of one node; feeds: {name: array | (array, declared shape)}; outs: {name: (dtype,
    shape)}; the node's inputs are the feeds, then the constants."""
    inputs = []
    for name, array in feeds.items():
        array, shape = array if isinstance(array, tuple) else (array, array.shape)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(name, kind, shape))
    outputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), s)
               for n, (t, s) in outs.items()]
    node = helper.make_node(op, [*feeds, *(n for n, _ in constants)], list(outs), **attributes)
    graph = helper.make_graph([node], "g", inputs, outputs,
                              [numpy_helper.from_array(np.asarray(a), n) for n, a in constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def check_together(parts, folder):
    """``check`` of several (model, feeds, want), which become one model."""
    models, feeds, wants = zip(*parts)
    feeds, wants = ({f"q{k}_{n}": a for k, named in enumerate(some) for n, a in named.items()}
                    for some in (feeds, wants))
    check(together(models), feeds, folder, wants)


def check(model, feeds, folder, want=None, target="native", threads=1):
    """The compiled model, the evaluator and the interpreter give what the reference gives."""
    want = want or dict(zip((o.name for o in model.graph.output),
                            ReferenceEvaluator(model).run(None, feeds)))
    work = run_pipeline(Options(model, target=target, name="net", stop_after="schedule"))
    assert any(isinstance(s, LibCall) for s in work.program.steps)
    assert Schedule.from_json(work.schedule.to_json()) == work.schedule
    got = aotc.compile(model, folder, target=target, name="net").load(threads=threads).run(feeds)
    names = {work.program.buffers[n].onnx: n for n in work.program.outputs}
    twin = evaluate(work.program, feeds)
    tiled = interpret(work.rewritten, work.schedule, feeds)
    for name, array in want.items():
        for other in (got[name], twin[names[name]], tiled[names[name]]):
            assert other.dtype == array.dtype
            np.testing.assert_array_equal(other, array, err_msg=f"{name}, a {array.dtype}")


def values(rng, shape, dtype):
    """Random values with many ties; NaN, infinities and both zeros among floats."""
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        x = rng.integers(max(info.min, -30), 30, shape).astype(dtype)
        x.reshape(-1)[:2] = info.min, info.max
        return x
    x = np.round(rng.normal(size=shape) * 8).astype(dtype)
    flat = x.reshape(-1)
    flat[rng.integers(0, flat.size, 9)] = np.nan
    flat[rng.integers(0, flat.size, 4)] = np.inf
    flat[rng.integers(0, flat.size, 4)] = -np.inf
    flat[rng.integers(0, flat.size, 4)] = -0.0
    return x


def test_topk(tmp_path):
    check_together(map(_topk, FLOATS + INTEGERS), tmp_path / "b")


def _topk(dtype):
    x = values(np.random.default_rng(0), (3, 77, 2), dtype)
    k, largest = (77, 0) if dtype in (np.float32, np.int8, np.uint16) else (9, 1)
    model = model_of("TopK", {"x": x}, {"v": (dtype, (3, k, 2)), "i": (np.int64, (3, k, 2))},
                     [("k", np.array([k]))], axis=1, largest=largest)
    place = np.unique(x, return_inverse=True)[1].reshape(x.shape).astype(np.int64)
    at = np.argsort(-place if largest else place, axis=1, kind="stable")[:, :k]
    return model, {"x": x}, {"v": np.take_along_axis(x, at, 1), "i": at}


def test_topk_of_all_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "SMALL_ROW", 0)
    check_together([_topk_of(n, k) for n, k in ((1, 1), (33, 1), (34, 33), (1000, 1000))],
                   tmp_path / "b")


def _topk_of(n, k):
    x = values(np.random.default_rng(n), (2, n), np.float32) if n > 9 else np.zeros((2, n), "f4")
    model = model_of("TopK", {"x": x}, {"v": (x.dtype, (2, k)), "i": (np.int64, (2, k))},
                     [("k", np.array([k]))])
    place = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    at = np.argsort(-place, axis=1, kind="stable")[:, :k]
    return model, {"x": x}, {"v": np.take_along_axis(x, at, 1), "i": at}


def test_topk_of_a_symbolic_row(tmp_path):
    model = model_of("TopK", {"x": (np.zeros((1, 1), "f4"), ("batch", "n"))},
                     {"v": (np.float32, ("batch", 5)), "i": (np.int64, ("batch", 5))},
                     [("k", np.array([5]))], axis=-1)
    loaded = aotc.compile(model, tmp_path / "b", target="native", name="net",
                          dims={"n": (5, 600)}).load(threads=2)
    for shape in ((1, 5), (3, 600), (7, 41)):
        x = np.random.default_rng(1).normal(size=shape).astype("f4")
        got, want = loaded.run({"x": x}), ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_array_equal(got["v"], want[0])
        np.testing.assert_array_equal(got["i"], want[1])


@pytest.mark.parametrize("ordered", (0, 1))
def test_unique(ordered, tmp_path):
    check_together([_unique(t, ordered) for t in (
        np.bool_, np.float32, np.float64, np.int8, np.uint64)], tmp_path / "b")


def _unique(dtype, ordered):
    x = values(np.random.default_rng(2), (50,), dtype)
    if dtype == np.bool_ and not ordered:
        x[:2] = True, False
    _, first, kind, counts = np.unique(x, True, True, True)
    order = np.arange(first.size) if ordered else np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(first.size)
    want = {"y": x[first[order]], "i": first[order], "j": number[kind], "c": counts[order]}
    shapes = {n: (a.dtype, a.shape) for n, a in want.items()}
    return model_of("Unique", {"x": x}, shapes, sorted=ordered), {"x": x}, want


def test_unique_rows(tmp_path):
    x = np.random.default_rng(3).integers(0, 3, (2, 60, 3)).astype("f4")
    y, first, kind, counts = np.unique(x, True, True, True, axis=1)
    want = {"y": y, "i": first, "j": kind.reshape(-1), "c": counts}
    shapes = {n: (a.dtype, a.shape) for n, a in want.items()}
    check(model_of("Unique", {"x": x}, shapes, axis=1), {"x": x}, tmp_path / "b", want)


def test_nonzero_and_another_number_of_them(tmp_path):
    x = values(np.random.default_rng(4), (5, 3, 7), np.int16)
    count = int(np.count_nonzero(x))
    model = model_of("NonZero", {"x": x}, {"y": (np.int64, (3, count))})
    check(model, {"x": x}, tmp_path / "b")
    loaded = aotc.load(tmp_path / "b")
    for other in (np.zeros_like(x), np.ones_like(x)):
        with pytest.raises(FaultError):
            loaded.run({"x": other})


def test_compress(tmp_path):
    rng = np.random.default_rng(5)
    feeds = {"x": rng.normal(size=(3, 90)).astype("f4"), "c": rng.random(80) < 0.3}
    count = int(feeds["c"].sum())
    model = model_of("Compress", feeds, {"y": (np.float32, (3, count))}, axis=1)
    check(model, feeds, tmp_path / "b", {"y": np.compress(feeds["c"], feeds["x"], axis=1)})


def _boxes(seed, batch, classes, n, centred):
    rng = np.random.default_rng(seed)
    at, size = rng.random((batch, n, 2)) * 9, rng.random((batch, n, 2)) * 2 - 0.1 * centred
    boxes = np.concatenate([at, size] if centred else [at + size, at], 2).astype("f4")
    scores = np.round(rng.normal(size=(batch, classes, n)), 1).astype("f4")
    return boxes, scores


def test_nms(tmp_path):
    check_together([_nms(c, least) for c in (0, 1) for least in (None, 0.3)], tmp_path / "b")


def _nms(centred, least):
    boxes, scores = _boxes(6, 2, 3, 120, centred)
    scores[0, 0, :3] = -np.inf
    constants = [("m", np.array([40])), ("o", np.array([0.4], "f4"))]
    constants += [] if least is None else [("s", np.array([least], "f4"))]
    feeds = {"boxes": boxes, "scores": scores}
    model = model_of("NonMaxSuppression", feeds, {"y": (np.int64, None)}, constants,
                     center_point_box=centred)
    want, = ReferenceEvaluator(model).run(None, feeds)
    model = model_of("NonMaxSuppression", feeds, {"y": (np.int64, want.shape)}, constants,
                     center_point_box=centred)
    return model, feeds, {"y": want}


def test_nms_of_shapes_that_contradict_each_other():
    for boxes, scores in (((1, 9, 4), (2, 1, 9)), ((1, 9, 4), (1, 1, 8)), ((1, 9, 3), (1, 1, 9)),
                          ((9, 4), (1, 1, 9))):
        model = model_of("NonMaxSuppression", {"b": np.zeros(boxes, "f4"),
                                               "s": np.zeros(scores, "f4")},
                         {"y": (np.int64, (1, 3))}, [("m", np.array([5]))])
        with pytest.raises(ModelError):
            run_pipeline(Options(model, target="c", name="net", stop_after="program"))
    model = model_of("NonMaxSuppression", {"b": np.zeros((1, 9, 4), bool),
                                           "s": np.zeros((1, 1, 9), bool)},
                     {"y": (np.int64, (1, 3))}, [("m", np.array([5]))])
    with pytest.raises(AotcError):
        run_pipeline(Options(model, target="c", name="net", stop_after="program"))


def test_nms_of_another_number_of_boxes(tmp_path):
    boxes, scores = _boxes(7, 1, 1, 50, 0)
    model = model_of("NonMaxSuppression", {"boxes": boxes, "scores": scores},
                     {"y": (np.int64, (5, 3))}, [("m", np.array([50]))])
    loaded = aotc.compile(model, tmp_path / "b", name="net").load()
    for other in (scores, np.full_like(scores, np.nan)):
        with pytest.raises(FaultError):
            loaded.run({"boxes": boxes, "scores": other})


def _between(folder=None):
    """TopK between computes that would share a kernel if it were not there."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("TopK", ["a", "k"],
                                                                      ["v", "i"]),
             helper.make_node("Mul", ["a", "v"], ["y"])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (40, 64)) for n in "xy"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:],
                              [numpy_helper.from_array(np.array([64]), "k")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("connect", ("none", "register", "all"))
def test_a_call_parts_kernels(connect, tmp_path):
    work = run_pipeline(Options(_between(), tmp_path / "b", target="native", name="net",
                                connect=connect))
    assert not check_schedule(work.program, work.schedule, work.target)
    x = np.random.default_rng(8).normal(size=(40, 64)).astype("f4")
    a = np.maximum(x, 0)
    want = a * -np.sort(-a, axis=1)
    np.testing.assert_array_equal(aotc.load(tmp_path / "b").run({"x": x})["y"], want)


def test_what_a_schedule_may_not_say_of_a_call():
    work = run_pipeline(Options(_between(), target="c", name="net", stop_after="schedule"))
    text = work.schedule.to_json()
    call = next(s for s in work.program.steps if isinstance(s, LibCall))
    group = next(g for g in work.schedule.groups if g.anchor == call.outs[0])
    for old, new, why in (
            (f'"anchor": "{group.anchor}"', f'"anchor": "{group.anchor}", "tile": {{"n": 2}}',
             "tile of the library call"),
            ('"layouts": {}', f'"layouts": {{"{call.outs[0]}": [["reorder", [1, 0]]]}}',
             "stays row-major")):
        assert old in text
        faults = check_schedule(work.program, Schedule.from_json(text.replace(old, new)),
                                get_target("c"))
        assert any(why in f for f in faults), faults


def _of_n(n):
    return model_of("Unique", {"x": np.zeros(n, "f4")}, {"y": (np.float32, (n // 2,))})


def test_targets_without_a_library_kernel():
    """CUDA has none for Unique: short rows are expressions there, long ones refused."""
    work = run_pipeline(Options(_of_n(60), target="cuda", name="net", stop_after="plan"))
    assert {s.kernel for s in work.program.steps if isinstance(s, LibCall)} <= {"kept"}
    with pytest.raises(UnsupportedError, match="ordering 65536 elements"):
        run_pipeline(Options(_of_n(1 << 16), target="cuda", name="net", stop_after="plan"))
    work = run_pipeline(Options(_of_n(60), target="c", name="net", stop_after="inline"))
    cuda = get_target("cuda")
    with pytest.raises(ScheduleError, match="'unique'; cuda has kept, scatter, suppress, topk"):
        lower(work.program, decide(work.program, cuda), cuda)


def test_sources_travel_only_where_they_are_called(tmp_path):
    aotc.compile(_between(), tmp_path / "b", target="x86-64", name="net")
    names = {p.name for p in (tmp_path / "b").iterdir()}
    assert {"aotc_heap.h", "net_v4_topk_f32.c", "net_v1_topk_f32.c"} <= names
    assert not any("unique" in n or "nms" in n or "kept" in n for n in names)
    x = np.zeros((2, 3), "f4")
    model = model_of("Relu", {"x": x}, {"y": (x.dtype, x.shape)})
    aotc.compile(model, tmp_path / "c", target="c", name="net")
    assert not any("heap" in p.name or "library" in p.name for p in (tmp_path / "c").iterdir())


def test_a_call_of_constants_is_folded():
    x = np.random.default_rng(9).normal(size=100).astype("f4")
    model = model_of("TopK", {}, {"v": (x.dtype, (50,)), "i": (np.int64, (50,))},
                     [("x", x), ("k", np.array([50]))])
    work = run_pipeline(Options(model, target="c", name="net", stop_after="fold"))
    assert not any(isinstance(s, LibCall) for s in work.program.steps)
    out = evaluate(work.program, {})
    np.testing.assert_array_equal(list(out.values())[0], -np.sort(-x)[:50])


# ---------------------------------------------------------------- scatter

def test_scatter_nd_in_order(tmp_path):
    check_together(map(_scatter_nd, (
        np.float32, np.float64, np.int8, np.uint16, np.int64, np.bool_)), tmp_path / "b")


def _scatter_nd(dtype):
    """Many rows hit the same few places, some counted from the end; integers wrap, NaN stays."""
    rng = np.random.default_rng(10)
    x = values(rng, (7, 3, 11), dtype)
    at = np.stack([rng.integers(-7, 7, 90), rng.integers(-3, 3, 90)], 1).reshape(9, 10, 2)
    feeds = {"x": x, "i": at, "u": values(rng, (9, 10, 11), dtype)}
    joins = JOINS[:1] if dtype == np.bool_ else JOINS
    model = model_of("ScatterND", feeds, {"none": (dtype, x.shape)})
    for join in joins[1:]:
        model.graph.node.append(helper.make_node("ScatterND", list(feeds), [join], reduction=join))
        model.graph.output.append(helper.make_tensor_value_info(
            join, model.graph.output[0].type.tensor_type.elem_type, x.shape))
    return model, feeds, {j: _joined(x, at.reshape(-1, 2), feeds["u"], j) for j in joins}


def _joined(x, at, updates, reduction):
    """Rows of updates put into x one by one."""
    want = x.copy()
    join = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction)
    with np.errstate(all="ignore"):
        for place, row in zip(at, updates.reshape(len(at), *x.shape[at.shape[1]:])):
            here = want[tuple(place)]
            want[tuple(place)] = row if join is None else join(here, row)
    return want


@pytest.mark.parametrize("axis, reduction", [(0, "add"), (1, "max"), (2, "none")])
def test_scatter_elements_on_any_axis(axis, reduction, tmp_path):
    rng = np.random.default_rng(11)
    x = values(rng, (5, 6, 4), np.float32)
    shape = [5, 6, 4]
    shape[axis] = 17
    shape[(axis + 1) % 3] -= 1  # updates need not fill the other axes
    at, u = rng.integers(-x.shape[axis], x.shape[axis], shape), values(rng, shape, np.float32)
    want, join = x.copy(), {"add": np.add, "max": np.maximum, "mul": np.multiply}.get(reduction)
    with np.errstate(all="ignore"):
        for place in np.ndindex(*shape):
            to = list(place)
            to[axis] = at[place]
            here = want[tuple(to)]
            want[tuple(to)] = u[place] if join is None else join(here, u[place])
    feeds = {"x": x, "i": at, "u": u}
    model = model_of("ScatterElements", feeds, {"y": (x.dtype, x.shape)}, axis=axis,
                     reduction=reduction)
    check(model, feeds, tmp_path / "b", {"y": want})


def _messages():
    """A graph's step of any size: rows of x gathered and summed where the edges end."""
    nodes = [helper.make_node("Gather", ["x", "from"], ["m"], axis=0),
             helper.make_node("Sub", ["x", "x"], ["z"]),
             helper.make_node("ScatterND", ["z", "to", "m"], ["y"], reduction="add")]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("nodes", 20)),
             helper.make_tensor_value_info("from", TensorProto.INT64, ("edges",)),
             helper.make_tensor_value_info("to", TensorProto.INT64, ("edges", 1))]
    graph = helper.make_graph(nodes, "g", infos, [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ("nodes", 20))])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("target, threads", [("c", 1), ("native", 2)])
def test_scatter_of_any_number_of_edges(target, threads, tmp_path):
    loaded = aotc.compile(_messages(), tmp_path / "b", target=target, name="net",
                          dims={"nodes": (1, 300), "edges": (0, 900)}).load(threads=threads)
    rng = np.random.default_rng(12)
    for nodes, edges in ((1, 0), (1, 7), (300, 900), (41, 5)):
        x = rng.normal(size=(nodes, 20)).astype("f4")
        ends = rng.integers(0, nodes, (2, edges))
        want = np.zeros_like(x)
        np.add.at(want, ends[1], x[ends[0]])
        got = loaded.run({"x": x, "from": ends[0], "to": ends[1][:, None]})["y"]
        np.testing.assert_array_equal(got, want)
    for outside in (41, -42, 1 << 62, -(1 << 63)):
        with pytest.raises(FaultError, match="y"):
            loaded.run({"x": x, "from": ends[0], "to": np.full((5, 1), outside)})


def test_the_work_of_scatter_is_that_of_its_updates():
    """No step runs over elements times updates."""
    work = run_pipeline(Options(_messages(), target="native", name="net", stop_after="inline"))
    steps = [s for s in work.program.steps if not isinstance(s, LibCall)]
    assert len(steps) < len(work.program.steps)
    for s in steps:
        names = [n.name for a in s.axes + s.raxes for n in walk(a.extent) if isinstance(n, Sym)]
        assert set(names) in ({"nodes"}, {"edges"}), s


@pytest.mark.parametrize("corner", (False, True))
def test_max_unpool_puts_elements_where_they_belong(corner, tmp_path):
    rng = np.random.default_rng(13)
    x = rng.normal(size=(2, 3, 4, 5)).astype("f4")
    at = np.stack([rng.permutation(8 * 10)[:20] for _ in range(6)]).reshape(x.shape)
    at += np.arange(6).reshape(2, 3, 1, 1) * 80
    want = np.zeros(2 * 3 * 80, "f4")
    want[at.reshape(-1)] = x.reshape(-1)
    want = want.reshape(2, 3, 8, 10)
    constants = []
    if corner:
        want = np.pad(want, [(0, 0), (0, 0), (0, 1), (0, 3)])
        constants = [("s", np.array(want.shape))]
    feeds = {"x": x, "i": at}
    model = model_of("MaxUnpool", feeds, {"y": (x.dtype, want.shape)}, constants,
                     kernel_shape=[2, 2], strides=[2, 2])
    check(model, feeds, tmp_path / "b", {"y": want})
    loaded = aotc.load(tmp_path / "b")
    for outside in (480, -1, 1 << 62):
        with pytest.raises(FaultError):
            loaded.run({"x": x, "i": np.where(at == at.max(), outside, at)})
