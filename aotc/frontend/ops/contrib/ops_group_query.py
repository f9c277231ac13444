"""Rotary embeddings, and attention whose heads share keys, with a cache of earlier ones."""

from dataclasses import dataclass

from aotc.frontend.building.declared import expect, expected_shape
from aotc.frontend.building.spelling import Spelling, spelt
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.ops.contrib.attention import (
    appended,
    causal,
    heads,
    joined,
    lowest,
    parts,
    scores,
    weights,
    width,
)
from aotc.ir.expr import Const, Expr, Where, compare, maximum, minimum
from aotc.ir.program import static_shape
from aotc.ir.simplify import same, simplify


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


@spelt("RotaryEmbedding", "input position_ids cos_cache sin_cache",
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

_NONE = "NONE"


@dataclass(frozen=True)
class Cache:
    """``first``: how many keys come before those of this call, an extent where it is the same for
    all rows, else [batch] of i64; ``total``: keys there is room for."""

    first: Expr | Val
    total: Expr


@spelt("GroupQueryAttention", "query key value past_key past_value seqlens_k "
       "total_sequence_length cos_cache sin_cache position_ids attention_bias head_sink -k_scale "
       "-v_scale q_norm_weight k_norm_weight -query_seqlens",
       "num_heads kv_num_heads scale softcap do_rotary rotary_interleaved local_window_size "
       "smooth_softmax causal qk_norm_epsilon q_norm_epsilon k_norm_epsilon",
       only={"qk_output": 0, "sliding_window_cache": 0, "k_quant_type": _NONE,
             "v_quant_type": _NONE, "kv_cache_bit_width": 0})
def group_query_attention(s: Spelling) -> Result:
    q, k, v = _operands(s)
    cache = _cache(s, k)
    q, k = (_normed(s, x, name) for x, name in ((q, "q"), (k, "k")))
    if s.attr("do_rotary", 0) == 1:
        at = _places(s, cache, q.shape[2])
        cos, sin = (angles(s, s.val(f"{n}_cache"), at) for n in ("cos", "sin"))
        interleaved = s.attr("rotary_interleaved", 0) == 1
        q, k = (rotated(s, x, cos, sin, interleaved) for x in (q, k))
    k, v = (_cached(s, cache, past, new, out) for past, new, out in (
        ("past_key", k, 1), ("past_value", v, 2)))
    return _attended(s, q, k, v, _kept(s, cache, q.shape[2])), k, v


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


def _cache(s: Spelling, k: Val) -> Cache:
    """Where the keys of this call go: behind those of the past, or, where the model declares that
    the cache does not grow, into its room."""
    past, sequence = s.opt("past_key"), k.shape[2]
    if past is None:
        return Cache(Const(0), sequence)
    declared = expected_shape(s.b, s.node.outputs[1], 4) if s.wants(1) else None
    grows = declared is None or not same(declared[2], past.shape[2])
    total = simplify(past.shape[2] + sequence) if grows else past.shape[2]
    lengths, whole = s.val("seqlens_k"), s.val("total_sequence_length")
    if grows:
        expect(s.b, [(s.b.index_at(whole, (Const(0),) * whole.rank), total)],
               f"a cache that grows holds {past.shape[2]} keys and this call's {sequence}, "
               "total_sequence_length is")
    if grows and static_shape(k.shape[:1]) == (1,):
        length = s.b.index_at(lengths, (Const(0),) * lengths.rank)
        expect(s.b, [(length + 1, total)], f"the cache of {past.shape[2]} keys and this call's "
               f"{sequence} are all there is, seqlens_k + 1 is")
        return Cache(past.shape[2], total)

    def start(index: Index) -> Expr:
        place = (*index, *[Const(0)] * (lengths.rank - 1))
        before = maximum(s.b.index_at(lengths, place) + 1 - sequence, Const(0))
        return s.b.checked(before, total - sequence + 1, "the cache has room for all keys")
    return Cache(s.b.map(k.shape[:1], start, [lengths], tag="first"), total)


def _places(s: Spelling, cache: Cache, sequence: Expr) -> Val:
    """Places of the queries, [batch or 1, sequence]."""
    given = s.opt("position_ids")
    if given is not None:
        return given
    if isinstance(cache.first, Val):
        return s("Add", s.spread(cache.first, 1), s.places(sequence))
    return s.spread(s.places(sequence, cache.first), 0)


def _cached(s: Spelling, cache: Cache, name: str, new: Val, out: int) -> Val:
    """The keys or values of the past and of this call, [batch, heads, total, size]."""
    past, first = s.opt(name), cache.first
    if past is None:
        return s("Identity", new, out=out) if s.wants(out) else new
    both = appended(s, past, new, out if not isinstance(first, Val) else None)
    if not isinstance(first, Val):
        return both
    room, starts = past.shape[2], first

    def source(index: Index) -> Index:
        batch, head, place, column = index
        start = s.b.index_at(starts, (batch,))
        behind = minimum(place - start + room, both.shape[2] - 1)
        at = Where(compare("lt", place, start), place, behind)
        return batch, head, s.b.checked(at, both.shape[2]), column
    shape = (*both.shape[:2], cache.total, both.shape[3])
    return s.b.move(both, shape, source, "" if s.wants(out) else name, out)


def _kept(s: Spelling, cache: Cache, sequence: Expr) -> Val | None:
    """Where a key counts, [batch or 1, 1, sequence, total] or [sequence, total]; None: everywhere.
    Without a causal mask all keys there are count."""
    window, ordered = s.attr("local_window_size", -1), s.attr("causal", 1)
    if not ordered:
        key = s.spread(s.cast(s.places(cache.total), s.val("seqlens_k").dtype), 0)
        there = s("LessOrEqual", key, s("Reshape", s.val("seqlens_k"), s.ints(-1, 1)))
        return s.spread(there, 1, 2)
    if not isinstance(cache.first, Val):
        return causal(s, sequence, cache.total, window)
    query = s.spread(s("Add", s.spread(cache.first, 1), s.places(sequence)), 1, 3)
    key = s.places(cache.total)
    keep = s("LessOrEqual", key, query)
    if window < 0:
        return keep
    near = s("Greater", key, s("Sub", query, s.number(window, "i64")))
    return s("And", keep, near)


def _attended(s: Spelling, q: Val, k: Val, v: Val, keep: Val | None) -> Val:
    """The output.  Queries that share keys stand together: [batch, shared, group, sequence, size]
    against [batch, shared, 1, total, size]."""
    count, shared = s.given("num_heads"), s.given("kv_num_heads")
    bias, group = _bias(s, k.shape[2]), count // shared
    if group > 1:
        q = s("Reshape", q, s.dims(q.shape[0], shared, group, *q.shape[2:]))
        k, v = s.spread(k, 2), s.spread(v, 2)
        if keep is not None and keep.rank == 4:
            keep = s.spread(keep, 1)
        if bias is not None:
            one = static_shape(bias.shape[1:2]) == (1,)
            bias = s.spread(bias, 1) if one else s(
                "Reshape", bias, s.dims(bias.shape[0], shared, group, *bias.shape[2:]))
    score = scores(s, q, k, s.attr("scale", 0.0), s.attr("softcap", 0.0))
    mixed = s("MatMul", _weights(s, score, bias, keep), v)
    if group > 1:
        mixed = s("Reshape", mixed, s.dims(mixed.shape[0], count, *mixed.shape[3:]))
    return joined(s, mixed)


def _bias(s: Spelling, total: Expr) -> Val | None:
    """What is added to scores; of keys that a cache has room for and nothing says anything about,
    anything."""
    bias, past = s.opt("attention_bias"), s.opt("past_key")
    if bias is None or past is None or not same(past.shape[2], total):
        return bias
    last = bias.shape[3] - 1
    return s.b.move(bias, (*bias.shape[:3], total), lambda i: (*i[:3], minimum(i[3], last)),
                    tag="bias")


def _weights(s: Spelling, score: Val, bias: Val | None, keep: Val | None) -> Val:
    """Softmax; with a sink, each head's denominator has one more term."""
    sink = s.opt("head_sink")
    if sink is None and s.attr("smooth_softmax", -1) != 1:
        return weights(s, score, [bias], keep)
    score = score if bias is None else s("Add", score, bias)
    if keep is not None:
        score = s("Where", keep, score, lowest(s, score.dtype))
    extra = s.number(0, score.dtype) if sink is None else s(
        "Reshape", sink, s.dims(1, *score.shape[1:-2], 1, 1))
    column = s("Expand", extra, s.dims(*score.shape[:-1], 1))
    whole = s("Softmax", s("Concat", score, column, axis=score.rank - 1), axis=-1)
    return s.cut(whole, score.rank - 1, 0, score.shape[-1])
