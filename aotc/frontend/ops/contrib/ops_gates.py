"""Gates, norms and routes that recent language models have between their layers, each one formula
of ONNX operators in f32."""

from collections.abc import Sequence

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.values import Result, Val
from aotc.frontend.ops.contrib.attention import heads, joined, width
from aotc.frontend.ops.contrib.ops_group_query import rotated
from aotc.frontend.ops.contrib.ops_recurrence import rounded
from aotc.ir.program import static_shape

_LEAST = 1e-6  # of a magnitude under a root
_NO_SHARE = 1e-20  # the least share that has a logarithm


def _wide(s: Spelling, name: str) -> Val:
    """An input as f32."""
    return s.cast(s.val(name), "f32")


def _normal(s: Spelling, v: Val, scale: Val | None) -> Val:
    """``v`` by the root of the mean of its squares over the last dimension, times ``scale``."""
    one = s("Expand", s.number(1, "f32"), s.dims(v.shape[-1]))
    y = s("RMSNormalization", v, one, axis=-1, epsilon=s.attr("epsilon", 1e-5))
    return y if scale is None else s("Mul", y, s.cast(scale, "f32"))


@spells("GatedAdd", "X Y gate -gate_weight")
def gated_add(s: Spelling) -> Result:
    return s("Add", s.val("X"), s("Mul", s.val("Y"), s.val("gate")), out=0)


@spells("GatedRMSNorm", "X scale gate", "activation epsilon")
def gated_norm(s: Spelling) -> Result:
    """Rows may be several groups of as many elements as ``scale`` has."""
    x, gate = _wide(s, "X"), _wide(s, "gate")
    size = width(s, s.val("scale").shape[0], 1, "the scale")
    groups = s.reshape(x, *x.shape[:-1], width(s, x.shape[-1], size, "a row"), size)
    normal = s.reshape(_normal(s, groups, s.val("scale")), *x.shape)
    kind = s.attr("activation", "silu")
    if kind not in ("silu", "swish", "sigmoid"):
        raise s.b.bad(f"the activation {kind!r} is none of 'silu', 'swish', 'sigmoid'")
    gate = s("Sigmoid" if kind == "sigmoid" else "Swish", gate)
    return rounded(s, s("Mul", normal, gate), s.val("X").dtype, 0)


@spells("ScaledSiLU", "X scale", "alpha")
def scaled_silu(s: Spelling) -> Result:
    x, scale = s.val("X"), s.opt("scale")
    if scale is None:
        scale = s.number(s.attr("alpha", 1.0), x.dtype)
    scaled = s.cast(s("Mul", s.cast(x, "f32"), s.cast(s("Reshape", scale, s.ints()), "f32")),
                    x.dtype)
    return s("Mul", scaled, s("Sigmoid", scaled), out=0)


@spells("LinearAttentionGate", "a dt_bias decay_scale b")
def linear_attention_gate(s: Spelling) -> Result:
    """(the logarithm of what linear attention keeps of its state, how much of an update counts)."""
    a, b = s.val("a"), s.opt("b")
    soft = s("Softplus", s("Add", _wide(s, "a"), s.val("dt_bias")))
    decay = rounded(s, s("Mul", soft, s.val("decay_scale")), a.dtype, 0)
    if not s.wants(1):
        return decay
    if b is None:
        raise s.b.bad("the output 'beta' needs the input 'b'")
    return decay, s("Sigmoid", b, out=1)


@spells("EngramGate", "key query value key_norm_scale query_norm_scale conv_norm_scale", "epsilon")
def engram_gate(s: Spelling) -> Result:
    """[batch, sequence, streams, hidden]: a value for every stream, as far as keys and queries
    agree."""
    dtype, key = s.val("key").dtype, _wide(s, "key")
    size = width(s, key.shape[3], 1, "a stream")
    both = s("Mul", _normal(s, key, s.val("key_norm_scale")),
             _normal(s, _wide(s, "query"), s.val("query_norm_scale")))
    dot = s("Mul", s("ReduceSum", both, s.ints(-1), keepdims=1), s.number(size ** -0.5, "f32"))
    root = s("Sqrt", s("Max", s("Abs", dot), s.number(_LEAST, "f32")))
    gate = s("Sigmoid", s("Mul", s("Sign", dot), root))
    made = s("Mul", gate, s.spread(_wide(s, "value"), 2))
    out = rounded(s, made, dtype, 0)
    if not s.wants(1):
        return out
    return out, rounded(s, _normal(s, made, s.val("conv_norm_scale")), dtype, 1)


# ---------------------------------------------------------------- streams

def _streams(s: Spelling, name: str) -> Val:
    """[.., streams, hidden] of f32."""
    v, count = _wide(s, name), s.attr("num_branches", 0)
    return s.reshape(v, *v.shape[:-1], count, width(s, v.shape[-1], count, "the streams")
                     ) if count else v


def _mix(s: Spelling, name: str, streams: Val) -> Val:
    """Gates of streams as [.., streams, 1 or hidden]: given as such, without the last dimension, or
    with both as one."""
    v = _wide(s, name)
    if v.rank == streams.rank:
        return v
    count = width(s, streams.shape[-2], 1, "the streams")
    return s.reshape(v, *v.shape[:-1], count, width(s, v.shape[-1], count, "the gates"))


@spells("BranchwiseRMSNorm", "X scale", "num_branches epsilon")
def branchwise_norm(s: Spelling) -> Result:
    given, x, scale = s.val("X"), _streams(s, "X"), s.opt("scale")
    if scale is not None and scale.rank == 1 and static_shape(scale.shape) != static_shape(
            x.shape[-1:]):
        scale = s.reshape(scale, *x.shape[-2:])
    return rounded(s, s.reshape(_normal(s, x, scale), *given.shape), given.dtype, 0)


