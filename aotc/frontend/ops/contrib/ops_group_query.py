"""Rotary embeddings, and attention whose heads share keys, with a cache of earlier ones."""

import numpy as np

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.ops.contrib.attention import (
    heads,
    in_use,
    joined,
    lowest,
    parts,
    scores,
    weights,
    width,
)
from aotc.frontend.ops.contrib.cached_keys import KeyWindow, Whole, stored, whole, window
from aotc.ir.expr import Const, Expr, maximum, minimum
from aotc.ir.program import static_shape
from aotc.ir.simplify import are_equal


def rotated(s: Spelling, v: Val, cos: Val, sin: Val, interleaved: bool,
            out: int | None = None) -> Val:
    """The first columns of [batch, heads, sequence, size], pair by pair turned by angles of which
    ``cos`` and ``sin`` are given, [batch, 1, sequence, pairs]; pairs are neighbours where
    ``interleaved``, else columns of the two halves."""
    pairs, size = (width(s, x.shape[-1], 1, "a head") for x in (cos, v))
    rest = None
    if 2 * pairs < size:
        v, rest = parts(s, v, [2 * pairs, size - 2 * pairs])
    if interleaved:
        one, two = (s.cut(v, 3, n, 2 * pairs, 2) for n in (0, 1))
    else:
        one, two = parts(s, v, [pairs, pairs])
    left = s("Sub", s("Mul", one, cos), s("Mul", two, sin))
    right = s("Add", s("Mul", one, sin), s("Mul", two, cos))
    last = out if rest is None else None
    if interleaved:
        both = s("Concat", s.spread(left, 4), s.spread(right, 4), axis=4)
        turned = s("Reshape", both, s.ints(0, 0, 0, 2 * pairs), out=last)
    else:
        turned = s("Concat", left, right, axis=3, out=last)
    return turned if rest is None else s("Concat", turned, rest, axis=3, out=out)


def angles(s: Spelling, table: Val, places: Val) -> Val:
    """Rows of a table of cosines or sines at ``places`` [batch, sequence], for all heads."""
    return s.spread(s("Gather", table, places), 1)


@spells("RotaryEmbedding", "input position_ids cos_cache sin_cache",
        "interleaved num_heads rotary_embedding_dim is_packed_batching", only={"scale": 1.0})
def rotary_embedding(s: Spelling) -> Result:
    x, at, cos = s.val("input"), s.val("position_ids"), s.val("cos_cache")
    flat = x.rank == 3
    if flat:
        columns = width(s, x.shape[2], 1, "the input")
        count = s.attr("num_heads", 0) or columns // (2 * width(s, cos.shape[1], 1, "the cache"))
        x = heads(s, x, count, "the input")
    if at.rank == 1:
        at = s.spread(s("Add", at, s.cast(s.places(x.shape[2]), at.dtype)), 0)
    made = rotated(s, x, angles(s, cos, at), angles(s, s.val("sin_cache"), at),
                   s.attr("interleaved", 0) == 1, None if flat else 0)
    return joined(s, made) if flat else made


# ---------------------------------------------------------------- heads that share keys

@spells("GroupQueryAttention", "query key value past_key past_value seqlens_k "
        "total_sequence_length cos_cache sin_cache position_ids attention_bias head_sink k_scale "
        "v_scale q_norm_weight k_norm_weight query_seqlens",
        "num_heads kv_num_heads scale softcap do_rotary rotary_interleaved local_window_size "
        "smooth_softmax causal qk_norm_epsilon q_norm_epsilon k_norm_epsilon qk_output "
        "sliding_window_cache k_quant_type v_quant_type kv_cache_bit_width")
