"""Layers with a state over tokens of several requests, one after the other: [tokens, ..]."""

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.ops.contrib.attention import width
from aotc.frontend.ops.contrib.ops_recurrence import RULES, Tokens, activated, attended, rounded
from aotc.ir.expr import Axis, Const, Expr, Where, compare, maximum, minimum
from aotc.ir.program import static_shape

_NORM = 1e-6  # added to sums of squares


# ---------------------------------------------------------------- convolutions

@spells("VarlenCausalConvWithState", "input weight cumulative_sequence_length bias initial_state "
        "-capture_count -kernel_delta -previous_mask", "activation dilation",
        only={"state_update_capacity": 0, "delta_offset": 0, "group_size": 1})
def packed_conv(s: Spelling) -> Result:
    """CausalConvWithState of every request: (output, the state of each)."""
    b, given, past, ends = s.b, s.val("input"), s.val("initial_state"), s.val(
        "cumulative_sequence_length")
    x, w = (s.cast(v, "f32") for v in (given, s.val("weight")))
    old, step = s.cast(past, "f32"), s.attr("dilation", 1)
    taps, count = width(s, w.shape[2], 1, "the taps"), past.shape[0]
    reach = (taps - 1) * step
    b.require("eq", past.shape[2], reach, "initial_state must hold what the taps reach back")
    b.require("eq", ends.shape[0], count + 1, "every request has a beginning and an end")
    tokens = x.shape[0]
    b.nonempty(tokens, past.shape, "a token")
    which = requests(s, ends, tokens)

    def begin(request: Expr) -> Expr:
        return b.checked(b.index_at(ends, (request,)), tokens + 1)

    def entry(request: Expr, place: Expr, channel: Expr) -> Expr:
        """Element ``place`` of a request, below 0 of its state."""
        row = minimum(maximum(begin(request) + place, Const(0)), tokens - 1)
        before = b.at(old, (request, channel, minimum(maximum(place + reach, Const(0)),
                                                      Const(reach - 1)))) if reach else Const(0)
        now = b.at(x, (row, channel))
        return Where(compare("ge", place, Const(0)), now, before) if reach else now
    t, c, k = Axis("t", tokens), Axis("c", x.shape[1]), Axis("k", Const(taps))
    request = b.checked(b.index_at(which, (t,)), count)
    place = t - begin(request) - (taps - 1 - k) * step
    y = b.compute((t, c), entry(request, place, c) * b.at(w, (c, 0, k)), (k,), "sum", "summed")
    bias = s.opt("bias")
    y = y if bias is None else s("Add", y, s.cast(bias, "f32"))

    def state(i: Index) -> Expr:
        length = begin(i[0] + 1) - begin(i[0])
        return entry(i[0], length - reach + i[2], i[1])
    last = b.map(past.shape, state, [x, old, ends], tag="state")
    return rounded(s, activated(s, y, None), given.dtype, 0), rounded(s, last, past.dtype, 1)


def requests(s: Spelling, ends: Val, tokens: Expr) -> Val:
    """[tokens]: the number of the request that every token is of."""
    place = s.spread(s.cast(s.places(tokens), ends.dtype), 1)
    behind = s.cast(s("GreaterOrEqual", place, s.spread(ends, 0)), "i64")
    number = s("ReduceSum", behind, s.ints(1), keepdims=0)
    return s("Sub", number, s.number(1, "i64"))


# ---------------------------------------------------------------- linear attention

@spells("GatedDeltaNet", "query key value -cu_seqlens decay beta initial_state a_log dt_bias "
        "-capture_count -state_update_active", "update_rule scale chunk_size beta_activation "
        "gate_activation gate_lower_bound qk_l2_norm", only={"state_update_capacity": 0})
