"""Attention operators of com.microsoft as the products, masks and softmax that they stand for."""

from collections.abc import Sequence

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.values import Result, Val
from aotc.frontend.ops.contrib.attention import (
    FILTER,
    appended,
    causal,
    heads,
    in_use,
    joined,
    masked,
    of_beams,
    padding,
    parts,
    placed,
    scores,
    to_room,
    weights,
    width,
)
from aotc.ir.expr import Const

_SCORES = "num_heads scale mask_filter_value unidirectional"


@spells("Attention", "input weights bias mask_index past attention_bias -past_sequence_length",
        f"{_SCORES} qkv_hidden_sizes rotary_embedding_dim",
        only={"do_rotary": 0, "past_present_share_buffer": 0})
def attention(s: Spelling) -> Result:
    x, w, bias = s.val("input"), s.val("weights"), s.opt("bias")
    qkv = s("MatMul", x, w)
    return self_attention(s, qkv if bias is None else s("Add", qkv, bias))


def self_attention(s: Spelling, qkv: Val) -> Result:
    """Attention on projected queries, keys and values side by side, [batch, sequence, columns];
    the keys and values of earlier calls are one tensor, [2, batch, heads, past, size]."""
    count, past = s.given("num_heads"), s.opt("past")
    sizes = s.attr("qkv_hidden_sizes") or [width(s, qkv.shape[-1], 3, "the projection")] * 3
    q, k, v = (heads(s, part, count, "the projection") for part in parts(s, qkv, list(sizes)))
    present = None
    if past is not None:
        before = [s("Gather", past, s.number(n, "i64"), axis=0) for n in (0, 1)]
        k, v = (appended(s, old, new) for old, new in zip(before, (k, v)))
    if s.wants(1):
        present = s("Concat", s.spread(k, 0), s.spread(v, 0), axis=0, out=1)
    total, sequence = k.shape[2], q.shape[2]
    mask = padding(s, s.opt("mask_index"), total, sequence, total - sequence, q.dtype)
    keep = causal(s, sequence, total) if s.attr("unidirectional", 0) == 1 else None
    score = scores(s, q, k, s.attr("scale", 0.0))
    share = weights(s, score, [mask, s.inputs.get("attention_bias")], keep)
    return joined(s, s("MatMul", share, v)), present


@spells("MultiHeadAttention", "query key value bias key_padding_mask attention_bias past_key "
        "past_value past_sequence_length cache_indirection", _SCORES)
def multi_head_attention(s: Spelling) -> Result:
    return _cached_attention(s, _operands(s), "key_padding_mask", s.opt("past_sequence_length"))


@spells("DecoderMaskedMultiHeadAttention", "query key value mask_index attention_bias past_key "
        "past_value past_sequence_length beam_width cache_indirection bias",
        "num_heads scale mask_filter_value past_present_share_buffer output_qk")
def decoder_attention(s: Spelling) -> Result:
    """A query of one token; keys and values of its own, or all those of an encoder, [batch, heads,
    total, size].  ``cache_indirection`` says how many beams there are."""
    q, k = s.val("query"), s.opt("key")
    if k is None:
        columns = width(s, q.shape[2], 3, "the packed operands")
        operands = [heads(s, part, s.given("num_heads"), "the packed operands")
                    for part in parts(s, _biased(s, q, s.opt("bias"), 0, 3 * columns),
                                      [columns] * 3)]
    else:
        operands = list(_operands(s))
    start = s.opt("past_sequence_length") if s.attr("past_present_share_buffer", 0) else None
    y, *present, score = _cached_attention(s, operands, "mask_index", start)
    return y, *present, score


def _cached_attention(s: Spelling, operands: Sequence[Val], mask: str, start: Val | None
                      ) -> tuple[Val, Val, Val, Val | None]:
    """(the output, the keys and values after the call, scores): these are behind those of earlier
    calls, or, where ``start`` says how many there are, in buffers with room for more."""
    q, *both = operands
    count, beams, keep, read = q.shape[2], s.opt("cache_indirection"), None, []
    pasts = [s.opt(f"past_{n}") for n in ("key", "value")]
    for out, (past, new) in enumerate(zip(pasts, both), 1):
        if past is None:
            read.append(s("Identity", new, out=out) if s.wants(out) else new)
        elif start is None:
            read.append(appended(s, past, new, out))
        else:
            read.append(placed(s, past, new, start, out))
    made, total = list(read), read[0].shape[2]
    bias, causes = s.opt("attention_bias"), s.attr("unidirectional", 0) == 1
    if start is None or pasts[0] is None:
        added = padding(s, s.opt(mask), total, count, total - count, q.dtype)
        keep = causal(s, count, total) if causes else None
    else:
        added = padding(s, to_room(s, s.opt(mask), total, "mask"), total, count, Const(0), q.dtype)
        bias = to_room(s, bias, total, "bias_of_all")
        first = s.cast(s("Reshape", start, s.ints(1, 1)), "i64")
        ends = s("Add", first, s.spread(s.places(count, 1) if causes else s.dims(count), 1))
        keep = s("Less", s.places(total), ends)
    if beams is not None:
        before = start if start is not None else s.dims(total - count)
        read = [of_beams(s, v, beams, before) for v in read]
    score = masked(s, scores(s, q, read[0], s.attr("scale", 0.0)), [added, bias], keep)
    shown = None
    if s.wants(3):
        shown = score if start is None or pasts[0] is None else in_use(
            s, score, s.b.index_at(start, (Const(0),) * start.rank) + count, 3)
        shown = s("Identity", shown, out=3)
    share = s("Softmax", score, axis=-1)
    return joined(s, s("MatMul", share, read[1])), made[0], made[1], shown


