"""CUDA bundles on the simulator, through the same Python interface as any other."""

import shutil

import numpy as np
import onnx
import pytest
from cuda_models import mixture
from cusim_build import ORDERS, needs_cxx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession
from small_models import dense, embedding, make_model

import aotc
from aotc.cli import main
from aotc.ir.dtypes import from_bf16, to_bf16
from aotc.runtime import cuda_model as cuda
from aotc.runtime.compile_bundle import build, read_manifest
from aotc.runtime.shared_library import Library
from aotc.runtime.status import DeviceError, IndexFault, RunError, WeightsError
from aotc.tools.peers import open_reference
from aotc.tools.verify import compare, verify
from benchmarks.decoder_models import Sizes, call_feeds, gpt2, stepwise

F32 = np.float32
pytestmark = needs_cxx
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None,
                                reason="needs nvcc: install the CUDA toolkit")
needs_gpu = pytest.mark.skipif(shutil.which("nvcc") is None or not cuda.devices(),
                               reason="needs a GPU and nvcc")


@pytest.fixture(scope="module")
def mixture_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("mixture") / "mixture.onnx"
    onnx.save(mixture(), path)
    return path


@pytest.fixture(scope="module")
def mixture_bundle(mixture_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("mixture_bundle") / "b"
    return aotc.compile(mixture_file, out, target="cuda:sm_90", dims={"n": (1, 300)})


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=needs_gpu)],
                ids=["simulated", "gpu"])
def mixture_model(request, mixture_bundle):
    return mixture_bundle.load(simulate=request.param)


@pytest.mark.parametrize("n", [1, 37, 150])
def test_dynamic_model_is_right(mixture_file, mixture_model, n):
    x = np.random.default_rng().standard_normal((n, 72)).astype(F32)
    want = open_reference(mixture_file)[1]({"x": x})
    assert compare("y", mixture_model.run({"x": x})["y"], want["y"]).ok
    assert compare("y", mixture_model(x)["y"], want["y"]).ok


def test_bound_arrays_are_read_and_written_again(mixture_file, mixture_model):
    x = np.zeros((5, 72), F32)
    call = mixture_model.bind([x])
    first = call()
    x[...] = np.random.default_rng().standard_normal((5, 72))
    outputs = call()
    assert outputs is first
    want = open_reference(mixture_file)[1]({"x": x})["y"]
    assert compare("y", outputs["y"], want).ok
    x[...] = 0  # what is launched sees the inputs uploaded last
    call.launch()
    mixture_model.synchronize()
    call.download()
    assert compare("y", outputs["y"], want).ok


def test_wrong_feeds_are_refused_before_anything_runs(mixture_model):
    for feeds, text in (({"z": np.zeros((2, 72), F32)}, "missing: x"),
                        ({"x": np.zeros((2, 72))}, "float64"),
                        ({"x": np.zeros((301, 72), F32)}, "301"),
                        ({"x": np.zeros((2, 71), F32)}, "71")):
        with pytest.raises(ValueError, match=text):
            mixture_model.run(feeds)


def test_what_a_cuda_model_says_of_itself(mixture_model):
    assert mixture_model.threads == 1
    assert mixture_model.variant == "cuda:sm_90"
    with pytest.raises(aotc.AotcError, match="profile"):
        mixture_model.profile()


def test_index_fault_names_the_node_and_the_model_goes_on(tmp_path):
    bundle = aotc.compile(embedding(), tmp_path / "b", target="cuda", name="emb",
                          dims={"batch": (1, 4), "seq": (1, 8)})
    model = bundle.load(simulate=True)
    feeds = {"ids": np.zeros((2, 3), np.int64), "mask": np.ones((2, 3), np.int64)}
    good = model.run(feeds)["y"].copy()
    feeds["ids"] = np.array([[0, 1, 2], [3, 30, 4]])
    with pytest.raises(IndexFault, match="lookup"):
        model.run(feeds)
    feeds["ids"] = np.zeros((2, 3), np.int64)
    np.testing.assert_array_equal(model.run(feeds)["y"], good)


