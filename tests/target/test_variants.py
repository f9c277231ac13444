"""One bundle for every x86-64 CPU: the widest set of kernels is picked at run time, any can be
forced, and all read one weights image."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import dense, embedding, make_model

import aotc
from aotc.errors import AotcError
from aotc.runtime.feeds import machine
from aotc.target import TARGETS, maker_of, native_target, pays_here, runs_here
from aotc.tools.peers import open_reference
from aotc.tools.verify import compare, verify

pytestmark = pytest.mark.skipif(machine() != "x86_64", reason="x86-64 code needs such a machine")

ALL = TARGETS["x86-64"].variants
FAMILY = tuple(t for t in ALL  # what f32 models are worth
               if t.name not in ("x86-64-v4-vnni", "x86-64-v4-bf16", "x86-64-v4-amx"))
BYTES = tuple(t for t in ALL if t.name != "x86-64-v4-bf16")  # what products of bytes are
# widest first; what this CPU can run
HERE = [t.name for t in FAMILY if runs_here(t)]


def _network():
    """Convolution, depthwise convolution, pooling, attention-like products and a softmax: one
    stage of every category.  x f32[1, 3, 12, 12] -> y f32[1, 40]."""
    rng = np.random.default_rng(1)
    node, f32 = helper.make_node, TensorProto.FLOAT
    nodes = [node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
             node("Relu", ["c0"], ["r0"]),
             node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=20),
             node("HardSwish", ["c1"], ["r1"]),
             node("MaxPool", ["r1"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
             node("GlobalAveragePool", ["p"], ["g"]), node("Flatten", ["g"], ["f"]),
             node("Gemm", ["f", "w2", "b2"], ["h"]), node("Softmax", ["h"], ["y"])]
    shapes = {"w0": (20, 3, 3, 3), "b0": (20,), "w1": (20, 1, 3, 3), "w2": (20, 40), "b2": (40,)}
    tensors = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    return make_model(nodes, {"x": (f32, [1, 3, 12, 12])}, {"y": (f32, [1, 40])}, tensors)


MODELS = {"dense": dense("n"), "embedding": embedding(), "network": _network()}


@pytest.fixture(scope="module", params=[
    pytest.param(n, marks=pytest.mark.product) if n == "dense" else n for n in MODELS])
def bundle(request, tmp_path_factory):
    """(ONNX model, its x86-64 bundle)."""
    model = MODELS[request.param]
    folder = tmp_path_factory.mktemp("variants") / request.param
    return model, aotc.compile(model, folder, target="x86-64", name=request.param)


def _feeds(model, seed):
    rng, feeds = np.random.default_rng(seed), {}
    for value in model.graph.input:
        dims = [d.dim_value or 7 for d in value.type.tensor_type.shape.dim]
        whole = value.type.tensor_type.elem_type == TensorProto.INT64
        feeds[value.name] = rng.integers(0, 2, dims) if whole else rng.standard_normal(
            dims).astype(np.float32)
    return feeds


def test_family_stands_widest_first():
    lanes = [t.lanes for t in FAMILY]
    assert lanes == sorted(lanes, reverse=True) and len(set(lanes)) == len(lanes)
    assert not FAMILY[-1].cpu_flags, "the last one must run everywhere"
    assert all(set(b.cpu_flags) <= set(a.cpu_flags) for a, b in zip(FAMILY, FAMILY[1:]))


def _integers():
    """y u8[5, 70] = requantised x u8[5, 24] times s8 weights per column."""
    rng = np.random.default_rng(2)
    stored = {"w": rng.integers(-127, 128, (24, 70)).astype(np.int8),
              "sw": rng.uniform(0.01, 0.02, 70).astype(np.float32),
              "zw": np.zeros(70, np.int8), "s": np.float32(0.5), "z": np.uint8(121)}
    nodes = [helper.make_node("QLinearMatMul", ["x", "s", "z", "w", "sw", "zw", "s", "z"], ["y"])]
    u8 = TensorProto.UINT8
    return make_model(nodes, {"x": (u8, [5, 24])}, {"y": (u8, [5, 70])}, stored)


@pytest.mark.product
def test_integer_products_get_their_own_variant(tmp_path):
    """One more set of kernels, and the sums that round to 8 bits are the same in all."""
    made = aotc.compile(_integers(), tmp_path / "b", target="x86-64", name="integers")
    assert [r["target"] for r in made.manifest["variants"]] == [t.name for t in BYTES]
    x = np.random.default_rng(3).integers(0, 256, (5, 24)).astype(np.uint8)
    here = [t.name for t in BYTES if runs_here(t)]
    results = {v: made.load(variant=v).run({"x": x})["y"] for v in here}
    assert len(np.unique(results[here[0]])) > 9
    loaded = made.load()
    loaded.run({"x": x})
    assert loaded.variant == here[0]
    for name, y in results.items():
        assert np.array_equal(y, results[here[-1]]), name
    (tmp_path / "m.onnx").write_bytes(_integers().SerializeToString())
    lines = []
    assert all(m.ok for _, m in verify(tmp_path / "m.onnx", target="x86-64", report=lines.append))
    assert f"target {', '.join(here)}, " in lines[0]


def test_the_widest_is_picked(bundle):
    model, made = bundle
    loaded = made.load()
    loaded.run(_feeds(model, 0))
    assert loaded.variant == HERE[0]


@pytest.mark.parametrize("variant", [t.name for t in FAMILY])
def test_a_forced_choice_computes_the_model_to_the_same_bits(bundle, variant, tmp_path):
    """Against the reference, and the same bits on 1, 2 and 5 threads."""
    if variant not in HERE:
        pytest.skip(f"this CPU cannot run {variant}")
    model, made = bundle
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    _, reference = open_reference(path, 1)
    for seed in range(3):
        feeds, bits = _feeds(model, seed), set()
        want = reference(feeds)
        for threads in (1, 2, 5):
            loaded = made.load(threads=threads, variant=variant)
            got = loaded.run(feeds)
            assert loaded.variant == variant
            wrong = [m for m in (compare(n, got[n], want[n]) for n in want) if not m.ok]
            assert not wrong, wrong
            bits.add(b"".join(a.tobytes() for a in got.values()))
        assert len(bits) == 1


@pytest.mark.product
def test_verify_compares_every_choice(bundle, tmp_path):
    path, lines = tmp_path / "model.onnx", []
    path.write_bytes(bundle[0].SerializeToString())
    results = verify(path, target="x86-64", report=lines.append)
    assert all(match.ok for _, match in results)
    for name in HERE:
        assert any(title.endswith(f" on {name}") for title, _ in results)
    assert f"target {', '.join(HERE)}, " in lines[0]


@pytest.mark.product
@pytest.mark.parametrize("name", ["bert_tiny", "squeezenet1_1", "mobilenet_v2", "dlrm",
                                  "dense_dynamic"])
def test_every_choice_computes_a_real_model(zoo_model, name):
    results = verify(zoo_model(name), target="x86-64", threads=2)
    assert len(results) >= len(HERE)
    wrong = [f"{title}: {match}" for title, match in results if not match.ok]
    assert not wrong, "\n".join(wrong)


def test_no_such_variant(bundle):
    with pytest.raises(AotcError, match="no kernels for 'x86-64-v9'.*x86-64-v4"):
        bundle[1].load(variant="x86-64-v9")


@pytest.mark.product
def test_equal_constants_lie_in_the_image_once(bundle, tmp_path):
    """Never larger than images for each variant apart, and smaller where layouts agree."""
    model, made = bundle
    assert [p.name for p in made.path.glob("*.bin") if p.name.endswith("_weights.bin")] == [
        f"{made.manifest['name']}_weights.bin"]
    alone = [aotc.compile(model, tmp_path / t.name, target=t.name, name="alone").manifest
             ["weights_bytes"] for t in FAMILY]
    assert made.manifest["weights_bytes"] < sum(alone)


def test_manifest_lists_the_variants(bundle):
    rows = bundle[1].manifest["variants"]
    assert [r["target"] for r in rows] == [t.name for t in FAMILY]
    for row in rows:
        data = json.loads((bundle[1].path / row["schedule"]).read_text())
        assert data["target"] == row["target"]


_CHOICE = """
#include "network.h"
#include <stdio.h>
static _Alignas(AOTC_ALIGNMENT) unsigned char arena[1 << 20];
int main(void)
{
    network_weights weights;
    network_context context;
    if (network_weights_embedded(&weights) != AOTC_OK)
        return 1;
    const aotc_variant_info *const variants = network_info()->variants;
    if (network_init(&context, &weights, arena, sizeof arena, NULL) != AOTC_OK)
        return 2;
    printf("%s\\n", variants[context.variant].target);
    for (int i = 0; i < NETWORK_VARIANTS; i++) {
        const aotc_status status = network_init_variant(&context, &weights, arena, sizeof arena,
                                                        NULL, i);
        printf("%s %d %s\\n", variants[i].target, (int)status, network_detail(&context));
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def chooser(tmp_path_factory):
    """A program that prints which kernels a CPU gets by itself, then what each choice gives."""
    folder = tmp_path_factory.mktemp("choice")
    made = aotc.compile(_network(), folder / "b", target="x86-64", name="network", weights="embed")
    subprocess.run(["make", "-s", "static"], cwd=made.path, check=True)
    (folder / "choice.c").write_text(_CHOICE)
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{made.path}", "choice.c",
                    str(made.path / "libnetwork.a"), "-lm", "-pthread", "-static", "-o", "choice"],
                   cwd=folder, check=True)
    return folder / "choice"


