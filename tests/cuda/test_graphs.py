"""CUDA graphs of calls: captured once, replayed, captured anew; what cannot be captured is refused
before anything starts, and so are contexts that are used twice at once."""

import re

import numpy as np
import pytest
from cuda_twins import INVALIDATED, RELAXED, SUCCESS, UNSUPPORTED, Caller
from cusim_build import needs_cxx
from loop_cases import CASES
from onnx.parser import parse_model

import aotc

pytestmark = needs_cxx
TARGET = "cuda:sm_80"
MODEL = """<ir_version: 9, opset_import: ["": 18]>
    layers (float[n, 40] x, float[40, 24] w) => (float[n, 24] z) {
        p = MatMul(x, w)
        y = Relu(p)
        z = Softmax<axis = 1>(y)
    }"""


def of(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 40)).astype("f4"), rng.standard_normal((40, 24)).astype("f4")


def softmax_of(x, w):
    e = np.exp(np.maximum(x @ w, 0))
    return e / e.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return aotc.compile(parse_model(MODEL), tmp_path_factory.mktemp("graphs") / "b",
                        target=TARGET, dims={"n": (1, 64)}, name="layers")


@pytest.fixture
def caller(bundle):
    caller = Caller(bundle)
    yield caller
    caller.twins.aotc_cusim_set_devices(1)
    caller.library.function("graph_destroy")(caller.graph)
    caller.library.function("destroy")(caller.context)


def test_launches_are_captured_once_and_replayed(caller):
    twins, x, w = caller.twins, *of(20)
    stream, ins, outs = twins.stream(), caller.place(x, w), caller.place(np.zeros((20, 24), "f4"))
    assert caller("graph_create", caller.graph, caller.context) == "AOTC_OK", caller.detail
    for seed in range(3):  # tensors are read where they lie, whatever is there
        x, w = of(20, seed)
        twins.ok(twins.cudaMemcpy(ins[0], caller.ffi.from_buffer(x), x.nbytes, 1))
        twins.ok(twins.cudaMemcpy(ins[1], caller.ffi.from_buffer(w), w.nbytes, 1))
        before = twins.aotc_cusim_captured()
        assert caller("graph_launch", caller.graph, caller.syms(20), ins, outs,
                      stream) == "AOTC_OK", caller.detail
        np.testing.assert_allclose(twins.download(outs[0], (20, 24)), softmax_of(x, w), rtol=2e-4)
        new = twins.aotc_cusim_captured() - before
        assert new == (len(caller.model.manifest["kernels"]) if seed == 0 else 0)
        assert caller.graph.captures == 1
    assert twins.aotc_cusim_refused_calls() == 0


def test_other_pointers_and_dimensions_are_captured_anew(caller):
    twins, stream = caller.twins, caller.twins.stream()
    caller("graph_create", caller.graph, caller.context)
    for count, n in enumerate((20, 7, 64), 1):
        x, w = of(n, n)
        ins, outs = caller.place(x, w), caller.place(np.zeros((n, 24), "f4"))
        for _ in range(2):
            assert caller("graph_launch", caller.graph, caller.syms(n), ins, outs,
                          stream) == "AOTC_OK", caller.detail
        np.testing.assert_allclose(twins.download(outs[0], (n, 24)), softmax_of(x, w), rtol=2e-4)
        assert caller.graph.captures == count
    other = caller.place(np.zeros((64, 24), "f4"))
    assert caller("graph_launch", caller.graph, caller.syms(64), ins, other, stream) == "AOTC_OK"
    np.testing.assert_allclose(twins.download(other[0], (64, 24)), softmax_of(x, w), rtol=2e-4)
    assert caller.graph.captures == 4