def test_weights_in_the_library_and_damaged_ones_in_a_file(tmp_path):
    x = np.random.default_rng().standard_normal((3, 8)).astype(F32)
    embedded = aotc.compile(dense(), tmp_path / "e", target="cuda", name="d", weights="embed")
    filed = aotc.compile(dense(), tmp_path / "f", target="cuda", name="d")
    np.testing.assert_array_equal(embedded.load(simulate=True).run([x])["y"],
                                  filed.load(simulate=True).run([x])["y"])
    path = filed.path / "d_weights.bin"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsError):
        filed.load(simulate=True)


def test_results_do_not_depend_on_the_order_of_threads(mixture_bundle):
    x = np.random.default_rng().standard_normal((70, 72)).astype(F32)
    want = mixture_bundle.load(simulate=True).run([x])["y"]
    for order in ORDERS:
        np.testing.assert_array_equal(mixture_bundle.load(simulate=order).run([x])["y"], want)


# ---------------------------------------------------------------- real models

def test_digits_are_recognised(digits_model, tmp_path):
    path, classifier, images, labels = digits_model
    model = aotc.compile(path, tmp_path / "b", target="cuda", dims={"batch": (1, 256)}).load(
        simulate=True)
    got = model.run({"images": images[:256]})
    np.testing.assert_array_equal(got["digit"], classifier.predict(images[:256] / 16))
    assert (got["digit"] == labels[:256]).mean() > 0.9


@pytest.mark.product
@pytest.mark.parametrize("simulate", [True, pytest.param(False, marks=needs_gpu)])
@pytest.mark.parametrize("name", ["bert_tiny", "squeezenet1_1", "mobilenet_v2"])
def test_models_of_the_zoo_are_right(zoo_model, name, simulate):
    results = verify(zoo_model(name), "cuda", simulate=simulate, report=lambda line: None)
    assert results and all(m.ok for _, m in results), results


def test_operands_rounded_to_bf16_run_on_tensor_cores(tmp_path):
    rng, node = np.random.default_rng(9), helper.make_node
    model = make_model(
        [node("MatMul", ["x", "a"], ["h"]), node("Relu", ["h"], ["r"]),
         node("MatMul", ["r", "b"], ["y"])],
        {"x": (TensorProto.FLOAT, [700, 128])}, {"y": (TensorProto.FLOAT, [700, 192])},
        {"a": rng.standard_normal((128, 256)).astype(F32),
         "b": rng.standard_normal((256, 192)).astype(F32)})
    bundle = aotc.compile(model, tmp_path / "b", target="cuda:sm_80", precision="bf16", name="mlp")
    text = (tmp_path / "b" / "mlp_kernels_1.cu").read_text()
    assert text.count("aotc_mma_m16n8k16_bf16f32") == 2 and "aotc_simt_bf16.h" in text
    onnx.save(model, tmp_path / "m.onnx")
    results = verify(tmp_path / "m.onnx", "cuda:sm_80", simulate=True, precision="bf16",
                     report=lambda line: None)
    assert results and all(m.ok for _, m in results), results
    x = rng.standard_normal((700, 128)).astype(F32)
    y = bundle.load(simulate=True).run({"x": x})["y"]
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    low = {n: from_bf16(to_bf16(a)).astype(np.float64) for n, a in (weights | {"x": x}).items()}
    inner = from_bf16(to_bf16(np.maximum(low["x"] @ low["a"], 0).astype(F32)))
    want = inner.astype(np.float64) @ low["b"]
    # sums in another order may round an element of r to the bf16 beside
    assert np.abs(y - want).max() < 1e-3 * np.abs(want).max()


def test_operands_rounded_to_f16_are_multiplied_as_such(tmp_path):
    """Of M = 1 weights alone, which has a row of its own."""
    rng = np.random.default_rng(9)
    for rows in (1, 40):
        w = rng.standard_normal((96, 320)).astype(F32)
        model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])],
                           {"x": (TensorProto.FLOAT, [rows, 96])},
                           {"y": (TensorProto.FLOAT, [rows, 320])}, {"w": w})
        bundle = aotc.compile(model, tmp_path / f"b{rows}", target="cuda:sm_80", precision="f16")
        sizes = [f.stat().st_size for f in (tmp_path / f"b{rows}").glob("*_weights.bin")]
        assert sum(sizes) < 1.1 * 2 * w.size
        x = rng.standard_normal((rows, 96)).astype(F32)
        low = [a.astype(np.float16).astype(np.float64) for a in (x, w)]
        want = (x if rows == 1 else low[0]).astype(np.float64) @ low[1]
        assert compare("y", bundle.load(simulate=True).run({"x": x})["y"], want.astype(F32)).ok


