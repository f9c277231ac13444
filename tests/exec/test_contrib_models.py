"""Small models as ONNX Runtime's optimiser and exporters of language models write them, compiled
and run."""

import numpy as np
import onnx
import pytest
from contrib_models import KINDS, MODELS, Writer, optimised, stored
from contrib_tables import contrib_cases
from frontend_cases import EXECUTORS, program_of, run, same
from harness import RUNNABLE

import aotc
from aotc.errors import UnsupportedError
from aotc.options import Options
from aotc.pipeline import run_pipeline

TARGET = RUNNABLE[-1].name
MS = {"domain": "com.microsoft"}
LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED")


def compiled(model, feeds, folder, **options):
    """Outputs of the model's bundle."""
    bundle = aotc.compile(model, out=folder / "bundle", target=TARGET, **options)
    return list(bundle.load(threads=1).run(feeds).values())


def joined(models):
    """Models that have nothing to do with each other as one."""
    parts = [onnx.compose.add_prefix(m, f"{name}_") for name, m in models.items()]
    graph = onnx.helper.make_graph(
        [n for m in parts for n in m.graph.node], "all", *([i for m in parts for i in getattr(
            m.graph, field)] for field in ("input", "output", "initializer")))
    imports = {(o.domain, o.version) for m in parts for o in m.opset_import}
    return onnx.helper.make_model(graph, ir_version=10, opset_imports=[
        onnx.helper.make_opsetid(*i) for i in sorted(imports)])


@pytest.fixture(scope="module")
def fused(tmp_path_factory):
    """{model: (the model, feeds, {level: as the optimiser writes it})}."""
    out = {}
    for name, make in MODELS.items():
        model, feeds = make()
        folder = tmp_path_factory.mktemp(name)
        out[name] = model, feeds, {level: optimised(model, level, folder) for level in LEVELS}
    return out


