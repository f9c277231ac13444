"""Arrays of other libraries that lie on the GPU go into calls and come out of them without copies,
on the caller's stream; what does not fit is one error, which names the array."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_twins import Twins
from cusim_build import needs_cxx
from fake_arrays import ByDlpack, ByInterface, OnHost, values
from loop_cases import CASES
from onnx.parser import parse_model

import aotc
from aotc.runtime import dlpack
from aotc.runtime.cuda_model import CudaModel
from aotc.runtime.device_arrays import DeviceArray, stream_of
from aotc.runtime.status import (
    CaptureError,
    ContextBusyError,
    DeviceError,
    GraphError,
    WrongDeviceError,
)

pytestmark = needs_cxx
MODEL = """<ir_version: 9, opset_import: ["": 18]>
    layers (float[n, 40] x, float[40, 24] w) => (float[n, 24] z) {
        p = MatMul(x, w)
        y = Relu(p)
        z = Softmax<axis = 1>(y)
    }"""
KINDS = {"dlpack": ByDlpack, "before versions": lambda *a: ByDlpack(*a, versioned=False),
         "interface": ByInterface}


def of(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 40)).astype("f4"), rng.standard_normal((40, 24)).astype("f4")


def softmax_of(x, w):
    e = np.exp(np.maximum(x @ w, 0))
    return e / e.sum(1, keepdims=True)


def close(got, x, w):
    np.testing.assert_allclose(got, softmax_of(x, w), rtol=2e-4)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return aotc.compile(parse_model(MODEL), tmp_path_factory.mktemp("arrays") / "b",
                        target="cuda:sm_80", dims={"n": (1, 64)}, name="layers")


@pytest.fixture
def model(bundle):
    model = bundle.load(simulate=True)
    model.twins = Twins(model)
    yield model
    model.twins.aotc_cusim_set_devices(1)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_on_the_gpu_go_in_and_results_stay_there(model, kind):
    twins, (x, w) = model.twins, of(20)
    found = model.run({"x": KINDS[kind](twins, x), "w": KINDS[kind](twins, w)})["z"]
    assert isinstance(found, DeviceArray) and found.shape == (20, 24)
    close(values(twins, found), x, w)
    close(found.numpy(), x, w)
    close(np.asarray(found), x, w)
    mixed = model.run([KINDS[kind](twins, x), w])["z"]  # one is copied there
    close(mixed.numpy(), x, w)
    model.synchronize()


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_of_the_caller_are_written_to(model, kind):
    twins, (x, w) = model.twins, of(20)
    out = KINDS[kind](twins, np.zeros((20, 24), "f4"))
    feeds = {"x": KINDS[kind](twins, x), "w": KINDS[kind](twins, w)}
    for outputs in ({"z": out}, [out]):
        twins.ok(twins.cudaMemset(out.at, 0, 20 * 24 * 4))
        found = model.run(feeds, outputs=outputs)
        assert found["z"] is out
        close(values(twins, out), x, w)
    host = np.zeros((20, 24), "f4")
    assert model.run({"x": x, "w": w}, outputs={"z": host})["z"] is host
    close(host, x, w)
    on_gpu = model.run({"x": x, "w": w}, outputs={"z": out})["z"]  # of arrays on the host
    assert on_gpu is out
    close(values(twins, out), x, w)


def test_results_are_arrays_for_other_libraries(model):
    twins, (x, w) = model.twins, of(20)
    found = model.run([ByDlpack(twins, x), w])["z"]
    about = found.__cuda_array_interface__
    assert about["shape"] == (20, 24) and about["typestr"] == "<f4" and about["strides"] is None
    assert about["data"] == (found.pointer, False) and about["stream"] == 1
    assert found.__dlpack_device__() == (2, 0)
    for version in (None, (1, 0)):
        before = len(dlpack._exported)
        capsule = found.__dlpack__(stream=1, max_version=version)
        assert len(dlpack._exported) == before + 1
        holder = SimpleNamespace(__dlpack__=lambda c=capsule, **_: c)
        tensor = dlpack.read_tensor(holder, 1)
        assert (tensor.pointer, tensor.shape, tensor.strides, tensor.dtype, tensor.device) == (
            found.pointer, (20, 24), (24, 1), np.dtype("f4"), (2, 0))
        del capsule, holder, tensor
        gc.collect()
        assert len(dlpack._exported) == before  # nobody read it: its own destructor
    with pytest.raises(BufferError, match="without a copy"):
        found.__dlpack__(copy=True)
    again = model.run([found_as_input(twins, found), np.ones((40, 24), "f4")])["z"]
    assert again.shape == (20, 24)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_who_has_read_a_result_lets_go_of_its_memory(model, version):
    """Simulated memory is the host's: numpy reads it, once the capsule says so."""
    twins, (x, w) = model.twins, of(20)
    found, before = model.run([ByDlpack(twins, x), w])["z"], len(dlpack._exported)

    def relabelled(**_):
        capsule = found.__dlpack__(max_version=version)
        for managed, *_ in dlpack._exported.values():
            managed.dl_tensor.device.device_type = dlpack.CPU
        return capsule
    array = np.from_dlpack(SimpleNamespace(__dlpack__=relabelled,
                                           __dlpack_device__=lambda: (dlpack.CPU, 0)))
    found = None
    gc.collect()
    assert len(dlpack._exported) == before + 1
    close(array, x, w)
    del array
    gc.collect()
    assert len(dlpack._exported) == before