@spells("HyperConnectionPreMix", "streams pre_mix", "num_branches reduction_scale")
def premixed(s: Spelling) -> Result:
    x = _streams(s, "streams")
    total = s("ReduceSum", s("Mul", x, _mix(s, "pre_mix", x)), s.ints(-2), keepdims=0)
    y = s("Mul", total, s.number(s.attr("reduction_scale", 1.0), "f32"))
    return rounded(s, y, s.val("streams").dtype, 0)


@spells("HyperConnectionPostMix", "streams block_output post_mix stream_mix", "num_branches")
def postmixed(s: Spelling) -> Result:
    given, x, mix = s.val("streams"), _streams(s, "streams"), s.opt("stream_mix")
    old = x if mix is None else s("MatMul", s.transpose(
        s.cast(mix, "f32"), *range(mix.rank - 2), mix.rank - 1, mix.rank - 2), x)
    new = s("Mul", _mix(s, "post_mix", x), s.spread(_wide(s, "block_output"), -2))
    return rounded(s, s.reshape(s("Add", old, new), *given.shape), given.dtype, 0)


# ---------------------------------------------------------------- places of three kinds

@spells("MRotaryEmbedding", "input position_ids cos_cache sin_cache",
        "mrope_section num_heads rotary_embedding_dim interleaved mrope_layout is_packed_batching",
        only={"scale": 1.0})
def rotary_of_three(s: Spelling) -> Result:
    """RotaryEmbedding by places [3, batch, sequence]: in time, height and width, each for columns
    of its own."""
    x, cos = s.val("input"), s.val("cos_cache")
    pairs, sections = width(s, cos.shape[1], 1, "the cache"), list(s.given("mrope_section"))
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs:
        raise s.b.bad(f"mrope_section {sections} does not add up to {pairs} pairs")
    flat = x.rank == 3
    if flat:
        columns = width(s, x.shape[2], 1, "the input")
        x = heads(s, x, s.attr("num_heads", 0) or columns // (2 * pairs), "the input")
    which = [kind for kind, count in enumerate(sections) for _ in range(count)]
    if s.attr("mrope_layout", 0) == 1:
        which = [next((k for k in (1, 2) if n % 3 == k and n < 3 * sections[k]), 0)
                 for n in range(pairs)]
    cos, sin = (_columns(s, s.val(f"{n}_cache"), s.val("position_ids"), which)
                for n in ("cos", "sin"))
    made = rotated(s, x, cos, sin, s.attr("interleaved", 0) == 1, None if flat else 0)
    return joined(s, made) if flat else made


def _columns(s: Spelling, table: Val, places: Val, which: Sequence[int]) -> Val:
    """[batch, 1, sequence, pairs]: rows of a table, each column at the place of its kind."""
    rows = s("Gather", table, places)  # [3, batch, sequence, pairs]
    kinds = s.ints(*which)
    mask = s("Equal", s.spread(kinds, 0), s.spread(s.ints(0, 1, 2), 1))
    own = s("Where", s.spread(mask, 1, 2), rows, s.number(0, rows.dtype))
    return s.spread(s("ReduceSum", own, s.ints(0), keepdims=0), 1)


# ---------------------------------------------------------------- routes to experts

@spells("MoEGroupRouter", "logits expert_bias projection_weight",
        "top_k n_group topk_group group_topk router_sentinel")
def group_router(s: Spelling) -> Result:
    """Of every token the logarithm of its share of the experts that it goes to; they are of the
    groups whose best ones are best together."""
    logits, weight = s.val("logits"), s.opt("projection_weight")
    x = s.cast(logits, "f32")
    if weight is not None:
        x = s("MatMul", x, s.transpose(s.cast(weight, "f32"), 1, 0))
    count = width(s, x.shape[-1], 1, "the experts")
    share = s("Sigmoid", s("Reshape", x, s.ints(-1, count)))
    ranked = s("Add", share, s.val("expert_bias"))
    if s.wants(1) or s.wants(2):
        return None, s("Identity", ranked, out=1), s("Identity", share, out=2)
    groups, few = s.attr("n_group", 1), s.attr("topk_group", 1)
    size = width(s, x.shape[-1], groups, "the experts")
    if groups > 1:
        by_group = s("Reshape", ranked, s.ints(-1, groups, size))
        best = _best(s, by_group, min(s.attr("group_topk", 2), size))[0]
        total = s("ReduceSum", best, s.ints(-1), keepdims=0)
        open_ = _picked(s, total, min(few, groups))
        hidden = s("Where", s.spread(open_, 2), by_group, s.number(float("-inf"), "f32"))
        ranked = s("Reshape", hidden, s.ints(-1, count))
    chosen = _picked(s, ranked, s.given("top_k"))
    said = s("Log", s("Max", share, s.number(_NO_SHARE, "f32")))
    y = s("Where", chosen, said, s.number(s.attr("router_sentinel", -10000.0), "f32"))
    return rounded(s, y, logits.dtype, 0)


def _best(s: Spelling, v: Val, k: int) -> list[Val]:
    """The ``k`` largest of every row, and their places."""
    return s.several("TopK", [v, s.ints(k)], [None] * 2, axis=-1)


def _picked(s: Spelling, v: Val, k: int) -> Val:
    """True for the ``k`` largest of every row."""
    which, count = _best(s, v, k)[1], width(s, v.shape[-1], 1, "a row")
    there = s("Equal", s.spread(which, 2), s.places(v.shape[-1]))
    assert count >= k, count
    return s("Cast", s("ReduceMax", s.cast(there, "i32"), s.ints(1), keepdims=0), to=9)