def test_replays_are_of_what_was_captured(caller):
    twins, (x, w) = caller.twins, of(20)
    stream, ins, outs = twins.stream(), caller.place(x, w), caller.place(np.zeros((20, 24), "f4"))
    caller("graph_create", caller.graph, caller.context)
    assert caller("graph_replay", caller.graph, caller.syms(20), stream) == "AOTC_GRAPH_MISMATCH"
    assert "nothing was captured" in caller.detail
    caller("graph_launch", caller.graph, caller.syms(20), ins, outs, stream)
    for syms, text in ((caller.syms(19), "n = 20, not 19"), (caller.ffi.NULL, "n = 20, not -1")):
        assert caller("graph_replay", caller.graph, syms, stream) == "AOTC_GRAPH_MISMATCH"
        assert text in caller.detail and "launch captures anew" in caller.detail
    twins.ok(twins.cudaMemset(outs[0], 0, 20 * 24 * 4))
    assert caller("graph_replay", caller.graph, caller.syms(20), stream) == "AOTC_OK"
    np.testing.assert_allclose(twins.download(outs[0], (20, 24)), softmax_of(x, w), rtol=2e-4)


def test_refused_arguments_leave_the_graph_as_it_is(caller):
    x, w = of(20)
    ins, outs = caller.place(x, w), caller.place(np.zeros((20, 24), "f4"))
    stream = caller.twins.stream()
    caller("graph_create", caller.graph, caller.context)
    caller("graph_launch", caller.graph, caller.syms(20), ins, outs, stream)
    assert caller("graph_launch", caller.graph, caller.syms(65), ins, outs,
                  stream) == "AOTC_BAD_DIMENSION"
    nothing = caller.ffi.new("void *[]", 2)
    assert caller("graph_launch", caller.graph, caller.syms(20), nothing, outs,
                  stream) == "AOTC_NULL_POINTER" and caller.detail == "x"
    assert caller("graph_replay", caller.graph, caller.syms(20), stream) == "AOTC_OK"
    assert caller.graph.captures == 1
    assert caller("graph_create", caller.ffi.NULL, caller.context) == "AOTC_NULL_POINTER"
    empty = caller.ffi.new("layers_graph *")
    assert caller("graph_launch", empty, caller.syms(20), ins, outs, stream) == "AOTC_NULL_POINTER"
    assert caller("graph_create", empty, caller.ffi.new("layers_context *")) == "AOTC_NULL_POINTER"


@pytest.mark.parametrize("function", ["run_buffers", "graph_launch"])
def test_callers_capture_runs_in_graphs_of_their_own(caller, function):
    twins, (x, w) = caller.twins, of(20)
    stream, ins, outs = twins.stream(), caller.place(x, w), caller.place(np.zeros((20, 24), "f4"))
    caller("graph_create", caller.graph, caller.context)
    first = caller.context if function == "run_buffers" else caller.graph
    twins.capture(stream)
    assert caller(function, first, caller.syms(20), ins, outs, stream) == "AOTC_OK", caller.detail
    assert caller("check", caller.context, stream) == "AOTC_CAPTURE_REFUSED"
    assert "captured" in caller.detail
    assert caller("synchronize", stream) == "AOTC_CAPTURE_REFUSED"
    status, graph = twins.end_capture(stream)
    assert status == SUCCESS and twins.aotc_cusim_refused_calls() == 0
    exec_ = twins.made("cudaGraphInstantiateWithFlags", graph, 0)
    assert not twins.download(outs[0], (20, 24)).any()  # nothing has run
    twins.ok(twins.cudaGraphLaunch(exec_, stream))
    np.testing.assert_allclose(twins.download(outs[0], (20, 24)), softmax_of(x, w), rtol=2e-4)
    assert caller("check", caller.context, stream) == "AOTC_OK"


def looping(name, tmp_path):
    """A model with loops or branches, and its Caller."""
    case = next(c for c in CASES if c.name == name)
    bundle = aotc.compile(case.model, tmp_path / "b", target=TARGET, name="looping",
                          dims={"t": (1, 8)})
    return bundle, Caller(bundle)


@pytest.mark.parametrize("name, text", [
    ("in_a_branch", r"branch .+: data says which way it goes, which the host waits for"),
    ("rows_until_data_end_it", "loop .+: data says how often it runs, which the host waits for"),
    ("number_that_is_an_input_of_rows", "loop .+: data says how often")])