def found_as_input(twins, found):
    """Its values beside others, as an input of 40 columns."""
    return ByInterface(twins, np.concatenate([found.numpy(), found.numpy()[:, :16]], 1))


def test_an_output_is_an_input_of_the_next_call(model):
    twins, (_, w) = model.twins, of(40)
    first = model.run([ByDlpack(twins, of(40)[0]), w])["z"]  # [40, 24], as w
    x = of(3)[0]
    close(model.run([ByDlpack(twins, x), first])["z"].numpy(), x, first.numpy())


def test_streams_of_all_kinds(model):
    twins, (x, w) = model.twins, of(20)
    stream = twins.stream()
    number = int(twins.ffi.cast("uintptr_t", stream))
    kinds = (number, SimpleNamespace(cuda_stream=number), SimpleNamespace(ptr=number),
             SimpleNamespace(__cuda_stream__=(0, number)),
             SimpleNamespace(__cuda_stream__=lambda: (0, number)))
    given = ByDlpack(twins, x)
    for kind in kinds:
        assert stream_of(kind, 0) == number
        close(model.run([given, w], stream=kind)["z"].numpy(), x, w)
    assert set(given.streams) == {number}  # its producer has been told who reads it
    close(model.run({"x": x, "w": w}, stream=number)["z"], x, w)
    assert model._context.stream == stream
    model.run([given, w])
    assert given.streams[-1] == 1  # the default one, as DLPack calls it
    with pytest.raises(TypeError, match="stream: str is none; give a cudaStream_t"):
        model.run([given, w], stream="fast")


def test_calls_that_repeat_read_what_lies_there(model):
    twins, (x, w) = model.twins, of(20)
    given, out = ByInterface(twins, x), ByInterface(twins, np.zeros((20, 24), "f4"))
    call = model.bind({"x": given, "w": w}, outputs=[out])
    assert call()["z"] is out and call.inputs["x"] is given
    close(values(twins, out), x, w)
    for seed in (1, 2):
        x, w[...] = of(20, seed)
        twins.ok(twins.cudaMemcpy(given.at, twins.ffi.from_buffer(x), x.nbytes, 1))
        call()
        close(values(twins, out), x, w)


@pytest.mark.parametrize("where", ["gpu", "host"])
def test_graphs_replay_calls(model, where):
    twins, (x, w) = model.twins, of(20)
    given = ByDlpack(twins, x) if where == "gpu" else x
    call = model.bind({"x": given, "w": w}, stream=twins_number(twins))
    graph = call.graph()
    with pytest.raises(GraphError, match="of a call with n = 20, not 19; bind another one"):
        graph.replay(dims={"n": 19})  # before anything was captured
    with pytest.raises(ValueError, match="dimensions unknown: m; it has: n"):
        graph.replay(dims={"m": 20})
    for _ in range(3):
        before = twins.aotc_cusim_captured()
        found = graph()["z"]
        new = twins.aotc_cusim_captured() - before
        assert new == (0 if _ else len(model.manifest["kernels"]))
        close(found.numpy() if where == "gpu" else found, x, w)
    graph.replay()
    graph.replay(dims={"n": 20})
    assert graph.captures == 1
    with pytest.raises(GraphError, match="captured with n = 20, not 19; launch captures anew"):
        graph.replay(dims={"n": 19})
    # a larger call moves the arena: the graph is captured for the new one
    model.run([np.ones((64, 40), "f4"), w])
    close(found.numpy() if where == "gpu" else graph()["z"], x, w)


