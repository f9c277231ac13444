"""GPUs that cannot run a bundle, that have no memory left, launches that fail, and calls that no
grid has room for: one status that says what and why, and nothing has been started."""

import numpy as np
import pytest
from cusim_build import needs_cxx
from harness import INFO
from kernel_programs import dense
from onnx.parser import parse_model

import aotc
from aotc.emit.bundle.device_needs import device_needs
from aotc.emit.bundle.render import render_bundle
from aotc.errors import UnsupportedError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.status import RunError
from aotc.sched import decide, lower
from aotc.target import get_target
from aotc.target.gpus import GPUS

pytestmark = needs_cxx
X = np.random.default_rng().standard_normal((64, 256)).astype(np.float32)
MODEL = """<ir_version: 9, opset_import: ["": 18]>
    layers (float[n, 256] x, float[256, 128] w) => (float[n, 128] z) {
        p = MatMul(x, w)
        y = Relu(p)
        z = Softmax<axis = 0>(y)
    }"""
NOT_AVAILABLE, CUDA_ERROR = "AOTC_NOT_AVAILABLE", "AOTC_CUDA_ERROR"
INVALID_CONFIGURATION, LAUNCH_FAILURE = 9, 719


def feeds():
    return {"x": X, "w": np.random.default_rng(1).standard_normal((256, 128)).astype(np.float32)}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    return {t: aotc.compile(parse_model(MODEL), folder / t[-2:], target=t, dims={"n": (1, 64)},
                            name="layers") for t in ("cuda:sm_80", "cuda")}


def simulated(bundle):
    """(Model, functions of its simulated device)"""
    model = bundle.load(simulate=True)
    model._ffi.cdef("void aotc_cusim_set_device(int, size_t, size_t);"
                    "void aotc_cusim_fail_launch(int, int);")
    return model, model._library.lib


@pytest.fixture
def model(bundles):
    model, device = simulated(bundles["cuda:sm_80"])
    yield model, device
    device.aotc_cusim_set_device(0, 0, 0)
    device.aotc_cusim_fail_launch(0, 0)


def refused(model, status, *words):
    with pytest.raises(RunError) as err:
        model.run(feeds())
    assert err.value.status == status and all(w in str(err.value) for w in words), err.value


def runs(model):
    assert np.allclose(model.run(feeds())["z"].sum(0), 1, 1e-4)


@pytest.mark.parametrize("capability, has", [(75, "7.5"), (90, "9.0"), (120, "12.0")])
def test_a_gpu_that_does_not_run_the_code_is_refused_with_both_versions(model, capability, has):
    model, device = model
    device.aotc_cusim_set_device(capability, 0, 0)
    refused(model, NOT_AVAILABLE, f"this GPU has compute capability {has}, ",
            "the code is for 8.0 and later of 8.x", "another --target")
    device.aotc_cusim_set_device(89, 0, 0)
    runs(model)


def test_drivers_compile_code_for_gpus_that_come_later(bundles):
    model, device = simulated(bundles["cuda"])
    device.aotc_cusim_set_device(120, 0, 0)
    runs(model)
    model, device = simulated(bundles["cuda"])
    device.aotc_cusim_set_device(75, 0, 0)
    refused(model, NOT_AVAILABLE, "capability 7.5, the code is for 8.0 and later;")
    device.aotc_cusim_set_device(0, 0, 0)


def test_a_gpu_whose_blocks_have_less_memory_is_refused_with_both_sizes(model):
    model, device = model
    plan = run_pipeline(Options(parse_model(MODEL), target="cuda:sm_80", dims={"n": (1, 64)},
                                stop_after="plan")).plan
    needs = device_needs((plan,), get_target("cuda:sm_80"))
    assert needs.shared > 8192
    device.aotc_cusim_set_device(0, needs.shared - 1, 0)
    refused(model, NOT_AVAILABLE, f"gives a block {needs.shared - 1} bytes of shared memory",
            f"{needs.kernel} needs {needs.shared}", "its own --machine")
    device.aotc_cusim_set_device(0, needs.shared, 0)
    runs(model)