def test_models_that_ask_data_refuse_captures_before_they_start(name, text, tmp_path):
    bundle, caller = looping(name, tmp_path)
    twins, stream = caller.twins, caller.twins.stream()
    assert caller("graph_create", caller.graph, caller.context) == "AOTC_CAPTURE_REFUSED"
    assert re.match(text, caller.detail), caller.detail
    twins.capture(stream)
    assert caller("run_buffers", caller.context, caller.ffi.NULL, caller.ffi.NULL, caller.ffi.NULL,
                  stream) == "AOTC_CAPTURE_REFUSED"
    assert re.match(text, caller.detail)
    status, _ = twins.end_capture(stream)
    assert status == SUCCESS  # the caller's capture goes on
    assert twins.aotc_cusim_captured() == 0 == twins.aotc_cusim_refused_calls()
    header = " ".join((bundle.path / "looping.h").read_text().replace(" * ", "").split())
    assert re.search("create is AOTC_CAPTURE_REFUSED: " + text, header)


def test_loops_whose_rounds_extents_tell_are_captured(tmp_path):
    bundle, caller = looping("rows", tmp_path)
    rng = np.random.default_rng()
    x, h0 = (rng.standard_normal(s).astype("f4") for s in ((5, 2, 4), (2, 4)))
    want = bundle.load(simulate=True).run({"x": x, "h0": h0})
    outs = caller.place(*(np.zeros_like(a) for a in want.values()))
    assert caller("graph_create", caller.graph, caller.context) == "AOTC_OK", caller.detail
    assert caller("graph_launch", caller.graph, caller.syms(5), caller.place(x, h0), outs,
                  caller.twins.stream()) == "AOTC_OK", caller.detail
    for at, a in zip(outs, want.values(), strict=True):
        np.testing.assert_array_equal(caller.twins.download(at, a.shape), a)


def test_counted_kernels_are_not_captured(tmp_path):
    caller = Caller(aotc.compile(parse_model(MODEL), tmp_path / "b", target=TARGET,
                                 dims={"n": (1, 8)}, profile=True, name="layers"))
    assert caller("graph_create", caller.graph, caller.context) == "AOTC_CAPTURE_REFUSED"
    assert "--profile" in caller.detail


def test_a_context_serves_one_stream_at_a_time(caller):
    twins, (x, w) = caller.twins, of(20)
    ins, outs, one, other = caller.place(x, w), caller.place(np.zeros((20, 24), "f4")), \
        twins.stream(), twins.stream()
    run = ("run_buffers", caller.context, caller.syms(20), ins, outs)
    assert caller(*run, one) == "AOTC_OK"
    twins.aotc_cusim_hold_stream(one, 1)
    assert caller(*run, one) == "AOTC_OK"  # behind the first one
    assert caller(*run, other) == "AOTC_CONTEXT_BUSY"
    assert "on another stream, has not ended" in caller.detail
    caller("graph_create", caller.graph, caller.context)
    assert caller("graph_launch", caller.graph, *run[2:], other) == "AOTC_CONTEXT_BUSY"
    twins.aotc_cusim_hold_stream(one, 0)
    assert caller(*run, other) == "AOTC_OK"
    twins.aotc_cusim_hold_stream(other, 1)
    assert caller(*run, one) == "AOTC_CONTEXT_BUSY"
    twins.aotc_cusim_hold_stream(other, 0)


def test_a_context_serves_one_thread_at_a_time(caller):
    """Who comes second is told, and the first one's call is not touched."""
    run = ("run_buffers", caller.context, caller.syms(20), caller.place(*of(20)),
           caller.place(np.zeros((20, 24), "f4")), caller.ffi.NULL)
    caller.context.entered = 1  # as another thread's call leaves it while it runs
    assert caller(*run) == "AOTC_CONTEXT_BUSY"
    caller.context.entered = 0
    assert caller(*run) == "AOTC_OK" and caller.context.entered == 0