def twins_number(twins):
    return int(twins.ffi.cast("uintptr_t", twins.stream()))


def test_models_that_ask_data_have_no_graph(tmp_path):
    case = next(c for c in CASES if c.name == "in_a_branch")
    model = aotc.compile(case.model, tmp_path / "b", target="cuda:sm_80").load(simulate=True)
    rng = np.random.default_rng()
    call = model.bind({"x": rng.standard_normal((5, 2, 4)).astype("f4"),
                       "h0": rng.standard_normal((2, 4)).astype("f4"), "c": np.array(True)})
    call()
    with pytest.raises(CaptureError, match="branch .*: data says which way"):
        call.graph()


def test_two_streams_at_once_are_refused(model):
    twins, (x, w) = model.twins, of(20)
    one, other = twins_number(twins), twins_number(twins)
    call = model.bind([ByDlpack(twins, x), ByDlpack(twins, w)], stream=one)
    call()
    twins.aotc_cusim_hold_stream(twins.ffi.cast("void *", one), 1)
    for again in (lambda: call.launch(other), lambda: model.run([x, w], stream=other),
                  lambda: call.graph().replay(other)):
        with pytest.raises(ContextBusyError, match="its last run, on another stream, has not "):
            again()
    twins.aotc_cusim_hold_stream(twins.ffi.cast("void *", one), 0)
    call.launch(other)
    model._context.entered = 1
    with pytest.raises(ContextBusyError, match="the context serves|another thread|busy"):
        call.launch(other)
    model._context.entered = 0


def test_arrays_and_streams_of_another_device(model):
    twins, (x, w) = model.twins, of(20)
    twins.aotc_cusim_set_devices(2)
    with pytest.raises(WrongDeviceError, match="layers: input x is on GPU 1, the model on GPU 0; "
                                               "copy it there, or load the model with device=1"):
        model.run([ByDlpack(twins, x, device=1), w])
    twins.ok(twins.cudaSetDevice(1))
    far, stream = ByInterface(twins, x), twins_number(twins)
    twins.ok(twins.cudaSetDevice(0))
    with pytest.raises(WrongDeviceError, match="input x is on GPU 1"):
        model.run({"x": far, "w": w})
    with pytest.raises(WrongDeviceError, match="output z is on GPU 1"):
        model.run([x, w], outputs=[ByDlpack(twins, np.zeros((20, 24), "f4"), device=1)])
    with pytest.raises(WrongDeviceError, match="stream: it is none of device 0"):
        model.run([ByDlpack(twins, x), w], stream=stream)
    with pytest.raises(WrongDeviceError, match="stream: it is none of device 0"):
        model.run([ByDlpack(twins, x), ByDlpack(twins, w)], stream=stream)
    for told in (SimpleNamespace(cuda_stream=stream, device=SimpleNamespace(index=1)),
                 SimpleNamespace(ptr=stream, device_id=1)):
        with pytest.raises(WrongDeviceError, match="stream: .* is of GPU 1, the model on GPU 0"):
            model.run([x, w], stream=told)


def test_models_of_another_device(model, bundle):
    """Whatever device is current: it is so again afterwards."""
    twins, (x, w), current = model.twins, of(20), model._ffi.new("int *")
    twins.aotc_cusim_set_devices(2)
    for device in (1, "cuda:1", SimpleNamespace(index=1), SimpleNamespace(id=1)):
        other = bundle.load(simulate=True, device=device)
        assert isinstance(other, CudaModel) and other.device == 1
        close(other.run([x, w])["z"], x, w)
        twins.ok(twins.cudaGetDevice(current))
        assert current[0] == 0
    twins.ok(twins.cudaSetDevice(1))
    there = ByInterface(twins, x)
    found = other.run([there, w])["z"]
    close(found.numpy(), x, w)
    assert found.__dlpack_device__() == (2, 1)
    close(model.run([x, w])["z"], x, w)
    twins.ok(twins.cudaGetDevice(current))
    assert current[0] == 1
    twins.ok(twins.cudaSetDevice(0))
    with pytest.raises(DeviceError, match="device=2: this machine has 2 GPUs"):
        bundle.load(simulate=True, device=2)
    with pytest.raises(TypeError, match="device: .* is none"):
        bundle.load(simulate=True, device=1.5)