def _operands(s: Spelling) -> Sequence[Val]:
    """Queries, keys and values by heads, with their biases: each by itself, or packed by head."""
    q, k, v, bias = s.val("query"), s.opt("key"), s.opt("value"), s.opt("bias")
    count = s.given("num_heads")
    if q.rank == 5:  # [batch, sequence, heads, 3, size]
        return [_unpacked(s, q, n, bias, first) for n, first in enumerate((0, 1, 2))]
    if k is None:
        raise s.b.bad("input 'key' is missing")
    columns = width(s, q.shape[2], 1, "the queries")
    if k.rank == 5:  # [batch, total, heads, 2, size]
        return [heads(s, _biased(s, q, bias, 0, columns), count, "the queries"),
                *(_unpacked(s, k, n, bias, n + 1) for n in (0, 1))]
    if v is None:
        raise s.b.bad("input 'value' is missing")
    q = heads(s, _biased(s, q, bias, 0, columns), count, "the queries")
    if k.rank == 4:  # [batch, heads, total, size], of an encoder
        return [q, k, v]
    k = _biased(s, k, bias, columns, 2 * columns)
    v = _biased(s, v, bias, 2 * columns, 2 * columns + width(s, v.shape[2], 1, "the values"))
    return [q, heads(s, k, count, "the keys"), heads(s, v, count, "the values")]


def _biased(s: Spelling, v: Val, bias: Val | None, first: int, last: int) -> Val:
    return v if bias is None else s("Add", v, s.cut(bias, 0, first, last))


def _unpacked(s: Spelling, v: Val, n: int, bias: Val | None, third: int) -> Val:
    """Part ``n`` of [batch, sequence, heads, parts, size], by heads, with a third of the bias."""
    part = s("Gather", v, s.number(n, "i64"), axis=3)
    if bias is not None:
        size = [width(s, d, 1, "a head") for d in part.shape[2:]]
        columns = size[0] * size[1]
        own = s.cut(bias, 0, third * columns, (third + 1) * columns)
        part = s("Add", part, s("Reshape", own, s.ints(*size)))
    return s.transpose(part, 0, 2, 1, 3)


# ---------------------------------------------------------------- rows without padding

@spells("PackedAttention", "input weights bias token_offset cumulative_sequence_length "
        "-attention_bias", "num_heads scale qkv_hidden_sizes")
def packed_attention(s: Spelling) -> Result:
    """Sequences one after the other, [tokens, columns]."""
    qkv = s("Add", s("MatMul", s.val("input"), s.val("weights")), s.val("bias"))
    sizes = s.attr("qkv_hidden_sizes") or [width(s, qkv.shape[-1], 3, "the projection")] * 3
    return _by_sequence(s, *parts(s, qkv, list(sizes)))


@spells("PackedMultiHeadAttention", "query key value bias token_offset cumulative_sequence_length "
        "-attention_bias", "num_heads scale", only={"mask_filter_value": FILTER})
def packed_multi_head_attention(s: Spelling) -> Result:
    """``PackedAttention`` on projected queries, keys and values, or on one tensor of them,
    [tokens, heads, 3, size]."""
    q, bias = s.val("query"), s.opt("bias")
    if q.rank == 4:
        columns = width(s, q.shape[1], 1, "the heads") * width(s, q.shape[3], 1, "a head")
        operands = [s("Reshape", s("Gather", q, s.number(n, "i64"), axis=2), s.ints(0, columns))
                    for n in range(3)]
    else:
        operands = [q, s.val("key"), s.val("value")]
    if bias is not None:
        each = parts(s, bias, [width(s, v.shape[1], 1, "the operands") for v in operands])
        operands = [s("Add", v, own) for v, own in zip(operands, each, strict=True)]
    return _by_sequence(s, *operands)


def _by_sequence(s: Spelling, q: Val, k: Val, v: Val) -> Val:
    """Attention of every token to those of its own sequence: [tokens, columns]."""
    count, ends = s.given("num_heads"), s.val("cumulative_sequence_length")
    place = s.spread(s.cast(s.places(q.shape[0]), ends.dtype), 1)
    behind = s.cast(s("GreaterOrEqual", place, s.spread(ends, 0)), "i32")
    number = s("ReduceSum", behind, s.ints(1), keepdims=0)
    keep = s("Equal", s.spread(number, 1), s.spread(number, 0))
    q, k, v = (heads(s, s.spread(x, 0), count, "the operands") for x in (q, k, v))
    share = weights(s, scores(s, q, k, s.attr("scale", 0.0)), [], keep)
    return s("Squeeze", joined(s, s("MatMul", share, v), None), s.ints(0), out=0)
