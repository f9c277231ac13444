"""CUDA bundles that count what their kernels cost, by events around each launch."""

import numpy as np
import pytest
from cuda_twins import Caller
from cusim_build import needs_cxx
from loop_cases import CASES
from onnx.parser import parse_model

import aotc
from aotc.runtime.status import RunError

pytestmark = needs_cxx
TARGET = "cuda:sm_80"
MODEL = """<ir_version: 9, opset_import: ["": 18]>
    layers (float[n, 40] x, float[40, 24] w) => (float[n, 24] z) {
        p = MatMul(x, w)
        y = Relu(p)
        z = Softmax<axis = 1>(y)
    }"""


def feeds(n):
    rng = np.random.default_rng(n)
    return {"x": rng.standard_normal((n, 40)).astype(np.float32),
            "w": rng.standard_normal((40, 24)).astype(np.float32)}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return aotc.compile(parse_model(MODEL), tmp_path_factory.mktemp("events") / "b",
                        target=TARGET, dims={"n": (1, 64)}, profile=True, name="layers")


def test_costs_follow_the_extents_of_every_call(bundle, tmp_path):
    plain = aotc.compile(parse_model(MODEL), tmp_path / "p", target=TARGET, dims={"n": (1, 64)},
                         name="layers")
    text = "".join(f.read_text() for f in (tmp_path / "p").glob("layers*.cu"))
    assert "layers_run" in text
    assert "ElapsedTime" not in text and "_profile" not in text
    counting, model = bundle.load(simulate=True), plain.load(simulate=True)
    found = {}
    for n in (33, 7):
        np.testing.assert_array_equal(counting.run(feeds(n))["z"], model.run(feeds(n))["z"])
        found[n] = counting.profile(reset=True)
        assert all(c.calls == 1 and 0 < c.seconds < 60 for c in found[n])
    assert len(found[7]) == len(plain.manifest["kernels"]) > 1
    product = found[33][0]
    assert product.flops == 33 * 24 * (2 * 40 + 1)
    assert product.bytes == 4 * (33 * 40 + 40 * 24 + 33 * 24)
    assert not any(c.calls or c.seconds for c in counting.profile())
    with pytest.raises(aotc.AotcError, match="--profile"):
        model.profile()


def test_calls_add_up_as_long_as_there_is_one_arena(bundle):
    """What a launch has cost is asked before its events are recorded again."""
    model = bundle.load(simulate=True)
    call = model.bind(feeds(20))
    call()
    model.profile(reset=True)
    ins, outs = call._in_pointers, call._out_pointers
    once = []
    for _ in range(3):
        status = model._library.function("run_buffers")(
            model._context, call._syms, ins, outs, model._ffi.NULL)
        assert status == 0
        once.append(model.profile()[0].seconds)
    assert [c.calls for c in model.profile()] == [3] * len(model.profile())
    assert 0 < once[0] < once[1] < once[2]


def test_every_round_of_a_loop_counts(tmp_path):
    case = next(c for c in CASES if c.name == "rows")
    bundle = aotc.compile(case.model, tmp_path / "b", target=TARGET, profile=True)
    model = bundle.load(simulate=True)
    rng = np.random.default_rng(0)
    model.run({"x": rng.standard_normal((5, 2, 4)).astype(np.float32),
               "h0": rng.standard_normal((2, 4)).astype(np.float32)})
    assert 5 in {c.calls for c in model.profile()}


def test_a_launch_that_fails_is_told_and_costs_go_on(bundle):
    model = bundle.load(simulate=True)
    model._ffi.cdef("void aotc_cusim_fail_launch(int, int);")
    model._library.lib.aotc_cusim_fail_launch(1, 9)
    with pytest.raises(RunError, match="was told to fail"):
        model.run(feeds(3))
    model.run(feeds(3))
    assert all(c.calls == 1 for c in model.profile())


def test_a_context_of_its_own_memory_has_events_and_drops_them(bundle):
    model = bundle.load(simulate=True)
    ffi, library = model._ffi, model._library
    context, weights, count = ffi.new("layers_context *"), ffi.new("aotc_weights *"), ffi.new(
        "int *")
    assert library.function("profile")(context, count) == ffi.NULL  # before init
    model._open_weights(bundle.path, weights)
    assert library.function("create")(context, weights) == 0
    assert all(e != ffi.NULL for pair in context.events for e in pair)
    assert library.function("profile")(context, count) != ffi.NULL
    assert count[0] == len(bundle.manifest["kernels"])
    library.function("destroy")(context)
    assert all(e == ffi.NULL for pair in context.events for e in pair)


@pytest.mark.parametrize("counts", [True, False], ids=["counting", "plain"])
def test_a_context_that_begins_again_gives_back_its_events(bundle, counts, tmp_path):
    """Made with memory of its own or without; what other bytes stand there says nothing."""
    made = bundle if counts else aotc.compile(parse_model(MODEL), tmp_path / "b", target=TARGET,
                                              dims={"n": (1, 64)}, name="layers")
    caller = Caller(made)
    twins, ffi, null = caller.twins, caller.ffi, caller.ffi.NULL
    alive, weights = twins.aotc_cusim_events(), ffi.new("aotc_weights *")
    caller.model._open_weights(made.path, weights)
    need = caller.library.function("arena_size_of")(caller.syms(64))
    given = [twins.upload(np.zeros(n, np.uint8)) for n in (
        caller.library.function("weights_device_bytes")(), need)]
    caller.library.function("destroy")(caller.context)
    own = twins.aotc_cusim_events()  # of others that have the library, too
    assert own < alive
    for _ in range(3):
        assert caller("create", caller.context, weights) == "AOTC_OK"
        assert twins.aotc_cusim_events() == alive
        assert caller("init", caller.context, *given, need, null) == "AOTC_OK"
        assert twins.aotc_cusim_events() == alive and caller.context.owned[0] == null
        assert caller("init", caller.context, null, given[1], need, null) != "AOTC_OK"
        assert twins.aotc_cusim_events() == own
        ffi.buffer(caller.context)[:] = b"\xa5" * ffi.sizeof(caller.context[0])
    assert caller("create", caller.context, weights) == "AOTC_OK"
    caller.library.function("destroy")(caller.context)
    caller.library.function("weights_close")(weights)
    assert twins.aotc_cusim_events() == own