# ---------------------------------------------------------------- verify, and where there is no GPU

def test_verify_simulates(mixture_file, capsys):
    assert main(["verify", str(mixture_file), "--target", "cuda:sm_80", "--dim", "n=3",
                 "--simulate"]) == 0
    text = capsys.readouterr().out
    assert "cuda:sm_80, simulated, cuda:sm_80, simulated in another order" in text
    assert "y: ok" in text and "[2 runs" in text


def test_verify_refuses_what_cannot_be_run_here(mixture_file, monkeypatch, capsys):
    monkeypatch.setattr(cuda, "devices", lambda: ())
    with pytest.raises(SystemExit) as end:
        main(["verify", str(mixture_file), "--target", "cuda"])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "no GPU" in error and "--simulate" in error and "Traceback" not in error
    assert main(["verify", str(mixture_file), "--target", "c", "--simulate"]) == 1
    assert "leave simulate out" in capsys.readouterr().err


def test_load_needs_a_gpu_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda, "devices", lambda: ())
    bundle = aotc.compile(dense(), tmp_path / "b", target="cuda", name="d")
    with pytest.raises(DeviceError, match="simulate"):
        bundle.load()
    plain = aotc.compile(dense(), tmp_path / "c", target="c", name="d")
    with pytest.raises(aotc.AotcError, match="only CUDA bundles"):
        plain.load(simulate=True)


def test_no_nvcc_and_no_compiler_are_named(tmp_path, monkeypatch):
    bundle = aotc.compile(dense(), tmp_path / "b", target="cuda", name="d")
    monkeypatch.setattr(cuda, "devices", lambda: (("a GPU", "sm_90"),))
    for variable in ("NVCC", "CXX"):
        monkeypatch.setenv(variable, "no-such-compiler")
    with pytest.raises(aotc.ToolchainError, match="NVCC"):
        bundle.load()
    with pytest.raises(aotc.ToolchainError, match="CXX"):
        bundle.load(simulate=True)


@pytest.mark.product
@needs_nvcc
def test_a_library_made_by_nvcc_opens_anywhere_and_counts_gpus(tmp_path):
    path = aotc.compile(dense(), tmp_path / "b", target="cuda", name="d").path
    library = Library(path, read_manifest(path), build(path))
    count = library.ffi.new("int *")
    status = library.function("device_count")(count)
    assert count[0] == len(cuda.devices()) and bool(status) == (count[0] == 0)


@pytest.mark.product
def test_a_cache_grows_in_place(tmp_path):
    """Entries behind the end are left alone, whatever the order of threads."""
    model = gpt2(Sizes(shared=2, layers=1))
    bundle = aotc.compile(model, tmp_path / "b", target="cuda", name="m",
                          alias={"past_key_values.*": "present.*"},
                          dims={"past": (0, 64), "seq": (1, 64), "batch": (1, 2)})
    ids = np.random.default_rng().integers(0, 41, (2, 44))
    lengths = [39, 1, 1]
    reference = InferenceSession(model.SerializeToString())
    want, theirs = stepwise(reference, {"input_ids": ids[:, :41]}, lengths)
    for order in (True, "reverse"):
        ours = bundle.load(simulate=order)
        names, at, found = [i.name for i in ours.inputs], 0, []
        caches = {i.name: np.full((2, i.shape[1], 43, i.shape[3]), np.nan, F32)
                  for i in ours.inputs if i.alias >= 0}
        for n in lengths:
            outs = ours.run(call_feeds(names, ids, at, n) | caches, {"past": at})
            found.append(outs["logits"])
            at += n
        np.testing.assert_allclose(np.concatenate(found, 1), want, atol=2e-5)
        for name, cache in caches.items():
            assert outs[name.replace("past_key_values", "present")] is cache
            assert np.isnan(cache[:, :, 41:]).all()
            np.testing.assert_allclose(cache[:, :, :41], theirs[name.partition(".")[2]], atol=2e-5)
    with pytest.raises(RunError, match="must fit into a capacity"):
        ours.run(call_feeds(names, ids, 41, 3) | caches, {"past": 41})