def group_query_attention(s: Spelling) -> Result:
    q, k, v = _operands(s)
    dtype, sequence = q.dtype, q.shape[2]
    cache = (window if s.attr("sliding_window_cache", 0) else whole)(s, k)
    q, k = (_normed(s, x, name) for x, name in ((q, "q"), (k, "k")))
    if s.attr("do_rotary", 0) == 1:
        at = s.opt("position_ids")
        at = cache.places(s, sequence) if at is None else at
        cos, sin = (angles(s, s.val(f"{n}_cache"), at) for n in ("cos", "sin"))
        interleaved = s.attr("rotary_interleaved", 0) == 1
        q, k = (rotated(s, x, cos, sin, interleaved) for x in (q, k))
    read, made = [], []
    for name, past, new, out in (("k", "past_key", k, 1), ("v", "past_value", v, 2)):
        heads_of = width(s, new.shape[1], 1, "heads"), width(s, new.shape[3], 1, "a head")
        kind = stored(s, name, heads_of)
        seen, present = cache.joined(s, past, kind.kept(s, new), out)
        read.append(kind.read(s, seen, dtype))
        made.append(present)
    y, shown = _attended(s, cache, q, *read)
    return y, *made, shown


def _operands(s: Spelling) -> list[Val]:
    """Queries, keys and values by heads; packed ones are cut."""
    q, k, v = s.val("query"), s.opt("key"), s.opt("value")
    count, shared = s.given("num_heads"), s.given("kv_num_heads")
    if shared < 1 or count % shared:
        raise s.b.bad(f"{count} heads cannot share {shared} heads of keys")
    if k is None or v is None:
        size = width(s, q.shape[2], count + 2 * shared, "the packed queries, keys and values")
        q, k, v = parts(s, q, [count * size, shared * size, shared * size])
    return [heads(s, q, count, "the queries"), heads(s, k, shared, "the keys"),
            heads(s, v, shared, "the values")]


def _normed(s: Spelling, v: Val, name: str) -> Val:
    weight = s.opt(f"{name}_norm_weight")
    if weight is None:
        return v
    epsilon = s.attr(f"{name}_norm_epsilon") or s.attr("qk_norm_epsilon", 1e-6)
    return s("RMSNormalization", v, weight, axis=-1, epsilon=epsilon)


def _attended(s: Spelling, cache: Whole | KeyWindow, q: Val, k: Val, v: Val, only: Val | None = None
              ) -> tuple[Val, Val | None]:
    """(the output; what ``qk_output`` asks for).  Queries that share keys stand together: [batch,
    shared, group, sequence, size] against [batch, shared, 1, total, size].  ``only``: which keys
    count for a query besides, [batch, heads, sequence, total]."""
    count, shared = s.given("num_heads"), s.given("kv_num_heads")
    keep, bias, group = cache.kept(s, q.shape[2]), cache.bias(s), count // shared
    if only is not None and group > 1:
        only = s.reshape(only, only.shape[0], shared, group, *only.shape[2:])
    if group > 1:
        q = s("Reshape", q, s.dims(q.shape[0], shared, group, *q.shape[2:]))
        k, v = s.spread(k, 2), s.spread(v, 2)
        keep = s.spread(keep, 1) if keep.rank == 4 else keep
        if bias is not None:
            one = static_shape(bias.shape[1:2]) == (1,)
            bias = s.spread(bias, 1) if one else s(
                "Reshape", bias, s.dims(bias.shape[0], shared, group, *bias.shape[2:]))
    keep = keep if only is None else s("And", keep, only)
    score = scores(s, q, k, s.attr("scale", 0.0), s.attr("softcap", 0.0))
    score = score if bias is None else s("Add", score, bias)
    share = _weights(s, score, keep)
    mixed = s("MatMul", share, v)
    if group > 1:
        mixed = s("Reshape", mixed, s.dims(mixed.shape[0], count, *mixed.shape[3:]))
    return joined(s, mixed), _shown(s, cache, score, share, keep)


def _shown(s: Spelling, cache: Whole | KeyWindow, score: Val, share: Val, keep: Val) -> Val | None:
    """Output 3, [batch, heads, sequence, total]: scores (1) or their softmax (2), 0 where a key
    does not count."""
    kind = s.attr("qk_output", 0)
    if not s.wants(3):
        return None
    if kind not in (1, 2):
        raise s.b.bad(f"output 3 with qk_output = {kind}, which is neither 1 nor 2")
    if isinstance(cache, KeyWindow):
        raise s.b.unsupported("qk_output of a cache that slides",
                              "export the model with qk_output = 0")
    shown = s("Where", keep, score if kind == 1 else share, s.number(0, score.dtype))
    past, whole_length = s.opt("past_key"), s.val("total_sequence_length")
    if past is not None and are_equal(past.shape[2], cache.total):
        shown = in_use(s, shown, s.b.index_at(whole_length, (Const(0),) * whole_length.rank), 3)
    batch, sequence, total = shown.shape[0], shown.shape[-2], shown.shape[-1]
    return s.reshape(shown, batch, s.given("num_heads"), sequence, total, out=3)