def test_devices_are_for_cuda(tmp_path):
    bundle = aotc.compile(parse_model(MODEL), tmp_path / "b", target="c", dims={"n": (1, 64)})
    with pytest.raises(aotc.AotcError, match="compiled for CPUs, device=0 is for CUDA"):
        bundle.load(device=0)


def test_arrays_of_the_host_by_dlpack_are_read(model):
    x, w = of(20)
    close(model.run({"x": OnHost(x), "w": OnHost(w)})["z"], x, w)


WRONG = {
    "not contiguous": (lambda t, x: ByInterface(t, x, strides=(4, 4 * len(x))), {},
                       r"input x is not contiguous \(strides \[1, 20\] of shape \[20, 40\]\)"),
    "of another type": (lambda t, x: ByDlpack(t, x.astype("f8")), {},
                        "input x: dtype is float64, expected float32"),
    "of another rank": (lambda t, x: ByDlpack(t, x[0]), {},
                        r"input x: shape is \[40\], expected rank"),
    "another kind of device": (lambda t, x: ByDlpack(t, x, kind=10), {}, "device of type 10"),
    "a pointer to the host": (
        lambda t, x: SimpleNamespace(__cuda_array_interface__={
            "shape": x.shape, "typestr": "<f4", "data": (x.ctypes.data, False), "version": 3}), {},
        "input x: its pointer, which __cuda_array_interface__ gives, is not to device memory"),
    "output of another type": (ByDlpack, {"z": lambda t, z: ByDlpack(t, z.astype("f2"))},
                               r"output z: its array is float16\[20, 24\], expected float32"),
    "output of another shape": (ByDlpack, {"z": lambda t, z: ByDlpack(t, z[:19])},
                                r"output z: its array is float32\[19, 24\], expected float32\[20"),
    "output that is read-only": (ByDlpack, {"z": lambda t, z: ByInterface(t, z, read_only=True)},
                                 "output z: its array is read-only"),
    "output that is not contiguous": (
        ByDlpack, {"z": lambda t, z: ByInterface(t, z, strides=(4, 80))},
        "output z is not contiguous"),
    "output on the host": (ByDlpack, {"z": lambda t, z: z},
                           "output z: its array lies on the host, others lie on the GPU"),
    "output that is no array": (lambda t, x: x, {"z": lambda t, z: z.tolist()},
                                "output z: list is no array to write to"),
    "unknown output": (ByDlpack, {"y": lambda t, z: z}, "outputs unknown: y; it has: z"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("function", ["run", "bind"])
def test_what_does_not_fit_is_one_error_before_anything_runs(model, name, function):
    twins, (x, w) = model.twins, of(20)
    make, outputs, text = WRONG[name]
    outputs = {n: f(twins, np.zeros((20, 24), "f4")) for n, f in outputs.items()} or None
    with pytest.raises(ValueError, match=text):
        getattr(model, function)({"x": make(twins, x), "w": w}, outputs=outputs)
    close(model.run([x, w])["z"], x, w)


def test_read_only_arrays_of_numpy_are_no_outputs(model):
    x, w = of(20)
    z = np.zeros((20, 24), "f4")
    z.flags.writeable = False
    with pytest.raises(ValueError, match="output z: its array is read-only"):
        model.run([x, w], outputs=[z])
    with pytest.raises(ValueError, match="2 outputs given, it has 1: z"):
        model.run([x, w], outputs=[z, z])


def test_torch_on_the_cpu(model):
    torch = pytest.importorskip("torch")
    x, w = of(20)
    close(model.run({"x": torch.from_numpy(x), "w": torch.from_numpy(w)})["z"], x, w)
