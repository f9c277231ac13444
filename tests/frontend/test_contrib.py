"""Operators of the domain com.microsoft: against ONNX Runtime where it has them on CPUs, else
against the same written out in ONNX operators; what is refused, and in which words."""

import numpy as np
import pytest
from contrib_more import in_blocks
from contrib_tables import (
    CACHE,
    COS,
    KEY,
    QUERY,
    SIN,
    STEP,
    VALUE,
    contrib_cases,
    grouped,
)
from frontend_cases import (
    EXECUTORS,
    RUNTIME,
    compare,
    helper,
    model_of,
    one_node,
    program_of,
    rand,
    run,
    same,
)

from aotc.errors import FaultError, UnsupportedError

CASES = {c.name: c for c in contrib_cases()}
MS = {"domain": "com.microsoft"}


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c].executors])
def test_operator(case):
    compare(*CASES[case].model(), RUNTIME, atol=CASES[case].atol)


def nodes(*rows):
    """Nodes of (operator, inputs, output, attributes), texts with names between blanks."""
    return [helper.make_node(op, inputs.split(), outputs.split(), **(attrs or {}))
            for op, inputs, outputs, attrs in rows]


LAST, FIRST = dict(perm=[0, 2, 3, 1]), dict(perm=[0, 3, 1, 2])
WRITTEN = {
    "ms_bias_softmax": nodes(("Add", "in0 in1", "t", None),
                             ("Softmax", "t", "out0", dict(axis=-1))),
    "ms_bias_softmax_rows": nodes(
        ("Add", "in0 in1", "t", None), ("Flatten", "t", "f", dict(axis=2)),
        ("Softmax", "f", "g", dict(axis=-1)), ("Shape", "t", "n", None),
        ("Reshape", "g n", "out0", None)),
    "ms_bias_split_gelu": nodes(
        ("Add", "in0 in1", "t", None), ("Split", "t", "l r", dict(axis=-1, num_outputs=2)),
        ("Gelu", "r", "g", None), ("Mul", "l g", "out0", None)),
    "ms_bias_add": nodes(("Sum", "in0 in1 in2", "out0", None)),
    "ms_group_norm": nodes(
        ("Transpose", "in0", "t", FIRST),
        ("GroupNormalization", "t in1 in2", "g", dict(num_groups=2)), ("Sigmoid", "g", "s", None),
        ("Mul", "g s", "m", None), ("Transpose", "m", "out0", LAST)),
    "ms_skip_group_norm": nodes(
        ("Reshape", "in3 shape", "k", None), ("Sum", "in0 k in4", "out1", None),
        ("Transpose", "out1", "t", FIRST),
        ("GroupNormalization", "t in1 in2", "g", dict(num_groups=3)),
        ("Transpose", "g", "out0", LAST)),
    "ms_qmean": nodes(
        ("DequantizeLinear", "in0 in1 in2", "t", None),
        ("ReduceMean", "t axes", "m", dict(keepdims=0)),
        ("QuantizeLinear", "m in3 in4", "out0", None)),
    "ms_nhwc_conv": nodes(
        ("Transpose", "in0", "t", FIRST), ("Transpose", "in1", "w", FIRST),
        ("Conv", "t w in2", "c", dict(pads=[1] * 4)), ("Transpose", "c", "out0", LAST)),
    "ms_nhwc_taps": nodes(
        ("Transpose", "in0", "t", FIRST), ("Conv", "t in1", "c", None),
        ("Transpose", "c", "out0", LAST)),
    "ms_embedding": nodes(("Gather", "in0 in1", "out0", None)),
    "ms_gemm_gelu": nodes(("MatMul", "in0 in1", "m", None), ("Add", "m in2", "t", None),
                          ("Gelu", "t", "out0", dict(approximate="tanh"))),
    "ms_swiglu": nodes(
        ("Split", "in0", "g u", dict(axis=-1, num_outputs=2)), ("Min", "g high", "c", None),
        ("Mul", "c alpha", "a", None), ("Sigmoid", "a", "s", None), ("Mul", "c s", "b", None),
        ("Clip", "u low high", "v", None), ("Add", "v one", "w", None),
        ("Mul", "b w", "out0", None)),
    "ms_nhwc_fused": nodes(
        ("Transpose", "in0", "t", FIRST), ("Conv", "t in1 in2", "c", None),
        ("Relu", "c", "r", None), ("Transpose", "r", "out0", LAST)),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_operator_of_other_devices(case):
    """Against the same written out."""
    row = CASES[case]
    model, feeds = row.model()
    arrays = {f"in{k}": a for k, a in enumerate(row.arrays) if a is not None}
    arrays |= {"shape": np.array([2, 1, 1, 6]), "axes": np.array([1]), "one": np.float32(1),
               "low": np.float32(-0.8), "high": np.float32(0.8), "alpha": np.float32(1.7)}
    typed = {n: (a.dtype, a.shape) for n, a in arrays.items()}
    outputs = [o.name for o in model.graph.output]
    written = model_of(WRITTEN[case], typed, outputs, opset=21)
    wanted = EXECUTORS["reference"](written, arrays)
    same(run(program_of(model), feeds), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lower", (0, 1))
@pytest.mark.parametrize("transposed", (0, 1))
def test_equations(lower, transposed):
    """Of a constant matrix, and of one that is data.  No release of ONNX Runtime has what skl2onnx
    writes."""
    a, wanted = 3 * np.eye(4, dtype=np.float32) + rand(4, 4), rand(4, 3, seed=1)
    matrix = np.tril(a) if lower else a
    arrays = a, (matrix.T if transposed else matrix) @ wanted
    attrs = MS | dict(lower=lower, transposed=transposed)
    same(run(program_of(one_node("Solve", arrays, attrs, (0,))[0]), {"in1": arrays[1]}), [wanted],
         atol=1e-5)
    model, feeds = one_node("Solve", arrays, attrs)
    same(run(program_of(model), feeds), [wanted], atol=1e-5)
    with pytest.raises(UnsupportedError, match="full rank"):
        program_of(one_node("Solve", (a * 0, arrays[1]), attrs, (0,))[0])


def attended(*arrays, **more):
    """What MultiHeadAttention of three heads makes here."""
    model, feeds = one_node("MultiHeadAttention", arrays, MS | dict(num_heads=3), **more)
    return run(program_of(model), feeds)


def test_attention_packed_by_head():
    """ONNX Runtime has it on other devices: against the same with queries, keys, values apart."""
    packed, bias = rand(2, 5, 3, 3, 4), rand(36, seed=1)
    apart = [packed[:, :, :, n].reshape(2, 5, 12) for n in range(3)]
    wanted = attended(*apart, bias)
    same(attended(packed, None, None, bias), wanted, atol=1e-6)
    pair = np.stack([a.reshape(2, 5, 3, 4) for a in apart[1:]], 3)
    same(attended(apart[0], pair, None, bias), wanted, atol=1e-6)


def test_rows_without_padding():
    """ONNX Runtime has it on other devices: against one sequence after the other."""
    x, w, bias = rand(7, 6), rand(6, 36, seed=1), rand(36, seed=2)
    ends, offsets = np.array([0, 2, 6, 7], np.int32), np.zeros((3, 4), np.int32)
    q, k, v = np.split(x @ w, 3, 1)
    wanted = [attended(*(a[None, first:last] for a in (q, k, v)), bias)[0][0]
              for first, last in zip(ends, ends[1:])]
    packed = np.stack([a.reshape(7, 3, 4) for a in (q, k, v)], 2)
    for op, arrays in (("PackedAttention", [x, w, bias]),
                       ("PackedMultiHeadAttention", [q, k, v, bias]),
                       ("PackedMultiHeadAttention", [packed, None, None, bias])):
        row = one_node(op, [*arrays, offsets, ends], MS | dict(num_heads=3))
        same(run(program_of(row[0]), row[1]), [np.concatenate(wanted)], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", (0, 1))
def test_attention_that_shows_its_scores(causal):
    """They are those that the softmax is of, with all that is added to them."""
    q, k, v = (rand(2, 5, 12, seed=n) for n in range(3))
    mask, bias = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 0, 1]], np.int32), rand(2, 3, 5, 5, seed=4)
    model, feeds = one_node("MultiHeadAttention", [q, k, v, None, mask, bias],
                            MS | dict(num_heads=3, unidirectional=causal), outputs=4)
    shows_scores(model)
    compare(model, feeds, RUNTIME, atol=1e-5)