def _weights(s: Spelling, score: Val, keep: Val) -> Val:
    """Softmax; with a sink, each head's denominator has one more term."""
    sink = s.opt("head_sink")
    if sink is None and s.attr("smooth_softmax", -1) != 1:
        return weights(s, score, [], keep)
    score = s("Where", keep, score, lowest(s, score.dtype))
    extra = s.number(0, score.dtype) if sink is None else s(
        "Reshape", sink, s.dims(1, *score.shape[1:-2], 1, 1))
    column = s("Expand", extra, s.dims(*score.shape[:-1], 1))
    whole_row = s("Softmax", s("Concat", score, column, axis=score.rank - 1), axis=-1)
    return s.cut(whole_row, score.rank - 1, 0, score.shape[-1])


# ---------------------------------------------------------------- blocks of keys

@spells("SparseAttention",
        "query key value past_key past_value block_row_indices block_col_indices "
        "total_sequence_length key_total_sequence_lengths cos_cache sin_cache",
        "num_heads kv_num_heads scale sparse_block_size do_rotary rotary_interleaved")
def sparse_attention(s: Spelling) -> Result:
    """GroupQueryAttention in a cache with room, whose queries look at some blocks of keys: those of
    constant lists, one for each head in turns."""
    s.inputs |= {"attention_bias": None, "head_sink": None}  # which it has not
    q, k, v = _operands(s)
    sequence, past, lengths = q.shape[2], s.val("past_key"), s.val("key_total_sequence_lengths")

    def start(i: Index) -> Expr:
        before = maximum(s.b.index_at(lengths, i) - sequence, Const(0))
        return s.b.checked(before, past.shape[2] - sequence + 1,
                           "the cache has room for all keys")
    first = s.b.map(k.shape[:1], start, [lengths], tag="first")
    cache = Whole(first, past.shape[2])
    if s.attr("do_rotary", 0) == 1:
        at = cache.places(s, sequence)
        cos, sin = (angles(s, s.val(f"{n}_cache"), at) for n in ("cos", "sin"))
        q, k = (rotated(s, x, cos, sin, s.attr("rotary_interleaved", 0) == 1) for x in (q, k))
    k, v = (cache.joined(s, name, new, out)[0] for name, new, out in (
        ("past_key", k, 1), ("past_value", v, 2)))
    table, block = s.b.const(_blocks(s)), s.given("sparse_block_size")
    layouts, most = table.array.shape[:2] if table.array is not None else (0, 0)

    def looked_at(i: Index) -> Expr:
        query = s.b.checked((s.b.index_at(first, (i[0],)) + i[2]) // block, most,
                            "every block of queries has its list")
        key = minimum(i[3] // block, Const(most - 1))
        return s.b.load(table, (i[1] % layouts, query, key))
    only = s.b.map((q.shape[0], q.shape[1], sequence, cache.total), looked_at, [first], tag="only")
    return _attended(s, cache, q, k, v, only)[0], k, v


def _blocks(s: Spelling) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """[layouts, blocks of queries, blocks of keys], true where one looks at the other."""
    rows, columns = (s.val(f"block_{n}_indices").array for n in ("row", "col"))
    if rows is None or columns is None or rows.ndim != 2 or columns.ndim != 2:
        raise s.b.unsupported("lists of blocks that are data", "make them constants")
    count = rows.shape[1] - 1
    out = np.zeros((len(rows), count, count), np.bool_)
    for layout, ends, own in zip(out, rows, columns, strict=True):
        for row, (low, high) in enumerate(zip(ends, ends[1:])):
            picked = own[max(low, 0):max(high, 0)]
            if (picked >= count).any() or (picked < 0).any():
                raise s.b.bad("a list of blocks names one that is not there")
            layout[row, picked] = True
    return out