def test_the_first_run_waits_for_init_on_another_stream(caller):
    twins, one, other = caller.twins, caller.twins.stream(), caller.twins.stream()
    arena = twins.made("cudaMalloc", 1 << 16)
    context = caller.ffi.new("layers_context *")
    assert caller("init", context, caller.context.weights, arena, 1 << 16, one) == "AOTC_OK"
    twins.aotc_cusim_hold_stream(one, 1)
    assert caller("run_buffers", context, caller.syms(20), caller.place(*of(20)),
                  caller.place(np.zeros((20, 24), "f4")), other) == "AOTC_OK"
    twins.aotc_cusim_hold_stream(one, 0)
    twins.capture(one)
    assert caller("init", caller.ffi.new("layers_context *"), caller.context.weights, arena,
                  1 << 16, one) == "AOTC_CAPTURE_REFUSED"
    assert twins.end_capture(one)[0] == SUCCESS
    caller.library.function("destroy")(context)


def test_streams_and_contexts_of_other_devices_are_told(caller):
    twins = caller.twins
    twins.aotc_cusim_set_devices(2)
    run = ("run_buffers", caller.context, caller.syms(20), caller.place(*of(20)),
           caller.place(np.zeros((20, 24), "f4")))
    twins.ok(twins.cudaSetDevice(1))
    far = twins.stream()
    assert caller(*run, caller.ffi.NULL) == "AOTC_WRONG_DEVICE"
    assert "of device 0, but 1 is current" in caller.detail
    assert caller("graph_create", caller.graph, caller.context) == "AOTC_WRONG_DEVICE"
    twins.ok(twins.cudaSetDevice(0))
    assert caller(*run, far) == "AOTC_WRONG_DEVICE"
    assert "stream: it is none of device 0" in caller.detail
    assert caller(*run, caller.ffi.NULL) == "AOTC_OK"


CALLS = {"cudaStreamSynchronize": lambda t, s, e, p: t.cudaStreamSynchronize(s),
         "cudaDeviceSynchronize": lambda t, s, e, p: t.cudaDeviceSynchronize(),
         "cudaMalloc": lambda t, s, e, p: t.cudaMalloc(t.ffi.new("void **"), 64),
         "cudaFree": lambda t, s, e, p: t.cudaFree(p),
         "cudaMemcpy": lambda t, s, e, p: t.cudaMemcpy(p, p, 4, 3),
         "cudaMemset": lambda t, s, e, p: t.cudaMemset(p, 0, 4),
         "cudaEventQuery": lambda t, s, e, p: t.cudaEventQuery(e),
         "cudaEventSynchronize": lambda t, s, e, p: t.cudaEventSynchronize(e)}


@pytest.mark.parametrize("name", CALLS)
def test_the_twin_fails_calls_that_a_capture_forbids(caller, name):
    twins = caller.twins
    stream, event, at = twins.stream(), twins.made("cudaEventCreateWithFlags", 2), twins.made(
        "cudaMalloc", 64)
    before = twins.aotc_cusim_refused_calls()
    twins.capture(stream)
    assert CALLS[name](twins, stream, event, at) == UNSUPPORTED
    assert twins.aotc_cusim_refused_calls() == before + 1
    assert twins.end_capture(stream) == (INVALIDATED, caller.ffi.NULL)
    twins.cudaGetLastError()
    twins.capture(stream, RELAXED)
    assert CALLS[name](twins, stream, event, at) == SUCCESS
    assert twins.end_capture(stream)[0] == SUCCESS


def test_the_twin_fails_work_on_the_legacy_stream_beside_a_captured_one(caller):
    twins, blocking = caller.twins, caller.twins.stream(0)
    run = ("run_buffers", caller.context, caller.syms(20), caller.place(*of(20)),
           caller.place(np.zeros((20, 24), "f4")), caller.ffi.NULL)
    twins.capture(blocking)
    assert caller(*run) == "AOTC_CUDA_ERROR" and "legacy stream" in caller.detail
    assert twins.end_capture(blocking)[0] == INVALIDATED
    assert twins.cudaStreamBeginCapture(caller.ffi.NULL, 0) == UNSUPPORTED
    twins.cudaGetLastError()
    assert caller(*run) == "AOTC_OK"