# CPU models of the emulator; it has no AVX-512
@pytest.mark.parametrize("cpu, runs", [("Nehalem", ["x86-64-v1"]),
                                       ("Haswell", ["x86-64-v3", "x86-64-v1"])])
def test_a_lesser_cpu_gets_lesser_kernels_and_a_status(chooser, cpu, runs):
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("not installed: qemu-x86_64 (Debian: qemu-user)")
    done = subprocess.run(["qemu-x86_64", "-cpu", cpu, str(chooser)], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, *choices = done.stdout.splitlines()
    assert first == runs[0]
    for line, target in zip(choices, FAMILY, strict=True):
        name, status, detail = line.split(" ", 2)
        assert name == target.name
        if name in runs:
            assert status == "0" and detail == ""
        else:
            assert status == "15" and all(f in detail for f in target.cpu_flags)


def test_native_is_the_widest_that_runs():
    """The one of the family, or its form with 8-bit dot products; those with products of bf16 only
    where those are asked for."""
    best = next(t for t in BYTES if runs_here(t) and t.name != "x86-64-v4-amx")
    assert native_target() == best and not native_target().variants
    assert native_target("bf16") == next(t for t in ALL if runs_here(t) and pays_here(t))


@pytest.mark.parametrize("maker, pays", [
    ("AuthenticAMD", True), ("GenuineIntel", False), ("", False)])
def test_a_flag_alone_is_no_reason_for_bf16(maker, pays, tmp_path, monkeypatch):
    """Pairs of bf16 are half as fast as f32 on Xeons: their flag is there all the same."""
    text = (f"vendor_id : {maker}\nflags : avx2 fma bmi2 avx512f avx512bw avx512cd avx512dq "
            "avx512vl avx512_vnni avx512_bf16\n")
    assert maker_of(text) == maker
    monkeypatch.setattr("aotc.target._cpuinfo", lambda: text)
    assert (native_target("bf16").name == "x86-64-v4-bf16") == pays
    assert native_target().name == "x86-64-v4-vnni"


def test_a_bundle_asks_who_made_the_cpu(tmp_path):
    """One for several CPUs, where it has a set of kernels that only pays on some; nobody else."""
    texts = []
    for target, precision in (("x86-64", "bf16"), ("x86-64-v4-bf16", "bf16"), ("x86-64", "f32")):
        folder = tmp_path / f"{target}{precision}"
        aotc.compile(dense(5), folder, target=target, precision=precision, name="asks")
        texts.append((folder / "asks.c").read_text())
    assert ["__builtin_cpu_is" in t for t in texts] == [True, False, False]