@pytest.mark.product
def test_what_the_optimiser_writes(fused, tmp_path):
    """All models in one bundle, against the models as they were."""
    models = {name: levels[LEVELS[1]] for name, (_, _, levels) in fused.items()}
    known = {n.op_type for m in models.values() for n in m.graph.node if n.domain}
    assert {"SkipLayerNormalization", "BiasGelu", "FastGelu", "QuickGelu", "FusedMatMul",
            "FusedConv"} <= known
    feeds = {f"{name}_{k}": a for name, (_, own, _) in fused.items() for k, a in own.items()}
    wanted = [a for model, own, _ in fused.values() for a in EXECUTORS["onnxruntime"](model, own)]
    same(compiled(joined(models), feeds, tmp_path), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_lowest_level(fused, name):
    """It writes ONNX operators only, on the evaluator."""
    model, feeds, levels = fused[name]
    same(run(program_of(levels[LEVELS[0]]), feeds), EXECUTORS["onnxruntime"](model, feeds),
         atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_what_the_optimiser_for_transformers_writes(name):
    model, feeds = MODELS[name]()
    fused = {n.op_type for n in stored(name).graph.node if n.domain}
    assert fused >= {"bert": {"EmbedLayerNormalization", "Attention", "BiasGelu"},
                     "gpt": {"SkipLayerNormalization", "FastGelu"},
                     "vit": {"SkipLayerNormalization", "BiasGelu"}}[name]
    same(run(program_of(stored(name)), feeds), EXECUTORS["onnxruntime"](model, feeds), atol=1e-5,
         rtol=1e-4)


def kernels(model):
    """The micro-kernels of every group, in an order of their own."""
    schedule = run_pipeline(Options(model, target=TARGET, stop_after="schedule")).schedule
    return sorted(tuple(sorted(dict(g.rows).values())) for g in schedule.groups)


@pytest.mark.product
def test_kernels_are_those_of_the_model_written_out(fused):
    """What the optimiser has fused ends in as many kernels, of the same micro-kernels."""
    for name in ("bert", "gpt", "resnet"):
        levels = fused[name][2]
        assert kernels(levels[LEVELS[1]]) == kernels(levels[LEVELS[0]])


def test_kernels_of_attention_are_those_of_its_products():
    """With a mask over rows of a free length."""
    one, two = Writer(), Writer()
    one("Attention", "x", one.weight(16, 48), one.weight(48), "mask", num_heads=2, name="y", **MS)
    q, k, v = two("Split", two.linear("x", 16, 48), two.ints(16, 16, 16), outputs=3, axis=-1)
    q, k, v = (two.heads(part, 2, 8) for part in (q, k, v))
    score = two("MatMul", q, two("Transpose", k, perm=[0, 1, 3, 2]))
    keep = two("Unsqueeze", two("Greater", "mask", np.int32(0)), two.ints(1, 2))
    hidden = two("Where", keep, np.float32(0), np.float32(-10000))
    score = two("Add", two("Mul", score, np.float32(8 ** -0.5)), hidden)
    mixed = two("Transpose", two("MatMul", two("Softmax", score, axis=-1), v), perm=[0, 2, 1, 3])
    two("Reshape", mixed, two.ints(0, 0, 16), name="y")
    inputs = {"x": (np.float32, ("batch", "rows", 16)), "mask": (np.int32, ("batch", "rows"))}
    assert kernels(one.model(inputs, ["y"])) == kernels(two.model(inputs, ["y"]))


def test_levels_that_know_the_machine_are_refused(tmp_path):
    """The highest level writes layouts of the machine that it ran on."""
    model = optimised(MODELS["resnet"]()[0], "ORT_ENABLE_ALL", tmp_path)
    if not any(n.domain == "com.microsoft.nchwc" for n in model.graph.node):
        pytest.skip("on this machine the optimiser has no such layouts")
    with pytest.raises(UnsupportedError, match="ORT_ENABLE_EXTENDED"):
        aotc.compile(model, out=tmp_path / "bundle", target="c")


def language_model(columns=64, heads=4, shared=2, size=16, rows=11, places=12):
    """Embeddings of few bits, two layers with a cache, and logits, as builders of language models
    write them; batch, sequence and cache are free."""
    w = Writer()
    cos = np.outer(np.arange(places), 1 / 10 ** np.linspace(0, 1, size // 2)).astype(np.float32)
    tables = [w.const(np.cos(cos)), w.const(np.sin(cos))]

    def linear(x, k, n):
        packed = w.rng.integers(0, 256, (n, k // 16, 8)).astype(np.uint8)
        scale = (w.rng.random((n, k // 16)) * 0.05).astype(np.float32)
        return w("MatMulNBits", x, packed, scale, K=k, N=n, bits=4, block_size=16, **MS)
    table = w.rng.integers(0, 256, (rows, columns)).astype(np.uint8)
    x = w("GatherBlockQuantized", table, "ids", np.full((rows, columns // 16), 0.02, np.float32),
          bits=8, block_size=16, **MS)
    lengths = w("ReduceSum", "mask", w.ints(1), keepdims=0)
    lengths = w("Cast", w("Sub", lengths, w.ints(1)), to=6)
    total = w("Cast", w("Gather", w("Shape", "mask"), np.array(1), axis=0), to=6)
    skip, outputs = None, []
    for layer in range(2):
        if skip is None:
            norm, skip = w("SimplifiedLayerNormalization", x, w.weight(columns), epsilon=1e-6), x
        else:
            norm, _, _, skip = w("SkipSimplifiedLayerNormalization", skip, x, w.weight(columns),
                                 outputs=(f"n{layer}", "", "", f"s{layer}"), epsilon=1e-6, **MS)
        q, k, v = (linear(norm, columns, n * size) for n in (heads, shared, shared))
        outputs += [f"present{layer}_k", f"present{layer}_v"]
        x, _, _ = w("GroupQueryAttention", q, k, v, f"past{layer}_k", f"past{layer}_v", lengths,
                    total, *tables, outputs=(f"a{layer}", *outputs[-2:]), num_heads=heads,
                    kv_num_heads=shared, do_rotary=1, **MS)
        x = linear(x, heads * size, columns)
        norm, _, _, skip = w("SkipSimplifiedLayerNormalization", skip, x, w.weight(columns),
                             outputs=(f"m{layer}", "", "", f"r{layer}"), epsilon=1e-6, **MS)
        gate = w("Mul", w("Sigmoid", g := linear(norm, columns, 48)), g)
        x = linear(w("Mul", gate, linear(norm, columns, 48)), 48, columns)
    last = w("SkipSimplifiedLayerNormalization", skip, x, w.weight(columns), epsilon=1e-6, **MS)
    w("MatMul", last, w.weight(columns, rows), name="logits")
    inputs = {"ids": (np.int64, ("batch", "sequence")), "mask": (np.int64, ("batch", "total"))}
    inputs |= {f"past{n}_{kv}": (np.float32, ("batch", shared, "past", size))
               for n in range(2) for kv in "kv"}
    return w.model(inputs, ["logits", *outputs], domains=("com.microsoft",))


def test_a_language_model_with_a_cache(tmp_path):
    """A prompt and two steps of one bundle, each with the cache that the one before has left."""
    model = language_model()
    bundle = aotc.compile(model, out=tmp_path / "bundle", target=TARGET, dims={
        "batch": (1, 4), "sequence": (1, 8), "past": (0, 32), "total": (1, 40)})
    loaded, rng = bundle.load(threads=1), np.random.default_rng(6)
    names = [i.name for i in model.graph.input][2:]
    cache = [np.zeros((2, 2, 0, 16), np.float32)] * len(names)
    for before, sequence in ((0, 5), (5, 1), (6, 1)):
        feeds = {"ids": rng.integers(0, 11, (2, sequence)),
                 "mask": np.ones((2, before + sequence), np.int64), **dict(zip(names, cache))}
        got = list(loaded.run(feeds).values())
        wanted = EXECUTORS["onnxruntime"](model, feeds)
        same(got, wanted, atol=2e-5, rtol=1e-4)
        cache = got[1:]


def integer_cache(bits):
    """GroupQueryAttention with a cache of integers that grows: (model, its caches' names)."""
    w, columns = Writer(), 16 * bits // 8
    scale = w.const(np.array([0.02 if bits == 8 else 0.3], np.float32))
    past, present = ([f"{when}_{n}" for n in "kv"] for when in ("past", "present"))
    w("GroupQueryAttention", *"qkv", *past, "lengths", "total", *[""] * 5, scale, scale,
      outputs=("y", *present), num_heads=4, kv_num_heads=2, k_quant_type="PER_TENSOR",
      v_quant_type="PER_TENSOR", kv_cache_bit_width=bits, **MS)
    kind = np.int8 if bits == 8 else np.uint8
    inputs = {n: (np.float32, (1, "sequence", c)) for n, c in zip("qkv", (64, 32, 32))}
    inputs |= dict.fromkeys(past, (kind, (1, 2, "past", columns)))
    inputs |= {"lengths": (np.int32, (1,)), "total": (np.int32, ())}
    return w.model(inputs, ["y", *present], domains=("com.microsoft",)), past, present, kind


@pytest.mark.parametrize("bits", (8, pytest.param(4, marks=pytest.mark.product)))
def test_a_cache_of_integers_grows_in_place(bits, tmp_path):
    """A prompt and a token, each in the buffers that the one before has left."""
    model, past, present, kind = integer_cache(bits)
    bundle = aotc.compile(model, out=tmp_path / "bundle", target=TARGET, alias=dict(zip(
        past, present)), dims={"sequence": (1, 8), "past": (0, 32)})
    loaded, rng = bundle.load(threads=1), np.random.default_rng(6)
    caches = {n: np.full((1, 2, 12, 2 * bits), 99, kind) for n in past}
    for before, sequence in ((0, 5), (5, 1)):
        end = before + sequence
        own = {n: rng.standard_normal((1, sequence, c)).astype(np.float32)
               for n, c in zip("qkv", (64, 32, 32))}
        own |= {"lengths": np.array([end - 1], np.int32), "total": np.array(end, np.int32)}
        held = {n: a[:, :, :before].copy() for n, a in caches.items()}
        wanted = EXECUTORS["onnxruntime"](model, own | held)
        names = {i.name for i in loaded.inputs}
        got = loaded.run({k: v for k, v in own.items() if k in names} | caches,
                         dims={"past": before})
        np.testing.assert_allclose(got["y"], wanted[0], rtol=1e-4, atol=1e-5)
        for name, w in zip(past, wanted[1:], strict=True):
            np.testing.assert_array_equal(caches[name][:, :, :end], w)
            assert (caches[name][:, :, end:] == 99).all()


def test_one_column_of_few_bits():
    """Its panel has 128 columns, which the limit on what layouts add once refused."""
    case = next(c for c in contrib_cases() if c.name == "ms_bits_column")
    assert run_pipeline(Options(case.model()[0], target="x86-64-v4-vnni",
                                stop_after="schedule")).schedule.groups