def test_memory_that_is_not_there_is_said_and_there_later(model):
    model, device = model
    device.aotc_cusim_set_device(0, 0, 4096)
    refused(model, CUDA_ERROR, f"{X.nbytes} bytes of device memory")
    device.aotc_cusim_set_device(0, 0, 0)
    runs(model)


def test_contexts_of_their_own_memory_say_what_there_was_no_room_for(model, bundles):
    """Nothing is kept of one that could not be made, and the next launch is not said to fail."""
    model, device = model
    ffi, library = model._ffi, model._library
    context, weights = ffi.new("layers_context *"), ffi.new("aotc_weights *")
    model._open_weights(bundles["cuda:sm_80"].path, weights)
    for room, what in ((1, "weights: 64 bytes of device memory: out of memory"), (
            100, "arena: ")):
        device.aotc_cusim_set_device(0, 0, room)
        status = library.function("create")(context, weights)
        assert library.statuses[status] == CUDA_ERROR
        assert library.detail(context).startswith(what), library.detail(context)
        assert context.owned[0] == context.owned[1] == ffi.NULL
    device.aotc_cusim_set_device(0, 0, 0)
    assert library.function("create")(context, weights) == 0
    runs(model)
    library.function("destroy")(context)


@pytest.mark.parametrize("after", [0, 1])
def test_a_launch_that_fails_leaves_the_context_usable(model, after):
    model, device = model
    runs(model)
    device.aotc_cusim_fail_launch(after, INVALID_CONFIGURATION)
    refused(model, CUDA_ERROR, "was told to fail")
    runs(model)


def test_a_device_that_is_lost_says_so_again(model):
    model, device = model
    device.aotc_cusim_fail_launch(0, LAUNCH_FAILURE)
    for _ in range(2):
        refused(model, CUDA_ERROR, "was told to fail")


ENDLESS = """<ir_version: 9, opset_import: ["": 18]>
    endless (float[n, m] x) => (float[n, m] y) { y = Relu(x) }"""


@pytest.mark.parametrize("n, m", [(1 << 31, 1), (1 << 16, 1 << 15), (1 << 40, 1 << 20)])
def test_calls_with_more_elements_than_a_grid_has_blocks_are_refused(tmp_path, n, m):
    """Nobody has the memory for such a call: pointers are not looked at before.  A block has an
    element of each of its results at least."""
    bundle = aotc.compile(parse_model(ENDLESS), tmp_path / "b", target="cuda:sm_90",
                          name="endless")
    model, _ = simulated(bundle)
    small = np.ones((3, 5), np.float32)
    assert np.array_equal(model.run({"x": small})["y"], small)
    ffi, library = model._ffi, model._library
    syms, one = ffi.new("int64_t[]", [n, m]), ffi.new("char[]", 64)
    ins, outs = ffi.new("const void *[]", [one]), ffi.new("void *[]", [one])
    status = library.function("run_buffers")(model._context, syms, ins, outs, ffi.NULL)
    assert library.statuses[status] == "AOTC_BAD_DIMENSION"
    assert library.detail(model._context) == (
        "dimensions: a tensor of 2147483648 elements or more; make smaller calls")
    assert np.array_equal(model.run({"x": small})["y"], small)


def test_models_with_more_blocks_than_a_grid_has_are_not_written(tmp_path):
    with pytest.raises(UnsupportedError, match="y.*work items, a grid has at most 2.31 - 1 blocks"):
        aotc.compile(parse_model(ENDLESS), tmp_path / "b", target="cuda:sm_90",
                     dims={"n": (1, 1 << 40), "m": (1, 1 << 18)})
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("target", ["cuda", "cuda:sm_80", "cuda:sm_90"])
def test_what_a_bundle_asks_is_what_its_target_says(target):
    target = get_target(target)
    program = dense()
    schedule = decide(program, target)
    plan = lower(program, schedule, target)
    needs = device_needs((plan,), target)
    assert needs.capability == int(target.arch.removeprefix("sm_"))
    assert needs.later == (target.name == "cuda") and 0 < needs.shared <= min(
        g.machine.near.capacity for g in GPUS.values() if g.capability == needs.capability
        or needs.later)
    text = render_bundle(plan, schedule, INFO).files["dense.cu"].decode()
    assert (f"{needs.kernel} needs {needs.shared};" in text) and (
        ("|| major != " in text) == (not needs.later))