def shows_scores(model):
    """Say of which type output 3 is: it may be of one of its own."""
    for out in model.graph.output:
        if out.name == "out3":
            out.CopyFrom(helper.make_tensor_value_info("out3", 1, None))


def test_a_decoder_that_shows_its_scores():
    model, feeds = one_node("DecoderMaskedMultiHeadAttention", [rand(2, 1, 12), *(
        rand(2, 3, 6, 4, seed=n) for n in (1, 2))], MS | dict(num_heads=3, output_qk=1),
        outputs=(1, 0, 0, 1))
    shows_scores(model)
    compare(model, feeds, RUNTIME, atol=1e-5)


def test_a_decoder_with_a_cache_that_grows():
    """ONNX Runtime has it on other devices: as MultiHeadAttention, operands packed or not."""
    operands, pasts = [rand(2, 1, 12, seed=n) for n in range(3)], [rand(2, 3, 4, 4, seed=n)
                                                                  for n in (3, 4)]
    bias, op, attrs = rand(36, seed=5), "DecoderMaskedMultiHeadAttention", MS | dict(num_heads=3)
    wanted = attended(*operands, bias, None, None, *pasts, outputs=3)
    for own in (operands, [np.concatenate(operands, 2), None, None]):
        model, feeds = one_node(op, [*own, None, None, *pasts, None, None, None, bias], attrs,
                                outputs=3)
        same(run(program_of(model), feeds), wanted, atol=1e-6)


