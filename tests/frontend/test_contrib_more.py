"""Masks of attention in all their forms, the scores it shows of buffers with room, and ways through
costs, beside tests/frontend/test_contrib.py."""

import numpy as np
import pytest
from contrib_tables import (
    BUFFERS,
    CACHE,
    COS,
    SIN,
    STEP,
    TOKENS_OF_BEAMS,
    attention,
    grouped,
    ones,
)
from frontend_cases import (
    EXECUTORS,
    RUNTIME,
    compare,
    helper,
    one_node,
    program_of,
    rand,
    run,
    same,
)

from aotc.errors import FaultError, ModelError, UnsupportedError

MS = {"domain": "com.microsoft"}


def built(case, shapes=None, **declared):
    """(model, feeds) of a row of the tables; ``declared``: shapes of outputs of f32."""
    op, arrays, attrs, consts, outputs = case
    model, feeds = one_node(op, arrays, attrs, consts, outputs, shapes=shapes)
    for out in model.graph.output:
        if out.name in declared:
            out.CopyFrom(helper.make_tensor_value_info(out.name, 1, declared[out.name]))
    return model, feeds


def made(*args):
    model, feeds = one_node(*args)
    return program_of(model), feeds


@pytest.mark.parametrize("past", (0, 3))
def test_a_mask_of_all_queries_and_keys(past):
    """[batch, 1, most, most], which ONNX Runtime has on other devices: as the rows of it that
    there are queries for."""
    most = ones(2, 1, 9, 9, seed=4)
    before = rand(2, 2, 3, past, 4, seed=4) if past else None
    rows = most[:, 0, past:past + 5, :past + 5]
    op, arrays, attrs, consts, _ = attention(most, before)
    outputs = 2 if past else 1
    got = run(*made(op, arrays, attrs, consts, outputs))
    arrays[3] = rows
    model, feeds = one_node(op, arrays, attrs, consts, outputs)
    same(got, EXECUTORS["onnxruntime"](model, feeds), atol=1e-5)


@pytest.mark.parametrize("mask,free", (
    (np.array([5, 3], np.int32), ("b",)), (np.array([5, 4, 0, 2], np.int32), ("2*b",)),
    (np.array([5, 3, 0, 5, 10, 0, 5, 10], np.int32), ("3*b+2",)),
    (ones(2, 5), ("b", "s")), (ones(2, 5, 5), ("b", "s", "s"))))
def test_masks_of_free_extents(mask, free):
    case = attention(mask)
    model, feeds = built(case, shapes={"in0": ("b", "s", 12), "in3": free})
    compare(model, feeds, RUNTIME, dims={"b": (1, 4), "s": (1, 8)}, atol=1e-5)


def test_a_mask_of_another_length_is_refused():
    with pytest.raises(ModelError, match="a column for every key"):
        program_of(built(attention(ones(2, 4)))[0])
    with pytest.raises(ModelError, match="a number per row"):
        program_of(built(attention(np.ones(3, np.int32)))[0])


ROOM = {"out1": CACHE.shape, "out2": CACHE.shape}


@pytest.mark.parametrize("kind", (1, 2))
def test_scores_of_a_cache_with_room(kind):
    """As many as the model declares, which is as many as the call says."""
    case = grouped(*STEP, CACHE, (3, 3), 4, outputs=4, qk_output=kind)
    model, feeds = built(case, **ROOM, out3=(2, 4, 1, 4))
    got, wanted = run(program_of(model), feeds), EXECUTORS["onnxruntime"](model, feeds)
    same([got[0], got[3]], [wanted[0], wanted[3]])
    with pytest.raises(FaultError, match="declared with 4 keys"):
        run(program_of(model), feeds | {"in6": np.array(5, np.int32)})
    with pytest.raises(UnsupportedError, match="declare that of output 3"):
        program_of(built(case, **ROOM)[0])


@pytest.mark.parametrize("op", ("MultiHeadAttention", "DecoderMaskedMultiHeadAttention"))
def test_scores_of_a_buffer_with_room(op):
    inputs = [None, None, None] if op[0] == "M" else [None, None]
    attrs = MS | dict(num_heads=3) | (
        {} if op[0] == "M" else dict(past_present_share_buffer=1, output_qk=1))
    case = op, [*TOKENS_OF_BEAMS, *inputs, *BUFFERS, np.array([2], np.int32)], attrs, (), 4
    compare(*built(case, out3=(4, 3, 1, 3)), RUNTIME, atol=1e-5)