def gated_delta_net(s: Spelling) -> Result:
    """LinearAttention of requests of one length, whose state is [batch, heads, columns, size]."""
    state, rule = s.opt("initial_state"), s.attr("update_rule", "gated_delta")
    if rule not in RULES:
        raise s.b.bad(f"the update rule {rule!r} is none of {', '.join(RULES)}")
    q, k, v = _operands(s, state)
    given = q.shape[:-2]
    if len(given) == 1 and state is None:
        raise s.b.bad("the number of requests needs initial_state")
    decay, beta = (s.opt(n) if n in RULES[rule] else None for n in ("decay", "beta"))
    rows = None if state is None else state.shape[0]
    decay = None if decay is None else _by_request(s, decay, len(given), rows)
    beta = None if beta is None else _by_request(s, beta, len(given), rows)
    q, k, v = (_by_request(s, x, len(given), rows) for x in (q, k, v))
    size = width(s, q.shape[-1], 1, "a head")
    if s.attr("qk_l2_norm", 0):
        q, k = (_unit(s, x) for x in (q, k))
    if decay is not None:
        decay = _gate(s, decay, width(s, v.shape[2], 1, "heads"), size)
    if beta is not None and s.attr("beta_activation", "none") == "sigmoid":
        beta = s("Sigmoid", beta)
    old = None if state is None else s.transpose(s.cast(state, "f32"), 0, 1, 3, 2)
    made, last = attended(s, Tokens(q, k, v, decay, beta, s.attr("scale", 0.0) or size ** -0.5),
                          old)
    flat = s.reshape(s.transpose(made, 1, 0, 2, 3), *given, *made.shape[2:])
    y = rounded(s, flat, s.val("query").dtype, 0)
    return (y, s.transpose(last, 0, 1, 3, 2, out=1)) if s.wants(1) else y


def _operands(s: Spelling, state: Val | None) -> list[Val]:
    """Queries, keys, values as [.., heads, size]; packed ones are cut as ``state`` says."""
    q, k, v = s.val("query"), s.opt("key"), s.opt("value")
    if k is not None and v is not None:
        return [q, k, v]
    if state is None:
        raise s.b.bad("packed operands need initial_state")
    count, columns, size = (width(s, d, 1, "the state") for d in state.shape[1:])
    rest = width(s, q.shape[-1], 1, "the packed operands") - count * columns
    if rest < 1 or rest % (2 * size):
        raise s.b.bad(f"{q} packs no operands of heads as those of {state}")
    cut = s.several("Split", [q, s.ints(rest // 2, rest // 2, count * columns)], [None] * 3,
                    axis=-1)
    return [s.reshape(x, *x.shape[:-1], heads, each) for x, heads, each in zip(
        cut, (rest // 2 // size, rest // 2 // size, count), (size, size, columns), strict=True)]


def _by_request(s: Spelling, v: Val, leading: int, requests: Expr | None) -> Val:
    """[tokens, ..] or [batch, sequence, ..] as [sequence, batch, ..] of f32."""
    v = s.cast(v, "f32")
    if leading == 1:
        assert requests is not None, v
        v = s.reshape(v, requests, v.shape[0] // requests, *v.shape[1:])
    return s.transpose(v, 1, 0, *range(2, v.rank))


def _unit(s: Spelling, v: Val) -> Val:
    """Rows of length 1."""
    square = s("ReduceSumSquare", v, s.ints(-1), keepdims=1)
    return s("Div", v, s("Sqrt", s("Add", square, s.number(_NORM, "f32"))))


def _gate(s: Spelling, decay: Val, count: int, size: int) -> Val:
    """The logarithm of what is kept of the state, [.., heads] or [.., heads, size]."""
    kind = s.attr("gate_activation", "none")
    if kind == "none":
        return decay
    log, bias, deep = s.val("a_log"), s.opt("dt_bias"), decay.rank == 4
    if bias is not None:
        wide = static_shape(bias.shape) not in ((count,),)
        bias = s.reshape(bias, count, size) if wide else bias
        if deep and not wide:
            bias = s.spread(bias, 1)
        decay = s("Add", decay, bias)
    factor = s("Exp", s.spread(log, 1) if deep else log)
    if kind in ("softplus", "qwen"):
        return s("Neg", s("Mul", factor, s("Softplus", decay)))
    if kind not in ("sigmoid", "kda"):
        raise s.b.bad(f"the gate {kind!r} is none of 'none', 'softplus', 'sigmoid'")
    low = s.number(s.attr("gate_lower_bound", -5.0), "f32")
    return s("Mul", low, s("Sigmoid", s("Mul", factor, decay)))