@pytest.mark.parametrize("transposed", (0, 1))
def test_codes_as_they_lie(transposed):
    """The same matrix either way; ONNX Runtime has it turned on other devices."""
    packed, scales, x = np.arange(48, dtype=np.uint8) * 5, rand(6, seed=1), rand(3, 8, seed=2)
    attrs = MS | dict(K=8, N=12, block_size=16, quant_type=1)
    turned, = run(*built("MatMulBnb4", [np.eye(8, dtype=np.float32), packed, scales], attrs))
    x = x if transposed else rand(3, 12, seed=2)
    got = run(*built("MatMulBnb4", [x, packed, scales], attrs | dict(transB=transposed)))
    same(got, [x @ (turned if transposed else turned.T)], atol=1e-5)


def built(*args, **more):
    model, feeds = one_node(*args, **more)
    return program_of(model), feeds


@pytest.mark.parametrize("lengths,counts,sequence", (
    ((3, 8), None, 1), ((0, 6), None, 1), ((8, 4), (2, 1), 3), ((8, 2), (3, 0), 3)))
def test_a_cache_of_the_last_keys(lengths, counts, sequence):
    """What ONNX Runtime leaves unspecified does not count: rows behind the keys that are held, and
    what comes of padding."""
    near, room = 4, 6
    operands = [rand(2, sequence, n, seed=k) for k, n in enumerate((64, 32, 32))]
    past = rand(2, 2, room, 16, seed=5)
    more = [None] * 7 + [np.array(counts, np.int32)] if counts else []
    op, arrays, own, _, _ = grouped(*operands, past, lengths, max(lengths) + 1, COS, SIN, *more,
                                    do_rotary=1, sliding_window_cache=1, local_window_size=near)
    model, feeds = one_node(op, arrays, own, outputs=3)
    got, wanted = run(program_of(model), feeds), EXECUTORS["onnxruntime"](model, feeds)
    for row, last in enumerate(lengths):
        held, step, over = last + 1, room - near + 1, last + 1 - room
        held -= step * -(-over // step) if over > 0 else 0
        seen = counts[row] if counts else sequence
        np.testing.assert_allclose(got[0][row, :seen], wanted[0][row, :seen], atol=1e-5)
        for g, w in zip(got[1:], wanted[1:], strict=True):
            np.testing.assert_array_equal(g[row, :, :held], w[row, :, :held]) if g is got[2] else (
                np.testing.assert_allclose(g[row, :, :held], w[row, :, :held], atol=1e-5))


def test_matrices_of_free_extents_and_those_without_an_inverse():
    model, feeds = one_node("Inverse", [rand(2, 6, 6)], MS, shapes={"in0": ("b", "n", "n")})
    compare(model, feeds, RUNTIME, atol=1e-4)
    (got,) = run(*built("Inverse", [np.ones((3, 3), np.float32)], MS))
    assert not np.isfinite(got).all()


def test_rows_of_free_lengths_with_a_state():
    """One Program for a prompt and for a token."""
    for case, free in (("ms_linear_both", dict.fromkeys((0, 1, 2, 4, 5), ("b", "t", None))),
                       ("ms_causal_conv_start", {0: ("b", None, "t")})):
        row = CASES[case]
        shapes = {f"in{k}": tuple(d or row.arrays[k].shape[n] for n, d in enumerate(shape))
                  for k, shape in free.items()}
        for length in (1, 3):
            arrays = [a[tuple(slice(length) if d == "t" else slice(None) for d in free[k])]
                      if k in free else a for k, a in enumerate(row.arrays)]
            model, feeds = one_node(row.op, arrays, row.attrs, row.consts, row.outputs,
                                    shapes=shapes)
            compare(model, feeds, RUNTIME, atol=1e-5)


def cached(past, total, lengths, operands, declared=None, **attrs):
    """(model, feeds) of GroupQueryAttention with rotary embeddings; ``declared``: keys that the
    model says its cache has afterwards."""
    op, arrays, own, _, _ = grouped(*operands, past, lengths, total, COS, SIN, do_rotary=1, **attrs)
    model, feeds = one_node(op, arrays, own, outputs=3)
    for out in model.graph.output[1:] if declared else ():
        shape = (*past.shape[:2], declared, past.shape[3])
        out.CopyFrom(helper.make_tensor_value_info(out.name, 1, shape))
    return model, feeds


@pytest.mark.parametrize("past,total,lengths,operands,declared", (
    (CACHE, 6, (3, 5), STEP, None),  # rows of different lengths in a cache that grows
    (CACHE, 4, (3, 2), STEP, 5), (CACHE, 5, (4, 4), STEP, 5),  # a cache with room
    (rand(2, 2, 7, 16), 4, (3, 1), (QUERY, KEY, VALUE), 7),  # prompts of different lengths
    (CACHE[:1], 5, (4,), [a[:1] for a in STEP], 5)))
@pytest.mark.parametrize("window", (-1, 2))
def test_a_cache_of_keys(past, total, lengths, operands, declared, window):
    """What ONNX Runtime leaves unspecified does not count: keys behind those of a row, and what
    comes of a prompt's padding."""
    model, feeds = cached(past, total, lengths, operands, declared, local_window_size=window)
    got = run(program_of(model), feeds)
    for k, (g, w) in enumerate(zip(got, EXECUTORS["onnxruntime"](model, feeds), strict=True)):
        assert g.shape == w.shape
        for row, last in enumerate(lengths):
            mine, theirs = (a[row, :last + 1] if k == 0 else a[row, :, :last + 1] for a in (g, w))
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_cache_with_room_and_a_bias():
    """The bias is of the keys in use."""
    op, arrays, own, _, _ = grouped(*STEP, CACHE, (3, 3), 4, None, None, None,
                                    rand(1, 1, 1, 4, seed=7))
    model, feeds = one_node(op, arrays, own, outputs=3)
    for out in model.graph.output[1:]:
        out.CopyFrom(helper.make_tensor_value_info(out.name, 1, CACHE.shape))
    got, wanted = run(program_of(model), feeds), EXECUTORS["onnxruntime"](model, feeds)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case,count", (("ms_positions", 8), ("ms_positions_both", 16)))
def test_relative_positions(case, count):
    """Against the formula, query by query."""
    row = CASES[case]
    model, feeds = row.model()
    (got,) = run(program_of(model), feeds)
    table, length, most = row.arrays[0], int(row.arrays[1]), row.attrs["max_distance"]
    both = row.attrs.get("is_bidirectional", 0)
    count, near = (count // 2, count // 4) if both else (count, count // 2)
    for query in range(length):
        for key in range(length):
            far = abs(key - query) if both else max(query - key, 0)
            bucket = far if far < near else min(count - 1, near + int(
                np.log(far / near) / np.log(most / near) * (count - near) + 1e-6))
            bucket += count if both and key > query else 0
            np.testing.assert_array_equal(got[0, :, query, key], table[bucket])


def test_a_cache_that_says_something_else_is_a_fault():
    model, feeds = cached(CACHE[:1], 6, (3,), [a[:1] for a in STEP])
    with pytest.raises(FaultError, match="seqlens_k"):
        run(program_of(model), feeds)
    model, feeds = cached(CACHE, 5, (5, 4), STEP, 5)
    with pytest.raises(FaultError, match="the cache has room"):
        run(program_of(model), feeds)


@pytest.mark.parametrize("op,count", (("Gelu", 1), ("BiasGelu", 2), ("QuickGelu", 1),
                                      ("FastGelu", 2), ("SkipLayerNormalization", 4),
                                      ("SkipSimplifiedLayerNormalization", 3)))
def test_half_precision_stays_half(op, count):
    """Every tensor that the model names is f16, as its declaration says."""
    arrays = [rand(2, 3, 8).astype(np.float16), rand(2, 3, 8, seed=1).astype(np.float16),
              *(rand(8, seed=k).astype(np.float16) for k in (2, 3))][:count]
    if op in ("BiasGelu", "FastGelu"):
        arrays[1] = arrays[1][0, 0]
    model, feeds = one_node(op, arrays, MS)
    (got,) = run(program_of(model), feeds)
    wide, feeds = one_node(op, [a.astype(np.float32) for a in arrays], MS)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, EXECUTORS["onnxruntime"](wide, feeds)[0], rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("op,shapes,attrs", (
    ("Gelu", [(3, 5)], {}), ("BiasGelu", [(3, 5), (5,)], {}),
    ("SkipSimplifiedLayerNormalization", [(2, 3, 8), (2, 3, 8), (8,)], {}),
    ("MultiHeadAttention", [(2, 4, 12), (2, 5, 12), (2, 5, 12)], dict(num_heads=3))))
def test_brain_floats(op, shapes, attrs):
    """Stored as such, computed in f32."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    arrays = [rand(*shape, seed=k).astype(ml_dtypes.bfloat16) for k, shape in enumerate(shapes)]
    model, feeds = one_node(op, arrays, MS | attrs)
    (got,) = run(program_of(model), {n: a.view(np.uint16) for n, a in feeds.items()})
    wide, feeds = one_node(op, [a.astype(np.float32) for a in arrays], MS | attrs)
    np.testing.assert_allclose(got.view(ml_dtypes.bfloat16).astype(np.float32),
                               EXECUTORS["onnxruntime"](wide, feeds)[0], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ("int4", "uint4"))
def test_numbers_of_four_bits(name):
    """As types of their own, not packed into bytes."""
    kind = getattr(pytest.importorskip("ml_dtypes"), name)
    rng = np.random.default_rng(1)
    table, zeros = (rng.integers(0, 8, shape).astype(kind) for shape in ((32, 7), (2, 7)))
    places, scale = np.array([[1, 6], [3, 2]]), rand(2, 7)
    compare(*one_node("GatherBlockQuantized", [table, places, scale, zeros], MS | dict(
        block_size=16, quantize_axis=0, gather_axis=1), (0, 2, 3)), RUNTIME)
    compare(*one_node("GatherBlockQuantized", [table.T.copy(), places, scale.T.copy()], MS | dict(
        block_size=16), (0, 2)), RUNTIME)
    compare(*one_node("DequantizeLinear", [table, np.float32(0.1), zeros[0, 0]], MS,
                      (0, 1, 2)), RUNTIME)


def test_what_optimisers_write_without_a_domain():
    """LayerNormalization in models of opsets that have none."""
    model, feeds = one_node("LayerNormalization", [rand(2, 3, 8), rand(8, seed=1),
                                                   rand(8, seed=2)], consts=(1, 2), opset=13)
    compare(model, feeds, RUNTIME)
    x, scale = rand(2, 8).astype(np.float16), rand(8, seed=1).astype(np.float16)
    model, feeds = one_node("SimplifiedLayerNormalization", [x, scale], consts=(1,))
    (got,) = run(program_of(model), feeds)
    assert got.dtype == np.float16
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)


def test_no_word():
    """ONNX Runtime leaves its row as it finds it."""
    case = CASES["ms_words"]
    (got,) = run(*built(case.op, [np.zeros((2, 8), np.int32), *case.arrays[1:]], MS))
    assert not got.any()


def in_shared_buffers(model, feeds):
    """Outputs of ONNX Runtime whose caches lie where those of its inputs do."""
    import onnxruntime
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    held = {n: onnxruntime.OrtValue.ortvalue_from_numpy(a.copy()) for n, a in feeds.items()}
    bound = session.io_binding()
    for name, value in held.items():
        bound.bind_ortvalue_input(name, value)
    bound.bind_output("out0", "cpu")
    for out, into in (("out1", "in3"), ("out2", "in4")):
        bound.bind_ortvalue_output(out, held[into])
    session.run_with_iobinding(bound)
    return [o.numpy().copy() for o in bound.get_outputs()]


@pytest.mark.parametrize("batch,sequence,lengths", ((1, 40, (40,)), (2, 1, (40, 63)),
                                                    (1, 5, (50,))))
@pytest.mark.parametrize("turned", (False, True))
def test_attention_to_blocks_of_keys(batch, sequence, lengths, turned):
    op, arrays, attrs, consts, outputs = in_blocks(batch, sequence, lengths, turned)
    model, feeds = one_node(op, arrays, attrs, consts, outputs)
    got = run(program_of(model), feeds)
    for row, length in enumerate(lengths):  # one by one: it mixes up rows of unlike lengths
        own = [a[row:row + 1] if n in (0, 1, 2, 3, 4, 8) else a for n, a in enumerate(arrays)]
        own[7] = np.array(length, np.int32)
        wanted = in_shared_buffers(*one_node(op, own, attrs, consts, outputs))
        np.testing.assert_allclose(got[0][row], wanted[0][0], atol=1e-5)
        for g, w in zip(got[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(g[row, :, :length], w[0, :, :length], atol=1e-5)


def test_products_with_a_matrix_that_was_sparse():
    a, b = rand(4, 3), rand(5, 4, seed=1)
    attrs = MS | dict(transA=1, transB=1, alpha=0.3)
    same(run(*built("SparseToDenseMatMul", [a, b], attrs)), [np.float32(0.3) * (a.T @ b.T)])


def refusal(op, arrays, attrs=None, **more):
    model, _ = one_node(op, arrays, MS | (attrs or {}), **more)
    with pytest.raises(UnsupportedError) as err:
        program_of(model)
    return str(err.value)


def test_refusals_name_the_node_and_what_to_do():
    text = refusal("QuickGelu", [rand(2, 3)], dict(alhpa=2.0))
    assert "'the_node' (com.microsoft.QuickGelu, opset 1, inputs f32[2, 3])" in text
    assert "unknown attribute 'alhpa'" in text
    text = refusal("FusedGemm", [rand(2, 3), rand(3, 4)], dict(activation="Mish"))
    assert "the activation 'Mish'" in text and "LeakyRelu" in text
    text = refusal("BiasSoftmax", [rand(2, 3), rand(2, 3)], dict(is_inner_broadcast=0))
    assert "is_inner_broadcast = 0; export the model with is_inner_broadcast = 1" in text
    text = refusal("SkipSimplifiedLayerNormalization", [rand(2, 3), rand(2, 3), rand(3)],
                   outputs=2)
    assert "of which" in text
    text = refusal("BiasGelu", [rand(2, 3)] * 3)
    assert "3 inputs; give it at most 2: A, B" in text


def test_refusals_of_what_an_operator_stands_for():
    model, _ = one_node("FusedConv", [rand(1, 3, 5, 5), rand(4, 3, 3, 3)], MS | dict(
        activation="Relu"), shapes={"in1": (4, "c", 3, 3)})
    with pytest.raises(UnsupportedError) as err:
        program_of(model)
    assert "com.microsoft.FusedConv" in str(err.value) and "in its Conv" in str(err.value)


def unknown(*operators):
    """What is said of a model with these operators, (domain, name) each."""
    chain = [helper.make_node(op, [f"t{k}"], [f"t{k + 1}"], name=f"n{k}", domain=domain)
             for k, (domain, op) in enumerate(operators)]
    model = model_of(chain, {"t0": (np.float32, (2, 3))}, [f"t{len(chain)}"],
                     domains=sorted({d for d, _ in operators if d}))
    with pytest.raises(UnsupportedError) as err:
        program_of(model)
    return str(err.value)


def test_what_is_missing_is_told_with_the_nearest_that_works():
    """All of it at once."""
    text = unknown(("com.microsoft", "MatMulFpQ4"), ("com.microsoft", "BiasGelo"),
                   ("com.microsoft.nchwc", "Conv"), ("com.microsoft.nchwc", "Conv"),
                   ("ai.onnx.contrib", "BertTokenizer"), ("com.microsoft", "Mod"),
                   ("com.microsoft", "Nothing"))
    assert "7 node(s) of model 'small' use operators that aotc does not compile" in text
    for line in ("node 'n0': operator com.microsoft.MatMulFpQ4 (opset 1) on f32[2, 3]; "
                 "use MatMulNBits",
                 "com.microsoft.BiasGelo (opset 1); the nearest that compiles is "
                 "com.microsoft.BiasGelu",
                 "nodes 'n2', 'n3': operator com.microsoft.nchwc.Conv x2 (opset 1); let ONNX "
                 "Runtime optimise to ORT_ENABLE_EXTENDED at most",
                 "ai.onnx.contrib.BertTokenizer (opset 1); leave what prepares texts",
                 "com.microsoft.Mod (opset 1); use ai.onnx.Mod",
                 "com.microsoft.Nothing (opset 1)\n"):
        assert line in text, line


def test_optimisers_forget_to_import_their_domain():
    model, feeds = one_node("BiasGelu", [rand(2, 3), rand(3, seed=1)], MS)
    imports = [o for o in model.opset_import if not o.domain]
    del model.opset_import[:]
    model.opset_import.extend(imports)
    compare(model, feeds, RUNTIME)