def test_a_buffer_without_room_is_a_fault():
    case = ("MultiHeadAttention", [*TOKENS_OF_BEAMS, None, None, None, *BUFFERS, np.array(
        [6], np.int32)], MS | dict(num_heads=3), (), 3)
    model, feeds = built(case)
    with pytest.raises(FaultError, match="room for all keys"):
        run(program_of(model), feeds)


def test_what_a_quantised_cache_must_say():
    past = np.zeros((2, 2, 5, 16), np.int8)
    op, arrays, attrs, _, _ = grouped(*STEP, CACHE, (5, 5), 6)
    arrays[3:5] = past, past
    for more, text in (({}, "needs k_quant_type"), (dict(k_quant_type="PER_ROW"), "PER_ROW"),
                       (dict(k_quant_type="PER_TENSOR", kv_cache_bit_width=4), "of 4 bits")):
        with pytest.raises(ModelError, match=text):
            program_of(one_node(op, arrays, attrs | more, outputs=3)[0])


def test_a_window_needs_its_room():
    case = grouped(*STEP, CACHE, (5, 5), 6, sliding_window_cache=1, local_window_size=6)
    with pytest.raises(ModelError, match="room for its window"):
        program_of(built(case)[0])
    with pytest.raises(ModelError, match="needs local_window_size"):
        program_of(built(grouped(*STEP, CACHE, (5, 5), 6, sliding_window_cache=1))[0])


@pytest.mark.parametrize("lengths,counts,room", (
    ((4, 2), (2, 3), 8), ((4, 3), (2, 0), 8), ((6, 5), (2, 3), None)))
@pytest.mark.parametrize("turned", (0, 1))
def test_chunks_with_padding(lengths, counts, room, turned):
    """Queries behind ``query_seqlens`` of a row are none; rows of a cache with room, and of one
    that grows."""
    operands = [rand(2, 3, n, seed=k) for k, n in enumerate((64, 32, 32))]
    past = rand(2, 2, room or 5, 16, seed=5)
    case = grouped(*operands, past, lengths, 8, COS, SIN, *[None] * 7, np.array(counts, np.int32),
                   do_rotary=turned)
    model, feeds = built(case, **({"out1": past.shape, "out2": past.shape} if room else {}))
    got, wanted = run(program_of(model), feeds), EXECUTORS["onnxruntime"](model, feeds)
    for row, (length, count) in enumerate(zip(lengths, counts)):
        np.testing.assert_allclose(got[0][row, :count], wanted[0][row, :count], atol=1e-5)
        for g, w in zip(got[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(g[row, :, :length + 1], w[row, :, :length + 1], atol=1e-5)
    with pytest.raises(FaultError, match="query_seqlens"):
        run(program_of(model), feeds | {"in16": np.array([4, 1], np.int32)})


@pytest.mark.parametrize("shape", ((3, 5), (6, 4), (1, 4), (5, 1), (1, 7, 9)))
@pytest.mark.parametrize("ties", (False, True))
def test_the_cheapest_way(shape, ties):
    """As long as declared, or with room for the longest and a count."""
    costs = np.random.default_rng(1).integers(0, 2, shape) if ties else rand(*shape)
    model, feeds = one_node("DynamicTimeWarping", [costs.astype(np.float32)], MS)
    (wanted,) = EXECUTORS["onnxruntime"](model, feeds)
    path, count = run(program_of(model), feeds)
    assert int(count) == wanted.shape[1]
    np.testing.assert_array_equal(path[:, :int(count)], wanted)
    assert not path[:, int(count):].any()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("out0", 6, wanted.shape))
    same(run(program_of(model), feeds), [wanted])


def test_ways_through_costs_of_free_extents():
    costs = rand(6, 9)
    costs[2, 3] = np.nan
    model, feeds = one_node("DynamicTimeWarping", [costs], MS, shapes={"in0": ("m", "n")})
    path, count = run(program_of(model), feeds)  # where costs are no numbers any way will do
    assert path.shape == (2, 14) and 0 < int(count) <= 14
    costs[2, 3] = 0
    wanted = EXECUTORS["onnxruntime"](model, {"in0": costs})[0]
    path, count = run(program_of(model), {"in0": costs})
    np.testing.assert_array_equal(path[:, :int(count)], wanted)
